//! `serve`: a folder for clients with a token, over QUIC, until a signal.
//!
//! The order of the start keeps it safe. First, everything is opened that needs the rights of the
//! user that started it. Then the rights are given up ([`privilege`]), keys and tokens are read,
//! and the process is confined ([`sandbox`]). Threads and packets come after that.

mod audit;
mod privilege;
mod sandbox;
mod tell;
mod token;
mod used;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use bytesize::ByteSize;
use rustix::fs::{FileType, fstat};
use serde_json::json;
use verus_transfer::access::Access;
use verus_transfer::access::store::STORE_FILE;
use verus_transfer::folder::Folder;
use verus_transfer::private::Home;
use verus_transfer::reserved::Reserved;
use verus_transfer::secret_error::SecretError;
use verus_transfer::secrets::{Fingerprint, Identity, TOKEN_FILE, Token};
use verus_transfer::traffic::Traffic;
use verus_transfer::{DEFAULT_PORT, Event, Limits, Server, ServerConfig, bind};

use self::audit::Audit;
use self::privilege::ServerUser;
use self::sandbox::Confined;
use self::used::Used;
use crate::failure::Failure;
use crate::files::{self, HomeOwner};
use crate::log::ServerLog;
use crate::metrics::{self, BySender, RoundTrips, address};
use crate::ui::Ui;

/// Serve a folder over QUIC to the clients `send` and `receive`.
///
/// Clients recognize this server by its fingerprint, and each needs a token. The server's key and a first token are
/// made at the first start and kept in the --config folder. Of clients' paths, none leads outside of the folder, and a
/// server started as root gives up root's rights.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    serving: Serving,
}

#[derive(clap::Subcommand)]
enum Verb {
    Token(token::Args),
}

#[derive(clap::Args)]
struct Serving {
    /// The folder to serve.
    #[arg(value_name = "DIR", required = true)]
    folder: Option<PathBuf>,
    /// Listen on this address only (default: all, IPv4 and IPv6).
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Listen on this UDP port; 0 takes a free one.
    #[arg(short, long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Accept no files from clients.
    #[arg(long)]
    read_only: bool,
    /// File with the token of the client `default` (default: `token` in the --config folder, made if no client has a token).
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Serve every client, without a token.
    #[arg(long, conflicts_with = "token_file")]
    no_token: bool,
    /// Most clients at a time.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..))]
    max_clients: u16,
    /// Most clients at a time from one address (IPv6: one /64) (default: half of --max-clients).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    clients_per_address: Option<u16>,
    /// Most space that all files in DIR may take before uploads are refused, as 500MB or 2GiB (default: no limit).
    #[arg(long, value_name = "SIZE")]
    max_bytes: Option<ByteSize>,
    /// Remove unfinished files after this long without a write, as 12h or 7d; `forever` keeps them.
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = keep)]
    keep_parts: Keep,
    /// Append a JSON object for each transfer (client, file, result) to this file.
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    /// When started as root: serve as this user (default: the owner of DIR). `root` keeps root's rights.
    #[arg(long, value_name = "NAME|UID[:GID]")]
    user: Option<String>,
    #[command(flatten)]
    metrics: address::Address,
    /// Print events as JSON Lines.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: files::Common,
}

/// How long something is kept; `None` is for ever.
#[derive(Clone, Copy)]
struct Keep(Option<Duration>);

fn keep(text: &str) -> Result<Keep, String> {
    if text == "forever" {
        return Ok(Keep(None));
    }
    humantime::parse_duration(text)
        .map(|time| Keep(Some(time)))
        .map_err(|error| format!("{error}; expected a time, as 12h or 7d, or `forever`"))
}

/// Serves until a signal stops it, or manages tokens.
///
/// # Errors
/// If it cannot, and the signal that ended it.
pub fn run(args: &Args, ui: &Ui) -> Result<(), Failure> {
    match &args.verb {
        Some(Verb::Token(args)) => token::run(args, ui),
        None => serve(&args.serving, ui),
    }
}

fn serve(args: &Serving, ui: &Ui) -> Result<(), Failure> {
    let ready = prepare(args)?;
    let mut audit = ready.audit;
    let mut used = ready.used;
    let start = ready.start;
    let socket = ready.socket;
    let config = ready.config;
    files::runtime()?.block_on(async {
        let stopped = files::stopped()?;
        let failed = |error: io::Error| Failure::run(format_args!("cannot serve: {error}"));
        let mut server = Server::start(config, socket).map_err(failed)?;
        let local = server.local_addr().map_err(failed)?;
        start.tell(local, args, audit.as_ref(), ui)?;
        if let Some(listener) = ready.metrics {
            let (watch, sender) = (server.watch(), args.common.scheme.text().to_owned());
            listener.start(move || measured(&watch.traffic(), &sender))?;
        }
        let log = ServerLog::new(*ui, args.json)?;
        let mut tell = |event: &Event| {
            let report = tell::report(event);
            if let Some(audit) = audit.as_mut().filter(|_| report.account) {
                audit.write(&report.value);
            }
            match (event, &mut used) {
                (
                    Event::Connected {
                        name: Some(name), ..
                    },
                    Some(used),
                ) => used.note(name, now()),
                (Event::TokensUnreadable { .. }, _) => {
                    Failure::run(&report.line).report();
                }
                _ => {}
            }
            log.say(report.line, report.value);
            log.check()
        };
        tokio::pin!(stopped);
        let ended = loop {
            tokio::select! {
                event = server.event() => match event {
                    Some(event) => {
                        if let Err(failure) = tell(&event) {
                            break failure;
                        }
                    }
                    None => break Failure::run("the server has stopped"),
                },
                signal = &mut stopped => break Failure::signal(signal),
            }
        };
        server.stop().await;
        while let Some(event) = server.try_event() {
            let _ = tell(&event);
        }
        log.finish()?;
        Err(ended)
    })
}

