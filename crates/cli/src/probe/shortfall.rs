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
