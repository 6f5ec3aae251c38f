//! Verus in C, compiled natively and under sanitizers.

use crate::law::Event;
use crate::program::Program;

/// An acknowledgement; see `struct answer` in verus.h.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Answer {
    pub now: u64,
    pub sent: u64,
    pub rtt: u64,
    pub acked: u64,
    pub lost: u64,
    pub charted: u64,
    pub in_flight: u64,
    pub smoothed_rtt: u64,
    pub app_limited: bool,
}

/// The law's answer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Said {
    /// W, in packets.
    pub window: f64,
    /// Packets that may be in flight.
    pub allowed: u64,
    /// Bytes of payload per second.
    pub pace: u64,
    pub estimate_ms: f64,
    pub delay_min_ms: f64,
    pub delay_max_ms: f64,
    pub phase: &'static str,
    /// When the open epoch ends; 0: there was none yet.
    pub epoch_end: u64,
}

/// The program that verus.c is.
#[derive(Debug)]
pub struct Verus {
    program: Program,
    pub said: Said,
}

impl Verus {
    pub fn new() -> Self {
        Verus {
            program: Program::start("verus.c"),
            said: Said::default(),
        }
    }

    /// A flow begins, with a window of `packets`.
    pub fn start(&mut self, now: u64, packets: u64, ratio: f64) -> Said {
        let ratio = (ratio * 65536.0) as u64;
        self.ask(&format!("s {now} {packets} {ratio}"))
    }

    pub fn on_answer(&mut self, answer: &Answer) -> Said {
        self.ask(&format!(
            "a {} {} {} {} {} {} {} {} {}",
            answer.now,
            answer.sent,
            answer.rtt,
            answer.acked,
            answer.lost,
            answer.charted,
            answer.in_flight,
            answer.smoothed_rtt,
            u8::from(answer.app_limited),
        ))
    }

    pub fn time_out(&mut self, now: u64) -> Said {
        self.ask(&format!("t {now}"))
    }

    /// Applies an event of a flow, as `forward` gets it: in bytes, where each `packet` bytes are
    /// one packet.
    pub fn happen(&mut self, event: Event, packet: u64) {
        match event {
            Event::Heard(heard) => self.on_answer(&Answer {
                now: heard.now,
                sent: heard.sent,
                rtt: heard.rtt,
                acked: heard.acked / packet,
                lost: heard.lost / packet,
                charted: heard.in_flight / packet,
                in_flight: heard.in_flight / packet,
                smoothed_rtt: heard.smoothed_rtt,
                app_limited: heard.app_limited,
            }),
            Event::Timeout { now } => self.time_out(now),
            Event::PacketSize { .. } => self.said,
        };
    }

    /// # Panics
    /// If a window or the pace is zero, or the curve falls.
    fn ask(&mut self, line: &str) -> Said {
        let answers = self.program.ask(line);
        let [
            window,
            allowed,
            pace,
            estimate,
            least,
            most,
            phase,
            epoch_end,
            sound,
        ] = answers[..]
        else {
            panic!("`{line}` was answered by {answers:?}");
        };
        assert!(
            window >= 1 << 16 && allowed >= 2 && pace > 0 && sound == 1,
            "{line}: {answers:?}"
        );
        let ms = |ns: u64| ns as f64 / 1e6;
        self.said = Said {
            window: window as f64 / 65536.0,
            allowed,
            pace,
            estimate_ms: ms(estimate),
            delay_min_ms: ms(least),
            delay_max_ms: ms(most),
            phase: ["slow_start", "steady", "", "silent", "recovery"][phase as usize],
            epoch_end,
        };
        self.said
    }
}
