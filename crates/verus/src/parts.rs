//! The default mode's additions to the paper's loop: a list of parts.
//!
//! Half of the parts are other readings of gaps in the paper, as fields of the
//! [configuration](super::config). The other half are boxes behind one trait. Each method of
//! [`Part`] is a question, and a box answers some of them. Which window does it **hold** for an
//! epoch, and how does it **bound** the window? How do packets **leave**, what does the path
//! **teach** of the curve, and what does a **loss** mean beyond Eq. 6? The paper answers the
//! remaining questions. [`Parts`](super::config::Parts) is the mode: without a line of its list
//! (and the file that the line names), the part is gone. In paper mode the list is empty.
//!
//! `verus reproduce ablation` measures the worth of each part; `docs/results/ablation.md` has the
//! tables.

pub mod capacity;
pub mod departures;
pub mod drains;
pub mod losses;
pub mod outages;

use std::fmt;

use super::units::{Millis, Packets};
use verus_core::controller::{Acked, Departure};
use verus_core::units::{Duration, Time};

/// A part's view of the flow.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Now.
    pub now: Time,
    /// R.
    pub ratio: f64,
    /// ε.
    pub epoch: Duration,
    /// M.
    pub decrease_factor: f64,
    /// D_min.
    pub d_min: Duration,
    /// D_est.
    pub d_est: Millis,
    /// The smoothed round-trip time.
    pub rtt: Duration,
    /// When a packet's delay last was no more than [`NEAR`] · D_min: its own queue, and that of all others, was empty.
    pub d_min_met_at: Time,
    /// When the last [outage](outages) ended. Estimates over time ignore an outage.
    pub outage: Time,
    /// Packets in flight.
    pub in_flight: u64,
    /// Whether slow start is over.
    pub settled: bool,
}

/// A flow is alone if it has met D_min within [`ALONE_WITHIN`] + R · [`ALONE_WITHIN_PER_RATIO`].
/// Alone, D_est swings between D_min and R · D_min. It falls by δ₂ = 2 ms in each epoch of 5 ms.
/// With a D_min of 40 ms that takes about 100 ms for each unit of R − 1, and as long to rise again;
/// a few round trips pass meanwhile. Where flows share a path, the queue stands.
const ALONE_WITHIN: Duration = Duration::from_millis(40);
/// See [`ALONE_WITHIN`].
const ALONE_WITHIN_PER_RATIO: Duration = Duration::from_millis(180);

/// Delay above D_min up to this much is the path's jitter. A drain watches for this long, and a
/// silence of this length is no outage.
pub const WATCH: Duration = Duration::from_millis(50);

/// Delays whose ratio is at most this are the same: a slow link's own jitter is about as large.
pub const NEAR: f64 = 1.1;

impl Flow {
    /// Whether the flow has the path to itself, as far as it can tell: it has met D_min lately.
    #[inline]
    pub fn is_alone(&self) -> bool {
        // Hardly ever is the second test needed.
        let unmet = self.unmet_for();
        unmet < ALONE_WITHIN || unmet < ALONE_WITHIN + ALONE_WITHIN_PER_RATIO.mul_f64(self.ratio)
    }

    /// How long ago the flow has met D_min.
    #[inline]
    pub fn unmet_for(&self) -> Duration {
        self.now.since(self.d_min_met_at)
    }
}

/// Whether an epoch decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Hold {
    /// It does.
    Free,
    /// It does not: instead of a budget, this many packets may be in flight.
    Held {
        /// How many.
        packets: u64,
    },
    /// It does, and its delays say nothing of the window: it was held just now. D_min, where it has risen.
    Released {
        /// The new D_min.
        risen: Option<Duration>,
    },
}

/// How the packets of an epoch leave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Leave {
    /// At once, as far as the budget goes.
    AtOnce,
    /// Spread over the epoch.
    Spread,
    /// As acknowledgements make room in the window.
    Refilled,
}

