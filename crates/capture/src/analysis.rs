//! The report of a capture's flows, for `verus analyze`.
//!
//! A flow is one direction of a connection at one interface, so a capture on both sides of a bottleneck has two of each.
//! TCP is read by `flow.rs`. QUIC shows less to others: its round trips are those of the spin bit, where both ends spin
//! it (RFC 9000 §17.4), and else that of the handshake alone. Other UDP shows none.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::net::SocketAddr;

use serde::Serialize;
use verus_channel::{Trace, raw};
use verus_core::{Bytes, Time};

use crate::dissect::{Datagram, Segment, Transport, Udp, Unread, dissect};
use crate::flow::{Direction, Limit, Times, add};
use crate::read::{self, Interface};

/// How many connections are followed; packets of others are only counted.
pub const MOST_CONNECTIONS: usize = 1024;

/// How many entries all flows keep; the rest of the capture is left out.
const MOST_ENTRIES: i64 = 1 << 24;

/// How much earlier than the one before a packet of an interface may be, ns. Network cards with
/// several queues disorder packets by less. Beyond it, a clock was set or files were joined.
const MOST_STEP_BACK: u64 = 1_000_000;

/// How many packets are remembered to find their copies.
const RECENT: usize = 1 << 14;

/// How much later a copy may be, ns: on another interface, behind a queue. Until a sender has used
/// up all 65,536 identifications of IPv4, [`RECENT`] packets have mostly passed.
const LATEST_COPY: u64 = 1_000_000_000;

/// Likewise without an identification: retransmissions are a round trip later.
const LATEST_COPY_UNIDENTIFIED: u64 = 1_000_000;

/// How many stretches are named.
const MOST_STRETCHES: usize = 16;

/// Bytes of an opportunity in a trace, as `verus compare` plays it.
pub const OPPORTUNITY: Bytes = Bytes::new(1504);

/// The report of a capture.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Packets of the capture.
    pub packets: u64,
    /// Those that are no TCP or UDP over IP, or not captured up to the end of their headers.
    pub other_packets: u64,
    /// Why these were not read, and how many each, the most first.
    pub unread: Vec<(String, u64)>,
    /// Those of connections beyond [`MOST_CONNECTIONS`].
    pub unfollowed_packets: u64,
    /// Those that are copies of others at the same interface, and were left out.
    pub copied_packets: u64,
    /// Whether the file ends within a packet, which was left out.
    pub is_cut: bool,
    /// Whether the capture is too long, and its rest was left out.
    pub is_too_long: bool,
    /// The first packet that is earlier than one before it at its interface, by more than 1 ms.
    pub step_back: Option<StepBack>,
    /// The flows that carried data, the one with the most bytes first.
    pub flows: Vec<FlowReport>,
}

/// A time of a packet that is before that of an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepBack {
    /// Number of the packet in the file, from 1.
    pub packet: u64,
    /// By how much it is earlier, s.
    pub step_s: f64,
}

