//! What the default mode adds to the paper, grouped by the question that each part answers.
//!
//! **What holds the window?** An [outage](outages), during which nothing can be decided, and a [drain](drains), which
//! tests whether D_min is still the delay of the empty path.
//!
//! **What bounds it?** From below, the rate that the path lately [delivered](capacity), which also bounds the profile's
//! curve; from above, the window at the last [loss].
//!
//! **What does a loss mean?** That a queue is full, or [chance](loss).
//!
//! All of them ask whether the flow is [alone](Robust::look_around) on its path. Two more parts are single numbers: the
//! packets [added](Config::additive_increase) to each window, and how late an [epoch](Config::epoch_jitter) may end. The
//! last two say how a budget leaves: [paced](Config::pacing) over its epoch, or [refilled](Config::refill) within it.
//!
//! In paper mode all of it is off ([`Config::OFF`]).

pub mod capacity;
pub mod drains;
pub mod loss;
pub mod outages;

use verus_core::pacer::BURST_PACKETS;
use verus_core::units::{Bytes, Duration, Rate, Time};

use super::profile::{Bounds, Profile};
use capacity::Capacity;
use drains::Drains;
use loss::{Learned, LossMemory, Lost};
use outages::Outages;

/// A flow is taken to be alone on its path if its delay was at D_min within the last [`ALONE_WITHIN`] + R ·
/// [`ALONE_WITHIN_PER_RATIO`]. Alone, D_est swings between D_min and R · D_min: it falls by δ₂ = 2 ms in each epoch of
/// 5 ms, which with a D_min of 40 ms takes about 100 ms for each unit of R − 1, and as long to rise again; a
/// few round trips pass meanwhile.
const ALONE_WITHIN: Duration = Duration::from_millis(40);
/// See [`ALONE_WITHIN`].
const ALONE_WITHIN_PER_RATIO: Duration = Duration::from_millis(180);
/// For this long after an outage the flow is taken to be alone in any case: what keeps it from D_min then may be the
/// queue that built up during the outage.
const UNSURE_AFTER_OUTAGE: Duration = Duration::from_secs(1);

/// An addition, or a part of one, that `without` leaves out. What each is worth, `verus reproduce ablation` measures and
/// `docs/verus.md` states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The profile's curve is monotone: it never falls as the window grows (the paper: a spline through every point).
    Monotone,
    /// Points of the profile lose weight with age: half of it each second.
    Memory,
    /// The curve is bounded from above: window W cannot bring more delay than D_min + W / C, C being the rate lately delivered.
    CurveAbove,
    /// The curve's slope is bounded from below, for a flow alone on its path: each packet beyond C · D_min adds at least 1 / C.
    CurveSlope,
    /// The window is at least C · D_min, the bandwidth-delay product.
    FullPipe,
    /// Epochs in an outage make no decision, and packets that it held up do not enter the profile.
    Outages,
    /// W_i of Eq. 5 is the packets in flight (the paper: the current window).
    InFlight,
    /// D_est does not fall below D_min in case 1 of Eq. 4 either (the paper: only in case 2).
    Floor,
    /// An epoch without acknowledgements counts the time since the last one as its delay, once that exceeds D_max (the
    /// paper says nothing; without this, D_max stays).
    SilentEpochs,
    /// Slow start ends when a delay exceeds 4 · D_min (the paper: 15 · D_min).
    EarlyExit,
    /// After a loss the window stays below a ceiling, which rises with time (`robust/loss.rs`).
    Regrowth,
    /// There is no such ceiling while losses seem to come by chance.
    Chance,
    /// The ceiling rises at a quarter of the speed if other flows use the path.
    SharedRegrowth,
    /// The window is two packets more than the curve gives.
    AdditiveIncrease,
    /// Epochs end late by a random time if other flows use the path.
    Jitter,
    /// The flow tells whether others use the path; without this part it behaves as if it were alone.
    Company,
    /// If a round trip is shorter than an epoch, the window is kept full throughout the epoch.
    Refill,
    /// A budget of more than 32 packets is paced over its epoch.
    Pacing,
    /// Drains: D_min can rise when the path becomes longer (`robust/drains.rs`).
    Drains,
    /// A drain begins at once if the path seems to have become longer, rather than after 5.5 s.
    Suspicion,
    /// A drain lowers the packets in flight step by step, rather than to two at once.
    GentleDrains,
    /// D_min is never taken to be less than 5 ms.
    LeastDelay,
    /// A missing packet is declared lost after one delay (the paper: three).
    OneDelay,
    /// The timeout doubles up to a second at most (RFC 6298: 60 s).
    ShortTimeout,
    /// Between a timeout and the next acknowledgement, new data leaves before lost data.
    NewData,
    /// A cut is undone once all that was declared lost has arrived after all.
    Undo,
}

