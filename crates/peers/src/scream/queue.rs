//! How long packets wait in the queue (RFC 6817 §2.4.2; draft-ietf-ccwg-rfc8298bis-screamv2, "Detecting Increased Queue Delay").

use crate::windowed::{Windowed, WindowedMin};
use verus_core::controller::Acked;
use verus_core::receiver_clock::ReceiverClock;
use verus_core::units::{Duration, Time};

/// The least delay of this period is taken for the path's own (RFC 6817: BASE_HISTORY is ten minutes).
const BASE_HISTORY: Duration = Duration::from_secs(600);
/// QDELAY_AVG_G: the weight of a longer delay in the average; a shorter one replaces it.
const WEIGHT: f64 = 0.25;

/// A flow's queue.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    clock: ReceiverClock,
    /// Delays are one way, by the receiver's clock; round trips where that says nothing or is not to be believed.
    one_way: bool,
    /// The least delay, ns; one way it has the difference of the clocks in it.
    base: WindowedMin<i64>,
    latest: Duration,
    average: Duration,
    averaged_at: Option<Time>,
}

impl Default for Queue {
    fn default() -> Self {
        Queue {
            clock: ReceiverClock::default(),
            one_way: false,
            base: Windowed::new(),
            latest: Duration::ZERO,
            average: Duration::ZERO,
            averaged_at: None,
        }
    }
}

impl Queue {
    /// The newest packet that an acknowledgement names; the average is renewed every so often.
    pub(super) fn on_acked(&mut self, now: Time, acked: &Acked, every: Duration) {
        let sent = acked.packet.at;
        let received = acked
            .received_at
            .filter(|at| self.clock.believes(now, sent, *at));
        let delay = match received {
            Some(at) => at.as_nanos().wrapping_sub(sent.as_nanos()) as i64,
            None => i64::try_from(acked.rtt.as_nanos()).unwrap_or(i64::MAX),
        };
        if received.is_some() != self.one_way {
            self.one_way = received.is_some();
            self.base = Windowed::new();
        }
        let base = self
            .base
            .update(now.as_nanos(), BASE_HISTORY.as_nanos(), delay);
        self.latest = Duration::from_nanos(delay.saturating_sub(base).max(0) as u64);
        if self.averaged_at.is_none_or(|at| now.since(at) >= every) {
            self.average = if self.latest < self.average {
                self.latest
            } else {
                self.latest.mul_f64(WEIGHT) + self.average.mul_f64(1.0 - WEIGHT)
            };
            self.averaged_at = Some(now);
        }
    }

    /// qdelay.
    pub(super) fn latest(&self) -> Duration {
        self.latest
    }

    /// qdelay_avg.
    pub(super) fn average(&self) -> Duration {
        self.average
    }

    #[cfg(test)]
    pub(super) fn of(delay: Duration) -> Self {
        Queue {
            latest: delay,
            average: delay,
            ..Queue::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verus_core::testing;

    fn acknowledge(
        queue: &mut Queue,
        at_ms: u64,
        there_ms: u64,
        back_ms: u64,
        ahead: Option<Duration>,
    ) {
        let sent = Time::from_millis(at_ms);
        let way_out = Duration::from_millis(there_ms);
        let rtt = way_out + Duration::from_millis(back_ms);
        let packet = testing::departure(0, sent);
        let acked = Acked {
            packet,
            rtt,
            received_at: ahead.map(|ahead| sent + way_out + ahead),
        };
        queue.on_acked(sent + rtt, &acked, Duration::from_millis(25));
    }

    #[test]
    fn a_longer_delay_counts_a_quarter_and_a_shorter_one_at_once() {
        let mut queue = Queue::default();
        let ms = Duration::from_millis;
        acknowledge(&mut queue, 0, 20, 20, None);
        assert_eq!(queue.average(), Duration::ZERO);
        acknowledge(&mut queue, 100, 60, 20, None);
        assert_eq!((queue.latest(), queue.average()), (ms(40), ms(10)));
        acknowledge(&mut queue, 110, 60, 20, None);
        assert_eq!(queue.average(), ms(10), "25 ms are not over");
        acknowledge(&mut queue, 200, 25, 20, None);
        assert_eq!(queue.average(), ms(5));
    }

    #[test]
    fn a_queue_on_the_way_back_is_none_where_the_receiver_says_when_packets_came() {
        let mut queue = Queue::default();
        let ahead = Some(Duration::from_secs(7000));
        acknowledge(&mut queue, 0, 20, 20, ahead);
        acknowledge(&mut queue, 100, 20, 80, ahead);
        assert_eq!(queue.latest(), Duration::ZERO);
        acknowledge(&mut queue, 300, 50, 20, ahead);
        assert_eq!(queue.latest(), Duration::from_millis(30));
    }
}
