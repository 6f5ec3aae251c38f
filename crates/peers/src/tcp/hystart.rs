//! HyStart: leaving slow start before it overflows the queue.
//!
//! Slow start doubles until a loss; by then the flight is twice the capacity of the path. Two signs
//! show earlier that the path is full. The acknowledgements of one round form a train as long as
//! the path itself, or the least delay of a round rises. The classic form (Ha and Rhee 2011, with
//! the constants of Linux) leaves slow start at once on either. HyStart++ (RFC 9406) watches delay
//! only. It first continues at a quarter of the pace, so that jitter can still be told from a
//! queue.

use verus_core::units::{Duration, Time};
use verus_words::spec::Words;

/// The rule that ends slow start before a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HyStart {
    /// Ack trains and delay increase, as in Linux.
    #[default]
    Classic,
    /// RFC 9406.
    PlusPlus,
    /// Only a loss ends slow start.
    Off,
}

impl HyStart {
    pub(super) const WORDS: Words<HyStart> = &[
        ("classic", HyStart::Classic),
        ("plusplus", HyStart::PlusPlus),
        ("off", HyStart::Off),
    ];
}

/// Below this window, in packets, a round has too few samples to judge (Linux: hystart_low_window).
const LOW_WINDOW_PACKETS: f64 = 16.0;
/// Acknowledgements closer than this belong to one train (Linux: hystart_ack_delta).
const TRAIN_GAP: Duration = Duration::from_millis(2);
/// The delay thresholds are this share of the path's delay (Linux, and MIN_RTT_DIVISOR of RFC 9406
/// §4.3), ...
const DELAY_DIVISOR: u64 = 8;
/// ... at least this (HYSTART_DELAY_MIN, MIN_RTT_THRESH) ...
const MIN_DELAY_RISE: Duration = Duration::from_millis(4);
/// ... and at most this (HYSTART_DELAY_MAX, MAX_RTT_THRESH).
const MAX_DELAY_RISE: Duration = Duration::from_millis(16);
/// Samples of a round before its least delay means anything (HYSTART_MIN_SAMPLES, N_RTT_SAMPLE).
const MIN_SAMPLES: u32 = 8;
/// Pace of conservative slow start (CSS_GROWTH_DIVISOR, RFC 9406 §4.3).
const CSS_GROWTH_DIVISOR: f64 = 4.0;
/// Rounds of conservative slow start, the partial first one included (CSS_ROUNDS, RFC 9406 §4.3).
const CSS_ROUNDS: u32 = 5;
/// L of RFC 9406 §4.2 for a sender that does not pace: packets of growth for one acknowledgement.
const GROWTH_LIMIT_PACKETS: f64 = 8.0;

/// One acknowledgement during slow start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sighting {
    /// The time of its arrival.
    pub now: Time,
    /// The newest packet that it acknowledges.
    pub number: u64,
    /// The number of the next packet to leave: where the next round ends.
    pub next_number: u64,
    /// The packet's round-trip time.
    pub rtt: Duration,
    /// The least of the flow's life.
    pub min_rtt: Duration,
    /// The congestion window.
    pub window_packets: f64,
}

/// The response to an acknowledgement during slow start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Advice {
    /// Grow by this share of the acknowledged packets, at most by the limit, in packets.
    Grow {
        /// 1 in plain slow start.
        share: f64,
        /// L of RFC 9406; `None` for no limit.
        limit_packets: Option<f64>,
    },
    /// Congestion avoidance begins here.
    Exit,
}

impl Advice {
    const PLAIN: Advice = Advice::Grow {
        share: 1.0,
        limit_packets: None,
    };

    /// The growth for the given number of acknowledged packets; `None` on exit.
    pub(crate) fn growth(self, acked_packets: f64) -> Option<f64> {
        match self {
            Advice::Grow {
                share,
                limit_packets,
            } => {
                Some(share * limit_packets.map_or(acked_packets, |limit| acked_packets.min(limit)))
            }
            Advice::Exit => None,
        }
    }
}

/// Conservative slow start (RFC 9406 §4.2).
#[derive(Clone, Copy, Debug, PartialEq)]
struct Conservative {
    /// cssBaselineMinRtt: falling below it means that the rise was none.
    baseline: Duration,
    rounds: u32,
}

