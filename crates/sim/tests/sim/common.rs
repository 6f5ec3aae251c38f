//! Helpers of the simulator's tests: scenarios in a line, and runs on two threads.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use verus_channel::trace::Trace;
use verus_sim::{FlowSpec, Outcome, Scenario};

/// Runs a scenario that is known to be valid.
pub fn run(scenario: &Scenario) -> Outcome {
    verus_sim::run(scenario, &mut |_| true).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs scenarios on two threads; the answers come in the scenarios' order.
pub fn run_all<T: Send>(scenarios: &[Scenario], digest: impl Fn(Outcome) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(scenario) = scenarios.get(at) else {
                        break;
                    };
                    let answer = digest(run(scenario));
                    done.lock().expect("no thread panicked").push((at, answer));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no thread panicked");
    done.sort_by_key(|&(at, _)| at);
    done.into_iter().map(|(_, answer)| answer).collect()
}

/// One flow over `trace` through `queue`.
pub fn single(trace: &str, queue: &str, scheme: &str, duration_s: f64) -> Scenario {
    Scenario {
        trace: trace.to_owned(),
        queue: queue.to_owned(),
        flows: vec![FlowSpec::new(scheme)],
        duration_s,
        ..Default::default()
    }
}

/// A flow with so much to send.
pub fn sending(scheme: &str, bytes: u64) -> FlowSpec {
    FlowSpec {
        bytes: Some(bytes),
        ..FlowSpec::new(scheme)
    }
}

/// A flow that starts at `start_s`.
pub fn starting(scheme: &str, start_s: f64) -> FlowSpec {
    FlowSpec {
        start_s,
        ..FlowSpec::new(scheme)
    }
}

/// Writes a trace of these instants for the scenario to read; returns its path.
pub fn trace_file(name: &str, millis: impl IntoIterator<Item = u64>) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    Trace::from_millis(name, millis)
        .and_then(|trace| trace.write(&path))
        .unwrap_or_else(|error| panic!("{error}"));
    path.to_str().expect("cargo's paths are text").to_owned()
}

/// The folder of recordings and references.
///
/// # Panics
/// Where this machine has none: who asks for tests of recordings is not told that they passed.
pub fn shared() -> PathBuf {
    let path = match std::env::var_os("VERUS_SHARED") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
    };
    assert!(
        path.join("traces/MANIFEST.csv").is_file(),
        "no recordings at {} (set VERUS_SHARED to a folder that has traces/MANIFEST.csv)",
        path.display()
    );
    path
}

/// The path of a recording of that folder.
pub fn trace(shared: &Path, name: &str) -> String {
    let path = shared.join("traces").join(name);
    path.to_str()
        .expect("paths of recordings are text")
        .to_owned()
}

/// A table's rows, each a list of (column, value).
pub struct Table {
    header: Vec<String>,
    /// The rows below the header.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Reads comma-separated values, of which some are quoted.
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut rows = text.lines().map(split);
        let header = rows.next().expect("a table has a header");
        Table {
            header,
            rows: rows.collect(),
        }
    }

    /// The value of a row in a column.
    pub fn get<'a>(&self, row: &'a [String], column: &str) -> &'a str {
        let at = self.header.iter().position(|name| name == column);
        &row[at.unwrap_or_else(|| panic!("no column {column}"))]
    }

    /// The same as a number.
    pub fn number(&self, row: &[String], column: &str) -> f64 {
        let text = self.get(row, column);
        text.parse()
            .unwrap_or_else(|_| panic!("{column}: `{text}` is no number"))
    }
}

fn split(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            _ => fields.last_mut().expect("starts with one").push(c),
        }
    }
    fields
}
