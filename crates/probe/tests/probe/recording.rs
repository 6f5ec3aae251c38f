//! Recording an emulated link of known trace recovers it: both ends of the probe on virtual clocks that
//! disagree, over links whose every delivery opportunity is known.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::hosts::{Clock, End, Host, Watched};
use verus_channel::path::link::{Service, WhenOver};
use verus_channel::{QueueConfig, RateSchedule, Trace, generate, raw};
use verus_core::{Bytes, Duration, Rate, Time};
use verus_faults::world::{self, Ending, Surroundings};
use verus_faults::{Bottleneck, Schedule};
use verus_probe::client::{Client, ClientConfig};
use verus_probe::connection::Batch;
use verus_probe::limits::Limits;
use verus_probe::recording::{self, Limit, Recording, Tape, Way};
use verus_probe::server::{Catalogue, Server, ServerConfig};
use verus_probe::wire::Request;
use verus_senders::Scheme;

const MTU: Bytes = Bytes::new(1500);
/// Of the path, each way.
const DELAY: Duration = Duration::from_millis(25);

/// The client's three tests, one after the other.
struct Recorder {
    tests: VecDeque<(Request, String)>,
    client: Client<Scheme>,
    tapes: Vec<Tape>,
}

impl Recorder {
    fn new(load: &Request, upward: &str, now: Time) -> Self {
        let light = (recording::light_request(load), recording::light_scheme());
        let mut tests = VecDeque::from([light.clone(), (load.clone(), upward.to_owned()), light]);
        let first = tests.pop_front().expect("three tests");
        Recorder {
            client: client(&first, now),
            tests,
            tapes: vec![Tape::default()],
        }
    }

    fn advance(&mut self, now: Time) {
        if let Some(connection) = self.client.connection_mut() {
            let mut events = Vec::new();
            connection.drain_events(&mut events);
            let tape = self.tapes.last_mut().expect("one at least");
            tape.take(events);
            let sent = connection.incoming().map(|(_, status)| status.sent).sum();
            tape.note_sent_there(sent);
        }
        if self.client.outcome() == Some(Ok(()))
            && let Some(test) = self.tests.pop_front()
        {
            self.client = client(&test, now);
            self.tapes.push(Tape::default());
        }
    }
}

fn client((request, scheme): &(Request, String), now: Time) -> Client<Scheme> {
    let config = ClientConfig {
        patience: Duration::from_secs(60),
        silence: Duration::from_secs(60),
        log: true,
        ..ClientConfig::new(request.clone())
    };
    let scheme = Scheme::parse(scheme).expect("in the list");
    let mut entropy = [7; 32];
    entropy[..8].copy_from_slice(&now.as_nanos().to_le_bytes());
    Client::new(config, scheme, entropy, now)
}

impl End for Recorder {
    fn handle(&mut self, now: Time, _from: SocketAddr, datagram: &[u8]) {
        self.client.handle(now, now, datagram);
        self.advance(now);
    }

    fn poll_transmit(&mut self, now: Time, batch: &mut Batch) -> bool {
        let some = End::poll_transmit(&mut self.client, now, batch);
        self.advance(now);
        some
    }

    fn next_timer(&self, now: Time) -> Option<Time> {
        self.client.next_timer(now)
    }

    fn on_timer(&mut self, now: Time) {
        self.client.on_timer(now);
        self.advance(now);
    }

    fn is_done(&self) -> bool {
        self.tests.is_empty() && self.client.outcome().is_some()
    }
}

