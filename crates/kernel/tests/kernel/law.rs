//! `forward` in C, compiled natively and under sanitizers, and the core's, both behind the same events and answers.

use verus_core::{Acked, Bytes, Controller, Departure, Duration, Feedback, Phase, Time, Timeout};
use verus_protocol::forward::{Config, Forward, law};

use crate::program::Program;

/// An acknowledgement; see `struct heard` in forward.h.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Heard {
    pub now: u64,
    pub sent: u64,
    pub rtt: u64,
    pub acked: u64,
    pub lost: u64,
    pub marked: u64,
    pub smoothed_rtt: u64,
    pub in_flight: u64,
    pub app_limited: bool,
    /// When the newest of the packets taken for lost had left.
    pub lost_sent: u64,
}

/// What happens to a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    Heard(Heard),
    Timeout { now: u64 },
    PacketSize { bytes: u64 },
}

/// What the law says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// The window, and never less than a packet.
    pub window: u64,
    /// What may be in flight; `None` while a drain lets nothing leave.
    pub allowed: Option<u64>,
    pub rate_mbps: f64,
    pub base_ms: f64,
    pub queue_ms: f64,
    pub target_ms: f64,
    pub horizon_ms: f64,
    /// p, e and l.
    pub shares: [f64; 3],
    /// c · s, which bounds the target.
    pub room_ms: f64,
    pub phase: Phase,
}

/// The core's.
pub struct Core(Forward);

impl Core {
    pub fn start(now: u64, packet: u64, budget_ms: f64) -> Self {
        #[allow(
            clippy::needless_update,
            reason = "with the core's feature `parts` there is more in it"
        )]
        let config = Config {
            budget_ms,
            ..Config::default()
        };
        let mut forward = Forward::new(config).expect("in range");
        forward.on_start(Time::from_nanos(now), Bytes::new(packet));
        Core(forward)
    }

    pub fn hear(&mut self, event: Event) -> Answer {
        let forward = &mut self.0;
        match event {
            Event::Heard(heard) => {
                let packet = |sent: u64, bytes: u64| Departure {
                    number: 0,
                    at: Time::from_nanos(sent),
                    size: Bytes::new(bytes),
                    window: Bytes::ZERO,
                    in_flight: Bytes::ZERO,
                    delivered: Bytes::ZERO,
                    delivered_at: Time::ZERO,
                    sending: Duration::ZERO,
                    app_limited: heard.app_limited,
                };
                let sample = Acked {
                    packet: packet(heard.sent, heard.acked),
                    rtt: Duration::from_nanos(heard.rtt),
                    received_at: None,
                };
                forward.on_feedback(&Feedback {
                    now: Time::from_nanos(heard.now),
                    acked: &[sample][..usize::from(heard.acked > 0)],
                    lost: &[packet(heard.lost_sent, heard.lost)][..usize::from(heard.lost > 0)],
                    recovered: &[],
                    marked: heard.marked as usize,
                    report: None,
                    in_flight_before: Bytes::new(heard.in_flight),
                    in_flight: Bytes::ZERO,
                    delivered: Bytes::ZERO,
                    smoothed_rtt: Duration::from_nanos(heard.smoothed_rtt),
                    min_rtt: Duration::ZERO,
                });
            }
            Event::Timeout { now } => forward.on_timeout(&Timeout {
                now: Time::from_nanos(now),
                presumed_lost: &[],
                backoff: 1,
            }),
            Event::PacketSize { bytes } => forward.on_packet_size(Bytes::new(bytes)),
        }
        self.answer()
    }

    pub fn answer(&self) -> Answer {
        let mut told = std::collections::BTreeMap::new();
        self.0.probe(&mut |name, value| {
            told.insert(name, value);
        });
        Answer {
            window: self.0.window().get(),
            allowed: self.0.allowance().most_in_flight().map(Bytes::get),
            rate_mbps: told["rate_mbps"],
            base_ms: told["delay_min_ms"],
            queue_ms: told["queue_ms"],
            target_ms: told["target_ms"],
            horizon_ms: told["horizon_ms"],
            shares: ["loss_share", "empty_share", "late_share"].map(|name| told[name]),
            room_ms: told["room_ms"],
            phase: self.0.phase().expect("it has phases"),
        }
    }
}

/// The law in C.
pub struct Native {
    program: Program,
    packet: u64,
}

impl Native {
    pub fn new() -> Self {
        Native {
            program: Program::start("law.c"),
            packet: 0,
        }
    }

    pub fn start(&mut self, now: u64, packet: u64, budget_ms: f64) -> Answer {
        self.packet = packet;
        let budget = Duration::from_millis_f64(budget_ms).as_nanos();
        self.ask(&format!("s {now} {packet} {budget}"))
    }

    pub fn hear(&mut self, event: Event) -> Answer {
        match event {
            Event::Heard(heard) => self.ask(&format!(
                "h {} {} {} {} {} {} {} {} {} {}",
                heard.now,
                heard.sent,
                heard.rtt,
                heard.acked,
                heard.lost,
                heard.marked,
                heard.smoothed_rtt,
                heard.in_flight,
                u8::from(heard.app_limited),
                heard.lost_sent
            )),
            Event::Timeout { now } => self.ask(&format!("t {now}")),
            Event::PacketSize { bytes } => {
                self.packet = bytes;
                self.ask(&format!("p {bytes}"))
            }
        }
    }

    /// The law alone: window and pace.
    pub fn decide(&mut self, state: &law::State) -> law::Decision {
        let told = self.program.ask(&format!(
            "d {} {} {} {} {} {} {} {}",
            state.rate,
            state.base,
            state.queue,
            state.target,
            state.lead,
            state.packet,
            state.given,
            state.phase as u8
        ));
        let [window, pace] = told[..] else {
            panic!("{state:?} was answered by {told:?}");
        };
        law::Decision { window, pace }
    }

    fn ask(&mut self, line: &str) -> Answer {
        let told = self.program.ask(line);
        let [
            window,
            allowed,
            pace,
            rate,
            base,
            queue,
            target,
            horizon,
            lost,
            empty,
            late,
            room,
            steady,
            phase,
        ] = told[..]
        else {
            panic!("`{line}` was answered by {told:?}");
        };
        assert!(window > 0 && allowed > 0 && pace > 0, "{line}: {told:?}");
        Answer {
            window: window.max(self.packet),
            allowed: Some(allowed),
            rate_mbps: rate as f64 / 1e6,
            base_ms: base as f64 / 1e6,
            queue_ms: queue as f64 / 1e6,
            target_ms: target as f64 / 1e6,
            horizon_ms: horizon as f64 / 1e6,
            shares: [lost, empty, late].map(|share| share as f64 / 65536.0),
            room_ms: room as f64 / 65536.0 * (steady as f64 / 1e6),
            phase: [Phase::SlowStart, Phase::Steady, Phase::Drain, Phase::Silent][phase as usize],
        }
    }
}

/// A drain that lets nothing leave is the transport's to keep: the kernel's glue lets two packets leave instead.
pub fn assert_same(native: Answer, core: Answer, after: Event) {
    let native = Answer {
        allowed: core.allowed.and(native.allowed),
        ..native
    };
    assert_eq!(native, core, "after {after:?}");
}
