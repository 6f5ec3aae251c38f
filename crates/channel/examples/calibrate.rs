//! Compares a recording with a synthetic channel, and fits a channel to a recording.
//!
//! ```sh
//! cargo run --release -p verus-channel --example calibrate -- TRACE CHANNEL       # side by side
//! cargo run --release -p verus-channel --example calibrate -- TRACE --fit 0.2 1   # new parameters
//! ```
//!
//! The number after `--fit` is the elasticity: the slope of ln(mean burst) on ln(rate) over the
//! recording's seconds, which is printed. The fit minimises the squared differences listed in
//! `difference`, each divided by what would be a good match, with the Nelder–Mead method from the
//! best of many random starts. Every evaluation uses the same seeds, so the result repeats. It ends
//! by printing the parameters as cells for `generate/fits.tsv`. (Four rows there, the authors'
//! city recordings, campus uplink and AT&T's, come from a run with a longer second stage.)

use std::path::Path;
use std::process::ExitCode;

use rand::Rng;
use verus_channel::Trace;
use verus_channel::generate::{self, Model, OPPORTUNITY, Radio, Scheduler, Swing};
use verus_channel::statistics::Statistics;
use verus_core::{Duration, random};

/// A stage of the search; each starts where the one before ended. Generated time comes in pieces as
/// long as the recording, so that both autocorrelations have the bias of a short recording.
struct Stage {
    /// Generated time per evaluation.
    seconds: f64,
    steps: usize,
    /// How far the first simplex reaches, in logarithms.
    reach: f64,
}

