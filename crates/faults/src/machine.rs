//! Whether this machine had time for a test or a benchmark that reads its clock.

// It measures a clock.
#![allow(clippy::disallowed_methods)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long its thread sleeps at a time.
const NAP: Duration = Duration::from_millis(1);

/// A thread beside a test that only sleeps, and notes how late it wakes.
///
/// Where the test fails though this thread woke late, the test has shown nothing: [`Watch`] then says so when it is
/// dropped, in the words that `scripts/tests` looks for.
#[derive(Debug)]
#[must_use = "it watches until it is dropped"]
pub struct Watch {
    limit: Duration,
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<Duration>>,
}

/// Watches from now on. A failure means nothing if a thread woke later than `limit`, in ms.
pub fn watch(limit_ms: u64) -> Watch {
    let done = Arc::new(AtomicBool::new(false));
    let watched = Arc::clone(&done);
    let thread = thread::spawn(move || {
        let mut worst = Duration::ZERO;
        // Once at least, however late the thread itself begins.
        loop {
            let before = Instant::now();
            thread::sleep(NAP);
            worst = worst.max(before.elapsed().saturating_sub(NAP));
            if watched.load(Ordering::Relaxed) {
                return worst;
            }
        }
    });
    Watch {
        limit: Duration::from_millis(limit_ms),
        done,
        thread: Some(thread),
    }
}

impl Watch {
    /// By how much the thread woke late at most, so far and at last.
    fn stop(&mut self) -> Duration {
        self.done.store(true, Ordering::Relaxed);
        let ended = self.thread.take().and_then(|thread| thread.join().ok());
        ended.unwrap_or_default()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let worst = self.stop();
        if thread::panicking() && worst > self.limit {
            println!(
                "the machine was too busy to say: a thread that slept woke {} ms late",
                worst.as_millis()
            );
        }
    }
}

/// The machine's time so far, in ticks, and the part of it that others took (steal).
#[derive(Debug)]
pub struct Steal {
    all: u64,
    stolen: u64,
}

impl Steal {
    /// As of now.
    ///
    /// # Panics
    /// If this is not Linux.
    pub fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/stat").expect("Linux has it");
        let first = stat.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = (first.split_whitespace().skip(1))
            .filter_map(|word| word.parse().ok())
            .collect();
        // user nice system idle iowait irq softirq steal; guest time is part of user.
        Steal {
            all: ticks.iter().take(8).sum(),
            stolen: ticks.get(7).copied().unwrap_or(0),
        }
    }

    /// The share that others have taken since then.
    pub fn share_since(&self) -> f64 {
        let now = Steal::now();
        (now.stolen - self.stolen) as f64 / (now.all - self.all).max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_sleeps_is_never_early_and_ends() {
        let mut idle = watch(0);
        thread::sleep(5 * NAP);
        let worst = idle.stop();
        assert!(worst > Duration::ZERO, "no sleep is exact");
        assert!(idle.thread.is_none());
    }
}
