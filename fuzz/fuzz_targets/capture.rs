//! Captures, and the JSON of iperf3.
#![no_main]

#[path = "../checks/capture.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