impl Part {
    /// Every part, by its name in a scheme.
    pub const ALL: [(&'static str, Part); 26] = [
        ("monotone", Part::Monotone),
        ("memory", Part::Memory),
        ("curve-above", Part::CurveAbove),
        ("curve-slope", Part::CurveSlope),
        ("full-pipe", Part::FullPipe),
        ("outages", Part::Outages),
        ("in-flight", Part::InFlight),
        ("floor", Part::Floor),
        ("silent-epochs", Part::SilentEpochs),
        ("early-exit", Part::EarlyExit),
        ("regrowth", Part::Regrowth),
        ("chance", Part::Chance),
        ("shared-regrowth", Part::SharedRegrowth),
        ("additive-increase", Part::AdditiveIncrease),
        ("jitter", Part::Jitter),
        ("company", Part::Company),
        ("refill", Part::Refill),
        ("pacing", Part::Pacing),
        ("drains", Part::Drains),
        ("suspicion", Part::Suspicion),
        ("gentle-drains", Part::GentleDrains),
        ("least-delay", Part::LeastDelay),
        ("one-delay", Part::OneDelay),
        ("short-timeout", Part::ShortTimeout),
        ("new-data", Part::NewData),
        ("undo", Part::Undo),
    ];
}

/// Which of the additions are on, and how strong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Whether the delivery rate of the last seconds bounds the curve and the window
    /// (`robust/capacity.rs`).
    pub capacity_bounds: bool,
    /// Whether delays that include an outage are kept out of the profile, and epochs within one
    /// decide nothing (`robust/outages.rs`).
    pub skip_stalls: bool,
    /// Half-life of the weight of a profile's point that gets no new samples; `None`: points keep their weight.
    pub point_memory: Option<Duration>,
    /// How fast a flow alone on its path may return to the rate that it had at its last loss: packets per ms of rate,
    /// regained in each second (`robust/loss.rs`). `None`: no limit.
    pub regrowth: Option<f64>,
    /// Packets that a window has beyond what the curve gives for D_est. The curve of a flow with a large share is
    /// flatter, so a step of δ₂ ms changes its window by more packets, up and down, and shares would never become
    /// equal. The same number of packets on top of each window lets them (Chiu and Jain 1989): it makes the queue
    /// longer for all, and the longer delay takes most from the flow with the largest share.
    pub additive_increase: f64,
    /// The largest share of ε by which an epoch's end is randomly late where others use the path (`epochs.rs`).
    pub epoch_jitter: f64,
    /// Whether the window is kept full all through an epoch where a round trip is no longer than an epoch (n = 1 in Eq.
    /// 5), rather than filled once as the epoch begins: with a round trip of 50 µs, the path would be idle for 99 % of
    /// an epoch of 5 ms.
    pub refill: bool,
    /// Whether an epoch's budget is spread over the epoch, where it is more than a burst of 32
    /// packets, rather than sent at once.
    pub pacing: bool,
    /// Whether D_min can rise again (`robust/drains.rs`).
    pub drains: bool,
    /// D_min is never less than this, in ms: delays that vary within an epoch, such as those of an end host's scheduler,
    /// are no queue that one decision an epoch could control.
    pub least_delay_ms: f64,
    /// Additions that are off although their fields say otherwise, for research: a bit for each, in the order of [`Part`].
    pub without: u32,
}

impl Config {
    /// None of them, as in the paper.
    pub const OFF: Config = Config {
        capacity_bounds: false,
        skip_stalls: false,
        point_memory: None,
        regrowth: None,
        additive_increase: 0.0,
        epoch_jitter: 0.0,
        refill: false,
        pacing: false,
        drains: false,
        least_delay_ms: 0.0,
        without: 0,
    };

    /// All of them, as in the default mode.
    pub const ON: Config = Config {
        capacity_bounds: true,
        skip_stalls: true,
        point_memory: Some(Duration::from_secs(1)),
        // As NewReno does at a round trip of 58 ms.
        regrowth: Some(0.3),
        additive_increase: 2.0,
        epoch_jitter: 0.9,
        refill: true,
        pacing: true,
        drains: true,
        least_delay_ms: 5.0,
        without: 0,
    };

    fn has(&self, part: Part) -> bool {
        self.without & (1 << part as u32) == 0
    }
}

/// What an epoch's decision needs to know of the flow.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Packets in flight.
    pub under_way: u64,
    /// D_min, in ms.
    pub delay_min: f64,
    /// The smoothed round-trip time.
    pub rtt: Duration,
    /// D_est, in ms.
    pub estimate: f64,
    /// R.
    pub ratio: f64,
}

