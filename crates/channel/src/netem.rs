//! The options of Linux's netem, as typed after `tc qdisc add dev DEVICE root netem`, as settings of a path.
//!
//! Grammar and defaults are those of tc-netem(8), the effect of each word that of `net/sched/sch_netem.c`. Words without
//! an equal here are refused, in a sentence that names the word and the option to use instead.
//!
//! * Without a `rate`, netem's jitter reorders, since each packet waits apart from the others. The equal is a `reorder`
//!   of every packet, by a uniform time. With a `rate`, netem keeps the order, as `jitter` does.
//! * `reorder 25%` sends a quarter of the packets at once and delays the others: those are late.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::error::FASTEST_MBPS;
use crate::path::jitter::JitterConfig;
use crate::path::loss_model::{FourState, GilbertElliott, LossModelConfig};
use crate::path::reorder::ReorderConfig;

/// The packets that netem holds unless `limit` says otherwise.
const DEFAULT_LIMIT: u64 = 1000;
/// The longest delay, ms, as of a scenario.
const LONGEST_MS: f64 = 100_000.0;

/// A netem's effects on the packets of one direction: fields of a scenario with their values, in the order of crossing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Netem {
    /// The fields; those that it does not name are absent.
    pub settings: Vec<(&'static str, Setting)>,
}

/// A setting of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Setting {
    /// A number.
    Number(f64),
    /// A whole number.
    Whole(u64),
    /// A text.
    Text(String),
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Number(number) => number.fmt(f),
            Setting::Whole(number) => number.fmt(f),
            Setting::Text(text) => text.fmt(f),
        }
    }
}

/// Why options of netem cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("netem: {0}")]
pub struct NetemError(String);

fn refuse<T>(problem: impl Into<String>) -> Result<T, NetemError> {
    Err(NetemError(problem.into()))
}

impl Netem {
    fn set(&mut self, field: &'static str, value: Option<Setting>) {
        self.settings.extend(value.map(|value| (field, value)));
    }
}

fn text(config: impl fmt::Display) -> Option<Setting> {
    Some(Setting::Text(config.to_string()))
}

/// The options one by one, before they are combined.
#[derive(Default)]
struct Typed {
    limit: Option<u64>,
    /// Mean and jitter, ms, and correlation.
    delay: Option<(f64, f64, f64)>,
    loss: Option<LossModelConfig>,
    duplicate: Option<f64>,
    corrupt: Option<f64>,
    /// Probability and correlation.
    reorder: Option<(f64, f64)>,
    gap: Option<u64>,
    rate: Option<f64>,
    seed: Option<u64>,
}

impl FromStr for Netem {
    type Err = NetemError;

    /// Reads the options. A whole command, `tc qdisc … netem OPTIONS`, is one too.
    fn from_str(text: &str) -> Result<Self, NetemError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let from = words.iter().position(|word| *word == "netem");
        let options = &words[from.map_or(0, |at| at + 1)..];
        if options.is_empty() {
            return refuse("no options; such as `delay 20ms 5ms loss gemodel 1% 10%`");
        }
        let mut typed = Typed::default();
        let mut rest = Words(options);
        while let Some(word) = rest.next() {
            typed.read(word, &mut rest)?;
        }
        typed.resolve()
    }
}

/// The words that are left.
struct Words<'a>(&'a [&'a str]);

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// The word after `word`, which needs one.
    fn value(&mut self, word: &str, what: &str) -> Result<&'a str, NetemError> {
        let value = self.next();
        value.ok_or_else(|| NetemError(format!("`{word}` needs {what}")))
    }

    /// The next word, if it begins as a number does.
    fn number(&mut self) -> Option<&'a str> {
        let first = self.0.first()?.as_bytes().first()?;
        let is_number = first.is_ascii_digit() || b".+-".contains(first);
        is_number.then(|| self.next()).flatten()
    }

    /// The percentage after `word`, as a share.
    fn percent(&mut self, word: &str) -> Result<f64, NetemError> {
        percent(word, self.value(word, "a percentage")?)
    }

    /// The percentage that may follow.
    fn percent_or(&mut self, word: &str, default: f64) -> Result<f64, NetemError> {
        self.number()
            .map_or(Ok(default), |value| percent(word, value))
    }

    /// The whole number after `word`.
    fn whole(&mut self, word: &str) -> Result<u64, NetemError> {
        let value = self.value(word, "a whole number")?;
        let digits = value.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.then(|| value.parse().ok()).flatten();
        number.ok_or_else(|| NetemError(format!("`{word} {value}`: not a whole number")))
    }
}

