//! A cache of traces, made or read, the least recently used out first: a comparison of senders asks for the same channel
//! again for each of them.

use std::collections::VecDeque;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use sha2::{Digest, Sha256};
use verus_core::units::Duration;

use crate::error::Error;
use crate::generate::BuiltInChannel;
use crate::lines;
use crate::trace::Trace;

/// The number of cached traces. A comparison uses the seeds of a channel in turn, on as many
/// threads as there are cores.
const KEPT: usize = 16;

/// Larger traces, in bytes, are not kept: so the cache takes 32 MB at the most.
const LARGEST_KEPT: usize = 2 << 20;

/// Larger files, in bytes, are not kept: they are parsed as they are read.
const LARGEST_FILE: u64 = 16 << 20;

/// The process's, for all its threads.
pub(crate) static CACHE: Cache = Cache::new();

/// The properties that determine a trace.
#[derive(Clone, Debug, PartialEq)]
enum Key {
    /// The name of its channel, the seed and the duration.
    Made(&'static str, u64, Duration),
    /// The SHA-256 of its file, and the path, which decides what the trace is called and how it is read.
    Read([u8; 32], PathBuf),
}

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

    /// The built-in `channel` as a trace, as [`BuiltInChannel::trace`] makes it. Of threads that ask for the same one at the same
    /// time, one makes it and the others wait.
    pub(crate) fn trace(
        &self,
        channel: &BuiltInChannel,
        seed: u64,
        duration: Duration,
    ) -> Arc<Trace> {
        let key = Key::Made(channel.name, seed, duration);
        let made = self.entry(key.clone());
        let trace = made.get_or_init(|| Arc::new(channel.trace(seed, duration)));
        if trace.memory() > LARGEST_KEPT {
            self.lock().retain(|(other, _)| *other != key);
        }
        Arc::clone(trace)
    }

    /// The trace that `parse` makes of the file at `path`; `parse` is passed the file's name. Each
    /// call reads the file, since cached traces are looked up by their contents.
    ///
    /// # Errors
    /// If the file cannot be read, and those of `parse`.
    pub(crate) fn read(
        &self,
        path: &Path,
        parse: impl FnOnce(&str, &mut dyn Read) -> Result<Trace, Error>,
    ) -> Result<Arc<Trace>, Error> {
        let (name, mut file) = lines::open(path)?;
        let fail = |source| Error::Io {
            action: "read",
            name: name.clone(),
            source,
        };
        let mut content = Vec::new();
        (file.by_ref().take(LARGEST_FILE + 1))
            .read_to_end(&mut content)
            .map_err(fail)?;
        if content.len() as u64 > LARGEST_FILE {
            return parse(&name, &mut content.chain(file)).map(Arc::new);
        }
        let made = self.entry(Key::Read(Sha256::digest(&content).into(), path.to_owned()));
        if let Some(trace) = made.get() {
            return Ok(Arc::clone(trace));
        }
        // Threads that come here at the same time all parse it; an error is not kept.
        let trace = Arc::new(parse(&name, &mut &content[..])?);
        if trace.memory() <= LARGEST_KEPT {
            let _ = made.set(Arc::clone(&trace));
        }
        Ok(trace)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Key, Made)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry(&self, key: Key) -> Made {
        let mut kept = self.lock();
        let cached = kept.iter().position(|(other, _)| *other == key);
        let cached = cached.and_then(|at| kept.remove(at));
        let entry = cached.unwrap_or_else(|| (key, Made::default()));
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
    fn a_file_is_read_once_and_again_when_it_has_changed() {
        let name = format!("verus-cache-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let cache = Cache::new();
        let read = || cache.read(&path, |name, bytes| Trace::parse(name, bytes));
        assert!(read().is_err());
        std::fs::write(&path, "1\n2\n").unwrap();
        let first = read().unwrap();
        assert!(Arc::ptr_eq(&first, &read().unwrap()));
        // As long, and changed at the same time as far as its time stamp tells.
        let changed = path.metadata().unwrap().modified().unwrap();
        std::fs::write(&path, "1\n3\n").unwrap();
        let file = std::fs::File::options().append(true).open(&path).unwrap();
        file.set_modified(changed).unwrap();
        assert_eq!(read().unwrap().period_ms(), 3);
        std::fs::remove_file(&path).unwrap();
        assert!(read().is_err());
    }

    #[test]
    fn what_is_large_is_not_kept() {
        let cache = Cache::new();
        let large = cache.trace(&CHANNELS[0], 1, Duration::from_secs(20_000));
        assert!(large.memory() > LARGEST_KEPT);
        assert_eq!(Arc::strong_count(&large), 1);
    }
}
