//! A capture, which a separate thread writes: threads that send and receive packets never wait for the disk.

use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use verus_capture::record::Recorder;
use verus_capture::write::Writer;

use crate::draft::DraftFile;

/// Records into a file.
pub type FileRecorder = Recorder<BufWriter<File>>;

/// Events that are handed over together, and batches that may wait: 60 MiB.
const BATCH: usize = 1024;
const WAITING: usize = 256;

/// A capture in progress, of events of type `E`.
#[derive(Debug)]
pub struct Capture<E> {
    feed: Arc<Mutex<Feed<E>>>,
    writer: JoinHandle<io::Result<()>>,
    draft: DraftFile,
}

/// Buffer of events.
#[derive(Debug)]
struct Feed<E> {
    batch: Vec<E>,
    to: SyncSender<Vec<E>>,
    lost: u64,
}

/// Access for one source of events.
#[derive(Debug)]
pub struct Tap<E>(Arc<Mutex<Feed<E>>>);

impl<E> Clone for Tap<E> {
    fn clone(&self) -> Self {
        Tap(Arc::clone(&self.0))
    }
}

/// An event that a recorder takes.
pub trait Event: Send + 'static {
    /// The capture points: name and description of each.
    const INTERFACES: &[(&str, &str)];

    /// Records it.
    fn record(self, recorder: &mut FileRecorder);
}

impl<E: Event> Capture<E> {
    /// A capture in `file`, which will be published as `draft` says. `start` makes its recorder.
    ///
    /// # Errors
    /// If it cannot be written, or there is no thread to be had.
    pub fn new(
        (draft, file): (DraftFile, File),
        start: impl FnOnce(Writer<BufWriter<File>>) -> FileRecorder,
    ) -> io::Result<Self> {
        let file = BufWriter::with_capacity(1 << 16, file);
        let recorder = start(Writer::new(file, E::INTERFACES)?);
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

    /// Access for one source of events.
    pub fn tap(&self) -> Tap<E> {
        Tap(Arc::clone(&self.feed))
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

impl<E> Tap<E> {
    /// Hands an event over. If the writer is too far behind, a batch is dropped and counted.
    pub fn add(&self, event: E) {
        let mut feed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        feed.batch.push(event);
        if feed.batch.len() == BATCH {
            let full = std::mem::replace(&mut feed.batch, Vec::with_capacity(BATCH));
            if feed.to.try_send(full).is_err() {
                feed.lost += BATCH as u64;
            }
        }
    }
}

fn write<E: Event>(mut recorder: FileRecorder, events: &Receiver<Vec<E>>) -> io::Result<()> {
    for event in events.iter().flatten() {
        event.record(&mut recorder);
    }
    recorder.finish().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::draft;

    /// An event whose recording waits for a lock.
    struct Waits(Arc<Mutex<()>>);

    impl Event for Waits {
        const INTERFACES: &[(&str, &str)] = &[("socket", "a socket")];

        fn record(self, _: &mut FileRecorder) {
            drop(self.0.lock());
        }
    }

    #[test]
    fn a_capture_that_cannot_keep_up_delays_nobody_and_leaves_no_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("capture.pcapng");
        for (batches, is_whole) in [(WAITING, true), (WAITING + 2, false)] {
            let name = draft::name(&path).expect("random numbers");
            let place = DraftFile::create(&path, name).expect("a draft");
            let capture = Capture::new(place, |writer| Recorder::new(writer, 0));
            let capture = capture.expect("a thread");
            let lock = Arc::new(Mutex::new(()));
            let guard = lock.lock().expect("no panic");
            let tap = capture.tap();
            for _ in 0..batches * BATCH {
                tap.add(Waits(Arc::clone(&lock)));
            }
            drop((tap, guard));
            let written = capture.finish();
            assert_eq!(written.is_ok(), is_whole, "{written:?}");
            if let Err(error) = written {
                assert!(error.to_string().contains("faster than"), "{error}");
            }
            assert_eq!(path.exists(), is_whole);
            std::fs::remove_file(&path).ok();
            let files = std::fs::read_dir(folder.path()).expect("it").count();
            assert_eq!(files, 0, "no draft either");
        }
    }
}
