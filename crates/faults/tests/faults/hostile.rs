//! Receivers that lie to every controller of the core, over the ledger and the sender that UDP uses, on a
//! virtual clock.
//!
//! Whatever a receiver says, what leaves stays within the controller's bound, so does memory, nothing
//! panics or ceases to be a number, no timer spins, and once the receiver is honest the flow is
//! again what it would have been. `HOSTILE_SEEDS` says how many seeds each controller gets (12); those of
//! one controller alone with `HOSTILE_SCHEME`, one seed with `HOSTILE_SEED`. Ends with a table.

use std::fmt::Write as _;
use std::sync::Arc;

use verus_core::receiver::{Ack, RANGES_PER_ACK};
use verus_core::sender::FalseAck;
use verus_core::{Bytes, Duration, Stamp, Time};
use verus_faults::bound::{self, Bound};
use verus_faults::liar::{Liar, Lies, Told};
use verus_faults::{Datagram, Link};
use verus_model::{About, Model, Sampler, Trainer};
use verus_senders::Scheme;
use verus_senders::Sender;

/// Bytes of a packet (IP).
const SIZE: u64 = 1400;
/// What the probe believes of a receiver that says it held an acknowledgement.
const LONGEST_HOLD: Duration = Duration::from_millis(25);
/// What the probe lets be in flight.
const MOST_IN_FLIGHT: Bytes = Bytes::new(64 << 20);
const BIN: Duration = Duration::from_secs(1);
/// As many bins.
const BINS: usize = bound::RECOVERED_FOR;
/// Every this often a look inside.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Clone)]
struct Packet {
    number: u64,
    stamp: Option<Stamp>,
}

impl Datagram for Packet {
    fn size(&self) -> usize {
        SIZE as usize
    }

    fn flip(&mut self, _bit: usize) {}
}

/// What came of a flow.
#[derive(Clone, Debug, Default)]
struct Outcome {
    /// Bytes that came, in each second.
    came: Vec<f64>,
    /// The longest time in the queue in each second, ms.
    queued_ms: Vec<f64>,
    /// Bytes that left while there were lies.
    sent_lied_to: u64,
    /// Most bytes that left in any 100 ms while there were lies.
    window_max: u64,
    remembered_max: usize,
    profile_max: usize,
    caught: Option<FalseAck>,
    /// Packets that left between the first acknowledgement of what had not come, and when it was caught.
    packets: Vec<(Time, Option<Time>)>,
    timers: u64,
    sent: u64,
}

