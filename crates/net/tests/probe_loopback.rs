//! Schemes that need more than acknowledgements, between two sockets: Sprout, whose forecasts come back with
//! them, and the model-driven controller, whose model only the sending end has.

mod quic_common;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use verus_channel::{QueueConfig, RateSchedule, Service};
use verus_core::algorithm::Scheme;
use verus_core::{Duration, Rate};
use verus_faults::{Bottleneck, Proxy, ProxyConfig, Schedule};
use verus_net::probe::client::{Client, ClientConfig};
use verus_net::probe::driver::Driver;
use verus_net::probe::server::{Catalogue, Server, ServerConfig};
use verus_net::probe::socket::UdpSocket;
use verus_net::probe::wire::Request;

const SECONDS: u64 = 3;

/// One upload flow for three seconds through a link of 5 Mbit/s and 15 ms each way: Mbit/s that
/// arrived, and what the controller shows of itself under `name` in the end.
fn upload(chosen: Scheme, name: &str) -> (f64, Option<f64>) {
    let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let socket = UdpSocket::bind(bind).expect("a port");
    let mut config = ProxyConfig::new(socket.local_addr().expect("bound"));
    config.schedule = Schedule::perfect(Duration::from_millis(15));
    config.up = Some(Bottleneck {
        service: Service::Rate(RateSchedule::constant(Rate::from_mbps(5.0))),
        queue: QueueConfig::parse("droptail:bytes=100000").expect("a valid queue"),
    });
    let proxy = Proxy::start(config).expect("a proxy");
    let over = Arc::new(AtomicBool::new(false));
    let server = thread::spawn({
        let over = Arc::clone(&over);
        move || {
            let mut driver = Driver::new(socket).expect("a timer");
            let now = driver.clock().now();
            let mut server = Server::new(ServerConfig::default(), Catalogue, [1; 32], now);
            while !over.load(Ordering::Relaxed) {
                let until = driver.clock().now() + Duration::from_millis(50);
                driver.turn(&mut server, Some(until), None).expect("a turn");
                server.drain_notices().for_each(drop);
            }
        }
    });
    let socket = UdpSocket::connect(proxy.addr()).expect("loopback");
    let mut driver = Driver::new(socket).expect("a timer");
    let config = ClientConfig {
        request: Request {
            upload_flows: 1,
            download_flows: 0,
            packet_bytes: 1400,
            status_millis: 100,
            duration_nanos: SECONDS * 1_000_000_000,
            bytes: 0,
            rate_bps: 0,
            seed: 1,
            scheme: chosen.text().to_owned(),
        },
        secret: None,
        patience: Duration::from_secs(5),
        silence: Duration::from_secs(5),
        log: false,
        overhead: 28,
    };
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
    over.store(true, Ordering::Relaxed);
    server.join().expect("the server ended");
    let mbps = flow.distinct() as f64 * 8.0 / SECONDS as f64 / 1e6;
    (mbps, shown)
}

#[test]
fn forecasts_come_back_with_acknowledgements_and_without_them_the_sender_makes_them() {
    for (scheme, expected) in [("sprout", false), ("sprout:receiver=no", true)] {
        let chosen = Scheme::parse(scheme).expect("in the catalogue");
        let (mbps, shown) = upload(chosen, "forecast_at_sender");
        println!("{scheme}: {mbps:.2} Mbit/s");
        let at_sender = shown.expect("Sprout says where its forecast is made") > 0.0;
        assert_eq!(at_sender, expected, "{scheme}");
        // A busy machine delivers late and in lumps, which a forecast takes for the link's own: what
        // is asked is more than heartbeats, of which there are 20 a second, 0.2 Mbit/s.
        assert!(mbps > 0.3, "{scheme}: {mbps} Mbit/s");
    }
}

#[test]
fn a_model_sends_what_it_was_taught() {
    let (mbps, _) = upload(quic_common::model(), "");
    println!("model: {mbps:.2} Mbit/s");
    // One packet of 1400 bytes an epoch is 2.2 Mbit/s; a busy machine misses some epochs.
    assert!((0.7..4.0).contains(&mbps), "{mbps} Mbit/s");
}
