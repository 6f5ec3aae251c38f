//! Ten schedules of faults in real time, over UDP: see `verus_faults::realtime`.

use std::net::Ipv4Addr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration as StdDuration;

use rand::Rng;
use verus_clock::Clock;
use verus_core::{Duration, Time, random};
use verus_faults::realtime::{
    DEADLINE, LOOK, SILENCE, all_at_once, amount, check_befallen, is_gone, proxy,
};
use verus_faults::{End, ProxyStats, Schedule, machine};
use verus_probe::client::{Client, ClientConfig, ClientError};
use verus_probe::driver::{self, Driver};
use verus_probe::seal::Secret;
use verus_probe::server::{Catalogue, Notice, Server, ServerConfig};
use verus_probe::socket::UdpSocket;
use verus_probe::wire::Request;
use verus_senders::Scheme;

/// Stretched once for all seeds.
static SECRET: LazyLock<Secret> = LazyLock::new(|| Secret::stretch(b"a shared secret"));

fn entropy(seed: u64, index: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    random::stream(seed, "entropy", index).fill_bytes(&mut bytes);
    bytes
}

/// Lets an end go on until `is_over`, and does nothing while the schedule stops it, as after `SIGSTOP`.
/// Returns whether it came to its end.
fn go_on<E: driver::Endpoint>(
    schedule: &Schedule,
    which: End,
    began: Time,
    clock: &Clock,
    driver: &mut Driver,
    end: &mut E,
    mut is_over: impl FnMut(&mut E) -> bool,
) -> bool {
    while !is_over(end) {
        // Each driver has a separate clock.
        let at = Time::ZERO + clock.now().since(began);
        if at > Time::ZERO + DEADLINE {
            return false;
        }
        if schedule.is_stopped(which, at) {
            thread::sleep(StdDuration::from_nanos(LOOK.as_nanos()));
            continue;
        }
        let until = driver.clock().now() + LOOK;
        driver
            .turn(end, Some(until), None)
            .expect("the system does not fail");
    }
    true
}

/// The outcome of one schedule.
struct Probed {
    outcome: Option<Result<(), ClientError>>,
    uploaded: u64,
    downloaded: u64,
    /// Tests that the server began.
    began: usize,
    wakeups: u64,
    took: Duration,
    stats: ProxyStats,
}

fn request(schedule: &Schedule) -> Request {
    let seed = schedule.seed;
    let (upload_flows, download_flows) = match seed % 3 {
        0 => (2, 0),
        1 => (0, 2),
        _ => (1, 1),
    };
    Request {
        upload_flows,
        download_flows,
        bytes: amount(schedule),
        seed,
        scheme: "verus".to_owned(),
        ..Request::default()
    }
}

fn probe(schedule: &Schedule) -> Probed {
    let seed = schedule.seed;
    let secret = seed.is_multiple_of(2).then(|| SECRET.clone());
    let listener = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("some port is free");
    let proxy = proxy(schedule, listener.local_addr().expect("it is bound"));
    let clock = Clock::new();
    let began = clock.now();
    let over = AtomicBool::new(false);
    let mut server_driver = Driver::new(listener).expect("the system grants a timer");
    let mut server_config = ServerConfig {
        secret: secret.clone(),
        ..ServerConfig::default()
    };
    server_config.limits.silence = SILENCE;
    let now = server_driver.clock().now();
    let mut server = Server::new(server_config, Catalogue, entropy(seed, 0), now);
    let socket = UdpSocket::connect(proxy.addr()).expect("the proxy is there");
    let mut client_driver = Driver::new(socket).expect("the system grants a timer");
    let request = request(schedule);
    let client_config = ClientConfig {
        secret,
        patience: SILENCE,
        silence: SILENCE,
        ..ClientConfig::new(request.clone())
    };
    let scheme = Scheme::parse(&request.scheme).expect("it is in the list");
    let now = client_driver.clock().now();
    let mut client = Client::new(client_config, scheme, entropy(seed, 1), now);
    let (mut uploaded, mut tests) = (0, 0);
    let took = thread::scope(|scope| {
        scope.spawn(|| {
            let (driver, server) = (&mut server_driver, &mut server);
            go_on(
                schedule,
                End::Server,
                began,
                &clock,
                driver,
                server,
                |server| {
                    for notice in server.drain_notices() {
                        tests += usize::from(matches!(notice, Notice::Began { .. }));
                    }
                    for connection in server.connections() {
                        let received = connection.incoming().map(|(flow, _)| flow.distinct()).sum();
                        uploaded = uploaded.max(received);
                    }
                    over.load(Ordering::Relaxed) && (server.is_idle() || is_gone(schedule))
                },
            );
        });
        let (driver, client) = (&mut client_driver, &mut client);
        go_on(
            schedule,
            End::Client,
            began,
            &clock,
            driver,
            client,
            |client| client.outcome().is_some(),
        );
        over.store(true, Ordering::Relaxed);
        clock.now().since(began)
    });
    let downloaded = client.connection().map_or(0, |connection| {
        connection.incoming().map(|(flow, _)| flow.distinct()).sum()
    });
    Probed {
        outcome: client.outcome(),
        uploaded,
        downloaded,
        began: tests,
        wakeups: client_driver.wakeups() + server_driver.wakeups(),
        took,
        stats: proxy.stop().expect("the proxy did not fail"),
    }
}

fn check_probe(schedule: &Schedule, probed: &Probed) {
    let request = request(schedule);
    let bytes_of = |flows: u16| u64::from(flows) * request.bytes;
    let (up, down) = (
        bytes_of(request.upload_flows),
        bytes_of(request.download_flows),
    );
    match &probed.outcome {
        Some(Ok(())) => assert_eq!((probed.uploaded, probed.downloaded), (up, down)),
        Some(Err(ClientError::Silent(_) | ClientError::NoAnswer(_))) => {
            assert!(is_gone(schedule), "no excuse");
        }
        Some(Err(error)) => panic!("the client fails with: {error}"),
        None => panic!("it did not end"),
    }
    // A copy of the hello that comes late may begin a test that nobody goes on with.
    assert!((1..=2).contains(&probed.began), "{} tests", probed.began);
    let stats = &probed.stats;
    for path in [&stats.up, &stats.down] {
        assert!(path.held_bytes_max < 1 << 20, "{path:?}");
    }
    assert_eq!(
        stats.address_changes,
        schedule
            .address_changes
            .iter()
            .filter(|at| at.as_secs_f64() < stats.elapsed_s)
            .count() as u64
    );
    // Packets, epochs of at most four flows every 5 ms, and looking up.
    let packets = stats.up.sent + stats.up.delivered + stats.down.sent + stats.down.delivered;
    let allowed = 2.0 * packets as f64 + 1_000.0 * probed.took.as_secs_f64();
    assert!(
        (probed.wakeups as f64) < allowed,
        "woken {} times for {packets} packets",
        probed.wakeups
    );
}

#[test]
#[ignore = "reads the clock: make test-clock"]
fn every_test_over_real_sockets_delivers_every_byte_or_says_why_not() {
    let _machine = machine::watch(20);
    let probed = all_at_once(probe, check_probe, |probed| {
        format!(
            "{:.2} s: {:?}, up {}, down {}, woken {} times",
            probed.took.as_secs_f64(),
            probed.outcome,
            probed.uploaded,
            probed.downloaded,
            probed.wakeups
        )
    });
    let succeeded = probed
        .iter()
        .filter(|probed| probed.outcome == Some(Ok(())));
    assert!(succeeded.count() >= 9);
    check_befallen(probed.iter().map(|probed| &probed.stats));
}
