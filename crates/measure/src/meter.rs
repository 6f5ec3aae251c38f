//! The meter: packet events in, metrics out.

use verus_core::{Bytes, Duration, Time};

use crate::distribution::{Distribution, Resolution};
use crate::fairness::{self, Average};
use crate::metrics::{FlowMetrics, FlowSeries, Metrics};
use crate::signal::SignalDelay;

/// Fairness is judged over windows of this length.
const FAIRNESS_WINDOW: Duration = Duration::from_secs(1);

/// Measures one bottleneck and the flows that cross it.
///
/// Events come in time order. Every packet is reported when it reaches the bottleneck
/// ([`on_arrival`](Meter::on_arrival), dropped or not). It is reported at most once more: when it
/// leaves ([`on_departure`](Meter::on_departure), in the order of entering) or is dropped
/// ([`on_drop`](Meter::on_drop)). Events at the ends are optional: without them, goodput,
/// round-trip times and retransmissions are reported as unknown.
///
/// Nothing is allocated per packet: bins grow with time and histograms with the longest delay.
#[derive(Clone, Debug)]
pub struct Meter {
    flows: Vec<Flow>,
    /// Base round-trip times, one per flow, or none if unknown.
    base_rtt: Vec<Duration>,
    signal: SignalDelay,
    /// How many flows have data that waits to leave.
    waiting: usize,
    bin: Duration,
    /// When the current bin ends; `None` where there are no time series.
    bin_end: Option<Time>,
    /// Start of the measured interval; [`Time::MAX`] until it is known.
    start: Time,
    window_end: Time,
    /// The earlier of `bin_end` and `window_end`.
    next_roll: Time,
    jain: Average,
    jain_active: Average,
    /// Whether any call has stated which flows are on.
    activity_known: bool,
    /// Whether any event of the ends was reported.
    ends_observed: bool,
    whole_millis: bool,
}

/// One flow's sums so far.
#[derive(Clone, Debug, Default)]
struct Flow {
    arrivals: u64,
    arrived_bytes: u64,
    departures: u64,
    departed_bytes: u64,
    drops: u64,
    dropped_bytes: u64,
    path_losses: u64,
    /// Those of the departures that arrived damaged.
    corrupted: u64,
    delivered_bytes: u64,
    sent: u64,
    retransmitted: u64,
    qdelay: Distribution,
    rtt: Distribution,
    /// The sums when the current bin began, its largest delay, and the bins that are complete.
    bin_mark: Mark,
    bin_max: u64,
    bins: Vec<Bin>,
    /// `departed_bytes` when the current fairness window began.
    window_mark: u64,
    active: bool,
    /// Whether it has data that waits to leave.
    waiting: bool,
    /// Since when it is on, if it is, and how long it was on in earlier periods.
    on_since: Option<Time>,
    on: Duration,
    /// How long its files took; none if it has none.
    completions: Option<Box<Distribution>>,
    late: Option<u64>,
    /// Whether it was on at some time in the current fairness window.
    was_active: bool,
}

#[derive(Debug, Default, Clone, Copy)]
struct Mark {
    departures: u64,
    bytes: u64,
    delay_sum: u128,
}

#[derive(Debug, Clone, Copy)]
struct Bin {
    departures: u64,
    bytes: u64,
    delay_sum: u128,
    delay_max: u64,
}

impl Flow {
    fn new(resolution: Resolution) -> Self {
        Flow {
            qdelay: Distribution::new(resolution),
            rtt: Distribution::new(resolution),
            ..Flow::default()
        }
    }

    /// Returns the current bin's content, and starts the next.
    fn take_bin(&mut self) -> Bin {
        let now = Mark {
            departures: self.departures,
            bytes: self.departed_bytes,
            delay_sum: self.qdelay.sum(),
        };
        let then = std::mem::replace(&mut self.bin_mark, now);
        Bin {
            departures: now.departures - then.departures,
            bytes: now.bytes - then.bytes,
            delay_sum: now.delay_sum - then.delay_sum,
            delay_max: std::mem::take(&mut self.bin_max),
        }
    }
}

