//! Schemes as they are typed on the command line: a model is read from the file that it names.

use std::fs::File;
use std::io::Read;

use verus_model::MAX_BYTES;
use verus_senders::{Scheme, SchemeError};

/// Parses a scheme, and reads the model that it may name.
///
/// # Errors
/// If the scheme or its file is invalid.
pub fn open(text: &str) -> Result<Scheme, SchemeError> {
    let file = text.trim().split(':').next().unwrap_or_default();
    if file.ends_with(".py") {
        return Err(SchemeError::OutOfRange {
            scheme: text.to_owned(),
            problem: "a class in Python runs in the simulator only (`verus compare`); here an algorithm in Rust can send \
                      (docs/own-controller.md)"
                .to_owned(),
        });
    }
    Scheme::open(text, |path| {
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(|error| format!("cannot be read: {error}"))?;
        if !file.metadata().is_ok_and(|about| about.is_file()) {
            return Err("is not a file".to_owned());
        }
        // One byte more than there may be, so that the reader notices.
        file.take(MAX_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("cannot be read: {error}"))?;
        Ok(bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_in_python_is_told_where_it_runs() {
        for text in ["mine.py:Mine", "a/mine.py:Mine:gain=2", "mine.py"] {
            let message = open(text).expect_err("no endpoint runs it").to_string();
            assert_eq!(
                message,
                format!(
                    "scheme `{text}`: a class in Python runs in the simulator only (`verus compare`); here an algorithm in \
                     Rust can send (docs/own-controller.md)"
                )
            );
        }
    }
}
