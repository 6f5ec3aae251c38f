//! The wire format, version 2: bytes to packets and back, and nothing else.
//!
//! Every packet has a header, a body, a tag and padding. The tag ([`seal`](super::seal)) covers the
//! header and the body: all that a receiver acts on. Padding is the same in all packets, so that a receiver
//! knows it without a tag. Numbers are big-endian. The document
//! `docs/probe-wire-format.md` shows it byte by byte, with test vectors that the tests here check.
//!
//! Nothing read here is trusted. Every length and count is checked against the remaining bytes
//! before its use, and returned values borrow from the datagram.

use std::fmt;
use std::sync::LazyLock;

/// First byte of every packet.
pub const MAGIC: u8 = b'V';
/// Version of the format.
pub const VERSION: u8 = 2;
/// Bytes before the body.
pub const HEADER_BYTES: usize = 16;
/// Bytes of the tag that follows the body.
pub const TAG_BYTES: usize = 16;
/// A client's first packet has at least as many bytes of UDP payload: a path that carries less is
/// of no use, and no answer to it is longer.
pub const MIN_HELLO_BYTES: usize = 1200;
/// Largest packet number, connection's byte count or instant (ns) on the wire: sums of a few of them
/// do not overflow.
pub const MAX_NUMBER: u64 = (1 << 61) - 1;
/// Most ranges of packet numbers in one acknowledgement.
pub const MAX_RANGES: usize = 16;
/// Most runs of arrival times in one acknowledgement.
pub const MAX_RUNS: usize = 64;
/// Most packets whose arrival times one acknowledgement tells.
pub const MAX_TIMES: usize = 4096;
/// Longest token.
pub const MAX_TOKEN_BYTES: usize = 64;
/// Longest text in a refusal or a close.
pub const MAX_TEXT_BYTES: usize = 255;

/// The type of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A client asks for a test.
    Hello = 1,
    /// The server asks the client to prove its address.
    Retry = 2,
    /// The server grants the test.
    Accept = 3,
    /// The server does not grant it.
    Refuse = 4,
    /// A packet of a flow.
    Data = 5,
    /// Acknowledges packets of a flow.
    Ack = 6,
    /// How far an end's flows are.
    Status = 7,
    /// The client, or a server that must, ends the test.
    Close = 8,
    /// The answer to a close.
    Closed = 9,
    /// The server asks for proof of an address that changed.
    Challenge = 10,
    /// The proof that a challenge asks for.
    Response = 11,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        use Kind::*;
        [
            Hello, Retry, Accept, Refuse, Data, Ack, Status, Close, Closed, Challenge, Response,
        ]
        .into_iter()
        .find(|&kind| kind as u8 == byte)
    }
}

/// The bytes of padding, by their place in the packet: links cannot compress them.
static FILLER: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut filler = vec![0; 1 << 16];
    blake3::Hasher::new().finalize_xof().fill(&mut filler);
    filler
});

/// Pads `packet` from byte `from` on.
///
/// # Panics
/// If it is longer than 64 KiB.
#[inline]
pub fn pad(packet: &mut [u8], from: usize) {
    let end = packet.len();
    packet[from..].copy_from_slice(&FILLER[from..end]);
}

/// Why bytes are not a packet of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Shorter than a header and a tag, or than its own length field says.
    #[error("a packet of {0} bytes is cut short")]
    Short(usize),
    /// Not our first byte.
    #[error("not a Verus packet")]
    Foreign,
    /// Another version.
    #[error("version {0} is not one that this build speaks")]
    Version(u8),
    /// A kind that this version does not have, or reserved bits that are set.
    #[error("unknown kind of packet ({0})")]
    Kind(u8),
    /// A field of the body is missing, out of its range, or contradicts another.
    #[error("bad field in a {kind:?} packet: {field}")]
    Field {
        /// In this kind of packet.
        kind: Kind,
        /// Which field.
        field: &'static str,
    },
}

