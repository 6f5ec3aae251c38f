//! The model-driven controller in the list of algorithms: a file, and how to walk through it.

use std::sync::Arc;

use crate::{Read, Refusal};
use verus_core::configuration::Configured;
use verus_core::controller::Controller;
use verus_model::{Model, ModelDriven, WalkKind};
use verus_words::spec::{Given, Key, REQUIRED, Row, Takes, Words, shown, words};

/// Its name in a scheme.
pub(crate) const NAME: &str = "model";

const WALKS: Words<WalkKind> = &[("paper", WalkKind::Paper), ("sampled", WalkKind::Sampled)];

/// The settings of a scheme for a model.
#[derive(Debug, Default)]
struct Settings {
    file: String,
    walk: WalkKind,
}

impl Settings {
    const ROWS: &'static [Row<Self>] = &[
        Row::other(
            "file",
            || Takes::Path,
            "the model, as `verus train` writes it",
            |_| REQUIRED.to_owned(),
            |c, setting| {
                setting.text().clone_into(&mut c.file);
                Ok(())
            },
        ),
        words!(
            walk,
            WALKS,
            "nearest probability to an even draw (§3.2), or drawn by probability"
        ),
    ];
}

/// A model that was read.
#[derive(Debug)]
struct Config {
    model: Arc<Model>,
    walk: WalkKind,
}

impl Configured for Config {
    fn label(&self) -> (String, &'static [&'static str]) {
        ("Model".to_owned(), &[])
    }

    fn build(&self, seed: u64) -> Box<dyn Controller> {
        Box::new(ModelDriven::new(Arc::clone(&self.model), self.walk, seed))
    }
}

/// Its keys, for display.
pub(crate) fn keys() -> Vec<Key> {
    shown(Settings::ROWS, &Settings::default())
}

/// Reads the file that is named.
pub(crate) fn open(given: &Given<'_>, read: Read<'_>) -> Result<Arc<dyn Configured>, Refusal> {
    let mut settings = Settings::default();
    given.apply(Settings::ROWS, &mut settings)?;
    let Settings { file, walk } = settings;
    if file.is_empty() {
        let problem = "file must name a model, as `verus train` writes it";
        return Err(Refusal::OutOfRange(problem.to_owned()));
    }
    let model =
        read(&file).and_then(|bytes| Model::from_bytes(&bytes).map_err(|error| error.to_string()));
    match model {
        Ok(model) => Ok(Arc::new(Config {
            model: Arc::new(model),
            walk,
        })),
        Err(problem) => Err(Refusal::File { file, problem }),
    }
}
