//! `probe client`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use bytesize::ByteSize;
use indicatif::{ProgressBar, ProgressStyle};
use verus_core::algorithm::Scheme;
use verus_core::{Duration, Time};
use verus_net::probe::DEFAULT_PORT;
use verus_net::probe::client::{Client, ClientConfig, ClientError};
use verus_net::probe::connection::Connection;
use verus_net::probe::driver::Driver;
use verus_net::probe::flow::Event;
use verus_net::probe::record::{Record, Recorder};
use verus_net::probe::seal::Secret;
use verus_net::probe::server::overhead;
use verus_net::probe::socket::UdpSocket;
use verus_net::probe::wire::{MAX_SCHEME_BYTES, Request};

use crate::draft::{self, DraftFile};
use crate::failure::Failure;
use crate::folder;
use crate::host::{Family, Host};
use crate::signals::Signals;
use crate::ui::Ui;

use super::contents::{Asked, contents};
use super::recording;
use super::table::table;

/// Measure the path to a `probe server`.
#[derive(clap::Args)]
pub struct Args {
    // Not as a doc comment: rustdoc would take the brackets for a link.
    #[arg(help = "The server: HOST, HOST:PORT or [IPv6]:PORT")]
    pub(super) host: Host,
    /// The controller, as in `verus compare`: NAME[:key=value,…].
    #[arg(long, default_value = "verus", value_parser = scheme)]
    scheme: Scheme,
    /// Which way the data goes (default: up; with --record: both).
    #[arg(long, value_enum)]
    pub(super) direction: Option<Way>,
    /// Flows at the same time, in each direction.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    flows: u16,
    /// How long to send, s (default: 10, or until --bytes are delivered; with --record: 60).
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) duration: Option<f64>,
    /// How much each flow sends, such as 20MB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    bytes: Option<u64>,
    /// How fast each flow's source yields data, Mbit/s (default: as fast as the controller sends).
    #[arg(long, value_name = "MBPS", value_parser = super::server::mbps)]
    pub(super) rate_mbps: Option<f64>,
    /// Size of a packet with its IP and UDP headers; never fragmented.
    #[arg(long, value_name = "BYTES", default_value_t = 1400,
        value_parser = clap::value_parser!(u16).range(200..=65_000))]
    pub(super) packet_bytes: u16,
    /// The key that the server has: a file.
    #[arg(long, value_name = "FILE")]
    pub(super) key_file: Option<PathBuf>,
    /// Seeds the controllers.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// IPv4 only.
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// IPv6 only.
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Print a JSON object for each direction.
    #[arg(long)]
    json: bool,
    /// Leave results, time series and profiles in this folder, for `verus report`.
    #[arg(long, value_name = "DIR", group = "place")]
    out: Option<PathBuf>,
    /// Record the channel in this folder: arrivals, Mahimahi traces, one-way delays (docs/recording.md).
    #[arg(long, value_name = "DIR", group = "place",
        conflicts_with_all = ["scheme", "flows", "bytes", "log", "seed"])]
    record: Option<PathBuf>,
    /// How a channel is recorded.
    #[arg(long, value_enum, default_value = "saturate", requires = "record")]
    pub(super) record_mode: recording::Mode,
    /// With --record-mode constant: how fast to send up, where not as fast as down, Mbit/s.
    #[arg(long, value_name = "MBPS", requires = "record", value_parser = super::server::mbps)]
    pub(super) up_rate_mbps: Option<f64>,
    /// With --record-mode saturate: how long a queue to keep standing, ms.
    #[arg(long, value_name = "MS", requires = "record", value_parser = queue_ms)]
    pub(super) queue_ms: Option<f64>,
    /// Replace earlier results in the folder.
    #[arg(long, requires = "place")]
    pub(super) force: bool,
    /// Write what happened to each packet to this file, as CSV.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Way {
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

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds between 0.1 and 86400".to_owned()),
    }
}

fn queue_ms(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(millis) if (10.0..=10_000.0).contains(&millis) => Ok(millis),
        _ => Err("expected milliseconds between 10 and 10000".to_owned()),
    }
}

