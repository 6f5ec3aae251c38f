//! A path: the elements that packets cross from one end to the other, without a clock.
//!
//! ```text
//!       entered                                                    left                     arrived
//!       │                                                          │                        │
//! send ─┴▶ twice? ▶ loss, policer ▶ queue ▶ link ─▶ (more such) ┴▶ corrupt? ▶ propagation ┴▶ arrive
//!                       │           │      │                          │
//!                       └───────────┴──────┴──────────────────────────┴─▶ dropped
//! ```
//!
//! The caller owns the clock. It says when a packet sets out ([`Path::send`]), lets the links serve
//! packets ([`Path::serve`] at [`Path::next_departure`]), and takes those that have arrived
//! ([`Path::arrive`]). A late caller changes nothing: everything happens as of the instant when it
//! was due. A [`Watch`] is notified of each event.
//!
//! Each element has its own file. A new one is one more variant of [`Element`].

pub mod bursts;
pub mod config;
pub mod delay;
pub mod jitter;
pub mod link;
pub mod loss;
pub mod loss_model;
pub mod policer;
pub mod reorder;
pub mod replay;
pub mod station;

use verus_core::{Bytes, Time};

use bursts::Bursts;
use delay::{Delay, Flight};
use link::Link;
use loss::Loss;
use loss_model::LossModel;
use policer::Policer;
use replay::Replay;
use station::Station;

use crate::medium::Limits;
pub use crate::packet::Packet;

/// An element that packets cross before propagation.
#[derive(Debug)]
pub enum Element<P> {
    /// Random loss.
    Loss(Loss),
    /// Losses in bursts.
    Bursts(Bursts),
    /// Losses that depend on those before. Boxed, as few paths have any.
    LossModel(Box<LossModel>),
    /// Duplication: the packets that are sent on twice are those that this loss would lose.
    Duplicate(Box<Loss>),
    /// Corruption behind the links: packets that the receiver's checksum drops. They used the links like all others.
    Corrupt(Box<Loss>),
    /// A policer: drops packets that come faster than a rate.
    Policer(Policer),
    /// Whether a flow's packets skip the next element, for each flow.
    Bypass(Vec<bool>),
    /// A queue and what serves it. Boxed, so that elements stay small and close together in memory.
    Link(Box<Link<P>>),
    /// A link that carries short trains as a light trace says.
    Replay(Box<Replay<P>>),
    /// A queue whose packets share a medium with those of the other direction.
    Station(Box<Station<P>>),
}

impl<P: Packet> Element<P> {
    /// The link, if this is one.
    fn link(&self) -> Option<&Link<P>> {
        match self {
            Element::Link(link) => Some(link),
            Element::Replay(replay) => Some(replay.link()),
            Element::Station(station) => Some(station.link()),
            _ => None,
        }
    }

    /// When a packet leaves it next that it has held up, or is dropped.
    fn next_departure(&self) -> Option<Time> {
        match self {
            Element::Link(link) => link.next_departure(),
            Element::Replay(replay) => replay.next_departure(),
            Element::Station(station) => station.next_departure(),
            _ => None,
        }
    }
}

impl<P> From<Loss> for Element<P> {
    fn from(loss: Loss) -> Self {
        Element::Loss(loss)
    }
}

impl<P> From<Policer> for Element<P> {
    fn from(policer: Policer) -> Self {
        Element::Policer(policer)
    }
}

impl<P> From<Bursts> for Element<P> {
    fn from(bursts: Bursts) -> Self {
        Element::Bursts(bursts)
    }
}

impl<P> From<LossModel> for Element<P> {
    fn from(model: LossModel) -> Self {
        Element::LossModel(Box::new(model))
    }
}

impl<P> From<Link<P>> for Element<P> {
    fn from(link: Link<P>) -> Self {
        Element::Link(Box::new(link))
    }
}

impl<P> From<Replay<P>> for Element<P> {
    fn from(replay: Replay<P>) -> Self {
        Element::Replay(Box::new(replay))
    }
}

impl<P> From<Station<P>> for Element<P> {
    fn from(station: Station<P>) -> Self {
        Element::Station(Box::new(station))
    }
}

/// The place and the reason of a drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The index of the element that dropped it, in the order of crossing.
    pub element: usize,
    /// Why the element dropped it.
    pub why: Why,
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// An element that loses packets by chance or by count dropped it.
    Chance,
    /// A queue or a policer refused it.
    Refused,
    /// A queue had accepted it, and dropped it when its turn came (CoDel) or to make room for another (FQ-CoDel).
    Waited,
    /// It arrived damaged: it had left the links, and its receiver drops it.
    Corrupted,
}

