//! A capture of the packets on both sides of the emulated links (`--pcap`), which a separate thread writes.
//!
//! ```text
//!  program ──●── up link ────▶ ──●── this host, and what is beyond it
//!            ●◀── down link ─────●
//!    `program side`          `far side`
//! ```

use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::time::{ClockId, clock_gettime};
use verus_capture::record::Recorder;
use verus_capture::write::{SNAPLEN, Writer};
use verus_channel::path::{Packet as _, Why};
use verus_core::{Bytes, Ecn, Time};
use verus_emu::emulator::Way;
use verus_emu::packet::Packet;

use crate::draft::DraftFile;

const INTERFACES: [(&str, &str); 2] = [
    ("program side", "emulated, at the program"),
    ("far side", "emulated, behind the links"),
];

/// Events that are handed over together, and batches that may wait: 60 MiB.
const BATCH: usize = 1024;
const WAITING: usize = 256;

/// An event of a packet, which its place in memory tells apart from all others on the links.
#[derive(Clone, Copy, Debug)]
struct Event {
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
#[derive(Debug)]
pub struct Capture {
    feed: Arc<Mutex<Feed>>,
    writer: JoinHandle<io::Result<()>>,
    draft: DraftFile,
}

/// Buffer of events from both directions.
#[derive(Debug)]
struct Feed {
    batch: Vec<Event>,
    to: SyncSender<Vec<Event>>,
    lost: u64,
}

/// One direction's access to the capture.
#[derive(Clone, Debug)]
pub struct Tap {
    feed: Arc<Mutex<Feed>>,
    way: Way,
}

impl Capture {
    /// A capture in `file`, which will be published as `draft` says.
    ///
    /// # Errors
    /// If it cannot be written, or there is no thread to be had.
    pub fn new(file: File, draft: DraftFile) -> io::Result<Self> {
        let now = clock_gettime(ClockId::Realtime);
        let epoch = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        let writer = Writer::new(BufWriter::with_capacity(1 << 16, file), &INTERFACES)?;
        let recorder = Recorder::new(writer, epoch);
        let (to, events) = sync_channel(WAITING);
        let writer = thread::Builder::new()
            .name("capture".to_owned())
            .spawn(move || write(recorder, &events))?;
        let feed = Feed {
            batch: Vec::with_capacity(BATCH),
            to,
            lost: 0,
        };
        Ok(Capture {
            feed: Arc::new(Mutex::new(feed)),
            writer,
            draft,
        })
    }

    /// Access for one direction.
    pub fn tap(&self, way: Way) -> Tap {
        let feed = Arc::clone(&self.feed);
        Tap { feed, way }
    }

    /// Publishes the complete capture under its name, or nothing. The taps are gone.
    ///
    /// # Errors
    /// If it could not be written, or not as fast as packets came.
    pub fn finish(self) -> io::Result<()> {
        let feed = Arc::into_inner(self.feed).expect("the taps are gone");
        let Feed { batch, to, lost } = feed.into_inner().unwrap_or_else(PoisonError::into_inner);
        let _ = to.send(batch);
        drop(to);
        let written = self.writer.join();
        written.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        if lost > 0 {
            let late = format!("{lost} events came faster than they could be written");
            return Err(io::Error::other(late));
        }
        self.draft.publish()
    }
}

impl Tap {
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
        let mut feed = self.feed.lock().unwrap_or_else(PoisonError::into_inner);
        feed.batch.push(Event { at, id, fate });
        if feed.batch.len() == BATCH {
            let full = std::mem::replace(&mut feed.batch, Vec::with_capacity(BATCH));
            if feed.to.try_send(full).is_err() {
                feed.lost += BATCH as u64;
            }
        }
    }
}

fn write(mut recorder: Recorder<BufWriter<File>>, events: &Receiver<Vec<Event>>) -> io::Result<()> {
    for Event { at, id, fate } in events.iter().flatten() {
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
    recorder.finish().map(drop)
}
