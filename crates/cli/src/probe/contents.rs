//! The files of a test's folder.

use serde_json::json;
use verus_probe::results::{Direction, Record};
use verus_probe::wire::Request;
use verus_senders::Scheme;

use crate::folder::{Contents, joined, value};

/// The settings of the test, for `run.json`.
#[derive(Debug)]
pub struct TestSettings<'a> {
    /// The server as the person named it.
    pub host: &'a str,
    /// Its address.
    pub address: String,
    /// The request.
    pub request: &'a Request,
    /// The scheme of uploads, and that of downloads.
    pub schemes: [&'a Scheme; 2],
}

impl TestSettings<'_> {
    fn scheme(&self, direction: Direction) -> &Scheme {
        match direction {
            Direction::Up => self.schemes[0],
            Direction::Down => self.schemes[1],
        }
    }
}

/// Rows, series and profiles with the run that they belong to, and the configuration.
pub fn contents(settings: &TestSettings<'_>, record: &Record) -> Contents {
    let identity = |run: usize| {
        let (direction, row) = &record.rows[run];
        let label = settings.scheme(*direction).label();
        json!({
            "run": run, "trace": row.trace, "queue": row.queue, "label": label, "seed": row.seed,
        })
    };
    let rows = record.rows.iter().enumerate().map(|(run, (_, row))| {
        let no_trace = json!({"part": "", "trace_sha256": null});
        joined([identity(run), no_trace, value(row)])
    });
    let series = record.series.iter();
    let profiles = record.profiles.iter();
    let request = settings.request;
    let (sent_s, rtt_ms): (Vec<f64>, Vec<f64>) = record.echoes.iter().copied().unzip();
    let run = json!({
        "kind": "probe",
        "settings": {
            "host": settings.host,
            "address": settings.address,
            "scheme": settings.schemes[0].text(),
            "upload_flows": request.upload_flows,
            "download_flows": request.download_flows,
            "duration_s": request.duration_nanos as f64 / 1e9,
            "bytes": request.bytes,
            "rate_mbps": request.rate_bps as f64 / 1e6,
            "packet_bytes": request.packet_bytes,
            "seed": request.seed,
        },
        "echoes": {"time_s": sent_s, "rtt_ms": rtt_ms},
        "seeds": [request.seed],
        "channels": record.rows.iter().map(|(_, row)| json!({
            "name": row.trace, "kind": "live", "sha256": null, "duration_s": row.duration_s,
            "mean_mbps": null, "licence": null, "citation": null, "source": null,
        })).collect::<Vec<_>>(),
        "runs": record.rows.iter().map(|(direction, row)| json!({
            "trace": row.trace, "queue": row.queue,
            "scheme": settings.scheme(*direction).text(), "label": settings.scheme(*direction).label(),
            "scenario": {
                "flows": row.flows, "packet_bytes": row.packet_bytes, "seed": row.seed,
                "duration_s": row.duration_s,
            },
        })).collect::<Vec<_>>(),
    });
    Contents {
        rows: rows.collect(),
        series: series
            .map(|row| joined([identity(row.run), value(row)]))
            .collect(),
        profiles: profiles
            .map(|row| joined([identity(row.run), value(row)]))
            .collect(),
        run,
        ..Contents::default()
    }
}
