//! A test's results: rows, time series and delay profiles under the names that the lab uses.
//!
//! The metrics are [`verus_measure`]'s ([`PathTotals`]). Values that the ends of a path cannot
//! measure are null: capacity and utilization, and the signal delay.

use serde::Serialize;
use serde_json::{Map, Value};
use verus_core::{Bytes, Duration, Rate, Time};
use verus_measure::{PathFlow, PathMeter, PathMetrics, PathTotals};
use verus_senders::Scheme;

use super::connection::Connection;
use super::echo::{Echo, Echoes};
use super::flow::BIN;
use super::wire::{FlowStatus, Request};

/// Version of the formats here; the lab refuses another.
pub const SCHEMA: u32 = 1;

/// How many bins of a time series are a second.
const BINS_A_SECOND: usize = (1_000_000_000 / BIN.as_nanos()) as usize;
/// Snapshots of delay profiles are this far apart.
const PROFILE_EVERY: Duration = Duration::from_secs(1);

/// Which way the data of a row went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

impl Direction {
    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Up => "up",
            Direction::Down => "down",
        }
    }
}

/// The metrics of one flow, named and meant as those of `verus compare`.
#[derive(Clone, Debug, Serialize)]
pub struct FlowRow {
    /// Index of the flow.
    pub flow: usize,
    /// Its scheme.
    pub scheme: String,
    /// Its metrics.
    #[serde(flatten)]
    pub metrics: PathMetrics,
    /// Packets sent.
    pub sent: u64,
    /// Of these, lost.
    pub lost: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Bytes of data that arrived, copies not counted.
    pub delivered_bytes: u64,
}

/// The round trips of a test's echoes: of the idle path, and under the load of all its flows, both directions together.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Responsiveness {
    /// Median round trip before the load, ms; this and the following values are null where they
    /// were not measured.
    pub idle_rtt_p50_ms: Option<f64>,
    /// Its 95th percentile, ms.
    pub idle_rtt_p95_ms: Option<f64>,
    /// Median round trip under the load, ms.
    pub loaded_rtt_p50_ms: Option<f64>,
    /// Its 95th percentile, ms.
    pub loaded_rtt_p95_ms: Option<f64>,
    /// Its 99th percentile, ms.
    pub loaded_rtt_p99_ms: Option<f64>,
    /// Round trips a minute under the load ([`verus_measure::RoundTrips::rpm`]): ours, of echoes within the test's UDP flow.
    /// Null, as all that was measured under load, where a direction's data did not arrive.
    pub rpm: Option<f64>,
}

impl Responsiveness {
    /// The same of the idle path alone.
    fn without_load(self) -> Self {
        Responsiveness {
            idle_rtt_p50_ms: self.idle_rtt_p50_ms,
            idle_rtt_p95_ms: self.idle_rtt_p95_ms,
            ..Responsiveness::default()
        }
    }

    fn of(echoes: &Echoes) -> Self {
        let (idle, loaded) = (echoes.idle(), echoes.loaded());
        Responsiveness {
            idle_rtt_p50_ms: idle.quantile_ms(0.5),
            idle_rtt_p95_ms: idle.quantile_ms(0.95),
            loaded_rtt_p50_ms: loaded.quantile_ms(0.5),
            loaded_rtt_p95_ms: loaded.quantile_ms(0.95),
            loaded_rtt_p99_ms: loaded.quantile_ms(0.99),
            rpm: loaded.rpm(),
        }
    }
}