/// A datagram, split but not yet believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Its type.
    pub kind: Kind,
    /// Which flow it is about; 0 where that means nothing.
    pub flow: u16,
    /// The connection it says it belongs to; 0 before there is one.
    pub connection: u64,
    /// Header and body, which the tag covers.
    pub covered: &'a [u8],
    /// The body.
    pub body: &'a [u8],
    /// The tag.
    pub tag: &'a [u8],
    /// The padding up to the packet's size.
    pub padding: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Splits a datagram.
    ///
    /// # Errors
    /// If it is no packet of ours.
    #[inline]
    pub fn parse(datagram: &'a [u8]) -> Result<Self, Malformed> {
        let short = Malformed::Short(datagram.len());
        if datagram.first().is_some_and(|&byte| byte != MAGIC) {
            return Err(Malformed::Foreign);
        }
        if datagram.len() < HEADER_BYTES + TAG_BYTES {
            return Err(short);
        }
        let (header, _) = datagram.split_at(HEADER_BYTES);
        if header[1] != VERSION {
            return Err(Malformed::Version(header[1]));
        }
        let kind = Kind::from_byte(header[2]).ok_or(Malformed::Kind(header[2]))?;
        if header[3] != 0 {
            return Err(Malformed::Kind(header[2]));
        }
        let covered = usize::from(u16::from_be_bytes([header[4], header[5]]));
        if covered < HEADER_BYTES || covered + TAG_BYTES > datagram.len() {
            return Err(short);
        }
        let mut connection = [0; 8];
        connection.copy_from_slice(&header[8..16]);
        Ok(Packet {
            kind,
            flow: u16::from_be_bytes([header[6], header[7]]),
            connection: u64::from_be_bytes(connection),
            covered: &datagram[..covered],
            body: &datagram[HEADER_BYTES..covered],
            tag: &datagram[covered..covered + TAG_BYTES],
            padding: &datagram[covered + TAG_BYTES..],
        })
    }

    /// Its size, bytes (UDP payload).
    pub fn bytes(&self) -> usize {
        self.covered.len() + self.tag.len() + self.padding.len()
    }

    /// Whether its padding has the prescribed bytes.
    #[inline]
    pub fn is_padded(&self) -> bool {
        let from = self.covered.len() + self.tag.len();
        FILLER.get(from..from + self.padding.len()) == Some(self.padding)
    }

    fn fields(&self) -> Fields<'a> {
        Fields {
            kind: self.kind,
            rest: self.body,
        }
    }
}

/// Reads the fields of a body one after another.
struct Fields<'a> {
    kind: Kind,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn bad(&self, field: &'static str) -> Malformed {
        Malformed::Field {
            kind: self.kind,
            field,
        }
    }

    #[inline]
    fn bytes(&mut self, field: &'static str, count: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or_else(|| self.bad(field))?;
        self.rest = rest;
        Ok(bytes)
    }

    #[inline]
    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(field, N)?);
        Ok(array)
    }

    #[inline]
    fn u8(&mut self, field: &'static str) -> Result<u8, Malformed> {
        Ok(self.array::<1>(field)?[0])
    }

    #[inline]
    fn u16(&mut self, field: &'static str) -> Result<u16, Malformed> {
        self.array(field).map(u16::from_be_bytes)
    }

    #[inline]
    fn u32(&mut self, field: &'static str) -> Result<u32, Malformed> {
        self.array(field).map(u32::from_be_bytes)
    }

    /// A number of 8 bytes that later arithmetic may add to.
    #[inline]
    fn number(&mut self, field: &'static str) -> Result<u64, Malformed> {
        let number = self.array(field).map(u64::from_be_bytes)?;
        if number > MAX_NUMBER {
            return Err(self.bad(field));
        }
        Ok(number)
    }

    fn text(&mut self, field: &'static str, count: usize) -> Result<&'a str, Malformed> {
        let bytes = self.bytes(field, count)?;
        std::str::from_utf8(bytes).map_err(|_| self.bad(field))
    }

    fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.bad("bytes after the last field"))
        }
    }

    /// The options that end a body; the value of the one of `wanted` type. Unknown types are passed
    /// over, so that a later version may add some.
    #[inline]
    fn option(&mut self, wanted: u8) -> Result<Option<&'a [u8]>, Malformed> {
        let [found] = self.options([wanted])?;
        Ok(found)
    }

    /// The quiet before the load that an option states, ms.
    fn quiet(&mut self) -> Result<u16, Malformed> {
        let value = self.option(OPTION_QUIET)?;
        self.quiet_of(value)
    }

    fn quiet_of(&self, value: Option<&[u8]>) -> Result<u16, Malformed> {
        let Some(value) = value else {
            return Ok(0);
        };
        let millis = value.try_into().map(u16::from_be_bytes);
        match millis {
            Ok(millis) if (1..=MAX_QUIET_MILLIS).contains(&millis) => Ok(millis),
            _ => Err(self.bad("quiet")),
        }
    }

    /// The same of several types.
    #[inline]
    fn options<const N: usize>(
        &mut self,
        wanted: [u8; N],
    ) -> Result<[Option<&'a [u8]>; N], Malformed> {
        let mut options = [None; N];
        while !self.rest.is_empty() {
            let kind = self.u8("option type")?;
            let len = self.u8("option length")?;
            let value = self.bytes("option value", usize::from(len))?;
            if let Some(at) = wanted.iter().position(|wanted| *wanted == kind) {
                options[at] = Some(value);
            }
        }
        Ok(options)
    }
}

