//! `complete`: completions of a command line, for the shells (`verus completion bash`); and `man`,
//! the manual pages.
//!
//! Options and verbs come from clap. Names and keys of schemes, queues and channels come from their
//! parsers.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::{ArgAction, Command, CommandFactory as _};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, complete};
use verus_channel::{catalogue, queue};
use verus_senders as algorithm;
use verus_words::spec;

use crate::failure::Failure;
use crate::help;
use crate::ui::Ui;

/// Prints the possible completions of the last of `words`, which may be empty: a candidate a line.
pub fn run(words: &[OsString], ui: &Ui) -> Result<(), Failure> {
    let mut typed = vec![OsString::from("verus")];
    typed.extend(words.iter().cloned());
    let last = typed.len() - 1;
    let mut command = with_values(help::dressed(crate::Cli::command()));
    let completions = complete(&mut command, typed, last, None).map_err(Failure::run)?;
    for candidate in completions
        .iter()
        .filter(|candidate| !candidate.is_hide_set())
    {
        ui.line(candidate.get_value().to_string_lossy())?;
    }
    Ok(())
}

/// Writes a page for each verb into `folder`.
pub fn man(folder: &Path) -> Result<(), Failure> {
    let command = help::dressed(crate::Cli::command());
    // The lab writes the first page, since it knows all verbs.
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let named = verb.clone().version(env!("CARGO_PKG_VERSION"));
        let named = named.bin_name(format!("verus {}", verb.get_name()));
        let named = named.display_name(format!("verus-{}", verb.get_name()));
        clap_mangen::generate_to(named, folder)
            .map_err(|error| Failure::usage(format_args!("`{}`: {error}", folder.display())))?;
    }
    Ok(())
}

/// The command whose options carry their possible values.
fn with_values(mut command: Command) -> Command {
    let verbs: Vec<String> = command
        .get_subcommands()
        .map(|verb| verb.get_name().to_owned())
        .collect();
    for verb in verbs {
        command = command.mut_subcommand(&verb, with_values);
    }
    command.mut_args(|arg| {
        let takes = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
        let called = arg.get_value_names().and_then(|names| names.first());
        match called.map(|name| name.as_str()) {
            Some("SCHEME") if takes => arg.add(ArgValueCompleter::new(schemes)),
            Some("QUEUE") if takes => arg.add(ArgValueCompleter::new(queues)),
            Some("CHANNEL") if takes => arg.add(ArgValueCompleter::new(channels)),
            _ => arg,
        }
    })
}

fn candidates(texts: Vec<String>) -> Vec<CompletionCandidate> {
    texts.into_iter().map(CompletionCandidate::new).collect()
}

fn schemes(typed: &OsStr) -> Vec<CompletionCandidate> {
    let catalogue = algorithm::catalogue();
    let names: Vec<_> = catalogue
        .iter()
        .map(|entry| (entry.name, &entry.keys[..]))
        .collect();
    candidates(spec::complete(&typed.to_string_lossy(), &names))
}

fn queues(typed: &OsStr) -> Vec<CompletionCandidate> {
    let catalogue = queue::catalogue();
    let names: Vec<_> = catalogue
        .iter()
        .map(|kind| (kind.name, &kind.keys[..]))
        .collect();
    candidates(spec::complete(&typed.to_string_lossy(), &names))
}

fn channels(typed: &OsStr) -> Vec<CompletionCandidate> {
    candidates(catalogue::complete(&typed.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completions_of(words: &[&str]) -> Vec<String> {
        let mut typed = vec![OsString::from("verus")];
        typed.extend(words.iter().map(OsString::from));
        let last = typed.len() - 1;
        let mut command = with_values(help::dressed(crate::Cli::command()));
        let completions = complete(&mut command, typed, last, None).expect("candidates");
        completions
            .iter()
            .filter(|candidate| !candidate.is_hide_set())
            .map(|candidate| candidate.get_value().to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn verbs_options_schemes_keys_and_channels_go_on() {
        for (words, expected) in [
            (&["pro"][..], "probe"),
            (&["probe", "cl"], "client"),
            (&["probe", "client", "--dir"], "--direction"),
            (&["probe", "client", "--direction", "do"], "down"),
            (&["probe", "client", "--scheme", "cub"], "cubic"),
            (
                &["probe", "client", "--scheme", "verus:rat"],
                "verus:ratio=",
            ),
            (
                &["probe", "client", "--scheme", "verus:mode=pa"],
                "verus:mode=paper",
            ),
            (
                &["shell", "--down", "city-driving-3g-u"],
                "city-driving-3g-up",
            ),
            (&["shell", "--queue", "cod"], "codel"),
        ] {
            let completions = completions_of(words);
            assert!(
                completions.iter().any(|one| one == expected),
                "{words:?}: {completions:?}"
            );
        }
    }

    #[test]
    fn every_verb_has_a_page() {
        let folder = tempfile::tempdir().expect("a folder");
        man(folder.path()).expect("written");
        for page in ["verus-probe.1", "verus-probe-client.1", "verus-shell.1"] {
            let text = std::fs::read_to_string(folder.path().join(page)).expect(page);
            assert!(text.contains("Examples:"), "{page}");
        }
    }
}
