//! Receivers that lie to every controller of the core, over the ledger and the sender that UDP uses, on a
//! virtual clock ([`trial`]).

use verus_core::receiver::{Ack, RANGES_PER_ACK};
use verus_core::sender::FalseAck;
use verus_core::{Bytes, Controller, Duration, Stamp, Time};
use verus_faults::liar::Acknowledgement;
use verus_faults::trial::{self, Side};
use verus_senders::{Scheme, Sender};

/// The longest hold of an acknowledgement that the probe accepts from a receiver.
const LONGEST_HOLD: Duration = Duration::from_millis(25);
/// The probe's limit on bytes in flight.
const MOST_IN_FLIGHT: Bytes = Bytes::new(64 << 20);

struct Core {
    sender: Sender,
    /// The receiver's count of congestion marks. It adds far more than arrived, so that its count
    /// wraps and seems to go back.
    marks: u32,
}

impl Side for Core {
    const SIZE: u64 = 1400;
    const TIMERS: (f64, f64) = (3.0, 1000.0);
    const DELAY_COUNTS: bool = true;

    fn new(scheme: &Scheme, seed: u64) -> Self {
        let size = Bytes::new(Self::SIZE);
        let mut sender = Sender::new(scheme.build(seed), size, Time::ZERO);
        sender.skip_numbers(seed);
        sender.offer_bulk();
        Core { sender, marks: 0 }
    }

    /// As the probe does.
    fn on_ack(&mut self, now: Time, acknowledged: &Acknowledgement) -> Result<Vec<u64>, FalseAck> {
        const COUNTED: u32 = (1 << 29) + 1;
        self.marks = self
            .marks
            .wrapping_add(COUNTED.wrapping_mul(acknowledged.marked as u32));
        let mut received = acknowledged.received.clone();
        for one in &mut received {
            one.hold = one.hold.min(LONGEST_HOLD);
        }
        let mut report = acknowledged.report.as_deref();
        let groups = acknowledged.ranges.len().div_ceil(RANGES_PER_ACK);
        for index in (0..groups).rev() {
            let from = index * RANGES_PER_ACK;
            let to = acknowledged.ranges.len().min(from + RANGES_PER_ACK);
            let newest = acknowledged.ranges[from].last;
            let (at, hold) = received
                .binary_search_by_key(&newest, |one| one.number)
                .map_or((acknowledged.written, Duration::ZERO), |at| {
                    (received[at].at, received[at].hold)
                });
            let mut ack = Ack::new(acknowledged.ranges[from..to].iter().copied(), at, hold);
            ack.marks = self.marks;
            let report = if index == 0 { report.take() } else { None };
            self.sender
                .on_ack_with_times(now, &ack, &received, report)?;
        }
        let acked = &self.sender.last_revealed().acked;
        Ok(acked.iter().map(|acked| acked.packet.number).collect())
    }

    fn transmit(&mut self, now: Time) -> Option<(u64, Option<Stamp>)> {
        let may = self.sender.in_flight() < MOST_IN_FLIGHT;
        let packet = may.then(|| self.sender.poll_transmit(now)).flatten()?;
        Some((packet.number, packet.stamp))
    }

    fn next_timer(&self, _now: Time) -> Option<Time> {
        self.sender.next_timer()
    }

    fn on_timer(&mut self, now: Time) {
        self.sender.on_timer(now);
    }

    fn controller(&self) -> &dyn Controller {
        self.sender.controller()
    }

    fn remembered(&self) -> usize {
        self.sender.remembered()
    }
}

#[test]
fn whatever_a_receiver_says_the_flow_stays_within_bounds_and_recovers() {
    trial::hold::<Core>();
}