impl Meter {
    /// A meter for `flows` flows whose base round-trip times (propagation, no queue) are
    /// `base_rtt`, one each, or empty if they are not known; time series in bins of `bin`.
    ///
    /// # Panics
    /// If `base_rtt` has neither one entry per flow nor none, or `bin` is zero.
    pub fn new(flows: usize, base_rtt: &[Duration], bin: Duration) -> Self {
        assert!(
            base_rtt.is_empty() || base_rtt.len() == flows,
            "a base RTT for each flow, or none"
        );
        assert!(!bin.is_zero(), "time series need bins of some width");
        Meter {
            flows: (0..flows).map(|_| Flow::new(Resolution::SPANS)).collect(),
            base_rtt: base_rtt.to_vec(),
            signal: SignalDelay::default(),
            waiting: 0,
            bin,
            bin_end: Some(Time::ZERO + bin),
            start: Time::MAX,
            window_end: Time::MAX,
            next_roll: Time::ZERO + bin,
            jain: Average::default(),
            jain_active: Average::default(),
            activity_known: false,
            ends_observed: false,
            whole_millis: false,
        }
    }

    /// Keeps no time series: [`Metrics::series`] stays empty. Must come before the first event.
    pub fn without_series(mut self) -> Self {
        self.bin_end = None;
        self.next_roll = self.window_end;
        self
    }

    /// Makes room for time series that last until `end`.
    pub fn reserve(&mut self, end: Time) {
        if self.bin_end.is_none() {
            return;
        }
        for flow in &mut self.flows {
            flow.bins.reserve(bin_count(end, self.bin).min(1 << 20));
        }
    }

    /// Starts the measured interval at `start` rather than at the first arrival, as Mahimahi's
    /// scripts do for the first event of a log. Must come before the first event.
    pub fn measure_from(&mut self, start: Time) {
        self.begin(start);
    }

    /// All times will be whole milliseconds, and so all delays: quantiles are then whole
    /// milliseconds, exact below 16 s. Must come before the first event.
    pub fn whole_milliseconds(&mut self) {
        self.whole_millis = true;
        let resolution = self.resolution();
        for flow in &mut self.flows {
            *flow = Flow::new(resolution);
        }
    }

    /// The resolution of delays.
    fn resolution(&self) -> Resolution {
        if self.whole_millis {
            Resolution::WHOLE_MILLISECONDS
        } else {
            Resolution::SPANS
        }
    }

    /// A packet of `flow` reaches the bottleneck queue, to be dropped or not.
    #[inline]
    pub fn on_arrival(&mut self, now: Time, flow: usize, size: Bytes) {
        if self.start == Time::MAX {
            self.begin(now);
        }
        let flow = &mut self.flows[flow];
        flow.arrivals += 1;
        flow.arrived_bytes += size.get();
    }

    /// A packet that had reached the bottleneck is dropped there.
    #[inline]
    pub fn on_drop(&mut self, flow: usize, size: Bytes) {
        self.on_drops(flow, 1, size);
    }

    /// `packets` packets of `size` altogether, that had reached the bottleneck, are dropped there.
    pub fn on_drops(&mut self, flow: usize, packets: u64, size: Bytes) {
        let flow = &mut self.flows[flow];
        flow.drops = flow.drops.saturating_add(packets);
        flow.dropped_bytes = flow.dropped_bytes.saturating_add(size.get());
    }

    /// A packet that was reported to reach the bottleneck was lost on the way to it after all.
    #[inline]
    pub fn on_path_loss(&mut self, flow: usize, size: Bytes) {
        let flow = &mut self.flows[flow];
        flow.arrivals -= 1;
        flow.arrived_bytes -= size.get();
        flow.path_losses += 1;
    }

    /// A packet that was reported to leave the bottleneck arrived damaged, so that its receiver drops it.
    #[inline]
    pub fn on_corrupted(&mut self, flow: usize) {
        self.flows[flow].corrupted += 1;
    }

    /// A packet that entered the bottleneck queue at `entered` leaves it.
    #[inline(always)]
    pub fn on_departure(&mut self, now: Time, flow: usize, size: Bytes, entered: Time) {
        if now >= self.next_roll {
            self.roll(now);
        }
        let delay = now.since(entered);
        self.signal.on_departure(entered, delay);
        let flow = &mut self.flows[flow];
        flow.departures += 1;
        flow.departed_bytes += size.get();
        flow.qdelay.record(delay.as_nanos());
        flow.bin_max = flow.bin_max.max(delay.as_nanos());
    }

