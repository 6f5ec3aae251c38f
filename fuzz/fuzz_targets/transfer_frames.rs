//! Messages of a file transfer.
#![no_main]

#[path = "../checks/transfer_frames.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
