//! A controller of ours, `forward`, in an existing quinn program: only the lines between two
//! markers are added.
//!
//! `cargo run --release -p quinn-with-verus` sends 20 MB to itself over loopback.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use quinn::{ClientConfig, Endpoint, ServerConfig, TransportConfig};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use verus_quinn::{self as quic, Configured, forward};

const BYTES: usize = 20_000_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // A program's own affairs: certificates, addresses, configurations.
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let certificate = CertificateDer::from(key.cert);
    let private = PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone())?;
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut server_config = ServerConfig::with_single_cert(vec![certificate], private.into())?;
    let mut client_config = ClientConfig::with_root_certificates(Arc::new(roots))?;

    // ---- Ours: a transport for both ends ...
    let forward: Arc<dyn Configured> = Arc::new(forward::Config::default());
    let mut transport = TransportConfig::default();
    quic::configure(&mut transport, &forward, 1);
    let transport = Arc::new(transport);
    server_config.transport_config(Arc::clone(&transport));
    client_config.transport_config(transport);
    // ----

    let server = Endpoint::server(server_config, any)?;
    // ---- ... an endpoint whose packets bear ECN if the controller answers marks ...
    let client = quic::endpoint(UdpSocket::bind(any)?, None, &forward)?;
    // ----
    let connecting = client.connect_with(client_config, server.local_addr()?, "localhost")?;
    let accepting = async { server.accept().await.expect("it is open").await };
    let (connection, accepted) = tokio::join!(connecting, accepting);
    let (connection, accepted) = (connection?, accepted?);

    // ---- ... and a driver for the end that sends: it keeps the controller's timer.
    let _driver = quic::drive(&connection);
    // ----

    let reading = tokio::spawn(async move {
        let mut stream = accepted.accept_uni().await.expect("a stream");
        stream.read_to_end(BYTES).await.expect("all of it").len()
    });
    let mut stream = connection.open_uni().await?;
    stream.write_all(&vec![7; BYTES]).await?;
    stream.finish()?;
    let received = reading.await?;

    let snapshot = quic::view(&connection).expect("ours").snapshot();
    println!(
        "{} MB arrived; window {} B, round trip {:.3} ms, {} ticks",
        received / 1_000_000,
        snapshot.window.get(),
        snapshot.smoothed_rtt.as_millis_f64(),
        snapshot.counters.ticks
    );
    Ok(())
}
