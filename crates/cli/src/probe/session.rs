//! A client's tests of one server, one after another, until the user ends them.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use indicatif::{ProgressBar, ProgressStyle};
use verus_core::{Bytes, Duration, Time};
use verus_measure::qlog::{Qlog, Written};
use verus_net::host::{Family, Host};
use verus_probe::DEFAULT_PORT;
use verus_probe::client::{Client, ClientConfig, ClientError};
use verus_probe::connection::Connection;
use verus_probe::driver::Driver;
use verus_probe::reach::{Unreached, reach};
use verus_probe::results::{Direction, Record, Recorder};
use verus_probe::seal::Secret;
use verus_probe::server::overhead;
use verus_probe::socket::UdpSocket;
use verus_probe::wire::Request;
use verus_senders::Scheme;

use crate::failure::Failure;
use crate::scaled;
use crate::signals::Signals;
use crate::ui::Ui;

use super::shortfall;

/// How long to wait for each answer of the server. Also for data, in a test that ends only by its
/// arrival.
const PATIENCE: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(60);
/// An ICMP error (port closed, host unreachable) is believed after this long: a
/// server that is just starting is given a chance.
const REFUSED: Duration = Duration::from_secs(2);
/// How long the path is left idle before the load, to know its delay: ten echoes.
const IDLE: Duration = Duration::from_secs(1);

/// A socket to the server, and the signals of the user.
pub(super) struct Session<'a> {
    pub(super) address: SocketAddr,
    secret: Option<Secret>,
    pub(super) driver: Driver,
    signals: Signals,
    pub(super) stopped_by: Option<i32>,
    /// Whether the tests send echoes, and leave the path idle at first.
    pub(super) echoes: bool,
    /// Whether to print a line about them each second.
    pub(super) lines: bool,
    ui: &'a Ui,
}

/// The record of a test's packets while it runs.
#[derive(Default)]
pub(super) struct Watched {
    /// Whether to keep an event for each.
    pub(super) events: bool,
    /// Logs of the flows that are sent from here.
    pub(super) flows: Vec<Qlog>,
}

/// A test that is over.
pub(super) struct Test {
    client: Client<Scheme>,
    record: Option<Record>,
}

impl Test {
    /// The results, if it began.
    pub(super) fn result(&self) -> Option<(&Connection, &Record)> {
        self.client.connection().zip(self.record.as_ref())
    }

    /// Ends the logs of its flows, if it began.
    pub(super) fn end_logs(&mut self) -> Option<io::Result<Vec<Written>>> {
        Some(self.client.connection_mut()?.end_logs())
    }

    pub(super) fn outcome(&self) -> Result<(), ClientError> {
        self.client.outcome().unwrap_or(Ok(()))
    }
}

impl<'a> Session<'a> {
    pub(super) fn open(
        host: &Host,
        family: Option<Family>,
        secret: Option<Secret>,
        ui: &'a Ui,
    ) -> Result<Self, Failure> {
        let addresses = host.resolve(DEFAULT_PORT, family).map_err(Failure::run)?;
        let mut signals =
            Signals::new().map_err(|error| Failure::run(format_args!("{}: {error}", host.name)))?;
        let address = match addresses[..] {
            [only] => only,
            _ => fastest(&addresses, secret.as_ref(), &mut signals)?,
        };
        let failed = |error: io::Error| Failure::run(format_args!("{address}: {error}"));
        let socket = UdpSocket::connect(address).map_err(failed)?;
        let driver = Driver::new(socket).map_err(failed)?;
        Ok(Session {
            address,
            secret,
            driver,
            signals,
            stopped_by: None,
            echoes: false,
            lines: false,
            ui,
        })
    }

