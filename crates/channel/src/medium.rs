//! A medium that both directions of a path share: half-duplex Wi-Fi with aggregates.
//!
//! ```text
//! station 0 (data)   │ AIFS ─ backoff ─ preamble, MPDUs          │ AIFS ┄ …
//! station 1 (ACKs)   │ AIFS ┄ (frozen while busy)    SIFS, BlockAck │ AIFS ─ backoff …
//! ```
//!
//! Two stations contend, one for each direction, as best-effort traffic does in EDCA, which is DCF
//! with AIFS in place of DIFS (IEEE 802.11-2020, 10.23.2). Once the medium has been idle for AIFS,
//! a station counts its backoff down by one each slot and transmits at zero. It draws the backoff
//! from its contention window after each transmission, and where a packet finds the medium busy and
//! the backoff spent. A backoff stops while the other station transmits.
//!
//! A transmission is one aggregate (A-MPDU, 10.12) behind one preamble, and one `BlockAck` that
//! answers it. Stations that reach zero in the same slot collide: neither aggregate is received,
//! both windows double, and both are sent again as they were. There is no limit of retries: seven
//! collisions in a row have a probability of 2⁻⁴⁹.
//!
//! [`Medium`] decides who transmits and when, and holds no packets. Those wait in a
//! [`Station`](crate::path::station::Station) of each path.
//!
//! As text: `wifi:aggregate=64,airtime_ms=5.484`, or `none`.

use std::fmt;
use std::str::FromStr;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use verus_core::{Bytes, Duration, Time, random};
use verus_words::range::Within;
use verus_words::spec::{Field, Kind, Row, Shown, SpecError, field, shown};

/// Unit of backoff (802.11-2020, 17.4.4, as SIFS).
const SLOT: Duration = Duration::from_micros(9);
/// Time between a frame and its answer.
const SIFS: Duration = Duration::from_micros(16);
/// Idle time before backoff: SIFS and three slots, AIFSN of best effort (9.4.2.28).
const AIFS: Duration = Duration::from_micros(16 + 3 * 9);
/// The first contention window, and the largest, of best effort.
const WINDOW_MIN: u64 = 15;
const WINDOW_MAX: u64 = 1023;
/// Preamble of 802.11n with two spatial streams, and of 802.11ac with one: 20 µs of legacy fields
/// (as in 802.11a) and 20 µs of HT or VHT fields.
const PREAMBLE: Duration = Duration::from_micros(40);
/// A symbol, with the long guard interval.
const SYMBOL: Duration = Duration::from_micros(4);
/// `BlockAck` of 32 bytes at 24 Mbit/s: a preamble of 20 µs and three symbols.
const BLOCK_ACK: Duration = Duration::from_micros(20 + 3 * 4);
/// Bytes around an IP packet: QoS MAC header (26), LLC and SNAP (8), FCS (4), delimiter in the
/// aggregate (4).
const FRAMING: u64 = 26 + 8 + 4 + 4;
/// Bytes of PHY service and tail: 22 bits, rounded up.
const SERVICE_AND_TAIL: u64 = 3;

/// A shared medium, as data.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum MediumConfig {
    /// Nothing is shared: each direction has its own link.
    #[default]
    None,
    /// Wi-Fi.
    Wifi(Limits),
}

/// Limits of an aggregate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The most packets in an aggregate: the window of a `BlockAck` (802.11-2020, 9.3.1.8) has 64.
    pub aggregate: u64,
    /// The longest aggregate with its preamble, ms; one of a single packet may be longer.
    /// `aPPDUMaxTime` of 802.11n and 802.11ac is 5.484 (19.4.4, 21.4.4).
    pub airtime_ms: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            aggregate: 64,
            airtime_ms: 5.484,
        }
    }
}

const PACKETS: Within = Within {
    words: "a whole number between 1 and 64",
    valid: |value| (1.0..=64.0).contains(&value) && value.fract() == 0.0,
};
const AIRTIME: Within = Within {
    words: "above 0 and at most 5.484",
    valid: |value| value > 0.0 && value <= 5.484,
};

