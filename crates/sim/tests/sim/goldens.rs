//! Every packet of Verus in its modes, and of every other algorithm beside it, pinned by a digest a scenario.
//!
//! A refactoring of a controller must not move a packet, and one of the simulator must not change
//! any output of a run. `goldens.tsv` has a line for each run: scenario, scheme, packets, and a
//! digest. The digest is that of their records or (`observed`) of metrics, series, snapshots,
//! connections and epochs. All channels are built in or constant, so that the table is the same on
//! every machine. If a packet is *meant* to move, `VERUS_GOLDENS=write cargo test -p verus-sim
//! --test sim goldens` rewrites the table; the change then shows the moved runs by name.

use std::fmt::Write as _;
use std::path::Path;

use crate::common::{run, run_all, sending, starting};
use verus_core::Phase;
use verus_model::{About, Trainer};
use verus_sim::{Change, FlowOutcome, FlowSpec, Outcome, Scenario};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sim/goldens.tsv");
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
        ..Change::default()
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
                        ..Change::default()
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
            "two to a queue limited in time",
            Scenario {
                flows: vec![FlowSpec::new(""), starting("", 3.0)],
                changes: vec![rate(6.0, 2.0), rate(8.0, 0.0), rate(9.0, 12.0)],
                ..on("rate:8", "droptail:delay_ms=60", 12.0)
            },
        ),
        (
            "a trace limited in time",
            on("highway-driving-lte-down@2", "droptail:delay_ms=80", 15.0),
        ),
        (
            "policed",
            Scenario {
                policer: "bucket:rate_mbps=5,burst=30000".to_owned(),
                flows: vec![FlowSpec::new(""), starting("vegas", 2.0)],
                ..on("rate:12", "droptail:bytes=60000", 12.0)
            },
        ),
        (
            "CoDel that marks",
            on("city-driving-lte-down@1", "codel:ecn=yes", 15.0),
        ),
        (
            "RED that marks",
            Scenario {
                flows: vec![FlowSpec::new(""), starting("cubic", 2.0)],
                ..on("rate:20", "red:min=30000,max=90000,p=0.1,ecn=yes", 15.0)
            },
        ),
        (
            "PIE",
            Scenario {
                flows: vec![FlowSpec::new(""), starting("cubic", 2.0)],
                ..on("city-driving-lte-down@3", "pie:ecn=yes", 15.0)
            },
        ),
        (
            "FQ-CoDel",
            Scenario {
                flows: vec![
                    FlowSpec::new(""),
                    starting("constant:rate_mbps=0.2", 1.0),
                    starting("newreno", 2.0),
                ],
                ..on("highway-driving-lte-down@1", "fq_codel:packets=300", 15.0)
            },
        ),
        (
            "DualPI2",
            Scenario {
                flows: vec![FlowSpec::new(""), starting("cubic", 2.0)],
                ..on("rate:30", "dualpi2", 15.0)
            },
        ),
        (
            "DualPI2 of the RFC on a trace",
            Scenario {
                flows: vec![FlowSpec::new(""), starting("prague", 2.0)],
                ..on("city-driving-lte-down@2", "dualpi2:preset=rfc9332", 15.0)
            },
        ),
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

