//! Against the recordings that the project shares.

use std::fs;
use std::path::PathBuf;

use verus_channel::{Trace, catalogue, raw, recordings};
use verus_core::Duration;

fn shared() -> PathBuf {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared");
    let folder = std::env::var_os("VERUS_SHARED").map_or(beside.into(), PathBuf::from);
    assert!(
        folder.join("traces/MANIFEST.csv").is_file(),
        "no recordings at {} (set VERUS_SHARED to a folder that has traces/MANIFEST.csv)",
        folder.display()
    );
    folder
}

#[test]
#[ignore = "reads recordings: make test-recordings"]
fn raw_logs_become_the_distributed_traces_byte_for_byte() {
    let shared = shared();
    for recording in [
        "campus-pedestrian-uplink-first60s",
        "city-driving-uplink-first60s",
    ] {
        let folder = shared.join("traces/verus-2015/raw");
        let trace = raw::read(&folder.join(format!("{recording}.csv"))).unwrap();
        let written = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(recording);
        trace.write(&written).unwrap();
        let expected = fs::read(folder.join(format!("{recording}.expected"))).unwrap();
        assert!(
            fs::read(&written).unwrap() == expected,
            "{recording} differs"
        );
    }
}

#[test]
#[ignore = "reads recordings: make test-recordings"]
fn every_recording_is_read_as_its_manifest_says() {
    let shared = shared();
    let folder = shared.join("traces");
    let mut files = 0;
    for row in fs::read_to_string(folder.join("MANIFEST.csv"))
        .unwrap()
        .lines()
    {
        let columns = split(row);
        if columns[1] != "trace" {
            continue;
        }
        let trace = Trace::read(&folder.join(&columns[0])).unwrap();
        assert_eq!(trace.len().to_string(), columns[10], "{}", columns[0]);
        let mbps = trace.mean_rate(verus_core::Bytes::new(1500)).as_mbps();
        assert!(
            (mbps - columns[11].parse::<f64>().unwrap()).abs() < 0.001,
            "{}",
            columns[0]
        );
        assert_eq!(trace.stored_sha256(), Some(columns[18].as_str()));
        assert_eq!(trace.sha256(), columns[19]);
        files += 1;
    }
    assert!(files > 20);
}

#[test]
#[ignore = "reads recordings: make test-recordings"]
fn the_catalogue_knows_each_recording_by_its_content() {
    let shared = shared();
    let cache = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    for recording in recordings::recordings() {
        let file = shared.join("traces").join(recording.name);
        let stored = [
            file.clone(),
            PathBuf::from(format!("{}.xz", file.display())),
        ];
        let stored = stored.iter().find(|path| path.is_file()).unwrap();
        let trace = Trace::read(stored).unwrap();
        assert_eq!(trace.sha256(), recording.sha256, "{}", recording.name);
        assert_eq!(
            trace.period().as_secs_f64(),
            recording.duration_s,
            "{}",
            recording.name
        );
    }
    // Once in the cache it has a name; once damaged it is refused.
    let recording = recordings::recording("camp_ped_2min").unwrap();
    let cached = recording.path_in(&cache);
    fs::create_dir_all(cached.parent().unwrap()).unwrap();
    fs::copy(shared.join("traces").join(recording.name), &cached).unwrap();
    let channel_name = catalogue::find_in("camp_ped_2min", Some(&cache)).unwrap();
    assert_eq!(channel_name.kind(), "cached");
    let channel = channel_name.open(1, Duration::from_secs(60)).unwrap();
    assert_eq!(channel.trace().unwrap().name(), recording.name);
    assert!(recording.verify(fs::File::open(&cached).unwrap()).is_ok());
    fs::remove_file(&cached).unwrap();
    fs::write(&cached, "1\n2\n").unwrap();
    let error = channel_name
        .open(1, Duration::from_secs(60))
        .unwrap_err()
        .to_string();
    assert!(error.contains("is not the published file"), "{error}");
    fs::remove_dir_all(&cache).unwrap();
}

/// The cells of a row of comma-separated values.
fn split(row: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    for letter in row.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            other => cells
                .last_mut()
                .expect("there is always a cell")
                .push(other),
        }
    }
    cells
}
