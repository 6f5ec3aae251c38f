//! `kernel status`: the loaded congestion controls, and measurements of their flows.

use std::time::Duration;

use serde_json::{Value, json};
use verus_kernel::{Connection, Flow, Loaded, Reader};

use super::failure_of;
use crate::failure::Failure;
use crate::metrics::{self, BySender};
use crate::table;
use crate::ui::Ui;

#[derive(clap::Args)]
pub struct Args {
    /// Show it again every second, until Ctrl-C.
    #[arg(long)]
    watch: bool,
    /// Print JSON; with --watch an object a line.
    #[arg(long)]
    json: bool,
    /// Print measurements by sender for Prometheus (OpenMetrics), those of other TCP senders included.
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    openmetrics: bool,
}

/// Shows the status.
pub fn run(args: &Args, ui: &Ui) -> Result<(), Failure> {
    if args.openmetrics {
        let connections = verus_kernel::connections().map_err(|error| failure_of(&error))?;
        let page = by_sender(&read()?, &connections).openmetrics();
        return page.lines().try_for_each(|line| ui.line(line));
    }
    loop {
        let all = read()?;
        if args.json {
            ui.json(&json!({"schema": 1, "loaded": all.iter().map(as_json).collect::<Vec<_>>()}))?;
        } else {
            for line in as_lines(&all) {
                ui.line(line)?;
            }
        }
        if !args.watch {
            return Ok(());
        }
        if !args.json {
            ui.line("")?;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// The loaded congestion controls, each with its flows in this network namespace.
fn read() -> Result<Vec<(Loaded, Vec<Flow>)>, Failure> {
    let loaded = verus_kernel::list().map_err(|error| failure_of(&error))?;
    let mut all = Vec::new();
    for one in loaded {
        match Reader::new(&one).and_then(|reader| reader.read()) {
            Ok(mut flows) => {
                flows.sort_by_key(|flow| (flow.local, flow.remote));
                all.push((one, flows));
            }
            // An unloaded one disappears with its last flow, perhaps just now.
            Err(_) if !one.registered => {}
            Err(error) => return Err(failure_of(&error)),
        }
    }
    Ok(all)
}

/// Measurements by sender: TCP's own by the same method for every sender, and the estimates of
/// loaded laws.
fn by_sender(loaded: &[(Loaded, Vec<Flow>)], connections: &[Connection]) -> BySender {
    let mut all = BySender::default();
    let seconds = |span: Duration| span.as_secs_f64();
    for (one, flows) in loaded {
        let name = &one.config.name;
        all.begun(name, one.begun);
        for flow in flows.iter().filter(|flow| !flow.base.is_zero()) {
            let estimates = metrics::FlowMetrics {
                queueing_delay_s: Some(seconds(flow.queue)),
                target_s: Some(seconds(flow.target)),
                ..metrics::FlowMetrics::default()
            };
            all.add_estimates(name, estimates);
        }
    }
    let is_law = |name: &str| loaded.iter().any(|(one, _)| one.config.name == name);
    for connection in connections {
        let queue = || {
            let least_rtt = connection
                .least_rtt
                .filter(|_| !is_law(&connection.sender))?;
            Some(connection.smoothed_rtt?.saturating_sub(least_rtt))
        };
        let measured = metrics::FlowMetrics {
            window_bytes: Some(connection.window_bytes as f64),
            round_trip_s: connection.smoothed_rtt.map(seconds),
            queueing_delay_s: queue().map(seconds),
            delivery_rate: connection.delivery_rate.map(|rate| rate as f64),
            ..metrics::FlowMetrics::default()
        };
        let (lost, sent) = (connection.lost_packets, connection.sent_packets);
        all.add(
            &connection.sender,
            measured.with_lost(lost.into(), sent.into()),
        );
    }
    all
}

/// Converts bit/s to Mbit/s.
pub fn mbps(bits: u64) -> f64 {
    bits as f64 / 1e6
}

/// Converts to milliseconds.
pub fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

/// Flows that it carries, in all network namespaces.
pub fn running(one: &Loaded) -> u64 {
    one.begun.saturating_sub(one.ended)
}

fn as_json((one, flows): &(Loaded, Vec<Flow>)) -> Value {
    json!({
        "name": one.config.name,
        "law": verus_kernel::LAW,
        "settings": {"budget_ms": one.config.budget_ms},
        "registered": one.registered,
        "flows_begun": one.begun,
        "flows_running": running(one),
        "cpu_per_ack_ns": one.per_ack.map(|span| span.as_nanos() as u64),
        "flows": flows.iter().map(|flow| json!({
            "local": flow.local.to_string(),
            "remote": flow.remote.to_string(),
            "phase": flow.phase,
            "rate_mbps": mbps(flow.rate_bps),
            "pace_mbps": mbps(flow.pace_bps),
            "window_bytes": flow.window_bytes,
            "delay_min_ms": ms(flow.base),
            "queue_ms": ms(flow.queue),
            "target_ms": ms(flow.target),
            "rtt_ms": ms(flow.smoothed_rtt),
            "packet_bytes": flow.packet_bytes,
            "in_flight_packets": flow.in_flight_packets,
            "acked_bytes": flow.acked_bytes,
            "lost_packets": flow.lost_packets,
            "loss_share": flow.loss_share,
            "timeouts": flow.timeouts,
        })).collect::<Vec<_>>(),
    })
}

fn as_lines(all: &[(Loaded, Vec<Flow>)]) -> Vec<String> {
    if all.is_empty() {
        return vec!["nothing is loaded (`verus kernel load forward`)".to_owned()];
    }
    let mut lines = Vec::new();
    for (one, flows) in all {
        let unloaded = if one.registered { "" } else { ", unloaded" };
        lines.push(format!(
            "{}: {}{unloaded}; {} flows, {} here",
            one.config.name,
            one.config.words().replacen(':', ", ", 1),
            running(one),
            flows.len(),
        ));
        if flows.is_empty() {
            continue;
        }
        let head = [
            "  flow",
            "",
            "rate Mbit/s",
            "D ms",
            "Q ms",
            "q ms",
            "window kB",
            "lost",
        ];
        let mut rows = vec![head.map(str::to_owned)];
        rows.extend(flows.iter().map(|flow| {
            [
                format!("  {} → {}", flow.local, flow.remote),
                flow.phase.to_owned(),
                format!("{:.2}", mbps(flow.rate_bps)),
                format!("{:.1}", ms(flow.base)),
                format!("{:.1}", ms(flow.queue)),
                format!("{:.1}", ms(flow.target)),
                format!("{:.1}", flow.window_bytes as f64 / 1e3),
                flow.lost_packets.to_string(),
            ]
        }));
        lines.extend(table::aligned(&rows));
    }
    lines
}
