//! `verus-endpoint` with one algorithm more.

use std::process::ExitCode;

mod tide;

fn main() -> ExitCode {
    verus_cli::main_with(tide::registry())
}
