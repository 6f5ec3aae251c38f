//! `probe client`: a test of the path to a server, its display and its results.

use std::io;
use std::path::PathBuf;

use bytesize::ByteSize;
use verus_core::Time;
use verus_measure::qlog::{Qlog, Subject};
use verus_net::host::{Family, Host};
use verus_probe::connection::Connection;
use verus_probe::driver::Driver;
use verus_probe::recording;
use verus_probe::results::{Record, Recorder};
use verus_probe::wire::{MAX_SCHEME_BYTES, Request};
use verus_senders::{RECOMMENDED, Scheme};

use crate::failure::Failure;
use crate::folder;
use crate::qlog;
use crate::typed::{mbps, queue_millis, seconds};
use crate::ui::Ui;

use super::captured::{self, DatagramCapture};
use super::contents::{TestSettings, contents};
use super::packet_log::PacketLog;
use super::session::{Session, Watched};
use super::table::{round_trips, table};

/// Measure the path to a `probe server`.
#[derive(clap::Args)]
pub struct Args {
    // Not as a doc comment: rustdoc would take the brackets for a link.
    #[arg(help = "The server: HOST, HOST:PORT or [IPv6]:PORT")]
    pub(super) host: Host,
    /// The controller, such as forward, verus, cubic or bbr: NAME[:key=value,…], as in `verus list schemes`.
    #[arg(long, default_value = RECOMMENDED, value_parser = scheme)]
    scheme: Scheme,
    /// The server's UDP port, unless HOST names one [default: 6060]
    #[arg(short, long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Direction of the data: up is to the server (default: up; with --record: both).
    #[arg(long, value_enum)]
    direction: Option<TestDirection>,
    /// The same as --direction down, by iperf3's name.
    #[arg(short = 'R', long, conflicts_with = "direction")]
    reverse: bool,
    /// Flows at the same time, in each direction.
    #[arg(short = 'P', long, visible_alias = "parallel", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    flows: u16,
    /// How long to send, in s or as 2m (default: 10, or until --bytes are delivered; with --record: 60).
    #[arg(short = 't', long, visible_alias = "time", value_name = "TIME", value_parser = seconds)]
    pub(super) duration: Option<f64>,
    /// Data that each flow sends, such as 20MB (default: no limit).
    #[arg(short = 'n', long, value_name = "SIZE", value_parser = size)]
    bytes: Option<u64>,
    /// Rate at which each flow's application offers data, in Mbit/s or as 300k (default: as fast as the controller sends).
    #[arg(short = 'b', long, visible_alias = "bitrate", value_name = "MBPS", value_parser = mbps)]
    pub(super) rate_mbps: Option<f64>,
    /// Size of a packet with its IP and UDP headers, bytes; never fragmented.
    #[arg(long, value_name = "BYTES", default_value_t = 1400,
        value_parser = clap::value_parser!(u16).range(200..=65_000))]
    pub(super) packet_bytes: u16,
    /// File with the server's key.
    #[arg(long, value_name = "FILE")]
    pub(super) key_file: Option<PathBuf>,
    /// Random seed of the controllers.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Use IPv4 only.
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use IPv6 only.
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Print a JSON object for each direction.
    #[arg(long)]
    json: bool,
    /// Write results, time series and profiles into this folder, for `verus report`.
    #[arg(long, value_name = "DIR", group = "place")]
    out: Option<PathBuf>,
    /// Record the channel in this folder: arrivals, Mahimahi traces, one-way delays (docs/recording.md).
    #[arg(long, value_name = "DIR", group = "place",
        conflicts_with_all = ["scheme", "flows", "bytes", "log", "pcap", "seed"])]
    pub(super) record: Option<PathBuf>,
    /// How a channel is recorded.
    #[arg(long, value_enum, default_value = "saturate", requires = "record")]
    pub(super) record_mode: RecordMode,
    /// With --record-mode constant: rate towards the server, Mbit/s (default: that of the other direction).
    #[arg(long, value_name = "MBPS", requires = "record", value_parser = mbps)]
    pub(super) up_rate_mbps: Option<f64>,
    /// With --record-mode saturate: queueing delay to maintain, ms (default: 500).
    #[arg(long, value_name = "MS", requires = "record", value_parser = queue_millis)]
    pub(super) queue_ms: Option<f64>,
    /// Replace earlier results in the folder.
    #[arg(long, requires = "place")]
    pub(super) force: bool,
    /// Write what happened to each packet to this file, as CSV.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Write a capture (pcapng) of the headers of all packets that this end sends and receives, for Wireshark and `verus
    /// analyze`.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    #[command(flatten)]
    qlog: qlog::QlogArgs,
}

