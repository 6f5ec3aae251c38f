//! What a test amounts to: rows, time series and delay profiles under the names that the lab uses.
//!
//! The queueing delay is an estimate: the one-way delay above the least of the run
//! ([`verus_measure::PathMeter`]). What the ends of a path cannot see (capacity, and with it
//! utilization; the signal delay) is null.

use serde::Serialize;
use serde_json::{Map, Value};
use verus_core::algorithm::Scheme;
use verus_core::{Duration, Rate, Time};
use verus_measure::{PathMeter, jain};

use super::connection::Connection;
use super::flow::BIN;
use super::wire::Request;

/// Version of the formats here; the lab refuses another.
pub const SCHEMA: u32 = 1;

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
    /// Bytes that arrived, Mbit/s.
    pub throughput_mbps: f64,
    /// Bytes that arrived for the first time, Mbit/s.
    pub goodput_mbps: f64,
    /// Mean one-way delay above its least, ms.
    pub qdelay_mean_ms: Option<f64>,
    /// Its median, ms.
    pub qdelay_p50_ms: Option<f64>,
    /// Its 95th percentile, ms.
    pub qdelay_p95_ms: Option<f64>,
    /// Its 99th percentile, ms.
    pub qdelay_p99_ms: Option<f64>,
    /// Mean round-trip time, ms.
    pub rtt_mean_ms: Option<f64>,
    /// Its 95th percentile, ms.
    pub rtt_p95_ms: Option<f64>,
    /// Packets lost / packets sent.
    pub loss_rate: Option<f64>,
    /// Packets sent again / packets sent.
    pub retransmit_rate: Option<f64>,
    /// Packets sent.
    pub sent: u64,
    /// Of these, lost.
    pub lost: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Bytes of data that arrived, copies not counted.
    pub delivered_bytes: u64,
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
    /// What was set of it.
    pub params: Value,
    /// Always `path`: nobody knows what queues there are.
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
    /// Whether it ended before what was asked for: the server died, ended it or was not heard any more, or somebody
    /// stopped it. Rates are over the time until then.
    pub cut: bool,
    /// The most that the server grants a test in each direction, Mbit/s, if it limits that: a result near it says
    /// nothing of the path.
    pub server_limit_mbps: Option<f64>,
    /// One-way propagation delay: unknown, null.
    pub delay_ms: Option<f64>,
    /// Unknown, null.
    pub capacity_mbps: Option<f64>,
    /// Bytes that arrived, Mbit/s.
    pub throughput_mbps: f64,
    /// Bytes that arrived for the first time, Mbit/s.
    pub goodput_mbps: f64,
    /// Unknown, null.
    pub utilization: Option<f64>,
    /// Mean one-way delay above its least, ms; that of the flows' packets together.
    pub qdelay_mean_ms: Option<f64>,
    /// Its median; with several flows, the mean of theirs by packets. So with the next ones.
    pub qdelay_p50_ms: Option<f64>,
    /// Its 95th percentile, ms.
    pub qdelay_p95_ms: Option<f64>,
    /// Its 99th percentile, ms.
    pub qdelay_p99_ms: Option<f64>,
    /// Unknown, null.
    pub signal_delay_p95_ms: Option<f64>,
    /// Mean round-trip time, ms.
    pub rtt_mean_ms: Option<f64>,
    /// Its 95th percentile, ms.
    pub rtt_p95_ms: Option<f64>,
    /// Packets lost / packets sent.
    pub loss_rate: Option<f64>,
    /// Packets sent again / packets sent.
    pub retransmit_rate: Option<f64>,
    /// Jain's index over windows of 1 s, averaged.
    pub jain: Option<f64>,
    /// The same: all flows are on for the whole test.
    pub jain_active: Option<f64>,
    /// Throughput / mean round-trip time, Mbit/s per second of delay.
    pub power: Option<f64>,
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
}

