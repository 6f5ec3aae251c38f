//! The faults between two ends, and their times.
//!
//! A schedule is plain data. Written by hand it tests one thing; drawn from a seed it tests cases
//! that no developer thought of. Its one line of text or its seed reproduces a failure. Times count
//! from the first datagram.

use std::fmt;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use verus_core::{Duration, Time, random};

/// The two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// The end that sends first.
    Client,
    /// The one that answers.
    Server,
}

/// Which way a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// The faults of one direction's datagrams, at all times. The default is a perfect path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Probability that a datagram is lost.
    pub loss: f64,
    /// Probability that a datagram arrives twice.
    pub duplication: f64,
    /// Probability that a datagram takes up to `reordering_delay` longer, so that later ones may
    /// overtake it.
    pub reordering: f64,
    /// The most that a reordered datagram takes longer.
    pub reordering_delay: Duration,
    /// Probability that one to four of a datagram's bits are flipped.
    pub corruption: f64,
    /// Propagation delay.
    pub delay: Duration,
    /// The most by which the delay is longer, drawn for each datagram. Alone it keeps the order.
    pub jitter: Duration,
}

/// A span of time within a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// When it begins.
    pub start: Time,
    /// How long it lasts; [`Duration::MAX`] for ever.
    pub length: Duration,
}

/// An end that does nothing for a while, as after `SIGSTOP`, or never again, as after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Which end.
    pub end: End,
    /// When and for how long.
    pub interval: Interval,
}

/// Faults and their times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Schedule {
    /// Decides the fate of each datagram.
    pub seed: u64,
    /// From the client to the server.
    pub up: Faults,
    /// From the server to the client.
    pub down: Faults,
    /// When everything sent, either way, is lost.
    pub blackouts: Vec<Interval>,
    /// When the client's address, as the server sees it, becomes another one.
    pub address_changes: Vec<Time>,
    /// When an end stops.
    pub stop: Option<Stop>,
}

/// The worst that [`Schedule::random_within`] may draw.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Highest probability of loss.
    pub loss: f64,
    /// Longest propagation delay, one way.
    pub delay: Duration,
    /// Longest blackout or pause.
    pub blackout: Duration,
    /// Time in which blackouts, address changes and stops begin.
    pub span: Duration,
    /// Whether an end may stop or pause.
    pub stops: bool,
}

impl Default for Limits {
    /// Loss of one half, blackouts of half a minute.
    fn default() -> Self {
        Limits {
            loss: 0.5,
            delay: Duration::from_millis(150),
            blackout: Duration::from_secs(30),
            span: Duration::from_secs(5),
            stops: true,
        }
    }
}

impl Limits {
    /// For tests that run in real time: nothing takes longer than a second or so.
    pub fn brief() -> Self {
        Limits {
            loss: 0.2,
            delay: Duration::from_millis(30),
            blackout: Duration::from_millis(800),
            span: Duration::from_secs(1),
            stops: false,
        }
    }
}

impl Interval {
    /// Whether `time` is within it.
    pub fn contains(&self, time: Time) -> bool {
        time >= self.start && time < self.end()
    }

    /// When it is over; [`Time::MAX`] if never.
    pub fn end(&self) -> Time {
        self.start + self.length
    }
}

impl Direction {
    /// The end that sends this way.
    pub fn sender(self) -> End {
        match self {
            Direction::Up => End::Client,
            Direction::Down => End::Server,
        }
    }
}

impl Schedule {
    /// A path that only takes `delay` each way.
    pub fn perfect(delay: Duration) -> Self {
        let faults = Faults {
            delay,
            ..Faults::default()
        };
        Schedule {
            up: faults.clone(),
            down: faults,
            ..Schedule::default()
        }
    }

    /// The schedule of `seed`, the same on every machine: mild or harsh, with some kinds of fault or all.
    pub fn random(seed: u64) -> Self {
        Schedule::random_within(seed, &Limits::default())
    }

