//! The end that asks for a test: the handshake, and then the connection.
//!
//! ```text
//! hello ──▶ retry ──▶ hello with token ──▶ accept ──▶ connection
//!    └────────────────── refuse, or no answer ──▶ failed
//! ```

use verus_core::{Bytes, Duration, Ecn, Rate, Time};
use verus_measure::qlog::Qlog;

use super::connection::{Batch, Connection, Ended, Role, Terms};
use super::flow::Algorithms;
use super::limits::Bucket;
use super::seal::{Key, Keys, Secret};
use super::wire::{
    self, Accept, Ending, Hello, Kind, MAX_QUIET_MILLIS, MAX_TOKEN_BYTES, MIN_HELLO_BYTES, Packet,
    Reason, Request, Retry,
};

/// The first hello is repeated after this, then after twice as long each time.
pub(super) const HELLO_EVERY: Duration = Duration::from_millis(250);
/// The longest that a hello waits for the next.
pub(super) const HELLO_AT_MOST: Duration = Duration::from_secs(2);

/// Number of retries that are answered at once; the next due hello carries the token of any further
/// one. An honest server sends one retry for each hello, and another if it restarted meanwhile.
const RETRIES_AT_ONCE: u32 = 3;

/// How a client is set up.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The test to ask for.
    pub request: Request,
    /// The pre-shared secret, if there is one.
    pub secret: Option<Secret>,
    /// How long to wait for the first answer.
    pub patience: Duration,
    /// How long the server may be silent after that.
    pub silence: Duration,
    /// Whether to keep an event for each packet.
    pub log: bool,
    /// Bytes of IP and UDP header on each packet: 28 or 48.
    pub overhead: usize,
}

impl ClientConfig {
    /// Asks over IPv4 without a secret, and waits 5 s for each answer.
    pub fn new(request: Request) -> Self {
        ClientConfig {
            request,
            secret: None,
            patience: Duration::from_secs(5),
            silence: Duration::from_secs(5),
            log: false,
            overhead: 28,
        }
    }
}

/// Why there was no test, or no whole one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// Nothing came back.
    #[error("no answer within {} s: is a server running there, and does it have the same key?", .0.as_secs_f64())]
    NoAnswer(Duration),
    /// The server answered, and accepted no proof of this host's address.
    #[error(
        "the server answers, but accepted no proof of this host's address within {} s: a NAT on the way may give a \
         new port for each packet",
        .0.as_secs_f64()
    )]
    Unproven(Duration),
    /// The server does not grant the test.
    #[error("refused: {reason}{}{text}", if .text.is_empty() { "" } else { ": " })]
    Refused {
        /// In short.
        reason: Reason,
        /// In the server's words.
        text: String,
    },
    /// The server no longer answered at the end.
    #[error("the server fell silent {:.1} s into the test; results are those until then", .0.as_secs_f64())]
    Lost(Duration),
    /// The server fell silent in the middle.
    #[error("nothing heard from the server for {} s", .0.as_secs_f64())]
    Silent(Duration),
    /// The server ended the test.
    #[error("the server ended the test: {reason}{}{text}", if .text.is_empty() { "" } else { ": " })]
    ByServer {
        /// In short.
        reason: Reason,
        /// In the server's words.
        text: String,
    },
    /// This end ended the test.
    #[error("the test was ended: {reason}{}{text}", if .text.is_empty() { "" } else { ": " })]
    Here {
        /// In short.
        reason: Reason,
        /// In words.
        text: String,
    },
}

#[derive(Debug)]
enum ClientPhase {
    Asking {
        token: Option<Vec<u8>>,
        due: Time,
        wait: Duration,
        /// Retries that were answered at once.
        answered: u32,
    },
    Connected(Box<Connection>),
    Failed(ClientError),
    /// Stopped before there was a connection.
    Stopped,
}

/// The client's end of a test, sans-IO.
#[derive(Debug)]
pub struct Client<A> {
    config: ClientConfig,
    /// How long the path stays idle at first, where that is measured.
    quiet: Option<Duration>,
    algorithms: A,
    nonce: [u8; 16],
    handshake: Key,
    secret: Key,
    began: Time,
    phase: ClientPhase,
    unlimited: Bucket,
    ignored: u64,
    logs: Vec<Qlog>,
}

