//! A run as data: the one schema that the command line, Python and files share.

use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;
use verus_channel::medium::MediumConfig;
use verus_channel::path_spec::{self, FIELDS, PathSpec};
use verus_channel::queue::SpecError;
use verus_core::Duration;
use verus_senders::SchemeError;
use verus_words::spec::Problem;

use crate::schema::{Expected, FieldError, refuse};
use crate::traffic::Traffic;

/// A run: flows over one shared bottleneck.
///
/// Ranges are stated here only: [`Scenario::schema`] lists them, and [`Scenario::plan`] refuses
/// values outside. The longest run and the most flows are the points where a typing error is more
/// likely than intent.
///
/// The same holds for names outside of the scenario, as `x-names`: a `channel` (except for the
/// words of `x-words`), a `file`, a `scheme`, which may name a file, or `nothing`. Stored results,
/// clusters and `run.json` derive from it the files that a run depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// The channel: a file, the name of a built-in or cached one, or `rate:MBPS`.
    #[schemars(extend("x-names" = "channel"))]
    pub trace: String,
    /// The bottleneck's queue, such as `red:min=375000,max=1125000,p=0.1`.
    #[schemars(extend("x-names" = "nothing"))]
    pub queue: String,
    /// A second link in series, which data cross after the first, with a queue of its own; none if absent. Results state
    /// the time in the last queue that a packet crossed, and the capacity of the narrower link.
    #[schemars(extend("x-names" = "channel"))]
    pub second_trace: Option<String>,
    /// The queue before the second link.
    #[schemars(extend("x-names" = "nothing"))]
    pub second_queue: String,
    /// What acknowledgements cross: `ideal` (only propagation), `same` (the channel's own trace),
    /// `rate:MBPS`, a file or a name.
    #[schemars(extend("x-names" = "channel", "x-words" = ["ideal", "same"]))]
    pub ack: String,
    /// The queue of the acknowledgements' link.
    #[schemars(extend("x-names" = "nothing"))]
    pub ack_queue: String,
    /// A medium that data and acknowledgements share, such as `wifi:aggregate=32` (`verus list
    /// medium`). `trace` and `ack` are then its rates.
    #[schemars(extend("x-names" = "nothing"))]
    pub medium: String,
    /// Propagation delay each way, ms.
    #[schemars(range(min = 0, max = 100_000))]
    pub delay_ms: f64,
    /// Size of data packets as the link accounts them (IP), bytes: more than the 40 of an IPv4 and a TCP header.
    #[schemars(range(min = 41, max = 65_535))]
    pub packet_bytes: u32,
    /// Size of acknowledgements with IP and TCP headers, bytes.
    #[schemars(range(min = 40, max = 65_535))]
    pub ack_bytes: u32,
    /// Bytes that each opportunity of a trace carries: 1504 as Mahimahi does, or 1500.
    #[schemars(extend("enum" = [1500, 1504]))]
    pub opportunity_bytes: u32,
    /// Whether a trace begins again at its end, rather than carrying nothing more.
    #[serde(rename = "loop")]
    pub looped: bool,
    /// Propagation delay of acknowledgements, ms, of flows that have none of their own; `delay_ms` if absent.
    #[schemars(range(min = 0, max = 100_000))]
    pub ack_delay_ms: Option<f64>,
    /// A file with a recorded series of propagation delays, in place of `delay_ms`, each way: a whole number of ms a
    /// line, each for 10 ms. Packets overtake others where it falls.
    #[schemars(extend("x-names" = "file"))]
    pub delay_series: Option<String>,
    /// A file with CellReplay's light trace of the data's path, in place of `delay_ms` there: a packet train on each line,
    /// `time base off0 off1 …` in ms. `trace` is then its heavy trace, which carries the packets beyond a train, 1400 bytes
    /// with each opportunity; `packet_bytes` is at most that.
    #[schemars(extend("x-names" = "file"))]
    pub light_trace: Option<String>,
    /// The same for acknowledgements, whose heavy trace is `ack`.
    #[schemars(extend("x-names" = "file"))]
    pub ack_light_trace: Option<String>,
    /// How long nothing must have left a light trace before a packet begins another train, ms.
    #[schemars(range(min = 0, max = 100_000))]
    pub light_timer_ms: f64,
    /// A file with what is added to the light trace's delay by size of packet (CellReplay's size offsets): lines of
    /// `size offset`, for 100, 200, … 1400 bytes, in ms.
    #[schemars(extend("x-names" = "file"))]
    pub size_offsets: Option<String>,
    /// The same for acknowledgements.
    #[schemars(extend("x-names" = "file"))]
    pub ack_size_offsets: Option<String>,
    /// Random additional delay of data packets behind the bottleneck, such as `gauss:mean_ms=5` (`verus list jitter`); they
    /// keep their order.
    #[schemars(extend("x-names" = "nothing"))]
    pub jitter: String,
    /// The same for acknowledgements.
    #[schemars(extend("x-names" = "nothing"))]
    pub ack_jitter: String,
    /// Which data packets arrive late, behind later ones, such as `late:p=0.05,ms=10` (`verus list reorder`).
    #[schemars(extend("x-names" = "nothing"))]
    pub reorder: String,
    /// Probability that a data packet is lost on its way to the bottleneck.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub loss: f64,
    /// Losses of data packets in bursts, as LOST/OF: `2/18` loses the last two of every 18 packets.
    #[schemars(extend("x-names" = "nothing"))]
    pub loss_bursts: String,
    /// Losses of data packets before the bottleneck that depend on those before, all flows together, such as
    /// `gemodel:p=0.01,r=0.1` (`verus list loss`).
    #[schemars(extend("x-names" = "nothing"))]
    pub loss_model: String,
    /// A file with a series of loss probabilities before the bottleneck, beside `loss`: a number between 0 and 1 a line,
    /// each for 10 ms. It repeats.
    #[schemars(extend("x-names" = "file"))]
    pub loss_series: Option<String>,
    /// Probability that a data packet is sent on twice, before losses and the bottleneck.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub duplicate: f64,
    /// Probability that a data packet arrives corrupt: it crosses the bottleneck, and its receiver drops it.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub corrupt: f64,
    /// A policer (token bucket) before the bottleneck, which drops data packets that exceed its rate, such as
    /// `bucket:rate_mbps=10,burst=150000`.
    #[schemars(extend("x-names" = "nothing"))]
    pub policer: String,
    /// Probability that an acknowledgement is lost.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub ack_loss: f64,
    /// The flows.
    #[schemars(length(min = 1, max = 100_000))]
    pub flows: Vec<FlowSpec>,
    /// Length of the run, s.
    #[schemars(range(max = 1_000_000), extend("exclusiveMinimum" = 0))]
    pub duration_s: f64,
    /// Seed of every random stream in the run.
    pub seed: u64,
    /// Whether each packet's fate is recorded.
    pub records: bool,
    /// Whether time series and profile snapshots are sampled.
    pub series: bool,
    /// Whether each flow's epochs are sampled, to train a model on them.
    pub epochs: bool,
    /// Width of the bins of time series, ms.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub bin_ms: f64,
    /// Whether a handshake has told each sender the path's round trip without queues before data leaves, as TCP's and
    /// QUIC's do; no packet of it is simulated.
    pub handshake: bool,
    /// Data packets for each acknowledgement: 1 acknowledges each, 2 is TCP's delayed ACK.
    #[schemars(range(min = 1, max = 1000))]
    pub ack_every: u32,
    /// Data packets that are acknowledged one by one all the same, at a connection's beginning and after a pause of
    /// 240 ms. Unless it is 0, those behind missing data are too. Linux's receiver does so with 16.
    #[schemars(range(max = 1000))]
    pub quick_acks: u32,
    /// Changes of the path during the run, in order of time.
    pub changes: Vec<Change>,
    /// Period after which the path returns to its first state and the changes start again, s; if absent, they happen once.
    #[schemars(range(min = 0.001, max = 1_000_000))]
    pub changes_repeat_s: Option<f64>,
    /// The most events that the run may take (a packet's arrival is one, and so is a timer): it fails if it takes more. No
    /// bound if absent.
    #[schemars(range(min = 1, max = 9_223_372_036_854_775_807_i64))]
    pub max_events: Option<u64>,
}

