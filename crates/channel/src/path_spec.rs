//! One direction of a path as people describe it: fields with texts, and files that are not read yet.
//!
//! A scenario and `verus shell` fill a [`PathSpec`] by the same table of fields, and [`PathSpec::read`] makes of it the
//! [`PathConfig`] that simulator and emulator build.

use std::path::PathBuf;
use std::sync::Arc;

use verus_core::{Bytes, Duration, Time};
use verus_words::quantity::{self, Unit};

use crate::catalogue::Channel;
use crate::error::Error;
use crate::light::LightTrace;
use crate::losses;
use crate::netem::Setting;
use crate::path::bursts::BurstsConfig;
use crate::path::config::PathConfig;
use crate::path::jitter::JitterConfig;
use crate::path::link::WhenOver;
use crate::path::loss_model::LossModelConfig;
use crate::path::policer::PolicerConfig;
use crate::path::reorder::ReorderConfig;
use crate::path::replay::{self, LightConfig};
use crate::queue::{QueueConfig, SpecError};
use crate::schedule::Schedule;
use crate::sizes::SizeOffsets;

/// One direction of a path. By default nothing is lost or delayed.
#[derive(Clone, Debug, Default)]
pub struct PathSpec {
    /// The part without files. Those of the fields below are replaced when they are read.
    pub path: PathConfig,
    /// The channel of the link, and its queue.
    pub link: Option<(Channel, QueueConfig)>,
    /// Those of a second link behind the first.
    pub second: Option<(Channel, QueueConfig)>,
    /// A file with a series of loss probabilities.
    pub loss_series: Option<PathBuf>,
    /// A file with a light trace, in place of the propagation delays.
    pub light_trace: Option<PathBuf>,
    /// How long nothing must have left the light trace before a packet begins another train.
    pub light_timer: Duration,
    /// A file with additions to the light trace's delay, by size of packet.
    pub size_offsets: Option<PathBuf>,
}

/// A field of a [`PathSpec`] that is a text.
pub struct Field {
    /// Its name, as of scenarios.
    pub name: &'static str,
    /// How help names its value.
    pub value: &'static str,
    /// Its effect.
    pub meaning: &'static str,
    /// Its value at the beginning; none where it names no file.
    pub get: fn(&PathSpec) -> Option<Setting>,
    /// Sets it from a text: at the beginning, or as a change after all others.
    pub set: fn(&mut PathSpec, &str, Option<Change>) -> Result<(), SpecError>,
}

/// When a value changes, and the period after which all changes begin again.
pub type Change = (Time, Option<Duration>);

/// A table of rows `NAME: PLACE, VALUE, MEANING;`.
macro_rules! fields {
    ($($name:ident: $($place:ident).+, $value:expr, $meaning:expr;)+) => {
        &[$(Field {
            name: stringify!($name),
            value: $value,
            meaning: $meaning,
            get: |spec| spec.$($place).+.get(),
            set: |spec, text, change| spec.$($place).+.set(stringify!($name), text, change),
        }),+]
    };
}

/// How help names the value of a field that is the path of a file.
pub const FILE: &str = "FILE";

/// The fields in the order of crossing. Scenarios and options have them under these names.
pub const FIELDS: &[Field] = fields! {
    duplicate: path.duplicate, "P", "probability that a packet is sent on twice";
    loss: path.loss, "P", "probability that a packet is lost at random, as 0.005 or 0.5%";
    loss_series: loss_series, FILE,
        "file with a series of loss probabilities: a number between 0 and 1 on each line, which holds for 10 ms";
    loss_bursts: path.bursts, "LOST/OF", "losses in bursts: 2/18 loses the last two of every 18 packets";
    loss_model: path.loss_model, "MODEL",
        "which packets are lost, given those before, such as gemodel:p=0.01,r=0.1 (`verus list loss`)";
    policer: path.policer, "POLICER",
        "policer (token bucket) that drops packets above a rate, such as bucket:rate_mbps=10,burst=150000 (bytes)";
    light_trace: light_trace, FILE,
        "CellReplay's light trace, in place of the delay. Each line is a packet train, `time base off0 off1 …` in ms. \
         The link is then its heavy trace, each line of which delivers 1400 bytes, and packets are no larger";
    size_offsets: size_offsets, FILE,
        "file with an addition to a light trace's delay by size of packet: lines of `size offset`, for 100, 200, … \
         1400 bytes, in ms";
    corrupt: path.corrupt, "P", "probability that a packet is corrupt: it crosses the link, and is then dropped";
    jitter: path.jitter, "JITTER", "random additional delay, such as gauss:mean_ms=5; packets keep their order";
    reorder: path.reorder, "REORDER", "which packets arrive late, behind later ones, such as late:p=0.05,ms=10";
};