impl Args {
    /// The server, with the port that --port gives it.
    pub(super) fn server(&self) -> Result<Host, Failure> {
        match (self.host.port, self.port) {
            (Some(one), Some(other)) if one != other => Err(Failure::usage(format_args!(
                "--port: {other} is not the port of `{}:{one}`",
                self.host.name
            ))),
            (given, port) => Ok(Host {
                port: given.or(port),
                ..self.host.clone()
            }),
        }
    }

    /// The direction of the data, if given.
    pub(super) fn test_direction(&self) -> Option<TestDirection> {
        self.direction
            .or(self.reverse.then_some(TestDirection::Down))
    }

    /// The kind of address, if given.
    pub(super) fn family(&self) -> Option<Family> {
        match (self.ipv4, self.ipv6) {
            (true, _) => Some(Family::V4),
            (_, true) => Some(Family::V6),
            _ => None,
        }
    }
}

/// How a channel is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum RecordMode {
    /// Keeps a standing queue, so that what arrives is all that the channel can carry.
    Saturate,
    /// A packet at each interval, as the paper's measurements: what the channel does to it.
    Constant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum TestDirection {
    /// From here to the server.
    Up,
    /// From the server to here.
    Down,
    /// Both at the same time.
    Both,
}

fn scheme(text: &str) -> Result<Scheme, String> {
    if text.len() > MAX_SCHEME_BYTES {
        return Err(format!("longer than {MAX_SCHEME_BYTES} bytes"));
    }
    crate::scheme::open(text).map_err(|error| error.to_string())
}

fn size(text: &str) -> Result<u64, String> {
    match text.parse::<ByteSize>() {
        Ok(size) if size.as_u64() > 0 && size.as_u64() < 1 << 50 => Ok(size.as_u64()),
        _ => Err("expected a size such as 20MB or 512KiB".to_owned()),
    }
}

/// Runs one test.
pub fn run(args: &Args, ui: &Ui) -> Result<(), Failure> {
    let secret = super::read_key(args.key_file.as_deref())?;
    let mut ui = *ui;
    if let Some(out) = &args.out {
        folder::check("--out", out, args.force)?;
        ui = ui.to_the_end();
    }
    let ui = &ui;
    let mut logs = args.qlog.open()?;
    let mut log = args.log.as_deref().map(PacketLog::create).transpose()?;
    let place = args.pcap.as_deref().map(captured::create).transpose()?;
    let mut session = Session::open(&args.server()?, args.family(), secret, ui)?;
    let not_captured = |error: io::Error| Failure::run(format_args!("--pcap: {error}"));
    let capture = place
        .map(|place| captured::begin(place, &mut session.driver))
        .transpose()
        .map_err(not_captured)?;
    session.echoes = true;
    session.lines = !args.json;
    let request = request(args);
    let recorder = Recorder::new(&args.host.name, args.scheme.clone(), request.clone());
    let watched = Watched {
        events: log.is_some(),
        flows: match &mut logs {
            Some(logs) => flow_logs(args, &request, logs, session.driver.clock().now())?,
            None => Vec::new(),
        },
    };
    let mut test =
        session.run(
            &request,
            &args.scheme,
            recorder,
            watched,
            |connection| match &mut log {
                Some(log) => log.take(connection),
                None => Ok(()),
            },
        )?;
    session.driver.set_tap(None);
    let captured = capture
        .map_or(Ok(()), DatagramCapture::finish)
        .map_err(not_captured);
    if let Some(log) = log {
        log.finish()?;
    }
    if let Some(logs) = logs
        && let Some(ends) = test.end_logs()
    {
        logs.publish(ends, ui)?;
    }
    if let Some((connection, record)) = test.result() {
        if let Some(out) = &args.out {
            let settings = TestSettings {
                host: &args.host.name,
                address: session.address.to_string(),
                request: &request,
                schemes: [&args.scheme; 2],
            };
            folder::write("--out", out, &contents(&settings, record))?;
            ui.note(format_args!(
                "results in `{}`; `verus report` draws them",
                out.display()
            ));
        }
        show(args, ui, record)?;
        if !args.json {
            limited(ui, record);
        }
        details(ui, &session.driver, connection);
    }
    session.end(&test, &request).and(captured)
}

