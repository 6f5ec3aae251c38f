//! Captures of packets: written of simulated links, and read to learn about a path.
//!
//! [`mod@write`] and [`record`] write pcapng (draft-ietf-opsawg-pcapng) with a capture point on each side of the bottleneck.
//! [`simulated`] gives the simulator's packets real headers ([`headers`]). [`read`] and [`dissect`] take captures of any program, and
//! [`analysis`] reports their flows; [`iperf3`] does the same with iperf3's intervals.

pub mod analysis;
pub mod dissect;
pub mod flow;
pub mod headers;
pub mod iperf3;
pub mod read;
pub mod record;
pub mod simulated;
pub mod write;
