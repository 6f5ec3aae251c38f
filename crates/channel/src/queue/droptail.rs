//! Drop-tail: first in, first out; refuses what does not fit.
//!
//! A limit may be a time, as in the simulators of picoquic and C4. A packet is then refused if it
//! would wait that long or longer before it begins to be sent. At a rate, the wait is the bytes
//! waiting and the rest of the packet being sent, over the present rate. At rate zero the wait is
//! unknown, and every packet is queued.
//!
//! On a trace, which has opportunities instead of a rate, the wait lasts until the opportunity that
//! would carry the packet's first byte. It is looked up in the trace, so that no accepted packet
//! waits longer than the limit, whatever the channel does meanwhile.

use std::fmt;

use verus_core::Duration;
use verus_words::spec::{Given, Problem, Row, Takes, field};

use super::MILLIS;

/// The limit of a drop-tail queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// This many bytes.
    Bytes(u64),
    /// This many packets, whatever their size.
    Packets(u64),
    /// A packet may wait if it would wait for less than this.
    Delay(Duration),
}

/// The keys of a drop-tail queue's text.
#[derive(Default)]
pub(super) struct DropTail {
    bytes: Option<u64>,
    packets: Option<u64>,
    delay_ms: Option<f64>,
}

impl DropTail {
    const NEEDED: &'static str = "one of the three is needed";
    pub(super) const ROWS: &'static [Row<Self>] = &[
        field!(bytes).whole_or(Self::NEEDED, "bytes", "bytes that may wait"),
        field!(packets).whole_or(Self::NEEDED, "packets", "packets that may wait"),
        Row::other(
            "delay_ms",
            || Takes::Number("ms"),
            "refuses a packet that would wait so long or longer",
            |_| Self::NEEDED.to_owned(),
            |c, setting| {
                setting
                    .within(&MILLIS)
                    .map(|delay| c.delay_ms = Some(delay))
            },
        ),
    ];

    pub(super) fn read(given: &Given<'_>) -> Result<Limit, Problem> {
        let mut config = DropTail::default();
        given.apply(Self::ROWS, &mut config)?;
        match (config.bytes, config.packets, config.delay_ms) {
            (Some(bytes), None, None) => Ok(Limit::Bytes(bytes)),
            (None, Some(packets), None) => Ok(Limit::Packets(packets)),
            (None, None, Some(delay)) => Ok(Limit::Delay(Duration::from_millis_f64(delay))),
            _ => {
                let problem = "`droptail` needs one of bytes=N, packets=N and delay_ms=N";
                Err(Problem::Together(problem.to_owned()))
            }
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Bytes(bytes) => write!(f, "droptail:bytes={bytes}"),
            Limit::Packets(packets) => write!(f, "droptail:packets={packets}"),
            Limit::Delay(delay) => write!(f, "droptail:delay_ms={}", delay.as_millis_f64()),
        }
    }
}
