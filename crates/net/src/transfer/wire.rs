//! Messages on a QUIC stream, and what can go wrong with a transfer.

use quinn::{
    Connection, ConnectionError, ReadError, ReadExactError, RecvStream, SendStream, VarInt,
    WriteError,
};
use thiserror::Error;

use super::frames::{Frame, FrameError, MAX_FRAME, decode, encode};
use super::refusal::{Reason, Refusal};
use super::{IDLE, code};

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
    /// The other end asked to be left alone on this stream.
    #[error("the other end stopped the transfer")]
    Stopped,
    /// The other end does not keep to the protocol.
    #[error("the other end does not keep to the protocol: {0}")]
    Protocol(String),
}

impl Trouble {
    /// What the peer may be told of it, if anything.
    pub(super) fn for_peer(&self) -> Option<Refusal> {
        match self {
            Trouble::Here(refusal) => Some(refusal.for_wire()),
            Trouble::Protocol(text) => {
                Some(Refusal::new(Reason::Protocol, text.as_str()).for_wire())
            }
            Trouble::There(_) | Trouble::Lost(_) | Trouble::Stopped => None,
        }
    }

    /// Whether nothing more can come of the connection.
    pub fn is_lost(&self) -> bool {
        matches!(self, Trouble::Lost(_))
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

impl From<ReadExactError> for Trouble {
    fn from(error: ReadExactError) -> Self {
        match error {
            ReadExactError::ReadError(ReadError::ConnectionLost(error)) => error.into(),
            ReadExactError::ReadError(ReadError::Reset(_)) | ReadExactError::FinishedEarly(_) => {
                Trouble::Stopped
            }
            ReadExactError::ReadError(error) => Trouble::Lost(error.to_string()),
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
            let known = u32::try_from(close.error_code.into_inner()).unwrap_or(u32::MAX);
            match known {
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

/// A stream of messages. A message is read to its end or not at all: the futures here must not be
/// dropped half-way by somebody who goes on reading.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) sending: Sending,
    pub(super) receiving: Receiving,
}

/// Its half that sends.
#[derive(Debug)]
pub(super) struct Sending(SendStream);

/// Its half that receives.
#[derive(Debug)]
pub(super) struct Receiving(RecvStream);

impl Wire {
    pub(super) fn new((send, receive): (SendStream, RecvStream)) -> Self {
        Wire {
            sending: Sending(send),
            receiving: Receiving(receive),
        }
    }

    pub(super) async fn open(connection: &Connection) -> Result<Self, Trouble> {
        Ok(Wire::new(connection.open_bi().await?))
    }

    pub(super) async fn say<F: Frame>(&mut self, frame: &F) -> Result<(), Trouble> {
        self.sending.say(frame).await
    }

    pub(super) async fn hear<F: Frame>(&mut self) -> Result<F, Trouble> {
        self.receiving.hear().await
    }

    /// Says nothing more; what was said arrives.
    pub(super) fn end(&mut self) {
        let _ = self.sending.0.finish();
    }

    /// Ends the conversation and waits until the peer has all of it.
    pub(super) async fn finish(&mut self) {
        self.end();
        let _ = self.sending.0.stopped().await;
    }

    /// Lets the peer send nothing more.
    pub(super) fn stop(&mut self) {
        let _ = self.receiving.0.stop(VarInt::from_u32(0));
    }
}

impl Sending {
    pub(super) async fn say<F: Frame>(&mut self, frame: &F) -> Result<(), Trouble> {
        self.bytes(&encode(frame)?).await
    }

    pub(super) async fn bytes(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        Ok(self.0.write_all(bytes).await?)
    }
}

impl Receiving {
    pub(super) async fn hear<F: Frame>(&mut self) -> Result<F, Trouble> {
        let mut length = [0; 2];
        self.0.read_exact(&mut length).await?;
        let length = usize::from(u16::from_le_bytes(length));
        if length > MAX_FRAME {
            return Err(FrameError::TooLong(length).into());
        }
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).await?;
        Ok(decode(&bytes)?)
    }

    pub(super) async fn bytes(&mut self, bytes: &mut [u8]) -> Result<(), Trouble> {
        Ok(self.0.read_exact(bytes).await?)
    }
}
