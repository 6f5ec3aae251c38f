//! An established test: the flows of both directions, the reports between the ends, and the close.
//! Both ends run the same code, except that the client decides when the test is over.
//!
//! ```text
//!             client: all flows finished, or told to stop        the peer answered
//! running ─────────────────────────────────────────▶ closing ──────────────────▶ ended
//!    │  server: shutting down, peer lied                        or no answer     ▲
//!    ├───────────────────────────────────────────────────────────────────────────┤
//!    │  the peer closed (the server answers for a while longer), or fell silent  │
//! ```

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use verus_core::{Bytes, Duration, Ecn, Rate, Time};
use verus_measure::qlog::{Qlog, Written};

use super::echo::Echoes;
use super::flow::{Algorithms, Event, Incoming, Load, Outgoing};
use super::limits::Bucket;
use super::seal::{Freshness, Key, Keys, ReplayWindow};
use super::trickle::Trickle;
use super::wire::{
    self, AckBody, Data, Ending, FlowStatus, Kind, MIN_HELLO_BYTES, Malformed, Packet, Reason,
    Request, Status,
};

/// How long after its time a flow waits for packets still in flight.
const DRAIN: Duration = Duration::from_secs(2);
/// A close is repeated this far apart until it is answered, and this often.
const CLOSE_EVERY: Duration = Duration::from_millis(200);
const CLOSE_TRIES: u32 = 10;
/// A server answers repeated closes for this long.
const LINGER: Duration = Duration::from_secs(3);
/// Minimum interval between challenges that ask for proof of a new address.
const CHALLENGE_EVERY: Duration = Duration::from_millis(200);
/// Smallest packet that an address challenge answers: as long as the challenge itself. A status is never
/// shorter, or a client that only receives could not show its new address.
pub(super) const CHALLENGE_BYTES: usize = wire::HEADER_BYTES + 16 + wire::TAG_BYTES;
/// Minimum interval between status messages of a server while no packet arrives from the client or
/// nothing is acknowledged.
const HUSHED_EVERY: Duration = Duration::from_secs(1);
/// From how much silence on.
const HUSHED_AFTER: Duration = Duration::from_secs(2);
/// Packets that one end of a test may have in flight, all flows together: 92 MB of packets of 1400 bytes. Each
/// takes 64 bytes of memory, and again for each timeout that it waits to be forgotten.
pub const MOST_IN_FLIGHT: u64 = 1 << 16;
/// How long a flow without room in flight waits before it tries again; acknowledgements wake it
/// earlier.
pub(super) const NO_ROOM: Duration = Duration::from_millis(10);
/// How much of its rate a peer may have saved up when its data arrive: data held back by an outage
/// on the path arrive at once.
pub(super) const POLICE_SAVES: Duration = Duration::from_secs(10);
/// How much of its rate a sender saves up.
pub(super) const SENDING_SAVES: Duration = Duration::from_millis(100);
/// A peer whose last packet is at most this old is alive: several statuses.
const THERE_WITHIN: Duration = Duration::from_secs(1);
/// Bytes of IPv6 and UDP headers.
const LONGEST_HEADERS: usize = 48;
/// Interval of the client's hellos in the new connection until the server's first packet.
const GREET_EVERY: Duration = Duration::from_millis(100);

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The one that asked for the test.
    Client,
    /// The one that granted it.
    Server,
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All is done, and the peer knows.
    Done,
    /// All is done, as the peer has shown; it did not answer the last words.
    Unanswered,
    /// The peer no longer answered when the test's time was over: not all packets in flight are
    /// known to have arrived.
    Lost,
    /// The peer ended it.
    ByPeer(Reason, String),
    /// This end ended it for a reason other than being done.
    Here(Reason, String),
    /// No packet came from the peer for this long.
    Silent(Duration),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |f: &mut fmt::Formatter<'_>, reason: &Reason, text: &str| match text {
            "" => write!(f, "{reason}"),
            text => write!(f, "{reason}: {text}"),
        };
        match self {
            Ended::Done => f.write_str("done"),
            Ended::Unanswered => f.write_str("done, as far as is known here"),
            Ended::Lost => f.write_str("no answer to the end of the test"),
            Ended::ByPeer(reason, text) => {
                f.write_str("ended by the peer: ")?;
                words(f, reason, text)
            }
            Ended::Here(reason, text) => words(f, reason, text),
            Ended::Silent(silence) => write!(f, "silent for {} s", silence.as_secs_f64()),
        }
    }
}

