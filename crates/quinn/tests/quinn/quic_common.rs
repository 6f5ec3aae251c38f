//! Two ends of a QUIC connection on the loopback interface, for tests and benchmarks.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint, ServerConfig, TransportConfig};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use verus_core::Duration;
use verus_faults::{Proxy, ProxyConfig, Schedule, taught};
use verus_quinn::Factory;
use verus_senders::Scheme;

/// A runtime with a thread for each end.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// The present scheme of that name.
pub fn scheme(text: &str) -> Scheme {
    Scheme::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// The model-driven controller, taught to send one packet an epoch.
pub fn model() -> Scheme {
    Scheme::open("model:file=taught.model,walk=sampled", |_| {
        Ok(taught::model())
    })
    .unwrap_or_else(|error| panic!("{error}"))
}

/// A transport with the controller of the scheme of that name.
pub fn transport(text: &str) -> TransportConfig {
    transport_of(&scheme(text))
}

/// A transport with `scheme`'s controller.
pub fn transport_of(scheme: &Scheme) -> TransportConfig {
    let mut transport = TransportConfig::default();
    Factory::new(scheme.config(), 1).install(&mut transport);
    transport
}

/// A connection and both its endpoints.
pub struct Pair {
    pub client: Connection,
    pub server: Connection,
    _listening: Endpoint,
    pub calling: Endpoint,
}

impl Pair {
    /// A client that sends by `scheme`, and a server.
    pub async fn new(text: &str) -> Pair {
        Pair::with(transport(text), transport(text)).await
    }

    pub async fn with(client: TransportConfig, server: TransportConfig) -> Pair {
        Pair::by_way_of(client, server, |server| server).await
    }

    /// The client calls the address that `route` gives for the server's.
    pub async fn by_way_of(
        client: TransportConfig,
        server: TransportConfig,
        route: impl FnOnce(SocketAddr) -> SocketAddr,
    ) -> Pair {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listening = |config| Endpoint::server(config, any).expect("a socket");
        let calling = Endpoint::client(any).expect("a socket");
        Pair::between(client, server, listening, calling, route).await
    }

    /// A pair with a proxy between the ends, which delays each direction by `delay` and otherwise
    /// follows `change`.
    pub async fn behind(
        client: TransportConfig,
        server: TransportConfig,
        delay: Duration,
        change: impl FnOnce(&mut ProxyConfig),
    ) -> (Pair, Proxy) {
        let mut proxy = None;
        let pair = Pair::by_way_of(client, server, |server| {
            let mut config = ProxyConfig::new(server);
            config.schedule = Schedule::perfect(delay);
            change(&mut config);
            let proxy = proxy.insert(Proxy::start(config).expect("a proxy"));
            proxy.addr()
        });
        let pair = pair.await;
        (pair, proxy.expect("made"))
    }

    /// The same with the given endpoints.
    pub async fn between(
        client: TransportConfig,
        server: TransportConfig,
        listening: impl FnOnce(ServerConfig) -> Endpoint,
        calling: Endpoint,
        route: impl FnOnce(SocketAddr) -> SocketAddr,
    ) -> Pair {
        let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a key");
        let certificate = CertificateDer::from(key.cert);
        let private = PrivateKeyDer::Pkcs8(key.signing_key.serialize_der().into());
        let mut server_config =
            ServerConfig::with_single_cert(vec![certificate.clone()], private).expect("a server");
        server_config.transport_config(Arc::new(server));
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate).expect("a certificate");
        let tls = rustls::ClientConfig::builder_with_provider(Arc::new(
            rustls::crypto::ring::default_provider(),
        ))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
        let mut client_config = ClientConfig::new(Arc::new(
            QuicClientConfig::try_from(tls).expect("QUIC's ciphers"),
        ));
        client_config.transport_config(Arc::new(client));
        let listening = listening(server_config);
        let to = route(listening.local_addr().expect("bound"));
        let connecting = calling
            .connect_with(client_config, to, "localhost")
            .expect("a connection");
        let accept = async { listening.accept().await.expect("open").await };
        let (client, server) = tokio::join!(connecting, accept);
        Pair {
            client: client.expect("connected"),
            server: server.expect("connected"),
            _listening: listening,
            calling,
        }
    }

    /// The client sends `bytes` bytes; the server reads them to the end.
    pub async fn send(&self, bytes: usize) {
        carry(&self.client, &self.server, bytes).await;
    }
}

/// One end sends `bytes` bytes; the other reads them to the end.
pub async fn carry(from: &Connection, to: &Connection, bytes: usize) {
    let to = to.clone();
    let read = tokio::spawn(async move { read(&to).await });
    write(from, bytes).await.expect("written");
    assert_eq!(read.await.expect("read"), bytes);
}

/// Sends `bytes` bytes on a new stream.
pub async fn write(connection: &Connection, bytes: usize) -> Result<(), quinn::WriteError> {
    let mut stream = connection.open_uni().await?;
    let block = vec![7; 64 << 10];
    let mut remaining = bytes;
    while remaining > 0 {
        let part = remaining.min(block.len());
        stream.write_all(&block[..part]).await?;
        remaining -= part;
    }
    stream.finish().expect("finished once");
    Ok(())
}

/// Reads the next stream to its end, or the connection's; says how many bytes it had.
pub async fn read(connection: &Connection) -> usize {
    let mut total = 0;
    if let Ok(mut stream) = connection.accept_uni().await {
        while let Ok(Some(chunk)) = stream.read_chunk(usize::MAX, true).await {
            total += chunk.bytes.len();
        }
    }
    total
}
