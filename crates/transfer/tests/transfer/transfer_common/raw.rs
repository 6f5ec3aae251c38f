//! Peers that speak the file protocol by hand, honestly or not.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use quinn::{Connection, Endpoint, RecvStream, SendStream, TransportConfig, VarInt};
use verus_transfer::frames::{Answer, FileInfo, Frame, Request, decode, encode};

pub use crate::corpus::transfer_state::peer::{calling, listener};

pub fn caller() -> Endpoint {
    Endpoint::client(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a socket")
}

/// A transport that takes no more than `window` bytes of any stream until they are read.
pub fn transport(window: u32) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.stream_receive_window(VarInt::from_u32(window));
    transport
}

pub async fn send_frame<F: Frame>(stream: &mut SendStream, frame: &F) {
    let bytes = encode(frame).expect("a short message");
    stream.write_all(&bytes).await.expect("an open stream");
}

pub async fn receive_frame<F: Frame>(stream: &mut RecvStream) -> Option<F> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).await.ok()?;
    let mut bytes = vec![0; usize::from(u16::from_le_bytes(length))];
    stream.read_exact(&mut bytes).await.ok()?;
    decode(&bytes).ok()
}

/// The first datagram of somebody who calls.
pub fn first_datagram() -> Vec<u8> {
    let trap = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let to = trap.local_addr().expect("bound");
    let connecting = caller().connect_with(calling(transport(1 << 20)), to, "verus");
    let mut first = vec![0; 2048];
    let length = trap.recv(&mut first).expect("a datagram");
    drop(connecting);
    first.truncate(length);
    first
}

/// Asks for a place for a file of `size` bytes.
pub fn put(path: impl Into<Vec<u8>>, size: u64, replace: bool) -> Request {
    let file = FileInfo {
        size,
        modified: None,
        executable: false,
    };
    let path = path.into();
    Request::Put {
        path,
        file,
        replace,
    }
}

/// Connects and greets a server that needs no token, with a transport that takes no more than `window` bytes of any
/// stream until they are read.
pub async fn greet(server: SocketAddr, window: u32) -> Connection {
    greet_by(&caller(), server, window).await
}

/// The same from the given endpoint.
pub async fn greet_by(endpoint: &Endpoint, server: SocketAddr, window: u32) -> Connection {
    let connection = endpoint
        .connect_with(calling(transport(window)), server, "verus")
        .expect("an address")
        .await
        .expect("a server");
    let (mut send, mut receive) = connection.open_bi().await.expect("a stream");
    send_frame(&mut send, &Request::Hello { proof: None }).await;
    let answer = receive_frame(&mut receive).await;
    assert!(matches!(answer, Some(Answer::Welcome { .. })), "{answer:?}");
    connection
}