#[derive(Clone, Debug)]
enum Phase {
    Running,
    /// Our close waits for its answer.
    Closing {
        reason: Reason,
        text: String,
        due: Time,
        tries: u32,
    },
    /// Answers the peer's close once more if that comes again, until then.
    Lingering {
        until: Time,
    },
    Ended,
}

/// Packets for one destination, to be handed to the socket at once.
#[derive(Debug)]
pub struct Batch {
    bulk: Vec<u8>,
    control: Vec<u8>,
    /// Size of the segments in `bulk`, 0 if none yet.
    segment: usize,
    len: usize,
    is_control: bool,
    most_segments: usize,
    /// Where to.
    pub to: SocketAddr,
    /// The local address to send from, where it matters.
    pub from: Option<IpAddr>,
    /// The code point of all its packets.
    pub ecn: Ecn,
}

impl Batch {
    /// Room for up to `most_segments` packets at a time.
    pub fn new(most_segments: usize) -> Self {
        Batch {
            bulk: vec![0; 1 << 16],
            control: vec![0; MIN_HELLO_BYTES],
            segment: 0,
            len: 0,
            is_control: false,
            most_segments: most_segments.clamp(1, 64),
            to: SocketAddr::from(([0, 0, 0, 0], 0)),
            from: None,
            ecn: Ecn::NotEct,
        }
    }

    /// The bytes to send.
    pub fn contents(&self) -> &[u8] {
        if self.is_control {
            &self.control[..self.len]
        } else {
            &self.bulk[..self.len]
        }
    }

    /// The size of each packet in [`contents`](Self::contents) if there are several.
    pub fn segment_size(&self) -> Option<usize> {
        (!self.is_control && self.len > self.segment).then_some(self.segment)
    }

    /// Each packet in [`contents`](Self::contents).
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.contents()
            .chunks(self.segment_size().unwrap_or(usize::MAX))
    }

    /// The size of the largest packet in [`contents`](Self::contents).
    pub fn payload(&self) -> usize {
        self.segment_size().unwrap_or(self.len)
    }

    /// Limits how many packets it takes from now on.
    pub fn set_most_segments(&mut self, most: usize) {
        self.most_segments = most.clamp(1, 64);
    }

    /// How many packets there are.
    pub fn packets(&self) -> usize {
        if self.is_control {
            1
        } else {
            self.len / self.segment
        }
    }

    /// Prepares for bulk packets of `segment` bytes. Padding is filled in once, since only the
    /// bytes before it change from packet to packet.
    fn bulk(&mut self, segment: usize) -> (&mut [u8], usize) {
        if self.segment != segment {
            for packet in self.bulk.chunks_mut(segment) {
                wire::pad(packet, 0);
            }
            self.segment = segment;
        }
        self.len = 0;
        self.is_control = false;
        let segments = (self.bulk.len() / segment).min(self.most_segments);
        (&mut self.bulk, segments)
    }

    pub(super) fn control(&mut self) -> &mut [u8] {
        self.is_control = true;
        &mut self.control
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.len = len;
    }
}

/// The terms that both ends agreed on when the connection began.
#[derive(Debug)]
pub struct Terms<'a> {
    /// Which end this is.
    pub role: Role,
    /// The connection's id.
    pub id: u64,
    /// Its keys.
    pub keys: Keys,
    /// The client's request.
    pub request: &'a Request,
    /// How long the peer may be silent.
    pub silence: Duration,
    /// How much may be sent; `None` for no limit.
    pub rate: Option<Rate>,
    /// How much is accepted; `None` for no limit.
    pub accepted: Option<Rate>,
    /// Known to this end alone: chooses the packet numbers that are skipped.
    pub secret: &'a Key,
    /// How long no data is sent at first.
    pub quiet: Duration,
    /// Whether to send echoes.
    pub echoes: bool,
    /// Whether to keep an event for each packet.
    pub log: bool,
}

/// Counts of a connection's invalid packets, which are otherwise ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rejected {
    /// Not sealed with this connection's key.
    pub forged: u64,
    /// Sealed, and still not well formed or about no flow of ours.
    pub malformed: u64,
    /// Repeats of acknowledgements and statuses.
    pub repeated: u64,
    /// More data than the client was granted.
    pub policed: u64,
}

