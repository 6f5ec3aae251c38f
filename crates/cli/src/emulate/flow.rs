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
    /// How long it sends.
    pub duration: Duration,
    /// The receiver's address.
    pub receiver: SocketAddr,
    /// The namespaces of senders and of receivers.
    pub namespaces: &'a [Namespace; 2],
    /// Order of the run.
    pub stage: &'a Stage,
    /// The logs, if enabled.
    pub logs: Option<&'a Logs>,
    /// The run's seed.
    pub run_seed: u64,
}

/// A folder for logs, made by the caller.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Logs {
    folder: PathBuf,
    format: String,
    /// The name of the run's channel in the logs.
    channel: String,
}

impl Flow<'_> {
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

/// The measurements of a flow's ends.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Its transport.
    pub transport: &'static str,
    /// Bytes new to the receiver; over UDP with headers, as the simulator counts. `None` where the receiver is not ours.
    pub delivered_bytes: Option<u64>,
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
