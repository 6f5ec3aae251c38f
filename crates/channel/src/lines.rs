//! Files of one statement a line, plain or compressed: what traces, logs and series share.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::{Error, Problem};
use crate::files::{self, Opened};

/// The limit of a line's bytes that are read, if no valid line is longer (20 digits, carriage
/// return and newline).
const LONGEST_LINE: u64 = 64;

/// The mark that some programs write before text of UTF-8; it is not part of the first line.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Opens the file at `path`; returns what messages call it, too.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn open(path: &Path) -> Result<(String, Opened), Error> {
    let name = path.display().to_string();
    match files::open(path) {
        Ok(file) => Ok((name, file)),
        Err(source) => Err(Error::Io {
            action: "read",
            name,
            source,
        }),
    }
}

/// The whole milliseconds that `line` states.
pub(crate) fn whole_millis(line: &[u8]) -> Result<u64, Problem> {
    let mut value = 0u64;
    for digit in line {
        if !digit.is_ascii_digit() {
            return Err(not_a_whole_number(line));
        }
        value = value
            .checked_mul(10)
            .and_then(|value| value.checked_add(u64::from(digit - b'0')))
            .ok_or_else(|| {
                // A line full of digits is too large; one with something else later is no number.
                if line.iter().all(u8::is_ascii_digit) {
                    Problem::TooLarge(excerpt(line))
                } else {
                    not_a_whole_number(line)
                }
            })?;
    }
    Ok(value)
}

/// `bytes` in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            write!(text, "{byte:02x}").expect("writing to a string cannot fail");
            text
        })
}

/// Names what keeps `line` from being a whole number.
fn not_a_whole_number(line: &[u8]) -> Problem {
    if let Some(problem) = not_text(line) {
        return problem;
    }
    let text = excerpt(line);
    match line {
        [b'#', ..] => Problem::Comment(text),
        _ if has_columns(line) => Problem::Columns(text),
        [b'-', rest @ ..] if is_decimal(rest) => Problem::Negative(text),
        _ if is_decimal(line) => Problem::Fraction(text),
        _ => Problem::NotATime(text),
    }
}

/// Whether `line` is several numbers, apart by white space or commas.
fn has_columns(line: &[u8]) -> bool {
    let parts = line.split(|byte| b" \t,;".contains(byte));
    let numbers: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
    numbers.len() > 1 && numbers.iter().all(|number| is_decimal(number))
}

/// Whether `line` is digits with at most one decimal point among them.
pub(crate) fn is_decimal(line: &[u8]) -> bool {
    line.iter().any(u8::is_ascii_digit)
        && line
            .iter()
            .all(|byte| byte.is_ascii_digit() || *byte == b'.')
        && line.iter().filter(|byte| **byte == b'.').count() <= 1
}

/// The first byte that keeps `line` from being text: an error in UTF-8, or a control character.
pub(crate) fn not_text(line: &[u8]) -> Option<Problem> {
    // A line cut at its longest may end within a character; that is no error by itself.
    let bad_utf8 = std::str::from_utf8(line)
        .err()
        .filter(|error| error.error_len().is_some());
    let bad = bad_utf8.map(|error| line[error.valid_up_to()]);
    let control = || {
        line.iter()
            .copied()
            .find(|byte| byte.is_ascii_control() && *byte != b'\t')
    };
    bad.or_else(control).map(Problem::NotText)
}

/// The excerpt of `line` that a message quotes.
pub(crate) fn excerpt(line: &[u8]) -> String {
    const SHOWN: usize = 40;
    let text = String::from_utf8_lossy(line);
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

/// The compression of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    Plain,
    Gzip,
    Xz,
}

impl Format {
    pub(crate) fn of_name(name: &str) -> Format {
        match Path::new(name)
            .extension()
            .and_then(|extension| extension.to_str())
        {
            Some("gz") => Format::Gzip,
            Some("xz") => Format::Xz,
            _ => Format::Plain,
        }
    }

