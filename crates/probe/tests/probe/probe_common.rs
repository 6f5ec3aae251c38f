//! A probe server behind a link on the loopback interface, and requests to it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use verus_core::Duration;
use verus_faults::{Bottleneck, Proxy, ProxyConfig, Schedule};
use verus_probe::client::ClientConfig;
use verus_probe::driver::Driver;
use verus_probe::server::{Catalogue, Server, ServerConfig};
use verus_probe::socket::UdpSocket;
use verus_probe::wire::Request;

/// Size of data packets as IP has them.
pub const PACKET_BYTES: u16 = 1400;

/// A server, a link towards it of a given rate with 15 ms in each direction, and a thread that
/// serves.
pub struct Served {
    proxy: Proxy,
    over: Arc<AtomicBool>,
    server: JoinHandle<()>,
}

impl Served {
    pub fn behind(mbps: f64, queue: &str) -> Self {
        let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let socket = UdpSocket::bind(bind).expect("a port");
        let mut config = ProxyConfig::new(socket.local_addr().expect("bound"));
        config.schedule = Schedule::perfect(Duration::from_millis(15));
        config.up = Some(Bottleneck::new(mbps, queue));
        let proxy = Proxy::start(config).expect("a proxy");
        let over = Arc::new(AtomicBool::new(false));
        let server = thread::spawn({
            let over = Arc::clone(&over);
            move || {
                let mut driver = Driver::new(socket).expect("a timer");
                let now = driver.clock().now();
                let mut server = Server::new(ServerConfig::default(), Catalogue, [1; 32], now);
                while !over.load(Ordering::Relaxed) {
                    let until = driver.clock().now() + Duration::from_millis(50);
                    driver.turn(&mut server, Some(until), None).expect("a turn");
                    server.drain_notices().for_each(drop);
                }
            }
        });
        Served {
            proxy,
            over,
            server,
        }
    }

    /// A socket to it, across the link.
    pub fn connect(&self) -> UdpSocket {
        UdpSocket::connect(self.proxy.addr()).expect("loopback")
    }

    pub fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        self.server.join().expect("the server ended well");
    }
}

/// One upload flow of a scheme for three seconds.
pub fn upload(scheme: &str, log: bool) -> ClientConfig {
    ClientConfig {
        log,
        ..ClientConfig::new(Request {
            duration_nanos: 3_000_000_000,
            scheme: scheme.to_owned(),
            ..Request::default()
        })
    }
}
