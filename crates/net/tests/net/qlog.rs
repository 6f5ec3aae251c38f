//! Flows over UDP and QUIC as qlog: the packets and losses of a log are those that the sender counts.

use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use crate::probe_common::Served;
use crate::quic_common::{Pair, runtime, transport};
use serde_json::Value;
use verus_channel::{QueueConfig, RateSchedule, Service};
use verus_core::algorithm::Scheme;
use verus_core::{Duration, Rate, Time};
use verus_faults::{Bottleneck, Proxy, ProxyConfig, Schedule};
use verus_measure::qlog::{Dialect, LIMIT, Qlog, Subject};
use verus_net::probe::client::Client;
use verus_net::probe::driver::Driver;
use verus_net::quic;

/// Where a log goes in tests.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panicked").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink {
    fn log(&self, transport: &'static str, now: Time) -> Qlog {
        let subject = Subject {
            scheme: "verus".to_owned(),
            transport,
            ..Subject::default()
        };
        Qlog::new(self.clone(), Dialect::Draft, LIMIT, &subject, now)
    }

    /// The events, without their namespace.
    fn events(&self) -> Vec<(String, Value)> {
        let text = self.0.lock().expect("nobody panicked");
        let records = text.split(|byte| *byte == 0x1e).skip(2);
        let events = records.map(|record| serde_json::from_slice(record).expect("JSON"));
        let named = |event: Value| {
            let (_, kind) = event["name"].as_str().expect("a name").split_once(':')?;
            Some((kind.to_owned(), event))
        };
        events.filter_map(named).collect()
    }
}

fn count(events: &[(String, Value)], name: &str) -> u64 {
    events.iter().filter(|(kind, _)| kind == name).count() as u64
}

/// Times ascend, numbers are unique, and what is acknowledged or lost was sent.
fn consistent(events: &[(String, Value)]) {
    let mut before = 0.0;
    let mut sent = HashSet::new();
    for (kind, event) in events {
        let time = event["time"].as_f64().expect("a time");
        assert!(time >= before, "{event}");
        before = time;
        let data = &event["data"];
        let number = || data["header"]["packet_number"].as_u64().expect("a number");
        match kind.as_str() {
            "packet_sent" => assert!(sent.insert(number()), "unique: {event}"),
            "packet_lost" => assert!(sent.contains(&number()), "sent: {event}"),
            "packet_received" => {
                let ranges = data["frames"][0]["acked_ranges"].as_array();
                for range in ranges.expect("ranges") {
                    let end = |at| range.get(at).and_then(Value::as_u64);
                    let first = end(0).expect("a range");
                    for number in first..=end(1).unwrap_or(first) {
                        assert!(sent.contains(&number), "{number} sent: {event}");
                    }
                }
            }
            _ => {}
        }
    }
}

#[test]
fn a_flow_over_udp_is_what_its_sender_counts() {
    let served = Served::behind(5.0, "droptail:bytes=30000");
    let mut driver = Driver::new(served.connect()).expect("a timer");
    let scheme = Scheme::parse("cubic").expect("in the catalogue");
    let now = driver.clock().now();
    let config = crate::probe_common::upload("cubic", false);
    let mut client = Client::new(config, scheme, [2; 32], now);
    let sink = Sink::default();
    client.log_to(vec![sink.log("udp", now)]);
    while client.outcome().is_none() {
        driver.turn(&mut client, None, None).expect("a turn");
    }
    let connection = client.connection_mut().expect("it was connected");
    let written = connection.end_logs().expect("memory takes it");
    let events = sink.events();
    consistent(&events);
    assert_eq!(written.len(), 1);
    let counters = connection.outgoing()[0].sender().counters();
    assert!(counters.sent > 100 && counters.lost > 0, "{counters:?}");
    assert_eq!(count(&events, "packet_sent"), counters.sent);
    assert_eq!(count(&events, "packet_lost"), counters.lost);
    assert!(count(&events, "recovery_metrics_updated") > 100);
    served.end();
}

#[test]
fn a_connection_of_quic_is_what_its_controller_was_told_from_then_on() {
    runtime().block_on(async {
        let mut hold = None;
        let pair = Pair::by_way_of(transport("cubic"), transport("cubic"), |server| {
            let config = ProxyConfig {
                schedule: Schedule::perfect(Duration::from_millis(5)),
                up: Some(Bottleneck {
                    service: Service::Rate(RateSchedule::constant(Rate::from_mbps(20.0))),
                    queue: QueueConfig::parse("droptail:bytes=30000").expect("a queue"),
                }),
                ..ProxyConfig::new(server)
            };
            let proxy = Proxy::start(config).expect("a proxy");
            let to = proxy.addr();
            hold = Some(proxy);
            to
        })
        .await;
        let _driver = quic::drive(&pair.client);
        let view = quic::view(&pair.client).expect("our controller");
        let before = view.snapshot().counters;
        assert!(before.sent > 0, "the handshake");
        let sink = Sink::default();
        view.log_to(sink.log("quic", Time::ZERO));
        pair.send(4 << 20).await;
        let written = view.end_log().expect("memory takes it");
        let after = view.snapshot().counters;
        assert_eq!(written.map(|written| written.cut), Some(false));
        assert_eq!(view.end_log().expect("nothing to do"), None);
        let events = sink.events();
        consistent(&events);
        // Packets may leave between the end of the log and the snapshot.
        let sent = count(&events, "packet_sent");
        assert!(
            ((4 << 20) / 1500..=after.sent - before.sent).contains(&sent),
            "{sent}: {after:?}"
        );
        let lost = count(&events, "packet_lost");
        assert!(
            (1..=after.lost - before.lost).contains(&lost),
            "{lost}: {after:?}"
        );
        assert_eq!(count(&events, "scenario"), 1);
        let acked = |event: &Value| event["data"]["frames"][0]["acked_ranges"].is_array();
        assert!(
            events
                .iter()
                .any(|(kind, event)| kind == "packet_received" && acked(event))
        );
    });
}
