//! What `forward` does, in numbers: the tables of docs/forward.md, each row with what was asked of it.
//!
//! ```sh
//! cargo run --release -p verus-sim --features parts --example forward_study -- --help
//! ```
//!
//! Recordings come from `VERUS_SHARED` (a folder with `traces/` and `reference/causal-limit.csv`), else from `../shared`.
//! They are split before anything is tuned: the odd rows of that file are tuned on and the even ones judged by, save that
//! the three excerpts' sources (`verus-2015/*.up`) go with their excerpts. Channels that are built in are judged on
//! seeds that tuning never saw.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Parser;
use clap::builder::PossibleValuesParser;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::Poisson;
use rayon::prelude::*;
use verus_channel::trace::Trace;
use verus_core::random;
use verus_measure::jain;
use verus_protocol::forward::Part;
use verus_sim::{Change, FlowSpec, Outcome, Scenario};

const RED: &str = "red:min=375000,max=1125000,p=0.1,preset=cs244";
const PAPER_RED: &str = "red:min=375000,max=1125000,p=0.1";

/// What one run yields, reduced to what the tables need: series in 100 ms bins.
struct Run {
    utilization: f64,
    mean_ms: f64,
    p95_ms: f64,
    loss: f64,
    throughput: f64,
    /// What a file or a frame took, s, on average and 99 % of them; how many came, and of frames, how many late.
    file_s: f64,
    file_p99_s: f64,
    files: u64,
    late: u64,
    /// Mbit/s of each flow, by bin.
    rates: Vec<Vec<f64>>,
    /// Mean queueing delay of a bin, all flows.
    delays: Vec<f64>,
    capacity: Vec<f64>,
    /// D_min that the first flow believes, by bin.
    base_ms: Vec<f64>,
}

fn reduce(outcome: Outcome) -> Run {
    let metrics = &outcome.metrics;
    let series = &metrics.series;
    let bins = series.first().map_or(0, |flow| flow.throughput_mbps.len());
    let delays = (0..bins)
        .map(|bin| {
            let (mut sum, mut weight) = (0.0, 0.0);
            for flow in series {
                if let Some(ms) = flow.qdelay_mean_ms[bin] {
                    sum += ms * flow.throughput_mbps[bin];
                    weight += flow.throughput_mbps[bin];
                }
            }
            if weight > 0.0 { sum / weight } else { f64::NAN }
        })
        .collect();
    let first = &outcome.flows[0];
    let base = first
        .columns
        .iter()
        .position(|&name| name == "delay_min_ms");
    Run {
        utilization: metrics.utilization.unwrap_or(0.0) * 100.0,
        mean_ms: metrics.qdelay_mean_ms.unwrap_or(0.0),
        p95_ms: metrics.qdelay_p95_ms.unwrap_or(0.0),
        loss: metrics.loss_rate.unwrap_or(0.0) * 100.0,
        throughput: metrics.throughput_mbps,
        file_s: metrics.completion_mean_s.unwrap_or(f64::NAN),
        file_p99_s: metrics.completion_p99_s.unwrap_or(f64::NAN),
        files: metrics.completions.unwrap_or(0),
        late: metrics.late.unwrap_or(0),
        rates: series
            .iter()
            .map(|flow| flow.throughput_mbps.clone())
            .collect(),
        delays,
        capacity: outcome.capacity_mbps.clone(),
        base_ms: base.map_or(Vec::new(), |at| first.samples[at].clone()),
    }
}

impl Run {
    /// Mean of a flow's rate in [from, to) s.
    fn rate(&self, flow: usize, from: f64, to: f64) -> f64 {
        mean(span(&self.rates[flow], from, to))
    }

    fn used(&self, from: f64, to: f64) -> f64 {
        let all: f64 = (0..self.rates.len()).map(|f| self.rate(f, from, to)).sum();
        100.0 * all / mean(span(&self.capacity, from, to))
    }

    fn delay(&self, from: f64, to: f64) -> f64 {
        mean(span(&self.delays, from, to))
    }

    /// Jain's index in windows of 1 s, averaged, and of the whole stretch.
    fn jain(&self, from: f64, to: f64) -> (f64, f64) {
        let at = |from: f64, to: f64| {
            let shares: Vec<f64> = (0..self.rates.len())
                .map(|flow| self.rate(flow, from, to))
                .collect();
            jain(&shares)
        };
        let mut windows = Vec::new();
        let mut s = from;
        while s + 1.0 <= to + 1e-9 {
            windows.extend(at(s, s + 1.0));
            s += 1.0;
        }
        (mean(&windows), at(from, to).unwrap_or(0.0))
    }
}

fn span(values: &[f64], from: f64, to: f64) -> &[f64] {
    let bin = |s: f64| ((s * 10.0).round() as usize).min(values.len());
    &values[bin(from)..bin(to)]
}

fn mean(values: &[f64]) -> f64 {
    let finite: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    if finite.is_empty() {
        return f64::NAN;
    }
    finite.iter().sum::<f64>() / finite.len() as f64
}

/// Whether a row holds, and what it says.
struct Line {
    holds: Option<bool>,
    text: String,
    /// For summaries, by name.
    values: Vec<(&'static str, f64)>,
}

type Judge = Box<dyn Fn(&[Run]) -> Line + Send + Sync>;

/// A row of a table: runs, and what is read from them.
struct Row {
    table: &'static str,
    group: String,
    name: String,
    scenarios: Vec<Scenario>,
    judge: Judge,
}

/// The tables of docs/forward.md, each row with what was asked of it.
#[derive(Parser)]
struct Options {
    /// Whose tables.
    #[arg(long, default_value = "forward")]
    scheme: String,
    /// Which tables, in this order.
    #[arg(long, value_delimiter = ',', default_values_t = TABLES.map(|(name, _)| name.to_owned()),
        value_parser = PossibleValuesParser::new(TABLES.map(|(name, _)| name)))]
    tables: Vec<String>,
    /// Of the recordings.
    #[arg(long, default_value = "both", value_parser = ["tuned", "judged", "both"])]
    half: String,
    /// `FIRST-LAST`, or one.
    #[arg(long, default_value = "1-5", value_parser = seeds)]
    seeds: Seeds,
    /// How many runs at the same time.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Fewer runs.
    #[arg(long)]
    quick: bool,
    /// The sums alone.
    #[arg(long)]
    brief: bool,
    /// Then without each of its parts, the sums alone.
    #[arg(long)]
    parts: bool,
    /// A folder with `traces` and `reference/causal-limit.csv`.
    #[arg(long, env = "VERUS_SHARED", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared"))]
    shared: PathBuf,
}