/// One end of a test.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    id: u64,
    seal: Key,
    open: Key,
    packet_size: Bytes,
    outgoing: Vec<Outgoing>,
    incoming: Vec<Incoming>,
    /// The peer's reports on the incoming flows.
    reported: Vec<FlowStatus>,
    bytes_each: u64,
    duration: Option<Duration>,
    silence: Duration,
    limit: Option<Rate>,
    sending: Bucket,
    receiving: Bucket,
    /// Packets in flight, all flows together.
    in_flight: u64,
    trickle: Trickle,
    /// When the load begins: the test's time counts from there.
    started: Time,
    quiet: Duration,
    echoes: Option<Echoes>,
    last_received: Option<Time>,
    stopped: bool,
    /// When this side closed it, no packet was in flight, according to the peer's reports.
    finished: bool,
    phase: Phase,
    ended: Option<Ended>,
    status_every: Duration,
    status_due: Time,
    status_number: u64,
    /// Flows of the next status, and how many statuses are still to be sent at once.
    status_turn: usize,
    statuses_owed: usize,
    statuses_seen: ReplayWindow,
    answer_close: bool,
    answer_challenge: Option<[u8; 16]>,
    /// The server's last challenge, and the number of different ones.
    last_challenge: Option<[u8; 16]>,
    address_changes: u64,
    challenge: Option<(SocketAddr, [u8; 16])>,
    send_challenge: bool,
    challenge_after: Time,
    turn: usize,
    ack_turn: usize,
    acks_due: bool,
    rejected: Rejected,
    scratch: AckBody,
    scratch_status: Status,
    /// Departures and arrivals of packets without data, if they are logged.
    events: Option<Vec<Event>>,
}

impl Connection {
    /// A connection that begins now.
    pub fn new(terms: &Terms<'_>, algorithms: &dyn Algorithms, now: Time) -> Self {
        let request = terms.request;
        let began = now;
        // Controllers and meters start with the load and see nothing before it.
        let now = began + terms.quiet;
        let load = Load {
            packet_size: Bytes::new(u64::from(request.packet_bytes)),
            bytes: (request.bytes > 0).then(|| Bytes::new(request.bytes)),
            rate: (request.rate_bps > 0).then(|| Rate::from_bps(request.rate_bps)),
        };
        let (sent, received) = match terms.role {
            Role::Client => (request.upload_flows, request.download_flows),
            Role::Server => (request.download_flows, request.upload_flows),
        };
        let (seal, open) = match terms.role {
            Role::Client => (terms.keys.client.clone(), terms.keys.server.clone()),
            Role::Server => (terms.keys.server.clone(), terms.keys.client.clone()),
        };
        let outgoing = (0..sent)
            .map(|flow| {
                let seed = request.seed.wrapping_add(u64::from(flow));
                let secret = terms.secret.secret(terms.id, flow);
                let controller = algorithms.controller(seed);
                Outgoing::new(flow, controller, &load, secret, now, terms.log)
            })
            .collect();
        let incoming = (0..received)
            .map(|flow| Incoming::new(flow, algorithms, now, terms.log))
            .collect();
        let reported = (0..received)
            .map(|flow| FlowStatus {
                flow,
                ..FlowStatus::default()
            })
            .collect();
        let duration =
            (request.duration_nanos > 0).then(|| Duration::from_nanos(request.duration_nanos));
        Connection {
            role: terms.role,
            id: terms.id,
            seal,
            open,
            packet_size: load.packet_size,
            outgoing,
            incoming,
            reported,
            bytes_each: request.bytes,
            duration,
            silence: terms.silence,
            limit: terms.rate,
            sending: Bucket::empty(terms.rate, SENDING_SAVES, now),
            receiving: Bucket::new(terms.accepted, POLICE_SAVES, now),
            in_flight: 0,
            trickle: Trickle::default(),
            started: now,
            quiet: terms.quiet,
            echoes: terms.echoes.then(|| Echoes::new(terms.secret, began, now)),
            last_received: None,
            stopped: false,
            finished: false,
            phase: Phase::Running,
            ended: None,
            status_every: Duration::from_millis(u64::from(request.status_millis)),
            status_due: began,
            status_number: 0,
            status_turn: 0,
            statuses_owed: 0,
            statuses_seen: ReplayWindow::default(),
            answer_close: false,
            answer_challenge: None,
            last_challenge: None,
            address_changes: 0,
            challenge: None,
            send_challenge: false,
            challenge_after: now,
            turn: 0,
            ack_turn: 0,
            acks_due: false,
            rejected: Rejected::default(),
            scratch: AckBody::default(),
            scratch_status: Status::default(),
            events: terms.log.then(Vec::new),
        }
    }

    /// The connection's id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The echoes, if it sends any.
    pub fn echoes(&self) -> Option<&Echoes> {
        self.echoes.as_ref()
    }

    /// The echoes, to read those that came back.
    pub fn echoes_mut(&mut self) -> Option<&mut Echoes> {
        self.echoes.as_mut()
    }

