//! How two clocks that were never set together relate: their offset and drift, from packets that went both
//! ways.
//!
//! The one-way delays of packets lie above a line: the delay of an empty path plus the clocks'
//! offset, which grows with their drift. Upward that line rises with the drift, downward it falls
//! by as much. The drift is the slope at which both lines, each pushed up against its lowest
//! packets, enclose the least round trip. (Moon, Skelly and Towsley, "Estimation and Removal of
//! Clock Skew from Network Delay Measurements", INFOCOM 1999, for both directions at once.) The
//! drift's error is how far the lines may turn before they leave the lowest packets by more than
//! those scatter. The sum of the lines is the round trip of the empty path. Their difference is
//! twice the offset if the empty path is as long in both directions. Packets cannot show whether it
//! is: the offset may be wrong by half of that round trip.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;
use verus_core::{Duration, Time};

/// Quartz drifts far less than this: a larger drift is the path's.
const MOST_DRIFT: f64 = 500e-6;
/// The length of a span; its lowest packet in each direction represents all of them.
const SPAN: Duration = Duration::from_millis(100);

/// A packet by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// When it left, by the sender's clock.
    pub sent: Time,
    /// When it arrived, by the receiver's clock.
    pub received: Time,
}

/// The relation of a far clock to the near one, and an empty path's round trip.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Clocks {
    /// The near time that `offset_ms` holds for.
    #[serde(skip)]
    reference: Time,
    /// Far clock minus near clock at the reference, ns.
    #[serde(skip)]
    offset_nanos: i64,
    /// Far clock minus near clock when the first packet left, ms.
    pub offset_ms: f64,
    /// By how much the offset may be wrong: half of the base round trip, all of which might be one
    /// direction's, and how far the lowest packets scatter; ms.
    pub offset_error_ms: f64,
    /// How much faster the far clock runs, millionths.
    pub drift_ppm: f64,
    /// By how much that may be wrong.
    pub drift_error_ppm: f64,
    /// Round trip of the empty path, ms.
    pub base_rtt_ms: f64,
    /// How far the lowest packets lie above their lines, ms: the error that the path's scatter
    /// leaves in the estimates.
    pub scatter_ms: f64,
}

/// The lowest delays of a direction: seconds since the reference, and seconds above the first delay.
type Lows = Vec<(f64, f64)>;

impl Clocks {
    /// Relates the clocks by packets that went up, sent by the near clock, and down, sent by the
    /// far one, each in order of arrival. `calm` lists the times, by the near clock, in which the
    /// path was empty except for light probes; they show how far the lowest packets scatter. `None`
    /// without packets in both directions.
    pub fn estimate(
        up: impl IntoIterator<Item = Passage>,
        down: impl IntoIterator<Item = Passage>,
        calm: &[(Time, Time)],
    ) -> Option<Clocks> {
        let mut up = up.into_iter().peekable();
        let first = *up.peek()?;
        let reference = first.sent;
        let zero = apart(&first);
        let mut ups = Lowest::new(calm, reference);
        for passage in up {
            let at = signed(passage.sent, reference);
            ups.add(at, apart(&passage).wrapping_sub(zero));
        }
        let mut downs = Lowest::new(calm, reference);
        for passage in down {
            let at = signed(passage.received, reference);
            downs.add(at, apart(&passage).wrapping_add(zero));
        }
        let (ups, downs) = (ups.finish(), downs.finish());
        if downs.lows.is_empty() {
            return None;
        }
        let lines = |drift: f64| intercept(&ups.lows, -drift) + intercept(&downs.lows, drift);
        let scatter = ups.scatter + downs.scatter + 1e-6;
        let (low, high) = slopes(lines, scatter);
        let drift_error = (high - low) / 2.0;
        let drift = (high + low) / 2.0;
        let (above, below) = (intercept(&ups.lows, -drift), intercept(&downs.lows, drift));
        // Stamps that are off by some µs can make that of a path within one machine negative.
        let base_rtt = (above + below).max(0.0);
        let offset_nanos = zero.wrapping_add(((above - below) / 2.0 * 1e9).round() as i64);
        Some(Clocks {
            reference,
            offset_nanos,
            offset_ms: offset_nanos as f64 / 1e6,
            offset_error_ms: (base_rtt / 2.0 + scatter) * 1e3,
            drift_ppm: drift * 1e6,
            drift_error_ppm: drift_error * 1e6,
            base_rtt_ms: base_rtt * 1e3,
            scatter_ms: scatter * 1e3,
        })
    }

    /// The near clock's time when the far one showed `far`.
    pub fn near(&self, far: Time) -> Time {
        let since = (far.as_nanos() as i64)
            .wrapping_sub(self.offset_nanos)
            .wrapping_sub(self.reference.as_nanos() as i64);
        let drift = self.drift_ppm / 1e6;
        let since = since - (since as f64 * drift / (1.0 + drift)).round() as i64;
        let near = (self.reference.as_nanos() as i64).saturating_add(since);
        Time::from_nanos(near.max(0) as u64)
    }
}

