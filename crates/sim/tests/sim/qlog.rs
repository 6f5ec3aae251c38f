//! Runs as qlog: the drafts' required fields, numbers that are the run's own, both dialects, and a bounded length.

use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use crate::common::{run, sending, single, starting};
use serde_json::Value;
use verus_core::sender::Counters;
use verus_core::{Bytes, Time};
use verus_measure::qlog::{Dialect, LIMIT, Qlog, Subject, Written, file_name};
use verus_sim::{Outcome, Scenario};

/// Where a log goes in tests.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("one thread").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn subject(scenario: &Scenario, flow: usize) -> Subject {
    Subject {
        scheme: scenario.flows[flow].scheme.clone(),
        transport: "simulated",
        channel: Some(scenario.trace.clone()),
        seed: Some(scenario.seed),
        flow: flow as u32,
        is_server: true,
    }
}

/// The run, and each flow's log.
fn logged(scenario: &Scenario, dialect: Dialect, limit: u64) -> (Outcome, Vec<(Vec<u8>, Written)>) {
    let sinks: Vec<Sink> = scenario.flows.iter().map(|_| Sink::default()).collect();
    let logs = sinks.iter().enumerate().map(|(flow, sink)| {
        let about = subject(scenario, flow);
        Qlog::new(sink.clone(), dialect, limit, &about, Time::ZERO)
    });
    let plan = scenario.plan().expect("valid");
    let (outcome, ends, _) = plan
        .run_logged(logs.collect(), None, &mut |_| true)
        .expect("it runs");
    let texts = sinks
        .iter()
        .map(|sink| sink.0.lock().expect("one thread").clone());
    let ends = ends.into_iter().map(|end| end.expect("memory takes it"));
    (outcome, texts.zip(ends).collect())
}

/// The head of a log and its events, read as a reader of that dialect would.
fn read(text: &[u8], dialect: Dialect) -> (Value, Vec<Value>) {
    match dialect {
        Dialect::Draft => {
            // RFC 7464: RS, JSON, LF.
            assert_eq!((text[0], text[text.len() - 1]), (0x1e, b'\n'));
            let mut records = text[1..].split(|byte| *byte == 0x1e).map(|record| {
                assert_eq!(record.last(), Some(&b'\n'));
                serde_json::from_slice::<Value>(record).expect("a record is JSON")
            });
            (records.next().expect("a head"), records.collect())
        }
        Dialect::Compatible => {
            let mut file: Value = serde_json::from_slice(text).expect("JSON");
            let events = file["traces"][0]["events"].take();
            (file, events.as_array().expect("a list").clone())
        }
    }
}

/// Losses of all kinds, a timeout, reordering, marks, and connections one after another.
fn eventful() -> Scenario {
    Scenario {
        flows: vec![
            starting("verus", 0.0),
            starting("prague", 1.0),
            sending("cubic", 3_000_000),
        ],
        loss: 0.002,
        reorder: "late:p=0.01,ms=30".to_owned(),
        ..single("city-driving-3g-up@1", "dualpi2", "verus", 20.0)
    }
}

/// The fields that the drafts require, by event: (name, fields). QUIC events: packet_sent,
/// packet_received, packet_lost, recovery_metrics_updated, congestion_state_updated with
/// PacketHeader and AckFrame; main schema: scenario, warning.
const REQUIRED: &[(&str, &[&str])] = &[
    (
        "packet_sent",
        &[
            "/header/packet_type",
            "/header/packet_number",
            "/raw/length",
        ],
    ),
    (
        "packet_received",
        &[
            "/header/packet_type",
            "/frames/0/frame_type",
            "/frames/0/acked_ranges/0/0",
        ],
    ),
    (
        "packet_lost",
        &["/header/packet_type", "/header/packet_number"],
    ),
    ("metrics_updated", &[]),
    ("congestion_state_updated", &["/new"]),
    ("scenario", &["/name", "/details"]),
    ("warning", &["/message"]),
    ("controller_updated", &[]),
    ("profile_updated", &["/points", "/curve"]),
    (
        "connection_started",
        &["/connection", "/first_packet_number"],
    ),
];

/// The metrics that there may be (QUIC events, recovery_metrics_updated), with the drafts' units.
const METRICS: [&str; 7] = [
    "min_rtt",
    "smoothed_rtt",
    "latest_rtt",
    "rtt_variance",
    "congestion_window",
    "bytes_in_flight",
    "pacing_rate",
];

