//! `kernel trace`: measurements of the kernel's flows over time, in a folder as from `probe client
//! --out`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration as Span;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use verus_core::{Bytes, Duration, Time};
use verus_kernel::{Flow, LAW, Loaded, Reader};
use verus_measure::{PathFlow, PathMeter, PathTotals};
use verus_probe::results::{FlowRow, Responsiveness, Row, SCHEMA, SeriesRow};

use super::failure_of;
use super::status::{mbps, ms, running};
use crate::failure::Failure;
use crate::folder::{self, Contents, joined, value};
use crate::signals::Signals;
use crate::typed::seconds;
use crate::ui::Ui;

/// Interval at which the flows are read. A flow that begins and ends in between is missed.
const LOOK: Duration = Duration::from_millis(20);
/// Length of a bin of a time series.
const BIN: Duration = Duration::from_millis(100);
/// Most flows that are traced: a busy server has many, and a picture shows few.
const MOST_FLOWS: usize = 1000;

#[derive(clap::Args)]
pub struct Args {
    /// Write results and time series into this folder, for `verus report`.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How long to trace, in s or as 2m (default: until Ctrl-C).
    #[arg(short = 't', long, visible_alias = "duration", value_name = "TIME", value_parser = seconds)]
    seconds: Option<f64>,
    /// Replace earlier results in the folder.
    #[arg(long)]
    force: bool,
}

/// Traces the loaded congestion controls until the time is over or a signal arrives, and then
/// writes the whole folder.
pub fn run(args: &Args, ui: &Ui) -> Result<(), Failure> {
    folder::check("--out", &args.out, args.force)?;
    let ui = ui.to_the_end();
    let mut traces = Vec::new();
    let all = verus_kernel::list().map_err(|error| failure_of(&error))?;
    for loaded in all {
        // An unloaded one without a flow gets no new flows.
        if !loaded.registered && running(&loaded) == 0 {
            continue;
        }
        let is_going = !loaded.registered;
        match Reader::new(&loaded).map(|reader| Trace::new(loaded, reader)) {
            Ok(trace) => traces.push(trace),
            Err(_) if is_going => {}
            Err(error) => return Err(failure_of(&error)),
        }
    }
    if traces.is_empty() {
        return Err(Failure::usage(
            "nothing is loaded (`verus kernel load forward`)",
        ));
    }
    let mut signals = Signals::new().map_err(Failure::run)?;
    let began = now();
    let end = args.seconds.map(|s| began + Duration::from_secs_f64(s));
    let mut next = began;
    while signals.take().is_none() && end.is_none_or(|end| next < end) {
        for trace in &mut traces {
            trace.look(began)?;
        }
        next = (next + LOOK).max(now());
        wait(&signals, next.since(now()))?;
    }
    let interval = now().since(began);
    traces.retain(|trace| !trace.flows.is_empty());
    if traces.is_empty() {
        return Err(Failure::run(
            "no flow was seen in this network namespace: nothing is written",
        ));
    }
    folder::write("--out", &args.out, &contents(&traces, interval))?;
    for trace in &traces {
        if trace.is_full {
            ui.note(format_args!(
                "`{}`: there are the first {MOST_FLOWS} flows, and no more",
                trace.label()
            ));
        }
    }
    ui.note(format_args!(
        "{} flows in `{}`; `verus report` draws them",
        traces.iter().map(|trace| trace.flows.len()).sum::<usize>(),
        args.out.display()
    ));
    Ok(())
}