/// Arrival less departure, each by its own clock, ns.
fn apart(passage: &Passage) -> i64 {
    passage
        .received
        .as_nanos()
        .wrapping_sub(passage.sent.as_nanos()) as i64
}

/// Nanoseconds from `reference` to `at`.
fn signed(at: Time, reference: Time) -> i64 {
    at.as_nanos().wrapping_sub(reference.as_nanos()) as i64
}

/// The lowest delays of one direction as its packets pass.
struct Lowest {
    calm: Vec<Range<i64>>,
    /// By span: the span, when, how low.
    lows: BTreeMap<i64, (i64, i64)>,
    /// The delays in each calm time.
    delays: Vec<Vec<i64>>,
}

struct Envelope {
    lows: Lows,
    scatter: f64,
}

impl Lowest {
    fn new(calm: &[(Time, Time)], reference: Time) -> Self {
        let calm: Vec<Range<i64>> = calm
            .iter()
            .map(|&(from, to)| signed(from, reference)..signed(to, reference))
            .collect();
        Lowest {
            delays: vec![Vec::new(); calm.len()],
            calm,
            lows: BTreeMap::new(),
        }
    }

    fn add(&mut self, at: i64, delay: i64) {
        let span = at.div_euclid(SPAN.as_nanos() as i64);
        let low = self.lows.entry(span).or_insert((at, delay));
        if delay < low.1 {
            *low = (at, delay);
        }
        for (calm, delays) in self.calm.iter().zip(&mut self.delays) {
            if calm.contains(&at) {
                delays.push(delay);
            }
        }
    }

    fn finish(self) -> Envelope {
        let lows = self
            .lows
            .values()
            .map(|&(at, delay)| (at as f64 / 1e9, delay as f64 / 1e9))
            .collect();
        // Of each calm time, how far the lowest of twenty packets lies above the lowest.
        let scatter = self.delays.into_iter().filter_map(|mut delays| {
            delays.sort_unstable();
            let rank = (delays.len() / 20).max(1).min(delays.len().checked_sub(1)?);
            Some((delays[rank] - delays[0]) as f64 / 1e9)
        });
        Envelope {
            scatter: scatter.fold(0.0, f64::max),
            lows,
        }
    }
}

/// Where a line of this slope, pushed up against the points from below, crosses zero.
fn intercept(points: &Lows, slope: f64) -> f64 {
    points
        .iter()
        .map(|&(at, delay)| delay + slope * at)
        .fold(f64::INFINITY, f64::min)
}

