//! C4: a rate for media, with little delay and no falling behind (draft-huitema-ccwg-c4-spec).
//!
//! Two numbers describe the path. The nominal rate rises with the greatest delivery rate and falls
//! only on signals of congestion (`c4/signals.rs`). The nominal round-trip time is the longest
//! without the flow's queue: it includes the path's jitter, so that jitter does not stall the flow.
//! Both are measured best while less is sent than the path carries, so a recovery follows each push
//! for more. Time is counted in eras, each a round trip of packets.
//!
//! ```text
//!            ┌──────────── three pushes in a row worked, or jitter (once) ────────────┐
//!            ▼                                                                        │
//! Initial (2) ── no growth, or congestion ──▶ Recovery (15/16), one era ──────────────┤
//!                     ▲          ▲                                                    ▼
//!                     │          └────── congestion ─────────────── Cruising (1), four eras
//!                     └────── one era, or congestion ── Pushing (5/4 or 17/16) ◀──────┘
//! ```
//!
//! The draft leaves marks (ECN) open; they are ignored here. Silence is not congestion ("Do not
//! react to Probe Time Out"): until the next feedback, two packets leave for each timeout (RFC 9002
//! §6.2.4).

use crate::initial_window::initial_window_alone;
use verus_core::controller::{Controller, Departure, Feedback, Phase, Timeout};
use verus_core::pacer;
use verus_core::units::{Bytes, Duration, Rate, Time};
use verus_words::configuration::Configuration;
use verus_words::range::OutOfRange;

mod signals;

use signals::LossRate;

/// α in Initial: the rate at which packets leave, as a multiple of the nominal rate.
const INITIAL_ALPHA: f64 = 2.0;
/// α in Recovery.
const RECOVERY_ALPHA: f64 = 15.0 / 16.0;
/// α in Pushing after a push that worked, and after one that did not.
const PUSH_ALPHA: f64 = 5.0 / 4.0;
const CAREFUL_PUSH_ALPHA: f64 = 17.0 / 16.0;
/// A push has worked if the rate grew by at least this share of what the push tried; a careful one if it grew at all.
const PUSH_SHARE: f64 = 0.25;
/// Eras without growth that end Initial, and eras before a long delay can end it.
const INITIAL_ERAS: u32 = 3;
const INITIAL_DELAY_ERAS: u32 = 2;
/// Losses end Initial only after this many packets have arrived.
const INITIAL_LOSS_PACKETS: u64 = 20;
/// Eras of Cruising before a push.
const CRUISING_ERAS: u32 = 4;
/// After this many successful pushes in a row the flow returns to Initial, which finds the remaining capacity sooner.
const PUSHES_TO_INITIAL: u32 = 3;
/// The limit of jitter's part in the nominal round-trip time.
const MOST_JITTER: Duration = Duration::from_millis(250);
/// Jitter is high where the least round-trip time is less than this of the nominal.
const HIGH_JITTER: f64 = 2.0 / 5.0;
/// The least window, in packets, which is also what may leave after a timeout.
const MIN_WINDOW_PACKETS: u64 = 2;
/// A burst is what the rate carries in this time. The draft's quantum, a quarter of the window, is how much unused time
/// a pacer may save up; ours saves up none.
const QUANTUM: Duration = Duration::from_millis(1);

initial_window_alone!(
    /// A configuration of C4.
    "C4",
    |config, _| C4::new(config)
);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum C4State {
    Initial,
    Recovery,
    Cruising,
    Pushing,
}

/// A round trip, as packets make it.
#[derive(Clone, Copy, Debug)]
struct Era {
    /// The first packet that left in it.
    first: u64,
    /// The least and the greatest round-trip time in this era, of packets of the era before.
    rtts: Option<(Duration, Duration)>,
    /// The source held the sender back.
    limited: bool,
}

impl Era {
    fn new(first: u64) -> Self {
        Era {
            first,
            rtts: None,
            limited: false,
        }
    }