/// A number and what follows it; the number is finite and not negative.
fn split_number(text: &str) -> Option<(f64, &str)> {
    let is_part = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    let end = text.bytes().position(|byte| !is_part(byte));
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let number: f64 = number.parse().ok()?;
    number.is_finite().then_some((number, unit))
}

/// Without the last digits that a difference of decimal fractions has in binary.
fn rounded(number: f64) -> f64 {
    (number * 1e12).round() / 1e12
}

/// A percentage as a share. As in tc, the sign may be left out.
fn percent(word: &str, text: &str) -> Result<f64, NetemError> {
    let number = split_number(text).filter(|(_, unit)| ["", "%"].contains(unit));
    let number = number.filter(|(number, _)| *number <= 100.0);
    match number {
        Some((number, _)) => Ok(rounded(number / 100.0)),
        None => refuse(format!(
            "`{word} {text}`: not a percentage between 0 and 100"
        )),
    }
}

/// A time in ms.
fn millis(word: &str, text: &str) -> Result<f64, NetemError> {
    let scale = split_number(text).and_then(|(number, unit)| {
        let scale = match unit {
            "s" | "sec" | "secs" => 1e3,
            "ms" | "msec" | "msecs" => 1.0,
            "us" | "usec" | "usecs" => 1e-3,
            "ns" | "nsec" | "nsecs" => 1e-6,
            "" if number == 0.0 => 1.0,
            _ => return None,
        };
        Some(rounded(number * scale))
    });
    match scale {
        Some(millis) if millis <= LONGEST_MS => Ok(millis),
        Some(_) => refuse(format!("`{word} {text}`: above {LONGEST_MS} ms")),
        // Versions of tc differ in whether a bare number is in µs or ns.
        None => refuse(format!(
            "`{word} {text}`: not a time with its unit (s, ms, us or ns), such as 20ms"
        )),
    }
}

/// A rate in Mbit/s. As in tc, `bps` are bytes per second, and a bare number is in bits.
fn mbps(text: &str) -> Result<f64, NetemError> {
    let scaled = split_number(text).and_then(|(number, unit)| {
        let unit = unit.to_ascii_lowercase();
        let (prefix, bits) = match unit.strip_suffix("bit") {
            Some(prefix) => (prefix, 1.0),
            None if unit.is_empty() => ("", 1.0),
            None => (unit.strip_suffix("bps")?, 8.0),
        };
        let scale = match prefix {
            "" => 1.0,
            "k" => 1e3,
            "m" => 1e6,
            "g" => 1e9,
            "t" => 1e12,
            "ki" => 1024.0,
            "mi" => 1_048_576.0,
            "gi" => 1_073_741_824.0,
            "ti" => 1_099_511_627_776.0,
            _ => return None,
        };
        Some(number * scale * bits / 1e6)
    });
    match scaled {
        Some(mbps) if (1e-6..=FASTEST_MBPS).contains(&mbps) => Ok(mbps),
        Some(_) => refuse(format!(
            "`rate {text}`: not between 1bit and {FASTEST_MBPS} Mbit/s"
        )),
        None => refuse(format!(
            "`rate {text}`: not a rate with its unit, such as 10mbit"
        )),
    }
}

/// Keeps a value of a word that may be given once.
fn once<T>(slot: &mut Option<T>, word: &str, value: T) -> Result<(), NetemError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => refuse(format!("`{word}` is given twice")),
    }
}