/// One flow of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowSpec {
    /// The algorithm, such as `verus:ratio=2`.
    #[schemars(extend("x-names" = "scheme"))]
    pub scheme: String,
    /// When the flow begins, s.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub start_s: f64,
    /// When the flow ends, s; the run's end if absent.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub stop_s: Option<f64>,
    /// Its propagation delay each way, ms; the scenario's if absent.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100_000))]
    pub delay_ms: Option<f64>,
    /// Which links its data cross where there are two: `first`, `second` or, if absent, both.
    #[schemars(extend("x-names" = "nothing"))]
    #[serde(default)]
    pub crosses: Option<String>,
    /// Size of the one file that the flow sends, bytes; as `traffic` says if absent.
    #[serde(default)]
    #[schemars(range(min = 1, max = 9_223_372_036_854_775_807_i64))]
    pub bytes: Option<u64>,
    /// What the flow has to send, such as `on-off:off_s=60`, `c.r1002` or `files:bytes=100000`; always something, `full`, if
    /// absent.
    #[schemars(extend("x-names" = "nothing"))]
    #[serde(default)]
    pub traffic: Option<String>,
}

/// A change of the path at an instant; what is absent stays. It concerns what has not left the bottleneck.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// When the change takes place, s.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub at_s: f64,
    /// The bottleneck's rate, Mbit/s, 0 to hold all packets; only where the channel is a `rate:`.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub rate_mbps: Option<f64>,
    /// The rate of the acknowledgements' link, Mbit/s, likewise.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub ack_rate_mbps: Option<f64>,
    /// Propagation delay each way, ms, for all flows. Packets under way keep their order.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100_000))]
    pub delay_ms: Option<f64>,
    /// Random additional delay of data packets behind the bottleneck.
    #[schemars(extend("x-names" = "nothing"))]
    #[serde(default)]
    pub jitter: Option<String>,
    /// The same for acknowledgements.
    #[schemars(extend("x-names" = "nothing"))]
    #[serde(default)]
    pub ack_jitter: Option<String>,
    /// Probability of random loss.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    pub loss: Option<f64>,
    /// Losses in bursts.
    #[schemars(extend("x-names" = "nothing"))]
    #[serde(default)]
    pub loss_bursts: Option<String>,
}

