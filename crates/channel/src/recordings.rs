//! Public recordings: traces that others have published, fetched by name once and then kept in a cache.
//!
//! They are data (`recordings.tsv`): where each is published, the hash of its content, its licence,
//! and the paper to cite. This module does not download: it knows the source and the destination,
//! and checks the content.

use std::env;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde::Serialize;
use sha2::{Digest, Sha256};
use verus_words::near::near;

use crate::error::Error;
use crate::lines::hex;

/// The address of a file of a public repository; `VERUS_TRACE_URL` in the environment overrides it.
const URL: &str = "https://raw.githubusercontent.com/{repository}/{commit}/{path}";

/// A public recording: a published trace, fetched by name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recording {
    /// Its name here: a folder for the source and a file, for example `cs244-2017/city_drive_2min`. The part after the
    /// slash is enough.
    pub name: &'static str,
    /// The groups that contain it.
    pub groups: Vec<&'static str>,
    /// The repository that publishes it, on GitHub.
    pub repository: &'static str,
    /// The commit.
    pub commit: &'static str,
    /// The file in the repository.
    pub path: &'static str,
    /// SHA-256 of the file as published, in hexadecimal.
    pub sha256: &'static str,
    /// Its licence, as far as the source states one.
    pub licence: &'static str,
    /// The paper to cite.
    pub paper: &'static str,
    /// Radio technology.
    pub technology: &'static str,
    /// The place and the movement of the phone.
    pub scenario: &'static str,
    /// `uplink` or `downlink`, as far as is known.
    pub direction: &'static str,
    /// Its period in seconds.
    pub duration_s: f64,
    /// Its mean rate in Mbit/s, at 1500 B an opportunity.
    pub mean_mbps: f64,
    /// Further remarks; often empty.
    pub note: &'static str,
}

static RECORDINGS: LazyLock<Vec<Recording>> = LazyLock::new(|| {
    let rows = include_str!("recordings.tsv").lines().skip(1);
    rows.map(|row| {
        let cells: Vec<&'static str> = row.split('\t').collect();
        let number = |text: &str| {
            text.parse()
                .expect("the catalogue's numbers are checked by its test")
        };
        Recording {
            name: cells[0],
            groups: cells[1].split(' ').collect(),
            repository: cells[2],
            commit: cells[3],
            path: cells[4],
            sha256: cells[5],
            licence: cells[6],
            paper: cells[7],
            technology: cells[8],
            scenario: cells[9],
            direction: cells[10],
            duration_s: number(cells[11]),
            mean_mbps: number(cells[12]),
            note: cells[13],
        }
    })
    .collect()
});

/// All public recordings.
pub fn recordings() -> &'static [Recording] {
    &RECORDINGS
}

/// The recording called `name`, with or without its folder.
pub fn recording(name: &str) -> Option<&'static Recording> {
    let whole = recordings().iter().find(|recording| recording.name == name);
    whole.or_else(|| {
        recordings()
            .iter()
            .find(|recording| recording.short_name() == name)
    })
}

/// The recordings that `name` denotes: one, or all of a group. The group `cs244` is the six that
/// the CS244 reproduction ran on.
///
/// # Errors
/// If it denotes no recording; the message lists near matches.
pub fn select(name: &str) -> Result<Vec<&'static Recording>, Error> {
    if let Some(recording) = recording(name) {
        return Ok(vec![recording]);
    }
    let group: Vec<_> = recordings()
        .iter()
        .filter(|recording| recording.groups.contains(&name))
        .collect();
    if group.is_empty() {
        Err(unknown_recording(name))
    } else {
        Ok(group)
    }
}

/// The names of all groups, in alphabetical order.
pub fn groups() -> Vec<&'static str> {
    let mut groups: Vec<_> = recordings()
        .iter()
        .flat_map(|recording| recording.groups.clone())
        .collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