/// The time of the clock that the kernel's reports use.
fn now() -> Time {
    let time = clock_gettime(ClockId::Monotonic);
    Time::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Waits for `span`, or until a signal arrives.
fn wait(signals: &Signals, span: Duration) -> Result<(), Failure> {
    let span = Timespec::try_from(Span::from_nanos(span.as_nanos())).expect("short");
    let mut woken = [PollFd::new(signals, PollFlags::IN)];
    match poll(&mut woken, Some(&span)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(Failure::run(error)),
    }
}

/// The flows of one congestion control.
struct Trace {
    loaded: Loaded,
    reader: Reader,
    flows: Vec<Traced>,
    is_full: bool,
}

/// A flow, and its measurements.
struct Traced {
    first: Flow,
    last: Flow,
    meter: PathMeter,
    /// The last reading of each bin that has one.
    bins: Vec<(usize, Flow)>,
}

fn ends(flow: &Flow) -> (SocketAddr, SocketAddr) {
    (flow.local, flow.remote)
}

/// Bytes delivered to the receiver so far, with headers.
fn arrived(flow: &Flow) -> u64 {
    flow.acked_bytes + u64::from(flow.delivered_packets) * u64::from(flow.header_bytes)
}

impl Trace {
    fn new(loaded: Loaded, reader: Reader) -> Self {
        Trace {
            loaded,
            reader,
            flows: Vec::new(),
            is_full: false,
        }
    }

    fn label(&self) -> String {
        let unloaded = if self.loaded.registered {
            ""
        } else {
            " (unloaded)"
        };
        format!("{}{unloaded}", self.loaded.config.name)
    }

    fn look(&mut self, began: Time) -> Result<(), Failure> {
        for flow in self.reader.read().map_err(|error| failure_of(&error))? {
            // A later connection may have the same ends. Its counts begin again.
            let index = self.flows.iter().rposition(|traced| {
                ends(&traced.last) == ends(&flow) && traced.last.acked_bytes <= flow.acked_bytes
            });
            match index {
                Some(index) => self.flows[index].see(began, flow),
                None if self.flows.len() == MOST_FLOWS => self.is_full = true,
                None => self.flows.push(Traced::new(began, flow)),
            }
        }
        Ok(())
    }
}

impl Traced {
    fn new(began: Time, flow: Flow) -> Self {
        Traced {
            first: flow,
            last: flow,
            meter: PathMeter::new(began, BIN),
            bins: vec![(bin(began, &flow), flow)],
        }
    }

    fn see(&mut self, began: Time, flow: Flow) {
        let at = began.max(Time::from_nanos(flow.at.as_nanos() as u64));
        let bytes = arrived(&flow).saturating_sub(arrived(&self.last));
        if bytes > 0 {
            let rtt = Duration::from_nanos(flow.newest_rtt.as_nanos() as u64);
            self.meter.on_delivered(at, Bytes::new(bytes));
            self.meter.on_rtt(at, rtt);
            self.meter.on_one_way(at, at, at + rtt);
        }
        let lost = flow.lost_packets.saturating_sub(self.last.lost_packets);
        self.meter.on_lost(at, u64::from(lost));
        let bin = bin(began, &flow);
        if self.bins.last().is_some_and(|(last, _)| *last == bin) {
            self.bins.pop();
        }
        self.bins.push((bin, flow));
        self.last = flow;
    }

    /// The part of a count that belongs to the trace: the flow may be older.
    fn since(&self, count: fn(&Flow) -> u32) -> u64 {
        u64::from(count(&self.last).saturating_sub(count(&self.first)))
    }

    fn path_flow(&self) -> PathFlow<'_> {
        PathFlow {
            meter: &self.meter,
            distinct: Bytes::new(self.last.acked_bytes - self.first.acked_bytes),
            sent: self.since(|flow| flow.sent_packets),
            lost: self.since(|flow| flow.lost_packets),
            retransmitted: self.since(|flow| flow.resent_packets),
            rtt_mean_ms: self.meter.rtt_mean_ms(),
            rtt_p95_ms: self.meter.rtt_quantile_ms(0.95),
        }
    }

    fn series(&self, run: usize, index: usize) -> impl Iterator<Item = Value> + '_ {
        self.bins.iter().map(move |(bin, flow)| {
            let bin_totals = self.meter.bins().get(*bin).copied().unwrap_or_default();
            let row = value(&SeriesRow {
                run,
                flow: index,
                time_s: *bin as f64 * BIN.as_secs_f64(),
                capacity_mbps: None,
                throughput_mbps: self.meter.bin_throughput_mbps(&bin_totals),
                qdelay_ms: self.meter.bin_delay_ms(&bin_totals),
                rtt_ms: bin_totals.rtt_mean_ms(),
                window_bytes: Some(flow.window_bytes as f64),
                lost: bin_totals.lost,
            });
            joined([row, law_columns(flow)])
        })
    }
}