    fn on_rtt(&mut self, rtt: Duration) {
        let (least, greatest) = self.rtts.unwrap_or((rtt, rtt));
        self.rtts = Some((least.min(rtt), greatest.max(rtt)));
    }
}

/// Estimates of the path's round-trip time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rtt {
    /// The nominal (greatest) one: the path's own, with its jitter.
    nominal: Duration,
    running_min: Duration,
}

/// A flow's C4.
#[derive(Clone, Debug)]
pub struct C4 {
    packet_size: Bytes,
    initial_window_packets: f64,
    state: C4State,
    rate: Rate,
    rtt: Option<Rtt>,
    era: Era,
    /// The alpha of this era and of the one before.
    alpha: f64,
    alpha_before: f64,
    /// Counts eras in Initial without growth, and in Cruising.
    eras: u32,
    /// The rate when this era began, and when the last recovery ended.
    era_rate: Rate,
    recovered_rate: Rate,
    /// A signal came in this recovery, or began it.
    congested: bool,
    /// The alpha of the push that this recovery follows.
    pushed: Option<f64>,
    push_alpha: f64,
    successes: u32,
    restarted_for_jitter: bool,
    losses: LossRate,
    arrived: u64,
    next_number: u64,
    /// cwnd, except during silence.
    window: Bytes,
    /// No feedback has come since a timeout.
    silent: bool,
}

impl C4 {
    /// A controller for one flow.
    ///
    /// # Errors
    /// If the configuration is out of range.
    pub fn new(config: &Config) -> Result<Self, OutOfRange> {
        config.validate()?;
        Ok(C4 {
            packet_size: Bytes::new(1500),
            initial_window_packets: config.initial_window_packets,
            state: C4State::Initial,
            rate: Rate::default(),
            rtt: None,
            era: Era::new(0),
            alpha: INITIAL_ALPHA,
            alpha_before: INITIAL_ALPHA,
            eras: 0,
            era_rate: Rate::default(),
            recovered_rate: Rate::default(),
            congested: false,
            pushed: None,
            push_alpha: PUSH_ALPHA,
            successes: 0,
            restarted_for_jitter: false,
            losses: LossRate::default(),
            arrived: 0,
            next_number: 0,
            window: Bytes::ZERO,
            silent: false,
        })
    }

    fn enter(&mut self, state: C4State) {
        self.state = state;
        self.eras = 0;
        self.alpha = match state {
            C4State::Initial => INITIAL_ALPHA,
            C4State::Recovery => RECOVERY_ALPHA,
            C4State::Cruising => 1.0,
            C4State::Pushing => self.push_alpha,
        };
        self.begin_era();
    }

    fn begin_era(&mut self) {
        self.era = Era::new(self.next_number);
        self.era_rate = self.rate;
    }

    /// A signal that takes `reduction` of the rate; `packet` shows it.
    fn on_signal(&mut self, reduction: f64, packet: u64) {
        match self.state {
            // The signal concerns packets that left before this recovery, which has answered it.
            C4State::Recovery => {
                self.congested = true;
                return;
            }
            C4State::Initial => {}
            C4State::Pushing if packet >= self.era.first => {}
            C4State::Cruising | C4State::Pushing => {
                self.rate = self.rate.mul_f64(1.0 - reduction);
            }
        }
        self.congested = true;
        self.fail_push();
        self.alpha_before = self.alpha;
        self.enter(C4State::Recovery);
    }

    fn fail_push(&mut self) {
        self.pushed = None;
        self.push_alpha = CAREFUL_PUSH_ALPHA;
        self.successes = 0;
    }

    fn on_rtt(&mut self, rtt: Duration, packet: u64) {
        self.era.on_rtt(rtt);
        let Some(Rtt { nominal, .. }) = self.rtt else {
            self.rtt = Some(Rtt {
                nominal: rtt,
                running_min: rtt,
            });
            return;
        };
        if self.state == C4State::Initial && self.eras < INITIAL_DELAY_ERAS {
            return;
        }
        if let Some(reduction) = signals::delay_reduction(self.rate, nominal, rtt) {
            self.on_signal(reduction, packet);
        }
    }

