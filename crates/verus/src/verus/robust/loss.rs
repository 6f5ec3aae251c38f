//! What a loss teaches beyond Eq. 6: which window was too large, and whether the loss was by chance.
//!
//! A queue that drops before the delay has risen to R · D_min would be overfilled again and again, since Eq. 4 raises D_est
//! by δ₂ in every epoch whose delay is tolerable. So after a loss the window stays below a ceiling. It begins at
//! M · W_loss and rises so that the rate (the window over the delay at the loss) grows by the same amount each second,
//! whatever rate the flow has. Additive increase after a multiplicative decrease makes shares converge (Chiu and Jain
//! 1989), and adding to the rate rather than to the window makes that true for flows of different round trips. A ceiling
//! that returned after a fixed time instead would leave all shares as they were. A flow alone on its path has no
//! other to be fair to, and its ceiling rises faster.
//!
//! A radio link also loses packets by chance. Such losses say nothing of the window, and each would lower the ceiling
//! further. They differ from those of a full queue in two ways: they also occur before the window has regained its size at
//! the last loss, and at delays well below the longest. The delay is compared with those of the last one to two seconds
//! rather than with D_min, which may lag behind when the path becomes longer. And they take at most a few packets in a
//! hundred: a queue that drops by its average length (RED) may be short when it drops, but drops more than that.

use verus_core::units::{Duration, Time};

use super::Config;

/// The ceiling ends at the latest after this long, for a flow alone on its path. Without this bound, additive increase
/// would take minutes on fast paths, where the window falls by hundreds of packets.
const LONGEST_RETURN: Duration = Duration::from_secs(3);
/// Where others use the path, the ceiling rises at this share of the speed that it has for a flow alone. With this value
/// the flow gets about the throughput of competing Cubic flows, at 10 Mbit/s each.
const SHARED_REGROWTH: f64 = 0.25;
/// As [`LONGEST_RETURN`], where others use the path.
const LONGEST_SHARED_RETURN: Duration = Duration::from_secs(10);
/// A loss at a delay of at most this many times the least of the last one to two seconds is not a full queue's.
const NO_QUEUE: f64 = 1.1;
/// A loss at a delay below this share of the longest of the last one to two seconds is not a full queue's either: a queue
/// drops when it is longest.
const NOT_FULL: f64 = 0.8;
/// Least and longest delays are those of the current span of this length and of the one before it.
const LATELY: Duration = Duration::from_secs(1);
/// A loss is early if the window has not yet regained this share of the window at the loss before. A queue that was
/// full then cannot be full again at so much less, unless the capacity fell: early losses come by chance.
const NOT_YET_BACK: f64 = 0.9;
/// Losses are taken for chance once those that look like chance outnumber those that look like a full queue by this
/// many. Fewer in a row also happen at a full queue, when the capacity has just fallen.
const MANY_BY_CHANCE: u32 = 5;
/// The excess is not counted beyond this, so that a few losses at a full queue bring the ceiling back.
const MOST_BY_CHANCE: u32 = 8;
/// If more than this share of the packets of the last one to two seconds was lost, the losses are not by chance,
/// however they look: radio links lose less, and the window is too large.
const MOST_LOST: f64 = 0.03;

/// The least and the longest delay of a span, in ms, and the packets that arrived and that were lost.
#[derive(Clone, Copy, Debug)]
struct Span {
    least: f64,
    longest: f64,
    arrived: u64,
    lost: u64,
}

const NOTHING: Span = Span {
    least: f64::INFINITY,
    longest: 0.0,
    arrived: 0,
    lost: 0,
};

/// A packet that was lost, and cut the window.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// The window that it left under, in packets.
    pub window: f64,
    /// What Eq. 6 keeps of it.
    pub decrease_factor: f64,
    /// The averaged delay when it was missed, in ms.
    pub delay_ms: Option<f64>,
    /// D_min, in ms.
    pub delay_min: f64,
}

/// The last loss that cut the window.
#[derive(Clone, Copy, Debug)]
struct Loss {
    at: Time,
    lost: Lost,
    /// How long the ceiling takes to return there.
    back: Duration,
}

/// What losses have taught.
#[derive(Clone, Copy, Debug)]
pub struct Learned {
    last: Option<Loss>,
    by_chance: u32,
}

/// The last loss, the delays met lately and the losses that came by chance.
#[derive(Debug)]
pub struct LossMemory {
    last: Option<Loss>,
    /// Losses that looked like chance, less those that looked like a full queue's; at least zero.
    by_chance: u32,
    /// The span that goes on and the one before.
    met: [Span; 2],
    span_ends: Time,
}

