//! Values held against a JSON Schema, so that a range stands where its field does and nowhere else.
//!
//! Supports the part of JSON Schema that [`schemars`] makes of structs of numbers, texts, switches
//! and lists of such. A schema cannot relate two fields to each other.

use serde_json::{Map, Value};
use thiserror::Error;

/// The values that a field takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// In words, to follow "must be".
    pub words: String,
    /// The other field that the words name, so that a caller can write it as an option.
    pub other: Option<&'static str>,
}

impl Expected {
    /// `words`, then the name of the field that they are about: "left out beside", "light_trace".
    pub fn of_other(words: &str, other: &'static str) -> Self {
        Expected {
            words: format!("{words} {other}"),
            other: Some(other),
        }
    }
}

impl<T: Into<String>> From<T> for Expected {
    fn from(words: T) -> Self {
        Expected {
            words: words.into(),
            other: None,
        }
    }
}

/// An unknown field, or a field with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FieldError {
    /// A value of another type or out of its range.
    #[error("{field} must be {}, not {value}", expected.words)]
    Value {
        /// The field, such as `flows[0].start_s`.
        field: String,
        /// Its range.
        expected: Expected,
        /// The value.
        value: String,
    },
    /// An unknown field.
    #[error("unknown field `{field}`; known are {known}")]
    Unknown {
        /// The name that was given.
        field: String,
        /// The fields that exist.
        known: String,
    },
}

/// Refuses the first thing in `value` that `schema` does not allow.
///
/// # Errors
/// Names the first mistake.
pub fn refuse(schema: &Value, value: &Value) -> Result<(), FieldError> {
    let checker = Checker(schema);
    checker.compare(schema, value, "")
}

/// A schema, in which rules refer to each other.
struct Checker<'a>(&'a Value);

impl Checker<'_> {
    fn compare(&self, rule: &Value, value: &Value, name: &str) -> Result<(), FieldError> {
        let rule = match rule["$ref"].as_str() {
            Some(path) => self
                .0
                .pointer(path.trim_start_matches('#'))
                .expect("schemars refers to what it defines"),
            None => rule,
        };
        let kinds: Vec<&str> = match &rule["type"] {
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            kind => kind.as_str().into_iter().collect(),
        };
        if !(kinds.iter().any(|kind| is(kind, value)) && in_range(rule, value)) {
            let number = match (kinds[0], value) {
                ("number", Value::String(_) | Value::Bool(_)) => "a number ",
                _ => "",
            };
            return Err(FieldError::Value {
                field: if name.is_empty() { "all of it" } else { name }.to_owned(),
                expected: format!("{number}{}", words(rule, kinds[0])).into(),
                value: match value {
                    Value::Array(items) if kinds.contains(&"array") => items.len().to_string(),
                    Value::Array(_) => "a list".to_owned(),
                    Value::String(text) => format!("`{text}`"),
                    value => value.to_string(),
                },
            });
        }
        match value {
            Value::Object(fields) => self.compare_fields(rule, fields, name),
            Value::Array(items) => items.iter().enumerate().try_for_each(|(index, item)| {
                self.compare(&rule["items"], item, &format!("{name}[{index}]"))
            }),
            _ => Ok(()),
        }
    }

    fn compare_fields(
        &self,
        rule: &Value,
        fields: &Map<String, Value>,
        name: &str,
    ) -> Result<(), FieldError> {
        let dot = if name.is_empty() { "" } else { "." };
        let properties = rule["properties"].as_object().expect("of a struct");
        for (field, value) in fields {
            let field_name = format!("{name}{dot}{field}");
            let Some(rule) = properties.get(field) else {
                let names: Vec<&str> = properties.keys().map(String::as_str).collect();
                return Err(FieldError::Unknown {
                    field: field_name,
                    known: names.join(", "),
                });
            };
            self.compare(rule, value, &field_name)?;
        }
        let required = rule["required"].as_array().into_iter().flatten();
        for missing in required.filter_map(Value::as_str) {
            if !fields.contains_key(missing) {
                return Err(FieldError::Value {
                    field: format!("{name}{dot}{missing}"),
                    expected: "given".into(),
                    value: "left out".to_owned(),
                });
            }
        }
        Ok(())
    }
}

fn is(kind: &str, value: &Value) -> bool {
    match kind {
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        other => unreachable!("no field is of type {other}"),
    }
}

/// Whether a number, or the length of a list, is what the rule allows; anything else is.
fn in_range(rule: &Value, value: &Value) -> bool {
    let (number, [least, above, most, below]) = match value {
        Value::Number(number) => (
            number.as_f64().unwrap_or(f64::NAN),
            ["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"].map(|key| &rule[key]),
        ),
        Value::Array(items) => (
            items.len() as f64,
            ["minItems", "", "maxItems", ""].map(|key| &rule[key]),
        ),
        _ => return true,
    };
    least.as_f64().is_none_or(|least| number >= least)
        && above.as_f64().is_none_or(|above| number > above)
        && most.as_f64().is_none_or(|most| number <= most)
        && below.as_f64().is_none_or(|below| number < below)
        && (rule["enum"].as_array()).is_none_or(|known| known.contains(value))
}

/// The values that the rule allows, in words.
fn words(rule: &Value, kind: &str) -> String {
    if let Some(values) = rule["enum"].as_array() {
        let values: Vec<String> = values.iter().map(Value::to_string).collect();
        return values.join(" or ");
    }
    let bound = |key: &str| match &rule[key] {
        // 100000, not 100000.0
        Value::Number(bound) if bound.is_f64() => bound.as_f64().map(|bound| bound.to_string()),
        Value::Number(bound) => Some(bound.to_string()),
        _ => None,
    };
    let (what, least, most) = match kind {
        "integer" => ("a whole number ", "minimum", "maximum"),
        "number" => ("", "minimum", "maximum"),
        "array" => ("", "minItems", "maxItems"),
        "string" => return "text".to_owned(),
        "boolean" => return "true or false".to_owned(),
        _ => return "an object".to_owned(),
    };
    let range = match (
        bound(least),
        bound("exclusiveMinimum"),
        bound(most),
        bound("exclusiveMaximum"),
    ) {
        (Some(least), _, Some(most), _) => format!("between {least} and {most}"),
        (Some(least), _, None, Some(below)) => format!("at least {least} and below {below}"),
        (Some(least), ..) => format!("at least {least}"),
        (_, Some(above), Some(most), _) => format!("above {above} and at most {most}"),
        _ => "of any size".to_owned(),
    };
    let of = if kind == "array" { " in number" } else { "" };
    format!("{what}{range}{of}")
}