/// A box of the default mode.
pub trait Part: fmt::Debug + Send {
    /// The box at the beginning of a flow whose seed is given.
    fn begun(seed: u64) -> Self
    where
        Self: Sized;

    /// A packet was acknowledged.
    fn on_acked(&mut self, _flow: &Flow, _acked: &Acked) {}

    /// This many packets were declared lost.
    fn on_lost(&mut self, _flow: &Flow, _packets: usize) {}

    /// Losses were answered: Eq. 6 has cut the window to `kept`.
    fn on_cut(&mut self, _flow: &Flow, _kept: Packets) {}

    /// A cut is undone, of losses or of a timeout: all packets declared lost have arrived after
    /// all. The lesson of the last losses is undone too, since the same cause has most likely
    /// delayed those packets.
    fn takes_back(&mut self) {}

    /// Whether this acknowledgement has ended an outage.
    fn ends_outage(&self, _flow: &Flow) -> bool {
        false
    }

    /// How the window is held in the epoch that begins.
    fn holds(&mut self, _flow: &Flow) -> Hold {
        Hold::Free
    }

    /// The window within the part's bounds.
    fn bounds(&self, _flow: &Flow, window: Packets) -> Packets {
        window
    }

    /// How the packets of the epoch that begins leave, if `budget` many may.
    fn leaves(&self, _flow: &Flow, _budget: Packets) -> Leave {
        Leave::AtOnce
    }

    /// By which share of ε the epoch that begins ends late.
    fn is_late(&mut self, _flow: &Flow) -> f64 {
        0.0
    }

    /// D_min is never less.
    fn least_delay(&self, _epoch: Duration) -> Duration {
        Duration::ZERO
    }

    /// The curve is about to be fitted: the least slope that it may have, in ms a packet.
    fn teaches(&mut self, _flow: &Flow) -> f64 {
        0.0
    }

    /// Whether the delay of this packet depends on its window, so that it belongs in the profile.
    fn charts(&self, _packet: &Departure) -> bool {
        true
    }

    /// Packets are `factor` times as many from now on, for the same bytes.
    fn rescale(&mut self, _factor: f64) {}

    /// Reports values over time to a recorder.
    fn probe(&self, _flow: &Flow, _record: &mut dyn FnMut(&'static str, f64)) {}
}

/// Makes `Parts` of a list of boxes. A box is a field rather than a pointer: an epoch asks all of
/// them several questions, and a question that a box does not answer costs nothing.
macro_rules! parts {
    ($(#[$doc:meta])* $($name:ident: $Part:ident { $($($field:ident).+),* },)*) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct Parts {
            $($name: Option<$Part>,)*
        }

        impl Parts {
            /// The parts' names.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Those that run in this mode, as at the beginning of a flow whose seed is given.
            pub fn of(config: &Config, seed: u64) -> Self {
                let runs = |name| config.mode == Mode::Robust && !config.without.contains(&name);
                Parts {
                    $($name: runs(stringify!($name)).then(|| <$Part as super::parts::Part>::begun(seed)),)*
                }
            }

            /// Omits a part, in favour of the paper's behaviour.
            ///
            /// Returns: Whether there is a part of this name.
            pub fn leave_out(config: &mut Config, name: &str) -> bool {
                let paper = Config::preset(Mode::Paper);
                $(if name == stringify!($name) {
                    $(config.$($field).+ = paper.$($field).+;)*
                    config.without.push(stringify!($name));
                    return true;
                })*
                false
            }

            /// Asks each of those that run.
            #[inline(always)]
            pub fn each(&self, mut ask: impl FnMut(&dyn super::parts::Part)) {
                $(if let Some(part) = &self.$name {
                    ask(part);
                })*
            }

            /// Calls each enabled part.
            #[inline(always)]
            pub fn each_mut(&mut self, mut tell: impl FnMut(&mut dyn super::parts::Part)) {
                $(if let Some(part) = &mut self.$name {
                    tell(part);
                })*
            }
        }
    };
}
pub(super) use parts;
