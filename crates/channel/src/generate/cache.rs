//! A cache of built-in channels as traces, the least recently used out first: a comparison of senders asks for the same
//! channel again for each of them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use verus_core::units::Duration;

use super::Channel;
use crate::trace::Trace;

/// How many traces are kept: a comparison asks for the seeds of a channel in turn, on as many threads as there are cores.
const KEPT: usize = 16;

/// Larger traces, in bytes, are not kept: so the cache takes 32 MB at the most.
const LARGEST_KEPT: usize = 2 << 20;

/// The process's, for all its threads.
pub(crate) static CACHE: Cache = Cache::new();

/// What determines a trace: the name of its channel, the seed and the duration.
type Key = (&'static str, u64, Duration);

/// A trace that is made, or that another thread is making.
type Made = Arc<OnceLock<Arc<Trace>>>;

/// Traces by what determines them.
#[derive(Debug)]
pub(crate) struct Cache {
    /// The least recently used first.
    kept: Mutex<VecDeque<(Key, Made)>>,
}

impl Cache {
    const fn new() -> Self {
        Cache {
            kept: Mutex::new(VecDeque::new()),
        }
    }

    /// The built-in `channel` as a trace, as [`Channel::trace`] makes it. Of threads that ask for the same one at the same
    /// time, one makes it and the others wait.
    pub(crate) fn trace(&self, channel: &Channel, seed: u64, duration: Duration) -> Arc<Trace> {
        let key = (channel.name, seed, duration);
        let made = self.entry(key);
        let trace = made.get_or_init(|| Arc::new(channel.trace(seed, duration)));
        if trace.memory() > LARGEST_KEPT {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.retain(|(other, _)| *other != key);
        }
        Arc::clone(trace)
    }

    fn entry(&self, key: Key) -> Made {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.iter().position(|(other, _)| *other == key);
        let known = known.and_then(|at| kept.remove(at));
        let entry = known.unwrap_or_else(|| (key, Made::default()));
        let made = Arc::clone(&entry.1);
        kept.push_back(entry);
        if kept.len() > KEPT {
            kept.pop_front();
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::CHANNELS;

    #[test]
    fn a_channel_that_is_asked_for_again_is_the_same_one_and_few_are_kept() {
        let (cache, second) = (Cache::new(), Duration::from_secs(1));
        let first = cache.trace(&CHANNELS[0], 1, second);
        assert_eq!(*first, CHANNELS[0].trace(1, second));
        assert!(Arc::ptr_eq(&first, &cache.trace(&CHANNELS[0], 1, second)));
        for seed in 2..40 {
            assert_ne!(cache.trace(&CHANNELS[0], seed, second), first);
        }
        assert_eq!(cache.kept.lock().expect("nobody panicked").len(), KEPT);
        assert_eq!(Arc::strong_count(&first), 1, "it is kept no longer");
    }

    #[test]
    fn what_is_large_is_not_kept() {
        let cache = Cache::new();
        let large = cache.trace(&CHANNELS[0], 1, Duration::from_secs(20_000));
        assert!(large.memory() > LARGEST_KEPT);
        assert_eq!(Arc::strong_count(&large), 1);
    }
}
