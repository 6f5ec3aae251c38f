//! Packets that are recorded as they pass: their order, their bound, and headers made for them.

use std::io;
use std::net::SocketAddr;

use etherparse::PacketHeaders;
use verus_capture::dissect::{Transport, dissect};
use verus_capture::headers;
use verus_capture::read::for_each;
use verus_capture::record::{MOST_WAITING, Recorder};
use verus_capture::write::Writer;
use verus_core::{Bytes, Duration, Ecn, Time};

/// LINKTYPE_RAW.
const RAW: i32 = 101;

const SIDES: [(&str, &str); 2] = [("in", "before"), ("out", "behind")];

fn at(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn recorder<W: io::Write>(sink: W) -> Recorder<W> {
    Recorder::new(Writer::new(sink, &SIDES).expect("it takes all"), 0)
}

#[test]
fn packets_reported_late_are_in_the_order_of_their_times() {
    for (lateness_ms, expected) in [(0, [10, 30, 20, 31]), (15, [10, 20, 30, 31])] {
        let lateness = Duration::from_millis(lateness_ms);
        let mut recorder = recorder(Vec::new()).with_lateness(lateness);
        for millis in [10, 30, 31, 20] {
            recorder.on_passing(at(millis), &[0], &[0x45; 20], Bytes::new(20));
        }
        let file = recorder.finish().expect("memory takes it");
        let mut times_ms = Vec::new();
        for_each("file", &file[..], |_, packet| {
            times_ms.push(packet.at / 1_000_000)
        })
        .expect("whole");
        assert_eq!(times_ms, expected, "{lateness_ms} ms late");
    }
}

#[test]
fn what_passes_while_a_packet_waits_has_a_bound_beyond_which_no_capture_is_left() {
    let size = Bytes::new(20);
    for (passing, is_whole) in [(MOST_WAITING - 1, true), (MOST_WAITING, false)] {
        let mut recorder = recorder(io::sink());
        recorder.on_entered(at(0), 0, (0, 1), &[0x45; 20], size);
        for millis in 1..=passing as u64 {
            recorder.on_passing(at(millis), &[1], &[0x45; 20], size);
        }
        match recorder.finish() {
            Ok(_) => assert!(is_whole),
            Err(error) => {
                assert!(!is_whole);
                let text = error.to_string();
                assert!(text.contains("while one waited in a queue"), "{text}");
            }
        }
    }
}

#[test]
fn a_datagram_gets_headers_with_its_addresses_code_point_and_checksum() {
    let datagram = [7; 1372];
    for (from, to, length) in [
        ("192.0.2.1:6060", "198.51.100.7:40000", 1400),
        ("[2001:db8::1]:6060", "[2001:db8::2]:40000", 1420),
    ] {
        let (from, to): (SocketAddr, SocketAddr) = (
            from.parse().expect("an address"),
            to.parse().expect("an address"),
        );
        let mut packet = headers::udp(from, to, Ecn::Ect0, &datagram);
        packet.extend_from_slice(&datagram);
        assert_eq!(packet.len(), length);
        let parsed = dissect(RAW, length as u32, &packet).expect("it is UDP");
        assert_eq!((parsed.source, parsed.destination), (from, to));
        assert!(matches!(parsed.transport, Transport::Udp(udp) if udp.payload == 1372));
        let parsed = PacketHeaders::from_ip_slice(&packet).expect("whole");
        let udp = parsed.transport.expect("it is UDP").udp().expect("it is");
        let ip = parsed.net.expect("it is IP");
        let (checksum, code_point) = match ip.ipv4_ref() {
            Some((ip, _)) => {
                assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                (udp.calc_checksum_ipv4(ip, &datagram), ip.ecn.value())
            }
            None => {
                let (ip, _) = ip.ipv6_ref().expect("the other family");
                (udp.calc_checksum_ipv6(ip, &datagram), ip.traffic_class)
            }
        };
        assert_eq!(checksum.expect("it fits"), udp.checksum);
        assert_eq!(code_point, Ecn::Ect0.bits());
    }
}
