//! `probe client --record` through the command line, over loopback: a whole folder, or one message and nothing.

use verus_channel::{Trace, raw};

use crate::probe_common::{Server, client, fails, text};
use verus_faults::machine;

#[test]
#[ignore = "reads the clock: make test-clock"]
fn a_recording_is_a_whole_folder_of_files_that_fit_together() {
    let _machine = machine::watch(20);
    let server = Server::start("");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = folder.path().join("recorded");
    let output = client(&format!(
        "{} --record {} --record-mode constant --rate-mbps 4 --up-rate-mbps 2 --duration 2",
        server.address,
        text(&place)
    ));
    assert!(output.status.success(), "{output:?}");
    let run = std::fs::read(place.join("run.json")).expect("it is there");
    let run: serde_json::Value = serde_json::from_slice(&run).expect("JSON");
    assert_eq!(run["kind"], "recording");
    let mut listed: Vec<&str> = run["files"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|name| name.as_str())
        .collect();
    let mut files: Vec<String> = std::fs::read_dir(&place)
        .expect("a folder")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("plain")
        })
        .collect();
    listed.sort_unstable();
    files.sort_unstable();
    assert_eq!(files, listed);
    assert_eq!(
        std::fs::read_dir(folder.path()).expect("a folder").count(),
        1,
        "no draft is left"
    );

    // Both ends read one clock, though each from its own start: no drift.
    let clocks = &run["recording"]["clocks"];
    let number = |value: &serde_json::Value| value.as_f64().expect("a number");
    let (drift, error) = (
        number(&clocks["drift_ppm"]),
        number(&clocks["drift_error_ppm"]),
    );
    assert!(drift.abs() <= error.max(20.0), "{clocks}");
    let said = String::from_utf8(output.stderr).expect("plain");
    for (name, mbps) in [("up", 2.0), ("down", 4.0)] {
        let direction = &run["recording"]["ways"][name];
        let file = direction["trace"].as_str().expect("its name");
        // A loopback is bounded by the rate of the load; on a busy machine packets may queue.
        assert_eq!(
            direction["is_channel"],
            file == format!("{name}.trace"),
            "{direction}"
        );
        assert!(
            said.contains(&format!("\n{name}: limited by the ")),
            "{said}"
        );
        assert_eq!(
            said.contains(&format!("`{file}` is not what the path carries")),
            direction["is_channel"] == false,
            "{said}"
        );
        let trace = Trace::read(&place.join(file)).expect("a trace");
        let raw = raw::read(&place.join(format!("{name}.raw"))).expect("a raw log");
        // Packets of 1400 bytes.
        let measured_mbps = raw.len() as f64 * 1400.0 * 8.0 / raw.period().as_secs_f64() / 1e6;
        // A busy machine sends late, and skips packets that are overdue.
        assert!(
            (0.8..1.1).contains(&(measured_mbps / mbps)),
            "{name}: {measured_mbps} Mbit/s"
        );
        assert_eq!(
            trace.mean_rate(verus_core::Bytes::new(1500)).as_mbps(),
            number(&direction["mean_mbps"])
        );
        // Each packet has a line, acknowledgements and statuses too.
        let packets = std::fs::read_to_string(place.join(format!("{name}-packets.csv")));
        let packets = packets.expect("it is there");
        let data = packets
            .lines()
            .skip(1)
            .filter(|line| !line.starts_with(','));
        assert_eq!(data.count() as u64, raw.len());
    }

    for sign in [
        "light probes for 3 s",
        "the load: 2 s at a constant rate",
        "0–1 s",
    ] {
        assert!(said.contains(sign), "no `{sign}` in\n{said}");
    }

    let again = format!("{} --record {}", server.address, text(&place));
    fails(&again, 2, "--record + is not empty; --force replaces");
}

#[test]
fn what_cannot_be_recorded_is_refused_before_anything_is_sent() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = folder.path().join("recorded");
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("a temporary file");
    // Nobody listens there: the client waits two seconds and fails with exit code 1.
    let host = "127.0.0.1:9";
    let record = format!("{host} --record {}", text(&place));
    let cases = "
        --record-mode constant => needs --rate-mbps
        --record-mode constant --rate-mbps 0 => --rate-mbps + between
        --rate-mbps 5 => belong to --record-mode constant
        --up-rate-mbps 5 => belong to --record-mode constant
        --record-mode constant --rate-mbps 5 --queue-ms 500 => --queue-ms belongs to --record-mode saturate
        --queue-ms 1 => --queue-ms + between 10 and 10000
        --scheme cubic => --record + --scheme
        --out elsewhere => --record + --out
        --record-mode guess => --record-mode + saturate, constant";
    let cases = cases
        .lines()
        .skip(1)
        .map(|case| format!("{record} {}", case.trim()));
    let others = [
        format!(
            "{host} --record {} => --record + is not a folder",
            text(&file)
        ),
        format!("{host} --record /proc/nowhere/recorded => --record + cannot be written"),
        format!("{host} --record-mode constant => --record"),
    ];
    for case in cases.chain(others) {
        let (words, said) = case.split_once(" => ").expect("a case");
        fails(words, 2, said);
        assert!(!place.exists());
    }
}

#[test]
fn a_server_that_is_not_there_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = folder.path().join("recorded");
    let output = client(&format!("127.0.0.1:9 --record {}", text(&place)));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(
        std::fs::read_dir(folder.path()).expect("a folder").count(),
        0
    );
}