    /// The receiver of `flow` gets `new_bytes` that it did not have before.
    #[inline]
    pub fn on_delivery(&mut self, flow: usize, new_bytes: Bytes) {
        self.ends_observed = true;
        self.flows[flow].delivered_bytes += new_bytes.get();
    }

    /// The sender of `flow` learns a packet's round-trip time.
    #[inline]
    pub fn on_rtt(&mut self, flow: usize, rtt: Duration) {
        self.flows[flow].rtt.record(rtt.as_nanos());
    }

    /// The sender of `flow` sends a packet.
    #[inline]
    pub fn on_sent(&mut self, flow: usize, retransmission: bool) {
        self.ends_observed = true;
        let flow = &mut self.flows[flow];
        flow.sent += 1;
        flow.retransmitted += u64::from(retransmission);
    }

    /// `flow` goes on or off, for [`Metrics::jain_active`]. A flow is off until the first call; if
    /// there are no calls for any flow, all count as on.
    pub fn set_active(&mut self, now: Time, flow: usize, active: bool) {
        if now >= self.next_roll {
            self.roll(now);
        }
        self.activity_known = true;
        // A flow that goes off at the instant at which a window begins was not on in that window.
        let window_begins = self.start <= now && now + FAIRNESS_WINDOW == self.window_end;
        let flow = &mut self.flows[flow];
        if let Some(since) = flow.on_since.take() {
            flow.on += now.since(since);
        }
        flow.on_since = active.then_some(now);
        flow.active = active;
        flow.was_active = active || (flow.was_active && !window_begins);
    }

    /// Whether the sender of `flow` has data that waits to leave, for [`Metrics::signal_delay_p95_ms`]. A flow has none
    /// until the first call; if there are no calls for any flow, some flow always has data to send.
    #[inline]
    pub fn set_waiting(&mut self, now: Time, flow: usize, waiting: bool) {
        if self.flows[flow].waiting != waiting {
            self.flows[flow].waiting = waiting;
            self.waiting = if waiting {
                self.waiting + 1
            } else {
                self.waiting - 1
            };
            self.signal.set_wanted(now, self.waiting > 0);
        }
    }

    /// `flow` has files or frames to send, whose completion will be reported.
    pub fn expect_pieces(&mut self, flow: usize) {
        let pieces = Distribution::new(self.resolution());
        self.flows[flow].completions = Some(Box::new(pieces));
    }

    /// All of a file or a frame of `flow` has been delivered, `took` after it was offered.
    pub fn on_completion(&mut self, flow: usize, took: Duration) {
        let resolution = self.resolution();
        let completions = &mut self.flows[flow].completions;
        completions
            .get_or_insert_with(|| Box::new(Distribution::new(resolution)))
            .record(took.as_nanos());
    }

    /// `frames` frames of `flow` were late.
    pub fn set_late(&mut self, flow: usize, frames: u64) {
        self.flows[flow].late = Some(frames);
    }

