//! Parts shared by `serve`, `send` and `receive`: the folder of keys and known hosts, the
//! connection to a server, and the transfer of several files over one connection.

use std::collections::{BTreeMap, VecDeque};
use std::env;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytesize::ByteSize;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::Instant;
use verus_core::Time;
use verus_measure::qlog::Subject;
use verus_quinn::View;
use verus_senders::{RECOMMENDED, Scheme};
use verus_transfer::address::Host;
use verus_transfer::paths::RelativePath;
use verus_transfer::private::Home;
use verus_transfer::secrets::{Fingerprint, Token};
use verus_transfer::trust::Trust;
use verus_transfer::{Client, ClientConfig, ConnectError, Delivered, Gauge, SILENCE, Trouble};

use crate::failure::Failure;
use crate::progress::Progress;
use crate::qlog;
use crate::ui::Ui;

/// Number of files transferred at a time: small ones would otherwise wait a round trip each.
const AT_A_TIME: usize = 4;
/// How long to wait for a server's first answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to ask again for a place at a full server.
const QUEUEING: Duration = Duration::from_secs(60);
/// Number of failures that are reported one by one.
const MAX_REPORTED: usize = 10;

/// Options of `send` and `receive`.
#[derive(clap::Args)]
pub struct ClientArgs {
    /// The server's fingerprint, as `serve` prints it (default: the one seen before).
    #[arg(long, value_name = "FINGERPRINT", value_parser = fingerprint)]
    fingerprint: Option<Fingerprint>,
    /// File with the server's token (default: VERUS_TOKEN, then `token` in the --config folder).
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// File with the fingerprints of servers seen before (default: `known_hosts` in the --config folder).
    #[arg(long, value_name = "FILE")]
    known_hosts: Option<PathBuf>,
    /// Replace existing files whose contents differ.
    #[arg(short, long)]
    pub force: bool,
    /// Print a JSON object for each file.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub common: Common,
}

/// Options of all three.
#[derive(clap::Args)]
pub struct Common {
    /// The congestion controller of data sent from here, such as forward, verus, cubic or bbr: NAME[:key=value,…], as in `verus
    /// list schemes`.
    #[arg(long, default_value = RECOMMENDED, value_parser = scheme)]
    pub scheme: Scheme,
    /// Where keys, tokens and known hosts are (default: VERUS_CONFIG, then ~/.config/verus).
    #[arg(long, value_name = "DIR")]
    config: Option<PathBuf>,
}

fn scheme(text: &str) -> Result<Scheme, String> {
    crate::scheme::open(text).map_err(|error| error.to_string())
}

fn fingerprint(text: &str) -> Result<Fingerprint, String> {
    text.parse::<Fingerprint>()
        .map_err(|error| error.to_string())
}

impl Common {
    /// The folder of keys and known hosts.
    pub fn folder(&self, owner: HomeOwner<'_>) -> Result<PathBuf, Failure> {
        config_folder(self.config.as_deref(), owner)
    }
}

/// The user whose home holds keys and tokens.
#[derive(Clone, Copy, Debug)]
pub enum HomeOwner<'a> {
    /// The user that runs this process.
    Ours,
    /// The user with this home.
    Of(&'a Path),
    /// A user without a home.
    Nobodys,
}

/// The folder of keys, tokens and known hosts.
pub fn config_folder(given: Option<&Path>, owner: HomeOwner<'_>) -> Result<PathBuf, Failure> {
    let named = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let ours = || {
        named("XDG_CONFIG_HOME")
            .map(|home| PathBuf::from(home).join("verus"))
            .or_else(|| named("HOME").map(|home| PathBuf::from(home).join(".config/verus")))
    };
    given
        .map(Path::to_owned)
        .or_else(|| named("VERUS_CONFIG").map(PathBuf::from))
        .or_else(|| match owner {
            HomeOwner::Ours => ours(),
            HomeOwner::Of(home) => Some(home.join(".config/verus")),
            HomeOwner::Nobodys => None,
        })
        .ok_or_else(|| {
            Failure::usage("no home to keep keys and tokens in; name a folder: --config")
        })
}

