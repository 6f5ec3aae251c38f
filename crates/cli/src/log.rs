//! Output of a server, which never waits for the reader of that output.
//!
//! Standard output may be a pipe that is not being read: a pager, a terminal with Ctrl-S, a log
//! shipper that hangs. A write to it blocks. So a separate thread writes. Lines beyond its pace are
//! dropped and counted, and the count is reported as soon as a line can be written again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::ui::Ui;

/// Lines that may wait: about 200 KiB.
const MOST_WAITING: usize = 1024;
/// How long the last lines may take once the server ends.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A line of output, as text or JSON.
#[derive(Debug)]
enum Line {
    Text(String),
    Json(Value),
}

impl Line {
    fn print(self, ui: &Ui) -> Result<(), Failure> {
        match self {
            Line::Text(text) => ui.line(text),
            Line::Json(value) => ui.json(&value),
        }
    }
}

/// Standard output of a server that must not wait for it.
#[derive(Debug)]
pub struct ServerLog {
    json: bool,
    quiet: bool,
    lines: SyncSender<Line>,
    dropped: Arc<AtomicU64>,
    failed: Arc<Mutex<Option<Failure>>>,
    /// Closed when the thread is done.
    done: Receiver<()>,
    thread: JoinHandle<()>,
}

impl ServerLog {
    /// A log that writes through `ui`: lines for people, or `json` for programs.
    pub fn new(ui: Ui, json: bool) -> Result<Self, Failure> {
        let (lines, waiting) = sync_channel::<Line>(MOST_WAITING);
        let (running, done) = sync_channel::<()>(1);
        let dropped = Arc::new(AtomicU64::new(0));
        let failed = Arc::new(Mutex::new(None));
        let thread = {
            let (dropped, failed) = (Arc::clone(&dropped), Arc::clone(&failed));
            Builder::new().name("log".to_owned()).spawn(move || {
                let _running = running;
                for line in waiting {
                    let written =
                        line.print(&ui)
                            .and_then(|()| match dropped.swap(0, Ordering::Relaxed) {
                                0 => Ok(()),
                                count => dropped_line(json, count).print(&ui),
                            });
                    if let Err(failure) = written {
                        *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
                        return;
                    }
                }
            })
        };
        Ok(ServerLog {
            json,
            quiet: ui.is_quiet(),
            lines,
            dropped,
            failed,
            done,
            thread: thread.map_err(|error| Failure::run(format_args!("no thread: {error}")))?,
        })
    }

    /// Queues an event for writing, if there is room. It is written as `text`, unless only results
    /// are requested, or as `value`.
    pub fn say(&self, text: String, value: Value) {
        let line = match (self.json, self.quiet) {
            (true, _) => Line::Json(value),
            (false, false) => Line::Text(text),
            (false, true) => return,
        };
        if let Err(TrySendError::Full(_)) = self.lines.try_send(line) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Fails if nothing can be written any more.
    pub fn check(&self) -> Result<(), Failure> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.take().map_or(Ok(()), Err)
    }

    /// Gives the last lines a moment to be written.
    pub fn finish(self) -> Result<(), Failure> {
        let ServerLog {
            lines,
            failed,
            done,
            thread,
            ..
        } = self;
        drop(lines);
        // The thread is stuck, and ends with the process.
        if done.recv_timeout(LAST_WORDS) == Err(std::sync::mpsc::RecvTimeoutError::Disconnected) {
            let _ = thread.join();
        }
        let failure = failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.map_or(Ok(()), Err)
    }
}

fn dropped_line(json: bool, count: u64) -> Line {
    if json {
        Line::Json(json!({"event": "dropped", "lines": count}))
    } else {
        Line::Text(format!("… {count} lines were not written"))
    }
}