/// The report of one flow.
#[derive(Debug, Serialize)]
pub struct FlowReport {
    /// `tcp`, `quic` or `udp`.
    pub protocol: &'static str,
    /// Name or number of the interface, or its index in the kernel.
    pub interface: String,
    /// From where.
    pub source: SocketAddr,
    /// To where.
    pub destination: SocketAddr,
    /// When its first packet with data passed, since the capture began, s.
    pub start_s: f64,
    /// Until its last, s.
    pub duration_s: f64,
    /// Packets with data.
    pub packets: u64,
    /// Their bytes with IP headers.
    pub bytes: u64,
    /// These bytes over the duration, Mbit/s.
    pub throughput_mbps: Option<f64>,
    /// Data that arrived, by acknowledgements or iperf3's receiver, over the duration, Mbit/s.
    pub goodput_mbps: Option<f64>,
    /// The source of the round trips: `acknowledgements`, `spin bit`, `handshake` or `iperf3, smoothed`.
    pub rtt_from: Option<&'static str>,
    /// How many there are.
    pub rtt_samples: u64,
    /// The least, ms.
    pub rtt_min_ms: Option<f64>,
    /// The median, ms.
    pub rtt_p50_ms: Option<f64>,
    /// The 95th percentile, ms.
    pub rtt_p95_ms: Option<f64>,
    /// The median's excess over the least: queueing, and whatever else varies, ms.
    pub queue_p50_ms: Option<f64>,
    /// Likewise the 95th percentile's excess, ms.
    pub queue_p95_ms: Option<f64>,
    /// Packets whose data had passed before.
    pub retransmitted: Option<u64>,
    /// Packets that were lost before the capture point and passed later.
    pub late: Option<u64>,
    /// Packets that were reordered.
    pub reordered: Option<u64>,
    /// Retransmitted and late packets of all; of iperf3's UDP the lost ones.
    pub loss_rate: Option<f64>,
    /// The limit for the most of its time, if that is known.
    pub limited_by: Option<Limit>,
    /// Share of its time that the path limited it.
    pub path_share: Option<f64>,
    /// Likewise the receiver's window.
    pub window_share: Option<f64>,
    /// Likewise the sender.
    pub sender_share: Option<f64>,
    /// Likewise one of these two, where the capture does not show which. If it is not 0, the shares
    /// of both are unknown.
    pub window_or_sender_share: Option<f64>,
    /// The longest stretches that the path did not limit, in order: from and to, in s since the capture began.
    pub unlimited_s: Vec<(f64, f64, Limit)>,
    /// The source of its delivery rate: `acknowledgements`, `arrivals`, `intervals`, or
    /// `intervals of the sender`, which show what was sent by UDP.
    pub delivery_from: &'static str,
    /// When its trace of the delivery rate begins, s since the capture began.
    pub trace_start_s: f64,
    /// The bytes delivered, by millisecond.
    #[serde(skip)]
    deliveries: Vec<(u32, u32)>,
    /// Bytes with headers of each byte of `deliveries`.
    #[serde(skip)]
    overhead: f64,
}

impl Report {
    /// A report of flows that another program measured, without packets.
    pub fn of_flows(flows: Vec<FlowReport>) -> Self {
        Report {
            packets: 0,
            other_packets: 0,
            unread: Vec::new(),
            unfollowed_packets: 0,
            copied_packets: 0,
            is_cut: false,
            is_too_long: false,
            step_back: None,
            flows,
        }
    }
}

impl FlowReport {
    /// The delivery rate as a trace, whose time zero is the first delivery: an opportunity each time that
    /// [`OPPORTUNITY`] more bytes, IP headers included, have been delivered.
    ///
    /// # Errors
    /// If it is not enough for a trace.
    pub fn trace(&self, name: &str) -> Result<Trace, verus_channel::Error> {
        let mut sum = 0;
        let arrivals = self.deliveries.iter().map(|(ms, bytes)| {
            let before = (sum as f64 * self.overhead) as u64;
            sum += u64::from(*bytes);
            let size = (sum as f64 * self.overhead) as u64 - before;
            (Time::from_millis(u64::from(*ms)), Bytes::new(size))
        });
        let first = self.deliveries.first().map_or(0, |(ms, _)| u64::from(*ms));
        raw::from_arrivals(name, arrivals, Time::from_millis(first), OPPORTUNITY)
    }
}

/// An interface of the file, and the kernel's index where the link header names it.
type CaptureInterface = (usize, Option<u32>);

/// A connection at one interface: its ends, the lower address first.
type Key = (CaptureInterface, bool, [SocketAddr; 2]);

/// Packets that passed lately: digest and time, by digest. Later ones replace those of the same
/// slot.
#[derive(Debug)]
struct Recent(Vec<Option<(u64, u64)>>);

impl Default for Recent {
    fn default() -> Self {
        Recent(vec![None; RECENT])
    }
}

