//! One direction of the emulator, in virtual time. With the arrivals of a simulated run it does
//! what the simulator did, and a late caller changes nothing.

use proptest::prelude::*;
use verus_channel::catalogue;
use verus_channel::path::link::{Service, WhenOver};
use verus_channel::path::{Dropped, Packet, Watch};
use verus_channel::queue::QueueConfig;
use verus_channel::trace::Trace;
use verus_channel::{PathConfig, Schedule, Way};
use verus_core::{Bytes, Duration, Time};
use verus_emu::direction::Direction;
use verus_sim::{FlowSpec, Scenario};

/// Events at the bottleneck, in order: their times and packets.
#[derive(Debug, Default, PartialEq)]
struct Events {
    arrived: Vec<usize>,
    departed: Vec<(Time, Time, usize)>,
    dropped: Vec<(Time, usize)>,
}

/// A packet, by its number.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Number(usize);

impl Packet for Number {}

impl Watch<Number> for Events {
    fn on_entered(&mut self, _: Time, _: Bytes, packet: &Number) {
        self.arrived.push(packet.0);
    }

    fn on_left(&mut self, now: Time, _: Bytes, entered: Time, packet: &Number) {
        self.departed.push((now, entered, packet.0));
    }

    fn on_dropped(&mut self, now: Time, _: Bytes, packet: &Number, _: Dropped) {
        self.dropped.push((now, packet.0));
    }
}

const ORIGIN: Time = Time::from_millis(1234);
const END: Time = Time::from_millis(1 << 30);

/// Hands `arrivals` to a direction at their times, and looks after it at `visits` besides.
fn replay(
    config: &PathConfig,
    seed: u64,
    arrivals: &[(Time, Bytes)],
    visits: &[Time],
) -> (Events, Vec<(Time, usize)>) {
    let mut direction = Direction::new(config, seed, Way::Forth);
    direction.begin(ORIGIN);
    let mut events = Events::default();
    let mut delivered = Vec::new();
    let mut visits = visits.iter().copied().peekable();
    for (number, &(at, size)) in arrivals.iter().enumerate() {
        while let Some(visit) = visits.next_if(|&visit| visit < at) {
            direction.advance(visit, &mut events);
            delivered.extend(deliver(&mut direction, visit));
        }
        direction.catch_up(at, &mut events);
        direction.arrive(at, size, Number(number), &mut events);
    }
    direction.advance(END, &mut events);
    delivered.extend(deliver(&mut direction, END));
    (events, delivered)
}

/// Packets that have arrived at the far end by `now`, with their times.
fn deliver(direction: &mut Direction<Number>, now: Time) -> Vec<(Time, usize)> {
    std::iter::from_fn(|| direction.deliver(now, &mut ()))
        .map(|(at, packet)| (at, packet.0))
        .collect()
}

/// A flow of the simulator, and its packets again through a direction with the same seed.
#[test]
fn a_simulated_run_replayed_meets_the_same_drops_and_departures() {
    for queue in [
        "red:min=60000,max=180000,p=0.1",
        "droptail:bytes=60000",
        "codel",
        "droptail:delay_ms=60",
        "pie",
        "fq_codel",
        "dualpi2",
        "infinite",
    ] {
        for trace in ["city-driving-3g-up", "rate:8"] {
            for seed in [1, 7] {
                let scenario = Scenario {
                    trace: trace.to_owned(),
                    queue: queue.to_owned(),
                    loss: 0.002,
                    flows: vec![FlowSpec::new("cubic")],
                    duration_s: 10.0,
                    records: true,
                    seed,
                    ..Scenario::default()
                };
                agrees(&scenario);
            }
        }
    }
}

/// Short trains by a light trace, made by hand, and the rest by a heavy one.
#[test]
fn a_simulated_run_over_a_light_trace_replayed_meets_the_same() {
    let light = concat!(env!("CARGO_TARGET_TMPDIR"), "/light");
    std::fs::write(
        light,
        "0 20 0 1 3\n100 44 0 2 2 9\n200 15 0 4 5\n300 20 0\n",
    )
    .unwrap();
    for queue in ["droptail:bytes=30000", "codel", "fq_codel"] {
        let scenario = Scenario {
            trace: "city-driving-lte-down".to_owned(),
            light_trace: Some(light.to_owned()),
            light_timer_ms: 15.0,
            packet_bytes: 1400,
            queue: queue.to_owned(),
            loss: 0.002,
            jitter: "uniform:max_ms=3".to_owned(),
            flows: vec![FlowSpec::new("cubic")],
            duration_s: 10.0,
            records: true,
            ..Scenario::default()
        };
        agrees(&scenario);
    }
}

