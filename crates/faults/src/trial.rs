//! Plays the lies of many seeds to each controller on a virtual clock, and checks the results
//! against its [`Bound`].
//!
//! Whatever a receiver says, the sent bytes and the memory stay within the controller's bound.
//! Nothing panics or ceases to be a number, and no timer spins. Once the receiver is honest, the
//! flow is again as without lies. `HOSTILE_SEEDS` is the number of seeds for each controller (12);
//! `HOSTILE_SCHEME` selects one controller, `HOSTILE_SEED` one seed. Ends with a table.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use verus_core::sender::FalseAck;
use verus_core::{Bytes, Controller, Duration, Observer, Stamp, Time};
use verus_model::{About, Sampler, Trainer};
use verus_senders::Scheme;

use crate::bound::{Bound, RECOVERED_FOR, bounds};
use crate::campaign::each_seed;
use crate::liar::{Acknowledgement, Liar, Lies};
use crate::{Datagram, Link};

/// Every this often a look inside.
const LOOK: Duration = Duration::from_millis(50);

/// The sender, which receives the lies.
pub trait Side: Sized {
    /// Bytes of each of its packets (IP).
    const SIZE: u64;
    /// Timers that may fire for each packet and in each second: epochs and pacing aside, they answer to packets and to silence.
    const TIMERS: (f64, f64);
    /// Whether a flow has recovered only with an honest receiver's delay, where its bound says so.
    const DELAY_COUNTS: bool;

    /// One that has data without end.
    fn new(scheme: &Scheme, seed: u64) -> Self;

    /// The lies of a seed that its protocol lets a receiver tell.
    fn lies(seed: u64) -> Lies {
        Lies::random(seed)
    }

    /// The receiver's half of the algorithm, if the protocol has one.
    fn observer(scheme: &Scheme) -> Option<Box<dyn Observer>> {
        scheme.observer()
    }

    /// Processes an acknowledgement; returns the packets that it acknowledges.
    ///
    /// # Errors
    /// A lie that it catches.
    fn on_ack(&mut self, now: Time, ack: &Acknowledgement) -> Result<Vec<u64>, FalseAck>;

    /// The next packet's number, if one may leave.
    fn transmit(&mut self, now: Time) -> Option<(u64, Option<Stamp>)>;

    /// When it wants to be woken.
    fn next_timer(&self, now: Time) -> Option<Time>;

    /// It is then.
    fn on_timer(&mut self, now: Time);

    /// Its controller.
    fn controller(&self) -> &dyn Controller;

    /// Bytes that may be in flight.
    fn limit(&self) -> u64 {
        self.controller().window().get()
    }

    /// Numbers and lost data that it remembers.
    fn remembered(&self) -> usize;
}

#[derive(Clone)]
struct Packet {
    number: u64,
    stamp: Option<Stamp>,
    size: u64,
}

impl Datagram for Packet {
    fn size(&self) -> usize {
        self.size as usize
    }

    fn flip(&mut self, _bit: usize) {}
}

/// The outcome of a flow.
#[derive(Debug, Default)]
struct Outcome {
    /// Bytes that arrived, in each second.
    came: Vec<f64>,
    /// The longest time in the queue in each second, ms.
    queued_ms: Vec<f64>,
    /// Bytes that left while there were lies.
    sent_lied_to: u64,
    limit: u64,
    remembered: usize,
    /// Points of a profile.
    points: usize,
    caught: bool,
    /// When each packet left, and when it was acknowledged.
    packets: Vec<(Time, Option<Time>)>,
}

