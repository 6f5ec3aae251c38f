//! Queues of other crates: what such a queue implements, and how a link drives it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use verus_core::{Bytes, Ecn, Time};
use verus_words::spec::{Given, Key, Problem, Row, shown};

use super::QueueConfig;
use crate::packet::{Departed, Packet};

/// A queue of another crate before a link. It decides as packets arrive, as RED and PIE do, or as
/// they leave, as CoDel does. It also decides in which order they leave, as FQ-CoDel does.
///
/// A queue owns the packets that wait in it: it gets them as [`Waiting`], puts them where it likes,
/// and gives the link the one to send next. A packet that it drops in Rust's sense is dropped by
/// the link:
///
/// ```
/// use std::collections::VecDeque;
///
/// use verus_channel::packet::Packet;
/// use verus_channel::queue::{self, Queue, Registry, Waiting};
/// use verus_channel::{Link, RateSchedule, Service};
/// use verus_words::spec::{Row, field};
/// use verus_core::{Bytes, Rate, Time, random};
///
/// /// Head drop: makes room for a packet by dropping those that have waited longest.
/// #[derive(Debug)]
/// struct HeadDrop {
///     limit: u64,
/// }
///
/// impl Default for HeadDrop {
///     fn default() -> Self {
///         HeadDrop { limit: 100 }
///     }
/// }
///
/// impl queue::Configuration for HeadDrop {
///     const ROWS: &'static [Row<Self>] = &[field!(limit).whole("packets", "packets that may wait")];
///
///     fn build(&self, _seed: u64) -> Box<dyn Queue> {
///         Box::new(Fifo { limit: self.limit as usize, packets: VecDeque::new() })
///     }
/// }
///
/// #[derive(Debug)]
/// struct Fifo {
///     limit: usize,
///     packets: VecDeque<Waiting>,
/// }
///
/// impl Queue for Fifo {
///     fn enqueue(&mut self, _now: Time, packet: Waiting) {
///         self.packets.push_back(packet);
///         if self.packets.len() > self.limit {
///             self.packets.pop_front();
///         }
///     }
///
///     fn dequeue(&mut self, _now: Time) -> Option<Waiting> {
///         self.packets.pop_front()
///     }
/// }
///
/// /// What the link carries here: the numbers of packets.
/// #[derive(Debug)]
/// struct Number(u32);
///
/// impl Packet for Number {}
///
/// let registry = Registry::default().with::<HeadDrop>("headdrop", "drops what has waited longest");
/// let queue = registry.parse("headdrop:limit=2")?;
/// assert_eq!(queue.to_string(), "headdrop:limit=2");
///
/// // Four packets at once before a link of 12 Mbit/s: one is being sent, two may wait.
/// let service = Service::Rate(RateSchedule::constant(Rate::from_mbps(12.0)));
/// let mut link = Link::new(service, &queue, random::stream(1, "queue", 0));
/// let (mut sent, mut dropped) = (Vec::new(), Vec::new());
/// for number in 0..4 {
///     let kept = link.enqueue(Time::ZERO, Bytes::new(1500), Number(number), |old| dropped.push(old.packet.0));
///     assert!(kept.is_ok());
/// }
/// while let Some(due) = link.next_departure() {
///     sent.extend(link.depart(due, |_| {}).map(|packet| packet.packet.0));
/// }
/// assert_eq!((sent, dropped), (vec![0, 2, 3], vec![1]));
/// # Ok::<(), verus_channel::SpecError>(())
/// ```
///
/// A packet that is being sent has left the queue. The link asks for the next one as soon as it can send: a queue has no
/// timer, and must not allocate memory for each packet in the steady state.
///
/// # Queues that misbehave
/// A queue cannot send a packet twice or invent one, since [`Waiting`] cannot be copied or made. A
/// queue that holds packets and returns none lets the link rest. The link asks again only after the
/// queue has kept another packet, which may be never; until then its packets wait. A returned
/// packet of another link is dropped. A call that does not return makes a run that does not end, as
/// with a controller.
pub trait Queue: fmt::Debug + Send {
    /// A packet arrives at `now`: keep it, or let go of it. Others may be dropped to make room for it.
    fn enqueue(&mut self, now: Time, packet: Waiting);

