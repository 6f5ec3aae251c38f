//! Reads captures: pcapng and pcap, of either byte order, plain or compressed. Every byte may be hostile.
//!
//! Memory is bounded by the largest block, [`LARGEST_BLOCK`], and [`MOST_INTERFACES`].

use std::io::{self, Read};

use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{Block, LegacyPcapReader, PcapBlockOwned, PcapError, PcapNGReader};

/// The largest block that is read, in bytes, as Wireshark's.
pub const LARGEST_BLOCK: usize = 16 << 20;

/// How many interfaces of a section are read.
pub const MOST_INTERFACES: usize = 1024;

/// Room for a packet of the largest snapshot length that tcpdump takes.
const BUFFER: usize = 1 << 19;

/// pcapng's first block (its section header), the same in both byte orders.
const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// The type of pcapng's obsolete Packet Block.
const PACKET_BLOCK: u32 = 2;

/// pcap's magic numbers, with microseconds and nanoseconds.
const PCAP: [u32; 2] = [0xa1b2_c3d4, 0xa1b2_3c4d];

/// Reasons for which a read may fail: the parser does not pass on which it was.
const UNREADABLE: &str = "the system refused, or the compressed data are damaged or cut short";

/// Why a capture cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("`{name}`, byte {offset}: {problem}")]
pub struct Error {
    /// The file.
    pub name: String,
    /// Where in it, after decompression.
    pub offset: u64,
    /// The problem.
    pub problem: Problem,
}

/// The problem of a capture.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// It cannot be read.
    #[error("cannot be read ({0})")]
    Io(#[from] io::Error),
    /// It has another format.
    #[error("is no capture: neither pcapng nor pcap")]
    Unknown,
    /// A block or a record contradicts itself.
    #[error("damaged: its lengths contradict each other, or its type is none of the format")]
    Damaged,
    /// A block is too large.
    #[error("a block of more than {} MiB; the file is damaged, or no capture", LARGEST_BLOCK >> 20)]
    TooLarge,
    /// A packet names an interface that the file does not describe.
    #[error("a packet of interface {0}, which the file does not describe")]
    NoInterface(u32),
    /// There are too many interfaces.
    #[error("more than {MOST_INTERFACES} interfaces")]
    Interfaces,
    /// A packet has no time.
    #[error(
        "packet {0} has no time (a Simple Packet Block of pcapng), so rates and round trips are unknown"
    )]
    NoTime(u64),
    /// A packet lies in a block that pcapng has given up.
    #[error(
        "packet {0} lies in a Packet Block, which pcapng has replaced: `editcap IN OUT` writes the file in its present form"
    )]
    Obsolete(u64),
    /// A time is out of range.
    #[error("an interface whose time resolution is finer than 2⁻⁶³ or 10⁻¹⁹ s")]
    Resolution,
}

/// Where packets were captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name, if the file has one.
    pub name: Option<String>,
    /// Its link type, as <https://www.tcpdump.org/linktypes.html> numbers them.
    pub link: i32,
    /// Ticks of its clock in a second.
    ticks: u64,
    /// Seconds to add.
    offset_s: i64,
}

/// A packet of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Captured<'a> {
    /// Index of its interface in the list, which counts through all sections.
    pub interface: usize,
    /// Nanoseconds since 1970.
    pub at: u64,
    /// Its whole length in bytes, link header included.
    pub length: u32,
    /// The captured bytes of it.
    pub data: &'a [u8],
}

/// The outcome of reading to the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// All interfaces, of all sections.
    pub interfaces: Vec<Interface>,
    /// Whether the file ends within a block, which was left out.
    pub is_cut: bool,
}

/// Whether a file that begins like this may be a capture.
pub fn is_capture(first: &[u8]) -> bool {
    let Some(first) = first.first_chunk::<4>() else {
        return false;
    };
    let magic = [u32::from_be_bytes(*first), u32::from_le_bytes(*first)];
    *first == SECTION_HEADER || magic.iter().any(|magic| PCAP.contains(magic))
}