/// Runs a flow of `scheme` to a receiver with `lies`, until well after the last one.
fn run(scheme: &Scheme, link: Link, lies: &Lies, until: Time, record: bool) -> Outcome {
    let mut sender = Sender::new(scheme.build(lies.seed), Bytes::new(SIZE), Time::ZERO);
    sender.skip_numbers(lies.seed);
    sender.offer_bulk();
    let mut liar = Liar::new(lies.clone(), scheme.observer());
    let mut path = link.path();
    // The way back is long and never full.
    let mut back: std::collections::VecDeque<(Time, Told)> = std::collections::VecDeque::new();
    let seconds = (until.as_secs_f64() / BIN.as_secs_f64()).ceil() as usize;
    let mut outcome = Outcome {
        came: vec![0.0; seconds + 1],
        queued_ms: vec![0.0; seconds + 1],
        ..Outcome::default()
    };
    let mut departed: std::collections::HashMap<
        u64,
        Time,
        std::hash::BuildHasherDefault<std::hash::DefaultHasher>,
    > = Default::default();
    let (mut now, mut at_once, mut next_look) = (Time::ZERO, 0, Time::ZERO);
    let mut marks = 0;
    loop {
        let before = (outcome.sent, outcome.timers);
        while let Some(arrived) = path.poll(now) {
            let packet: Packet = arrived.datagram;
            let second = (now.as_nanos() / BIN.as_nanos()) as usize;
            let left = departed.remove(&packet.number).expect("each comes once");
            outcome.came[second] += SIZE as f64;
            let queued = (now.since(left).saturating_sub(link.one_way)).as_millis_f64();
            outcome.queued_ms[second] = outcome.queued_ms[second].max(queued);
            let stamp = packet.stamp.as_ref().map(Stamp::as_slice);
            liar.on_packet(now, packet.number, Bytes::new(SIZE), stamp);
        }
        while let Some(told) = liar.poll(now) {
            back.push_back((now + link.one_way, told));
        }
        while let Some((at, _)) = back.front()
            && *at <= now
        {
            let (_, told) = back.pop_front().expect("there is one");
            if let Err(lie) = hear(&mut sender, now, &told, &mut marks) {
                outcome.caught = Some(lie);
                return outcome;
            }
            if record {
                for acked in &sender.last_revealed().acked {
                    outcome.packets[acked.packet.number as usize].1 = Some(now);
                }
            }
        }
        if sender.next_timer().is_some_and(|at| at <= now) {
            sender.on_timer(now);
            outcome.timers += 1;
        }
        while sender.in_flight() < MOST_IN_FLIGHT
            && let Some(packet) = sender.poll_transmit(now)
        {
            outcome.sent += 1;
            if (lies.from..lies.until).contains(&now) {
                outcome.sent_lied_to += SIZE;
            }
            if record {
                outcome
                    .packets
                    .resize(packet.number as usize + 1, (now, None));
            }
            departed.insert(packet.number, now);
            path.send(
                now,
                Packet {
                    number: packet.number,
                    stamp: packet.stamp,
                },
            );
            assert!(outcome.sent - before.0 < 1_000_000, "a burst without end");
        }
        if now >= next_look {
            look(scheme, &sender, &mut outcome);
            next_look = now + LOOK;
        }
        let next = [
            path.next(),
            liar.next(),
            back.front().map(|(at, _)| *at),
            sender.next_timer(),
        ]
        .into_iter()
        .flatten()
        .min();
        let Some(next) = next.filter(|at| *at < until) else {
            break;
        };
        at_once = if next > now { 0 } else { at_once + 1 };
        assert!(at_once < 10_000, "it spins at {now:?}");
        now = now.max(next);
    }
    // Epochs and pacing aside, timers answer to packets and to silence.
    let most = 3.0 * outcome.sent as f64 + 1000.0 * until.as_secs_f64();
    assert!((outcome.timers as f64) < most, "{} timers", outcome.timers);
    outcome
}

/// Tells the sender, as the probe does. `marks` is what the receiver has counted of congestion marks: it adds far more than came,
/// so that its count goes round, and seems to go back.
fn hear(sender: &mut Sender, now: Time, told: &Told, marks: &mut u32) -> Result<(), FalseAck> {
    const COUNTED: u32 = (1 << 29) + 1;
    *marks = marks.wrapping_add(COUNTED.wrapping_mul(told.marked as u32));
    let mut received = told.received.clone();
    for one in &mut received {
        one.hold = one.hold.min(LONGEST_HOLD);
    }
    let mut report = told.report.as_deref();
    let groups = told.ranges.len().div_ceil(RANGES_PER_ACK);
    for index in (0..groups).rev() {
        let from = index * RANGES_PER_ACK;
        let to = told.ranges.len().min(from + RANGES_PER_ACK);
        let newest = told.ranges[from].last;
        let (at, hold) = received
            .binary_search_by_key(&newest, |one| one.number)
            .map_or((told.written, Duration::ZERO), |at| {
                (received[at].at, received[at].hold)
            });
        let mut ack = Ack::new(told.ranges[from..to].iter().copied(), at, hold);
        ack.marks = *marks;
        let report = if index == 0 { report.take() } else { None };
        sender.on_ack_with_times(now, &ack, &received, report)?;
    }
    Ok(())
}

