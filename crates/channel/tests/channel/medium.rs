//! Two stations that share a medium, against formulas for one station and for two that always have
//! packets.

use std::collections::BTreeMap;

use proptest::prelude::*;
use verus_channel::medium::{Medium, MediumConfig};
use verus_channel::path::Packet;
use verus_channel::schedule::Schedule;
use verus_channel::{Path, PathConfig, QueueConfig, Service, Way};
use verus_core::{Bytes, Duration, Rate, Time};

struct Number;

impl Packet for Number {}

/// One transmission of a station.
struct Sent {
    way: usize,
    at: Time,
    end: Time,
    collided: bool,
}

/// Both directions of a path and their medium.
struct Shared {
    medium: Medium,
    paths: [Path<Number>; 2],
    log: Vec<Sent>,
}

impl Shared {
    fn new(text: &str, mbps: f64, seed: u64) -> Self {
        let config: MediumConfig = text.parse().expect("valid");
        let path = |way| {
            let queue = QueueConfig::parse("infinite").expect("valid");
            let schedule = Schedule::constant(Rate::from_mbps(mbps));
            let config = PathConfig {
                link: Some((Service::Shared(schedule), queue)),
                ..PathConfig::propagation(Duration::ZERO)
            };
            config.build(seed, way)
        };
        Shared {
            medium: Medium::new(&config, seed).expect("not none"),
            paths: [path(Way::Forth), path(Way::Back)],
            log: Vec::new(),
        }
    }

    fn send(&mut self, way: usize, now: Time, bytes: u64) {
        self.paths[way].serve_before(now, &mut ());
        self.paths[way].send(now, Bytes::new(bytes), Number, &mut ());
    }

    /// The instant of the next transmission, of stations that have got packets at `now`.
    fn next(&mut self, now: Time) -> Option<Time> {
        let backlogged = [0, 1].map(|way: usize| self.paths[way].is_backlogged());
        self.medium.contend(now, backlogged)
    }

    /// The stations whose turn is at `now` transmit; returns the direction whose packets are
    /// received, and how many.
    fn transmit(&mut self, now: Time) -> Option<(usize, usize, Time)> {
        let limits = self.medium.limits();
        let winners = self.medium.winners();
        let ends = [0, 1].map(|way: usize| {
            let path = &mut self.paths[way];
            winners[way].then(|| path.transmit(now, &limits, &mut ()))?
        });
        let collided = ends.iter().all(Option::is_some);
        for (way, end) in ends.into_iter().enumerate() {
            self.log.extend(end.map(|end| Sent {
                way,
                at: now,
                end,
                collided,
            }));
        }
        if !self.medium.occupy(ends) {
            return None;
        }
        let (way, end) = (0..).zip(ends).find_map(|(way, end)| Some((way, end?)))?;
        self.paths[way].receive(end);
        self.paths[way].serve(end, &mut ());
        let mut packets = 0;
        while self.paths[way].arrive(end, 0, &mut ()).is_some() {
            packets += 1;
        }
        Some((way, packets, end))
    }
}

/// Length of an aggregate on the air, µs, by hand: 40 µs of preamble and symbols of 4 µs.
fn airtime_us(packets: f64, bytes: f64, mbps: f64) -> f64 {
    let framed = ((bytes + 42.0) / 4.0).ceil() * 4.0;
    40.0 + ((packets * framed + 3.0) * 8.0 / mbps / 4.0).ceil() * 4.0
}

/// Airtime of an exchange beside its aggregate, µs: AIFS, SIFS and a `BlockAck`.
const AROUND_US: f64 = 43.0 + 16.0 + 32.0;
/// Mean backoff of one station, µs: 7.5 slots.
const BACKOFF_US: f64 = 7.5 * 9.0;

