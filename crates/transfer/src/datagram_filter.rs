//! Filter for the datagrams between a server's socket and QUIC, in both directions.
//!
//! A datagram from port 0 is dropped, because nothing can be sent back. Linux refuses to send there
//! with EINVAL, upon which quinn-udp 0.5 permanently gives up segmentation offload and ECN for all
//! peers (`unix.rs`, `send`).
//!
//! quinn-proto 0.11.19 sends a whole datagram whenever any of an unproven address's allowance is
//! left (`connection/mod.rs`, `poll_transmit`: "we always allow a full MTU to be sent"). It may so
//! send up to four times the bytes received, where RFC 9000 §8.1 allows three; here the allowance is
//! exact. The excess is a probe of the handshake, which has a long header. Only such packets are
//! held back, so an attacker who forges a known client's address cannot disturb it. Packets to a
//! proven address do not count: the client may begin another connection from the same port.
//!
//! Any other error in sending counts as a lost datagram. quinn-udp does the same; here it holds
//! whatever quinn does.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use tokio::time::Instant;

/// How many addresses are counted at a time: more than may be in a handshake.
const COUNTED: usize = 256;
/// How long an address is counted: a handshake that takes longer was given up, or its client sends
/// again.
const REMEMBERED: Duration = Duration::from_secs(15);
/// Bytes that an unproven address may be sent for each byte received from it (RFC 9000 §8.1).
const TIMES: u64 = 3;

/// A server's socket.
#[derive(Debug)]
pub(super) struct DatagramFilter {
    socket: Arc<dyn AsyncUdpSocket>,
    guests: Mutex<Guests>,
    /// How many addresses are counted. With none, the usual case, sending has no extra cost.
    counted: AtomicUsize,
}

/// An address is proven while this lasts.
#[derive(Debug)]
pub(super) struct Proven {
    filter: Arc<DatagramFilter>,
    address: SocketAddr,
}

impl Drop for Proven {
    fn drop(&mut self) {
        self.filter.guests().leaves(self.address);
    }
}

impl DatagramFilter {
    pub(super) fn new(socket: Arc<dyn AsyncUdpSocket>) -> Arc<DatagramFilter> {
        Arc::new(DatagramFilter {
            socket,
            guests: Mutex::default(),
            counted: AtomicUsize::new(0),
        })
    }

    fn guests(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks an address as proven by a handshake, until the returned value is dropped.
    pub(super) fn proven(self: &Arc<Self>, address: SocketAddr) -> Proven {
        self.guests().enters(address);
        Proven {
            filter: Arc::clone(self),
            address,
        }
    }

    /// Whether a datagram may go out.
    fn let_out(&self, transmit: &Transmit<'_>) -> bool {
        let is_handshake = begins_long(transmit.contents);
        if !is_handshake && self.counted.load(Ordering::Relaxed) == 0 {
            return true;
        }
        let mut guests = self.guests();
        guests.forget(Instant::now());
        self.counted.store(guests.counted.len(), Ordering::Relaxed);
        let bytes = transmit.contents.len() as u64;
        guests.may_go(transmit.destination, bytes, is_handshake)
    }

    /// Counts the received datagrams, several of one sender in a buffer. Returns whether to pass
    /// them on.
    fn let_in(&self, meta: &RecvMeta, buffer: &[u8]) -> bool {
        if meta.addr.port() == 0 {
            return false;
        }
        let bytes = &buffer[..meta.len.min(buffer.len())];
        if bytes.chunks(meta.stride.max(1)).any(begins_long) {
            let mut guests = self.guests();
            guests.count_received(meta.addr, bytes.len() as u64, Instant::now());
            self.counted.store(guests.counted.len(), Ordering::Relaxed);
        }
        true
    }
}

/// Whether a datagram begins with a packet that has a long header (RFC 9000 §17.2), as all of a handshake do.
fn begins_long(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & 0x80 != 0)
}

#[derive(Debug, Default)]
struct Guests {
    /// Addresses that began a handshake lately, the latest last.
    counted: VecDeque<Guest>,
    /// Addresses that a handshake has proven, and how many connections each has.
    proven: BTreeMap<SocketAddr, usize>,
}

#[derive(Debug)]
struct Guest {
    address: SocketAddr,
    since: Instant,
    received: u64,
    sent: u64,
}

impl Guests {
    fn find(&mut self, address: SocketAddr) -> Option<&mut Guest> {
        // The latest address is the most likely one.
        let mut latest_first = self.counted.iter_mut().rev();
        latest_first.find(|it| it.address == address)
    }

    fn forget(&mut self, now: Instant) {
        let old = |guest: &Guest| now.duration_since(guest.since) >= REMEMBERED;
        while self.counted.front().is_some_and(old) {
            self.counted.pop_front();
        }
    }

    fn count_received(&mut self, address: SocketAddr, bytes: u64, now: Instant) {
        self.forget(now);
        if let Some(guest) = self.find(address) {
            guest.received = guest.received.saturating_add(bytes);
            return;
        }
        if self.counted.len() == COUNTED {
            self.counted.pop_front();
        }
        self.counted.push_back(Guest {
            address,
            since: now,
            received: bytes,
            sent: 0,
        });
    }

    fn enters(&mut self, address: SocketAddr) {
        *self.proven.entry(address).or_default() += 1;
    }

    fn leaves(&mut self, address: SocketAddr) {
        if let Some(connections) = self.proven.get_mut(&address) {
            *connections -= 1;
            if *connections == 0 {
                self.proven.remove(&address);
            }
        }
    }

