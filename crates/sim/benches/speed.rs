//! How fast the simulator is, beside a lean event loop that shares no code with it (`lean/mod.rs`).
//!
//! Machines differ and drift, so the ratio of runs in turn counts. Each case runs seven rounds of
//! lean loop, Cubic and Verus, and the median of the ratios is reported.
//!
//! `cargo bench -p verus-sim --bench speed` prints the tables of BENCHMARKS.md; `-- --quick` runs fewer rounds,
//! `-- --workloads` the first alone, `-- --calls` what single calls cost, and `-- --one W2 cubic` one workload under one
//! scheme (or `lean`), for a profiler.

// A benchmark reads clocks; that is all it does.
#![allow(clippy::disallowed_methods)]

mod lean;

use std::hint::black_box;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use verus_channel::catalogue::{self, Channel};
use verus_core::controller::{Arrival, Observer};
use verus_core::receiver::{Ack, NumberRange};
use verus_core::{Acked, Bytes, Controller, Departure, Duration, Feedback, Time};
use verus_peers::sprout::{self, TICK, receiver::Forecaster};
use verus_protocol::config::Config;
use verus_protocol::profile::Profile;
use verus_protocol::units::Packets;
use verus_senders::Scheme;
use verus_senders::Sender;
use verus_sim::{FlowSpec, Scenario};

/// A workload: flows over a channel.
struct Workload {
    name: &'static str,
    trace: String,
    queue: &'static str,
    flows: usize,
    duration_s: f64,
}

/// One measured run.
#[derive(Clone, Copy)]
struct Run {
    packets: u64,
    cpu_s: f64,
    wall_s: f64,
}

