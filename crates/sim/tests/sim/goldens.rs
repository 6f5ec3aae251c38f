//! Every packet of Verus in its modes, and of every other algorithm beside it, pinned by a digest a run.
//!
//! A refactoring of a controller must not move a packet, and one of the simulator must not change
//! any output of a run. `goldens.tsv` has a line for each run: scenario, scheme, packets, and a
//! digest. The digest is that of their records or (`observed`) of metrics, series, snapshots,
//! connections and epochs. `goldens.json` has the scenarios; in a line of the table, `SCHEME` stands
//! for the scheme of that line, and `FOLDER` for the folder of the files that this test writes. All
//! channels are built in or constant, so that the table is the same on every machine.
//!
//! If a packet is *meant* to move, `VERUS_GOLDENS=write cargo test -p verus-sim --test sim goldens`
//! rewrites the table; the change then shows the moved runs by name. To add a run, add a line with
//! its scenario and scheme, and do the same.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use crate::common::{run, run_all, single};
use verus_core::Phase;
use verus_model::{About, Trainer};
use verus_sim::{FlowOutcome, Outcome, Scenario};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sim/goldens.tsv");
const FOLDER: &str = env!("CARGO_TARGET_TMPDIR");

/// The scenario and the scheme that a line of the table begins with.
fn name_and_scheme(line: &str) -> (&str, &str) {
    let mut fields = line.split('\t');
    let name = fields.next().expect("split yields at least one");
    (
        name,
        fields.next().unwrap_or_else(|| panic!("no scheme: {line}")),
    )
}

/// The runs that the lines of the table name.
///
/// # Panics
/// If a line names no scenario, or no line names a scenario.
fn runs<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Scenario> {
    let scenarios: BTreeMap<String, Value> =
        serde_json::from_str(include_str!("goldens.json")).expect("an object of scenarios");
    write_delays();
    write_losses();
    write_light_trace();
    write_sizes();
    let model = format!("model:file={}", trained());
    let mut unused = scenarios.clone();
    let runs = lines.map(name_and_scheme).map(|(name, scheme)| {
        let observed = name.strip_suffix(", observed");
        let name = observed.unwrap_or(name);
        let scenario = scenarios
            .get(name)
            .unwrap_or_else(|| panic!("no scenario is called `{name}`"));
        unused.remove(name);
        let scheme = if scheme == "model" { &model } else { scheme };
        let text = scenario
            .to_string()
            .replace("SCHEME", scheme)
            .replace("FOLDER", FOLDER);
        let scenario: Scenario =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        Scenario {
            records: true,
            series: observed.is_some(),
            epochs: observed.is_some(),
            ..scenario
        }
    });
    let runs = runs.collect();
    assert!(unused.is_empty(), "without a run: {:?}", unused.keys());
    runs
}

/// Writes a series of delays: half a second at 30 to 39 ms, and then as long at 20 ms.
fn write_delays() {
    let lines = (0..100).map(|line| if line < 50 { 30 + line % 10 } else { 20 });
    let text: String = lines.map(|ms| format!("{ms}\n")).collect();
    let path = format!("{FOLDER}/golden-delays");
    std::fs::write(path, text).expect("the series can be written");
}

/// Writes a series of losses: half of the packets in the last 10 ms of each second, and none before.
fn write_losses() {
    let text = format!("{}0.5\n", "0\n".repeat(99));
    std::fs::write(format!("{FOLDER}/golden-losses"), text).expect("the series can be written");
}

/// Writes a light trace: trains of one to six packets each 100 ms, with delays from 15 to 44 ms.
fn write_light_trace() {
    let lines = (0..40).map(|line| {
        let offsets: String = (1..=line % 6)
            .map(|packet| format!(" {}", packet * packet))
            .collect();
        format!("{} {} 0{offsets}\n", 100 * line, 15 + line * 7 % 30)
    });
    let path = format!("{FOLDER}/golden-light");
    std::fs::write(path, lines.collect::<String>()).expect("the trace can be written");
}

/// Writes offsets by size: 0.3 ms for each 100 bytes.
fn write_sizes() {
    let lines = (1..=14).map(|step| format!("{} {}\n", 100 * step, f64::from(step) * 0.3));
    let path = format!("{FOLDER}/golden-sizes");
    std::fs::write(path, lines.collect::<String>()).expect("the offsets can be written");
}

/// The path of a model's file, made of one flow's epochs.
fn trained() -> String {
    let queue = "red:min=375000,max=1125000,p=0.1";
    let outcome = run(&Scenario {
        epochs: true,
        ..single("city-driving-3g-up@5", queue, "verus:ratio=2", 30.0)
    });
    let mut trainer = Trainer::new();
    for sampler in outcome.flows.iter().filter_map(|flow| flow.epochs.as_ref()) {
        for run in sampler.runs() {
            trainer.add(run).expect("few enough");
        }
    }
    let model = trainer.finish(1, 99.0, About::default()).expect("samples");
    let path = format!("{FOLDER}/golden.model");
    std::fs::write(&path, model.to_bytes()).expect("the model can be written");
    path
}

