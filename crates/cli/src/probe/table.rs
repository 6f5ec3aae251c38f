//! What a person sees of a test.

use verus_measure::PathMetrics;
use verus_net::probe::results::{Direction, Row};

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

fn cells(name: String, metrics: &PathMetrics) -> [String; HEADINGS.len()] {
    [
        name,
        number(Some(metrics.throughput_mbps), 2),
        number(Some(metrics.goodput_mbps), 2),
        number(metrics.rtt_mean_ms, 1),
        number(metrics.rtt_p95_ms, 1),
        number(metrics.qdelay_mean_ms, 1),
        number(metrics.qdelay_p95_ms, 1),
        percent(metrics.loss_rate),
    ]
}
