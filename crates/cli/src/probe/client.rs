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
use verus_net::probe::client::{Client, ClientConfig};
use verus_net::probe::connection::Connection;
use verus_net::probe::driver::Driver;
use verus_net::probe::flow::Event;
use verus_net::probe::record::{Record, Recorder};
use verus_net::probe::server::overhead;
use verus_net::probe::socket::UdpSocket;
use verus_net::probe::wire::{MAX_SCHEME_BYTES, Request};

use crate::failure::Failure;
use crate::folder;
use crate::host::{Family, Host};
use crate::signals::Signals;
use crate::ui::Ui;

use super::contents::{Asked, contents};
use super::table::table;

/// Measure the path to a `probe server`.
#[derive(clap::Args)]
pub struct Args {
    // Not as a doc comment: rustdoc would take the brackets for a link.
    #[arg(help = "The server: HOST, HOST:PORT or [IPv6]:PORT")]
    host: Host,
    /// The controller, as in `verus compare`: NAME[:key=value,…].
    #[arg(long, default_value = "verus", value_parser = scheme)]
    scheme: Scheme,
    /// Which way the data goes.
    #[arg(long, value_enum, default_value = "up")]
    direction: Way,
    /// Flows at the same time, in each direction.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    flows: u16,
    /// How long to send, s (default: 10, or until --bytes are delivered).
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<f64>,
    /// How much each flow sends, such as 20MB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    bytes: Option<u64>,
    /// How fast each flow's source yields data, Mbit/s (default: as fast as the controller sends).
    #[arg(long, value_name = "MBPS", value_parser = super::server::mbps)]
    rate_mbps: Option<f64>,
    /// Size of a packet with its IP and UDP headers; never fragmented.
    #[arg(long, value_name = "BYTES", default_value_t = 1400,
        value_parser = clap::value_parser!(u16).range(200..=65_000))]
    packet_bytes: u16,
    /// The key that the server has: a file.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Seeds the controllers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
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
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace earlier results in --out.
    #[arg(long, requires = "out")]
    force: bool,
    /// Write what happened to each packet to this file, as CSV.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Way {
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
    Scheme::parse(text).map_err(|error| error.to_string())
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds between 0.1 and 86400".to_owned()),
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
/// A server's system that says that nobody listens is believed after this long: a server that is
/// just starting is given a chance.
const REFUSED: Duration = Duration::from_secs(2);

