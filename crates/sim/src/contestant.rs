//! The contestants: each flow's scheme, with the model that it may name, its traffic and its links.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use thiserror::Error;
use verus_channel::path::config::Crosses;
use verus_model::MAX_BYTES;
use verus_senders::{Registry, Scheme, SchemeError};
use verus_words::spec::Problem;

use crate::scenario::{Error, FlowSpec, Scenario, check};
use crate::schema::{Expected, FieldError};
use crate::traffic::Traffic;

/// Parses a scheme, and reads the model that it may name.
///
/// # Errors
/// Names the mistake in the scheme or its file.
pub fn open_scheme(text: &str) -> Result<Scheme, SchemeError> {
    open_in(Registry::installed(), text)
}

fn open_in(registry: &Registry, text: &str) -> Result<Scheme, SchemeError> {
    registry.open(text, |path| {
        model_bytes(Path::new(path)).map_err(|error| error.to_string())
    })
}

/// The schemes of a mix, `SCHEME*N+SCHEME*M`, and how many flows run each.
///
/// # Errors
/// If a count is none, or there are more flows than a run has.
pub fn mix(text: &str) -> Result<Vec<(&str, usize)>, Problem> {
    let limit = Scenario::schema()["properties"]["flows"]["maxItems"].as_u64();
    let limit = limit.expect("the schema bounds flows") as usize;
    let (mut parts, mut flows) = (Vec::new(), 0usize);
    for part in text.split('+') {
        let (scheme, count) = part.trim().rsplit_once('*').unwrap_or((part.trim(), "1"));
        let digits = count.trim_start_matches('0');
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Problem::Together(format!(
                "`{part}` in `{text}` is not SCHEME or SCHEME*COUNT with a count of 1 or more"
            )));
        }
        let count = digits.parse().unwrap_or(usize::MAX);
        flows = flows.saturating_add(count);
        if flows > limit {
            let problem = format!("`{text}` has more than {limit} flows");
            return Err(Problem::Together(problem));
        }
        parts.push((scheme, count));
    }
    Ok(parts)
}

/// The bytes of a model file.
///
/// # Errors
/// Why there are none, to follow the file's name.
pub fn model_bytes(path: &Path) -> Result<Vec<u8>, FileProblem> {
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(FileProblem::NoFile);
    }
    // One byte more than there may be, so that the reader notices.
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Why a model file cannot be read. The message goes on from its name.
#[derive(Debug, Error)]
pub enum FileProblem {
    /// The system refused.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// A folder, a pipe or a device.
    #[error("is not a file")]
    NoFile,
}

impl Scenario {
    /// The scheme of each flow, of those that `registry` has. Flows of one scheme share the files
    /// it reads.
    pub(crate) fn schemes(&self, registry: &Registry) -> Result<Vec<Scheme>, Error> {
        let mut schemes: Vec<Scheme> = Vec::with_capacity(self.flows.len());
        for flow in &self.flows {
            let opened = schemes
                .iter()
                .rev()
                .find(|opened| opened.text() == flow.scheme.trim());
            let scheme = match opened {
                Some(opened) => opened.clone(),
                None => open_in(registry, &flow.scheme)?,
            };
            schemes.push(scheme);
        }
        Ok(schemes)
    }

    /// The traffic of each flow.
    pub(crate) fn traffic(&self) -> Result<Vec<Traffic>, Error> {
        let traffic = |(index, flow): (usize, &FlowSpec)| match (flow.bytes, &flow.traffic) {
            (None, None) => Ok(Traffic::Full),
            (None, Some(text)) => Ok(Traffic::parse(text)?),
            (Some(bytes), None) => Ok(Traffic::Files {
                bytes,
                gap_s: 0.0,
                count: Some(1),
            }),
            (Some(bytes), Some(_)) => Err(Error::Field(FieldError::Value {
                field: format!("flows[{index}].bytes"),
                expected: "left out where traffic says what there is to send".into(),
                value: bytes.to_string(),
            })),
        };
        self.flows.iter().enumerate().map(traffic).collect()
    }

    /// The links, of two, that each flow crosses; empty if there is one.
    pub(crate) fn crosses(&self) -> Result<Vec<Crosses>, Error> {
        let of = |(index, flow): (usize, &FlowSpec)| {
            let Some(text) = &flow.crosses else {
                return Ok(Crosses::Both);
            };
            let name = || format!("flows[{index}].crosses");
            check(
                self.second_trace.is_some(),
                name(),
                Expected::of_other("left out where there is no", "second_trace"),
                format!("`{text}`"),
            )?;
            match text.as_str() {
                "both" => Ok(Crosses::Both),
                "first" => Ok(Crosses::First),
                "second" => Ok(Crosses::Second),
                _ => Err(Error::Field(FieldError::Value {
                    field: name(),
                    expected: "first, second or both".into(),
                    value: format!("`{text}`"),
                })),
            }
        };
        let crossings: Vec<Crosses> = (self.flows.iter().enumerate())
            .map(of)
            .collect::<Result<_, Error>>()?;
        let all = crossings.iter().all(|crosses| *crosses == Crosses::Both);
        Ok(if all { Vec::new() } else { crossings })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_schemes_with_counts() {
        let parts = mix("verus:ratio=2*2 + cubic+bbr*03").expect("valid");
        assert_eq!(parts, [("verus:ratio=2", 2), ("cubic", 1), ("bbr", 3)]);
        for (text, problem) in [
            (
                "verus*x",
                "`verus*x` in `verus*x` is not SCHEME or SCHEME*COUNT",
            ),
            ("verus*0", "with a count of 1 or more"),
            ("cubic*60000+bbr*60000", "has more than 100000 flows"),
            ("cubic*99999999999999999999", "has more than 100000 flows"),
        ] {
            let error = mix(text).expect_err(text).to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
