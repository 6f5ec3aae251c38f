//! Captures UDP over loopback as the kernel handles it, with the kernel's times. An end's record of
//! its packets can be checked against them.

use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::socket::sockopt::{RcvBufForce, ReceiveTimestampns};
use nix::sys::socket::{
    ControlMessageOwned, LinkAddr, MsgFlags, SockProtocol, recvmsg, setsockopt,
};
use nix::sys::time::TimeSpec;
use rustix::time::{ClockId, clock_gettime};
use socket2::{Domain, Protocol, Socket, Type};

/// `PACKET_OUTGOING` (packet(7)): loopback shows each packet twice, once as it leaves.
const OUTGOING: u8 = 4;
const UDP: u8 = 17;

/// The data of one system call of an end: a datagram, or several of equal size in a row, the last
/// perhaps shorter (GSO).
#[derive(Clone, Debug)]
pub struct Captured {
    /// When it left, since 1970.
    pub at: Duration,
    /// From which port.
    pub from: u16,
    /// To which port.
    pub to: u16,
    /// UDP payload.
    pub payload: Vec<u8>,
}

/// Held by a test that captures, for as long as it lasts: another beside it would take up the processor in whose
/// microseconds times are compared.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running capture.
pub struct Capture {
    over: Arc<AtomicBool>,
    reading: JoinHandle<Vec<Captured>>,
}

impl Capture {
    /// Captures packets from or to any of `ports`.
    ///
    /// # Errors
    /// Why it cannot, for a test to skip with.
    pub fn start(ports: &[u16]) -> Result<Capture, String> {
        let protocol = Protocol::from(SockProtocol::EthAll as i32);
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol)).map_err(|error| {
            format!("packets can be captured only with the right to open packet sockets: {error}")
        })?;
        let trouble = |error: nix::Error| format!("no capture: {error}");
        setsockopt(&socket, RcvBufForce, &(64 << 20)).map_err(trouble)?;
        setsockopt(&socket, ReceiveTimestampns, &true).map_err(trouble)?;
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .map_err(|error| format!("no capture: {error}"))?;
        let over = Arc::new(AtomicBool::new(false));
        let reading = thread::spawn({
            let (over, ports) = (Arc::clone(&over), ports.to_vec());
            move || read(&socket, &ports, &over)
        });
        Ok(Capture { over, reading })
    }

    /// Ends it; returns the captured packets, in order.
    pub fn stop(self) -> Vec<Captured> {
        self.over.store(true, Ordering::Release);
        self.reading.join().expect("the capture does not panic")
    }
}

fn read(socket: &Socket, ports: &[u16], over: &AtomicBool) -> Vec<Captured> {
    let mut captured = Vec::new();
    let mut buffer = vec![0; 1 << 17];
    let mut control = nix::cmsg_space!(TimeSpec);
    let mut end = None;
    loop {
        let mut slices = [IoSliceMut::new(&mut buffer)];
        let message = recvmsg::<LinkAddr>(
            socket.as_raw_fd(),
            &mut slices,
            Some(&mut control),
            MsgFlags::empty(),
        );
        let (bytes, outgoing, stamp) = match &message {
            Ok(message) => (
                message.bytes,
                message
                    .address
                    .is_some_and(|from| from.pkttype() == OUTGOING),
                message.cmsgs().ok().and_then(|mut all| {
                    all.find_map(|one| match one {
                        ControlMessageOwned::ScmTimestampns(stamp) => Some(stamp),
                        _ => None,
                    })
                }),
            ),
            // Nothing came for a while: all that left before is read.
            Err(nix::Error::EAGAIN) if over.load(Ordering::Acquire) => return captured,
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => continue,
            Err(error) => panic!("the capture failed: {error}"),
        };
        // Other programs may go on sending for ever: it reads only packets that left before the
        // end.
        if over.load(Ordering::Acquire) {
            let end = *end.get_or_insert_with(now);
            if stamp.is_some_and(|stamp| Duration::from(stamp) > end) {
                return captured;
            }
        }
        if let (true, Some(stamp)) = (outgoing, stamp)
            && let Some((from, to, payload)) = udp(&buffer[..bytes])
            && (ports.contains(&from) || ports.contains(&to))
        {
            captured.push(Captured {
                at: Duration::from(stamp),
                from,
                to,
                payload: payload.to_vec(),
            });
        }
    }
}

/// Since 1970, as the kernel stamps packets.
fn now() -> Duration {
    let now = clock_gettime(ClockId::Realtime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Ports and payload of an IP packet, if it carries UDP.
fn udp(packet: &[u8]) -> Option<(u16, u16, &[u8])> {
    let (protocol, segment) = match packet.first()? >> 4 {
        4 => (
            packet.get(9)?,
            packet.get(usize::from(packet[0] & 15) * 4..)?,
        ),
        6 => (packet.get(6)?, packet.get(40..)?),
        _ => return None,
    };
    let port = |at: usize| {
        Some(u16::from_be_bytes([
            *segment.get(at)?,
            *segment.get(at + 1)?,
        ]))
    };
    let payload = segment.get(8..)?;
    (*protocol == UDP).then_some((port(0)?, port(2)?, payload))
}
