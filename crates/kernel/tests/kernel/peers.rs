//! Test vectors of Cubic and BBR: every call that a controller gets on a seeded path, and its state
//! after it. A line has all that the core needs to compute the same, and no sender or path. An
//! implementation of either algorithm in another language can replay it.
//!
//! `vectors/README.md` defines each field. `VERUS_WRITE_VECTORS=1` writes them anew.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use verus_core::receiver::{Ack, DataRange, Receiver, ReceiverConfig};
use verus_core::sender::Sender;
use verus_core::{
    Acked, Allowance, Bytes, Controller, Departure, Duration, Feedback, Recovery, Time, Timeout,
};
use verus_senders::Scheme;

const SCHEMES: [&str; 2] = ["cubic", "bbr"];
const PACKET: Bytes = Bytes::new(1500);
const SEED: u64 = 1;

/// A path whose packets cause a flow's events.
pub struct FlowPath {
    /// In kbit/s, by turns of 2 s.
    pub rates_kbps: [u64; 2],
    /// Each way, without a queue.
    pub delay: Duration,
    /// The longest queue.
    pub queue: Duration,
    /// One packet in this many is lost by chance.
    pub one_lost_of: u64,
    pub lasts: Time,
    /// Packets that leave in this time are lost, until the retransmission timeout has come.
    pub silent: std::ops::Range<Time>,
}

const TURN: Duration = Duration::from_secs(2);
const PATH: FlowPath = FlowPath {
    rates_kbps: [800, 400],
    delay: Duration::from_millis(20),
    queue: Duration::from_millis(250),
    one_lost_of: 150,
    lasts: Time::from_millis(9_000),
    silent: Time::from_millis(6_500)..Time::from_millis(7_500),
};

fn file(scheme: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("vectors");
    folder.join(format!("{scheme}.jsonl"))
}

fn out(controller: &dyn Controller) -> Value {
    json!({
        "window_bytes": controller.window().get(),
        "pacing_bps": controller.pacing_rate().map(|rate| rate.as_bps()),
        "phase": controller.phase().map(verus_core::Phase::name),
    })
}

/// A controller, and a log of its calls and states.
#[derive(Debug)]
struct Logged {
    inner: Box<dyn Controller>,
    lines: Arc<Mutex<String>>,
}

impl Logged {
    fn line(&self, told: &Value) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let line = json!({"in": told, "out": out(&*self.inner)});
        *lines += &format!("{line}\n");
    }
}

impl Controller for Logged {
    fn on_start(&mut self, now: Time, packet_size: Bytes) {
        self.inner.on_start(now, packet_size);
        self.line(
            &json!({"event": "start", "now_ns": now.as_nanos(), "packet_bytes": packet_size.get()}),
        );
    }

    fn on_sent(&mut self, packet: &Departure) {
        self.inner.on_sent(packet);
        self.line(&json!({
            "event": "sent", "number": packet.number, "now_ns": packet.at.as_nanos(), "bytes": packet.size.get(),
            "window_bytes": packet.window.get(), "in_flight_bytes": packet.in_flight.get(),
            "delivered_bytes": packet.delivered.get(), "delivered_at_ns": packet.delivered_at.as_nanos(),
            "sending_ns": packet.sending.as_nanos(), "app_limited": packet.app_limited,
        }));
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.inner.on_feedback(feedback);
        let acked = |all: &[Acked]| -> Vec<[u64; 2]> {
            let each = all
                .iter()
                .map(|one| [one.packet.number, one.rtt.as_nanos()]);
            each.collect()
        };
        let lost: Vec<u64> = feedback.lost.iter().map(|packet| packet.number).collect();
        self.line(&json!({
            "event": "feedback", "now_ns": feedback.now.as_nanos(), "acked": acked(feedback.acked), "lost": lost,
            "recovered": acked(feedback.recovered), "in_flight_before_bytes": feedback.in_flight_before.get(),
            "in_flight_bytes": feedback.in_flight.get(), "delivered_bytes": feedback.delivered.get(),
            "smoothed_rtt_ns": feedback.smoothed_rtt.as_nanos(), "min_rtt_ns": feedback.min_rtt.as_nanos(),
        }));
    }

    fn on_timeout(&mut self, timeout: &Timeout<'_>) {
        self.inner.on_timeout(timeout);
        let lost: Vec<u64> = timeout
            .presumed_lost
            .iter()
            .map(|packet| packet.number)
            .collect();
        self.line(&json!({
            "event": "timeout", "now_ns": timeout.now.as_nanos(), "lost": lost, "backoff": timeout.backoff,
        }));
    }

    fn on_tick(&mut self, now: Time, in_flight: Bytes) {
        self.inner.on_tick(now, in_flight);
        self.line(
            &json!({"event": "tick", "now_ns": now.as_nanos(), "in_flight_bytes": in_flight.get()}),
        );
    }

    fn window(&self) -> Bytes {
        self.inner.window()
    }

    fn allowance(&self) -> Allowance {
        self.inner.allowance()
    }

    fn pacing_rate(&self) -> Option<verus_core::Rate> {
        self.inner.pacing_rate()
    }

    fn send_quantum(&self) -> Option<Bytes> {
        self.inner.send_quantum()
    }

    fn next_tick(&self) -> Option<Time> {
        self.inner.next_tick()
    }

    fn recovery(&self) -> Recovery {
        self.inner.recovery()
    }
}

/// Runs a flow over the path; returns the lines.
fn written(scheme: &str) -> String {
    let lines = Arc::default();
    let inner = Scheme::parse(scheme)
        .expect("there is one")
        .config()
        .build(SEED);
    let logged = Logged {
        inner,
        lines: Arc::clone(&lines),
    };
    PATH.play(Box::new(logged));
    let lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
    lines.clone()
}