impl Default for Scenario {
    fn default() -> Self {
        Scenario {
            trace: "city-driving-3g-up".to_owned(),
            queue: "red:min=375000,max=1125000,p=0.1".to_owned(),
            second_trace: None,
            second_queue: "infinite".to_owned(),
            ack: "ideal".to_owned(),
            ack_queue: "infinite".to_owned(),
            medium: "none".to_owned(),
            delay_ms: 20.0,
            packet_bytes: 1500,
            ack_bytes: 64,
            opportunity_bytes: 1504,
            looped: true,
            ack_delay_ms: None,
            delay_series: None,
            light_trace: None,
            ack_light_trace: None,
            light_timer_ms: 0.0,
            size_offsets: None,
            ack_size_offsets: None,
            jitter: "none".to_owned(),
            ack_jitter: "none".to_owned(),
            reorder: "none".to_owned(),
            loss: 0.0,
            loss_bursts: "none".to_owned(),
            loss_model: "none".to_owned(),
            loss_series: None,
            duplicate: 0.0,
            corrupt: 0.0,
            policer: "none".to_owned(),
            ack_loss: 0.0,
            flows: vec![FlowSpec::new("verus:ratio=2")],
            duration_s: 60.0,
            seed: 1,
            records: false,
            series: true,
            epochs: false,
            bin_ms: 100.0,
            handshake: false,
            ack_every: 1,
            quick_acks: 0,
            changes: Vec::new(),
            changes_repeat_s: None,
            max_events: None,
        }
    }
}

