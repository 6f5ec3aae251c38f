//! The results folder of a run, for `verus report`: the lab's formats, with JSON Lines for columns.

use std::fs;
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{Mode, OFlags, openat};
use serde::Serialize;
use serde_json::{Value, json};
use verus_probe::results::SCHEMA;

use crate::draft::DraftFolder;
use crate::failure::Failure;

/// The files in it.
const FILES: [&str; 4] = ["profile.jsonl", "results.jsonl", "run.json", "series.jsonl"];

/// Refuses a place that cannot be used, before any work is done.
///
/// # Errors
/// If it is not empty and `force` is not set, or it is no folder, or cannot be written. The message
/// names the `option` that chose it.
pub fn check(option: &str, target: &Path, force: bool) -> Result<(), Failure> {
    let occupied = (!force).then_some("is not empty; --force replaces the results in it");
    check_place(option, target, occupied)
}

/// The same without a way to replace earlier results.
pub fn check_empty(option: &str, target: &Path) -> Result<(), Failure> {
    check_place(option, target, Some("is not empty"))
}

/// Refuses an unusable place. `occupied` is the reason to refuse one that is not empty, if any.
fn check_place(option: &str, target: &Path, occupied: Option<&str>) -> Result<(), Failure> {
    let refuse = |problem: &str| {
        Err(Failure::usage(format_args!(
            "{option}: `{}` {problem}",
            target.display()
        )))
    };
    match fs::read_dir(target) {
        Ok(mut entries) => {
            if let Some(problem) = occupied.filter(|_| entries.next().is_some()) {
                return refuse(problem);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return refuse("is not a folder");
        }
        Err(error) => return refuse(&format!("cannot be used ({error})")),
    }
    match DraftFolder::create(target) {
        Ok(_) => Ok(()),
        Err(error) => refuse(&format!("cannot be written ({error})")),
    }
}

/// The results of a run, one object a line.
#[derive(Debug, Default)]
pub struct Contents {
    /// Rows of results.
    pub rows: Vec<Value>,
    /// Time series.
    pub series: Vec<Value>,
    /// Delay profiles.
    pub profiles: Vec<Value>,
    /// The part of `run.json` that differs between kinds of runs.
    pub run: Value,
    /// More files, by name.
    pub more: Vec<(String, Vec<u8>)>,
}

impl Contents {
    fn files(&self) -> impl Iterator<Item = &str> {
        FILES
            .into_iter()
            .chain(self.more.iter().map(|(name, _)| name.as_str()))
    }
}

/// Writes the folder that `option` chose, whole or not at all.
pub fn write(option: &str, target: &Path, contents: &Contents) -> Result<(), Failure> {
    fill(target, contents).map_err(|error| {
        Failure::run(format_args!(
            "{option}: `{}` cannot be written ({error})",
            target.display()
        ))
    })
}

fn fill(target: &Path, contents: &Contents) -> io::Result<()> {
    let mut draft = DraftFolder::create(target)?;
    lines(draft.file("results.jsonl")?, &contents.rows)?;
    lines(draft.file("series.jsonl")?, &contents.series)?;
    lines(draft.file("profile.jsonl")?, &contents.profiles)?;
    for (name, bytes) in &contents.more {
        draft.file(name)?.write_all(bytes)?;
    }
    let common = json!({
        "schema": SCHEMA,
        "version": env!("CARGO_PKG_VERSION"),
        "created": humantime::format_rfc3339_seconds(now()).to_string(),
        "measured": null,
        "machine": machine(),
        "files": contents.files().collect::<Vec<_>>(),
    });
    let text = serde_json::to_string_pretty(&joined([common, contents.run.clone()]))?;
    draft
        .file("run.json")?
        .write_all((text + "\n").as_bytes())?;
    draft.publish(|there| Ok(earlier(there)))
}

/// Names of an earlier run's files, if `run.json` shows that it made them. They may be removed; all
/// other files stay.
fn earlier(folder: &OwnedFd) -> Vec<String> {
    /// `run.json` holds the settings and a line for each flow.
    const MOST_BYTES: u64 = 1 << 24;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut bytes = Vec::new();
    let read = openat(folder, "run.json", flags, Mode::empty())
        .map_err(io::Error::from)
        .and_then(|file| {
            fs::File::from(file)
                .take(MOST_BYTES)
                .read_to_end(&mut bytes)
        });
    let run = read
        .ok()
        .and_then(|_| serde_json::from_slice::<Value>(&bytes).ok())
        .unwrap_or_default();
    let names = run["files"].as_array().into_iter().flatten();
    names
        .filter_map(Value::as_str)
        .filter(|name| !name.contains(['/', '\\']))
        .map(str::to_owned)
        .collect()
}

#[expect(
    clippy::disallowed_methods,
    reason = "when a result was made is the one thing that is told by the wall clock"
)]
fn now() -> SystemTime {
    SystemTime::now()
}

/// A row as JSON.
pub fn value(row: &impl Serialize) -> Value {
    serde_json::to_value(row).expect("plain columns")
}

/// One object with the fields of all. If several have a field, the first counts.
pub fn joined<const N: usize>(parts: [Value; N]) -> Value {
    let mut all = serde_json::Map::new();
    for part in parts {
        if let Value::Object(fields) = part {
            for (name, value) in fields {
                all.entry(name).or_insert(value);
            }
        }
    }
    Value::Object(all)
}

fn lines(file: fs::File, rows: &[Value]) -> io::Result<()> {
    let mut file = BufWriter::new(file);
    for row in rows {
        serde_json::to_writer(&mut file, row)?;
        file.write_all(b"\n")?;
    }
    file.flush()
}

fn machine() -> Value {
    let kernel = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    let cpu = fs::read_to_string("/proc/cpuinfo").ok().and_then(|info| {
        let line = info.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    json!({
        "kernel": format!("{} {}", text(kernel.sysname()), text(kernel.release())),
        "cpu": cpu,
        "cores": std::thread::available_parallelism().map(usize::from).ok(),
        "python": null,
    })
}
