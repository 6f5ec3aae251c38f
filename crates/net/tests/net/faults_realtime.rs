//! Ten schedules of faults in real time: real sockets, real drivers, and the fault proxy between them.
//!
//! All run at once. They are drawn like those of the tests in virtual time, but what lasts half a minute
//! there lasts three seconds here.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration as StdDuration;

use quinn::{
    ConnectionError, Endpoint, ReadError, ReadToEndError, RecvStream, SendStream, StoppedError,
    TransportConfig, VarInt, WriteError,
};
use rand::{Rng, RngExt};
use rustls::pki_types::PrivatePkcs8KeyDer;
use verus_channel::{QueueConfig, RateSchedule, Service};
use verus_clock::Clock;
use verus_core::algorithm::Scheme;
use verus_core::{Duration, Rate, Time, random};
use verus_faults::{Bottleneck, End, Limits, Proxy, ProxyConfig, ProxyStats, Schedule, machine};
use verus_net::probe::client::{Client, ClientConfig, ClientError};
use verus_net::probe::driver::{self, Driver};
use verus_net::probe::seal::Secret;
use verus_net::probe::server::{Catalogue, Notice, Server, ServerConfig};
use verus_net::probe::socket::UdpSocket;
use verus_net::probe::wire::Request;
use verus_net::quic;

/// Stretched once for all seeds.
static SECRET: LazyLock<Secret> = LazyLock::new(|| Secret::stretch(b"a shared secret"));

/// Of the first sixty, ten in which much goes wrong: a test below says what they have together.
const SEEDS: [u64; 10] = [0, 5, 12, 13, 24, 32, 39, 44, 54, 59];
/// Longer than the longest blackout.
const SILENCE: Duration = Duration::from_secs(8);
/// By when every test must have ended.
const DEADLINE: Duration = Duration::from_secs(30);
/// An end looks this often whether it is to stop.
const LOOK: Duration = Duration::from_millis(20);

fn schedule(seed: u64) -> Schedule {
    let limits = Limits {
        loss: 0.5,
        delay: Duration::from_millis(50),
        blackout: Duration::from_secs(3),
        span: Duration::from_secs(2),
        stops: true,
    };
    Schedule::random_within(seed, &limits)
}

fn entropy(seed: u64, index: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    random::stream(seed, "entropy", index).fill_bytes(&mut bytes);
    bytes
}

/// Between 2 and 6 Mbit/s, so that a test lasts until the faults have come.
fn bottleneck(seed: u64) -> Bottleneck {
    let mbps = random::stream(seed, "bottleneck", 0).random_range(2.0..6.0);
    Bottleneck {
        service: Service::Rate(RateSchedule::constant(Rate::from_mbps(mbps))),
        queue: QueueConfig::parse("droptail:bytes=150000").expect("a valid queue"),
    }
}

/// Bytes to move: less where most of the time goes into waiting for what was lost.
fn amount(schedule: &Schedule) -> u64 {
    match (1.0 - schedule.up.loss) * (1.0 - schedule.down.loss) {
        back if back < 0.7 => 60_000,
        back if back < 0.9 => 200_000,
        _ => 400_000,
    }
}

