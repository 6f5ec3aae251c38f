//! Ten schedules of faults in real time, over QUIC with Verus: see `verus_faults::realtime`.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration as StdDuration;

use quinn::{
    ConnectionError, Endpoint, ReadError, ReadToEndError, RecvStream, SendStream, StoppedError,
    TransportConfig, VarInt, WriteError,
};
use rand::Rng;
use rustls::pki_types::PrivatePkcs8KeyDer;
use verus_clock::Clock;
use verus_core::{Duration, Time, random};
use verus_faults::realtime::{
    DEADLINE, LOOK, SILENCE, all_at_once, amount, check_befallen, is_gone, proxy,
};
use verus_faults::{End, ProxyStats, Schedule, machine};
use verus_quinn as quic;
use verus_senders::Scheme;

/// Bytes that an end may hold of the data sent and received.
const WINDOW: u32 = 256 << 10;
/// Time for the server to receive the client's farewell, which is sent once.
const FAREWELL: StdDuration = StdDuration::from_millis(500);

/// The outcome of one schedule.
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
        // A client that only receives reveals its new address by these alone.
        .keep_alive_interval(Some(StdDuration::from_secs(1)))
        .receive_window(VarInt::from_u32(WINDOW))
        .stream_receive_window(VarInt::from_u32(WINDOW));
    let verus = Scheme::parse("verus").expect("it is in the list");
    quic::Factory::new(verus.config(), seed)
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

/// Runs an end in a separate thread, which sleeps while the schedule stops it: no QUIC code runs
/// then.
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
        let deadline = StdDuration::from_nanos(DEADLINE.as_nanos());
        let calling = async { tokio::time::timeout(deadline, calling).await };
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
