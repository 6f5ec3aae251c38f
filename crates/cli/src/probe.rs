//! `probe`: the paper's sender and receiver over UDP.

mod captured;
mod client;
mod contents;
mod packet_log;
mod record_channel;
mod server;
mod session;
mod shortfall;
mod table;

use std::fmt::Display;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use verus_probe::seal::Secret;

use crate::failure::Failure;
use crate::ui::Ui;

/// Measure a path under load, as iperf3 does for TCP, with any of the controllers.
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
pub fn run(args: Args, ui: &Ui) -> Result<(), Failure> {
    match args.end {
        End::Server(args) => server::run(&args, ui),
        End::Client(args) => match &args.record {
            Some(target) => record_channel::run(&args, target, ui),
            None => client::run(&args, ui),
        },
    }
}

/// The pre-shared key in `path`, if one is given: the file's bytes without white space around them, stretched.
fn read_key(path: Option<&Path>) -> Result<Option<Secret>, Failure> {
    /// A shorter key can be guessed, even if stretched: twelve random letters are 56 bits.
    const SHORTEST: usize = 12;
    /// No key is longer: a longer file is a device, or the wrong file.
    const LONGEST: u64 = 4096;
    let Some(path) = path else {
        return Ok(None);
    };
    let wrong =
        |what: &dyn Display| Failure::usage(format_args!("key file `{}`: {what}", path.display()));
    // Opening a pipe would otherwise wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(CWD, path, flags, Mode::empty()).map_err(|error| wrong(&error))?;
    let file = File::from(file);
    // Checks the open file: its name may lead to another one a moment later.
    let metadata = file.metadata().map_err(|error| wrong(&error))?;
    if !metadata.is_file() {
        return Err(wrong(&"it is not a file"));
    }
    let (mode, owner) = (metadata.mode() & 0o7777, metadata.uid());
    if mode & 0o077 != 0 {
        return Err(wrong(&format_args!(
            "others than its owner can use it (mode {mode:04o}); `chmod 600` it"
        )));
    }
    let our_uid = rustix::process::geteuid().as_raw();
    if owner != our_uid && owner != 0 {
        return Err(wrong(&format_args!(
            "it belongs to another user ({owner}), who can read and change it"
        )));
    }
    let mut bytes = Vec::new();
    file.take(LONGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| wrong(&error))?;
    if bytes.len() as u64 > LONGEST {
        return Err(wrong(&format_args!("a key has at most {LONGEST} bytes")));
    }
    let key = bytes.trim_ascii();
    if key.len() < SHORTEST {
        return Err(wrong(&format_args!("a key has at least {SHORTEST} bytes")));
    }
    Ok(Some(Secret::stretch(key)))
}

/// Random bytes from the operating system, for secrets.
fn entropy() -> Result<[u8; 32], Failure> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::run(format_args!("no random numbers: {error}")))?;
    Ok(bytes)
}
