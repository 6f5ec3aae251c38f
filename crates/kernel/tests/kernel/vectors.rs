//! Test vectors: the law's answers to the events on seeded paths, for implementations in another
//! language.
//!
//! `vectors/README.md` defines each field. The core writes them; this checks that it would write the same, and that the law
//! in C says the same. `VERUS_WRITE_VECTORS=1` writes them anew.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::law::{Answer, Core, Event, Native, assert_same};
use crate::path::Path;

const PACKET: u64 = 1500;
const BUDGET_MS: f64 = 90.0;
const DURATION_MS: u64 = 9_000;

const STEADY: Path = Path {
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

/// Each is a file.
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

fn file(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("vectors");
    folder.join(format!("forward-{name}.jsonl"))
}

/// An event and its answer, as a line has them.
fn line(event: Event, answer: Answer) -> Value {
    let units = |value: f64, a_unit: f64| (value * a_unit).round() as u64;
    let said = json!({
        "window_bytes": answer.window,
        "allowed_bytes": answer.allowed,
        "rate_bps": units(answer.rate_mbps, 1e6),
        "delay_min_ns": units(answer.base_ms, 1e6),
        "queue_ns": units(answer.queue_ms, 1e6),
        "wanted_ns": units(answer.target_ms, 1e6),
        "horizon_ns": units(answer.horizon_ms, 1e6),
        "lost_share": units(answer.shares[0], 65536.0),
        "empty_share": units(answer.shares[1], 65536.0),
        "late_share": units(answer.shares[2], 65536.0),
        "room_ns": units(answer.room_ms, 1e6),
        "phase": answer.phase.name(),
    });
    let happened = match event {
        Event::Heard(heard) => json!({
            "event": "heard", "now_ns": heard.now, "sent_ns": heard.sent, "rtt_ns": heard.rtt, "acked_bytes": heard.acked,
            "lost_bytes": heard.lost, "marked_packets": heard.marked, "smoothed_rtt_ns": heard.smoothed_rtt,
            "in_flight_bytes": heard.in_flight, "app_limited": heard.app_limited, "lost_sent_ns": heard.lost_sent,
        }),
        Event::Timeout { now } => json!({"event": "timeout", "now_ns": now}),
        Event::PacketSize { bytes } => json!({"event": "packet_size", "bytes": bytes}),
    };
    json!({"in": happened, "out": said})
}

/// The core's answers on a path; checks that the law in C gives the same.
fn written(native: &mut Native, path: &Path) -> String {
    let mut core = Core::start(0, PACKET, BUDGET_MS);
    let start = native.start(0, PACKET, BUDGET_MS);
    assert_eq!(start, core.answer());
    let first = json!({
        "in": {"event": "start", "now_ns": 0, "packet_bytes": PACKET, "budget_ns": BUDGET_MS as u64 * 1_000_000},
    });
    let mut text = format!("{first}\n");
    path.play(DURATION_MS, |event| {
        let answer = core.hear(event);
        assert_same(native.hear(event), answer, event);
        text += &format!("{}\n", line(event, answer));
        answer
    });
    text
}

#[test]
fn the_vectors_are_what_both_laws_say() {
    let mut native = Native::new();
    for (name, path) in PATHS {
        let text = written(&mut native, &path);
        let file = file(name);
        if std::env::var_os("VERUS_WRITE_VECTORS").is_some() {
            std::fs::write(&file, &text).expect("it can be written");
        }
        let stored = std::fs::read_to_string(&file).expect("the repository has it");
        // The order of keys is not the same in every build: it is a feature of serde_json that other crates may turn on.
        let values = |text: &str| -> Vec<Value> {
            let parsed = text.lines().map(serde_json::from_str);
            parsed.map(|line| line.expect("JSON")).collect()
        };
        let (stored, text) = (values(&stored), values(&text));
        let differs = stored.iter().zip(&text).position(|(a, b)| a != b);
        assert!(
            stored == text,
            "{} differs from what the core says, from line {differs:?} on (VERUS_WRITE_VECTORS=1 writes it anew)",
            file.display()
        );
    }
}

#[test]
fn the_vectors_show_every_phase() {
    let text: String = PATHS
        .iter()
        .map(|(name, _)| std::fs::read_to_string(file(name)).expect("the repository has it"))
        .collect();
    for word in [
        "slow_start",
        "steady",
        "drain",
        "silent",
        "timeout",
        "heard",
    ] {
        assert!(text.contains(&format!("\"{word}\"")), "{word}");
    }
}
