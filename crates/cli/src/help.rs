//! Help of each verb: examples, and the page that explains more. Also reports a mistake in one
//! line, with the nearest right word. The lab's half of `verus` has the same form
//! (`python/verus/commands/verbs.py`, `mistakes.py`).

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command, CommandFactory as _};

/// Address of the pages.
const PAGES: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/");

/// A block for each verb: its page, and examples.
const VERBS: &str = include_str!("verbs.txt");

/// The verbs with their pages, and lines of examples.
fn verbs() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    VERBS.trim_end().split("\n\n").map(|block| {
        let (head, examples) = block.split_once('\n').expect("an example");
        let (verb, page) = head.split_once(": ").expect("its page");
        (verb, page, examples)
    })
}

/// The command with its complete help.
pub fn dressed(command: Command) -> Command {
    // The same short form for `-h` and `--help`, as in the lab's verbs.
    let help = Arg::new("help").short('h').long("help");
    let help = help
        .action(ArgAction::HelpShort)
        .help("Print help")
        .display_order(LAST + 2)
        .global(true);
    let name = command.get_name().to_owned();
    // The common options come after the verb's.
    let command = command
        .mut_arg("verbose", |arg| arg.display_order(LAST))
        .mut_arg("quiet", |arg| arg.display_order(LAST + 1));
    with_help(command.disable_help_flag(true).arg(help), &name)
}

const LAST: usize = 1000;

fn with_help(mut command: Command, path: &str) -> Command {
    let long = command.get_long_about().map(ToString::to_string);
    if let Some((_, rest)) = long.as_deref().and_then(|about| about.split_once("\n\n")) {
        // Lists of verbs show the first sentence; the verb's help shows the rest below it.
        command = command.before_help(rest.to_owned()).help_template(
            "{about-with-newline}\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}",
        );
    }
    command = command
        .subcommand_help_heading("Verbs")
        .subcommand_value_name("VERB");
    if let Some(tail) = after(path) {
        command = command.after_help(tail);
    }
    let verbs: Vec<String> = command
        .get_subcommands()
        .map(|verb| verb.get_name().to_owned())
        .collect();
    for verb in verbs {
        command =
            command.mut_subcommand(&verb, |inner| with_help(inner, &format!("{path} {verb}")));
    }
    command
}

/// The text below the options; nothing if the table has no such verb.
fn after(path: &str) -> Option<StyledStr> {
    let (_, page, examples) = verbs().find(|(verb, ..)| *verb == path)?;
    let text = format!("Examples:\n{examples}\n\nMore: {PAGES}{page}");
    Some(StyledStr::from(text))
}

/// Options of other programs that we name differently, by the verb to use.
const OTHERS_WORDS: &[(&str, &str, &str)] = &[
    ("verus probe", "-c", "verus probe client HOST"),
    ("verus probe", "--client", "verus probe client HOST"),
    ("verus probe", "-s", "verus probe server"),
    ("verus probe", "--server", "verus probe server"),
    ("verus probe client", "-C", "--scheme"),
    ("verus probe client", "--congestion", "--scheme"),
    ("verus probe client", "--cc", "--scheme"),
    ("verus probe client", "--algorithm", "--scheme"),
    ("verus probe client", "--bandwidth", "--rate-mbps"),
    ("verus probe client", "--bidir", "--direction both"),
    ("verus probe client", "-J", "--json"),
    ("verus probe client", "-l", "--packet-bytes"),
    ("verus probe client", "--length", "--packet-bytes"),
    ("verus probe server", "-1", "--once"),
    ("verus probe server", "--one-off", "--once"),
    ("verus probe server", "-J", "--json"),
    ("verus shell", "--bandwidth", "--down rate:MBPS"),
    ("verus shell", "--rate", "--down rate:MBPS"),
    ("verus shell", "--trace", "--down"),
    ("verus shell", "--channel", "--down"),
    (
        "verus shell",
        "--rtt",
        "--delay-ms, which is one way: half the round trip",
    ),
    ("verus shell", "--latency", "--delay-ms"),
    ("verus send", "--output", "HOST/FOLDER"),
    ("verus receive", "--output", "--into"),
    ("verus receive", "--out", "--into"),
];