/// Hears what happens to packets on a path. For each packet, `on_entered` is called once, and then either `on_dropped`
/// once, or `on_left`, `on_under_way` and `on_arrived` once each. A duplicate is another packet. A corrupt packet has
/// `on_left` and then `on_dropped`.
pub trait Watch<P> {
    /// A packet entered the path.
    #[inline]
    fn on_entered(&mut self, _now: Time, _size: Bytes, _packet: &P) {}

    /// A packet was dropped, and goes no further.
    #[inline]
    fn on_dropped(&mut self, _now: Time, _size: Bytes, _packet: &P, _dropped: Dropped) {}

    /// Takes back a dropped packet, after [`on_dropped`](Self::on_dropped), so that its memory can be used again.
    #[inline]
    fn reclaim(&mut self, _packet: P) {}

    /// A packet left the last link, whose queue it had entered at `entered`; on a path without links it left when it
    /// entered.
    #[inline]
    fn on_left(&mut self, _now: Time, _size: Bytes, _entered: Time, _packet: &P) {}

    /// The packet of the last [`on_left`](Self::on_left) has begun to propagate.
    #[inline]
    fn on_under_way(&mut self, _flight: Flight) {}

    /// A packet arrived at `at`.
    #[inline]
    fn on_arrived(&mut self, _at: Time, _packet: &P) {}
}

/// A watcher that ignores everything.
impl<P> Watch<P> for () {}

/// Elements that packets cross in turn, and then propagation. In the steady state nothing is allocated.
#[derive(Debug)]
pub struct Path<P> {
    elements: Vec<Element<P>>,
    delay: Delay<P>,
    /// The number of links among the elements.
    links: usize,
    /// The time at which a link serves a packet next, and the index of that link.
    due: Option<(Time, usize)>,
}

impl<P: Packet> Path<P> {
    /// A path of `elements`, in the order of crossing, before `delay`.
    pub fn new(elements: Vec<Element<P>>, delay: Delay<P>) -> Self {
        let links = elements.iter();
        Path {
            links: links.filter(|one| one.link().is_some()).count(),
            elements,
            delay,
            due: None,
        }
    }

    /// A packet of `size` sets out at `now`. The caller must have let the links serve everything
    /// due before `now`, but nothing due at `now`: at one instant, packets enter a queue before
    /// others leave it.
    ///
    /// # Panics
    /// If the path has no delay for the packet's flow.
    #[inline]
    pub fn send(&mut self, now: Time, size: Bytes, packet: P, watch: &mut impl Watch<P>) {
        watch.on_entered(now, size, &packet);
        self.cross(0, now, size, now, packet, watch);
    }

    /// The time at which a link serves a packet next.
    #[inline]
    pub fn next_departure(&self) -> Option<Time> {
        self.due.map(|(at, _)| at)
    }

    /// Lets the links serve each packet due by `now`, as of the instant at which it is due; returns when a link serves
    /// a packet next.
    #[inline]
    pub fn serve(&mut self, now: Time, watch: &mut impl Watch<P>) -> Option<Time> {
        loop {
            let (at, element) = self.due?;
            if at > now {
                return Some(at);
            }
            self.depart(at, element, watch);
        }
    }

    /// As [`serve`](Self::serve), but only for times before `now`: for a caller that is about to
    /// send at `now`.
    #[inline]
    pub fn serve_before(&mut self, now: Time, watch: &mut impl Watch<P>) -> Option<Time> {
        loop {
            let (at, element) = self.due?;
            if at >= now {
                return Some(at);
            }
            self.depart(at, element, watch);
        }
    }

    /// Whether its [station](Station) has packets for another transmission; false where there is
    /// none.
    pub fn is_backlogged(&self) -> bool {
        self.elements
            .iter()
            .any(|element| matches!(element, Element::Station(station) if station.is_backlogged()))
    }

    /// Its station begins to transmit at `at`; returns when the aggregate ends
    /// ([`Station::transmit`]).
    pub fn transmit(
        &mut self,
        at: Time,
        limits: &Limits,
        watch: &mut impl Watch<P>,
    ) -> Option<Time> {
        self.serve(at, watch);
        self.station().and_then(|(index, station)| {
            station.transmit(at, limits, |dropped| {
                discard(watch, at, dropped.size, dropped.packet, index, Why::Waited);
            })
        })
    }