    /// The nominal round-trip time, from an era whose packets left no faster than the nominal rate.
    fn learn_rtt(&mut self) {
        let (Some(rtt), Some((least, greatest))) = (&mut self.rtt, self.era.rtts) else {
            return;
        };
        if self.alpha_before > 1.0 {
            return;
        }
        let smoothed = |old: Duration, new: Duration| (old * 7 + new) / 8;
        rtt.running_min = if least < rtt.running_min {
            least
        } else {
            smoothed(rtt.running_min, least)
        };
        let greatest = greatest.min(rtt.running_min + MOST_JITTER);
        rtt.nominal = if greatest > rtt.nominal {
            greatest
        } else {
            smoothed(rtt.nominal, greatest)
        };
    }

    /// The first packet of this era has arrived.
    fn end_era(&mut self) {
        self.learn_rtt();
        self.alpha_before = self.alpha;
        match self.state {
            C4State::Initial => {
                if self.rate > self.era_rate {
                    self.eras = 0;
                } else if !self.era.limited {
                    self.eras += 1;
                }
                if self.eras >= INITIAL_ERAS {
                    self.congested = false;
                    self.enter(C4State::Recovery);
                } else {
                    self.begin_era();
                }
            }
            C4State::Recovery => self.end_recovery(),
            C4State::Cruising => {
                self.eras += 1;
                if self.eras >= CRUISING_ERAS && !self.era.limited {
                    self.enter(C4State::Pushing);
                } else {
                    self.begin_era();
                }
            }
            C4State::Pushing => {
                self.pushed = Some(self.alpha);
                self.congested = false;
                self.enter(C4State::Recovery);
            }
        }
    }

    fn end_recovery(&mut self) {
        if let Some(alpha) = self.pushed.take() {
            let min_growth = if alpha > CAREFUL_PUSH_ALPHA {
                1.0 + PUSH_SHARE * (alpha - 1.0)
            } else {
                1.0
            };
            let grown = self.rate > self.recovered_rate.mul_f64(min_growth);
            if grown && !self.congested {
                self.push_alpha = PUSH_ALPHA;
                self.successes += 1;
            } else {
                self.fail_push();
            }
        }
        self.recovered_rate = self.rate;
        self.congested = false;
        let jitter = !self.restarted_for_jitter
            && self
                .rtt
                .is_some_and(|rtt| rtt.running_min < rtt.nominal.mul_f64(HIGH_JITTER));
        if jitter {
            self.restarted_for_jitter = true;
        }
        if jitter || self.successes >= PUSHES_TO_INITIAL {
            self.successes = 0;
            self.enter(C4State::Initial);
        } else {
            self.enter(C4State::Cruising);
        }
    }

    fn least_window(&self) -> Bytes {
        self.packet_size * MIN_WINDOW_PACKETS
    }

    /// Rate × nominal round-trip time. The window grows by at most the bytes that arrived, so that
    /// one sample cannot open it at once. It is in whole packets, rounded up: in picoquic, too, a
    /// packet leaves while any of the window is free. Rounded down, a push from two packets would
    /// again be two packets, and the rate could never rise.
    fn set_window(&mut self, newly_delivered: Bytes) {
        if let Some(rtt) = self.rtt
            && self.rate > Rate::default()
        {
            let aimed = self.paced().bytes_in(rtt.nominal).get();
            let aimed = self.packet_size * aimed.div_ceil(self.packet_size.get());
            let grown = self.window + newly_delivered;
            self.window = aimed.min(grown).max(self.least_window());
        }
    }

    fn paced(&self) -> Rate {
        self.rate.mul_f64(self.alpha)
    }
}

impl Controller for C4 {
    fn on_start(&mut self, _now: Time, packet_size: Bytes) {
        self.packet_size = packet_size;
        self.window = packet_size
            .mul_f64(self.initial_window_packets)
            .max(self.least_window());
    }