    /// Runs one test until it ends. `watch` is called whenever there may be events.
    pub(super) fn run(
        &mut self,
        request: &Request,
        scheme: &Scheme,
        mut recorder: Recorder,
        watched: Watched,
        mut watch: impl FnMut(&mut Connection) -> Result<(), Failure>,
    ) -> Result<Test, Failure> {
        let address = self.address;
        let failed = |error: &dyn Display| Failure::run(format_args!("{address}: {error}"));
        let config = ClientConfig {
            request: request.clone(),
            secret: self.secret.clone(),
            patience: PATIENCE,
            silence: SILENCE,
            log: watched.events,
            overhead: overhead(address),
        };
        let began = self.driver.clock().now();
        let mut client = Client::new(config, scheme.clone(), super::entropy()?, began);
        client.log_to(watched.flows);
        if self.echoes {
            client = client.with_echoes(IDLE);
        }
        let mut line = Lines::new(self.ui, &address, self.lines);
        let mut next_sample = began;
        let mut aborted = false;
        let mut stall = Stall::new(began);
        let mut silences = Silences::new(began);
        let mut stalled = false;
        while client.outcome().is_none() && !aborted {
            self.driver
                .turn(&mut client, Some(next_sample), Some(self.signals.as_fd()))
                .map_err(|error| failed(&error))?;
            let now = self.driver.clock().now();
            silences.look(now, client.connection(), self.ui);
            if now >= next_sample {
                next_sample = now + Recorder::INTERVAL;
                if let Some(connection) = client.connection_mut() {
                    recorder.sample(now, connection);
                    line.show_idle();
                    line.show(now, &recorder, connection);
                    stalled |=
                        request.duration_nanos == 0 && stall.is_over(now, &recorder, connection);
                }
                if stalled {
                    client.stop(now);
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
                return Err(failed(&in_words(&trouble)));
            }
        }
        line.clear();
        let now = self.driver.clock().now();
        if stalled || self.stopped_by.is_some() || !matches!(client.outcome(), Some(Ok(()))) {
            recorder.cut();
        }
        let record = client
            .connection()
            .map(|connection| recorder.finish(now, connection));
        Ok(Test { client, record })
    }

    /// The final message or error of `test`, the session's last test, compared with its `request`.
    pub(super) fn end(&self, test: &Test, request: &Request) -> Result<(), Failure> {
        let connection = test.client.connection();
        let changes = connection.map_or(0, Connection::address_changes);
        let changed = shortfall::address_changes(changes);
        let clause = changed.as_ref().map(|text| format!("; {text}"));
        let clause = clause.unwrap_or_default();
        let failed =
            |error: &dyn Display| Failure::run(format_args!("{}: {error}{clause}", self.address));
        test.outcome().map_err(|error| failed(&error))?;
        if let Some(signal) = self.stopped_by {
            self.ui.note("stopped; results are those so far");
            return Err(Failure::signal(signal));
        }
        let missing = test
            .result()
            .and_then(|(_, record)| shortfall::of(record, request, overhead(self.address)));
        if let Some(missing) = missing {
            return Err(failed(&missing));
        }
        if let Some((connection, record)) = test.result()
            && shortfall::is_lost_to(changes, connection.measured().as_secs_f64(), record)
        {
            return Err(failed(&"these results are not the path's"));
        }
        if let Some(changed) = changed {
            self.ui.note(changed);
        }
        Ok(())
    }
}

/// The address whose server answers first, of a host with several.
fn fastest(
    addresses: &[SocketAddr],
    secret: Option<&Secret>,
    signals: &mut Signals,
) -> Result<SocketAddr, Failure> {
    let config = ClientConfig {
        secret: secret.cloned(),
        patience: PATIENCE,
        ..ClientConfig::new(Request::default())
    };
    let answered = reach(
        addresses,
        &config,
        super::entropy()?,
        REFUSED,
        signals.as_fd(),
    );
    answered.map_err(|error| {
        let names: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        let names = names.join(", ");
        match error {
            Unreached::Stopped => signals
                .take()
                .map_or_else(|| Failure::run(&error), Failure::signal),
            Unreached::Failed(error) => Failure::run(format_args!("{names}: {}", in_words(&error))),
            Unreached::NoAnswer(_) => Failure::run(format_args!("{names}: {error}")),
        }
    })
}

/// Times in which nothing was sent here, or nothing arrived. They are reported, so that nobody
/// takes their effect for the path's.
struct Silences {
    /// When this program last ran.
    ran: Time,
    /// How long it did not run, since the server was last heard.
    paused: Duration,
    /// How much had been measured by the last time the server was heard.
    measured: Duration,
}

impl Silences {
    /// The driver wakes every 100 ms.
    const PAUSED: Duration = Duration::from_secs(1);
    /// A server reports its progress every 100 ms, and every second if nothing arrives.
    const SILENCE: Duration = Duration::from_secs(3);

    fn new(now: Time) -> Self {
        Silences {
            ran: now,
            paused: Duration::ZERO,
            measured: Duration::ZERO,
        }
    }