/// Writes one packet into a buffer that has room for it.
struct Writer<'a> {
    buffer: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    #[inline]
    fn new(buffer: &'a mut [u8], kind: Kind, flow: u16, connection: u64) -> Self {
        let mut writer = Writer { buffer, at: 0 };
        writer.bytes(&[MAGIC, VERSION, kind as u8, 0, 0, 0]);
        writer.bytes(&flow.to_be_bytes());
        writer.bytes(&connection.to_be_bytes());
        writer
    }

    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        self.buffer[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    #[inline]
    fn u64(&mut self, value: u64) {
        self.bytes(&value.to_be_bytes());
    }

    fn option(&mut self, kind: u8, value: &[u8]) {
        let len = u8::try_from(value.len()).expect("an option has at most 255 bytes");
        self.bytes(&[kind, len]);
        self.bytes(value);
    }

    fn quiet(&mut self, millis: u16) {
        if millis > 0 {
            self.option(OPTION_QUIET, &millis.to_be_bytes());
        }
    }

    /// Fills in the length; returns how many bytes the tag must cover.
    #[inline]
    fn finish(self) -> usize {
        let covered = u16::try_from(self.at).expect("a body is shorter than 64 KiB");
        self.buffer[4..6].copy_from_slice(&covered.to_be_bytes());
        self.at
    }
}

/// Option of a data packet: the message of the algorithm's sender half to its receiver half.
pub const OPTION_STAMP: u8 = 1;
/// Option of an acknowledgement: the message of the algorithm's receiver half to its sender half.
pub const OPTION_REPORT: u8 = 2;

/// Option of an accept: the most that the test may use of each direction, bit/s.
pub const OPTION_LIMIT: u8 = 3;
/// Option of an acknowledgement: how many packets arrived with a congestion mark.
pub const OPTION_MARKS: u8 = 4;
/// Option of a hello and of an accept: how long no data is sent at first, ms.
pub const OPTION_QUIET: u8 = 5;
/// Longest such time.
pub const MAX_QUIET_MILLIS: u16 = 5000;

/// Body of a [`Kind::Data`] packet. Padding follows the tag, up to the packet's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// The packet's number in its flow: never used twice.
    pub number: u64,
    /// When it left, ns by the sender's clock.
    pub sent_nanos: u64,
    /// Start of its data in the flow's stream, bytes.
    pub start: u64,
    /// Length of its data, bytes.
    pub len: u32,
    /// The stamp of the algorithm's sender half.
    pub stamp: Option<&'a [u8]>,
}

impl<'a> Data<'a> {
    /// Reads the body of `packet`.
    ///
    /// # Errors
    /// If a field is missing or out of its range.
    #[inline]
    pub fn decode(packet: &Packet<'a>) -> Result<Self, Malformed> {
        let mut fields = packet.fields();
        Ok(Data {
            number: fields.number("packet number")?,
            sent_nanos: fields.number("send time")?,
            start: fields.number("data start")?,
            len: fields.u32("data length")?,
            stamp: fields.option(OPTION_STAMP)?,
        })
    }