    fn on_sent(&mut self, packet: &Departure) {
        self.next_number = packet.number + 1;
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        if let Some(delivery) = feedback.delivery() {
            self.silent = false;
            let recovering = self.state == C4State::Recovery && self.congested;
            if !recovering && delivery.rate > self.rate {
                self.rate = delivery.rate;
            }
            self.era.limited |= delivery.packet.app_limited;
        }
        for packet in feedback.lost {
            self.losses.update(true);
            let enough = self.state != C4State::Initial || self.arrived > INITIAL_LOSS_PACKETS;
            if enough && self.losses.is_too_high(self.rate) {
                self.on_signal(signals::MOST_REDUCTION, packet.number);
            }
        }
        for acked in feedback.acked {
            self.losses.update(false);
            self.arrived += 1;
            self.on_rtt(acked.rtt, acked.packet.number);
            if acked.packet.number >= self.era.first {
                self.end_era();
            }
        }
        self.set_window(feedback.newly_delivered());
    }

    fn on_timeout(&mut self, _timeout: &Timeout<'_>) {
        self.silent = true;
    }

    fn on_packet_size(&mut self, size: Bytes) {
        self.packet_size = size;
    }

    fn window(&self) -> Bytes {
        if self.silent {
            self.least_window()
        } else {
            self.window.max(self.packet_size)
        }
    }

    fn pacing_rate(&self) -> Option<Rate> {
        let rate = self.paced();
        (rate > Rate::default()).then_some(rate)
    }

    fn send_quantum(&self) -> Option<Bytes> {
        Some(pacer::quantum(self.paced(), QUANTUM, self.least_window()))
    }

    fn phase(&self) -> Option<Phase> {
        Some(match self.state {
            _ if self.silent => Phase::Silent,
            C4State::Initial => Phase::SlowStart,
            C4State::Recovery => Phase::Recovery,
            C4State::Cruising | C4State::Pushing => Phase::Steady,
        })
    }

