//! A connection of QUIC as qlog: the packets and losses of a log are those that the controller counts.

use crate::quic_common::{Pair, runtime, transport};
use serde_json::Value;
use verus_core::{Duration, Time};
use verus_faults::Bottleneck;
use verus_faults::qlog::{Sink, consistent, count};
use verus_measure::qlog::{Dialect, LIMIT, Qlog, Subject};
use verus_quinn as quic;

fn log(sink: &Sink, now: Time) -> Qlog {
    let subject = Subject {
        scheme: "verus".to_owned(),
        transport: "quic",
        ..Subject::default()
    };
    Qlog::new(sink.clone(), Dialect::Draft, LIMIT, &subject, now)
}

#[test]
fn a_connection_of_quic_is_what_its_controller_was_told_from_then_on() {
    runtime().block_on(async {
        let (client, server) = (transport("cubic"), transport("cubic"));
        let delay = Duration::from_millis(5);
        let (pair, _proxy) = Pair::behind(client, server, delay, |config| {
            config.up = Some(Bottleneck::new(20.0, "droptail:bytes=30000"));
        })
        .await;
        let _driver = quic::drive(&pair.client);
        let view = quic::view(&pair.client).expect("our controller");
        let before = view.snapshot().counters;
        assert!(before.sent > 0, "the handshake");
        let sink = Sink::default();
        view.log_to(log(&sink, Time::ZERO));
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