fn kind(event: &Value) -> &str {
    let name = event["name"].as_str().expect("a name");
    let (_, kind) = name
        .split_once(':')
        .expect("main schema, Event: namespace:type");
    kind.strip_prefix("recovery_").unwrap_or(kind)
}

#[test]
fn events_have_the_fields_that_their_schemas_require() {
    let scenario = eventful();
    for dialect in Dialect::ALL {
        let (_, logs) = logged(&scenario, dialect, LIMIT);
        let mut event_names = HashSet::new();
        for (text, _) in &logs {
            let (_, events) = read(text, dialect);
            let mut before = 0.0;
            for event in &events {
                // Main schema, Event: time, name, data; here in the order of time, which qvis needs.
                let time = event["time"].as_f64().expect("a time");
                assert!(time >= before, "{event}");
                before = time;
                let kind = kind(event);
                let row = REQUIRED.iter().find(|(name, _)| *name == kind);
                let (name, fields) = row.unwrap_or_else(|| panic!("unknown: {event}"));
                event_names.insert(*name);
                assert!(event["data"].is_object(), "{event}");
                for field in *fields {
                    let value = event["data"].pointer(field);
                    assert!(
                        value.is_some_and(|value| !value.is_null()),
                        "{field}: {event}"
                    );
                }
                if *name == "metrics_updated" {
                    let metrics = event["data"].as_object().expect("an object");
                    assert!(!metrics.is_empty(), "at least one: {event}");
                    for (metric, value) in metrics {
                        assert!(METRICS.contains(&metric.as_str()), "{event}");
                        assert!(value.as_f64().is_some_and(|value| value >= 0.0), "{event}");
                    }
                }
                if let Some(trigger) = event["data"].get("trigger") {
                    assert!(
                        ["time_threshold", "pto_expired"]
                            .contains(&trigger.as_str().expect("text"))
                    );
                }
            }
        }
        assert_eq!(
            event_names.len(),
            REQUIRED.len() - 2,
            "neither cut off nor a second connection"
        );
    }
}

