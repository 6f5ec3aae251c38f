//! `probe server`: grants tests within limits until a signal, and reports them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;
use verus_core::{Duration, Rate};
use verus_net::host::shown;
use verus_probe::driver::Driver;
use verus_probe::limits::Limits;
use verus_probe::server::{Catalogue, Notice, ServerConfig};
use verus_probe::socket::UdpSocket;
use verus_probe::{DEFAULT_PORT, Server};

use crate::failure::Failure;
use crate::metrics::{BySender, FlowMetrics, RoundTrips, Traffic, address};
use crate::signals::Signals;
use crate::typed::{mbps, whole_seconds};
use crate::ui::Ui;

use crate::log::ServerLog;

/// Run a server for `probe client`.
#[derive(clap::Args)]
pub struct Args {
    /// Listen on this address only (default: all, IPv4 and IPv6).
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Listen on this UDP port; 0 takes a free one.
    #[arg(short, long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Serve only clients that have the same key: a file of 12 bytes or more that no other user can read.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Most tests at a time.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    max_clients: u32,
    /// Most tests at a time from one address (IPv4) or network (the first 64 bits of IPv6).
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    max_clients_per_address: u32,
    /// Most flows of one test, both directions together.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    max_flows: u32,
    /// Most flows of all tests together.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    max_total_flows: u32,
    /// Longest test, in s or as 1h.
    #[arg(long, value_name = "TIME", default_value_t = 3600, value_parser = whole_seconds)]
    max_duration: u32,
    /// Most that one test may use of each direction, Mbit/s (default: 100; with a key, no limit).
    #[arg(long, value_name = "MBPS", value_parser = mbps)]
    max_mbps: Option<f64>,
    /// Most that all tests together may use of each direction, Mbit/s (default: no limit).
    #[arg(long, value_name = "MBPS", value_parser = mbps)]
    max_total_mbps: Option<f64>,
    /// End the test of a client that has sent nothing for this long, in s or as 2m.
    #[arg(long, value_name = "TIME", default_value_t = 60, value_parser = whole_seconds)]
    max_silence: u32,
    #[command(flatten)]
    metrics: address::Address,
    /// Exit after one test.
    #[arg(long)]
    once: bool,
    /// Print events as JSON Lines.
    #[arg(long)]
    json: bool,
}

/// Default of --max-mbps without a key, Mbit/s in each direction.
const STRANGERS_MBPS: f64 = 100.0;

/// How long a server that stops waits until its clients have received its close.
const GOODBYE: Duration = Duration::from_millis(500);

/// How old measurements for Prometheus may be.
const METRICS_EVERY: Duration = Duration::from_secs(1);

/// Serves until a signal stops it.
///
/// # Errors
/// If it cannot listen, and the signal that ended it.
pub fn run(args: &Args, ui: &Ui) -> Result<(), Failure> {
    let secret = super::read_key(args.key_file.as_deref())?;
    let mbps = args
        .max_mbps
        .or_else(|| secret.is_none().then_some(STRANGERS_MBPS));
    let config = ServerConfig {
        secret,
        limits: Limits {
            clients: args.max_clients as usize,
            clients_per_address: args.max_clients_per_address as usize,
            flows_per_client: args.max_flows as usize,
            flows: args.max_total_flows as usize,
            duration: Duration::from_secs(u64::from(args.max_duration)),
            rate_per_client: mbps.map(Rate::from_mbps),
            rate: args.max_total_mbps.map(Rate::from_mbps),
            silence: Duration::from_secs(u64::from(args.max_silence)),
        },
        log: false,
    };
    let open = config.secret.is_none();
    let address = SocketAddr::new(
        args.bind.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        args.port,
    );
    let metrics = args.metrics.listen()?;
    let metrics_url = metrics.as_ref().map(address::Listener::url);
    let cannot = |error: std::io::Error| {
        Failure::usage(format_args!("cannot listen on UDP {address}: {error}"))
    };
    let socket = bind(address, args.bind.is_none()).map_err(cannot)?;
    let local = socket.local_addr().map_err(cannot)?;
    let mut signals = Signals::new().map_err(|error| Failure::run(error.to_string()))?;
    let mut driver = Driver::new(socket).map_err(cannot)?;
    let mut server = Server::new(config, Catalogue, super::entropy()?, driver.clock().now());
    let log = ServerLog::new(*ui, args.json)?;
    let audience = if open {
        "; anybody may measure (--key-file restricts that)"
    } else {
        ", for clients with the key"
    };
    let rate_limit = mbps.map_or_else(String::new, |mbps| {
        format!(", {mbps} Mbit/s a client (--max-mbps)")
    });
    let listening = json!({
        "event": "listening", "address": local.to_string(), "key": !open, "max_mbps": mbps,
        "metrics": metrics_url,
    });
    // A script that starts the server waits for this line, so it is written first.
    if args.json {
        ui.json(&listening)?;
    } else if !ui.is_quiet() {
        ui.line(format_args!(
            "listening on UDP {local}{audience}{rate_limit}"
        ))?;
        if let Some(url) = &metrics_url {
            ui.line(format_args!("measurements for Prometheus at {url}"))?;
        }
    }
    let measurements = Arc::new(Mutex::new(BySender::default()));
    let mut metrics_due = None;
    if let Some(listener) = metrics {
        let measurements = Arc::clone(&measurements);
        listener.start(move || {
            let newest = measurements.lock();
            newest.unwrap_or_else(PoisonError::into_inner).clone()
        })?;
        metrics_due = Some(driver.clock().now());
    }
    let mut goodbye = None;
    let mut stopped_by = None;
    loop {
        let until = [goodbye, metrics_due].into_iter().flatten().min();
        driver
            .turn(&mut server, until, Some(signals.as_fd()))
            .map_err(|error| Failure::run(format_args!("UDP {local}: {error}")))?;
        let now = driver.clock().now();
        if metrics_due.is_some_and(|due| due <= now) {
            let mut newest = measurements.lock().unwrap_or_else(PoisonError::into_inner);
            *newest = measured(&server);
            metrics_due = Some(now + METRICS_EVERY);
        }
        let mut ended = false;
        let notices: Vec<Notice> = server.drain_notices().collect();
        for notice in notices {
            ended |= matches!(notice, Notice::Ended { .. });
            tell(&log, &notice);
        }
        if let Some(signal) = signals.take() {
            if stopped_by.replace(signal).is_some() {
                break; // asked twice
            }
            goodbye = Some(now + GOODBYE);
            server.shut_down(now);
        }
        // The reader of the output is gone, and with it the program that started the server.
        log.check()?;
        if args.once && ended {
            break;
        }
        if goodbye.is_some_and(|end| now >= end || server.is_idle()) {
            break;
        }
    }
    // The results of the tests that lasted until now.
    server.forget_all();
    for notice in server.drain_notices() {
        tell(&log, &notice);
    }
    log.finish()?;
    match stopped_by {
        Some(signal) => Err(Failure::signal(signal)),
        None => Ok(()),
    }
}