#[derive(Clone)]
struct Seeds(Vec<u64>);

fn seeds(text: &str) -> Result<Seeds, std::num::ParseIntError> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Ok(Seeds((first.parse()?..=last.parse()?).collect()))
}

fn flows(scheme: &str, count: usize, apart_s: f64) -> Vec<FlowSpec> {
    (0..count)
        .map(|n| FlowSpec {
            start_s: n as f64 * apart_s,
            ..FlowSpec::new(scheme)
        })
        .collect()
}

fn base(trace: &str, queue: &str, duration_s: f64, flows: Vec<FlowSpec>) -> Scenario {
    Scenario {
        trace: trace.to_owned(),
        queue: queue.to_owned(),
        duration_s,
        flows,
        ..Default::default()
    }
}

// --- 3.1: one flow over recordings.

const PAIRS: [(&str, &str); 4] = [
    (
        "cs244-2017/ATT-LTE-driving-2016.down",
        "cs244-2017/ATT-LTE-driving-2016.up",
    ),
    (
        "cs244-2017/TMobile-LTE-driving.down.xz",
        "cs244-2017/TMobile-LTE-driving.up.xz",
    ),
    (
        "mahimahi/Verizon-LTE-short.down",
        "mahimahi/Verizon-LTE-short.up",
    ),
    (
        "mahimahi/TMobile-UMTS-driving.down.xz",
        "mahimahi/TMobile-UMTS-driving.up",
    ),
];

/// A row of `causal-limit.csv`.
struct Recording {
    name: String,
    tuned: bool,
    /// Utilization in per cent and p95 in ms of Verus R = 2.
    verus: (f64, f64),
    /// The causal limit: utilization and p95; and whether it is 95 at 100 or better.
    limit: Option<(f64, f64)>,
    reachable: bool,
}

fn recordings(shared: &Path) -> Vec<Recording> {
    let path = shared.join("reference/causal-limit.csv");
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let rows = text.lines().skip(1).enumerate();
    rows.map(|(index, line)| {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| fields[at].parse::<f64>().expect("a number");
        let words: Vec<f64> = fields[10]
            .split(|c: char| !(c.is_ascii_digit() || c == '.'))
            .filter_map(|word| word.parse().ok())
            .collect();
        let limit = match words[..] {
            // "(95 at 239)": what it takes to fill 95 %.
            [utilization, p95] => Some((utilization, p95)),
            _ => None,
        };
        let reachable = !fields[10].contains("none")
            && limit.is_some_and(|(utilization, p95)| utilization >= 95.0 && p95 <= 100.0);
        let name = fields[0].to_owned();
        let tuned = match name.as_str() {
            "verus-2015/campus-pedestrian.up" | "verus-2015/highway-driving.up.xz" => true,
            "verus-2015/city-driving.up.xz" => false,
            _ => index % 2 == 0,
        };
        Recording {
            name,
            tuned,
            verus: (number(1), number(3)),
            limit,
            reachable,
        }
    })
    .collect()
}

/// The recording from `offset_s` on, then its beginning: the same loop, entered elsewhere.
fn from_offset(path: &Path, offset_s: u64) -> String {
    let text = path.to_str().expect("a path is text");
    let trace = Trace::read(path).unwrap_or_else(|error| panic!("{error}"));
    let offset = offset_s % (trace.period().as_secs_f64() as u64).max(1);
    if offset == 0 {
        text.to_owned()
    } else {
        format!("{text}[{offset}:]+{text}[:{offset}]")
    }
}

fn one_flow(shared: &Path, offsets: &[u64], scheme: &str, recording: &Recording) -> Vec<Scenario> {
    let traces = shared.join("traces");
    let ack = PAIRS.iter().find(|pair| pair.0 == recording.name);
    offsets
        .iter()
        .map(|&offset| Scenario {
            ack: ack.map_or("rate:12".to_owned(), |pair| {
                from_offset(&traces.join(pair.1), offset)
            }),
            ack_queue: RED.to_owned(),
            ..base(
                &from_offset(&traces.join(&recording.name), offset),
                RED,
                60.0,
                vec![FlowSpec::new(scheme)],
            )
        })
        .collect()
}

fn table_one(options: &Options, rows: &mut Vec<Row>) {
    for recording in recordings(&options.shared) {
        let half = if recording.tuned { "tuned" } else { "judged" };
        if options.half != "both" && options.half != half {
            continue;
        }
        let offsets: &[u64] = if options.quick { &[0] } else { &[0, 20, 40] };
        let scenarios = one_flow(&options.shared, offsets, &options.scheme, &recording);
        rows.push(Row {
            table: "one",
            group: half.to_owned(),
            name: recording.name.clone(),
            scenarios,
            judge: Box::new(move |runs| {
                let of = |f: fn(&Run) -> f64| mean(&runs.iter().map(f).collect::<Vec<_>>());
                let (utilization, p95) = (of(|run| run.utilization), of(|run| run.p95_ms));
                let dominated = recording.verus.0 >= utilization && recording.verus.1 <= p95;
                let met = if recording.reachable {
                    utilization >= 95.0 && p95 <= 100.0
                } else {
                    recording
                        .limit
                        .is_some_and(|(u, p)| utilization >= u - 3.0 && p95 <= p)
                };
                let each: Vec<String> = runs
                    .iter()
                    .map(|run| format!("{:.1}/{:.0}", run.utilization, run.p95_ms))
                    .collect();
                Line {
                    holds: Some(met && !dominated),
                    text: format!(
                        "{utilization:5.1} % mean {:4.0} p95 {p95:4.0} ms | {} | Verus R=2 {:.1}/{:.0}{} | limit {}{}",
                        of(|run| run.mean_ms),
                        each.join(" "),
                        recording.verus.0,
                        recording.verus.1,
                        if dominated { " DOMINATES" } else { "" },
                        recording
                            .limit
                            .map_or("none".to_owned(), |(u, p)| format!("{u:.1}/{p:.0}")),
                        if recording.reachable { " (95 at 100)" } else { "" },
                    ),
                    values: vec![
                        ("utilization", utilization),
                        ("p95", p95),
                        ("mean", of(|run| run.mean_ms)),
                        ("shortfall", (95.0 - utilization).max(0.0)),
                        ("excess", (p95 - 100.0).max(0.0)),
                        ("reachable met", f64::from(u8::from(recording.reachable && met))),
                        ("dominated", f64::from(u8::from(dominated))),
                    ],
                }
            }),
        });
    }
}