    /// Reports pauses and silences that have ended by `now`.
    fn look(&mut self, now: Time, connection: Option<&Connection>, ui: &Ui) {
        let paused = now.since(std::mem::replace(&mut self.ran, now));
        let Some(connection) = connection else {
            return;
        };
        if paused >= Self::PAUSED {
            self.paused += paused;
            ui.note(format_args!(
                "this machine did not run this program for {:.1} s: it was stopped, asleep or busy, and that gap in the \
                 results is not the path's",
                paused.as_secs_f64()
            ));
        }
        let measured = connection.measured();
        if measured == self.measured {
            return;
        }
        let silence = measured.saturating_sub(self.measured + std::mem::take(&mut self.paused));
        if silence >= Self::SILENCE && self.measured > Duration::ZERO {
            ui.note(format_args!(
                "nothing came from the server for {:.1} s: the path was cut, or the server was stopped",
                silence.as_secs_f64()
            ));
        }
        self.measured = measured;
    }
}

/// The system's error for a datagram, in words.
fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "nobody listens there (connection refused)".to_owned(),
        _ => error.to_string(),
    }
}

/// Time of the last arrival of data, in a test that ends only by arrivals.
struct Stall {
    since: Time,
    delivered: Bytes,
}

impl Stall {
    fn new(now: Time) -> Self {
        Stall {
            since: now,
            delivered: Bytes::ZERO,
        }
    }

    /// Whether to give up. A direction in which nothing ever arrived is given up earlier.
    fn is_over(&mut self, now: Time, recorder: &Recorder, connection: &Connection) -> bool {
        let delivered = || {
            [Direction::Up, Direction::Down]
                .into_iter()
                .filter_map(|direction| recorder.progress(now, connection, direction))
                .map(|progress| progress.delivered)
        };
        let total = delivered().sum();
        if total != self.delivered {
            self.delivered = total;
            self.since = now;
        }
        let never = delivered().any(|delivered| delivered == Bytes::ZERO);
        (never && now.since(connection.started()) >= PATIENCE)
            || now.since(self.since.max(connection.started())) >= SILENCE
    }
}

/// The lines printed while a test runs: one a second for each direction, about that second.
struct Lines<'a> {
    ui: &'a Ui,
    asking: Option<ProgressBar>,
    is_shown: bool,
    /// Whole seconds of the load that were shown.
    seconds: u64,
    /// For each direction, the lost packets and delivered bytes by then.
    before: [(u64, Bytes); 2],
}

impl<'a> Lines<'a> {
    fn new(ui: &'a Ui, address: &SocketAddr, is_shown: bool) -> Self {
        let asking = ui.progress().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            bar.set_message(format!("asking {address}"));
            bar
        });
        Lines {
            ui,
            asking,
            is_shown,
            seconds: 0,
            before: [(0, Bytes::ZERO); 2],
        }
    }

    /// While the path is still idle.
    fn show_idle(&self) {
        if let Some(bar) = &self.asking {
            bar.set_message("measuring the idle path");
            bar.tick();
        }
    }

    fn show(&mut self, now: Time, recorder: &Recorder, connection: &Connection) {
        let elapsed = now.since(connection.started()).as_nanos() / 1_000_000_000;
        if elapsed <= self.seconds {
            return;
        }
        self.clear();
        let from = std::mem::replace(&mut self.seconds, elapsed);
        for (direction, before) in [Direction::Up, Direction::Down]
            .iter()
            .zip(&mut self.before)
        {
            let Some(progress) = recorder.progress(now, connection, *direction) else {
                continue;
            };
            let (lost, delivered) = std::mem::replace(before, (progress.lost, progress.delivered));
            if !self.is_shown {
                continue;
            }
            self.ui.note(format_args!(
                "{:>9}  {:<4} {:>11}  {:>8}  RTT {:>7.2} ms  window {:>5.0} packets  lost {}",
                format!("{from}–{elapsed} s"),
                direction.name(),
                scaled::rate(progress.throughput_mbps),
                scaled::size(progress.delivered.saturating_sub(delivered).get()),
                progress.rtt_ms,
                progress.window_packets,
                progress.lost.saturating_sub(lost),
            ));
        }
    }

    fn clear(&self) {
        if let Some(bar) = &self.asking {
            bar.finish_and_clear();
        }
    }
}