/// What must hold at any time.
fn look(scheme: &Scheme, sender: &Sender, outcome: &mut Outcome) {
    let controller = sender.controller();
    let window = controller.window().get();
    // What a model grants to an epoch may be nothing.
    assert!(
        window >= SIZE || scheme.name() == "model",
        "a window of {window} bytes"
    );
    assert!(window < 1 << 40, "a window of {window} bytes");
    outcome.window_max = outcome.window_max.max(window);
    if let Some(rate) = controller.pacing_rate() {
        assert!(rate.as_bps() > 0, "paced at nothing");
    }
    controller.probe(&mut |name, value| {
        // What is not known yet is no number; these always are.
        let always = ["window_packets", "delay_estimate_ms"].contains(&name);
        let absent = value.is_nan() && !always;
        assert!(absent || value.abs() < 1e15, "{name} is {value}");
    });
    outcome.remembered_max = outcome.remembered_max.max(sender.remembered());
    if let Some(profile) = controller.profile() {
        assert!(
            profile
                .points
                .iter()
                .chain(&profile.curve)
                .all(|(w, d)| w.is_finite() && d.is_finite())
        );
        outcome.profile_max = outcome.profile_max.max(profile.points.len());
    }
}

/// A model that was made of Verus on such a path.
fn model() -> Arc<[u8]> {
    let scheme = Scheme::parse("verus").expect("it is in the list");
    let mut trainer = Trainer::new();
    for seed in 0..8 {
        let lies = Lies::none(seed);
        let outcome = run(
            &scheme,
            Link::random(seed),
            &lies,
            Time::from_millis(30_000),
            true,
        );
        let sampler = Sampler::of_packets(outcome.packets);
        for run in sampler.runs() {
            trainer.add(run).expect("few enough");
        }
    }
    let model: Model = trainer
        .finish(5, 99.0, About::default())
        .expect("there are samples");
    model.to_bytes().into()
}

fn scheme(text: &str, model: &Arc<[u8]>) -> Scheme {
    let text = if text == "model" {
        "model:file=x"
    } else {
        text
    };
    Scheme::open(text, |_| Ok(model.to_vec())).expect("it is in the list")
}

/// Worst of many runs.
#[derive(Clone, Debug, Default)]
struct Worst {
    runs: u64,
    caught: u64,
    sent: (f64, u64),
    remembered: (usize, u64),
    profile: usize,
    window: (u64, u64),
    recovery: (f64, u64),
    recoveries: Vec<f64>,
    failures: Vec<String>,
}

/// After how many seconds of honesty the flow gets its share, with no more delay than usual.
fn recovery(bound: &Bound, honest: &Outcome, lied_to: &Outcome, lies: &Lies, link: Link) -> f64 {
    let first = (lies.until.as_nanos().div_ceil(BIN.as_nanos())) as usize;
    let last = honest.came.len() - 1 - BINS;
    for from in first..=last {
        let sum = |outcome: &Outcome| outcome.came[from..from + BINS].iter().sum::<f64>();
        let delay = |outcome: &Outcome| {
            outcome.queued_ms[from..from + BINS].iter().sum::<f64>() / BINS as f64
        };
        // A quarter of the queue more at the most.
        let queue_ms = link.queue_bytes as f64 * 8e-3 / link.mbps;
        let usual = delay(honest) * 1.5 + 0.25 * queue_ms + 20.0;
        let settled = !bound.delay || delay(lied_to) <= usual;
        if settled && sum(lied_to) >= bound.share * sum(honest) {
            return (from - first) as f64;
        }
    }
    f64::INFINITY
}

