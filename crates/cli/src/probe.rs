//! `probe`: the paper's sender and receiver over UDP.

mod client;
mod contents;
mod recording;
mod server;
mod table;

use std::path::Path;

use crate::failure::Failure;
use crate::ui::Ui;

/// Measure a path, under any of the controllers: what iperf3 is to TCP.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    end: End,
}

#[derive(clap::Subcommand)]
enum End {
    Server(server::Args),
    Client(Box<client::Args>),
}

/// Runs the verb.
///
/// # Errors
/// If it did not end well.
pub fn run(args: Args, ui: &Ui) -> Result<(), Failure> {
    match args.end {
        End::Server(args) => server::run(&args, ui),
        End::Client(args) => client::run(&args, ui),
    }
}

/// The pre-shared key in `path`, if one is given: the file's bytes without white space around them.
fn read_key(path: Option<&Path>) -> Result<Option<Vec<u8>>, Failure> {
    /// Shorter ones can be guessed.
    const SHORTEST: usize = 8;
    let Some(path) = path else {
        return Ok(None);
    };
    let bytes = std::fs::read(path)
        .map_err(|error| Failure::usage(format_args!("key file `{}`: {error}", path.display())))?;
    let key = bytes.trim_ascii();
    if key.len() < SHORTEST {
        return Err(Failure::usage(format_args!(
            "key file `{}`: a key has at least {SHORTEST} bytes",
            path.display()
        )));
    }
    Ok(Some(key.to_vec()))
}

/// Random bytes that nobody can guess.
fn entropy() -> Result<[u8; 32], Failure> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::run(format_args!("no random numbers: {error}")))?;
    Ok(bytes)
}
