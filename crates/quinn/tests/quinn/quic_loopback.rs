//! Each scheme of the catalogue carries data through quinn, over real sockets; epochs run; a connection
//! that moves to another address goes on.

use std::future::Future;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::quic_common::{Pair, carry, runtime, transport, transport_of, write};
use quinn::TransportConfig;
use verus_core::Phase;
use verus_faults::machine;
use verus_quinn::{self as quic, Counters, Driver, Event, View};
use verus_senders::catalogue;

const MEGABYTE: usize = 1 << 20;
/// Far longer than anything here takes on a machine that does other things as well.
const PATIENCE: Duration = Duration::from_secs(60);

async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work)
        .await
        .unwrap_or_else(|_| panic!("{what} takes longer than {PATIENCE:?}"))
}

async fn ended(driver: &Driver) {
    while !driver.is_finished() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn sound(what: &str, view: &View) -> Counters {
    let counters = view.snapshot().counters;
    assert_eq!(counters.misses, 0, "{what}: {counters:?}");
    counters
}

/// Transfers at once: some wait, for epochs or for a rate.
const AT_ONCE: usize = 4;

#[test]
#[ignore = "reads the clock: make test-clock"]
fn every_scheme_moves_a_file_and_no_acknowledgement_is_a_riddle() {
    let _machine = machine::watch(20);
    let alone = catalogue().into_iter().filter(|entry| entry.stands_alone());
    // Where a round trip is far shorter than an epoch, the windows of other modes may come to a packet an epoch.
    let modes = ["verus:mode=paper", "verus:mode=prototype"].map(|mode| (mode, MEGABYTE));
    let cases: Vec<_> = alone
        .map(|entry| (entry.name, 20 * MEGABYTE))
        .chain(modes)
        .flat_map(|(name, bytes)| [(name, bytes, true), (name, bytes, false)])
        .collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    move_a_file(case.0, case.1, case.2);
                }
            });
        }
    });
}

fn move_a_file(name: &str, bytes: usize, driven: bool) {
    // A constant rate takes its time, whatever the path could do.
    let scheme = match name {
        "constant" => "constant:rate_mbps=500",
        name => name,
    };
    let run = format!("{scheme}, driven {driven}");
    runtime().block_on(async {
        let pair = Pair::new(scheme).await;
        let _driver = driven.then(|| quic::drive(&pair.client));
        let view = quic::view(&pair.client).expect("our controller");
        in_time(&run, pair.send(bytes)).await;
        let counters = sound(&run, &view);
        // No call names the lost packets, or their number, to a controller.
        let lost = pair.client.stats().path.lost_bytes;
        assert_eq!(counters.lost_bytes, lost, "{run}: as quinn counts them");
        let snapshot = view.snapshot();
        let open = snapshot.in_flight + snapshot.delivered;
        assert!(open.get() >= bytes as u64, "{run}: {snapshot:?}");
    });
}

#[test]
#[ignore = "reads the clock: make test-clock"]
fn a_model_moves_a_file_in_epochs_of_its_own() {
    let _machine = machine::watch(20);
    runtime().block_on(async {
        let scheme = crate::quic_common::model();
        let pair = Pair::with(transport_of(&scheme), transport_of(&scheme)).await;
        let _driver = quic::drive(&pair.client);
        let view = quic::view(&pair.client).expect("our controller");
        in_time("a file", pair.send(MEGABYTE)).await;
        let counters = sound("a model", &view);
        // It was taught a packet an epoch, of some 1400 bytes.
        assert!(counters.ticks > 200, "{counters:?}");
    });
}

/// Sends until Verus has left slow start and epochs run.
async fn start_epochs(pair: &Pair, view: &View) {
    while view.snapshot().phase != Some(Phase::Steady) {
        pair.send(MEGABYTE).await;
    }
}