/// Scenarios of the simulator's own: what the path, the ways back and the users can do. Flows that name no scheme run the one
/// of their line.
fn house() -> Vec<(&'static str, Scenario)> {
    let with = |traffic: &str| FlowSpec {
        traffic: Some(traffic.to_owned()),
        ..FlowSpec::new("")
    };
    let change = |at_s, rate_mbps, delay_ms, loss| Change {
        at_s,
        rate_mbps,
        delay_ms,
        loss,
        ..Change::default()
    };
    let mixed = [
        "verus:ratio=2",
        "verus:mode=paper,ratio=4",
        "cubic",
        "newreno",
        "vegas",
        "sprout",
    ];
    vec![
        (
            "a narrow way back that drops",
            Scenario {
                ack: "rate:0.2".to_owned(),
                ack_queue: "droptail:packets=8".to_owned(),
                ..on("rate:8", "droptail:packets=60", 15.0)
            },
        ),
        (
            "a way back with a channel of its own, CoDel",
            Scenario {
                ack: "city-driving-3g-down@2".to_owned(),
                ack_queue: "codel".to_owned(),
                flows: vec![FlowSpec::new(""), starting("", 2.0)],
                ..on("city-driving-3g-up@2", "codel:limit=200000", 20.0)
            },
        ),
        (
            "rate, delay and loss change",
            Scenario {
                loss: 0.02,
                flows: vec![FlowSpec::new(""), starting("", 1.0)],
                changes: vec![
                    change(0.0, None, None, Some(0.01)),
                    change(3.0, Some(3.0), Some(50.0), None),
                    change(3.0, Some(4.0), None, Some(0.0)),
                    change(6.0, None, Some(5.0), Some(1.0)),
                    change(6.3, None, None, Some(0.03)),
                    change(9.0, Some(12.0), Some(80.0), Some(0.0)),
                ],
                ..on("rate:8", PAPER_RED, 15.0)
            },
        ),
        (
            "Wi-Fi that fades and is suspended",
            Scenario {
                flows: vec![FlowSpec::new(""), starting("", 1.0)],
                jitter: "wifi:mean_ms=0.999".to_owned(),
                ack_jitter: "wifi:mean_ms=0.999".to_owned(),
                changes: vec![
                    Change {
                        jitter: Some("wifi:mean_ms=12".to_owned()),
                        loss_bursts: Some("2/18".to_owned()),
                        ..rate(1.0, 9.0)
                    },
                    Change {
                        jitter: Some("wifi:mean_ms=0.999".to_owned()),
                        loss_bursts: Some("none".to_owned()),
                        ..rate(3.0, 10.0)
                    },
                    rate(4.5, 0.0),
                ],
                changes_repeat_s: Some(4.7),
                ..on("rate:10", "droptail:bytes=100000", 15.0)
            },
        ),
        (
            "jitter and reordering each way",
            Scenario {
                flows: vec![
                    FlowSpec::new(""),
                    FlowSpec {
                        delay_ms: Some(60.0),
                        ..starting("", 2.0)
                    },
                ],
                jitter: "gauss:mean_ms=5".to_owned(),
                ack_jitter: "uniform:max_ms=10".to_owned(),
                reorder: "late:p=0.02,ms=10".to_owned(),
                ack_delay_ms: Some(35.0),
                ack_loss: 0.01,
                ..on("city-driving-lte-down@2", PAPER_RED, 15.0)
            },
        ),
        (
            "a recorded series of delays",
            Scenario {
                delay_series: Some(delays()),
                ..on("rate:20", "droptail:bytes=200000", 15.0)
            },
        ),
        (
            "CellReplay's traces each way, CoDel",
            Scenario {
                packet_bytes: 1400,
                light_trace: Some(light()),
                light_timer_ms: 10.0,
                size_offsets: Some(sizes()),
                ack: "city-driving-lte-up@2".to_owned(),
                ack_light_trace: Some(light()),
                flows: vec![
                    with("pages:bytes=60000,sd_bytes=30000,think_s=0.4"),
                    starting("", 5.0),
                ],
                ..on("city-driving-lte-down@2", "codel", 15.0)
            },
        ),
        (
            "files one after another",
            Scenario {
                loss: 0.005,
                flows: vec![
                    with("files:bytes=200000,gap_s=0.05"),
                    with("files:bytes=1,gap_s=0.01,count=300"),
                    with("full"),
                ],
                ..on(
                    "city-driving-lte-down@3",
                    "red:min=30000,max=90000,p=0.1,preset=gentle",
                    15.0,
                )
            },
        ),
        (
            "users on and off over a way back of theirs",
            Scenario {
                ack: "same".to_owned(),
                ack_every: 2,
                flows: vec![
                    with("on-off:off_s=1,mean_mb=0.5,variance=0.1,begin=on"),
                    with("on-off:off_s=2,mean_mb=1,variance=0.2"),
                    with("c.r1002:reading_s=1,mean_mb=0.3,sd_mb=0.1,max_mb=1,begin=on"),
                ],
                ..on("city-driving-3g-up@1", PAPER_RED, 20.0)
            },
        ),
        (
            "a call beside a file, over Wi-Fi that loses packets",
            Scenario {
                flows: vec![
                    with("media:audio_count=400,count=240,unmeasured_s=0.5"),
                    with("files:bytes=2000000"),
                ],
                loss: 0.01,
                jitter: "wifi:mean_ms=7".to_owned(),
                ..on("city-driving-lte-down@2", "droptail:delay_ms=100", 15.0)
            },
        ),
        (
            "pages, turns and a constant rate over two links",
            Scenario {
                flows: vec![
                    with("pages:bytes=200000,sd_bytes=100000,think_s=0.3"),
                    FlowSpec {
                        crosses: Some("first".to_owned()),
                        ..with("turns:on_s=2,off_s=1")
                    },
                    FlowSpec {
                        crosses: Some("second".to_owned()),
                        ..with("cbr:rate_mbps=1")
                    },
                ],
                second_trace: Some("city-driving-lte-down@4".to_owned()),
                second_queue: "codel".to_owned(),
                ack: "rate:1".to_owned(),
                ack_loss: 0.01,
                ..on("rate:12", "droptail:bytes=60000", 15.0)
            },
        ),
        (
            "who comes and goes",
            Scenario {
                flows: vec![
                    FlowSpec {
                        stop_s: Some(5.0),
                        ..FlowSpec::new("")
                    },
                    FlowSpec {
                        stop_s: Some(6.5),
                        delay_ms: Some(70.0),
                        ..starting("", 2.0)
                    },
                    starting("", 6.0),
                ],
                looped: false,
                ..on("highway-driving-3g-up@2[0:8]", "red:preset=cs244", 12.0)
            },
        ),
        (
            "all at once",
            Scenario {
                loss: 0.002,
                flows: mixed
                    .iter()
                    .zip([0.0, 0.5, 1.0, 1.0, 1.5, 2.0])
                    .map(|(scheme, start_s)| starting(scheme, start_s))
                    .collect(),
                ..on("highway-driving-lte-down@2", PAPER_RED, 15.0)
            },
        ),
    ]
}

