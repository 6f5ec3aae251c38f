//! Sprout with both its halves in the simulator, and beside the measured Sprout.
//!
//! The recordings do not ship with the product: what needs them is ignored unless it is asked for (`make test-recordings`).

use std::collections::VecDeque;

use crate::common::{Table, run, shared, single};
use verus_channel::path::link::Link;
use verus_core::controller::{Arrival, Observer};
use verus_core::receiver::{Ack, DataRange, Receiver, ReceiverConfig};
use verus_core::{Bytes, Duration, Stamp, Time, random};
use verus_senders::Scheme;
use verus_senders::Sender;
use verus_sim::Scenario;

/// As the reference runs had it: the queue of the 2017 reproduction.
const RED_CS244: &str = "red:min=375000,max=1125000,p=0.1,preset=cs244";

/// A packet of one direction, with what the end that sent it has to say of the other direction.
#[derive(Debug)]
struct Packet {
    number: u64,
    data: DataRange,
    stamp: Option<Stamp>,
    ack: Option<Ack>,
    report: Vec<u8>,
}

impl verus_channel::path::Packet for Packet {}

/// An end that sends and receives.
struct End {
    sender: Sender,
    receiver: Receiver,
    observer: Box<dyn Observer>,
    arriving: VecDeque<(Time, Packet)>,
}

impl End {
    fn new(size: Bytes) -> Self {
        let scheme = Scheme::parse("sprout").unwrap_or_else(|error| panic!("{error}"));
        let mut sender = Sender::new(scheme.build(1), size, Time::ZERO);
        sender.offer_bulk();
        End {
            sender,
            receiver: Receiver::new(ReceiverConfig::default()),
            observer: scheme.observer().expect("Sprout has a receiver half"),
            arriving: VecDeque::new(),
        }
    }

    fn next(&self) -> Option<Time> {
        let arrival = self.arriving.front().map(|&(at, _)| at);
        let timers = [arrival, self.sender.next_timer(), self.observer.next_tick()];
        timers.into_iter().flatten().min()
    }

    fn advance(&mut self, now: Time, size: Bytes) {
        while self.arriving.front().is_some_and(|&(at, _)| at <= now) {
            let (_, packet) = self.arriving.pop_front().expect("it was looked at");
            self.receiver.on_packet(now, packet.number, packet.data);
            self.observer.on_packet(&Arrival {
                at: now,
                number: packet.number,
                size,
                stamp: packet.stamp.as_ref().map(Stamp::as_slice),
            });
            if let Some(ack) = &packet.ack {
                let accepted = self.sender.on_ack(now, ack, Some(&packet.report));
                accepted.expect("it acknowledges what arrived");
            }
        }
        if self.observer.next_tick().is_some_and(|at| at <= now) {
            self.observer.on_tick(now);
        }
        if self.sender.next_timer().is_some_and(|at| at <= now) {
            self.sender.on_timer(now);
        }
    }

    fn transmit(&mut self, now: Time) -> Option<Packet> {
        let transmit = self.sender.poll_transmit(now)?;
        let ack = self.receiver.poll_ack(now);
        let mut report = Vec::new();
        if ack.is_some() {
            self.observer.write_report(&mut report);
        }
        Some(Packet {
            number: transmit.number,
            data: transmit.data,
            stamp: transmit.stamp,
            ack,
            report,
        })
    }
}

/// Sprout in both directions, each carrying the other's forecasts on its own packets, as the
/// measured one did. Returns utilization and 95th percentile of the time in the queue, ms, of the
/// first direction.
fn both_ways(scenario: &Scenario) -> (f64, f64) {
    let paths = scenario.paths().unwrap_or_else(|error| panic!("{error}"));
    let mut links = [(paths.there, 0), (paths.back, 1)].map(|(way, index)| {
        let (service, queue) = way.link.expect("a link each way");
        Link::new(service, &queue, random::stream(1, "queue", index))
    });
    let size = Bytes::new(u64::from(scenario.packet_bytes));
    let delay = Duration::from_millis_f64(scenario.delay_ms);
    let mut ends = [End::new(size), End::new(size)];
    let end = Time::from_secs_f64(scenario.duration_s);
    let mut waits = Vec::new();
    let mut now = Time::ZERO;
    loop {
        for at in &mut ends {
            at.advance(now, size);
        }
        for (from, link) in links.iter_mut().enumerate() {
            while let Some(packet) = ends[from].transmit(now) {
                let _ = link.enqueue(now, size, packet, drop);
            }
            while link.next_departure().is_some_and(|at| at <= now) {
                if let Some(departed) = link.depart(now, drop) {
                    if from == 0 {
                        waits.push(now.since(departed.entered));
                    }
                    ends[1 - from]
                        .arriving
                        .push_back((now + delay, departed.packet));
                }
            }
        }
        let next = ends.iter().filter_map(End::next);
        let next = next
            .chain(links.iter().filter_map(Link::next_departure))
            .min();
        // A timer that is due again at once fires a nanosecond later.
        now = next
            .expect("heartbeats never end")
            .max(now + Duration::from_nanos(1));
        if now > end {
            break;
        }
    }
    waits.sort_unstable();
    let carried = size * waits.len() as u64;
    (
        carried.as_f64() / links[0].capacity(Time::ZERO, end).as_f64(),
        waits[waits.len() * 95 / 100].as_millis_f64(),
    )
}

