//! Schemes that need more than acknowledgements, between two sockets: Sprout, whose forecasts come back with
//! them, and the model-driven controller, whose model only the sending end has.

use crate::probe_common::Served;
use verus_faults::{machine, taught};
use verus_probe::client::Client;
use verus_probe::driver::Driver;
use verus_senders::Scheme;

/// One upload flow for three seconds through a link of 5 Mbit/s and 15 ms in each direction: Mbit/s
/// that arrived, and the controller's last probe `name`.
fn upload(chosen: Scheme, name: &str) -> (f64, Option<f64>) {
    let served = Served::behind(5.0, "droptail:bytes=100000");
    let mut driver = Driver::new(served.connect()).expect("a timer");
    let config = crate::probe_common::upload(chosen.text(), false);
    let seconds = config.request.duration_nanos as f64 / 1e9;
    let mut client = Client::new(config, chosen, [2; 32], driver.clock().now());
    while client.outcome().is_none() {
        driver.turn(&mut client, None, None).expect("a turn");
    }
    assert_eq!(client.outcome(), Some(Ok(())));
    let connection = client.connection().expect("it was connected");
    let flow = connection.outgoing().iter().next().expect("one flow");
    let mut shown = None;
    flow.sender().controller().probe(&mut |key, value| {
        if key == name {
            shown = Some(value);
        }
    });
    let mbps = flow.distinct() as f64 * 8.0 / seconds / 1e6;
    served.end();
    (mbps, shown)
}

#[test]
#[ignore = "reads the clock: make test-clock"]
fn forecasts_come_back_with_acknowledgements_and_without_them_the_sender_makes_them() {
    let _machine = machine::watch(20);
    for (scheme, expected) in [("sprout", false), ("sprout:receiver=no", true)] {
        let chosen = Scheme::parse(scheme).expect("in the catalogue");
        let (mbps, shown) = upload(chosen, "forecast_at_sender");
        println!("{scheme}: {mbps:.2} Mbit/s");
        let at_sender = shown.expect("Sprout says where its forecast is made") > 0.0;
        assert_eq!(at_sender, expected, "{scheme}");
        // A busy machine delivers late and in lumps, which a forecast attributes to the link. The
        // test only requires more than the heartbeats, of which there are 20 a second, 0.2 Mbit/s.
        assert!(mbps > 0.3, "{scheme}: {mbps} Mbit/s");
    }
}

#[test]
#[ignore = "reads the clock: make test-clock"]
fn a_model_sends_what_it_was_taught() {
    let _machine = machine::watch(20);
    let model = Scheme::open("model:file=taught.model,walk=sampled", |_| {
        Ok(taught::model())
    });
    let (mbps, _) = upload(model.expect("a model"), "");
    println!("model: {mbps:.2} Mbit/s");
    // One packet of 1400 bytes an epoch is 2.2 Mbit/s; a busy machine misses some epochs.
    assert!((0.7..4.0).contains(&mbps), "{mbps} Mbit/s");
}