impl Outcome {
    /// Checks the invariants at any time.
    fn look(&mut self, scheme: &Scheme, side: &impl Side, size: u64) {
        let controller = side.controller();
        let window = controller.window().get();
        // A model may grant nothing to an epoch.
        assert!(window >= size || scheme.name() == "model", "{window} bytes");
        assert!(window < 1 << 40, "{window} bytes");
        self.limit = self.limit.max(side.limit());
        if let Some(rate) = controller.pacing_rate() {
            assert!(rate.as_bps() > 0, "paced at nothing");
        }
        controller.probe(&mut |name, value| {
            // Unknown values are no number; these two are always known.
            let always = ["window_packets", "delay_estimate_ms"].contains(&name);
            let absent = value.is_nan() && !always;
            assert!(absent || value.abs() < 1e15, "{name} is {value}");
        });
        self.remembered = self.remembered.max(side.remembered());
        if let Some(profile) = controller.profile() {
            let mut all = profile.points.iter().chain(&profile.curve);
            assert!(all.all(|(w, d)| w.is_finite() && d.is_finite()));
            self.points = self.points.max(profile.points.len());
        }
    }

    fn sum(&self, from: usize) -> f64 {
        self.came[from..from + RECOVERED_FOR].iter().sum()
    }

    fn delay_ms(&self, from: usize) -> f64 {
        let queued = &self.queued_ms[from..from + RECOVERED_FOR];
        queued.iter().sum::<f64>() / RECOVERED_FOR as f64
    }
}

/// Runs a flow of `scheme` to a receiver with `lies`.
fn run<S: Side>(scheme: &Scheme, link: Link, lies: &Lies, until: Time) -> Outcome {
    let mut side = S::new(scheme, lies.seed);
    let mut liar = Liar::new(lies.clone(), S::observer(scheme));
    let mut path = link.path();
    // The way back is long and never full.
    let mut back: VecDeque<(Time, Acknowledgement)> = VecDeque::new();
    let seconds = until.as_secs_f64().ceil() as usize;
    let mut outcome = Outcome {
        came: vec![0.0; seconds + 1],
        queued_ms: vec![0.0; seconds + 1],
        ..Outcome::default()
    };
    let (mut now, mut at_once, mut next_look) = (Time::ZERO, 0, Time::ZERO);
    let (mut sent, mut timers) = (0u64, 0u64);
    loop {
        while let Some(arrived) = path.poll(now) {
            let Packet { number, stamp, .. } = arrived.datagram;
            let second = now.as_secs_f64() as usize;
            let one_way = now.since(outcome.packets[number as usize].0);
            let queued = one_way.saturating_sub(link.one_way).as_millis_f64();
            outcome.came[second] += S::SIZE as f64;
            outcome.queued_ms[second] = outcome.queued_ms[second].max(queued);
            let stamp = stamp.as_ref().map(Stamp::as_slice);
            liar.on_packet(now, number, Bytes::new(S::SIZE), stamp);
        }
        while let Some(ack) = liar.poll(now) {
            back.push_back((now + link.one_way, ack));
        }
        while back.front().is_some_and(|(at, _)| *at <= now) {
            let (_, ack) = back.pop_front().expect("just seen");
            let Ok(acked) = side.on_ack(now, &ack) else {
                outcome.caught = true;
                return outcome;
            };
            for number in acked {
                outcome.packets[number as usize].1 = Some(now);
            }
        }
        if side.next_timer(now).is_some_and(|at| at <= now) {
            side.on_timer(now);
            timers += 1;
        }
        let before = sent;
        while let Some((number, stamp)) = side.transmit(now) {
            sent += 1;
            if (lies.from..lies.until).contains(&now) {
                outcome.sent_lied_to += S::SIZE;
            }
            outcome.packets.resize(number as usize + 1, (now, None));
            let size = S::SIZE;
            path.send(
                now,
                Packet {
                    number,
                    stamp,
                    size,
                },
            );
            assert!(sent - before < 100_000, "a burst without end");
        }
        if now >= next_look {
            outcome.look(scheme, &side, S::SIZE);
            next_look = now + LOOK;
        }
        let back = back.front().map(|(at, _)| *at);
        let next = [path.next(), liar.next(), back, side.next_timer(now)];
        let Some(next) = next.into_iter().flatten().min().filter(|at| *at < until) else {
            break;
        };
        at_once = if next > now { 0 } else { at_once + 1 };
        assert!(at_once < 10_000, "it spins at {now:?}");
        now = now.max(next);
    }
    let allowed = S::TIMERS.0 * sent as f64 + S::TIMERS.1 * until.as_secs_f64();
    assert!((timers as f64) < allowed, "{timers} timers");
    outcome
}

