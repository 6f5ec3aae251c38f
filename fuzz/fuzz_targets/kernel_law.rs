//! `forward` in C, as Linux runs it, beside the core's.
#![no_main]

#[path = "../checks/kernel_law.rs"]
mod check;
#[path = "../../crates/kernel/tests/kernel/law.rs"]
mod law;
#[path = "../../crates/kernel/tests/kernel/program.rs"]
mod program;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