    fn of_bytes(first: &[u8]) -> Format {
        match first {
            [0x1f, 0x8b, ..] => Format::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0x00, ..] => Format::Xz,
            _ => Format::Plain,
        }
    }

    fn label(self) -> &'static str {
        match self {
            Format::Plain => "plain",
            Format::Gzip => "gzip",
            Format::Xz => "xz",
        }
    }

    pub(crate) fn supported(self, name: &str) -> Result<(), Error> {
        let built = match self {
            Format::Plain => true,
            Format::Gzip => cfg!(feature = "gzip"),
            Format::Xz => cfg!(feature = "xz"),
        };
        let no_support = || Error::NoSupport {
            name: name.to_owned(),
            format: self.label(),
            feature: self.label(),
        };
        built.then_some(()).ok_or_else(no_support)
    }

    /// Runs `write` and compresses its output into `out`.
    pub(crate) fn encode(
        self,
        out: &mut dyn Write,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        match self {
            #[cfg(feature = "gzip")]
            Format::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::best());
                write(&mut encoder)?;
                encoder.finish().map(drop)
            }
            #[cfg(feature = "xz")]
            Format::Xz => {
                let mut encoder = liblzma::write::XzEncoder::new(out, 6);
                write(&mut encoder)?;
                encoder.finish().map(drop)
            }
            _ => write(out),
        }
    }

    /// The decompressed contents of `stored`.
    fn decode<'a>(self, stored: impl BufRead + 'a) -> io::Result<Box<dyn Read + 'a>> {
        Ok(match self {
            #[cfg(feature = "gzip")]
            Format::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(stored)),
            #[cfg(feature = "xz")]
            Format::Xz => {
                // Enough for any preset of xz (65 MiB), and a bound on what a hostile header can ask for.
                const MEMORY: u64 = 256 << 20;
                let stream = liblzma::stream::Stream::new_stream_decoder(
                    MEMORY,
                    liblzma::stream::CONCATENATED,
                )?;
                Box::new(liblzma::bufread::XzDecoder::new_stream(stored, stream))
            }
            _ => Box::new(stored),
        })
    }
}

/// Distinguishes an error of the file from damaged contents: only the first has a code from the
/// system.
fn reading(what: &'static str, name: &str, format: Format, source: io::Error) -> Error {
    let name = name.to_owned();
    if format == Format::Plain || source.raw_os_error().is_some() {
        return Error::Io {
            action: "read",
            name,
            source,
        };
    }
    let reason = match source.kind() {
        io::ErrorKind::UnexpectedEof => "they end too early".to_owned(),
        _ => source.to_string(),
    };
    Error::Compressed {
        what,
        name,
        format: format.label(),
        reason,
    }
}

/// Calls `each` with the number (from 1) and the text of every line of `bytes`, decompressed if need be; returns the
/// SHA-256 of the text and of the bytes. A carriage return before the end of a line is dropped; blank lines may end the
/// text but not interrupt it. A line is cut at [`LONGEST_LINE`].
pub(crate) fn for_each(
    what: &'static str,
    name: &str,
    bytes: impl Read,
    each: impl FnMut(u64, &[u8]) -> Result<(), Problem>,
) -> Result<(String, String), Error> {
    for_each_cut(what, name, bytes, LONGEST_LINE, each)
}

/// The same; a line is cut at `longest` bytes, and what remains of it is the next.
pub(crate) fn for_each_cut(
    what: &'static str,
    name: &str,
    bytes: impl Read,
    longest: u64,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), Problem>,
) -> Result<(String, String), Error> {
    let mut stored = HashingReader {
        inner: bytes,
        hash: Sha256::new(),
    };
    let mut first = Vec::with_capacity(6);
    (&mut stored)
        .take(6)
        .read_to_end(&mut first)
        .map_err(|source| reading(what, name, Format::Plain, source))?;
    let format = Format::of_bytes(&first);
    format.supported(name)?;
    if let Some(problem) = unsupported(&first) {
        return Err(problem.of_whole(what, name));
    }
    let promised = Format::of_name(name);
    if format == Format::Plain
        && promised != Format::Plain
        && !(first
            .strip_prefix(BYTE_ORDER_MARK)
            .unwrap_or(&first)
            .first())
        .is_some_and(u8::is_ascii_digit)
    {
        let reason = "they do not begin as such a file does".to_owned();
        return Err(Error::Compressed {
            what,
            name: name.to_owned(),
            format: promised.label(),
            reason,
        });
    }
    let whole = BufReader::with_capacity(1 << 16, first.as_slice().chain(&mut stored));
    let failed = |source| reading(what, name, format, source);
    let text = HashingReader {
        inner: format.decode(whole).map_err(failed)?,
        hash: Sha256::new(),
    };
    let mut text = BufReader::with_capacity(1 << 16, text);
    let mut line = Vec::with_capacity(LONGEST_LINE as usize);
    let mut blank = None;
    for number in 1.. {
        line.clear();
        let got = text.by_ref().take(longest).read_until(b'\n', &mut line);
        if got.map_err(failed)? == 0 {
            break;
        }
        let end = line.strip_suffix(b"\n").unwrap_or(&line);
        let end = end.strip_suffix(b"\r").unwrap_or(end);
        let end = match number {
            1 => end.strip_prefix(BYTE_ORDER_MARK).unwrap_or(end),
            _ => end,
        };
        if end.is_empty() {
            blank = blank.or(Some(number));
            continue;
        }
        let read = match blank {
            Some(_) => Err(Problem::Blank),
            None => each(number, end),
        };
        read.map_err(|problem| problem.of_line(what, name, blank.unwrap_or(number)))?;
    }
    let content = hex(&text.into_inner().hash.finalize());
    Ok((content, hex(&stored.hash.finalize())))
}