/// Threads that wait for the disk. More threads would not make it faster, and each needs memory.
const DISK_THREADS: usize = 16;
/// How long an idle thread is kept. Idle threads are woken in turn. With the usual 10 s, a check
/// twice a second would keep twenty of them alive.
const THREAD_KEPT: Duration = Duration::from_secs(1);

/// A runtime for the network and the disk.
pub fn runtime() -> Result<Runtime, Failure> {
    Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(DISK_THREADS)
        .thread_keep_alive(THREAD_KEPT)
        .enable_all()
        .build()
        .map_err(|error| Failure::run(format_args!("cannot start threads: {error}")))
}

/// Waits for SIGINT or SIGTERM; returns its number.
pub fn stopped() -> Result<impl Future<Output = i32>, Failure> {
    let listen = |kind| {
        signal(kind).map_err(|error| Failure::run(format_args!("cannot wait for signals: {error}")))
    };
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => SignalKind::interrupt().as_raw_value(),
            _ = terminate.recv() => SignalKind::terminate().as_raw_value(),
        }
    })
}

/// Connects to `host`, lets `work` use the connection, and closes it in any case.
pub fn session<F: Future<Output = Result<(), Failure>>>(
    host: &Host,
    args: &ClientArgs,
    logs: Option<qlog::Logs>,
    ui: &Ui,
    work: impl FnOnce(Arc<Client>) -> F,
) -> Result<(), Failure> {
    runtime()?.block_on(async {
        let stopped = stopped()?;
        tokio::pin!(stopped);
        let interrupted = |signal| {
            ui.note("stopped; the same command again goes on where this one stopped");
            Failure::signal(signal)
        };
        let client = tokio::select! {
            client = connect(host, args, ui) => Arc::new(client?),
            signal = &mut stopped => return Err(interrupted(signal)),
        };
        let logged = logs
            .map(|logs| log(logs, &client, host, args))
            .transpose()?;
        let (ended, done) = tokio::select! {
            ended = work(Arc::clone(&client)) => (ended, true),
            signal = &mut stopped => (Err(interrupted(signal)), false),
        };
        client.close(done).await;
        let published = logged.map_or(Ok(()), |(logs, view)| logs.publish(view.end_log(), ui));
        ended.and(published)
    })
}

/// Begins the log of data sent over this connection.
fn log(
    mut logs: qlog::Logs,
    client: &Client,
    host: &Host,
    args: &ClientArgs,
) -> Result<(qlog::Logs, View), Failure> {
    let subject = Subject {
        scheme: args.common.scheme.text().to_owned(),
        transport: "quic",
        channel: Some(host.name.clone()),
        ..Subject::default()
    };
    let view = client
        .view()
        .ok_or_else(|| Failure::run("--qlog: another controller is at work"))?;
    view.log_to(logs.log(&subject, Time::ZERO)?);
    Ok((logs, view))
}

/// Connects to `host`, and reports a connection for the first time.
async fn connect(host: &Host, args: &ClientArgs, ui: &Ui) -> Result<Client, Failure> {
    let home = args.common.folder(HomeOwner::Ours)?;
    let token = token(args, &home)?;
    let trust = match args.fingerprint {
        Some(fingerprint) => Trust::Pinned(fingerprint),
        None => Trust::KnownHosts(
            args.known_hosts
                .clone()
                .unwrap_or_else(|| home.join("known_hosts")),
        ),
    };
    let config = ClientConfig {
        addresses: addresses(host).await?,
        host: host.clone(),
        trust,
        token,
        scheme: args.common.scheme.clone(),
        patience: PATIENCE,
        queueing: QUEUEING,
        silence: SILENCE,
    };
    let client = Client::connect(&config).await.map_err(|error| {
        let message = format!("{host}: {error}");
        match error {
            ConnectError::KnownHosts(_) => Failure::usage(error),
            _ => Failure::run(message),
        }
    })?;
    if let Some(fingerprint) = client.new_fingerprint() {
        ui.note(format_args!(
            "{host}: met for the first time; trusted from now on, with fingerprint {fingerprint}"
        ));
    }
    Ok(client)
}

