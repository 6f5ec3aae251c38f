//! One end of QUIC on a virtual clock: the part of `quinn` around `quinn-proto`, without sockets,
//! for tests.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration as Span, Instant};

use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir,
    EndpointConfig, Event, Incoming, ReadError, ServerConfig, StreamEvent, StreamId, Transmit,
    TransportConfig, VarInt, WriteError,
};
use rand::Rng;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use verus_core::{Time, random};
use verus_faults::world::{self, Endpoint};
use verus_quinn::{Driving, View};
use verus_senders::Scheme;

/// Longer than the longest blackout, so that a transfer can outlive it.
const IDLE_TIMEOUT: Span = Span::from_secs(60);
/// Only its next packet shows the server that a client's address has changed. Without this, a
/// client that only downloads would send none, and the server would send to the old address.
const KEEP_ALIVE: Span = Span::from_secs(5);

/// The data that one end is to send and to receive, and its progress.
pub struct Transfer {
    pub send: Vec<u8>,
    pub sent: usize,
    /// The other end has acknowledged all of it.
    pub acknowledged: bool,
    pub expect: Vec<u8>,
    pub received: usize,
    /// All of it has come.
    pub complete: bool,
    /// When.
    pub completed: Option<Time>,
}

/// One end of QUIC: the part of `quinn` around `quinn-proto`, without sockets.
pub struct Quic {
    base: Instant,
    pub endpoint: quinn_proto::Endpoint,
    pub connections: BTreeMap<usize, Connection>,
    out: VecDeque<(SocketAddr, Vec<u8>)>,
    /// The client's connection, or the one on which the server's stream is.
    pub stream: Option<(usize, StreamId)>,
    pub client: bool,
    /// Clients must prove their address before anything else.
    retry: bool,
    /// Datagrams handed over at once, as with segmentation offload.
    batch: usize,
    pub transfer: Transfer,
    pub outcome: Option<Result<(), ConnectionError>>,
    pub connections_max: usize,
    pub window_max: u64,
    /// Whether a clock runs epochs, as `verus_quinn::drive` does, and not only events.
    driven: bool,
    /// The driver of each connection's controller.
    driving: BTreeMap<usize, Driving>,
    /// Bytes that may be in flight and unread.
    window: u32,
    now: Time,
    /// When the handshake was done.
    pub connected: Option<Time>,
    /// A client's first Retry packet, or those that a server sent.
    pub retries: Vec<Vec<u8>>,
    /// Where the peer of the stream's connection is, and how many challenges it had answered before it was there.
    peer: Option<(SocketAddr, u64)>,
    /// It has moved, and not answered a challenge since.
    pub peer_unproven: bool,
}

/// Long header, type 3 (RFC 9000 §17.2.5).
fn is_retry(datagram: &[u8]) -> bool {
    datagram[0] & 0xf0 == 0xf0
}

/// The one reading of a clock: QUIC's instants cannot be made otherwise. Everything counts from it.
#[expect(
    clippy::disallowed_methods,
    reason = "an instant to count from; no result depends on it"
)]
pub fn base() -> Instant {
    Instant::now()
}

impl Transfer {
    fn new(send: Vec<u8>, expect: Vec<u8>) -> Self {
        Transfer {
            send,
            sent: 0,
            acknowledged: false,
            expect,
            received: 0,
            complete: false,
            completed: None,
        }
    }

    /// Writes and reads as much as the connection takes and has.
    fn go_on(&mut self, now: Time, connection: &mut Connection, id: StreamId) {
        let mut stream = connection.send_stream(id);
        while self.sent < self.send.len() {
            match stream.write(&self.send[self.sent..]) {
                Ok(written) => self.sent += written,
                Err(WriteError::Blocked) => break,
                Err(error) => panic!("cannot write: {error}"),
            }
            if self.sent == self.send.len() {
                stream.finish().expect("it is finished once");
            }
        }
        if self.complete {
            return;
        }
        let mut stream = connection.recv_stream(id);
        let mut chunks = stream.read(true).expect("it is read until its end");
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    let end = self.received + chunk.bytes.len();
                    assert_eq!(chunk.offset, self.received as u64);
                    assert!(
                        self.expect.get(self.received..end) == Some(&chunk.bytes[..]),
                        "bytes {}..{end} are not what was sent",
                        self.received
                    );
                    self.received = end;
                }
                Ok(None) => {
                    assert_eq!(self.received, self.expect.len(), "some bytes are missing");
                    self.complete = true;
                    self.completed = Some(now);
                    break;
                }
                Err(ReadError::Blocked) => break,
                Err(error) => panic!("cannot read: {error}"),
            }
        }
        let _ = chunks.finalize();
    }
}

