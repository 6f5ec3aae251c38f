//! Model files: transition matrices.
#![no_main]

#[path = "../checks/model.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
