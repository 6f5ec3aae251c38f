//! `verus-endpoint`, with the algorithms of `verus-core` alone. `examples/own-command` builds it with another.

use std::process::ExitCode;

use verus_core::algorithm::Registry;

fn main() -> ExitCode {
    verus_cli::main_with(Registry::default())
}
