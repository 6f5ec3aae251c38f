//! Explicit congestion notification in quinn: which controllers may ask for marks.
//!
//! quinn 0.11 marks every packet as ECT(0) until the peer's counts show that marking fails; it has
//! no setting for this. A controller that does not answer marks must not ask for them (RFC 3168 §5:
//! a queue marks packets that it would drop otherwise). ECT(1) (RFC 9331) is not available: quinn
//! takes a count of ECT(1) for damage on the path (RFC 9000 §13.4.2.1) and ends ECN. Under ECT(0),
//! a controller that asks for ECT(1) would answer a classic queue's marks too weakly. So only
//! packets of a controller that asks for ECT(0) keep it; others leave without a code point.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{
    AsyncUdpSocket, Endpoint, EndpointConfig, Runtime, ServerConfig, TokioRuntime, UdpPoller,
};
use verus_core::Ecn;
use verus_core::configuration::Configured;

/// An endpoint of quinn on this socket, within a tokio runtime, whose packets bear ECN as `config`'s controller wants it.
///
/// # Errors
/// If the socket cannot be used.
pub fn endpoint(
    socket: UdpSocket,
    server: Option<ServerConfig>,
    config: &Arc<dyn Configured>,
) -> io::Result<Endpoint> {
    let socket = socket_of(TokioRuntime.wrap_udp_socket(socket)?, config);
    Endpoint::new_with_abstract_socket(
        EndpointConfig::default(),
        server,
        socket,
        Arc::new(TokioRuntime),
    )
}

/// The socket as `config`'s controller wants it.
pub fn socket_of(
    socket: Arc<dyn AsyncUdpSocket>,
    config: &Arc<dyn Configured>,
) -> Arc<dyn AsyncUdpSocket> {
    match config.build(0).ecn() {
        Ecn::Ect0 => socket,
        Ecn::NotEct | Ecn::Ect1 | Ecn::Ce => Arc::new(NotCapable(socket)),
    }
}

/// Clears the code point of each packet sent.
#[derive(Debug)]
struct NotCapable(Arc<dyn AsyncUdpSocket>);

impl AsyncUdpSocket for NotCapable {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.0).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.0.try_send(&Transmit {
            ecn: None,
            ..transmit.clone()
        })
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_recv(cx, buffers, metas)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.0.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.0.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.0.may_fragment()
    }
}