/// The slopes between which the lines enclose a round trip within `scatter` of the longest that they can.
fn slopes(lines: impl Fn(f64) -> f64, scatter: f64) -> (f64, f64) {
    const STEPS: u32 = 60;
    // The enclosed round trip is concave in the slope: least of sums of straight lines.
    let (mut low, mut high) = (-MOST_DRIFT, MOST_DRIFT);
    for _ in 0..STEPS {
        let third = (high - low) / 3.0;
        if lines(low + third) < lines(high - third) {
            low += third;
        } else {
            high -= third;
        }
    }
    let best = (low + high) / 2.0;
    let enough = lines(best) - scatter;
    let edge = |mut outside: f64| {
        let mut inside = best;
        if lines(outside) >= enough {
            return outside;
        }
        for _ in 0..STEPS {
            let middle = (inside + outside) / 2.0;
            if lines(middle) >= enough {
                inside = middle;
            } else {
                outside = middle;
            }
        }
        inside
    };
    (edge(-MOST_DRIFT), edge(MOST_DRIFT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Two clocks, and a path of `up_ms` and `down_ms` between them.
    struct World {
        offset: i64,
        drift: f64,
        up_ms: f64,
        down_ms: f64,
    }

    impl World {
        fn far(&self, near: f64) -> Time {
            let nanos = near * 1e9 * (1.0 + self.drift) + self.offset as f64;
            Time::from_nanos(nanos as u64)
        }

        /// Packets each 20 ms for 2 s from each of `starts` s, delayed by `extra` ms of the way and the index.
        fn estimate(&self, starts: &[f64], extra: impl Fn(u64, u64) -> f64) -> Clocks {
            let (mut up, mut down, mut calm) = (Vec::new(), Vec::new(), Vec::new());
            for &start in starts {
                calm.push((Time::from_secs_f64(start), Time::from_secs_f64(start + 2.0)));
                for index in 0..100 {
                    let at = start + 0.02 * index as f64;
                    up.push(Passage {
                        sent: Time::from_secs_f64(at),
                        received: self.far(at + (self.up_ms + extra(0, index)) / 1e3),
                    });
                    down.push(Passage {
                        sent: self.far(at),
                        received: Time::from_secs_f64(at + (self.down_ms + extra(1, index)) / 1e3),
                    });
                }
            }
            Clocks::estimate(up, down, &calm).expect("packets went both ways")
        }
    }

    const HOUR_AHEAD: i64 = 3_600_000_000_000;

    #[test]
    fn a_clean_path_gives_offset_drift_and_round_trip() {
        let world = World {
            offset: HOUR_AHEAD,
            drift: 50e-6,
            up_ms: 20.0,
            down_ms: 20.0,
        };
        let clocks = world.estimate(&[1.0, 60.0], |_, index| (index * 7 % 13) as f64);
        assert!((clocks.drift_ppm - 50.0).abs() < 1.0, "{clocks:?}");
        assert!(clocks.drift_error_ppm < 100.0, "{clocks:?}");
        // At the reference of 1 s, 50 ppm have come to 50 µs.
        assert!((clocks.offset_ms - 3_600_000.05).abs() < 0.02, "{clocks:?}");
        assert!((clocks.base_rtt_ms - 40.0).abs() < 0.05, "{clocks:?}");
        let far = world.far(30.0);
        assert!(clocks.near(far).since(Time::from_millis(29_999)) < Duration::from_micros(1100));
    }

    #[test]
    fn an_uneven_path_is_within_the_error_that_is_reported() {
        let world = World {
            offset: HOUR_AHEAD,
            drift: 0.0,
            up_ms: 50.0,
            down_ms: 10.0,
        };
        let clocks = world.estimate(&[1.0, 30.0], |_, index| (index % 3) as f64);
        assert!((clocks.offset_ms - 3_600_020.0).abs() < 0.1, "{clocks:?}");
        assert!(clocks.offset_error_ms >= 20.0, "{clocks:?}");
        assert!(
            clocks.drift_ppm.abs() <= clocks.drift_error_ppm,
            "{clocks:?}"
        );
    }

    #[test]
    fn one_short_look_at_a_scattering_path_claims_no_drift() {
        let world = World {
            offset: 0,
            drift: 30e-6,
            up_ms: 20.0,
            down_ms: 20.0,
        };
        let clocks = world.estimate(&[1.0], |direction, index| {
            ((index * 7 + direction * 3) % 11) as f64
        });
        assert!(clocks.drift_error_ppm >= 30.0, "{clocks:?}");
        assert!((clocks.drift_ppm - 30.0).abs() <= clocks.drift_error_ppm);
    }

    #[test]
    fn a_path_that_changes_its_length_meanwhile_shows_in_the_error() {
        let world = World {
            offset: HOUR_AHEAD,
            drift: 0.0,
            up_ms: 20.0,
            down_ms: 20.0,
        };
        let longer = World {
            up_ms: 25.0,
            ..world
        };
        let mut up = Vec::new();
        let mut down = Vec::new();
        for (start, world) in [(1.0, &world), (61.0, &longer)] {
            for index in 0..100 {
                let at = start + 0.02 * f64::from(index);
                up.push(Passage {
                    sent: Time::from_secs_f64(at),
                    received: world.far(at + world.up_ms / 1e3),
                });
                down.push(Passage {
                    sent: world.far(at),
                    received: Time::from_secs_f64(at + world.down_ms / 1e3),
                });
            }
        }
        let clocks = Clocks::estimate(up, down, &[]).expect("packets went both ways");
        assert!(
            clocks.drift_ppm.abs() <= clocks.drift_error_ppm,
            "{clocks:?}"
        );
    }

    #[test]
    fn one_direction_alone_tells_nothing() {
        let passage = Passage {
            sent: Time::ZERO,
            received: Time::from_millis(5),
        };
        assert_eq!(Clocks::estimate([passage], [], &[]), None);
        assert_eq!(Clocks::estimate([], [passage], &[]), None);
    }

    proptest! {
        #[test]
        fn the_truth_lies_within_the_errors(
            offset in -1_000_000_000i64..1 << 50,
            drift in -100.0f64..100.0,
            up_ms in 1.0f64..100.0,
            down_ms in 1.0f64..100.0,
            scatter in prop::collection::vec(0.0f64..5.0, 64),
        ) {
            let world = World { offset: offset + 2_000_000_000, drift: drift / 1e6, up_ms, down_ms };
            let clocks = world.estimate(&[1.0, 30.0], |direction, index| scatter[((index * 5 + direction * 17) % 64) as usize]);
            prop_assert!((clocks.drift_ppm - drift).abs() <= clocks.drift_error_ppm + 1.0, "{clocks:?}");
            let offset = (world.offset as f64 + 1e9 * world.drift) / 1e6;
            prop_assert!((clocks.offset_ms - offset).abs() <= clocks.offset_error_ms + 0.01, "{clocks:?}");
        }
    }
}