/// Watches slow start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Watch {
    kind: HyStart,
    /// The round ends when this packet is acknowledged.
    round_end: u64,
    round_start: Time,
    /// The time of the train's last acknowledgement.
    train_end: Time,
    round_min: Option<Duration>,
    previous_min: Option<Duration>,
    samples: u32,
    conservative: Option<Conservative>,
}

impl Watch {
    pub(crate) fn new(kind: HyStart, now: Time) -> Self {
        Watch {
            kind,
            round_end: 0,
            round_start: now,
            train_end: now,
            round_min: None,
            previous_min: None,
            samples: 0,
            conservative: None,
        }
    }

    /// Takes one acknowledgement. `initial` is whether this is the flow's first slow start, the
    /// only one in which HyStart++ speaks (RFC 9406 §4.3).
    pub(crate) fn on_ack(&mut self, sighting: &Sighting, initial: bool) -> Advice {
        match self.kind {
            HyStart::Off => Advice::PLAIN,
            HyStart::Classic if sighting.window_packets < LOW_WINDOW_PACKETS => Advice::PLAIN,
            HyStart::Classic => self.classic(sighting),
            HyStart::PlusPlus if !initial => Advice::PLAIN,
            HyStart::PlusPlus => self.plus_plus(sighting),
        }
    }

    fn begin_round(&mut self, sighting: &Sighting) {
        self.previous_min = self.round_min.take();
        self.round_end = sighting.next_number;
        self.round_start = sighting.now;
        self.train_end = sighting.now;
        self.samples = 0;
    }

    fn classic(&mut self, sighting: &Sighting) -> Advice {
        if sighting.number >= self.round_end {
            self.begin_round(sighting);
        }
        if sighting.now.since(self.train_end) <= TRAIN_GAP {
            self.train_end = sighting.now;
            // Sent without pacing, a round's packets leave together: a train longer than the one-
            // way delay has been stretched by the bottleneck into as much as the path holds.
            if sighting.now.since(self.round_start) > sighting.min_rtt / 2 {
                return Advice::Exit;
            }
        }
        let round_min = self
            .round_min
            .map_or(sighting.rtt, |round_min| round_min.min(sighting.rtt));
        self.round_min = Some(round_min);
        if self.samples < MIN_SAMPLES {
            self.samples += 1;
        } else if round_min > sighting.min_rtt + delay_rise(sighting.min_rtt) {
            return Advice::Exit;
        }
        Advice::PLAIN
    }

    fn plus_plus(&mut self, sighting: &Sighting) -> Advice {
        if sighting.number >= self.round_end {
            self.begin_round(sighting);
            if let Some(css) = &mut self.conservative {
                css.rounds += 1;
                if css.rounds > CSS_ROUNDS {
                    return Advice::Exit;
                }
            }
        }
        let round_min = self
            .round_min
            .map_or(sighting.rtt, |round_min| round_min.min(sighting.rtt));
        self.round_min = Some(round_min);
        self.samples += 1;
        if self.samples >= MIN_SAMPLES {
            match (self.conservative, self.previous_min) {
                (Some(css), _) if round_min < css.baseline => self.conservative = None,
                (None, Some(previous)) if round_min >= previous + delay_rise(previous) => {
                    self.conservative = Some(Conservative {
                        baseline: round_min,
                        rounds: 1,
                    });
                }
                _ => {}
            }
        }
        let share = if self.conservative.is_some() {
            1.0 / CSS_GROWTH_DIVISOR
        } else {
            1.0
        };
        Advice::Grow {
            share,
            limit_packets: Some(GROWTH_LIMIT_PACKETS),
        }
    }
}

