//! Ends of noq on a virtual clock, without sockets: a client that uploads, and a server that reads.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration as Span, Instant};

use noq_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, EndpointConfig, Event,
    FourTuple, PathId, ReadError, ServerConfig, StreamEvent, StreamId, Transmit, TransportConfig,
    WriteError,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use verus_core::Time;
use verus_faults::world::{self, Endpoint};
use verus_noq::{Driving, View};
use verus_senders::Scheme;

/// One end, and its only connection.
pub struct End {
    base: Instant,
    now: Time,
    endpoint: noq_proto::Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    driving: Option<Driving>,
    out: VecDeque<(SocketAddr, Vec<u8>)>,
    stream: Option<StreamId>,
    /// Bytes that are still to be written.
    unsent: usize,
    /// All that was written is acknowledged, or all that was sent is read.
    done: bool,
    /// Bytes read.
    pub received: usize,
}

/// A client that uploads `bytes` bytes with the controller of `scheme`, and its server.
pub fn upload(scheme: &str, bytes: usize) -> (End, End) {
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a key");
    let certificate = CertificateDer::from(key.cert);
    let private = PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).expect("a certificate");
    let mut transport = TransportConfig::default();
    let scheme = Scheme::parse(scheme).expect("in the catalogue");
    verus_noq::configure(&mut transport, scheme.config(), 1);
    let transport = Arc::new(transport);
    let mut server = ServerConfig::with_single_cert(vec![certificate], private.into())
        .expect("they belong together");
    server.transport_config(Arc::clone(&transport));
    let mut client = ClientConfig::with_root_certificates(Arc::new(roots)).expect("a root");
    client.transport_config(transport);

    #[expect(
        clippy::disallowed_methods,
        reason = "an instant to count from; no result depends on it"
    )]
    let base = Instant::now();
    let mut config = EndpointConfig::default();
    config.rng_seed(Some([1; 32]));
    let config = Arc::new(config);
    let end = |server: Option<ServerConfig>, unsent| End {
        base,
        now: Time::ZERO,
        endpoint: noq_proto::Endpoint::new(Arc::clone(&config), server.map(Arc::new), true),
        connection: None,
        driving: None,
        out: VecDeque::new(),
        stream: None,
        unsent,
        done: false,
        received: 0,
    };
    let server = end(Some(server), 0);
    let mut sender = end(None, bytes);
    let connected = sender
        .endpoint
        .connect(base, client, world::SERVER, "localhost");
    sender.connection = Some(connected.expect("nothing is wrong with the address"));
    (sender, server)
}

impl End {
    fn at(&self, now: Time) -> Instant {
        self.base + Span::from_nanos(now.as_nanos())
    }

    fn queue(&mut self, transmit: &Transmit, bytes: &[u8]) {
        let segment = transmit.segment_size.unwrap_or(transmit.size).max(1);
        for datagram in bytes[..transmit.size].chunks(segment) {
            self.out
                .push_back((transmit.destination, datagram.to_vec()));
        }
    }

    fn view(connection: &Connection) -> View {
        let controller = connection.congestion_state(PathId::ZERO);
        verus_noq::view_of(controller.expect("a path").clone_box()).expect("ours")
    }

    fn exchange_events(&mut self) {
        let Some((handle, connection)) = &mut self.connection else {
            return;
        };
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        while let Some(event) = connection.poll() {
            match event {
                Event::Connected if self.unsent > 0 => {
                    self.driving = Some(End::view(connection).driving());
                    self.stream = connection.streams().open(Dir::Uni);
                }
                Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                    self.stream = connection.streams().accept(Dir::Uni);
                }
                Event::Stream(StreamEvent::Finished { .. }) => self.done = true,
                Event::ConnectionLost { reason } => panic!("the connection is lost: {reason}"),
                _ => {}
            }
        }
        let Some(stream) = self.stream.filter(|_| !self.done) else {
            return;
        };
        if self.driving.is_none() {
            let mut stream = connection.recv_stream(stream);
            let mut chunks = stream.read(true).expect("it is read until its end");
            loop {
                match chunks.next(usize::MAX) {
                    Ok(Some(chunk)) => self.received += chunk.bytes.len(),
                    Ok(None) => break self.done = true,
                    Err(ReadError::Blocked) => break,
                    Err(error) => panic!("cannot read: {error}"),
                }
            }
            let _ = chunks.finalize();
            return;
        }
        let mut stream = connection.send_stream(stream);
        while self.unsent > 0 {
            match stream.write(&[7; 1 << 16][..self.unsent.min(1 << 16)]) {
                Ok(written) => self.unsent -= written,
                Err(WriteError::Blocked) => return,
                Err(error) => panic!("cannot write: {error}"),
            }
            if self.unsent == 0 {
                stream.finish().expect("finished once");
            }
        }
    }
}

impl Endpoint for End {
    fn receive(&mut self, now: Time, from: SocketAddr, datagram: Vec<u8>) {
        self.now = now;
        let at = self.at(now);
        let mut buffer = Vec::new();
        let from = FourTuple::new(from, None);
        let event = self
            .endpoint
            .handle(at, from, None, datagram[..].into(), &mut buffer);
        match event {
            None => {}
            Some(DatagramEvent::Response(transmit)) => self.queue(&transmit, &buffer),
            Some(DatagramEvent::NewConnection(incoming)) => {
                let accepted = self.endpoint.accept(incoming, at, &mut buffer, None);
                self.connection = Some(accepted.expect("nothing is wrong with it"));
            }
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                if let Some((_, connection)) = &mut self.connection {
                    connection.handle_event(event);
                }
            }
        }
    }

    fn transmit(&mut self, now: Time) -> Option<(SocketAddr, Vec<u8>)> {
        self.now = now;
        let at = self.at(now);
        while self.out.is_empty() {
            self.exchange_events();
            let mut buffer = Vec::new();
            let (_, connection) = self.connection.as_mut()?;
            let transmit = connection.poll_transmit(at, NonZeroUsize::MIN, &mut buffer)?;
            self.queue(&transmit, &buffer);
        }
        self.out.pop_front()
    }

    fn next_timer(&mut self) -> Option<Time> {
        let now = self.at(self.now);
        let (_, connection) = self.connection.as_ref()?;
        let tick = self
            .driving
            .as_ref()
            .and_then(|driving| driving.view().next_tick(now));
        let next = [connection.poll_timeout(), tick]
            .into_iter()
            .flatten()
            .min()?;
        let since = next.saturating_duration_since(self.base);
        Some(Time::from_nanos(
            u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
        ))
    }

    fn on_timer(&mut self, now: Time) {
        self.now = now;
        let at = self.at(now);
        let Some((_, connection)) = &mut self.connection else {
            return;
        };
        if let Some(driving) = &self.driving {
            let view = driving.view();
            if view.next_tick(at).is_some_and(|due| due <= at) {
                view.tick(at);
            }
        }
        if connection.poll_timeout().is_some_and(|due| due <= at) {
            connection.handle_timeout(at);
        }
    }

    fn is_done(&self) -> bool {
        self.done
    }
}