/// What holds the window in an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Hold {
    /// Nothing holds the window: the epoch decides.
    Free,
    /// Nothing holds the window, but a drain has just ended: the delays of this epoch are those of the drain. D_min in
    /// ms, if it has risen.
    Drained(Option<f64>),
    /// The window is held: only what [`Robust::filled`] allows may leave.
    Held,
}

/// What the additions learned from losses before a cut.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    losses: Learned,
    capacity: Capacity,
}

/// The additions of one flow.
#[derive(Debug)]
pub struct Robust {
    config: Config,
    outages: Outages,
    drains: Drains,
    capacity: Capacity,
    losses: LossMemory,
    /// Others seem to use the path too.
    shared: bool,
    /// The largest window that the last loss allows in the open epoch, in packets.
    ceiling: Option<f64>,
    /// Whether the window, rather than a budget, bounds the open epoch: acknowledged packets make room for others
    /// within it.
    refills: bool,
    /// The rate that spreads the budget over its epoch.
    pace: Option<Rate>,
    /// R · D_min in ms, and the same span: it changes seldom, and epochs are many.
    tolerated: (f64, Duration),
}

impl Robust {
    /// The additions that `config` names.
    pub fn new(config: Config) -> Self {
        Robust {
            config,
            outages: Outages::default(),
            drains: Drains::new(config.has(Part::Suspicion), config.has(Part::GentleDrains)),
            capacity: Capacity::default(),
            losses: LossMemory::default(),
            shared: false,
            ceiling: None,
            refills: false,
            pace: None,
            tolerated: (0.0, Duration::ZERO),
        }
    }

    // What is heard.

    /// The flow begins.
    pub fn on_start(&mut self, now: Time) {
        self.capacity.begin(now);
    }

    /// Something was acknowledged, and `next_number` is the next packet's.
    #[inline]
    pub fn on_acks(&mut self, now: Time, in_slow_start: bool, next_number: u64) {
        if self.config.skip_stalls
            && let Some(outage) = self.outages.on_acks(now, in_slow_start, next_number)
        {
            self.drains.on_silence(now, outage);
        }
    }

    /// A packet was delivered.
    #[inline]
    pub fn on_delivered(&mut self) {
        self.capacity.on_acked();
    }

    /// A packet that left at `sent` took `delay_ms`: the delay that counts for D_min, which was `delay_min`.
    #[inline]
    pub fn on_delay(
        &mut self,
        now: Time,
        sent: Time,
        delay_ms: f64,
        delay_min: Option<f64>,
    ) -> f64 {
        let at_least = delay_ms.max(self.config.least_delay_ms);
        self.drains.on_sample(now, sent, at_least, delay_min);
        self.losses.on_sample(now, at_least);
        at_least
    }

    /// `packets` packets were declared lost.
    pub fn on_lost(&mut self, packets: usize) {
        self.losses.on_lost(packets);
    }

    /// The window was cut to `kept` packets by a loss.
    pub fn on_cut(&mut self, now: Time, lost: Lost, kept: f64) {
        let shared = self.shared && self.config.has(Part::SharedRegrowth);
        self.losses.on_loss(now, lost, shared, &self.config);
        self.capacity.limit(kept / lost.delay_min);
    }

    /// Packets are `factor` times as many from now on, for the same bytes.
    pub fn rescale(&mut self, factor: f64) {
        self.capacity.rescale(factor);
        self.losses.rescale(factor);
    }

    /// What the additions have learned from losses so far.
    pub fn answer(&self) -> Answer {
        Answer {
            losses: self.losses.learned(),
            capacity: self.capacity,
        }
    }

    /// The last cut was for nothing: what it taught is forgotten.
    pub fn undo(&mut self, before: Answer) {
        self.losses.forget(before.losses);
        self.capacity.unlimit(&before.capacity);
    }

    /// The window was cut, for any reason: the open epoch may send nothing more.
    pub fn stop(&mut self) {
        self.refills = false;
    }

    // What it says.

    /// Whether this packet's delay depends on its window, so that it belongs in the profile.
    #[inline]
    pub fn teaches(&self, number: u64) -> bool {
        !self.outages.held_up(number)
    }

    /// By which share of an epoch its end may be late.
    #[inline]
    pub fn jitter(&self) -> f64 {
        if self.shared {
            self.config.epoch_jitter
        } else {
            0.0
        }
    }

    /// Half-life of the weight of a point of the profile.
    pub fn point_memory(&self) -> Option<Duration> {
        self.config.point_memory
    }

