//! The tests of verus-probe from outside. One program: each further one would link the crate again, and wait by itself.
//! `hostile_probe` is another, since the memory that it measures is a process's.

mod corpus;
mod faults_probe;
mod faults_realtime;
mod hosts;
mod probe;
mod probe_common;
mod probe_loopback;
mod probe_wire;
mod qlog;
mod recording;
mod wire_format;