    /// Writes header and body; returns how many bytes the tag must cover.
    ///
    /// # Panics
    /// If `buffer` is too short.
    #[inline]
    pub fn encode(&self, flow: u16, connection: u64, buffer: &mut [u8]) -> usize {
        let mut writer = Writer::new(buffer, Kind::Data, flow, connection);
        writer.u64(self.number);
        writer.u64(self.sent_nanos);
        writer.u64(self.start);
        writer.bytes(&self.len.to_be_bytes());
        if let Some(stamp) = self.stamp {
            writer.option(OPTION_STAMP, stamp);
        }
        writer.finish()
    }
}

/// A run of packets that arrived together: `count` of them, the last `below` under the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// How far the run's last number is below the newest.
    pub below: u16,
    /// How many packets, of consecutive numbers.
    pub count: u16,
    /// How long before the acknowledgement left they arrived, ns; the largest value means that
    /// long or longer.
    pub age_nanos: u32,
}

/// Body of a [`Kind::Ack`] packet.
///
/// `spans` says from the newest number downward by turns how many were received and how many are
/// missing; it has an odd count. `runs` says when the latest of them arrived, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AckBody {
    /// Rises by one with each acknowledgement of the flow, repeats included.
    pub ack_number: u64,
    /// When it left, ns by the receiver's clock.
    pub sent_nanos: u64,
    /// Bytes of data received, copies not counted.
    pub distinct: u64,
    /// Largest number received.
    pub newest: u64,
    /// Received, missing, received, …
    pub spans: Vec<u32>,
    /// Arrival times.
    pub runs: Vec<Run>,
    /// How many packets arrived with a congestion mark (ECN) since the flow began, as a count that wraps around.
    pub marks: u32,
}

impl AckBody {
    /// Reads the body of `packet` into `self`, whose buffers are reused; returns the report of the
    /// algorithm's receiver half.
    ///
    /// # Errors
    /// If a field is missing or out of its range, if the ranges reach below zero, or if the runs
    /// are not descending and apart. `self` is of no use then.
    pub fn decode<'a>(&mut self, packet: &Packet<'a>) -> Result<Option<&'a [u8]>, Malformed> {
        let mut fields = packet.fields();
        self.ack_number = fields.number("acknowledgement number")?;
        self.sent_nanos = fields.number("send time")?;
        self.distinct = fields.number("distinct bytes")?;
        self.newest = fields.number("newest number")?;
        let spans = usize::from(fields.u8("span count")?);
        let runs = usize::from(fields.u8("run count")?);
        if spans.is_multiple_of(2) || spans > 2 * MAX_RANGES - 1 {
            return Err(fields.bad("span count"));
        }
        if runs > MAX_RUNS {
            return Err(fields.bad("run count"));
        }
        self.spans.clear();
        let mut lowest = self.newest + 1;
        for _ in 0..spans {
            let span = fields.u32("span")?;
            lowest = lowest
                .checked_sub(u64::from(span))
                .filter(|_| span > 0)
                .ok_or_else(|| fields.bad("span"))?;
            self.spans.push(span);
        }
        self.runs.clear();
        let (mut below, mut times) = (0u64, 0);
        for _ in 0..runs {
            let run = Run {
                below: fields.u16("run position")?,
                count: fields.u16("run length")?,
                age_nanos: fields.u32("run age")?,
            };
            let end = u64::from(run.below) + u64::from(run.count);
            times += usize::from(run.count);
            if u64::from(run.below) < below
                || run.count == 0
                || end > self.newest + 1
                || times > MAX_TIMES
            {
                return Err(fields.bad("run"));
            }
            below = end;
            self.runs.push(run);
        }
        let [report, marks] = fields.options([OPTION_REPORT, OPTION_MARKS])?;
        self.marks = match marks.map(<[u8; 4]>::try_from) {
            None => 0,
            Some(Ok(marks)) => u32::from_be_bytes(marks),
            Some(Err(_)) => return Err(fields.bad("marks")),
        };
        Ok(report)
    }

    /// Writes header and body; returns how many bytes the tag must cover.
    ///
    /// # Panics
    /// If `buffer` is too short for the spans, runs and report.
    pub fn encode(
        &self,
        flow: u16,
        connection: u64,
        report: Option<&[u8]>,
        buffer: &mut [u8],
    ) -> usize {
        let mut writer = Writer::new(buffer, Kind::Ack, flow, connection);
        writer.u64(self.ack_number);
        writer.u64(self.sent_nanos);
        writer.u64(self.distinct);
        writer.u64(self.newest);
        let count = |count: usize| u8::try_from(count).expect("bounded by the format");
        writer.bytes(&[count(self.spans.len()), count(self.runs.len())]);
        for span in &self.spans {
            writer.bytes(&span.to_be_bytes());
        }
        for run in &self.runs {
            writer.bytes(&run.below.to_be_bytes());
            writer.bytes(&run.count.to_be_bytes());
            writer.bytes(&run.age_nanos.to_be_bytes());
        }
        if let Some(report) = report {
            writer.option(OPTION_REPORT, report);
        }
        if self.marks > 0 {
            writer.option(OPTION_MARKS, &self.marks.to_be_bytes());
        }
        writer.finish()
    }
}

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Flows from the client to the server.
    pub upload_flows: u16,
    /// Flows from the server to the client.
    pub download_flows: u16,
    /// Size of data packets, bytes (IP).
    pub packet_bytes: u16,
    /// Interval of each end's statuses, ms.
    pub status_millis: u16,
    /// How long to send, ns; 0 for until `bytes` are delivered.
    pub duration_nanos: u64,
    /// How much data each flow sends, bytes; 0 for without end.
    pub bytes: u64,
    /// How fast each flow's source yields data, bit/s; 0 for at once.
    pub rate_bps: u64,
    /// Seeds the controllers.
    pub seed: u64,
    /// The controller, as on the command line.
    pub scheme: String,
}

