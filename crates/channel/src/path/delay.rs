//! Propagation: holds packets for a delay, which may change over time.

use std::collections::{BTreeMap, VecDeque};

use verus_core::{Duration, Time};

use super::Packet;
use super::jitter::Jitter;
use super::reorder::Reorder;
use crate::schedule::{Follower, Schedule};

/// Holds each packet for the delay that a [`Jitter`] adds, and then for its flow's propagation delay, which may change
/// in steps. The packets of a flow keep their order: when its delay drops, those sent later wait for those already
/// under way. Exceptions are packets that a [`Reorder`] holds back, and paths on which packets [may
/// overtake](Delay::overtaking). In the steady state nothing is allocated.
///
/// Flows with the same constant delay share a *pipe*, a first-in first-out line, since their
/// packets cannot overtake each other. Every other flow has a pipe for itself. Of a pipe's packets
/// that arrive at one instant, the first to set out comes first.
#[derive(Clone, Debug)]
pub struct Delay<P> {
    pipes: Vec<Pipe<P>>,
    /// The pipe of each flow.
    pipe_of: Vec<usize>,
    /// Delay that differs from packet to packet. Boxed, as few paths have any.
    wander: Option<Box<Wander>>,
    /// Whether a packet waits for those of its flow that set out before it.
    in_order: bool,
}

/// The fate of a packet that sets out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// The pipe that it is in.
    pub pipe: usize,
    /// The time of its arrival.
    pub arrives: Time,
    /// Whether it is the next of its pipe to arrive.
    pub first: bool,
    /// Whether it was held back, so that later packets overtake it.
    pub reordered: bool,
}

/// Packets under way.
#[derive(Clone, Debug)]
struct Pipe<P> {
    delay: Follower<Duration>,
    /// The arrival of the last of the packets that keep their order.
    latest: Time,
    /// Packets in order of arrival.
    under_way: VecDeque<(Time, P)>,
}

/// Delay that differs from packet to packet.
#[derive(Clone, Debug, Default)]
struct Wander {
    jitter: Option<Jitter>,
    reorder: Option<Reorder>,
}

impl Wander {
    /// When a packet of `flow` that came at `now` begins to propagate, and whether it is held back out of order.
    #[inline(never)]
    fn begins(&mut self, now: Time, flow: usize) -> (Time, bool) {
        let mut begins = now;
        if let Some(jitter) = &mut self.jitter {
            begins += jitter.draw(now, flow);
        }
        if let Some(late) = self.reorder.as_mut().and_then(|reorder| reorder.draw(flow)) {
            return (begins + late, true);
        }
        if let Some(jitter) = &mut self.jitter {
            begins = jitter.in_order(begins);
        }
        (begins, false)
    }
}

impl<P: Packet> Delay<P> {
    /// Propagation with one delay for each of `flows`.
    pub fn new(flows: impl IntoIterator<Item = Schedule<Duration>>) -> Self {
        let mut pipes = Vec::new();
        let mut shared = BTreeMap::new();
        let pipe_of = flows.into_iter().map(|delay| {
            let constant = match delay.steps() {
                &[(_, always)] => Some(always),
                _ => None,
            };
            if let Some(pipe) = constant.and_then(|always| shared.get(&always)) {
                return *pipe;
            }
            pipes.push(Pipe::new(Follower::new(delay)));
            let pipe = pipes.len() - 1;
            shared.extend(constant.map(|always| (always, pipe)));
            pipe
        });
        Delay {
            pipe_of: pipe_of.collect(),
            pipes,
            wander: None,
            in_order: true,
        }
    }

    /// Propagation of a single flow with a constant `delay`.
    pub fn constant(delay: Duration) -> Self {
        Delay::new([Schedule::constant(delay)])
    }

    /// Holds each packet for the time that `jitter` draws, before it propagates.
    pub fn with_jitter(mut self, jitter: Jitter) -> Self {
        self.wander.get_or_insert_default().jitter = Some(jitter);
        self
    }

