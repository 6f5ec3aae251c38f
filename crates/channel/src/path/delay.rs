//! Propagation: packets under way, for how long, over time.

use std::collections::VecDeque;

use verus_core::{Duration, Time};

use super::Packet;
use super::jitter::Jitter;
use super::reorder::Reorder;
use crate::schedule::{Follower, Schedule};

/// Holds each packet for its flow's propagation delay, which may change in steps. Flows do not wait for each other; the packets of
/// one keep their order (when its delay drops, those sent later wait for those already under way), but for what a
/// [`Reorder`] takes out of it. In the steady state nothing is allocated.
#[derive(Clone, Debug)]
pub struct Delay<P> {
    lanes: Vec<Lane<P>>,
}

/// How a packet sets out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// The flow whose packet it is.
    pub flow: usize,
    /// When it arrives.
    pub arrives: Time,
    /// Whether it is the next of its flow to arrive.
    pub first: bool,
    /// Whether it was taken out of its order.
    pub reordered: bool,
}

/// One flow's packets under way.
#[derive(Clone, Debug)]
struct Lane<P> {
    delay: Follower<Duration>,
    /// Boxed, so that the lanes of flows without any are close together.
    wander: Option<Box<Wander>>,
    /// When the last packet that was not taken out of its order arrives.
    latest: Time,
    /// In order of arrival.
    under_way: VecDeque<(Time, P)>,
}

/// What makes the packets of a flow differ from each other.
#[derive(Clone, Debug, Default)]
struct Wander {
    jitter: Option<Jitter>,
    reorder: Option<Reorder>,
}

impl<P: Packet> Delay<P> {
    /// The delay of each flow.
    pub fn new(flows: impl IntoIterator<Item = Schedule<Duration>>) -> Self {
        let lane = |delay| Lane {
            delay: Follower::new(delay),
            wander: None,
            latest: Time::ZERO,
            under_way: VecDeque::new(),
        };
        Delay {
            lanes: flows.into_iter().map(lane).collect(),
        }
    }

    /// One `delay` for one flow.
    pub fn constant(delay: Duration) -> Self {
        Delay::new([Schedule::constant(delay)])
    }

    /// The packets of `flow` take longer by `jitter`.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn with_jitter(mut self, flow: usize, jitter: Jitter) -> Self {
        self.lanes[flow].wander.get_or_insert_default().jitter = Some(jitter);
        self
    }

    /// `reorder` takes packets of `flow` out of their order.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn with_reorder(mut self, flow: usize, reorder: Reorder) -> Self {
        self.lanes[flow].wander.get_or_insert_default().reorder = Some(reorder);
        self
    }

    /// A packet sets out at `now`, which never goes back from call to call.
    ///
    /// # Panics
    /// If there is no delay for the packet's flow.
    #[inline]
    pub fn set_out(&mut self, now: Time, packet: P) -> Flight {
        let flow = packet.flow();
        let lane = &mut self.lanes[flow];
        let mut arrives = now + lane.delay.at(now);
        let mut late = None;
        if let Some(wander) = &mut lane.wander {
            if let Some(jitter) = &mut wander.jitter {
                arrives += jitter.draw();
            }
            late = wander.reorder.as_mut().and_then(Reorder::draw);
        }
        match late {
            Some(late) => arrives += late,
            None => {
                arrives = arrives.max(lane.latest);
                lane.latest = arrives;
            }
        }
        Flight {
            flow,
            arrives,
            first: lane.insert(arrives, packet),
            reordered: late.is_some(),
        }
    }

    /// Takes the next packet of `flow` that has arrived by `now`, and when it did.
    #[inline]
    pub fn arrive(&mut self, now: Time, flow: usize) -> Option<(Time, P)> {
        let under_way = &mut self.lanes[flow].under_way;
        if under_way.front()?.0 > now {
            return None;
        }
        under_way.pop_front()
    }

    /// When the next packet of `flow` arrives.
    #[inline]
    pub fn next_arrival(&self, flow: usize) -> Option<Time> {
        let &(at, _) = self.lanes[flow].under_way.front()?;
        Some(at)
    }

    /// How many packets are under way.
    pub fn packets(&self) -> usize {
        self.lanes.iter().map(|lane| lane.under_way.len()).sum()
    }
}