    /// When its load began, or will.
    pub fn started(&self) -> Time {
        self.started
    }

    /// How it ended, once it has. A server's connection may still answer repeats; see
    /// [`is_over`](Self::is_over).
    pub fn ended(&self) -> Option<&Ended> {
        self.ended.as_ref()
    }

    /// Whether it can be forgotten.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    /// Whether it is only there to answer a repeated close.
    pub fn is_lingering(&self) -> bool {
        matches!(self.phase, Phase::Lingering { .. }) && !self.answer_close
    }

    /// Whether a packet of the peer has come in this connection.
    pub fn is_established(&self) -> bool {
        self.last_received.is_some()
    }

    /// The most that this end sends, if there is a limit; at a client, the server's.
    pub fn limit(&self) -> Option<Rate> {
        self.limit
    }

    /// How long the test has run, as far as the peer is known to have been there.
    pub fn measured(&self) -> Duration {
        self.last_heard().since(self.started)
    }

    /// The least number of times that this client's address changed, as its server sees it. A NAT on
    /// the way may give new ports. Until this end answers a challenge, the server's packets are lost.
    pub fn address_changes(&self) -> u64 {
        self.address_changes
    }

    /// Packets in flight, all flows together.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// The flows that this end sends.
    pub fn outgoing(&self) -> &[Outgoing] {
        &self.outgoing
    }

    /// Writes later events of this end's senders to a log each; flows beyond the logs have none.
    pub fn log_to(&mut self, logs: Vec<Qlog>) {
        for (flow, log) in self.outgoing.iter_mut().zip(logs) {
            flow.log_to(log);
        }
    }

    /// Ends the logs.
    ///
    /// # Errors
    /// The first error while one was written.
    pub fn end_logs(&mut self) -> io::Result<Vec<Written>> {
        let ends = self.outgoing.iter_mut().map(Outgoing::end_log);
        ends.filter_map(Result::transpose).collect()
    }

    /// The flows that this end receives, each with its sender's last status.
    pub fn incoming(&self) -> impl Iterator<Item = (&Incoming, &FlowStatus)> {
        self.incoming.iter().zip(&self.reported)
    }

    /// Counts of ignored packets.
    pub fn rejected(&self) -> Rejected {
        let repeats: u64 = self.outgoing.iter().map(Outgoing::repeats).sum();
        Rejected {
            repeated: self.rejected.repeated + repeats,
            ..self.rejected
        }
    }

    /// Appends the events since the last call, if they are logged.
    pub fn drain_events(&mut self, into: &mut Vec<Event>) {
        into.extend(self.events.iter_mut().flat_map(|events| events.drain(..)));
        for flow in &mut self.outgoing {
            into.extend(flow.drain_events());
        }
        for flow in &mut self.incoming {
            into.extend(flow.drain_events());
        }
    }

    /// Handles a packet for this connection, which arrived from the peer at `arrival` and is read
    /// at `now`. `size` and `ecn` are those of the IP packet; `total` is the allowance for the data
    /// that all connections receive. Returns whether the packet was sealed with the connection's
    /// key; otherwise it has no effect.
    pub fn handle(
        &mut self,
        now: Time,
        arrival: Time,
        size: Bytes,
        ecn: Ecn,
        packet: &Packet<'_>,
        total: &mut Bucket,
    ) -> bool {
        if !self.open.opens(packet) {
            self.rejected.forged += 1;
            return false;
        }
        if matches!(self.phase, Phase::Ended) {
            return true;
        }
        if self.last_received.is_none() && self.role == Role::Server {
            // The test's time counts from when the client is known to be there.
            self.started = now + self.quiet;
            self.status_due = now;
        }
        self.last_received = Some(now);
        if packet.kind != Kind::Data {
            self.note_control(false, arrival, size);
        }
        if self.accept(now, arrival, size, ecn, packet, total).is_err() {
            self.rejected.malformed += 1;
        }
        true
    }

