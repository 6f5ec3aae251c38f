//! Synthetic cellular channels: delivery opportunities drawn from a seed, for any duration.
//!
//! ```text
//!  coverage ──┐                         outages (on/off, heavy-tailed)
//!  shadowing ─┼─► Shannon ─► rate f(t) ─┬──────────┐
//!  fading ────┘   ln(1+snr·eˣ)          │          ▼
//!                                       └─► scheduler: grants ─► opportunities, whole ms
//! ```
//!
//! Three time scales, since one cannot fit what recordings show:
//!
//! * **Coverage, shadowing (seconds) and fading (100 ms to 1 s).** Three Gauss–Markov
//!   (Ornstein–Uhlenbeck) processes add up to the logarithm x of the signal-to-noise ratio.
//!   Capacity follows Shannon, ln(1 + snr·eˣ), scaled to mean 1. Bad coverage is therefore
//!   log-normal while good coverage saturates, which is the left-skewed shape of recordings.
//!   *Outages* interrupt it. They begin more often the lower the rate is, and their lengths follow
//!   the recorded frequencies of outages beyond 100, 200, 500 and 1000 ms, joined by power laws.
//! * **Scheduler (1 to 10 ms).** Grants come after log-normal gaps, interrupted by pauses; each
//!   carries a log-normal burst. Gap and burst are independent of each other and of the past: white
//!   noise on the slow process. In recordings they nearly are (correlations within ±0.25). A higher
//!   rate brings more grants rather than larger ones; `elasticity` is the share of it that goes to
//!   size. Grants fall on the technology's transmission time interval.
//!
//! The mean rate is a stated parameter and holds over long times. [`CHANNELS`] is the data: a row a
//! channel, each with the recordings that it is fitted to; `cargo run --release -p verus-channel
//! --example calibrate` is how the numbers came about. Random numbers come from
//! [`verus_core::random`], the arithmetic is +, −, ×, ÷, square root, exp and ln, and the result is
//! whole milliseconds. A longer duration extends a shorter one.

use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use verus_core::random;
use verus_core::units::{Bytes, Duration};

use crate::dice::Dice;
use crate::statistics::Statistics;
use crate::trace::Trace;

mod channels;
pub use channels::CHANNELS;

/// The size of an opportunity in every rate of this module, as in the recordings.
pub const OPPORTUNITY: Bytes = Bytes::new(1500);

/// Steps of the slow processes.
const STEP_MS: f64 = 10.0;
/// Outages begin at most this many times more often than at the mean rate.
const MAX_HAZARD: f64 = 50.0;
/// Spread (σ of the logarithm) of pauses between runs of grants.
const PAUSE_SPREAD: f64 = 0.6;

/// A Gauss–Markov process around zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Swing {
    /// Standard deviation, in units of ln(signal-to-noise ratio).
    pub sd: f64,
    /// Time over which its autocorrelation falls to 1/e, in milliseconds.
    pub time_ms: f64,
}

/// The slow part of a channel: movement and obstacles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Radio {
    /// Multipath, up to about a second.
    pub fading: Swing,
    /// Buildings and bodies, seconds.
    pub shadowing: Swing,
    /// Distance to cells and their load, tens of seconds.
    pub coverage: Swing,
    /// Typical signal-to-noise ratio: small makes capacity log-normal, large makes it saturate.
    pub snr: f64,
    /// Outages of at least 100, 200, 500 and 1000 ms a minute. Beyond 1 s, lengths fall off to
    /// `longest_outage_ms`.
    pub outages_per_min: [f64; 4],
    /// The longest outage in milliseconds.
    pub longest_outage_ms: f64,
}

/// The fast part of a channel: when a user is served, and how much at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scheduler {
    /// Transmission time interval in whole milliseconds: grants fall on its multiples.
    pub tti_ms: u64,
    /// Mean packets per grant at the mean rate.
    pub burst_packets: f64,
    /// σ of the logarithm of the grant's size.
    pub burst_spread: f64,
    /// σ of the logarithm of the gap between grants.
    pub gap_spread: f64,
    /// Share of time spent in pauses between runs of grants.
    pub pause_share: f64,
    /// Mean pause in milliseconds, at the mean rate.
    pub pause_ms: f64,
    /// Share of a rate change (in logarithms) that goes to the grants' size; the rest goes to
    /// their number.
    pub elasticity: f64,
}