/// What a sender was measured at behind Mahimahi, by trace: utilization in per cent, mean and p95 in ms of the best
/// repetition, those that had the whole CPU first.
fn measured(shared: &Path, sender: &str) -> BTreeMap<String, [f64; 3]> {
    let path = shared.join("reference/peers-measured.csv");
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut best: BTreeMap<String, (f64, [f64; 3])> = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with(sender)) {
        let unquoted: String = line.split('"').step_by(2).collect();
        let fields: Vec<&str> = unquoted.split(',').collect();
        let number = |at: usize| fields[at].parse::<f64>().expect("a number");
        let values = [number(9) * 100.0, number(10), number(12)];
        let score = number(5) * 1e3 + values[0] / (50.0 + values[2]);
        let entry = best.entry(fields[1].to_owned()).or_insert((score, values));
        if score > entry.0 {
            *entry = (score, values);
        }
    }
    best.into_iter()
        .map(|(trace, (_, values))| (trace, values))
        .collect()
}

/// Senders side by side on the recordings that BBR was measured on: simulated ones, and measured ones.
fn table_peers(options: &Options, rows: &mut Vec<Row>) {
    let traces = measured(&options.shared, "linux-bbr-v1");
    let mut row = |sender: &str, trace: &str, scenarios, known: Option<[f64; 3]>| {
        rows.push(Row {
            table: "peers",
            group: sender.to_owned(),
            name: trace.to_owned(),
            scenarios,
            judge: Box::new(move |runs| {
                let [used, mean_ms, p95_ms] = known.unwrap_or_else(|| {
                    let run = &runs[0];
                    [run.utilization, run.mean_ms, run.p95_ms]
                });
                Line {
                    holds: None,
                    text: format!("{used:.1} % mean {mean_ms:.0} p95 {p95_ms:.0} ms"),
                    values: vec![("utilization", used), ("mean", mean_ms), ("p95", p95_ms)],
                }
            }),
        });
    };
    for recording in recordings(&options.shared) {
        if !traces.contains_key(&recording.name) {
            continue;
        }
        let others = ["verus:ratio=2", "verus:ratio=4", "vegas", "cubic", "sprout"];
        for scheme in [&*options.scheme].into_iter().chain(others) {
            let scenarios = one_flow(&options.shared, &[0], scheme, &recording);
            row(scheme, &recording.name, scenarios, None);
        }
    }
    for sender in [
        "linux-bbr-v1",
        "copa-genericcc:delta=0.5",
        "verus-prototype:ratio=2",
    ] {
        for (trace, values) in measured(&options.shared, sender) {
            if traces.contains_key(&trace) {
                row(
                    &format!("{sender}, measured"),
                    &trace,
                    Vec::new(),
                    Some(values),
                );
            }
        }
    }
}

/// 3.1, the knob: p95 at the utilization that BBR had in the measured runs.
fn table_knob(options: &Options, rows: &mut Vec<Row>) {
    let bbr = measured(&options.shared, "linux-bbr-v1");
    for recording in recordings(&options.shared) {
        let Some(&[utilization, _, p95]) = bbr.get(&recording.name) else {
            continue;
        };
        let knobs = [40, 56, 80, 112, 160, 224, 320, 450];
        let scenarios = knobs
            .iter()
            .map(|knob| {
                let join = if options.scheme.contains(':') {
                    ','
                } else {
                    ':'
                };
                let scheme = format!("{}{join}budget_ms={knob}", options.scheme);
                one_flow(&options.shared, &[0], &scheme, &recording).remove(0)
            })
            .collect();
        rows.push(Row {
            table: "knob",
            group: if recording.tuned { "tuned" } else { "judged" }.to_owned(),
            name: recording.name.clone(),
            scenarios,
            judge: Box::new(move |runs| {
                let reached = runs
                    .iter()
                    .zip(knobs)
                    .find(|(run, _)| run.utilization >= utilization);
                let last = (&runs[runs.len() - 1], knobs[knobs.len() - 1]);
                let (run, knob) = reached.unwrap_or(last);
                Line {
                    holds: Some(reached.is_some() && run.p95_ms <= 0.6 * p95),
                    text: format!(
                        "budget_ms={knob}: {:.1} % at {:.0} ms; BBR {utilization:.1} at {p95:.0}",
                        run.utilization, run.p95_ms
                    ),
                    values: vec![("p95 over BBR's", run.p95_ms / p95)],
                }
            }),
        });
    }
}

/// Built-in channels: 3.1's question where no recording is needed.
fn table_built_in(options: &Options, rows: &mut Vec<Row>) {
    for place in ["campus-pedestrian", "city-driving", "highway-driving"] {
        for kind in ["3g-up", "3g-down", "lte-up", "lte-down"] {
            let scenarios = options
                .seeds
                .0
                .iter()
                .map(|&seed| Scenario {
                    seed,
                    ..base(
                        &format!("{place}-{kind}"),
                        RED,
                        60.0,
                        vec![FlowSpec::new(&options.scheme)],
                    )
                })
                .collect();
            rows.push(Row {
                table: "built-in",
                group: String::new(),
                name: format!("{place}-{kind}"),
                scenarios,
                judge: Box::new(|runs| {
                    let of = |f: fn(&Run) -> f64| mean(&runs.iter().map(f).collect::<Vec<_>>());
                    let (u, p) = (of(|run| run.utilization), of(|run| run.p95_ms));
                    Line {
                        holds: Some(u >= 95.0 && p <= 100.0),
                        text: format!(
                            "{u:5.1} % mean {:4.0} p95 {p:4.0} ms",
                            of(|run| run.mean_ms)
                        ),
                        values: vec![("utilization", u), ("p95", p)],
                    }
                }),
            });
        }
    }
}