/// The opened resources of a server, after unneeded rights were given up.
struct Ready {
    config: ServerConfig,
    socket: std::net::UdpSocket,
    metrics: Option<address::Listener>,
    audit: Option<Audit>,
    /// None if clients have no names, or the folder of secrets cannot be written, which does no
    /// harm.
    used: Option<Used>,
    start: Start,
}

/// The facts to report at the start.
struct Start {
    folder: PathBuf,
    home: PathBuf,
    fingerprint: Fingerprint,
    /// Number of known clients; none if anybody is served.
    clients: Option<usize>,
    server_user: ServerUser,
    confined: Confined,
    metrics_url: Option<String>,
}

fn prepare(args: &Serving) -> Result<Ready, Failure> {
    let path = args
        .folder
        .as_ref()
        .ok_or_else(|| Failure::usage("name a folder to serve"))?;
    let folder = Folder::open(path).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::NotADirectory => "it is not a folder".to_owned(),
            io::ErrorKind::NotFound => "no such folder".to_owned(),
            _ => error.to_string(),
        };
        Failure::usage(format_args!("cannot serve `{}`: {why}", path.display()))
    })?;
    let server_user = privilege::choose(args.user.as_deref(), &folder, path)?;
    let home = args.common.folder(server_user.home())?;
    let socket = listen(args)?;
    // Landlock later forbids listening.
    let metrics = args.metrics.listen()?;
    let audit = args.audit.as_deref().map(Audit::open).transpose()?;
    let mut reserved = reserved(args)?;
    // A token of root's, which another user may not read.
    let early = args.token_file.as_deref().map(Token::read);
    server_user.assume()?;

    let unusable = |error: SecretError| match (server_user.home(), server_user.shown()) {
        (HomeOwner::Of(_) | HomeOwner::Nobodys, Some(user)) => Failure::usage(format_args!(
            "{error}; the server runs as {user}, whose the folder of keys and tokens must be: --config names another one"
        )),
        _ => Failure::usage(error),
    };
    let home = Home::make(&home).map_err(unusable)?;
    let identity = Identity::kept_in(&home).map_err(unusable)?;
    let fingerprint = identity.fingerprint();
    let unusable_folder = |error: io::Error| {
        Failure::usage(format_args!(
            "cannot serve `{}`, with keys and tokens in `{}`: {error}",
            path.display(),
            home.path().display()
        ))
    };
    reserved.add_folder(&home).map_err(unusable_folder)?;
    let folder = folder.without(reserved).map_err(unusable_folder)?;
    let confined = |home: &Home| sandbox::confine(&folder, !args.read_only, home);
    let home_path = home.path().to_owned();
    let (access, used, confined) = if args.no_token {
        (Access::from(None), None, confined(&home)?)
    } else {
        let explicit_token = match (early, &args.token_file) {
            (Some(Ok(token)), _) => Some(token),
            (_, Some(path)) => Some(Token::read(path).map_err(Failure::usage)?),
            (_, None) => None,
        };
        // A folder with a list of clients, even an empty one, was left without a token on purpose.
        if explicit_token.is_none() && home.stamp(STORE_FILE).is_none() {
            Token::keep_in(&home).map_err(unusable)?;
        }
        let used = Used::open(&home).ok();
        let confined = confined(&home)?;
        let access = Access::kept_in(home, explicit_token).map_err(unusable)?;
        (access, used, confined)
    };
    if server_user.must_be_confined() && confined == Confined::NotOffered {
        return Err(Failure::usage(format_args!(
            "`{}` belongs to root, and this system offers no Landlock to confine root by; say as whom to serve it: \
             --user NAME, or --user root",
            path.display()
        )));
    }
    let start = Start {
        folder: path.clone(),
        home: home_path,
        fingerprint,
        clients: access.clients(),
        server_user,
        confined,
        metrics_url: metrics.as_ref().map(address::Listener::url),
    };
    let config = ServerConfig {
        folder,
        identity,
        access,
        read_only: args.read_only,
        scheme: args.common.scheme.clone(),
        max_clients: usize::from(args.max_clients),
        limits: Limits {
            clients_each: args.clients_per_address.map(usize::from),
            bytes: args.max_bytes.map(|size| size.as_u64()),
            keep_parts: args.keep_parts.0,
            ..Limits::default()
        },
    };
    Ok(Ready {
        config,
        socket,
        metrics,
        audit,
        used,
        start,
    })
}