/// One line about a mistake in `words`, from the argument parser's error.
pub fn mistake(error: &clap::Error, words: impl Iterator<Item = String>) -> String {
    let verb = verb_of(words);
    let more = format!(" (`{verb} --help`)");
    let all = text(error, ContextKind::InvalidArg).unwrap_or_default();
    let invalid = bare(&all);
    let value = text(error, ContextKind::InvalidValue).unwrap_or_default();
    let message = match error.kind() {
        ErrorKind::UnknownArgument => unknown(error, &verb, invalid),
        ErrorKind::InvalidSubcommand => {
            let word = text(error, ContextKind::InvalidSubcommand).unwrap_or_default();
            let suggestion = text(error, ContextKind::SuggestedSubcommand);
            let hint = match suggestion {
                Some(suggestion) => did_you_mean(&suggestion),
                None if verb == "verus probe" => did_you_mean(&format!("{verb} client {word}")),
                None => as_in(&verb),
            };
            format!("`{verb}` has no `{word}`{hint}")
        }
        ErrorKind::MissingRequiredArgument => {
            // A choice of several arguments is written as `<--out <DIR>|--record <DIR>>`.
            let several = all
                .strip_prefix("<--")
                .and_then(|rest| rest.strip_suffix('>'));
            let needed = several.map_or(all.clone(), |rest| {
                format!("--{}", rest.replace('|', " or "))
            });
            format!("`{verb}`: needs {needed}{}", as_in(&verb))
        }
        ErrorKind::InvalidValue if value.is_empty() => {
            format!("`{verb}`: `{invalid}` needs a value{}", as_in(&verb))
        }
        ErrorKind::InvalidValue => {
            let valid_values = text(error, ContextKind::ValidValue).unwrap_or_default();
            let suggestion = text(error, ContextKind::SuggestedValue);
            let hint = suggestion.map_or_else(String::new, |suggestion| did_you_mean(&suggestion));
            format!("{invalid}: must be one of {valid_values}, not `{value}`{hint}")
        }
        ErrorKind::ValueValidation if !invalid.is_empty() => {
            let why = std::error::Error::source(error).map(ToString::to_string);
            let why = match why.as_deref().map(|why| why.split_once(" is not in ")) {
                Some(Some((_, range))) => {
                    let range = range.replace("..=", " and ");
                    format!("must be a whole number between {range}, not {value}")
                }
                _ => why.unwrap_or_default(),
            };
            let why = why.replace("invalid digit found in string", "must be a whole number");
            let not = if why.contains(&value) {
                String::new()
            } else {
                format!(", not `{value}`")
            };
            format!("{invalid}: {why}{not}")
        }
        ErrorKind::ArgumentConflict => {
            let prior = match error.get(ContextKind::PriorArg) {
                Some(ContextValue::String(one)) => format!("`{}`", bare(one)),
                Some(ContextValue::Strings(all)) => {
                    let all: Vec<String> =
                        all.iter().map(|one| format!("`{}`", bare(one))).collect();
                    all.join(", ")
                }
                _ => "what else was given".to_owned(),
            };
            if prior == format!("`{invalid}`") {
                format!("`{invalid}` can be given once")
            } else {
                format!("`{invalid}` cannot stand together with {prior}")
            }
        }
        _ => {
            let whole_message = error.to_string();
            let line = whole_message.lines().next().unwrap_or_default();
            line.trim_start_matches("error: ").to_owned()
        }
    };
    message + &more
}

/// The message that `verb` has no option or argument `word`.
fn unknown(error: &clap::Error, verb: &str, word: &str) -> String {
    if !word.starts_with('-') {
        let hint = if verb == "verus shell" {
            format!(
                "; a program and its arguments stand behind `--`, as in `verus shell … -- {word}`"
            )
        } else if crate::scheme::open(word).is_ok() {
            format!("; did you mean `--scheme {word}`?")
        } else {
            as_in(verb)
        };
        return format!("`{word}` stands behind no option{hint}");
    }
    let theirs = |(path, option, _): &&(&str, &str, &str)| *path == verb && *option == word;
    let hint = match OTHERS_WORDS.iter().find(theirs) {
        Some((_, _, meant)) => did_you_mean(meant),
        None => match text(error, ContextKind::SuggestedArg) {
            Some(suggestion) => did_you_mean(bare(&suggestion)),
            None => String::new(),
        },
    };
    format!("`{verb}` has no `{word}`{hint}")
}