fn token(args: &ClientArgs, home: &Path) -> Result<Option<Token>, Failure> {
    if let Some(path) = &args.token_file {
        return Token::read(path).map(Some).map_err(Failure::usage);
    }
    if let Some(text) = env::var_os("VERUS_TOKEN") {
        let text = text.to_str().map(Token::new);
        return match text {
            Some(Ok(token)) => Ok(Some(token)),
            Some(Err(error)) => Err(Failure::usage(format_args!("VERUS_TOKEN: {error}"))),
            None => Err(Failure::usage("VERUS_TOKEN: it is not text")),
        };
    }
    match Home::open(home).map_err(Failure::usage)? {
        Some(home) => Token::in_home(&home).map_err(Failure::usage),
        None => Ok(None),
    }
}

async fn addresses(host: &Host) -> Result<Vec<SocketAddr>, Failure> {
    let host = host.clone();
    tokio::task::spawn_blocking(move || host.resolve())
        .await
        .map_err(Failure::run)?
        .map_err(Failure::run)
}

/// A file to transfer.
pub struct Job {
    /// Its name in the output and in messages.
    pub shown: String,
    /// The path below the other end's folder, or ours, under which it arrives.
    pub target: RelativePath,
    /// Its size, in bytes.
    pub size: u64,
    /// Transfers it.
    pub work: Box<dyn FnOnce(Arc<Client>, Arc<Gauge>) -> Working + Send>,
}

/// A transfer under way.
pub type Working = std::pin::Pin<Box<dyn Future<Output = Result<Delivered, Trouble>> + Send>>;

/// Refuses two files that would arrive under one name: which of them stayed would be chance.
///
/// # Errors
/// Names the first two.
pub fn check_targets(jobs: &[Job]) -> Result<(), Failure> {
    let mut arrivals = BTreeMap::new();
    for job in jobs {
        if let Some(other) = arrivals.insert(&job.target, &job.shown) {
            let (shown, target) = (&job.shown, &job.target);
            return Err(Failure::usage(format_args!(
                "`{other}` and `{shown}` would both arrive as `{target}`: transfer one at a time"
            )));
        }
    }
    Ok(())
}