impl Default for LossMemory {
    fn default() -> Self {
        LossMemory {
            last: None,
            by_chance: 0,
            met: [NOTHING; 2],
            span_ends: Time::ZERO,
        }
    }
}

impl LossMemory {
    /// A packet took `delay_ms`.
    #[inline]
    pub fn on_sample(&mut self, now: Time, delay_ms: f64) {
        if now >= self.span_ends {
            self.met = [NOTHING, self.met[0]];
            self.span_ends = now + LATELY;
        }
        let span = &mut self.met[0];
        span.least = span.least.min(delay_ms);
        span.longest = span.longest.max(delay_ms);
        span.arrived += 1;
    }

    /// `packets` packets were declared lost.
    pub fn on_lost(&mut self, packets: usize) {
        self.met[0].lost += packets as u64;
    }

    /// Whether more was lost lately than chance explains.
    fn is_much(&self) -> bool {
        let [now, before] = &self.met;
        let (lost, arrived) = (now.lost + before.lost, now.arrived + before.arrived);
        lost as f64 > MOST_LOST * (lost + arrived) as f64
    }

    /// A loss cut the window. `shared`: others seem to use the path too.
    pub fn on_loss(&mut self, now: Time, lost: Lost, shared: bool, config: &Config) {
        let early = self.last.is_some_and(|last| {
            now.since(last.at) < last.back && lost.window < NOT_YET_BACK * last.lost.window
        });
        if self.is_much() || lost.delay_ms.is_none_or(|delay| self.is_full(delay)) {
            self.by_chance = self.by_chance.saturating_sub(1);
        } else if early {
            self.by_chance = (self.by_chance + 1).min(MOST_BY_CHANCE);
        }
        let rate = lost.window / lost.delay_ms.unwrap_or_default().max(lost.delay_min);
        let missing = (1.0 - lost.decrease_factor) * rate;
        self.last = config.regrowth.map(|regrowth| Loss {
            at: now,
            lost,
            back: return_time(missing, shared, regrowth),
        });
    }

    /// Whether a queue with this delay, in ms, may be the one that dropped.
    fn is_full(&self, delay_ms: f64) -> bool {
        let least = self.met[0].least.min(self.met[1].least);
        let longest = self.met[0].longest.max(self.met[1].longest);
        delay_ms > NO_QUEUE * least && delay_ms >= NOT_FULL * longest
    }

    /// The largest window allowed this soon after a loss, in packets; `None` for no limit. `chance`: whether to
    /// consider that losses may be by chance.
    #[inline]
    pub fn ceiling(&self, now: Time, chance: bool) -> Option<f64> {
        if chance && self.by_chance >= MANY_BY_CHANCE && !self.is_much() {
            return None;
        }
        let last = self.last?;
        let elapsed = now.since(last.at);
        let kept = last.lost.decrease_factor;
        (elapsed < last.back)
            .then(|| last.lost.window * (kept + (1.0 - kept) * (elapsed / last.back)))
    }

    /// Packets are `factor` times as many from now on, for the same bytes.
    pub fn rescale(&mut self, factor: f64) {
        if let Some(last) = &mut self.last {
            last.lost.window *= factor;
        }
    }

    /// What losses have taught so far.
    pub fn learned(&self) -> Learned {
        Learned {
            last: self.last,
            by_chance: self.by_chance,
        }
    }

    /// Forgets what was learned since `before`.
    pub fn forget(&mut self, before: Learned) {
        self.last = before.last;
        self.by_chance = before.by_chance;
    }

    /// Losses that came by chance, less those of a queue.
    pub fn by_chance(&self) -> u32 {
        self.by_chance
    }
}

