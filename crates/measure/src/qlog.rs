//! A flow as qlog, as its sender sees it: one writer for simulator, emulator and transports.
//!
//! The same events in two dialects. [`Dialect::Draft`] follows the IETF's present drafts (main
//! schema, QUIC events -13), as a JSON text sequence. [`Dialect::Compatible`] is version 0.3 in one
//! JSON document, which the viewer qvis opens. `docs/qlog.md` defines each event, and the fields
//! that readers need.
//!
//! A log streams: it keeps one event in memory, and its writer decides where bytes go. It ends at a
//! [limit](Qlog::new), which its last event reports. A host that drives a core [`Sender`] reports
//! the sender's events ([`on_sent`](Qlog::on_sent), [`on_heard`](Qlog::on_heard),
//! [`on_timer`](Qlog::on_timer), [`look`](Qlog::look)). A host of a bare controller reports packets
//! itself.

use std::fmt;
use std::io::{self, Write};

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use serde_json::{Number, json};
use verus_core::rtt::RttEstimate;
use verus_core::sender::{Hosted, Sender, Transmit};
use verus_core::{Bytes, Controller, Duration, Phase, Time};

/// Default limit of a file's size, bytes: some 130,000 packets with all their events.
pub const LIMIT: u64 = 64 << 20;

/// Bytes of the limit reserved for the event that reports it and for closing brackets.
const RESERVE: u64 = 512;

/// Minimum interval between two events with an algorithm's probes: two epochs of Verus.
const SHOWN_EVERY: Duration = Duration::from_millis(10);

/// Time between two events with a delay profile, as the paper draws them (Fig. 7b).
const PROFILE_EVERY: Duration = Duration::from_secs(5);

/// The schemas that define the events of a trace in the drafts' dialect (main schema, event
/// schemas). Drafts carry their number; the last is that of the events in the namespace `verus`,
/// defined in `docs/qlog.md`.
const EVENT_SCHEMAS: [&str; 4] = [
    "urn:ietf:params:qlog:events:quic-13",
    "urn:ietf:params:qlog:events:simulation",
    "urn:ietf:params:qlog:events:loglevel",
    "https://github.com/verus-cc/verus/112026/qlog",
];

/// In which words a log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// The current drafts, a record for each event (RFC 7464). The output so far is a valid log at
    /// any time.
    #[default]
    Draft,
    /// qlog 0.3 in one JSON document, which is valid once it has ended.
    Compatible,
}

impl Dialect {
    /// Both.
    pub const ALL: [Dialect; 2] = [Dialect::Draft, Dialect::Compatible];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Dialect::Draft => "draft",
            Dialect::Compatible => "0.3",
        }
    }

    /// The extension of such files.
    pub const fn extension(self) -> &'static str {
        match self {
            Dialect::Draft => "sqlog",
            Dialect::Compatible => "qlog",
        }
    }
}

/// An unknown dialect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("qlog format `{0}` is none of `draft` and `0.3`")]
pub struct UnknownDialect(String);

impl std::str::FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let dialect = Dialect::ALL.into_iter().find(|d| d.name() == text);
        dialect.ok_or_else(|| UnknownDialect(text.to_owned()))
    }
}

/// The subject of a log: the details of its first event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Subject {
    /// The congestion controller, as its text.
    pub scheme: String,
    /// The flow's carrier: `simulated`, `udp` or `quic`.
    pub transport: &'static str,
    /// The channel that it crosses, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The seed of the run, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Which flow of the run, from 0.
    pub flow: u32,
    /// Whether the sender accepted the connection (`server`) rather than began it (`client`).
    #[serde(skip)]
    pub is_server: bool,
}

impl Subject {
    fn title(&self) -> String {
        let mut title = format!("{}, {}", self.scheme, self.transport);
        if let Some(channel) = &self.channel {
            title += &format!(", {channel}");
        }
        if let Some(seed) = self.seed {
            title += &format!(", seed {seed}");
        }
        title + &format!(", flow {}", self.flow)
    }
}

/// The name of a file for the log of this flow, of letters, digits, `.`, `-`, `+`, `=` and `_` alone.
#[must_use]
pub fn file_name(subject: &Subject, dialect: Dialect) -> String {
    let mut parts = vec![subject.scheme.clone()];
    parts.extend(subject.channel.clone());
    parts.extend(subject.seed.map(|seed| format!("seed{seed}")));
    parts.push(format!("flow{}", subject.flow));
    format!("{}.{}", file_stem(&parts), dialect.extension())
}

