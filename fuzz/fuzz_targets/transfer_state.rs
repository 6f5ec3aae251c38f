//! Both ends of a file transfer, in any order of messages.
#![no_main]

#[path = "../checks/transfer_state.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
