//! The command `verus` with a controller and a queue of another crate: tables, pages, lists, Python, an emulated link, and
//! both ends of a live path.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const ENDPOINT: &str = env!("CARGO_BIN_EXE_own-endpoint");

/// The command.
fn verus() -> Command {
    let mut command = python();
    command.args(["-m", "verus"]);
    command
}

/// Python with the front from this repository and the packages that it needs, and the extension and the endpoint of this
/// crate.
fn python() -> Command {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = std::env::current_exe().expect("a test has a path");
    let extension = built.with_file_name("libverus_own.so");
    let mut command = Command::new(repository.join(".venv/bin/python"));
    command
        .env("PYTHONPATH", repository.join("python"))
        .env("VERUS_EXTENSION", extension)
        .env("VERUS_ENDPOINT", ENDPOINT)
        .current_dir(folder());
    command
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

fn said(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    out
}

#[test]
fn tables_and_pages_have_the_controller_and_the_queue() {
    let mut compare = verus();
    let words = "compare --trace rate:8 --queue ebb:life_ms=90 --duration 5 --out own --force --scheme tide:queue_ms=20 --scheme bbr";
    let table = said(&compare.args(words.split(' ')).output().expect("it starts"));
    assert!(table.contains("Tide (queue_ms=20)"), "{table}");
    assert!(table.contains("ebb:life_ms=90"), "{table}");
    said(&verus().args(["report", "own"]).output().expect("it starts"));
    let page = std::fs::read_to_string(folder().join("own/report.html")).expect("a page");
    assert!(page.contains("Tide (queue_ms=20)") && page.contains("ebb:life_ms=90"));
}

#[test]
fn lists_and_completion_have_both() {
    for (words, expected) in [
        ("list schemes", "keeps a queue of some ms"),
        ("list queues", "drops what has waited longer than some ms"),
        ("complete compare --queue eb", "ebb"),
        ("complete compare --queue ebb:l", "ebb:life_ms="),
        ("complete shell --queue eb", "ebb"),
    ] {
        let listed = verus().args(words.split(' ')).output();
        let listed = said(&listed.expect("it starts"));
        assert!(listed.contains(expected), "{words}: {listed}");
    }
}

#[test]
fn what_is_wrong_with_their_keys_is_told_as_of_any() {
    for (words, expected) in [
        (
            "compare --scheme tide:quee_ms=20",
            "`tide` has no key `quee_ms`; the nearest is `queue_ms`",
        ),
        (
            "compare --queue ebb:lief_ms=20",
            "queue `ebb:lief_ms=20`: `ebb` has no key `lief_ms`; the nearest is `life_ms`",
        ),
        (
            "compare --queue ebb:life_ms=0",
            "queue `ebb:life_ms=0`: life_ms must be between 1 and 10000 ms, not `0`",
        ),
        (
            "shell --queue ebb:life_ms=soon",
            "queue `ebb:life_ms=soon`: life_ms must be between 1 and 10000 ms, not `soon`",
        ),
        ("compare --queue eb:life_ms=20", "unknown kind `eb`"),
    ] {
        let ran = verus().args(words.split(' ')).output().expect("it starts");
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{words}: {stderr}");
        assert!(stderr.contains(expected), "{words}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{words}: {stderr}");
    }
}

/// Prints the longest that a packet took to wait and to be sent, in ms, and how many were dropped.
const SIMULATE: &str = r#"
from verus import Flow, Link, simulate

link = Link.constant(8, queue="ebb:life_ms=30")
metrics = simulate(link=link, flows=[Flow("cubic"), Flow("tide", queue_ms=200)], duration_s=5).metrics
print(metrics["qdelay_max_ms"], metrics["drops"])
"#;

#[test]
fn python_has_the_queue_which_keeps_its_word() {
    let printed = said(&python().args(["-c", SIMULATE]).output().expect("it starts"));
    let numbers: Vec<f64> = printed
        .split_whitespace()
        .map(|number| number.parse().expect("a number"))
        .collect();
    let [longest, dropped] = numbers[..] else {
        panic!("two numbers: {printed}");
    };
    // A packet of 1500 bytes takes 1.5 ms.
    assert!((20.0..=31.5).contains(&longest), "{printed}");
    assert!(dropped > 10.0, "{printed}");
}

#[test]
fn a_study_has_it_in_its_file() {
    let study = "trace = \"rate:8\"\nduration_s = 2\nscheme = \"cubic\"\nqueue = [\"ebb:life_ms=9\", \"ebb\"]\n";
    std::fs::write(folder().join("study.toml"), study).expect("a file");
    let _ = std::fs::remove_dir_all(folder().join("study"));
    let table = verus()
        .args(["sweep", "study.toml", "--out", "study"])
        .output();
    let table = said(&table.expect("it starts"));
    assert!(table.contains("ebb:life_ms=9"), "{table}");
}

#[test]
fn the_arena_has_the_controller_in_its_field() {
    let program = "from verus.papers.own.arena.field import SENDERS; print(SENDERS['tide'])";
    let printed = said(&python().args(["-c", program]).output().expect("it starts"));
    assert_eq!(printed.trim(), "tide");
}

#[test]
#[ignore = "takes root, network namespaces and TUN: `make test-root`"]
fn an_emulated_link_has_it() {
    let words = "shell --queue ebb:life_ms=20 --down rate:8 --up rate:8 -- true";
    said(&verus().args(words.split(' ')).output().expect("it starts"));
}

#[test]
fn both_ends_of_a_live_path_have_it() {
    let mut server = verus();
    server.args(["probe", "server", "--bind", "127.0.0.1", "--port", "0"]);
    let server = server.stdout(Stdio::piped());
    let mut server = server.spawn().expect("it starts");
    let mut words = BufReader::new(server.stdout.take().expect("piped"));
    let mut line = String::new();
    words
        .read_line(&mut line)
        .expect("it says where it listens");
    let address = line
        .split_whitespace()
        .find(|word| word.starts_with("127.0.0.1:"));
    let address = address
        .unwrap_or_else(|| panic!("{line}"))
        .trim_end_matches(&[',', ';'][..]);
    let mut client = verus();
    client.args([
        "probe",
        "client",
        address,
        "--scheme",
        "tide",
        "--duration",
        "1",
        "--json",
    ]);
    client.args(["--direction", "both"]);
    let ran = client.output();
    server.kill().expect("it runs");
    server.wait().expect("it ran");
    let rows: Vec<serde_json::Value> = said(&ran.expect("it starts"))
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(row["scheme"], "tide");
        assert!(row["goodput_mbps"].as_f64() > Some(0.1), "{row}");
    }
}
