//! Measurements of the traffic on the link while the program ran.

use std::io;
use std::path::Path;

use serde_json::{Value, json};
use verus_channel::path::{self, Dropped, Why};
use verus_core::{Bytes, Duration, Time};
use verus_emu::emulator::{Emulator, Way};
use verus_emu::log::LinkLog;
use verus_emu::packet::Packet;
use verus_measure::{Meter, Metrics};

use super::captured::{LinkCapture, LinkTap};
use super::privilege::Standing;
use super::{Args, DirectionSettings};
use crate::draft::DraftFile;
use crate::failure::Failure;
use crate::folder::{self, Contents};
use crate::table::{aligned, number, percent};

/// Time series, as of simulated runs.
const BIN: Duration = Duration::from_millis(100);

/// Measures both directions, and logs them if requested.
#[derive(Debug)]
pub struct Watch {
    /// Packets from the program, and to it.
    pub directions: [Measured; 2],
    capture: Option<LinkCapture>,
}

/// Measures one direction, whose packets are one flow, and perhaps logs it.
#[derive(Debug)]
pub struct Measured {
    meter: Meter,
    log: Option<Log>,
    tap: Option<LinkTap>,
}

/// A log, and the file that it is in.
#[derive(Debug)]
pub struct Log {
    /// The log.
    pub log: LinkLog,
    /// The file.
    pub draft: DraftFile,
}

impl Log {
    /// Publishes the complete log under its name, or nothing.
    fn finish(self, end: Time) -> io::Result<()> {
        self.log.finish(end)?;
        self.draft.publish()
    }
}

impl Watch {
    /// New meters.
    pub fn new(logs: [Option<Log>; 2], capture: Option<LinkCapture>) -> Self {
        let [up, down] = logs;
        let directions = [(up, Way::Forth), (down, Way::Back)];
        Watch {
            directions: directions.map(|(log, way)| Measured {
                meter: Meter::new(1, &[], BIN),
                log,
                tap: capture.as_ref().map(|capture| LinkTap::new(capture, way)),
            }),
            capture,
        }
    }

    /// The results. `drops` are packets that the kernel's devices dropped.
    pub fn finish(
        self,
        emulator: &Emulator,
        settings: &[DirectionSettings; 2],
        drops: u64,
        standing: &Standing,
    ) -> Summary {
        let elapsed = emulator.elapsed().unwrap_or_default();
        let end = Time::ZERO + elapsed;
        let mut logs = Ok(());
        let mut runs = Vec::new();
        let named = [Way::Forth, Way::Back].into_iter().zip(settings);
        for (Measured { meter, log, tap }, (way, settings)) in
            self.directions.into_iter().zip(named)
        {
            drop(tap);
            let finish = |log: Log| standing.as_caller(|| log.finish(end)).and_then(|done| done);
            if let Some(Err(error)) = log.map(finish) {
                let named = format!("--log-{}: {error}", settings.name);
                logs = Err(io::Error::new(error.kind(), named));
            }
            let capacity = |from, to| emulator.capacity(way, from, to);
            let metrics = meter.finish(end, |from, to| capacity(from, to).unwrap_or(Bytes::ZERO));
            let bins = elapsed.as_nanos().div_ceil(BIN.as_nanos());
            let capacity_mbps = (0..bins).map(|bin| {
                let from = Time::ZERO + BIN * bin;
                Some((capacity(from, from + BIN)? / BIN).as_mbps())
            });
            runs.push(Run {
                limited: settings.path.link.is_some(),
                way: settings.name,
                metrics,
                capacity_mbps: capacity_mbps.collect(),
            });
        }
        let finish = |capture: LinkCapture| {
            standing
                .as_caller(|| capture.finish())
                .and_then(|done| done)
        };
        if let Some(Err(error)) = self.capture.map(finish) {
            logs = Err(io::Error::new(error.kind(), format!("--pcap: {error}")));
        }
        let timing = emulator.timing();
        let late = |q| timing.lateness.value_at_quantile(q) as f64 / 1e3;
        Summary {
            runs,
            timing: Timing {
                deliveries: timing.lateness.len(),
                lateness_p50_ms: late(0.5),
                lateness_p99_ms: late(0.99),
                lateness_max_ms: timing.lateness.max() as f64 / 1e3,
                missed_bytes: timing.missed_bytes,
                device_losses: timing.device_losses + drops,
                duration_s: elapsed.as_secs_f64(),
            },
            logs,
        }
    }
}

impl path::Watch<Packet> for Measured {
    #[inline]
    fn on_entered(&mut self, now: Time, size: Bytes, packet: &Packet) {
        self.meter.on_arrival(now, 0, size);
        if let Some(log) = &mut self.log {
            log.log.on_arrival(now, size);
        }
        if let Some(tap) = &self.tap {
            tap.on_entered(now, size, packet);
        }
    }

