//! A file in pcapng: its interfaces, and packets with comments.
//!
//! Link type raw IP (LINKTYPE_RAW), timestamps in nanoseconds (`if_tsresol` 9). Packets are cut off after their
//! headers; the original length is kept.

use std::borrow::Cow;
use std::io::{self, Write};

use pcap_parser::{
    EnhancedPacketBlock, InterfaceDescriptionBlock, Linktype, OptionCode, PcapNGOption,
    SectionHeaderBlock, ToVec,
};

/// The most bytes of a packet that a capture holds: the headers of IPv6 and TCP, each with all options that are usual.
pub const SNAPLEN: usize = 128;

/// `if_tsresol`: 10⁻⁹ s.
const NANOSECONDS: u8 = 9;

/// Writes a capture.
#[derive(Debug)]
pub struct Writer<W> {
    sink: W,
}

/// One packet of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Index of the interface.
    pub interface: u32,
    /// Nanoseconds since 1970.
    pub at: u64,
    /// Its first bytes, at most [`SNAPLEN`], from the IP header on.
    pub head: &'a [u8],
    /// Its whole length, in bytes.
    pub length: u32,
    /// A comment for readers; empty for none.
    pub comment: &'a str,
}

impl<W: Write> Writer<W> {
    /// A capture with these interfaces: name and description of each.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn new(mut sink: W, interfaces: &[(&str, &str)]) -> io::Result<Self> {
        let mut section = SectionHeaderBlock {
            block_type: 0,
            block_len1: 0,
            bom: 0,
            major_version: 1,
            minor_version: 0,
            section_len: -1,
            options: vec![text(
                OptionCode::ShbUserAppl,
                concat!("verus ", env!("CARGO_PKG_VERSION")),
            )],
            block_len2: 0,
        };
        sink.write_all(&block(&mut section)?)?;
        for (name, description) in interfaces {
            let mut interface = InterfaceDescriptionBlock {
                block_type: 0,
                block_len1: 0,
                linktype: Linktype::RAW,
                reserved: 0,
                snaplen: SNAPLEN as u32,
                options: vec![
                    text(OptionCode::IfName, name),
                    text(OptionCode::IfDescription, description),
                ],
                block_len2: 0,
                if_tsresol: NANOSECONDS,
                if_tsoffset: 0,
            };
            sink.write_all(&block(&mut interface)?)?;
        }
        Ok(Writer { sink })
    }

    /// Writes a packet.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn packet(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        let head = &packet.head[..packet.head.len().min(SNAPLEN)];
        let comment =
            (!packet.comment.is_empty()).then(|| text(OptionCode::Comment, packet.comment));
        let mut enhanced = EnhancedPacketBlock {
            block_type: 0,
            block_len1: 0,
            if_id: packet.interface,
            ts_high: (packet.at >> 32) as u32,
            ts_low: packet.at as u32,
            caplen: head.len() as u32,
            origlen: packet.length,
            data: head,
            options: comment.into_iter().collect(),
            block_len2: 0,
        };
        self.sink.write_all(&block(&mut enhanced)?)
    }

    /// Ends the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.sink.flush()?;
        Ok(self.sink)
    }
}

fn text(code: OptionCode, value: &str) -> PcapNGOption<'_> {
    PcapNGOption {
        code,
        // A name or a comment of ours is shorter.
        len: u16::try_from(value.len()).expect("short texts"),
        value: Cow::Borrowed(value.as_bytes()),
    }
}

fn block(block: &mut impl ToVec) -> io::Result<Vec<u8>> {
    block
        .to_vec()
        .map_err(|error| io::Error::other(error.to_string()))
}