// --- 3.2: many flows.

fn table_many(options: &Options, rows: &mut Vec<Row>) {
    let recording = |name: &str| {
        let path = options.shared.join("traces").join(name);
        path.to_str().expect("a path is text").to_owned()
    };
    let mut channels = vec![
        ("5 Mbit/s", "rate:5".to_owned(), true),
        ("20 Mbit/s", "rate:20".to_owned(), true),
        ("100 Mbit/s", "rate:100".to_owned(), true),
    ];
    if !options.quick {
        channels.extend([
            (
                "city 4 Mbit/s (judged)",
                recording("cs244-2017/city_drive_2min"),
                false,
            ),
            (
                "highway 4 Mbit/s (tuned)",
                recording("cs244-2017/highway_drive_2min"),
                false,
            ),
            (
                "T-Mobile 31 Mbit/s (tuned)",
                recording("cs244-2017/TMobile-LTE-driving.down.xz"),
                true,
            ),
            (
                "Verizon 4.8 Mbit/s (judged)",
                recording("mahimahi/Verizon-LTE-short.down"),
                false,
            ),
        ]);
    }
    for (name, trace, fast) in channels {
        for apart_s in [0.0, 0.5, 5.0] {
            for count in [2usize, 5, 10, 20] {
                if options.quick && (count == 2 || (apart_s == 5.0 && count > 5)) {
                    continue;
                }
                let settled = apart_s * (count - 1) as f64 + 3.0;
                let end = settled + 30.0;
                rows.push(Row {
                    table: "many",
                    group: format!("{count} flows"),
                    name: format!("{name}, {apart_s} s apart"),
                    scenarios: vec![
                        base(&trace, RED, end, flows(&options.scheme, 1, 0.0)),
                        base(&trace, RED, end, flows(&options.scheme, count, apart_s)),
                    ],
                    judge: Box::new(move |runs| {
                        let (single, run) = (&runs[0], &runs[1]);
                        let (windows, whole) = run.jain(settled, end);
                        let (alone, delay) = (single.delay(3.0, end), run.delay(settled, end));
                        // A newcomer's share of a fair one in its third second.
                        let newcomers: Vec<f64> = (1..count)
                            .filter(|_| apart_s > 1.0)
                            .map(|n| {
                                let at = apart_s * n as f64;
                                let fair = (0..=n).map(|f| run.rate(f, at + 2.0, at + 4.0)).sum::<f64>();
                                run.rate(n, at + 2.0, at + 4.0) * (n + 1) as f64 / fair
                            })
                            .collect();
                        let newcomer = mean(&newcomers);
                        let most = match count {
                            0..=5 => 2.0,
                            6..=10 => 3.0,
                            _ => 4.0,
                        };
                        let fair = windows >= if count <= 5 { 0.95 } else { 0.90 } && whole >= 0.98;
                        let low = !fast && count > 5 || delay <= most * alone;
                        let soon = newcomers.is_empty() || newcomer >= 0.8;
                        let used = run.used(settled, end);
                        Line {
                            holds: Some(fair && low && soon),
                            text: format!(
                                "Jain {windows:.3}/{whole:.3}{} delay {delay:4.0} ms = {:.1} × alone{} used {used:5.1} % loss {:.2} %{}",
                                if fair { "" } else { " !" },
                                delay / alone,
                                if low { "" } else { " !" },
                                run.loss,
                                if newcomers.is_empty() {
                                    String::new()
                                } else {
                                    format!(" newcomers {newcomer:.2}{}", if soon { "" } else { " !" })
                                }
                            ),
                            values: vec![
                                ("jain 1 s", windows),
                                ("jain", whole),
                                ("delay", delay),
                                ("× alone", delay / alone),
                                ("used", used),
                            ],
                        }
                    }),
                });
            }
        }
    }
    for mbps in [5, 20, 50, 100] {
        let flows = [10.0, 25.0, 50.0, 75.0, 100.0].map(|delay_ms| FlowSpec {
            delay_ms: Some(delay_ms),
            ..FlowSpec::new(&options.scheme)
        });
        rows.push(Row {
            table: "many",
            group: "round trips 20 to 200 ms".to_owned(),
            name: format!("{mbps} Mbit/s"),
            scenarios: vec![base(&format!("rate:{mbps}"), RED, 60.0, flows.to_vec())],
            judge: Box::new(|runs| {
                let (windows, whole) = runs[0].jain(10.0, 60.0);
                Line {
                    holds: Some(whole >= 0.95),
                    text: format!(
                        "Jain {windows:.3}/{whole:.3} delay {:.0} ms used {:.1} %",
                        runs[0].delay(10.0, 60.0),
                        runs[0].used(10.0, 60.0)
                    ),
                    values: vec![("jain", whole), ("used", runs[0].used(10.0, 60.0))],
                }
            }),
        });
    }
}

// --- 3.3: the headline.

