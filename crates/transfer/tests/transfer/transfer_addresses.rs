//! Clients whose address changes on the way, as behind a NAT.

use std::fs;
use std::net::SocketAddr;

use tokio::time::Instant;
use verus_core::{Duration, Time};
use verus_faults::{Proxy, ProxyConfig, machine};
use verus_transfer::{Client, ClientConfig, ConnectError};

use crate::transfer_common::{World, path};

/// A path with a round trip of 200 ms to `server`, and changes of the address at these times in ms.
fn proxy(server: SocketAddr, changes_ms: impl Iterator<Item = u64>) -> Proxy {
    let mut config = ProxyConfig::new(server);
    let schedule = &mut config.schedule;
    (schedule.up.delay, schedule.down.delay) =
        (Duration::from_millis(100), Duration::from_millis(100));
    schedule.address_changes = changes_ms.map(Time::from_millis).collect();
    Proxy::start(config).expect("a port")
}

/// The configuration of a client that reaches the server by `proxy`.
fn through(world: &World, proxy: &Proxy) -> ClientConfig {
    ClientConfig {
        host: proxy.addr().to_string().parse().expect("an address"),
        addresses: vec![proxy.addr()],
        patience: std::time::Duration::from_secs(4),
        ..world.config()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "reads the clock: make test-clock"]
async fn a_client_whose_address_changes_within_the_handshake_begins_again() {
    let _machine = machine::watch(50);
    let world = World::new();
    fs::write(world.served("file"), b"contents").expect("written");
    // The server has the first packet after 100 ms, and would have the last of the handshake after 300 ms.
    let proxy = proxy(world.address, std::iter::once(200));
    let began = Instant::now();
    let client = Client::connect(&through(&world, &proxy)).await;
    let client = client.expect("a connection from one address");
    let took_s = began.elapsed().as_secs_f64();
    assert!((1.0..4.0).contains(&took_s), "{took_s} s");
    assert_eq!(client.list(&path("")).await.expect("a list").len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "reads the clock: make test-clock"]
async fn an_address_that_changes_within_each_round_trip_is_named() {
    let _machine = machine::watch(50);
    let world = World::new();
    let proxy = proxy(world.address, (1..1000).map(|number| 50 * number));
    let began = Instant::now();
    let error = Client::connect(&through(&world, &proxy)).await;
    let error = error.expect_err("no handshake ends");
    assert!(matches!(error, ConnectError::Unconfirmed), "{error}");
    assert!(error.to_string().contains("a NAT"), "{error}");
    assert!(began.elapsed().as_secs_f64() < 7.0);
}
