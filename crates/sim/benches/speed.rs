//! How fast the simulator is, beside a bare event loop that moves the same packets.
//!
//! The bare loop has the same event queue, link and pipes, but no sender, receiver, controller or
//! statistics beyond counts: a fixed window, each arrival answered, each answer sending the next
//! packet. Machines differ and drift, so what counts is the ratio of runs in turn: each case runs
//! seven rounds of bare loop, Cubic and Verus, and the median of the ratios is reported.
//!
//! `cargo bench -p verus-sim` prints the table of BENCHMARKS.md; `-- --quick` runs fewer rounds.

// A benchmark reads clocks; that is all it does.
#![allow(clippy::disallowed_methods)]

use std::collections::VecDeque;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use verus_channel::catalogue::{self, Channel};
use verus_channel::path::link::{Link, Service, WhenOver};
use verus_channel::queue::QueueConfig;
use verus_channel::schedule::Schedule;
use verus_core::controller::{Arrival, Observer};
use verus_core::sprout::{self, TICK, receiver::Forecaster};
use verus_core::verus::config::Config;
use verus_core::verus::profile::{Bounds, Profile};
use verus_core::verus::robust::capacity::Capacity;
use verus_core::{
    Acked, Bytes, Controller, Departure, Duration, Feedback, Time, algorithm::Scheme, random,
};
use verus_sim::event::{Event, EventQueue};
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

    fn simulate(&self, scheme: &str) -> Run {
        let plan = self.scenario(scheme).plan().expect("the workload is valid");
        timed(|| {
            let outcome = plan.run(&mut |_| true).expect("nobody cancels");
            outcome.metrics.departures
        })
    }

    fn bare(&self) -> Run {
        let end = Duration::from_secs_f64(self.duration_s);
        let channel = catalogue::open(&self.trace, 1, end).expect("the workload is valid");
        let opportunity = Bytes::new(1504);
        let (service, rate) = match channel {
            Channel::Rate(rate) => (Service::Rate(Schedule::constant(rate)), rate),
            Channel::Trace(trace) => {
                let rate = trace.mean_rate(opportunity);
                (
                    Service::Trace {
                        trace,
                        opportunity,
                        end: WhenOver::Loop,
                    },
                    rate,
                )
            }
        };
        let queue = QueueConfig::parse(self.queue).expect("the workload is valid");
        // A pipe and a half: the link is never idle, and nothing is dropped.
        let window = rate.bytes_in(Duration::from_millis(60)).get() / 1500 / self.flows as u64 + 1;
        timed(|| bare_loop(service, &queue, self.flows, window, Time::ZERO + end))
    }
}

struct BareFlow {
    forward: VecDeque<Time>,
    back: VecDeque<Time>,
}

