//! Peers that lie to every controller behind the callbacks of a QUIC stack, on a virtual clock.
//!
//! A QUIC peer cannot acknowledge what was not sent: the stack closes the connection. It can be late, tell in
//! bursts, leave packets out, swing between two delays, and claim congestion marks. [`Stack`] is what RFC
//! 9002 makes of that: it calls the bridge as quinn does. What must hold is what `crates/faults/tests/faults/hostile.rs`
//! says; `HOSTILE_SEEDS`, `HOSTILE_SEED` and `HOSTILE_SCHEME` as there.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::panic::AssertUnwindSafe;

use verus_core::{Bytes, Duration, LossRule, Time};
use verus_faults::bound::{self, Bound};
use verus_faults::liar::{Liar, Lie, Lies, Told};
use verus_faults::{Datagram, Link};
use verus_model::{About, Sampler, Trainer};
use verus_senders::Scheme;

use super::Bridge;

const SIZE: u64 = 1200;
/// quinn's default send window, above which it holds no data.
const SEND_WINDOW: u64 = 10_000_000;
/// kGranularity (RFC 9002 §6.1.2).
const GRANULARITY: Duration = Duration::from_millis(1);
/// kPacketThreshold (§6.1.1).
const PACKET_THRESHOLD: u64 = 3;
/// kPersistentCongestionThreshold (§7.6.1).
const PERSISTENT: u64 = 3;
const BINS: usize = bound::RECOVERED_FOR;
/// Every this often a look inside.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Clone)]
struct Packet(u64);

impl Datagram for Packet {
    fn size(&self) -> usize {
        SIZE as usize
    }

    fn flip(&mut self, _bit: usize) {}
}

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
    packet_threshold: u64,
    time_threshold: f64,
    loss_timer: Option<Time>,
    last_sent: Time,
    probes: u32,
    probe_now: u32,
}

impl Stack {
    fn new(scheme: &Scheme, seed: u64) -> Self {
        let controller = scheme.config().build(seed);
        // As the factory configures quinn.
        let (packet_threshold, time_threshold) = match controller.recovery().loss {
            LossRule::Rack => (PACKET_THRESHOLD, 9.0 / 8.0),
            LossRule::DelayTimer { factor } => (u64::MAX, 1.0 + factor),
            LossRule::FixedTimer { .. } => (u64::MAX, 4.0),
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
            packet_threshold,
            time_threshold,
            loss_timer: None,
            last_sent: Time::ZERO,
            probes: 0,
            probe_now: 0,
        }
    }

    fn in_flight(&self) -> u64 {
        self.sent.len() as u64 * SIZE
    }

    fn transmit(&mut self, now: Time) -> Option<u64> {
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
        Some(number)
    }