    /// The metrics of the run, which ends at `end`. `capacity(from, to)` returns how many bytes the
    /// channel could have carried then; it is called once, for the measured interval.
    pub fn finish(mut self, end: Time, capacity: impl FnOnce(Time, Time) -> Bytes) -> Metrics {
        self.roll(end);
        let start = self.start.min(end);
        let interval = end.since(start);
        let capacity_mbps = mbps(capacity(start, end).get(), interval);

        let series = self.take_series(end);
        let per_flow: Vec<_> = (0..self.flows.len())
            .map(|flow| self.flow_metrics(flow, interval, end))
            .collect();

        let rates = || {
            per_flow
                .iter()
                .map(|flow: &FlowMetrics| flow.throughput_mbps)
        };
        let (flow_min_mbps, flow_max_mbps) = (rates().reduce(f64::min), rates().reduce(f64::max));

        let sum = |of: fn(&Flow) -> u64| self.flows.iter().map(of).fold(0, u64::saturating_add);
        let (arrivals, departures, drops) =
            (sum(|f| f.arrivals), sum(|f| f.departures), sum(|f| f.drops));
        let (path_losses, corrupted) = (sum(|f| f.path_losses), sum(|f| f.corrupted));
        let entered = arrivals + path_losses;
        let path_losses = path_losses + corrupted;
        let departed_bytes = sum(|f| f.departed_bytes);
        let throughput_mbps = mbps(departed_bytes, interval);
        let (sent, retransmitted) = (sum(|f| f.sent), sum(|f| f.retransmitted));
        // Each packet's own base, so that the mean is over the same packets as the mean delay.
        let base_ms = self
            .base_rtt
            .iter()
            .zip(&self.flows)
            .map(|(base, flow)| base.as_millis_f64() * flow.departures as f64);
        let base_ms = ratio(base_ms.sum(), departures as f64).filter(|_| !self.base_rtt.is_empty());
        let delivered = sum(|f| f.delivered_bytes);
        let goodput_mbps = self.ends_observed.then(|| mbps(delivered, interval));
        let arrived_bytes = sum(|f| f.arrived_bytes);
        let dropped_bytes = sum(|f| f.dropped_bytes);

        let quantile_ms = quantile_ms(self.whole_millis);
        let mut qdelay = Distribution::new(self.resolution());
        let mut rtt = Distribution::new(self.resolution());
        if let [only] = &mut self.flows[..] {
            std::mem::swap(&mut qdelay, &mut only.qdelay);
            std::mem::swap(&mut rtt, &mut only.rtt);
        } else {
            for flow in &self.flows {
                qdelay.add(&flow.qdelay);
                rtt.add(&flow.rtt);
            }
        }
        let quantiles = qdelay.quantiles([0.5, 0.95, 0.99]);
        let mut completions: Option<Distribution> = None;
        for own in self
            .flows
            .iter()
            .filter_map(|flow| flow.completions.as_deref())
        {
            completions
                .get_or_insert_with(|| Distribution::new(self.resolution()))
                .add(own);
        }
        let took = Took::of(completions.as_ref());
        let jain = self.jain.mean();
        Metrics {
            interval_s: interval.as_secs_f64(),
            capacity_mbps,
            throughput_mbps,
            goodput_mbps,
            utilization: ratio(throughput_mbps, capacity_mbps),
            qdelay_mean_ms: qdelay.mean_ms(),
            qdelay_p50_ms: quantiles.map(|q| quantile_ms(q[0])),
            qdelay_p95_ms: quantiles.map(|q| quantile_ms(q[1])),
            qdelay_p99_ms: quantiles.map(|q| quantile_ms(q[2])),
            qdelay_max_ms: qdelay.max_ms(),
            signal_delay_p95_ms: self.signal.finish_p95().map(quantile_ms),
            rtt_mean_ms: rtt.mean_ms(),
            rtt_p95_ms: rtt.quantiles([0.95]).map(|q| quantile_ms(q[0])),
            loss_rate: ratio(drops as f64, arrivals as f64),
            path_loss_rate: ratio(path_losses as f64, entered as f64),
            retransmit_rate: ratio(retransmitted as f64, sent as f64),
            jain,
            jain_active: if self.activity_known {
                self.jain_active.mean()
            } else {
                jain
            },
            flow_min_mbps,
            flow_max_mbps,
            completions: took.count,
            completion_mean_s: took.mean_s,
            completion_p50_s: took.p50_s,
            completion_p95_s: took.p95_s,
            completion_p99_s: took.p99_s,
            completion_max_s: took.max_s,
            late: (self.flows.iter().filter_map(|flow| flow.late)).reduce(u64::saturating_add),
            power: power(throughput_mbps, qdelay.mean_ms(), base_ms),
            arrivals,
            arrived_bytes,
            departures,
            departed_bytes,
            drops,
            dropped_bytes,
            path_losses,
            backlog: arrivals.saturating_sub(departures).saturating_sub(drops),
            per_flow,
            series,
        }
    }

