//! Parts of the sender that can be left out, to measure the worth of each (docs/forward.md). Only
//! the feature `parts`, for research, allows it; otherwise every flow has all parts, at no cost.

use super::constants::Constants;

/// A part of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The measurement of H; without this part H is 80 ms.
    Horizon,
    /// The assumption that the path goes on delivering, for up to H, while nothing is acknowledged.
    Prediction,
    /// Pacing of packets, which otherwise leave as soon as the window allows.
    Pacing,
    /// Drains of every kind.
    Drains,
    /// Drains that begin before 4 s have passed, because the queue exceeds 1.5 times its target.
    EarlyDrains,
    /// Short drains.
    ShortDrains,
    /// The drain that ends slow start.
    FirstDrain,
    /// The decrease of q with the share of packets lost.
    LossPrice,
    /// The decrease of q with the cube root of r; without this part q is that of 10 Mbit/s at any
    /// rate.
    Fairness,
    /// The window's term in q − Q, the distance of the queue from its target.
    Damping,
    /// The growth of q with the share of time in which the queue is empty.
    Empty,
    /// The reduction of that growth by the share of packets later than the budget.
    Late,
    /// The bound of q by the length of the buffer.
    Room,
    /// The rule that a queue unchanged by a drain counts as a longer path.
    LongerPath,
    /// The rule that a drain, and its traces in the measurement, do not lower r.
    HeldRate,
    /// The use of arrival times by the receiver's clock where acknowledgements carry them.
    ReceiverTimes,
}

impl Part {
    /// Every part, by its name in a scheme.
    pub const ALL: [(&'static str, Part); 16] = [
        ("horizon", Part::Horizon),
        ("prediction", Part::Prediction),
        ("pacing", Part::Pacing),
        ("drains", Part::Drains),
        ("early-drains", Part::EarlyDrains),
        ("short-drains", Part::ShortDrains),
        ("first-drain", Part::FirstDrain),
        ("loss-price", Part::LossPrice),
        ("fairness", Part::Fairness),
        ("damping", Part::Damping),
        ("empty", Part::Empty),
        ("late", Part::Late),
        ("room", Part::Room),
        ("longer-path", Part::LongerPath),
        ("held-rate", Part::HeldRate),
        ("receiver-times", Part::ReceiverTimes),
    ];
}

/// The parts that a flow has, and its constants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    #[cfg(feature = "parts")]
    pub(super) without: Option<Part>,
    #[cfg(feature = "parts")]
    pub(super) constants: Constants,
}

impl Parts {
    #[cfg(feature = "parts")]
    pub(super) fn constants(&self) -> &Constants {
        &self.constants
    }

    #[cfg(not(feature = "parts"))]
    #[inline]
    pub(super) const fn constants(&self) -> &Constants {
        &Constants::DEFAULT
    }

    #[cfg(feature = "parts")]
    pub(super) fn has(self, part: Part) -> bool {
        self.without != Some(part)
    }

    #[cfg(not(feature = "parts"))]
    #[inline]
    pub(super) const fn has(self, _: Part) -> bool {
        true
    }
}
