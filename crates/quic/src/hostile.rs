//! Peers that lie to every controller behind the callbacks of a QUIC stack, on a virtual clock.
//!
//! A QUIC peer cannot acknowledge packets that were not sent: the stack closes the connection. It
//! can acknowledge late or in bursts, leave packets out, swing between two delays, and claim
//! congestion marks. [`Stack`] applies RFC 9002 to that and calls the bridge as quinn does.
//! [`trial`] states the invariants.

use std::collections::BTreeMap;

use verus_core::sender::FalseAck;
use verus_core::{Controller, Duration, LossRule, Observer, Stamp, Time};
use verus_faults::liar::{Acknowledgement, Lie, Lies};
use verus_faults::trial::{self, Side};
use verus_senders::Scheme;

use super::Bridge;

const SIZE: u64 = 1200;
/// quinn's default send window, above which it holds no data.
const SEND_WINDOW: u64 = 10_000_000;
/// kGranularity (RFC 9002 §6.1.2).
const GRANULARITY: Duration = Duration::from_millis(1);
/// kPersistentCongestionThreshold (§7.6.1).
const PERSISTENT: u64 = 3;

/// The sending side of a QUIC stack, as far as congestion control sees it.
struct Stack {
    bridge: Bridge,
    /// In flight: when each left.
    sent: BTreeMap<u64, Time>,
    next_number: u64,
    largest_acked: Option<u64>,
    smoothed: Option<Duration>,
    variance: Duration,
    latest: Duration,
    time_threshold: f64,
    loss_timer: Option<Time>,
    last_sent: Time,
    probes: u32,
    probe_now: u32,
}

impl Side for Stack {
    const SIZE: u64 = SIZE;
    const TIMERS: (f64, f64) = (4.0, 1500.0);
    const DELAY_COUNTS: bool = false;

    fn new(scheme: &Scheme, seed: u64) -> Self {
        let controller = scheme.config().build(seed);
        // As the factory configures quinn.
        let time_threshold = match controller.recovery().loss {
            LossRule::Rack => 5.0 / 4.0,
            LossRule::DelayTimer { factor } => 1.0 + factor,
            LossRule::FixedTimer { .. } => 4.0,
        };
        let mut bridge = Bridge::new(controller, Time::ZERO, SIZE as u16);
        bridge.set_driven(true);
        Stack {
            bridge,
            sent: BTreeMap::new(),
            next_number: 0,
            largest_acked: None,
            smoothed: None,
            variance: Duration::ZERO,
            latest: Duration::ZERO,
            time_threshold,
            loss_timer: None,
            last_sent: Time::ZERO,
            probes: 0,
            probe_now: 0,
        }
    }

    /// Those that QUIC lets a peer tell.
    fn lies(seed: u64) -> Lies {
        let mut lies = Lies::random(seed);
        lies.lies.retain(|lie| {
            !matches!(
                lie,
                Lie::Early { .. } | Lie::Report(_) | Lie::Times(_) | Lie::Holds { .. }
            )
        });
        if lies.lies.is_empty() {
            lies.lies.push(Lie::Marks { one_in: 3 });
        }
        lies
    }

    fn observer(_scheme: &Scheme) -> Option<Box<dyn Observer>> {
        None
    }

    fn transmit(&mut self, now: Time) -> Option<(u64, Option<Stamp>)> {
        self.bridge.flush();
        if self.probe_now > 0 {
            self.probe_now -= 1;
        } else if self.in_flight() + SIZE >= self.bridge.limit() || self.in_flight() >= SEND_WINDOW
        {
            return None;
        }
        let number = self.next_number;
        self.next_number += 1;
        self.sent.insert(number, now);
        self.last_sent = now;
        self.bridge.on_sent(now, SIZE, number);
        Some((number, None))
    }

    fn on_ack(&mut self, now: Time, ack: &Acknowledgement) -> Result<Vec<u64>, FalseAck> {
        let newest = ack.ranges[0].last;
        let mut acked = Vec::new();
        for range in ack.ranges.iter().rev() {
            while let Some((&number, &at)) = self.sent.range(range.first..=range.last).next() {
                self.sent.remove(&number);
                self.bridge.on_ack(now, Some(at), SIZE, false);
                acked.push(number);
                if number == newest {
                    self.update_rtt(now.since(at));
                }
            }
        }
        if acked.is_empty() {
            return Ok(acked);
        }
        self.largest_acked = self.largest_acked.max(Some(newest));
        self.probes = 0;
        self.bridge.on_end_acks(now, self.in_flight(), false);
        for _ in 0..ack.marked {
            self.bridge.on_congestion(now, now, false, 0);
        }
        self.detect(now);
        Ok(acked)
    }

    fn next_timer(&self, now: Time) -> Option<Time> {
        [self.loss_timer, self.probe_at(), self.bridge.next_tick(now)]
            .into_iter()
            .flatten()
            .min()
    }

    fn on_timer(&mut self, now: Time) {
        if self.loss_timer.is_some_and(|at| at <= now) {
            self.detect(now);
        } else if self.probe_at().is_some_and(|at| at <= now) {
            self.probes += 1;
            self.probe_now = 2;
        }
        if self.bridge.next_tick(now).is_some_and(|at| at <= now) {
            self.bridge.tick(now);
        }
    }

    fn controller(&self) -> &dyn Controller {
        self.bridge.controller()
    }

    fn limit(&self) -> u64 {
        self.bridge.limit()
    }

    fn remembered(&self) -> usize {
        self.bridge.ring.len()
    }
}

impl Stack {
    fn in_flight(&self) -> u64 {
        self.sent.len() as u64 * SIZE
    }

    fn update_rtt(&mut self, rtt: Duration) {
        self.latest = rtt;
        match self.smoothed {
            None => (self.smoothed, self.variance) = (Some(rtt), rtt / 2),
            Some(smoothed) => {
                self.variance = (self.variance * 3 + smoothed.abs_diff(rtt)) / 4;
                self.smoothed = Some((smoothed * 7 + rtt) / 8);
            }
        }
    }

    fn detect(&mut self, now: Time) {
        self.loss_timer = None;
        let Some(largest) = self.largest_acked else {
            return;
        };
        let delay = self.smoothed.unwrap_or_default().max(self.latest);
        let wait = delay.mul_f64(self.time_threshold).max(GRANULARITY);
        let mut lost = Vec::new();
        for (&number, &at) in self.sent.range(..largest) {
            if at + wait <= now {
                lost.push((number, at));
            } else {
                self.loss_timer = Some(at + wait);
                break;
            }
        }
        let (Some(first), Some(last)) = (lost.first().copied(), lost.last().copied()) else {
            return;
        };
        for (number, _) in &lost {
            self.sent.remove(number);
        }
        let persistent = last.1.since(first.1) > self.probe_timeout() * PERSISTENT;
        let bytes = lost.len() as u64 * SIZE;
        self.bridge.on_congestion(now, last.1, persistent, bytes);
    }

    fn probe_timeout(&self) -> Duration {
        match self.smoothed {
            None => Duration::from_millis(999),
            Some(smoothed) => {
                smoothed + (self.variance * 4).max(GRANULARITY) + Duration::from_millis(25)
            }
        }
    }

    fn probe_at(&self) -> Option<Time> {
        let wait = self.probe_timeout() * (1 << self.probes.min(10));
        (!self.sent.is_empty()).then(|| self.last_sent + wait)
    }
}

#[test]
fn whatever_a_quic_peer_says_the_connection_stays_within_bounds_and_recovers() {
    trial::hold::<Stack>();
}
