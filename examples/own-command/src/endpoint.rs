//! `verus-endpoint` with an algorithm and a queue more.

use std::process::ExitCode;

mod ebb;
mod tide;

fn main() -> ExitCode {
    verus_cli::main_with(tide::registry(), ebb::registry())
}
