//! Every metric, from packet events: one implementation for simulator, emulator and Mahimahi logs.
//!
//! A [`Meter`] receives the events at one bottleneck and at the ends of the flows that cross it, in
//! time order, and returns [`Metrics`] at the end. It keeps sums and histograms, never packets. Its
//! memory thus does not grow with the traffic; only the time series grow, with time. [`mahimahi`]
//! feeds the same meter from a link log, and writes such logs.
//!
//! [`qlog`] records the actions of a flow's sender, packet by packet.
//!
//! It knows no clock or file, and no congestion controller by name.

mod clocks;
mod distribution;
mod ends;
mod fairness;
pub mod mahimahi;
mod meter;
mod metrics;
mod path;
pub mod qlog;
mod responsiveness;
mod signal;

pub use clocks::{Clocks, Passage};
pub use distribution::exact_quantile;
pub use ends::{EndMetrics, PathFlow, PathMetrics, PathTotals};
pub use fairness::jain;
pub use meter::{Meter, rate_series};
pub use metrics::{FlowMetrics, FlowSeries, Metrics};
pub use path::{PathBin, PathMeter};
pub use responsiveness::RoundTrips;
