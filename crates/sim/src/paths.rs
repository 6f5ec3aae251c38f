//! The paths of a scenario, both ways: channels, queues and delays, and their changes over time.

use std::path::Path;
use std::sync::Arc;

use verus_channel::catalogue::{self, Channel};
use verus_channel::medium::MediumConfig;
use verus_channel::path::link::{Service, WhenOver};
use verus_channel::path::replay;
use verus_channel::queue::QueueConfig;
use verus_channel::schedule::Schedule;
use verus_channel::{LightConfig, LightTrace, PathConfig, SizeOffsets, delays, losses};
use verus_core::{Bytes, Duration, Rate, Time};

use crate::record::ChannelInfo;
use crate::scenario::{Change, Changing, Error, FlowSpec, Scenario, Texts, check};
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

impl Scenario {
    /// Checks every field but the flows' schemes, and reads the channels.
    ///
    /// # Errors
    /// The first thing that is wrong, by name.
    pub fn paths(&self) -> Result<Paths, Error> {
        self.paths_of(&self.texts()?)
    }

    /// Reads the channels and the queues, beside `texts`.
    pub(crate) fn paths_of(&self, texts: &Texts) -> Result<Paths, Error> {
        let queue = queue_of("queue", &self.queue, self.packet_bytes)?;
        let channel = self.open(&self.trace)?;
        let mut other_channels = Vec::new();
        let ack = match self.ack.as_str() {
            "ideal" => None,
            "same" => Some(channel.clone()),
            text => {
                let ack = self.open(text)?;
                let info = self.info(text, &ack, self.opportunity(&self.ack_light_trace));
                other_channels.push(("ack", info));
                Some(ack)
            }
        };
        self.check_changes(&channel, ack.as_ref())?;
        let back_link = match &ack {
            None => None,
            Some(channel) => {
                let opportunity = self.opportunity(&self.ack_light_trace);
                let service = self.serving(channel, opportunity, |change| change.ack_rate_mbps);
                let queue = queue_of("ack_queue", &self.ack_queue, self.ack_bytes)?;
                Some((service, queue))
            }
        };
        let second = match &self.second_trace {
            None => None,
            Some(text) => {
                let channel = self.open(text)?;
                let queue = queue_of("second_queue", &self.second_queue, self.packet_bytes)?;
                let info = self.info(text, &channel, self.opportunity(&None));
                other_channels.push(("second_trace", info));
                Some((self.service(&channel, self.opportunity(&None)), queue))
            }
        };
        let series = self.delay_series.as_ref().map(Path::new);
        let series = series.map(delays::read).transpose()?;
        let opportunity = self.opportunity(&self.light_trace);
        let serving = self.serving(&channel, opportunity, |change| change.rate_mbps);
        let loss_series = self.loss_series.as_ref().map(Path::new);
        let loss_series = loss_series.map(losses::read).transpose()?;
        let mut there = PathConfig {
            duplicate: self.duplicate,
            loss_series: loss_series.unwrap_or(Schedule::constant(0.0)),
            loss_model: texts.loss_model,
            corrupt: self.corrupt,
            loss: self.over_time(self.loss, |change| change.loss),
            bursts: self.texts_over_time(&texts.bursts),
            policer: texts.policer,
            link: Some((serving, queue)),
            second,
            crosses: texts.crosses.clone(),
            jitter: self.texts_over_time(&texts.jitter),
            reorder: texts.reorder,
            delays: self.delays(series.as_ref(), |flow| {
                flow.delay_ms.unwrap_or(self.delay_ms)
            }),
            overtaking: series.is_some(),
            ..PathConfig::default()
        };
        let mut back = PathConfig {
            loss: Schedule::constant(self.ack_loss),
            link: back_link,
            jitter: self.texts_over_time(&texts.ack_jitter),
            delays: self.delays(series.as_ref(), |flow| {
                flow.delay_ms.or(self.ack_delay_ms).unwrap_or(self.delay_ms)
            }),
            overtaking: series.is_some(),
            ..PathConfig::default()
        };
        if texts.medium != MediumConfig::None {
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
        for (way, light, sizes) in [
            (&mut there, &self.light_trace, &self.size_offsets),
            (&mut back, &self.ack_light_trace, &self.ack_size_offsets),
        ] {
            way.light = self.light(light.as_deref(), sizes.as_deref())?;
            if way.light.is_some() {
                way.delays.fill(Schedule::constant(Duration::ZERO));
            }
        }
        Ok(Paths {
            there,
            back,
            medium: texts.medium,
            channel: self.info(&self.trace, &channel, opportunity),
            other_channels,
        })
    }

    /// The propagation delay of each flow: the recorded `series`, or what `ms` says of it and the changes.
    fn delays(
        &self,
        series: Option<&Schedule<Duration>>,
        ms: impl Fn(&FlowSpec) -> f64,
    ) -> Vec<Schedule<Duration>> {
        let delay = |flow| match series {
            Some(series) => series.clone(),
            None => self.over_time(Duration::from_millis_f64(ms(flow)), |change| {
                change.delay_ms.map(Duration::from_millis_f64)
            }),
        };
        self.flows.iter().map(delay).collect()
    }

    /// The channel of this name, as long as the run where it is generated.
    fn open(&self, name: &str) -> Result<Channel, Error> {
        let duration = Duration::from_secs_f64(self.duration_s);
        Ok(catalogue::open(name, self.seed, duration)?)
    }

    /// The light trace and its size offsets, read from these files.
    fn light(
        &self,
        trace: Option<&str>,
        sizes: Option<&str>,
    ) -> Result<Option<LightConfig>, Error> {
        let Some(trace) = trace else { return Ok(None) };
        let sizes = sizes.map(|path| SizeOffsets::read(Path::new(path)));
        Ok(Some(LightConfig {
            trace: Arc::new(LightTrace::read(Path::new(trace))?),
            timer: Duration::from_millis_f64(self.light_timer_ms),
            sizes: sizes.transpose()?.map(Arc::new),
        }))
    }

    /// The size of a trace's opportunity: beside a light trace, CellReplay's.
    fn opportunity(&self, light: &Option<String>) -> Bytes {
        match light {
            Some(_) => replay::OPPORTUNITY,
            None => Bytes::new(u64::from(self.opportunity_bytes)),
        }
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

    /// The value of a field's text, and then those of the changes.
    fn texts_over_time<T: Copy>(&self, (first, changes): &Changing<T>) -> Schedule<T> {
        let mut changes = changes.iter();
        self.over_time(*first, |_| changes.next().copied().flatten())
    }

    /// A value that is `first` at first, and then follows the changes. Of two at one instant the
    /// later counts.
    fn over_time<T: Copy>(
        &self,
        first: T,
        mut of: impl FnMut(&Change) -> Option<T>,
    ) -> Schedule<T> {
        let mut steps = vec![(Time::ZERO, first)];
        for change in &self.changes {
            let Some(value) = of(change) else { continue };
            let at = Time::from_secs_f64(change.at_s);
            steps.pop_if(|(last, _)| *last == at);
            steps.push((at, value));
        }
        let once = Schedule::new(steps).expect("changes were checked to be in order");
        match self.changes_repeat_s {
            // A constant value needs no laps.
            Some(period) if once.steps().len() > 1 => once
                .repeating(Duration::from_secs_f64(period))
                .expect("changes were checked to be within their period"),
            _ => once,
        }
    }

    /// Checks the changes.
    fn check_changes(&self, channel: &Channel, ack: Option<&Channel>) -> Result<(), Error> {
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
            let rate = |field: &str, rate: Option<f64>, channel: Option<&Channel>| match rate {
                Some(rate) => check(
                    matches!(channel, Some(Channel::Rate(_))),
                    named(field),
                    "left out but where the channel is a rate",
                    rate,
                ),
                None => Ok(()),
            };
            rate("rate_mbps", change.rate_mbps, Some(channel))?;
            rate("ack_rate_mbps", change.ack_rate_mbps, ack)?;
            if let (Some(delay), Some(_)) = (change.delay_ms, &self.delay_series) {
                check(false, named("delay_ms"), beside("delay_series"), delay)?;
            }
        }
        if let Some(period) = self.changes_repeat_s {
            let within = Time::from_secs_f64(last) < Time::from_secs_f64(period);
            let expected = "after the last change";
            check(within, "changes_repeat_s", expected, period)?;
        }
        if self.delay_series.is_some() {
            let flows = self.flows.iter().enumerate();
            for (index, delay) in flows.filter_map(|(index, flow)| Some((index, flow.delay_ms?))) {
                let field = format!("flows[{index}].delay_ms");
                check(false, field, beside("delay_series"), delay)?;
            }
            if let Some(delay) = self.ack_delay_ms {
                check(false, "ack_delay_ms", beside("delay_series"), delay)?;
            }
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
                if let Some(sizes) = sizes {
                    let expected = Expected::of_other("left out where there is no", name);
                    check(false, sizes_name, expected, format!("`{sizes}`"))?;
                }
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
            if let Some(series) = &self.delay_series {
                check(false, "delay_series", beside(name), format!("`{series}`"))?;
            }
            for (index, flow) in self.flows.iter().enumerate() {
                if let Some(delay) = flow.delay_ms {
                    let field = format!("flows[{index}].delay_ms");
                    check(false, field, beside(name), delay)?;
                }
            }
            for (index, change) in self.changes.iter().enumerate() {
                if let Some(delay) = change.delay_ms {
                    let field = format!("changes[{index}].delay_ms");
                    check(false, field, beside(name), delay)?;
                }
            }
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
            if let Some(delay) = self.ack_delay_ms {
                check(false, "ack_delay_ms", beside("ack_light_trace"), delay)?;
            }
        }
        Ok(())
    }

    /// The channel, with the rates in Mbit/s that the changes give it where it is a rate.
    fn serving(
        &self,
        channel: &Channel,
        opportunity: Bytes,
        mbps: fn(&Change) -> Option<f64>,
    ) -> Service {
        match channel {
            Channel::Rate(rate) => {
                Service::Rate(self.over_time(*rate, |change| mbps(change).map(Rate::from_mbps)))
            }
            Channel::Trace(_) => self.service(channel, opportunity),
        }
    }

    /// The channel without the changes.
    fn service(&self, channel: &Channel, opportunity: Bytes) -> Service {
        let end = if self.looped {
            WhenOver::Loop
        } else {
            WhenOver::End
        };
        channel.service(opportunity, end)
    }
}
