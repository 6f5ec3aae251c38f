//! A flow over UDP as qlog: the packets and losses of a log are those that the sender counts.

use crate::probe_common::Served;
use verus_core::Time;
use verus_faults::qlog::{Sink, consistent, count};
use verus_measure::qlog::{Dialect, LIMIT, Qlog, Subject};
use verus_probe::client::Client;
use verus_probe::driver::Driver;
use verus_senders::Scheme;

fn log(sink: &Sink, now: Time) -> Qlog {
    let subject = Subject {
        scheme: "verus".to_owned(),
        transport: "udp",
        ..Subject::default()
    };
    Qlog::new(sink.clone(), Dialect::Draft, LIMIT, &subject, now)
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
    client.log_to(vec![log(&sink, now)]);
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