    /// The aggregate of its station was received at `at`.
    pub fn receive(&mut self, at: Time) {
        if let Some((index, station)) = self.station() {
            station.receive(at);
            self.find_due(index, Some(at));
        }
    }

    fn station(&mut self) -> Option<(usize, &mut Station<P>)> {
        let mut elements = self.elements.iter_mut().enumerate();
        elements.find_map(|(index, element)| match element {
            Element::Station(station) => Some((index, &mut **station)),
            _ => None,
        })
    }

    /// Takes the next packet of `pipe` that has arrived by `now`, with the time of its arrival.
    ///
    /// # Panics
    /// If there is no such pipe; [`Path::pipe_of`] gives valid ones.
    #[inline]
    pub fn arrive(
        &mut self,
        now: Time,
        pipe: usize,
        watch: &mut impl Watch<P>,
    ) -> Option<(Time, P)> {
        self.arrive_or_next(now, pipe, watch).ok()
    }

    /// As [`arrive`](Self::arrive); if no packet has arrived, the time when the next does
    /// ([`next_arrival`](Self::next_arrival)).
    ///
    /// # Errors
    /// When the next packet arrives, if any is under way.
    ///
    /// # Panics
    /// As [`arrive`](Self::arrive).
    #[inline(always)]
    pub fn arrive_or_next(
        &mut self,
        now: Time,
        pipe: usize,
        watch: &mut impl Watch<P>,
    ) -> Result<(Time, P), Option<Time>> {
        let (at, packet) = self.delay.arrive(now, pipe)?;
        watch.on_arrived(at, &packet);
        Ok((at, packet))
    }

    /// When the next packet of `pipe` arrives, among those that have left the links.
    ///
    /// # Panics
    /// If there is no such pipe.
    #[inline]
    pub fn next_arrival(&self, pipe: usize) -> Option<Time> {
        self.delay.next_arrival(pipe)
    }

    /// Whether a packet may arrive before one of its flow that set out earlier.
    pub fn may_overtake(&self) -> bool {
        self.delay.may_overtake()
    }

    /// The pipe through which the packets of `flow` propagate: flows with the same constant delay share one.
    ///
    /// # Panics
    /// If the path has no delay for this flow.
    pub fn pipe_of(&self, flow: usize) -> usize {
        self.delay.pipe_of(flow)
    }

    /// Its links, in the order of crossing.
    pub fn links(&self) -> impl Iterator<Item = &Link<P>> {
        self.elements.iter().filter_map(Element::link)
    }

    /// Bytes that the path could have carried in [`from`, `to`): what its slowest link could have carried; `None` where
    /// there is no link.
    pub fn capacity(&self, from: Time, to: Time) -> Option<Bytes> {
        self.links().map(|link| link.capacity(from, to)).min()
    }

    /// Packets in its links and in propagation.
    pub fn packets(&self) -> usize {
        let queued: usize = self.links().map(Link::queued_packets).sum();
        let outside_queues = self.elements.iter().map(|element| match element {
            Element::Replay(replay) => replay.held_packets(),
            Element::Station(station) => station.held_packets(),
            _ => 0,
        });
        queued + outside_queues.sum::<usize>() + self.delay.packets()
    }

    /// Finds out which link serves a packet next, and when. Of two due at one instant, the one that is crossed first: a
    /// packet that leaves it may still use the second link's opportunity at that instant. `changed` is the link whose next
    /// departure has changed, to `next`.
    #[inline]
    fn find_due(&mut self, changed: usize, next: Option<Time>) {
        if self.links > 1 {
            return self.find_due_of_several();
        }
        self.due = next.map(|at| (at, changed));
    }

    #[inline(never)]
    fn find_due_of_several(&mut self) {
        self.due = None;
        for (index, element) in self.elements.iter().enumerate() {
            if let Some(at) = element.next_departure()
                && self.due.is_none_or(|(earliest, _)| at < earliest)
            {
                self.due = Some((at, index));
            }
        }
    }