    fn accept(
        &mut self,
        now: Time,
        arrival: Time,
        size: Bytes,
        ecn: Ecn,
        packet: &Packet<'_>,
        total: &mut Bucket,
    ) -> Result<(), Malformed> {
        let unknown = Malformed::Field {
            kind: packet.kind,
            field: "flow",
        };
        match packet.kind {
            Kind::Data => {
                if !matches!(self.phase, Phase::Running | Phase::Closing { .. }) {
                    return Ok(());
                }
                if !self.receiving.take(now, size) || !total.take(now, size) {
                    self.rejected.policed += 1;
                    return Ok(());
                }
                let data = Data::decode(packet)?;
                // It may claim only its own size and the longest headers: translators turn packets
                // of IPv6 into shorter ones of IPv4.
                if data.len as usize > packet.bytes() + LONGEST_HEADERS {
                    return Err(Malformed::Field {
                        kind: packet.kind,
                        field: "data length",
                    });
                }
                let flow = self.incoming.get_mut(usize::from(packet.flow));
                flow.ok_or(unknown)?.on_data(arrival, size, ecn, &data);
                self.acks_due = true;
            }
            Kind::Ack => {
                let flow = self.outgoing.get_mut(usize::from(packet.flow));
                let flow = flow.ok_or(unknown)?;
                let report = self.scratch.decode(packet)?;
                let before = (flow.in_flight(), flow.meter().packets());
                let believed = flow.on_ack(now, arrival, &self.scratch, report);
                self.in_flight = self.in_flight + flow.in_flight() - before.0;
                if flow.meter().packets() > before.1 {
                    self.trickle.on_acknowledged(now, self.in_flight > 0);
                }
                if let Err(lie) = believed {
                    self.close(now, Reason::FalseAck, &format!("the peer {lie}"));
                }
            }
            Kind::Status => {
                self.scratch_status.decode(packet)?;
                match self.statuses_seen.note(self.scratch_status.number) {
                    Freshness::Newest => {
                        for status in &self.scratch_status.flows {
                            if let Some(known) = self.reported.get_mut(usize::from(status.flow)) {
                                *known = *status;
                            }
                        }
                    }
                    Freshness::Late => {}
                    Freshness::Repeat => self.rejected.repeated += 1,
                }
            }
            Kind::Close => {
                let ending = Ending::decode(packet)?;
                self.closed_by_peer(now, &ending);
            }
            Kind::Closed => {
                if let Phase::Closing { reason, text, .. } = &self.phase {
                    self.ended.get_or_insert(match reason {
                        Reason::Done => Ended::Done,
                        reason => Ended::Here(*reason, text.clone()),
                    });
                    self.phase = Phase::Ended;
                }
            }
            Kind::Challenge => {
                let challenge = Some(wire::decode_challenge(packet)?);
                self.answer_challenge = challenge;
                // A server challenges an address that is new to it; a client's challenges are echoes.
                if self.role == Role::Client && self.last_challenge != challenge {
                    self.last_challenge = challenge;
                    self.address_changes += 1;
                }
            }
            // The server looks at the address that a response came from, the client at how long it took.
            Kind::Response => {
                let bytes = wire::decode_challenge(packet)?;
                if let Some(echoes) = &mut self.echoes {
                    echoes.on_answer(arrival, &bytes);
                }
            }
            Kind::Hello | Kind::Retry | Kind::Accept | Kind::Refuse => {
                return Err(Malformed::Kind(packet.kind as u8));
            }
        }
        Ok(())
    }

    fn closed_by_peer(&mut self, now: Time, ending: &Ending<'_>) {
        let done = self.role == Role::Server && ending.reason == Reason::Done;
        self.ended.get_or_insert_with(|| {
            if done {
                Ended::Done
            } else {
                Ended::ByPeer(ending.reason, ending.text.to_owned())
            }
        });
        self.stop_flows();
        // The end that closed wants to know how it ended: all flows first, then the answer.
        self.statuses_owed = self.outgoing.len().div_ceil(Status::MAX_FLOWS);
        self.status_turn = 0;
        self.answer_close = true;
        self.phase = Phase::Lingering {
            until: now + LINGER,
        };
    }

    fn stop_flows(&mut self) {
        self.stopped = true;
        for flow in &mut self.outgoing {
            flow.stop();
            flow.finish();
        }
    }

    /// Ends the test from this side, for `reason`.
    pub fn close(&mut self, now: Time, reason: Reason, text: &str) {
        if !matches!(self.phase, Phase::Running) {
            return;
        }
        // Where the peer was there until now, the packets that it has not answered were lost by
        // chance.
        let recently_heard = now.since(self.last_heard()) < THERE_WITHIN;
        self.finished = (recently_heard || !self.trickle.is_waiting())
            && self
                .incoming()
                .all(|(flow, status)| status.finished || self.has_all(flow));
        self.stop_flows();
        if reason != Reason::Done {
            self.ended = Some(Ended::Here(reason, text.to_owned()));
        }
        self.phase = Phase::Closing {
            reason,
            text: text.to_owned(),
            due: now,
            tries: 0,
        };
    }

