//! Name resolution at the far end: a resolver of the host's that listens on the host's loopback interface
//! cannot be reached from there, so its queries are carried over.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Where the C library looks.
pub const CONFIGURATION: &str = "/etc/resolv.conf";
/// Where systemd-resolved names the servers behind it.
const BEHIND: &str = "/run/systemd/resolve/resolv.conf";

const PORT: u16 = 53;
/// Queries at a time.
const MOST: usize = 128;
const PATIENCE: Duration = Duration::from_secs(10);
/// The largest message over UDP (RFC 6891 leaves it to the sender).
const MESSAGE_BYTES: usize = 65_535;

/// Name resolution at the far end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Nothing: the host's servers can be reached from there.
    AsItIs,
    /// Another configuration, of this text.
    Configuration(String),
    /// Another configuration, and [`relay`] to this server.
    Relay(SocketAddr),
}

impl Resolution {
    /// The resolution that the host's configuration requires.
    pub fn of_host() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Resolution::of(&read(CONFIGURATION), &read(BEHIND))
    }

    /// The resolution that `configuration` requires; `behind` is the configuration of
    /// systemd-resolved.
    fn of(configuration: &str, behind: &str) -> Self {
        let servers = servers(configuration);
        match servers.first() {
            Some(first) if servers.iter().all(IpAddr::is_loopback) => {
                if self::servers(behind)
                    .iter()
                    .any(|server| !server.is_loopback())
                {
                    Resolution::Configuration(behind.to_owned())
                } else {
                    Resolution::Relay(SocketAddr::new(*first, PORT))
                }
            }
            // Without any, the C library asks the loopback interface (resolv.conf(5)).
            None if !configuration.is_empty() => {
                Resolution::Relay(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)))
            }
            _ => Resolution::AsItIs,
        }
    }

    /// The text of the far end's configuration, if it needs one; `near` is the host's address on the path.
    pub fn configuration(&self, near: Ipv4Addr) -> Option<String> {
        match self {
            Resolution::AsItIs => None,
            Resolution::Configuration(text) => Some(text.clone()),
            Resolution::Relay(_) => Some(format!("nameserver {near}\n")),
        }
    }
}

fn servers(configuration: &str) -> Vec<IpAddr> {
    configuration
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let address = (words.next()? == "nameserver").then(|| words.next())??;
            // An IPv6 address may name its interface.
            address.split('%').next()?.parse().ok()
        })
        .collect()
}

/// Carries queries that come to `near`, by UDP and TCP, to `server`, and its answers back; until it is
/// dropped.
///
/// # Errors
/// If it cannot listen there.
pub async fn relay(near: Ipv4Addr, server: SocketAddr) -> io::Result<()> {
    let udp = Arc::new(UdpSocket::bind((near, PORT)).await?);
    let tcp = TcpListener::bind((near, PORT)).await?;
    let places = Arc::new(Semaphore::new(MOST));
    let mut query = vec![0; MESSAGE_BYTES];
    loop {
        // A query without a free place is dropped: the client asks again.
        tokio::select! {
            received = udp.recv_from(&mut query) => {
                if let (Ok((length, client)), Ok(place)) = (received, Arc::clone(&places).try_acquire_owned()) {
                    let (udp, query) = (Arc::clone(&udp), query[..length].to_vec());
                    tokio::spawn(async move {
                        if let Ok(Ok(answer)) = timeout(PATIENCE, ask(server, &query)).await {
                            let _ = udp.send_to(&answer, client).await;
                        }
                        drop(place);
                    });
                }
            }
            accepted = tcp.accept() => {
                if let (Ok((mut client, _)), Ok(place)) = (accepted, Arc::clone(&places).try_acquire_owned()) {
                    tokio::spawn(async move {
                        let carried = async {
                            let mut server = TcpStream::connect(server).await?;
                            copy_bidirectional(&mut client, &mut server).await
                        };
                        let _ = timeout(PATIENCE, carried).await;
                        drop(place);
                    });
                }
            }
        }
    }
}

async fn ask(server: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let any: SocketAddr = if server.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(query).await?;
    let mut answer = vec![0; MESSAGE_BYTES];
    let length = socket.recv(&mut answer).await?;
    answer.truncate(length);
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_can_be_reached_are_left_alone() {
        let text = "search example\nnameserver 10.0.0.53\nnameserver 127.0.0.1\n";
        assert_eq!(Resolution::of(text, ""), Resolution::AsItIs);
        assert_eq!(Resolution::of("", ""), Resolution::AsItIs);
    }

    #[test]
    fn a_resolver_of_the_hosts_is_gone_past_or_relayed() {
        let text = "nameserver 127.0.0.53\noptions edns0\n";
        let behind = "nameserver fe80::1%eth0\n";
        assert_eq!(
            Resolution::of(text, behind),
            Resolution::Configuration(behind.to_owned())
        );
        let server = SocketAddr::from(([127, 0, 0, 53], 53));
        assert_eq!(Resolution::of(text, text), Resolution::Relay(server));
        assert_eq!(
            Resolution::of(text, "").configuration(Ipv4Addr::new(100, 64, 3, 1)),
            Some("nameserver 100.64.3.1\n".to_owned())
        );
        assert!(matches!(
            Resolution::of("# none\n", ""),
            Resolution::Relay(_)
        ));
    }
}