/// A file's name of these parts, without what file systems or shells may not take.
pub fn file_stem(parts: &[String]) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || ".-+=_".contains(letter);
    let kept = |part: &String| -> String {
        // Of a long path, its end says more.
        let beyond = part.chars().count().saturating_sub(LONGEST_PART);
        let letters = part.chars().skip(beyond);
        letters.map(|c| if is_plain(c) { c } else { '-' }).collect()
    };
    let parts: Vec<String> = parts.iter().map(kept).collect();
    parts.join("_").trim_start_matches('.').to_owned()
}

/// Of each part of a file's name: two of them and the numbers stay below the 255 that file systems take.
const LONGEST_PART: usize = 100;

/// The outcome of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its length, in bytes.
    pub bytes: u64,
    /// Whether the limit cut it off.
    pub cut: bool,
}

/// Why writing has ended.
#[derive(Debug)]
enum Over {
    Cut,
    Failed(io::Error),
}

/// A log being written.
pub struct Qlog {
    out: Box<dyn Write + Send>,
    dialect: Dialect,
    limit: u64,
    written: u64,
    over: Option<Over>,
    /// The event in hand; kept for its room.
    line: Vec<u8>,
    /// The numbers that an acknowledgement reveals; kept for their room.
    numbers: Vec<u64>,
    /// Whether there is an event already.
    any: bool,
    /// The offset added to a connection's packet numbers, so that those of the trace are unique;
    /// and the next number.
    base: u64,
    next_number: u64,
    connection: u64,
    timeouts: u64,
    reported: SenderMetrics,
    phase: Option<Phase>,
    shown: Vec<(&'static str, f64)>,
    show_at: Time,
    profile_at: Time,
}

impl fmt::Debug for Qlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Qlog")
            .field("dialect", &self.dialect)
            .field("written", &self.written)
            .finish_non_exhaustive()
    }
}

// The data of events, under the drafts' names.

#[derive(Serialize)]
struct Event<'a, D> {
    time: f64,
    name: &'static str,
    data: &'a D,
}

#[derive(Serialize)]
struct Header {
    packet_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    packet_number: Option<u64>,
}

impl Header {
    fn of(packet_number: Option<u64>) -> Self {
        Header {
            packet_type: "1RTT",
            packet_number,
        }
    }
}

#[derive(Serialize)]
struct Raw {
    length: u64,
}

#[derive(Serialize)]
struct PacketSent {
    header: Header,
    raw: Raw,
    /// Empty: qvis looks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    frames: Option<[(); 0]>,
}

#[derive(Serialize)]
struct PacketReceived<'a> {
    header: Header,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw: Option<Raw>,
    frames: [AckFrame<'a>; 1],
}

#[derive(Serialize)]
struct AckFrame<'a> {
    frame_type: &'static str,
    acked_ranges: Ranges<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ce: Option<u64>,
}

/// Ascending numbers, written as ranges.
struct Ranges<'a> {
    numbers: &'a [u64],
    base: u64,
    dialect: Dialect,
}

impl Serialize for Ranges<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut ranges = serializer.serialize_seq(None)?;
        for run in self.numbers.chunk_by(|a, b| a + 1 == *b) {
            let (first, last) = (self.base + run[0], self.base + run[run.len() - 1]);
            if first == last && self.dialect == Dialect::Draft {
                ranges.serialize_element(&[first])?; // as the draft would have it (AckFrame)
            } else {
                ranges.serialize_element(&[first, last])?;
            }
        }
        ranges.end()
    }
}

#[derive(Serialize)]
struct PacketLost {
    header: Header,
    #[serde(skip_serializing_if = "Option::is_none")]
    trigger: Option<&'static str>,
}

/// Quantities that have a value, by name: times in ms, sizes in bytes, the rate in bit/s.
#[derive(Clone, Debug, Default, PartialEq)]
struct SenderMetrics([(&'static str, Option<Number>); 7]);

impl SenderMetrics {
    fn of(controller: &dyn Controller, in_flight: Bytes, rtt: &RttEstimate) -> Self {
        let has_rtt = rtt.least().is_some();
        let ms = |span: Duration| Number::from_f64(span.as_millis_f64()).filter(|_| has_rtt);
        let pacing_rate = controller.pacing_rate().map(|rate| rate.as_bps().into());
        SenderMetrics([
            ("min_rtt", rtt.least().and_then(ms)),
            ("smoothed_rtt", ms(rtt.smoothed())),
            ("latest_rtt", ms(rtt.latest())),
            ("rtt_variance", ms(rtt.deviation())),
            ("congestion_window", Some(controller.window().get().into())),
            ("bytes_in_flight", Some(in_flight.get().into())),
            ("pacing_rate", pacing_rate),
        ])
    }

    /// The metrics that differ from `before`.
    fn since(mut self, before: &SenderMetrics) -> SenderMetrics {
        for ((_, now), (_, before)) in self.0.iter_mut().zip(&before.0) {
            if now == before {
                *now = None;
            }
        }
        self
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, value)| value.is_none())
    }
}

impl Serialize for SenderMetrics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let with_value =
            |(name, value): &(&'static str, Option<Number>)| Some((*name, value.clone()?));
        serializer.collect_map(self.0.iter().filter_map(with_value))
    }
}