    /// The system says that packets of `bytes` (IP) do not fit the path: no test can be run with them.
    pub fn on_too_large(&mut self, now: Time, bytes: usize) {
        // A router's report names no packet; it concerns one of the largest.
        let data = if self.outgoing.is_empty() {
            0
        } else {
            self.packet_size.get()
        };
        let bytes = data.max(bytes as u64);
        let text = format!("packets of {bytes} B do not fit this path");
        self.close(now, Reason::TooLarge, &text);
    }

    /// Whether all of the size that was asked for has come.
    fn has_all(&self, flow: &Incoming) -> bool {
        self.bytes_each > 0 && flow.distinct() >= self.bytes_each
    }

    /// Whether all flows of both directions have completed the request.
    fn is_complete(&self, now: Time) -> bool {
        let received = |flow: &Incoming, status: &FlowStatus| {
            let all = self.has_all(flow);
            let waited = self
                .duration
                .is_some_and(|duration| now.since(self.started) > duration + DRAIN);
            // A flow short of the requested data is not complete because its sender's time is over.
            all || (status.finished && self.bytes_each == 0) || waited
        };
        self.outgoing.iter().all(Outgoing::is_finished)
            && self.incoming().all(|(flow, status)| received(flow, status))
    }

    /// The instant of [`next_timer`](Self::next_timer) has come, perhaps late.
    pub fn on_timer(&mut self, now: Time) {
        for flow in &mut self.outgoing {
            let before = flow.in_flight();
            flow.on_timer(now);
            self.in_flight = self.in_flight + flow.in_flight() - before;
        }
        for flow in &mut self.incoming {
            flow.on_timer(now);
            self.acks_due |= flow.next_timer().is_some_and(|at| at <= now);
        }
        self.advance(now);
    }

    /// Ends the flows and phases that are due.
    fn advance(&mut self, now: Time) {
        if let Some(end) = self.ends_at() {
            if now >= end && !self.stopped {
                self.stopped = true;
                self.outgoing.iter_mut().for_each(Outgoing::stop);
            }
            if now >= end + DRAIN {
                self.outgoing.iter_mut().for_each(Outgoing::finish);
            }
        }
        let mut news = false;
        for flow in &mut self.outgoing {
            if !flow.is_finished() && flow.is_idle() {
                flow.finish();
                news = true;
            }
        }
        if news {
            self.status_due = now;
        }
        match &self.phase {
            Phase::Running => {
                if self.role == Role::Client && self.is_complete(now) {
                    self.close(now, Reason::Done, "");
                } else if self.role == Role::Server && self.overdue_at().is_some_and(|at| now >= at)
                {
                    self.close(now, Reason::Limit, "its time is over");
                } else if now.since(self.last_heard()) >= self.silence {
                    self.ended = Some(Ended::Silent(self.silence));
                    self.stop_flows();
                    self.phase = Phase::Ended;
                }
            }
            Phase::Closing { tries, due, .. } if *tries >= CLOSE_TRIES && *due <= now => {
                let ended = if self.finished {
                    Ended::Unanswered
                } else {
                    Ended::Lost
                };
                self.ended.get_or_insert(ended);
                self.phase = Phase::Ended;
            }
            Phase::Lingering { until } if *until <= now => self.phase = Phase::Ended,
            _ => {}
        }
    }

    fn last_heard(&self) -> Time {
        self.last_received.unwrap_or(self.started)
    }

    fn ends_at(&self) -> Option<Time> {
        // A server's clock starts with the client's first word.
        let running = self.role == Role::Client || self.last_received.is_some();
        self.duration
            .filter(|_| running)
            .map(|duration| self.started + duration)
    }

    /// When a server ends a test that the client has not ended in time.
    fn overdue_at(&self) -> Option<Time> {
        self.ends_at().map(|end| end + DRAIN * 3)
    }

    /// When to call [`on_timer`](Self::on_timer) next, if at all. Ask after polling for packets.
    pub fn next_timer(&self, now: Time) -> Option<Time> {
        let mut next = Time::MAX;
        let mut at = |time: Option<Time>| {
            if let Some(time) = time {
                next = next.min(time);
            }
        };
        match &self.phase {
            Phase::Running => {
                if self.may_send() {
                    let granted = self.opens_at(now);
                    for flow in &self.outgoing {
                        at(flow
                            .next_timer()
                            .map(|time| time.max(granted.unwrap_or(time))));
                    }
                    at(Some(self.started).filter(|&at| at > now));
                    at(granted.filter(|_| !self.outgoing.is_empty()));
                }
                for flow in &self.incoming {
                    at(flow.next_timer());
                }
                at(Some(self.status_due).filter(|_| self.may_send()));
                at(self
                    .echoes
                    .as_ref()
                    .filter(|_| !self.stopped)
                    .map(Echoes::due));
                at(Some(self.last_heard() + self.silence));
                if let Some(end) = self.ends_at() {
                    at(Some(if now < end { end } else { end + DRAIN }).filter(|&at| at > now));
                    at(Some(end + DRAIN + Duration::from_millis(1)).filter(|&at| at > now));
                    at(self.overdue_at().filter(|_| self.role == Role::Server));
                }
            }
            Phase::Closing { due, .. } => at(Some(*due)),
            Phase::Lingering { until } => at(Some(*until)),
            Phase::Ended => {}
        }
        (next < Time::MAX).then_some(next)
    }