    /// Lets the link at element `index` serve packets due at `at`.
    #[inline]
    fn depart(&mut self, at: Time, index: usize, watch: &mut impl Watch<P>) {
        let Element::Link(link) = &mut self.elements[index] else {
            return self.depart_held(at, index, watch);
        };
        let departed = link.depart(at, |dropped| {
            discard(watch, at, dropped.size, dropped.packet, index, Why::Waited);
        });
        let next = link.next_departure();
        self.find_due(index, next);
        let Some(departed) = departed else { return };
        let (size, entered, packet) = (departed.size, departed.entered, departed.packet);
        if index + 1 < self.elements.len() {
            self.cross_rest(index + 1, at, size, entered, packet, watch);
        } else {
            self.set_out(at, size, entered, packet, watch);
        }
    }

    /// As [`depart`](Self::depart), for a link that carries short trains by themselves, or shares a
    /// medium. Out of line, as few paths have either.
    #[cold]
    fn depart_held(&mut self, at: Time, index: usize, watch: &mut impl Watch<P>) {
        let departed = match &mut self.elements[index] {
            Element::Replay(replay) => replay.depart(at, |dropped, why| {
                discard(watch, at, dropped.size, dropped.packet, index, why);
            }),
            Element::Station(station) => station.depart(at),
            _ => None,
        };
        let next = self.elements[index].next_departure();
        self.find_due(index, next);
        if let Some(departed) = departed {
            let (size, entered, packet) = (departed.size, departed.entered, departed.packet);
            self.cross(index + 1, at, size, entered, packet, watch);
        }
    }

    /// Gives a packet to such a link.
    #[cold]
    fn hold(&mut self, index: usize, now: Time, size: Bytes, packet: P, watch: &mut impl Watch<P>) {
        let taken = match &mut self.elements[index] {
            Element::Replay(replay) => replay.enqueue(now, size, packet),
            Element::Station(station) => station.enqueue(now, size, packet, |dropped| {
                discard(watch, now, dropped.size, dropped.packet, index, Why::Waited);
            }),
            _ => Ok(()),
        };
        if let Err(packet) = taken {
            return discard(watch, now, size, packet, index, Why::Refused);
        }
        let next = self.elements[index].next_departure();
        self.find_due(index, next);
    }

    /// Takes a packet across the elements from index `from` on, until it is dropped, waits in a queue or propagates.
    #[inline(always)]
    fn cross(
        &mut self,
        from: usize,
        now: Time,
        size: Bytes,
        entered: Time,
        packet: P,
        watch: &mut impl Watch<P>,
    ) {
        let mut element = from;
        while element < self.elements.len() {
            match &mut self.elements[element] {
                Element::Loss(loss) => {
                    if loss.loses(now, packet.flow()) {
                        return discard(watch, now, size, packet, element, Why::Chance);
                    }
                }
                Element::Policer(policer) => {
                    if !policer.passes(now, size) {
                        return discard(watch, now, size, packet, element, Why::Refused);
                    }
                }
                Element::Bursts(bursts) => {
                    if bursts.loses(now) {
                        return discard(watch, now, size, packet, element, Why::Chance);
                    }
                }
                Element::LossModel(model) => {
                    if model.loses() {
                        return discard(watch, now, size, packet, element, Why::Chance);
                    }
                }
                Element::Duplicate(chance) => {
                    if chance.loses(now, packet.flow())
                        && let Some(copy) = packet.duplicate()
                    {
                        return self.cross_twice(element + 1, now, size, [packet, copy], watch);
                    }
                }
                Element::Corrupt(chance) => {
                    if chance.loses(now, packet.flow()) {
                        watch.on_left(now, size, entered, &packet);
                        return discard(watch, now, size, packet, element, Why::Corrupted);
                    }
                }
                Element::Bypass(flows) => {
                    if flows[packet.flow()] {
                        element += 1;
                    }
                }
                Element::Link(link) => {
                    let idle = link.next_departure().is_none();
                    let taken = link.enqueue(now, size, packet, |dropped| {
                        discard(
                            watch,
                            now,
                            dropped.size,
                            dropped.packet,
                            element,
                            Why::Waited,
                        );
                    });
                    if let Err(packet) = taken {
                        discard(watch, now, size, packet, element, Why::Refused);
                    }
                    if idle {
                        let next = link.next_departure();
                        self.find_due(element, next);
                    }
                    return;
                }
                Element::Replay(_) | Element::Station(_) => {
                    return self.hold(element, now, size, packet, watch);
                }
            }
            element += 1;
        }
        self.set_out_apart(now, size, entered, packet, watch);
    }