/// A log for each flow that is sent from here.
fn flow_logs(
    args: &Args,
    request: &Request,
    logs: &mut qlog::Logs,
    now: Time,
) -> Result<Vec<Qlog>, Failure> {
    let log = |flow| {
        let subject = Subject {
            scheme: request.scheme.clone(),
            transport: "udp",
            channel: Some(args.host.name.clone()),
            seed: Some(request.seed),
            flow: u32::from(flow),
            is_server: false,
        };
        logs.log(&subject, now)
    };
    (0..request.upload_flows).map(log).collect()
}

fn request(args: &Args) -> Request {
    let flows = |directions: [TestDirection; 2]| {
        if directions.contains(&args.test_direction().unwrap_or(TestDirection::Up)) {
            args.flows
        } else {
            0
        }
    };
    let duration = match (args.duration, args.bytes) {
        (Some(seconds), _) => seconds,
        (None, Some(_)) => 0.0,
        (None, None) => 10.0,
    };
    Request {
        upload_flows: flows([TestDirection::Up, TestDirection::Both]),
        download_flows: flows([TestDirection::Down, TestDirection::Both]),
        packet_bytes: args.packet_bytes,
        status_millis: 100,
        duration_nanos: (duration * 1e9) as u64,
        bytes: args.bytes.unwrap_or(0),
        rate_bps: args.rate_mbps.map_or(0, |rate| (rate * 1e6) as u64),
        seed: args.seed,
        scheme: args.scheme.text().to_owned(),
    }
}

/// Prints the results of a test: JSON or a table.
pub(super) fn show(args: &Args, ui: &Ui, record: &Record) -> Result<(), Failure> {
    if args.json {
        for (_, row) in &record.rows {
            ui.json(row)?;
        }
        return Ok(());
    }
    for line in table(&record.rows)
        .into_iter()
        .chain(round_trips(&record.rows))
    {
        ui.line(line)?;
    }
    Ok(())
}

/// Warns where a result may show the server's limit instead of the path's.
fn limited(ui: &Ui, record: &Record) {
    let rows = record.rows.iter().map(|(_, row)| row);
    if let Some(limit) = rows.clone().find_map(|row| row.server_limit_mbps)
        && rows
            .filter_map(|row| row.totals.metrics.throughput_mbps)
            .any(|rate| rate >= recording::NEAR * limit)
    {
        ui.note(format_args!(
            "the server grants a test {limit} Mbit/s in each direction: that was measured, and not what \
             the path carries"
        ));
    }
}

/// The additional lines of `-v`: how well the clock and the path behaved.
pub(super) fn details(ui: &Ui, driver: &Driver, connection: &Connection) {
    let quantiles = |histogram: &hdrhistogram::Histogram<u32>| {
        let at = |q| histogram.value_at_quantile(q);
        format!(
            "p50 {} µs, p99 {} µs, largest {} µs, of {}",
            at(0.5),
            at(0.99),
            histogram.max(),
            histogram.len()
        )
    };
    ui.detail(format_args!(
        "timers late by {}; woken {} times",
        quantiles(driver.lateness()),
        driver.wakeups()
    ));
    for (index, flow) in connection.outgoing().iter().enumerate() {
        ui.detail(format_args!(
            "flow {index}: epochs late by {}",
            quantiles(flow.lateness())
        ));
    }
    let rejected = connection.rejected();
    ui.detail(format_args!(
        "packets not believed: {} forged, {} malformed, {} repeated",
        rejected.forged, rejected.malformed, rejected.repeated
    ));
}
