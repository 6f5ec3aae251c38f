//! A station of a shared [medium](crate::medium): a queue, and the aggregate that is sent next.
//!
//! ```text
//!           refused        dropped (CoDel)
//!              ▲               ▲
//! enqueue ──► queue ──► chosen ┴──► aggregate ──► received: all leave at once
//!                                     ▲    │
//!                                     └────┘ collision: it is sent again
//! ```
//!
//! Packets leave the queue when the station begins to transmit, and the station when the last bit
//! of their aggregate has arrived: a receiver's driver gets them together.

use std::collections::VecDeque;

use verus_core::{Bytes, Time};

use super::link::Link;
use crate::medium::Limits;
use crate::packet::{Departed, Packet};

/// A queue that is served in aggregates, without a clock. In the steady state nothing is allocated.
#[derive(Debug)]
pub struct Station<P> {
    link: Link<P>,
    /// The packets being sent, or to be sent again.
    aggregate: VecDeque<Departed<P>>,
    /// The bytes of the aggregate, framed.
    bytes: u64,
    /// When the aggregate has been received.
    received_at: Option<Time>,
}

impl<P: Packet> Station<P> {
    /// A station that sends what waits in `link`, at the link's rate.
    pub fn new(link: Link<P>) -> Self {
        Station {
            link,
            aggregate: VecDeque::new(),
            bytes: 0,
            received_at: None,
        }
    }

    /// A packet of `size` comes at `now`; packets that the queue drops to make room go to
    /// `dropped`.
    ///
    /// # Errors Gives the packet back if the queue refuses it.
    pub fn enqueue(
        &mut self,
        now: Time,
        size: Bytes,
        packet: P,
        dropped: impl FnMut(Departed<P>),
    ) -> Result<(), P> {
        self.link.enqueue(now, size, packet, dropped)
    }

    /// Whether it has packets for another transmission.
    pub fn is_backlogged(&self) -> bool {
        let collided = !self.aggregate.is_empty() && self.received_at.is_none();
        collided || self.link.queued_packets() > 0
    }

    /// Begins to transmit at `at`, and returns when the aggregate ends; `None` if the queue drops
    /// all that it has. The aggregate [received](Self::receive) before must have left. Dropped
    /// packets go to `dropped`.
    pub fn transmit(
        &mut self,
        at: Time,
        limits: &Limits,
        mut dropped: impl FnMut(Departed<P>),
    ) -> Option<Time> {
        if self.aggregate.is_empty() {
            self.bytes = 0;
            while let Some(size) = self.link.choose(at, &mut dropped) {
                let bytes = self.bytes + Limits::framed(size);
                let packets = self.aggregate.len() + 1;
                if packets > 1 && !limits.allow(packets, at, self.end(at, bytes)) {
                    break;
                }
                self.bytes = bytes;
                self.aggregate.extend(self.link.take(at));
            }
        }
        (!self.aggregate.is_empty()).then(|| self.end(at, self.bytes))
    }

    fn end(&mut self, at: Time, bytes: u64) -> Time {
        let link = &mut self.link;
        Limits::end(at, bytes, |begin, bytes| {
            link.transmission_end(begin, bytes)
        })
    }

    /// The aggregate was received at `at`: its packets leave then.
    pub fn receive(&mut self, at: Time) {
        self.received_at = Some(at);
    }

    /// When to call [`Station::depart`] next.
    pub fn next_departure(&self) -> Option<Time> {
        self.received_at
    }

    /// Takes the next packet of the aggregate that has been received by `now`.
    pub fn depart(&mut self, now: Time) -> Option<Departed<P>> {
        self.received_at.filter(|at| *at <= now)?;
        let packet = self.aggregate.pop_front();
        if self.aggregate.is_empty() {
            self.received_at = None;
        }
        packet
    }

    /// The link whose queue it serves.
    pub fn link(&self) -> &Link<P> {
        &self.link
    }

    /// Packets that have left the queue and not the station.
    pub fn held_packets(&self) -> usize {
        self.aggregate.len()
    }
}
