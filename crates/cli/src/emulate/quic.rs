//! Our controllers in QUIC.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::time::Duration as Span;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint, IdleTimeout, ServerConfig, TransportConfig, VarInt};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use verus_core::Time;
use verus_quinn as quic;
use verus_senders::Scheme;

use super::flow::{Flow, Outcome};

/// Interval of checks of a sleeping end for the end of the run.
const LOOK: Span = Span::from_millis(50);
const CONNECTING: Span = Span::from_secs(10);
/// Flow control and buffers are no limit: the controller alone decides.
const ROOM: u32 = 1 << 27;
const NAME: &str = "emulated";

/// Receives until the run is over. Returns the bytes of data, without headers.
pub fn receive(flow: &Flow<'_>) -> io::Result<u64> {
    runtime()?.block_on(async {
        let key = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).map_err(other)?;
        let private = PrivateKeyDer::Pkcs8(key.signing_key.serialize_der().into());
        let certificate = CertificateDer::from(key.cert);
        let mut config =
            ServerConfig::with_single_cert(vec![certificate.clone()], private).map_err(other)?;
        config.transport_config(Arc::new(transport(flow)?));
        let endpoint = Endpoint::server(config, flow.receiver)?;
        flow.stage.offer(flow.index, certificate);
        flow.stage.listen(flow.index);
        let received = std::cell::Cell::new(0u64);
        let reading = async {
            let connection = endpoint.accept().await?.await.ok()?;
            let mut stream = connection.accept_uni().await.ok()?;
            while let Ok(Some(chunk)) = stream.read_chunk(usize::MAX, true).await {
                received.set(received.get() + chunk.bytes.len() as u64);
            }
            Some(())
        };
        tokio::select! {
            _ = reading => over(flow).await,
            () = over(flow) => {}
        }
        Ok(received.get())
    })
}

/// Sends until the run is over.
pub fn send(flow: &Flow<'_>, scheme: &Scheme) -> io::Result<Outcome> {
    let certificate = flow
        .stage
        .certificate(flow.index)
        .ok_or_else(|| io::Error::other("the receiver has no certificate"))?;
    runtime()?.block_on(async {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate).map_err(other)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tls = QuicClientConfig::try_from(tls).map_err(other)?;
        let mut config = ClientConfig::new(Arc::new(tls));
        let mut transport = transport(flow)?;
        quic::Factory::new(scheme.config(), flow.seed)
            .send_window(u64::from(ROOM))
            .install(&mut transport);
        config.transport_config(Arc::new(transport));
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let endpoint = quic::endpoint(socket, None, scheme.config())?;
        let connecting = endpoint
            .connect_with(config, flow.receiver, NAME)
            .map_err(other)?;
        let connection = tokio::time::timeout(CONNECTING, connecting)
            .await
            .map_err(other)?
            .map_err(other)?;
        let _driver = quic::drive(&connection);
        let view = quic::view(&connection);
        if let (Some(view), Some(log)) = (&view, flow.log(scheme, "quic", Time::ZERO)?) {
            view.log_to(log);
        }
        let port = endpoint.local_addr()?.port();
        flow.stage.announce(flow.index, port);
        while !flow.stage.is_playing() {
            tokio::time::sleep(Span::from_millis(1)).await;
        }
        let writing = async {
            let mut stream = connection.open_uni().await.map_err(other)?;
            let block = vec![0; 1 << 16];
            loop {
                stream.write_all(&block).await.map_err(other)?;
                tokio::task::yield_now().await;
            }
        };
        let mut windows = Vec::new();
        let watching = async {
            let mut tick = tokio::time::interval(Span::from_millis(100));
            while !flow.stage.is_over() {
                tick.tick().await;
                let window = view.as_ref().map(|view| view.snapshot().window.as_f64());
                windows.push(window);
            }
        };
        let written: io::Result<()> = tokio::select! {
            written = writing => written,
            () = watching => Ok(()),
        };
        written?;
        view.as_ref().map_or(Ok(None), quic::View::end_log)?;
        let path = connection.stats().path;
        Ok(Outcome {
            transport: "quic",
            retransmit_rate: (path.sent_packets > 0)
                .then(|| path.lost_packets as f64 / path.sent_packets as f64),
            window_bytes: windows,
            ..Default::default()
        })
    })
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// Transport settings: packets of the run's size from the beginning, and only the controller as a
/// limit.
fn transport(flow: &Flow<'_>) -> io::Result<TransportConfig> {
    /// IPv4 and UDP.
    const HEADERS: u16 = 28;
    let mut transport = TransportConfig::default();
    transport
        .initial_mtu(flow.packet_bytes - HEADERS)
        .mtu_discovery_config(None)
        .receive_window(VarInt::from_u32(ROOM))
        .stream_receive_window(VarInt::from_u32(ROOM))
        .max_idle_timeout(Some(
            IdleTimeout::try_from(Span::from_secs(3600)).map_err(other)?,
        ));
    Ok(transport)
}

async fn over(flow: &Flow<'_>) {
    while !flow.stage.is_over() {
        tokio::time::sleep(LOOK).await;
    }
}

fn other(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}