/// Hands each packet of a capture to `visit`, with the interfaces so far. `name` is what messages call it.
///
/// # Errors
/// If it is no capture, is damaged, or cannot be read. A file that merely ends too early is read up to there.
pub fn for_each(
    name: &str,
    bytes: impl Read,
    mut visit: impl FnMut(&[Interface], Captured<'_>),
) -> Result<Ended, Error> {
    let fail = |offset: usize, problem: Problem| Error {
        name: name.to_owned(),
        offset: offset as u64,
        problem,
    };
    let (mut bytes, mut first) = (Full::new(bytes), [0; 4]);
    let count = bytes
        .read(&mut first)
        .map_err(|error| fail(0, error.into()))?;
    if !is_capture(&first[..count]) {
        return Err(fail(0, Problem::Unknown));
    }
    let is_ng = first == SECTION_HEADER;
    let whole = Full::new(io::Cursor::new(first).chain(bytes));
    let opened: Result<Box<dyn PcapReaderIterator>, _> = if is_ng {
        PcapNGReader::new(BUFFER, whole).map(|reader| Box::new(reader) as _)
    } else {
        LegacyPcapReader::new(BUFFER, whole).map(|reader| Box::new(reader) as _)
    };
    let mut reader = match opened {
        Ok(reader) => reader,
        Err(PcapError::ReadError) => {
            return Err(fail(0, io::Error::other(UNREADABLE).into()));
        }
        Err(_) => return Err(fail(0, Problem::Damaged)),
    };
    let mut ended = Ended::default();
    // Of the section that is being read, the first interface's place in the list.
    let mut section = 0;
    let mut packets = 0;
    let (mut capacity, mut nanoseconds) = (BUFFER, false);
    loop {
        let at = reader.consumed();
        let read = match reader.next() {
            Ok((length, block)) => {
                let Ended { interfaces, .. } = &mut ended;
                match block {
                    PcapBlockOwned::LegacyHeader(header) => {
                        nanoseconds = header.is_nanosecond_precision();
                        interfaces.push(Interface {
                            name: None,
                            // The upper bits say whether frames end in a checksum.
                            link: header.network.0 & 0xffff,
                            ticks: if nanoseconds {
                                1_000_000_000
                            } else {
                                1_000_000
                            },
                            offset_s: 0,
                        });
                    }
                    PcapBlockOwned::Legacy(record) => {
                        let fraction = u64::from(record.ts_usec);
                        let fraction = fraction * if nanoseconds { 1 } else { 1000 };
                        let captured = Captured {
                            interface: 0,
                            at: u64::from(record.ts_sec) * 1_000_000_000 + fraction,
                            length: record.origlen,
                            data: record.data,
                        };
                        packets += 1;
                        visit(interfaces, captured);
                    }
                    PcapBlockOwned::NG(Block::SectionHeader(_)) => section = interfaces.len(),
                    PcapBlockOwned::NG(Block::InterfaceDescription(description)) => {
                        if interfaces.len() == MOST_INTERFACES {
                            return Err(fail(at, Problem::Interfaces));
                        }
                        let name = description.if_name().and_then(Result::ok);
                        let ticks = ticks(description.if_tsresol);
                        interfaces.push(Interface {
                            name: name.map(|name| name.trim_end_matches('\0').to_owned()),
                            link: description.linktype.0,
                            ticks: ticks.ok_or_else(|| fail(at, Problem::Resolution))?,
                            offset_s: description.if_tsoffset,
                        });
                    }
                    PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                        let place = section.saturating_add(packet.if_id as usize);
                        let Some(interface) = interfaces.get(place) else {
                            return Err(fail(at, Problem::NoInterface(packet.if_id)));
                        };
                        let stamp = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                        let captured = Captured {
                            interface: place,
                            at: interface.nanos(stamp),
                            length: packet.origlen,
                            data: packet.packet_data(),
                        };
                        packets += 1;
                        visit(interfaces, captured);
                    }
                    PcapBlockOwned::NG(Block::SimplePacket(_)) => {
                        return Err(fail(at, Problem::NoTime(packets + 1)));
                    }
                    PcapBlockOwned::NG(Block::Unknown(other))
                        if other.block_type == PACKET_BLOCK =>
                    {
                        return Err(fail(at, Problem::Obsolete(packets + 1)));
                    }
                    PcapBlockOwned::NG(_) => {} // names, statistics, secrets …
                }
                Ok(length)
            }
            Err(error) => Err(Stop::of(&error)),
        };
        match read {
            Ok(length) => reader.consume(length),
            Err(Stop::End) => return Ok(ended),
            Err(Stop::Refill) => {
                reader
                    .refill()
                    .map_err(|_| fail(at, io::Error::other(UNREADABLE).into()))?;
            }
            Err(Stop::Cut) if declared(reader.data(), is_ng) > reader.data().len() => {
                ended.is_cut = true;
                return Ok(ended);
            }
            Err(Stop::Small) if capacity < LARGEST_BLOCK => {
                capacity *= 2;
                reader.grow(capacity);
            }
            Err(Stop::Small) => return Err(fail(at, Problem::TooLarge)),
            Err(Stop::Cut | Stop::Damaged) => return Err(fail(at, Problem::Damaged)),
        }
    }
}