fn agrees(scenario: &Scenario) {
    let name = format!(
        "{} {} seed {}",
        scenario.trace, scenario.queue, scenario.seed
    );
    let outcome = verus_sim::run(scenario, &mut |_| true).expect("a valid scenario");
    let records = outcome.records.expect("asked for");
    let duration = Duration::from_secs_f64(scenario.duration_s);
    let config = scenario.paths().expect("a valid scenario").there;
    let at = |ms: f64| ORIGIN + Duration::from_millis_f64(ms);
    let arrivals: Vec<(Time, Bytes)> = records
        .sent_ms
        .iter()
        .zip(&records.size_bytes)
        .map(|(&ms, &size)| (at(ms), Bytes::new(u64::from(size))))
        .collect();
    let (events, delivered) = replay(&config, scenario.seed, &arrivals, &[]);

    let until = Time::ZERO + duration;
    let at_ms = |ms: f64| Time::ZERO + Duration::from_millis_f64(ms);
    let happened = |column: &[f64]| -> Vec<(Time, usize)> {
        let times = column.iter().enumerate();
        times
            .filter(|(_, ms)| ms.is_finite())
            .map(|(number, &ms)| (at_ms(ms), number))
            .collect()
    };
    let mut dropped = happened(&records.dropped_ms);
    // A packet dropped at the head of a queue arrived before those that are dropped at its tail
    // meanwhile.
    dropped.sort_unstable();
    let mut ours: Vec<_> = events
        .dropped
        .iter()
        .copied()
        .filter(|&(time, _)| time <= until)
        .collect();
    ours.sort_unstable();
    assert!(dropped.len() > 5, "{name}: {} drops", dropped.len());
    same(&name, "drops", &ours, &dropped);
    let mut departed: Vec<_> = events
        .departed
        .iter()
        .map(|&(time, _, number)| (time, number))
        .filter(|&(time, _)| time <= until)
        .collect();
    // Over a light trace packets overtake others: the order is that of time, and at one instant of sending.
    let in_time = |mut packets: Vec<(Time, usize)>| {
        packets.sort_unstable();
        packets
    };
    departed.sort_unstable();
    let expected = in_time(happened(&records.departed_ms));
    same(&name, "departures", &departed, &expected);
    let received = in_time(happened(&records.received_ms));
    for ((due, number), (time, expected)) in in_time(delivered).iter().zip(&received) {
        assert_eq!(
            (due.since(ORIGIN), number),
            (time.since(Time::ZERO), expected),
            "{name}: received"
        );
    }
}

/// The first difference says more than thousands of lines.
fn same(name: &str, what: &str, ours: &[(Time, usize)], theirs: &[(Time, usize)]) {
    let differs = ours
        .iter()
        .zip(theirs)
        .position(|(our, their)| our != their);
    if let Some(at) = differs {
        panic!(
            "{name}: of the {what}, number {at} is {:?} and was {:?}",
            ours[at], theirs[at]
        );
    }
    assert_eq!(ours.len(), theirs.len(), "{name}: number of {what}");
}

fn queues() -> impl Strategy<Value = QueueConfig> {
    prop_oneof![
        Just("infinite"),
        Just("droptail:bytes=9000"),
        Just("red:min=3000,max=9000,p=0.2"),
        Just("codel"),
        Just("pie:burst_ms=1"),
        Just("fq_codel:packets=20"),
        Just("dualpi2:packets=20"),
    ]
    .prop_map(|text| QueueConfig::parse(text).expect("a queue"))
}

fn services() -> impl Strategy<Value = Service> {
    let trace = proptest::collection::vec(0u64..20, 1..60).prop_map(|gaps| {
        let millis = gaps.iter().scan(1, |at, gap| {
            *at += gap;
            Some(*at)
        });
        Service::Trace {
            trace: Trace::from_millis("t", millis).expect("in order").into(),
            opportunity: Bytes::new(1504),
            end: WhenOver::Loop,
        }
    });
    let rate = (1u32..50).prop_map(|mbps| {
        let channel = catalogue::open(&format!("rate:{mbps}"), 1, Duration::from_secs_f64(1.0));
        channel
            .expect("a rate")
            .service(Bytes::new(1504), WhenOver::Loop)
    });
    prop_oneof![trace, rate]
}