/// Columns of the law's state, named as its series in a simulation.
fn law_columns(flow: &Flow) -> Value {
    json!({
        "pacing_mbps": mbps(flow.pace_bps),
        "delay_min_ms": ms(flow.base),
        "in_flight_packets": flow.in_flight_packets,
        "rate_mbps": mbps(flow.rate_bps),
        "queue_ms": ms(flow.queue),
        "target_ms": ms(flow.target),
        "loss_share": flow.loss_share,
    })
}

/// Index of the bin, counted from `began`, in which the flow was read.
fn bin(began: Time, flow: &Flow) -> usize {
    let since = Time::from_nanos(flow.at.as_nanos() as u64).since(began);
    (since.as_nanos() / BIN.as_nanos()) as usize
}

/// A row for each congestion control, and its flows' time series.
fn contents(traces: &[Trace], interval: Duration) -> Contents {
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy();
    let mut contents = Contents::default();
    let mut runs = Vec::new();
    for (run, trace) in traces.iter().enumerate() {
        let row = row(trace, &host, interval);
        let identity = json!({
            "run": run, "trace": row.trace, "queue": row.queue, "label": trace.label(), "seed": row.seed,
        });
        for (index, flow) in trace.flows.iter().enumerate() {
            let series = flow.series(run, index);
            contents
                .series
                .extend(series.map(|row| joined([identity.clone(), row])));
        }
        runs.push(json!({
            "trace": row.trace, "queue": row.queue, "scheme": row.per_flow[0].scheme, "label": trace.label(),
            "scenario": {
                "flows": row.flows, "packet_bytes": row.packet_bytes, "seed": row.seed, "duration_s": row.duration_s,
            },
            "flows": trace.flows.iter().map(|flow| json!({
                "local": flow.last.local.to_string(), "remote": flow.last.remote.to_string(),
            })).collect::<Vec<_>>(),
        }));
        let no_trace = json!({"part": "", "trace_sha256": null});
        contents
            .rows
            .push(joined([identity.clone(), no_trace, value(&row)]));
    }
    contents.run = json!({
        "kind": "probe",
        "settings": {"host": host, "duration_s": interval.as_secs_f64()},
        "seeds": [0],
        "channels": [{
            "name": host, "kind": "live", "sha256": null, "duration_s": interval.as_secs_f64(),
            "mean_mbps": null, "licence": null, "citation": null, "source": null,
        }],
        "runs": runs,
    });
    contents
}

fn row(trace: &Trace, host: &str, interval: Duration) -> Row {
    let config = &trace.loaded.config;
    let path_flows: Vec<PathFlow<'_>> = trace.flows.iter().map(Traced::path_flow).collect();
    let scheme = format!("kernel:{}", config.words());
    let each = trace.flows.iter().zip(&path_flows).enumerate();
    let per_flow = each.map(|(index, (flow, path_flow))| FlowRow {
        flow: index,
        scheme: scheme.clone(),
        metrics: path_flow.metrics(Some(interval)),
        sent: path_flow.sent,
        lost: path_flow.lost,
        timeouts: flow.since(|flow| flow.timeouts),
        delivered_bytes: path_flow.distinct.get(),
    });
    Row {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        engine: "real",
        transport: "tcp",
        trace: host.to_owned(),
        scheme: "kernel".to_owned(),
        params: json!({"law": LAW, "budget_ms": config.budget_ms}),
        queue: "path",
        ack: "path",
        flows: trace.flows.len(),
        packet_bytes: trace.flows[0].last.packet_bytes as u16,
        seed: 0,
        duration_s: interval.as_secs_f64(),
        cut: false,
        server_limit_mbps: None,
        delay_ms: None,
        capacity_mbps: None,
        utilization: None,
        signal_delay_p95_ms: None,
        path_loss_rate: None,
        responsiveness: Responsiveness::default(),
        totals: PathTotals::of(&path_flows, Some(interval)),
        per_flow: per_flow.collect(),
    }
}