#[test]
fn one_station_reaches_the_rate_of_its_aggregate_over_its_airtime() {
    for (mbps, aggregate, packets) in [
        (26.0, 1, 1.0),
        (65.0, 8, 8.0),
        // 28 packets of 1544 bytes take 5.322 ms and the preamble, 29 take 5.512 ms.
        (65.0, 64, 28.0),
        (130.0, 32, 32.0),
        (433.3, 64, 64.0),
    ] {
        let mut shared = Shared::new(&format!("wifi:aggregate={aggregate}"), mbps, 1);
        let (mut now, mut received) = (Time::ZERO, 0);
        for _ in 0..20_000 {
            while shared.paths[0].packets() < 64 {
                shared.send(0, now, 1500);
            }
            let at = shared.next(now).expect("it has packets");
            let (_, packets, end) = shared.transmit(at).expect("nobody else transmits");
            received += packets;
            now = end;
        }
        let rate = received as f64 * 12_000.0 / (now.as_secs_f64() * 1e6);
        let cycle = AROUND_US + BACKOFF_US + airtime_us(packets, 1500.0, mbps);
        let expected = packets * 12_000.0 / cycle;
        assert!(
            (rate / expected - 1.0).abs() < 0.002,
            "{mbps} Mbit/s, {aggregate}: {rate} instead of {expected} Mbit/s"
        );
    }
}

#[test]
fn acknowledgements_and_their_collisions_take_their_airtime_from_the_data() {
    const MBPS: f64 = 130.0;
    for aggregate in [1, 4, 32] {
        let mut shared = Shared::new(&format!("wifi:aggregate={aggregate}"), MBPS, 1);
        let (mut now, mut data, mut unanswered) = (Time::ZERO, 0, 0);
        for _ in 0..20_000 {
            while shared.paths[0].packets() < 64 {
                shared.send(0, now, 1500);
            }
            while unanswered >= 2 {
                unanswered -= 2;
                shared.send(1, now, 64);
            }
            let at = shared.next(now).expect("it has packets");
            if let Some((way, packets, end)) = shared.transmit(at) {
                now = end;
                if way == 0 {
                    data += packets;
                    unanswered += packets;
                }
            } else {
                now = at;
            }
        }
        // Acknowledgements, and collisions, which last as long as the longer of two.
        let others = (shared.log.iter()).filter(|sent| sent.way == 1 || sent.collided);
        let mut ends = BTreeMap::new();
        for sent in others {
            let end: &mut Time = ends.entry(sent.at).or_default();
            *end = sent.end.max(*end);
        }
        let airtime = ends
            .iter()
            .map(|(at, end)| AROUND_US + end.since(*at).as_millis_f64() * 1e3);
        let share = airtime.sum::<f64>() / (now.as_secs_f64() * 1e6);
        let packets = f64::from(aggregate);
        let alone =
            packets * 12_000.0 / (AROUND_US + BACKOFF_US + airtime_us(packets, 1500.0, MBPS));
        let rate = f64::from(data as u32) * 12_000.0 / (now.as_secs_f64() * 1e6);
        // Two stations count their backoffs down together: the data wait no longer for the medium
        // than alone.
        let bound = BACKOFF_US / (AROUND_US + airtime_us(packets, 1500.0, MBPS));
        let fall = 1.0 - rate / alone;
        assert!(share > 0.02, "{share}");
        assert!(
            (fall - share).abs() < bound,
            "{aggregate}: falls by {fall}, airtime {share}, bound {bound}"
        );
    }
}