const STAGES: [Stage; 2] = [
    Stage {
        seconds: 600.0,
        steps: 320,
        reach: 0.35,
    },
    Stage {
        seconds: 1600.0,
        steps: 100,
        reach: 0.12,
    },
];
/// Random points to choose the search's start from, and generated seconds for each.
const START: (u64, f64) = (200, 300.0);
/// Seeds of the fit. The comparison uses others.
const FIT_SEED: u64 = 1000;
const CHECK_SEED: u64 = 1;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        [trace, "--fit", elasticity, tti] => match (elasticity.parse(), tti.parse()) {
            (Ok(elasticity), Ok(tti)) => read(trace).map(|r| fit(trace, &r, elasticity, tti)),
            _ => Err(format!(
                "`{elasticity} {tti}` is not an elasticity and a whole number of milliseconds"
            )),
        },
        [trace, channel] => match generate::describe(channel) {
            Some(channel) => read(trace).map(|r| compare(&r, &channel.model)),
            None => Err(format!("no built-in channel is called `{channel}`")),
        },
        _ => Err("usage: calibrate TRACE {CHANNEL | --fit ELASTICITY TTI_MS}".to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

struct Recording {
    statistics: Statistics,
    elasticity: f64,
}

fn read(path: &str) -> Result<Recording, String> {
    let trace = Trace::read(Path::new(path)).map_err(|e| e.to_string())?;
    let statistics = Statistics::of(trace.opportunities(), OPPORTUNITY)
        .ok_or_else(|| format!("trace `{path}`: no duration"))?;
    Ok(Recording {
        statistics,
        elasticity: elasticity(trace.opportunities()),
    })
}

/// Slope of ln(mean burst) on ln(rate) over seconds with more than five delivering milliseconds.
fn elasticity(times: impl Iterator<Item = u64>) -> f64 {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let (mut second, mut packets, mut delivering, mut last) = (0, 0.0f64, 0.0f64, None);
    for time in times {
        if time / 1000 != second {
            if delivering > 5.0 {
                points.push((packets.ln(), (packets / delivering).ln()));
            }
            (second, packets, delivering) = (time / 1000, 0.0, 0.0);
        }
        packets += 1.0;
        if last != Some(time) {
            delivering += 1.0;
        }
        last = Some(time);
    }
    let n = points.len() as f64;
    let (mx, my) = points
        .iter()
        .fold((0.0, 0.0), |(x, y), p| (x + p.0 / n, y + p.1 / n));
    let covariance: f64 = points.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum();
    covariance / points.iter().map(|p| (p.0 - mx) * (p.0 - mx)).sum::<f64>()
}

/// Statistics of pieces as long as the recording, from successive seeds.
fn generated(model: &Model, duration_s: f64, seconds: f64, seed: u64) -> Vec<Statistics> {
    let pieces = (seconds / duration_s).ceil().max(3.0) as u64;
    (0..pieces)
        .filter_map(|i| {
            let times = model.generate(seed + i, 0, Duration::from_secs_f64(duration_s));
            Statistics::of(times, OPPORTUNITY)
        })
        .collect()
}

/// Name, value and what would be a good match: relative if negative, else absolute. The mean rate is
/// a parameter, not a target.
fn quantities(s: &Statistics) -> Vec<(&'static str, f64, f64)> {
    let cv = |width| s.bin(width).cv.unwrap_or(0.0);
    let acf = |width, k: usize| s.bin(width).acf[k].unwrap_or(0.0);
    let gap = s.gap_ms.expect("a recording has gaps");
    vec![
        ("mean Mbit/s", s.mean_mbps, f64::INFINITY),
        ("cv 20 ms", cv(20), -0.04),
        ("cv 100 ms", cv(100), -0.04),
        ("cv 1 s", cv(1000), -0.04),
        ("acf 20 ms lag 1", acf(20, 0), 0.06),
        ("acf 20 ms lag 10", acf(20, 2), 0.08),
        ("acf 100 ms lag 1", acf(100, 0), 0.03),
        ("acf 100 ms lag 5", acf(100, 1), 0.03),
        ("acf 100 ms lag 10", acf(100, 2), 0.08),
        ("acf 100 ms lag 50", acf(100, 3), 0.03),
        ("acf 1 s lag 10", acf(1000, 2), 0.15),
        ("sd ln 1 s", s.sd_ln_1s.unwrap_or(0.0), -0.25),
        (
            "outages/min",
            s.outages[0].per_minute,
            0.1 + 0.05 * s.outages[0].per_minute,
        ),
        (
            ">= 200 ms /min",
            s.outages[1].per_minute,
            0.2 + 0.15 * s.outages[1].per_minute,
        ),
        (
            ">= 500 ms /min",
            s.outages[2].per_minute,
            0.2 + 0.15 * s.outages[2].per_minute,
        ),
        (
            ">= 1 s /min",
            s.outages[3].per_minute,
            0.2 + 0.2 * s.outages[3].per_minute,
        ),
        (
            "outage time share",
            s.outage_time_share,
            0.004 + 0.15 * s.outage_time_share,
        ),
        ("ms delivering", s.share_of_ms_delivering, -0.08),
        ("burst mean B", s.burst_bytes.mean, -0.08),
        ("burst p99 B", s.burst_bytes.p99 as f64, -0.3),
        ("gap p50 ms", gap.p50 as f64, 0.5 + 0.2 * gap.p50 as f64),
        ("gap p90 ms", gap.p90 as f64, 1.0 + 0.2 * gap.p90 as f64),
        ("gap p99 ms", gap.p99 as f64, 1.0 + 0.25 * gap.p99 as f64),
    ]
}

fn average(pieces: &[Statistics]) -> Vec<f64> {
    let mut sums = vec![0.0; quantities(&pieces[0]).len()];
    for piece in pieces {
        for (sum, quantity) in sums.iter_mut().zip(quantities(piece)) {
            *sum += quantity.1 / pieces.len() as f64;
        }
    }
    sums
}

fn difference(recorded: &[(&'static str, f64, f64)], generated: &[f64]) -> f64 {
    let square = |(&(_, wanted, scale), &got): (&(&str, f64, f64), &f64)| {
        let scale = if scale < 0.0 { -scale * wanted } else { scale };
        let distance = (got - wanted) / scale;
        distance * distance
    };
    recorded.iter().zip(generated).map(square).sum()
}

fn compare(recording: &Recording, model: &Model) {
    let s = &recording.statistics;
    let got = average(&generated(model, s.duration_s, 4000.0, CHECK_SEED));
    println!("elasticity recorded {:.2}", recording.elasticity);
    println!("{:20} {:>10} {:>10}", "", "recorded", "generated");
    for ((name, recorded, _), got) in quantities(s).iter().zip(got) {
        println!("{name:20} {recorded:10.3} {got:10.3}");
    }
}

fn fit(path: &str, recording: &Recording, elasticity: f64, tti: u64) {
    let s = &recording.statistics;
    let targets = quantities(s);
    let loss = |x: &[f64], seconds: f64| {
        let model = model_of(x, s, elasticity, tti);
        if !plausible(&model) {
            return 1e9;
        }
        difference(
            &targets,
            &average(&generated(&model, s.duration_s, seconds, FIT_SEED)),
        )
    };
    let burst = s.burst_bytes.mean / OPPORTUNITY.as_f64();
    // Lowest and highest of each parameter at the start, in the order of `model_of`.
    let ranges = [
        (0.05, 1.2),
        (50.0, 800.0),
        (0.1, 1.2),
        (1500.0, 6000.0),
        (0.1, 1.2),
        (10_000.0, 60_000.0),
        (0.1, 10.0),
        (0.4, 1.2),
        (0.4, 1.2),
        (0.6 * burst, 1.1 * burst),
        (0.2, 1.2),
        (0.3, 1.3),
        (0.05, 1.0),
        (4.0, 60.0),
    ];
    let mut best = (f64::INFINITY, Vec::new());
    let mut dice = random::stream(FIT_SEED, "calibrate", 0);
    for _ in 0..START.0 {
        let share = |dice: &mut dyn Rng| (dice.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let x: Vec<f64> = ranges
            .iter()
            .map(|(low, high): &(f64, f64)| low.ln() + (high / low).ln() * share(&mut dice))
            .collect();
        let difference = loss(&x, START.1);
        if difference < best.0 {
            best = (difference, x);
        }
    }
    eprintln!("start: difference {:.2}", best.0);
    for stage in STAGES {
        best = nelder_mead(
            &|x| loss(x, stage.seconds),
            best.1,
            stage.steps,
            stage.reach,
        );
        eprintln!("stage: difference {:.2}", best.0);
    }
    let model = rounded(model_of(&best.1, s, elasticity, tti));
    compare(recording, &model);
    println!("{path}: from mean_mbps on,");
    println!("{}", cells(&model));
}

/// The parameters as `generate/fits.tsv` has them.
fn cells(model: &Model) -> String {
    let (r, s) = (&model.radio, &model.scheduler);
    let swings = [r.fading, r.shadowing, r.coverage];
    let slow = swings.iter().flat_map(|swing| [swing.sd, swing.time_ms]);
    let fast = [
        s.tti_ms as f64,
        s.burst_packets,
        s.burst_spread,
        s.gap_spread,
        s.pause_share,
        s.pause_ms,
        s.elasticity,
    ];
    let values = [model.mean_mbps].into_iter().chain(slow).chain([r.snr]);
    let values = values
        .chain(r.outages_per_min)
        .chain([r.longest_outage_ms])
        .chain(fast);
    let cells: Vec<String> = values.map(|value| value.to_string()).collect();
    cells.join("\t")
}

/// Parameters from the logarithms that the search moves in.
fn model_of(x: &[f64], s: &Statistics, elasticity: f64, tti_ms: u64) -> Model {
    let v = |i: usize| x[i].exp();
    let per_min = s.outages.map(|o| o.per_minute);
    let first = per_min[0] * v(7);
    Model {
        mean_mbps: s.mean_mbps,
        radio: Radio {
            fading: Swing {
                sd: v(0),
                time_ms: v(1),
            },
            shadowing: Swing {
                sd: v(2),
                time_ms: v(3),
            },
            coverage: Swing {
                sd: v(4),
                time_ms: v(5),
            },
            snr: v(6),
            outages_per_min: [
                first,
                (per_min[1] * v(8)).min(first),
                (per_min[2] * v(8)).min(first),
                (per_min[3] * v(8)).min(first),
            ],
            longest_outage_ms: s.longest_outage_ms as f64,
        },
        scheduler: Scheduler {
            tti_ms,
            burst_packets: v(9),
            burst_spread: v(10),
            gap_spread: v(11),
            pause_share: v(12) / (1.0 + v(12)),
            pause_ms: v(13),
            elasticity,
        },
    }
}

/// Each process keeps to its own time scale, so that a reader finds what the name says.
fn plausible(model: &Model) -> bool {
    let r = &model.radio;
    (30.0..=1000.0).contains(&r.fading.time_ms)
        && (1000.0..=8000.0).contains(&r.shadowing.time_ms)
        && (8000.0..=90_000.0).contains(&r.coverage.time_ms)
        && [r.fading.sd, r.shadowing.sd, r.coverage.sd]
            .iter()
            .all(|&sd| (0.001..4.0).contains(&sd))
        && (0.02..=2000.0).contains(&r.snr)
        && (0.1..=40.0).contains(&model.scheduler.burst_packets)
        && model.scheduler.burst_spread < 1.6
        && model.scheduler.gap_spread < 2.0
        && model.scheduler.pause_share < 0.9
        && (2.0..=200.0).contains(&model.scheduler.pause_ms)
        && r.outages_per_min[0] <= 200.0
}

/// Three significant digits.
fn rounded(mut model: Model) -> Model {
    let (r, s) = (&mut model.radio, &mut model.scheduler);
    let swings = [&mut r.fading, &mut r.shadowing, &mut r.coverage];
    let swings = swings.into_iter().flat_map(|w| [&mut w.sd, &mut w.time_ms]);
    let rest = [
        &mut r.snr,
        &mut s.burst_packets,
        &mut s.burst_spread,
        &mut s.gap_spread,
        &mut s.pause_share,
    ];
    for value in swings
        .chain(rest)
        .chain([&mut s.pause_ms])
        .chain(&mut r.outages_per_min)
    {
        if *value != 0.0 {
            let digit = 10f64.powi(value.abs().log10().floor() as i32 - 2);
            *value = ((*value / digit).round() * digit * 1e9).round() / 1e9;
        }
    }
    model.mean_mbps = (model.mean_mbps * 1000.0).round() / 1000.0;
    model
}

/// Minimises `f` from `start` by the simplex method of Nelder and Mead (1965), with the
/// coefficients that Gao and Han (2012) give for many dimensions.
fn nelder_mead(
    f: &dyn Fn(&[f64]) -> f64,
    start: Vec<f64>,
    steps: usize,
    reach: f64,
) -> (f64, Vec<f64>) {
    let n = start.len();
    let dimensions = n as f64;
    let (expand, contract, shrink) = (
        1.0 + 2.0 / dimensions,
        0.75 - 0.5 / dimensions,
        1.0 - 1.0 / dimensions,
    );
    let mut simplex = vec![(f(&start), start.clone())];
    for i in 0..n {
        let mut corner = start.clone();
        corner[i] += reach;
        simplex.push((f(&corner), corner));
    }
    for _ in 0..steps {
        simplex.sort_by(|a, b| a.0.total_cmp(&b.0));
        let centre: Vec<f64> = (0..n)
            .map(|i| simplex[..n].iter().map(|p| p.1[i]).sum::<f64>() / dimensions)
            .collect();
        let worst = simplex[n].clone();
        let along = |t: f64| -> (f64, Vec<f64>) {
            let x: Vec<f64> = centre
                .iter()
                .zip(&worst.1)
                .map(|(c, w)| c + t * (c - w))
                .collect();
            (f(&x), x)
        };
        let reflected = along(1.0);
        if reflected.0 < simplex[0].0 {
            let further = along(expand);
            simplex[n] = if further.0 < reflected.0 {
                further
            } else {
                reflected
            };
        } else if reflected.0 < simplex[n - 1].0 {
            simplex[n] = reflected;
        } else {
            let nearer = along(if reflected.0 < worst.0 {
                contract
            } else {
                -contract
            });
            if nearer.0 < worst.0.min(reflected.0) {
                simplex[n] = nearer;
            } else {
                let best = simplex[0].1.clone();
                for point in &mut simplex[1..] {
                    for (x, b) in point.1.iter_mut().zip(&best) {
                        *x = b + shrink * (*x - b);
                    }
                    point.0 = f(&point.1);
                }
            }
        }
    }
    simplex.sort_by(|a, b| a.0.total_cmp(&b.0));
    simplex.swap_remove(0)
}
