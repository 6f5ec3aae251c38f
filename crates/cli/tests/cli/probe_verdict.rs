//! `probe` says nothing of a path over which its data did not arrive, and fails.

use std::net::{SocketAddr, UdpSocket};
use std::process::Output;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::common::{failed, refused};
use crate::probe_common::{Server, client};

/// A path to `server` that drops packets of more than `most` bytes, without a word.
fn narrow_path(server: &str, most: usize) -> SocketAddr {
    const HEADERS: usize = 28;
    let near = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let far = UdpSocket::bind("127.0.0.1:0").expect("a port");
    far.connect(server).expect("loopback");
    let address = near.local_addr().expect("bound");
    // The threads end with the test's process.
    let (near_too, far_too) = (near.try_clone(), far.try_clone());
    let (near_too, far_too) = (near_too.expect("a socket"), far_too.expect("a socket"));
    let client = Arc::new(Mutex::new(None));
    let to_client = Arc::clone(&client);
    std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        while let Ok((len, from)) = near.recv_from(&mut buffer) {
            *client.lock().expect("no thread panics") = Some(from);
            if len + HEADERS <= most {
                let _ = far.send(&buffer[..len]);
            }
        }
    });
    std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        loop {
            if let Ok(len) = far_too.recv(&mut buffer)
                && len + HEADERS <= most
                && let Some(to) = *to_client.lock().expect("no thread panics")
            {
                let _ = near_too.send_to(&buffer[..len], to);
            }
        }
    });
    address
}

fn rows(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON Lines"))
        .collect()
}

#[test]
fn a_path_that_drops_large_packets_gets_no_verdict_and_a_size_to_try() {
    let server = Server::start("");
    let path = narrow_path(&server.address, 1300);
    let words = ["nothing arrived up", "1400 bytes", "--packet-bytes 1228"];
    let output = client(&format!("{path} --duration 0.5"));
    failed(&output, 1, &words);
    let table = String::from_utf8_lossy(&output.stdout);
    for verdict in ["RPM", "loaded", "100.00 %", "0.00"] {
        assert!(!table.contains(verdict), "{table}");
    }
    assert!(table.contains("round trip, idle"), "{table}");

    let output = client(&format!("{path} --duration 0.5 --json"));
    failed(&output, 1, &words);
    let [row] = &rows(&output)[..] else {
        panic!("one direction: {output:?}");
    };
    for unknown in [
        "throughput_mbps",
        "goodput_mbps",
        "loss_rate",
        "retransmit_rate",
        "flow_min_mbps",
        "loaded_rtt_p50_ms",
        "rpm",
    ] {
        assert_eq!(row[unknown], Value::Null, "{unknown}: {row}");
        assert!(row.get(unknown).is_some(), "{unknown}");
    }
    assert_eq!(row["per_flow"][0]["throughput_mbps"], Value::Null);
    assert_eq!(row["per_flow"][0]["delivered_bytes"], 0);

    let output = client(&format!("{path} --duration 0.5 --packet-bytes 1228"));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_direction_without_arrivals_fails_the_test_of_both() {
    let server = Server::start("--max-mbps 20");
    let path = narrow_path(&server.address, 1300);
    for (direction, word) in [("down", "arrived down"), ("both", "arrived up")] {
        let output = client(&format!("{path} --duration 0.5 --direction {direction}"));
        failed(&output, 1, &["nothing", word, "--packet-bytes 1228"]);
    }
}

#[test]
fn less_than_the_bytes_that_were_asked_for_fails() {
    let server = Server::start("");
    let words = format!("{} --bytes 50MB --rate-mbps 4", server.address);
    let output = client(&format!("{words} --duration 0.5"));
    failed(&output, 1, &["only", "of 50.0 MB arrived up", "--duration"]);
    let output = client(&format!("{} --bytes 50kB", server.address));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_test_that_only_its_bytes_end_is_given_up_where_none_arrive() {
    let server = Server::start("");
    let path = narrow_path(&server.address, 1300);
    let output = client(&format!("{path} --bytes 50kB"));
    failed(&output, 1, &["nothing arrived up", "--packet-bytes 1228"]);
}

#[test]
fn a_recording_of_such_a_path_fails_with_the_same_advice() {
    let server = Server::start("");
    let path = narrow_path(&server.address, 1300);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = folder.path().join("recorded");
    let output = client(&format!("{path} --record {} --duration 1", place.display()));
    refused(&output, 1, &["nothing arrived", "--packet-bytes 1228"]);
    assert!(!place.exists());
}

#[test]
fn a_name_is_reached_at_whichever_of_its_addresses_answers() {
    // Where `localhost` is an IPv6 address first, nobody listens there.
    let server = Server::start("");
    let port = server.address.rsplit_once(':').expect("a port").1;
    let output = client(&format!("localhost:{port} --duration 0.2"));
    assert!(output.status.success(), "{output:?}");
}