/// The file of a model that was made of Verus on such links.
fn model<S: Side>() -> Vec<u8> {
    let scheme = Scheme::parse("verus").expect("it is in the list");
    let mut trainer = Trainer::new();
    for seed in 0..8 {
        let until = Time::from_millis(30_000);
        let outcome = run::<S>(&scheme, Link::random(seed), &Lies::none(seed), until);
        for run in Sampler::of_packets(outcome.packets).runs() {
            trainer.add(run).expect("few enough");
        }
    }
    let model = trainer.finish(5, 99.0, About::default());
    model.expect("there are samples").to_bytes()
}

/// The outcome of one seed.
#[derive(Default)]
struct Tried {
    seed: u64,
    /// Bytes sent while there were lies, in multiples of the link's capacity.
    sent: f64,
    lied_to: Outcome,
    /// After how many seconds of honesty; none if a lie was caught.
    recovers_after: Option<f64>,
    failures: Vec<String>,
}

/// The seconds of honesty until the flow gets its share, without more delay than usual.
fn recovery(bound: &Bound, honest: &Outcome, lied_to: &Outcome, lies: &Lies, link: Link) -> f64 {
    let first = lies.until.as_secs_f64().ceil() as usize;
    let settled = |from: &usize| {
        // At most a quarter of the queue more.
        let queue_ms = link.queue_bytes as f64 * 8e-3 / link.mbps;
        let usual = honest.delay_ms(*from) * 1.5 + 0.25 * queue_ms + 20.0;
        let share = lied_to.sum(*from) >= bound.share * honest.sum(*from);
        share && (!bound.delay || lied_to.delay_ms(*from) <= usual)
    };
    let mut times = first..honest.came.len() - RECOVERED_FOR;
    times
        .find(settled)
        .map_or(f64::INFINITY, |from| (from - first) as f64)
}

fn try_seed<S: Side>(scheme: &Scheme, seed: u64, bound: &Bound) -> Tried {
    let (lies, link) = (S::lies(seed), Link::random(seed));
    let until = lies.until + bound.afterwards();
    let mut tried = Tried {
        seed,
        ..Tried::default()
    };
    let mut fail = |what: String| {
        let name = bound.scheme;
        tried
            .failures
            .push(format!("{what}: {name}: {lies}, {link:?}"));
    };
    let lied_to = || run::<S>(scheme, link, &lies, until);
    let Ok(mut lied_to) = catch_unwind(AssertUnwindSafe(lied_to)) else {
        fail("panicked".to_owned());
        return tried;
    };
    let span = lies.until.since(lies.from);
    tried.sent = lied_to.sent_lied_to as f64 / link.bytes_in(span);
    if lied_to.sent_lied_to as f64 > bound.sent.bytes(link.mbps, span) {
        fail(format!("sent {:.2} × the link", tried.sent));
    }
    if lied_to.remembered > bound.remembered {
        fail(format!("remembers {}", lied_to.remembered));
    }
    if !lied_to.caught {
        // A flow with its share of the link's whole capacity has its share of an honest receiver's
        // bytes.
        let all = Outcome {
            came: vec![link.bytes_in(Duration::from_secs(1)); lied_to.came.len()],
            queued_ms: vec![0.0; lied_to.came.len()],
            ..Outcome::default()
        };
        let mut seconds = recovery(bound, &all, &lied_to, &lies, link);
        if seconds > 0.0 {
            let honest = run::<S>(scheme, link, &Lies::none(seed), until);
            if std::env::var_os("HOSTILE_SEED").is_some() {
                for (name, outcome) in [("honest", &honest), ("lied to", &lied_to)] {
                    let packets = outcome.came.iter().map(|bytes| bytes / S::SIZE as f64);
                    let packets: Vec<_> = packets.collect();
                    println!("{name}: packets in each second {packets:?}");
                    println!("{name}: ms in the queue {:?}", outcome.queued_ms);
                }
            }
            seconds = recovery(bound, &honest, &lied_to, &lies, link);
        }
        if seconds > bound.recovers_within {
            fail(format!("recovers after {seconds} s"));
        }
        tried.recovers_after = Some(seconds);
    }
    lied_to.packets = Vec::new();
    tried.lied_to = lied_to;
    tried
}

