//! A server of noq that sends with a controller of ours, `forward`, and a client that receives.
//!
//! `cargo run --release -p noq-with-verus` sends 20 MB over loopback.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use noq::{ClientConfig, Endpoint, PathId, ServerConfig, TransportConfig};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use verus_noq::{self as quic, Configured, forward};

const BYTES: usize = 20_000_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let certificate = CertificateDer::from(key.cert);
    let private = PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone())?;
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));

    let forward: Arc<dyn Configured> = Arc::new(forward::Config::default());
    let mut transport = TransportConfig::default();
    quic::configure(&mut transport, &forward, 1);
    let mut server_config = ServerConfig::with_single_cert(vec![certificate], private.into())?;
    server_config.transport_config(Arc::new(transport));
    let server = quic::endpoint(UdpSocket::bind(any)?, Some(server_config), &forward)?;
    let address = server.local_addr()?;

    let serving = tokio::spawn(async move {
        let connection = server.accept().await.expect("it is open").await?;
        let _driver = quic::drive(&connection, PathId::ZERO);
        let mut stream = connection.open_uni().await?;
        stream.write_all(&vec![7; BYTES]).await?;
        stream.finish()?;
        let view = quic::view(&connection, PathId::ZERO).expect("ours");
        connection.closed().await;
        Ok::<_, Box<dyn Error + Send + Sync>>(view.snapshot())
    });

    let config = ClientConfig::with_root_certificates(Arc::new(roots))?;
    let connecting = Endpoint::client(any)?.connect_with(config, address, "localhost")?;
    let connection = connecting.await?;
    let received = connection.accept_uni().await?.read_to_end(BYTES).await?;
    assert_eq!(received.len(), BYTES);
    connection.close(0u32.into(), b"");
    let snapshot = serving.await?.map_err(|error| error.to_string())?;
    let rtt_ms = snapshot.smoothed_rtt.as_millis_f64();
    println!("{BYTES} bytes arrived; round trip {rtt_ms:.3} ms");
    Ok(())
}

#[test]
fn the_server_sends_all() -> Result<(), Box<dyn Error>> {
    main()
}
