//! The name and settings of a loaded congestion control, and the state of its flows.

use std::net::SocketAddr;
use std::time::Duration;

use crate::Error;

/// The longest name of a congestion control (TCP_CA_NAME_MAX, less its end).
pub const NAME_BYTES: usize = 15;

/// The only law for the kernel, and its only setting.
pub const LAW: &str = "forward";
const KEY: &str = "budget_ms";
const DEFAULT_BUDGET_MS: f64 = 90.0;
/// The budgets that the scheme accepts, in ms.
const BUDGETS_MS: std::ops::RangeInclusive<f64> = 6.0..=1000.0;

/// A congestion control to load.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The name that programs and sysctl choose it by.
    pub name: String,
    /// The delay budget in ms, beyond which a packet is late; 6 to 1000.
    pub budget_ms: f64,
}

impl Config {
    /// `law` with `settings` (`key=value`), under its own name or another.
    ///
    /// # Errors
    /// The wrong word, and valid ones.
    pub fn parse(law: &str, settings: &[String], name: Option<&str>) -> Result<Self, Error> {
        if law != LAW {
            return Err(Error::Setting(format!(
                "`{law}` has no program for the kernel: `{LAW}` has"
            )));
        }
        let mut config = Config {
            name: name.unwrap_or(law).to_owned(),
            budget_ms: DEFAULT_BUDGET_MS,
        };
        check_name(&config.name)?;
        for setting in settings {
            let Some((key, value)) = setting.split_once('=') else {
                return Err(Error::Setting(format!(
                    "`{setting}` is no setting: key=value is wanted, such as {KEY}=50"
                )));
            };
            if key != KEY {
                return Err(Error::Setting(format!(
                    "`{law}` in the kernel has no setting `{key}`: it has {KEY}"
                )));
            }
            config.budget_ms = value
                .parse()
                .ok()
                .filter(|budget| BUDGETS_MS.contains(budget))
                .ok_or_else(|| {
                    Error::Setting(format!(
                        "{KEY} must be between {} and {} ms, not `{value}`",
                        BUDGETS_MS.start(),
                        BUDGETS_MS.end()
                    ))
                })?;
        }
        Ok(config)
    }

    /// Law and setting, as a scheme has them.
    pub fn words(&self) -> String {
        format!("{LAW}:{KEY}={}", self.budget_ms)
    }
}

/// Whether the kernel, and `sysctl`, can have that name.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    if name.len() > NAME_BYTES {
        return Err(Error::Name(format!(
            "the name `{name}` is too long: {NAME_BYTES} characters at the most, and it has {}",
            name.len()
        )));
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || !name.chars().all(fits) {
        return Err(Error::Name(format!(
            "the name `{name}` has other than letters, digits, `_` and `-`"
        )));
    }
    Ok(())
}

/// A congestion control that the kernel has loaded.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Its name and settings.
    pub config: Config,
    /// Whether new connections can choose it. If not, it was unloaded, and only carries earlier
    /// connections.
    pub registered: bool,
    /// Connections that began on it, in all network namespaces.
    pub begun: u64,
    /// Of these, those that have ended or changed to another.
    pub ended: u64,
    /// The mean cost of an acknowledgement and of the bursts after it; `None` unless
    /// `sysctl kernel.bpf_stats_enabled=1` was set meanwhile.
    pub per_ack: Option<Duration>,
    /// The map in which its flows' state is.
    #[cfg_attr(not(has_programs), allow(dead_code))]
    pub(crate) flows: u32,
    /// The program that processes acknowledgements.
    #[cfg_attr(not(has_programs), allow(dead_code))]
    pub(crate) program: u32,
}

