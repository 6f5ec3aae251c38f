//! Raw arrival logs.
#![no_main]

#[path = "../checks/raw_log.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
