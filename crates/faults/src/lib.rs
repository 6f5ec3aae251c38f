//! Seeded faults between two ends: a development tool for tests and benchmarks of senders.
//!
//! - [`Schedule`]: faults and their times, as plain data, made by hand or from a seed.
//! - [`Path`]: one direction of a faulty path without a clock, for ends without sockets. It may
//!   contain a bottleneck ([`Bottleneck`]), whose queueing delay it measures.
//! - [`world`]: two ends without sockets on a virtual clock, with such paths between them.
//!   [`campaign`]: hundreds of them.
//! - [`liar`]: a receiver that lies. [`Link`]: the link under it. [`bound`]: limits on its effect
//!   on each controller. [`trial`]: the check of these limits.
//! - [`Proxy`]: both directions in real time, between UDP sockets on this machine.
//! - [`realtime`]: ten schedules that run at once over real sockets. [`capture`]: packets captured
//!   by the kernel. [`qlog`]: a log as a test reads it. [`taught`]: a model for the controller that
//!   has no default.
//! - [`machine::watch`]: whether the machine had time for a test in real time.
//!   [`machine::Steal`]: the share of its time that others took.
//!
//! A schedule has the same meaning in both; only the clock differs.

pub mod bound;
pub mod campaign;
pub mod capture;
pub mod liar;
pub mod link;
pub mod machine;
pub mod path;
pub mod proxy;
pub mod qlog;
pub mod realtime;
pub mod schedule;
pub mod spread;
pub mod taught;
pub mod trial;
pub mod world;

pub use link::Link;
pub use path::{Bottleneck, Datagram, Path, PathStats};
pub use proxy::{Proxy, ProxyConfig, ProxyError, ProxyStats};
pub use schedule::{Direction, End, Faults, Interval, Limits, Schedule, Stop};
pub use spread::{Spread, Spreading};