/// A probability of chance, which is below 1, and without the correlation that may follow it.
fn chance(word: &str, words: &mut Words<'_>) -> Result<f64, NetemError> {
    let share = words.percent(word)?;
    if share >= 1.0 {
        return refuse(format!("`{word}` must be below 100 %"));
    }
    match words.number() {
        None => Ok(share),
        Some(correlation) if percent(word, correlation)? == 0.0 => Ok(share),
        Some(correlation) => refuse(format!(
            "`{word}` has no correlation here ({correlation}): leave it out; --{word} {share} draws each packet by itself"
        )),
    }
}

impl Typed {
    /// Reads an option, which begins with `word`.
    fn read(&mut self, word: &str, rest: &mut Words<'_>) -> Result<(), NetemError> {
        match word {
            "limit" => {
                let limit = rest.whole(word)?;
                if limit == 0 {
                    return refuse("`limit 0` holds no packet");
                }
                once(&mut self.limit, word, limit)
            }
            "delay" | "latency" => {
                let mean = millis(word, rest.value(word, "a time")?)?;
                let jitter = rest.number().map_or(Ok(0.0), |text| millis(word, text))?;
                let correlation = rest.percent_or(word, 0.0)?;
                once(&mut self.delay, word, (mean, jitter, correlation))
            }
            "distribution" => {
                let shape = rest.value(word, "a name")?;
                refuse(format!(
                    "`distribution {shape}`: there are no tables here. Without a distribution, netem's delay is uniform; \
                     `--jitter gauss:mean_ms=15` is normal with a third of the mean as deviation, and keeps the order"
                ))
            }
            "loss" | "drop" => {
                let model = loss(word, rest)?;
                once(&mut self.loss, word, model)
            }
            "ecn" => refuse(
                "`ecn` would mark packets at random: leave it out; queues mark here, such as --queue codel:ecn=yes",
            ),
            "corrupt" => {
                let share = chance(word, rest)?;
                once(&mut self.corrupt, word, share)
            }
            "duplicate" => {
                let share = chance(word, rest)?;
                once(&mut self.duplicate, word, share)
            }
            "reorder" => {
                let share = rest.percent(word)?;
                let correlation = rest.percent_or(word, 0.0)?;
                once(&mut self.reorder, word, (share, correlation))
            }
            "gap" => {
                let gap = rest.whole(word)?;
                once(&mut self.gap, word, gap)
            }
            "rate" => {
                let rate = mbps(rest.value(word, "a rate")?)?;
                while let Some(overhead) = rest.number() {
                    if split_number(overhead) != Some((0.0, "")) {
                        return refuse(format!(
                            "`rate` with {overhead} for overhead or cells has no equal: leave it out; --packet-bytes (in \
                             `verus shell` --mtu) sets the size that the link accounts"
                        ));
                    }
                }
                once(&mut self.rate, word, rate)
            }
            "slot" => refuse(
                "`slot` has no equal: a trace says when packets may leave (--trace FILE), and --jitter wifi:mean_ms=7 \
                 has the bad spells of Wi-Fi",
            ),
            "seed" => {
                let seed = rest.whole(word)?;
                once(&mut self.seed, word, seed)
            }
            other => {
                let other: String = other.chars().take(40).collect();
                refuse(format!(
                    "unknown word `{other}`; known are delay, loss, duplicate, corrupt, reorder, rate, limit and seed"
                ))
            }
        }
    }

    /// The settings that the words amount to together.
    fn resolve(self) -> Result<Netem, NetemError> {
        let mut netem = Netem::default();
        match (self.rate, self.limit) {
            (Some(rate), limit) => {
                let packets = limit.unwrap_or(DEFAULT_LIMIT);
                netem.set("trace", text(format!("rate:{rate}")));
                netem.set("queue", text(format!("droptail:packets={packets}")));
            }
            (None, None) => {}
            (None, Some(limit)) => {
                return refuse(format!(
                    "`limit {limit}` without `rate` bounds the packets under way, which nothing does here: leave it out; \
                     with a link of its own, --queue droptail:packets={limit}"
                ));
            }
        }
        let mut delays = self.delays()?.settings.into_iter();
        netem.settings.extend(delays.next());
        match self.loss {
            Some(LossModelConfig::Random {
                p,
                correlation: 0.0,
            }) => netem.set("loss", Some(Setting::Number(p))),
            model => netem.set("loss_model", model.and_then(text)),
        }
        netem.set("duplicate", self.duplicate.map(Setting::Number));
        netem.set("corrupt", self.corrupt.map(Setting::Number));
        netem.settings.extend(delays);
        netem.set("seed", self.seed.map(Setting::Whole));
        Ok(netem)
    }