    fn flow_metrics(&self, index: usize, interval: Duration, end: Time) -> FlowMetrics {
        let flow = &self.flows[index];
        let quantile_ms = quantile_ms(self.whole_millis);
        let throughput_mbps = mbps(flow.departed_bytes, interval);
        let quantiles = flow.qdelay.quantiles([0.5, 0.95, 0.99]);
        let base_ms = self.base_rtt.get(index).map(|base| base.as_millis_f64());
        let still_on = flow
            .on_since
            .map_or(Duration::ZERO, |since| end.since(since));
        let on = flow.on + still_on;
        let took = Took::of(flow.completions.as_deref());
        FlowMetrics {
            flow: index,
            throughput_mbps,
            on_s: self.activity_known.then(|| on.as_secs_f64()),
            throughput_on_mbps: (!on.is_zero()).then(|| mbps(flow.departed_bytes, on)),
            goodput_mbps: self
                .ends_observed
                .then(|| mbps(flow.delivered_bytes, interval)),
            qdelay_mean_ms: flow.qdelay.mean_ms(),
            qdelay_p50_ms: quantiles.map(|q| quantile_ms(q[0])),
            qdelay_p95_ms: quantiles.map(|q| quantile_ms(q[1])),
            qdelay_p99_ms: quantiles.map(|q| quantile_ms(q[2])),
            qdelay_max_ms: flow.qdelay.max_ms(),
            rtt_mean_ms: flow.rtt.mean_ms(),
            rtt_p95_ms: flow.rtt.quantiles([0.95]).map(|q| quantile_ms(q[0])),
            loss_rate: ratio(flow.drops as f64, flow.arrivals as f64),
            path_loss_rate: ratio(
                (flow.path_losses + flow.corrupted) as f64,
                (flow.arrivals + flow.path_losses) as f64,
            ),
            retransmit_rate: ratio(flow.retransmitted as f64, flow.sent as f64),
            completions: took.count,
            completion_mean_s: took.mean_s,
            completion_p50_s: took.p50_s,
            completion_p95_s: took.p95_s,
            completion_p99_s: took.p99_s,
            completion_max_s: took.max_s,
            late: flow.late,
            power: power(throughput_mbps, flow.qdelay.mean_ms(), base_ms),
            arrivals: flow.arrivals,
            departures: flow.departures,
            drops: flow.drops,
            path_losses: flow.path_losses + flow.corrupted,
            sent: flow.sent,
            retransmitted: flow.retransmitted,
        }
    }

    fn begin(&mut self, start: Time) {
        self.start = start;
        self.window_end = start + FAIRNESS_WINDOW;
        self.set_next_roll();
        for flow in &mut self.flows {
            flow.was_active = flow.active;
        }
    }

    fn set_next_roll(&mut self) {
        let bin_end = self.bin_end.unwrap_or(Time::MAX);
        self.next_roll = bin_end.min(self.window_end);
    }

    /// Closes every bin and fairness window that has ended by `now`. An event at the end of a bin
    /// or window belongs to the next.
    #[cold]
    fn roll(&mut self, now: Time) {
        while let Some(bin_end) = self.bin_end.filter(|&bin_end| bin_end <= now) {
            for flow in &mut self.flows {
                let bin = flow.take_bin();
                flow.bins.push(bin);
            }
            self.bin_end = Some(bin_end + self.bin);
        }
        while self.window_end <= now {
            self.close_window();
            self.window_end += FAIRNESS_WINDOW;
        }
        self.set_next_roll();
    }

    fn close_window(&mut self) {
        let share = |flow: &Flow| (flow.departed_bytes - flow.window_mark) as f64;
        self.jain.add(fairness::of(self.flows.iter().map(share)));
        let active = self.flows.iter().filter(|flow| flow.was_active);
        self.jain_active.add(fairness::of(active.map(share)));
        for flow in &mut self.flows {
            flow.window_mark = flow.departed_bytes;
            flow.was_active = flow.active;
        }
    }