/// The most of a compressed text that is unpacked to look at its end, bytes.
const LARGEST_UNPACKED: u64 = 1 << 28;

/// A warning if the last line of the file at `path` has no newline. Files written by hand often lack
/// one, but a number that was cut off cannot be told from a whole one. A file that cannot be read has
/// no warning: its reader reports that.
pub fn cut_warning(path: &Path) -> Option<String> {
    let last = last_byte(path).ok().flatten()?;
    (last != b'\n').then(|| {
        let name = path.display();
        format!(
            "`{name}`: its last line has no newline and may be cut off: end the line if it is whole, otherwise delete it"
        )
    })
}

/// The problem of a file that begins with these bytes, if its encoding is not supported: UTF-16
/// (by its byte-order mark), zstd, bzip2 or zip.
fn unsupported(first: &[u8]) -> Option<Problem> {
    match first {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some(Problem::Utf16),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Problem::Packed("zstd")),
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => Some(Problem::Packed("bzip2")),
        [b'P', b'K', 3, 4, ..] => Some(Problem::Packed("zip")),
        _ => None,
    }
}

/// The last byte of the text of the file at `path`; none if it is empty, of an unsupported encoding, or
/// larger than is unpacked.
fn last_byte(path: &Path) -> io::Result<Option<u8>> {
    let mut file = files::open(path)?;
    let mut first = Vec::with_capacity(6);
    file.by_ref().take(6).read_to_end(&mut first)?;
    if unsupported(&first).is_some() {
        return Ok(None);
    }
    if let (Format::Plain, Opened::File(file)) = (Format::of_bytes(&first), &mut file) {
        if first.is_empty() {
            return Ok(None);
        }
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        return Ok(Some(last[0]));
    }
    let mut text = decompressed(first.as_slice().chain(file))?.take(LARGEST_UNPACKED);
    let (mut piece, mut last) = (vec![0; 1 << 16], None);
    loop {
        match text.read(&mut piece)? {
            0 => return Ok(last.filter(|_| text.limit() > 0)),
            count => last = Some(piece[count - 1]),
        }
    }
}

/// The contents of a text file, decompressed while it is read if its first bytes indicate gzip or
/// xz. Nothing is unpacked beforehand, so a file that expands without end takes no room.
///
/// # Errors
/// If `stored` cannot be read, is UTF-16, or is compressed in a way that this build does not know. Reading tells damage.
pub fn decompressed<'a>(mut stored: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut first = Vec::with_capacity(6);
    stored.by_ref().take(6).read_to_end(&mut first)?;
    if let Some(problem) = unsupported(&first) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            problem.to_string(),
        ));
    }
    let format = Format::of_bytes(&first);
    format.supported("").map_err(io::Error::other)?;
    let whole = BufReader::with_capacity(1 << 16, io::Cursor::new(first).chain(stored));
    Ok(match format {
        Format::Plain => Box::new(whole),
        packed => Box::new(Unpacked {
            format: packed,
            inner: packed.decode(whole)?,
        }),
    })
}

/// Names the damage of damaged contents.
struct Unpacked<'a> {
    format: Format,
    inner: Box<dyn Read + 'a>,
}

impl Read for Unpacked<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer).map_err(|source| {
            if source.raw_os_error().is_some() {
                return source;
            }
            let format = self.format.label();
            io::Error::new(
                source.kind(),
                format!("the {format} data are damaged or cut short ({source})"),
            )
        })
    }
}

/// Hashes what passes through.
struct HashingReader<R> {
    inner: R,
    hash: Sha256,
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(buffer)?;
        self.hash.update(&buffer[..got]);
        Ok(got)
    }
}
