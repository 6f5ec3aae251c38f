//! Mahimahi link logs.
#![no_main]

#[path = "../checks/link_log.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