impl Limits {
    const ROWS: &'static [Row<Self>] = &[
        Field::new(
            "aggregate",
            |c: &Self| c.aggregate as f64,
            |c, v| c.aggregate = v as u64,
        )
        .within("packets", "the most in an aggregate", PACKETS),
        field!(airtime_ms).within(
            "ms",
            "the longest aggregate with its preamble; one packet may be longer",
            AIRTIME,
        ),
    ];

    /// When the last bit of an aggregate of `bytes` leaves that begins at `at`, where `end` says
    /// when bytes leave that begin to at an instant. [`Time::MAX`] if the rate stays zero.
    pub(crate) fn end(at: Time, bytes: u64, end: impl FnOnce(Time, Bytes) -> Option<Time>) -> Time {
        let data = at + PREAMBLE;
        let Some(end) = end(data, Bytes::new(bytes + SERVICE_AND_TAIL)) else {
            return Time::MAX;
        };
        let symbols = end.since(data).as_nanos().div_ceil(SYMBOL.as_nanos());
        data + Duration::from_nanos(symbols * SYMBOL.as_nanos())
    }

    /// The bytes of a packet of `size` in an aggregate, padded to a multiple of 4 (802.11-2020,
    /// 9.7.1).
    pub(crate) fn framed(size: Bytes) -> u64 {
        (size.get() + FRAMING).next_multiple_of(4)
    }

    /// Whether an aggregate of this many packets, from `at` to `end`, is within the limits.
    pub(crate) fn allow(&self, packets: usize, at: Time, end: Time) -> bool {
        packets as u64 <= self.aggregate
            && end.since(at) <= Duration::from_millis_f64(self.airtime_ms)
    }
}

const KINDS: &[Kind<MediumConfig>] = &[
    Kind {
        name: "none",
        summary: "each direction has its own link",
        example: "none",
        keys: Vec::new,
        read: |given| {
            given.apply(&[], &mut ())?;
            Ok(MediumConfig::None)
        },
    },
    Kind {
        name: "wifi",
        summary: "half-duplex Wi-Fi: data and acknowledgements contend, and go in aggregates",
        example: "wifi:aggregate=32,airtime_ms=4",
        keys: || shown(Limits::ROWS, &Limits::default()),
        read: |given| {
            let mut limits = Limits::default();
            given.apply(Limits::ROWS, &mut limits)?;
            Ok(MediumConfig::Wifi(limits))
        },
    },
];

/// Every kind of medium with its keys and units.
pub fn catalogue() -> Vec<Shown> {
    Kind::list(KINDS)
}

impl FromStr for MediumConfig {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        Kind::parse("medium", KINDS, text)
    }
}

impl fmt::Display for MediumConfig {
    /// The text from which the same medium is made again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MediumConfig::None => f.write_str("none"),
            MediumConfig::Wifi(limits) => {
                let Limits {
                    aggregate,
                    airtime_ms,
                } = limits;
                write!(f, "wifi:aggregate={aggregate},airtime_ms={airtime_ms}")
            }
        }
    }
}

/// The contention for a medium, without a clock.
#[derive(Clone, Debug)]
pub struct Medium {
    limits: Limits,
    /// The stations of the data and of the acknowledgements.
    stations: [Contender; 2],
    /// When the last exchange is over.
    idle_from: Time,
    /// When a station transmits next.
    next: Option<Time>,
}

/// One station's part in the contention.
#[derive(Clone, Debug)]
struct Contender {
    /// Whether it has packets to send, and since when.
    backlogged: bool,
    since: Time,
    /// The backoff that remains when the medium becomes idle, slots.
    backoff: u64,
    /// The largest backoff that it may draw, a power of two less one.
    window: u64,
    draws: ChaCha8Rng,
}

impl Contender {
    fn draw(&mut self) {
        self.backoff = self.draws.next_u64() & self.window;
    }

    /// The slot, counted from `first`, at whose beginning it transmits.
    fn slot(&self, first: Time) -> u64 {
        let arrival_ns = self.since.since(first).as_nanos();
        self.backoff.max(arrival_ns.div_ceil(SLOT.as_nanos()))
    }
}

impl Medium {
    /// An idle medium, whose backoffs come from `seed`; `None` where nothing is shared.
    pub fn new(config: &MediumConfig, seed: u64) -> Option<Self> {
        let &MediumConfig::Wifi(limits) = config else {
            return None;
        };
        let station = |way| Contender {
            backlogged: false,
            since: Time::ZERO,
            backoff: 0,
            window: WINDOW_MIN,
            draws: random::stream(seed, "medium", way),
        };
        Some(Medium {
            limits,
            stations: [station(0), station(1)],
            idle_from: Time::ZERO,
            next: None,
        })
    }

    /// The limits of an aggregate.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// When a station transmits next. The caller says at `now` which stations have packets to send,
    /// after each packet that came and each transmission.
    pub fn contend(&mut self, now: Time, backlogged: [bool; 2]) -> Option<Time> {
        for (station, backlogged) in self.stations.iter_mut().zip(backlogged) {
            if backlogged && !station.backlogged {
                station.since = now;
                if now < self.idle_from && station.backoff == 0 {
                    station.draw();
                }
            }
            station.backlogged = backlogged;
        }
        let first = self.idle_from + AIFS;
        let contending = self.stations.iter().filter(|station| station.backlogged);
        let slot = contending.map(|station| station.slot(first)).min();
        self.next = slot.map(|slot| first + Duration::from_nanos(slot * SLOT.as_nanos()));
        self.next
    }

