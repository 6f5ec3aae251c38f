//! One flow of a run: a sender in one namespace, a receiver in the other.

use std::io;
use std::net::SocketAddr;
use std::thread;

use serde::Serialize;
use verus_core::Duration;
use verus_core::algorithm::Scheme;
use verus_emu::namespace::Namespace;

use super::stage::Stage;
use super::{quic, tcp, udp};

/// Who sends.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Our controller over UDP.
    Udp(Scheme),
    /// Our controller in QUIC.
    Quic(Scheme),
    /// The kernel's TCP with that congestion control.
    Tcp(String),
}

/// What either end needs.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a> {
    /// Which flow of the run.
    pub index: usize,
    /// Seeds its controller.
    pub seed: u64,
    /// Size of a packet (IP).
    pub packet_bytes: u16,
    /// How long it is to send.
    pub duration: Duration,
    /// Where the receiver listens.
    pub receiver: SocketAddr,
    /// The senders' and the receivers'.
    pub namespaces: &'a [Namespace; 2],
    /// When to do what.
    pub stage: &'a Stage,
}

/// What the ends of a flow saw.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What carried it.
    pub transport: &'static str,
    /// Bytes new to the receiver; over UDP with headers, as the simulator counts.
    pub delivered_bytes: u64,
    /// Mean round-trip time, ms.
    pub rtt_mean_ms: Option<f64>,
    /// Its 95th percentile, ms.
    pub rtt_p95_ms: Option<f64>,
    /// Packets sent again / packets sent.
    pub retransmit_rate: Option<f64>,
    /// The window at the end of each bin of 100 ms, bytes; empty where nobody tells.
    pub window_bytes: Vec<Option<f64>>,
    /// Points of delay profiles.
    pub profiles: Vec<ProfilePoint>,
}

/// A point of a delay profile.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ProfilePoint {
    /// When, s.
    pub time_s: f64,
    /// `point` or `curve`.
    pub kind: &'static str,
    /// Window, packets.
    pub window_packets: f64,
    /// Delay, ms.
    pub delay_ms: f64,
}

impl Flow<'_> {
    /// Runs both ends until the stage is over.
    ///
    /// # Errors
    /// Why either end failed; the stage is then over for all.
    pub fn run(self, kind: &Kind) -> io::Result<Outcome> {
        let outcome = thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                self.namespaces[1].enter()?;
                match kind {
                    Kind::Udp(_) => udp::receive(&self),
                    Kind::Quic(_) => quic::receive(&self),
                    Kind::Tcp(_) => tcp::receive(&self),
                }
            });
            let sent = self.namespaces[0].within(|| {
                self.stage.await_receiver(self.index)?;
                match kind {
                    Kind::Udp(scheme) => udp::send(&self, scheme),
                    Kind::Quic(scheme) => quic::send(&self, scheme),
                    Kind::Tcp(name) => tcp::send(&self, name),
                }
            });
            let sent = sent.and_then(|sent| sent);
            if sent.is_err() {
                self.stage.end();
            }
            let received = receiver
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let mut outcome = sent?;
            outcome.delivered_bytes = received?;
            Ok(outcome)
        });
        if outcome.is_err() {
            self.stage.end();
        }
        outcome
    }
}
