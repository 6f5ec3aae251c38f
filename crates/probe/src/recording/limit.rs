//! The bound on a recording's rate. Arrivals describe a channel only where the path was the bound.

use serde::Serialize;
use verus_core::Rate;

use super::{OWN_SILENCE, Way};

/// From which share of a granted or offered rate on a rate is taken for it: packets leave in lumps.
pub const NEAR: f64 = 0.9;
/// From which share of the time on a queue bounds the rate: with less, the link was idle more often than not.
const QUEUED: f64 = 0.5;
/// From which share of packets lost on a path without a queue bounds the rate, as a policer does.
const LOST: f64 = 0.01;

/// The bound on the rate of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Packets waited on the path: the arrivals show its bottleneck's capacity.
    PathQueue,
    /// The path dropped packets without a queue that lasts, as a policer or a very short buffer does.
    PathDrops,
    /// The server grants a test no higher rate.
    ServerLimit,
    /// The load, whose constant rate was requested.
    OwnRate,
    /// This end, which did not run for a while ([`OWN_SILENCE`](super::OWN_SILENCE)).
    OwnSilence,
    /// None of these: the two ends were no faster.
    Ends,
}

impl Limit {
    /// The bound on `direction`, whose arrival rate is `rate`.
    ///
    /// `granted` is the server's limit, if it has one; `offered` the constant rate of the load, if it
    /// has one.
    ///
    /// ```
    /// use verus_core::Rate;
    /// use verus_probe::recording::{Limit, Way};
    /// let direction = Way { sent: 1000, queued_share: 0.02, ..Way::default() };
    /// let limit = Limit::of(&direction, Rate::from_mbps(95.0), Some(Rate::from_mbps(100.0)), None);
    /// assert_eq!(limit, Limit::ServerLimit);
    /// assert!(!limit.is_path());
    /// ```
    pub fn of(direction: &Way, rate: Rate, granted: Option<Rate>, offered: Option<Rate>) -> Self {
        let near = |limit: Option<Rate>| {
            limit.is_some_and(|limit| rate.as_mbps() >= NEAR * limit.as_mbps())
        };
        if direction.own_silence >= OWN_SILENCE {
            Limit::OwnSilence
        } else if direction.queued_share >= QUEUED {
            Limit::PathQueue
        } else if near(granted) {
            Limit::ServerLimit
        } else if near(offered) {
            Limit::OwnRate
        } else if direction.lost as f64 >= LOST * direction.sent.max(1) as f64 {
            Limit::PathDrops
        } else {
            Limit::Ends
        }
    }

    /// Whether the path was the bound, so that the arrivals are a channel that may be replayed.
    pub fn is_path(self) -> bool {
        matches!(self, Limit::PathQueue | Limit::PathDrops)
    }

    /// The name for a trace that does not describe the path; `None` if it does.
    pub fn mark(self) -> Option<&'static str> {
        match self {
            Limit::PathQueue | Limit::PathDrops => None,
            Limit::ServerLimit => Some("server-limit"),
            Limit::OwnRate => Some("own-rate"),
            Limit::OwnSilence => Some("own-silence"),
            Limit::Ends => Some("ends"),
        }
    }
}