/// Everything that a generator needs besides a seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// Mean rate in Mbit/s over long times, at 1500 B per opportunity.
    pub mean_mbps: f64,
    /// The slow part.
    pub radio: Radio,
    /// The fast part.
    pub scheduler: Scheduler,
}

/// One built-in channel.
#[derive(Clone, Copy, Debug)]
pub struct BuiltInChannel {
    /// Place, movement, technology and direction seen from the phone: `city-driving-lte-down`.
    pub name: &'static str,
    /// Its parameters.
    pub model: Model,
    /// The recording that this channel as a whole is fitted to, if any. The other channels join the
    /// slow part of one recording with the fast part of another.
    pub recording: Option<&'static FittedRecording>,
    /// The recordings it is calibrated on, and why.
    pub basis: &'static str,
}

/// A recording that a channel is fitted to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FittedRecording {
    /// Folder and file, as `verus trace fetch` knows it.
    pub name: &'static str,
    /// Its length in seconds.
    pub duration_s: f64,
    /// The recorded figures.
    pub figures: Figures,
}

/// The statistics that a channel is held to, each as [`crate::statistics`] defines it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs)] // the names say it
pub struct Figures {
    pub mean_mbps: f64,
    pub cv_20ms: f64,
    pub cv_100ms: f64,
    pub cv_1s: f64,
    pub acf_100ms_lag1: f64,
    pub acf_100ms_lag5: f64,
    pub acf_100ms_lag50: f64,
    pub outages_per_min: f64,
}

/// One channel beside its recording. [`BuiltInChannel::calibration`] makes it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CalibrationRow {
    /// The channel.
    pub name: &'static str,
    /// The recording that it is fitted to; `None` for a channel joined from parts of two.
    pub recording: Option<FittedRecording>,
    /// Means over the generated pieces.
    pub generated: Figures,
    /// Standard deviations over the generated pieces: how far one recording may lie from the mean.
    pub spread: Figures,
}

/// The names of the built-in channels.
pub fn names() -> impl Iterator<Item = &'static str> {
    CHANNELS.iter().map(|c| c.name)
}

/// The built-in channel called `name`.
pub fn describe(name: &str) -> Option<&'static BuiltInChannel> {
    CHANNELS.iter().find(|c| c.name == name)
}

impl BuiltInChannel {
    /// The channel's opportunities from millisecond zero on, without end.
    pub fn opportunities(&self, seed: u64) -> Opportunities {
        // Each channel has its own streams: the two directions of one run are independent, and
        // adding a channel leaves the others unchanged.
        self.model.opportunities(seed, fnv1a(self.name))
    }

    /// The opportunities in the first `duration`, in milliseconds; at least one after millisecond
    /// zero, so that they make a valid trace.
    pub fn generate(&self, seed: u64, duration: Duration) -> Vec<u64> {
        self.model.generate(seed, fnv1a(self.name), duration)
    }

    /// The same as a trace, whose period is its last opportunity.
    pub fn trace(&self, seed: u64, duration: Duration) -> Trace {
        let times = self.model.within(seed, fnv1a(self.name), duration);
        Trace::from_millis(self.name, times)
            .expect("generated times never decrease and end after zero")
    }

    /// Its statistics beside those of its recording. Generates `pieces` pieces from successive seeds, each as long as the
    /// recording (300 s where there is none), since the statistics of a short piece are biased. Takes about 50 ms per piece.
    pub fn calibration(&self, seed: u64, pieces: u64) -> CalibrationRow {
        let duration = Duration::from_secs_f64(self.recording.map_or(300.0, |r| r.duration_s));
        let figures: Vec<Figures> = (0..pieces)
            .filter_map(|i| {
                Statistics::of(self.generate(seed.wrapping_add(i), duration), OPPORTUNITY)
            })
            .map(|s| Figures::of(&s))
            .collect();
        let n = figures.len().max(1) as f64;
        let mut generated = Figures::default();
        for piece in &figures {
            generated = generated.zip(piece, |sum, x| sum + x / n);
        }
        let mut spread = Figures::default();
        for piece in &figures {
            let away = generated.zip(piece, |mean, x| (x - mean) * (x - mean) / n);
            spread = spread.zip(&away, |sum, x| sum + x);
        }
        spread = spread.zip(&spread, |x, _| x.sqrt());
        CalibrationRow {
            name: self.name,
            recording: self.recording.copied(),
            generated,
            spread,
        }
    }

    /// Outages (no opportunity for 100 ms) a minute that the channel is made with.
    pub fn outages_per_min(&self) -> f64 {
        self.model.radio.outages_per_min[0]
    }
}