/// A recording's settings.
struct Plan {
    links: [Service; 2],
    queue: &'static str,
    /// The rate that the server grants a test.
    granted: Option<Rate>,
    /// Flows up and down.
    flows: [u16; 2],
    schemes: [&'static str; 2],
    seconds: u64,
    settling: Duration,
    clock: Clock,
}

fn record(plan: Plan) -> Recording {
    let Plan {
        links,
        queue,
        granted,
        flows,
        schemes,
        seconds,
        settling,
        clock,
    } = plan;
    let request = Request {
        upload_flows: flows[0],
        download_flows: flows[1],
        duration_nanos: (Duration::from_secs(seconds) + settling).as_nanos(),
        scheme: schemes[1].to_owned(),
        ..Request::default()
    };
    let [up, down] = links.map(|service| {
        Some(Bottleneck {
            service,
            queue: QueueConfig::parse(queue).expect("a valid queue"),
        })
    });
    let recorder = Recorder::new(&request, schemes[0], Time::ZERO);
    let mut client = Host::new(recorder, Clock::TRUE, 16);
    let entropy = [3; 32];
    let config = ServerConfig {
        limits: Limits {
            rate_per_client: granted,
            ..Limits::default()
        },
        ..ServerConfig::default()
    };
    let server = Server::new(config, Catalogue, entropy, clock.shows(Time::ZERO));
    let mut server = Host::new(Watched::new(server), clock, 16);
    let meeting = world::run(
        &Schedule::perfect(DELAY),
        Surroundings { up, down },
        &mut client,
        &mut server,
        Time::from_millis(1000 * (seconds + 120)),
    );
    assert_eq!(meeting.ending, Ending::Done);
    assert_eq!(client.end.client.outcome(), Some(Ok(())));
    let [before, load, after] = &client.end.tapes[..] else {
        panic!("three tests were run");
    };
    Recording::new([before, load, after], &request, settling).expect("something arrived")
}

/// Opportunities in bins of 100 ms from `from_ms`, as many as there are whole ones before `to_ms`.
fn bins(times: impl Iterator<Item = u64>, from_ms: u64, to_ms: u64) -> Vec<f64> {
    let mut bins = vec![0.0; ((to_ms - from_ms) / 100) as usize];
    for time in times {
        if let Some(bin) = time
            .checked_sub(from_ms)
            .and_then(|t| bins.get_mut((t / 100) as usize))
        {
            *bin += 1.0;
        }
    }
    bins
}

fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (ma, mb) = (mean(a), mean(b));
    let product = |x: &[f64], mx: f64, y: &[f64], my: f64| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - mx) * (y - my)).sum()
    };
    product(a, ma, b, mb) / (product(a, ma, a, ma) * product(b, mb, b, mb)).sqrt()
}

/// How far the recorded mean rate is off, and the correlation of throughput in 100 ms, in one direction.
fn compare(recorded: &Trace, truth: &Trace, from: Time) -> (f64, f64) {
    // Packets that leave the link at t arrive a propagation delay later.
    let began = (from - DELAY).as_millis();
    let period = recorded.period_ms();
    let truth_bins = truth.opportunities().map(|ms| ms.wrapping_sub(began));
    let truth_bins = bins(truth_bins.filter(|&ms| ms < period), 0, period);
    let recorded_bins = bins(recorded.opportunities(), 0, period);
    let ratio = recorded_bins.iter().sum::<f64>() / truth_bins.iter().sum::<f64>();
    (ratio - 1.0, correlation(&truth_bins, &recorded_bins))
}

fn trace_of(direction: &recording::Way, from: Time) -> Trace {
    let arrivals = direction.arrivals.iter();
    let arrivals = arrivals.map(|arrival| (arrival.at, arrival.size));
    raw::from_arrivals("recorded", arrivals, from, MTU).expect("enough arrived")
}

const SERVER_CLOCK: Clock = Clock {
    ahead: Duration::from_secs(86_400),
    drift_ppm: 50.0,
};

/// Places and networks whose channels, one up and one down, are recorded at once.
const BOTH_WAYS: [&str; 7] = [
    "campus-pedestrian-3g",
    "campus-pedestrian-lte",
    "campus-stationary-3g",
    "campus-stationary-lte",
    "city-driving-3g",
    "city-stationary-3g",
    "city-stationary-lte",
];

/// Channels of which one direction falls silent or slow for long. Acknowledgements through it may
/// then not keep the other direction's queue standing, so the directions are recorded one after the
/// other.
const ONE_WAY: [&str; 7] = [
    "city-driving-lte",
    "city-waterfront-3g",
    "city-waterfront-lte",
    "highway-driving-3g",
    "highway-driving-lte",
    "shopping-mall-3g",
    "shopping-mall-lte",
];

/// Records the channels of `place`, and checks the results for the directions with flows.
fn check(place: &str, seed: u64, flows: [u16; 2]) {
    let truth = ["up", "down"].map(|direction| {
        let name = format!("{place}-{direction}");
        let channel = generate::describe(&name).expect("a built-in channel");
        Arc::new(channel.trace(seed, Duration::from_secs(120)))
    });
    let links = truth.clone().map(|trace| Service::Trace {
        trace,
        opportunity: MTU,
        end: WhenOver::Loop,
    });
    let recording = record(Plan {
        links,
        queue: "infinite",
        granted: None,
        flows,
        schemes: ["saturate", "saturate"],
        seconds: 60,
        settling: recording::SETTLING,
        clock: SERVER_CLOCK,
    });
    for (name, direction, truth, flows) in [
        ("up", &recording.up, &truth[0], flows[0]),
        ("down", &recording.down, &truth[1], flows[1]),
    ] {
        if flows == 0 {
            continue;
        }
        let trace = trace_of(direction, recording.from);
        let (off, correlation) = compare(&trace, truth, recording.from);
        let summary = format!(
            "{place} {name}: {:.2} Mbit/s, off by {:.2} %, correlation {correlation:.3}, \
             queued {:.3} of the time, {} arrivals without a time",
            trace.mean_rate(MTU).as_mbps(),
            off * 100.0,
            direction.queued_share,
            direction.untimed
        );
        println!("{summary}");
        assert!(off.abs() < 0.02, "{summary}");
        assert!(correlation > 0.95, "{summary}");
    }
    let clocks = recording.clocks;
    println!("{clocks:?}");
    assert!(
        (clocks.drift_ppm - 50.0).abs() <= clocks.drift_error_ppm,
        "{clocks:?}"
    );
    let offset = SERVER_CLOCK.ahead.as_millis_f64();
    assert!(
        (clocks.offset_ms - offset).abs() <= clocks.offset_error_ms,
        "{clocks:?}"
    );
}

