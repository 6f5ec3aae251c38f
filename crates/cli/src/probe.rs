//! `probe`: the paper's sender and receiver over UDP.

use crate::failure::Failure;
use crate::ui::Ui;

/// Measure a path with any of the controllers.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the verb.
pub fn run(_args: Args, _ui: &Ui) -> Result<(), Failure> {
    Err(Failure::usage("`probe` is on its way"))
}
