//! A model for the model-driven controller, which has no default.

use verus_model::{About, Sample, Trainer};

/// The file of a model that was taught to send one packet an epoch whatever the delay, now and then none or two.
///
/// # Panics
/// Never: there is enough to learn from.
pub fn model() -> Vec<u8> {
    let mut trainer = Trainer::new();
    for delay_ms in 1..=1000 {
        let run: Vec<Sample> = [1, 0, 1, 2, 1, 1]
            .iter()
            .cycle()
            .take(24)
            .map(|&packets| Sample { delay_ms, packets })
            .collect();
        trainer.add(&run).expect("few transitions");
    }
    let about = About {
        scheme: "a list".to_owned(),
        packet_bytes: 1500,
        percentile: 100.0,
        ..About::default()
    };
    let model = trainer.finish(1000, 100.0, about).expect("a model");
    model.to_bytes()
}
