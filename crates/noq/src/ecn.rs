//! Explicit congestion notification in noq: which controllers may ask for marks.
//!
//! Like quinn, noq marks every packet as ECT(0), without a setting, and takes a count of ECT(1) for
//! damage on the path. A controller that does not answer marks must not ask for them (RFC 3168 §5).
//! So only packets of a controller that asks for ECT(0) keep it; others leave without a code point.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use noq::udp::{RecvMeta, Transmit};
use noq::{
    AsyncUdpSocket, Endpoint, EndpointConfig, Runtime, ServerConfig, TokioRuntime, UdpSender,
};
use verus_core::Ecn;
use verus_core::configuration::Configured;

/// An endpoint of noq on this socket, within a tokio runtime, whose packets bear ECN as `config`'s controller wants it.
///
/// # Errors
/// If the socket cannot be used.
pub fn endpoint(
    socket: UdpSocket,
    server: Option<ServerConfig>,
    config: &Arc<dyn Configured>,
) -> io::Result<Endpoint> {
    let socket = TokioRuntime.wrap_udp_socket(socket)?;
    let socket = match config.build(0).ecn() {
        Ecn::Ect0 => socket,
        Ecn::NotEct | Ecn::Ect1 | Ecn::Ce => Box::new(NotCapable(socket)),
    };
    let runtime = Arc::new(TokioRuntime);
    Endpoint::new_with_abstract_socket(EndpointConfig::default(), server, socket, runtime)
}

/// Clears the code point of each packet sent.
#[derive(Debug)]
struct NotCapable(Box<dyn AsyncUdpSocket>);

#[derive(Debug)]
struct NotCapableSender(Pin<Box<dyn UdpSender>>);

impl AsyncUdpSocket for NotCapable {
    fn create_sender(&self) -> Pin<Box<dyn UdpSender>> {
        Box::pin(NotCapableSender(self.0.create_sender()))
    }

    fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_recv(cx, buffers, metas)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn max_receive_segments(&self) -> NonZeroUsize {
        self.0.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.0.may_fragment()
    }
}

impl UdpSender for NotCapableSender {
    fn poll_send(
        mut self: Pin<&mut Self>,
        transmit: &Transmit<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let transmit = Transmit {
            ecn: None,
            ..transmit.clone()
        };
        self.0.as_mut().poll_send(&transmit, cx)
    }

    fn max_transmit_segments(&self) -> NonZeroUsize {
        self.0.max_transmit_segments()
    }
}