/// The metrics of one direction, all flows together.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Version of the format.
    pub schema: u32,
    /// Version of the program.
    pub version: &'static str,
    /// Always `real`: the clock was.
    pub engine: &'static str,
    /// Always `udp`.
    pub transport: &'static str,
    /// The path: the server's name, and which way the data went.
    pub trace: String,
    /// The bare name of the scheme.
    pub scheme: String,
    /// Its parameters that were set.
    pub params: Value,
    /// Always `path`: its queues are unknown.
    pub queue: &'static str,
    /// Always `path`: acknowledgements take the way back.
    pub ack: &'static str,
    /// How many flows.
    pub flows: usize,
    /// Size of a packet (IP), bytes.
    pub packet_bytes: u16,
    /// The seed.
    pub seed: u64,
    /// How long the test was, s: as asked for, or until the last arrival; of one that was cut, until then.
    pub duration_s: f64,
    /// Whether it ended early: the server died, ended it or fell silent, or somebody stopped it.
    /// Rates are over the time until then.
    pub cut: bool,
    /// The most that the server grants a test in each direction, Mbit/s, if it limits that: a result near it says
    /// nothing of the path.
    pub server_limit_mbps: Option<f64>,
    /// One-way propagation delay: unknown, null.
    pub delay_ms: Option<f64>,
    /// Unknown, null.
    pub capacity_mbps: Option<f64>,
    /// Unknown, null.
    pub utilization: Option<f64>,
    /// Unknown, null.
    pub signal_delay_p95_ms: Option<f64>,
    /// Cannot be told from losses at the bottleneck: null.
    pub path_loss_rate: Option<f64>,
    /// How long a round trip took, idle and loaded.
    #[serde(flatten)]
    pub responsiveness: Responsiveness,
    /// The metrics of all flows together.
    #[serde(flatten)]
    pub totals: PathTotals,
    /// Each flow.
    pub per_flow: Vec<FlowRow>,
}

/// One bin of one flow.
#[derive(Clone, Debug, Serialize)]
pub struct SeriesRow {
    /// Index of the direction's row.
    pub run: usize,
    /// Index of the flow.
    pub flow: usize,
    /// Beginning of the bin, s since the test began.
    pub time_s: f64,
    /// Unknown, null.
    pub capacity_mbps: Option<f64>,
    /// Bytes that arrived in the bin, Mbit/s.
    pub throughput_mbps: f64,
    /// Mean one-way delay above the least of the run, ms.
    pub qdelay_ms: Option<f64>,
    /// Mean round-trip time, ms; of downloads, the sender's last.
    pub rtt_ms: Option<f64>,
    /// The window at the end of the bin, bytes.
    pub window_bytes: Option<f64>,
    /// Packets declared lost in the bin.
    pub lost: u64,
}

/// A point of a delay profile.
#[derive(Clone, Debug, Serialize)]
pub struct ProfileRow {
    /// Index of the direction's row.
    pub run: usize,
    /// Index of the flow.
    pub flow: usize,
    /// When, s since the test began.
    pub time_s: f64,
    /// `point` or `curve`.
    pub kind: &'static str,
    /// Window, packets.
    pub window_packets: f64,
    /// Delay, ms.
    pub delay_ms: f64,
}

/// Everything that a test left.
#[derive(Clone, Debug)]
pub struct Record {
    /// A row for each direction that carried data.
    pub rows: Vec<(Direction, Row)>,
    /// Time series.
    pub series: Vec<SeriesRow>,
    /// Delay profiles; those of downloads are the server's and stay there.
    pub profiles: Vec<ProfileRow>,
    /// Round trips of echoes over time: when each left, s since the load began (before it, below zero), and how long it
    /// took, ms. Of a long test every second, fourth, … is left.
    pub echoes: Vec<(f64, f64)>,
}

/// Echoes over time; half are dropped whenever there are too many.
#[derive(Debug)]
struct EchoSeries {
    points: Vec<(f64, f64)>,
    /// One echo in this many is kept.
    stride: u64,
    seen: u64,
}

impl EchoSeries {
    /// A quarter of an hour of ten a second.
    const MOST: usize = 10_000;

    fn add(&mut self, echo: Echo, load_from: Time) {
        let at = self.seen;
        self.seen += 1;
        if !at.is_multiple_of(self.stride) {
            return;
        }
        let (sent, from) = (echo.sent.as_nanos() as f64, load_from.as_nanos() as f64);
        self.points
            .push(((sent - from) / 1e9, echo.rtt.as_millis_f64()));
        if self.points.len() >= Self::MOST {
            let mut odd = false;
            self.points.retain(|_| {
                odd = !odd;
                odd
            });
            self.stride *= 2;
        }
    }
}

