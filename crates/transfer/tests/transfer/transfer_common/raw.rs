//! Peers that speak the file protocol by hand, honestly or not.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Connection, Endpoint, RecvStream, SendStream, TransportConfig, VarInt};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use verus_transfer::frames::{ALPN, Answer, FileInfo, Frame, Request, decode, encode};

#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = default_provider();
        provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// How to reach any server; `transport` is the attacker's.
pub fn calling(transport: TransportConfig) -> ClientConfig {
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_no_client_auth();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let tls = QuicClientConfig::try_from(tls).expect("QUIC's ciphers");
    let mut config = ClientConfig::new(Arc::new(tls));
    config.transport_config(Arc::new(transport));
    config
}

pub fn caller() -> Endpoint {
    Endpoint::client(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a socket")
}

/// An endpoint that anybody may call.
pub fn listener(transport: TransportConfig) -> Endpoint {
    let made = rcgen::generate_simple_self_signed(["x".to_owned()]).expect("a key");
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(made.cert)], key)
        .expect("a good key");
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let tls = QuicServerConfig::try_from(tls).expect("QUIC's ciphers");
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(tls));
    config.transport_config(Arc::new(transport));
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Endpoint::server(config, any).expect("a socket")
}

/// A transport that takes no more than `window` bytes of any stream until they are read.
pub fn transport(window: u32) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.stream_receive_window(VarInt::from_u32(window));
    transport
}

pub async fn say<F: Frame>(stream: &mut SendStream, frame: &F) {
    let bytes = encode(frame).expect("a short message");
    stream.write_all(&bytes).await.expect("an open stream");
}

pub async fn hear<F: Frame>(stream: &mut RecvStream) -> Option<F> {
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

/// The same from an endpoint of one's own.
pub async fn greet_by(endpoint: &Endpoint, server: SocketAddr, window: u32) -> Connection {
    let connection = endpoint
        .connect_with(calling(transport(window)), server, "verus")
        .expect("an address")
        .await
        .expect("a server");
    let (mut send, mut receive) = connection.open_bi().await.expect("a stream");
    say(&mut send, &Request::Hello { proof: None }).await;
    let answer = hear(&mut receive).await;
    assert!(matches!(answer, Some(Answer::Welcome { .. })), "{answer:?}");
    connection
}