    fn take_series(&mut self, end: Time) -> Vec<FlowSeries> {
        let bin = self.bin;
        let Some(bin_end) = self.bin_end else {
            return Vec::new();
        };
        let open_since = bin_end - bin;
        let mut series = Vec::with_capacity(self.flows.len());
        for (index, flow) in self.flows.iter_mut().enumerate() {
            let last = flow.take_bin();
            match flow.bins.last_mut() {
                // Packets that leave at the very end would have a bin without width: they join the
                // one before.
                Some(before) if end <= open_since => {
                    before.departures += last.departures;
                    before.bytes += last.bytes;
                    before.delay_sum += last.delay_sum;
                    before.delay_max = before.delay_max.max(last.delay_max);
                }
                _ if end > open_since => flow.bins.push(last),
                _ => {}
            }
            let of = |value: fn(&Bin) -> f64| {
                flow.bins
                    .iter()
                    .map(move |bin| (bin.departures > 0).then(|| value(bin)))
                    .collect()
            };
            series.push(FlowSeries {
                flow: index,
                bin_ms: bin.as_millis_f64(),
                throughput_mbps: (flow.bins.iter().enumerate())
                    .map(|(i, counts)| mbps(counts.bytes, width(i, bin, end)))
                    .collect(),
                qdelay_mean_ms: of(|bin| bin.delay_sum as f64 / bin.departures as f64 / 1e6),
                qdelay_max_ms: of(|bin| bin.delay_max as f64 / 1e6),
            });
        }
        series
    }
}

/// Bins of a run that ends at `end`.
fn bin_count(end: Time, bin: Duration) -> usize {
    usize::try_from(end.as_nanos().div_ceil(bin.as_nanos())).unwrap_or(usize::MAX)
}

/// Width of bin `index`, the last one cut at `end`.
fn width(index: usize, bin: Duration, end: Time) -> Duration {
    let start = Time::ZERO + bin * index as u64;
    let cut = end.since(start);
    if cut.is_zero() { bin } else { cut.min(bin) }
}

/// A rate over time in Mbit/s, in the bins of [`FlowSeries`], for a run that ends at `end`:
/// `bytes(from, to)` is asked once per bin, in order. For the capacity under the flows' series.
pub fn rate_series(
    end: Time,
    bin: Duration,
    mut bytes: impl FnMut(Time, Time) -> Bytes,
) -> Vec<f64> {
    let rate = |index| {
        let from = Time::ZERO + bin * index as u64;
        let width = width(index, bin, end);
        mbps(bytes(from, from + width).get(), width)
    };
    (0..bin_count(end, bin)).map(rate).collect()
}

/// Mbit/s; zero over an empty span.
pub(crate) fn mbps(bytes: u64, span: Duration) -> f64 {
    ratio(bytes as f64 * 8.0 * 1e3, span.as_nanos() as f64).unwrap_or(0.0)
}

/// `part` / `whole`; none when there is no whole.
pub(crate) fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// How many files or frames came, and how long they took.
struct Took {
    count: Option<u64>,
    mean_s: Option<f64>,
    p50_s: Option<f64>,
    max_s: Option<f64>,
    p95_s: Option<f64>,
    p99_s: Option<f64>,
}

impl Took {
    fn of(pieces: Option<&Distribution>) -> Self {
        let seconds = |nanos: u64| Duration::from_nanos(nanos).as_secs_f64();
        let quantiles = pieces.and_then(|pieces| pieces.quantiles([0.5, 0.95, 0.99]));
        Took {
            count: pieces.map(Distribution::count),
            mean_s: pieces.and_then(Distribution::mean_ms).map(|ms| ms / 1e3),
            p50_s: quantiles.map(|q| seconds(q[0])),
            p95_s: quantiles.map(|q| seconds(q[1])),
            p99_s: quantiles.map(|q| seconds(q[2])),
            max_s: pieces.and_then(Distribution::max_ms).map(|ms| ms / 1e3),
        }
    }
}

fn power(throughput_mbps: f64, qdelay_ms: Option<f64>, base_ms: Option<f64>) -> Option<f64> {
    ratio(throughput_mbps, (qdelay_ms? + base_ms?) / 1e3)
}

/// Converts a quantile in ns to ms.
fn quantile_ms(whole: bool) -> impl Fn(u64) -> f64 + Copy {
    move |nanos| {
        if whole {
            nanos.div_ceil(1_000_000) as f64
        } else {
            Duration::from_nanos(nanos).as_millis_f64()
        }
    }
}