/// One sample's values of a flow that its meter does not keep.
#[derive(Clone, Copy, Debug)]
struct Sample {
    window_bytes: u64,
    rtt_ms: Option<f64>,
    lost: u64,
}

/// How a test is going, for a line that a person watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Bytes that arrived in the last second, Mbit/s.
    pub throughput_mbps: f64,
    /// Last round-trip time, ms.
    pub rtt_ms: f64,
    /// Window, packets, all flows together.
    pub window_packets: f64,
    /// Packets lost so far.
    pub lost: u64,
    /// Bytes that arrived so far.
    pub delivered: Bytes,
}

/// Watches a client's connection and returns the results at the end.
#[derive(Debug)]
pub struct Recorder {
    path: String,
    scheme: Scheme,
    /// The downloads' scheme, where it differs.
    downward: Option<Scheme>,
    request: Request,
    up: Vec<Vec<Sample>>,
    down: Vec<Vec<Sample>>,
    profiles: Vec<ProfileRow>,
    echoes: EchoSeries,
    next_profile: Time,
    /// The time that rates are over; `None` for until the last arrival.
    interval: Option<Duration>,
    cut: bool,
    limit_mbps: Option<f64>,
}

impl Recorder {
    /// A recorder for a test of `request` over the path that a person calls `path`.
    pub fn new(path: &str, scheme: Scheme, request: Request) -> Self {
        Recorder {
            path: path.to_owned(),
            scheme,
            downward: None,
            up: vec![Vec::new(); usize::from(request.upload_flows)],
            down: vec![Vec::new(); usize::from(request.download_flows)],
            request,
            profiles: Vec::new(),
            echoes: EchoSeries {
                points: Vec::new(),
                stride: 1,
                seen: 0,
            },
            next_profile: Time::ZERO,
            interval: None,
            cut: false,
            limit_mbps: None,
        }
    }

    /// Downloads are sent under another scheme.
    pub fn with_downward(mut self, scheme: Scheme) -> Self {
        self.downward = Some(scheme);
        self
    }

    /// The scheme of the flows in `direction`.
    pub fn scheme(&self, direction: Direction) -> &Scheme {
        match (direction, &self.downward) {
            (Direction::Down, Some(scheme)) => scheme,
            _ => &self.scheme,
        }
    }

    /// How often to call [`sample`](Self::sample).
    pub const INTERVAL: Duration = BIN;

    /// Looks at the connection at `now`.
    pub fn sample(&mut self, now: Time, connection: &mut Connection) {
        let load_from = connection.started();
        if let Some(echoes) = connection.echoes_mut() {
            for echo in echoes.drain() {
                self.echoes.add(echo, load_from);
            }
        }
        if now < load_from {
            return;
        }
        let elapsed = now.since(connection.started());
        let bin = (elapsed.as_nanos() / BIN.as_nanos()) as usize;
        for (samples, flow) in self.up.iter_mut().zip(connection.outgoing()) {
            let status = flow.status();
            fill(
                samples,
                bin,
                Sample {
                    window_bytes: status.window,
                    rtt_ms: None,
                    lost: status.lost,
                },
            );
        }
        for (samples, (_, status)) in self.down.iter_mut().zip(connection.incoming()) {
            if status.sent > 0 {
                let rtt = f64::from(status.rtt_micros) / 1e3;
                fill(
                    samples,
                    bin,
                    Sample {
                        window_bytes: status.window,
                        rtt_ms: (status.rtt_micros > 0).then_some(rtt),
                        lost: status.lost,
                    },
                );
            }
        }
        if now >= self.next_profile {
            self.next_profile = now + PROFILE_EVERY;
            self.snapshot(elapsed, connection);
        }
    }

    fn snapshot(&mut self, elapsed: Duration, connection: &Connection) {
        for (index, flow) in connection.outgoing().iter().enumerate() {
            let Some(profile) = flow.sender().controller().profile() else {
                continue;
            };
            for (kind, points) in [("point", profile.points), ("curve", profile.curve)] {
                self.profiles
                    .extend(points.into_iter().map(|(window, delay)| ProfileRow {
                        run: 0,
                        flow: index,
                        time_s: elapsed.as_secs_f64(),
                        kind,
                        window_packets: window,
                        delay_ms: delay,
                    }));
            }
        }
    }