#[test]
fn recording_both_directions_at_once_recovers_the_traces() {
    for (seed, place) in (1..).zip(BOTH_WAYS) {
        check(place, seed, [1, 1]);
    }
}

#[test]
fn recording_one_direction_after_the_other_recovers_every_trace() {
    for (seed, place) in (1..).zip(ONE_WAY.into_iter().chain(BOTH_WAYS)) {
        check(place, seed, [1, 0]);
        check(place, seed, [0, 1]);
    }
}

#[test]
fn a_constant_rate_below_capacity_arrives_as_it_left() {
    let rate = |mbps| Service::Rate(RateSchedule::constant(Rate::from_mbps(mbps)));
    let recording = record(Plan {
        links: [rate(20.0), rate(20.0)],
        queue: "infinite",
        granted: None,
        flows: [1, 1],
        schemes: ["constant:rate_mbps=2.5", "constant:rate_mbps=5"],
        seconds: 20,
        settling: Duration::ZERO,
        clock: SERVER_CLOCK,
    });
    for (direction, mbps) in [(&recording.up, 2.5), (&recording.down, 5.0)] {
        let data: Vec<_> = direction
            .arrivals
            .iter()
            .filter(|arrival| arrival.number.is_some())
            .collect();
        let span = data[data.len() - 1].at.since(data[0].at).as_secs_f64();
        let mean_mbps = (data.len() - 1) as f64 * 1400.0 * 8.0 / span / 1e6;
        assert!(
            (mean_mbps / mbps - 1.0).abs() < 1e-3,
            "{mean_mbps} Mbit/s of {mbps}"
        );
        assert_eq!((direction.lost, direction.untimed), (0, 0));
        // 1400 bytes take 0.56 ms; the error of the clocks' relation adds to that.
        for arrival in data {
            let delay = arrival.delay_ms();
            assert!((25.0..26.5).contains(&delay), "{delay} ms");
        }
    }
}

#[test]
fn what_bounded_a_recording_is_told_and_only_the_path_makes_a_channel() {
    let mbps = |rate: Option<f64>| rate.map(Rate::from_mbps);
    // Link, queue, the server's grant, constant rate of the load; the expected bound.
    let cases = [
        (8.0, "infinite", None, None, Limit::PathQueue),
        (8.0, "infinite", Some(20.0), None, Limit::PathQueue),
        (20.0, "infinite", Some(5.0), None, Limit::ServerLimit),
        (20.0, "infinite", None, Some(5.0), Limit::OwnRate),
        (4.0, "infinite", None, Some(5.0), Limit::PathQueue),
    ];
    for (link, queue, granted, offered, bound) in cases {
        let scheme = match offered {
            None => "saturate",
            Some(5.0) => "constant:rate_mbps=5",
            Some(_) => "constant:rate_mbps=8",
        };
        let rate = || Service::Rate(RateSchedule::constant(Rate::from_mbps(link)));
        let recording = record(Plan {
            links: [rate(), rate()],
            queue,
            granted: mbps(granted),
            flows: [1, 1],
            schemes: [scheme, scheme],
            seconds: 10,
            settling: recording::SETTLING,
            clock: SERVER_CLOCK,
        });
        for direction in [&recording.up, &recording.down] {
            let rate = trace_of(direction, recording.from).mean_rate(MTU);
            let limit = Limit::of(direction, rate, mbps(granted), mbps(offered));
            let queued = direction.queued_share;
            assert_eq!(
                limit, bound,
                "{link} Mbit/s, {queue}: {rate:?}, queued {queued}"
            );
            assert_eq!(limit.is_path(), limit.mark().is_none());
        }
    }
}

#[test]
fn what_drops_without_a_queue_is_the_path_and_what_neither_drops_nor_queues_is_an_end() {
    let bound = |lost| {
        let direction = Way {
            sent: 1_000,
            lost,
            ..Way::default()
        };
        Limit::of(
            &direction,
            Rate::from_mbps(5.0),
            None,
            Some(Rate::from_mbps(8.0)),
        )
    };
    assert_eq!(bound(375), Limit::PathDrops);
    assert_eq!(bound(0), Limit::Ends);
}