fn try_seed(scheme: &Scheme, seed: u64, bound: &Bound) -> Worst {
    let mut worst = Worst::default();
    let lies = Lies::random(seed);
    let link = Link::random(seed);
    let until = lies.until + bound.afterwards();
    let told = format!("{}: {lies}, {link:?}", bound.scheme);
    let lied_to = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        run(scheme, link, &lies, until, false)
    })) {
        Ok(outcome) => outcome,
        Err(_) => {
            worst.failures.push(format!("panicked: {told}"));
            return worst;
        }
    };
    worst.runs += 1;
    let allowed = link.bytes_in(lies.until.since(lies.from));
    let sent = lied_to.sent_lied_to as f64 / allowed;
    if sent > worst.sent.0 {
        worst.sent = (sent, seed);
    }
    if lied_to.remembered_max > worst.remembered.0 {
        worst.remembered = (lied_to.remembered_max, seed);
    }
    worst.profile = worst.profile.max(lied_to.profile_max);
    if lied_to.window_max > worst.window.0 {
        worst.window = (lied_to.window_max, seed);
    }
    let span = lies.until.since(lies.from);
    if lied_to.sent_lied_to as f64 > bound.sent.bytes(link.mbps, span) {
        worst
            .failures
            .push(format!("sent {sent:.2} × the link: {told}"));
    }
    if lied_to.remembered_max > bound.remembered {
        worst
            .failures
            .push(format!("remembers {}: {told}", lied_to.remembered_max));
    }
    if lied_to.caught.is_some() {
        worst.caught += 1;
        return worst;
    }
    // Who gets its share of all that the link carries gets it of what an honest receiver got.
    let all = Outcome {
        came: vec![link.bytes_in(BIN); lied_to.came.len()],
        queued_ms: vec![0.0; lied_to.came.len()],
        ..Outcome::default()
    };
    if recovery(bound, &all, &lied_to, &lies, link) == 0.0 {
        worst.recoveries.push(0.0);
        return worst;
    }
    let honest = run(scheme, link, &Lies::none(seed), until, false);
    if std::env::var_os("HOSTILE_SEED").is_some() {
        for (name, outcome) in [("honest", &honest), ("lied to", &lied_to)] {
            let packets = outcome.came.iter().map(|bytes| bytes / SIZE as f64);
            println!(
                "{name}: packets in each second {:?}",
                packets.collect::<Vec<_>>()
            );
            println!("{name}: ms in the queue {:?}", outcome.queued_ms);
        }
    }
    let seconds = recovery(bound, &honest, &lied_to, &lies, link);
    worst.recoveries.push(seconds);
    if seconds > worst.recovery.0 {
        worst.recovery = (seconds, seed);
    }
    if seconds > bound.recovers_within {
        worst
            .failures
            .push(format!("recovers after {seconds} s: {told}"));
    }
    worst
}

/// Of the table.
const HEAD: &str = "\
| controller | seeds | caught | bound of what is sent | sent, × the link (seed) | window, kB | remembered | points | \
recovery: bound | recovers, s |
|---|---:|---:|---|---:|---:|---:|---:|---|---:|
";

#[test]
fn whatever_a_receiver_says_the_flow_stays_within_bounds_and_recovers() {
    let (bounds, seeds) = bound::asked_for();
    let model = model();
    let mut table = String::new();
    let mut failed = 0;
    for bound in &bounds {
        let scheme = scheme(bound.scheme, &model);
        let mut worst = Worst::default();
        for one in bound::each_seed(&seeds, |seed| try_seed(&scheme, seed, bound)) {
            merge(&mut worst, one);
        }
        writeln!(
            table,
            "| `{}` | {} | {} | {} | {:.2} ({}) | {} | {} | {} | {:.0} % in {} s | {} |",
            bound.scheme,
            worst.runs,
            worst.caught,
            bound.sent,
            worst.sent.0,
            worst.sent.1,
            worst.window.0 / 1000,
            worst.remembered.0,
            worst.profile,
            100.0 * bound.share,
            bound.recovers_within,
            bound::spread(&mut worst.recoveries),
        )
        .expect("a string");
        failed += worst.failures.len();
        for failure in worst.failures.iter().take(12) {
            println!("{failure}");
        }
        println!("{} failures of {}", worst.failures.len(), bound.scheme);
    }
    println!("{HEAD}{table}");
    assert_eq!(failed, 0);
}

fn merge(into: &mut Worst, other: Worst) {
    into.runs += other.runs;
    into.caught += other.caught;
    if other.sent.0 > into.sent.0 {
        into.sent = other.sent;
    }
    if other.remembered.0 > into.remembered.0 {
        into.remembered = other.remembered;
    }
    if other.window.0 > into.window.0 {
        into.window = other.window;
    }
    if other.recovery.0 > into.recovery.0 {
        into.recovery = other.recovery;
    }
    into.profile = into.profile.max(other.profile);
    into.recoveries.extend(other.recoveries);
    into.failures.extend(other.failures);
}
