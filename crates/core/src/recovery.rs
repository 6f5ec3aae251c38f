//! The rules that tell loss from reordering, and silence from delay.
//!
//! Each algorithm states its rules as data; the sender's ledger applies them. Verus gives each
//! missing packet a timer of a multiple of the delay (SIGCOMM 2015 §5.2: 3); the TCPs use RACK (RFC
//! 8985).

use crate::units::Duration;

/// A sender's recovery configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recovery {
    /// When a packet that others have overtaken is lost.
    pub loss: LossRule,
    /// When silence means that everything in flight is lost.
    pub timeout: TimeoutRule,
    /// Whether lost data is sent again until delivered.
    pub retransmit: bool,
    /// Whether the tail of a flight is probed before the timeout (TLP, RFC 8985 §7).
    pub tail_probe: bool,
    /// Whether, between a timeout and the next acknowledgement, new data leaves before lost data.
    /// If the silence was an outage, nothing was lost, and retransmissions would waste the first
    /// opportunities after it (F-RTO, RFC 5682, probes likewise).
    pub probe_with_new_data: bool,
}

/// When a packet that later packets have overtaken is declared lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LossRule {
    /// RACK (RFC 8985): a packet is lost once one that left later has arrived and a reordering
    /// window has passed, which adapts to the reordering seen.
    Rack,
    /// A timer for each missing packet, started when the gap is first seen: `factor` × the
    /// longer of the smoothed round-trip time and the last (Verus §5.2: 3 × delay).
    DelayTimer {
        /// Multiple of that longer round-trip time.
        factor: f64,
    },
    /// A timer of fixed length for each missing packet (the Verus prototype: 150 ms).
    FixedTimer {
        /// The timer's length.
        after: Duration,
    },
}

/// When silence is taken for loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeoutRule {
    /// The measure from which the timeout is computed.
    pub base: TimeoutBase,
    /// Before the first sample.
    pub initial: Duration,
    /// Never shorter than this.
    pub min: Duration,
    /// Never longer than this, backoff included.
    pub max: Duration,
    /// Whether each timeout in a row doubles the next (RFC 6298 §5.5).
    pub backoff: bool,
}

/// The measure from which a retransmission timeout is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TimeoutBase {
    /// Smoothed RTT + 4 × its mean deviation (RFC 6298 §2).
    Smoothed,
    /// `factor` × the delay of the packet acknowledged last (the Verus prototype: 5).
    LastDelay {
        /// Multiple of the last delay.
        factor: f64,
    },
}

impl Recovery {
    /// RACK with tail-loss probes over an RFC 6298 timeout of at least 200 ms (Linux's is at least 200 ms longer than the
    /// smoothed round trip). The RFC's floor of 1 s is a SHOULD that no deployed stack keeps.
    pub fn rack() -> Self {
        Recovery {
            loss: LossRule::Rack,
            timeout: TimeoutRule {
                base: TimeoutBase::Smoothed,
                initial: Duration::from_secs(1),
                min: Duration::from_millis(200),
                max: Duration::from_secs(60),
                backoff: true,
            },
            retransmit: true,
            tail_probe: true,
            probe_with_new_data: false,
        }
    }
}
