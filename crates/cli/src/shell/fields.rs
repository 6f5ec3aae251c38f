//! The options of each direction: `--NAME` for packets to the program, and `--up-NAME` for those from it, for each field
//! of a path.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Command, Error, FromArgMatches};
use serde_json::{Map, Value, json};
use verus_channel::path_spec::{FIELDS, FILE, Field, PathSpec};

/// The paths to the program and from it.
#[derive(Clone, Debug, Default)]
pub struct Fields(pub [PathSpec; 2]);

/// How the names of options begin, in either direction.
const PREFIXES: [&str; 2] = ["", "up-"];

/// The option of a field, without hyphens before it.
pub fn option(prefix: &str, field: &str) -> String {
    format!("{prefix}{}", field.replace('_', "-"))
}

fn arg(prefix: &str, field: &Field) -> Arg {
    let (link, help) = match prefix {
        "" => ("down", format!("Packets to the program: {}", field.meaning)),
        _ => ("up", "The same for packets from the program".to_owned()),
    };
    let name = option(prefix, field.name);
    let arg = Arg::new(&name)
        .long(&name)
        .value_name(field.value)
        .help(help);
    match (field.name, (field.get)(&PathSpec::default())) {
        ("light_trace", _) => arg.requires(link).conflicts_with("delay_series"),
        ("size_offsets", _) => arg.requires(option(prefix, "light_trace")),
        (_, Some(default)) => arg.default_value(default.to_string()),
        (_, None) => arg,
    }
}

impl clap::Args for Fields {
    fn augment_args(command: Command) -> Command {
        command.args(
            FIELDS
                .iter()
                .flat_map(|field| PREFIXES.map(|prefix| arg(prefix, field))),
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Fields {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut fields = Fields::default();
        fields.update_from_arg_matches(matches).map(|()| fields)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for (prefix, spec) in PREFIXES.iter().zip(&mut self.0) {
            for field in FIELDS {
                let name = option(prefix, field.name);
                let Some(text) = matches.get_one::<String>(&name) else {
                    continue;
                };
                (field.set)(spec, text, None).map_err(|error| {
                    let problem = error.problem.to_string();
                    let problem = problem.trim_start_matches(field.name).trim_start();
                    Error::raw(ErrorKind::ValueValidation, format!("--{name}: {problem}"))
                })?;
            }
        }
        Ok(())
    }
}

impl Fields {
    /// The files that the options name.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        let files = FIELDS.iter().filter(|field| field.value == FILE);
        let named = files.flat_map(|file| self.0.iter().filter_map(|spec| (file.get)(spec)));
        named.map(|name| PathBuf::from(name.to_string()))
    }

    /// The values, by name.
    pub fn settings(&self) -> Value {
        let mut settings = Map::new();
        for (prefix, spec) in PREFIXES.iter().zip(&self.0) {
            for field in FIELDS {
                let name = option(prefix, field.name).replace('-', "_");
                settings.insert(name, json!((field.get)(spec)));
            }
        }
        settings.into()
    }
}