/// Plays the requested seeds, and prints a table.
///
/// # Panics
/// If a bound does not hold.
pub fn hold<S: Side>() {
    let (bounds, seeds) = asked_for();
    let model = model::<S>();
    println!(
        "| controller | seeds | caught | bound of what is sent | sent, × the link (seed) | window, kB | remembered | points | \
         recovery: bound | recovers, s |\n|---|---:|---:|---|---:|---:|---:|---:|---|---:|"
    );
    let mut failures = Vec::new();
    for mut bound in bounds {
        bound.delay &= S::DELAY_COUNTS;
        let text = match bound.scheme {
            "model" => "model:file=x",
            text => text,
        };
        let scheme = Scheme::open(text, |_| Ok(model.clone())).expect("it is in the list");
        let tried = each_seed(&seeds, |seed| try_seed::<S>(&scheme, seed, &bound));
        let largest = |of: fn(&Outcome) -> usize| {
            let of = tried.iter().map(|one| of(&one.lied_to));
            of.max().unwrap_or(0)
        };
        let sent = tried.iter().max_by(|a, b| a.sent.total_cmp(&b.sent));
        let sent = sent.expect("there are seeds");
        let mut recoveries: Vec<f64> = tried.iter().filter_map(|one| one.recovers_after).collect();
        println!(
            "| `{}` | {} | {} | {} | {:.2} ({}) | {} | {} | {} | {:.0} % in {} s | {} |",
            bound.scheme,
            tried.len(),
            tried.iter().filter(|one| one.lied_to.caught).count(),
            bound.sent,
            sent.sent,
            sent.seed,
            largest(|one| one.limit as usize / 1000),
            largest(|one| one.remembered),
            largest(|one| one.points),
            100.0 * bound.share,
            bound.recovers_within,
            spread(&mut recoveries),
        );
        failures.extend(tried.into_iter().flat_map(|one| one.failures));
    }
    for failure in failures.iter().take(40) {
        println!("{failure}");
    }
    assert!(failures.is_empty(), "{} failures", failures.len());
}

/// Which of [`bounds`] and which seeds to play: those of the environment's `HOSTILE_SCHEME` and `HOSTILE_SEED`, or
/// `HOSTILE_SEEDS` of them (12).
fn asked_for() -> (Vec<Bound>, Vec<u64>) {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(
            text.parse::<u64>()
                .unwrap_or_else(|_| panic!("{name} is a number, not `{text}`")),
        )
    };
    let seeds = match number("HOSTILE_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("HOSTILE_SEEDS").unwrap_or(12)).collect(),
    };
    let mut bounds = bounds();
    if let Ok(only) = std::env::var("HOSTILE_SCHEME") {
        bounds.retain(|bound| bound.scheme == only);
        assert!(
            !bounds.is_empty(),
            "there is no bound for HOSTILE_SCHEME `{only}`"
        );
    }
    (bounds, seeds)
}

/// Median, 99th percentile and greatest of `values`, as a table has them; NaN of none.
fn spread(values: &mut [f64]) -> String {
    values.sort_by(f64::total_cmp);
    let quantile = |q: f64| {
        let last = values.len().saturating_sub(1) as f64;
        values
            .get((last * q).round() as usize)
            .copied()
            .unwrap_or(f64::NAN)
    };
    format!(
        "{:.0} / {:.0} / {:.0}",
        quantile(0.5),
        quantile(0.99),
        quantile(1.0)
    )
}
