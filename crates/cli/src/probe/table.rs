//! The table of a test's results.

use verus_measure::PathMetrics;
use verus_probe::results::{Direction, Row};

use crate::table::{aligned, number, percent};

const HEADINGS: [&str; 8] = [
    "", "Mbit/s", "goodput", "RTT ms", "p95", "queue ms", "p95", "lost",
];

/// The rows as the lines of a table; each flow too if there are several.
pub fn table(rows: &[(Direction, Row)]) -> Vec<String> {
    let mut lines = vec![HEADINGS.map(str::to_owned)];
    for (direction, row) in rows {
        let plural = if row.flows == 1 { "" } else { "s" };
        let name = format!("{} ({} flow{plural})", direction.name(), row.flows);
        lines.push(cells(name, &row.totals.metrics));
        if row.flows > 1 {
            let flows = row.per_flow.iter();
            lines.extend(flows.map(|flow| cells(format!("  flow {}", flow.flow), &flow.metrics)));
        }
    }
    let mut table = aligned(&lines);
    table.push(
        "queue: one-way delay above its least; a queue that never drains is not in it".to_owned(),
    );
    table
}

/// Round trips, idle and under load, and round trips per minute; nothing without echoes.
pub fn round_trips(rows: &[(Direction, Row)]) -> Vec<String> {
    // All rows of a test have the same.
    let Some((_, Row { responsiveness, .. })) = rows.first() else {
        return Vec::new();
    };
    let line = |name: &str, p50: Option<f64>, more: String| {
        p50.map(|p50| format!("{name}: {p50:.1} ms at the median{more}"))
    };
    let at = |value: Option<f64>, p: u32| {
        value.map_or_else(String::new, |value| format!(", {value:.1} ms at p{p}"))
    };
    let idle = line(
        "round trip, idle",
        responsiveness.idle_rtt_p50_ms,
        at(responsiveness.idle_rtt_p95_ms, 95),
    );
    let loaded = line(
        "round trip, loaded",
        responsiveness.loaded_rtt_p50_ms,
        at(responsiveness.loaded_rtt_p95_ms, 95) + &at(responsiveness.loaded_rtt_p99_ms, 99),
    );
    let rpm = responsiveness.rpm.map(|rpm| {
        format!(
            "RPM: {rpm:.0}, {} (ours: over Verus's UDP, not HTTP/2: 60 s / trimmed mean of loaded round trips)",
            verdict(rpm)
        )
    });
    [idle, loaded, rpm].into_iter().flatten().collect()
}

/// The words of draft-ietf-ippm-responsiveness, § Round-Trips per Minute.
fn verdict(rpm: f64) -> &'static str {
    match rpm {
        ..300.0 => "poor",
        ..1000.0 => "fair",
        ..6000.0 => "good",
        _ => "excellent",
    }
}

fn cells(name: String, metrics: &PathMetrics) -> [String; HEADINGS.len()] {
    [
        name,
        number(metrics.throughput_mbps, 2),
        number(metrics.goodput_mbps, 2),
        number(metrics.rtt_mean_ms, 1),
        number(metrics.rtt_p95_ms, 1),
        number(metrics.qdelay_mean_ms, 1),
        number(metrics.qdelay_p95_ms, 1),
        percent(metrics.loss_rate),
    ]
}