/// The proxy of `schedule`, and the schedule's stop taken out of it: here an end really stops.
fn proxy(schedule: &Schedule, server: SocketAddr) -> Proxy {
    Proxy::start(ProxyConfig {
        schedule: Schedule {
            stop: None,
            ..schedule.clone()
        },
        up: Some(bottleneck(schedule.seed)),
        down: Some(bottleneck(schedule.seed + 1)),
        ..ProxyConfig::new(server)
    })
    .expect("the system grants a few sockets and a thread")
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
        // Each driver has a clock of its own.
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

/// What one schedule did to a test.
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
        packet_bytes: 1400,
        status_millis: 100,
        duration_nanos: 0,
        bytes: amount(schedule),
        rate_bps: 0,
        seed,
        scheme: "verus".to_owned(),
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
        request: request.clone(),
        secret,
        patience: SILENCE,
        silence: SILENCE,
        log: false,
        overhead: 28,
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

/// Whether an end is gone for good.
fn is_gone(schedule: &Schedule) -> bool {
    schedule
        .stop
        .is_some_and(|stop| stop.interval.end() == Time::MAX)
}

fn check_probe(schedule: &Schedule, probed: &Probed) {
    let request = request(schedule);
    let asked = |flows: u16| u64::from(flows) * request.bytes;
    let (up, down) = (asked(request.upload_flows), asked(request.download_flows));
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
    let most = 2.0 * packets as f64 + 1_000.0 * probed.took.as_secs_f64();
    assert!(
        (probed.wakeups as f64) < most,
        "woken {} times for {packets} packets",
        probed.wakeups
    );
}

/// Runs `one` with every schedule at once and `check`s each; says which fail.
fn all_at_once<T: Send>(
    one: impl Fn(&Schedule) -> T + Sync,
    check: impl Fn(&Schedule, &T) + Sync,
    describe: impl Fn(&T) -> String + Sync,
) -> Vec<T> {
    let (mut good, mut failed) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        let threads = SEEDS.map(|seed| {
            let schedule = schedule(seed);
            let (one, check, describe) = (&one, &check, &describe);
            let run = {
                let schedule = schedule.clone();
                move || {
                    let result = one(&schedule);
                    println!("{}\n  {schedule}", describe(&result));
                    check(&schedule, &result);
                    result
                }
            };
            (schedule, scope.spawn(run))
        });
        for (schedule, thread) in threads {
            match thread.join() {
                Ok(result) => good.push(result),
                Err(_) => failed.push(schedule),
            }
        }
    });
    for schedule in &failed {
        println!("failed: {schedule}");
    }
    assert!(
        failed.is_empty(),
        "{} of {} failed",
        failed.len(),
        SEEDS.len()
    );
    good
}

/// What was to go wrong did so before all was over.
fn check_befallen<'a>(stats: impl Iterator<Item = &'a ProxyStats> + Clone) {
    let sum = |count: fn(&ProxyStats) -> u64| stats.clone().map(count).sum::<u64>();
    assert!(sum(|stats| stats.address_changes) >= 5);
    assert!(sum(|stats| stats.up.corrupted + stats.down.corrupted) >= 20);
    assert!(sum(|stats| stats.up.lost + stats.down.lost) >= 200);
    let dark = |stats: &&ProxyStats| stats.up.dark + stats.down.dark > 0;
    assert!(stats.filter(dark).count() >= 3);
}

#[test]
fn the_schedules_are_hard_enough() {
    let count =
        |holds: fn(&Schedule) -> bool| SEEDS.iter().filter(|seed| holds(&schedule(**seed))).count();
    let lossy = |schedule: &Schedule| schedule.up.loss.max(schedule.down.loss) > 0.15;
    assert!(count(lossy) >= 4);
    assert!(count(|schedule| schedule.up.loss.max(schedule.down.loss) > 0.3) >= 2);
    assert!(count(|schedule| schedule.up.corruption.max(schedule.down.corruption) > 0.01) >= 3);
    assert!(count(|schedule| !schedule.blackouts.is_empty()) >= 4);
    assert!(count(|schedule| !schedule.address_changes.is_empty()) >= 5);
    assert!(count(|schedule| schedule.stop.is_some()) >= 4);
    assert!(count(is_gone) >= 1);
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

// --- QUIC with Verus.

/// What an end may hold of what it has sent and received.
const WINDOW: u32 = 256 << 10;
/// The client's farewell is sent once; the server is given so long to hear it.
const FAREWELL: StdDuration = StdDuration::from_millis(500);

/// What one schedule did to a transfer.
struct Carried {
    client: Result<(), ConnectionError>,
    /// Whether all came to the server.
    whole: bool,
    connected: Option<Time>,
    took: Duration,
    stats: ProxyStats,
}

fn transport(seed: u64) -> Arc<TransportConfig> {
    let silence = StdDuration::from_nanos(SILENCE.as_nanos());
    let mut transport = TransportConfig::default();
    transport
        .max_idle_timeout(Some(silence.try_into().expect("it is short")))
        // Who only receives tells its new address by these alone.
        .keep_alive_interval(Some(StdDuration::from_secs(1)))
        .receive_window(VarInt::from_u32(WINDOW))
        .stream_receive_window(VarInt::from_u32(WINDOW));
    let verus = Scheme::parse("verus").expect("it is in the list");
    quic::Factory::new(&verus, seed)
        .send_window(u64::from(WINDOW))
        .install(&mut transport);
    Arc::new(transport)
}

/// A server's configuration, and that of a client that trusts it.
fn configurations(seed: u64) -> (quinn::ServerConfig, quinn::ClientConfig) {
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a key");
    let certificate = key.cert.der().clone();
    let private = PrivatePkcs8KeyDer::from(key.signing_key.serialize_der()).into();
    let mut server = quinn::ServerConfig::with_single_cert(vec![certificate.clone()], private)
        .expect("they belong together");
    server.transport_config(transport(seed));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).expect("it is one");
    let mut client =
        quinn::ClientConfig::with_root_certificates(Arc::new(roots)).expect("one root");
    client.transport_config(transport(seed));
    (server, client)
}

