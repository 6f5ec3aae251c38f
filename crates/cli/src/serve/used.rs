//! Time of each client's last use, for `serve token list`: a file beside the list of tokens. A
//! server opens it before it is confined. Losing it does no harm.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use verus_transfer::access::{ClientName, MAX_CLIENTS};
use verus_transfer::private::Home;
use verus_transfer::secret_error::SecretError;

/// The file's name.
const USED_FILE: &str = "last-used.json";
const VERSION: u32 = 1;
/// Shortest interval between writes of a client's entry.
const APART: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    clients: BTreeMap<String, String>,
}

/// Times by name.
type Times = BTreeMap<String, SystemTime>;

/// The file, open.
#[derive(Debug)]
pub struct Used {
    file: File,
    noted: BTreeMap<ClientName, SystemTime>,
}

impl Used {
    /// Opens or creates it.
    ///
    /// # Errors
    /// If it cannot be written, or other users may access it.
    pub fn open(home: &Home) -> Result<Self, SecretError> {
        Ok(Used {
            file: home.keep(USED_FILE)?,
            noted: BTreeMap::new(),
        })
    }

    /// Notes that a client is connected. A failure to write is ignored.
    pub fn note(&mut self, name: &ClientName, now: SystemTime) {
        let lately = |noted: &SystemTime| now.duration_since(*noted).is_ok_and(|ago| ago < APART);
        if self.noted.get(name).is_some_and(lately) {
            return;
        }
        self.noted.insert(name.clone(), now);
        self.noted.retain(|_, noted| lately(noted));
        let _ = self.write(name, now);
    }

    fn write(&mut self, name: &ClientName, now: SystemTime) -> io::Result<()> {
        // Other servers with the same tokens write to it, too.
        flock(&self.file, FlockOperation::LockExclusive)?;
        let written = self.rewrite(name, now);
        flock(&self.file, FlockOperation::Unlock)?;
        written
    }

    fn rewrite(&mut self, name: &ClientName, now: SystemTime) -> io::Result<()> {
        let mut text = String::new();
        self.file.rewind()?;
        // A damaged file is replaced.
        let _ = self.file.read_to_string(&mut text);
        let mut times = parse(&text).unwrap_or_default();
        times.insert(name.to_string(), now);
        while times.len() > MAX_CLIENTS {
            let oldest = times.iter().min_by_key(|(_, time)| **time);
            let Some(oldest) = oldest.map(|(name, _)| name.clone()) else {
                break;
            };
            times.remove(&oldest);
        }
        let time = |time: SystemTime| humantime::format_rfc3339_seconds(time).to_string();
        let document = Document {
            version: VERSION,
            clients: times
                .into_iter()
                .map(|(name, at)| (name, time(at)))
                .collect(),
        };
        let mut text = serde_json::to_string_pretty(&document)?;
        text.push('\n');
        self.file.rewind()?;
        self.file.write_all(text.as_bytes())?;
        self.file.set_len(text.len() as u64)
    }
}

fn parse(text: &str) -> Option<Times> {
    let document: Document = serde_json::from_str(text).ok()?;
    let time =
        |(name, time): (String, String)| Some((name, humantime::parse_rfc3339_weak(&time).ok()?));
    let is_current = document.version == VERSION;
    is_current.then(|| document.clients.into_iter().filter_map(time).collect())
}

/// Known times of clients' last use.
pub fn read(home: &Home) -> Times {
    let text = home.read(USED_FILE).ok().flatten();
    text.and_then(|text| parse(&text.text)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + seconds)
    }

    #[test]
    fn the_last_time_of_each_is_kept_and_what_is_damaged_begins_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::make(folder.path()).expect("there");
        let name = |text: &str| text.parse::<ClientName>().expect("a good name");
        assert!(read(&home).is_empty());
        let mut used = Used::open(&home).expect("made");
        used.note(&name("a"), at(0));
        used.note(&name("a"), at(59));
        let mut other = Used::open(&home).expect("there");
        other.note(&name("b"), at(30));
        let last_use = |text: &str| read(&home).get(text).copied();
        assert_eq!((last_use("a"), last_use("b")), (Some(at(0)), Some(at(30))));
        used.note(&name("a"), at(60));
        assert_eq!((last_use("a"), last_use("b")), (Some(at(60)), Some(at(30))));
        std::fs::write(folder.path().join(USED_FILE), "{torn").expect("ours");
        assert!(read(&home).is_empty());
        used.note(&name("b"), at(90));
        assert_eq!((last_use("a"), last_use("b")), (None, Some(at(90))));
    }
}