#[test]
fn forecasts_reach_the_sender_and_keep_the_queue_short() {
    let outcome = run(&single("rate:5", "infinite", "sprout", 30.0));
    let metrics = &outcome.metrics;
    let delay = metrics.qdelay_p95_ms.expect("packets left");
    assert!((2.0..5.0).contains(&metrics.throughput_mbps), "{metrics:?}");
    assert!(delay < 100.0, "{delay} ms");
    let flow = &outcome.flows[0];
    let column = |name: &str| {
        let at = flow.columns.iter().position(|&column| column == name);
        flow.samples[at.unwrap_or_else(|| panic!("no column {name}"))].clone()
    };
    assert_eq!(column("forecast_at_sender").last(), Some(&0.0));
    assert!(column("forecast_packets").last() > Some(&5.0));
}

#[test]
fn the_published_limits_bind_on_a_fast_link_and_can_be_raised() {
    let carried = |scheme: &str| {
        let outcome = run(&single("rate:40", "infinite", scheme, 30.0));
        outcome.metrics.throughput_mbps
    };
    let published = carried("sprout");
    let raised = carried("sprout:max_rate=4000,max_arrivals_per_tick=120");
    println!("{published} Mbit/s, limits raised: {raised} Mbit/s");
    assert!(raised > 2.0 * published, "{raised} Mbit/s");
    // Both ways, where forecasts wait for the other direction's packets, 11.2 to 11.5 Mbit/s were
    // measured. The sooner a forecast arrives, the more windows of 100 ms fit in 100 ms.
    for ack in ["rate:8", "rate:12", "rate:40"] {
        let (utilization, _) = both_ways(&Scenario {
            ack: ack.to_owned(),
            ..single("rate:40", "infinite", "sprout", 30.0)
        });
        let both = 40.0 * utilization;
        println!("both ways over {ack}: {both:.1} Mbit/s");
        assert!((9.5..12.0).contains(&both), "{ack}: {both} Mbit/s");
    }
}

#[test]
fn a_forecast_at_the_sender_works_without_a_receiver_half() {
    let outcome = run(&single("rate:5", "infinite", "sprout:receiver=no", 30.0));
    let metrics = &outcome.metrics;
    let delay = metrics.qdelay_p95_ms.expect("packets left");
    assert!((1.0..5.0).contains(&metrics.throughput_mbps), "{metrics:?}");
    assert!(delay < 100.0, "{delay} ms");
}

#[test]
fn acknowledgements_that_are_lost_or_delayed_leave_the_halves_together() {
    for (ack, ack_queue, ack_every) in [
        ("rate:0.05", "droptail:packets=3", 1),
        ("rate:1", "infinite", 4),
        ("ideal", "infinite", 2),
    ] {
        let outcome = run(&Scenario {
            ack: ack.to_owned(),
            ack_queue: ack_queue.to_owned(),
            ack_every,
            loss: 0.02,
            ..single("rate:5", "droptail:bytes=60000", "sprout", 20.0)
        });
        let rate = outcome.metrics.throughput_mbps;
        assert!(rate > 0.2, "{ack} {ack_every}: {rate} Mbit/s");
    }
}

#[test]
#[ignore = "reads recordings: make test-recordings"]
fn sprout_both_ways_does_as_the_measured_one_on_most_recordings() {
    let shared = shared();
    let path = |name: &str| {
        let path = shared.join("traces").join(name);
        path.to_str()
            .expect("paths of recordings are text")
            .to_owned()
    };
    let table = Table::read(&shared.join("reference/peers-measured.csv"));
    let rows: Vec<_> = table
        .rows
        .iter()
        .filter(|row| table.get(row, "scheme") == "sprout" && table.get(row, "queue") == RED_CS244)
        .collect();
    assert_eq!(rows.len(), 8, "traces of the measured Sprout");
    let mut alike = 0;
    let mut lines = Vec::new();
    for row in rows {
        let (utilization, delay) = both_ways(&Scenario {
            ack: match table.get(row, "ack_path") {
                rate if rate.starts_with("rate:") => rate.to_owned(),
                recording => path(recording),
            },
            ack_queue: RED_CS244.to_owned(),
            // The device header that Mahimahi accounts.
            packet_bytes: 1504,
            ..single(&path(table.get(row, "trace")), RED_CS244, "sprout", 60.0)
        });
        let theirs = (
            table.number(row, "utilization"),
            table.number(row, "qdelay_p95_ms"),
        );
        let good = (utilization - theirs.0).abs() <= 0.08 && (delay / theirs.1 - 1.0).abs() <= 0.40;
        alike += usize::from(good);
        lines.push(format!(
            "{}: utilization {utilization:.3} (measured {:.3}), p95 delay {delay:.0} ms ({:.0}){}",
            table.get(row, "trace"),
            theirs.0,
            theirs.1,
            if good { "" } else { ": apart" }
        ));
    }
    println!("{}", lines.join("\n"));
    assert!(alike >= 5, "\n{}", lines.join("\n"));
}