impl Recent {
    /// Whether the same packet has passed the same interface before. A capture of all interfaces or
    /// of a mirror port has such copies, which would count as retransmissions.
    fn is_copy(&mut self, at: u64, interface: usize, datagram: &Datagram) -> bool {
        if !datagram.is_unique() {
            return false;
        }
        let mut hasher = DefaultHasher::new(); // of fixed keys
        (interface, datagram).hash(&mut hasher);
        let digest = hasher.finish();
        let latest = if datagram.identification == 0 {
            LATEST_COPY_UNIDENTIFIED
        } else {
            LATEST_COPY
        };
        let place = &mut self.0[digest as usize % RECENT];
        let is_copy = place
            .is_some_and(|(known, passed)| known == digest && at.saturating_sub(passed) <= latest);
        if !is_copy {
            *place = Some((digest, at));
        }
        is_copy
    }
}

/// Both directions of a connection.
#[derive(Debug, Default)]
struct Connection {
    tcp: [Direction; 2],
    udp: [UdpDirection; 2],
    /// The shift that the SYN of each end named.
    scales: [Option<Option<u8>>; 2],
    /// The sequence number of each end's SYN.
    first_numbers: [Option<u32>; 2],
    is_quic: bool,
}

/// One direction of UDP.
#[derive(Debug, Default)]
struct UdpDirection {
    packets: u64,
    bytes: u64,
    span: Option<(u64, u64)>,
    arrivals: Vec<(u32, u32)>,
    /// The first packet with a long header of QUIC.
    handshake_at: Option<u64>,
    /// The spin bit, and when it last changed.
    spin: Option<(bool, Option<u64>)>,
    rtt: Times,
    least_rtt: Option<u64>,
}

/// Reads a capture. `name` is what messages call it.
///
/// # Errors
/// As [`read::for_each`].
pub fn analyze(name: &str, bytes: impl Read) -> Result<Report, read::Error> {
    let mut connections: BTreeMap<Key, Connection> = BTreeMap::new();
    // Those whose ports another one uses now.
    let mut replaced: Vec<(Key, Connection)> = Vec::new();
    let (mut packets, mut unfollowed, mut copied) = (0, 0, 0);
    let mut recent = Recent::default();
    let mut unread: BTreeMap<Unread, u64> = BTreeMap::new();
    let mut first = None;
    // The latest time at each interface, since several may be out of order; the first step back.
    let (mut latest, mut step_back): (Vec<u64>, _) = (Vec::new(), None);
    let mut entries = 0;
    let ended = read::for_each(name, bytes, |interfaces, captured| {
        packets += 1;
        let link = interfaces[captured.interface].link;
        let datagram = match dissect(link, captured.length, captured.data) {
            Ok(datagram) => datagram,
            Err(reason) => {
                *unread.entry(reason).or_default() += 1;
                return;
            }
        };
        if entries > MOST_ENTRIES {
            return;
        }
        let began = *first.get_or_insert(captured.at);
        latest.resize(interfaces.len(), 0);
        let last = &mut latest[captured.interface];
        let step = last.saturating_sub(captured.at);
        if step > MOST_STEP_BACK {
            step_back.get_or_insert(StepBack {
                packet: packets,
                step_s: seconds(step),
            });
        }
        *last = captured.at.max(*last);
        let at = last.saturating_sub(began);
        if recent.is_copy(at, captured.interface, &datagram) {
            copied += 1;
            return;
        }
        let is_tcp = matches!(datagram.transport, Transport::Tcp(_));
        let mut ends = [datagram.source, datagram.destination];
        ends.sort_unstable();
        let interface = (captured.interface, datagram.interface);
        let key = (interface, is_tcp, ends);
        let are_enough = connections.len() + replaced.len() == MOST_CONNECTIONS;
        if are_enough && !connections.contains_key(&key) {
            unfollowed += 1;
            return;
        }
        let connection = connections.entry(key).or_default();
        let from = usize::from(datagram.source != ends[0]);
        if !are_enough && connection.is_another(from, &datagram.transport) {
            let before = std::mem::take(connection);
            if before.has_data() {
                replaced.push((key, before));
            }
        }
        entries += connection.on_datagram(at, from, &datagram);
    })?;
    let mut flows: Vec<FlowReport> = replaced
        .into_iter()
        .chain(connections)
        .flat_map(|(key, connection)| connection.finish(&key, &ended.interfaces))
        .collect();
    flows.sort_by_key(|flow| std::cmp::Reverse(flow.bytes));
    let mut unread: Vec<_> = (unread.into_iter())
        .map(|(reason, count)| (reason.to_string(), count))
        .collect();
    unread.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    Ok(Report {
        packets,
        other_packets: unread.iter().map(|(_, count)| count).sum(),
        unread,
        unfollowed_packets: unfollowed,
        copied_packets: copied,
        is_cut: ended.is_cut,
        is_too_long: entries > MOST_ENTRIES,
        step_back,
        flows,
    })
}