    #[inline]
    fn on_left(&mut self, now: Time, size: Bytes, entered: Time, packet: &Packet) {
        self.meter.on_departure(now, 0, size, entered);
        if let Some(log) = &mut self.log {
            log.log.on_departure(now, size, entered);
        }
        if let Some(tap) = &self.tap {
            tap.on_left(now, packet);
        }
    }

    #[inline]
    fn on_dropped(&mut self, now: Time, size: Bytes, packet: &Packet, dropped: Dropped) {
        match dropped.why {
            Why::Chance => self.meter.on_path_loss(0, size),
            Why::Refused | Why::Waited => self.meter.on_drop(0, size),
            // In the log it has left the link, which it used.
            Why::Corrupted => return self.meter.on_corrupted(0),
        }
        if let Some(log) = &mut self.log {
            log.log.on_drop(now, size);
        }
        if let Some(tap) = &self.tap {
            tap.on_dropped(now, packet, dropped.why);
        }
    }
}

/// One direction's results.
#[derive(Debug)]
pub struct Run {
    way: &'static str,
    /// Whether there was a link, and so a capacity.
    limited: bool,
    metrics: Metrics,
    capacity_mbps: Vec<Option<f64>>,
}

/// How well the emulator kept its time.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Packets delivered.
    pub deliveries: u64,
    /// Median lateness of deliveries, ms.
    pub lateness_p50_ms: f64,
    /// The 99th percentile.
    pub lateness_p99_ms: f64,
    /// The largest.
    pub lateness_max_ms: f64,
    /// Bytes of opportunities that passed unused while packets may have waited to be read.
    pub missed_bytes: u64,
    /// Packets lost by devices rather than by the queue.
    pub device_losses: u64,
    /// How long the path was up, s.
    pub duration_s: f64,
}

/// The results of both directions.
#[derive(Debug)]
pub struct Summary {
    /// The directions from the program and to it.
    pub runs: Vec<Run>,
    /// The emulator's own error.
    pub timing: Timing,
    /// Whether the logs could be written.
    pub logs: io::Result<()>,
}

impl Summary {
    /// Lines for the terminal.
    pub fn table(&self) -> Vec<String> {
        let heading = ["link", "Mbit/s", "of it", "queue ms", "p95", "lost"];
        let mut lines = vec![heading.map(str::to_owned)];
        for run in self.runs.iter().rev() {
            let metrics = &run.metrics;
            lines.push([
                run.way.to_owned(),
                number(Some(metrics.throughput_mbps), 3),
                percent(metrics.utilization.filter(|_| run.limited)),
                number(metrics.qdelay_mean_ms, 1),
                number(metrics.qdelay_p95_ms, 1),
                percent(metrics.loss_rate),
            ]);
        }
        let timing = &self.timing;
        let mut table = aligned(&lines);
        table.push(format!(
            "deliveries late: p50 {:.3}, p99 {:.3}, largest {:.3} ms; devices lost {} packets; at most {} bytes lost to late reading",
            timing.lateness_p50_ms,
            timing.lateness_p99_ms,
            timing.lateness_max_ms,
            timing.device_losses,
            timing.missed_bytes,
        ));
        table
    }
}

/// Writes the folder for `verus report`.
pub fn write(
    out: &Path,
    args: &Args,
    settings: &[DirectionSettings; 2],
    runs: &[Run],
    timing: &Timing,
) -> Result<(), Failure> {
    let label = label(args);
    let mut contents = Contents::default();
    let (mut channels, mut configured) = (Vec::new(), Vec::new());
    for (index, (run, settings)) in runs.iter().zip(settings).enumerate() {
        let channel = settings.channel.as_deref().unwrap_or("no limit");
        let trace = format!("{channel} ({})", settings.name);
        let identity = json!({
            "run": index, "trace": trace, "queue": settings.queue, "label": label, "seed": args.seed,
        });
        contents.rows.push(folder::joined([
            identity.clone(),
            row(args, settings, run, timing),
        ]));
        contents
            .series
            .extend(series(run).map(|row| folder::joined([identity.clone(), row])));
        channels.push(json!({
            "name": trace, "kind": "emulated", "sha256": settings.sha256, "duration_s": timing.duration_s,
            "mean_mbps": run.limited.then_some(run.metrics.capacity_mbps),
            "licence": null, "citation": null, "source": null,
        }));
        configured.push(json!({
            "trace": trace, "queue": settings.queue, "scheme": label, "label": label,
            "scenario": {"flows": 1, "packet_bytes": args.mtu, "seed": args.seed, "duration_s": timing.duration_s},
        }));
    }
    let settings = json!({
        // Without its arguments: a password may be among them, and results may be shared.
        "command": args.command.first().map(|word| word.to_string_lossy()),
        "down": args.down, "up": args.up, "delay_ms": args.delay_ms,
        "queue": settings[1].queue, "up_queue": settings[0].queue,
        "up_delay_ms": args.up_delay_ms, "once": args.once,
        "delay_series": args.delay_series, "light_timer_ms": args.light_timer_ms,
        "opportunity_bytes": args.opportunity_bytes, "mtu": args.mtu, "seed": args.seed,
    });
    contents.run = json!({
        "kind": "shell",
        "settings": folder::joined([settings, args.fields.settings()]),
        // The digest of the guest kernel on virtual time.
        "kernel_sha256": args.in_guest,
        "seeds": [args.seed],
        "channels": channels,
        "runs": configured,
        "timing": {
            "deliveries": timing.deliveries,
            "lateness_p50_ms": timing.lateness_p50_ms,
            "lateness_p99_ms": timing.lateness_p99_ms,
            "lateness_max_ms": timing.lateness_max_ms,
            "missed_bytes": timing.missed_bytes,
            "device_losses": timing.device_losses,
            "valid": args.max_lateness_ms.map(|bound| timing.lateness_p99_ms <= bound),
        },
    });
    folder::write("--out", out, &contents)
}