/// The yardstick. Returns how many packets left the link.
fn bare_loop(service: Service, queue: &QueueConfig, flows: usize, window: u64, end: Time) -> u64 {
    let size = Bytes::new(1500);
    let delay = Duration::from_millis(20);
    let mut events = EventQueue::default();
    let mut link: Link<u32> = Link::new(service, queue, random::stream(1, "queue", 0));
    let mut link_set = false;
    let mut sides: Vec<BareFlow> = (0..flows)
        .map(|_| BareFlow {
            forward: VecDeque::new(),
            back: VecDeque::new(),
        })
        .collect();
    let mut departed = 0;
    for flow in 0..flows {
        for _ in 0..window {
            let _ = link.enqueue(Time::ZERO, size, flow as u32);
        }
    }
    let set = |link: &Link<u32>, link_set: &mut bool, events: &mut EventQueue| {
        if !*link_set && let Some(at) = link.next_departure() {
            *link_set = true;
            events.push(at, Event::Departure);
        }
    };
    set(&link, &mut link_set, &mut events);
    while let Some((now, event)) = events.pop() {
        if now > end {
            break;
        }
        match event {
            Event::Departure => {
                link_set = false;
                while link.next_departure().is_some_and(|at| at <= now) {
                    let Some(packet) = link.depart(now, |_| ()) else {
                        continue;
                    };
                    departed += 1;
                    let pipe = &mut sides[packet.packet as usize].forward;
                    pipe.push_back(now + delay);
                    if pipe.len() == 1 {
                        events.push(now + delay, Event::Data(packet.packet));
                    }
                }
                set(&link, &mut link_set, &mut events);
            }
            Event::Data(flow) => {
                let side = &mut sides[flow as usize];
                while side.forward.front().is_some_and(|&at| at <= now) {
                    side.forward.pop_front();
                    side.back.push_back(now + delay);
                    if side.back.len() == 1 {
                        events.push(now + delay, Event::Ack(flow));
                    }
                }
                if let Some(&at) = side.forward.front() {
                    events.push(at, Event::Data(flow));
                }
            }
            Event::Ack(flow) => {
                let side = &mut sides[flow as usize];
                while side.back.front().is_some_and(|&at| at <= now) {
                    side.back.pop_front();
                    let _ = link.enqueue(now, size, flow);
                }
                if let Some(&at) = side.back.front() {
                    events.push(at, Event::Ack(flow));
                }
                set(&link, &mut link_set, &mut events);
            }
            other => unreachable!("{other:?} is not for the bare loop"),
        }
    }
    departed
}

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
        let mut controller = scheme.build(1);
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
    let (mut profile, mut capacity) = (Profile::new(), Capacity::default());
    let config = Config::default();
    let mut unfitted = Profile::new();
    let mut now = Time::ZERO;
    let refit = nanoseconds(200, || {
        now += Duration::from_secs(1);
        for window in 1..=500 {
            capacity.on_acked();
            let jitter = (window * 7919 % 13) as f64;
            let rtt = Duration::from_millis_f64(40.0 + window as f64 * 0.2 + jitter);
            profile.add(now, window as f64, rtt, 0.875);
        }
        capacity.end_interval(now);
        let bounds = capacity.packets_per_ms().map(|rate| Bounds {
            delay_min: 40.0,
            at_most: 1.0 / rate,
            at_least: capacity.least_slope(),
        });
        profile.refit(now, config.fit, config.robust.point_memory, bounds);
    }) - nanoseconds(200, || {
        for window in 1..=500 {
            let jitter = (window * 7919 % 13) as f64;
            let rtt = Duration::from_millis_f64(40.0 + window as f64 * 0.2 + jitter);
            unfitted.add(now, window as f64, rtt, 0.875);
        }
    });
    println!("| refit of 500 points | {refit:.0} | 10000 |");
    let mut half = Forecaster::new(&sprout::Config::default());
    let (mut now, mut number) = (Time::ZERO, 0);
    let tick = nanoseconds(2_000, || {
        // From an outage to the most that a tick counts, so that the belief is never at rest.
        for _ in 0..=number % 30 {
            half.on_packet(&Arrival {
                at: now,
                number,
                size: Bytes::new(1500),
                stamp: None,
            });
            number += 1;
        }
        now += TICK;
        half.on_tick(now);
    });
    println!("| Sprout: a tick, its packets and forecast | {tick:.0} | 100000 |");
}

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let rounds = if quick { 3 } else { 7 };
    let highway = std::env::var("VERUS_HIGHWAY").unwrap_or("highway-driving-3g-up".to_owned());
    let red = "red:min=375000,max=1125000,p=0.1";
    let workloads = [
        Workload {
            name: "W1, 1 flow",
            trace: "rate:100".to_owned(),
            queue: "droptail:bytes=500000",
            flows: 1,
            duration_s: 60.0,
        },
        Workload {
            name: "W1, 10 flows",
            trace: "rate:100".to_owned(),
            queue: "droptail:bytes=500000",
            flows: 10,
            duration_s: 60.0,
        },
        Workload {
            name: "W2, 10 flows",
            trace: highway,
            queue: red,
            flows: 10,
            duration_s: 600.0,
        },
    ];
    println!(
        "| workload | bare loop, M packets/CPU s | Cubic | Verus | Cubic/bare | Verus/Cubic | CPU/wall |"
    );
    println!("|---|---|---|---|---|---|---|");
    for workload in &workloads {
        let mut runs: Vec<[Run; 3]> = Vec::new();
        for _ in 0..rounds {
            runs.push([
                workload.bare(),
                workload.simulate("cubic"),
                workload.simulate("verus:ratio=2"),
            ]);
        }
        let column = |index: usize| {
            median(&mut runs.iter().map(|run| run[index].rate()).collect::<Vec<_>>())
        };
        let ratio = |over: usize, under: usize| {
            median(
                &mut runs
                    .iter()
                    .map(|run| run[over].rate() / run[under].rate())
                    .collect::<Vec<_>>(),
            )
        };
        let share = runs.iter().flatten().map(|run| run.cpu_s).sum::<f64>()
            / runs.iter().flatten().map(|run| run.wall_s).sum::<f64>();
        println!(
            "| {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {share:.2} |",
            workload.name,
            column(0) / 1e6,
            column(1) / 1e6,
            column(2) / 1e6,
            ratio(1, 0),
            ratio(2, 1),
        );
    }
    println!();
    micro();
}