/// A flow's columns and samples, with its phase in the form of the first version of the table: a
/// number, after the columns that all controllers have.
fn with_phases_as_numbers(flow: &FlowOutcome) -> (Vec<&'static str>, Vec<Vec<f64>>) {
    let (mut columns, mut samples) = (flow.columns.clone(), flow.samples.clone());
    if !flow.phases.is_empty() {
        let number = |phase: &Option<Phase>| match phase {
            None => f64::NAN,
            Some(Phase::SlowStart) => 0.0,
            Some(Phase::Steady) => 1.0,
            Some(Phase::Recovery | Phase::Drain) => 2.0,
            Some(Phase::Silent) => 3.0,
        };
        columns.insert(2, "phase");
        samples.insert(2, flow.phases.iter().map(number).collect());
    }
    (columns, samples)
}

/// The number of packets sent, and the first half of the digest of the whole outcome without its
/// packets.
fn digest_observed(outcome: &Outcome) -> String {
    // The least and the most that a flow got, which are of `per_flow`, were not told when the table was first written.
    let metrics = format!("{:?}", outcome.metrics);
    let (before, after) = metrics
        .split_once(", flow_min_mbps: ")
        .expect("one of its fields");
    let (_, after) = after
        .split_once(", completions: ")
        .expect("the next but one");
    let mut text = format!(
        "{before}, completions: {after} {:?} {:?} {:?} {} {} {}",
        outcome.connections,
        outcome.capacity_mbps,
        outcome.bin_ms,
        outcome.totals.network_bytes,
        outcome.totals.peak_network_bytes,
        outcome.totals.peak_window_bytes,
    );
    for flow in &outcome.flows {
        let epochs = flow.epochs.as_ref().expect("asked for");
        let epochs: Vec<_> = epochs.runs().collect();
        let (columns, samples) = with_phases_as_numbers(flow);
        let parts = (columns, samples, &flow.profiles, &flow.counters);
        let mut parts = format!("{parts:?}");
        if flow.counters.marked == 0 {
            // The form of the first version of the table.
            parts = parts.replace(", marked: 0 }", " }");
        }
        write!(text, "{parts} {epochs:?}").expect("strings take all");
    }
    let sent: u64 = outcome.flows.iter().map(|flow| flow.counters.sent).sum();
    let text = blake3::hash(text.as_bytes()).to_hex();
    format!("{sent}\t{}", &text[..32])
}

/// Packets of a run, and the first half of the digest of all that is recorded of them.
fn digest(outcome: &Outcome) -> String {
    let records = outcome.records.as_ref().expect("asked for");
    let mut hash = blake3::Hasher::new();
    for at in 0..records.len() {
        hash.update(&records.flow[at].to_le_bytes());
        hash.update(&records.connection[at].to_le_bytes());
        hash.update(&records.number[at].to_le_bytes());
        hash.update(&records.size_bytes[at].to_le_bytes());
        hash.update(&[u8::from(records.retransmission[at])]);
        hash.update(&records.new_bytes[at].to_le_bytes());
        for column in [
            &records.window_bytes,
            &records.sent_ms,
            &records.departed_ms,
            &records.received_ms,
            &records.acked_ms,
            &records.dropped_ms,
        ] {
            // One pattern for whatever never happened: not-a-numbers have many.
            let value = column[at];
            let bits = if value.is_nan() {
                u64::MAX
            } else {
                value.to_bits()
            };
            hash.update(&bits.to_le_bytes());
        }
    }
    let text = hash.finalize().to_hex();
    format!("{}\t{}", records.len(), &text[..32])
}

#[test]
fn no_packet_moves() {
    let golden = std::fs::read_to_string(TABLE).expect("the table is committed");
    // Runs that sample epochs are pinned by their observations.
    let digests = run_all(&runs(golden.lines().skip(1)), |outcome| {
        match outcome.flows[0].epochs {
            Some(_) => digest_observed(&outcome),
            None => digest(&outcome),
        }
    });
    let mut table = String::from("scenario\tscheme\tpackets\tdigest\n");
    for (line, digest) in golden.lines().skip(1).zip(&digests) {
        let (name, scheme) = name_and_scheme(line);
        writeln!(table, "{name}\t{scheme}\t{digest}").expect("strings take all");
    }
    if std::env::var("VERUS_GOLDENS").as_deref() == Ok("write") {
        std::fs::write(TABLE, &table).expect("the table can be written");
        return;
    }
    let moved: Vec<String> = table
        .lines()
        .zip(golden.lines())
        .filter(|(now, then)| now != then)
        .map(|(now, then)| format!("now  {now}\nthen {then}"))
        .collect();
    assert!(moved.is_empty(), "packets moved:\n{}", moved.join("\n"));
}
