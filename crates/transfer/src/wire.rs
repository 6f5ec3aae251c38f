//! Messages on a QUIC stream, and what can go wrong with a transfer.
//!
//! A live QUIC connection proves little, because QUIC answers even if the program above it hangs or
//! only pretends to work. So no wait here is endless. A wait ends when no byte has crossed the
//! stream in either direction for [`Patience::silence`]. It also ends when bytes arrive without
//! progress for [`STALLS`] times as long.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quinn::{Connection, ConnectionError, ReadError, RecvStream, SendStream, VarInt, WriteError};
use thiserror::Error;
use tokio::time::{Instant, sleep_until};

use super::frames::{Frame, FrameError, MAX_FRAME, decode, encode};
use super::places::Pulse;
use super::refusal::{Reason, Refusal};
use super::{IDLE, code};

/// Signs of life without progress are accepted for this many silences: a slow disk may take minutes
/// to write the data that have arrived.
const STALLS: u32 = 10;

/// Why something was not transferred.
#[derive(Debug, Error)]
pub enum Trouble {
    /// This end cannot, or will not.
    #[error("{0}")]
    Here(Refusal),
    /// The other end cannot, or will not.
    #[error("{0}, says the other end")]
    There(Refusal),
    /// The connection is gone.
    #[error("{0}")]
    Lost(String),
    /// The other end's machine is alive, but the transfer makes no progress.
    #[error(
        "the other end has {} for {} s, though the connection is alive",
        if *stalled { "got nowhere" } else { "said nothing" },
        patience.as_secs()
    )]
    Silent {
        /// How long was waited.
        patience: Duration,
        /// Whether it sent signs of life.
        stalled: bool,
    },
    /// The other end stopped this stream.
    #[error("the other end stopped the transfer")]
    Stopped,
    /// The other end does not keep to the protocol.
    #[error("the other end does not keep to the protocol: {0}")]
    Protocol(String),
}

impl Trouble {
    /// The refusal to send to the peer, if any.
    pub(super) fn for_peer(&self) -> Option<Refusal> {
        match self {
            Trouble::Here(refusal) => Some(refusal.for_wire()),
            Trouble::Protocol(text) => {
                Some(Refusal::new(Reason::Protocol, text.as_str()).for_wire())
            }
            Trouble::Silent { .. } => {
                Some(Refusal::new(Reason::Silent, self.to_string()).for_wire())
            }
            Trouble::There(_) | Trouble::Lost(_) | Trouble::Stopped => None,
        }
    }

    /// Whether the connection is lost.
    pub fn is_lost(&self) -> bool {
        matches!(self, Trouble::Lost(_) | Trouble::Silent { .. })
    }
}

impl From<FrameError> for Trouble {
    fn from(error: FrameError) -> Self {
        Trouble::Protocol(error.to_string())
    }
}

impl From<ConnectionError> for Trouble {
    fn from(error: ConnectionError) -> Self {
        Trouble::Lost(in_words(&error))
    }
}

impl From<WriteError> for Trouble {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::ConnectionLost(error) => error.into(),
            WriteError::Stopped(_) => Trouble::Stopped,
            error => Trouble::Lost(error.to_string()),
        }
    }
}

impl From<ReadError> for Trouble {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::ConnectionLost(error) => error.into(),
            ReadError::Reset(_) => Trouble::Stopped,
            error => Trouble::Lost(error.to_string()),
        }
    }
}