impl Run {
    fn rate(&self) -> f64 {
        self.packets as f64 / self.cpu_s
    }
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn timed(run: impl FnOnce() -> u64) -> Run {
    let (cpu, wall) = (cpu_seconds(), Instant::now());
    let packets = run();
    Run {
        packets,
        cpu_s: cpu_seconds() - cpu,
        wall_s: wall.elapsed().as_secs_f64(),
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl Workload {
    fn scenario(&self, scheme: &str) -> Scenario {
        Scenario {
            trace: self.trace.clone(),
            queue: self.queue.to_owned(),
            flows: (0..self.flows).map(|_| FlowSpec::new(scheme)).collect(),
            duration_s: self.duration_s,
            series: false,
            ..Scenario::default()
        }
    }

    /// A run of the simulator under `scheme`, which returns how many packets left the queue.
    fn simulation(&self, scheme: &str) -> impl FnOnce() -> u64 {
        let plan = self.scenario(scheme).plan().expect("the workload is valid");
        move || {
            let outcome = plan.run(&mut |_| true).expect("nobody cancels");
            outcome.metrics.departures
        }
    }

    /// The same for the lean loop.
    fn lean(&self) -> impl FnOnce() -> u64 {
        let millis = 1_000_000;
        let end = Duration::from_secs_f64(self.duration_s);
        let service = match catalogue::open(&self.trace, 1, end).expect("the workload is valid") {
            Channel::Rate(rate) => lean::Service::Every(rate.time_for(SIZE).as_nanos()),
            Channel::Trace(trace) => {
                lean::Service::At(trace.opportunities().map(|at| at * millis).collect())
            }
        };
        let setting = lean::Setting {
            flows: self.flows,
            delay: 20 * millis,
            end: end.as_nanos(),
            service,
            queue: match self.queue {
                DROP_TAIL => lean::Queue::DropTail(333),
                _ => lean::Queue::Red(250.0, 750.0, 0.1),
            },
        };
        move || lean::run(&setting)
    }

    /// By its name, or the beginning of it.
    fn named(name: &str) -> Option<Workload> {
        Workload::all()
            .into_iter()
            .find(|workload| workload.name.starts_with(name))
    }

    fn all() -> Vec<Workload> {
        let highway = std::env::var("VERUS_HIGHWAY").unwrap_or("highway-driving-3g-up".to_owned());
        let workload = |name, trace: &str, queue, flows, duration_s| Workload {
            name,
            trace: trace.to_owned(),
            queue,
            flows,
            duration_s,
        };
        vec![
            workload("W1, 1 flow", "rate:100", DROP_TAIL, 1, 60.0),
            workload("W1, 10 flows", "rate:100", DROP_TAIL, 10, 60.0),
            workload("W2, 10 flows", &highway, RED, 10, 600.0),
        ]
    }
}

/// 333 packets, and the queue of Verus §6: 250 and 750 packets.
const DROP_TAIL: &str = "droptail:bytes=500000";
const RED: &str = "red:min=375000,max=1125000,p=0.1";

/// A Verus controller in steady state, fed by hand: 20 packets in flight, 80 ms.
struct Steady {
    controller: Box<dyn Controller>,
    now: Time,
    number: u64,
}

const SIZE: Bytes = Bytes::new(1500);

impl Steady {
    fn new() -> Self {
        // No refit after the one that ends slow start: refits are timed apart.
        let scheme = Scheme::parse("verus:ratio=2,update_interval_ms=3600000").expect("valid");
        let mut controller = scheme.config().build(1);
        controller.on_start(Time::ZERO, SIZE);
        let mut steady = Steady {
            controller,
            now: Time::ZERO,
            number: 0,
        };
        // Windows up to 500 packets chart delays that rise with them; then a loss ends slow start.
        for window in 1..=500 {
            steady.ack(window, 40.0 + window as f64 * 0.2);
        }
        let lost = [steady.departure(100)];
        steady.feed(&[], &lost);
        for _ in 0..2000 {
            steady.now += Duration::from_millis(1);
            steady.ack(20, 60.0 + (steady.number % 7) as f64);
            steady.tick();
        }
        steady
    }

    fn departure(&mut self, window: u64) -> Departure {
        let packet = Departure {
            number: self.number,
            at: self.now,
            size: SIZE,
            window: SIZE * window,
            in_flight: SIZE * window,
            delivered: SIZE * self.number,
            delivered_at: self.now,
            sending: Duration::ZERO,
            app_limited: false,
        };
        self.number += 1;
        self.controller.on_sent(&packet);
        packet
    }

    fn feed(&mut self, acked: &[Acked], lost: &[Departure]) {
        self.controller.on_feedback(&Feedback {
            now: self.now,
            acked,
            lost,
            recovered: &[],
            marked: 0,
            report: None,
            in_flight_before: SIZE * 20,
            in_flight: SIZE * 20,
            delivered: SIZE * self.number,
            smoothed_rtt: Duration::from_millis(60),
            min_rtt: Duration::from_millis(40),
        });
    }

    fn ack(&mut self, window: u64, rtt_ms: f64) {
        let packet = self.departure(window);
        let rtt = Duration::from_millis_f64(rtt_ms);
        self.feed(
            &[Acked {
                packet,
                rtt,
                received_at: None,
            }],
            &[],
        );
    }

    fn tick(&mut self) {
        if self.controller.next_tick().is_some_and(|at| at <= self.now) {
            self.controller.on_tick(self.now, SIZE * 20);
        }
    }
}

/// The acknowledgements of packets that arrive one after another.
#[derive(Clone, Copy)]
enum Pattern {
    /// All of them arrived, in order.
    Ordinary,
    /// Every other one.
    EveryOther,
    /// Every other one, and those between so many packets later: declared missing, perhaps lost, and there after all.
    LateBy(u64),
}

/// A sender of packets at an even interval with a thousand in flight, and what a receiver says of each: nanoseconds a
/// packet.
fn feedback(pattern: Pattern) -> f64 {
    const IN_FLIGHT: u64 = 1_000;
    const INTERVAL: Duration = Duration::from_micros(100);
    let scheme = Scheme::parse("constant:rate_mbps=120").expect("valid");
    let mut sender = Sender::new(scheme.build(1), SIZE, Time::ZERO);
    sender.offer_bulk();
    let (mut now, mut sent) = (Time::ZERO, 0);
    let step = |sender: &mut Sender| {
        now += INTERVAL;
        while sender.next_timer().is_some_and(|at| at <= now) {
            sender.on_timer(now);
        }
        while let Some(packet) = sender.poll_transmit(now) {
            sent = packet.number + 1;
        }
        let Some(newest) = sent.checked_sub(IN_FLIGHT) else {
            return;
        };
        let single = |number: u64| NumberRange {
            first: number,
            last: number,
        };
        let all = NumberRange {
            first: 0,
            last: newest,
        };
        let others = (0..4).map(|back| newest.saturating_sub(2 * back));
        let ranges: Vec<NumberRange> = match pattern {
            Pattern::Ordinary => vec![all],
            _ if newest % 2 == 1 || newest < 2_000 => return,
            Pattern::EveryOther => others.map(single).collect(),
            Pattern::LateBy(late) => {
                let late = (0..3).map(|back| newest - late - 1 - 2 * back);
                std::iter::once(newest).chain(late).map(single).collect()
            }
        };
        let ack = Ack::new(ranges, now, Duration::ZERO);
        let _ = black_box(sender.on_ack(now, &ack, None));
    };
    let mut step = step;
    (0..20_000).for_each(|_| step(&mut sender));
    nanoseconds(20_000, || step(&mut sender))
}

/// Nanoseconds per call of `step`, the median of seven batches.
fn nanoseconds(batch: u32, mut step: impl FnMut()) -> f64 {
    let mut samples: Vec<f64> = (0..7)
        .map(|_| {
            let cpu = cpu_seconds();
            (0..batch).for_each(|_| step());
            (cpu_seconds() - cpu) * 1e9 / f64::from(batch)
        })
        .collect();
    median(&mut samples)
}

fn micro() {
    let mut steady = Steady::new();
    let ack = nanoseconds(100_000, || {
        steady.ack(20, 60.0 + (steady.number % 7) as f64);
    });
    let mut steady = Steady::new();
    // Each epoch has its acknowledgement, whose cost is known.
    let epoch_and_ack = nanoseconds(20_000, || {
        steady.now += Duration::from_millis(5);
        steady.ack(20, 60.0 + (steady.number % 7) as f64);
        steady.tick();
    });
    println!("| Verus, per call | ns | aim |");
    println!("|---|---|---|");
    println!("| acknowledgement (with the departure) | {ack:.0} | 100 |");
    println!("| epoch | {:.0} | 60 |", epoch_and_ack - ack);
    let mut profile = Profile::new();
    let config = Config::default();
    let mut unfitted = Profile::new();
    let mut now = Time::ZERO;
    let refit = nanoseconds(200, || {
        now += Duration::from_secs(1);
        for window in 1..=500 {
            let jitter = (window * 7919 % 13) as f64;
            let rtt = Duration::from_millis_f64(40.0 + window as f64 * 0.2 + jitter);
            profile.add(now, Packets(window as f64), rtt, 0.875);
        }
        profile.refit(now, config.fit, config.point_memory, 0.2);
    }) - nanoseconds(200, || {
        for window in 1..=500 {
            let jitter = (window * 7919 % 13) as f64;
            let rtt = Duration::from_millis_f64(40.0 + window as f64 * 0.2 + jitter);
            unfitted.add(now, Packets(window as f64), rtt, 0.875);
        }
    });
    println!("| refit of 500 points | {refit:.0} | 10000 |");
    let mut forecaster = Forecaster::new(&sprout::Config::default());
    let (mut now, mut number) = (Time::ZERO, 0);
    let tick = nanoseconds(2_000, || {
        // From an outage to the most that a tick counts, so that the belief is never at rest.
        for _ in 0..=number % 30 {
            forecaster.on_packet(&Arrival {
                at: now,
                number,
                size: Bytes::new(1500),
                stamp: None,
            });
            number += 1;
        }
        now += TICK;
        forecaster.on_tick(now);
    });
    println!("| Sprout: a tick, its packets and forecast | {tick:.0} | 100000 |");
    println!();
    println!(
        "| what a receiver says, 1000 packets in flight | ns a packet | of the ordinary | aim |"
    );
    println!("|---|---|---|---|");
    let ordinary = feedback(Pattern::Ordinary);
    for (name, pattern) in [
        ("all arrived, in order", Pattern::Ordinary),
        ("every other one", Pattern::EveryOther),
        ("and the others 10 packets later", Pattern::LateBy(10)),
        ("and the others 200 packets later", Pattern::LateBy(200)),
        ("and the others 900 packets later", Pattern::LateBy(900)),
    ] {
        let nanos = feedback(pattern);
        println!("| {name} | {nanos:.0} | {:.1} | 3 |", nanos / ordinary);
    }
}

/// Epochs that the flows of a run have had, of ε = 5 ms each.
fn epochs(workload: &Workload) -> f64 {
    workload.flows as f64 * workload.duration_s / 0.005
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--one") {
        let [name, scheme] = &arguments[at + 1..at + 3] else {
            unreachable!("a slice of two")
        };
        let workload = Workload::named(name).expect("W1, 1; W1, 10; or W2");
        let run: Box<dyn FnOnce() -> u64> = match scheme.as_str() {
            "lean" => Box::new(workload.lean()),
            scheme => Box::new(workload.simulation(scheme)),
        };
        // Without the CPU's clock, which some profilers do not let through.
        let begun = Instant::now();
        let packets = run();
        let each = begun.elapsed().as_nanos() as f64 / packets as f64;
        println!("{packets} packets, {each:.1} ns each");
        return;
    }
    if arguments.iter().any(|argument| argument == "--calls") {
        return micro();
    }
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let rounds = if quick { 3 } else { 7 };
    println!(
        "| workload | lean loop, M packets/CPU s | Cubic | Verus | Cubic/lean | Verus/Cubic | ns an epoch | CPU/wall |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for workload in &Workload::all() {
        let mut runs: Vec<[Run; 3]> = Vec::new();
        for _ in 0..rounds {
            runs.push([
                timed(workload.lean()),
                timed(workload.simulation("cubic")),
                timed(workload.simulation("verus:ratio=2")),
            ]);
        }
        let median_of = |value: &dyn Fn(&[Run; 3]) -> f64| {
            median(&mut runs.iter().map(value).collect::<Vec<_>>())
        };
        let millions = |index: usize| median_of(&|run| run[index].rate() / 1e6);
        let ratio =
            |over: usize, under: usize| median_of(&|run| run[over].rate() / run[under].rate());
        // The time that Verus takes beyond Cubic's for as many packets.
        let epoch = median_of(&|[_, cubic, verus]| {
            (verus.cpu_s - verus.packets as f64 / cubic.rate()) * 1e9 / epochs(workload)
        });
        // Where there are few, what its packets take more is most of it.
        let epoch = if epochs(workload) > runs[0][2].packets as f64 {
            format!("{epoch:.0}")
        } else {
            "–".to_owned()
        };
        let share = runs.iter().flatten().map(|run| run.cpu_s).sum::<f64>()
            / runs.iter().flatten().map(|run| run.wall_s).sum::<f64>();
        println!(
            "| {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {epoch} | {share:.2} |",
            workload.name,
            millions(0),
            millions(1),
            millions(2),
            ratio(1, 0),
            ratio(2, 1),
        );
    }
    if !arguments.iter().any(|argument| argument == "--workloads") {
        println!();
        micro();
    }
}
