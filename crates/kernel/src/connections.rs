//! Reads all TCP connections of this network namespace: an iterator in the kernel.

use std::io::Read as _;
use std::time::Duration;

use libbpf_rs::{Iter, IterOpts};

use crate::{Connection, Error};

static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/connections.bpf.o"));

/// `struct record` of `connections.bpf.c`.
const RECORD: usize = 48;
/// The length of a sender's name in it.
const NAME: usize = 16;

/// The TCP connections of this network namespace that may send data, whatever their congestion
/// control.
///
/// # Errors
/// If the kernel does not accept the program, or its user is not root.
pub fn connections() -> Result<Vec<Connection>, Error> {
    crate::host::check()?;
    let bytes = read().map_err(|why| Error::Kernel {
        doing: "the TCP connections cannot be read".to_owned(),
        why,
    })?;
    Ok(bytes.chunks_exact(RECORD).map(connection).collect())
}

fn read() -> Result<Vec<u8>, String> {
    let loaded = crate::loaded::open(PROGRAM).and_then(libbpf_rs::OpenObject::load);
    let object = loaded.map_err(|error| format!("{error:#}"))?;
    let program = object.progs_mut().next();
    let program = program.expect("connections.bpf.c has one");
    let link = program.attach_iter_with_opts(IterOpts::None);
    let link = link.map_err(|error| format!("{error:#}"))?;
    let mut bytes = Vec::new();
    let mut iter = Iter::new(&link).map_err(|error| error.to_string())?;
    iter.read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// A record, field by field in its order.
fn connection(record: &[u8]) -> Connection {
    let (name, rest) = record.split_at(NAME);
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(NAME);
    let (longs, words) = rest.split_at(2 * 8);
    let long = |at: usize| {
        let bytes = longs[8 * at..][..8].try_into().expect("8 bytes");
        u64::from_ne_bytes(bytes)
    };
    let word = |at: usize| {
        let bytes = words[4 * at..][..4].try_into().expect("4 bytes");
        u32::from_ne_bytes(bytes)
    };
    let has_samples = word(0) > 0;
    let micros = |at: usize| {
        let span = Duration::from_micros(word(at).into());
        has_samples.then_some(span)
    };
    Connection {
        sender: String::from_utf8_lossy(&name[..end]).into_owned(),
        window_bytes: long(0),
        delivery_rate: (long(1) > 0).then_some(long(1)),
        smoothed_rtt: micros(0),
        least_rtt: micros(1),
        sent_packets: word(2),
        lost_packets: word(3),
    }
}