/// The rise of the delay above `base` from which it counts as a queue.
fn delay_rise(base: Duration) -> Duration {
    (base / DELAY_DIVISOR).clamp(MIN_DELAY_RISE, MAX_DELAY_RISE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: f64) -> Duration {
        Duration::from_millis_f64(millis)
    }

    /// Rounds of `count` acknowledgements `gap_ms` apart, a round each 100 ms from 0, with the
    /// round-trip times given for each round; says at which (round, acknowledgement) slow start
    /// was left.
    fn rounds(kind: HyStart, count: u64, gap_ms: f64, rtts_ms: &[f64]) -> Option<(usize, u64)> {
        let mut watch = Watch::new(kind, Time::ZERO);
        let mut min_rtt = Duration::MAX;
        for (round, &rtt) in rtts_ms.iter().enumerate() {
            for index in 0..count {
                min_rtt = min_rtt.min(ms(rtt));
                let sighting = Sighting {
                    now: Time::from_millis(100 * round as u64) + ms(gap_ms) * index,
                    number: round as u64 * count + index,
                    next_number: (round as u64 + 1) * count,
                    rtt: ms(rtt),
                    min_rtt,
                    window_packets: 32.0,
                };
                if watch.on_ack(&sighting, true) == Advice::Exit {
                    return Some((round, index));
                }
            }
        }
        None
    }

    #[test]
    fn a_train_longer_than_half_the_path_ends_slow_start() {
        // min_rtt 40 ms: acknowledgements 1 ms apart exceed 20 ms with the 22nd, at 21 ms.
        assert_eq!(rounds(HyStart::Classic, 32, 1.0, &[40.0]), Some((0, 21)));
    }

    #[test]
    fn a_gap_above_two_milliseconds_ends_the_train_not_slow_start() {
        assert_eq!(rounds(HyStart::Classic, 30, 2.5, &[40.0, 40.0]), None);
    }

    #[test]
    fn a_rise_of_an_eighth_after_eight_samples_ends_slow_start() {
        // 80 ms: the threshold is clamp(10, 4, 16) = 10 ms, to be exceeded. Eight samples only
        // count; the ninth is judged.
        assert_eq!(rounds(HyStart::Classic, 20, 0.1, &[80.0, 90.0]), None);
        assert_eq!(
            rounds(HyStart::Classic, 20, 0.1, &[80.0, 90.1]),
            Some((1, 8))
        );
        // 16 ms: at least 4 ms. 400 ms: at most 16 ms.
        assert_eq!(rounds(HyStart::Classic, 20, 0.1, &[16.0, 20.0]), None);
        assert_eq!(
            rounds(HyStart::Classic, 20, 0.1, &[400.0, 416.1]),
            Some((1, 8))
        );
    }

    #[test]
    fn small_windows_are_not_judged() {
        let mut watch = Watch::new(HyStart::Classic, Time::ZERO);
        for number in 0..15 {
            let sighting = Sighting {
                now: Time::from_millis(number),
                number,
                next_number: 15,
                rtt: ms(100.0),
                min_rtt: ms(1.0),
                window_packets: 15.0,
            };
            assert_eq!(watch.on_ack(&sighting, true), Advice::PLAIN);
        }
    }

    #[test]
    fn plus_plus_goes_on_for_five_rounds_before_it_leaves() {
        // The rise is seen in round 1, which counts as the first of five: rounds 1 to 5 are
        // conservative, and round 6 begins congestion avoidance.
        let rtts = [80.0, 95.0, 95.0, 95.0, 95.0, 95.0, 95.0];
        assert_eq!(rounds(HyStart::PlusPlus, 20, 0.1, &rtts), Some((6, 0)));
    }

    #[test]
    fn plus_plus_resumes_when_the_delay_falls_below_its_baseline() {
        let rtts = [80.0, 95.0, 94.0, 94.0, 94.0, 94.0, 94.0, 94.0];
        assert_eq!(rounds(HyStart::PlusPlus, 20, 0.1, &rtts), None);
    }

    #[test]
    fn plus_plus_grows_at_a_quarter_of_the_pace_and_by_eight_packets_at_most() {
        let fast = Advice::Grow {
            share: 1.0,
            limit_packets: Some(8.0),
        };
        assert_eq!(fast.growth(20.0), Some(8.0));
        let slow = Advice::Grow {
            share: 0.25,
            limit_packets: Some(8.0),
        };
        assert_eq!(slow.growth(2.0), Some(0.5));
    }

    #[test]
    fn off_means_off() {
        assert_eq!(rounds(HyStart::Off, 50, 1.0, &[10.0, 500.0, 5000.0]), None);
    }
}
