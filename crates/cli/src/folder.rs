//! The folder that a run leaves for `verus report`: the lab's formats, with JSON Lines for columns.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;
use serde_json::{Value, json};
use verus_net::probe::record::SCHEMA;

use crate::failure::Failure;

/// What is in it.
pub const FILES: [&str; 4] = ["profile.jsonl", "results.jsonl", "run.json", "series.jsonl"];

/// Refuses a place that cannot be used, before any work is done.
///
/// # Errors
/// If it holds something and `force` is not set, or is no folder, or cannot be written. The message names the
/// `option` that chose it.
pub fn check(option: &str, target: &Path, force: bool) -> Result<(), Failure> {
    let refuse = |problem: &str| {
        Err(Failure::usage(format_args!(
            "{option}: `{}` {problem}",
            target.display()
        )))
    };
    match fs::read_dir(target) {
        Ok(mut entries) => {
            if entries.next().is_some() && !force {
                return refuse("is not empty; --force replaces the results in it");
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return refuse("is not a folder");
        }
        Err(error) => return refuse(&format!("cannot be used ({error})")),
    }
    let draft = draft(target);
    match fs::create_dir_all(&draft).and_then(|()| fs::remove_dir(&draft)) {
        Ok(()) => Ok(()),
        Err(error) => refuse(&format!("cannot be written ({error})")),
    }
}

/// Where the folder is filled before it takes its place.
pub fn draft(target: &Path) -> PathBuf {
    let name = target
        .file_name()
        .map_or_else(|| "run".into(), |name| name.to_string_lossy());
    let draft = format!(".{name}-{}.part", std::process::id());
    match target.parent() {
        Some(parent) => parent.join(draft),
        None => PathBuf::from(draft),
    }
}

/// What a run left, one object a line.
#[derive(Debug, Default)]
pub struct Contents {
    /// Rows of results.
    pub rows: Vec<Value>,
    /// Time series.
    pub series: Vec<Value>,
    /// Delay profiles.
    pub profiles: Vec<Value>,
    /// What `run.json` says but for what every run says alike.
    pub run: Value,
    /// More files, by name.
    pub more: Vec<(&'static str, Vec<u8>)>,
}

impl Contents {
    fn files(&self) -> impl Iterator<Item = &'static str> + '_ {
        FILES
            .into_iter()
            .chain(self.more.iter().map(|(name, _)| *name))
    }
}

/// Writes the folder that `option` chose: whole, or not at all.
///
/// # Errors
/// If it cannot be written.
pub fn write(option: &str, target: &Path, contents: &Contents) -> Result<(), Failure> {
    let draft = draft(target);
    let written = fill(&draft, contents).and_then(|()| publish(&draft, target, contents));
    if let Err(error) = written {
        let _ = fs::remove_dir_all(&draft);
        return Err(Failure::run(format_args!(
            "{option}: `{}` cannot be written ({error})",
            target.display()
        )));
    }
    Ok(())
}

fn publish(draft: &Path, target: &Path, contents: &Contents) -> io::Result<()> {
    let empty = match fs::read_dir(target) {
        Ok(mut entries) => entries.next().is_none(),
        Err(_) => true,
    };
    if empty {
        return fs::rename(draft, target);
    }
    // What an earlier run wrote, and says that it did, goes; everything else stays.
    let earlier = fs::read(target.join("run.json"))
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    for name in earlier
        .iter()
        .flat_map(|run| run["files"].as_array())
        .flatten()
    {
        if let Some(name) = name.as_str()
            && !name.contains(['/', '\\'])
            && !contents.files().any(|new| new == name)
        {
            let _ = fs::remove_file(target.join(name));
        }
    }
    for name in contents.files() {
        fs::rename(draft.join(name), target.join(name))?;
    }
    fs::remove_dir(draft)
}

fn fill(draft: &Path, contents: &Contents) -> io::Result<()> {
    fs::create_dir_all(draft)?;
    lines(&draft.join("results.jsonl"), &contents.rows)?;
    lines(&draft.join("series.jsonl"), &contents.series)?;
    lines(&draft.join("profile.jsonl"), &contents.profiles)?;
    for (name, bytes) in &contents.more {
        fs::write(draft.join(name), bytes)?;
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
    fs::write(draft.join("run.json"), text + "\n")
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

/// One object with the fields of all; the first to name a field decides it.
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

fn lines(path: &Path, rows: &[Value]) -> io::Result<()> {
    let mut file = BufWriter::new(fs::File::create(path)?);
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