    /// When data may leave again, as far as limits go; `None` if it may now.
    fn opens_at(&self, now: Time) -> Option<Time> {
        let no_room = (self.in_flight >= MOST_IN_FLIGHT).then(|| now + NO_ROOM);
        let granted = self.sending.wait(now, self.packet_size);
        let single = self.trickle.opens_at(now);
        [no_room, granted, single].into_iter().flatten().max()
    }

    /// Size of its data packets as IP has them.
    pub(super) fn packet_size(&self) -> Bytes {
        self.packet_size
    }

    /// Whether the client seems to be gone, so that status messages become rare.
    fn is_hushed(&self, now: Time) -> bool {
        self.role == Role::Server
            && (self.trickle.is_on(now) || now.since(self.last_heard()) >= HUSHED_AFTER)
    }

    /// A server sends nothing before the client's first packet with the connection's key.
    fn may_send(&self) -> bool {
        self.role == Role::Client || self.last_received.is_some()
    }

    /// Fills `batch` with the next packets to send, data in the size of the test's packets less
    /// `overhead` (IP and UDP headers, bytes); returns whether there are any. `total` is the rate
    /// that all connections share, and `room` how many more packets they may have in flight.
    pub fn poll_transmit(
        &mut self,
        now: Time,
        overhead: usize,
        batch: &mut Batch,
        total: &mut Bucket,
        room: u64,
    ) -> bool {
        batch.ecn = Ecn::NotEct;
        if let Some(len) = self.control(now, batch.control()) {
            batch.set_len(len);
            self.note_control(true, now, Bytes::new((len + overhead) as u64));
            return true;
        }
        if self.acks_due {
            let count = self.incoming.len();
            for _ in 0..count {
                let flow = &mut self.incoming[self.ack_turn];
                let len = flow.transmit(now, self.id, &self.seal, batch.control());
                self.ack_turn = (self.ack_turn + 1) % count;
                if let Some(len) = len {
                    batch.set_len(len);
                    self.note_control(true, now, Bytes::new((len + overhead) as u64));
                    return true;
                }
            }
            self.acks_due = false;
        }
        let running = matches!(self.phase, Phase::Running) && now >= self.started;
        if !running || !self.may_send() || self.outgoing.is_empty() {
            return false;
        }
        let room = room.min(MOST_IN_FLIGHT.saturating_sub(self.in_flight));
        if room == 0 || self.trickle.opens_at(now).is_some() {
            return false;
        }
        let segment = (self.packet_size.get() as usize).saturating_sub(overhead);
        // The flows of a test have one algorithm.
        batch.ecn = self.outgoing[0].sender().ecn();
        let (buffer, segments) = batch.bulk(segment);
        let segments = if self.trickle.is_on(now) {
            1
        } else {
            segments.min(usize::try_from(room).unwrap_or(segments))
        };
        let count = self.outgoing.len();
        let (mut filled, mut dry) = (0, 0);
        while filled < segments && dry < count {
            let granted = self.sending.wait(now, self.packet_size).is_none()
                && total.wait(now, self.packet_size).is_none();
            if !granted {
                break;
            }
            let at = filled * segment;
            let flow = &mut self.outgoing[self.turn];
            let before = flow.in_flight();
            let written = flow.transmit(now, self.id, &self.seal, &mut buffer[at..at + segment]);
            match written {
                Some(()) => {
                    self.in_flight = self.in_flight + flow.in_flight() - before;
                    self.trickle.on_sent(now);
                    self.sending.take(now, self.packet_size);
                    total.take(now, self.packet_size);
                    filled += 1;
                    dry = 0;
                }
                None => {
                    dry += 1;
                    self.turn = (self.turn + 1) % count;
                }
            }
        }
        // Flows take turns from batch to batch.
        self.turn = (self.turn + 1) % count;
        batch.set_len(filled * segment);
        filled > 0
    }