/// One upload without an end, in packets of 1400 bytes, with a status each 100 ms; of no scheme.
impl Default for Request {
    fn default() -> Self {
        Request {
            upload_flows: 1,
            download_flows: 0,
            packet_bytes: 1400,
            status_millis: 100,
            duration_nanos: 0,
            bytes: 0,
            rate_bps: 0,
            seed: 1,
            scheme: String::new(),
        }
    }
}

/// Longest scheme text in a request.
pub const MAX_SCHEME_BYTES: usize = 512;

/// Body of a [`Kind::Hello`] packet, which is padded to [`MIN_HELLO_BYTES`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// Chosen by the client at random; names the attempt until there is a connection.
    pub nonce: [u8; 16],
    /// The server's token from a [`Kind::Retry`]; empty in the first hello.
    pub token: &'a [u8],
    /// The requested test.
    pub request: Request,
    /// How long neither end is to send data at first, ms; 0 for at once.
    pub quiet_millis: u16,
}

impl<'a> Hello<'a> {
    /// Reads the body of `packet`.
    ///
    /// # Errors
    /// If a field is missing or out of its range.
    pub fn decode(packet: &Packet<'a>) -> Result<Self, Malformed> {
        let mut fields = packet.fields();
        let nonce = fields.array("nonce")?;
        let token_bytes = usize::from(fields.u8("token length")?);
        if token_bytes > MAX_TOKEN_BYTES {
            return Err(fields.bad("token length"));
        }
        let token = fields.bytes("token", token_bytes)?;
        let request = Request {
            upload_flows: fields.u16("upload flows")?,
            download_flows: fields.u16("download flows")?,
            packet_bytes: fields.u16("packet size")?,
            status_millis: fields.u16("status interval")?,
            duration_nanos: fields.number("duration")?,
            bytes: fields.number("bytes")?,
            rate_bps: fields.number("rate")?,
            seed: fields.array("seed").map(u64::from_be_bytes)?,
            scheme: {
                let len = usize::from(fields.u16("scheme length")?);
                if len > MAX_SCHEME_BYTES {
                    return Err(fields.bad("scheme length"));
                }
                fields.text("scheme", len)?.to_owned()
            },
        };
        let quiet_millis = fields.quiet()?;
        Ok(Hello {
            nonce,
            token,
            request,
            quiet_millis,
        })
    }

