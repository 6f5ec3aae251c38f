//! Delivery-opportunity traces: plain, gzip and xz.
#![no_main]

#[path = "../checks/trace.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
