//! A capture of the packets on both sides of the emulated links (`--pcap`).
//!
//! ```text
//!  program ──●── up link ────▶ ──●── this host, and what is beyond it
//!            ●◀── down link ─────●
//!    `program side`          `far side`
//! ```

use std::fs::File;
use std::io;

use rustix::time::{ClockId, clock_gettime};
use verus_capture::record::Recorder;
use verus_capture::write::SNAPLEN;
use verus_channel::path::{Packet as _, Why};
use verus_core::{Bytes, Ecn, Time};
use verus_emu::emulator::Way;
use verus_emu::packet::Packet;

use crate::capture::{self, FileRecorder};
use crate::draft::DraftFile;

/// An event of a packet, which its place in memory tells apart from all others on the links.
#[derive(Clone, Copy, Debug)]
pub struct PacketEvent {
    at: Time,
    id: u64,
    fate: Fate,
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Entered {
        way: Way,
        head: [u8; SNAPLEN],
        captured: u8,
        size: Bytes,
    },
    Left(Ecn),
    Dropped(Why),
}

/// A capture in progress.
pub type LinkCapture = capture::Capture<PacketEvent>;

/// A capture whose time zero is now.
///
/// # Errors
/// If it cannot be written, or there is no thread to be had.
pub fn begin(place: (DraftFile, File)) -> io::Result<LinkCapture> {
    let now = clock_gettime(ClockId::Realtime);
    let epoch = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    LinkCapture::new(place, |writer| Recorder::new(writer, epoch))
}

/// One direction's access to the capture.
#[derive(Debug)]
pub struct LinkTap {
    events: capture::Tap<PacketEvent>,
    way: Way,
}

impl LinkTap {
    /// Access of direction `way` to a capture.
    pub fn new(capture: &LinkCapture, way: Way) -> Self {
        let events = capture.tap();
        LinkTap { events, way }
    }

    /// A packet enters the link.
    pub fn on_entered(&self, at: Time, size: Bytes, packet: &Packet) {
        let bytes = packet.bytes();
        let captured = bytes.len().min(SNAPLEN);
        let mut head = [0; SNAPLEN];
        head[..captured].copy_from_slice(&bytes[..captured]);
        let fate = Fate::Entered {
            way: self.way,
            head,
            captured: captured as u8,
            size,
        };
        self.add(at, packet, fate);
    }

    /// A packet leaves the link.
    pub fn on_left(&self, at: Time, packet: &Packet) {
        self.add(at, packet, Fate::Left(packet.ecn()));
    }

    /// A packet is dropped.
    pub fn on_dropped(&self, at: Time, packet: &Packet, why: Why) {
        self.add(at, packet, Fate::Dropped(why));
    }

    fn add(&self, at: Time, packet: &Packet, fate: Fate) {
        let id = packet.buffer.as_ptr() as u64;
        self.events.add(PacketEvent { at, id, fate });
    }
}

impl capture::Event for PacketEvent {
    const INTERFACES: &[(&str, &str)] = &[
        ("program side", "emulated, at the program"),
        ("far side", "emulated, behind the links"),
    ];

    fn record(self, recorder: &mut FileRecorder) {
        let PacketEvent { at, id, fate } = self;
        match fate {
            Fate::Entered {
                way,
                head,
                captured,
                size,
            } => {
                let interfaces = match way {
                    Way::Forth => (0, 1),
                    Way::Back => (1, 0),
                };
                recorder.on_entered(at, id, interfaces, &head[..usize::from(captured)], size);
            }
            Fate::Left(ecn) => recorder.on_left(at, id, ecn),
            Fate::Dropped(why) => recorder.on_dropped(at, id, why),
        }
    }
}