    /// As [`cross`](Self::cross), for elements behind a link. Few paths have any, so this is kept out of line: inlined,
    /// it would slow the serving of all others.
    #[cold]
    fn cross_rest(
        &mut self,
        from: usize,
        now: Time,
        size: Bytes,
        entered: Time,
        packet: P,
        watch: &mut impl Watch<P>,
    ) {
        self.cross(from, now, size, entered, packet, watch);
    }

    /// Takes a packet and its copy across the elements from index `from` on, one after the other.
    #[cold]
    fn cross_twice(
        &mut self,
        from: usize,
        now: Time,
        size: Bytes,
        [packet, copy]: [P; 2],
        watch: &mut impl Watch<P>,
    ) {
        self.cross_rest(from, now, size, now, packet, watch);
        watch.on_entered(now, size, &copy);
        self.cross_rest(from, now, size, now, copy, watch);
    }

    /// [`Path::set_out`] for a packet that no link has held up.
    #[inline(never)]
    fn set_out_apart(
        &mut self,
        now: Time,
        size: Bytes,
        entered: Time,
        packet: P,
        watch: &mut impl Watch<P>,
    ) {
        self.set_out(now, size, entered, packet, watch);
    }

    /// Begins the propagation.
    #[inline(always)]
    fn set_out(
        &mut self,
        now: Time,
        size: Bytes,
        entered: Time,
        packet: P,
        watch: &mut impl Watch<P>,
    ) {
        watch.on_left(now, size, entered, &packet);
        watch.on_under_way(self.delay.set_out(now, packet));
    }
}

/// Tells the watch that a packet was dropped, and gives the packet back to it.
fn discard<P>(
    watch: &mut impl Watch<P>,
    now: Time,
    size: Bytes,
    packet: P,
    element: usize,
    why: Why,
) {
    watch.on_dropped(now, size, &packet, Dropped { element, why });
    watch.reclaim(packet);
}

#[cfg(test)]
mod tests {
    use verus_core::{Duration, Rate, random};

    use super::link::Service;
    use super::*;
    use crate::queue::QueueConfig;
    use crate::schedule::Schedule;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Number(u32);

    impl Packet for Number {
        fn duplicate(&self) -> Option<Self> {
            Some(*self)
        }
    }

