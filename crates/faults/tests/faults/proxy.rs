//! The proxy between real sockets.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration as Span;

use verus_channel::{QueueConfig, RateSchedule, Service};
use verus_core::{Duration, Rate, Time};
use verus_faults::{Bottleneck, Faults, Interval, Proxy, ProxyConfig, Schedule, machine};

/// Long enough for a machine that does other things as well.
const PATIENCE: Span = Span::from_secs(5);

fn server(address: impl Into<std::net::IpAddr>) -> UdpSocket {
    let socket = UdpSocket::bind((address.into(), 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn client_of(proxy: &Proxy) -> UdpSocket {
    let socket = UdpSocket::bind((proxy.addr().ip(), 0)).unwrap();
    socket.connect(proxy.addr()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 2048];
    let (length, from) = socket.recv_from(&mut buffer).unwrap();
    (buffer[..length].to_vec(), from)
}

#[test]
fn datagrams_go_both_ways_between_each_client_and_the_server() {
    for address in [
        Ipv4Addr::LOCALHOST.into(),
        std::net::IpAddr::from(Ipv6Addr::LOCALHOST),
    ] {
        let server = server(address);
        let proxy = Proxy::start(ProxyConfig::new(server.local_addr().unwrap())).unwrap();
        let clients = [client_of(&proxy), client_of(&proxy)];
        for (client, question) in clients.iter().zip(["one", "two"]) {
            client.send(question.as_bytes()).unwrap();
        }
        let requests = [receive(&server), receive(&server)];
        assert_ne!(requests[0].1, requests[1].1, "each client has an address");
        for (question, from) in &requests {
            let answer = [b"re: ", question.as_slice()].concat();
            server.send_to(&answer, from).unwrap();
        }
        assert_eq!(receive(&clients[0]).0, b"re: one");
        assert_eq!(receive(&clients[1]).0, b"re: two");
        let stats = proxy.stop().unwrap();
        assert_eq!((stats.clients, stats.unsent), (2, 0));
        assert_eq!((stats.up.delivered, stats.up.delivered_bytes), (2, 6));
        assert_eq!((stats.down.delivered, stats.down.delivered_bytes), (2, 14));
    }
}

#[test]
#[ignore = "reads the clock: make test-clock"]
fn the_server_sees_a_new_address_and_answers_there_reach_the_same_client() {
    let _machine = machine::watch(5);
    let server = server(Ipv4Addr::LOCALHOST);
    let proxy = Proxy::start(ProxyConfig {
        schedule: Schedule {
            address_changes: vec![Time::from_millis(100)],
            ..Schedule::default()
        },
        ..ProxyConfig::new(server.local_addr().unwrap())
    })
    .unwrap();
    let client = client_of(&proxy);
    let mut addresses = Vec::new();
    for round in 0..3 {
        client.send(b"question").unwrap();
        let (_, from) = receive(&server);
        assert!(!addresses.contains(&from), "{from} again");
        addresses.push(from);
        server.send_to(b"answer", from).unwrap();
        assert_eq!(receive(&client).0, b"answer");
        match round {
            0 => thread::sleep(Span::from_millis(150)),
            _ => {
                proxy.change_address();
                thread::sleep(Span::from_millis(20));
            }
        }
    }
    assert_eq!(proxy.stats().address_changes, 3);
}

#[test]
fn a_server_that_is_not_there_is_silence() {
    let nobody = server(Ipv4Addr::LOCALHOST).local_addr().unwrap();
    let proxy = Proxy::start(ProxyConfig::new(nobody)).unwrap();
    let client = client_of(&proxy);
    for _ in 0..5 {
        client.send(b"hello?").unwrap();
        thread::sleep(Span::from_millis(5));
    }
    client
        .set_read_timeout(Some(Span::from_millis(50)))
        .unwrap();
    client.recv(&mut [0; 16]).unwrap_err();
    assert_eq!(proxy.stop().unwrap().up.delivered, 5);
}

#[test]
#[ignore = "reads the clock: make test-clock"]
fn faults_happen_in_real_time_as_scheduled() {
    let _machine = machine::watch(5);
    let server = server(Ipv4Addr::LOCALHOST);
    let proxy = Proxy::start(ProxyConfig {
        schedule: Schedule {
            seed: 3,
            up: Faults {
                loss: 0.25,
                delay: Duration::from_millis(10),
                ..Faults::default()
            },
            blackouts: vec![Interval {
                start: Time::from_millis(600),
                length: Duration::MAX,
            }],
            ..Schedule::default()
        },
        ..ProxyConfig::new(server.local_addr().unwrap())
    })
    .unwrap();
    let client = client_of(&proxy);
    for _ in 0..400 {
        client.send(&[7; 100]).unwrap();
    }
    thread::sleep(Span::from_millis(650));
    client.send(b"too late").unwrap();
    thread::sleep(Span::from_millis(50));
    let stats = proxy.stop().unwrap();
    // 100 with a standard deviation of 9.
    assert!((60..140).contains(&stats.up.lost), "{stats:?}");
    assert_eq!((stats.up.dark, stats.up.held), (1, 0));
    assert_eq!(stats.up.delivered + stats.up.lost, 400);
}

#[test]
#[ignore = "reads the clock: make test-clock"]
fn a_bottleneck_holds_the_rate_in_real_time() {
    let _machine = machine::watch(2);
    let server = server(Ipv4Addr::LOCALHOST);
    let rate = Rate::from_mbps(20.0);
    let proxy = Proxy::start(ProxyConfig {
        schedule: Schedule::perfect(Duration::from_millis(5)),
        up: Some(Bottleneck {
            service: Service::Rate(RateSchedule::constant(rate)),
            queue: QueueConfig::parse("droptail:bytes=100000").unwrap(),
        }),
        ..ProxyConfig::new(server.local_addr().unwrap())
    })
    .unwrap();
    let client = client_of(&proxy);
    // Each takes 0.6 ms, and all of them fit the queue.
    for _ in 0..60 {
        client.send(&[1; 1_472]).unwrap();
    }
    for _ in 0..60 {
        receive(&server);
    }
    let stats = proxy.stop().unwrap();
    let link = stats.up.bottleneck.unwrap();
    assert_eq!((link.departed, link.dropped), (60, 0));
    assert_eq!(link.departed_bytes, 90_000);
    // The last of a burst waits at most for the 59 before it, and its own time.
    assert!((0.6..=36.04).contains(&link.queueing.max_ms), "{link:?}");
    // The first came at time zero.
    assert!(stats.elapsed_s >= 0.041, "{stats:?}");
}
