//! The parts that can be left out, to see what each is worth (docs/forward.md). Only with the feature `parts`, for research:
//! otherwise a flow has them all, and nothing is kept or asked.

/// A part of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// H is measured; without this part it is 80 ms.
    Horizon,
    /// While nothing is acknowledged, the path is assumed to go on delivering for up to H.
    Prediction,
    /// Packets are paced, rather than sent as soon as the window allows.
    Pacing,
    /// Drains, all of them.
    Drains,
    /// Drains that begin before 4 s have passed, because the queue exceeds 1.5 times its target.
    EarlyDrains,
    /// Short drains.
    ShortDrains,
    /// The drain that ends slow start.
    FirstDrain,
    /// q falls with the share of packets lost.
    LossPrice,
    /// q falls with the cube root of r; without this part it is that of 10 Mbit/s at any rate.
    Fairness,
    /// The window's term in q − Q, the queue's distance from what is wanted.
    Damping,
    /// q grows with the share of time in which the queue is empty.
    Empty,
    /// It grows less with the share of packets later than the budget.
    Late,
    /// The target is bounded by what the buffer holds.
    Room,
    /// A queue that a drain does not change counts as a longer path.
    LongerPath,
    /// r is not lowered by a drain, nor by its traces in the measurement.
    HeldRate,
    /// A silence that the sender caused itself counts as time in r for up to half a round trip of D + q only.
    CutPauses,
    /// Arrival times by the receiver's clock are used where acknowledgements carry them.
    ReceiverTimes,
}

impl Part {
    /// Every part, by its name in a scheme.
    pub const ALL: [(&'static str, Part); 17] = [
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
        ("cut-pauses", Part::CutPauses),
        ("receiver-times", Part::ReceiverTimes),
    ];
}

/// The parts that a flow has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    #[cfg(feature = "parts")]
    pub(super) without: Option<Part>,
}

impl Parts {
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