fn size(text: &str) -> Result<u64, String> {
    match text.parse::<ByteSize>() {
        Ok(size) if size.as_u64() > 0 && size.as_u64() < 1 << 50 => Ok(size.as_u64()),
        _ => Err("expected a size such as 20MB or 512KiB".to_owned()),
    }
}

/// How long to wait for the server's first answer, and for its next.
const PATIENCE: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(60);
/// A system that says that nobody listens, or that nothing can be sent there, is believed after this long: a
/// server that is just starting is given a chance.
const REFUSED: Duration = Duration::from_secs(2);

/// Runs one test, or records.
///
/// # Errors
/// If it could not be run to its end.
pub fn run(args: &Args, ui: &Ui) -> Result<(), Failure> {
    if let Some(target) = &args.record {
        return recording::run(args, target, ui);
    }
    let secret = super::read_key(args.key_file.as_deref())?;
    if let Some(out) = &args.out {
        folder::check("--out", out, args.force)?;
    }
    let mut log = args.log.as_deref().map(Log::create).transpose()?;
    let mut session = Session::open(args, secret, ui)?;
    let request = request(args);
    let recorder = Recorder::new(&args.host.name, args.scheme.clone(), request.clone());
    let logged = log.is_some();
    let test = session.run(
        &request,
        &args.scheme,
        recorder,
        logged,
        |connection| match &mut log {
            Some(log) => log.take(connection),
            None => Ok(()),
        },
    )?;
    if let Some(log) = log {
        log.finish()?;
    }
    if let Some((connection, record)) = test.result() {
        tell(args, ui, record)?;
        details(ui, &session.driver, connection);
        if let Some(out) = &args.out {
            let asked = Asked {
                host: &args.host.name,
                address: session.address.to_string(),
                request: &request,
                schemes: [&args.scheme; 2],
            };
            folder::write("--out", out, &contents(&asked, record))?;
            ui.note(format_args!(
                "results in `{}`; `verus report` draws them",
                out.display()
            ));
        }
    }
    session.end(&test)
}

/// A socket to the server, and a person who may have had enough.
pub(super) struct Session<'a> {
    pub(super) address: SocketAddr,
    secret: Option<Secret>,
    pub(super) driver: Driver,
    signals: Signals,
    pub(super) stopped_by: Option<i32>,
    ui: &'a Ui,
}

/// A test that is over.
pub(super) struct Test {
    client: Client<Scheme>,
    record: Option<Record>,
}

impl Test {
    /// What came of it, if it began.
    pub(super) fn result(&self) -> Option<(&Connection, &Record)> {
        self.client.connection().zip(self.record.as_ref())
    }

    pub(super) fn outcome(&self) -> Result<(), ClientError> {
        self.client.outcome().unwrap_or(Ok(()))
    }
}

impl<'a> Session<'a> {
    pub(super) fn open(args: &Args, secret: Option<Secret>, ui: &'a Ui) -> Result<Self, Failure> {
        let family = match (args.ipv4, args.ipv6) {
            (true, _) => Some(Family::V4),
            (_, true) => Some(Family::V6),
            _ => None,
        };
        let address = args
            .host
            .resolve(DEFAULT_PORT, family)
            .map_err(Failure::run)?;
        let failed = |error: io::Error| Failure::run(format_args!("{address}: {error}"));
        let signals = Signals::new().map_err(failed)?;
        let socket = UdpSocket::connect(address).map_err(failed)?;
        let driver = Driver::new(socket).map_err(failed)?;
        Ok(Session {
            address,
            secret,
            driver,
            signals,
            stopped_by: None,
            ui,
        })
    }

