//! Invariants of any sequence of events of a flow: `forward` in the core and in the kernel give the
//! same answers.

use std::cell::RefCell;

use crate::law::{Acknowledgement, Core, Event, Native, assert_same};

/// More would be slow, and reach nothing new.
const MOST_EVENTS: usize = 2000;

thread_local! {
    static NATIVE: RefCell<Native> = RefCell::new(Native::new());
}

/// Takes `bytes` for a flow's beginning and its events, and gives them to both laws.
///
/// # Panics
/// If the answers of `forward` differ, if an answer has a window or a pace of zero, or if a law in
/// C has undefined behaviour.
pub fn check(bytes: &[u8]) {
    let mut input = Input(bytes);
    let begin = input.number();
    let packet = 64 + input.number() % 70_000;
    let budget_ms = 6.0 + (input.number() % 994) as f64;
    NATIVE.with_borrow_mut(|native| {
        let mut core = Core::start(begin, packet, budget_ms);
        native.start(begin, packet, budget_ms);
        let mut clock = begin;
        for _ in 0..MOST_EVENTS {
            let Some(event) = input.event(&mut clock) else {
                break;
            };
            assert_same(native.handle(event), core.handle(event), event);
        }
    });
}

/// The rest of the input.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A number of any length below 2^62: its first byte gives the number of bytes; zero at the
    /// end.
    fn number(&mut self) -> u64 {
        let bytes = self.byte().unwrap_or(0) % 9;
        let read = (0..bytes).map(|_| u64::from(self.byte().unwrap_or(0)));
        read.fold(0, |all, byte| all << 8 | byte) >> if bytes == 8 { 2 } else { 0 }
    }

    fn event(&mut self, clock: &mut u64) -> Option<Event> {
        let kind = self.byte()?;
        let step = self.number();
        // Most go forward by little, some to any time.
        let now = if kind & 0x80 == 0 {
            clock.saturating_add(step % 1_000_000_000)
        } else {
            step
        };
        *clock = (*clock).max(now);
        Some(match kind & 0x0f {
            0 => Event::Timeout { now },
            1 => Event::PacketSize {
                bytes: 64 + step % 10_000,
            },
            _ => {
                let rtt = self.number();
                Event::Acknowledged(Acknowledgement {
                    now,
                    rtt,
                    sent: if kind & 0x40 == 0 {
                        now.saturating_sub(rtt)
                    } else {
                        self.number()
                    },
                    acked: self.number() % (1 << 31),
                    lost: if kind & 0x20 == 0 {
                        0
                    } else {
                        self.number() % (1 << 31)
                    },
                    marked: if kind & 0x10 == 0 {
                        0
                    } else {
                        self.number() % 100
                    },
                    smoothed_rtt: if kind & 0x0f < 8 { rtt } else { self.number() },
                    in_flight: self.number(),
                    app_limited: kind & 1 == 1,
                    lost_sent: if kind & 0x20 == 0 { 0 } else { self.number() },
                })
            }
        })
    }
}