fn table_headline(options: &Options, rows: &mut Vec<Row>) {
    for place in ["campus-pedestrian", "city-driving", "highway-driving"] {
        let mut scenarios = Vec::new();
        for scheme in [&options.scheme, "cubic", "newreno"] {
            for &seed in &options.seeds.0 {
                scenarios.push(Scenario {
                    seed,
                    ..base(
                        &format!("{place}-lte-down"),
                        PAPER_RED,
                        120.0,
                        flows(scheme, 10, 0.0),
                    )
                });
            }
        }
        let seeds = options.seeds.0.len();
        rows.push(Row {
            table: "headline",
            group: String::new(),
            name: place.to_owned(),
            scenarios,
            judge: Box::new(move |runs| {
                let of = |which: usize, f: fn(&Run) -> f64| {
                    mean(&runs[which * seeds..(which + 1) * seeds].iter().map(f).collect::<Vec<_>>())
                };
                let delay = |which| of(which, |run| run.mean_ms);
                let throughput = |which| of(which, |run| run.throughput);
                let low = delay(0) * 10.0 <= delay(1).min(delay(2));
                let full = throughput(0) >= 0.9 * throughput(1).max(throughput(2));
                Line {
                    holds: Some(low && full),
                    text: format!(
                        "{:.0} ms at {:.2} Mbit/s; Cubic {:.0} at {:.2}, NewReno {:.0} at {:.2}: {:.1} and {:.1} times the delay",
                        delay(0),
                        throughput(0),
                        delay(1),
                        throughput(1),
                        delay(2),
                        throughput(2),
                        delay(1) / delay(0),
                        delay(2) / delay(0)
                    ),
                    values: vec![("Cubic's delay over ours", delay(1) / delay(0))],
                }
            }),
        });
    }
}

// --- 3.4: shallow and deep buffers.

fn buffer(mbps: f64, bdp: f64) -> String {
    format!(
        "droptail:bytes={}",
        (mbps * 1e6 * 0.04 / 8.0 * bdp).max(1500.0) as u64
    )
}

fn table_buffers(options: &Options, rows: &mut Vec<Row>) {
    let rates: &[f64] = if options.quick {
        &[5.0, 20.0, 100.0]
    } else {
        &[5.0, 20.0, 100.0, 500.0]
    };
    for &mbps in rates {
        for bdp in [0.25, 0.5, 1.0, 2.0, 4.0] {
            for count in [1usize, 4] {
                rows.push(Row {
                    table: "buffers",
                    group: format!("{count} flows"),
                    name: format!("{mbps} Mbit/s, {bdp} BDP"),
                    scenarios: vec![base(
                        &format!("rate:{mbps}"),
                        &buffer(mbps, bdp),
                        30.0,
                        flows(&options.scheme, count, 0.0),
                    )],
                    judge: Box::new(move |runs| {
                        let run = &runs[0];
                        let used = run.used(3.0, 30.0);
                        let (windows, whole) = run.jain(3.0, 30.0);
                        let most = if bdp < 0.5 { 5.0 } else { 2.0 };
                        Line {
                            holds: Some(used >= 95.0 && run.loss <= most && whole >= 0.9),
                            text: format!(
                                "used {used:5.1} %{} loss {:.2} %{} Jain {windows:.3}/{whole:.3}{} delay {:.0} ms",
                                if used >= 95.0 { "" } else { " !" },
                                run.loss,
                                if run.loss <= most { "" } else { " !" },
                                if whole >= 0.9 { "" } else { " !" },
                                run.delay(3.0, 30.0)
                            ),
                            values: vec![("used", used), ("loss", run.loss), ("jain", whole)],
                        }
                    }),
                });
            }
        }
    }
}

/// Queues that mark rather than drop, and what they drop of a sender that does not ask for marks.
fn table_marks(options: &Options, rows: &mut Vec<Row>) {
    for queue in ["codel:ecn=yes", "fq_codel:ecn=yes", "pie:ecn=yes"] {
        for mbps in [5.0, 20.0] {
            for count in [1usize, 4] {
                rows.push(Row {
                    table: "marks",
                    group: format!("{count} flows"),
                    name: format!("{mbps} Mbit/s, {queue}"),
                    scenarios: vec![base(
                        &format!("rate:{mbps}"),
                        queue,
                        30.0,
                        flows(&options.scheme, count, 0.0),
                    )],
                    judge: Box::new(|runs| {
                        let run = &runs[0];
                        let used = run.used(3.0, 30.0);
                        let (windows, whole) = run.jain(3.0, 30.0);
                        let delay = run.delay(3.0, 30.0);
                        Line {
                            holds: Some(used >= 95.0 && run.loss <= 0.1 && whole >= 0.9),
                            text: format!(
                                "used {used:5.1} % loss {:.2} % Jain {windows:.3}/{whole:.3} delay {delay:.0} ms",
                                run.loss
                            ),
                            values: vec![
                                ("used", used),
                                ("loss", run.loss),
                                ("jain", whole),
                                ("delay", delay),
                            ],
                        }
                    }),
                });
            }
        }
    }
}

// --- 3.5: company.

fn table_company(options: &Options, rows: &mut Vec<Row>) {
    let others: &[(&str, usize)] = if options.quick {
        &[("cubic", 1), ("cubic", 3)]
    } else {
        &[
            ("cubic", 1),
            ("cubic", 3),
            ("newreno", 1),
            ("verus:ratio=2", 1),
        ]
    };
    for &(other, count) in others {
        for mbps in [10.0, 50.0] {
            for bdp in [0.5, 1.0, 2.0, 4.0, 0.0] {
                let queue = if bdp > 0.0 {
                    buffer(mbps, bdp)
                } else {
                    PAPER_RED.to_owned()
                };
                let mut flows = vec![FlowSpec::new(&options.scheme)];
                flows.extend((0..count).map(|_| FlowSpec {
                    stop_s: Some(60.0),
                    ..FlowSpec::new(other)
                }));
                rows.push(Row {
                    table: "company",
                    group: format!("{count} {other}"),
                    name: if bdp > 0.0 { format!("{mbps} Mbit/s, {bdp} BDP") } else { format!("{mbps} Mbit/s, RED") },
                    scenarios: vec![base(&format!("rate:{mbps}"), &queue, 80.0, flows)],
                    judge: Box::new(move |runs| {
                        let run = &runs[0];
                        let all: f64 = (0..=count).map(|f| run.rate(f, 10.0, 60.0)).sum();
                        let share = run.rate(0, 10.0, 60.0) * (count + 1) as f64 / all;
                        let together = run.delay(10.0, 60.0);
                        let after = run.delay(65.0, 80.0);
                        let least = if bdp > 2.0 { 0.25 } else { 0.5 };
                        let fair = (least..=1.5).contains(&share);
                        let low = after <= 40.0;
                        Line {
                            holds: Some(fair && low),
                            text: format!(
                                "share {share:.2}{} delay {together:4.0} ms, alone again {after:3.0} ms{} used {:.1} then {:.1} %",
                                if fair { "" } else { " !" },
                                if low { "" } else { " !" },
                                run.used(10.0, 60.0),
                                run.used(65.0, 80.0)
                            ),
                            values: vec![("share", share), ("alone again", after)],
                        }
                    }),
                });
            }
        }
    }
}