/// What one sample saw of a flow that does not stay in its meter.
#[derive(Clone, Copy, Debug)]
struct Sample {
    window_bytes: u64,
    rtt_ms: Option<f64>,
    lost: u64,
}

/// How a test is going, for a line that a person watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Bytes that arrived since the last sample's second, Mbit/s.
    pub throughput_mbps: f64,
    /// Last round-trip time, ms.
    pub rtt_ms: f64,
    /// Window, packets, all flows together.
    pub window_packets: f64,
    /// Packets lost so far.
    pub lost: u64,
    /// Packets sent so far.
    pub sent: u64,
}

/// Watches a client's connection and says in the end what it amounted to.
#[derive(Debug)]
pub struct Recorder {
    path: String,
    scheme: Scheme,
    /// That of downloads, where it is another.
    downward: Option<Scheme>,
    request: Request,
    up: Vec<Vec<Sample>>,
    down: Vec<Vec<Sample>>,
    profiles: Vec<ProfileRow>,
    next_profile: Time,
    /// What rates are over; `None` for until the last arrival.
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

    /// The scheme of what goes in `direction`.
    pub fn scheme(&self, direction: Direction) -> &Scheme {
        match (direction, &self.downward) {
            (Direction::Down, Some(scheme)) => scheme,
            _ => &self.scheme,
        }
    }

    /// How often to call [`sample`](Self::sample).
    pub const INTERVAL: Duration = BIN;

    /// Looks at the connection at `now`.
    pub fn sample(&mut self, now: Time, connection: &Connection) {
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

    /// How the test is going: the last second, all flows of the direction that was asked for.
    pub fn progress(&self, now: Time, connection: &Connection) -> Progress {
        let seconds = |meter: &PathMeter| {
            let bins = meter.bins();
            // The bin under way is left out: it is not full.
            let bin = (now.since(connection.started()).as_nanos() / BIN.as_nanos()) as usize;
            let (from, to) = (bin.saturating_sub(10), bin.min(bins.len()));
            let bytes: u64 = bins
                .get(from..to)
                .unwrap_or_default()
                .iter()
                .map(|bin| bin.delivered.get())
                .sum();
            let span = (bin - from).max(1) as f64 * BIN.as_secs_f64();
            bytes as f64 * 8.0 / span / 1e6
        };
        let mut progress = Progress::default();
        let mut note = |rate: f64, status: &super::wire::FlowStatus| {
            progress.throughput_mbps += rate;
            progress.rtt_ms = progress.rtt_ms.max(f64::from(status.rtt_micros) / 1e3);
            progress.window_packets += status.window as f64 / f64::from(self.request.packet_bytes);
            progress.lost += status.lost;
            progress.sent += status.sent;
        };
        for flow in connection.outgoing() {
            note(seconds(flow.meter()), &flow.status());
        }
        for (flow, status) in connection.incoming() {
            note(seconds(flow.meter()), status);
        }
        progress
    }

    /// The test ends before what was asked for.
    pub fn cut(&mut self) {
        self.cut = true;
    }

    /// What it all amounted to by `now`. Rates are over the time asked for, or over what has passed
    /// of it; in a test of a given size, until the last arrival. One that was cut is measured until the server was
    /// last heard.
    pub fn finish(mut self, now: Time, connection: &Connection) -> Record {
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
        };
        let [up_scheme, down_scheme] = [Direction::Up, Direction::Down]
            .map(|direction| self.scheme(direction).text().to_owned());
        let up: Vec<(FlowRow, &PathMeter, &[Sample])> = connection
            .outgoing()
            .iter()
            .zip(&self.up)
            .enumerate()
            .map(|(index, (flow, samples))| {
                let (status, meter) = (flow.status(), flow.meter());
                let row = FlowRow {
                    rtt_mean_ms: meter.rtt_mean_ms(),
                    rtt_p95_ms: meter.rtt_quantile_ms(0.95),
                    ..flow_row(
                        index,
                        &up_scheme,
                        meter,
                        &status,
                        flow.distinct(),
                        self.interval,
                    )
                };
                (row, meter, &samples[..])
            })
            .collect();
        let down: Vec<(FlowRow, &PathMeter, &[Sample])> = connection
            .incoming()
            .zip(&self.down)
            .enumerate()
            .map(|(index, ((flow, status), samples))| {
                let meter = flow.meter();
                let known = |micros: u32| (micros > 0).then(|| f64::from(micros) / 1e3);
                let row = FlowRow {
                    rtt_mean_ms: known(status.rtt_mean_micros),
                    rtt_p95_ms: known(status.rtt_p95_micros),
                    ..flow_row(
                        index,
                        &down_scheme,
                        meter,
                        status,
                        flow.distinct(),
                        self.interval,
                    )
                };
                (row, meter, &samples[..])
            })
            .collect();
        for (direction, flows) in [(Direction::Up, up), (Direction::Down, down)] {
            if flows.is_empty() {
                continue;
            }
            let run = record.rows.len();
            for (row, meter, samples) in &flows {
                add_series(run, row.flow, meter, samples, &mut record.series);
            }
            record.rows.push((direction, self.row(direction, flows)));
        }
        record
    }

