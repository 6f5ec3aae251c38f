//! CellReplay's light traces and size offsets.
#![no_main]

#[path = "../checks/light_trace.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