// --- 3.6: paths.

fn change(at_s: f64, rate_mbps: Option<f64>, delay_ms: Option<f64>) -> Change {
    Change {
        at_s,
        rate_mbps,
        delay_ms,
        ..Change::default()
    }
}

/// A trace in a file of its own, for this process.
fn written(name: &str, millis: impl Iterator<Item = u64>) -> String {
    let path = std::env::temp_dir().join(format!("forward-study-{}-{name}", std::process::id()));
    Trace::from_millis(name, millis)
        .and_then(|trace| trace.write(&path))
        .unwrap_or_else(|error| panic!("{error}"));
    path.to_str().expect("a path is text").to_owned()
}

/// Propagation that is drawn anew each millisecond, ms; packets keep their order.
fn jitter(scenario: &mut Scenario, mut drawn: impl FnMut(&mut ChaCha8Rng) -> f64) {
    let mut rng = random::stream(scenario.seed, "jitter", 0);
    let least = scenario.delay_ms;
    scenario.changes = (1..(scenario.duration_s * 1e3) as u64)
        .map(|ms| change(ms as f64 / 1e3, None, Some(least + drawn(&mut rng))))
        .collect();
}

/// The Wi-Fi jitter of C4's simulator, ms; its parameter says how much of the time is bad.
fn wifi(bad: f64) -> impl FnMut(&mut ChaCha8Rng) -> f64 {
    let poisson = |mean| Poisson::new(mean).expect("a mean");
    let (good, slow) = (poisson(1.0), poisson(12.0));
    move |rng| {
        let steps: f64 = rng.sample(good);
        let mut ms = if steps >= 1.0 {
            steps - rng.random::<f64>()
        } else {
            0.0
        };
        if rng.random_bool((bad - 1.0) / 84.0) {
            let steps: f64 = rng.sample(slow);
            ms += 7.5 * steps;
            ms -= if steps > 1.0 {
                7.5 * rng.random::<f64>()
            } else {
                0.0
            };
        }
        ms
    }
}

/// A cell that schedules each 2.5 ms and repeats what failed after 8 ms: a tenth once, a hundredth twice.
fn cell(rng: &mut ChaCha8Rng) -> f64 {
    let repeated = match rng.random::<f64>() {
        p if p < 0.01 => 16.0,
        p if p < 0.1 => 8.0,
        _ => 0.0,
    };
    repeated + 2.5 * rng.random::<f64>()
}

fn table_jitter(options: &Options, rows: &mut Vec<Row>) {
    type Model = Box<dyn Fn(&mut Scenario)>;
    let models: [(&str, f64, Model); 3] = [
        ("Wi-Fi, good", 10.0, Box::new(|run| jitter(run, wifi(1.0)))),
        (
            "Wi-Fi, 7 % bad",
            10.0,
            Box::new(|run| jitter(run, wifi(7.0))),
        ),
        ("5G", 20.0, Box::new(|run| jitter(run, cell))),
    ];
    for (name, delay_ms, model) in models {
        for mbps in [10.0, 50.0] {
            let scenarios = [&options.scheme, "cubic"].map(|scheme| {
                let mut scenario = base(
                    &format!("rate:{mbps}"),
                    &buffer(mbps, 4.0),
                    30.0,
                    flows(scheme, 1, 0.0),
                );
                (scenario.delay_ms, scenario.seed) = (delay_ms, options.seeds.0[0]);
                model(&mut scenario);
                scenario
            });
            rows.push(Row {
                table: "jitter",
                group: String::new(),
                name: format!("{name}, {mbps} Mbit/s"),
                scenarios: scenarios.into(),
                judge: Box::new(|runs| {
                    let used = runs[0].used(3.0, 30.0);
                    Line {
                        holds: Some(used >= 95.0),
                        text: format!(
                            "used {used:.1} % delay {:.0} ms loss {:.2} %; Cubic {:.1} % {:.0} ms",
                            runs[0].delay(3.0, 30.0),
                            runs[0].loss,
                            runs[1].used(3.0, 30.0),
                            runs[1].delay(3.0, 30.0),
                        ),
                        values: vec![("used", used)],
                    }
                }),
            });
        }
    }
}

/// Sources that run dry: files, each a connection of its own, alone and beside a bulk flow of the same kind.
fn table_files(options: &Options, rows: &mut Vec<Row>) {
    for beside in [false, true] {
        for bytes in [30_000u64, 300_000, 3_000_000] {
            for mbps in [5.0, 20.0, 100.0] {
                let scenarios = [&options.scheme, "cubic"].map(|scheme| {
                    let mut flows = vec![FlowSpec {
                        traffic: Some(format!("files:bytes={bytes},gap_s=0.5")),
                        ..FlowSpec::new(scheme)
                    }];
                    if beside {
                        flows.push(FlowSpec::new(scheme));
                    }
                    base(&format!("rate:{mbps}"), &buffer(mbps, 4.0), 60.0, flows)
                });
                rows.push(Row {
                    table: "files",
                    group: if beside {
                        "beside a bulk flow"
                    } else {
                        "alone"
                    }
                    .to_owned(),
                    name: format!("{} kB at {mbps} Mbit/s", bytes / 1000),
                    scenarios: scenarios.into(),
                    judge: Box::new(|runs| {
                        let (ours, cubic) = (runs[0].file_s, runs[1].file_s);
                        Line {
                            holds: Some(ours <= 1.1 * cubic),
                            text: format!(
                                "{} files, {ours:.3} s each; Cubic {}, {cubic:.3} s: {:.2} times",
                                runs[0].files,
                                runs[1].files,
                                ours / cubic
                            ),
                            values: vec![("time over Cubic's", ours / cubic)],
                        }
                    }),
                });
            }
        }
    }
}

