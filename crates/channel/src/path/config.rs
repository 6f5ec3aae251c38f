//! Paths as data. The simulator and the emulator both build their paths from this.

use rand_chacha::ChaCha8Rng;
use verus_core::{Duration, random};

use super::bursts::{Bursts, BurstsConfig};
use super::delay::Delay;
use super::jitter::{Jitter, JitterConfig};
use super::link::{Link, Service};
use super::loss::Loss;
use super::loss_model::{LossModel, LossModelConfig};
use super::policer::{Policer, PolicerConfig};
use super::reorder::{Reorder, ReorderConfig};
use super::replay::{LightConfig, Replay};
use super::station::Station;
use super::{Element, Packet, Path};
use crate::queue::QueueConfig;
use crate::schedule::Schedule;

/// The elements that packets cross in one direction, in the order of the fields. By default no
/// element loses or delays anything.
#[derive(Clone, Debug, PartialEq)]
pub struct PathConfig {
    /// Probability that a packet is sent on twice.
    pub duplicate: f64,
    /// Probability that a packet is lost by chance.
    pub loss: Schedule<f64>,
    /// Probability that a packet is lost by chance, of a recorded series, beside `loss`.
    pub loss_series: Schedule<f64>,
    /// Losses that come in bursts.
    pub bursts: Schedule<BurstsConfig>,
    /// Losses that depend on those before.
    pub loss_model: LossModelConfig,
    /// A policer, which drops packets that come faster than a rate.
    pub policer: PolicerConfig,
    /// The link: what serves the queue, and the queue; `None` for propagation only.
    pub link: Option<(Service, QueueConfig)>,
    /// How the link carries short trains, where its service is for what saturates it; only beside a link.
    pub light: Option<LightConfig>,
    /// A second link behind the first.
    pub second: Option<(Service, QueueConfig)>,
    /// The links that each flow crosses; if empty, all flows cross both.
    pub crosses: Vec<Crosses>,
    /// Probability that a packet that has left the links is corrupt, so that its receiver drops it.
    pub corrupt: f64,
    /// Delay that differs from packet to packet.
    pub jitter: Schedule<JitterConfig>,
    /// Delay of some packets alone, which later packets then overtake.
    pub reorder: ReorderConfig,
    /// Propagation delay of each flow.
    pub delays: Vec<Schedule<Duration>>,
    /// Whether packets overtake others of their flow where its delay drops.
    pub overtaking: bool,
}

/// The links, of two in a row, that a flow crosses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crosses {
    /// Both.
    Both,
    /// The first only.
    First,
    /// The second only.
    Second,
}

/// The direction of a path: each direction has its own random streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The direction of the data.
    Forth = 0,
    /// The direction of the acknowledgements.
    Back = 1,
}

impl Default for PathConfig {
    fn default() -> Self {
        PathConfig {
            duplicate: 0.0,
            loss: Schedule::constant(0.0),
            loss_series: Schedule::constant(0.0),
            bursts: Schedule::constant(BurstsConfig::default()),
            loss_model: LossModelConfig::None,
            policer: PolicerConfig::None,
            link: None,
            light: None,
            second: None,
            crosses: Vec::new(),
            corrupt: 0.0,
            jitter: Schedule::constant(JitterConfig::None),
            reorder: ReorderConfig::None,
            delays: vec![Schedule::constant(Duration::ZERO)],
            overtaking: false,
        }
    }
}

impl PathConfig {
    /// Propagation only, for one flow.
    pub fn propagation(delay: Duration) -> Self {
        PathConfig {
            delays: vec![Schedule::constant(delay)],
            ..PathConfig::default()
        }
    }

    /// Whether a packet may arrive before one of its flow that set out earlier.
    pub fn may_overtake(&self) -> bool {
        self.overtaking || self.reorder != ReorderConfig::None
    }

    /// The propagation delay of a flow's packets, as known before they are sent. With a light trace
    /// it includes the least of a train; of a recorded series it is the least, otherwise the one at
    /// the beginning.
    pub fn base_delay(&self, flow: usize) -> Duration {
        let steps = self.delays[flow].steps();
        let propagation = match self.overtaking {
            true => steps.iter().map(|step| step.1).min().unwrap_or_default(),
            false => steps[0].1,
        };
        propagation
            + self
                .light
                .as_ref()
                .map_or(Duration::ZERO, LightConfig::min_delay)
    }

    /// The propagation delay of the packets of flow 0 before the path begins.
    pub fn first_delay(&self) -> Duration {
        let light = self
            .light
            .as_ref()
            .map_or(Duration::ZERO, LightConfig::first);
        self.delays[0].steps()[0].1 + light
    }

    /// Builds the path, leaving out elements that would have no effect. `seed` and `way` determine
    /// its random draws.
    pub fn build<P: Packet>(&self, seed: u64, way: Way) -> Path<P> {
        let index = way as u64;
        let of_flows = |purpose: &str| -> Vec<ChaCha8Rng> {
            let purpose = match way {
                Way::Forth => purpose.to_owned(),
                Way::Back => format!("ack-{purpose}"),
            };
            let flows = 0..self.delays.len() as u64;
            flows
                .map(|flow| random::stream(seed, &purpose, flow))
                .collect()
        };
        let by_chance = |probability: f64, purpose| {
            let chance = || Loss::new(Schedule::constant(probability), of_flows(purpose));
            (probability > 0.0).then(|| Box::new(chance()))
        };
        let mut elements = Vec::new();
        elements.extend(by_chance(self.duplicate, "duplicate").map(Element::Duplicate));
        if self.loss.ever(|probability| *probability > 0.0) {
            elements.push(Loss::new(self.loss.clone(), of_flows("loss")).into());
        }
        if self.loss_series.ever(|probability| *probability > 0.0) {
            elements.push(Loss::new(self.loss_series.clone(), of_flows("loss-series")).into());
        }
        if self.bursts.ever(|bursts| bursts.lost > 0) {
            elements.push(Bursts::new(self.bursts.clone()).into());
        }
        let draws = random::stream(seed, "loss-model", index);
        elements.extend(LossModel::new(&self.loss_model, draws).map(Into::into));
        elements.extend(Policer::new(&self.policer).map(Into::into));
        let links = [
            (&self.link, &self.light, "queue", Crosses::Second),
            (&self.second, &None, "second-queue", Crosses::First),
        ];
        for (link, light, purpose, not_by) in links {
            let Some((service, queue)) = link else {
                continue;
            };
            if self.crosses.contains(&not_by) {
                let passes_by = self.crosses.iter().map(|crosses| *crosses == not_by);
                elements.push(Element::Bypass(passes_by.collect()));
            }
            let draws = random::stream(seed, purpose, index);
            let link = Link::new(service.clone(), queue, draws);
            elements.push(match (light, service) {
                (Some(light), _) => Replay::new(light, link).into(),
                (None, Service::Shared(_)) => Station::new(link).into(),
                (None, _) => link.into(),
            });
        }
        elements.extend(by_chance(self.corrupt, "corrupt").map(Element::Corrupt));
        let mut delay = Delay::new(self.delays.iter().cloned());
        if self.jitter.ever(|law| *law != JitterConfig::None) {
            delay = delay.with_jitter(Jitter::new(self.jitter.clone(), of_flows("jitter")));
        }
        if self.reorder != ReorderConfig::None {
            delay = delay.with_reorder(Reorder::new(self.reorder, of_flows("reorder")));
        }
        if self.overtaking {
            delay = delay.overtaking();
        }
        Path::new(elements, delay)
    }
}