    /// Called before the curve is fitted again: ends an interval of the delivery rate, finds out whether the flow is
    /// alone on its path, and returns the bounds of the curve.
    pub fn look_around(&mut self, now: Time, delay_min: f64, ratio: f64) -> Option<Bounds> {
        self.capacity.end_interval(now);
        // A flow alone on its path sees D_min again whenever its own queue empties; among others, the queue stands.
        let alone = ALONE_WITHIN + ALONE_WITHIN_PER_RATIO.mul_f64(ratio);
        self.shared = self.config.has(Part::Company)
            && !self.drains.met_within(now, alone)
            && !self.outages.ended_within(now, UNSURE_AFTER_OUTAGE);
        self.capacity.set_shared(self.shared);
        let rate = self.capacity.packets_per_ms()?;
        let has = |part| self.config.has(part);
        self.config.capacity_bounds.then(|| Bounds {
            delay_min,
            at_most: if has(Part::CurveAbove) {
                1.0 / rate
            } else {
                f64::INFINITY
            },
            at_least: if has(Part::CurveSlope) {
                self.capacity.least_slope()
            } else {
                0.0
            },
        })
    }

    /// What holds the window in the epoch that begins.
    #[inline]
    pub fn hold(&mut self, now: Time, view: &View) -> Hold {
        // Without packets in flight nothing can be acknowledged, and a silence is no outage; holding the window then would
        // stop the flow for good.
        if self.config.skip_stalls && view.under_way > 0 && self.outages.is_stalled(now) {
            self.refills = false;
            return Hold::Held;
        }
        if !self.config.drains {
            return Hold::Free;
        }
        match self.drains.advance(now, view) {
            Some(ended) => Hold::Drained(ended.risen),
            None if self.drains.is_draining() => Hold::Held,
            None => Hold::Free,
        }
    }

    /// Once an epoch, in every phase: updates how long a silence must last to be an outage.
    #[inline]
    pub fn on_epoch(&mut self, delay_min: Option<f64>, ratio: f64) {
        let delay_min = delay_min.unwrap_or_default();
        let tolerated_ms = delay_min * ratio;
        if tolerated_ms != self.tolerated.0 {
            self.tolerated = (tolerated_ms, Duration::from_millis_f64(tolerated_ms));
        }
        let drained = self.drains.is_draining();
        self.outages.on_epoch(
            self.tolerated.1,
            drained.then(|| Duration::from_millis_f64(delay_min)),
        );
    }

    /// Brings W and D_est within their bounds.
    #[inline]
    pub fn bound(
        &mut self,
        now: Time,
        window: f64,
        estimate: f64,
        delay_min: f64,
        profile: &Profile,
    ) -> (f64, f64) {
        let mut bound = (window, estimate);
        if self.config.capacity_bounds
            && self.config.has(Part::FullPipe)
            && let Some(rate) = self.capacity.packets_per_ms()
        {
            // The bandwidth-delay product: a smaller window would lower the rate and save no delay.
            bound.0 = window.max(rate * delay_min);
        }
        self.ceiling = self.losses.ceiling(now, self.config.has(Part::Chance));
        if let Some(ceiling) = self.ceiling
            && bound.0 > ceiling
        {
            bound.0 = ceiling.max(1.0);
            if let Some(delay) = profile.delay_at(bound.0) {
                bound.1 = estimate.min(delay.max(delay_min));
            }
        }
        bound
    }

    /// An epoch begins with `budget` packets of `size`.
    #[inline]
    pub fn on_grant(&mut self, budget: f64, size: Bytes, rtt: Duration, epoch: Duration) {
        self.refill_within(rtt, epoch);
        let large = self.config.pacing && budget > f64::from(BURST_PACKETS);
        self.pace = large.then(|| size.mul_f64(budget) / epoch);
    }

    /// Whether the window is kept full in an epoch of this length.
    pub fn refill_within(&mut self, rtt: Duration, epoch: Duration) {
        self.refills = self.config.refill && rtt <= epoch;
    }

    /// The window that is filled as acknowledgements make room, in place of a budget; `None`: the budget decides.
    #[inline]
    pub fn filled(&self, window: impl FnOnce() -> Bytes, size: Bytes) -> Option<Bytes> {
        match self.drains.allowed_packets() {
            Some(packets) => Some(size * packets),
            None => self.refills.then(window),
        }
    }

    /// The rate that spreads the budget over its epoch.
    #[inline]
    pub fn pace(&self) -> Option<Rate> {
        self.pace.filter(|_| !self.refills)
    }

    /// Reports to a recorder what holds the window, and both bounds of it in packets.
    pub fn probe(&self, delay_min: f64, record: &mut dyn FnMut(&'static str, f64)) {
        let allowed = self.drains.allowed_packets();
        let carried = self.capacity.packets_per_ms();
        record("shared", f64::from(u8::from(self.shared)));
        record("drain_packets", allowed.map_or(f64::NAN, |n| n as f64));
        record("pipe_packets", carried.map_or(f64::NAN, |c| c * delay_min));
        record("ceiling_packets", self.ceiling.unwrap_or(f64::NAN));
        record("chance_losses", f64::from(self.losses.by_chance()));
    }
}