fn contents(seed: u64, index: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(length).expect("it is small")];
    random::stream(seed, "payload", index).fill_bytes(&mut bytes);
    bytes
}

/// Sends all of one thing and receives all of another, and notes when that has come, whole.
async fn exchange(
    (mut send, mut receive): (SendStream, RecvStream),
    outgoing: &[u8],
    incoming: &[u8],
    whole: &AtomicBool,
) -> Result<(), ConnectionError> {
    let sending = async {
        match send.write_all(outgoing).await {
            Ok(()) => {}
            Err(WriteError::ConnectionLost(lost)) => return Err(lost),
            Err(error) => panic!("cannot write: {error}"),
        }
        send.finish().expect("once");
        // All of it is acknowledged.
        match send.stopped().await {
            Ok(None) => Ok(()),
            Err(StoppedError::ConnectionLost(lost)) => Err(lost),
            other => panic!("the stream ends with {other:?}"),
        }
    };
    let receiving = async {
        match receive.read_to_end(incoming.len() + 1).await {
            Ok(bytes) => {
                assert!(bytes == incoming, "something else came");
                whole.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(ReadToEndError::Read(ReadError::ConnectionLost(lost))) => Err(lost),
            Err(error) => panic!("cannot read: {error}"),
        }
    };
    tokio::try_join!(sending, receiving).map(drop)
}

/// Runs an end in a thread of its own, which sleeps while the schedule stops it: nothing of QUIC runs then.
fn in_a_runtime<T>(
    schedule: &Schedule,
    which: End,
    began: Time,
    clock: Clock,
    over: Arc<AtomicBool>,
    end: impl Future<Output = T>,
) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the system grants a poll");
    let stop = schedule.stop.filter(|stop| stop.end == which);
    runtime.block_on(async move {
        if let Some(stop) = stop {
            let start = StdDuration::from_nanos(stop.interval.start.as_nanos());
            tokio::spawn(async move {
                tokio::time::sleep(start).await;
                let now = || Time::ZERO + clock.now().since(began);
                while stop.interval.contains(now()) && !over.load(Ordering::Relaxed) {
                    thread::sleep(StdDuration::from_nanos(LOOK.as_nanos()));
                }
            });
        }
        end.await
    })
}