    /// Returns what is newly acknowledged.
    fn on_ack(&mut self, now: Time, told: &Told) -> Vec<u64> {
        let newest = told.ranges[0].last;
        let mut acked = Vec::new();
        for range in told.ranges.iter().rev() {
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
            return acked;
        }
        self.largest_acked = self.largest_acked.max(Some(newest));
        self.probes = 0;
        self.bridge.on_end_acks(now, self.in_flight(), false);
        for _ in 0..told.marked {
            self.bridge.on_congestion(now, now, false, 0);
        }
        self.detect(now);
        acked
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
            let many = largest - number >= self.packet_threshold;
            if many || at + wait <= now {
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
}

#[derive(Default)]
struct Outcome {
    /// Bytes that came in each second.
    came: Vec<f64>,
    sent: u64,
    sent_lied_to: u64,
    limit_max: u64,
    batches_max: usize,
    /// When each packet left, and when it was acknowledged.
    packets: Vec<(Time, Option<Time>)>,
}

fn run(scheme: &Scheme, link: Link, lies: &Lies, until: Time) -> Outcome {
    let mut stack = Stack::new(scheme, lies.seed);
    let mut liar = Liar::new(lies.clone(), None);
    let mut path = link.path();
    let mut back: VecDeque<(Time, Told)> = VecDeque::new();
    let mut outcome = Outcome {
        came: vec![0.0; until.as_secs_f64() as usize + 2],
        ..Outcome::default()
    };
    let (mut now, mut at_once, mut timers, mut next_look) = (Time::ZERO, 0, 0u64, Time::ZERO);
    loop {
        while let Some(arrived) = path.poll(now) {
            let Packet(number) = arrived.datagram;
            outcome.came[now.as_secs_f64() as usize] += SIZE as f64;
            liar.on_packet(now, number, Bytes::new(SIZE), None);
        }
        while let Some(told) = liar.poll(now) {
            back.push_back((now + link.one_way, told));
        }
        while back.front().is_some_and(|(at, _)| *at <= now) {
            let (_, told) = back.pop_front().expect("there is one");
            for number in stack.on_ack(now, &told) {
                outcome.packets[number as usize].1 = Some(now);
            }
        }
        if stack.next_timer(now).is_some_and(|at| at <= now) {
            stack.on_timer(now);
            timers += 1;
        }
        let before = outcome.sent;
        while let Some(number) = stack.transmit(now) {
            outcome.sent += 1;
            outcome.packets.push((now, None));
            if (lies.from..lies.until).contains(&now) {
                outcome.sent_lied_to += SIZE;
            }
            path.send(now, Packet(number));
            assert!(outcome.sent - before < 100_000, "a burst without end");
        }
        if now >= next_look {
            next_look = now + LOOK;
            look(scheme, &stack, &mut outcome);
        }
        let timer = stack.next_timer(now);
        let next = [
            path.next(),
            liar.next(),
            back.front().map(|(at, _)| *at),
            timer,
        ];
        let Some(next) = next.into_iter().flatten().min().filter(|at| *at < until) else {
            break;
        };
        at_once = if next > now { 0 } else { at_once + 1 };
        assert!(at_once < 10_000, "it spins at {now:?}");
        now = now.max(next);
    }
    assert!(
        (timers as f64) < 4.0 * outcome.sent as f64 + 1500.0 * until.as_secs_f64(),
        "{timers} timers"
    );
    outcome
}

/// A model that was made of Verus on such paths.
fn model() -> Vec<u8> {
    let scheme = Scheme::parse("verus").expect("it is in the list");
    let mut trainer = Trainer::new();
    for seed in 0..8 {
        let until = Time::from_millis(30_000);
        let outcome = run(&scheme, Link::random(seed), &Lies::none(seed), until);
        for run in Sampler::of_packets(outcome.packets).runs() {
            trainer.add(run).expect("few enough");
        }
    }
    let model = trainer.finish(5, 99.0, About::default());
    model.expect("there are samples").to_bytes()
}

/// What must hold at any time.
fn look(scheme: &Scheme, stack: &Stack, outcome: &mut Outcome) {
    let controller = stack.bridge.controller();
    let window = controller.window().get();
    // What a model grants to an epoch may be nothing.
    assert!(window >= SIZE || scheme.name() == "model", "{window} bytes");
    assert!(window < 1 << 40, "{window} bytes");
    outcome.limit_max = outcome.limit_max.max(stack.bridge.limit());
    outcome.batches_max = outcome.batches_max.max(stack.bridge.ring.len());
    controller.probe(&mut |name, value| {
        let always = ["window_packets", "delay_estimate_ms"].contains(&name);
        let absent = value.is_nan() && !always;
        assert!(absent || value.abs() < 1e15, "{name} is {value}");
    });
}

/// Lies that QUIC lets a peer tell.
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

/// What one seed led to.
struct Tried {
    what: String,
    /// Nothing, if it panicked.
    found: Option<Found>,
}

struct Found {
    /// What left while there were lies, in multiples of what the link carried.
    sent: f64,
    /// Whether that was more than the controller's bound.
    too_much: bool,
    limit_max: u64,
    batches_max: usize,
    recovers_after: f64,
}

fn try_seed(scheme: &Scheme, seed: u64, bound: &Bound) -> Tried {
    let (lies, link) = (lies(seed), Link::random(seed));
    let until = lies.until + bound.afterwards();
    let run = |lies: &Lies| {
        std::panic::catch_unwind(AssertUnwindSafe(|| run(scheme, link, lies, until))).ok()
    };
    let find = || {
        let (lied_to, honest) = (run(&lies)?, run(&Lies::none(seed))?);
        let span = lies.until.since(lies.from);
        let carried = link.bytes_in(span);
        let first = lies.until.as_secs_f64().ceil() as usize;
        let share =
            |outcome: &Outcome, from: usize| outcome.came[from..from + BINS].iter().sum::<f64>();
        let recovered = (first..honest.came.len() - 2 - BINS)
            .find(|&from| share(&lied_to, from) >= bound.share * share(&honest, from));
        Some(Found {
            sent: lied_to.sent_lied_to as f64 / carried,
            too_much: lied_to.sent_lied_to as f64 > bound.sent.bytes(link.mbps, span),
            limit_max: lied_to.limit_max,
            batches_max: lied_to.batches_max,
            recovers_after: recovered.map_or(f64::INFINITY, |at| (at - first) as f64),
        })
    };
    Tried {
        what: format!("{lies}, {link:?}"),
        found: find(),
    }
}

#[test]
fn whatever_a_quic_peer_says_the_connection_stays_within_bounds_and_recovers() {
    let (bounds, seeds) = bound::asked_for();
    let mut table = String::new();
    let mut failures = Vec::new();
    for bound in &bounds {
        let text = bound.scheme;
        let scheme = if text == "model" {
            Scheme::open("model:file=x", |_| Ok(model()))
        } else {
            Scheme::parse(text)
        };
        let scheme = scheme.expect("it is in the list");
        let results = bound::each_seed(&seeds, |seed| try_seed(&scheme, seed, bound));
        let (mut sent_max, mut limit_max, mut batches_max) = (0.0f64, 0, 0);
        let mut recoveries = Vec::new();
        for result in results {
            let what = format!("{text}: {}", result.what);
            let Some(found) = result.found else {
                failures.push(format!("panicked: {what}"));
                continue;
            };
            sent_max = sent_max.max(found.sent);
            limit_max = limit_max.max(found.limit_max);
            batches_max = batches_max.max(found.batches_max);
            recoveries.push(found.recovers_after);
            if found.too_much {
                failures.push(format!("sent {:.2} × the link: {what}", found.sent));
            }
            if found.recovers_after > bound.recovers_within {
                failures.push(format!("recovers after {} s: {what}", found.recovers_after));
            }
        }
        writeln!(
            table,
            "| `{text}` | {} | {:.2} | {} | {batches_max} | {} |",
            recoveries.len(),
            sent_max,
            limit_max / 1000,
            bound::spread(&mut recoveries),
        )
        .expect("a string");
    }
    println!("{table}");
    for failure in failures.iter().take(40) {
        println!("{failure}");
    }
    assert!(failures.is_empty(), "{} failures", failures.len());
}