/// Measurements of all flows that the server sends.
fn measured(server: &Server<Catalogue>) -> BySender {
    let mut all = BySender::default();
    for (sender, flow) in server.sending().filter(|(_, flow)| !flow.is_finished()) {
        let (core, counters) = (flow.sender(), flow.sender().counters());
        let rtt = RoundTrips {
            smoothed: core.rtt().smoothed(),
            least: core.rtt().least(),
        };
        let measured =
            FlowMetrics::of(rtt, core.window(), |record| core.controller().probe(record));
        all.add(sender, measured.with_lost(counters.lost, counters.sent));
    }
    for (sender, sent) in server.sent() {
        all.begun(&sender, sent.flows);
        let traffic = Traffic {
            acknowledged_bytes: sent.acknowledged.get(),
            sent_packets: sent.packets,
            lost_packets: sent.lost,
        };
        all.traffic(&sender, traffic);
    }
    all
}

/// A socket at `address`. If that is `any` and the system has no IPv6, a socket for all IPv4
/// addresses.
fn bind(address: SocketAddr, any: bool) -> std::io::Result<UdpSocket> {
    UdpSocket::bind(address).or_else(|error| {
        if any && error.kind() != std::io::ErrorKind::AddrInUse {
            UdpSocket::bind(SocketAddr::from(([0, 0, 0, 0], address.port())))
        } else {
            Err(error)
        }
    })
}

fn tell(log: &ServerLog, notice: &Notice) {
    match notice {
        Notice::Began { client, request } => {
            let client = shown(*client);
            let length = match (request.bytes, request.duration_nanos) {
                (0, nanos) => format!("{} s", nanos as f64 / 1e9),
                (bytes, _) => format!("{bytes} bytes a flow"),
            };
            log.say(
                format!(
                    "{client}: begins, {} up, {} down, {}, {length}",
                    request.upload_flows, request.download_flows, request.scheme
                ),
                json!({
                    "event": "began", "client": client.to_string(), "up": request.upload_flows,
                    "down": request.download_flows, "scheme": request.scheme,
                    "bytes": request.bytes, "duration_s": request.duration_nanos as f64 / 1e9,
                }),
            );
        }
        Notice::Refused {
            client,
            text,
            untold,
        } => {
            let client = shown(*client);
            let more = match untold {
                0 => String::new(),
                count => format!(" (and {count} more before)"),
            };
            log.say(
                format!("{client}: refused, {text}{more}"),
                json!({
                    "event": "refused", "client": client.to_string(), "why": text,
                    "more_before": untold,
                }),
            );
        }
        Notice::Moved { from, to } => {
            let (from, to) = (shown(*from), shown(*to));
            log.say(
                format!("{from}: is {to} now"),
                json!({"event": "moved", "client": from.to_string(), "to": to.to_string()}),
            );
        }
        Notice::Ended {
            client,
            how,
            received,
            acknowledged,
        } => {
            let client = shown(*client);
            let megabytes = |bytes: u64| bytes as f64 / 1e6;
            log.say(
                format!(
                    "{client}: {how}; {:.1} MB up, {:.1} MB down",
                    megabytes(*received),
                    megabytes(*acknowledged)
                ),
                json!({
                    "event": "ended", "client": client.to_string(), "how": how,
                    "up_bytes": received, "down_bytes": acknowledged,
                }),
            );
        }
    }
}