impl<P> Lane<P> {
    /// Puts a packet where it belongs in the order of arrival, after those that arrive at the same time; returns
    /// whether that is first.
    #[inline]
    fn insert(&mut self, arrives: Time, packet: P) -> bool {
        let under_way = &mut self.under_way;
        if under_way.back().is_none_or(|&(last, _)| last <= arrives) {
            under_way.push_back((arrives, packet));
            return under_way.len() == 1;
        }
        let at = under_way.partition_point(|&(other, _)| other <= arrives);
        under_way.insert(at, (arrives, packet));
        at == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verus_core::random;

    /// A packet, by its number, and its flow.
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Numbered(u64, usize);

    impl Packet for Numbered {
        fn flow(&self) -> usize {
            self.1
        }
    }

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn arrivals(delay: &mut Delay<Numbered>, flow: usize) -> Vec<(Time, u64)> {
        let arrived = std::iter::from_fn(|| delay.arrive(Time::MAX, flow));
        arrived.map(|(at, packet)| (at, packet.0)).collect()
    }

    #[test]
    fn packets_of_a_flow_keep_their_order_when_its_delay_drops() {
        let steps = vec![
            (at(0), Duration::from_millis(50)),
            (at(10), Duration::from_millis(20)),
        ];
        let falling = Schedule::new(steps).unwrap();
        let mut delay = Delay::new([falling, Schedule::constant(Duration::from_millis(5))]);
        let mut first = Vec::new();
        for ms in [9, 10, 20, 40] {
            for flow in [0, 1] {
                let flight = delay.set_out(at(ms), Numbered(ms, flow));
                first.push(flight.first);
                assert!(!flight.reordered);
            }
        }
        // Nobody took anything, so that only the first of each flow was ever the next to arrive.
        assert_eq!(
            first,
            [true, true, false, false, false, false, false, false]
        );
        assert_eq!(delay.packets(), 8);
        assert_eq!(delay.next_arrival(0), Some(at(59)));
        assert_eq!(delay.arrive(at(58), 0), None);
        let kept = [(at(59), 9), (at(59), 10), (at(59), 20), (at(60), 40)];
        assert_eq!(arrivals(&mut delay, 0), kept);
        let other = [9, 10, 20, 40].map(|ms| (at(ms + 5), ms));
        assert_eq!(arrivals(&mut delay, 1), other);
        assert_eq!(delay.next_arrival(1), None);
    }

    #[test]
    fn jitter_keeps_the_order_and_stays_within_its_bounds() {
        let most = Duration::from_millis(30);
        let mut delay = Delay::constant(Duration::from_millis(20))
            .with_jitter(0, Jitter::new(most, random::stream(1, "jitter", 0)));
        for ms in 0..1_000 {
            delay.set_out(at(ms), Numbered(ms, 0));
        }
        let arrived = arrivals(&mut delay, 0);
        assert!(arrived.is_sorted());
        assert!(
            arrived
                .iter()
                .enumerate()
                .all(|(sent, (_, number))| sent as u64 == *number)
        );
        let longer = |(at, ms): &(Time, u64)| at.since(Time::from_millis(ms + 20));
        assert!(arrived.iter().all(|one| longer(one) < most));
        assert!(arrived.iter().any(|one| longer(one) > most / 2));
    }

    #[test]
    fn what_is_reordered_is_overtaken_and_nothing_else_is() {
        let most = Duration::from_millis(40);
        let mut delay = Delay::constant(Duration::from_millis(20))
            .with_reorder(0, Reorder::new(0.2, most, random::stream(1, "reorder", 0)));
        let mut reordered = Vec::new();
        for ms in 0..1_000 {
            let flight = delay.set_out(at(ms), Numbered(ms, 0));
            if flight.reordered {
                reordered.push(ms);
            }
            // Where it is sorted in is where it comes out.
            assert_eq!(
                flight.first,
                delay.next_arrival(0) == Some(flight.arrives) && {
                    delay.lanes[0]
                        .under_way
                        .front()
                        .is_some_and(|(_, packet)| packet.0 == ms)
                }
            );
        }
        assert!(reordered.len().abs_diff(200) < 60, "{}", reordered.len());
        let arrived = arrivals(&mut delay, 0);
        assert!(arrived.is_sorted_by_key(|&(at, _)| at));
        let punctual = arrived
            .iter()
            .filter(|(_, number)| !reordered.contains(number));
        assert!(punctual.clone().all(|&(time, ms)| time == at(ms + 20)));
        assert!(punctual.is_sorted_by_key(|(_, number)| *number));
        assert!(!arrived.is_sorted_by_key(|&(_, number)| number));
    }
}