/// How long the ceiling takes until a rate of `missing` packets/ms is regained; a flow alone on its path regains
/// `regrowth` packets/ms in each second.
fn return_time(missing: f64, shared: bool, regrowth: f64) -> Duration {
    let (share, longest) = if shared {
        (SHARED_REGROWTH, LONGEST_SHARED_RETURN)
    } else {
        (1.0, LONGEST_RETURN)
    };
    let seconds = missing / (share * regrowth);
    Duration::from_millis_f64(1e3 * seconds).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY_MIN: f64 = 40.0;

    fn ms(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn lost(window: f64, delay_ms: f64) -> Lost {
        Lost {
            window,
            decrease_factor: 0.7,
            delay_ms: Some(delay_ms),
            delay_min: DELAY_MIN,
        }
    }

    /// A loss of a window of 240 packets at 1 s, with a full queue of 120 ms.
    fn lost_at_240() -> LossMemory {
        let mut memory = LossMemory::default();
        memory.on_sample(ms(900), 60.0);
        memory.on_sample(ms(1000), 120.0);
        memory.on_loss(ms(1000), lost(240.0, 120.0), false, &Config::ON);
        memory
    }

    fn ceiling(memory: &LossMemory, at_ms: u64) -> Option<f64> {
        memory.ceiling(ms(at_ms), true)
    }

    #[test]
    fn the_ceiling_rises_from_the_cut_by_the_same_rate_each_second() {
        // 240 packets in 120 ms are 2 packets/ms; 0.6 were lost and 0.3 come back each second.
        let memory = lost_at_240();
        let close = |at_ms, packets: f64| {
            let found = ceiling(&memory, at_ms).expect("a ceiling");
            assert!((found - packets).abs() < 1e-9, "{found} at {at_ms} ms");
        };
        close(1000, 168.0);
        close(2000, 204.0);
        assert_eq!(ceiling(&memory, 3000), None);
    }

    #[test]
    fn who_has_less_is_back_sooner_and_who_shares_later() {
        let back = |missing, shared| return_time(missing, shared, 0.3);
        assert_eq!(back(0.15, false), Duration::from_millis(500));
        assert_eq!(back(0.3, false), Duration::from_millis(1000));
        assert_eq!(back(30.0, false), LONGEST_RETURN);
        assert_eq!(back(0.3, true), Duration::from_millis(4000));
        assert_eq!(back(30.0, true), LONGEST_SHARED_RETURN);
    }

    #[test]
    fn where_nothing_limits_regrowth_there_is_no_ceiling() {
        let mut memory = LossMemory::default();
        memory.on_loss(ms(1000), lost(240.0, 120.0), false, &Config::OFF);
        assert_eq!(ceiling(&memory, 1000), None);
    }

    /// Losses 100 ms apart, each before the window is back, at this delay among such from 50 to 120 ms.
    fn repeated(memory: &mut LossMemory, delay_ms: f64, losses: u64) {
        for loss in 1..=losses {
            let now = 1000 + 100 * loss;
            memory.on_sample(ms(now), 50.0);
            memory.on_sample(ms(now), 120.0);
            let window = 240.0 * 0.7_f64.powi(loss as i32);
            memory.on_loss(ms(now), lost(window, delay_ms), true, &Config::ON);
        }
    }

    #[test]
    fn losses_with_a_short_queue_and_before_the_window_is_back_come_by_chance() {
        for delay_ms in [54.0, 90.0] {
            let mut memory = lost_at_240();
            repeated(&mut memory, delay_ms, 4);
            assert!(ceiling(&memory, 1401).is_some(), "too few to tell");
            repeated(&mut memory, delay_ms, 5);
            assert_eq!(ceiling(&memory, 1501), None);
        }
    }

    #[test]
    fn where_more_is_lost_than_comes_by_chance_the_window_is_too_large() {
        for (lost, by_chance) in [(2, true), (4, false)] {
            let mut memory = lost_at_240();
            for _ in 0..86 {
                memory.on_sample(ms(1100), 54.0);
            }
            repeated(&mut memory, 54.0, 5);
            memory.on_lost(lost); // of 98, with those that arrived
            assert_eq!(ceiling(&memory, 1501).is_none(), by_chance, "{lost} lost");
        }
    }

    #[test]
    fn a_full_queue_is_believed_and_soon_again() {
        let mut memory = lost_at_240();
        repeated(&mut memory, 115.0, 20);
        assert!(ceiling(&memory, 3001).is_some());
        repeated(&mut memory, 55.0, 20);
        assert_eq!(ceiling(&memory, 3001), None);
        repeated(&mut memory, 115.0, 4);
        assert!(ceiling(&memory, 1401).is_some());
    }

    #[test]
    fn a_longer_path_is_not_taken_for_a_queue() {
        // D_min is still that of the shorter path: 40 ms. All delays are 90 ms of late.
        let mut memory = LossMemory::default();
        for loss in 0..6u64 {
            let now = ms(1000 + 100 * loss);
            memory.on_sample(now, 90.0);
            let window = 80.0 * 0.7_f64.powi(loss as i32);
            memory.on_loss(now, lost(window, 90.0), false, &Config::ON);
        }
        assert_eq!(ceiling(&memory, 1501), None);
    }
}
