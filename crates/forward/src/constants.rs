//! The constants that a search varies (docs/forward.md). Only the feature `parts`, for research,
//! allows other values; otherwise these are compiled in.

/// Constants of the law and of its estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    /// Growth of q with e, the share of time in which the queue is empty, beyond 4 %.
    pub growth: u64,
    /// Reduction of that growth with l, the share of packets later than the budget.
    pub lateness: u64,
    /// The price of loss: with a share p of the packets lost, q is divided by 1 + 50 p. Loss of 2 %
    /// halves it, so a buffer that holds half of q settles at 2 % of loss.
    pub loss_price: u64,
    /// Divisor of the damping term, r · (q − Q), which the window includes in addition to the
    /// feedback through r. Here q − Q is the distance of the queue from its target.
    pub damping: u64,
    /// Steps of a quarter of a second that the average p covers: 2 s.
    pub lost_steps: u64,
    /// The queue above which a flow drains early, in percent of the target.
    pub high_percent: u64,
    /// The root of 10 Mbit/s ÷ r that s grows with: 2, 3 or 4.
    pub root: u64,
    /// The periods D for which a flow is new: two or three seconds on a cellular link.
    pub new_rounds: u64,
}

impl Constants {
    /// Those of every flow without the feature `parts`.
    pub const DEFAULT: Constants = Constants {
        growth: 60,
        lateness: 60,
        loss_price: 50,
        damping: 8,
        lost_steps: 8,
        high_percent: 150,
        root: 3,
        new_rounds: 64,
    };
}