    /// Runs one test to its end, whatever that is. `watch` is called whenever something may have happened.
    pub(super) fn run(
        &mut self,
        request: &Request,
        scheme: &Scheme,
        mut recorder: Recorder,
        log: bool,
        mut watch: impl FnMut(&mut Connection) -> Result<(), Failure>,
    ) -> Result<Test, Failure> {
        let address = self.address;
        let failed =
            |error: &dyn std::fmt::Display| Failure::run(format_args!("{address}: {error}"));
        let config = ClientConfig {
            request: request.clone(),
            secret: self.secret.clone(),
            patience: PATIENCE,
            silence: SILENCE,
            log,
            overhead: overhead(address),
        };
        let began = self.driver.clock().now();
        let mut client = Client::new(config, scheme.clone(), super::entropy()?, began);
        let line = Line::new(self.ui, &address);
        let mut next_sample = began;
        let mut aborted = false;
        while client.outcome().is_none() && !aborted {
            self.driver
                .turn(&mut client, Some(next_sample), Some(self.signals.as_fd()))
                .map_err(|error| failed(&error))?;
            let now = self.driver.clock().now();
            if now >= next_sample {
                next_sample = now + Recorder::INTERVAL;
                if let Some(connection) = client.connection() {
                    recorder.sample(now, connection);
                    line.show(now, &recorder, connection, request);
                }
            }
            if let Some(connection) = client.connection_mut() {
                watch(connection)?;
            }
            if let Some(signal) = self.signals.take() {
                aborted = self.stopped_by.replace(signal).is_some(); // asked twice
                client.stop(now);
            }
            if let Some(trouble) = self.driver.take_trouble()
                && client.connection().is_none()
                && now.since(began) >= REFUSED
            {
                line.clear();
                return Err(match trouble.kind() {
                    io::ErrorKind::ConnectionRefused => {
                        failed(&"nobody listens there (connection refused)")
                    }
                    _ => failed(&trouble),
                });
            }
        }
        line.clear();
        let now = self.driver.clock().now();
        if self.stopped_by.is_some() || !matches!(client.outcome(), Some(Ok(()))) {
            recorder.cut();
        }
        let record = client
            .connection()
            .map(|connection| recorder.finish(now, connection));
        Ok(Test { client, record })
    }

    /// What is said at the end of `test`, which was the last.
    pub(super) fn end(&self, test: &Test) -> Result<(), Failure> {
        test.outcome()
            .map_err(|error| Failure::run(format_args!("{}: {error}", self.address)))?;
        match self.stopped_by {
            Some(signal) => {
                self.ui.note("stopped; results are those so far");
                Err(Failure::signal(signal))
            }
            None => Ok(()),
        }
    }
}