impl Connection {
    /// A datagram of the end with index `from` passes; returns how many entries more are kept.
    fn on_datagram(&mut self, at: u64, from: usize, datagram: &Datagram) -> i64 {
        match &datagram.transport {
            Transport::Tcp(segment) => {
                let before = self.tcp[0].kept() + self.tcp[1].kept();
                self.on_segment(at, from, datagram.bytes, segment);
                self.tcp[0].kept() + self.tcp[1].kept() - before
            }
            Transport::Udp(udp) => self.on_udp(at, from, datagram.bytes, udp) as i64,
        }
    }

    /// Whether the end with index `from` opens another connection with the same ports.
    fn is_another(&self, from: usize, transport: &Transport) -> bool {
        let Transport::Tcp(segment) = transport else {
            return false;
        };
        segment.syn
            && match self.first_numbers[from] {
                Some(first) => first != segment.sequence,
                None => self.tcp[from].packets > 0,
            }
    }

    fn has_data(&self) -> bool {
        self.tcp.iter().any(|direction| direction.packets > 0)
    }

    fn on_segment(&mut self, at: u64, from: usize, bytes: u32, segment: &Segment) {
        if segment.syn {
            self.first_numbers[from] = Some(segment.sequence);
            self.scales[from] = Some(segment.scale);
            if let [Some(first), Some(second)] = self.scales {
                // Only where both name one is it used (RFC 7323 §2.2).
                let both = first.zip(second);
                for (direction, receiver) in self.tcp.iter_mut().zip([1, 0]) {
                    let shift = both.map_or(0, |both| [both.0, both.1][receiver]);
                    direction.window_shift = Some(shift);
                }
            }
        }
        if segment.payload > 0 {
            self.tcp[from].on_data(at, bytes, segment);
        }
        self.tcp[1 - from].on_ack(at, segment);
    }

    fn on_udp(&mut self, at: u64, from: usize, bytes: u32, udp: &Udp) -> usize {
        if let Some(version) = udp.version {
            // Version 1 and 2 (RFC 9369), and drafts.
            self.is_quic |= matches!(version, 1 | 0x6b33_43cf) || version >> 8 == 0x00ff_0000;
        }
        let is_quic = self.is_quic;
        let handshake = self.udp[1 - from].handshake_at;
        let direction = &mut self.udp[from];
        let before = direction.arrivals.len();
        direction.packets += 1;
        direction.bytes += u64::from(bytes);
        direction.span = Some((direction.span.map_or(at, |(first, _)| first), at));
        add(&mut direction.arrivals, at, u64::from(bytes));
        let added = direction.arrivals.len() - before;
        if !is_quic {
            return added;
        }
        if udp.version.is_some() && direction.handshake_at.is_none() {
            direction.handshake_at = Some(at);
            if let Some(requested) = handshake {
                // From the client's first packet to the server's: what lies behind the capture point.
                let rtt = at.saturating_sub(requested);
                self.udp[1 - from].least_rtt = Some(rtt);
            }
            return added;
        }
        // A short header, with its fixed bit (RFC 9000 §17.3.1).
        if let Some(header) = udp.first.filter(|header| header >> 6 == 0b01) {
            let spin = header & 0x20 != 0;
            match direction.spin {
                Some((before, edge)) if before != spin => {
                    if let Some(edge) = edge {
                        direction.rtt.record(at.saturating_sub(edge));
                    }
                    direction.spin = Some((spin, Some(at)));
                }
                Some(_) => {}
                None => direction.spin = Some((spin, None)),
            }
        }
        added
    }