    /// As [`Schedule::random`], within other limits.
    pub fn random_within(seed: u64, limits: &Limits) -> Self {
        let mut dice = Dice(random::stream(seed, "fault-schedule", 0));
        let delay = dice.log_duration(Duration::from_millis(1), limits.delay);
        let up = dice.faults(delay, limits);
        let down = dice.faults(delay, limits);
        let blackouts = (0..dice.few())
            .map(|_| Interval {
                start: dice.time_within(limits.span),
                length: dice.log_duration(Duration::from_millis(50), limits.blackout),
            })
            .collect();
        let mut address_changes: Vec<_> = (0..dice.few())
            .map(|_| dice.time_within(limits.span))
            .collect();
        address_changes.sort();
        let stop = dice.chance(0.12).then(|| {
            let end = if dice.chance(0.5) {
                End::Client
            } else {
                End::Server
            };
            let start = dice.time_within(limits.span);
            let pause = dice.log_duration(Duration::from_millis(100), limits.blackout);
            let length = if dice.chance(0.5) {
                Duration::MAX
            } else {
                pause
            };
            Stop {
                end,
                interval: Interval { start, length },
            }
        });
        Schedule {
            seed,
            up,
            down,
            blackouts,
            address_changes,
            stop: stop.filter(|_| limits.stops),
        }
    }

    /// The faults of datagrams in `direction`.
    pub fn faults(&self, direction: Direction) -> &Faults {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    /// Whether `end` does nothing at `time`.
    pub fn is_stopped(&self, end: End, time: Time) -> bool {
        self.stop
            .is_some_and(|stop| stop.end == end && stop.interval.contains(time))
    }
}

/// Draws of a schedule.
struct Dice(ChaCha8Rng);

impl Dice {
    fn chance(&mut self, probability: f64) -> bool {
        self.0.random_bool(probability)
    }

    fn uniform(&mut self, to: f64) -> f64 {
        self.0.random_range(0.0..1.0) * to
    }

    /// Every order of magnitude equally likely: small faults are as worth a test as large ones.
    fn log(&mut self, from: f64, to: f64) -> f64 {
        from * (self.uniform(1.0) * (to / from).max(1.0).ln()).exp()
    }

    /// Every order of magnitude equally likely, in whole millionths.
    fn probability(&mut self, from: f64, to: f64) -> f64 {
        millionths(self.log(from, to))
    }

    /// In whole microseconds, so that the text of a schedule is short.
    fn log_duration(&mut self, from: Duration, to: Duration) -> Duration {
        Duration::from_micros(self.log(from.as_nanos() as f64, to.as_nanos() as f64) as u64 / 1000)
    }

    fn time_within(&mut self, span: Duration) -> Time {
        Time::ZERO + Duration::from_micros(self.uniform(span.as_nanos() as f64) as u64 / 1000)
    }

    /// Mostly none.
    fn few(&mut self) -> u32 {
        match self.uniform(1.0) {
            draw if draw < 0.6 => 0,
            draw if draw < 0.85 => 1,
            draw if draw < 0.95 => 2,
            _ => 3,
        }
    }