impl Quic {
    pub fn is_driven(&self) -> bool {
        self.driven
    }

    pub fn succeeded(&self) -> bool {
        matches!(self.outcome, Some(Ok(())))
    }

    fn at(&self, now: Time) -> Instant {
        self.base + Span::from_nanos(now.as_nanos())
    }

    fn time(&self, instant: Instant) -> Time {
        let span = instant.saturating_duration_since(self.base);
        Time::from_nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }

    fn queue(&mut self, transmit: &Transmit, bytes: &[u8]) {
        let segment = transmit.segment_size.unwrap_or(transmit.size).max(1);
        for datagram in bytes[..transmit.size].chunks(segment) {
            self.out
                .push_back((transmit.destination, datagram.to_vec()));
        }
    }

    fn accept(&mut self, now: Time, incoming: Incoming) {
        let mut buffer = Vec::new();
        if self.retry && incoming.may_retry() {
            let transmit = self.endpoint.retry(incoming, &mut buffer);
            let transmit = transmit.expect("it may be retried");
            self.retries.push(buffer[..transmit.size].to_vec());
            self.queue(&transmit, &buffer);
            return;
        }
        let at = self.at(now);
        match self.endpoint.accept(incoming, at, &mut buffer, None) {
            Ok((handle, connection)) => {
                self.connections.insert(handle.0, connection);
                self.connections_max = self.connections_max.max(self.connections.len());
            }
            Err(error) => {
                if let Some(transmit) = error.response {
                    self.queue(&transmit, &buffer);
                }
            }
        }
    }

    /// Lets every connection do everything that is due.
    fn drive(&mut self, now: Time) {
        let handles: Vec<usize> = self.connections.keys().copied().collect();
        for handle in handles {
            loop {
                self.exchange_events(handle);
                self.application(now, handle);
                if self.connections[&handle].is_drained() {
                    self.connections.remove(&handle);
                    self.driving.remove(&handle);
                    break;
                }
                if !self.transmit_from(now, handle) {
                    break;
                }
            }
        }
    }