fn carry(schedule: &Schedule) -> Carried {
    let seed = schedule.seed;
    let size = amount(schedule) * 3 / 2;
    // quinn holds acknowledgements back while its window is full, which in both ends at once, where much is
    // lost, leaves nothing to go on with but its timeouts.
    let (up, down) = match seed % 3 {
        0 => (size, 1_000),
        2 if !is_lossy(schedule) => (size, size),
        _ => (1_000, size),
    };
    let (up, down) = (contents(seed, 0, up), contents(seed, 1, down));
    let (server_config, client_config) = configurations(seed);
    let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("some port is free");
    let proxy = proxy(schedule, socket.local_addr().expect("it is bound"));
    let clock = Clock::new();
    let began = clock.now();
    let over = Arc::new(AtomicBool::new(false));
    let (tell, told) = tokio::sync::oneshot::channel::<()>();
    let mut connected = None;
    let whole = AtomicBool::new(false);
    let (client, took) = thread::scope(|scope| {
        let server = scope.spawn(|| {
            in_a_runtime(schedule, End::Server, began, clock, over.clone(), async {
                let endpoint = Endpoint::new(
                    quinn::EndpointConfig::default(),
                    Some(server_config),
                    socket,
                    Arc::new(quinn::TokioRuntime),
                )
                .expect("the system grants what it needs");
                let serving = async {
                    while let Some(incoming) = endpoint.accept().await {
                        // A copy of the client's first packet may come late: nobody goes on with it.
                        let Ok(connection) = incoming.await else {
                            continue;
                        };
                        let _driver = quic::drive(&connection);
                        if let Ok(streams) = connection.accept_bi().await {
                            if exchange(streams, &down, &up, &whole).await.is_ok() {
                                // The client closes, once it knows as much.
                                connection.closed().await;
                            }
                            return;
                        }
                    }
                };
                let farewell = async {
                    let _ = told.await;
                    tokio::time::sleep(FAREWELL).await;
                };
                tokio::select! {
                    () = serving => {}
                    () = farewell => {}
                }
            })
        });
        let calling = async {
            let endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).expect("a socket");
            let connection = endpoint
                .connect_with(client_config, proxy.addr(), "localhost")
                .expect("nothing is wrong with the address")
                .await?;
            connected = Some(Time::ZERO + clock.now().since(began));
            let _driver = quic::drive(&connection);
            let streams = connection.open_bi().await?;
            exchange(streams, &up, &down, &AtomicBool::new(false)).await?;
            connection.close(VarInt::from_u32(0), b"");
            endpoint.wait_idle().await;
            Ok(())
        };
        let most = StdDuration::from_nanos(DEADLINE.as_nanos());
        let calling = async { tokio::time::timeout(most, calling).await };
        let client = in_a_runtime(schedule, End::Client, began, clock, over.clone(), calling);
        let client = client.expect("it ends in time");
        let took = clock.now().since(began);
        over.store(true, Ordering::Relaxed);
        let _ = tell.send(());
        server.join().expect("the server says so itself");
        (client, took)
    });
    Carried {
        client,
        whole: whole.into_inner(),
        connected,
        took,
        stats: proxy.stop().expect("the proxy did not fail"),
    }
}

/// Where a fifth of the packets is lost, a timeout may double until it is longer than the silence that ends
/// a connection.
fn is_lossy(schedule: &Schedule) -> bool {
    schedule.up.loss.max(schedule.down.loss) > 0.2
}

fn check_carried(schedule: &Schedule, carried: &Carried) {
    // Handshakes do not survive a change of address (RFC 9000 §9).
    let moved = schedule
        .address_changes
        .first()
        .is_some_and(|change| carried.connected.is_none_or(|at| at >= *change));
    match &carried.client {
        Ok(()) => assert!(carried.whole, "the client is wrong"),
        Err(ConnectionError::TimedOut | ConnectionError::Reset) => {
            assert!(
                is_gone(schedule) || moved || is_lossy(schedule),
                "no excuse"
            );
        }
        Err(error) => panic!("the client fails with: {error}"),
    }
    for path in [&carried.stats.up, &carried.stats.down] {
        assert!(path.held_bytes_max < 3 * u64::from(WINDOW), "{path:?}");
    }
}

#[test]
#[ignore = "reads the clock: make test-clock"]
fn every_transfer_over_quic_delivers_every_byte_or_says_why_not() {
    let _machine = machine::watch(20);
    let carried = all_at_once(carry, check_carried, |carried| {
        format!(
            "{:.2} s: {:?}, the server has {}, connected after {:?}",
            carried.took.as_secs_f64(),
            carried.client,
            if carried.whole { "all" } else { "not all" },
            carried.connected,
        )
    });
    let succeeded = carried.iter().filter(|carried| carried.client.is_ok());
    assert!(succeeded.count() >= 7);
    check_befallen(carried.iter().map(|carried| &carried.stats));
}
