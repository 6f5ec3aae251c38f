//! The loop: carries packets between two devices on the real clock, with a [`Direction`]
//! each way.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use hdrhistogram::Histogram;
use rustix::event::PollFlags;
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};
use verus_channel::PathConfig;
pub use verus_channel::Way;
use verus_channel::path::delay::Flight;
use verus_channel::path::{Dropped, Watch};
use verus_clock::{Alarm, Clock};
use verus_core::{Bytes, Duration, Time};

use crate::device::Device;
use crate::direction::Direction;
use crate::packet::Packet;

/// Reads at most this many times from one device before it handles deliveries.
const READS: usize = 16;

/// How well the emulator kept its time.
#[derive(Clone, Debug)]
pub struct Timing {
    /// By how much each delivery was late, µs.
    pub lateness: Histogram<u64>,
    /// Bytes of opportunities that passed unused while the emulator was busy and may have had
    /// packets to read.
    pub missed_bytes: u64,
    /// Packets that the devices lost rather than the queue.
    pub device_losses: u64,
    /// How often the emulator woke up.
    pub wakeups: u64,
}

/// Two devices, the path between them, and the time.
#[derive(Debug)]
pub struct Emulator {
    clock: Clock,
    /// When the clock was last read. It is read where time may have passed: in a guest kernel, reading it is a system
    /// call.
    now: Time,
    alarm: Alarm,
    ends: [End; 2],
    began: Option<Time>,
    /// The way and the size of the packet to begin with.
    awaited: Option<(Way, usize)>,
    refused: Vec<Packet>,
    lateness: Histogram<u64>,
    missed_bytes: u64,
    wakeups: u64,
}

/// A device, and the direction that begins at it.
#[derive(Debug)]
struct End {
    device: Device,
    direction: Direction<Packet>,
    /// Whether the device may hold packets.
    readable: bool,
    /// When the device was last checked for packets.
    unwatched: Time,
}

impl Emulator {
    /// The path from `devices[0]` to `devices[1]` and back; there is only propagation until
    /// [`Emulator::begin`].
    ///
    /// # Errors
    /// If the system grants no timer.
    pub fn new(devices: [Device; 2], paths: &[PathConfig; 2], seed: u64) -> io::Result<Self> {
        let clock = Clock::new();
        let now = clock.now();
        let [first, second] = devices;
        let end = |device, path, way| End {
            device,
            direction: Direction::new(path, seed, way),
            readable: true,
            unwatched: now,
        };
        Ok(Emulator {
            clock,
            now,
            alarm: Alarm::new()?,
            ends: [
                end(first, &paths[0], Way::Forth),
                end(second, &paths[1], Way::Back),
            ],
            began: None,
            awaited: None,
            refused: Vec::new(),
            lateness: Histogram::new_with_max(60_000_000, 3)
                .expect("constant bounds within the library's limits"),
            missed_bytes: 0,
            wakeups: 0,
        })
    }

    /// Starts the links, at the beginning of their channels.
    pub fn begin(&mut self) {
        let now = self.look();
        self.began = Some(now);
        for end in &mut self.ends {
            end.direction.begin(now);
        }
    }

    /// Starts the links with the next packet in direction `way` of at least `least_bytes`. Smaller
    /// packets, as those of connection setup, pass before without using the channel.
    pub fn begin_with(&mut self, way: Way, least_bytes: usize) {
        self.awaited = Some((way, least_bytes));
    }

    /// Time from [`Emulator::begin`] to the last [`Emulator::turn`]; `None` before.
    pub fn elapsed(&self) -> Option<Duration> {
        Some(self.now.since(self.began?))
    }

    /// Reads the clock.
    fn look(&mut self) -> Time {
        self.now = self.clock.now();
        self.now
    }

    /// Bytes that the link on the way `way` could have carried in [`from`, `to`), counted from
    /// [`Emulator::begin`]; `None` where there is no link.
    pub fn capacity(&self, way: Way, from: Time, to: Time) -> Option<Bytes> {
        self.ends[way as usize].direction.capacity(from, to)
    }

    /// How punctual the emulator has been so far.
    pub fn timing(&self) -> Timing {
        Timing {
            lateness: self.lateness.clone(),
            missed_bytes: self.missed_bytes,
            device_losses: self.ends.iter().map(|end| end.device.lost()).sum(),
            wakeups: self.wakeups,
        }
    }

    /// Does everything that is due now, then sleeps until more is due, until `until` has passed since
    /// [`Emulator::begin`], or until `wake` is readable, and returns whether `wake` is. The watch of each way hears its
    /// events, with times since [`Emulator::begin`].
    ///
    /// # Errors
    /// If a device is gone or the system fails.
    pub fn turn(
        &mut self,
        until: Option<Duration>,
        wake: BorrowedFd<'_>,
        forth: &mut impl Watch<Packet>,
        back: &mut impl Watch<Packet>,
    ) -> io::Result<bool> {
        self.deliver(Way::Forth, forth)?;
        let more_forth = self.read(Way::Forth, forth)?;
        self.deliver(Way::Back, back)?;
        let more_back = self.read(Way::Back, back)?;
        if more_forth || more_back {
            return Ok(false);
        }
        let [forth, back] = &self.ends;
        let next = [
            forth.direction.next(),
            back.direction.next(),
            until.zip(self.began).map(|(until, began)| began + until),
        ];
        let next = next.into_iter().flatten().min();
        if next.is_some_and(|at| at <= self.now) {
            self.look();
            for end in &mut self.ends {
                end.readable = true;
            }
            return Ok(false);
        }
        let [forth_ready, back_ready, awake] = self.alarm.wait(
            &self.clock,
            next,
            [
                (forth.device.as_fd(), PollFlags::IN),
                (back.device.as_fd(), PollFlags::IN),
                (wake, PollFlags::IN),
            ],
        )?;
        self.wakeups += 1;
        let now = self.look();
        for (end, ready) in self.ends.iter_mut().zip([forth_ready, back_ready]) {
            end.readable = !ready.is_empty();
            end.unwatched = now;
        }
        Ok(!awake.is_empty())
    }

