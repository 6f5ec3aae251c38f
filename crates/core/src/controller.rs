//! The seam between a congestion-control algorithm and everything that drives it.
//!
//! A [`Controller`] only decides. The sender measures: its ledger turns sends and acknowledgements
//! into complete samples, so that no algorithm keeps books. Time arrives with each call and
//! randomness with the seed in the configuration. The same calls always give the same answers, in a
//! simulator and on a socket.

use std::any::Any;
use std::fmt;

use crate::ecn::Ecn;
use crate::recovery::Recovery;
use crate::units::{Bytes, Duration, Rate, Time};

/// Decides how much a flow may send.
///
/// Calls arrive in the order of time. When several things happen at one instant, feedback comes
/// before the tick and departures last.
pub trait Controller: fmt::Debug + Send + Any {
    /// The flow begins. Every packet will be of `packet_size` bytes until
    /// [`on_packet_size`](Self::on_packet_size) says otherwise.
    fn on_start(&mut self, _now: Time, _packet_size: Bytes) {}

    /// The transport's handshake took the round trip `rtt`. Called before the first packet leaves, if at all.
    fn on_handshake(&mut self, _now: Time, _rtt: Duration) {}

    /// A packet left. Called once for each, retransmissions included.
    fn on_sent(&mut self, _packet: &Departure) {}

    /// Feedback arrived: all that one acknowledgement, or one expired loss timer, revealed.
    fn on_feedback(&mut self, feedback: &Feedback<'_>);

    /// Silence outlasted the retransmission timeout; everything in flight is presumed lost.
    fn on_timeout(&mut self, timeout: &Timeout<'_>);

    /// The instant asked for by [`next_tick`](Self::next_tick) has come, perhaps late.
    fn on_tick(&mut self, _now: Time, _in_flight: Bytes) {}

    /// The packet size changed (path MTU discovery).
    fn on_packet_size(&mut self, _size: Bytes) {}

    /// The congestion window: recorded with each packet, and drawn.
    fn window(&self) -> Bytes;

    /// The bounds on the packets that may leave now.
    fn allowance(&self) -> Allowance {
        Allowance::window(self.window())
    }

    /// The rate at which departures are spread; `None` sends as soon as the window allows.
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    /// How many bytes may leave back to back at the [pacing rate](Self::pacing_rate); with `None` the pacer decides.
    fn send_quantum(&self) -> Option<Bytes> {
        None
    }

    /// The bitrate at which a live source (a video encoder) should produce data, for algorithms that control the
    /// source, too. The source asks before each frame; with `None` it keeps its own bitrate.
    fn media_rate(&self) -> Option<Rate> {
        None
    }

    /// When to call [`on_tick`](Self::on_tick) next, if at all.
    fn next_tick(&self) -> Option<Time> {
        None
    }

    /// A few bytes for the algorithm's receiver half, to travel with `packet`. Called after [`on_sent`](Self::on_sent),
    /// and only by transports that can carry such bytes.
    fn stamp(&self, _packet: &Departure) -> Option<Stamp> {
        None
    }

    /// How this algorithm tells loss from reordering and silence from delay.
    fn recovery(&self) -> Recovery {
        Recovery::rack()
    }

    /// The ECN code point of all packets: whether the algorithm answers marks, and in which way. Called once, as the
    /// flow begins; a sender may not choose [`Ecn::Ce`].
    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }

    /// The algorithm's present phase, if it has phases; only recorders call this.
    fn phase(&self) -> Option<Phase> {
        None
    }

    /// Internal quantities by name, each name ending in its unit; only recorders call this.
    fn probe(&self, _record: &mut dyn FnMut(&'static str, f64)) {}

    /// The learned delay profile as (window in packets, delay in ms) points and fitted curve, if
    /// the algorithm has one; read only by recorders.
    fn profile(&self) -> Option<ProfileSnapshot> {
        None
    }
}

/// The bounds on what may leave now: both hold.
///
/// A QUIC stack's count of the bytes in flight differs from the controller's. Such a transport must
/// tell the two bounds apart: it compares the window with its count, and adds the budget to its
/// count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    window: Bytes,
    budget: Bytes,
}

/// A bound that nothing reaches: the neutral element of the minimum.
const UNBOUNDED: Bytes = Bytes::MAX;

impl Allowance {
    /// A congestion window: at most `bytes` in flight.
    #[inline]
    pub const fn window(bytes: Bytes) -> Self {
        Allowance {
            window: bytes,
            budget: UNBOUNDED,
        }
    }

    /// At most `bytes` more, whatever is in flight: the rest of an epoch's budget, of a forecast,
    /// or of the credit that a rate has earned.
    #[inline]
    pub const fn budget(bytes: Bytes) -> Self {
        Allowance {
            window: UNBOUNDED,
            budget: bytes,
        }
    }

    /// This window, and at most `bytes` more.
    #[inline]
    #[must_use]
    pub const fn and_budget(self, bytes: Bytes) -> Self {
        Allowance {
            window: self.window,
            budget: bytes,
        }
    }

    /// How many bytes may leave while `in_flight` are in flight. A packet may leave while this is at least its
    /// size.
    #[inline]
    pub fn sendable(self, in_flight: Bytes) -> Bytes {
        self.window.saturating_sub(in_flight).min(self.budget)
    }

    /// The bound on bytes in flight, if there is one.
    pub fn most_in_flight(self) -> Option<Bytes> {
        (self.window < UNBOUNDED).then_some(self.window)
    }

    /// The bound on the bytes that may still leave, if there is one.
    pub fn most_more(self) -> Option<Bytes> {
        (self.budget < UNBOUNDED).then_some(self.budget)
    }
}

/// An algorithm's activity, in terms that all of them share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The window grows fast, to find the path's capacity.
    SlowStart,
    /// The algorithm proper decides: congestion avoidance, epochs, a control loop.
    Steady,
    /// The window comes down after a loss, and lost data is sent again.
    Recovery,
    /// The sender sends less than the path delivers, so that the queue empties and the round-trip time without a queue
    /// can be measured.
    Drain,
    /// Nothing has answered since a retransmission timeout.
    Silent,
}

impl Phase {
    /// The phase's name in columns of results.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::SlowStart => "slow_start",
            Phase::Steady => "steady",
            Phase::Recovery => "recovery",
            Phase::Drain => "drain",
            Phase::Silent => "silent",
        }
    }
}

