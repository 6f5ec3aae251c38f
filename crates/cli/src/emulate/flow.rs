//! One flow of a run: the settings of its ends, and their measurements.

use std::fs::File;
use std::io::{self, BufWriter};
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use verus_core::{Duration, Time};
use verus_emu::namespace::Namespace;
use verus_measure::qlog::{LIMIT, Qlog, Subject, file_name};
use verus_senders::Scheme;

use super::stage::Stage;

/// The settings of both ends.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a> {
    /// Index of the flow in the run.
    pub index: usize,
    /// Seeds its controller.
    pub seed: u64,
    /// Size of a packet (IP).
    pub packet_bytes: u16,
    /// Length of the run.
    pub duration: Duration,
    /// When it begins to send.
    pub start: Duration,
    /// When it stops sending, if that is before the end of the run.
    pub stop: Option<Duration>,
    /// How much it sends, if that has an end, bytes.
    pub bytes: Option<u64>,
    /// The receiver's address.
    pub receiver: SocketAddr,
    /// The namespaces of senders and of receivers.
    pub namespaces: &'a [Namespace; 2],
    /// Order of the run.
    pub stage: &'a Stage,
    /// The logs, if enabled.
    pub logs: Option<&'a LogSettings>,
    /// The run's seed.
    pub run_seed: u64,
}

/// Where a run's logs go, and their format. The caller makes the folder.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSettings {
    folder: PathBuf,
    format: String,
    /// The name of the run's channel in the logs.
    channel: String,
}

impl Flow<'_> {
    /// Waits until it may send.
    pub fn await_start(&self) -> io::Result<()> {
        self.stage.await_play()?;
        if self.start > Duration::ZERO {
            self.stage.sleep_until(self.start);
        }
        Ok(())
    }

    /// Whether its sending has ended: the run is over, or its time is.
    pub fn is_over(&self) -> bool {
        self.stage.is_over() || self.stop.is_some_and(|stop| self.stage.elapsed() >= stop)
    }

    /// The time since its start, if all of its data has arrived for the first time now.
    pub fn completion(&self, received: u64, known: Option<Duration>) -> Option<Duration> {
        known.or_else(|| {
            let complete = self.bytes.is_some_and(|bytes| received >= bytes);
            complete.then(|| self.stage.elapsed().saturating_sub(self.start))
        })
    }

    /// A log for this flow, if logs are enabled; its sender begins at `now`.
    pub fn log(
        &self,
        scheme: &Scheme,
        transport: &'static str,
        now: Time,
    ) -> io::Result<Option<Qlog>> {
        let Some(logs) = self.logs else {
            return Ok(None);
        };
        let subject = Subject {
            scheme: scheme.text().to_owned(),
            transport,
            channel: Some(logs.channel.clone()),
            seed: Some(self.run_seed),
            flow: self.index as u32,
            is_server: false,
        };
        let dialect = logs.format.parse().map_err(io::Error::other)?;
        let file = File::create_new(logs.folder.join(file_name(&subject, dialect)))?;
        let file = BufWriter::new(file);
        Ok(Some(Qlog::new(file, dialect, LIMIT, &subject, now)))
    }
}

/// The measurements of a receiver.
#[derive(Clone, Copy, Debug, Default)]
pub struct Received {
    /// Bytes new to it; `None` where the receiver is not ours.
    pub bytes: Option<u64>,
    /// The time from the flow's start until all of its data had arrived.
    pub completion: Option<Duration>,
}

/// The measurements of a flow's ends.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Its transport.
    pub transport: &'static str,
    /// Bytes new to the receiver; over UDP with headers, as the simulator counts. `None` where the receiver is not ours.
    pub delivered_bytes: Option<u64>,
    /// The time from its start until all of its data had arrived, if its data has an end.
    pub completion: Option<Duration>,
    /// Mean round-trip time, ms.
    pub rtt_mean_ms: Option<f64>,
    /// Its 95th percentile, ms.
    pub rtt_p95_ms: Option<f64>,
    /// Packets sent again / packets sent.
    pub retransmit_rate: Option<f64>,
    /// The window at the end of each bin of 100 ms, bytes; empty where it is not reported.
    pub window_bytes: Vec<Option<f64>>,
    /// Points of delay profiles.
    pub profiles: Vec<ProfilePoint>,
}

/// A point of a delay profile.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ProfilePoint {
    /// Time, s.
    pub time_s: f64,
    /// `point` or `curve`.
    pub kind: &'static str,
    /// Window, packets.
    pub window_packets: f64,
    /// Delay, ms.
    pub delay_ms: f64,
}