fn did_you_mean(word: &str) -> String {
    format!("; did you mean `{word}`?")
}

/// The first example of `verb`.
fn as_in(verb: &str) -> String {
    let row = verbs().find(|(path, ..)| *path == verb);
    // Two spaces separate the command from its explanation.
    let example = row.and_then(|(_, _, examples)| examples.trim_start().split("  ").next());
    example.map_or_else(String::new, |all| {
        format!(", as in `{}`", all.lines().next().unwrap_or(all))
    })
}

/// An option without its value, or a bare value name: `--flows` of `--flows <N>`, `HOST` of
/// `<HOST>` and of `<HOST>...`.
fn bare(argument: &str) -> &str {
    let argument = argument.split([' ', '=']).next().unwrap_or(argument);
    let name = argument.trim_start_matches('<');
    name.split_once('>').map_or(name, |(name, _)| name)
}

/// The verb at the beginning of `words`.
fn verb_of(words: impl Iterator<Item = String>) -> String {
    let command = crate::Cli::command();
    let (mut verb, mut path) = (&command, vec![command.get_name().to_owned()]);
    for word in words.skip(1).filter(|word| !word.starts_with('-')) {
        let Some(inner) = verb.find_subcommand(&word) else {
            break;
        };
        path.push(word);
        verb = inner;
    }
    path.join(" ")
}

/// One part of the parser's error.
fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(several) => Some(several.join(", ")),
        ContextValue::StyledStr(text) => Some(text.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(words: &[&str]) -> String {
        let command = dressed(crate::Cli::command());
        let error = command.try_get_matches_from(words).expect_err("a mistake");
        let line = mistake(&error, words.iter().map(ToString::to_string));
        assert_eq!(line.lines().count(), 1, "{line}");
        line
    }

    #[test]
    fn a_mistake_is_one_line_with_the_nearest_right_word() {
        assert!(refused(&["verus", "receive", "a b/c"]).contains("HOST/PATH: "));
        let cases = r#"
            verus probe cleint => `verus probe` has no `cleint`; did you mean `client`? (`verus probe --help`)
            verus probe client localhost --durations 3 => `verus probe client` has no `--durations`; did you mean `--duration`?
            verus shell -- ls => `verus shell`: needs --down <CHANNEL>, as in `sudo "$(which verus)" shell --down
            verus probe client => `verus probe client`: needs <HOST>, as in `verus probe client localhost`
            verus probe client localhost --direction left => --direction: must be one of up, down, both, not `left` (`verus probe client --help`)
            verus probe client localhost --duration 2x => `x` is none of its units"#;
        for case in cases.lines().skip(1) {
            let (words, expected) = case.trim().split_once(" => ").expect("a case");
            let line = refused(&words.split(' ').collect::<Vec<_>>());
            assert!(line.contains(expected), "{line}");
        }
    }

    #[test]
    fn every_verb_has_examples_that_are_understood() {
        let mut paths: Vec<String> = Vec::new();
        let mut look = vec![("verus".to_owned(), dressed(crate::Cli::command()))];
        while let Some((path, command)) = look.pop() {
            for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
                look.push((format!("{path} {}", verb.get_name()), verb.clone()));
            }
            paths.push(path);
        }
        for (verb, _, examples) in verbs() {
            assert!(paths.contains(&verb.to_owned()), "{verb}");
            for example in examples.lines().map(str::trim) {
                let typed = example.replace("sudo \"$(which verus)\"", "verus");
                let words = typed.split("  ").next().unwrap_or_default().split(' ');
                let parsed = dressed(crate::Cli::command()).try_get_matches_from(words);
                assert!(parsed.is_ok(), "{example}");
            }
        }
        // The examples of `serve token` are under `serve`.
        let without = paths
            .iter()
            .filter(|path| !path.starts_with("verus serve token"));
        for path in without {
            assert!(verbs().any(|(verb, ..)| verb == path), "{path}");
        }
    }
}