impl Figures {
    /// The figures of a trace, zero where it is too short for one.
    pub fn of(statistics: &Statistics) -> Self {
        let [fine, middle, coarse] = &statistics.bins;
        let acf = middle.acf.map(|a| a.unwrap_or(0.0));
        Figures {
            mean_mbps: statistics.mean_mbps,
            cv_20ms: fine.cv.unwrap_or(0.0),
            cv_100ms: middle.cv.unwrap_or(0.0),
            cv_1s: coarse.cv.unwrap_or(0.0),
            acf_100ms_lag1: acf[0],
            acf_100ms_lag5: acf[1],
            acf_100ms_lag50: acf[3],
            outages_per_min: statistics.outages_per_minute(),
        }
    }

    fn zip(&self, other: &Figures, f: impl Fn(f64, f64) -> f64) -> Figures {
        Figures {
            mean_mbps: f(self.mean_mbps, other.mean_mbps),
            cv_20ms: f(self.cv_20ms, other.cv_20ms),
            cv_100ms: f(self.cv_100ms, other.cv_100ms),
            cv_1s: f(self.cv_1s, other.cv_1s),
            acf_100ms_lag1: f(self.acf_100ms_lag1, other.acf_100ms_lag1),
            acf_100ms_lag5: f(self.acf_100ms_lag5, other.acf_100ms_lag5),
            acf_100ms_lag50: f(self.acf_100ms_lag50, other.acf_100ms_lag50),
            outages_per_min: f(self.outages_per_min, other.outages_per_min),
        }
    }
}

impl Model {
    /// Opportunities of the `index`-th channel of a run, without end.
    pub fn opportunities(&self, seed: u64, index: u64) -> Opportunities {
        Opportunities::new(self, seed, index)
    }

    /// The opportunities in the first `duration`, at least one of them after millisecond zero.
    pub fn generate(&self, seed: u64, index: u64, duration: Duration) -> Vec<u64> {
        self.within(seed, index, duration).collect()
    }

    /// The same, one after another.
    fn within(&self, seed: u64, index: u64, duration: Duration) -> impl Iterator<Item = u64> {
        let end = duration.as_nanos() / 1_000_000;
        let mut last = 0;
        self.opportunities(seed, index).take_while(move |&time| {
            let over = time > end && last > 0;
            last = time;
            !over
        })
    }
}

/// FNV-1a, 64 bits.
fn fnv1a(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// An endless, never decreasing sequence of delivery opportunities in milliseconds.
#[derive(Debug)]
pub struct Opportunities {
    radio: RadioState,
    grants: Grants,
    /// Exact time, in milliseconds.
    now: f64,
    /// The end of the current step of the radio.
    step_ends: f64,
    /// Packets' worth of capacity granted and not yet a whole opportunity.
    credit: f64,
    /// Opportunities still to be handed out, at `at`.
    pending: u64,
    at: u64,
    tti_ms: f64,
}

impl Opportunities {
    fn new(model: &Model, seed: u64, index: u64) -> Self {
        let mut grants = Grants::new(model, random::stream(seed, "channel-grants", index));
        let radio = RadioState::new(&model.radio, grants.elasticity, seed, index);
        // Outages take capacity away; the rest of the time makes up for it.
        grants.raise_rate(1.0 / radio.mean);
        let credit = grants.dice.uniform();
        Opportunities {
            radio,
            grants,
            now: 0.0,
            step_ends: STEP_MS,
            credit,
            pending: 0,
            at: 0,
            tti_ms: model.scheduler.tti_ms as f64,
        }
    }

    /// Moves to the next grant and returns its size in packets.
    fn next_grant(&mut self) -> f64 {
        let mut service = self.grants.gap();
        loop {
            let capacity = (self.step_ends - self.now) * self.radio.speed;
            if service < capacity {
                self.now += service / self.radio.speed;
                return self.grants.burst() * self.radio.size;
            }
            service -= capacity;
            self.now = self.step_ends;
            // Service during an outage is lost: the radio changes, service stands still.
            if let Some(outage) = self.radio.step() {
                self.now += outage;
                let steps = (outage / STEP_MS) as u64;
                (0..steps).for_each(|_| self.radio.drift());
            }
            self.step_ends = self.now + STEP_MS;
        }
    }
}

impl Iterator for Opportunities {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        while self.pending == 0 {
            self.credit += self.next_grant();
            if self.credit >= 1.0 {
                let whole = self.credit.floor();
                self.credit -= whole;
                self.pending = whole as u64;
                self.at = ((self.now / self.tti_ms).ceil() * self.tti_ms) as u64;
            }
        }
        self.pending -= 1;
        Some(self.at)
    }
}

