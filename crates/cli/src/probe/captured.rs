//! A capture of a probe's own datagrams at its socket (`--pcap`).

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use verus_capture::headers;
use verus_capture::record::Recorder;
use verus_capture::write::SNAPLEN;
use verus_core::{Bytes, Duration, Ecn, Time};
use verus_probe::connection::Batch;
use verus_probe::driver::{self, Driver};
use verus_probe::socket::Arrived;

use crate::capture::{self, FileRecorder};
use crate::draft::{self, DraftFile};
use crate::failure::Failure;

/// Largest time from the kernel's stamp of a datagram to its reading for which the capture is in order.
const READ_WITHIN: Duration = Duration::from_secs(1);

/// A datagram that left or arrived.
#[derive(Clone, Copy, Debug)]
pub struct DatagramEvent {
    at: Time,
    head: [u8; SNAPLEN],
    captured: u8,
    size: Bytes,
}

/// A capture in progress.
pub type DatagramCapture = capture::Capture<DatagramEvent>;

/// The file for a capture at `path`.
pub fn create(path: &Path) -> Result<(DraftFile, File), Failure> {
    draft::name(path)
        .and_then(|name| DraftFile::create(path, name))
        .map_err(|error| {
            let path = path.display();
            Failure::usage(format_args!("--pcap: `{path}` cannot be written ({error})"))
        })
}

/// Captures the datagrams of `driver` from now on.
pub fn begin(place: (DraftFile, File), driver: &mut Driver) -> io::Result<DatagramCapture> {
    let zero_nanos = driver.clock().wall().zero_nanos();
    let local = driver.socket().local_addr()?;
    let server = driver.socket().peer_addr()?;
    let capture = DatagramCapture::new(place, |writer| {
        Recorder::new(writer, zero_nanos).with_lateness(READ_WITHIN)
    })?;
    driver.set_tap(Some(Box::new(SocketTap {
        events: capture.tap(),
        local,
        server,
    })));
    Ok(capture)
}

/// The socket's access to the capture.
#[derive(Debug)]
struct SocketTap {
    events: capture::Tap<DatagramEvent>,
    local: SocketAddr,
    server: SocketAddr,
}

impl SocketTap {
    fn add(&self, at: Time, (from, to): (SocketAddr, SocketAddr), ecn: Ecn, datagram: &[u8]) {
        let headers = headers::udp(from, to, ecn, datagram);
        let size = headers.len() + datagram.len();
        let captured = size.min(SNAPLEN);
        let mut head = [0; SNAPLEN];
        head[..headers.len()].copy_from_slice(&headers);
        let rest = &mut head[headers.len()..captured];
        rest.copy_from_slice(&datagram[..rest.len()]);
        self.events.add(DatagramEvent {
            at,
            head,
            captured: captured as u8,
            size: Bytes::new(size as u64),
        });
    }
}

impl driver::Tap for SocketTap {
    fn on_sent(&mut self, at: Time, batch: &Batch) {
        for datagram in batch.datagrams() {
            self.add(at, (self.local, self.server), batch.ecn, datagram);
        }
    }

    fn on_arrived(&mut self, arrived: &Arrived<'_>) {
        let addresses = (self.server, self.local);
        self.add(arrived.at, addresses, arrived.ecn, arrived.bytes);
    }
}

impl capture::Event for DatagramEvent {
    const INTERFACES: &[(&str, &str)] = &[("probe", "a probe's socket")];

    fn record(self, recorder: &mut FileRecorder) {
        let head = &self.head[..usize::from(self.captured)];
        recorder.on_passing(self.at, &[0], head, self.size);
    }
}