    fn row(&self, direction: Direction, flows: Vec<(FlowRow, &PathMeter, &[Sample])>) -> Row {
        let last = flows
            .iter()
            .filter_map(|(_, meter, _)| meter.elapsed())
            .max();
        let elapsed = self.interval.or(last).unwrap_or_default();
        let weights: Vec<f64> = flows
            .iter()
            .map(|(_, meter, _)| meter.packets() as f64)
            .collect();
        let mean = |value: fn(&FlowRow) -> Option<f64>| {
            let mut sum = (0.0, 0.0);
            for ((row, _, _), weight) in flows.iter().zip(&weights) {
                if let Some(value) = value(row) {
                    sum = (sum.0 + value * weight, sum.1 + weight);
                }
            }
            (sum.1 > 0.0).then(|| sum.0 / sum.1)
        };
        let total = |value: fn(&FlowRow) -> u64| flows.iter().map(|(row, _, _)| value(row)).sum();
        let (sent, lost): (u64, u64) = (total(|row| row.sent), total(|row| row.lost));
        let repeated: f64 = flows
            .iter()
            .map(|(row, _, _)| row.retransmit_rate.unwrap_or(0.0) * row.sent as f64)
            .sum();
        let share = |part: f64| (sent > 0).then(|| part / sent as f64);
        let arrived: u64 = flows
            .iter()
            .map(|(_, meter, _)| meter.delivered().get())
            .sum();
        let meters: Vec<&PathMeter> = flows.iter().map(|(_, meter, _)| *meter).collect();
        let fairness = fairness(&meters);
        let throughput_mbps = mbps(arrived, elapsed);
        let rtt_mean_ms = mean(|row| row.rtt_mean_ms);
        Row {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            engine: "real",
            transport: "udp",
            trace: format!("{} {}", self.path, direction.name()),
            scheme: self.scheme(direction).name().to_owned(),
            params: params(self.scheme(direction)),
            queue: "path",
            ack: "path",
            flows: flows.len(),
            packet_bytes: self.request.packet_bytes,
            seed: self.request.seed,
            duration_s: elapsed.as_secs_f64(),
            cut: self.cut,
            server_limit_mbps: self.limit_mbps,
            delay_ms: None,
            capacity_mbps: None,
            throughput_mbps,
            goodput_mbps: mbps(total(|row| row.delivered_bytes), elapsed),
            utilization: None,
            qdelay_mean_ms: mean(|row| row.qdelay_mean_ms),
            qdelay_p50_ms: mean(|row| row.qdelay_p50_ms),
            qdelay_p95_ms: mean(|row| row.qdelay_p95_ms),
            qdelay_p99_ms: mean(|row| row.qdelay_p99_ms),
            signal_delay_p95_ms: None,
            rtt_mean_ms,
            rtt_p95_ms: mean(|row| row.rtt_p95_ms),
            loss_rate: share(lost as f64),
            retransmit_rate: share(repeated),
            jain: fairness,
            jain_active: fairness,
            power: rtt_mean_ms
                .filter(|&rtt| rtt > 0.0)
                .map(|rtt| throughput_mbps / (rtt / 1e3)),
            per_flow: flows.into_iter().map(|(row, _, _)| row).collect(),
        }
    }
}