    /// Writes header and body; returns how many bytes the tag must cover.
    ///
    /// # Panics
    /// If `buffer` is shorter than [`MIN_HELLO_BYTES`], or the token or the scheme too long.
    pub fn encode(&self, buffer: &mut [u8]) -> usize {
        let request = &self.request;
        let mut writer = Writer::new(buffer, Kind::Hello, 0, 0);
        writer.bytes(&self.nonce);
        writer.bytes(&[u8::try_from(self.token.len()).expect("a token is short")]);
        writer.bytes(self.token);
        writer.bytes(&request.upload_flows.to_be_bytes());
        writer.bytes(&request.download_flows.to_be_bytes());
        writer.bytes(&request.packet_bytes.to_be_bytes());
        writer.bytes(&request.status_millis.to_be_bytes());
        writer.u64(request.duration_nanos);
        writer.u64(request.bytes);
        writer.u64(request.rate_bps);
        writer.u64(request.seed);
        let len = u16::try_from(request.scheme.len()).expect("a scheme is short");
        writer.bytes(&len.to_be_bytes());
        writer.bytes(request.scheme.as_bytes());
        writer.quiet(self.quiet_millis);
        writer.finish()
    }
}

/// Body of a [`Kind::Retry`] packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry<'a> {
    /// The nonce of the hello that it answers.
    pub nonce: [u8; 16],
    /// To be sent back in the next hello.
    pub token: &'a [u8],
}

impl<'a> Retry<'a> {
    /// Reads the body of `packet`.
    ///
    /// # Errors
    /// If a field is missing or out of its range.
    pub fn decode(packet: &Packet<'a>) -> Result<Self, Malformed> {
        let mut fields = packet.fields();
        let nonce = fields.array("nonce")?;
        let len = usize::from(fields.u8("token length")?);
        if len > MAX_TOKEN_BYTES {
            return Err(fields.bad("token length"));
        }
        let token = fields.bytes("token", len)?;
        fields.end()?;
        Ok(Retry { nonce, token })
    }

    /// Writes header and body; returns how many bytes the tag must cover.
    pub fn encode(&self, buffer: &mut [u8]) -> usize {
        let mut writer = Writer::new(buffer, Kind::Retry, 0, 0);
        writer.bytes(&self.nonce);
        writer.bytes(&[u8::try_from(self.token.len()).expect("a token is short")]);
        writer.bytes(self.token);
        writer.finish()
    }
}

/// Body of a [`Kind::Accept`] packet; its header carries the new connection's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept {
    /// The nonce of the hello that it answers.
    pub client_nonce: [u8; 16],
    /// Chosen by the server at random; with the client's it makes the connection's keys.
    pub server_nonce: [u8; 16],
    /// Highest rate that the test may use in each direction, bit/s, if the server limits it.
    pub limit_bps: Option<u64>,
    /// How long neither end sends data at first, ms: as requested, if the server supports it.
    pub quiet_millis: u16,
}

impl Accept {
    /// Reads the body of `packet`.
    ///
    /// # Errors
    /// If a field is missing.
    pub fn decode(packet: &Packet<'_>) -> Result<Self, Malformed> {
        let mut fields = packet.fields();
        let (client_nonce, server_nonce) =
            (fields.array("client nonce")?, fields.array("server nonce")?);
        let [limit, quiet] = fields.options([OPTION_LIMIT, OPTION_QUIET])?;
        let quiet_millis = fields.quiet_of(quiet)?;
        let limit_bps = match limit {
            None => None,
            Some(bytes) => {
                let bytes = bytes.try_into().map_err(|_| fields.bad("limit"))?;
                let limit = u64::from_be_bytes(bytes);
                if limit == 0 || limit > MAX_NUMBER {
                    return Err(fields.bad("limit"));
                }
                Some(limit)
            }
        };
        Ok(Accept {
            client_nonce,
            server_nonce,
            limit_bps,
            quiet_millis,
        })
    }

