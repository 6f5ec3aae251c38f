//! Every packet of Verus in its modes, and of the published algorithms beside it, pinned by a digest a scenario.
//!
//! A refactoring of a controller must not move a packet. `goldens.tsv` has a line a run: scenario, scheme, packets, and
//! the digest of their records. All channels are built in or constant, so that the table is the same wherever the tests
//! run. Where a packet is *meant* to move, `VERUS_GOLDENS=write cargo test -p verus-sim --test goldens` writes the table
//! anew; the change then shows what moved, by name.

mod common;

use std::fmt::Write as _;
use std::path::Path;

use common::{run_all, sending, starting};
use verus_sim::{Change, FlowSpec, Outcome, Scenario};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/goldens.tsv");
const PAPER_RED: &str = "red:min=375000,max=1125000,p=0.1";

/// A run of `duration_s` with records, of flows whose scheme is filled in later.
fn on(trace: &str, queue: &str, duration_s: f64) -> Scenario {
    Scenario {
        trace: trace.to_owned(),
        queue: queue.to_owned(),
        duration_s,
        records: true,
        series: false,
        flows: vec![FlowSpec::new("")],
        ..Default::default()
    }
}

fn rate(at_s: f64, rate_mbps: f64) -> Change {
    Change {
        at_s,
        rate_mbps: Some(rate_mbps),
        delay_ms: None,
        loss: None,
    }
}

/// The scenarios that every mode of Verus is held to.
fn scenarios() -> Vec<(&'static str, Scenario)> {
    let two_users = ["on-off:off_s=3,begin=on", "c.r1002:reading_s=4"].map(|traffic| FlowSpec {
        traffic: Some(traffic.to_owned()),
        ..FlowSpec::new("")
    });
    vec![
        ("city 3G", on("city-driving-3g-up@1", PAPER_RED, 30.0)),
        (
            "highway LTE",
            on("highway-driving-lte-down@1", "infinite", 30.0),
        ),
        (
            "pedestrian over its own way back",
            Scenario {
                ack: "same".to_owned(),
                ..on("campus-pedestrian-3g-up@1", PAPER_RED, 30.0)
            },
        ),
        (
            "constant, shallow",
            on("rate:10", "droptail:bytes=50000", 20.0),
        ),
        (
            "random loss",
            Scenario {
                loss: 0.01,
                ..on("rate:10", PAPER_RED, 20.0)
            },
        ),
        (
            "outages",
            Scenario {
                changes: vec![
                    rate(4.0, 0.0),
                    rate(4.5, 8.0),
                    rate(9.0, 0.0),
                    rate(13.0, 8.0),
                ],
                ..on("rate:8", PAPER_RED, 20.0)
            },
        ),
        (
            "rate and path change",
            Scenario {
                changes: vec![
                    rate(4.0, 2.0),
                    Change {
                        at_s: 8.0,
                        rate_mbps: Some(20.0),
                        delay_ms: Some(45.0),
                        loss: None,
                    },
                ],
                ..on("rate:10", PAPER_RED, 20.0)
            },
        ),
        (
            "users on and off",
            Scenario {
                flows: two_users.to_vec(),
                ..on("city-driving-lte-down@2", PAPER_RED, 30.0)
            },
        ),
        (
            "five flows, RED",
            Scenario {
                flows: (0..5).map(|n| starting("", f64::from(n))).collect(),
                ..on("rate:20", "red:min=30000,max=90000,p=0.1", 20.0)
            },
        ),
        (
            "three flows, drop-tail",
            Scenario {
                flows: [10.0, 20.0, 60.0]
                    .map(|ms| FlowSpec {
                        delay_ms: Some(ms),
                        ..FlowSpec::new("")
                    })
                    .to_vec(),
                ..on("city-driving-3g-down@1", "droptail:bytes=120000", 30.0)
            },
        ),
        ("CoDel", on("highway-driving-3g-up@3", "codel", 30.0)),
        (
            "a file, ACKs by two",
            Scenario {
                flows: vec![sending("", 3_000_000), starting("", 0.7)],
                ack_every: 2,
                ..on("rate:12", PAPER_RED, 20.0)
            },
        ),
    ]
}

/// Every golden run: scenario's name, scheme, scenario.
fn runs() -> Vec<(&'static str, &'static str, Scenario)> {
    let modes = [
        "verus:mode=paper,ratio=4",
        "verus:mode=prototype,ratio=4",
        "verus:ratio=2",
        "verus:ratio=4",
    ];
    // A run or two of each other algorithm: they pin the house that Verus stands in.
    let others = [
        ("constant, shallow", "cubic"),
        ("five flows, RED", "cubic"),
        ("random loss", "newreno"),
        ("CoDel", "newreno"),
        ("three flows, drop-tail", "vegas"),
        ("rate and path change", "vegas"),
        ("city 3G", "sprout"),
        ("outages", "sprout"),
    ];
    let mut runs = Vec::new();
    for (name, scenario) in scenarios() {
        let others = others.iter().filter(|other| other.0 == name);
        for scheme in modes.into_iter().chain(others.map(|other| other.1)) {
            let mut scenario = scenario.clone();
            for flow in &mut scenario.flows {
                flow.scheme = scheme.to_owned();
            }
            runs.push((name, scheme, scenario));
        }
    }
    runs
}

/// Packets of a run, and the first half of the digest of all that is recorded of them.
fn digest(outcome: Outcome) -> String {
    let records = outcome.records.expect("asked for");
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
    let runs = runs();
    let scenarios: Vec<Scenario> = runs.iter().map(|run| run.2.clone()).collect();
    let digests = run_all(&scenarios, digest);
    let mut table = String::from("scenario\tscheme\tpackets\tdigest\n");
    for ((name, scheme, _), digest) in runs.iter().zip(&digests) {
        writeln!(table, "{name}\t{scheme}\t{digest}").expect("strings take all");
    }
    if std::env::var("VERUS_GOLDENS").as_deref() == Ok("write") {
        std::fs::write(TABLE, &table).expect("the table can be written");
    }
    let golden = std::fs::read_to_string(Path::new(TABLE)).expect("the table is committed");
    let moved: Vec<String> = table
        .lines()
        .zip(golden.lines().chain(std::iter::repeat("nothing")))
        .filter(|(now, then)| now != then)
        .map(|(now, then)| format!("now  {now}\nthen {then}"))
        .collect();
    assert!(moved.is_empty(), "packets moved:\n{}", moved.join("\n"));
    assert_eq!(table.lines().count(), golden.lines().count());
}