/// Why the next block was not read.
enum Stop {
    End,
    Refill,
    Cut,
    Small,
    Damaged,
}

impl Stop {
    fn of(error: &PcapError<&[u8]>) -> Stop {
        match error {
            PcapError::Eof => Stop::End,
            PcapError::Incomplete(_) => Stop::Refill,
            PcapError::UnexpectedEof => Stop::Cut,
            PcapError::BufferTooSmall => Stop::Small,
            _ => Stop::Damaged,
        }
    }
}

/// The declared length of the block or record at the beginning of `data`, in the byte order that makes it longest. If that
/// exceeds the rest of the file, the file is cut off there; so it is if the length is missing.
fn declared(data: &[u8], is_ng: bool) -> usize {
    let (at, header) = if is_ng { (4, 0) } else { (8, 16) };
    let length = data.get(at..at + 4).and_then(<[u8]>::first_chunk::<4>);
    length.map_or(usize::MAX, |length| {
        let longest = u32::from_le_bytes(*length).max(u32::from_be_bytes(*length));
        header + longest as usize
    })
}

impl Interface {
    /// A stamp as nanoseconds since 1970.
    fn nanos(&self, stamp: u64) -> u64 {
        let nanos = u128::from(stamp) * 1_000_000_000 / u128::from(self.ticks);
        let offset = i128::from(self.offset_s) * 1_000_000_000;
        let sum = i128::try_from(nanos)
            .unwrap_or(i128::MAX)
            .saturating_add(offset);
        u64::try_from(sum.max(0)).unwrap_or(u64::MAX)
    }
}

/// Ticks a second of an `if_tsresol`: a power of ten, or of two if its highest bit is set.
fn ticks(resolution: u8) -> Option<u64> {
    let exponent = u32::from(resolution & 0x7f);
    if resolution & 0x80 == 0 {
        10u64.checked_pow(exponent)
    } else {
        1u64.checked_shl(exponent)
    }
}

/// A reader that fills buffers whole, except at the end.
struct Full<R>(R);

impl<R: Read> Full<R> {
    fn new(inner: R) -> Self {
        Full(inner)
    }
}

impl<R: Read> Read for Full<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut length = 0;
        while length < buffer.len() {
            match self.0.read(&mut buffer[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The bytes so far; the next call meets the error again.
                Err(_) if length > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(length)
    }
}