#[derive(Serialize)]
struct CongestionState {
    #[serde(skip_serializing_if = "Option::is_none")]
    old: Option<&'static str>,
    new: &'static str,
}

#[derive(Serialize)]
struct Scenario<'a> {
    name: String,
    details: &'a Subject,
}

#[derive(Serialize)]
struct Warning {
    message: String,
}

#[derive(Serialize)]
struct ConnectionStarted {
    connection: u64,
    first_packet_number: u64,
}

#[derive(Serialize)]
struct ProfileUpdated<'a> {
    points: &'a [(f64, f64)],
    curve: &'a [(f64, f64)],
}

/// Quantities by name, without those that JSON has no number for.
struct Shown<'a>(&'a [(&'static str, f64)]);

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let finite = self.0.iter().filter(|(_, value)| value.is_finite());
        serializer.collect_map(finite.copied())
    }
}

/// Which event, in either dialect.
#[derive(Clone, Copy)]
enum Name {
    PacketSent,
    PacketReceived,
    PacketLost,
    Metrics,
    CongestionState,
    Scenario,
    Warning,
    Connection,
    Controller,
    Profile,
}

impl Name {
    const fn text(self, dialect: Dialect) -> &'static str {
        match (self, dialect) {
            (Name::PacketSent, Dialect::Draft) => "quic:packet_sent",
            (Name::PacketReceived, Dialect::Draft) => "quic:packet_received",
            (Name::PacketLost, Dialect::Draft) => "quic:packet_lost",
            (Name::Metrics, Dialect::Draft) => "quic:recovery_metrics_updated",
            (Name::CongestionState, Dialect::Draft) => "quic:congestion_state_updated",
            (Name::PacketSent, Dialect::Compatible) => "transport:packet_sent",
            (Name::PacketReceived, Dialect::Compatible) => "transport:packet_received",
            (Name::PacketLost, Dialect::Compatible) => "recovery:packet_lost",
            (Name::Metrics, Dialect::Compatible) => "recovery:metrics_updated",
            (Name::CongestionState, Dialect::Compatible) => "recovery:congestion_state_updated",
            (Name::Scenario, _) => "simulation:scenario",
            (Name::Warning, _) => "loglevel:warning",
            (Name::Connection, _) => "verus:connection_started",
            (Name::Controller, _) => "verus:controller_updated",
            (Name::Profile, _) => "verus:profile_updated",
        }
    }
}

/// Between two records, and behind the last.
const RECORD: u8 = 0x1e;
const END: &[u8] = b"\n]}]}\n";

impl Qlog {
    /// Begins a log that is at most `limit` bytes long and ends up in `out`; buffering is the caller's.
    pub fn new(
        out: impl Write + Send + 'static,
        dialect: Dialect,
        limit: u64,
        subject: &Subject,
        now: Time,
    ) -> Self {
        let mut log = Qlog {
            out: Box::new(out),
            dialect,
            limit,
            written: 0,
            over: None,
            line: Vec::new(),
            numbers: Vec::new(),
            any: false,
            base: 0,
            next_number: 0,
            connection: 0,
            timeouts: 0,
            reported: SenderMetrics::default(),
            phase: None,
            shown: Vec::new(),
            show_at: Time::ZERO,
            profile_at: now + PROFILE_EVERY,
        };
        log.head(subject);
        let scenario = Scenario {
            name: subject.title(),
            details: subject,
        };
        log.event(now, Name::Scenario, &scenario);
        log
    }