    /// How the flows of `direction` are going: the last second, all of them together; `None` where there are none.
    pub fn progress(
        &self,
        now: Time,
        connection: &Connection,
        direction: Direction,
    ) -> Option<Progress> {
        let mut progress: Option<Progress> = None;
        let mut note = |meter: &PathMeter, status: &FlowStatus| {
            let progress = progress.get_or_insert_default();
            // The bin under way is left out: it is not full.
            progress.throughput_mbps += meter.recent_mbps(now, BINS_A_SECOND);
            progress.rtt_ms = progress.rtt_ms.max(f64::from(status.rtt_micros) / 1e3);
            progress.window_packets += status.window as f64 / f64::from(self.request.packet_bytes);
            // A peer reports this of the flows that it sends.
            progress.lost = progress.lost.saturating_add(status.lost);
            progress.delivered += meter.delivered();
        };
        match direction {
            Direction::Up => {
                for flow in connection.outgoing() {
                    note(flow.meter(), &flow.status());
                }
            }
            Direction::Down => {
                for (flow, status) in connection.incoming() {
                    note(flow.meter(), status);
                }
            }
        }
        progress
    }

    /// The test ends early.
    pub fn cut(&mut self) {
        self.cut = true;
    }

    /// The results by `now`. Rates are over the requested time, or over the part of it that has
    /// passed. In a test of a given size they are over the time until the last arrival; in one that
    /// was cut, until the server's last packet.
    pub fn finish(mut self, now: Time, connection: &Connection) -> Record {
        let responsiveness = connection.echoes().map(Responsiveness::of);
        self.limit_mbps = connection.limit().map(Rate::as_mbps);
        if self.request.duration_nanos > 0 && self.request.bytes == 0 {
            let passed = if self.cut {
                connection.measured()
            } else {
                now.since(connection.started())
            };
            self.interval = Some(passed.min(Duration::from_nanos(self.request.duration_nanos)));
        }
        let mut record = Record {
            rows: Vec::new(),
            series: Vec::new(),
            profiles: self.profiles.clone(),
            echoes: std::mem::take(&mut self.echoes.points),
        };
        let up: Vec<FinishedFlow<'_>> = connection
            .outgoing()
            .iter()
            .zip(&self.up)
            .map(|(flow, samples)| {
                let meter = flow.meter();
                let rtt = (meter.rtt_mean_ms(), meter.rtt_quantile_ms(0.95));
                FinishedFlow::new(meter, flow.distinct(), &flow.status(), rtt, samples)
            })
            .collect();
        let down: Vec<FinishedFlow<'_>> = connection
            .incoming()
            .zip(&self.down)
            .map(|((flow, status), samples)| {
                let millis = |micros: u32| (micros > 0).then(|| f64::from(micros) / 1e3);
                let rtt = (
                    millis(status.rtt_mean_micros),
                    millis(status.rtt_p95_micros),
                );
                FinishedFlow::new(flow.meter(), flow.distinct(), status, rtt, samples)
            })
            .collect();
        for (direction, flows) in [(Direction::Up, up), (Direction::Down, down)] {
            if flows.is_empty() {
                continue;
            }
            let run = record.rows.len();
            for (index, flow) in flows.iter().enumerate() {
                add_series(run, index, flow, &mut record.series);
            }
            record.rows.push((direction, self.row(direction, &flows)));
        }
        let mut responsiveness = responsiveness.unwrap_or_default();
        // Round trips beside no load say nothing of a loaded path.
        if record
            .rows
            .iter()
            .any(|(_, row)| !row.totals.has_arrivals())
        {
            responsiveness = responsiveness.without_load();
        }
        for (_, row) in &mut record.rows {
            row.responsiveness = responsiveness;
        }
        record
    }