    fn probe(&self, record: &mut dyn FnMut(&'static str, f64)) {
        record("alpha", self.alpha);
        record("window_packets", self.window() / self.packet_size);
        record("rate_mbps", self.rate.as_mbps());
        let nominal = self.rtt.map(|rtt| rtt.nominal.as_millis_f64());
        record("nominal_rtt_ms", nominal.unwrap_or(f64::NAN));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use verus_core::testing::{self, Path, SIZE};

    fn c4() -> C4 {
        C4::new(&Config::default()).expect("in range")
    }

    /// An era: `packets` packets leave together and are acknowledged after `ms`.
    fn era(path: &mut Path<C4>, packets: u64, ms: u64) {
        path.send(packets);
        path.wait_ms(ms);
        let numbers = path.in_flight_numbers();
        path.ack(numbers);
    }

    /// A flow that has left Initial, 100 packets in 100 ms.
    fn cruising() -> Path<C4> {
        let mut path = Path::new(c4());
        for _ in 0..8 {
            era(&mut path, 100, 100);
            if path.controller.state == C4State::Cruising {
                break;
            }
        }
        assert_eq!(path.controller.state, C4State::Cruising);
        path
    }

    #[test]
    fn the_first_window_doubles_with_the_rate() {
        let mut path = Path::new(c4());
        assert_eq!(path.controller.window(), SIZE * 10);
        assert_eq!(path.controller.pacing_rate(), None);
        era(&mut path, 10, 100);
        // 10 packets in 100 ms, twice.
        assert_eq!(path.controller.window(), SIZE * 20);
        assert_eq!(path.controller.pacing_rate(), Some(Rate::from_mbps(1.6)));
    }

    #[test]
    fn three_eras_without_growth_end_initial() {
        let mut path = Path::new(c4());
        era(&mut path, 100, 100);
        for _ in 0..INITIAL_ERAS {
            assert_eq!(path.controller.state, C4State::Initial);
            era(&mut path, 100, 100);
        }
        assert_eq!(path.controller.state, C4State::Recovery);
        assert_eq!(path.controller.alpha, 15.0 / 16.0);
    }

    #[test]
    fn a_cycle_recovers_cruises_four_eras_and_pushes_one() {
        let mut path = cruising();
        let mut phases = Vec::new();
        for _ in 0..12 {
            era(&mut path, 100, 100);
            phases.push((path.controller.state, path.controller.alpha));
        }
        let cruise = (C4State::Cruising, 1.0);
        let recovery = (C4State::Recovery, RECOVERY_ALPHA);
        assert_eq!(phases[..3], [cruise; 3]);
        assert_eq!(phases[3], (C4State::Pushing, PUSH_ALPHA));
        assert_eq!(phases[4..9], [recovery, cruise, cruise, cruise, cruise]);
        // It brought nothing: the next one is careful.
        assert_eq!(phases[9], (C4State::Pushing, CAREFUL_PUSH_ALPHA));
    }

    #[test]
    fn pushes_that_work_lead_back_to_initial() {
        let mut path = cruising();
        let mut packets = 100;
        let mut pushes = 0;
        while path.controller.state != C4State::Initial && pushes < 10 {
            if path.controller.state == C4State::Pushing {
                pushes += 1;
                packets = packets * 5 / 4;
            }
            era(&mut path, packets, 100);
        }
        assert_eq!(pushes, PUSHES_TO_INITIAL);
    }

    #[test]
    fn a_delay_takes_what_exceeds_the_threshold_and_a_loss_a_quarter() {
        // 1 MB/s: the threshold is 7.75 ms above 100 ms.
        let mut path = cruising();
        let before = path.controller.rate;
        era(&mut path, 100, 109);
        let ratio = path.controller.rate.as_mbps() / before.as_mbps();
        let excess = 1.25 / 7.75;
        assert!((ratio - (1.0 - excess)).abs() < 0.01, "{ratio}");
        assert_eq!(path.controller.state, C4State::Recovery);

        let mut path = cruising();
        path.send(100);
        path.wait_ms(100);
        let numbers = path.in_flight_numbers();
        path.feedback([], numbers[..1].iter().copied(), []);
        assert_eq!(path.controller.state, C4State::Recovery);
        assert_eq!(path.controller.rate, before.mul_f64(0.75));
    }

    #[test]
    fn the_rate_does_not_bounce_back_in_a_recovery_from_congestion() {
        let mut path = cruising();
        path.send(100);
        path.wait_ms(100);
        let numbers = path.in_flight_numbers();
        path.feedback([], numbers[..1].iter().copied(), []);
        let reduced = path.controller.rate;
        path.ack(numbers[1..].iter().copied());
        assert_eq!(path.controller.rate, reduced);
    }

    #[test]
    fn the_nominal_round_trip_rises_at_once_and_falls_by_eighths() {
        let mut controller = c4();
        let ms = Duration::from_millis;
        controller.alpha_before = 1.0;
        let estimate = |running_min, nominal| {
            let (running_min, nominal) = (ms(running_min), ms(nominal));
            Some(Rtt {
                nominal,
                running_min,
            })
        };
        controller.rtt = estimate(80, 80);
        let mut learn = |least, greatest| {
            controller.era.rtts = Some((ms(least), ms(greatest)));
            controller.learn_rtt();
            controller.rtt
        };
        assert_eq!(learn(80, 160), estimate(80, 160));
        assert_eq!(learn(88, 80), estimate(81, 150));
        assert_eq!(learn(41, 1000), estimate(41, 291));
    }

    #[test]
    fn silence_leaves_two_packets_and_takes_nothing_from_the_rate() {
        let mut path = cruising();
        let before = path.controller.window();
        path.send(10);
        path.wait_ms(1000);
        path.time_out();
        assert_eq!(path.controller.window(), SIZE * 2);
        path.send(2);
        path.wait_ms(100);
        let numbers = path.in_flight_numbers();
        path.ack([numbers[0]]);
        assert!(path.controller.window() >= before * 15 / 16);
    }

    proptest! {
        #[test]
        fn whatever_happens_the_window_stays_sound_and_repeats(steps in testing::steps()) {
            testing::assert_sound(c4, &steps);
        }
    }
}
