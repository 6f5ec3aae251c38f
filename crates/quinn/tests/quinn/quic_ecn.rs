//! Congestion marks in QUIC: they come back to a controller that answers them, and no other asks for them.

use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use crate::quic_common::{Pair, runtime, scheme, transport};
use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Endpoint, EndpointConfig, Runtime, TokioRuntime, UdpPoller};
use verus_core::Phase;
use verus_quinn as quic;

/// A queue before a receiving socket that marks one of this many reads, among those that are
/// capable.
#[derive(Debug)]
struct Marking {
    socket: Arc<dyn AsyncUdpSocket>,
    one_in: u64,
    /// Reads of packets that were capable, and of others.
    capable: AtomicU64,
    others: AtomicU64,
}

impl AsyncUdpSocket for Marking {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.socket).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.socket.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = ready!(self.socket.poll_recv(cx, buffers, metas))?;
        for meta in &mut metas[..received] {
            if meta.ecn.is_none() {
                self.others.fetch_add(1, Ordering::Relaxed);
            } else if self.capable.fetch_add(1, Ordering::Relaxed) % self.one_in == self.one_in - 1
            {
                meta.ecn = Some(EcnCodepoint::Ce);
            }
        }
        Poll::Ready(Ok(received))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_receive_segments(&self) -> usize {
        self.socket.max_receive_segments()
    }
}

/// The outcome of a transfer of `bytes` bytes by `text` over a path that marks.
struct Transfer {
    counters: quic::Counters,
    phase: Option<Phase>,
    capable: u64,
    others: u64,
}

fn carry(text: &str, one_in: u64, bytes: usize) -> Transfer {
    runtime().block_on(async {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let socket = UdpSocket::bind(any).expect("a port");
        let marking = Arc::new(Marking {
            socket: TokioRuntime.wrap_udp_socket(socket).expect("a socket"),
            one_in,
            capable: AtomicU64::new(0),
            others: AtomicU64::new(0),
        });
        let socket = Arc::clone(&marking);
        let listening = |server| {
            let (config, runtime) = (EndpointConfig::default(), Arc::new(TokioRuntime));
            Endpoint::new_with_abstract_socket(config, Some(server), socket, runtime)
                .expect("a server")
        };
        let calling = UdpSocket::bind(any).expect("a port");
        let calling = quic::endpoint(calling, None, scheme(text).config()).expect("a client");
        let ends = (transport(text), transport("cubic"));
        let pair = Pair::between(ends.0, ends.1, listening, calling, |server| server).await;
        let _driver = quic::drive(&pair.client);
        let view = quic::view(&pair.client).expect("our controller");
        pair.send(bytes).await;
        let snapshot = view.snapshot();
        Transfer {
            counters: snapshot.counters,
            phase: snapshot.phase,
            capable: marking.capable.load(Ordering::Relaxed),
            others: marking.others.load(Ordering::Relaxed),
        }
    })
}

#[test]
fn marks_come_back_to_a_controller_that_answers_them() {
    // For forward a mark is a price, and no reason to end its slow start.
    for (text, ends) in [
        ("cubic:ecn=yes", true),
        ("newreno:ecn=yes", true),
        ("forward", false),
    ] {
        let transfer = carry(text, 10, 8 << 20);
        assert!(transfer.capable > 10, "{text}: {} reads", transfer.capable);
        // However many packets of one acknowledgement were marked, it counts as one mark.
        let marked = transfer.counters.marked;
        assert!(
            (1..=transfer.capable / 10).contains(&marked),
            "{text}: {marked}"
        );
        if ends {
            assert_ne!(
                transfer.phase,
                Some(Phase::SlowStart),
                "{text}: a mark ends it"
            );
        }
    }
}

#[test]
fn a_controller_that_does_not_answer_marks_or_wants_those_of_l4s_asks_for_none() {
    for text in ["verus", "bbr", "cubic", "prague", "scream"] {
        let transfer = carry(text, 2, 1 << 20);
        assert_eq!(transfer.capable, 0, "{text}");
        assert!(transfer.others > 0, "{text}");
        assert_eq!(transfer.counters.marked, 0, "{text}");
    }
}