    /// The link can send a packet at `now`: which one. Those that it lets go of here are dropped.
    fn dequeue(&mut self, now: Time) -> Option<Waiting>;
}

/// A queue's settings: a table of keys, and how to build the queue. The defaults must make a queue.
pub trait Configuration: fmt::Debug + Default + Send + Sync + 'static {
    /// Its keys.
    const ROWS: &'static [Row<Self>];

    /// Checks what the range of one key cannot say ([`Field::within`](verus_words::spec::Field::within)).
    ///
    /// # Errors
    /// Names the values that do not go together.
    fn check(&self) -> Result<(), Problem> {
        Ok(())
    }

    /// An empty queue. One that draws random numbers draws them from `seed`, so that a run can be repeated.
    fn build(&self, seed: u64) -> Box<dyn Queue>;
}

/// A packet that waits in a [`Queue`]. To drop this value is to drop the packet.
#[derive(Debug)]
pub struct Waiting {
    /// The link's, until it has the packet back.
    dropped: Option<Arc<Slots>>,
    slot: usize,
    size: Bytes,
    entered: Time,
    connection: u64,
    ecn: Ecn,
    marked: bool,
}

impl Waiting {
    /// Its size, as the link accounts it.
    pub fn size(&self) -> Bytes {
        self.size
    }

    /// The time of its arrival.
    pub fn entered(&self) -> Time {
        self.entered
    }

    /// A number that is equal for all packets of a connection, and rarely equal for those of two.
    pub fn connection(&self) -> u64 {
        self.connection
    }

    /// Its ECN code point, as it arrived.
    pub fn ecn(&self) -> Ecn {
        self.ecn
    }

    /// Signals congestion by a mark (ECN, RFC 3168); `false` if the packet's sender would not understand it, so that only
    /// a drop is a signal.
    pub fn mark(&mut self) -> bool {
        self.marked |= self.ecn.is_capable();
        self.marked
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(dropped) = self.dropped.take() {
            dropped.lock().push(self.slot);
        }
    }
}

/// The slots of packets that a queue has dropped.
#[derive(Debug, Default)]
struct Slots(Mutex<Vec<usize>>);

impl Slots {
    fn lock(&self) -> MutexGuard<'_, Vec<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The configuration of a [`Queue`] from its text.
#[derive(Clone)]
pub struct ForeignConfig {
    /// The name, and the values that differ from the defaults.
    text: String,
    config: Arc<dyn Build>,
}

/// A [`Configuration`] of any type.
trait Build: fmt::Debug + Send + Sync {
    fn build(&self, seed: u64) -> Box<dyn Queue>;
}

impl<C: Configuration> Build for C {
    fn build(&self, seed: u64) -> Box<dyn Queue> {
        Configuration::build(self, seed)
    }
}

/// Two are equal if their texts are.
impl PartialEq for ForeignConfig {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Debug for ForeignConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.config.fmt(f)
    }
}

impl fmt::Display for ForeignConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The keys of `C`, with their defaults.
pub(super) fn keys<C: Configuration>() -> Vec<Key> {
    shown(C::ROWS, &C::default())
}

/// The queue that `given` describes.
pub(super) fn read<C: Configuration>(given: &Given<'_>) -> Result<QueueConfig, Problem> {
    let mut config = C::default();
    given.apply(C::ROWS, &mut config)?;
    config.check()?;
    let set = shown(C::ROWS, &config).into_iter().zip(keys::<C>());
    let set: Vec<String> = set
        .filter(|(key, usual)| key.default != usual.default)
        .map(|(key, _)| format!("{}={}", key.key, key.default))
        .collect();
    let colon = if set.is_empty() { "" } else { ":" };
    Ok(QueueConfig::Foreign(ForeignConfig {
        text: format!("{}{colon}{}", given.name, set.join(",")),
        config: Arc::new(config),
    }))
}

/// A [`Queue`] at work, and the packets that wait in it. In the steady state nothing is allocated.
#[derive(Debug)]
pub(crate) struct Foreign<P> {
    queue: Box<dyn Queue>,
    packets: Vec<Option<Departed<P>>>,
    /// The slots of `packets` that are empty.
    empty: Vec<usize>,
    dropped: Arc<Slots>,
}

