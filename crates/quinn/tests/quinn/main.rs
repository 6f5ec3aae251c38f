//! The tests of verus-quinn from outside. One program: each further one would link the crate again, and wait by itself.

mod faults_quic;
mod faults_realtime;
#[cfg(feature = "qlog")]
mod qlog;
mod quic_common;
mod quic_ecn;
mod quic_loopback;
mod quic_small_files;
mod quic_upstream;
mod quic_virtual;
mod quic_wire;
