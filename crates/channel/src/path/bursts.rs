//! Losses that come in bursts, by count and not by chance.

use std::fmt;
use std::str::FromStr;

use verus_core::Time;
use verus_words::spec::SpecError;

use crate::schedule::{Follower, Schedule};

/// Of every `of` packets, all flows together, the last `lost` are lost. As text `LOST/OF`, such as `2/18`, or `none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BurstsConfig {
    /// The number lost in a row; no loss if 0.
    pub lost: u32,
    /// The length of a round in packets, those lost included.
    pub of: u32,
}

impl FromStr for BurstsConfig {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        if text == "none" {
            return Ok(BurstsConfig::default());
        }
        let whole = |digits: &str| {
            let digits_only = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits_only.then(|| digits.parse().ok()).flatten()
        };
        let parts = text.split_once('/');
        let numbers = parts.and_then(|(lost, of)| whole(lost).zip(whole(of)));
        let valid = numbers.filter(|(lost, of)| 0 < *lost && lost < of);
        let expected = "`none`, or LOST/OF with fewer lost than there are, such as 2/18";
        let (lost, of) = valid.ok_or_else(|| SpecError::bad("loss_bursts", expected, text))?;
        Ok(BurstsConfig { lost, of })
    }
}

impl fmt::Display for BurstsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lost {
            0 => write!(f, "none"),
            lost => write!(f, "{lost}/{}", self.of),
        }
    }
}

/// Loses packets in bursts, which may change in steps.
#[derive(Clone, Debug)]
pub struct Bursts {
    law: Follower<BurstsConfig>,
    /// Packets since the last burst.
    count: u32,
}

impl Bursts {
    /// Loses packets as `law` states at each instant.
    pub fn new(law: Schedule<BurstsConfig>) -> Self {
        Bursts {
            law: Follower::new(law),
            count: 0,
        }
    }

    /// Whether a packet is lost at `now`, which must not decrease from call to call.
    #[inline(never)]
    pub fn loses(&mut self, now: Time) -> bool {
        let BurstsConfig { lost, of } = self.law.at(now);
        if lost == 0 {
            self.count = 0;
            return false;
        }
        // If `of` has become smaller than the count, a new round begins.
        self.count = if self.count + 1 > of {
            1
        } else {
            self.count + 1
        };
        self.count > of - lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_each_round_are_lost_and_rounds_begin_with_the_law() {
        let at = Time::from_millis;
        let law = |text: &str| text.parse().unwrap();
        let steps = vec![
            (at(0), law("none")),
            (at(4), law("2/5")),
            (at(16), law("1/3")),
        ];
        let mut bursts = Bursts::new(Schedule::new(steps).unwrap());
        let lost: Vec<u64> = (0..24).filter(|ms| bursts.loses(at(*ms))).collect();
        assert_eq!(lost, [7, 8, 12, 13, 16, 19, 22]);
    }

    #[test]
    fn texts_are_read_and_others_refused() {
        for text in ["none", "2/18", "1/64"] {
            assert_eq!(text.parse::<BurstsConfig>().unwrap().to_string(), text);
        }
        for text in ["", "2", "0/5", "5/5", "2/", "+1/5", "1/99999999999", "-1/3"] {
            let error = text.parse::<BurstsConfig>().unwrap_err().to_string();
            assert!(error.ends_with(&format!("not `{text}`")), "{error}");
        }
    }
}