/// The receiver half of an algorithm that has one; most have none.
pub trait Observer: fmt::Debug + Send {
    /// A packet arrived.
    fn on_packet(&mut self, packet: &Arrival<'_>);

    /// When to call [`on_tick`](Self::on_tick) next, if at all.
    fn next_tick(&self) -> Option<Time> {
        None
    }

    /// The instant asked for by [`next_tick`](Self::next_tick) has come, perhaps late.
    fn on_tick(&mut self, _now: Time) {}

    /// Appends the bytes for the sender half that travel with the next acknowledgement, at most [`REPORT_BYTES`]; the
    /// sender half reads them as [`Feedback::report`].
    fn report(&self, into: &mut Vec<u8>);
}

/// The longest report, in bytes.
pub const REPORT_BYTES: usize = 255;

impl dyn Observer + '_ {
    /// Replaces the content of `into` by the observer's [report](Observer::report). A report longer
    /// than [`REPORT_BYTES`] does not fit into an acknowledgement. It is omitted whole, since a
    /// part of it would have another meaning.
    pub fn write_report(&self, into: &mut Vec<u8>) {
        into.clear();
        self.report(into);
        if into.len() > REPORT_BYTES {
            into.clear();
        }
    }
}

/// A packet as it arrived, for an [`Observer`].
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// When, by the receiver's clock.
    pub at: Time,
    /// Its number.
    pub number: u64,
    /// Its size (IP).
    pub size: Bytes,
    /// The sender half's stamp on it.
    pub stamp: Option<&'a [u8]>,
}

/// A few bytes that the sender half of an algorithm puts on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    bytes: [u8; Stamp::MAX],
    len: u8,
}

impl Stamp {
    /// The longest stamp, in bytes.
    pub const MAX: usize = 16;

    /// A stamp of `bytes`.
    ///
    /// # Panics
    /// If there are more than [`Stamp::MAX`].
    pub fn new(bytes: &[u8]) -> Self {
        assert!(bytes.len() <= Stamp::MAX, "a stamp is a few bytes");
        let mut stamp = Stamp {
            bytes: [0; Stamp::MAX],
            len: bytes.len() as u8,
        };
        stamp.bytes[..bytes.len()].copy_from_slice(bytes);
        stamp
    }

    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// A delay profile at one instant, for plots (Verus Fig. 5 and 7b).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileSnapshot {
    /// Measured points: (window in packets, averaged delay in ms).
    pub points: Vec<(f64, f64)>,
    /// The fitted curve at each whole window from 1, or at a thousand of these where there are more: (window in
    /// packets, delay in ms).
    pub curve: Vec<(f64, f64)>,
}

/// A packet at its departure, kept until its fate is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Departure {
    /// The packet's number. Never reused: a retransmission gets a new one.
    pub number: u64,
    /// When it left.
    pub at: Time,
    /// Its size (IP).
    pub size: Bytes,
    /// The controller's window at that moment (W in Verus).
    pub window: Bytes,
    /// Bytes in flight, this packet included.
    pub in_flight: Bytes,
    /// Bytes of the flow acknowledged when this packet left: rounds and delivery rates follow from it.
    pub delivered: Bytes,
    /// When `delivered` last grew; where nothing else was in flight, when this packet left.
    pub delivered_at: Time,
    /// The time from the departure of the newest packet then acknowledged to the departure of this one: how long it
    /// took to send the flight that this packet ends. Zero where nothing else was in flight.
    pub sending: Duration,
    /// Whether the source, not the window, held the sender back.
    pub app_limited: bool,
}