    fn row(&self, direction: Direction, flows: &[FinishedFlow<'_>]) -> Row {
        let scheme = self.scheme(direction);
        let path_flows: Vec<PathFlow<'_>> = flows.iter().map(|flow| flow.seen).collect();
        let totals = PathTotals::of(&path_flows, self.interval);
        let metrics = |flow: &FinishedFlow<'_>| match flow.seen.metrics(self.interval) {
            metrics if totals.has_arrivals() => metrics,
            metrics => metrics.without_arrivals(),
        };
        let row = |(index, flow): (usize, &FinishedFlow<'_>)| FlowRow {
            flow: index,
            scheme: scheme.text().to_owned(),
            metrics: metrics(flow),
            sent: flow.seen.sent,
            lost: flow.seen.lost,
            timeouts: flow.timeouts,
            delivered_bytes: flow.seen.distinct.get(),
        };
        Row {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            engine: "real",
            transport: "udp",
            trace: format!("{} {}", self.path, direction.name()),
            scheme: scheme.name().to_owned(),
            params: params(scheme),
            queue: "path",
            ack: "path",
            flows: flows.len(),
            packet_bytes: self.request.packet_bytes,
            seed: self.request.seed,
            duration_s: totals.interval.as_secs_f64(),
            cut: self.cut,
            server_limit_mbps: self.limit_mbps,
            delay_ms: None,
            capacity_mbps: None,
            utilization: None,
            signal_delay_p95_ms: None,
            path_loss_rate: None,
            responsiveness: Responsiveness::default(),
            per_flow: flows.iter().enumerate().map(row).collect(),
            totals,
        }
    }
}

/// A flow at the end of its test.
#[derive(Clone, Copy, Debug)]
struct FinishedFlow<'a> {
    seen: PathFlow<'a>,
    timeouts: u64,
    samples: &'a [Sample],
}

impl<'a> FinishedFlow<'a> {
    fn new(
        meter: &'a PathMeter,
        distinct: u64,
        status: &FlowStatus,
        (rtt_mean_ms, rtt_p95_ms): (Option<f64>, Option<f64>),
        samples: &'a [Sample],
    ) -> Self {
        FinishedFlow {
            seen: PathFlow {
                meter,
                distinct: Bytes::new(distinct),
                sent: status.sent,
                lost: status.lost,
                retransmitted: status.retransmitted,
                rtt_mean_ms,
                rtt_p95_ms,
            },
            timeouts: u64::from(status.timeouts),
            samples,
        }
    }
}

/// Sets the sample of `bin`, and of bins before it that were slept through.
fn fill(samples: &mut Vec<Sample>, bin: usize, sample: Sample) {
    samples.resize((bin + 1).max(samples.len()), sample);
    samples[bin] = sample;
}

fn add_series(run: usize, flow: usize, ended: &FinishedFlow<'_>, into: &mut Vec<SeriesRow>) {
    let (meter, samples) = (ended.seen.meter, ended.samples);
    let width = meter.bin_width().as_secs_f64();
    for (index, bin) in meter.bins().iter().enumerate() {
        let sample = samples.get(index);
        let before = index.checked_sub(1).and_then(|index| samples.get(index));
        into.push(SeriesRow {
            run,
            flow,
            time_s: index as f64 * width,
            capacity_mbps: None,
            throughput_mbps: meter.bin_throughput_mbps(bin),
            qdelay_ms: meter.bin_delay_ms(bin),
            rtt_ms: bin
                .rtt_mean_ms()
                .or_else(|| sample.and_then(|sample| sample.rtt_ms)),
            window_bytes: sample.map(|sample| sample.window_bytes as f64),
            lost: sample.map_or(0, |sample| {
                sample
                    .lost
                    .saturating_sub(before.map_or(0, |before| before.lost))
            }),
        });
    }
}

fn params(scheme: &Scheme) -> Value {
    let pairs = scheme.params().iter().map(|(key, value)| {
        let value = serde_json::to_value(value).unwrap_or(Value::Null);
        (key.clone(), value)
    });
    Value::Object(pairs.collect::<Map<String, Value>>())
}