    fn faults(&mut self, delay: Duration, limits: &Limits) -> Faults {
        let loss = match self.uniform(1.0) {
            draw if draw < 0.25 => 0.0,
            draw if draw < 0.8 => self.probability(0.001, limits.loss.min(0.1)),
            _ => millionths(self.uniform(limits.loss)),
        };
        let mut sometimes = |probability: f64, from: f64, to: f64| {
            let value = self.probability(from, to);
            if self.chance(probability) { value } else { 0.0 }
        };
        let duplication = sometimes(0.4, 0.001, 0.1);
        let reordering = sometimes(0.4, 0.001, 0.3);
        let corruption = sometimes(0.4, 0.0001, 0.05);
        let jitter = if self.chance(0.5) {
            Duration::from_micros(self.uniform(delay.as_nanos() as f64 / 2.0) as u64 / 1000)
        } else {
            Duration::ZERO
        };
        let reordering_delay =
            self.log_duration(Duration::from_millis(1), Duration::from_millis(50));
        Faults {
            loss,
            duplication,
            reordering,
            reordering_delay,
            corruption,
            delay,
            jitter,
        }
    }
}

/// A number that survives being written and read everywhere.
fn millionths(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: up {}; down {}", self.seed, self.up, self.down)?;
        for blackout in &self.blackouts {
            write!(f, "; dark {blackout}")?;
        }
        for change in &self.address_changes {
            write!(f, "; new address at {:.3} s", change.as_secs_f64())?;
        }
        if let Some(stop) = &self.stop {
            let end = match stop.end {
                End::Client => "client",
                End::Server => "server",
            };
            write!(f, "; {end} stops {}", stop.interval)?;
        }
        Ok(())
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1}", self.delay.as_millis_f64())?;
        if !self.jitter.is_zero() {
            write!(f, "+{:.1}", self.jitter.as_millis_f64())?;
        }
        f.write_str(" ms")?;
        for (name, probability) in [
            ("loss", self.loss),
            ("twice", self.duplication),
            ("corrupt", self.corruption),
            ("reorder", self.reordering),
        ] {
            if probability > 0.0 {
                write!(f, ", {name} {:.2} %", 100.0 * probability)?;
            }
        }
        if self.reordering > 0.0 {
            write!(f, " by {:.1} ms", self.reordering_delay.as_millis_f64())?;
        }
        Ok(())
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {:.3} s", self.start.as_secs_f64())?;
        if self.length == Duration::MAX {
            f.write_str(" for good")
        } else {
            write!(f, " for {:.3} s", self.length.as_secs_f64())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_schedule_and_another_seed_another() {
        for seed in 0..100 {
            assert_eq!(Schedule::random(seed), Schedule::random(seed));
            assert_ne!(
                Schedule::random(seed).up,
                Schedule::random(seed + 1).up,
                "{seed}"
            );
        }
    }

    #[test]
    fn random_schedules_keep_within_their_limits_and_use_them() {
        for limits in [Limits::default(), Limits::brief()] {
            let drawn: Vec<_> = (0..2_000)
                .map(|seed| Schedule::random_within(seed, &limits))
                .collect();
            for schedule in &drawn {
                for faults in [&schedule.up, &schedule.down] {
                    assert!((0.0..=limits.loss).contains(&faults.loss), "{schedule}");
                    assert!(faults.delay <= limits.delay, "{schedule}");
                    assert!(faults.jitter <= faults.delay, "{schedule}");
                }
                for blackout in &schedule.blackouts {
                    assert!(blackout.length <= limits.blackout, "{schedule}");
                    assert!(blackout.start <= Time::ZERO + limits.span, "{schedule}");
                }
                assert!(schedule.address_changes.is_sorted(), "{schedule}");
            }
            let largest = |value: fn(&Schedule) -> f64| drawn.iter().map(value).fold(0.0, f64::max);
            assert!(largest(|schedule| schedule.up.loss) > 0.95 * limits.loss);
            let longest = largest(|schedule| {
                let lengths = schedule
                    .blackouts
                    .iter()
                    .map(|dark| dark.length.as_secs_f64());
                lengths.fold(0.0, f64::max)
            });
            assert!(longest > 0.9 * limits.blackout.as_secs_f64());
            let share = |has: fn(&Schedule) -> bool| {
                drawn.iter().filter(|schedule| has(schedule)).count() as f64 / drawn.len() as f64
            };
            assert!((0.3..0.5).contains(&share(|schedule| !schedule.blackouts.is_empty())));
            assert!((0.3..0.5).contains(&share(|schedule| !schedule.address_changes.is_empty())));
            assert!((0.3..0.5).contains(&share(|schedule| schedule.up.corruption > 0.0)));
            assert_eq!(
                share(|schedule| schedule.stop.is_some()) > 0.08,
                limits.stops
            );
        }
    }

    #[test]
    fn a_schedule_survives_being_written_and_read() {
        for seed in 0..100 {
            let schedule = Schedule::random(seed);
            let text = serde_json::to_string(&schedule).unwrap();
            assert_eq!(serde_json::from_str::<Schedule>(&text).unwrap(), schedule);
        }
    }

    #[test]
    fn the_text_of_a_schedule_is_one_line_that_names_every_fault() {
        let schedule = Schedule {
            seed: 7,
            up: Faults {
                loss: 0.031,
                duplication: 0.01,
                reordering: 0.02,
                reordering_delay: Duration::from_millis(30),
                corruption: 0.001,
                delay: Duration::from_millis(40),
                jitter: Duration::from_millis(10),
            },
            blackouts: vec![Interval {
                start: Time::from_millis(3_200),
                length: Duration::from_secs(12),
            }],
            address_changes: vec![Time::from_millis(4_000)],
            stop: Some(Stop {
                end: End::Server,
                interval: Interval {
                    start: Time::from_millis(5_000),
                    length: Duration::MAX,
                },
            }),
            ..Schedule::default()
        };
        assert_eq!(
            schedule.to_string(),
            "seed 7: up 40.0+10.0 ms, loss 3.10 %, twice 1.00 %, corrupt 0.10 %, reorder 2.00 % by 30.0 ms; \
             down 0.0 ms; dark at 3.200 s for 12.000 s; new address at 4.000 s; server stops at 5.000 s for good"
        );
        assert!(schedule.is_stopped(End::Server, Time::from_millis(5_000)));
        assert!(!schedule.is_stopped(End::Server, Time::from_millis(4_999)));
        assert!(!schedule.is_stopped(End::Client, Time::from_millis(9_000)));
    }
}