/// A packet acknowledged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Acked {
    /// The packet as it left.
    pub packet: Departure,
    /// This packet's own round-trip time, unsmoothed; the receiver's hold time is removed where it
    /// is known.
    pub rtt: Duration,
    /// Arrival by the receiver's clock, where the transport carries it.
    pub received_at: Option<Time>,
}

/// Everything that one feedback event revealed, each list in order of departure.
#[derive(Clone, Copy, Debug)]
pub struct Feedback<'a> {
    /// When it arrived.
    pub now: Time,
    /// Packets newly acknowledged.
    pub acked: &'a [Acked],
    /// Packets newly declared lost.
    pub lost: &'a [Departure],
    /// Packets declared lost before (by a gap or a timeout) and acknowledged after all.
    pub recovered: &'a [Acked],
    /// Number of packets newly acknowledged with a congestion mark (ECN). Zero where
    /// [`Controller::ecn`] did not ask for marks. A QUIC stack that does not count marks makes it 1
    /// for each event with marks.
    pub marked: usize,
    /// The report of the algorithm's receiver half, where it has one.
    pub report: Option<&'a [u8]>,
    /// Bytes in flight before this event.
    pub in_flight_before: Bytes,
    /// Bytes in flight after it.
    pub in_flight: Bytes,
    /// Bytes acknowledged in the flow's life, this event included.
    pub delivered: Bytes,
    /// The smoothed round-trip time (RFC 6298) after this event.
    pub smoothed_rtt: Duration,
    /// The least round-trip time of the flow's life, this event included.
    pub min_rtt: Duration,
}

impl Feedback<'_> {
    /// The delivery-rate sample of the newest packet acknowledged; `None` where nothing was acknowledged.
    pub fn delivery(&self) -> Option<Delivery> {
        let arrived = self.acked.iter().chain(self.recovered);
        let newest = arrived.max_by_key(|acked| acked.packet.number)?;
        let packet = newest.packet;
        let delivered = self.delivered.saturating_sub(packet.delivered);
        let interval = self.now.since(packet.delivered_at).max(packet.sending);
        // An interval shorter than the least round-trip time is too short for a rate (Linux, `tcp_rate_gen`).
        let counts = interval >= self.min_rtt;
        Some(Delivery {
            packet,
            rtt: newest.rtt,
            delivered,
            rate: if counts {
                delivered / interval
            } else {
                Rate::default()
            },
        })
    }

    /// Bytes that this event says have arrived.
    pub fn newly_delivered(&self) -> Bytes {
        let arrived = self.acked.iter().chain(self.recovered);
        arrived.map(|acked| acked.packet.size).sum()
    }
}

/// A sample of the delivery rate (draft-cheng-iccrg-delivery-rate-estimation; draft-ietf-ccwg-bbr,
/// "Delivery Rate Samples"). It is the data delivered since a packet left, over the longer of two
/// times: that in which the data was acknowledged, and that in which it was sent. The second keeps
/// a burst of acknowledgements from being taken for a fast path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delivery {
    /// The newest packet acknowledged, as it left.
    pub packet: Departure,
    /// Its round-trip time.
    pub rtt: Duration,
    /// Bytes delivered since it left.
    pub delivered: Bytes,
    /// The rate; zero where the time was too short for one.
    pub rate: Rate,
}

/// A retransmission timeout.
#[derive(Clone, Copy, Debug)]
pub struct Timeout<'a> {
    /// When it fired.
    pub now: Time,
    /// Everything that was in flight, in order of departure.
    pub presumed_lost: &'a [Departure],
    /// How many timeouts have fired in a row, this one included (1 for the first).
    pub backoff: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports this many bytes.
    #[derive(Debug)]
    struct Wordy(usize);

    impl Observer for Wordy {
        fn on_packet(&mut self, _: &Arrival<'_>) {}

        fn report(&self, into: &mut Vec<u8>) {
            into.resize(into.len() + self.0, 7);
        }
    }

    #[test]
    fn a_report_that_no_acknowledgement_has_room_for_is_left_out_whole() {
        let mut said = vec![1, 2, 3];
        for (bytes, left) in [(REPORT_BYTES, REPORT_BYTES), (REPORT_BYTES + 1, 0), (0, 0)] {
            let observer: &dyn Observer = &Wordy(bytes);
            observer.write_report(&mut said);
            assert_eq!(said.len(), left);
        }
    }
}