impl Recording {
    /// The name without its folder.
    pub fn short_name(&self) -> &'static str {
        self.name.rsplit('/').next().unwrap_or(self.name)
    }

    /// The address where it is published: by `VERUS_TRACE_URL` in the environment if that is set,
    /// otherwise on GitHub.
    pub fn url(&self) -> String {
        let set = env::var("VERUS_TRACE_URL")
            .ok()
            .filter(|url| !url.is_empty());
        self.url_from(set.as_deref().unwrap_or(URL))
    }

    /// The address that `template` gives: `{repository}`, `{commit}` and `{path}` are filled in; a template
    /// without them is the beginning of the address.
    pub fn url_from(&self, template: &str) -> String {
        let whole = if template.contains("{path}") {
            template.to_owned()
        } else {
            format!(
                "{}/{{repository}}/{{commit}}/{{path}}",
                template.trim_end_matches('/')
            )
        };
        whole
            .replace("{repository}", self.repository)
            .replace("{commit}", self.commit)
            .replace("{path}", self.path)
    }

    /// Its path in `cache`.
    pub fn path_in(&self, cache: &Path) -> PathBuf {
        cache.join("recordings").join(self.name)
    }

    /// Whether `content` is the published file.
    ///
    /// # Errors
    /// If it cannot be read to its end, or differs.
    pub fn verify(&self, mut content: impl Read) -> Result<(), Error> {
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let failed = |source| Error::Io {
                action: "read",
                name: self.name.to_owned(),
                source,
            };
            match content.read(&mut buffer).map_err(failed)? {
                0 => return self.check(hex(&hash.finalize())),
                got => hash.update(&buffer[..got]),
            }
        }
    }

    pub(crate) fn check(&self, found: String) -> Result<(), Error> {
        if found == self.sha256 {
            return Ok(());
        }
        let (name, expected) = (self.name.to_owned(), self.sha256.to_owned());
        Err(Error::Mismatch {
            name,
            expected,
            found,
        })
    }
}

/// The folder of recordings: the first set of `VERUS_CACHE`, `XDG_CACHE_HOME/verus` and
/// `HOME/.cache/verus`; `None` without any of them.
pub fn cache_dir() -> Option<PathBuf> {
    let set = |name| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set("VERUS_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("verus")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/verus")))
}

fn unknown_recording(name: &str) -> Error {
    let names = recordings()
        .iter()
        .flat_map(|r| [r.name, r.short_name()])
        .chain(groups());
    let hint = match near(name, names) {
        Some(names) => format!("the nearest recordings are {names}"),
        None => format!("the recordings are those of {}", groups().join(", ")),
    };
    Error::UnknownRecording {
        text: name.to_owned(),
        hint,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;

    #[test]
    fn every_recording_in_the_catalogue_is_complete() {
        assert!(recordings().len() >= 30);
        for recording in recordings() {
            let cells = [
                recording.repository,
                recording.path,
                recording.licence,
                recording.paper,
            ];
            assert!(
                cells.iter().all(|cell| !cell.is_empty()),
                "{}",
                recording.name
            );
            assert_eq!(
                (recording.commit.len(), recording.sha256.len()),
                (40, 64),
                "{}",
                recording.name
            );
            assert!(recording.duration_s > 0.0 && recording.mean_mbps > 0.0);
            assert!(
                recording
                    .groups
                    .contains(&recording.name.split('/').next().unwrap())
            );
            assert_eq!(
                super::recording(recording.short_name()),
                Some(recording),
                "short names are unique"
            );
            assert!(generate::describe(recording.short_name()).is_none());
        }
    }

    #[test]
    fn one_name_brings_the_six_traces_of_the_reproduction() {
        let mut names: Vec<_> = select("cs244")
            .unwrap()
            .iter()
            .map(|r| r.short_name())
            .collect();
        names.sort_unstable();
        let expected = [
            "ATT-LTE-driving-2016.up",
            "TMobile-LTE-driving.up",
            "Verizon-EVDO-driving.up",
            "camp_ped_2min",
            "city_drive_2min",
            "highway_drive_2min",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_recording_is_published_where_its_catalogue_says_or_where_the_caller_does() {
        let recording = recording("camp_ped_2min").unwrap();
        let file = format!(
            "sanderszzw/cs244-verus/{}/traces/camp_ped_2min",
            recording.commit
        );
        assert_eq!(
            recording.url_from(URL),
            format!("https://raw.githubusercontent.com/{file}")
        );
        assert_eq!(
            recording.url_from("http://localhost:8000/"),
            format!("http://localhost:8000/{file}")
        );
        assert_eq!(
            recording.url_from("http://host/{path}?raw"),
            "http://host/traces/camp_ped_2min?raw"
        );
    }

    #[test]
    fn content_that_differs_is_refused() {
        let error = recording("camp_ped_2min")
            .unwrap()
            .verify(&b"1\n2\n"[..])
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("`cs244-2017/camp_ped_2min` is not the published file"),
            "{error}"
        );
    }
}