    fn head(&mut self, subject: &Subject) {
        let (title, flow) = (json!(subject.title()), subject.flow);
        let vantage_point = match subject.is_server {
            true => r#"{"name":"sender","type":"server"}"#,
            false => r#"{"name":"sender","type":"client"}"#,
        };
        let head = match self.dialect {
            Dialect::Draft => {
                let schemas = json!(EVENT_SCHEMAS);
                format!(
                    concat!(
                        "\u{1e}",
                        r#"{{"file_schema":"urn:ietf:params:qlog:file:sequential","#,
                        r#""serialization_format":"application/qlog+json-seq","title":{},"#,
                        r#""trace":{{"event_schemas":{},"vantage_point":{},"#,
                        r#""common_fields":{{"time_format":"relative_to_epoch","#,
                        r#""reference_time":{{"clock_type":"monotonic","epoch":"unknown"}},"#,
                        r#""group_id":"flow-{}"}}}}}}"#,
                        "\n"
                    ),
                    title, schemas, vantage_point, flow
                )
            }
            // `relative` would need a reference time, and there is none.
            Dialect::Compatible => format!(
                concat!(
                    r#"{{"qlog_version":"0.3","qlog_format":"JSON","title":{},"#,
                    r#""traces":[{{"vantage_point":{},"#,
                    r#""common_fields":{{"time_format":"absolute","ODCID":"00"}},"events":["#
                ),
                title, vantage_point
            ),
        };
        self.line.extend_from_slice(head.as_bytes());
        self.flush_line();
    }

    /// Appends a value to the line.
    fn json(&mut self, value: &impl Serialize) {
        serde_json::to_writer(&mut self.line, value).expect("plain data into memory");
    }

    /// Writes an event, or a message that the log is full.
    fn event(&mut self, now: Time, name: Name, data: &impl Serialize) {
        if self.over.is_some() {
            return;
        }
        let any = self.any;
        self.put(now, name, data);
        if self.written + self.line.len() as u64 + RESERVE > self.limit {
            self.line.clear();
            self.any = any;
            let message = format!(
                "cut off here: the log has reached its limit of {} bytes",
                self.limit
            );
            self.put(now, Name::Warning, &Warning { message });
            self.flush_line();
            self.over.get_or_insert(Over::Cut);
        } else {
            self.flush_line();
        }
    }

    fn put(&mut self, now: Time, name: Name, data: &impl Serialize) {
        match self.dialect {
            Dialect::Draft => self.line.push(RECORD),
            Dialect::Compatible if self.any => self.line.extend_from_slice(b",\n"),
            Dialect::Compatible => self.line.push(b'\n'),
        }
        self.any = true;
        self.json(&Event {
            time: now.as_millis_f64(),
            name: name.text(self.dialect),
            data,
        });
        if self.dialect == Dialect::Draft {
            self.line.push(b'\n');
        }
    }

    fn flush_line(&mut self) {
        match self.out.write_all(&self.line) {
            Ok(()) => self.written += self.line.len() as u64,
            Err(error) => self.over = Some(Over::Failed(error)),
        }
        self.line.clear();
    }

    // Packets.

    /// The packet with this number left; numbers ascend within a connection.
    pub fn sent(&mut self, now: Time, number: u64, size: Bytes) {
        let number = self.base + number;
        self.next_number = self.next_number.max(number + 1);
        let packet = PacketSent {
            header: Header::of(Some(number)),
            raw: Raw { length: size.get() },
            frames: (self.dialect == Dialect::Compatible).then_some([]),
        };
        self.event(now, Name::PacketSent, &packet);
    }

    /// An acknowledgement, of `size` bytes if known, was the first to report these packets as
    /// arrived. `ce` packets bore a congestion mark so far, in a connection whose packets may.
    pub fn acknowledged(
        &mut self,
        now: Time,
        numbers: impl Iterator<Item = u64>,
        size: Option<Bytes>,
        ce: Option<u64>,
    ) {
        let mut sorted = std::mem::take(&mut self.numbers);
        sorted.clear();
        sorted.extend(numbers);
        if !sorted.is_empty() {
            sorted.sort_unstable();
            let acked_ranges = Ranges {
                numbers: &sorted,
                base: self.base,
                dialect: self.dialect,
            };
            let packet = PacketReceived {
                header: Header::of(None),
                raw: size.map(|size| Raw { length: size.get() }),
                frames: [AckFrame {
                    frame_type: "ack",
                    acked_ranges,
                    ce,
                }],
            };
            self.event(now, Name::PacketReceived, &packet);
        }
        self.numbers = sorted;
    }

    /// The packet with this number is lost.
    pub fn lost(&mut self, now: Time, number: u64, trigger: Option<Trigger>) {
        let packet = PacketLost {
            header: Header::of(Some(self.base + number)),
            trigger: trigger.map(Trigger::name),
        };
        self.event(now, Name::PacketLost, &packet);
    }

