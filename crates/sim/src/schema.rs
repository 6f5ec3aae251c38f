//! The schema of a scenario: made from its types, and the one place that its ranges are read from.
//!
//! The types say what a field is, in which range and where it begins; [`schema`] is that as JSON Schema, for editors,
//! forms and Python's types, and [`refuse`] holds a scenario against it. What relates two fields to each other
//! (`stop_s` after `start_s`) no schema can say; [`Scenario::plan`] does.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::scenario::{Error, Scenario};

/// The JSON Schema (draft 2020-12) of a [`Scenario`]: type, range, default and meaning of each field.
pub fn schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| schemars::schema_for!(Scenario).to_value());
    &SCHEMA
}

/// Refuses the first thing in `scenario` that the schema does not allow.
///
/// # Errors
/// [`Error::Field`] or [`Error::Unknown`], which names it as `flows[0].start_s`.
pub fn refuse(scenario: &Value) -> Result<(), Error> {
    compare(schema(), scenario, "")
}

fn compare(rule: &Value, value: &Value, name: &str) -> Result<(), Error> {
    let rule = match rule["$ref"].as_str() {
        Some(path) => schema()
            .pointer(path.trim_start_matches('#'))
            .expect("schemars refers to what it defines"),
        None => rule,
    };
    let kinds: Vec<&str> = match &rule["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        kind => kind.as_str().into_iter().collect(),
    };
    if !(kinds.iter().any(|kind| is(kind, value)) && in_range(rule, value)) {
        return Err(Error::Field {
            field: if name.is_empty() { "a scenario" } else { name }.to_owned(),
            expected: words(rule, kinds[0]),
            value: match value {
                Value::Array(items) => items.len().to_string(),
                Value::String(text) => format!("`{text}`"),
                value => value.to_string(),
            },
        });
    }
    match value {
        Value::Object(fields) => compare_fields(rule, fields, name),
        Value::Array(items) => items.iter().enumerate().try_for_each(|(index, item)| {
            compare(&rule["items"], item, &format!("{name}[{index}]"))
        }),
        _ => Ok(()),
    }
}

fn compare_fields(rule: &Value, fields: &Map<String, Value>, name: &str) -> Result<(), Error> {
    let dot = if name.is_empty() { "" } else { "." };
    let known = rule["properties"].as_object().expect("of a struct");
    for (field, value) in fields {
        let field_name = format!("{name}{dot}{field}");
        let Some(rule) = known.get(field) else {
            let known: Vec<&str> = known.keys().map(String::as_str).collect();
            return Err(Error::Unknown {
                field: field_name,
                known: known.join(", "),
            });
        };
        compare(rule, value, &field_name)?;
    }
    let required = rule["required"].as_array().into_iter().flatten();
    for missing in required.filter_map(Value::as_str) {
        if !fields.contains_key(missing) {
            return Err(Error::Field {
                field: format!("{name}{dot}{missing}"),
                expected: "given".to_owned(),
                value: "left out".to_owned(),
            });
        }
    }
    Ok(())
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
        other => unreachable!("no field of a scenario is of type {other}"),
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

/// What the rule allows, in words.
fn words(rule: &Value, kind: &str) -> String {
    if let Some(known) = rule["enum"].as_array() {
        let known: Vec<String> = known.iter().map(Value::to_string).collect();
        return known.join(" or ");
    }
    let bound = |key: &str| {
        rule[key].as_f64().map(|bound| bound.to_string()) // 100000, not 100000.0
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_default_is_allowed_and_every_field_has_a_meaning() {
        refuse(&serde_json::to_value(Scenario::default()).expect("plain data")).expect("allowed");
        let definitions = schema()["$defs"].as_object().expect("flows and changes");
        for rule in definitions.values().chain([schema()]) {
            for (name, field) in rule["properties"].as_object().expect("of a struct") {
                assert!(field["description"].is_string(), "{name}");
                let of = field["type"].to_string();
                let bounded = ["minimum", "exclusiveMinimum", "enum"]
                    .iter()
                    .any(|key| !field[*key].is_null());
                assert!(
                    bounded || !(of.contains("number") || of.contains("integer")),
                    "{name} has a range"
                );
            }
        }
    }

    #[test]
    fn what_is_out_of_range_is_named_with_the_range() {
        let cases = [
            (
                json!({"delay_ms": -1}),
                "delay_ms must be between 0 and 100000, not -1",
            ),
            (
                json!({"duration_s": 0.0}),
                "duration_s must be above 0 and at most 1000000, not 0.0",
            ),
            (
                json!({"ack_every": 1.5}),
                "ack_every must be a whole number between 1 and 1000, not 1.5",
            ),
            (
                json!({"packet_bytes": -1}),
                "packet_bytes must be a whole number between 1 and 65535, not -1",
            ),
            (
                json!({"loss": 1}),
                "loss must be at least 0 and below 1, not 1",
            ),
            (
                json!({"opportunity_bytes": 1499}),
                "opportunity_bytes must be 1500 or 1504, not 1499",
            ),
            (json!({"trace": 5}), "trace must be text, not 5"),
            (
                json!({"loop": "yes"}),
                "loop must be true or false, not `yes`",
            ),
            (
                json!({"flows": []}),
                "flows must be between 1 and 100000 in number, not 0",
            ),
            (
                json!({"flows": [{"scheme": "cubic"}, {"scheme": "cubic", "start_s": -2.0}]}),
                "flows[1].start_s must be between 0 and 1000000, not -2.0",
            ),
            (
                json!({"flows": [{}]}),
                "flows[0].scheme must be given, not left out",
            ),
            (json!({"flows": [7]}), "flows[0] must be an object, not 7"),
            (
                json!({"changes": [{"at_s": 1.0, "loss": 2}]}),
                "changes[0].loss must be between 0 and 1, not 2",
            ),
            (json!([]), "a scenario must be an object, not 0"),
        ];
        for (scenario, message) in cases {
            assert_eq!(refuse(&scenario).unwrap_err().to_string(), message);
        }
        let unknown = refuse(&json!({"delay": 1})).unwrap_err().to_string();
        let words = "unknown field `delay`; known are ";
        assert!(
            unknown.starts_with(words) && unknown.contains("delay_ms"),
            "{unknown}"
        );
    }
}
