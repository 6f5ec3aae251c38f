//! The paths of a scenario, both ways: channels, queues and delays, and their changes over time.

use std::path::Path;

use verus_channel::catalogue::{self, Channel};
use verus_channel::medium::MediumConfig;
use verus_channel::path::link::Service;
use verus_channel::path::replay;
use verus_channel::path_spec::{self, PathSpec};
use verus_channel::queue::QueueConfig;
use verus_channel::schedule::Schedule;
use verus_channel::{PathConfig, delays};
use verus_core::{Bytes, Duration, Rate, Time};

use crate::record::ChannelInfo;
use crate::scenario::{Change, Error, FlowSpec, Scenario, Texts, check};
use crate::schema::Expected;

/// The paths of a scenario, independent of its senders.
#[derive(Clone, Debug)]
pub struct Paths {
    /// The way of the data.
    pub there: PathConfig,
    /// The way of the acknowledgements.
    pub back: PathConfig,
    /// The medium that both ways share.
    pub medium: MediumConfig,
    /// A description of the channel.
    pub channel: ChannelInfo,
    /// A description of each other one, by the scenario's field that names it.
    pub other_channels: Vec<(&'static str, ChannelInfo)>,
}

/// The queue that a field describes. One that has no room for a single packet would lose all of them.
fn queue_of(field: &str, text: &str, packet_bytes: u32) -> Result<QueueConfig, Error> {
    let queue = QueueConfig::parse(text)?;
    let room = queue
        .limit()
        .is_none_or(|limit| limit.get() >= u64::from(packet_bytes));
    let expected = format!("one with room for a packet of {packet_bytes} bytes");
    check(room, field, expected, text)?;
    Ok(queue)
}

/// The rule for a field that another excludes.
fn beside(other: &'static str) -> Expected {
    Expected::of_other("left out beside", other)
}

/// Checks that a field has no value.
fn check_absent(
    value: Option<impl ToString>,
    field: impl Into<String>,
    expected: Expected,
) -> Result<(), Error> {
    value.map_or(Ok(()), |value| check(false, field, expected, value))
}

fn quoted(text: &Option<String>) -> Option<String> {
    text.as_ref().map(|text| format!("`{text}`"))
}

impl Scenario {
    /// Checks every field but the flows' schemes, and reads the channels.
    ///
    /// # Errors
    /// The first thing that is wrong, by name.
    pub fn paths(&self) -> Result<Paths, Error> {
        self.paths_of(self.texts()?)
    }

    /// Reads the channels, the queues and the files of both ways.
    pub(crate) fn paths_of(&self, texts: Texts) -> Result<Paths, Error> {
        let (mut there, mut back, medium) = (texts.there, texts.back, texts.medium);
        let queue = queue_of("queue", &self.queue, self.packet_bytes)?;
        let channel = self.open(&self.trace)?;
        let mut other_channels = Vec::new();
        let ack = match self.ack.as_str() {
            "ideal" => None,
            "same" => Some(channel.clone()),
            text => {
                let ack = self.open(text)?;
                let info = self.info(text, &ack, back.opportunity(self.opportunity()));
                other_channels.push(("ack", info));
                Some(ack)
            }
        };
        let info = self.info(&self.trace, &channel, there.opportunity(self.opportunity()));
        there.link = Some((channel, queue));
        if let Some(channel) = ack {
            back.link = Some((
                channel,
                queue_of("ack_queue", &self.ack_queue, self.ack_bytes)?,
            ));
        }
        if let Some(text) = &self.second_trace {
            let channel = self.open(text)?;
            let queue = queue_of("second_queue", &self.second_queue, self.packet_bytes)?;
            let info = self.info(text, &channel, self.opportunity());
            other_channels.push(("second_trace", info));
            there.second = Some((channel, queue));
        }
        let series = self.delay_series.as_ref().map(Path::new);
        let series = series.map(delays::read).transpose()?;
        there.path.delays = self.delays(series.as_ref(), |flow| {
            flow.delay_ms.unwrap_or(self.delay_ms)
        });
        back.path.delays = self.delays(series.as_ref(), |flow| {
            flow.delay_ms.or(self.ack_delay_ms).unwrap_or(self.delay_ms)
        });
        there.path.overtaking = series.is_some();
        back.path.overtaking = series.is_some();
        let mut there = self.read(there, "rate_mbps", |change| change.rate_mbps)?;
        let mut back = self.read(back, "ack_rate_mbps", |change| change.ack_rate_mbps)?;
        if medium != MediumConfig::None {
            for (way, field, text) in [
                (&mut there, "trace", &self.trace),
                (&mut back, "ack", &self.ack),
            ] {
                let shares = way
                    .link
                    .as_mut()
                    .is_some_and(|(service, _)| service.share());
                let expected = Expected::of_other("a constant rate, `rate:MBPS`, beside", "medium");
                check(shares, field, expected, format!("`{text}`"))?;
            }
        }
        Ok(Paths {
            there,
            back,
            medium,
            channel: info,
            other_channels,
        })
    }

    /// The path of a direction, with the changes of its link's rate.
    fn read(
        &self,
        spec: PathSpec,
        field: &str,
        rate_mbps: fn(&Change) -> Option<f64>,
    ) -> Result<PathConfig, Error> {
        let path = spec.read(self.opportunity(), self.looped);
        let mut path = path.map_err(|(_, error)| error)?;
        for (index, change) in self.changes.iter().enumerate() {
            let Some(mbps) = rate_mbps(change) else {
                continue;
            };
            match &mut path.link {
                Some((Service::Rate(rates), _)) => {
                    rates.change(self.when(change), Rate::from_mbps(mbps));
                }
                _ => {
                    let expected = "left out but where the channel is a rate";
                    check(false, format!("changes[{index}].{field}"), expected, mbps)?;
                }
            }
        }
        Ok(path)
    }