    fn exchange_events(&mut self, handle: usize) {
        let connection = self.connections.get_mut(&handle).expect("it is driven");
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(ConnectionHandle(handle), event) {
                connection.handle_event(event);
            }
        }
    }

    /// The controller of a connection's present path.
    pub fn view(connection: &Connection) -> View {
        verus_quinn::view_of(connection.congestion_state().clone_box())
            .expect("every connection has Verus")
    }

    /// The driver of a connection's present controller takes up its work.
    fn take_the_wheel(&mut self, handle: usize) {
        let view = Quic::view(&self.connections[&handle]);
        let is_driven = |driving: &Driving| driving.view().is_same(&view);
        if self.driven && !self.driving.get(&handle).is_some_and(is_driven) {
            self.driving.insert(handle, view.driving());
        }
    }

    fn transmit_from(&mut self, now: Time, handle: usize) -> bool {
        let at = self.at(now);
        let mut any = false;
        self.take_the_wheel(handle);
        loop {
            let mut buffer = Vec::new();
            let connection = self.connections.get_mut(&handle).expect("it is driven");
            let window = connection.congestion_state().window();
            // A packet that a budget lets leave at once has no limit at this instant.
            if window < u64::MAX {
                self.window_max = self.window_max.max(window);
            }
            let Some(transmit) = connection.poll_transmit(at, self.batch, &mut buffer) else {
                return any;
            };
            self.queue(&transmit, &buffer);
            any = true;
        }
    }

    /// The application: one stream in both directions; the client closes when all data has arrived.
    fn application(&mut self, now: Time, handle: usize) {
        let at = self.at(now);
        let connection = self.connections.get_mut(&handle).expect("it is driven");
        while let Some(event) = connection.poll() {
            match event {
                Event::Connected if !self.client => self.connected = Some(now),
                Event::Connected => {
                    self.connected = Some(now);
                    let stream = connection.streams().open(Dir::Bi);
                    self.stream = Some((handle, stream.expect("one stream is allowed")));
                }
                Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) => {
                    let stream = connection.streams().accept(Dir::Bi);
                    assert!(self.stream.is_none(), "there is one stream");
                    self.stream = stream.map(|stream| (handle, stream));
                }
                Event::Stream(StreamEvent::Finished { .. }) => self.transfer.acknowledged = true,
                Event::ConnectionLost { reason }
                    if self.client || self.stream.is_some_and(|(owner, _)| owner == handle) =>
                {
                    // The client closes only once it has everything.
                    let closed = matches!(&reason, ConnectionError::ApplicationClosed(_));
                    let transfer = &self.transfer;
                    let good = transfer.complete && (closed || transfer.acknowledged);
                    let outcome = if good { Ok(()) } else { Err(reason) };
                    self.outcome.get_or_insert(outcome);
                }
                _ => {}
            }
        }
        if self.outcome.is_some() {
            return;
        }
        if let Some((owner, stream)) = self.stream
            && owner == handle
        {
            let answered = connection.stats().frame_rx.path_response;
            let remote = connection.remote_address();
            if self.peer.is_none_or(|(peer, _)| peer != remote) {
                self.peer_unproven = self.peer.is_some();
                self.peer = Some((remote, answered));
            }
            self.peer_unproven &= self.peer.is_some_and(|(_, before)| answered == before);
            self.transfer.go_on(now, connection, stream);
            if self.client && self.transfer.complete && self.transfer.acknowledged {
                connection.close(at, VarInt::from_u32(0), Default::default());
                self.outcome = Some(Ok(()));
            }
        }
    }
}

impl Endpoint for Quic {
    fn receive(&mut self, now: Time, from: SocketAddr, datagram: Vec<u8>) {
        self.now = now;
        if self.client && self.retries.is_empty() && is_retry(&datagram) {
            self.retries.push(datagram.clone());
        }
        let mut buffer = Vec::new();
        let at = self.at(now);
        let event = self
            .endpoint
            .handle(at, from, None, None, datagram[..].into(), &mut buffer);
        match event {
            None => {}
            Some(DatagramEvent::Response(transmit)) => self.queue(&transmit, &buffer),
            Some(DatagramEvent::NewConnection(incoming)) => self.accept(now, incoming),
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(connection) = self.connections.get_mut(&handle.0) {
                    connection.handle_event(event);
                }
            }
        }
    }

    fn transmit(&mut self, now: Time) -> Option<(SocketAddr, Vec<u8>)> {
        self.now = now;
        if self.out.is_empty() {
            self.drive(now);
        }
        self.out.pop_front()
    }

    fn next_timer(&mut self) -> Option<Time> {
        let now = self.at(self.now);
        let mut next = Vec::new();
        for connection in self.connections.values_mut() {
            next.extend(connection.poll_timeout());
            if self.driven {
                next.extend(Quic::view(connection).next_tick(now));
            }
        }
        next.into_iter().min().map(|at| self.time(at))
    }

    fn on_timer(&mut self, now: Time) {
        self.now = now;
        let at = self.at(now);
        for connection in self.connections.values_mut() {
            let view = Quic::view(connection);
            let due = self.driven && view.next_tick(at).is_some_and(|due| due <= at);
            if due && view.tick(at) {
                connection.set_send_window(u64::from(self.window));
            }
            if connection.poll_timeout().is_some_and(|due| due <= at) {
                connection.handle_timeout(at);
            }
        }
    }

    fn is_done(&self) -> bool {
        self.outcome.is_some() || (!self.client && self.connections.is_empty())
    }
}