    fn note_control(&mut self, sent: bool, at: Time, size: Bytes) {
        if let Some(events) = &mut self.events {
            events.push(Event::Control { sent, at, size });
        }
    }

    /// Writes a packet that is not of a flow, if one is due.
    fn control(&mut self, now: Time, buffer: &mut [u8]) -> Option<usize> {
        if let Some(challenge) = self.answer_challenge.take() {
            let covered = wire::encode_plain(Kind::Response, self.id, &challenge, buffer);
            return Some(self.seal.seal(buffer, covered));
        }
        if matches!(self.phase, Phase::Running)
            && !self.stopped
            && let Some(bytes) = self.echoes.as_mut().and_then(|echoes| echoes.poll(now))
        {
            let covered = wire::encode_plain(Kind::Challenge, self.id, &bytes, buffer);
            return Some(self.seal.seal(buffer, covered));
        }
        if self.statuses_owed > 0 {
            self.statuses_owed -= 1;
            return Some(self.status(buffer));
        }
        if self.answer_close {
            self.answer_close = false;
            let covered = wire::encode_plain(Kind::Closed, self.id, &[], buffer);
            return Some(self.seal.seal(buffer, covered));
        }
        let (may_send, hushed) = (self.may_send(), self.is_hushed(now));
        match &mut self.phase {
            Phase::Closing {
                reason,
                text,
                due,
                tries,
            } if *due <= now && *tries < CLOSE_TRIES => {
                *due = now + CLOSE_EVERY;
                *tries += 1;
                let ending = Ending {
                    nonce: [0; 16],
                    reason: *reason,
                    text,
                };
                let covered = ending.encode(Kind::Close, self.id, buffer);
                Some(self.seal.seal(buffer, covered))
            }
            Phase::Running if self.status_due <= now && may_send => {
                let every = match self.last_received {
                    Some(_) if hushed => self.status_every.max(HUSHED_EVERY),
                    Some(_) => self.status_every,
                    None => self.status_every.min(GREET_EVERY),
                };
                self.status_due = now + every;
                // At least one even without flows: it shows that this end is alive.
                let statuses = self.outgoing.len().div_ceil(Status::MAX_FLOWS).max(1);
                self.statuses_owed = if hushed { 0 } else { statuses - 1 };
                Some(self.status(buffer))
            }
            _ => None,
        }
    }

    fn status(&mut self, buffer: &mut [u8]) -> usize {
        let status = &mut self.scratch_status;
        status.number = self.status_number;
        self.status_number += 1;
        status.flows.clear();
        let count = self.outgoing.len();
        for _ in 0..count.min(Status::MAX_FLOWS) {
            self.status_turn %= count;
            status.flows.push(self.outgoing[self.status_turn].status());
            self.status_turn += 1;
        }
        let covered = status.encode(self.id, buffer);
        let end = self.seal.seal(buffer, covered);
        wire::pad(&mut buffer[..end.max(CHALLENGE_BYTES)], end);
        end.max(CHALLENGE_BYTES)
    }

    /// The client's address seems to be `address` now: asks for proof, with `nonce` if it is the first
    /// time, unless it was asked for a moment ago.
    pub fn on_new_address(&mut self, now: Time, address: SocketAddr, nonce: [u8; 16]) {
        if now < self.challenge_after {
            return;
        }
        self.challenge_after = now + CHALLENGE_EVERY;
        // The answer to an earlier challenge of the same address may still be under way.
        if self.challenge.is_none_or(|(to, _)| to != address) {
            self.challenge = Some((address, nonce));
        }
        self.send_challenge = true;
    }

    /// The challenge to send to an address that is not the connection's, if one is due.
    pub fn poll_challenge(&mut self, buffer: &mut [u8]) -> Option<(SocketAddr, usize)> {
        let (to, nonce) = self.challenge.filter(|_| self.send_challenge)?;
        self.send_challenge = false;
        let covered = wire::encode_plain(Kind::Challenge, self.id, &nonce, buffer);
        Some((to, self.seal.seal(buffer, covered)))
    }

    /// Whether `packet`, which came from `address`, proves that the client receives there.
    pub fn proves(&mut self, address: SocketAddr, packet: &Packet<'_>) -> bool {
        let proven = packet.kind == Kind::Response
            && wire::decode_challenge(packet).is_ok_and(|answer| {
                self.challenge.is_some_and(|(to, nonce)| {
                    to == address && constant_time_eq::constant_time_eq_16(&nonce, &answer)
                })
            });
        if proven {
            self.challenge = None;
        }
        proven
    }
}
