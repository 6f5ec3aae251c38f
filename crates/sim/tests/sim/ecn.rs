//! Explicit congestion notification from end to end: queues mark, receivers count, senders answer.

use crate::common::{run, single};
use verus_sim::{FlowSpec, Outcome, Scenario};

const CODEL: &str = "codel:ecn=yes";
const RED: &str = "red:min=30000,max=90000,p=0.1,preset=gentle,ecn=yes";

/// The counters of a flow's sender: packets marked, lost and sent again.
fn counted(outcome: &Outcome) -> [u64; 3] {
    let counters = outcome.flows[0].counters;
    [counters.marked, counters.lost, counters.retransmitted]
}

fn scenario(queue: &str, scheme: &str) -> Scenario {
    single("rate:10", queue, scheme, 30.0)
}

#[test]
fn a_tcp_that_asks_for_marks_is_slowed_down_without_losses() {
    for queue in [CODEL, RED] {
        for scheme in ["cubic", "newreno", "vegas:alpha_packets=60,beta_packets=80"] {
            let with = if scheme.contains(':') { "," } else { ":" };
            let asking = run(&scenario(queue, &format!("{scheme}{with}ecn=yes")));
            let [marked, lost, again] = counted(&asking);
            assert!(marked > 3, "{scheme} on {queue}: {marked} marks");
            let silent = run(&scenario(queue, scheme));
            let [none, dropped, repeated] = counted(&silent);
            assert_eq!(none, 0, "{scheme} on {queue}");
            assert!(
                dropped > 3 && repeated >= dropped,
                "{scheme} on {queue}: {dropped}"
            );
            // RED drops what slow start without HyStart sends beyond twice its maximum.
            let limit = if queue == RED { dropped / 2 } else { 0 };
            assert!(
                lost <= limit && again <= limit,
                "{scheme} on {queue}: {lost} of {dropped}"
            );
        }
    }
}

#[test]
fn a_mark_halves_newrenos_window_once_a_round_trip_and_repeats_nothing() {
    let outcome = run(&scenario(CODEL, "newreno:ecn=yes"));
    let silent = run(&scenario(CODEL, "newreno"));
    // The same queue with the same law: as many reductions, so the same rate, except for
    // retransmissions.
    let rate = |outcome: &Outcome| outcome.metrics.throughput_mbps;
    let (marked, lost) = (rate(&outcome), rate(&silent));
    assert!((0.97..1.06).contains(&(marked / lost)), "{marked} {lost}");
    assert_eq!(counted(&outcome)[2], 0);
}

#[test]
fn where_no_queue_marks_asking_for_marks_changes_nothing() {
    let records = |scheme| {
        let scenario = Scenario {
            records: true,
            loss: 0.001,
            ..scenario("red:min=30000,max=90000,p=0.1", scheme)
        };
        let outcome = run(&scenario);
        format!("{:?}", outcome.flows[0].counters)
    };
    assert_eq!(records("cubic"), records("cubic:ecn=yes"));
}

#[test]
fn acknowledgements_that_are_lost_take_no_mark_with_them() {
    let outcome = run(&Scenario {
        ack: "rate:0.1".to_owned(),
        ack_queue: "droptail:packets=4".to_owned(),
        ..scenario(CODEL, "cubic:ecn=yes")
    });
    let [marked, lost, _] = counted(&outcome);
    assert!(marked > 3 && lost == 0, "{marked} marked, {lost} lost");
}

/// A flow after the first ten seconds of a run of a minute: Mbit/s that left the queue, and the mean time there, ms.
fn settled(outcome: &Outcome, flow: u32) -> (f64, f64) {
    let records = outcome.records.as_ref().expect("asked for");
    let (mut packets, mut waited_ms) = (0.0, 0.0);
    for packet in 0..records.len() {
        let left_ms = records.departed_ms[packet];
        if records.flow[packet] == flow && (10e3..60e3).contains(&left_ms) {
            packets += 1.0;
            waited_ms += left_ms - records.sent_ms[packet];
        }
    }
    (packets * 1500.0 * 8e-6 / 50.0, waited_ms / packets)
}

/// RFC 9332's aim: equal rates for equal round trips, a millisecond in one queue and the target in the other.
#[test]
fn on_dualpi2_prague_and_cubic_share_and_prague_hardly_waits() {
    for (classic, mbps, delay_ms) in [
        ("cubic", 40, 10.0),
        ("cubic:ecn=yes", 40, 10.0),
        ("cubic", 20, 20.0),
        ("newreno:ecn=yes", 100, 5.0),
    ] {
        let outcome = run(&Scenario {
            delay_ms,
            records: true,
            flows: vec![FlowSpec::new("prague"), FlowSpec::new(classic)],
            ..single(&format!("rate:{mbps}"), "dualpi2", "", 60.0)
        });
        let (prague, low_ms) = settled(&outcome, 0);
        let (other, classic_ms) = settled(&outcome, 1);
        let summary = format!(
            "{classic}, {mbps} Mbit/s, {delay_ms} ms: {prague:.1} and {other:.1} Mbit/s, {low_ms:.2} and {classic_ms:.1} ms"
        );
        println!("{summary}");
        let ratio = prague / other;
        assert!((0.5..2.0).contains(&ratio), "{summary}");
        assert!(prague + other > 0.9 * f64::from(mbps), "{summary}");
        assert!(low_ms < 1.5, "{summary}");
        assert!((10.0..20.0).contains(&classic_ms), "{summary}");
    }
}
