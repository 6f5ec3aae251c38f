//! Mahimahi's log of a link while it runs. A separate thread writes it, so that no delivery waits
//! for a disk.

use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use verus_channel::path::link::Service;
use verus_core::{Bytes, Duration, Time};
use verus_measure::mahimahi::LogWriter;

/// Events that are handed over together, and batches that may wait: half a million events.
const BATCH: usize = 1024;
const WAITING: usize = 512;
/// The resolution of the format.
const MILLISECOND: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrival,
    Departure { entered: Time },
    Drop,
    End,
}

/// Logs the events at one bottleneck.
#[derive(Debug)]
pub struct LinkLog {
    batch: Vec<(Time, Bytes, Event)>,
    to: SyncSender<Vec<(Time, Bytes, Event)>>,
    writer: JoinHandle<io::Result<()>>,
    lost: u64,
}

/// Contents of a log's header.
#[derive(Clone, Debug)]
pub struct Heading {
    /// `Uplink` or `Downlink`.
    pub link: &'static str,
    /// The channel as the user named it.
    pub channel: String,
    /// The queue likewise.
    pub queue: String,
}

impl LinkLog {
    /// A log in `file`. `service` says which opportunities there are.
    ///
    /// # Errors
    /// If it cannot be written, or there is no thread to be had.
    pub fn new(file: File, heading: &Heading, service: Option<Service>) -> io::Result<Self> {
        let log = LogWriter::new(
            BufWriter::new(file),
            heading.link,
            &heading.channel,
            &heading.queue,
            Time::ZERO,
        )?;
        let (to, events) = sync_channel(WAITING);
        let writer = thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || write(log, &events, service.as_ref()))?;
        Ok(LinkLog {
            batch: Vec::with_capacity(BATCH),
            to,
            writer,
            lost: 0,
        })
    }

    /// A packet reached the queue.
    #[inline]
    pub fn on_arrival(&mut self, now: Time, size: Bytes) {
        self.add(now, size, Event::Arrival);
    }

    /// A packet that entered at `entered` left.
    #[inline]
    pub fn on_departure(&mut self, now: Time, size: Bytes, entered: Time) {
        self.add(now, size, Event::Departure { entered });
    }

    /// A packet that had reached the queue is dropped.
    #[inline]
    pub fn on_drop(&mut self, now: Time, size: Bytes) {
        self.add(now, size, Event::Drop);
    }

    #[inline]
    fn add(&mut self, now: Time, size: Bytes, event: Event) {
        self.batch.push((now, size, event));
        if self.batch.len() == BATCH {
            let full = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
            if self.to.try_send(full).is_err() {
                self.lost += BATCH as u64;
            }
        }
    }

    /// Writes the rest, with the opportunities until `end`.
    ///
    /// # Errors
    /// If it could not be written, or not as fast as events came: the file is of no use then.
    pub fn finish(mut self, end: Time) -> io::Result<()> {
        self.batch.push((end, Bytes::ZERO, Event::End));
        let LinkLog {
            batch,
            to,
            writer,
            lost,
        } = self;
        let _ = to.send(batch);
        drop(to);
        let written = writer
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        if lost > 0 {
            let late = format!("{lost} events came faster than they could be written");
            return written.and(Err(io::Error::other(late)));
        }
        written
    }
}

fn write(
    mut log: LogWriter<BufWriter<File>>,
    events: &Receiver<Vec<(Time, Bytes, Event)>>,
    service: Option<&Service>,
) -> io::Result<()> {
    let mut logged_until = Time::ZERO;
    for (now, size, event) in events.iter().flatten() {
        // Up to the event's own millisecond, opportunities first.
        while let Some(service) = service.filter(|_| logged_until <= now) {
            let next = logged_until + MILLISECOND;
            let carried = service.capacity(logged_until, next);
            let each = match service {
                Service::Trace { opportunity, .. } => *opportunity,
                Service::Rate(_) | Service::Shared(_) => carried,
            };
            let mut rest = carried.get();
            while rest > 0 {
                log.opportunity(logged_until, each)?;
                rest -= each.get().min(rest);
            }
            logged_until = next;
        }
        match event {
            Event::Arrival => log.arrival(now, size)?,
            Event::Departure { entered } => log.departure(now, size, entered)?,
            Event::Drop => log.dropped(now, 1, size)?,
            Event::End => {}
        }
    }
    log.finish()?;
    Ok(())
}
