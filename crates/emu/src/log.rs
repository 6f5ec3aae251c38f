//! Mahimahi's log of a link while it runs: a thread of its own writes, so that no delivery waits for a disk.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use verus_channel::link::Service;
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

/// Writes down what happens at one bottleneck.
#[derive(Debug)]
pub struct LinkLog {
    batch: Vec<(Time, Bytes, Event)>,
    to: SyncSender<Vec<(Time, Bytes, Event)>>,
    writer: JoinHandle<io::Result<()>>,
    lost: u64,
    draft: PathBuf,
    path: PathBuf,
}

/// What the head of a log says.
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
    /// A log that becomes the file `path` when it is finished. `service` says which opportunities there are.
    ///
    /// # Errors
    /// If no file can be made beside `path`.
    pub fn create(path: &Path, heading: &Heading, service: Option<Service>) -> io::Result<Self> {
        let draft = LinkLog::draft(path);
        let file = BufWriter::new(File::create(&draft)?);
        let log = LogWriter::new(
            file,
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
            draft,
            path: path.to_owned(),
        })
    }

    /// Where this process writes the log that becomes `path`.
    pub fn draft(path: &Path) -> PathBuf {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.with_file_name(format!(".{name}-{}.part", std::process::id()))
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

    /// Writes the rest, with the opportunities until `end`, and puts the file in its place.
    ///
    /// # Errors
    /// If it could not be written, or not as fast as events came; there is no file then.
    pub fn finish(mut self, end: Time) -> io::Result<()> {
        self.batch.push((end, Bytes::ZERO, Event::End));
        let LinkLog {
            batch,
            to,
            writer,
            lost,
            draft,
            path,
        } = self;
        let _ = to.send(batch);
        drop(to);
        let mut written = writer
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        if written.is_ok() && lost > 0 {
            let late = format!("{lost} events came faster than they could be written");
            written = Err(io::Error::other(late));
        }
        let done = written.and_then(|()| fs::rename(&draft, path));
        if done.is_err() {
            let _ = fs::remove_file(draft);
        }
        done
    }
}

fn write(
    mut log: LogWriter<BufWriter<File>>,
    events: &Receiver<Vec<(Time, Bytes, Event)>>,
    service: Option<&Service>,
) -> io::Result<()> {
    let mut told = Time::ZERO;
    for (now, size, event) in events.iter().flatten() {
        // Up to the event's own millisecond, opportunities first.
        while let Some(service) = service.filter(|_| told <= now) {
            let next = told + MILLISECOND;
            let carried = service.capacity(told, next);
            let each = match service {
                Service::Trace { opportunity, .. } => *opportunity,
                Service::Rate(_) => carried,
            };
            let mut left = carried.get();
            while left > 0 {
                log.opportunity(told, each)?;
                left -= each.get().min(left);
            }
            told = next;
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