/// Why a connection ended, as a user would say it.
pub(super) fn in_words(error: &ConnectionError) -> String {
    match error {
        ConnectionError::TimedOut => format!(
            "the connection was lost: nothing heard for {} s",
            IDLE.as_secs()
        ),
        ConnectionError::Reset => "the connection was lost: the other end was restarted".to_owned(),
        ConnectionError::LocallyClosed => "stopped here".to_owned(),
        ConnectionError::ApplicationClosed(close) => {
            let number = u32::try_from(close.error_code.into_inner()).unwrap_or(u32::MAX);
            match number {
                code::DONE | code::INTERRUPTED => "the other end has hung up".to_owned(),
                code::PROTOCOL => "the other end says that this one broke the protocol".to_owned(),
                code::TOKEN => "the server does not accept the token".to_owned(),
                code::STRANGER => "the client does not trust this server".to_owned(),
                code::BUSY => {
                    "the server has as many clients as it takes; try again later".to_owned()
                }
                code::STOPPING => "the server was stopped".to_owned(),
                code::REVOKED => {
                    "the server has revoked the token, or changed its rights".to_owned()
                }
                code::IDLE => "the server waits for no client that asks for nothing".to_owned(),
                other => format!("the other end closed the connection (code {other})"),
            }
        }
        ConnectionError::TransportError(error)
            if error.code == quinn_proto::TransportErrorCode::crypto(0x78) =>
        {
            "the other end speaks another protocol, or another version of this one".to_owned()
        }
        ConnectionError::ConnectionClosed(close)
            if close.error_code == quinn_proto::TransportErrorCode::crypto(0x78) =>
        {
            "the other end speaks another protocol, or another version of this one".to_owned()
        }
        ConnectionError::ConnectionClosed(close)
            if close.error_code == quinn_proto::TransportErrorCode::CONNECTION_REFUSED =>
        {
            "the server has as many clients as it takes; try again later".to_owned()
        }
        error => format!("the connection failed: {error}"),
    }
}

/// Limit of an end's waiting for the peer, and the peer's last activity on one stream.
#[derive(Clone, Debug)]
pub(super) struct Patience {
    silence: Duration,
    /// Additional milliseconds for the present work of both ends: see [`Wire::allow`].
    more: Arc<AtomicU64>,
    /// Any byte, in either direction.
    sign: Arc<Pulse>,
    /// Activity that brought the transfer forward.
    progress: Arc<Pulse>,
    /// Of the whole connection, for statistics.
    connection: Arc<Pulse>,
}

impl Patience {
    /// Waits at most `silence`; progress is reported to `connection`.
    pub(super) fn new(silence: Duration, connection: Arc<Pulse>) -> Self {
        Patience {
            silence,
            more: Arc::new(AtomicU64::new(0)),
            sign: Arc::new(Pulse::new()),
            progress: Arc::new(Pulse::new()),
            connection,
        }
    }

    fn sign(&self) {
        self.sign.beat();
    }

    fn progress(&self) {
        self.sign.beat();
        self.progress.beat();
        self.connection.beat();
    }

    /// The time to give up, and whether there will have been signs of life.
    fn end(&self) -> (Instant, bool) {
        let more = Duration::from_millis(self.more.load(Ordering::Relaxed));
        let silent = self.sign.last() + self.silence;
        let stalled = self.progress.last() + STALLS * self.silence;
        (silent.min(stalled) + more, stalled < silent)
    }

    /// Waits for `event`, within the limits.
    async fn wait<T>(&self, event: impl Future<Output = T>) -> Result<T, Trouble> {
        let mut event = pin!(event);
        loop {
            let (end, _) = self.end();
            tokio::select! {
                biased;
                happened = &mut event => return Ok(happened),
                () = sleep_until(end) => {
                    let (end, stalled) = self.end();
                    if end <= Instant::now() {
                        let silences = if stalled { STALLS } else { 1 };
                        let more = Duration::from_millis(self.more.load(Ordering::Relaxed));
                        return Err(Trouble::Silent {
                            patience: silences * self.silence + more,
                            stalled,
                        });
                    }
                }
            }
        }
    }
}

/// A stream of messages. A message is read to its end or not at all: the futures here must not be
/// dropped half-way by a caller that goes on reading.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) sending: Sending,
    pub(super) receiving: Receiving,
}

/// The sending half.
#[derive(Debug)]
pub(super) struct Sending {
    stream: SendStream,
    patience: Patience,
}

/// The receiving half.
#[derive(Debug)]
pub(super) struct Receiving {
    stream: RecvStream,
    patience: Patience,
}

impl Wire {
    pub(super) fn new((send, receive): (SendStream, RecvStream), patience: Patience) -> Self {
        Wire {
            sending: Sending {
                stream: send,
                patience: patience.clone(),
            },
            receiving: Receiving {
                stream: receive,
                patience,
            },
        }
    }

