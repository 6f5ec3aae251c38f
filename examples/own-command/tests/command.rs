//! The command `verus` with a controller of another crate: tables, the page, and both ends of a live path.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const ENDPOINT: &str = env!("CARGO_BIN_EXE_own-endpoint");

/// The front from this repository, with the packages that it needs, and the extension and the endpoint of this crate.
fn verus() -> Command {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = std::env::current_exe().expect("a test has a path");
    let extension = built.with_file_name("libverus_own.so");
    let mut command = Command::new(repository.join(".venv/bin/python"));
    command
        .args(["-m", "verus"])
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
fn tables_and_pages_have_the_controller() {
    let mut compare = verus();
    let words = "compare --trace rate:8 --duration 5 --out own --force --scheme tide:queue_ms=20 --scheme bbr";
    let table = said(&compare.args(words.split(' ')).output().expect("it starts"));
    assert!(table.contains("Tide (queue_ms=20)"), "{table}");
    said(&verus().args(["report", "own"]).output().expect("it starts"));
    let page = std::fs::read_to_string(folder().join("own/report.html")).expect("a page");
    assert!(page.contains("Tide (queue_ms=20)"));
    let listed = said(
        &verus()
            .args(["list", "schemes"])
            .output()
            .expect("it starts"),
    );
    assert!(listed.contains("keeps a queue of some ms"), "{listed}");
}

#[test]
fn what_is_wrong_with_its_keys_is_told_as_of_any() {
    let mut compare = verus();
    let ran = compare.args(["compare", "--scheme", "tide:quee_ms=20"]);
    let ran = ran.output().expect("it starts");
    let told = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(2), "{told}");
    assert!(
        told.contains("`tide` has no key `quee_ms`; the nearest is `queue_ms`"),
        "{told}"
    );
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
