//! The test vectors of `docs/probe-wire-format.md`: this build writes each one, and reads it again.

use std::collections::BTreeMap;
use std::path::Path;

use verus_probe::seal::{Key, Keys, Secret};
use verus_probe::wire::{
    Accept, AckBody, Data, Ending, FlowStatus, Hello, Kind, Packet, Reason, Request, Retry, Run,
    Status, encode_plain, inspect, pad,
};

const CONNECTION: u64 = 0x0102_0304_0506_0708;
const CLIENT_NONCE: [u8; 16] = [0xc1; 16];
const SERVER_NONCE: [u8; 16] = [0x5e; 16];
const SECRET: &[u8] = b"a secret for tests";

/// Writes header and body into the buffer; returns how many bytes the tag must cover.
type Encode = fn(&mut [u8]) -> usize;

/// The document's vectors in its order: the name, the key that seals the packet, and the contents.
fn vectors() -> Vec<(&'static str, Key, Encode)> {
    let open = Key::handshake(None);
    let shared = Key::handshake(Some(&Secret::stretch(SECRET)));
    let keys = Keys::new(&open, &CLIENT_NONCE, &SERVER_NONCE);
    let of_secret = Keys::new(&shared, &CLIENT_NONCE, &SERVER_NONCE);
    vec![
        ("hello", open.clone(), hello),
        ("retry", open.clone(), |buffer| {
            Retry {
                nonce: CLIENT_NONCE,
                token: &[0x70; 24],
            }
            .encode(buffer)
        }),
        ("accept", open.clone(), accept),
        ("accept-limit", open.clone(), |buffer| {
            Accept {
                client_nonce: CLIENT_NONCE,
                server_nonce: SERVER_NONCE,
                limit_bps: Some(100_000_000),
                quiet_millis: 0,
            }
            .encode(CONNECTION, buffer)
        }),
        ("accept-quiet", open.clone(), |buffer| {
            Accept {
                client_nonce: CLIENT_NONCE,
                server_nonce: SERVER_NONCE,
                limit_bps: None,
                quiet_millis: 1000,
            }
            .encode(CONNECTION, buffer)
        }),
        ("refuse", open, |buffer| {
            Ending {
                nonce: CLIENT_NONCE,
                reason: Reason::Busy,
                text: "8 tests run",
            }
            .encode(Kind::Refuse, 0, buffer)
        }),
        ("data", keys.client.clone(), data),
        ("ack", keys.server.clone(), |buffer| {
            ack_body().encode(1, CONNECTION, None, buffer)
        }),
        ("ack-report", keys.server.clone(), |buffer| {
            ack_body().encode(1, CONNECTION, Some(&[0xab, 0xcd]), buffer)
        }),
        ("ack-marks", keys.server.clone(), |buffer| {
            marked_ack_body().encode(1, CONNECTION, None, buffer)
        }),
        ("status", keys.client.clone(), |buffer| {
            status().encode(CONNECTION, buffer)
        }),
        ("close", keys.client.clone(), |buffer| {
            Ending {
                nonce: [0; 16],
                reason: Reason::Done,
                text: "",
            }
            .encode(Kind::Close, CONNECTION, buffer)
        }),
        ("closed", keys.server.clone(), |buffer| {
            encode_plain(Kind::Closed, CONNECTION, &[], buffer)
        }),
        ("challenge", keys.server, |buffer| {
            encode_plain(Kind::Challenge, CONNECTION, &[0x11; 16], buffer)
        }),
        ("response", keys.client, |buffer| {
            encode_plain(Kind::Response, CONNECTION, &[0x11; 16], buffer)
        }),
        ("accept-secret", shared, accept),
        ("data-secret", of_secret.client, data),
    ]
}

fn request() -> Request {
    Request {
        upload_flows: 1,
        download_flows: 2,
        packet_bytes: 1400,
        status_millis: 100,
        duration_nanos: 10_000_000_000,
        bytes: 0,
        rate_bps: 5_000_000,
        seed: 42,
        scheme: "verus:r=4".to_owned(),
    }
}

fn hello(buffer: &mut [u8]) -> usize {
    Hello {
        nonce: CLIENT_NONCE,
        token: &[0x70; 24],
        request: request(),
        quiet_millis: 0,
    }
    .encode(buffer)
}

fn accept(buffer: &mut [u8]) -> usize {
    Accept {
        client_nonce: CLIENT_NONCE,
        server_nonce: SERVER_NONCE,
        limit_bps: None,
        quiet_millis: 0,
    }
    .encode(CONNECTION, buffer)
}

fn sample_data() -> Data<'static> {
    Data {
        number: 1000,
        sent_nanos: 1_500_000_000,
        start: 1_372_000,
        len: 1400,
        stamp: Some(&[0x01, 0x02, 0x03]),
    }
}

fn data(buffer: &mut [u8]) -> usize {
    sample_data().encode(1, CONNECTION, buffer)
}