/// The pinned part of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pinned {
    Packets,
    Observed,
}

/// A golden run.
struct Run {
    name: &'static str,
    scheme: &'static str,
    pinned: Pinned,
    scenario: Scenario,
}

/// Verus and forward run over each scenario of these; `others` are what else runs over which.
fn runs() -> Vec<Run> {
    let modes = [
        "forward",
        "verus:mode=paper,ratio=4",
        "verus:mode=prototype,ratio=4",
        "verus:ratio=2",
        "verus:ratio=4",
    ];
    // A run or two of each other algorithm: they pin the simulator around Verus.
    let others = [
        ("constant, shallow", "cubic"),
        ("five flows, RED", "cubic"),
        ("random loss", "newreno"),
        ("CoDel", "newreno"),
        ("three flows, drop-tail", "vegas"),
        ("rate and path change", "vegas"),
        ("city 3G", "sprout"),
        ("outages", "sprout"),
        ("constant, shallow", "bbr1"),
        ("city 3G", "bbr1"),
        ("a file, ACKs by two", "bbr1"),
        ("random loss", "bbr"),
        ("outages", "bbr"),
        ("users on and off", "bbr"),
        ("rate and path change", "copa"),
        ("five flows, RED", "copa"),
        ("highway LTE", "copa:variant=mvfst"),
        ("three flows, drop-tail", "ledbatpp"),
        ("city 3G", "ledbatpp"),
        ("random loss", "c4"),
        ("users on and off", "c4"),
        ("constant, shallow", "vivace"),
        ("highway LTE", "vivace"),
        ("random loss", "scream"),
        ("users on and off", "scream"),
        ("random loss", "prague"),
        ("two to a queue limited in time", "cubic"),
        ("a trace limited in time", "newreno"),
        ("policed", "bbr1"),
        ("policed", "cubic"),
        ("CoDel that marks", "cubic:ecn=yes"),
        ("CoDel that marks", "vegas:ecn=yes"),
        ("RED that marks", "newreno:ecn=yes"),
        ("PIE", "cubic:ecn=yes"),
        ("FQ-CoDel", "cubic:ecn=yes"),
        ("DualPI2", "prague"),
        ("DualPI2", "scream"),
        ("DualPI2 of the RFC on a trace", "cubic:ecn=yes"),
    ];
    // Scenarios of queues, whose senders are above.
    let queues = [
        "two to a queue limited in time",
        "a trace limited in time",
        "policed",
        "CoDel that marks",
        "RED that marks",
        "PIE",
        "FQ-CoDel",
        "DualPI2",
        "DualPI2 of the RFC on a trace",
    ];
    let housed = [
        ("a narrow way back that drops", "cubic"),
        ("a narrow way back that drops", "sprout"),
        ("a narrow way back that drops", "verus:ratio=4"),
        ("a way back with a channel of its own, CoDel", "sprout"),
        ("a way back with a channel of its own, CoDel", "forward"),
        ("rate, delay and loss change", "cubic"),
        ("rate, delay and loss change", "sprout"),
        ("rate, delay and loss change", "verus:ratio=2"),
        ("Wi-Fi that fades and is suspended", "c4"),
        ("Wi-Fi that fades and is suspended", "verus:ratio=2"),
        ("jitter and reordering each way", "cubic"),
        ("jitter and reordering each way", "verus:ratio=4"),
        ("a recorded series of delays", "bbr"),
        ("a recorded series of delays", "verus:ratio=2"),
        ("CellReplay's traces each way, CoDel", "cubic"),
        ("CellReplay's traces each way, CoDel", "verus:ratio=2"),
        ("files one after another", "newreno"),
        ("files one after another", "verus:ratio=2"),
        ("users on and off over a way back of theirs", "vegas"),
        ("users on and off over a way back of theirs", "sprout"),
        (
            "users on and off over a way back of theirs",
            "verus:ratio=4",
        ),
        (
            "a call beside a file, over Wi-Fi that loses packets",
            "cubic",
        ),
        ("a call beside a file, over Wi-Fi that loses packets", "bbr"),
        ("pages, turns and a constant rate over two links", "cubic"),
        (
            "pages, turns and a constant rate over two links",
            "verus:ratio=2",
        ),
        ("who comes and goes", "saturate"),
        ("who comes and goes", "constant:rate_mbps=4"),
        ("who comes and goes", "model"),
        ("who comes and goes", "cubic"),
        ("all at once", "mixed"),
    ];
    let observed = [
        ("CellReplay's traces each way, CoDel", "bbr"),
        ("files one after another", "verus:ratio=2"),
        ("users on and off over a way back of theirs", "cubic"),
        ("users on and off over a way back of theirs", "sprout"),
        ("rate, delay and loss change", "verus:ratio=4"),
        ("who comes and goes", "verus:ratio=4"),
        ("jitter and reordering each way", "bbr"),
        ("pages, turns and a constant rate over two links", "newreno"),
        ("all at once", "mixed"),
    ];
    let model = format!("model:file={}", trained());
    let mut runs = Vec::new();
    let mut add = |name, scheme: &'static str, pinned, scenario: &Scenario| {
        let mut scenario = scenario.clone();
        (scenario.series, scenario.epochs) =
            (pinned == Pinned::Observed, pinned == Pinned::Observed);
        for flow in scenario
            .flows
            .iter_mut()
            .filter(|flow| flow.scheme.is_empty())
        {
            let effective = if scheme == "model" { &model } else { scheme };
            effective.clone_into(&mut flow.scheme);
        }
        runs.push(Run {
            name,
            scheme,
            pinned,
            scenario,
        });
    };
    for (name, scenario) in &scenarios() {
        let others = others.iter().filter(|other| other.0 == *name);
        let modes = modes.into_iter().filter(|_| !queues.contains(name));
        for scheme in modes.chain(others.map(|other| other.1)) {
            add(name, scheme, Pinned::Packets, scenario);
        }
    }
    for (name, scenario) in &house() {
        for (_, scheme) in housed.iter().filter(|(over, _)| over == name) {
            add(name, scheme, Pinned::Packets, scenario);
        }
        for (_, scheme) in observed.iter().filter(|(over, _)| over == name) {
            add(name, scheme, Pinned::Observed, scenario);
        }
    }
    runs
}

