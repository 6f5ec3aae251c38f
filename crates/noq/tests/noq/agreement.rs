//! Throughput and delay of a controller in noq agree with the simulator's, on a virtual clock.

use verus_core::{Duration, Time};
use verus_faults::world::{self, Ending, Surroundings};
use verus_faults::{Bottleneck, Schedule};
use verus_sim::{FlowSpec, Scenario};

use crate::virtual_ends::upload;

const MBPS: f64 = 12.0;
const ONE_WAY_MS: u64 = 20;
const QUEUE: &str = "droptail:bytes=240000";
const SECONDS: f64 = 20.0;
/// Size of the transfer, headers not counted: it takes about as long as the simulated run.
const BYTES: usize = (MBPS * 1e6 / 8.0 * SECONDS * 0.9) as usize;

/// Throughput at the link in Mbit/s, and mean queueing delay there in ms, over QUIC.
fn in_noq(scheme: &str) -> (f64, f64) {
    let schedule = Schedule::perfect(Duration::from_millis(ONE_WAY_MS));
    let surroundings = Surroundings {
        up: Some(Bottleneck::new(MBPS, QUEUE)),
        down: None,
    };
    let (mut client, mut server) = upload(scheme, BYTES);
    let deadline = Time::from_millis(60_000);
    let meeting = world::run(&schedule, surroundings, &mut client, &mut server, deadline);
    assert_eq!(meeting.ending, Ending::Done, "{scheme}");
    assert_eq!(server.received, BYTES, "{scheme}");
    let link = meeting.up.bottleneck.expect("it has one");
    (link.utilization() * MBPS, link.queueing.mean_ms)
}

/// The same in the simulator.
fn in_simulator(scheme: &str) -> (f64, f64) {
    let scenario = Scenario {
        trace: format!("rate:{MBPS}"),
        queue: QUEUE.to_owned(),
        delay_ms: ONE_WAY_MS as f64,
        packet_bytes: 1480,
        duration_s: SECONDS,
        flows: vec![FlowSpec::new(scheme)],
        ..Scenario::default()
    };
    let outcome =
        verus_sim::run(&scenario, &mut |_| true).unwrap_or_else(|error| panic!("{error}"));
    let link = &outcome.metrics;
    (link.throughput_mbps, link.qdelay_mean_ms.expect("packets"))
}

#[test]
fn throughput_and_delay_agree_with_the_simulator() {
    for scheme in ["forward", "verus:ratio=2"] {
        let (mbps, delay_ms) = in_noq(scheme);
        let (expected_mbps, expected_ms) = in_simulator(scheme);
        let figures = format!(
            "{scheme}: {mbps:.2} Mbit/s and {delay_ms:.1} ms in noq, {expected_mbps:.2} and {expected_ms:.1} simulated"
        );
        println!("{figures}");
        assert!((mbps / expected_mbps - 1.0).abs() < 0.10, "{figures}");
        assert!((delay_ms / expected_ms - 1.0).abs() < 0.25, "{figures}");
    }
}