/// Received: 999 and 1000 together, 2 ms ago; 997 5 ms ago; 900 to 990 too long ago for a time.
fn ack_body() -> AckBody {
    AckBody {
        ack_number: 300,
        sent_nanos: 2_000_000_000,
        distinct: 131_600,
        newest: 1000,
        spans: vec![2, 1, 1, 6, 91],
        runs: vec![
            Run {
                below: 0,
                count: 2,
                age_nanos: 2_000_000,
            },
            Run {
                below: 3,
                count: 1,
                age_nanos: 5_000_000,
            },
        ],
        marks: 0,
    }
}

/// The same, where seven packets of the flow have come with a congestion mark.
fn marked_ack_body() -> AckBody {
    AckBody {
        marks: 7,
        ..ack_body()
    }
}

fn status() -> Status {
    Status {
        number: 7,
        flows: vec![FlowStatus {
            flow: 1,
            finished: true,
            sent: 1001,
            retransmitted: 3,
            lost: 2,
            timeouts: 1,
            acked: 1_397_200,
            window: 56_000,
            rtt_micros: 51_234,
            rtt_mean_micros: 48_000,
            rtt_p95_micros: 77_000,
        }],
    }
}

/// The document's blocks of bytes, by the name in the heading above each. Text after a `;` explains
/// the bytes.
fn documented() -> BTreeMap<String, Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/probe-wire-format.md");
    let text = std::fs::read_to_string(&path).expect("the document");
    let (mut found, mut name, mut block) = (BTreeMap::new(), String::new(), None::<Vec<u8>>);
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("### Vector: ") {
            name = heading.to_owned();
        } else if line == "```hex" {
            block = Some(Vec::new());
        } else if line.starts_with("```") {
            if let Some(bytes) = block.take() {
                assert!(found.insert(name.clone(), bytes).is_none(), "{name} twice");
            }
        } else if let Some(bytes) = &mut block {
            let digits = line.split(';').next().unwrap_or_default().replace(' ', "");
            bytes.extend(digits.as_bytes().chunks(2).map(|byte| {
                let byte = std::str::from_utf8(byte).expect("hexadecimal digits");
                u8::from_str_radix(byte, 16).unwrap_or_else(|_| panic!("{name}: `{byte}`"))
            }));
        }
    }
    found
}

fn hex(bytes: &[u8]) -> String {
    let rows = bytes.chunks(16).map(|row| {
        let word = |word: &[u8]| {
            word.iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        row.chunks(4).map(word).collect::<Vec<_>>().join(" ")
    });
    rows.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_document_shows_what_this_build_writes() {
    let documented = documented();
    let vectors = vectors();
    for (name, key, encode) in &vectors {
        let bytes = key.sealed(0, *encode);
        assert!(
            documented.get(*name) == Some(&bytes),
            "docs/probe-wire-format.md, {name}: this build writes\n{}",
            hex(&bytes)
        );
    }
    assert_eq!(documented.len(), vectors.len(), "each vector has a packet");
}

#[test]
fn what_the_document_shows_is_read_again() {
    for (name, key, encode) in vectors() {
        let bytes = key.sealed(0, encode);
        assert!(inspect(&bytes).is_ok(), "{name}");
        let packet = Packet::parse(&bytes).expect("well formed");
        assert!(key.opens(&packet), "{name}");
        // Valid padding changes nothing.
        let mut padded = [bytes.clone(), vec![0; 100]].concat();
        pad(&mut padded, bytes.len());
        assert!(key.opens(&Packet::parse(&padded).expect("well formed")));
        for at in bytes.len()..padded.len() {
            let mut touched = padded.clone();
            touched[at] ^= 1;
            let touched = Packet::parse(&touched).expect("well formed");
            assert!(!key.opens(&touched), "{name}, byte {at}");
        }
        let packet = Packet::parse(&padded).expect("well formed");
        match packet.kind {
            Kind::Hello => assert_eq!(Hello::decode(&packet).expect("good").request, request()),
            Kind::Data => assert_eq!(Data::decode(&packet), Ok(sample_data())),
            Kind::Ack => {
                let mut body = AckBody::default();
                let report = body.decode(&packet).expect("good");
                let marked = name == "ack-marks";
                assert_eq!(
                    body,
                    if marked {
                        marked_ack_body()
                    } else {
                        ack_body()
                    }
                );
                assert_eq!(report.is_some(), name == "ack-report");
            }
            Kind::Status => {
                let mut read = Status::default();
                read.decode(&packet).expect("good");
                assert_eq!(read, status());
            }
            Kind::Accept => {
                let accept = Accept::decode(&packet).expect("good");
                assert_eq!(
                    (accept.client_nonce, accept.server_nonce),
                    (CLIENT_NONCE, SERVER_NONCE)
                );
                let limit = (name == "accept-limit").then_some(100_000_000);
                assert_eq!((accept.limit_bps, packet.connection), (limit, CONNECTION));
            }
            _ => {}
        }
    }
}