/// Probability that a transmission of two saturated stations is a collision, from the chain of what
/// remains.
///
/// After a success the winner draws from the first window, and the other has `left` slots of its
/// window number `stage`.
fn collision_probability() -> f64 {
    const STAGES: usize = 7;
    let window = |stage: usize| 16usize << stage;
    // By stage and slots left, and by the stages of two that have collided.
    let mut won = vec![vec![0.0; 1024]; STAGES];
    let mut collided = [[0.0; STAGES]; STAGES];
    won[0][8] = 1.0;
    let next = |stage: usize| (stage + 1).min(STAGES - 1);
    for _ in 0..200 {
        let mut won_next = vec![vec![0.0; 1024]; STAGES];
        let mut collided_next = [[0.0; STAGES]; STAGES];
        for stage in 0..STAGES {
            for left in 1..1024 {
                let chance = won[stage][left] / 16.0;
                if chance == 0.0 {
                    continue;
                }
                for drawn in 0..16 {
                    match drawn.cmp(&left) {
                        std::cmp::Ordering::Less => won_next[stage][left - drawn] += chance,
                        std::cmp::Ordering::Equal => collided_next[1][next(stage)] += chance,
                        std::cmp::Ordering::Greater => won_next[0][drawn - left] += chance,
                    }
                }
            }
        }
        for (one, row) in collided.iter().enumerate() {
            for (other, &chance) in row.iter().enumerate() {
                let chance = chance / (window(one) * window(other)) as f64;
                for (winner, loser) in [(one, other), (other, one)] {
                    for (gap, left) in won_next[loser].iter_mut().enumerate().skip(1) {
                        // How many pairs of backoffs differ by this much, the loser's being the
                        // longer.
                        let pairs = window(winner).min(window(loser).saturating_sub(gap));
                        *left += chance * pairs as f64;
                    }
                }
                let equal = window(one).min(window(other)) as f64;
                collided_next[next(one)][next(other)] += chance * equal;
            }
        }
        (won, collided) = (won_next, collided_next);
    }
    collided.iter().flatten().sum()
}

#[test]
fn two_saturated_stations_share_fairly_and_collide_as_their_backoffs_do() {
    const ACCESSES: usize = 200_000;
    let mut shared = Shared::new("wifi:aggregate=4", 130.0, 1);
    let (mut now, mut received) = (Time::ZERO, [0, 0]);
    let mut collisions = 0;
    for _ in 0..ACCESSES {
        for way in [0, 1] {
            while shared.paths[way].packets() < 8 {
                shared.send(way, now, 1500);
            }
        }
        let at = shared.next(now).expect("both have packets");
        match shared.transmit(at) {
            Some((way, packets, end)) => {
                received[way] += packets;
                now = end;
            }
            None => {
                collisions += 1;
                now = at;
            }
        }
    }
    let ratio = received[0] as f64 / received[1] as f64;
    assert!((ratio - 1.0).abs() < 0.02, "{received:?}");
    let (measured, expected) = (collisions as f64 / ACCESSES as f64, collision_probability());
    // Four standard errors of a share of as many accesses.
    let error = 4.0 * (expected * (1.0 - expected) / ACCESSES as f64).sqrt();
    assert!(
        (measured - expected).abs() < error,
        "{measured} instead of {expected} ± {error}"
    );
}

proptest! {
    /// Whatever comes when, each transmission is within the limits, and none overlaps another of
    /// one direction.
    #[test]
    fn aggregates_are_within_their_limits(
        aggregate in 1u64..=64,
        airtime_us in 100u64..5484,
        mbps in 6.0f64..600.0,
        seed in any::<u64>(),
        packets in prop::collection::vec((0usize..2, 0u64..3_000_000, 40u64..9000), 1..300),
    ) {
        let text = format!("wifi:aggregate={aggregate},airtime_ms={}", airtime_us as f64 / 1e3);
        let mut shared = Shared::new(&text, mbps, seed);
        let (mut now, mut sent, mut received) = (Time::ZERO, 0, 0);
        let mut to_send = packets.iter();
        let mut coming = to_send.next();
        let mut idle_from = Time::ZERO;
        loop {
            let next = shared.next(now);
            if let Some(&(way, gap, bytes)) = coming
                && next.is_none_or(|at| now + Duration::from_nanos(gap) <= at)
            {
                now += Duration::from_nanos(gap);
                shared.send(way, now, bytes);
                sent += 1;
                coming = to_send.next();
                continue;
            }
            let Some(at) = next else { break };
            prop_assert!(at >= now && at >= idle_from);
            now = at;
            let before = shared.log.len();
            let packets = shared.transmit(at).map_or(0, |(_, packets, _)| packets);
            prop_assert!(packets as u64 <= aggregate);
            for sent in &shared.log[before..] {
                let airtime = sent.end.since(sent.at);
                idle_from = idle_from.max(sent.end + Duration::from_micros(16 + 32 + 43));
                prop_assert!(packets <= 1 || airtime <= Duration::from_micros(airtime_us));
            }
            received += packets;
        }
        prop_assert_eq!(sent, received);
    }
}