    /// Writes header and body; returns how many bytes the tag must cover.
    pub fn encode(&self, connection: u64, buffer: &mut [u8]) -> usize {
        let mut writer = Writer::new(buffer, Kind::Accept, 0, connection);
        writer.bytes(&self.client_nonce);
        writer.bytes(&self.server_nonce);
        if let Some(limit) = self.limit_bps {
            writer.option(OPTION_LIMIT, &limit.to_be_bytes());
        }
        writer.quiet(self.quiet_millis);
        writer.finish()
    }
}

/// Why a test was refused or ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Reason {
    /// All is done.
    Done = 0,
    /// The request does not make sense.
    BadRequest = 1,
    /// The request is more than the server allows.
    Limit = 2,
    /// The server has as many tests as it takes.
    Busy = 3,
    /// The server or the client shuts down.
    ShuttingDown = 4,
    /// The peer acknowledged packets that it cannot have received.
    FalseAck = 5,
    /// The packets that the test needs are larger than the path takes.
    TooLarge = 6,
}

impl Reason {
    fn from_number(number: u16) -> Option<Self> {
        use Reason::*;
        [
            Done,
            BadRequest,
            Limit,
            Busy,
            ShuttingDown,
            FalseAck,
            TooLarge,
        ]
        .into_iter()
        .find(|&reason| reason as u16 == number)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Done => "done",
            Reason::BadRequest => "the request is not valid",
            Reason::Limit => "the request exceeds the server's limits",
            Reason::Busy => "the server is busy",
            Reason::ShuttingDown => "the peer shuts down",
            Reason::FalseAck => "packets were acknowledged that never arrived",
            Reason::TooLarge => "the packets are too large",
        })
    }
}

/// Body of a [`Kind::Refuse`] packet, which answers a hello, or of a [`Kind::Close`] packet, where
/// the nonce is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending<'a> {
    /// The nonce of the hello that it answers; zero in a close.
    pub nonce: [u8; 16],
    /// Why.
    pub reason: Reason,
    /// Details for a person.
    pub text: &'a str,
}

impl<'a> Ending<'a> {
    /// Reads the body of `packet`.
    ///
    /// # Errors
    /// If a field is missing or out of its range.
    pub fn decode(packet: &Packet<'a>) -> Result<Self, Malformed> {
        let mut fields = packet.fields();
        let nonce = fields.array("nonce")?;
        let reason = Reason::from_number(fields.u16("reason")?).ok_or(fields.bad("reason"))?;
        let len = usize::from(fields.u8("text length")?);
        let text = fields.text("text", len)?;
        fields.end()?;
        Ok(Ending {
            nonce,
            reason,
            text,
        })
    }

    /// Writes header and body; returns how many bytes the tag must cover. A text that is too long
    /// is cut.
    pub fn encode(&self, kind: Kind, connection: u64, buffer: &mut [u8]) -> usize {
        let mut end = self.text.len().min(MAX_TEXT_BYTES);
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let mut writer = Writer::new(buffer, kind, 0, connection);
        writer.bytes(&self.nonce);
        writer.bytes(&(self.reason as u16).to_be_bytes());
        writer.bytes(&[end as u8]);
        writer.bytes(&self.text.as_bytes()[..end]);
        writer.finish()
    }
}

/// How far one outgoing flow of the end that reports is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowStatus {
    /// The flow.
    pub flow: u16,
    /// Whether all that it had to send has been acknowledged, or its time is over.
    pub finished: bool,
    /// Packets sent.
    pub sent: u64,
    /// Of these, sent again.
    pub retransmitted: u64,
    /// Packets declared lost and not acknowledged after all.
    pub lost: u64,
    /// Retransmission timeouts.
    pub timeouts: u32,
    /// Bytes acknowledged.
    pub acked: u64,
    /// Window, bytes.
    pub window: u64,
    /// Last round-trip time, µs.
    pub rtt_micros: u32,
    /// Mean round-trip time so far, µs.
    pub rtt_mean_micros: u32,
    /// 95th percentile of the round-trip time so far, µs.
    pub rtt_p95_micros: u32,
}

impl FlowStatus {
    /// Bytes on the wire.
    pub const BYTES: usize = 59;

