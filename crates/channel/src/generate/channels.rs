//! The built-in channels, as data: `fits.tsv` has what the recordings give, a row each, made by the `calibrate` example;
//! `channels.tsv` has the channels, a row each.
//!
//! A recorded scenario takes one recording's whole fit. The others join parts of two recordings, at
//! their own mean rate. Movement and obstacles decide the slow part ([`super::Radio`]), the
//! technology decides the fast part ([`super::Scheduler`]).
//!
//! Sources of the recordings, by folder: `verus-2015`, the Verus authors' (Zaki et al., SIGCOMM
//! 2015; technology not stated; 2 to 5 Mbit/s taken as 3G, 16 to 18 as LTE); `mahimahi`, Winstein
//! et al. (NSDI 2013), distributed with Mahimahi; `cs244-2017`, Mahimahi's AT&T LTE recording of
//! 2016 as used by the CS244 reproduction; `nyc-2018`, C2TCP's, and `nyc-2019`, Orca's recordings
//! in New York City (Abbasloo et al.). The recorded figures (`seen_…`) are facts about those files.

use std::sync::LazyLock;

use super::{BuiltInChannel, Figures, FittedRecording, Model, Radio, Scheduler, Swing};

/// The built-in channels: the seven mobility scenarios of the paper's §5.3, 3G and LTE, both
/// directions.
pub static CHANNELS: LazyLock<Vec<BuiltInChannel>> =
    LazyLock::new(|| rows(include_str!("channels.tsv")).map(channel).collect());

/// The fits of the recordings.
static FITS: LazyLock<Vec<Fit>> =
    LazyLock::new(|| rows(include_str!("fits.tsv")).map(fit).collect());

/// A recording and the parameters that reproduce it.
struct Fit {
    name: &'static str,
    recording: FittedRecording,
    model: Model,
}

/// The cells of each row below the headings.
fn rows(table: &'static str) -> impl Iterator<Item = Cells> {
    let rows = table.lines().skip(1);
    rows.map(|row| Cells(row.split('\t')))
}

/// The cells of a row that are still to be read.
struct Cells(std::str::Split<'static, char>);

impl Cells {
    fn text(&mut self) -> &'static str {
        self.0
            .next()
            .expect("tests read every row: none is too short")
    }

    fn number(&mut self) -> f64 {
        let text = self.text();
        text.parse()
            .unwrap_or_else(|_| panic!("`{text}` is no number; tests read every row"))
    }

    fn swing(&mut self) -> Swing {
        Swing {
            sd: self.number(),
            time_ms: self.number(),
        }
    }
}

fn fit(mut cells: Cells) -> Fit {
    let cells = &mut cells;
    Fit {
        name: cells.text(),
        recording: FittedRecording {
            name: cells.text(),
            duration_s: cells.number(),
            figures: Figures {
                mean_mbps: cells.number(),
                cv_20ms: cells.number(),
                cv_100ms: cells.number(),
                cv_1s: cells.number(),
                acf_100ms_lag1: cells.number(),
                acf_100ms_lag5: cells.number(),
                acf_100ms_lag50: cells.number(),
                outages_per_min: cells.number(),
            },
        },
        model: Model {
            mean_mbps: cells.number(),
            radio: Radio {
                fading: cells.swing(),
                shadowing: cells.swing(),
                coverage: cells.swing(),
                snr: cells.number(),
                outages_per_min: std::array::from_fn(|_| cells.number()),
                longest_outage_ms: cells.number(),
            },
            scheduler: Scheduler {
                tti_ms: cells.number() as u64,
                burst_packets: cells.number(),
                burst_spread: cells.number(),
                gap_spread: cells.number(),
                pause_share: cells.number(),
                pause_ms: cells.number(),
                elasticity: cells.number(),
            },
        },
    }
}

fn channel(mut cells: Cells) -> BuiltInChannel {
    let fit = |name: &str| -> &'static Fit {
        let row = FITS.iter().find(|fit| fit.name == name);
        row.unwrap_or_else(|| panic!("no fit `{name}`; tests read every row"))
    };
    let name = cells.text();
    let (slow, fast) = (fit(cells.text()), fit(cells.text()));
    // Without its own rate it is a recording's whole fit.
    let mean_mbps = cells.text();
    let whole = mean_mbps.is_empty();
    BuiltInChannel {
        name,
        model: Model {
            mean_mbps: if whole {
                slow.model.mean_mbps
            } else {
                mean_mbps.parse().expect("tests read every row")
            },
            radio: slow.model.radio,
            scheduler: fast.model.scheduler,
        },
        recording: whole.then_some(&slow.recording),
        basis: cells.text(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_whole_and_every_fit_is_used() {
        for table in [include_str!("channels.tsv"), include_str!("fits.tsv")] {
            let width = |row: &str| row.split('\t').count();
            let headings = width(table.lines().next().expect("headings"));
            assert!(table.lines().all(|row| width(row) == headings));
        }
        for channel in CHANNELS
            .iter()
            .filter(|channel| channel.recording.is_some())
        {
            let fit = FITS.iter().find(|fit| fit.model == channel.model);
            let recording = fit.map(|fit| fit.recording.name);
            assert_eq!(recording, channel.recording.map(|recording| recording.name));
        }
        let used = |fit: &Fit| {
            CHANNELS.iter().any(|channel| {
                channel.model.radio == fit.model.radio
                    || channel.model.scheduler == fit.model.scheduler
            })
        };
        assert!(FITS.iter().all(used));
    }
}