    /// Writes packets that have arrived at the far end to its device.
    fn deliver(&mut self, way: Way, watch: &mut impl Watch<Packet>) -> io::Result<()> {
        let now = self.now;
        let [first, second] = &mut self.ends;
        let (near, far) = match way {
            Way::Forth => (first, second),
            Way::Back => (second, first),
        };
        let mut watch = Kept {
            watch,
            refused: &mut self.refused,
        };
        near.direction.advance(now, &mut watch);
        while let Some((due, mut packet)) = near.direction.deliver(now, &mut watch) {
            far.device.write(&mut packet)?;
            self.now = self.clock.now();
            let late = self.now.since(due);
            self.lateness.saturating_record(late.as_micros());
            near.device.recycle(packet);
        }
        for packet in self.refused.drain(..) {
            near.device.recycle(packet);
        }
        Ok(())
    }

    /// Reads what the device holds; returns whether there may be more.
    fn read(&mut self, way: Way, watch: &mut impl Watch<Packet>) -> io::Result<bool> {
        if !self.ends[way as usize].readable {
            return Ok(false);
        }
        if let Some((awaited, least_bytes)) = self.awaited
            && awaited == way
        {
            return self.read_until_begun(way, least_bytes, watch);
        }
        let End {
            device,
            direction,
            readable,
            unwatched,
        } = &mut self.ends[way as usize];
        let mut watch = Kept {
            watch,
            refused: &mut self.refused,
        };
        let mut more = true;
        for _ in 0..READS {
            // Segments that the kernel had joined arrived together.
            let mut stamped = None;
            more = device.read(|packet| {
                let now = *stamped.get_or_insert_with(|| {
                    let now = self.clock.now();
                    direction.catch_up(now, &mut watch);
                    self.missed_bytes += direction.missed(*unwatched, now).get();
                    *unwatched = now;
                    now
                });
                let size = Bytes::new(packet.size as u64);
                direction.arrive(now, size, packet, &mut watch);
            })?;
            if let Some(now) = stamped {
                self.now = now;
            }
            if !more {
                self.now = self.clock.now();
                *unwatched = self.now;
                break;
            }
        }
        *readable = more;
        for packet in self.refused.drain(..) {
            device.recycle(packet);
        }
        Ok(more)
    }

    /// Reads what the device holds, and starts the links at the packet that [`Emulator::begin_with`] waits for.
    fn read_until_begun(
        &mut self,
        way: Way,
        least_bytes: usize,
        watch: &mut impl Watch<Packet>,
    ) -> io::Result<bool> {
        let mut packets = Vec::new();
        let more = self.ends[way as usize]
            .device
            .read(|packet| packets.push(packet))?;
        for packet in packets {
            if self.began.is_none() && packet.size >= least_bytes {
                self.awaited = None;
                self.begin();
            }
            let now = self.look();
            let size = Bytes::new(packet.size as u64);
            let mut watch = Kept {
                watch,
                refused: &mut self.refused,
            };
            let direction = &mut self.ends[way as usize].direction;
            direction.catch_up(now, &mut watch);
            direction.arrive(now, size, packet, &mut watch);
        }
        self.ends[way as usize].readable = more;
        Ok(more)
    }
}

/// Asks for real-time priority for the calling thread; nothing depends on getting it.
pub fn in_real_time() {
    /// Above everything ordinary, below what the kernel does for interrupts.
    const PRIORITY: u8 = 10;
    let Ok(priority) = PRIORITY.try_into() else {
        return;
    };
    let _ = set_thread_priority_and_policy(
        thread_native_id(),
        ThreadPriority::Crossplatform(priority),
        ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo),
    );
}

/// Passes events on, and keeps the dropped packets so that their buffers can be used again.
struct Kept<'a, W> {
    watch: &'a mut W,
    refused: &'a mut Vec<Packet>,
}

impl<W: Watch<Packet>> Watch<Packet> for Kept<'_, W> {
    #[inline]
    fn on_entered(&mut self, now: Time, size: Bytes, packet: &Packet) {
        self.watch.on_entered(now, size, packet);
    }

    #[inline]
    fn on_dropped(&mut self, now: Time, size: Bytes, packet: &Packet, dropped: Dropped) {
        self.watch.on_dropped(now, size, packet, dropped);
    }

    #[inline]
    fn reclaim(&mut self, packet: Packet) {
        self.refused.push(packet);
    }

    #[inline]
    fn on_left(&mut self, now: Time, size: Bytes, entered: Time, packet: &Packet) {
        self.watch.on_left(now, size, entered, packet);
    }

    #[inline]
    fn on_under_way(&mut self, flight: Flight) {
        self.watch.on_under_way(flight);
    }

    #[inline]
    fn on_arrived(&mut self, at: Time, packet: &Packet) {
        self.watch.on_arrived(at, packet);
    }
}