fn request(args: &Args) -> Request {
    let flows = |ways: [Way; 2]| {
        if ways.contains(&args.direction.unwrap_or(Way::Up)) {
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
        upload_flows: flows([Way::Up, Way::Both]),
        download_flows: flows([Way::Down, Way::Both]),
        packet_bytes: args.packet_bytes,
        status_millis: 100,
        duration_nanos: (duration * 1e9) as u64,
        bytes: args.bytes.unwrap_or(0),
        rate_bps: args.rate_mbps.map_or(0, |rate| (rate * 1e6) as u64),
        seed: args.seed,
        scheme: args.scheme.text().to_owned(),
    }
}

pub(super) fn tell(args: &Args, ui: &Ui, record: &Record) -> Result<(), Failure> {
    if args.json {
        for (_, row) in &record.rows {
            ui.json(row)?;
        }
        return Ok(());
    }
    for line in table(&record.rows) {
        ui.line(line)?;
    }
    limited(ui, record);
    Ok(())
}

/// A server's limit is no property of the path: says where a result may be nothing else.
fn limited(ui: &Ui, record: &Record) {
    /// From which share of the limit on a rate is taken for it: packets leave in lumps.
    const NEAR: f64 = 0.9;
    let rows = record.rows.iter().map(|(_, row)| row);
    if let Some(limit) = rows.clone().find_map(|row| row.server_limit_mbps)
        && rows
            .map(|row| row.totals.metrics.throughput_mbps)
            .any(|rate| rate >= NEAR * limit)
    {
        ui.note(format_args!(
            "the server grants a test {limit} Mbit/s in each direction: that was measured, and not what \
             the path carries"
        ));
    }
}

/// What `-v` adds: how well the clock and the path behaved.
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

/// The line that overwrites itself while a test runs.
struct Line(Option<ProgressBar>);

impl Line {
    fn new(ui: &Ui, address: &SocketAddr) -> Self {
        if !ui.progress() {
            return Line(None);
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(style);
        }
        bar.set_message(format!("asking {address}"));
        Line(Some(bar))
    }

    fn show(&self, now: Time, recorder: &Recorder, connection: &Connection, request: &Request) {
        let Some(bar) = &self.0 else {
            return;
        };
        let progress = recorder.progress(now, connection);
        let elapsed = now.since(connection.started()).as_secs_f64();
        let time = match request.duration_nanos {
            0 => format!("{elapsed:.0} s"),
            nanos => format!("{elapsed:.0} of {:.0} s", nanos as f64 / 1e9),
        };
        bar.set_message(format!(
            "{time}   {:.2} Mbit/s   RTT {:.1} ms   window {:.0} packets   lost {} of {}",
            progress.throughput_mbps,
            progress.rtt_ms,
            progress.window_packets,
            progress.lost,
            progress.sent
        ));
        bar.tick();
    }

    fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

fn failed(log: &Path, error: &io::Error) -> Failure {
    Failure::run(format_args!("--log: `{}`: {error}", log.display()))
}

/// The packet log: a CSV file that appears when it is whole.
struct Log {
    path: PathBuf,
    draft: DraftFile,
    file: BufWriter<File>,
    events: Vec<Event>,
}

impl Log {
    fn create(path: &Path) -> Result<Self, Failure> {
        let (draft, file) = draft::name(path)
            .and_then(|name| DraftFile::create(path, name))
            .map_err(|error| {
                Failure::usage(format_args!("--log: `{}`: {error}", path.display()))
            })?;
        let mut log = Log {
            path: path.to_owned(),
            draft,
            file: BufWriter::new(file),
            events: Vec::new(),
        };
        let heading = "event,flow,number,at_us,size_bytes,window_bytes,sent_us,rtt_us,received_us";
        writeln!(log.file, "{heading}").map_err(|error| failed(&log.path, &error))?;
        Ok(log)
    }

    fn take(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        let mut events = std::mem::take(&mut self.events);
        connection.drain_events(&mut events);
        for event in events.drain(..) {
            self.line(&event)
                .map_err(|error| failed(&self.path, &error))?;
        }
        self.events = events;
        Ok(())
    }

    fn line(&mut self, event: &Event) -> io::Result<()> {
        let micros = |at: Time| at.as_nanos() as f64 / 1e3;
        match *event {
            Event::Sent {
                flow,
                number,
                at,
                size,
                window,
                retransmission,
            } => {
                let what = if retransmission { "resent" } else { "sent" };
                let (at, size, window) = (micros(at), size.get(), window.get());
                writeln!(self.file, "{what},{flow},{number},{at},{size},{window},,,")
            }
            Event::Acked {
                flow,
                number,
                at,
                sent,
                rtt,
                window,
                received,
            } => {
                let rtt = rtt.as_nanos() as f64 / 1e3;
                let received = received.map_or_else(String::new, |at| micros(at).to_string());
                let (at, sent, window) = (micros(at), micros(sent), window.get());
                writeln!(
                    self.file,
                    "acked,{flow},{number},{at},,{window},{sent},{rtt},{received}"
                )
            }
            Event::Lost { flow, number, at } => {
                writeln!(self.file, "lost,{flow},{number},{},,,,,", micros(at))
            }
            Event::Received {
                flow,
                number,
                at,
                sent,
                size,
                ..
            } => {
                let (at, sent, size) = (micros(at), micros(sent), size.get());
                writeln!(self.file, "received,{flow},{number},{at},{size},,{sent},,")
            }
            // Of no packet of the log, or said by an `acked` line already.
            Event::Told { .. } | Event::Control { .. } => Ok(()),
        }
    }

    fn finish(mut self) -> Result<(), Failure> {
        self.file
            .flush()
            .and_then(|()| self.draft.publish())
            .map_err(|error| failed(&self.path, &error))
    }
}
