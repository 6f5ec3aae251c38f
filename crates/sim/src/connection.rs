//! A user and the two ends of its connections, one after another.

use verus_core::receiver::{Receiver, ReceiverConfig};
use verus_core::sender::Counters;
use verus_core::{Bytes, Duration, Time};
use verus_senders::Sender;

use crate::feed::Feed;
use crate::frames::Frames;
use crate::guard::Ticks;
use crate::half::ReceiverHalf;
use crate::pages::Client;
use crate::plan::Plan;
use crate::timer::Timer;
use crate::traffic::{Load, User};

/// Distance between the seeds of one flow's connections. It is odd and has spread bits (2⁶⁴ over
/// the golden ratio), so that they do not coincide with the seeds of neighbouring flows or runs.
const CONNECTION_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// The two ends of one connection; they know nothing of earlier connections.
#[derive(Debug)]
pub struct Ends {
    /// The end that sends data.
    pub sender: Sender,
    /// The end that acknowledges.
    pub receiver: Receiver,
    /// The receiver half of the algorithm, where it has one.
    pub receiver_half: Option<Box<ReceiverHalf>>,
    /// Bytes of data packets received and not yet acknowledged.
    pub unanswered: u32,
    /// Bytes of data delivered, each counted once.
    pub delivered: Bytes,
    /// The frames of a live source, where the connection carries one.
    pub frames: Option<Box<Frames>>,
    /// The client that requests pages, where the connection carries them.
    pub client: Option<Box<Client>>,
    /// Chooses the data of each packet as it leaves, for traffic that needs it.
    pub feed: Option<Box<Feed>>,
}

impl Ends {
    fn new(plan: &Plan, flow: usize, connection: u32, now: Time) -> Self {
        let scenario = &plan.scenario;
        let scheme = &plan.schemes[flow];
        // A random stream for each connection; that of the first is the same for flows with a single connection.
        let seed = (scenario.seed.wrapping_add(flow as u64))
            .wrapping_add(u64::from(connection).wrapping_mul(CONNECTION_SEED));
        let packet_size = Bytes::new(u64::from(scenario.packet_bytes));
        let mut sender = Sender::new(scheme.build(seed), packet_size, now);
        if let Some(rtt) = plan.handshake(flow, now) {
            sender.on_handshake(now, rtt);
        }
        Ends {
            sender,
            receiver: Receiver::new(ReceiverConfig {
                ack_every: scenario.ack_every,
                quick_acks: scenario.quick_acks,
                ..Default::default()
            }),
            receiver_half: scheme
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

/// The state of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The pause before its next connection.
    Pausing,
    /// A connection is open.
    On,
    /// The end: its last connection has ended.
    Done,
    /// The end by a stop while it waited.
    Cancelled,
}

/// A user: connections one after another, each with new ends. Packets of an earlier connection that
/// are still under way when the next begins cross the path, and are ignored on arrival.
#[derive(Debug)]
pub struct Flow {
    user: Box<User>,
    /// Its state.
    pub phase: Phase,
    /// The number of the connection that `ends` belong to, from 0.
    pub connection: u32,
    /// The load of the connection that began last or, while the user waits, of the next one.
    pub load: Load,
    /// Whether the connection that `ends` belong to has begun.
    begun: bool,
    /// Counters of the earlier connections' senders.
    earlier: Box<Counters>,
    /// The two ends of the current connection.
    pub ends: Ends,
    /// The sender's timer: losses, timeouts, pacing, ticks.
    pub sender_timer: Timer,
    /// The receiver's timer: delayed acknowledgements.
    pub receiver_timer: Timer,
    /// The interval of timers.
    pub(crate) ticks: Ticks,
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
            ticks: Ticks::default(),
        };
        (flow, start)
    }

    /// Whether the connection of its ends has begun, so that the next one needs new ends.
    pub fn is_used(&self) -> bool {
        self.begun
    }

    /// Gives it new ends; returns the old ones.
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
                self.ends.frames = Some(Box::new(Frames::new(video, self.user.draws(), now)));
            }
            Load::Pages(pages) => {
                self.ends.client = Some(Box::new(Client::new(pages, self.user.draws())));
            }
            Load::Turns(_) => self.ends.feed = Some(Box::new(Feed::turns())),
            Load::Media(media) => self.ends.feed = Some(Box::new(Feed::media(&media, now))),
            Load::Endless | Load::For(_) => self.ends.sender.offer_bulk(),
        }
    }

    /// Whether the open connection has delivered all of its file, or its last frame.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.phase == Phase::On
            && match self.load {
                Load::File(bytes) => bytes == self.ends.delivered,
                Load::Frames(_) => (self.ends.frames.as_ref()).is_some_and(|f| f.is_complete()),
                Load::Pages(_) => (self.ends.client.as_ref()).is_some_and(|c| c.is_complete()),
                Load::Media(_) => (self.ends.feed.as_ref())
                    .and_then(|feed| feed.streams())
                    .is_some_and(|streams| streams.is_complete()),
                Load::Endless | Load::For(_) | Load::Turns(_) => false,
            }
    }

    /// The connection has ended; returns the time until the next one, if there is one.
    pub fn end(&mut self) -> Option<Duration> {
        let Some((pause, load)) = self.user.next() else {
            self.phase = Phase::Done;
            return None;
        };
        (self.phase, self.load) = (Phase::Pausing, load);
        Some(pause)
    }

    /// The user stops for good.
    pub fn stop(&mut self) {
        self.ends.sender.stop();
        self.phase = match self.phase {
            Phase::Pausing | Phase::Cancelled => Phase::Cancelled,
            Phase::On | Phase::Done => Phase::Done,
        };
    }

    /// Whether its sender belongs to an open connection or to its last one, so that its state is worth recording.
    pub fn is_shown(&self) -> bool {
        matches!(self.phase, Phase::On | Phase::Done)
    }

    /// Sum of the counters of all its connections' senders.
    pub fn counters(&self) -> Counters {
        *self.earlier + *self.ends.sender.counters()
    }
}
