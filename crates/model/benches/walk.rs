//! One step of the guided random walk on a matrix of the paper's size: 12,744 states at 2 ms
//! (Table 2), as many samples as its model of four users. The promise: at most 200 ns a step.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use rand::RngExt;
use verus_core::{Duration, random};
use verus_model::{About, Sample, Trainer, Walk, WalkKind};

const SAMPLES: usize = 920_000;
const STEPS: u32 = 2_000_000;

/// Delays that wander over the paper's range, windows that shrink as they grow.
fn samples(seed: u64, count: usize) -> Vec<Sample> {
    let mut random = random::stream(seed, "bench", 0);
    let mut delay = 60.0;
    (0..count)
        .map(|at| {
            let step: f64 = random.random_range(-8.0..8.0);
            delay = (delay + step + (90.0 - delay) * 0.004).clamp(20.0, 727.0);
            if random.random_range(0..5000) == 0 {
                delay = random.random_range(20.0..727.0);
            }
            let max_packets = (35.0 * 60.0 / delay).clamp(2.0, 35.0) as u32;
            let packets = random.random_range(0..=max_packets)
                * random.random_range(0..=max_packets)
                / max_packets;
            match at {
                0 => Sample {
                    delay_ms: 20,
                    packets: 0,
                },
                1 => Sample {
                    delay_ms: 727,
                    packets: 35,
                },
                _ => Sample {
                    delay_ms: delay as u32,
                    packets,
                },
            }
        })
        .collect()
}

#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a bench reads the clock"
)]
fn main() {
    let mut trainer = Trainer::new();
    trainer.add(&samples(1, SAMPLES)).expect("they fit");
    let model = trainer.finish(2, 100.0, About::default()).expect("a model");
    let model = Arc::new(model);
    let matrix = model.matrix();
    println!(
        "{} states, {} elements, {} bytes as a file",
        matrix.grid().states(),
        matrix.len(),
        model.to_bytes().len()
    );
    let states = samples(2, STEPS as usize);
    for kind in [WalkKind::Paper, WalkKind::Sampled] {
        let mut walk = Walk::new(Arc::clone(&model), kind, 1);
        let begin = Instant::now();
        let mut sent = 0;
        for sample in &states {
            let delay = Duration::from_millis(u64::from(sample.delay_ms));
            sent = black_box(walk.step(black_box(delay), sent));
        }
        let took = begin.elapsed().as_nanos() as f64 / f64::from(STEPS);
        println!(
            "{kind:?} walk: {took:.0} ns a step ({:.1} % with the origin lowered, {:.1} % off its row)",
            100.0 * walk.lowered() as f64 / walk.steps() as f64,
            100.0 * walk.off_row() as f64 / walk.steps() as f64,
        );
    }
}