/// The value of a field of a path: shown as a setting, and set from a text.
trait FieldValue {
    fn get(&self) -> Option<Setting>;
    fn set(&mut self, name: &str, text: &str, change: Option<Change>) -> Result<(), SpecError>;
}

/// A probability. Only a change may lose all packets.
impl FieldValue for f64 {
    fn get(&self) -> Option<Setting> {
        Some(Setting::Number(*self))
    }

    fn set(&mut self, name: &str, text: &str, change: Option<Change>) -> Result<(), SpecError> {
        let share = quantity::read(text, Unit::Share).ok();
        let all = change.map_or(1.0, |_| 1.0f64.next_up());
        let share = share.filter(|share| (0.0..all).contains(share));
        let expected = "a probability below 1, such as 0.005 or 0.5%";
        *self = share.ok_or_else(|| SpecError::bad(name, expected, text))?;
        Ok(())
    }
}

impl FieldValue for Option<PathBuf> {
    fn get(&self) -> Option<Setting> {
        let path = self.as_ref()?;
        Some(Setting::Text(path.display().to_string()))
    }

    fn set(&mut self, _: &str, text: &str, _: Option<Change>) -> Result<(), SpecError> {
        *self = Some(text.into());
        Ok(())
    }
}

macro_rules! texts {
    ($($config:ty),+) => {
        $(impl FieldValue for $config {
            fn get(&self) -> Option<Setting> {
                Some(Setting::Text(self.to_string()))
            }

            fn set(&mut self, _: &str, text: &str, _: Option<Change>) -> Result<(), SpecError> {
                *self = text.parse()?;
                Ok(())
            }
        })+
    };
}
texts!(
    BurstsConfig,
    JitterConfig,
    LossModelConfig,
    PolicerConfig,
    ReorderConfig
);

impl<T: FieldValue + Copy> FieldValue for Schedule<T> {
    fn get(&self) -> Option<Setting> {
        self.steps()[0].1.get()
    }

    fn set(&mut self, name: &str, text: &str, change: Option<Change>) -> Result<(), SpecError> {
        let mut value = self.steps()[0].1;
        value.set(name, text, change)?;
        self.change(change.unwrap_or_default(), value);
        Ok(())
    }
}

impl PathSpec {
    /// The size of an opportunity of the first link's trace: `bytes`, or CellReplay's beside a light trace.
    pub fn opportunity(&self, bytes: Bytes) -> Bytes {
        self.light_trace
            .as_ref()
            .map_or(bytes, |_| replay::OPPORTUNITY)
    }

    /// Reads the files, and puts the path together. Opportunities of traces carry `bytes`; `looped` traces begin again.
    ///
    /// # Errors
    /// Names the field whose file cannot be used.
    pub fn read(self, bytes: Bytes, looped: bool) -> Result<PathConfig, (&'static str, Error)> {
        let end = if looped {
            WhenOver::Loop
        } else {
            WhenOver::End
        };
        let served = |link: Option<(Channel, QueueConfig)>, opportunity| {
            link.map(|(channel, queue)| (channel.service(opportunity, end), queue))
        };
        let opportunity = self.opportunity(bytes);
        let mut path = self.path;
        path.link = served(self.link, opportunity);
        path.second = served(self.second, bytes);
        if let Some(file) = &self.loss_series {
            path.loss_series = losses::read(file).map_err(|error| ("loss_series", error))?;
        }
        if let Some(file) = &self.light_trace {
            let trace = LightTrace::read(file).map_err(|error| ("light_trace", error))?;
            let sizes = self
                .size_offsets
                .as_deref()
                .map(SizeOffsets::read)
                .transpose();
            let sizes = sizes.map_err(|error| ("size_offsets", error))?;
            path.light = Some(LightConfig {
                trace: Arc::new(trace),
                timer: self.light_timer,
                sizes: sizes.map(Arc::new),
            });
            path.delays.fill(Schedule::constant(Duration::ZERO));
        }
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_shown_as_it_was_set_and_a_change_holds_from_its_instant() {
        let mut spec = PathSpec::default();
        let at = Some((Time::from_millis(5), None));
        for (name, change, text, shown) in [
            ("loss", None, "50%", "0.5"),
            ("loss", at, "1", "0.5"),
            ("loss_bursts", None, "2/18", "2/18"),
            ("jitter", None, "gauss:mean_ms=5", "gauss:mean_ms=5"),
            ("light_trace", None, "town", "town"),
        ] {
            let field = FIELDS.iter().find(|field| field.name == name).expect(name);
            (field.set)(&mut spec, text, change).expect(text);
            assert_eq!((field.get)(&spec).expect(text).to_string(), shown);
        }
        let steps = [(Time::ZERO, 0.5), (Time::from_millis(5), 1.0)];
        assert_eq!(spec.path.loss.steps(), steps);
    }
}
