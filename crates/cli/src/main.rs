//! `verus-endpoint`, with the algorithms and queues of this repository alone. `examples/own-command` builds it with others.

use std::process::ExitCode;

fn main() -> ExitCode {
    verus_cli::main_with(Default::default(), Default::default())
}
