//! The reasons why a test shows nothing about its path: no data arrived, or less than requested.

use bytesize::ByteSize;
use verus_probe::results::{Direction, Record, Row};
use verus_probe::wire::{MIN_HELLO_BYTES, Request};

/// The packet that every host takes whole (RFC 791 §3.1).
const SMALLEST_TO_TRY: usize = 576;

/// Describes the data missing from `record`; nothing for a complete test. The server was heard
/// until the end, so small packets have passed. A packet has `overhead` bytes of IP and UDP
/// headers.
pub fn of(record: &Record, request: &Request, overhead: usize) -> Option<String> {
    let rows = record.rows.iter();
    let nothing = rows.clone().find(|(_, row)| !row.totals.has_arrivals());
    if let Some((direction, row)) = nothing {
        return Some(no_arrivals(*direction, row, request, overhead));
    }
    rows.flat_map(|(direction, row)| row.per_flow.iter().map(move |flow| (direction, flow)))
        .find(|(_, flow)| flow.delivered_bytes < request.bytes)
        .map(|(direction, flow)| {
            format!(
                "only {} of {} arrived {} of flow {}: give it more time (--duration), or ask for less (--bytes)",
                ByteSize(flow.delivered_bytes).display().si(),
                ByteSize(request.bytes).display().si(),
                direction.name(),
                flow.flow
            )
        })
}

/// The largest share of a test that may be lost to changes of this host's address.
const MOST_LOST: f64 = 0.1;

/// Describes `changes` of this host's address; nothing for fewer than two, which a test survives.
pub fn address_changes(changes: u64) -> Option<String> {
    (changes > 1).then(|| {
        format!(
            "this host's address changed at least {changes} times on the way: a NAT there gives new ports"
        )
    })
}

/// Whether `changes` of this host's address took more than [`MOST_LOST`] of a test of `duration_s`,
/// so that its numbers are not the path's. Each takes a round trip without packets from the server.
pub fn is_lost_to(changes: u64, duration_s: f64, record: &Record) -> bool {
    let least_rtt_ms = record.echoes.iter().map(|(_, rtt)| *rtt);
    let least_rtt_ms = least_rtt_ms.min_by(f64::total_cmp).unwrap_or_default();
    changes > 1 && changes as f64 * least_rtt_ms / 1e3 > MOST_LOST * duration_s
}

fn no_arrivals(direction: Direction, row: &Row, request: &Request, overhead: usize) -> String {
    let name = direction.name();
    let packet_bytes = usize::from(request.packet_bytes);
    let sent: u64 = row.per_flow.iter().map(|flow| flow.sent).sum();
    if sent == 0 {
        return format!("nothing was sent {name}, so nothing is known of the path");
    }
    let handshake_bytes = MIN_HELLO_BYTES + overhead;
    let advice = if packet_bytes > handshake_bytes {
        format!(
            "the path may drop packets of that size: try --packet-bytes {handshake_bytes}, the size of the handshake"
        )
    } else if packet_bytes > SMALLEST_TO_TRY {
        format!(
            "the path may drop packets of that size: try --packet-bytes {SMALLEST_TO_TRY}, or another --scheme"
        )
    } else {
        "a firewall may drop them".to_owned()
    };
    format!(
        "nothing arrived {name}: none of {sent} packets of {packet_bytes} bytes, while smaller ones passed; {advice}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_of_address_that_take_a_tenth_of_a_test_make_it_worthless() {
        let record = Record {
            rows: Vec::new(),
            series: Vec::new(),
            profiles: Vec::new(),
            echoes: vec![(0.0, 250.0), (0.1, 200.0)],
        };
        for (changes, is_lost) in [(0, false), (1, false), (2, false), (3, true)] {
            assert_eq!(is_lost_to(changes, 5.0, &record), is_lost, "{changes}");
            assert_eq!(address_changes(changes).is_some(), changes > 1);
        }
        assert!(!is_lost_to(1, 0.5, &record), "a test survives one change");
    }
}