/// Transfers several files, and reports each. The entries of a folder in `unavailable` are reported
/// like failed transfers, and do not prevent the others.
pub async fn run(
    jobs: Vec<Job>,
    unavailable: Vec<String>,
    client: &Arc<Client>,
    host: &Host,
    args: &ClientArgs,
    direction: &str,
    ui: &Ui,
) -> Result<(), Failure> {
    let count = jobs.len() + unavailable.len();
    let began = Instant::now();
    let mut moved = 0;
    let mut progress = Progress::new(ui, jobs.iter().map(|job| job.size).sum(), jobs.len());
    let mut waiting = VecDeque::from(jobs);
    let mut failed = unavailable.len();
    let mut failures = unavailable;
    failures.truncate(MAX_REPORTED);
    let mut lost = None;
    let mut running = JoinSet::new();
    let mut redraw = tokio::time::interval(Progress::INTERVAL);
    while !(waiting.is_empty() && running.is_empty()) {
        while running.len() < AT_A_TIME
            && let Some(job) = waiting.pop_front()
        {
            let gauge = Arc::new(Gauge::default());
            let id = progress.begin(&job.shown, job.size, Arc::clone(&gauge));
            let work = (job.work)(Arc::clone(client), gauge);
            running.spawn(async move {
                let began = Instant::now();
                let result = work.await;
                (id, job.shown, job.size, result, began.elapsed())
            });
        }
        tokio::select! {
            ended = running.join_next() => {
                let Some(Ok((id, shown, size, result, took))) = ended else {
                    return Err(Failure::run("a transfer was cut short"));
                };
                progress.end(id);
                let report = FileReport { shown: &shown, size, took, direction, host, client };
                match result {
                    Ok(delivered) => {
                        moved += delivered.moved;
                        progress.aside(|| report.success(&delivered, args, ui))?;
                    }
                    Err(trouble) => {
                        if args.json {
                            progress.aside(|| ui.json(&report.json(None, Some(&trouble.to_string()), args)))?;
                        }
                        failed += 1;
                        if trouble.is_lost() {
                            lost.get_or_insert(trouble);
                            waiting.clear();
                        } else if failures.len() < MAX_REPORTED {
                            failures.push(format!("{shown}: {trouble}"));
                        }
                    }
                }
            }
            _ = redraw.tick() => progress.draw(client.rtt()),
        }
    }
    progress.clear();
    if let Some(trouble) = lost {
        return Err(Failure::run(format_args!(
            "{host}: {trouble}; the same command again goes on where this one stopped"
        )));
    }
    // After a few files, the lines above make a total superfluous.
    if count > MAX_REPORTED && !args.json {
        ui.note(format_args!(
            "{} of {count} files are across, {} moved in {:.1} s",
            count - failed,
            ByteSize::b(moved).display().si(),
            began.elapsed().as_secs_f64()
        ));
    }
    match (&failures[..], failed) {
        ([], 0) => Ok(()),
        ([only], 1) => Err(Failure::run(only)),
        (some, all) => {
            let mut lines = some.to_vec();
            if all > lines.len() {
                lines.push(format!("and {} more", all - lines.len()));
            }
            let message = format_args!("{all} of {count} files did not get across:");
            Err(Failure::run(message).listing(lines))
        }
    }
}

/// The report of one file's transfer.
struct FileReport<'a> {
    shown: &'a str,
    size: u64,
    took: Duration,
    direction: &'a str,
    host: &'a Host,
    client: &'a Client,
}

impl FileReport<'_> {
    fn success(&self, delivered: &Delivered, args: &ClientArgs, ui: &Ui) -> Result<(), Failure> {
        if args.json {
            return ui.json(&self.json(Some(delivered), None, args));
        }
        if ui.is_quiet() {
            return Ok(());
        }
        let size = ByteSize::b(delivered.size).display().si();
        if delivered.same {
            return ui.line(format_args!("{}  {size}, was there already", self.shown));
        }
        let seconds = self.took.as_secs_f64();
        let resumed = match delivered.kept {
            0 => String::new(),
            kept => format!(
                ", {} of it from an earlier attempt",
                ByteSize::b(kept).display().si()
            ),
        };
        ui.line(format_args!(
            "{}  {size} in {seconds:.1} s, {:.1} Mbit/s{resumed}",
            self.shown,
            delivered.moved as f64 * 8e-6 / seconds.max(1e-3)
        ))
    }

    fn json(
        &self,
        delivered: Option<&Delivered>,
        error: Option<&str>,
        args: &ClientArgs,
    ) -> serde_json::Value {
        let outcome = match delivered {
            Some(Delivered { same: true, .. }) => "same",
            Some(_) => "complete",
            None => "failed",
        };
        let seconds = self.took.as_secs_f64();
        json!({
            "schema": 1,
            "direction": self.direction,
            "host": self.host.to_string(),
            "file": self.shown,
            "outcome": outcome,
            "error": error,
            "bytes": delivered.map_or(self.size, |delivered| delivered.size),
            "moved_bytes": delivered.map(|delivered| delivered.moved),
            "kept_bytes": delivered.map(|delivered| delivered.kept),
            "duration_s": seconds,
            "goodput_mbps": delivered.map(|delivered| delivered.moved as f64 * 8e-6 / seconds.max(1e-3)),
            "rtt_ms": self.client.rtt().as_secs_f64() * 1e3,
            // The data of a file that is fetched leave by the server's scheme.
            "scheme": (self.direction == "send").then(|| args.common.scheme.text()),
        })
    }
}
