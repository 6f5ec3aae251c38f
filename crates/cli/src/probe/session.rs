//! A client's tests of one server, one after another, until a person has had enough.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use indicatif::{ProgressBar, ProgressStyle};
use verus_core::algorithm::Scheme;
use verus_core::{Duration, Time};
use verus_measure::qlog::{Qlog, Written};
use verus_net::probe::DEFAULT_PORT;
use verus_net::probe::client::{Client, ClientConfig, ClientError};
use verus_net::probe::connection::Connection;
use verus_net::probe::driver::Driver;
use verus_net::probe::results::{Record, Recorder};
use verus_net::probe::seal::Secret;
use verus_net::probe::server::overhead;
use verus_net::probe::socket::UdpSocket;
use verus_net::probe::wire::Request;

use crate::failure::Failure;
use crate::server_address::{Family, Host};
use crate::signals::Signals;
use crate::ui::Ui;

/// How long to wait for the server's first answer, and for its next.
const PATIENCE: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(60);
/// A system that says that nobody listens, or that nothing can be sent there, is believed after this long: a
/// server that is just starting is given a chance.
const REFUSED: Duration = Duration::from_secs(2);

/// A socket to the server, and a person who may have had enough.
pub(super) struct Session<'a> {
    pub(super) address: SocketAddr,
    secret: Option<Secret>,
    pub(super) driver: Driver,
    signals: Signals,
    pub(super) stopped_by: Option<i32>,
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