    fn finish(self, key: &Key, interfaces: &[Interface]) -> Vec<FlowReport> {
        let (interface, is_tcp, ends) = key;
        let (interface, index) = interface;
        let name = interfaces[*interface].name.clone();
        let name = match (name, index) {
            (Some(name), Some(index)) => format!("{name}, index {index}"),
            (None, Some(index)) => format!("index {index}"),
            (name, None) => name.unwrap_or_else(|| interface.to_string()),
        };
        let ends_of = |from: usize| (name.clone(), ends[from], ends[1 - from]);
        if *is_tcp {
            let with_data = self.tcp.into_iter().enumerate();
            return with_data
                .filter(|(_, direction)| direction.packets > 0)
                .map(|(from, direction)| tcp_report(direction, ends_of(from)))
                .collect();
        }
        let is_quic = self.is_quic;
        let with_data = self.udp.into_iter().enumerate();
        with_data
            .filter(|(_, direction)| direction.packets > 0)
            .map(|(from, direction)| udp_report(direction, is_quic, ends_of(from)))
            .collect()
    }
}

/// Interface, source and destination.
pub(crate) type Route = (String, SocketAddr, SocketAddr);

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

fn mbps(bytes: u64, (first, last): (u64, u64)) -> Option<f64> {
    (last > first).then(|| bytes as f64 * 8.0 / seconds(last - first) / 1e6)
}

/// A report with the fields that both protocols have.
fn report(
    protocol: &'static str,
    (interface, source, destination): Route,
    (packets, bytes): (u64, u64),
    span: (u64, u64),
    deliveries: Vec<(u32, u32)>,
) -> FlowReport {
    FlowReport {
        protocol,
        interface,
        source,
        destination,
        start_s: seconds(span.0),
        duration_s: seconds(span.1 - span.0),
        packets,
        bytes,
        throughput_mbps: mbps(bytes, span),
        goodput_mbps: None,
        rtt_from: None,
        rtt_samples: 0,
        rtt_min_ms: None,
        rtt_p50_ms: None,
        rtt_p95_ms: None,
        queue_p50_ms: None,
        queue_p95_ms: None,
        retransmitted: None,
        late: None,
        reordered: None,
        loss_rate: None,
        limited_by: None,
        path_share: None,
        window_share: None,
        sender_share: None,
        window_or_sender_share: None,
        unlimited_s: Vec::new(),
        delivery_from: "arrivals",
        trace_start_s: deliveries
            .first()
            .map_or(0.0, |(ms, _)| f64::from(*ms) / 1e3),
        deliveries,
        overhead: 1.0,
    }
}

impl FlowReport {
    /// A report of intervals that another program measured: their duration in s and bytes of data.
    pub(crate) fn of_intervals(
        protocol: &'static str,
        route: Route,
        (duration_s, bytes): (f64, f64),
        deliveries: Vec<(u32, u32)>,
    ) -> Self {
        let span = (0, (duration_s * 1e9) as u64);
        let flow = report(protocol, route, (0, 0), span, deliveries);
        FlowReport {
            bytes: bytes as u64,
            throughput_mbps: None,
            goodput_mbps: mbps(bytes as u64, span),
            delivery_from: "intervals",
            ..flow
        }
    }

    /// Sets the losses of UDP, as iperf3's receiver counts: lost and all packets. A sender's bytes
    /// are those that it sent, so goodput is known only with the losses.
    pub(crate) fn set_datagrams_lost(&mut self, counts: Option<(i64, i64)>, is_sender: bool) {
        self.loss_rate = counts
            .filter(|(_, all)| *all > 0)
            .map(|(lost, all)| (lost as f64 / all as f64).clamp(0.0, 1.0));
        if is_sender {
            self.goodput_mbps = (self.goodput_mbps.zip(self.loss_rate))
                .map(|(sent_mbps, lost)| sent_mbps * (1.0 - lost));
            self.delivery_from = "intervals of the sender";
        }
    }

