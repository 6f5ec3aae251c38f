//! Faults of quinn-proto 0.11.19, with its own Cubic and nothing of ours. `faults_quic.rs` excuses
//! them and `quic/driver.rs` works around them. A test that fails here shows that quinn has mended
//! one, and the excuse can go.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::quic_virtual::{Keys, base};
use quinn_proto::{
    Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig, Incoming,
    TransportConfig,
};
use verus_faults::world::{SERVER, client_address};

/// One end, and its only connection.
struct Side {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
}

impl Side {
    /// A datagram arrives; a stranger's is handed back.
    fn receive(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) -> Option<Incoming> {
        let mut buffer = Vec::new();
        let event = self
            .endpoint
            .handle(now, from, None, None, datagram.into(), &mut buffer);
        match event {
            Some(DatagramEvent::NewConnection(incoming)) => return Some(incoming),
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                if let Some((_, connection)) = &mut self.connection {
                    connection.handle_event(event);
                }
            }
            _ => {}
        }
        None
    }

    fn connection(&mut self) -> &mut Connection {
        &mut self.connection.as_mut().expect("connected").1
    }

    /// The datagrams to send by now, and their destinations.
    fn say(&mut self, now: Instant) -> Vec<(SocketAddr, Vec<u8>)> {
        let Some((handle, connection)) = &mut self.connection else {
            return Vec::new();
        };
        if connection.poll_timeout().is_some_and(|due| due <= now) {
            connection.handle_timeout(now);
        }
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        while connection.poll().is_some() {}
        let mut said = Vec::new();
        loop {
            let mut buffer = Vec::new();
            match connection.poll_transmit(now, 1, &mut buffer) {
                Some(transmit) => said.push((transmit.destination, buffer)),
                None => return said,
            }
        }
    }
}

/// A client that connects, and a server that has received nothing yet.
fn ends(now: Instant) -> (Side, Side) {
    let keys = Keys::new();
    let transport = Arc::new(TransportConfig::default());
    let config = Arc::new(EndpointConfig::default());
    let server = Some(Arc::new(keys.server(Arc::clone(&transport))));
    let server = Side {
        endpoint: Endpoint::new(Arc::clone(&config), server, true, None),
        connection: None,
    };
    let mut endpoint = Endpoint::new(config, None, true, None);
    let connection = endpoint.connect(now, keys.client(transport), SERVER, "localhost");
    let connection = Some(connection.expect("nothing is wrong with the address"));
    (
        Side {
            endpoint,
            connection,
        },
        server,
    )
}

/// Both ends connected, 100 ms later.
fn connected() -> (Instant, Side, Side) {
    let mut now = base();
    let (mut client, mut server) = ends(now);
    for _ in 0..10 {
        now += Duration::from_millis(10);
        for (_, datagram) in client.say(now) {
            if let Some(incoming) = server.receive(now, client_address(0), &datagram) {
                let accepted = server.endpoint.accept(incoming, now, &mut Vec::new(), None);
                server.connection = Some(accepted.expect("it is in order"));
                // Datagrams from before the connection are in it.
            }
        }
        for (_, datagram) in server.say(now) {
            client.receive(now, SERVER, &datagram);
        }
    }
    assert!(!server.connection().is_handshaking());
    (now, client, server)
}

#[test]
fn a_retry_that_came_corrupted_makes_quinns_client_deaf_to_the_true_one() {
    // RFC 9001 §5.8: one whose tag is wrong is discarded. quinn counts it as authenticated first, and takes no
    // Retry once anything is.
    for corrupted_first in [false, true] {
        let now = base();
        let (mut client, mut server) = ends(now);
        let hello = client.say(now).remove(0).1;
        let incoming = server.receive(now, client_address(0), &hello);
        let mut retry = Vec::new();
        let sent = server
            .endpoint
            .retry(incoming.expect("a stranger"), &mut retry);
        retry.truncate(sent.expect("it may be retried").size);
        if corrupted_first {
            let mut corrupted = retry.clone();
            *corrupted.last_mut().expect("its tag") ^= 1;
            client.receive(now, SERVER, &corrupted);
            assert!(client.say(now).is_empty());
        }
        client.receive(now, SERVER, &retry);
        assert_eq!(client.say(now).is_empty(), corrupted_first);
    }
}

#[test]
fn quinn_sends_one_challenge_to_a_new_address_and_until_three_timeouts_later_hardly_anything() {
    // RFC 9000 §8.2.1 lets it send more to guard against loss.
    let (mut now, mut client, mut server) = connected();
    let stream = server.connection().streams().open(Dir::Uni);
    let stream = stream.expect("the client allows some");
    let written = server.connection().send_stream(stream).write(&[0; 100_000]);
    assert_eq!(written.expect("there is room"), 100_000);

    // The client sends from a new address every 100 ms, and nothing reaches it.
    let moved = now;
    let (mut received, mut sent) = (0, 0);
    while now < moved + Duration::from_secs(2) {
        now += Duration::from_millis(100);
        client.connection().ping();
        for (_, datagram) in client.say(now) {
            received += datagram.len();
            server.receive(now, client_address(1), &datagram);
        }
        for (to, datagram) in server.say(now) {
            sent += if to == client_address(1) {
                datagram.len()
            } else {
                0
            };
        }
        // One to the new address and one to the old.
        assert_eq!(server.connection().stats().frame_tx.path_challenge, 2);
    }
    // The last datagram may go over: it is let go while anything is left.
    assert!(
        sent < 3 * received + 1500,
        "{sent} B sent, {received} B received"
    );
    assert!(sent < 10_000, "{sent} B of 100,000");
}

#[test]
fn quinn_says_nothing_of_a_close_while_the_window_is_full() {
    // RFC 9002 §7: only packets in flight count against the window, and §2: CONNECTION_CLOSE is not
    // in flight.
    for full in [false, true] {
        let (now, mut client, _) = connected();
        if full {
            let stream = client.connection().streams().open(Dir::Uni);
            let stream = stream.expect("the server allows some");
            let written = client.connection().send_stream(stream).write(&[0; 100_000]);
            assert!(written.expect("there is room") > 50_000);
            let sent = client.say(now);
            assert!(!sent.is_empty());
        }
        client.connection().close(now, 0u32.into(), "enough".into());
        assert_eq!(client.say(now).is_empty(), full);
    }
}