    fn decode(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        Ok(FlowStatus {
            flow: fields.u16("flow")?,
            finished: match fields.u8("finished")? {
                0 => false,
                1 => true,
                _ => return Err(fields.bad("finished")),
            },
            sent: fields.number("sent")?,
            retransmitted: fields.number("retransmitted")?,
            lost: fields.number("lost")?,
            timeouts: fields.u32("timeouts")?,
            acked: fields.number("acknowledged")?,
            window: fields.number("window")?,
            rtt_micros: fields.u32("rtt")?,
            rtt_mean_micros: fields.u32("mean rtt")?,
            rtt_p95_micros: fields.u32("rtt p95")?,
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        writer.bytes(&self.flow.to_be_bytes());
        writer.bytes(&[u8::from(self.finished)]);
        writer.u64(self.sent);
        writer.u64(self.retransmitted);
        writer.u64(self.lost);
        writer.bytes(&self.timeouts.to_be_bytes());
        writer.u64(self.acked);
        writer.u64(self.window);
        writer.bytes(&self.rtt_micros.to_be_bytes());
        writer.bytes(&self.rtt_mean_micros.to_be_bytes());
        writer.bytes(&self.rtt_p95_micros.to_be_bytes());
    }
}

/// Body of a [`Kind::Status`] packet: some of the reporting end's outgoing flows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Rises with each status of the connection.
    pub number: u64,
    /// Some flows; those of many take turns.
    pub flows: Vec<FlowStatus>,
}

impl Status {
    /// Most flows in one packet.
    pub const MAX_FLOWS: usize = 18;

    /// Reads the body of `packet` into `self`, whose buffer is reused.
    ///
    /// # Errors
    /// If a field is missing or out of its range.
    pub fn decode(&mut self, packet: &Packet<'_>) -> Result<(), Malformed> {
        let mut fields = packet.fields();
        self.number = fields.number("status number")?;
        let count = usize::from(fields.u8("flow count")?);
        if count > Status::MAX_FLOWS {
            return Err(fields.bad("flow count"));
        }
        self.flows.clear();
        for _ in 0..count {
            self.flows.push(FlowStatus::decode(&mut fields)?);
        }
        fields.option(0)?;
        Ok(())
    }

    /// Writes header and body; returns how many bytes the tag must cover.
    pub fn encode(&self, connection: u64, buffer: &mut [u8]) -> usize {
        let mut writer = Writer::new(buffer, Kind::Status, 0, connection);
        writer.u64(self.number);
        writer.bytes(&[u8::try_from(self.flows.len()).expect("few flows a packet")]);
        for flow in &self.flows {
            flow.encode(&mut writer);
        }
        writer.finish()
    }
}

/// Reads the 16 bytes that a [`Kind::Challenge`] or [`Kind::Response`] packet carries.
///
/// # Errors
/// If there are more or fewer.
pub fn decode_challenge(packet: &Packet<'_>) -> Result<[u8; 16], Malformed> {
    let mut fields = packet.fields();
    let challenge = fields.array("challenge")?;
    fields.end()?;
    Ok(challenge)
}

/// Writes a packet with `body` unchanged; returns how many bytes the tag must cover.
pub fn encode_plain(kind: Kind, connection: u64, body: &[u8], buffer: &mut [u8]) -> usize {
    let mut writer = Writer::new(buffer, kind, 0, connection);
    writer.bytes(body);
    writer.finish()
}

/// Reads any packet as far as its kind goes: for fuzzing, and for programs that display packets.
///
/// # Errors
/// If it is not a packet of ours, or a field of its body is missing or out of its range.
pub fn inspect(datagram: &[u8]) -> Result<Kind, Malformed> {
    let packet = Packet::parse(datagram)?;
    match packet.kind {
        Kind::Hello => drop(Hello::decode(&packet)?),
        Kind::Retry => drop(Retry::decode(&packet)?),
        Kind::Accept => drop(Accept::decode(&packet)?),
        Kind::Refuse | Kind::Close => drop(Ending::decode(&packet)?),
        Kind::Data => drop(Data::decode(&packet)?),
        Kind::Ack => drop(AckBody::default().decode(&packet)?),
        Kind::Status => Status::default().decode(&packet)?,
        Kind::Closed => packet.fields().end()?,
        Kind::Challenge | Kind::Response => drop(decode_challenge(&packet)?),
    }
    Ok(packet.kind)
}