    /// Lets `reorder` hold single packets back, so that later ones overtake them.
    pub fn with_reorder(mut self, reorder: Reorder) -> Self {
        self.wander.get_or_insert_default().reorder = Some(reorder);
        self
    }

    /// Lets packets of a flow overtake those already under way when its delay drops.
    pub fn overtaking(mut self) -> Self {
        self.in_order = false;
        self
    }

    /// Whether a packet may arrive before one of its flow that set out earlier.
    pub fn may_overtake(&self) -> bool {
        let reorders = |wander: &Wander| wander.reorder.is_some();
        !self.in_order || self.wander.as_deref().is_some_and(reorders)
    }

    /// The pipe through which the packets of `flow` propagate.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn pipe_of(&self, flow: usize) -> usize {
        self.pipe_of[flow]
    }

    /// A packet sets out at `now`; `now` must not decrease from call to call.
    ///
    /// # Panics
    /// If there is no delay for the packet's flow.
    #[inline(always)]
    pub fn set_out(&mut self, now: Time, packet: P) -> Flight {
        let flow = packet.flow();
        let index = self.pipe_of[flow];
        let (begins, reordered) = match &mut self.wander {
            Some(wander) => wander.begins(now, flow),
            None => (now, false),
        };
        let pipe = &mut self.pipes[index];
        let mut arrives = begins + pipe.delay.at(now);
        if self.in_order && !reordered {
            arrives = arrives.max(pipe.latest);
            pipe.latest = arrives;
        }
        Flight {
            pipe: index,
            arrives,
            first: pipe.insert(arrives, packet),
            reordered,
        }
    }

    /// Takes the next packet of `pipe` that has arrived by `now`, with the time of its arrival.
    ///
    /// # Errors
    /// When the next one arrives, if any is under way.
    #[inline(always)]
    pub fn arrive(&mut self, now: Time, pipe: usize) -> Result<(Time, P), Option<Time>> {
        let under_way = &mut self.pipes[pipe].under_way;
        let next = under_way.front().map(|&(at, _)| at);
        if next.is_none_or(|at| at > now) {
            return Err(next);
        }
        under_way.pop_front().ok_or(None)
    }

    /// The arrival of the next packet of `pipe`.
    #[inline]
    pub fn next_arrival(&self, pipe: usize) -> Option<Time> {
        let &(at, _) = self.pipes[pipe].under_way.front()?;
        Some(at)
    }

    /// The number of packets under way.
    pub fn packets(&self) -> usize {
        self.pipes.iter().map(|pipe| pipe.under_way.len()).sum()
    }
}

impl<P> Pipe<P> {
    fn new(delay: Follower<Duration>) -> Self {
        Pipe {
            delay,
            latest: Time::ZERO,
            under_way: VecDeque::new(),
        }
    }

    /// Inserts a packet in the order of arrival, after those that arrive at the same time; returns whether it is the
    /// first.
    #[inline]
    fn insert(&mut self, arrives: Time, packet: P) -> bool {
        let under_way = &mut self.under_way;
        if under_way.back().is_none_or(|&(last, _)| last <= arrives) {
            under_way.push_back((arrives, packet));
            return under_way.len() == 1;
        }
        self.insert_before(arrives, packet)
    }