    /// A log of events: time in ms, packet, and a few words.
    #[derive(Debug, Default)]
    struct EventLog(Vec<(u64, u32, &'static str)>);

    impl Watch<Number> for EventLog {
        fn on_entered(&mut self, now: Time, _: Bytes, packet: &Number) {
            self.0.push((now.as_millis(), packet.0, "entered"));
        }

        fn on_dropped(&mut self, now: Time, _: Bytes, packet: &Number, dropped: Dropped) {
            let event = match (dropped.element, dropped.why) {
                (0, Why::Chance) => "lost",
                (1, Why::Refused) => "refused by the first",
                (2, Why::Refused) => "refused by the second",
                (1, Why::Waited) => "dropped by the first",
                (_, Why::Corrupted) => "corrupt",
                other => panic!("{other:?}"),
            };
            self.0.push((now.as_millis(), packet.0, event));
        }

        fn on_left(&mut self, now: Time, _: Bytes, _: Time, packet: &Number) {
            self.0.push((now.as_millis(), packet.0, "left"));
        }

        fn on_arrived(&mut self, at: Time, packet: &Number) {
            self.0.push((at.as_millis(), packet.0, "arrived"));
        }
    }

    fn link(mbps: f64, queue: &str) -> Element<Number> {
        let service = Service::Rate(Schedule::constant(Rate::from_mbps(mbps)));
        let queue = QueueConfig::parse(queue).unwrap();
        Link::new(service, &queue, random::stream(1, "queue", 0)).into()
    }

    fn loss(probability: f64) -> Element<Number> {
        let draws = vec![random::stream(1, "loss", 0)];
        Loss::new(Schedule::constant(probability), draws).into()
    }

    fn always() -> Box<Loss> {
        let draws = vec![random::stream(1, "always", 0)];
        Box::new(Loss::new(Schedule::constant(1.0), draws))
    }

    const PACKET: Bytes = Bytes::new(1500);

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn two_links_in_a_row_serve_one_after_the_other() {
        // 1 ms and then 2 ms a packet; the second queue holds one besides the packet being sent.
        let elements = vec![
            loss(0.0),
            link(12.0, "infinite"),
            link(6.0, "droptail:packets=1"),
        ];
        let mut path = Path::new(elements, Delay::constant(Duration::from_millis(10)));
        let mut events = EventLog::default();
        for number in 0..5 {
            path.send(at(0), PACKET, Number(number), &mut events);
        }
        assert_eq!(path.packets(), 5);
        assert_eq!(path.next_departure(), Some(at(1)));
        // Late, and all at once: the same as if the path had been served at each instant.
        path.serve(at(100), &mut events);
        while path.arrive(at(100), 0, &mut events).is_some() {}
        let but_entering: Vec<_> = events.0.into_iter().skip(5).collect();
        let expected = [
            // At 3 ms the third leaves the first link before the first leaves the second: there is one that waits.
            (3, 2, "refused by the second"),
            (3, 0, "left"),
            (5, 4, "refused by the second"),
            (5, 1, "left"),
            (7, 3, "left"),
            (13, 0, "arrived"),
            (15, 1, "arrived"),
            (17, 3, "arrived"),
        ];
        assert_eq!(but_entering, expected);
        // 1500 bytes each 2 ms.
        assert_eq!(path.capacity(at(0), at(10)), Some(PACKET * 5));
    }

    #[test]
    fn each_packet_is_told_of_as_it_enters_and_as_it_goes() {
        let elements = vec![
            loss(0.3),
            link(12.0, "codel:target_ms=2,interval_ms=10,limit=9000"),
        ];
        let mut path = Path::new(elements, Delay::constant(Duration::from_millis(10)));
        let mut events = EventLog::default();
        for number in 0..1_000 {
            let now = Time::from_nanos(u64::from(number) * 500_000);
            path.serve_before(now, &mut events);
            path.send(now, PACKET, Number(number), &mut events);
        }
        path.serve(at(10_000), &mut events);
        while path.arrive(at(10_000), 0, &mut events).is_some() {}
        assert_eq!(path.packets(), 0);
        let count = |what| events.0.iter().filter(|events| events.2 == what).count();
        let dropped = ["lost", "refused by the first", "dropped by the first"].map(count);
        assert!(dropped.iter().all(|&times| times > 10), "{dropped:?}");
        assert_eq!(count("entered"), 1_000);
        assert_eq!(count("left"), count("arrived"));
        assert_eq!(count("left") + dropped.iter().sum::<usize>(), 1_000);
    }

    #[test]
    fn a_duplicate_takes_a_turn_of_its_own_on_the_link() {
        let elements = vec![Element::Duplicate(always()), link(12.0, "infinite")];
        let mut path = Path::new(elements, Delay::constant(Duration::from_millis(10)));
        let mut events = EventLog::default();
        path.send(at(0), PACKET, Number(1), &mut events);
        assert_eq!(path.packets(), 2);
        path.serve(at(100), &mut events);
        while path.arrive(at(100), 0, &mut events).is_some() {}
        let expected = [
            (0, 1, "entered"),
            (0, 1, "entered"),
            (1, 1, "left"),
            (2, 1, "left"),
            (11, 1, "arrived"),
            (12, 1, "arrived"),
        ];
        assert_eq!(events.0, expected);
    }

    #[test]
    fn a_corrupt_packet_takes_its_turn_on_the_link_and_does_not_arrive() {
        let elements = vec![link(12.0, "infinite"), Element::Corrupt(always())];
        let mut path = Path::new(elements, Delay::constant(Duration::from_millis(10)));
        let mut events = EventLog::default();
        path.send(at(0), PACKET, Number(1), &mut events);
        path.serve(at(100), &mut events);
        assert_eq!(path.arrive(at(100), 0, &mut events), None);
        assert_eq!(path.packets(), 0);
        let expected = [(0, 1, "entered"), (1, 1, "left"), (1, 1, "corrupt")];
        assert_eq!(events.0, expected);
    }

    #[test]
    fn without_links_a_path_is_propagation_only() {
        let mut path = Path::new(Vec::new(), Delay::constant(Duration::from_millis(10)));
        let mut events = EventLog::default();
        path.send(at(5), PACKET, Number(7), &mut events);
        assert_eq!(
            (path.next_departure(), path.next_arrival(0)),
            (None, Some(at(15)))
        );
        assert_eq!(path.capacity(at(0), at(10)), None);
        assert_eq!(path.arrive(at(14), 0, &mut events), None);
        assert_eq!(
            path.arrive(at(20), 0, &mut events),
            Some((at(15), Number(7)))
        );
        let expected = [(5, 7, "entered"), (5, 7, "left"), (15, 7, "arrived")];
        assert_eq!(events.0, expected);
    }
}
