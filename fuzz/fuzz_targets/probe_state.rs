//! Both ends of the probe, in any order of packets and times.
#![no_main]

#[path = "../checks/probe_state.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
