//! Constant: a packet at each interval, whatever happens to the packets.
//!
//! The paper's measurements send this way (SIGCOMM 2015 §3: every 0.4 ms; §5.3: 1400-byte packets
//! at 5 and 2.5 Mbit/s). It ignores loss and delay, so it is for recording a channel and for
//! imitating unresponsive traffic, not for carrying data.

use verus_core::configuration::Configured;
use verus_core::controller::{Allowance, Controller, Departure, Feedback, Timeout};
use verus_core::receiver::ReceiverConfig;
use verus_core::recovery::Recovery;
use verus_core::units::{Bytes, Duration, Rate, Time};
use verus_words::configuration::{CHECKED, Configuration};
use verus_words::range::{OutOfRange, Within};
use verus_words::spec::{Row, field};

/// A late timer makes up for at most this much time. Departures missed before are left out, since a burst after a pause
/// is not a constant rate either.
const MADE_UP: Duration = Duration::from_millis(100);

/// A configuration of the constant rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The rate of departures, headers included, in Mbit/s (§3: 10).
    pub rate_mbps: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config { rate_mbps: 10.0 }
    }
}

const MBPS: Within = Within {
    words: "between 0.001 and 100000 Mbit/s",
    valid: |mbps| (0.001..=100_000.0).contains(&mbps),
};

impl Configuration for Config {
    const ROWS: &'static [Row<Self>] = &[field!(rate_mbps).within(
        "Mbit/s",
        "what leaves, headers included (SIGCOMM 2015 §3)",
        MBPS,
    )];
}

impl Configured for Config {
    fn label(&self) -> (String, &'static [&'static str]) {
        (
            format!("Constant {} Mbit/s", self.rate_mbps),
            &["rate_mbps"],
        )
    }

    fn build(&self, _seed: u64) -> Box<dyn Controller> {
        Box::new(Constant::new(self).expect(CHECKED))
    }

    fn receiver(&self) -> ReceiverConfig {
        ReceiverConfig::SELDOM
    }

    fn fixed_rate(&self) -> Option<Rate> {
        Some(Rate::from_mbps(self.rate_mbps))
    }
}

/// A flow's constant rate.
#[derive(Clone, Debug)]
pub struct Constant {
    rate: Rate,
    packet_size: Bytes,
    interval: Duration,
    /// When the next packet is due, and whether any has left: the first may have to wait for the peer.
    next: Time,
    has_begun: bool,
    /// Packets whose time has come.
    due: u64,
    in_flight: Bytes,
}

impl Constant {
    /// A controller for one flow.
    ///
    /// # Errors
    /// If the configuration is out of range.
    pub fn new(config: &Config) -> Result<Self, OutOfRange> {
        config.validate()?;
        let mut controller = Constant {
            rate: Rate::from_mbps(config.rate_mbps),
            packet_size: Bytes::ZERO,
            interval: Duration::ZERO,
            next: Time::ZERO,
            has_begun: false,
            due: 0,
            in_flight: Bytes::ZERO,
        };
        controller.on_packet_size(Bytes::new(1500));
        Ok(controller)
    }

    /// Counts the packets whose time has come by now.
    fn count(&mut self, now: Time) {
        if now < self.next {
            return;
        }
        let passed = now.since(self.next).as_nanos() / self.interval.as_nanos() + 1;
        self.next += self.interval * passed;
        let max_due = (MADE_UP.as_nanos() / self.interval.as_nanos()).max(1);
        self.due = (self.due + passed).min(max_due);
    }
}

impl Controller for Constant {
    fn on_start(&mut self, now: Time, packet_size: Bytes) {
        self.on_packet_size(packet_size);
        self.next = now;
    }

    fn on_sent(&mut self, packet: &Departure) {
        if !self.has_begun {
            (self.has_begun, self.next) = (true, packet.at + self.interval);
        }
        self.count(packet.at);
        self.due = self.due.saturating_sub(1);
        self.in_flight = packet.in_flight;
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.in_flight = feedback.in_flight;
    }

    fn on_timeout(&mut self, _timeout: &Timeout<'_>) {
        self.in_flight = Bytes::ZERO;
    }

    fn on_tick(&mut self, now: Time, _in_flight: Bytes) {
        if self.has_begun {
            self.count(now);
        } else if now >= self.next {
            self.due = 1;
        }
    }

    fn on_packet_size(&mut self, size: Bytes) {
        self.packet_size = size;
        self.interval = self.rate.time_for(size).max(Duration::from_nanos(1));
    }

    /// There is no window; for figures, the bytes in flight and the next packet.
    fn window(&self) -> Bytes {
        self.in_flight + self.packet_size
    }

    fn allowance(&self) -> Allowance {
        Allowance::budget(self.packet_size * self.due)
    }

    /// Not while a packet that is due may not leave, or there is none: what passes meanwhile is counted as it leaves.
    fn next_tick(&self) -> Option<Time> {
        (self.due == 0).then_some(self.next)
    }

    /// Nothing is retransmitted: each packet is only a sample of the channel.
    fn recovery(&self) -> Recovery {
        Recovery {
            retransmit: false,
            tail_probe: false,
            ..Recovery::rack()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verus_core::testing::{Path, SIZE};

    /// 8 Mbit/s: a packet of 1000 bytes each millisecond.
    fn constant() -> Path<Constant> {
        let config = Config { rate_mbps: 8.0 };
        Path::new(Constant::new(&config).expect("in range"))
    }

    #[test]
    fn a_packet_leaves_at_each_interval_whatever_is_in_flight_or_lost() {
        let mut path = constant();
        for millis in 0..50 {
            path.tick();
            path.fill();
            assert_eq!(path.in_flight(), SIZE * (millis + 1));
            path.wait_ms(1);
        }
        path.feedback([40, 41], 0..40, []);
        path.time_out();
        path.tick();
        path.fill();
        assert_eq!(path.in_flight(), SIZE);
    }

    #[test]
    fn a_late_timer_makes_up_for_what_was_missed_but_not_for_a_long_pause() {
        let mut path = constant();
        path.tick();
        path.fill();
        path.wait_ms(7);
        path.tick();
        path.fill();
        assert_eq!(path.in_flight(), SIZE * 8);
        path.wait_ms(60_000);
        path.tick();
        path.fill();
        assert_eq!(path.in_flight(), SIZE * 108);
        assert_eq!(path.controller.next_tick(), Some(Time::from_millis(60_008)));
    }

    #[test]
    fn what_may_not_leave_costs_no_work_at_any_rate() {
        let mut path = constant();
        path.tick();
        assert_eq!(path.controller.next_tick(), None);
        path.fill();
        path.wait_ms(1);
        path.tick();
        assert_eq!(path.controller.next_tick(), None);
    }

    #[test]
    fn a_rate_of_nothing_is_refused() {
        for rate_mbps in [0.0, -1.0, f64::NAN, 1e9] {
            let error = Constant::new(&Config { rate_mbps }).expect_err("out of range");
            assert!(error.to_string().starts_with("rate_mbps must be"));
        }
    }
}
