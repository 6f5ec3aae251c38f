//! Schedules of faults in real time: real sockets, real drivers, and the fault proxy between them.
//!
//! All run at once. They are drawn like those of the tests in virtual time, but events that last
//! half a minute there last three seconds here.

use std::net::SocketAddr;
use std::thread;

use rand::RngExt;
use verus_core::{Duration, Time, random};

use crate::{Bottleneck, Limits, Proxy, ProxyConfig, ProxyStats, Schedule};

/// Of the first sixty, ten with many faults: a test below states their common content.
pub const SEEDS: [u64; 10] = [0, 5, 12, 13, 24, 32, 39, 44, 54, 59];
/// Longer than the longest blackout.
pub const SILENCE: Duration = Duration::from_secs(8);
/// By when every test must have ended.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// An end looks this often whether it is to stop.
pub const LOOK: Duration = Duration::from_millis(20);

/// This seed's faults.
pub fn schedule(seed: u64) -> Schedule {
    let limits = Limits {
        loss: 0.5,
        delay: Duration::from_millis(50),
        blackout: Duration::from_secs(3),
        span: Duration::from_secs(2),
        stops: true,
    };
    Schedule::random_within(seed, &limits)
}

/// Between 2 and 6 Mbit/s, so that a test lasts until the faults have come.
pub fn bottleneck(seed: u64) -> Bottleneck {
    let mbps = random::stream(seed, "bottleneck", 0).random_range(2.0..6.0);
    Bottleneck::new(mbps, "droptail:bytes=150000")
}

/// Bytes to move: fewer where retransmissions take most of the time.
pub fn amount(schedule: &Schedule) -> u64 {
    match (1.0 - schedule.up.loss) * (1.0 - schedule.down.loss) {
        back if back < 0.7 => 60_000,
        back if back < 0.9 => 200_000,
        _ => 400_000,
    }
}

/// The proxy of `schedule`, and the schedule's stop taken out of it: here an end really stops.
pub fn proxy(schedule: &Schedule, server: SocketAddr) -> Proxy {
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

/// Whether an end is gone for good.
pub fn is_gone(schedule: &Schedule) -> bool {
    schedule
        .stop
        .is_some_and(|stop| stop.interval.end() == Time::MAX)
}

/// Runs `one` with every schedule at once and `check`s each; says which fail.
pub fn all_at_once<T: Send>(
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

/// Checks that the scheduled faults occurred before the end.
pub fn check_befallen<'a>(stats: impl Iterator<Item = &'a ProxyStats> + Clone) {
    let sum = |count: fn(&ProxyStats) -> u64| stats.clone().map(count).sum::<u64>();
    assert!(sum(|stats| stats.address_changes) >= 5);
    assert!(sum(|stats| stats.up.corrupted + stats.down.corrupted) >= 20);
    assert!(sum(|stats| stats.up.lost + stats.down.lost) >= 200);
    let dark = |stats: &&ProxyStats| stats.up.dark + stats.down.dark > 0;
    assert!(stats.filter(dark).count() >= 3);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedules_are_hard_enough() {
        let count = |holds: fn(&Schedule) -> bool| {
            SEEDS.iter().filter(|seed| holds(&schedule(**seed))).count()
        };
        let lossy = |schedule: &Schedule| schedule.up.loss.max(schedule.down.loss) > 0.15;
        assert!(count(lossy) >= 4);
        assert!(count(|schedule| schedule.up.loss.max(schedule.down.loss) > 0.3) >= 2);
        assert!(count(|schedule| schedule.up.corruption.max(schedule.down.corruption) > 0.01) >= 3);
        assert!(count(|schedule| !schedule.blackouts.is_empty()) >= 4);
        assert!(count(|schedule| !schedule.address_changes.is_empty()) >= 5);
        assert!(count(|schedule| schedule.stop.is_some()) >= 4);
        assert!(count(is_gone) >= 1);
    }
}