impl FlowPath {
    /// Runs a flow of a controller over it.
    pub fn play(&self, controller: Box<dyn Controller>) {
        let path = self;
        let mut sender = Sender::new(controller, PACKET, Time::ZERO);
        sender.offer_bulk();
        let mut receiver = Receiver::new(ReceiverConfig::default());
        let mut going: VecDeque<(Time, u64, DataRange)> = VecDeque::new();
        let mut coming: VecDeque<(Time, Ack)> = VecDeque::new();
        let (mut now, mut free) = (Time::ZERO, Time::ZERO);
        while now < path.lasts {
            while let Some(packet) = sender.poll_transmit(now) {
                let begins = now.max(free);
                let turn = (now.as_nanos() / TURN.as_nanos()) as usize;
                let rate = verus_core::Rate::from_bps(
                    1000 * path.rates_kbps[turn % path.rates_kbps.len()],
                );
                let lost = begins.since(now) > path.queue
                    || packet.number % path.one_lost_of == path.one_lost_of - 1
                    || path.silent.contains(&now);
                if !lost {
                    free = begins + rate.time_for(packet.size);
                    going.push_back((free + path.delay, packet.number, packet.data));
                }
            }
            let next = [
                going.front().map(|(at, ..)| *at),
                coming.front().map(|(at, _)| *at),
                sender.next_timer(),
            ];
            now = now.max(
                next.into_iter()
                    .flatten()
                    .min()
                    .expect("it sends, or waits"),
            );
            while going.front().is_some_and(|(at, ..)| *at <= now) {
                let (at, number, data) = going.pop_front().expect("there is one");
                receiver.on_packet(at, number, data);
                if let Some(ack) = receiver.poll_ack(at) {
                    coming.push_back((at + path.delay, ack));
                }
            }
            while coming.front().is_some_and(|(at, _)| *at <= now) {
                let (_, ack) = coming.pop_front().expect("there is one");
                sender
                    .on_ack(now, &ack, None)
                    .expect("the receiver is honest");
            }
            sender.on_timer_if_due(now);
        }
    }
}

/// A fresh controller's states after the lines' events, line by line, beside the recorded ones.
fn replay(scheme: &str, text: &str) {
    let mut controller = Scheme::parse(scheme)
        .expect("there is one")
        .config()
        .build(SEED);
    let mut departures: BTreeMap<u64, Departure> = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let event = &line["in"];
        let count = |name: &str| event[name].as_u64().expect("a whole number");
        let (bytes, time) = (
            |name: &str| Bytes::new(count(name)),
            |name: &str| Time::from_nanos(count(name)),
        );
        let span = |name: &str| Duration::from_nanos(count(name));
        let numbers = |name: &str| -> Vec<Departure> {
            let all = event[name].as_array().expect("a list").iter();
            all.map(|one| departures[&one.as_u64().expect("a number")])
                .collect()
        };
        let acked = |name: &str| -> Vec<Acked> {
            let all = event[name].as_array().expect("a list").iter();
            all.map(|one| Acked {
                packet: departures[&one[0].as_u64().expect("a number")],
                rtt: Duration::from_nanos(one[1].as_u64().expect("a span")),
                received_at: None,
            })
            .collect()
        };
        match event["event"].as_str().expect("a word") {
            "start" => controller.on_start(time("now_ns"), bytes("packet_bytes")),
            "sent" => {
                let packet = Departure {
                    number: count("number"),
                    at: time("now_ns"),
                    size: bytes("bytes"),
                    window: bytes("window_bytes"),
                    in_flight: bytes("in_flight_bytes"),
                    delivered: bytes("delivered_bytes"),
                    delivered_at: time("delivered_at_ns"),
                    sending: span("sending_ns"),
                    app_limited: event["app_limited"].as_bool().expect("yes or no"),
                };
                departures.insert(packet.number, packet);
                controller.on_sent(&packet);
            }
            "feedback" => controller.on_feedback(&Feedback {
                now: time("now_ns"),
                acked: &acked("acked"),
                lost: &numbers("lost"),
                recovered: &acked("recovered"),
                marked: 0,
                report: None,
                in_flight_before: bytes("in_flight_before_bytes"),
                in_flight: bytes("in_flight_bytes"),
                delivered: bytes("delivered_bytes"),
                smoothed_rtt: span("smoothed_rtt_ns"),
                min_rtt: span("min_rtt_ns"),
            }),
            "timeout" => controller.on_timeout(&Timeout {
                now: time("now_ns"),
                presumed_lost: &numbers("lost"),
                backoff: count("backoff") as u32,
            }),
            "tick" => controller.on_tick(time("now_ns"), bytes("in_flight_bytes")),
            other => panic!("`{other}` is no event"),
        }
        assert_eq!(
            out(&*controller),
            line["out"],
            "{scheme}, line {}",
            number + 1
        );
    }
}

#[test]
fn a_fresh_controller_says_of_the_vectors_what_they_say() {
    for scheme in SCHEMES {
        let file = file(scheme);
        if std::env::var_os("VERUS_WRITE_VECTORS").is_some() {
            std::fs::write(&file, written(scheme)).expect("it can be written");
        }
        let text = std::fs::read_to_string(&file).expect("the repository has it");
        replay(scheme, &text);
        for word in ["feedback", "timeout", "lost\":[", "slow_start"] {
            assert!(text.contains(word), "{scheme}: {word}");
        }
    }
}
