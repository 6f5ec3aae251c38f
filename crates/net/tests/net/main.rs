//! The tests of verus-net from outside. One program: each further one would link the crate again, and wait by itself.
//! `hostile_probe` is another, since the memory that it measures is a process's.

mod capture;
mod corpus;
mod faults_probe;
mod faults_quic;
mod faults_realtime;
mod probe;
mod probe_common;
mod probe_loopback;
mod probe_wire;
mod qlog;
mod quic_common;
mod quic_ecn;
mod quic_loopback;
mod quic_small_files;
mod quic_upstream;
mod quic_virtual;
mod quic_wire;
mod recording;
mod transfer_access;
mod transfer_common;
mod transfer_files;
mod transfer_hostile;
mod wire_format;
