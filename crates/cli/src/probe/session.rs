//! A client's tests of one server, one after another, until a person has had enough.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use indicatif::{ProgressBar, ProgressStyle};
use verus_core::{Bytes, Duration, Time};
use verus_measure::qlog::{Qlog, Written};
use verus_probe::DEFAULT_PORT;
use verus_probe::client::{Client, ClientConfig, ClientError};
use verus_probe::connection::Connection;
use verus_probe::driver::Driver;
use verus_probe::results::{Direction, Record, Recorder};
use verus_probe::seal::Secret;
use verus_probe::server::overhead;
use verus_probe::socket::UdpSocket;
use verus_probe::wire::Request;
use verus_senders::Scheme;

use crate::failure::Failure;
use crate::scaled;
use crate::server_address::{Family, Host};
use crate::signals::Signals;
use crate::ui::Ui;

/// How long to wait for the server's first answer, and for its next.
const PATIENCE: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(60);
/// An ICMP error (port closed, host unreachable) is believed after this long: a
/// server that is just starting is given a chance.
const REFUSED: Duration = Duration::from_secs(2);
/// How long the path is left idle before the load, to know its delay: ten echoes.
const IDLE: Duration = Duration::from_secs(1);

/// A socket to the server, and a person who may have had enough.
pub(super) struct Session<'a> {
    pub(super) address: SocketAddr,
    secret: Option<Secret>,
    pub(super) driver: Driver,
    signals: Signals,
    pub(super) stopped_by: Option<i32>,
    /// Whether the tests send echoes, and leave the path idle at first.
    pub(super) echoes: bool,
    /// Whether a line a second is told of them.
    pub(super) lines: bool,
    ui: &'a Ui,
}

/// What is written down of a test's packets while it runs.
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
    /// What came of it, if it began.
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
        let address = host.resolve(DEFAULT_PORT, family).map_err(Failure::run)?;
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
            echoes: false,
            lines: false,
            ui,
        })
    }

    /// Runs one test to its end, whatever that is. `watch` is called whenever something may have happened.
    pub(super) fn run(
        &mut self,
        request: &Request,
        scheme: &Scheme,
        mut recorder: Recorder,
        watched: Watched,
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
        while client.outcome().is_none() && !aborted {
            self.driver
                .turn(&mut client, Some(next_sample), Some(self.signals.as_fd()))
                .map_err(|error| failed(&error))?;
            let now = self.driver.clock().now();
            if now >= next_sample {
                next_sample = now + Recorder::INTERVAL;
                if let Some(connection) = client.connection_mut() {
                    recorder.sample(now, connection);
                    line.show_idle();
                    line.show(now, &recorder, connection);
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

/// What a person sees while a test runs: a line a second for each direction, of that second.
struct Lines<'a> {
    ui: &'a Ui,
    asking: Option<ProgressBar>,
    told: bool,
    /// Whole seconds of the load that were told.
    seconds: u64,
    /// Of each direction, what was lost and what had arrived by then.
    before: [(u64, Bytes); 2],
}

impl<'a> Lines<'a> {
    fn new(ui: &'a Ui, address: &SocketAddr, told: bool) -> Self {
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
            told,
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
            if !self.told {
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
