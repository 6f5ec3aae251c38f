//! Packets of the probe.
#![no_main]

#[path = "../checks/probe_wire.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