    /// When a change takes place.
    pub(crate) fn when(&self, change: &Change) -> path_spec::Change {
        let period = self.changes_repeat_s.map(Duration::from_secs_f64);
        (Time::from_secs_f64(change.at_s), period)
    }

    /// The propagation delay of each flow: the recorded `series`, or what `ms` says of it and the changes.
    fn delays(
        &self,
        series: Option<&Schedule<Duration>>,
        ms: impl Fn(&FlowSpec) -> f64,
    ) -> Vec<Schedule<Duration>> {
        let delay = |flow| {
            let mut delays = Schedule::constant(Duration::from_millis_f64(ms(flow)));
            for change in &self.changes {
                if let Some(delay) = change.delay_ms {
                    delays.change(self.when(change), Duration::from_millis_f64(delay));
                }
            }
            series.cloned().unwrap_or(delays)
        };
        self.flows.iter().map(delay).collect()
    }

    /// The channel of this name, as long as the run where it is generated.
    fn open(&self, name: &str) -> Result<Channel, Error> {
        let duration = Duration::from_secs_f64(self.duration_s);
        Ok(catalogue::open(name, self.seed, duration)?)
    }

    /// The size of a trace's opportunity.
    fn opportunity(&self) -> Bytes {
        Bytes::new(u64::from(self.opportunity_bytes))
    }

    fn info(&self, name: &str, channel: &Channel, opportunity: Bytes) -> ChannelInfo {
        ChannelInfo {
            name: name.to_owned(),
            sha256: channel.trace().map(|trace| trace.sha256()),
            duration_s: channel.trace().map(|trace| trace.period().as_secs_f64()),
            mean_mbps: match channel {
                Channel::Trace(trace) => trace.mean_rate(opportunity).as_mbps(),
                Channel::Rate(rate) => rate.as_mbps(),
            },
        }
    }

    /// Checks the changes. `read` checks their rates, which need a link.
    pub(crate) fn check_changes(&self) -> Result<(), Error> {
        let mut last = 0.0;
        for (index, change) in self.changes.iter().enumerate() {
            let named = |field: &str| format!("changes[{index}].{field}");
            check(
                change.at_s >= last,
                named("at_s"),
                "in order of time",
                change.at_s,
            )?;
            last = change.at_s;
        }
        if let Some(period) = self.changes_repeat_s {
            let within = Time::from_secs_f64(last) < Time::from_secs_f64(period);
            let expected = "after the last change";
            check(within, "changes_repeat_s", expected, period)?;
        }
        if self.delay_series.is_some() {
            self.check_no_delays("delay_series")?;
            check_absent(self.ack_delay_ms, "ack_delay_ms", beside("delay_series"))?;
        }
        Ok(())
    }

    /// Checks that flows and changes have no delay beside the field `other`.
    fn check_no_delays(&self, other: &'static str) -> Result<(), Error> {
        let flows = self.flows.iter().map(|flow| ("flows", flow.delay_ms));
        let changes = self.changes.iter();
        let changes = changes.map(|change| ("changes", change.delay_ms));
        for (index, (list, delay)) in flows.enumerate().chain(changes.enumerate()) {
            let field = format!("{list}[{index}].delay_ms");
            check_absent(delay, field, beside(other))?;
        }
        Ok(())
    }

    /// Checks what light traces ask of other fields, and what asks for them.
    pub(crate) fn check_light(&self) -> Result<(), Error> {
        let bytes = replay::OPPORTUNITY.get();
        for (name, light, sizes_name, sizes, size_name, size) in [
            (
                "light_trace",
                &self.light_trace,
                "size_offsets",
                &self.size_offsets,
                "packet_bytes",
                self.packet_bytes,
            ),
            (
                "ack_light_trace",
                &self.ack_light_trace,
                "ack_size_offsets",
                &self.ack_size_offsets,
                "ack_bytes",
                self.ack_bytes,
            ),
        ] {
            if light.is_none() {
                let expected = Expected::of_other("left out where there is no", name);
                check_absent(quoted(sizes), sizes_name, expected)?;
                continue;
            }
            check(
                self.medium == "none",
                "medium",
                beside(name),
                format!("`{}`", self.medium),
            )?;
            let expected = Expected::of_other(&format!("at most {bytes} beside"), name);
            check(u64::from(size) <= bytes, size_name, expected, size)?;
            check_absent(quoted(&self.delay_series), "delay_series", beside(name))?;
            self.check_no_delays(name)?;
        }
        if self.light_trace.is_none() && self.ack_light_trace.is_none() {
            let timer = self.light_timer_ms;
            let expected = "left out where there is no light trace";
            check(timer == 0.0, "light_timer_ms", expected, timer)?;
        }
        if self.ack_light_trace.is_some() {
            let expected = Expected {
                words: "a channel beside ack_light_trace, the heavy one".to_owned(),
                other: Some("ack_light_trace"),
            };
            check(self.ack != "ideal", "ack", expected, "`ideal`")?;
            let delay = self.ack_delay_ms;
            check_absent(delay, "ack_delay_ms", beside("ack_light_trace"))?;
        }
        Ok(())
    }
}