/// Files of the server named by options, and its output: any of them may be in the served folder.
fn reserved(args: &Serving) -> Result<Reserved, Failure> {
    let mut reserved = Reserved::default();
    for path in [&args.audit, &args.token_file].into_iter().flatten() {
        reserved.add_path(path).map_err(|error| {
            Failure::usage(format_args!("cannot use `{}`: {error}", path.display()))
        })?;
    }
    let (stdout, stderr) = (io::stdout(), io::stderr());
    for output in [stdout.as_fd(), stderr.as_fd()] {
        let is_file = |stat: rustix::fs::Stat| FileType::from_raw_mode(stat.st_mode).is_file();
        if fstat(output).is_ok_and(is_file) {
            reserved.add_file(output).map_err(Failure::run)?;
        }
    }
    Ok(reserved)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the time of day is for whoever reads the list and the log"
)]
fn now() -> SystemTime {
    SystemTime::now()
}

impl Start {
    fn tell(
        &self,
        local: SocketAddr,
        args: &Serving,
        audit: Option<&Audit>,
        ui: &Ui,
    ) -> Result<(), Failure> {
        let token_file = match &args.token_file {
            _ if args.no_token => None,
            Some(path) => Some(path.clone()),
            None => Some(self.home.join(TOKEN_FILE)).filter(|path| path.exists()),
        };
        let user = self.server_user.shown();
        if args.json {
            return ui.json(&json!({
                "event": "listening", "address": local.to_string(), "fingerprint": self.fingerprint.to_string(),
                "token_file": token_file.map(|path| path.display().to_string()),
                "folder": self.folder.display().to_string(), "read_only": args.read_only,
                "config": self.home.display().to_string(), "clients": self.clients, "user": user,
                "landlock_abi": self.confined.json(),
                "audit": audit.map(|audit| audit.path().display().to_string()),
                "metrics": self.metrics_url,
            }));
        }
        ui.line(format_args!(
            "serving `{}`{} on UDP {local}",
            self.folder.display(),
            if args.read_only { ", read-only," } else { "" },
        ))?;
        ui.line(format_args!("fingerprint  {}", self.fingerprint))?;
        match (self.clients, &token_file) {
            (None, _) => ui.line("token        none: anybody who can reach this port is served")?,
            (Some(_), Some(path)) => ui.line(format_args!(
                "token        in `{}`; clients need a copy (--token-file, or VERUS_TOKEN)",
                path.display()
            ))?,
            (Some(_), None) => {}
        }
        if let Some(clients) = self.clients {
            let others = clients - usize::from(token_file.is_some());
            ui.line(format_args!(
                "clients      {others}{} with tokens of their own in `{}`; `verus serve token add NAME` makes one",
                if token_file.is_some() { " more" } else { "" },
                self.home.display()
            ))?;
        }
        if let Some(user) = user {
            ui.line(format_args!("runs as      {user}"))?;
        }
        ui.line(format_args!("confined     {}", self.confined))?;
        if let Some(url) = &self.metrics_url {
            ui.line(format_args!("metrics      {url}"))?;
        }
        match audit {
            Some(audit) => ui.line(format_args!("audit log    `{}`", audit.path().display())),
            None => Ok(()),
        }
    }
}

/// Measurements of what the server sends, by the text of its scheme.
fn measured(traffic: &Traffic, sender: &str) -> BySender {
    let mut all = BySender::default();
    for connection in &traffic.open {
        let snapshot = connection.view.snapshot();
        let rtt = RoundTrips {
            smoothed: snapshot.smoothed_rtt,
            least: snapshot.min_rtt,
        };
        let probe = |record: &mut dyn FnMut(&'static str, f64)| connection.view.probe(record);
        let flow = metrics::FlowMetrics::of(rtt, snapshot.window, probe);
        all.add(sender, flow.with_lost(connection.lost, connection.packets));
    }
    all.begun(sender, traffic.connections);
    let counts = metrics::Traffic {
        acknowledged_bytes: traffic.acknowledged.get(),
        sent_packets: traffic.packets,
        lost_packets: traffic.lost,
    };
    all.traffic(sender, counts);
    all
}

fn listen(args: &Serving) -> Result<std::net::UdpSocket, Failure> {
    let all = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let address = SocketAddr::new(args.bind.unwrap_or(all), args.port);
    bind(address)
        .or_else(|error| match args.bind {
            // A system without IPv6.
            None if error.kind() != io::ErrorKind::AddrInUse => {
                bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, args.port)))
            }
            _ => Err(error),
        })
        .map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::AddrInUse => "the port is in use; --port takes another".to_owned(),
                _ => error.to_string(),
            };
            Failure::usage(format_args!("cannot listen on UDP {address}: {why}"))
        })
}