impl FlowSpec {
    /// A bulk flow for the whole run.
    pub fn new(scheme: &str) -> Self {
        FlowSpec {
            scheme: scheme.to_owned(),
            start_s: 0.0,
            stop_s: None,
            delay_ms: None,
            crosses: None,
            bytes: None,
            traffic: None,
        }
    }
}

/// Why a scenario cannot be run, or was not finished.
#[derive(Debug, Error)]
pub enum Error {
    /// A field with an invalid value.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// It is not even JSON.
    #[error("scenario: {0}")]
    Json(#[from] serde_json::Error),
    /// A scheme cannot be used.
    #[error(transparent)]
    Scheme(#[from] SchemeError),
    /// A queue, traffic, a medium, jitter, a loss model, a policer or reordering cannot be used.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A channel cannot be used.
    #[error(transparent)]
    Channel(#[from] verus_channel::Error),
    /// A controller gave up or did what none may, or the run took more than [`Scenario::max_events`]: this run is over, and
    /// others need not care.
    #[error("{0}")]
    Controller(String),
    /// The progress callback said to stop.
    #[error("the run was cancelled")]
    Cancelled,
}

/// The parsed texts of a scenario, without channels and queues. Files are not read.
pub(crate) struct Texts {
    pub(crate) there: PathSpec,
    pub(crate) back: PathSpec,
    pub(crate) medium: MediumConfig,
    pub(crate) traffic: Vec<Traffic>,
}

pub(crate) fn check(
    ok: bool,
    field: impl Into<String>,
    expected: impl Into<Expected>,
    value: impl ToString,
) -> Result<(), Error> {
    if ok {
        Ok(())
    } else {
        Err(Error::Field(FieldError::Value {
            field: field.into(),
            expected: expected.into(),
            value: value.to_string(),
        }))
    }
}

/// Sets the fields of `spec` that `object` has, under these names with `prefix`; as a change, from an instant on. `within`
/// begins their names in messages.
fn set(
    spec: &mut PathSpec,
    prefix: &str,
    object: &Value,
    within: &str,
    change: Option<path_spec::Change>,
) -> Result<(), Error> {
    for field in FIELDS {
        let name = format!("{prefix}{}", field.name);
        let set = match &object[&name] {
            Value::Null => continue,
            Value::String(text) => (field.set)(spec, text, change),
            number => (field.set)(spec, &number.to_string(), change),
        };
        let Err(error) = set else { continue };
        let full_name = format!("{within}{name}");
        if let Problem::BadValue { key, expected, .. } = &*error.problem
            && key == field.name
        {
            check(false, &full_name, expected, format!("`{}`", error.text))?;
        }
        return Err(SpecError {
            what: full_name,
            ..error
        }
        .into());
    }
    Ok(())
}

impl Scenario {
    /// Its JSON Schema (draft 2020-12): type, range, default and meaning of each field, for editors, forms and Python's
    /// types.
    pub fn schema() -> &'static Value {
        static SCHEMA: LazyLock<Value> =
            LazyLock::new(|| schemars::schema_for!(Scenario).to_value());
        &SCHEMA
    }

    /// Reads a scenario; absent fields have their defaults.
    ///
    /// # Errors
    /// Names invalid JSON, an unknown field, or a value of another type or out of its range.
    pub fn from_json(text: &str) -> Result<Scenario, Error> {
        let value: Value = serde_json::from_str(text)?;
        refuse(Scenario::schema(), &value)?;
        Ok(serde_json::from_value(value)?)
    }

    /// Checks every number, and what relates one to another; reads no file that it names.
    ///
    /// # Errors
    /// The first thing that is wrong, by name.
    pub fn check(&self) -> Result<(), Error> {
        self.texts().map(drop)
    }

    /// Checks the scenario, and parses its texts but those of schemes, channels and queues.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub(crate) fn texts(&self) -> Result<Texts, Error> {
        let fields = serde_json::to_value(self)?;
        refuse(Scenario::schema(), &fields)?;
        for (index, flow) in self.flows.iter().enumerate() {
            if let Some(stop) = flow.stop_s {
                let name = format!("flows[{index}].stop_s");
                check(stop > flow.start_s, name, "after start_s", stop)?;
            }
        }
        let crosses = self.crosses()?;
        self.check_light()?;
        self.check_unused()?;
        self.check_changes()?;
        let direction = |prefix| {
            let mut spec = PathSpec::default();
            set(&mut spec, prefix, &fields, "", None)?;
            for (index, change) in self.changes.iter().enumerate() {
                let within = format!("changes[{index}].");
                let object = &fields["changes"][index];
                set(&mut spec, prefix, object, &within, Some(self.when(change)))?;
            }
            spec.light_timer = Duration::from_millis_f64(self.light_timer_ms);
            Ok::<_, Error>(spec)
        };
        let [mut there, back] = [direction("")?, direction("ack_")?];
        there.path.crosses = crosses;
        Ok(Texts {
            there,
            back,
            medium: self.medium.parse()?,
            traffic: self.traffic()?,
        })
    }

    /// Refuses what concerns a part that the path does not have.
    fn check_unused(&self) -> Result<(), Error> {
        let unset = Expected::of_other("left out where no channel is set by", "ack");
        let none = Expected::of_other("left out where there is no", "second_trace");
        for (is_absent, field, expected, queue) in [
            (self.ack == "ideal", "ack_queue", unset, &self.ack_queue),
            (
                self.second_trace.is_none(),
                "second_queue",
                none,
                &self.second_queue,
            ),
        ] {
            let is_unused = is_absent && queue != "infinite";
            check(!is_unused, field, expected, format!("`{queue}`"))?;
        }
        if let Some(period) = self.changes_repeat_s {
            let expected = Expected::of_other("left out where there are no", "changes");
            let is_used = !self.changes.is_empty();
            check(is_used, "changes_repeat_s", expected, period)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_default_is_allowed_and_every_field_has_a_meaning() {
        Scenario::default().check().expect("allowed");
        let definitions = Scenario::schema()["$defs"]
            .as_object()
            .expect("flows and changes");
        let of_scenario = &Scenario::schema()["properties"];
        let of_path = FIELDS.iter().map(|field| &of_scenario[field.name]);
        assert!(of_path.into_iter().all(Value::is_object), "{of_scenario}");
        for rule in definitions.values().chain([Scenario::schema()]) {
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
                let names = ["channel", "file", "scheme", "nothing"].map(Value::from);
                assert!(
                    !of.contains("string") || names.contains(&field["x-names"]),
                    "what {name} names decides what stored results depend on"
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
                "packet_bytes must be a whole number between 41 and 65535, not -1",
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
            (json!([]), "all of it must be an object, not a list"),
        ];
        for (scenario, message) in cases {
            assert_eq!(
                Scenario::from_json(&scenario.to_string())
                    .unwrap_err()
                    .to_string(),
                message
            );
        }
        let unknown = Scenario::from_json(r#"{"delay": 1}"#)
            .unwrap_err()
            .to_string();
        let words = "unknown field `delay`; known are ";
        assert!(
            unknown.starts_with(words) && unknown.contains("delay_ms"),
            "{unknown}"
        );
    }
}
