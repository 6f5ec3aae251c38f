//! Built-in channels made lately: a comparison of senders asks for the same channel again for each of them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use verus_core::units::Duration;

use super::Channel;
use crate::trace::Trace;

/// How many are kept: a comparison asks for the seeds of a channel in turn, on as many threads as there are cores.
const KEPT: usize = 16;

/// Larger ones, in bytes, are made anew: so all that are kept are 32 MB at the most.
const LARGEST_KEPT: usize = 2 << 20;

/// For all threads of the process.
pub(crate) static LATELY: Lately = Lately::new();

/// What a channel is made of; it is the same whenever it is made of that.
type MadeOf = (&'static str, u64, Duration);

/// One that is made, or that another thread is making.
type Made = Arc<OnceLock<Arc<Trace>>>;

/// Channels made lately.
#[derive(Debug)]
pub(crate) struct Lately {
    /// The one asked for last is the last.
    kept: Mutex<VecDeque<(MadeOf, Made)>>,
}

impl Lately {
    const fn new() -> Self {
        Lately {
            kept: Mutex::new(VecDeque::new()),
        }
    }

    /// The built-in `channel` as a trace, as [`Channel::trace`] makes it. Of those who ask for one at the same time one makes
    /// it, and the others wait.
    pub(crate) fn trace(&self, channel: &Channel, seed: u64, duration: Duration) -> Arc<Trace> {
        let of = (channel.name, seed, duration);
        let made = self.entry(of);
        let trace = made.get_or_init(|| Arc::new(channel.trace(seed, duration)));
        if trace.memory() > LARGEST_KEPT {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.retain(|(other, _)| *other != of);
        }
        Arc::clone(trace)
    }

    fn entry(&self, of: MadeOf) -> Made {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.iter().position(|(other, _)| *other == of);
        let known = known.and_then(|at| kept.remove(at));
        let entry = known.unwrap_or_else(|| (of, Made::default()));
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
        let (lately, second) = (Lately::new(), Duration::from_secs(1));
        let first = lately.trace(&CHANNELS[0], 1, second);
        assert_eq!(*first, CHANNELS[0].trace(1, second));
        assert!(Arc::ptr_eq(&first, &lately.trace(&CHANNELS[0], 1, second)));
        for seed in 2..40 {
            assert_ne!(lately.trace(&CHANNELS[0], seed, second), first);
        }
        assert_eq!(lately.kept.lock().expect("nobody panicked").len(), KEPT);
        assert_eq!(Arc::strong_count(&first), 1, "it is kept no longer");
    }

    #[test]
    fn what_is_large_is_not_kept() {
        let lately = Lately::new();
        let large = lately.trace(&CHANNELS[0], 1, Duration::from_secs(20_000));
        assert!(large.memory() > LARGEST_KEPT);
        assert_eq!(Arc::strong_count(&large), 1);
    }
}