/// A connection of this network namespace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// Its end here.
    pub local: SocketAddr,
    /// Its other end.
    pub remote: SocketAddr,
    /// When it was read, by the clock that does not stop (CLOCK_MONOTONIC).
    pub at: Duration,
    /// Payload that was acknowledged so far, in bytes.
    pub acked_bytes: u64,
    /// r, the delivery rate, in bit/s (IP).
    pub rate_bps: u64,
    /// The pacing rate, in bit/s (IP).
    pub pace_bps: u64,
    /// W, in bytes (IP).
    pub window_bytes: u64,
    /// D, the round trip without a queue.
    pub base: Duration,
    /// Q, the standing queue.
    pub queue: Duration,
    /// q, the target queue.
    pub target: Duration,
    /// The smoothed round trip, by TCP.
    pub smoothed_rtt: Duration,
    /// The round trip of the newest packet acknowledged.
    pub newest_rtt: Duration,
    /// The size of a full packet (IP), in bytes.
    pub packet_bytes: u64,
    /// Of these, headers (IP and TCP).
    pub header_bytes: u16,
    /// Packets in flight.
    pub in_flight_packets: u32,
    /// Packets with data sent so far, each time that it was.
    pub sent_packets: u32,
    /// Of these, sent again.
    pub resent_packets: u32,
    /// Packets that TCP has taken for lost so far.
    pub lost_packets: u32,
    /// Packets delivered so far.
    pub delivered_packets: u32,
    /// Retransmission timeouts so far.
    pub timeouts: u32,
    /// p, the share of packets lost lately.
    pub loss_share: f64,
    /// Its phase: `slow_start`, `steady`, `drain` or `silent`.
    pub phase: &'static str,
}

/// A TCP connection of this network namespace, whatever its congestion control.
#[derive(Clone, Debug, PartialEq)]
pub struct Connection {
    /// The name of its congestion control.
    pub sender: String,
    /// The congestion window, in bytes of payload.
    pub window_bytes: u64,
    /// The newest delivery rate that the application did not limit, in bytes/s of payload; `None`
    /// before the first.
    pub delivery_rate: Option<u64>,
    /// The smoothed round trip; `None` before the first.
    pub smoothed_rtt: Option<Duration>,
    /// The least round trip of the last five minutes; `None` before the first.
    pub least_rtt: Option<Duration>,
    /// Packets with data sent so far, each time that it was.
    pub sent_packets: u32,
    /// Packets that TCP has taken for lost so far.
    pub lost_packets: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(law: &str, settings: &[&str], name: Option<&str>) -> String {
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        match Config::parse(law, &settings, name) {
            Ok(config) => format!("{} {}", config.name, config.words()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        for (law, settings, name, expected) in [
            ("forward", &[][..], None, "forward forward:budget_ms=90"),
            (
                "forward",
                &["budget_ms=12.5"],
                Some("low_1"),
                "low_1 forward:budget_ms=12.5",
            ),
        ] {
            assert_eq!(parsed(law, settings, name), expected);
        }
        for (parsed, expected) in [
            (
                parsed("bbr", &[], None),
                "`bbr` has no program for the kernel: `forward` has",
            ),
            (
                parsed("verus", &["ratio=4"], None),
                "`verus` has no program for the kernel: `forward` has",
            ),
            (
                parsed("forward", &["ratio=4"], None),
                "`forward` in the kernel has no setting `ratio`: it has budget_ms",
            ),
            (
                parsed("forward", &["budget_ms=0"], None),
                "budget_ms must be between 6 and 1000 ms, not `0`",
            ),
            (
                parsed("forward", &["budget_ms=NaN"], None),
                "budget_ms must be between 6 and 1000 ms, not `NaN`",
            ),
            (
                parsed("forward", &["budget_ms"], None),
                "`budget_ms` is no setting: key=value is wanted, such as budget_ms=50",
            ),
            (
                parsed("forward", &[], Some("sixteen_letters_")),
                "the name `sixteen_letters_` is too long: 15 characters at the most, and it has 16",
            ),
            (
                parsed("forward", &[], Some("a/b")),
                "the name `a/b` has other than letters, digits, `_` and `-`",
            ),
            (
                parsed("forward", &[], Some("")),
                "the name `` has other than letters, digits, `_` and `-`",
            ),
        ] {
            assert_eq!(parsed, expected);
        }
    }
}