impl<A: Algorithms> Client<A> {
    /// A client that begins to ask now. `entropy` must be random.
    pub fn new(config: ClientConfig, algorithms: A, entropy: [u8; 32], now: Time) -> Self {
        let secret = Key::random(entropy);
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&secret.secret(0, 1).to_le_bytes());
        nonce[8..].copy_from_slice(&secret.secret(0, 2).to_le_bytes());
        Client {
            handshake: Key::handshake(config.secret.as_ref()),
            config,
            quiet: None,
            algorithms,
            nonce,
            secret,
            began: now,
            phase: ClientPhase::Asking {
                token: None,
                due: now,
                wait: HELLO_EVERY,
                answered: 0,
            },
            unlimited: Bucket::new(None, Duration::ZERO, now),
            ignored: 0,
            logs: Vec::new(),
        }
    }

    /// Writes the sender's events of each flow that this end will send to one of these logs, in
    /// order.
    pub fn log_to(&mut self, logs: Vec<Qlog>) {
        self.logs = logs;
    }

    /// Sends echoes, and leaves the path idle for `quiet` (at most 5 s) before the load. A server
    /// that sends data stays quiet too, unless its version is earlier.
    pub fn with_echoes(mut self, quiet: Duration) -> Self {
        self.quiet = Some(quiet.min(Duration::from_millis(u64::from(MAX_QUIET_MILLIS))));
        self
    }

    /// The quiet requested of the server, ms.
    fn quiet_millis(&self) -> u16 {
        let quiet = self.quiet.unwrap_or_default();
        u16::try_from(quiet.as_nanos() / 1_000_000).unwrap_or(MAX_QUIET_MILLIS)
    }

    /// A datagram arrived from the server at `arrival` and is read at `now`.
    pub fn handle(&mut self, now: Time, arrival: Time, datagram: &[u8]) {
        self.handle_with(now, arrival, Ecn::NotEct, datagram);
    }

    /// The same of a datagram with this code point.
    pub fn handle_with(&mut self, now: Time, arrival: Time, ecn: Ecn, datagram: &[u8]) {
        let Ok(packet) = Packet::parse(datagram) else {
            self.ignored += 1;
            return;
        };
        match &mut self.phase {
            ClientPhase::Connected(connection) => {
                if packet.connection == connection.id() {
                    let size = Bytes::new((datagram.len() + self.config.overhead) as u64);
                    connection.handle(now, arrival, size, ecn, &packet, &mut self.unlimited);
                }
            }
            ClientPhase::Asking { .. } => self.on_answer(now, &packet),
            ClientPhase::Failed(_) | ClientPhase::Stopped => {}
        }
    }

    fn on_answer(&mut self, now: Time, packet: &Packet<'_>) {
        if !self.handshake.opens(packet) {
            self.ignored += 1;
            return;
        }
        let quiet_requested = self.quiet_millis();
        let ClientPhase::Asking {
            token,
            due,
            answered,
            ..
        } = &mut self.phase
        else {
            return;
        };
        match packet.kind {
            Kind::Retry => {
                if let Ok(retry) = Retry::decode(packet)
                    && retry.nonce == self.nonce
                    && token.as_deref() != Some(retry.token)
                {
                    *token = Some(retry.token.to_vec());
                    if *answered < RETRIES_AT_ONCE {
                        *answered += 1;
                        *due = now;
                    }
                }
            }
            Kind::Refuse => {
                if let Ok(ending) = Ending::decode(packet)
                    && ending.nonce == self.nonce
                {
                    self.phase = ClientPhase::Failed(ClientError::Refused {
                        reason: ending.reason,
                        text: ending.text.to_owned(),
                    });
                }
            }
            Kind::Accept => {
                if let Ok(accept) = Accept::decode(packet)
                    && accept.client_nonce == self.nonce
                {
                    let limit = accept.limit_bps.map(Rate::from_bps);
                    let flows = u64::from(self.config.request.upload_flows);
                    if let (Some(limit), Some(each)) = (limit, self.algorithms.fixed_rate())
                        && flows.saturating_mul(each.as_bps()) > limit.as_bps()
                    {
                        // Less would be another measurement.
                        self.phase = ClientPhase::Failed(ClientError::Refused {
                            reason: Reason::Limit,
                            text: format!(
                                "{} Mbit/s up, and this server grants a test {} Mbit/s",
                                each.as_mbps() * flows as f64,
                                limit.as_mbps()
                            ),
                        });
                        return;
                    }
                    let keys = Keys::new(&self.handshake, &self.nonce, &accept.server_nonce);
                    // A server that knows nothing of it sends at once; one that receives only does not mind.
                    let quiet = if self.config.request.download_flows == 0 {
                        quiet_requested
                    } else {
                        accept.quiet_millis.min(quiet_requested)
                    };
                    let terms = Terms {
                        role: Role::Client,
                        id: packet.connection,
                        keys,
                        request: &self.config.request,
                        silence: self.config.silence,
                        rate: limit,
                        accepted: None,
                        secret: &self.secret,
                        quiet: Duration::from_millis(u64::from(quiet)),
                        echoes: self.quiet.is_some(),
                        log: self.config.log,
                    };
                    let mut connection = Connection::new(&terms, &self.algorithms, now);
                    connection.log_to(std::mem::take(&mut self.logs));
                    self.phase = ClientPhase::Connected(Box::new(connection));
                }
            }
            _ => self.ignored += 1,
        }
    }

    /// The instant of [`next_timer`](Self::next_timer) has come, perhaps late.
    pub fn on_timer(&mut self, now: Time) {
        match &mut self.phase {
            ClientPhase::Connected(connection) => connection.on_timer(now),
            ClientPhase::Asking { answered, .. }
                if now.since(self.began) >= self.config.patience =>
            {
                let patience = self.config.patience;
                self.phase = ClientPhase::Failed(match *answered {
                    0 => ClientError::NoAnswer(patience),
                    _ => ClientError::Unproven(patience),
                });
            }
            _ => {}
        }
    }

    /// When to call [`on_timer`](Self::on_timer) and then
    /// [`poll_transmit`](Self::poll_transmit) next, if at all.
    pub fn next_timer(&self, now: Time) -> Option<Time> {
        match &self.phase {
            ClientPhase::Connected(connection) => connection.next_timer(now),
            ClientPhase::Asking { due, .. } => Some((*due).min(self.began + self.config.patience)),
            ClientPhase::Failed(_) | ClientPhase::Stopped => None,
        }
    }

    /// Fills `batch` with the next packets for the server; returns whether there are any.
    pub fn poll_transmit(&mut self, now: Time, batch: &mut Batch) -> bool {
        let quiet_millis = self.quiet_millis();
        match &mut self.phase {
            ClientPhase::Connected(connection) => {
                let overhead = self.config.overhead;
                connection.poll_transmit(now, overhead, batch, &mut self.unlimited, u64::MAX)
            }
            ClientPhase::Asking {
                token, due, wait, ..
            } if *due <= now => {
                *due = now + *wait;
                *wait = (*wait * 2).min(HELLO_AT_MOST);
                let hello = Hello {
                    nonce: self.nonce,
                    token: token.as_deref().unwrap_or_default(),
                    request: self.config.request.clone(),
                    quiet_millis,
                };
                debug_assert!(hello.token.len() <= MAX_TOKEN_BYTES);
                let buffer = batch.control();
                let covered = hello.encode(buffer);
                let end = self.handshake.seal(buffer, covered);
                wire::pad(&mut buffer[..MIN_HELLO_BYTES], end);
                batch.set_len(MIN_HELLO_BYTES);
                true
            }
            _ => false,
        }
    }

    /// The last transmission has packets of `payload` bytes, which do not fit the path.
    pub fn on_too_large(&mut self, now: Time, payload: usize) {
        let bytes = payload + self.config.overhead;
        match &mut self.phase {
            ClientPhase::Connected(connection) => connection.on_too_large(now, bytes),
            ClientPhase::Asking { .. } => {
                self.phase = ClientPhase::Failed(ClientError::Here {
                    reason: Reason::TooLarge,
                    text: format!("packets of {bytes} B do not fit this path"),
                });
            }
            ClientPhase::Failed(_) | ClientPhase::Stopped => {}
        }
    }

    /// Ends the test early: keeps the results so far and informs the server.
    pub fn stop(&mut self, now: Time) {
        match &mut self.phase {
            ClientPhase::Connected(connection) => {
                connection.close(now, Reason::ShuttingDown, "stopped by the client");
            }
            ClientPhase::Asking { .. } => self.phase = ClientPhase::Stopped,
            ClientPhase::Failed(_) | ClientPhase::Stopped => {}
        }
    }

    /// The connection, once there is one.
    pub fn connection(&self) -> Option<&Connection> {
        match &self.phase {
            ClientPhase::Connected(connection) => Some(connection),
            _ => None,
        }
    }

    /// The connection, to drain its events.
    pub fn connection_mut(&mut self) -> Option<&mut Connection> {
        match &mut self.phase {
            ClientPhase::Connected(connection) => Some(connection),
            _ => None,
        }
    }

    /// Datagrams that were ignored before there was a connection.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    /// How it ended, once it has.
    pub fn outcome(&self) -> Option<Result<(), ClientError>> {
        match &self.phase {
            ClientPhase::Asking { .. } => None,
            ClientPhase::Stopped => Some(Ok(())),
            ClientPhase::Failed(error) => Some(Err(error.clone())),
            ClientPhase::Connected(connection) => {
                let ended = connection.ended()?;
                // A client that ends the test early still waits for the last word, so that the server knows.
                Some(match ended {
                    Ended::Done | Ended::Unanswered => Ok(()),
                    Ended::Here(..) if !connection.is_over() => return None,
                    Ended::Here(Reason::ShuttingDown, _) => Ok(()),
                    Ended::Lost => Err(ClientError::Lost(connection.measured())),
                    Ended::Here(reason, text) => Err(ClientError::Here {
                        reason: *reason,
                        text: text.clone(),
                    }),
                    Ended::ByPeer(reason, text) => Err(ClientError::ByServer {
                        reason: *reason,
                        text: text.clone(),
                    }),
                    Ended::Silent(silence) => Err(ClientError::Silent(*silence)),
                })
            }
        }
    }
}
