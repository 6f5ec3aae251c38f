//! Two implementations of `forward` with the same events and answers: that in C, compiled natively
//! and under sanitizers, and the core's.

use verus_core::{Acked, Bytes, Controller, Departure, Duration, Feedback, Phase, Time, Timeout};
use verus_forward::{Config, Forward, law};

use crate::program::Program;

/// An acknowledgement; see `struct heard` in estimates.h. Times in ns, sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Acknowledgement {
    pub now: u64,
    pub sent: u64,
    pub rtt: u64,
    pub acked: u64,
    pub lost: u64,
    pub marked: u64,
    pub smoothed_rtt: u64,
    pub in_flight: u64,
    pub app_limited: bool,
    /// When the newest of the packets declared lost had left.
    pub lost_sent: u64,
}

/// An event of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    Acknowledged(Acknowledgement),
    Timeout { now: u64 },
    PacketSize { bytes: u64 },
}

/// The state of the law after an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// The window, at least a packet.
    pub window: u64,
    /// The limit of the data in flight; `None` while a drain lets nothing leave.
    pub allowed: Option<u64>,
    pub rate_mbps: f64,
    pub base_ms: f64,
    pub queue_ms: f64,
    pub target_ms: f64,
    pub horizon_ms: f64,
    /// p, e and l.
    pub shares: [f64; 3],
    /// c · s, the bound of the target.
    pub room_ms: f64,
    pub phase: Phase,
}

/// The core's implementation.
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

    pub fn handle(&mut self, event: Event) -> Answer {
        let forward = &mut self.0;
        match event {
            Event::Acknowledged(acknowledgement) => {
                let packet = |sent: u64, bytes: u64| Departure {
                    number: 0,
                    at: Time::from_nanos(sent),
                    size: Bytes::new(bytes),
                    window: Bytes::ZERO,
                    in_flight: Bytes::ZERO,
                    delivered: Bytes::ZERO,
                    delivered_at: Time::ZERO,
                    sending: Duration::ZERO,
                    app_limited: acknowledgement.app_limited,
                };
                let sample = Acked {
                    packet: packet(acknowledgement.sent, acknowledgement.acked),
                    rtt: Duration::from_nanos(acknowledgement.rtt),
                    received_at: None,
                };
                forward.on_feedback(&Feedback {
                    now: Time::from_nanos(acknowledgement.now),
                    acked: &[sample][..usize::from(acknowledgement.acked > 0)],
                    lost: &[packet(acknowledgement.lost_sent, acknowledgement.lost)]
                        [..usize::from(acknowledgement.lost > 0)],
                    recovered: &[],
                    marked: acknowledgement.marked as usize,
                    report: None,
                    in_flight_before: Bytes::new(acknowledgement.in_flight),
                    in_flight: Bytes::ZERO,
                    delivered: Bytes::ZERO,
                    smoothed_rtt: Duration::from_nanos(acknowledgement.smoothed_rtt),
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
        let mut values = std::collections::BTreeMap::new();
        self.0.probe(&mut |name, value| {
            values.insert(name, value);
        });
        Answer {
            window: self.0.window().get(),
            allowed: self.0.allowance().most_in_flight().map(Bytes::get),
            rate_mbps: values["rate_mbps"],
            base_ms: values["delay_min_ms"],
            queue_ms: values["queue_ms"],
            target_ms: values["target_ms"],
            horizon_ms: values["horizon_ms"],
            shares: ["loss_share", "empty_share", "late_share"].map(|name| values[name]),
            room_ms: values["room_ms"],
            phase: self.0.phase().expect("it has phases"),
        }
    }
}

/// The implementation in C.
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
        let line = format!("s {now} {packet} {budget}");
        let numbers = self.program.ask(&line);
        self.answer(&line, &numbers)
    }

    pub fn handle(&mut self, event: Event) -> Answer {
        self.handle_all(&[event]).remove(0)
    }

    /// The answers to these events. The two processes wait for each other once in a hundred events.
    pub fn handle_all(&mut self, events: &[Event]) -> Vec<Answer> {
        let mut answers = Vec::new();
        for events in events.chunks(100) {
            let lines: Vec<String> = events.iter().map(line_of).collect();
            let numbers = self.program.ask_all(&lines);
            for ((event, line), numbers) in events.iter().zip(&lines).zip(&numbers) {
                if let Event::PacketSize { bytes } = *event {
                    self.packet = bytes;
                }
                answers.push(self.answer(line, numbers));
            }
        }
        answers
    }

    /// The decision of the law for a state: window and pace.
    pub fn decide(&mut self, state: &law::State) -> law::Decision {
        let answer = self.program.ask(&format!(
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
        let [window, pace] = answer[..] else {
            panic!("{state:?} was answered by {answer:?}");
        };
        law::Decision { window, pace }
    }

    fn answer(&self, line: &str, answer: &[u64]) -> Answer {
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
        ] = *answer
        else {
            panic!("`{line}` was answered by {answer:?}");
        };
        assert!(window > 0 && allowed > 0 && pace > 0, "{line}: {answer:?}");
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

/// The event as the program reads it.
fn line_of(event: &Event) -> String {
    match *event {
        Event::Acknowledged(acknowledgement) => format!(
            "h {} {} {} {} {} {} {} {} {} {}",
            acknowledgement.now,
            acknowledgement.sent,
            acknowledgement.rtt,
            acknowledgement.acked,
            acknowledgement.lost,
            acknowledgement.marked,
            acknowledgement.smoothed_rtt,
            acknowledgement.in_flight,
            u8::from(acknowledgement.app_limited),
            acknowledgement.lost_sent
        ),
        Event::Timeout { now } => format!("t {now}"),
        Event::PacketSize { bytes } => format!("p {bytes}"),
    }
}

/// Asserts that both answers are equal, except for the limit of a drain that lets nothing leave.
/// The kernel's program lets two packets leave instead.
pub fn assert_same(native: Answer, core: Answer, after: Event) {
    let native = Answer {
        allowed: core.allowed.and(native.allowed),
        ..native
    };
    assert_eq!(native, core, "after {after:?}");
}
