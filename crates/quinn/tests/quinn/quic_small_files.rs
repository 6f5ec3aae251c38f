//! A small file is fast: Verus and forward compared with Cubic over QUIC. The clock is virtual; the
//! paths' round trips are far shorter than an epoch, or longer.

use crate::quic_virtual::{Keys, Setup, random_bytes};
use rand::RngExt;
use verus_core::{Duration, Time, random};
use verus_faults::world::{self, Ending, Surroundings};
use verus_faults::{Bottleneck, Schedule};

/// Bytes that a file's receiver may hold unread, as in `verus serve`.
const WINDOW: u32 = 8 << 20;
const DEADLINE: Time = Time::from_millis(60_000);
const SEEDS: u64 = 12;

/// A path and the file that crosses it.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// Both ways together.
    round_trip: Duration,
    mbps: f64,
    queue_bytes: u64,
    file_bytes: usize,
}

/// Loopback: a round trip that is hardly more than two threads being woken, and a socket's buffer.
const LOOPBACK: Case = Case {
    round_trip: Duration::from_micros(50),
    mbps: 2000.0,
    queue_bytes: 200_000,
    file_bytes: 3_000_000,
};

/// When the server has all of the file.
fn time(case: Case, seed: u64, scheme: &'static str, keys: &Keys) -> Duration {
    let mut dice = random::stream(seed, "small file", 0);
    // No two machines are alike: a tenth more or less of everything.
    let mut about = || dice.random_range(0.9..1.1);
    let mut schedule = Schedule::perfect(case.round_trip.mul_f64(about()) / 2);
    schedule.seed = seed;
    let queue = format!(
        "droptail:bytes={}",
        (case.queue_bytes as f64 * about()) as u64
    );
    let bottleneck = Bottleneck::new(case.mbps * about(), &queue);
    let surroundings = Surroundings {
        up: Some(bottleneck.clone()),
        down: Some(bottleneck),
    };
    let setup = Setup {
        seed,
        scheme,
        retry: false,
        batch: 10,
        driven: true,
        window: WINDOW,
        up: random_bytes(seed, 0, case.file_bytes),
        down: vec![0; 100],
    };
    let (mut client, mut server) = setup.ends(keys);
    let meeting = world::run(&schedule, surroundings, &mut client, &mut server, DEADLINE);
    assert_eq!(meeting.ending, Ending::Done, "{scheme}, seed {seed}");
    let completed = server.transfer.completed.expect("it is whole");
    completed.since(Time::ZERO)
}

const BOTH: &[&str] = &["verus", "forward"];

/// Holds schemes against Cubic, seed by seed.
fn takes_at_most_twice_cubics_time(schemes: &[&'static str], cases: &[Case]) {
    let keys = Keys::new();
    for &case in cases {
        let cubics: Vec<Duration> = (0..SEEDS)
            .map(|seed| time(case, seed, "cubic", &keys))
            .collect();
        for &scheme in schemes {
            let mut ratios: Vec<f64> = (0..SEEDS)
                .zip(&cubics)
                .map(|(seed, &cubic)| {
                    let ours = time(case, seed, scheme, &keys);
                    assert!(
                        ours <= cubic * 2,
                        "{case:?}, seed {seed}: {scheme} {ours:?}, Cubic {cubic:?}"
                    );
                    ours / cubic
                })
                .collect();
            ratios.sort_by(f64::total_cmp);
            println!(
                "{scheme}, {case:?}: median {:.2}, largest {:.2}",
                ratios[ratios.len() / 2],
                ratios[ratios.len() - 1]
            );
        }
    }
}

/// The same path for a large and a small file.
fn both_sizes(case: Case) -> [Case; 2] {
    [3_000_000, 300_000].map(|file_bytes| Case { file_bytes, ..case })
}

#[test]
fn over_loopback_a_small_file_takes_at_most_twice_cubics_time() {
    // At 8 Gbit/s, 3 MB are 3 ms, and forward's timers a third of that each: it takes three times as long.
    for (mbps, schemes) in [(1000.0, BOTH), (2000.0, BOTH), (8000.0, &["verus"])] {
        takes_at_most_twice_cubics_time(schemes, &both_sizes(Case { mbps, ..LOOPBACK }));
    }
}

#[test]
fn over_a_local_network_a_small_file_takes_at_most_twice_cubics_time() {
    for mbps in [100.0, 1000.0] {
        let round_trip = Duration::from_millis(2);
        takes_at_most_twice_cubics_time(
            BOTH,
            &both_sizes(Case {
                round_trip,
                mbps,
                ..LOOPBACK
            }),
        );
    }
}

#[test]
fn at_20_ms_a_small_file_takes_at_most_twice_cubics_time_however_deep_the_queue() {
    let round_trip = Duration::from_millis(20);
    for mbps in [20.0, 100.0] {
        let product = (mbps * 1e6 / 8.0 * 0.02) as u64;
        for queue_bytes in [product / 4, product, 4 * product] {
            takes_at_most_twice_cubics_time(
                BOTH,
                &both_sizes(Case {
                    round_trip,
                    mbps,
                    queue_bytes,
                    ..LOOPBACK
                }),
            );
        }
    }
}