    /// The propagation delay, and then the field that has the rest of the delay.
    fn delays(&self) -> Result<Netem, NetemError> {
        let Some((mean, jitter, correlation)) = self.delay else {
            return match (self.reorder, self.gap) {
                (None, None) => Ok(Netem::default()),
                _ => refuse("`reorder` and `gap` need a `delay`, as in netem"),
            };
        };
        if jitter > mean {
            return refuse(format!(
                "`delay {mean}ms {jitter}ms`: a jitter above the delay, which netem cuts at 0, has no equal: use \
                 --delay-ms 0 --reorder uniform:p=1,max_ms={}",
                mean + jitter
            ));
        }
        if let Some(gap) = self
            .gap
            .filter(|gap| *gap > 1 || (*gap == 1 && self.reorder.is_none()))
        {
            // After gap − 1 late packets each one leaves at once with the probability of `reorder`, until one has.
            let at_once = self.reorder.map_or(1.0, |(share, _)| share);
            let late = 1.0 - 1.0 / (gap as f64 - 1.0 + 1.0 / at_once);
            return refuse(format!(
                "`gap {gap}` counts packets, which has no equal: use --delay-ms 0 --reorder \
                 late:p={late:.4},ms={mean}, which draws as many"
            ));
        }
        let mut delay_ms = rounded(mean - jitter);
        let (field, value) = match self.reorder {
            Some(_) if jitter > 0.0 => {
                return refuse(format!(
                    "`reorder` beside a jitter has no equal: use --reorder uniform:p=1,max_ms={} alone, which reorders",
                    jitter * 2.0
                ));
            }
            Some(_) if self.rate.is_some() => {
                return refuse(
                    "`reorder` beside `rate` lets packets pass by the link, which has no equal: use --reorder \
                     late:p=0.05,ms=10, for packets that are late behind it",
                );
            }
            Some((at_once, correlation)) => {
                delay_ms = 0.0;
                (
                    "reorder",
                    text(ReorderConfig::Late {
                        p: rounded(1.0 - at_once),
                        by: verus_core::Duration::from_millis_f64(mean),
                        correlation,
                    }),
                )
            }
            None if jitter == 0.0 => ("jitter", None),
            None if self.rate.is_none() => (
                "reorder",
                text(ReorderConfig::Uniform {
                    p: 1.0,
                    most: verus_core::Duration::from_millis_f64(jitter * 2.0),
                    correlation,
                }),
            ),
            None if correlation > 0.0 => {
                return refuse(format!(
                    "`delay` with a correlation beside `rate` has no equal: leave the correlation out, for --jitter \
                     uniform:max_ms={}",
                    jitter * 2.0
                ));
            }
            None => {
                let max_ms = jitter * 2.0;
                ("jitter", text(JitterConfig::Uniform { max_ms }))
            }
        };
        let mut netem = Netem::default();
        netem.set("delay_ms", Some(Setting::Number(delay_ms)));
        netem.set(field, value);
        Ok(netem)
    }
}