impl<P: Packet> Foreign<P> {
    pub(super) fn new(config: &ForeignConfig, mut rng: ChaCha8Rng) -> Self {
        Foreign {
            queue: config.config.build(rng.next_u64()),
            packets: Vec::new(),
            empty: Vec::new(),
            dropped: Arc::default(),
        }
    }

    /// A packet arrives. Others that are dropped for it go to `dropped`.
    pub(super) fn enqueue(
        &mut self,
        packet: Departed<P>,
        dropped: &mut impl FnMut(Departed<P>),
    ) -> Result<(), P> {
        let slot = self.empty.pop().unwrap_or_else(|| {
            self.packets.push(None);
            self.packets.len() - 1
        });
        let waiting = Waiting {
            dropped: Some(Arc::clone(&self.dropped)),
            slot,
            size: packet.size,
            entered: packet.entered,
            connection: packet.packet.connection(),
            ecn: packet.packet.ecn(),
            marked: false,
        };
        let now = packet.entered;
        self.packets[slot] = Some(packet);
        self.queue.enqueue(now, waiting);
        match self.drop_what_is_let_go(Some(slot), dropped) {
            Some(refused) => Err(refused.packet),
            None => Ok(()),
        }
    }

    /// The packet that leaves at `now`.
    pub(super) fn dequeue(
        &mut self,
        now: Time,
        dropped: &mut impl FnMut(Departed<P>),
    ) -> Option<Departed<P>> {
        let next = self
            .queue
            .dequeue(now)
            .and_then(|waiting| self.take(waiting));
        self.drop_what_is_let_go(None, dropped);
        next
    }

    /// The packet for which `waiting` stands; `None` if it waits before another link, where it is now dropped.
    fn take(&mut self, mut waiting: Waiting) -> Option<Departed<P>> {
        let ours = |dropped: &mut Arc<Slots>| Arc::ptr_eq(dropped, &self.dropped);
        waiting.dropped.take_if(ours)?;
        let mut packet = self.packets[waiting.slot].take()?;
        self.empty.push(waiting.slot);
        if waiting.marked {
            packet.packet.mark();
        }
        Some(packet)
    }

    /// Gives the packets that the queue has dropped to `dropped`, in this order; the one in
    /// `arrived` is returned instead.
    fn drop_what_is_let_go(
        &mut self,
        arrived: Option<usize>,
        dropped: &mut impl FnMut(Departed<P>),
    ) -> Option<Departed<P>> {
        let mut refused = None;
        for slot in self.dropped.lock().drain(..) {
            let packet = self.packets[slot].take();
            self.empty.push(slot);
            if Some(slot) == arrived {
                refused = packet;
            } else {
                packet.map(&mut *dropped);
            }
        }
        refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verus_core::random;

    /// Packets that wait in order of arrival, and each third is dropped.
    #[derive(Debug, Default)]
    struct Thirds(std::collections::VecDeque<Waiting>);

    impl Configuration for Thirds {
        const ROWS: &'static [Row<Self>] = &[];

        fn build(&self, _seed: u64) -> Box<dyn Queue> {
            Box::new(Thirds::default())
        }
    }

    impl Queue for Thirds {
        fn enqueue(&mut self, _now: Time, packet: Waiting) {
            self.0.push_back(packet);
            if self.0.len() == 3 {
                self.0.pop_front();
            }
        }

        fn dequeue(&mut self, _now: Time) -> Option<Waiting> {
            self.0.pop_front()
        }
    }

    #[test]
    fn places_of_packets_are_used_again() {
        let QueueConfig::Foreign(config) =
            read::<Thirds>(&Given::parse("thirds").unwrap()).unwrap()
        else {
            panic!("another queue");
        };
        let mut foreign: Foreign<u32> = Foreign::new(&config, random::stream(1, "queue", 0));
        let mut dropped = 0;
        for _ in 0..1000 {
            for packet in 0..3 {
                let packet = Departed {
                    packet,
                    size: Bytes::new(100),
                    entered: Time::ZERO,
                };
                foreign.enqueue(packet, &mut |_| dropped += 1).unwrap();
            }
            for number in 1..3 {
                let next = foreign.dequeue(Time::ZERO, &mut |_| {}).unwrap();
                assert_eq!(next.packet, number);
            }
        }
        assert_eq!((foreign.packets.len(), foreign.empty.len()), (3, 3));
        assert_eq!(dropped, 1000);
    }
}