/// The slow processes and the rate that they yield.
#[derive(Debug)]
struct RadioState {
    swings: [SwingState; 3],
    snr: f64,
    /// Scales Shannon's capacity to mean 1.
    scale: f64,
    elasticity: f64,
    outages: OutageLengths,
    /// Chance that an outage begins in a step at the mean rate.
    hazard: f64,
    /// Mean of the rate, outages included.
    mean: f64,
    dice: Dice,
    outage_dice: Dice,
    /// The speed of service, relative to its mean.
    speed: f64,
    /// How large grants are, relative to their mean.
    size: f64,
    /// Outages per step now.
    risk: f64,
}

impl RadioState {
    fn new(radio: &Radio, elasticity: f64, seed: u64, index: u64) -> Self {
        let mut dice = Dice::new(random::stream(seed, "channel-radio", index));
        let swings =
            [radio.fading, radio.shadowing, radio.coverage].map(|s| SwingState::new(s, &mut dice));
        let variance: f64 = swings.iter().map(|s| s.sd * s.sd).sum();
        let sd = variance.sqrt();
        let scale = 1.0 / gaussian_mean(|z| libm::log(1.0 + radio.snr * libm::exp(sd * z)));
        let outages = OutageLengths::new(radio);
        let rate = |z: f64| scale * libm::log(1.0 + radio.snr * libm::exp(sd * z));
        // Share of steps at rate f in which the channel is not in an outage: 1 / (1 + h(f)·L).
        let on = |hazard: f64, f: f64| 1.0 / (1.0 + hazard * danger(f) * outages.mean_ms / STEP_MS);
        // The hazard for which outages per minute come out right, by bisection.
        let target = outages.per_min / 60_000.0 * STEP_MS;
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..60 {
            let hazard = 0.5 * (low + high);
            let rate_of_outages = gaussian_mean(|z| {
                let f = rate(z);
                hazard * danger(f) * on(hazard, f)
            });
            if rate_of_outages < target {
                low = hazard
            } else {
                high = hazard
            }
        }
        let hazard = 0.5 * (low + high);
        let mean = gaussian_mean(|z| rate(z) * on(hazard, rate(z)));
        let mut state = RadioState {
            swings,
            snr: radio.snr,
            scale,
            elasticity,
            outages,
            hazard,
            mean,
            dice,
            outage_dice: Dice::new(random::stream(seed, "channel-outages", index)),
            speed: 1.0,
            size: 1.0,
            risk: 0.0,
        };
        state.update();
        state
    }

    fn drift(&mut self) {
        for swing in &mut self.swings {
            swing.x = swing.keep * swing.x + swing.kick * self.dice.normal();
        }
    }

    fn update(&mut self) {
        let x: f64 = self.swings.iter().map(|s| s.x).sum();
        let f = (self.scale * libm::log(1.0 + self.snr * libm::exp(x))).max(1e-3);
        self.size = libm::exp(self.elasticity * libm::log(f));
        self.speed = f / self.size;
        self.risk = self.hazard * danger(f);
    }

    /// One step on. An outage that begins with it is returned by its length in milliseconds.
    fn step(&mut self) -> Option<f64> {
        self.drift();
        self.update();
        (self.hazard > 0.0 && self.outage_dice.uniform() < self.risk)
            .then(|| self.outages.draw(&mut self.outage_dice))
    }
}

/// How much more often outages begin at relative rate `f` than at the mean rate.
fn danger(f: f64) -> f64 {
    (1.0 / f.max(1e-9)).min(MAX_HAZARD)
}

#[derive(Debug)]
struct SwingState {
    x: f64,
    sd: f64,
    keep: f64,
    kick: f64,
}

impl SwingState {
    fn new(swing: Swing, dice: &mut Dice) -> Self {
        let keep = libm::exp(-STEP_MS / swing.time_ms);
        SwingState {
            x: swing.sd * dice.normal(),
            sd: swing.sd,
            keep,
            kick: swing.sd * (1.0 - keep * keep).sqrt(),
        }
    }
}

/// Outage lengths: a survival function through the recorded frequencies, straight between them on
/// double logarithmic axes.
#[derive(Debug)]
struct OutageLengths {
    /// Length in milliseconds and outages a minute at least that long.
    knots: [(f64, f64); 5],
    per_min: f64,
    mean_ms: f64,
}