/// A transfer and how its ends go about it.
pub struct Setup {
    pub seed: u64,
    /// The scheme of both ends.
    pub scheme: &'static str,
    /// Clients must prove their address before anything else.
    pub retry: bool,
    /// Datagrams handed over at once, as with segmentation offload.
    pub batch: usize,
    /// Epochs are run by a clock.
    pub driven: bool,
    /// Bytes that may be in flight and unread.
    pub window: u32,
    /// The client's data.
    pub up: Vec<u8>,
    /// The server's data.
    pub down: Vec<u8>,
}

impl Setup {
    fn transport(&self) -> Arc<TransportConfig> {
        let mut transport = TransportConfig::default();
        transport
            .max_idle_timeout(Some(IDLE_TIMEOUT.try_into().expect("a minute fits")))
            .keep_alive_interval(Some(KEEP_ALIVE))
            .receive_window(VarInt::from_u32(self.window))
            .stream_receive_window(VarInt::from_u32(self.window));
        let scheme = Scheme::parse(self.scheme).expect("it is in the list");
        verus_quinn::Factory::new(scheme.config(), self.seed)
            .send_window(u64::from(self.window))
            .install(&mut transport);
        Arc::new(transport)
    }

    /// A client that calls, and a server.
    pub fn ends(self, keys: &Keys) -> (Quic, Quic) {
        let mut config = EndpointConfig::default();
        config.rng_seed(Some([self.seed as u8; 32]));
        let config = Arc::new(config);
        let base = base();
        let quic = |endpoint, client, transfer| Quic {
            base,
            endpoint,
            connections: BTreeMap::new(),
            out: VecDeque::new(),
            stream: None,
            client,
            retry: self.retry,
            batch: self.batch,
            transfer,
            outcome: None,
            connections_max: 0,
            window_max: 0,
            driven: self.driven,
            driving: BTreeMap::new(),
            window: self.window,
            now: Time::ZERO,
            connected: None,
            retries: Vec::new(),
            peer: None,
            peer_unproven: false,
        };
        let transfer = Transfer::new(self.down.clone(), self.up.clone());
        let server = Some(Arc::new(keys.server(self.transport())));
        let server = quinn_proto::Endpoint::new(config.clone(), server, true, None);
        let server = quic(server, false, transfer);
        let transfer = Transfer::new(self.up.clone(), self.down.clone());
        let client = quinn_proto::Endpoint::new(config, None, true, None);
        let mut client = quic(client, true, transfer);
        let (handle, connection) = client
            .endpoint
            .connect(
                base,
                keys.client(self.transport()),
                world::SERVER,
                "localhost",
            )
            .expect("nothing is wrong with the address");
        client.connections.insert(handle.0, connection);
        (client, server)
    }
}

/// The server's certificate and key. Configurations are made afresh for each seed: they keep sessions and
/// tokens from one connection to the next, and a seed must do the same alone as among others.
pub struct Keys {
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Keys {
    pub fn new() -> Self {
        // Its signatures all have the same length: packets do not differ in size from run to run.
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("ring makes such keys");
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()])
            .expect("a name that is valid");
        params.serial_number = Some(1.into());
        let certificate = params.self_signed(&key).expect("the key can sign");
        Keys {
            certificate: certificate.der().clone(),
            key: key.serialize_der(),
        }
    }

    pub fn server(&self, transport: Arc<TransportConfig>) -> ServerConfig {
        let key = PrivatePkcs8KeyDer::from(self.key.clone()).into();
        let mut config = ServerConfig::with_single_cert(vec![self.certificate.clone()], key)
            .expect("they belong together");
        config.transport_config(transport);
        config
    }

    pub fn client(&self, transport: Arc<TransportConfig>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("a certificate");
        let mut config = ClientConfig::with_root_certificates(Arc::new(roots)).expect("one root");
        config.transport_config(transport);
        config
    }
}

/// Returns `length` bytes, drawn from `seed`.
pub fn random_bytes(seed: u64, index: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    random::stream(seed, "payload", index).fill_bytes(&mut bytes);
    bytes
}