    pub(super) async fn open(connection: &Connection, patience: Patience) -> Result<Self, Trouble> {
        let streams = patience.wait(connection.open_bi()).await??;
        Ok(Wire::new(streams, patience))
    }

    /// Extends the limits from now on: the other end needs `more` time between two messages.
    pub(super) fn allow(&self, more: Duration) {
        let more = u64::try_from(more.as_millis()).unwrap_or(u64::MAX);
        self.receiving.patience.more.store(more, Ordering::Relaxed);
    }

    pub(super) async fn send<F: Frame>(&mut self, frame: &F) -> Result<(), Trouble> {
        self.sending.send(frame).await
    }

    pub(super) async fn receive<F: Frame>(&mut self) -> Result<F, Trouble> {
        self.receiving.receive().await
    }

    /// Ends sending; the messages sent before still arrive.
    pub(super) fn end(&mut self) {
        let _ = self.sending.stream.finish();
    }

    /// Ends the stream and waits until the peer has all of it, or rejects it.
    pub(super) async fn finish(&mut self) {
        self.end();
        let Sending { stream, patience } = &mut self.sending;
        patience.progress();
        if patience.wait(stream.stopped()).await.is_err() {
            self.abandon();
        }
    }

    /// Gives up sent messages that have not arrived.
    pub(super) fn abandon(&mut self) {
        let _ = self.sending.stream.reset(VarInt::from_u32(0));
    }

    /// Stops the peer from sending.
    pub(super) fn stop(&mut self) {
        let _ = self.receiving.stream.stop(VarInt::from_u32(0));
    }
}

impl Sending {
    pub(super) async fn send<F: Frame>(&mut self, frame: &F) -> Result<(), Trouble> {
        self.bytes(&encode(frame)?).await
    }

    pub(super) async fn bytes(&mut self, mut bytes: &[u8]) -> Result<(), Trouble> {
        // The wait for the peer begins now.
        self.patience.progress();
        while !bytes.is_empty() {
            let taken = self.patience.wait(self.stream.write(bytes)).await??;
            self.patience.progress();
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// Sends a sign of life without progress.
    pub(super) async fn sign<F: Frame>(&mut self, frame: &F) -> Result<(), Trouble> {
        let bytes = encode(frame)?;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let taken = self.patience.wait(self.stream.write(rest)).await??;
            rest = &rest[taken..];
        }
        Ok(())
    }
}

impl Receiving {
    pub(super) async fn receive<F: Frame>(&mut self) -> Result<F, Trouble> {
        self.patience.progress();
        let frame = self.receive_sign().await?;
        self.patience.progress();
        Ok(frame)
    }

    /// Receives a message that may be only a sign of life. The caller decides whether it is
    /// progress.
    pub(super) async fn receive_sign<F: Frame>(&mut self) -> Result<F, Trouble> {
        self.patience.sign();
        let mut length = [0; 2];
        self.fill(&mut length).await?;
        let length = usize::from(u16::from_le_bytes(length));
        if length > MAX_FRAME {
            return Err(FrameError::TooLong(length).into());
        }
        let mut bytes = vec![0; length];
        self.fill(&mut bytes).await?;
        Ok(decode(&bytes)?)
    }

    /// Counts the last received message as progress.
    pub(super) fn progress(&self) {
        self.patience.progress();
    }

    pub(super) async fn bytes(&mut self, bytes: &mut [u8]) -> Result<(), Trouble> {
        let mut filled = 0;
        while filled < bytes.len() {
            filled += self.some(&mut bytes[filled..]).await?;
            self.patience.progress();
        }
        Ok(())
    }

    async fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Trouble> {
        let mut filled = 0;
        while filled < bytes.len() {
            filled += self.some(&mut bytes[filled..]).await?;
            self.patience.sign();
        }
        Ok(())
    }

    async fn some(&mut self, bytes: &mut [u8]) -> Result<usize, Trouble> {
        let read = self.patience.wait(self.stream.read(bytes)).await??;
        read.ok_or(Trouble::Stopped)
    }
}
