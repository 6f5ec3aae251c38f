//! Test vectors of the law, for implementations in other languages: events on seeded paths, and the
//! law's answer to each.
//!
//! `vectors/README.md` defines each field and lists the digest of each file. `make vectors` writes
//! the files.

use std::fmt::Write as _;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::law::{Answer, Core, Event, Native, assert_same};
use crate::path::Path;

const PACKET: u64 = 1500;
const BUDGET_MS: f64 = 90.0;
const DURATION_MS: u64 = 9_000;

/// A constant link with a long buffer.
pub const STEADY: Path = Path {
    seed: 1,
    base_ms: 40,
    rate_kbps: 500,
    changes_ms: 0,
    buffer_ms: 300,
    loses: 0,
    marks: 0,
    longer_from_ms: 0,
    others_ms: 0,
    outage_ms: 0,
    pauses: false,
};

/// The paths of the vectors, each with the name in its file's name.
const PATHS: [(&str, Path); 6] = [
    ("steady", STEADY),
    (
        "cellular",
        Path {
            seed: 2,
            changes_ms: 100,
            ..STEADY
        },
    ),
    (
        "lossy",
        Path {
            seed: 3,
            loses: 50,
            marks: 80,
            buffer_ms: 30,
            ..STEADY
        },
    ),
    (
        "long",
        Path {
            seed: 4,
            base_ms: 300,
            longer_from_ms: 6_000,
            ..STEADY
        },
    ),
    (
        "shared",
        Path {
            seed: 5,
            others_ms: 120,
            ..STEADY
        },
    ),
    (
        "silent",
        Path {
            seed: 6,
            outage_ms: 2_500,
            pauses: true,
            ..STEADY
        },
    ),
];

/// An event, as serialized in `in`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Input {
    Start {
        now_ns: u64,
        packet_bytes: u64,
        budget_ns: u64,
    },
    Heard {
        now_ns: u64,
        sent_ns: u64,
        rtt_ns: u64,
        acked_bytes: u64,
        lost_bytes: u64,
        marked_packets: u64,
        smoothed_rtt_ns: u64,
        in_flight_bytes: u64,
        app_limited: bool,
        lost_sent_ns: u64,
    },
    Timeout {
        now_ns: u64,
    },
    PacketSize {
        bytes: u64,
    },
}

impl From<Event> for Input {
    fn from(event: Event) -> Self {
        match event {
            Event::Acknowledged(acknowledgement) => Input::Heard {
                now_ns: acknowledgement.now,
                sent_ns: acknowledgement.sent,
                rtt_ns: acknowledgement.rtt,
                acked_bytes: acknowledgement.acked,
                lost_bytes: acknowledgement.lost,
                marked_packets: acknowledgement.marked,
                smoothed_rtt_ns: acknowledgement.smoothed_rtt,
                in_flight_bytes: acknowledgement.in_flight,
                app_limited: acknowledgement.app_limited,
                lost_sent_ns: acknowledgement.lost_sent,
            },
            Event::Timeout { now } => Input::Timeout { now_ns: now },
            Event::PacketSize { bytes } => Input::PacketSize { bytes },
        }
    }
}

/// The answer, as serialized in `out`.
#[derive(Serialize)]
struct Output {
    window_bytes: u64,
    allowed_bytes: Option<u64>,
    rate_bps: u64,
    delay_min_ns: u64,
    queue_ns: u64,
    wanted_ns: u64,
    horizon_ns: u64,
    lost_share: u64,
    empty_share: u64,
    late_share: u64,
    room_ns: u64,
    phase: &'static str,
}

impl From<Answer> for Output {
    fn from(answer: Answer) -> Self {
        let rounded = |value: f64, units: f64| (value * units).round() as u64;
        let [lost, empty, late] = answer.shares.map(|share| rounded(share, 65536.0));
        Output {
            window_bytes: answer.window,
            allowed_bytes: answer.allowed,
            rate_bps: rounded(answer.rate_mbps, 1e6),
            delay_min_ns: rounded(answer.base_ms, 1e6),
            queue_ns: rounded(answer.queue_ms, 1e6),
            wanted_ns: rounded(answer.target_ms, 1e6),
            horizon_ns: rounded(answer.horizon_ms, 1e6),
            lost_share: lost,
            empty_share: empty,
            late_share: late,
            room_ns: rounded(answer.room_ms, 1e6),
            phase: answer.phase.name(),
        }
    }
}

/// A line of a file. Its fields have the same order in every build, unlike those of a
/// `serde_json::Value`.
#[derive(Serialize)]
struct Line {
    r#in: Input,
    #[serde(skip_serializing_if = "Option::is_none")]
    out: Option<Output>,
}

impl Line {
    fn write_to(&self, text: &mut String) {
        *text += &serde_json::to_string(self).expect("numbers and words are JSON");
        text.push('\n');
    }
}

/// The contents of a path's file: the core's answers, which must equal those of the law in C.
fn vectors_of(native: &mut Native, path: &Path) -> String {
    let mut core = Core::start(0, PACKET, BUDGET_MS);
    let start = native.start(0, PACKET, BUDGET_MS);
    assert_eq!(start, core.answer());
    let mut text = String::new();
    let first = Input::Start {
        now_ns: 0,
        packet_bytes: PACKET,
        budget_ns: BUDGET_MS as u64 * 1_000_000,
    };
    Line {
        r#in: first,
        out: None,
    }
    .write_to(&mut text);
    path.play(DURATION_MS, |event| {
        let answer = core.handle(event);
        assert_same(native.handle(event), answer, event);
        Line {
            r#in: event.into(),
            out: Some(answer.into()),
        }
        .write_to(&mut text);
        answer
    });
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[test]
fn both_laws_write_the_vectors_of_the_digests_and_these_show_every_phase() {
    let readme = include_str!("../../vectors/README.md");
    let folder = std::env::var_os("VERUS_VECTORS").map(std::path::PathBuf::from);
    let mut native = Native::new();
    let mut all = String::new();
    let mut rows = Vec::new();
    for (name, path) in PATHS {
        let text = vectors_of(&mut native, &path);
        let file = format!("forward-{name}.jsonl");
        rows.push(format!("| `{file}` | `{}` |", hex(&Sha256::digest(&text))));
        if let Some(folder) = &folder {
            std::fs::write(folder.join(file), &text).expect("the folder is there");
        }
        all += &text;
    }
    for word in ["slow_start", "steady", "drain", "silent", "timeout"] {
        assert!(all.contains(&format!("\"{word}\"")), "{word}");
    }
    for row in &rows {
        assert!(
            readme.contains(row),
            "the law's answers differ from README.md; their digests are now\n{}",
            rows.join("\n")
        );
    }
}