    /// The stations that transmit at the instant that [`Medium::contend`] named.
    pub fn winners(&self) -> [bool; 2] {
        let slot = self.next.map(|at| self.slot_at(at));
        let wins = |station: &Contender| {
            station.backlogged && Some(station.slot(self.idle_from + AIFS)) == slot
        };
        self.stations.each_ref().map(wins)
    }

    /// The winners transmit until `ends`, which are `None` where a station sends nothing. Returns
    /// whether the aggregate is received, rather than lost in a collision.
    pub fn occupy(&mut self, ends: [Option<Time>; 2]) -> bool {
        let (Some(at), Some(last)) = (self.next.take(), ends.into_iter().flatten().max()) else {
            return false;
        };
        let slot = self.slot_at(at);
        let collision = ends.iter().all(Option::is_some);
        for (station, end) in self.stations.iter_mut().zip(ends) {
            if end.is_none() {
                station.backoff = station.backoff.saturating_sub(slot);
                continue;
            }
            station.window = match collision {
                true => WINDOW_MAX.min(2 * station.window + 1),
                false => WINDOW_MIN,
            };
            station.draw();
        }
        // A collision lasts as long: the senders wait for the answer that does not come
        // (10.3.2.11).
        self.idle_from = last + SIFS + BLOCK_ACK;
        !collision
    }

    /// The slot that begins at `at`.
    fn slot_at(&self, at: Time) -> u64 {
        at.since(self.idle_from + AIFS).as_nanos() / SLOT.as_nanos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::from_nanos(us * 1000)
    }

    fn wifi() -> Medium {
        Medium::new(&"wifi".parse().expect("valid"), 1).expect("not none")
    }

    #[test]
    fn a_packet_that_finds_the_medium_idle_is_sent_at_the_next_slot() {
        let mut medium = wifi();
        assert_eq!(medium.contend(at(0), [false, false]), None);
        // Slots begin at 43, 52, 61 µs …
        assert_eq!(medium.contend(at(53), [true, false]), Some(at(61)));
        assert_eq!(medium.winners(), [true, false]);
        // A packet that comes later in the same slot leads to a collision.
        assert_eq!(medium.contend(at(60), [true, true]), Some(at(61)));
        assert_eq!(medium.winners(), [true, true]);
    }

    #[test]
    fn a_backoff_stops_while_the_other_station_transmits() {
        let mut medium = wifi();
        medium.contend(at(0), [true, false]);
        (medium.stations[0].backoff, medium.stations[1].backoff) = (3, 5);
        assert_eq!(medium.contend(at(0), [true, true]), Some(at(43 + 3 * 9)));
        assert!(medium.occupy([Some(at(1000)), None]));
        // Two of five slots are left after SIFS, BlockAck and AIFS.
        let next = medium.contend(at(1000), [false, true]);
        assert_eq!(next, Some(at(1000 + 16 + 32 + 43 + 2 * 9)));
        assert_eq!(medium.winners(), [false, true]);
    }

    #[test]
    fn a_collision_doubles_both_windows_and_a_success_resets_its_own() {
        let mut medium = wifi();
        for window in [31, 63, 127, 255, 511, 1023, 1023] {
            for station in &mut medium.stations {
                station.backoff = 0;
            }
            medium.contend(Time::ZERO, [true, true]);
            let end = medium.next;
            assert!(!medium.occupy([end, end]));
            assert_eq!(
                medium.stations.each_ref().map(|one| one.window),
                [window; 2]
            );
        }
        medium.stations[0].backoff = 0;
        medium.contend(Time::ZERO, [true, false]);
        medium.occupy([medium.next, None]);
        assert_eq!(medium.stations.each_ref().map(|one| one.window), [15, 1023]);
    }

    #[test]
    fn text_and_back_gives_the_same_medium_and_faults_are_named() {
        for text in ["none", "wifi:aggregate=16,airtime_ms=2.5"] {
            let config: MediumConfig = text.parse().expect("valid");
            assert_eq!(config.to_string(), text);
        }
        let whole = "wifi:aggregate=64,airtime_ms=5.484";
        assert_eq!("wifi".parse(), whole.parse::<MediumConfig>());
        for (text, problem) in [
            ("token", "unknown kind `token`; known are none, wifi"),
            (
                "wifi:aggregate=65",
                "aggregate must be a whole number between 1 and 64, not `65`",
            ),
            (
                "wifi:aggregate=1.5",
                "aggregate must be a whole number between 1 and 64, not `1.5`",
            ),
            (
                "wifi:airtime_ms=0",
                "airtime_ms must be above 0 and at most 5.484, not `0`",
            ),
            (
                "wifi:mbps=130",
                "`wifi` has no key `mbps`; its keys are aggregate, airtime_ms",
            ),
        ] {
            let error = text.parse::<MediumConfig>().expect_err("refused");
            assert_eq!(error.to_string(), format!("medium `{text}`: {problem}"));
        }
        for kind in catalogue() {
            kind.example.parse::<MediumConfig>().expect("an example");
        }
    }
}