/// Sets the sample of `bin`, and of bins before it that were slept through.
fn fill(samples: &mut Vec<Sample>, bin: usize, sample: Sample) {
    samples.resize((bin + 1).max(samples.len()), sample);
    samples[bin] = sample;
}

fn flow_row(
    index: usize,
    scheme: &str,
    meter: &PathMeter,
    status: &super::wire::FlowStatus,
    distinct: u64,
    interval: Option<Duration>,
) -> FlowRow {
    let elapsed = interval.or(meter.elapsed()).unwrap_or_default();
    let share = |part: u64| (status.sent > 0).then(|| part as f64 / status.sent as f64);
    FlowRow {
        flow: index,
        scheme: scheme.to_owned(),
        throughput_mbps: mbps(meter.delivered().get(), elapsed),
        goodput_mbps: mbps(distinct, elapsed),
        qdelay_mean_ms: meter.delay_mean_ms(),
        qdelay_p50_ms: meter.delay_quantile_ms(0.5),
        qdelay_p95_ms: meter.delay_quantile_ms(0.95),
        qdelay_p99_ms: meter.delay_quantile_ms(0.99),
        rtt_mean_ms: None,
        rtt_p95_ms: None,
        loss_rate: share(status.lost),
        retransmit_rate: share(status.retransmitted),
        sent: status.sent,
        lost: status.lost,
        timeouts: u64::from(status.timeouts),
        delivered_bytes: distinct,
    }
}

fn mbps(bytes: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() {
        return 0.0;
    }
    bytes as f64 * 8.0 / elapsed.as_secs_f64() / 1e6
}

fn add_series(
    run: usize,
    flow: usize,
    meter: &PathMeter,
    samples: &[Sample],
    into: &mut Vec<SeriesRow>,
) {
    let width = meter.bin_width().as_secs_f64();
    for (index, bin) in meter.bins().iter().enumerate() {
        let sample = samples.get(index);
        let before = index.checked_sub(1).and_then(|index| samples.get(index));
        into.push(SeriesRow {
            run,
            flow,
            time_s: index as f64 * width,
            capacity_mbps: None,
            throughput_mbps: bin.delivered.get() as f64 * 8.0 / width / 1e6,
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

/// Jain's index of the flows over whole seconds, averaged over those in which anything arrived.
fn fairness(meters: &[&PathMeter]) -> Option<f64> {
    let bins = meters
        .iter()
        .map(|meter| meter.bins().len())
        .max()
        .unwrap_or(0);
    let indices: Vec<f64> = (0..bins / 10)
        .filter_map(|second| {
            let shares: Vec<f64> = meters
                .iter()
                .map(|meter| {
                    let bins = meter.bins().iter().skip(second * 10).take(10);
                    bins.map(|bin| bin.delivered.as_f64()).sum()
                })
                .collect();
            jain(&shares)
        })
        .collect();
    (!indices.is_empty()).then(|| indices.iter().sum::<f64>() / indices.len() as f64)
}

fn params(scheme: &Scheme) -> Value {
    let pairs = scheme.params().iter().map(|(key, value)| {
        let value = serde_json::to_value(value).unwrap_or(Value::Null);
        (key.clone(), value)
    });
    Value::Object(pairs.collect::<Map<String, Value>>())
}