fn table_paths(options: &Options, rows: &mut Vec<Row>) {
    let rates: &[f64] = if options.quick {
        &[5.0, 50.0]
    } else {
        &[5.0, 50.0, 500.0]
    };
    for &mbps in rates {
        for (name, before, after) in [("+50 ms", 20.0, 45.0), ("-50 ms", 45.0, 20.0)] {
            for count in [1usize, 4] {
                let mut scenario = base(
                    &format!("rate:{mbps}"),
                    RED,
                    22.0,
                    flows(&options.scheme, count, 0.0),
                );
                scenario.delay_ms = before;
                scenario.changes = vec![change(12.0, None, Some(after))];
                rows.push(Row {
                    table: "paths",
                    group: format!("round trip {name}"),
                    name: format!("{mbps} Mbit/s, {count} flows"),
                    scenarios: vec![scenario],
                    judge: Box::new(move |runs| {
                        let run = &runs[0];
                        let used = run.used(15.0, 17.0);
                        let later = run.used(17.0, 22.0);
                        let base = span(&run.base_ms, 16.8, 17.1);
                        let believed = base.last().copied().unwrap_or(f64::NAN);
                        let near = (believed - 2.0 * after).abs() <= 5.0;
                        Line {
                            holds: Some(used >= 95.0 && near),
                            text: format!(
                                "used {used:5.1} % from 3 s on, {later:5.1} % from 5 s on, D_min {believed:5.1} ms after 5 s{}, delay {:.0} ms",
                                if near { "" } else { " !" },
                                run.delay(17.0, 22.0)
                            ),
                            values: vec![("used", used)],
                        }
                    }),
                });
            }
        }
    }
    for outage in [0.1, 0.3, 1.0, 3.0, 10.0] {
        let mut scenario = base(
            "rate:20",
            RED,
            24.0 + outage,
            flows(&options.scheme, 1, 0.0),
        );
        scenario.changes = vec![
            change(10.0, Some(0.0), None),
            change(10.0 + outage, Some(20.0), None),
        ];
        rows.push(Row {
            table: "paths",
            group: "outage at 20 Mbit/s".to_owned(),
            name: format!("{outage} s"),
            scenarios: vec![scenario],
            judge: Box::new(move |runs| {
                let run = &runs[0];
                let back = 10.0 + outage;
                let (first, second) = (run.used(back, back + 1.0), run.used(back + 1.0, back + 2.0));
                let (before, after) = (run.delay(5.0, 10.0), run.delay(back + 2.0, back + 4.0));
                let normal = after <= before * 1.5 + 5.0;
                Line {
                    holds: Some(first > 5.0 && normal && run.loss < 1.0),
                    text: format!(
                        "used {first:.0} % in the first second, {second:.0} in the second, {:.0} from 2 s on; delay {before:.0} ms before, {after:.0} from 2 s on; loss {:.2} %",
                        run.used(back + 2.0, back + 10.0),
                        run.loss
                    ),
                    values: vec![("used", run.used(back, back + 4.0))],
                }
            }),
        });
    }
    for loss in [0.001, 0.01, 0.03] {
        for mbps in [5.0, 20.0, 100.0] {
            let scenarios = options
                .seeds
                .0
                .iter()
                .map(|&seed| Scenario {
                    seed,
                    loss,
                    ..base(
                        &format!("rate:{mbps}"),
                        RED,
                        30.0,
                        flows(&options.scheme, 1, 0.0),
                    )
                })
                .collect();
            let least = if loss > 0.02 { 90.0 } else { 95.0 };
            rows.push(Row {
                table: "paths",
                group: "chance loss".to_owned(),
                name: format!("{} % at {mbps} Mbit/s", loss * 100.0),
                scenarios,
                judge: Box::new(move |runs| {
                    let used = mean(
                        &runs
                            .iter()
                            .map(|run| run.used(3.0, 30.0))
                            .collect::<Vec<_>>(),
                    );
                    Line {
                        holds: Some(used >= least),
                        text: format!("used {used:.1} % delay {:.0} ms", runs[0].delay(3.0, 30.0)),
                        values: vec![("used", used)],
                    }
                }),
            });
        }
    }
    let bursts = |name: &str, every_ms: u64, each: usize| {
        let times = (1..=1200u64).flat_map(|n| std::iter::repeat_n(n * every_ms, each));
        written(name, times)
    };
    // 12 Mbit/s for the acknowledgements, but others' uploads have them wait 200 ms of 400.
    let busy = (1..=24_000u64).filter(|ms| ms % 400 < 200);
    let ways: [(&str, &str, String, u32, f64); 9] = [
        (
            "ACKs every 20 ms",
            "rate:20",
            bursts("acks", 20, 200),
            1,
            20.0,
        ),
        ("one ACK in ten", "rate:20", "ideal".to_owned(), 10, 20.0),
        (
            "ACKs over 0.4 Mbit/s",
            "rate:20",
            "rate:0.4".to_owned(),
            1,
            20.0,
        ),
        (
            "ACKs wait for others' uploads",
            "rate:20",
            written("busy", busy),
            1,
            20.0,
        ),
        (
            "grants every 5 ms, 24 Mbit/s",
            &bursts("grants", 5, 10),
            "ideal".to_owned(),
            1,
            20.0,
        ),
        (
            "grants every 20 ms, 6 Mbit/s",
            &bursts("slots", 20, 10),
            "ideal".to_owned(),
            1,
            20.0,
        ),
        ("round trip 200 ms", "rate:5", "ideal".to_owned(), 1, 100.0),
        ("round trip 200 ms", "rate:50", "ideal".to_owned(), 1, 100.0),
        ("0.5 Mbit/s", "rate:0.5", "ideal".to_owned(), 1, 20.0),
    ];
    for (name, trace, ack, ack_every, delay_ms) in ways {
        let scenario = Scenario {
            ack,
            ack_queue: RED.to_owned(),
            ack_every,
            delay_ms,
            ..base(trace, RED, 30.0, flows(&options.scheme, 1, 0.0))
        };
        rows.push(Row {
            table: "paths",
            group: "ways of a path".to_owned(),
            name: format!(
                "{name}{}",
                trace
                    .strip_prefix("rate:")
                    .map_or(String::new(), |r| format!(", {r} Mbit/s"))
            ),
            scenarios: vec![scenario],
            judge: Box::new(|runs| {
                let used = runs[0].used(3.0, 30.0);
                Line {
                    holds: Some(used >= 95.0),
                    text: format!("used {used:.1} % delay {:.0} ms", runs[0].delay(3.0, 30.0)),
                    values: vec![("used", used)],
                }
            }),
        });
    }
}