fn arrivals() -> impl Strategy<Value = Vec<(Time, Bytes)>> {
    // Many at one instant and on whole milliseconds, where traces have their opportunities.
    let gap = prop_oneof![
        Just(0u64),
        Just(1_000_000),
        0u64..3_000_000,
        0u64..60_000_000
    ];
    let arrival = (gap, prop_oneof![Just(1500u64), 40u64..1500]);
    proptest::collection::vec(arrival, 1..200).prop_map(|arrivals| {
        let times = arrivals.into_iter().scan(ORIGIN, |at, (gap, size)| {
            *at += Duration::from_nanos(gap);
            Some((*at, Bytes::new(size)))
        });
        times.collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn who_comes_late_finds_what_the_punctual_found(
        service in services(), queue in queues(), arrivals in arrivals(),
        loss in prop_oneof![Just(0.0), Just(0.1)], seed: u64,
        mut visits in proptest::collection::vec(0u64..3_000_000_000, 0..40),
    ) {
        let delay = Duration::from_millis(20);
        let config = PathConfig {
            link: Some((service, queue)),
            loss: Schedule::constant(loss),
            ..PathConfig::propagation(delay)
        };
        visits.sort_unstable();
        let visits: Vec<Time> = visits.into_iter().map(|nanos| ORIGIN + Duration::from_nanos(nanos)).collect();
        let (late, late_delivered) = replay(&config, seed, &arrivals, &[]);
        let (events, delivered) = replay(&config, seed, &arrivals, &visits);
        prop_assert_eq!(&events, &late);
        prop_assert_eq!(&delivered, &late_delivered);

        // Every packet is reported once, and then once more. Delivered packets are the departed
        // ones, a delay later.
        prop_assert_eq!(&events.arrived, &(0..arrivals.len()).collect::<Vec<_>>());
        let mut fates: Vec<usize> = events.departed.iter().map(|&(_, _, packet)| packet)
            .chain(events.dropped.iter().map(|&(_, packet)| packet)).collect();
        fates.sort_unstable();
        prop_assert_eq!(&fates, &events.arrived);
        let due: Vec<(Time, usize)> = events.departed.iter()
            .map(|&(time, _, packet)| (ORIGIN + time.since(Time::ZERO) + delay, packet)).collect();
        prop_assert_eq!(&delivered, &due);
        prop_assert!(delivered.is_sorted(), "in the order of arrival");
        for &(time, entered, packet) in &events.departed {
            prop_assert_eq!(ORIGIN + entered.since(Time::ZERO), arrivals[packet].0);
            prop_assert!(entered <= time);
        }
    }
}

#[test]
fn without_a_link_there_is_propagation_only_and_nothing_is_asked_for_before_it_is_due() {
    let config = PathConfig::propagation(Duration::from_millis(20));
    let mut direction = Direction::new(&config, 1, Way::Forth);
    let mut events = Events::default();
    // Before the beginning nothing is reported.
    direction.arrive(ORIGIN, Bytes::new(100), Number(0), &mut events);
    assert_eq!(events, Events::default());
    direction.begin(ORIGIN + Duration::from_millis(1));
    direction.arrive(
        ORIGIN + Duration::from_millis(2),
        Bytes::new(100),
        Number(1),
        &mut events,
    );
    assert_eq!(events.arrived, [1]);
    assert_eq!(direction.packets(), 2);
    let first = ORIGIN + Duration::from_millis(20);
    assert_eq!(direction.next(), Some(first));
    assert_eq!(
        deliver(&mut direction, first + Duration::from_nanos(0)),
        [(first, 0)]
    );
    assert_eq!(deliver(&mut direction, first), []);
    assert_eq!(direction.next(), Some(first + Duration::from_millis(2)));
}

#[test]
fn only_an_idle_link_misses_opportunities() {
    let channel = catalogue::open("rate:12", 1, Duration::from_secs_f64(1.0)).expect("a rate");
    let config = PathConfig {
        link: Some((
            channel.service(Bytes::new(1504), WhenOver::Loop),
            QueueConfig::parse("infinite").expect("a queue"),
        )),
        ..PathConfig::default()
    };
    let mut direction = Direction::new(&config, 1, Way::Forth);
    direction.begin(ORIGIN);
    let later = ORIGIN + Duration::from_millis(2);
    assert_eq!(direction.missed(ORIGIN, later), Bytes::new(3000));
    direction.arrive(ORIGIN, Bytes::new(1500), Number(0), &mut ());
    assert_eq!(direction.missed(ORIGIN, later), Bytes::ZERO);
}