    /// The same for a packet that overtakes others.
    #[cold]
    fn insert_before(&mut self, arrives: Time, packet: P) -> bool {
        let under_way = &mut self.under_way;
        let at = under_way.partition_point(|&(other, _)| other <= arrives);
        under_way.insert(at, (arrives, packet));
        at == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::jitter::JitterConfig;
    use crate::path::reorder::ReorderConfig;
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

    fn arrivals(delay: &mut Delay<Numbered>, pipe: usize) -> Vec<(Time, u64)> {
        let arrived = std::iter::from_fn(|| delay.arrive(Time::MAX, pipe).ok());
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
        // No packet was taken, so that only the first of each flow was ever the next to arrive.
        assert_eq!(
            first,
            [true, true, false, false, false, false, false, false]
        );
        assert_eq!(delay.packets(), 8);
        assert_eq!(delay.next_arrival(0), Some(at(59)));
        assert_eq!(delay.arrive(at(58), 0), Err(Some(at(59))));
        let kept = [(at(59), 9), (at(59), 10), (at(59), 20), (at(60), 40)];
        assert_eq!(arrivals(&mut delay, 0), kept);
        let other = [9, 10, 20, 40].map(|ms| (at(ms + 5), ms));
        assert_eq!(arrivals(&mut delay, 1), other);
        assert_eq!(delay.next_arrival(1), None);
    }

    #[test]
    fn flows_of_one_constant_delay_share_a_pipe_in_the_order_of_setting_out() {
        let (near, far) = (Duration::from_millis(5), Duration::from_millis(50));
        let changing = Schedule::new(vec![(at(0), near), (at(100), far)]).unwrap();
        let mut delays = vec![Schedule::constant(near); 3];
        delays.extend([Schedule::constant(far), changing.clone(), changing]);
        let mut delay = Delay::new(delays);
        let pipes: Vec<usize> = (0..6).map(|flow| delay.pipe_of(flow)).collect();
        assert_eq!(pipes, [0, 0, 0, 1, 2, 3]);
        for (number, flow) in [(0, 2), (1, 0), (2, 1)] {
            assert_eq!(delay.set_out(at(1), Numbered(number, flow)).pipe, 0);
        }
        assert_eq!(
            arrivals(&mut delay, 0),
            [(at(6), 0), (at(6), 1), (at(6), 2)]
        );
    }

    #[test]
    fn jitter_keeps_the_order_and_stays_within_its_bounds() {
        let max_jitter = Duration::from_millis(30);
        let law = Schedule::constant(JitterConfig::Uniform { max_ms: 30.0 });
        let mut delay = Delay::constant(Duration::from_millis(20))
            .with_jitter(Jitter::new(law, vec![random::stream(1, "jitter", 0)]));
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
        assert!(arrived.iter().all(|one| longer(one) < max_jitter));
        assert!(arrived.iter().any(|one| longer(one) > max_jitter / 2));
    }

    #[test]
    fn what_one_flow_waits_for_holds_up_the_others_behind_it() {
        let law = Schedule::constant(JitterConfig::Uniform { max_ms: 30.0 });
        let near = Duration::from_millis(5);
        let far = Duration::from_millis(50);
        let draws = (0..2)
            .map(|flow| random::stream(1, "jitter", flow))
            .collect();
        let mut delay =
            Delay::new([near, far].map(Schedule::constant)).with_jitter(Jitter::new(law, draws));
        assert!(!delay.may_overtake());
        let mut gone = Time::ZERO;
        for ms in 0..1_000 {
            let flow = (ms % 2) as usize;
            let flight = delay.set_out(at(ms), Numbered(ms, flow));
            let begun = flight.arrives - [near, far][flow];
            assert!(begun >= gone, "{ms}");
            gone = begun;
        }
    }

    #[test]
    fn packets_overtake_where_the_delay_drops_and_they_may() {
        let steps = vec![
            (at(0), Duration::from_millis(50)),
            (at(10), Duration::from_millis(20)),
        ];
        let mut delay = Delay::new([Schedule::new(steps).unwrap()]).overtaking();
        assert!(delay.may_overtake());
        let first: Vec<bool> = [9, 10, 30, 40]
            .map(|ms| delay.set_out(at(ms), Numbered(ms, 0)).first)
            .to_vec();
        assert_eq!(first, [true, true, false, false]);
        assert_eq!(
            arrivals(&mut delay, 0),
            [(at(30), 10), (at(50), 30), (at(59), 9), (at(60), 40)]
        );
    }

    #[test]
    fn what_is_reordered_is_overtaken_and_nothing_else_is() {
        let max_delay = Duration::from_millis(40);
        let config = ReorderConfig::Uniform {
            p: 0.2,
            most: max_delay,
            correlation: 0.0,
        };
        let mut delay = Delay::constant(Duration::from_millis(20))
            .with_reorder(Reorder::new(config, vec![random::stream(1, "reorder", 0)]));
        assert!(delay.may_overtake());
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
                    delay.pipes[0]
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