/// A live source of a given rate: video of 1.2 Mbit/s and a constant one of 2 Mbit/s, alone and beside a bulk flow of the
/// same kind; no later than with Cubic. Each is less than half of every channel.
fn table_video(options: &Options, rows: &mut Vec<Row>) {
    let sources = [
        ("video", "video"),
        ("constant", "video:bytes=2500,key_bytes=2500,fps=100"),
    ];
    let channels = [
        ("5 Mbit/s", "rate:5", buffer(5.0, 4.0)),
        ("20 Mbit/s", "rate:20", buffer(20.0, 4.0)),
        ("LTE, city", "city-driving-lte-down@7", RED.to_owned()),
    ];
    for beside in [false, true] {
        for (source, traffic) in sources {
            for (channel, trace, queue) in &channels {
                let scenarios = [&options.scheme, "verus:ratio=2", "cubic"].map(|scheme| {
                    let mut flows = vec![FlowSpec {
                        traffic: Some(traffic.to_owned()),
                        ..FlowSpec::new(scheme)
                    }];
                    if beside {
                        flows.push(FlowSpec::new(scheme));
                    }
                    base(trace, queue, 60.0, flows)
                });
                rows.push(Row {
                    table: "video",
                    group: if beside {
                        "beside a bulk flow"
                    } else {
                        "alone"
                    }
                    .to_owned(),
                    name: format!("{source}, {channel}"),
                    scenarios: scenarios.into(),
                    judge: Box::new(|runs| {
                        let text = |run: &Run| {
                            format!(
                                "{:.0} ms, p99 {:.0}, {} of {} late",
                                run.file_s * 1e3,
                                run.file_p99_s * 1e3,
                                run.late,
                                run.files.max(run.late)
                            )
                        };
                        let (ours, cubic) = (&runs[0], &runs[2]);
                        Line {
                            holds: Some(
                                ours.late <= cubic.late
                                    && ours.file_p99_s <= 1.1 * cubic.file_p99_s,
                            ),
                            text: format!(
                                "{}; Verus {}; Cubic {}",
                                text(ours),
                                text(&runs[1]),
                                text(cubic)
                            ),
                            values: vec![
                                ("p99 over Cubic's", ours.file_p99_s / cubic.file_p99_s),
                                ("late", ours.late as f64),
                            ],
                        }
                    }),
                });
            }
        }
    }
}

// --- The loop over rows.

/// Adds the rows of a table.
type Table = fn(&Options, &mut Vec<Row>);

const TABLES: [(&str, Table); 13] = [
    ("one", table_one),
    ("knob", table_knob),
    ("peers", table_peers),
    ("built-in", table_built_in),
    ("many", table_many),
    ("headline", table_headline),
    ("buffers", table_buffers),
    ("marks", table_marks),
    ("company", table_company),
    ("paths", table_paths),
    ("jitter", table_jitter),
    ("files", table_files),
    ("video", table_video),
];

fn main() {
    let mut options = Options::parse();
    let threads = rayon::ThreadPoolBuilder::new().num_threads(options.threads);
    threads.build_global().expect("no other pool");
    if !options.parts {
        return study(&options);
    }
    // The ablation: everything, then without each part.
    options.brief = true;
    study(&options);
    for (part, _) in Part::ALL {
        options.scheme = format!("forward:without={part}");
        study(&options);
    }
}

/// How many rows of a group hold, of how many, and their values by name.
#[derive(Default)]
struct Tally {
    held: usize,
    all: usize,
    values: Vec<(&'static str, Vec<f64>)>,
}

/// Runs the tables with one scheme and prints them.
fn study(options: &Options) {
    let mut rows = Vec::new();
    for (name, table) in TABLES {
        if options.tables.iter().any(|wanted| wanted == name) {
            table(options, &mut rows);
        }
    }
    let rank = |row: &Row| options.tables.iter().position(|table| table == row.table);
    rows.sort_by(|a, b| (rank(a), &a.group).cmp(&(rank(b), &b.group)));
    let runs: Vec<Vec<Run>> = rows
        .par_iter()
        .map(|row| {
            let run = |scenario| {
                let outcome = verus_sim::run(scenario, &mut |_| true);
                reduce(outcome.unwrap_or_else(|error| panic!("{}: {error}", row.name)))
            };
            row.scenarios.par_iter().map(run).collect()
        })
        .collect();
    let mut heading = String::new();
    let mut summary: BTreeMap<String, Tally> = BTreeMap::new();
    println!("scheme {}", options.scheme);
    for (row, runs) in rows.iter().zip(&runs) {
        let line = (row.judge)(runs);
        let here = format!("{} {}", row.table, row.group);
        if here != heading && !options.brief {
            println!("\n{here}");
        }
        heading.clone_from(&here);
        if !options.brief {
            let holds = match line.holds {
                Some(true) => "holds",
                Some(false) => "FAILS",
                None => "",
            };
            println!("  {holds} {:40} {}", row.name, line.text);
        }
        let sums = summary.entry(here).or_default();
        sums.held += usize::from(line.holds == Some(true));
        sums.all += 1;
        for (name, value) in line.values {
            match sums.values.iter_mut().find(|known| known.0 == name) {
                Some(known) => known.1.push(value),
                None => sums.values.push((name, vec![value])),
            }
        }
    }
    println!("\nin sum");
    for (name, Tally { held, all, values }) in summary {
        let values: Vec<String> = values
            .iter()
            .map(|(name, values)| format!("{name} {:.3}", mean(values)))
            .collect();
        println!("  {held:3} of {all:3} {name:32} {}", values.join(", "));
    }
}
