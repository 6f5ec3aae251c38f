//! A user and the two ends of its connections, one after another.

use verus_core::receiver::{Receiver, ReceiverConfig};
use verus_core::sender::{Counters, Sender};
use verus_core::{Bytes, Duration, Time};

use crate::feed::Feed;
use crate::frames::Frames;
use crate::half::ReceiverHalf;
use crate::pages::Client;
use crate::scenario::Plan;
use crate::timer::Timer;
use crate::traffic::{Load, User};

/// What sets the seeds of one flow's connections apart: odd, with its bits spread (the golden ratio's), so that they
/// do not meet those of neighbouring flows or runs.
const CONNECTION_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// The two ends of a connection, which know nothing of those before.
#[derive(Debug)]
pub struct Ends {
    /// The end that sends data.
    pub sender: Sender,
    /// The end that acknowledges.
    pub receiver: Receiver,
    /// The receiver half of the algorithm, where it has one.
    pub half: Option<Box<ReceiverHalf>>,
    /// Bytes of data packets received and not yet acknowledged.
    pub unanswered: u32,
    /// Bytes of data delivered, each counted once.
    pub delivered: Bytes,
    /// The frames that it carries, where it carries such.
    pub frames: Option<Box<Frames>>,
    /// Who asks for pages, where it carries such.
    pub client: Option<Box<Client>>,
    /// What there is to send next, where that is decided a packet at a time.
    pub feed: Option<Box<Feed>>,
}

impl Ends {
    fn new(plan: &Plan, flow: usize, connection: u32, now: Time) -> Self {
        let scenario = &plan.scenario;
        let scheme = &plan.schemes[flow];
        // A stream for each connection, the first being that of a flow that has only one.
        let seed = (scenario.seed.wrapping_add(flow as u64))
            .wrapping_add(u64::from(connection).wrapping_mul(CONNECTION_SEED));
        let packet_size = Bytes::new(u64::from(scenario.packet_bytes));
        Ends {
            sender: Sender::new(scheme.build(seed), packet_size, now),
            receiver: Receiver::new(ReceiverConfig {
                ack_every: scenario.ack_every,
                ..Default::default()
            }),
            half: scheme
                .observer()
                .map(|half| Box::new(ReceiverHalf::new(half))),
            unanswered: 0,
            delivered: Bytes::ZERO,
            frames: None,
            client: None,
            feed: None,
        }
    }
}

/// Where a user is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its next connection will begin.
    Pausing,
    /// A connection is on.
    On,
    /// Its last connection is over.
    Done,
    /// It was stopped while it paused.
    Cancelled,
}

/// A user: connections one after another, each with ends of its own. What is still under way of an earlier one when the
/// next begins uses the path and reaches nobody.
#[derive(Debug)]
pub struct Flow {
    user: Box<User>,
    /// Where it is.
    pub phase: Phase,
    /// Which connection the ends are of, from 0.
    pub connection: u32,
    /// What the connection that began last, or that begins next, is to carry.
    pub load: Load,
    /// Whether the ends are those of a connection that has begun.
    begun: bool,
    /// What the senders of earlier connections counted.
    earlier: Box<Counters>,
    /// The ends.
    pub ends: Ends,
    /// The sender's: losses, timeouts, pacing, ticks.
    pub sender_timer: Timer,
    /// The receiver's: acknowledgements that wait.
    pub receiver_timer: Timer,
}

impl Flow {
    /// The flow with this index, and when its first connection begins.
    pub fn new(plan: &Plan, index: usize) -> (Self, Time) {
        let scenario = &plan.scenario;
        let mut user = plan.traffic[index].user(scenario.seed, index as u64);
        let first = user.next();
        let (pause, load) = first.expect("all traffic has a first connection");
        let start = Time::from_secs_f64(scenario.flows[index].start_s) + pause;
        let flow = Flow {
            user: Box::new(user),
            phase: Phase::Pausing,
            connection: 0,
            load,
            begun: false,
            earlier: Box::default(),
            ends: Ends::new(plan, index, 0, start),
            sender_timer: Timer::default(),
            receiver_timer: Timer::default(),
        };
        (flow, start)
    }

    /// Whether its ends' connection has begun: the next needs others.
    pub fn is_used(&self) -> bool {
        self.begun
    }

    /// Gives it ends that know nothing of its connections before; returns the old ones.
    pub fn renew(&mut self, plan: &Plan, index: usize, now: Time) -> Ends {
        self.connection += 1;
        *self.earlier = *self.earlier + *self.ends.sender.counters();
        let ends = Ends::new(plan, index, self.connection, now);
        std::mem::replace(&mut self.ends, ends)
    }

    /// The connection begins.
    pub fn begin(&mut self, now: Time) {
        (self.phase, self.begun) = (Phase::On, true);
        match self.load {
            Load::File(bytes) => self.ends.sender.offer(bytes),
            Load::Frames(video) => {
                self.ends.frames = Some(Box::new(Frames::new(video, now)));
            }
            Load::Pages(pages) => {
                self.ends.client = Some(Box::new(Client::new(pages, self.user.draws())));
            }
            Load::Turns(turns) => self.ends.feed = Some(Box::new(Feed::new(turns))),
            Load::Endless | Load::For(_) => self.ends.sender.offer_bulk(),
        }
    }

    /// Whether the connection that is on has delivered all of its file, or its last frame.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.phase == Phase::On
            && match self.load {
                Load::File(bytes) => bytes == self.ends.delivered,
                Load::Frames(_) => (self.ends.frames.as_ref()).is_some_and(|f| f.is_complete()),
                Load::Pages(_) => (self.ends.client.as_ref()).is_some_and(|c| c.is_complete()),
                Load::Endless | Load::For(_) | Load::Turns(_) => false,
            }
    }

    /// The connection is over; returns how long until the next one, if there is one.
    pub fn end(&mut self) -> Option<Duration> {
        let Some((pause, load)) = self.user.next() else {
            self.phase = Phase::Done;
            return None;
        };
        (self.phase, self.load) = (Phase::Pausing, load);
        Some(pause)
    }

    /// The user is gone for good.
    pub fn stop(&mut self) {
        self.ends.sender.stop();
        self.phase = match self.phase {
            Phase::Pausing | Phase::Cancelled => Phase::Cancelled,
            Phase::On | Phase::Done => Phase::Done,
        };
    }

    /// Whether what its sender shows is of a connection that is on, or was the last.
    pub fn is_shown(&self) -> bool {
        matches!(self.phase, Phase::On | Phase::Done)
    }

    /// What the senders of all its connections counted.
    pub fn counters(&self) -> Counters {
        *self.earlier + *self.ends.sender.counters()
    }
}