    /// Later events belong to another connection, whose packets count from 0; packets in flight of
    /// the last one are forgotten.
    pub fn next_connection(&mut self, now: Time) {
        self.base = self.next_number;
        self.connection += 1;
        self.timeouts = 0;
        self.reported = SenderMetrics::default();
        let started = ConnectionStarted {
            connection: self.connection,
            first_packet_number: self.base,
        };
        self.event(now, Name::Connection, &started);
    }

    /// Writes the changes of the controller, the bytes in flight and the round-trip times.
    pub fn state(
        &mut self,
        now: Time,
        controller: &dyn Controller,
        in_flight: Bytes,
        rtt: &RttEstimate,
    ) {
        if self.over.is_some() {
            return;
        }
        let metrics = SenderMetrics::of(controller, in_flight, rtt);
        let news = metrics.clone().since(&self.reported);
        if !news.is_empty() {
            self.reported = metrics;
            self.event(now, Name::Metrics, &news);
        }
        let phase = controller.phase();
        if let Some(new) = phase.filter(|_| phase != self.phase) {
            let state = CongestionState {
                old: self.phase.map(Phase::name),
                new: new.name(),
            };
            self.phase = phase;
            self.event(now, Name::CongestionState, &state);
        }
        if now >= self.show_at {
            self.show_at = now + SHOWN_EVERY;
            self.show(now, controller);
        }
        if now >= self.profile_at {
            self.profile_at = now + PROFILE_EVERY;
            if let Some(profile) = controller.profile() {
                let (points, curve) = (&profile.points, &profile.curve);
                self.event(now, Name::Profile, &ProfileUpdated { points, curve });
            }
        }
    }

    /// Writes the algorithm's probes, if any has changed.
    fn show(&mut self, now: Time, controller: &dyn Controller) {
        let mut shown = std::mem::take(&mut self.shown);
        let (mut at, mut changed) = (0, false);
        controller.probe(&mut |name, value: f64| {
            if at == shown.len() {
                shown.push((name, f64::NAN));
            }
            let before = &mut shown[at];
            changed |= value.is_finite() && *before != (name, value);
            *before = (name, value);
            at += 1;
        });
        shown.truncate(at);
        if changed {
            self.event(now, Name::Controller, &Shown(&shown));
        }
        self.shown = shown;
    }

    // Events of a sender of the core.

    /// A sender sent this packet.
    pub fn on_sent(&mut self, now: Time, transmit: &Transmit) {
        self.sent(now, transmit.number, transmit.size);
    }

    /// A sender has processed an acknowledgement, of `size` bytes if known.
    pub fn on_heard<C: Hosted>(&mut self, now: Time, sender: &Sender<C>, size: Option<Bytes>) {
        let revealed = sender.last_revealed();
        let arrived = revealed.acked.iter().chain(&revealed.recovered);
        let ce = (sender.ecn() != verus_core::Ecn::NotEct).then_some(sender.counters().marked);
        self.acknowledged(now, arrived.map(|acked| acked.packet.number), size, ce);
        for packet in &revealed.lost {
            // By packets that overtook it or by time, as the ledger's rule says.
            self.lost(now, packet.number, None);
        }
    }

    /// A sender's timer went off.
    pub fn on_timer<C: Hosted>(&mut self, now: Time, sender: &Sender<C>) {
        let timeouts = sender.counters().timeouts;
        let trigger = if timeouts == self.timeouts {
            Trigger::TimeThreshold
        } else {
            Trigger::Timeout
        };
        self.timeouts = timeouts;
        for packet in &sender.last_revealed().lost {
            self.lost(now, packet.number, Some(trigger));
        }
    }

    /// Writes a sender's changes.
    pub fn look<C: Hosted>(&mut self, now: Time, sender: &Sender<C>) {
        self.state(now, sender.controller(), sender.in_flight(), sender.rtt());
    }

    /// Ends the log.
    ///
    /// # Errors
    /// The first error while it was written.
    pub fn finish(mut self) -> io::Result<Written> {
        if let Some(Over::Failed(error)) = self.over {
            return Err(error);
        }
        if self.dialect == Dialect::Compatible {
            self.out.write_all(END)?;
            self.written += END.len() as u64;
        }
        self.out.flush()?;
        Ok(Written {
            bytes: self.written,
            cut: matches!(self.over, Some(Over::Cut)),
        })
    }
}

/// How a sender came to believe a packet lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// It had been missed for this long (RFC 9002 §6.1.2, or the algorithm's rule).
    TimeThreshold,
    /// Nothing was acknowledged for this long (RFC 9002 §6.2).
    Timeout,
}

impl Trigger {
    const fn name(self) -> &'static str {
        match self {
            Trigger::TimeThreshold => "time_threshold",
            Trigger::Timeout => "pto_expired",
        }
    }
}