/// The path of a file with a series of delays: half a second at 30 to 39 ms, and then as long at 20 ms.
fn delays() -> String {
    let lines = (0..100).map(|line| if line < 50 { 30 + line % 10 } else { 20 });
    let text: String = lines.map(|ms| format!("{ms}\n")).collect();
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/golden-delays.txt");
    std::fs::write(path, text).expect("the series can be written");
    path.to_owned()
}

/// The path of a light trace: trains of one to six packets each 100 ms, with delays from 15 to 44 ms.
fn light() -> String {
    let lines = (0..40).map(|line| {
        let offsets: String = (1..=line % 6)
            .map(|packet| format!(" {}", packet * packet))
            .collect();
        format!("{} {} 0{offsets}\n", 100 * line, 15 + line * 7 % 30)
    });
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/golden-light");
    std::fs::write(path, lines.collect::<String>()).expect("the trace can be written");
    path.to_owned()
}

/// The path of offsets by size: 0.3 ms for each 100 bytes.
fn sizes() -> String {
    let lines = (1..=14).map(|step| format!("{} {}\n", 100 * step, f64::from(step) * 0.3));
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/golden-sizes");
    std::fs::write(path, lines.collect::<String>()).expect("the offsets can be written");
    path.to_owned()
}

/// The path of a model's file, made of one flow's epochs.
fn trained() -> String {
    let outcome = run(&Scenario {
        epochs: true,
        records: false,
        flows: vec![FlowSpec::new("verus:ratio=2")],
        ..on("city-driving-3g-up@5", PAPER_RED, 30.0)
    });
    let mut trainer = Trainer::new();
    for sampler in outcome.flows.iter().filter_map(|flow| flow.epochs.as_ref()) {
        for run in sampler.runs() {
            trainer.add(run).expect("few enough");
        }
    }
    let model = trainer.finish(1, 99.0, About::default()).expect("samples");
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/golden.model");
    std::fs::write(path, model.to_bytes()).expect("the model can be written");
    path.to_owned()
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
    let runs = runs();
    let scenarios: Vec<Scenario> = runs.iter().map(|run| run.scenario.clone()).collect();
    // Runs that sample epochs are pinned by their observations.
    let digests = run_all(&scenarios, |outcome| match outcome.flows[0].epochs {
        Some(_) => digest_observed(&outcome),
        None => digest(&outcome),
    });
    let mut table = String::from("scenario\tscheme\tpackets\tdigest\n");
    for (run, digest) in runs.iter().zip(&digests) {
        let note = match run.pinned {
            Pinned::Packets => "",
            Pinned::Observed => ", observed",
        };
        writeln!(table, "{}{note}\t{}\t{digest}", run.name, run.scheme).expect("strings take all");
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