impl OutageLengths {
    fn new(radio: &Radio) -> Self {
        let n = radio.outages_per_min;
        // The longest outage represents a fifth of those beyond a second, or of the last class.
        let longest = radio.longest_outage_ms;
        let mut knots = [
            (100.0, n[0]),
            (200.0, n[1]),
            (500.0, n[2]),
            (1000.0, n[3]),
            (longest, 0.0),
        ];
        let floor = n[0] * 1e-3;
        for i in 1..5 {
            // A class that never occurred ends the list: the longest outage is below it.
            knots[i].0 = knots[i].0.min(longest.max(100.0));
            knots[i].1 = knots[i].1.min(knots[i - 1].1).max(floor);
        }
        knots[4].1 = knots[3].1 * 0.2;
        // ∫ S(x) dx with S a power law between knots, plus the first 100 ms; S drops to zero at
        // the last knot.
        let mut area = 100.0 * knots[0].1;
        for pair in knots.windows(2) {
            let ((a, sa), (b, sb)) = (pair[0], pair[1]);
            if b > a && sa > 0.0 {
                let slope = libm::log(sb / sa) / libm::log(b / a);
                area += if (slope + 1.0).abs() < 1e-9 {
                    sa * a * libm::log(b / a)
                } else {
                    (sb * b - sa * a) / (slope + 1.0)
                };
            }
        }
        OutageLengths {
            knots,
            per_min: n[0],
            mean_ms: if n[0] > 0.0 { area / n[0] } else { 0.0 },
        }
    }

    fn draw(&self, dice: &mut Dice) -> f64 {
        let survival = dice.uniform() * self.per_min;
        for pair in self.knots.windows(2) {
            let ((a, sa), (b, sb)) = (pair[0], pair[1]);
            if survival >= sb {
                if sa <= sb {
                    return b;
                }
                let share = libm::log(sa / survival) / libm::log(sa / sb);
                return a * libm::exp(share * libm::log(b / a));
            }
        }
        self.knots[4].0
    }
}

/// The times and sizes of grants, at the mean rate.
#[derive(Debug)]
struct Grants {
    dice: Dice,
    elasticity: f64,
    /// Logarithm of the median gap in milliseconds, and its spread.
    gap: (f64, f64),
    pause: (f64, f64),
    pause_chance: f64,
    burst: (f64, f64),
}

impl Grants {
    fn new(model: &Model, stream: ChaCha8Rng) -> Self {
        let s = &model.scheduler;
        let gap_ms = s.burst_packets * OPPORTUNITY.as_f64() * 8.0 / (model.mean_mbps * 1000.0);
        let pause_chance = (s.pause_share * gap_ms / s.pause_ms).min(0.9);
        let short_ms = gap_ms * (1.0 - s.pause_share) / (1.0 - pause_chance);
        // A log-normal's mean is exp(μ + σ²/2).
        let with_mean = |mean: f64, spread: f64| (libm::log(mean) - 0.5 * spread * spread, spread);
        Grants {
            dice: Dice::new(stream),
            elasticity: s.elasticity,
            gap: with_mean(short_ms, s.gap_spread),
            pause: with_mean(s.pause_ms, PAUSE_SPREAD),
            pause_chance,
            burst: with_mean(s.burst_packets, s.burst_spread),
        }
    }

    /// Raises the rate by `factor`, with larger and with more grants as elasticity says.
    fn raise_rate(&mut self, factor: f64) {
        let size = self.elasticity * libm::log(factor);
        self.burst.0 += size;
        self.gap.0 -= libm::log(factor) - size;
        self.pause.0 -= libm::log(factor) - size;
    }

    fn gap(&mut self) -> f64 {
        let (ln_median, spread) = if self.dice.uniform() < self.pause_chance {
            self.pause
        } else {
            self.gap
        };
        libm::exp(ln_median + spread * self.dice.normal())
    }

    fn burst(&mut self) -> f64 {
        libm::exp(self.burst.0 + self.burst.1 * self.dice.normal())
    }
}

/// The mean of `f(z)` for a normal z, by the trapezoid rule on ±6.
fn gaussian_mean(f: impl Fn(f64) -> f64) -> f64 {
    let (mut sum, mut weights) = (0.0, 0.0);
    for i in -120..=120i32 {
        let z = f64::from(i) * 0.05;
        let weight = libm::exp(-0.5 * z * z);
        sum += weight * f(z);
        weights += weight;
    }
    sum / weights
}