    pub(crate) fn set_round_trips(
        &mut self,
        from: &'static str,
        times: &Times,
        least: Option<u64>,
    ) {
        let Some(least) = least else { return };
        let least_ms = millis(least);
        self.rtt_from = Some(from);
        self.rtt_samples = times.count().max(1);
        self.rtt_min_ms = Some(least_ms);
        // The histogram rounds down, by up to 1/1024, and the least is exact.
        let quantile = |q| times.quantile_ms(q).map(|rtt| rtt.max(least_ms));
        (self.rtt_p50_ms, self.rtt_p95_ms) = (quantile(0.5), quantile(0.95));
        let queue = |rtt: Option<f64>| rtt.map(|rtt| rtt - least_ms);
        self.queue_p50_ms = queue(self.rtt_p50_ms);
        self.queue_p95_ms = queue(self.rtt_p95_ms);
    }

    fn set_limits(&mut self, stretches: &[(u64, u64, Limit)]) {
        let total: u64 = stretches.iter().map(|(from, to, _)| to - from).sum();
        let share = |limit: Limit| {
            let of_it = stretches.iter().filter(|(.., one)| *one == limit);
            let time: u64 = of_it.map(|(from, to, _)| to - from).sum();
            time as f64 / total.max(1) as f64
        };
        let all = [Limit::Path, Limit::Window, Limit::Sender].map(|limit| (limit, share(limit)));
        let undecided = share(Limit::WindowOrSender);
        self.limited_by = (all.iter())
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .filter(|(_, most)| *most >= undecided)
            .map(|most| most.0);
        self.window_or_sender_share = Some(undecided);
        [self.path_share, self.window_share, self.sender_share] = all.map(|(_, share)| Some(share));
        if undecided > 0.0 {
            (self.window_share, self.sender_share) = (None, None);
        }
        let mut longest: Vec<_> = (stretches.iter())
            .filter(|(.., limit)| *limit != Limit::Path)
            .collect();
        longest.sort_by_key(|(from, to, _)| std::cmp::Reverse(to - from));
        longest.truncate(MOST_STRETCHES);
        longest.sort_by_key(|(from, ..)| *from);
        let in_seconds =
            |&&(from, to, limit): &&(u64, u64, Limit)| (from as f64 / 1e3, to as f64 / 1e3, limit);
        self.unlimited_s = longest.iter().map(in_seconds).collect();
    }
}

fn tcp_report(direction: Direction, route: Route) -> FlowReport {
    let span = direction.span.unwrap_or_default();
    let limits = direction.limits();
    let overhead = direction.bytes as f64 / direction.payload.max(1) as f64;
    let is_acknowledged = !direction.deliveries.is_empty();
    let deliveries = if is_acknowledged {
        direction.deliveries
    } else {
        direction.arrivals
    };
    let counts = (direction.packets, direction.bytes);
    let mut flow = report("tcp", route, counts, span, deliveries);
    flow.retransmitted = Some(direction.retransmitted);
    flow.late = Some(direction.late);
    flow.reordered = Some(direction.reordered);
    let lost = direction.retransmitted + direction.late;
    flow.loss_rate = Some(lost as f64 / direction.packets as f64);
    if is_acknowledged {
        flow.goodput_mbps = mbps(direction.delivered, span);
        flow.set_round_trips("acknowledgements", &direction.rtt, direction.least_rtt);
        flow.set_limits(&limits);
        flow.delivery_from = "acknowledgements";
        flow.overhead = overhead;
    }
    flow
}

fn udp_report(direction: UdpDirection, is_quic: bool, route: Route) -> FlowReport {
    let span = direction.span.unwrap_or_default();
    let protocol = if is_quic { "quic" } else { "udp" };
    let counts = (direction.packets, direction.bytes);
    let mut flow = report(protocol, route, counts, span, direction.arrivals);
    // A bit that changes twice a connection, or at random with each packet, is not spun.
    let spun = direction.rtt.count();
    let is_spun = spun > 2 && spun < direction.packets / 4;
    match (direction.rtt.quantile_ms(0.0), direction.least_rtt) {
        (Some(least), _) if is_spun => {
            let least_ns = (least * 1e6) as u64;
            flow.set_round_trips("spin bit", &direction.rtt, Some(least_ns));
        }
        (_, handshake) => flow.set_round_trips("handshake", &Times::default(), handshake),
    }
    flow
}
