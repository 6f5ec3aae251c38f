//! Many seeds at once: hundreds of schedules of faults, each played by two ends on a virtual clock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rand::{Rng, RngExt};
use verus_core::Time;

use crate::world::{Meeting, Surroundings};
use crate::{Bottleneck, Schedule};

const SCHEDULES: u64 = 200;

/// The outcome of a schedule.
pub struct Played {
    /// Of the two ends.
    pub meeting: Meeting,
    /// Whether the client did.
    pub succeeded: bool,
    /// Whether nothing excuses a failure.
    pub had_to_succeed: bool,
}

/// A bottleneck of 0.5 to 20 Mbit/s in four directions of five.
pub fn surroundings(dice: &mut impl Rng) -> Surroundings {
    let mut bottleneck = || {
        let mbps = 0.5 * 40.0f64.powf(dice.random_range(0.0..1.0));
        dice.random_bool(0.8)
            .then(|| Bottleneck::new(mbps, "droptail:bytes=150000"))
    };
    Surroundings {
        up: bottleneck(),
        down: bottleneck(),
    }
}

/// Counts of the faults that occurred, so that a test cannot quietly become an easy one.
#[derive(Debug, Default)]
struct Tally {
    succeeded: u32,
    had_to_succeed: u32,
    lost_much: u32,
    met_blackout: u32,
    changed_address: u32,
    met_stop: u32,
}

impl Tally {
    fn add(&mut self, schedule: &Schedule, played: &Played) {
        let Meeting { at, up, down, .. } = played.meeting;
        let occurred = |time: Time| time < at;
        let stop = schedule.stop.map(|stop| stop.interval.start);
        self.succeeded += u32::from(played.succeeded);
        self.had_to_succeed += u32::from(played.had_to_succeed);
        self.lost_much += u32::from((up.lost + down.lost) * 5 > up.sent + down.sent);
        self.met_blackout += u32::from(up.dark + down.dark > 0);
        self.changed_address += u32::from(schedule.address_changes.iter().any(|at| occurred(*at)));
        self.met_stop += u32::from(stop.is_some_and(occurred));
    }
}

/// Plays the schedules of every seed and of those that `failed_once`; of the first `VERUS_FAULT_SCHEDULES`, or only of
/// `VERUS_FAULT_SEED`, to see a failure again.
///
/// # Panics
/// If `play` does, or too little befell the ends.
pub fn play(failed_once: &[u64], play: impl Fn(&Schedule) -> Played + Sync) {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        let number = text.parse::<u64>();
        Some(number.unwrap_or_else(|_| panic!("{name} is a number, not `{text}`")))
    };
    let many = number("VERUS_FAULT_SCHEDULES").unwrap_or(SCHEDULES);
    let seeds = match number("VERUS_FAULT_SEED") {
        Some(seed) => vec![seed],
        None => (0..many).chain(failed_once.iter().copied()).collect(),
    };
    let played = each_seed(&seeds, |seed| {
        let schedule = Schedule::random(seed);
        let played = catch_unwind(AssertUnwindSafe(|| play(&schedule)));
        if played.is_err() {
            println!("failed: {schedule}");
        }
        (schedule, played)
    });
    let (mut tally, mut failed) = (Tally::default(), 0);
    for (schedule, played) in &played {
        match played {
            Ok(played) => tally.add(schedule, played),
            Err(_) => failed += 1,
        }
    }
    assert_eq!(failed, 0, "schedules that failed");
    println!("{tally:?}");
    if seeds.len() > 1 {
        assert!(tally.had_to_succeed > 120, "{tally:?}");
        assert!(tally.lost_much > 15, "{tally:?}");
        assert!(tally.met_blackout > 40, "{tally:?}");
        assert!(tally.changed_address > 40, "{tally:?}");
        assert!(tally.met_stop > 10, "{tally:?}");
    }
}

/// The result of `play` for each seed, in no order, computed on all cores.
pub(crate) fn each_seed<T: Send>(seeds: &[u64], play: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(seeds.len()));
    let workers = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = play(seed);
                    results.lock().expect("nobody panics with it").push(result);
                }
            });
        }
    });
    results.into_inner().expect("nobody panics with it")
}
