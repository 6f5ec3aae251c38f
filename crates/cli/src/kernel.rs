//! `kernel`: our congestion control in the kernel's TCP, for every program of this machine.

mod status;
mod trace;

use verus_kernel::{Config, Error};

use crate::failure::Failure;
use crate::ui::Ui;

/// Give every TCP program of this machine low delay: `forward` as a congestion control of Linux.
///
/// `load` registers it with the kernel, where it stays until `unload` or the next start of the machine. Nothing uses it
/// until it is chosen: by `sysctl -w net.ipv4.tcp_congestion_control=forward`, by a program for one of its sockets
/// (TCP_CONGESTION), or for a route (`ip route … congctl forward`). As root; Linux 6.10 or later.
#[derive(clap::Args)]
#[command(disable_help_subcommand = true)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Register a congestion control, until it is unloaded or the machine restarts.
    Load {
        /// The congestion control: forward.
        #[arg(value_name = "LAW")]
        law: String,
        /// A setting of it: budget_ms, as `verus list schemes` explains it.
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Another name to register it under, of at most 15 characters (default: its own).
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Show loaded congestion controls, and their flows in this network namespace.
    Status(status::Args),
    /// Trace the flows of this network namespace, for `verus report`.
    Trace(trace::Args),
    /// Take a congestion control out; connections that run on it go on.
    Unload {
        /// Its name.
        #[arg(value_name = "NAME")]
        name: String,
    },
}

/// Runs the chosen verb.
pub fn run(args: &Args, ui: &Ui) -> Result<(), Failure> {
    match &args.verb {
        Verb::Load { law, set, name } => {
            let config =
                Config::parse(law, set, name.as_deref()).map_err(|error| failure_of(&error))?;
            verus_kernel::load(&config).map_err(|error| failure_of(&error))?;
            ui.note(loaded(
                &config.name,
                verus_kernel::default_name().as_deref(),
            ));
            Ok(())
        }
        Verb::Status(args) => status::run(args, ui),
        Verb::Trace(args) => trace::run(args, ui),
        Verb::Unload { name } => {
            verus_kernel::unload(name).map_err(|error| failure_of(&error))?;
            ui.note(format_args!("unloaded `{name}`"));
            Ok(())
        }
    }
}

/// The message after `load`: the next step, and the way back to `before`, the present default of
/// new connections.
fn loaded(name: &str, before: Option<&str>) -> String {
    const SET: &str = "sysctl -w net.ipv4.tcp_congestion_control";
    let back = before
        .filter(|before| *before != name)
        .map_or_else(String::new, |before| {
            format!(", and `{before}`, the present default, again after `{SET}={before}`")
        });
    format!(
        "loaded `{name}`. New connections take it after `{SET}={name}`{back}; `verus kernel unload {name}` takes it out again"
    )
}

/// The error in one line, as one of usage or of the kernel.
pub fn failure_of(error: &Error) -> Failure {
    match error {
        Error::Kernel { .. } => Failure::run(error),
        _ => Failure::usage(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parser of options takes any word for a law; the kernel has one.
    #[test]
    fn examples_of_help_load_what_can_be_loaded() {
        let examples = include_str!("verbs.txt").lines();
        let loads = examples.filter_map(|line| line.split_once(" kernel load "));
        let mut count = 0;
        for (_, words) in loads {
            let line = ["load"].into_iter().chain(words.split_whitespace());
            let command = <Args as clap::Args>::augment_args(clap::Command::new("kernel"));
            let command = command.no_binary_name(true);
            let matches = command.try_get_matches_from(line).expect("options");
            let args = <Args as clap::FromArgMatches>::from_arg_matches(&matches).expect("a verb");
            let Verb::Load { law, set, name } = args.verb else {
                panic!("not `load`: {words}");
            };
            if let Err(error) = Config::parse(&law, &set, name.as_deref()) {
                panic!("`{words}`: {error}");
            }
            count += 1;
        }
        assert!(count >= 2, "{count} examples");
    }

    #[test]
    fn loading_says_what_was_the_default_before() {
        let said = loaded("forward", Some("bbr"));
        assert!(said.contains("tcp_congestion_control=forward"), "{said}");
        assert!(said.contains("`bbr`, the present default, again after `sysctl -w net.ipv4.tcp_congestion_control=bbr`"), "{said}");
        for unknown in [None, Some("forward")] {
            assert!(!loaded("forward", unknown).contains("default"));
        }
    }
}