/// The program's name.
fn label(args: &Args) -> String {
    args.command.first().map_or_else(
        || "shell".to_owned(),
        |program| {
            let name = Path::new(program).file_name().unwrap_or(program);
            name.to_string_lossy().into_owned()
        },
    )
}

fn row(args: &Args, settings: &DirectionSettings, run: &Run, timing: &Timing) -> Value {
    let metrics = &run.metrics;
    let limited = |value: f64| run.limited.then_some(value);
    let flow = &metrics.per_flow[0];
    let identity = json!({
        "part": "", "trace_sha256": settings.sha256, "schema": verus_probe::results::SCHEMA,
        "version": env!("CARGO_PKG_VERSION"), "engine": "emulated", "transport": "any",
        "scheme": label(args), "params": {}, "ack": "path", "flows": 1, "packet_bytes": args.mtu,
        "duration_s": timing.duration_s, "delay_ms": args.delay_ms,
    });
    let on_link = json!({
        "capacity_mbps": limited(metrics.capacity_mbps),
        "throughput_mbps": metrics.throughput_mbps,
        "utilization": metrics.utilization.filter(|_| run.limited),
        "qdelay_mean_ms": metrics.qdelay_mean_ms, "qdelay_p50_ms": metrics.qdelay_p50_ms,
        "qdelay_p95_ms": metrics.qdelay_p95_ms, "qdelay_p99_ms": metrics.qdelay_p99_ms,
        "signal_delay_p95_ms": metrics.signal_delay_p95_ms, "loss_rate": metrics.loss_rate,
        "path_loss_rate": metrics.path_loss_rate,
        "jain": metrics.jain, "jain_active": metrics.jain_active,
        "flow_min_mbps": metrics.flow_min_mbps, "flow_max_mbps": metrics.flow_max_mbps,
    });
    // Measurements that only the ends can make.
    let at_ends = json!({
        "goodput_mbps": null, "rtt_mean_ms": null, "rtt_p95_ms": null, "retransmit_rate": null, "power": null,
    });
    let flow = json!({
        "flow": 0, "scheme": label(args), "throughput_mbps": flow.throughput_mbps,
        "goodput_mbps": null, "qdelay_mean_ms": flow.qdelay_mean_ms,
        "qdelay_p50_ms": flow.qdelay_p50_ms, "qdelay_p95_ms": flow.qdelay_p95_ms,
        "qdelay_p99_ms": flow.qdelay_p99_ms, "rtt_mean_ms": null, "rtt_p95_ms": null,
        "loss_rate": flow.loss_rate, "path_loss_rate": flow.path_loss_rate, "retransmit_rate": null,
    });
    folder::joined([identity, on_link, at_ends, json!({"per_flow": [flow]})])
}

fn series(run: &Run) -> impl Iterator<Item = Value> + '_ {
    let flow = &run.metrics.series[0];
    run.capacity_mbps.iter().enumerate().map(|(bin, capacity)| {
        json!({
            "flow": 0, "time_s": bin as f64 * BIN.as_secs_f64(), "capacity_mbps": capacity,
            "throughput_mbps": flow.throughput_mbps.get(bin).copied().unwrap_or(0.0),
            "qdelay_ms": flow.qdelay_mean_ms.get(bin).copied().flatten(),
            "rtt_ms": null, "window_bytes": null, "lost": null,
        })
    })
}