#[test]
#[ignore = "reads the clock: make test-clock"]
fn a_driver_closes_epochs_far_longer_than_a_round_trip_and_sleeps_when_there_is_nothing_to_drive() {
    let _machine = machine::watch(20);
    runtime().block_on(async {
        let pair = Pair::new("verus").await;
        let driver = quic::drive(&pair.client);
        let view = quic::view(&pair.client).expect("our controller");
        in_time("slow start", start_epochs(&pair, &view)).await;
        view.log(1 << 20);
        in_time("a file", pair.send(40 * MEGABYTE)).await;
        let epochs: Vec<_> = view
            .take_log()
            .into_iter()
            .filter_map(|event| match event {
                Event::Tick { due, .. } => Some(due),
                _ => None,
            })
            .collect();
        // A tick closes all epochs that have ended; nearly each has a separate tick.
        let (Some(&first), Some(&last)) = (epochs.first(), epochs.last()) else {
            panic!("no epoch ended in 40 MB");
        };
        let all = last.since(first).as_millis_f64() / 5.0 + 1.0;
        let rtt = view.snapshot().smoothed_rtt;
        assert!(rtt.as_millis_f64() < 2.5, "{rtt:?} is no short round trip");
        assert!(
            epochs.len() as f64 > all / 2.0,
            "{} ticks in {all} epochs",
            epochs.len()
        );

        // The last acknowledgements come in, and events end.
        let idle = async {
            while view.snapshot().in_flight.get() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        in_time("idleness", idle).await;
        let before = view.snapshot().counters.ticks;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(view.snapshot().counters.ticks, before);

        // It takes up its work again, and ends with the connection.
        let resumed = async {
            while view.snapshot().counters.ticks == before {
                pair.send(MEGABYTE).await;
            }
        };
        in_time("resumption", resumed).await;
        assert!(!driver.is_finished());
        pair.client.close(0u32.into(), b"done");
        in_time("the driver's end", ended(&driver)).await;
    });
}

#[test]
fn a_connection_goes_on_when_its_driver_is_dropped() {
    runtime().block_on(async {
        let pair = Pair::new("verus").await;
        let driver = quic::drive(&pair.client);
        let view = quic::view(&pair.client).expect("our controller");
        in_time("slow start", start_epochs(&pair, &view)).await;
        drop(driver);
        in_time("the rest", pair.send(4 * MEGABYTE)).await;
        sound("undriven", &view);
    });
}

#[test]
fn a_controller_of_quinns_own_is_left_alone() {
    runtime().block_on(async {
        let pair = Pair::with(TransportConfig::default(), TransportConfig::default()).await;
        let driver = quic::drive(&pair.client);
        assert!(quic::view(&pair.client).is_none());
        in_time("the driver's end", ended(&driver)).await;
        in_time("a file", pair.send(MEGABYTE)).await;
    });
}

#[test]
#[ignore = "reads the clock: make test-clock"]
fn a_driver_wakes_with_the_send_window_that_its_factory_set() {
    let _machine = machine::watch(20);
    // So little under way loses nothing and hardly queues: slow start ends only where D_min may be as short as loopback is, and any
    // queue is a multiple of it.
    let scheme = crate::quic_common::scheme("verus:without=departures");
    let mut small = TransportConfig::default();
    quic::Factory::new(scheme.config(), 1)
        .send_window(60_000)
        .install(&mut small);
    runtime().block_on(async {
        let pair = Pair::with(small, transport("verus")).await;
        let _driver = quic::drive(&pair.client);
        let view = quic::view(&pair.client).expect("our controller");
        in_time("slow start", start_epochs(&pair, &view)).await;
        in_time("a file", pair.send(2 * MEGABYTE)).await;
        // Nobody reads: quinn accepts as many bytes as fit into the window, however often the
        // driver set it.
        let mut stream = pair.client.open_uni().await.expect("a stream");
        let taken = async {
            let mut taken = 0;
            let block = [0; 1000];
            while let Ok(n) =
                tokio::time::timeout(Duration::from_millis(200), stream.write(&block)).await
            {
                taken += n.expect("open");
            }
            taken
        };
        // The peer's flow control lets 1.25 MB through unread.
        let taken = in_time("filling the window", taken).await;
        assert!(taken <= 1_250_000 + 61_000, "{taken}");
    });
}

#[test]
fn a_peer_behind_a_forgetful_router_keeps_its_controller() {
    runtime().block_on(async {
        let pair = Pair::new("verus").await;
        let _driver = quic::drive(&pair.server);
        let view = quic::view(&pair.server).expect("our controller");
        let download = carry(&pair.server, &pair.client, 40 * MEGABYTE);
        let rebind = async {
            while view.snapshot().delivered.get() < 4 * MEGABYTE as u64 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
            pair.calling.rebind(other).expect("rebound");
        };
        in_time("a download", async { tokio::join!(download, rebind) }).await;
        let now = quic::view(&pair.server).expect("our controller");
        assert!(
            now.is_same(&view),
            "it has learned the path, which is the same"
        );
        sound("rebound", &now);
    });
}

#[test]
#[ignore = "reads the clock: make test-clock"]
fn a_peer_that_moves_to_another_address_gets_another_controller_and_the_driver_follows() {
    let _machine = machine::watch(20);
    runtime().block_on(async {
        let mut client = transport("verus");
        // The client only receives, and does not know that its address changed. The server sends to
        // the old one, so that without this nothing would make the client send.
        client.keep_alive_interval(Some(Duration::from_millis(100)));
        let delay = verus_core::Duration::from_millis(2);
        let (pair, proxy) = Pair::behind(client, transport("verus"), delay, |_| {}).await;
        let _driver = quic::drive(&pair.server);
        let view = quic::view(&pair.server).expect("our controller");
        let download = carry(&pair.server, &pair.client, 40 * MEGABYTE);
        let moved = async {
            while view.snapshot().delivered.get() < 4 * MEGABYTE as u64 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            proxy.change_address();
        };
        in_time("a download", async { tokio::join!(download, moved) }).await;
        let now = quic::view(&pair.server).expect("our controller");
        assert!(!now.is_same(&view));
        let counters = sound("moved", &now);
        assert!(counters.ticks > 0, "{counters:?}");
    });
}

#[test]
#[ignore = "reads the clock: make test-clock"]
fn a_peer_learns_of_a_close_while_the_window_is_full() {
    let _machine = machine::watch(20);
    for (scheme, keep) in [("verus", true), ("cubic", true), ("cubic", false)] {
        runtime().block_on(async {
            let delay = verus_core::Duration::from_millis(200);
            let ends = (transport(scheme), transport(scheme));
            let (pair, _proxy) = Pair::behind(ends.0, ends.1, delay, |_| {}).await;
            let driver = quic::drive(&pair.client);
            let view = quic::view(&pair.client).expect("our controller");
            let sender = pair.client.clone();
            let writing = tokio::spawn(async move { write(&sender, 40 * MEGABYTE).await });
            let full = async {
                while view.snapshot().in_flight + view.snapshot().packet_size
                    < view.snapshot().limit
                {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            in_time("a window to fill", full).await;
            pair.client.close(0u32.into(), b"enough");
            let kept = keep.then_some(driver);
            // Otherwise it learns of it from a stateless reset, or at its idle timeout.
            let closed = in_time("the peer to learn of it", pair.server.closed()).await;
            assert!(
                matches!(closed, quinn::ConnectionError::ApplicationClosed(_)),
                "{scheme}: {closed}"
            );
            writing.await.expect("no panic").expect_err("closed");
            drop(kept);
        });
    }
}