/// Runs one test.
///
/// # Errors
/// If it could not be run to its end.
pub fn run(args: &Args, ui: &Ui) -> Result<(), Failure> {
    let secret = super::read_key(args.key_file.as_deref())?;
    if let Some(out) = &args.out {
        folder::check(out, args.force)?;
    }
    let mut log = args.log.as_deref().map(Log::create).transpose()?;
    let family = match (args.ipv4, args.ipv6) {
        (true, _) => Some(Family::V4),
        (_, true) => Some(Family::V6),
        _ => None,
    };
    let address = args
        .host
        .resolve(DEFAULT_PORT, family)
        .map_err(Failure::run)?;
    let request = request(args);
    let config = ClientConfig {
        request: request.clone(),
        secret,
        patience: PATIENCE,
        silence: SILENCE,
        log: log.is_some(),
        overhead: overhead(address),
    };
    let failed = |error: &dyn std::fmt::Display| Failure::run(format_args!("{address}: {error}"));
    let mut signals = Signals::new().map_err(|error| failed(&error))?;
    let socket = UdpSocket::connect(address).map_err(|error| failed(&error))?;
    let mut driver = Driver::new(socket).map_err(|error| failed(&error))?;
    let began = driver.clock().now();
    let mut client = Client::new(config, args.scheme.clone(), super::entropy()?, began);
    let mut recorder = Recorder::new(&args.host.name, args.scheme.clone(), request.clone());
    let line = Line::new(ui, &address);
    let mut events = Vec::new();
    let (mut next_sample, mut stopped_by) = (began, None);
    let mut aborted = false;
    while client.outcome().is_none() && !aborted {
        driver
            .turn(&mut client, Some(next_sample), Some(signals.as_fd()))
            .map_err(|error| failed(&error))?;
        let now = driver.clock().now();
        if now >= next_sample {
            next_sample = now + Recorder::INTERVAL;
            if let Some(connection) = client.connection() {
                recorder.sample(now, connection);
                line.show(now, &recorder, connection, &request);
            }
        }
        if let Some(log) = &mut log
            && let Some(connection) = client.connection_mut()
        {
            connection.drain_events(&mut events);
            log.write(&mut events)?;
        }
        if let Some(signal) = signals.take() {
            aborted = stopped_by.replace(signal).is_some(); // asked twice
            client.stop(now);
        }
        let refused = driver.take_refused();
        if refused && client.connection().is_none() && now.since(began) >= REFUSED {
            line.clear();
            return Err(failed(&"nobody listens there (connection refused)"));
        }
    }
    line.clear();
    if let Some(log) = log {
        log.finish()?;
    }
    let outcome = client.outcome().unwrap_or(Ok(()));
    if let Some(connection) = client.connection() {
        let record = recorder.finish(driver.clock().now(), connection);
        tell(args, ui, &record)?;
        details(ui, &driver, connection);
        if let Some(out) = &args.out {
            let asked = Asked {
                host: &args.host.name,
                address: address.to_string(),
                request: &request,
                scheme: &args.scheme,
            };
            folder::write(out, &contents(&asked, &record))?;
            ui.note(format_args!(
                "results in `{}`; `verus report` draws them",
                out.display()
            ));
        }
    }
    outcome.map_err(|error| failed(&error))?;
    match stopped_by {
        Some(signal) => {
            ui.note("stopped; results are those so far");
            Err(Failure::signal(signal))
        }
        None => Ok(()),
    }
}

fn request(args: &Args) -> Request {
    let flows = |ways: [Way; 2]| {
        if ways.contains(&args.direction) {
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

fn tell(args: &Args, ui: &Ui, record: &Record) -> Result<(), Failure> {
    if args.json {
        for (_, row) in &record.rows {
            let text = serde_json::to_string(row).expect("plain columns");
            ui.line(text)?;
        }
        return Ok(());
    }
    ui.line(table(&record.rows))
}

/// What `-v` adds: how well the clock and the path behaved.
fn details(ui: &Ui, driver: &Driver, connection: &Connection) {
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

/// The packet log: a CSV file that appears when it is whole.
struct Log {
    path: PathBuf,
    draft: PathBuf,
    file: BufWriter<File>,
}

impl Log {
    fn create(path: &Path) -> Result<Self, Failure> {
        let mut draft = path.as_os_str().to_owned();
        draft.push(".part");
        let draft = PathBuf::from(draft);
        let file = File::create(&draft).map_err(|error| {
            Failure::usage(format_args!("--log: `{}`: {error}", draft.display()))
        })?;
        let mut log = Log {
            path: path.to_owned(),
            draft,
            file: BufWriter::new(file),
        };
        let heading = "event,flow,number,at_us,size_bytes,window_bytes,sent_us,rtt_us,received_us";
        writeln!(log.file, "{heading}").map_err(|error| log.failed(&error))?;
        Ok(log)
    }

    fn failed(&self, error: &io::Error) -> Failure {
        let _ = std::fs::remove_file(&self.draft);
        Failure::run(format_args!("--log: `{}`: {error}", self.path.display()))
    }

    fn write(&mut self, events: &mut Vec<Event>) -> Result<(), Failure> {
        for event in events.drain(..) {
            self.line(&event).map_err(|error| self.failed(&error))?;
        }
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
        }
    }

    fn finish(mut self) -> Result<(), Failure> {
        let ended = self
            .file
            .flush()
            .and_then(|()| std::fs::rename(&self.draft, &self.path));
        ended.map_err(|error| self.failed(&error))
    }
}