/// The loss model after `word`.
fn loss(word: &str, rest: &mut Words<'_>) -> Result<LossModelConfig, NetemError> {
    let kind = rest.0.first().copied().unwrap_or_default();
    match kind {
        "state" => {
            rest.next();
            let p13 = rest.percent("loss state")?;
            let p31 = rest.percent_or("loss state", rounded(1.0 - p13))?;
            let p32 = rest.percent_or("loss state", 0.0)?;
            let p23 = rest.percent_or("loss state", 1.0)?;
            let p14 = rest.percent_or("loss state", 0.0)?;
            if p13 + p14 > 1.0 + 1e-9 || p31 + p32 > 1.0 + 1e-9 {
                return refuse("`loss state`: p13 + p14 and p31 + p32 must each be at most 100 %");
            }
            Ok(LossModelConfig::FourState(FourState {
                p13,
                p31,
                p32,
                p23,
                p14,
            }))
        }
        "gemodel" => {
            rest.next();
            let to_bad = rest.percent("loss gemodel")?;
            Ok(LossModelConfig::GilbertElliott(GilbertElliott {
                to_bad,
                to_good: rest.percent_or("loss gemodel", rounded(1.0 - to_bad))?,
                loss_in_bad: rest.percent_or("loss gemodel", 1.0)?,
                loss_in_good: rest.percent_or("loss gemodel", 0.0)?,
            }))
        }
        _ => {
            if kind == "random" {
                rest.next();
            }
            let p = rest.percent(word)?;
            if p >= 1.0 {
                return refuse(format!("`{word}` must be below 100 %"));
            }
            let correlation = rest.percent_or(word, 0.0)?;
            Ok(LossModelConfig::Random { p, correlation })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path_spec::{FIELDS, PathSpec};
    use proptest::prelude::*;

    fn settings(text: &str) -> String {
        let netem: Netem = text
            .parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        let written = netem
            .settings
            .into_iter()
            .map(|(field, value)| format!("{field}={value}"));
        written.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_is_understood_is_said_in_our_settings() {
        for (text, expected) in [
            ("delay 100ms", "delay_ms=100"),
            (
                "tc qdisc add dev eth0 root netem delay 0.1s",
                "delay_ms=100",
            ),
            ("latency 500us", "delay_ms=0.5"),
            (
                "delay 20ms 5ms loss gemodel 1% 10%",
                "delay_ms=15 loss_model=gemodel:p=0.01,r=0.1,1-h=1,1-k=0 reorder=uniform:p=1,max_ms=10",
            ),
            (
                "delay 100ms 10ms 25%",
                "delay_ms=90 reorder=uniform:p=1,max_ms=20,correlation=0.25",
            ),
            ("loss 0.1%", "loss=0.001"),
            ("loss random 2", "loss=0.02"),
            (
                "loss 0.3% 25%",
                "loss_model=random:p=0.003,correlation=0.25",
            ),
            (
                "loss gemodel 1% 10% 70% 0.1%",
                "loss_model=gemodel:p=0.01,r=0.1,1-h=0.7,1-k=0.001",
            ),
            (
                "loss gemodel 10%",
                "loss_model=gemodel:p=0.1,r=0.9,1-h=1,1-k=0",
            ),
            (
                "loss state 1% 30% 10% 50% 0.1%",
                "loss_model=state:p13=0.01,p31=0.3,p32=0.1,p23=0.5,p14=0.001",
            ),
            (
                "loss state 30%",
                "loss_model=state:p13=0.3,p31=0.7,p32=0,p23=1,p14=0",
            ),
            ("duplicate 1% corrupt 0.1%", "duplicate=0.01 corrupt=0.001"),
            (
                "rate 10mbit delay 20ms 5ms limit 50 seed 7",
                "trace=rate:10 queue=droptail:packets=50 delay_ms=15 jitter=uniform:max_ms=10 seed=7",
            ),
            ("rate 100kbit", "trace=rate:0.1 queue=droptail:packets=1000"),
            ("rate 1mbps 0", "trace=rate:8 queue=droptail:packets=1000"),
        ] {
            assert_eq!(settings(text), expected, "{text}");
        }
    }

    #[test]
    fn the_examples_of_the_manual_are_read_or_refused_by_name() {
        // Both of `reorder`, which assume `delay 10ms`, and the only one of the section EXAMPLES (iproute2 6.1).
        assert_eq!(
            settings("delay 10ms reorder 25% 50%"),
            "delay_ms=0 reorder=late:p=0.75,ms=10,correlation=0.5"
        );
        for (text, words) in [
            (
                "delay 10ms gap 5",
                "`gap 5` counts packets, which has no equal: use --delay-ms 0 --reorder late:p=0.8000,ms=10",
            ),
            (
                "delay 10ms reorder 25% 50% gap 5",
                "`gap 5` counts packets, which has no equal: use --delay-ms 0 --reorder late:p=0.8750,ms=10",
            ),
            (
                "rate 5kbit 20 100 5",
                "`rate` with 20 for overhead or cells has no equal: leave it out",
            ),
        ] {
            let error = text.parse::<Netem>().expect_err(text).to_string();
            assert!(error.starts_with(&format!("netem: {words}")), "{error}");
        }
    }

    #[test]
    fn each_refusal_names_the_word_and_what_to_use() {
        for (text, words) in [
            (
                "",
                "no options; such as `delay 20ms 5ms loss gemodel 1% 10%`",
            ),
            ("delay", "`delay` needs a time"),
            ("delay 100", "`delay 100`: not a time with its unit"),
            (
                "delay 5ms 10ms",
                "use --delay-ms 0 --reorder uniform:p=1,max_ms=15",
            ),
            ("delay 9ms distribution normal", "--jitter gauss:mean_ms=15"),
            (
                "loss 120%",
                "`loss 120%`: not a percentage between 0 and 100",
            ),
            ("loss 100%", "`loss` must be below 100 %"),
            ("loss 1% ecn", "--queue codel:ecn=yes"),
            ("loss 1% loss 2%", "`loss` is given twice"),
            (
                "duplicate 1% 25%",
                "--duplicate 0.01 draws each packet by itself",
            ),
            ("reorder 25%", "need a `delay`, as in netem"),
            ("limit 100", "--queue droptail:packets=100"),
            ("limit 0", "`limit 0` holds no packet"),
            ("slot 10ms", "--jitter wifi:mean_ms=7"),
            ("rate fast", "`rate fast`: not a rate with its unit"),
            ("delay 9ms 1ms reorder 5%", "--reorder uniform:p=1,max_ms=2"),
            ("rate 1mbit delay 9ms reorder 5%", "late behind it"),
            ("rate 1mbit delay 9ms 1ms 5%", "--jitter uniform:max_ms=2"),
            ("jam 3", "unknown word `jam`; known are delay, loss"),
        ] {
            let error = text.parse::<Netem>().expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    proptest! {
        /// No words make the parser panic, and the settings of accepted words parse.
        #[test]
        fn any_words_are_read_or_refused(
            words in prop::collection::vec(
                prop_oneof![
                    "delay|latency|loss|random|state|gemodel|duplicate|corrupt|reorder|gap|rate|limit|seed|ecn|slot",
                    "[0-9]{1,3}(\\.[0-9])?(%|ms|us|s|mbit|kbit|kbps|)",
                    "\\PC{0,8}",
                ],
                0..10,
            ),
        ) {
            if let Ok(netem) = words.join(" ").parse::<Netem>() {
                for (name, value) in netem.settings {
                    let text = value.to_string();
                    match FIELDS.iter().find(|field| field.name == name) {
                        Some(field) => (field.set)(&mut PathSpec::default(), &text, None).expect(&text),
                        None if name == "queue" => drop(crate::QueueConfig::parse(&text).expect(&text)),
                        None if name == "trace" => drop(crate::catalogue::find(&text).expect(&text)),
                        None => prop_assert!(["delay_ms", "seed"].contains(&name)),
                    }
                }
            }
        }

        /// No bytes make the parser panic, and an accepted series has probabilities alone.
        #[test]
        fn any_bytes_are_a_loss_series_or_are_refused(
            bytes in prop_oneof![prop::collection::vec(any::<u8>(), 0..64), "[01.\\n]{0,40}".prop_map(String::into_bytes)],
        ) {
            if let Ok(series) = crate::losses::parse("bytes", &bytes[..]) {
                prop_assert!(!series.ever(|share| !(0.0..=1.0).contains(share)));
            }
        }
    }
}