#[test]
fn heads_say_what_readers_go_by() {
    let scenario = eventful();
    let (_, drafts) = logged(&scenario, Dialect::Draft, LIMIT);
    let (text, _) = &drafts[1];
    // Main schema, LogFile: both within the first 256 bytes.
    let first = String::from_utf8_lossy(&text[..256]);
    assert!(first.contains(r#""file_schema":"urn:ietf:params:qlog:file:sequential""#));
    assert!(first.contains(r#""serialization_format":"application/qlog+json-seq""#));
    let (head, events) = read(text, Dialect::Draft);
    // Main schema, TraceSeq and VantagePoint; QUIC events, Draft Event Schema Identification: with a number.
    let trace = &head["trace"];
    let schemas = trace["event_schemas"].as_array().expect("required");
    assert!(schemas.contains(&Value::from("urn:ietf:params:qlog:events:quic-13")));
    assert_eq!(trace["vantage_point"]["type"], "server");
    let common = &trace["common_fields"];
    assert_eq!(common["time_format"], "relative_to_epoch");
    // Main schema, ReferenceTime: a monotonic clock's epoch is unknown.
    assert_eq!(common["reference_time"]["clock_type"], "monotonic");
    assert_eq!(common["reference_time"]["epoch"], "unknown");
    assert_eq!(common["group_id"], "flow-1");
    assert_eq!(events[0]["data"]["details"]["scheme"], "prague");
    assert_eq!(events[0]["data"]["details"]["seed"], scenario.seed);

    let (_, compatible) = logged(&scenario, Dialect::Compatible, LIMIT);
    let (head, events) = read(&compatible[1].0, Dialect::Compatible);
    assert_eq!(
        (&head["qlog_version"], &head["qlog_format"]),
        (&"0.3".into(), &"JSON".into())
    );
    assert_eq!(
        head["traces"][0]["common_fields"]["time_format"],
        "absolute"
    );
    assert!(
        events
            .iter()
            .any(|event| event["name"] == "transport:packet_sent")
    );
}

#[test]
fn numbers_read_back_are_those_of_the_run() {
    let scenario = eventful();
    for dialect in Dialect::ALL {
        let (outcome, logs) = logged(&scenario, dialect, LIMIT);
        for (flow, (text, written)) in outcome.flows.iter().zip(&logs) {
            assert_eq!(written.bytes, text.len() as u64);
            assert!(!written.cut);
            let (_, events) = read(text, dialect);
            let counters = flow.counters;
            let count = |name| events.iter().filter(|event| kind(event) == name).count() as u64;
            assert_eq!(count("packet_sent"), counters.sent);
            assert_eq!(count("packet_lost"), counters.lost);
            let mut under_way = HashSet::new();
            let mut settled = HashSet::new();
            let (mut ce, mut late) = (0, 0);
            for event in &events {
                let data = &event["data"];
                let number = || data["header"]["packet_number"].as_u64().expect("a number");
                match kind(event) {
                    "packet_sent" => {
                        assert_eq!(data["raw"]["length"], scenario.packet_bytes);
                        assert!(under_way.insert(number()), "unique: {event}");
                    }
                    "packet_lost" => {
                        assert!(
                            under_way.remove(&number()),
                            "sent, and not settled: {event}"
                        );
                        settled.insert(number());
                    }
                    "packet_received" => {
                        let frame = &data["frames"][0];
                        ce = frame["ce"].as_u64().unwrap_or(ce);
                        for range in frame["acked_ranges"].as_array().expect("ranges") {
                            let ends: Vec<u64> = range
                                .as_array()
                                .expect("a range")
                                .iter()
                                .map(|end| end.as_u64().expect("a number"))
                                .collect();
                            for number in ends[0]..=ends[ends.len() - 1] {
                                if !under_way.remove(&number) {
                                    assert!(settled.contains(&number), "sent: {event}");
                                    late += 1;
                                }
                            }
                        }
                    }
                    "metrics_updated" => {
                        if let Some(in_flight) = data["bytes_in_flight"].as_u64()
                            && counters.timeouts == 0
                        {
                            let packets = under_way.len() as u64;
                            assert_eq!(
                                in_flight,
                                packets * u64::from(scenario.packet_bytes),
                                "{event}"
                            );
                        }
                    }
                    _ => {}
                }
            }
            assert_eq!(late, counters.recovered, "acknowledged after all");
            assert_eq!(ce, counters.marked);
        }
        let sum = |of: fn(&Counters) -> u64| -> u64 {
            let flows = outcome.flows.iter();
            flows.map(|flow| of(&flow.counters)).sum()
        };
        assert!(sum(|c| c.lost) > 0 && sum(|c| c.recovered) > 0 && sum(|c| c.marked) > 0);
    }
}

#[test]
fn a_timeouts_losses_are_told_as_such() {
    // Nothing passes from 5 s to 9 s.
    let scenario = Scenario {
        changes: vec![
            verus_sim::Change {
                at_s: 5.0,
                rate_mbps: Some(0.0),
                ..Default::default()
            },
            verus_sim::Change {
                at_s: 9.0,
                rate_mbps: Some(8.0),
                ..Default::default()
            },
        ],
        ..single("rate:8", "droptail:bytes=200kB", "cubic", 15.0)
    };
    let (outcome, logs) = logged(&scenario, Dialect::Draft, LIMIT);
    let counters = outcome.flows[0].counters;
    assert!(counters.timeouts > 0);
    let (_, events) = read(&logs[0].0, Dialect::Draft);
    let lost = events.iter().filter(|event| kind(event) == "packet_lost");
    assert_eq!(lost.clone().count() as u64, counters.lost);
    assert!(
        lost.filter(|event| event["data"]["trigger"] == "pto_expired")
            .count()
            > 0
    );
}

#[test]
fn the_two_dialects_of_a_run_hold_the_same_events() {
    let scenario = eventful();
    let timeline = |dialect| -> Vec<Vec<(String, String)>> {
        let (_, logs) = logged(&scenario, dialect, LIMIT);
        logs.iter()
            .map(|(text, _)| {
                let (_, events) = read(text, dialect);
                let timeline = events
                    .iter()
                    .map(|event| (kind(event).to_owned(), event["time"].to_string()));
                timeline.collect()
            })
            .collect()
    };
    assert_eq!(timeline(Dialect::Draft), timeline(Dialect::Compatible));
}

#[test]
fn packet_numbers_of_one_connection_after_another_are_unique() {
    let mut scenario = single("rate:8", "droptail:bytes=60kB", "newreno", 10.0);
    scenario.flows[0].traffic = Some("files:bytes=100kB".to_owned());
    let (outcome, logs) = logged(&scenario, Dialect::Draft, LIMIT);
    let (_, events) = read(&logs[0].0, Dialect::Draft);
    let sent = events.iter().filter(|event| kind(event) == "packet_sent");
    let numbers: HashSet<_> = sent
        .map(|event| event["data"]["header"]["packet_number"].as_u64())
        .collect();
    assert_eq!(numbers.len() as u64, outcome.flows[0].counters.sent);
    let started = events
        .iter()
        .filter(|event| kind(event) == "connection_started");
    assert_eq!(started.count() + 1, outcome.connections.len());
}

#[test]
fn a_log_ends_at_its_limit_and_says_so() {
    let scenario = single("rate:8", "droptail:bytes=60kB", "verus", 10.0);
    let unlogged = run(&scenario);
    for (dialect, limit) in Dialect::ALL
        .into_iter()
        .flat_map(|dialect| [(dialect, 4096), (dialect, 100_000)])
    {
        let (outcome, logs) = logged(&scenario, dialect, limit);
        let (text, written) = &logs[0];
        assert!(
            written.cut && text.len() as u64 <= limit,
            "{} of {limit}",
            text.len()
        );
        assert!(
            text.len() as u64 > limit - 1024,
            "as long as it may be: {}",
            text.len()
        );
        let (_, events) = read(text, dialect);
        let last = events.last().expect("there are some");
        assert_eq!(last["name"], "loglevel:warning");
        assert!(
            last["data"]["message"]
                .as_str()
                .expect("text")
                .contains("cut off")
        );
        assert_eq!(outcome.metrics, unlogged.metrics, "the run goes on");
    }
}

#[test]
fn a_run_is_the_same_whoever_logs_it() {
    let scenario = Scenario {
        records: true,
        epochs: true,
        ..eventful()
    };
    let (outcome, _) = logged(&scenario, Dialect::Draft, LIMIT);
    let unlogged = run(&scenario);
    assert_eq!(outcome.metrics, unlogged.metrics);
    let (with, without) = (
        outcome.records.expect("asked for"),
        unlogged.records.expect("asked for"),
    );
    assert_eq!((&with.number, &with.flow), (&without.number, &without.flow));
    assert_eq!(
        format!("{:?}", with.acked_ms),
        format!("{:?}", without.acked_ms)
    );
}

#[test]
fn a_log_that_cannot_be_written_says_why_and_stops_no_run() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::from(io::ErrorKind::StorageFull))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let scenario = single("rate:8", "droptail:bytes=60kB", "cubic", 2.0);
    let log = Qlog::new(
        Full,
        Dialect::Draft,
        LIMIT,
        &subject(&scenario, 0),
        Time::ZERO,
    );
    let plan = scenario.plan().expect("valid");
    let (outcome, ends, _) = plan
        .run_logged(vec![log], None, &mut |_| true)
        .expect("it runs");
    assert_eq!(outcome.metrics, run(&scenario).metrics);
    let error = ends[0].as_ref().expect_err("nothing was written");
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}

#[test]
fn file_names_say_scheme_channel_seed_and_flow_in_plain_letters() {
    let about = Subject {
        scheme: "verus:ratio=2".to_owned(),
        channel: Some("../recordings/a b.trace".to_owned()),
        seed: Some(7),
        flow: 3,
        ..Default::default()
    };
    let name = |subject| file_name(subject, Dialect::Draft);
    assert_eq!(
        name(&about),
        "verus-ratio=2_..-recordings-a-b.trace_seed7_flow3.sqlog"
    );
    let long = Subject {
        scheme: "x".repeat(400),
        channel: Some("y".repeat(400)),
        ..about
    };
    assert!(name(&long).len() < 255);
    let hidden = Subject {
        scheme: "...".to_owned(),
        ..Default::default()
    };
    assert!(!name(&hidden).starts_with('.'));
}

#[test]
fn numbers_that_json_has_not_are_left_out() {
    let sink = Sink::default();
    let scenario = single("rate:8", "droptail:bytes=60kB", "verus", 1.0);
    let mut log = Qlog::new(
        sink.clone(),
        Dialect::Draft,
        LIMIT,
        &subject(&scenario, 0),
        Time::ZERO,
    );
    let scheme = verus_senders::Scheme::parse("verus").expect("known");
    let mut controller = scheme.config().build(1);
    controller.on_start(Time::ZERO, Bytes::new(1500));
    let mut not_a_number = 0;
    controller.probe(&mut |_, value| not_a_number += usize::from(value.is_nan()));
    assert!(not_a_number > 0, "before anything is known");
    log.state(Time::ZERO, &*controller, Bytes::ZERO, &Default::default());
    log.finish().expect("memory takes it");
    let (_, events) = read(&sink.0.lock().expect("one thread"), Dialect::Draft);
    for event in events {
        for (field, value) in event["data"].as_object().expect("an object") {
            assert!(!value.is_null(), "{field}: {event}");
        }
    }
}