    /// Whether `bytes` may be sent to an address; counts them if so. A forgotten address must send
    /// again first, as a client in a handshake does.
    fn may_go(&mut self, address: SocketAddr, bytes: u64, is_handshake: bool) -> bool {
        if !is_handshake && self.proven.contains_key(&address) {
            return true;
        }
        let Some(guest) = self.find(address) else {
            return !is_handshake;
        };
        let sent = guest.sent.saturating_add(bytes);
        let may = !is_handshake || sent <= guest.received.saturating_mul(TIMES);
        if may {
            guest.sent = sent;
        }
        may
    }
}

impl AsyncUdpSocket for DatagramFilter {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.socket).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        if transmit.destination.port() == 0 || !self.let_out(transmit) {
            // QUIC treats it as lost on the way.
            return Ok(());
        }
        match self.socket.try_send(transmit) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Ok(()),
            sent => sent,
        }
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = ready!(self.socket.poll_recv(cx, buffers, metas))?;
        for (meta, buffer) in metas.iter_mut().zip(&*buffers).take(received) {
            if !self.let_in(meta, buffer) {
                meta.len = 0; // quinn finds nothing in it
            }
        }
        Poll::Ready(Ok(received))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.socket.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.socket.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.socket.may_fragment()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    #[test]
    fn an_address_is_sent_no_more_than_three_times_what_came() {
        let mut guests = Guests::default();
        guests.count_received(address(1), 1_200, Instant::now());
        assert!(guests.may_go(address(1), 1_200, true));
        assert!(guests.may_go(address(1), 300, false));
        assert!(guests.may_go(address(1), 1_200, true));
        assert!(!guests.may_go(address(1), 901, true), "3601 bytes");
        assert!(guests.may_go(address(1), 900, true));
        guests.count_received(address(1), 1, Instant::now());
        assert!(!guests.may_go(address(1), 4, true));
        assert!(guests.may_go(address(1), 3, true));
    }

    #[test]
    fn a_forged_handshake_does_not_disturb_a_client_that_is_known() {
        let mut guests = Guests::default();
        guests.count_received(address(1), 20, Instant::now());
        assert!(guests.may_go(address(1), 1_000_000, false));
    }

    #[test]
    fn a_client_that_was_sent_much_may_connect_again_from_the_same_port() {
        let mut guests = Guests::default();
        for _ in 0..2 {
            guests.enters(address(1));
            guests.count_received(address(1), 1_200, Instant::now());
            assert!(guests.may_go(address(1), 1_000_000, false));
            assert!(guests.may_go(address(1), 3_600, true));
            assert!(!guests.may_go(address(1), 1, true));
        }
        guests.leaves(address(1));
        assert!(guests.proven.contains_key(&address(1)), "one is left");
        guests.leaves(address(1));
        assert!(guests.proven.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_are_counted_for_a_while_and_only_so_many() {
        let mut guests = Guests::default();
        for port in 0..=COUNTED as u16 {
            guests.count_received(address(port), 10, Instant::now());
        }
        assert_eq!(guests.counted.len(), COUNTED);
        assert!(!guests.may_go(address(0), 1, true), "forgotten");
        assert!(!guests.may_go(address(COUNTED as u16), 31, true));
        assert!(guests.may_go(address(COUNTED as u16), 30, true));
        guests.count_received(address(0), 10, Instant::now());
        assert!(guests.may_go(address(0), 30, true), "it has shown up again");
        guests.forget(Instant::now() + REMEMBERED);
        assert!(guests.counted.is_empty());
    }

    /// A socket that hears one datagram and cannot send.
    #[derive(Debug)]
    struct Broken(SocketAddr);

    #[derive(Debug)]
    struct Always;

    impl UdpPoller for Always {
        fn poll_writable(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncUdpSocket for Broken {
        fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
            Box::pin(Always)
        }

        fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
            assert_ne!(transmit.destination.port(), 0, "it must not come here");
            // EPERM, EMSGSIZE, EACCES, ENOBUFS, by the port that it goes to.
            Err(io::Error::from_raw_os_error(
                transmit.destination.port().into(),
            ))
        }

        fn poll_recv(
            &self,
            _: &mut Context<'_>,
            buffers: &mut [IoSliceMut<'_>],
            metas: &mut [RecvMeta],
        ) -> Poll<io::Result<usize>> {
            buffers[0][..3].copy_from_slice(&[0xc0, 0, 0]);
            metas[0].addr = self.0;
            (metas[0].len, metas[0].stride) = (3, 3);
            Poll::Ready(Ok(1))
        }

        fn local_addr(&self) -> io::Result<SocketAddr> {
            Ok(self.0)
        }
    }

    fn filter(port: u16) -> DatagramFilter {
        DatagramFilter {
            socket: Arc::new(Broken(address(port))),
            guests: Mutex::default(),
            counted: AtomicUsize::new(0),
        }
    }

    #[test]
    fn no_error_in_sending_ends_anything_and_port_0_is_never_sent_to() {
        let filter = filter(1);
        for port in [0, 1, 13, 22, 90, 105] {
            let transmit = Transmit {
                destination: address(port),
                ecn: None,
                contents: &[0x40; 1200],
                segment_size: None,
                src_ip: None,
            };
            assert!(filter.try_send(&transmit).is_ok(), "{port}");
        }
    }

    #[test]
    fn a_datagram_from_port_0_is_not_passed_on() {
        for (port, passed) in [(0, 0), (1, 3)] {
            let filter = filter(port);
            let mut buffer = [0; 2048];
            let mut metas = [RecvMeta::default()];
            let mut cx = Context::from_waker(std::task::Waker::noop());
            let polled = filter.poll_recv(&mut cx, &mut [IoSliceMut::new(&mut buffer)], &mut metas);
            assert!(matches!(polled, Poll::Ready(Ok(1))));
            assert_eq!(metas[0].len, passed);
        }
    }
}
