//! Verus in C beside the core's paper mode.

use verus_core::configuration::Configured;
use verus_core::{Allowance, Bytes, Controller, Feedback, Rate, Recovery, Time, Timeout};
use verus_protocol::verus::{Config, Mode};
use verus_senders::Registry;
use verus_sim::{FlowSpec, Scenario};
use verus_words::configuration::Configuration;
use verus_words::spec::{Row, field};

use crate::program::Program;

/// What the law says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Said {
    pub window: f64,
    pub allowed: u64,
    /// Bytes of payload per second.
    pub pace: u64,
    pub estimate_ms: f64,
    pub delay_min_ms: f64,
    pub delay_max_ms: f64,
    pub phase: u64,
    pub epoch_end: u64,
}

fn said(told: &[u64]) -> Said {
    let [
        window,
        allowed,
        pace,
        estimate,
        least,
        most,
        phase,
        epoch_end,
    ] = told[..]
    else {
        panic!("{told:?}");
    };
    assert!(window >= 1 << 16 && allowed > 0 && pace > 0, "{told:?}");
    let ms = |ns: u64| ns as f64 / 1e6;
    Said {
        window: window as f64 / 65536.0,
        allowed,
        pace,
        estimate_ms: ms(estimate),
        delay_min_ms: ms(least),
        delay_max_ms: ms(most),
        phase,
        epoch_end,
    }
}

#[derive(Clone, Debug)]
struct InC {
    ratio: f64,
    paced: bool,
    budget: bool,
    floor: f64,
    rack: bool,
    least: bool,
    gain: f64,
    timer: f64,
}

impl Default for InC {
    fn default() -> Self {
        InC {
            ratio: 2.0,
            paced: true,
            budget: false,
            floor: 1.0,
            rack: true,
            least: false,
            gain: 1.0,
            timer: 1.0,
        }
    }
}

impl Configuration for InC {
    const ROWS: &'static [Row<Self>] = &[
        field!(ratio).number("", "R"),
        field!(floor).number("", "R"),
        field!(paced).flag("R"),
        field!(rack).flag("R"),
        field!(least).flag("R"),
        field!(gain).number("", "R"),
        field!(timer).number("", "R"),
        field!(budget).flag("R"),
    ];
}

impl Configured for InC {
    fn label(&self) -> (String, &'static [&'static str]) {
        ("Verus in C".to_owned(), &["ratio"])
    }

    fn build(&self, _seed: u64) -> Box<dyn Controller> {
        Box::new(Native {
            program: Program::start("verus.c"),
            config: self.clone(),
            packet: Bytes::new(1),
            said: Said::default(),
            charted: 0,
            last: 0,
            granted: 0.0,
            began: 0,
            rtt: 0,
        })
    }
}

#[derive(Debug)]
struct Native {
    program: Program,
    config: InC,
    packet: Bytes,
    said: Said,
    charted: u64,
    last: u64,
    granted: f64,
    began: u64,
    rtt: u64,
}

impl Native {
    fn ask(&mut self, line: &str) {
        let before = self.said;
        self.said = said(&self.program.ask(line));
        if self.config.budget && self.said.phase == 1 && self.said.epoch_end != before.epoch_end {
            let n = self.rtt.div_ceil(5_000_000) as f64;
            let s = (self.said.window + (2.0 - n) / (n - 1.0) * before.window).max(0.0);
            let left = self.granted.max(0.0);
            self.granted = s + if left < 1.0 { left } else { 0.0 };
        }
    }
}

impl Controller for Native {
    fn on_start(&mut self, now: Time, packet: Bytes) {
        self.packet = packet;
        let ratio = (self.config.ratio * 65536.0) as u64 + u64::from(self.config.least);
        self.ask(&format!("s {} 1 {ratio}", now.as_nanos()));
    }

    fn on_sent(&mut self, _: &verus_core::Departure) {
        self.granted -= 1.0;
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let packets = |bytes: Bytes| bytes.get() / self.packet.get();
        let newest = feedback.acked.last();
        self.rtt = feedback.smoothed_rtt.as_nanos();
        let line = format!(
            "a {} {} {} {} {} {} {} {} {}",
            feedback.now.as_nanos(),
            newest.map_or(0, |one| one.packet.at.as_nanos()),
            newest.map_or(0, |one| one.rtt.as_nanos()),
            feedback.acked.len(),
            feedback.lost.len(),
            newest.map_or(0, |one| packets(one.packet.in_flight)),
            packets(feedback.in_flight_before),
            feedback.smoothed_rtt.as_nanos(),
            u8::from(newest.is_some_and(|one| one.packet.app_limited)),
        );
        self.ask(&line);
    }

    fn on_timeout(&mut self, timeout: &Timeout<'_>) {
        self.ask(&format!("t {}", timeout.now.as_nanos()));
    }

    fn on_tick(&mut self, now: Time, _: Bytes) {
        self.last = now.as_nanos();
        self.ask(&format!("a {} 0 0 0 0 0 0 {} 0", self.last, self.rtt));
    }

    fn next_tick(&self) -> Option<Time> {
        (self.config.budget && self.said.epoch_end > 0)
            .then(|| Time::from_nanos((self.said.epoch_end + 1).max(self.last + 1000)))
    }

    fn window(&self) -> Bytes {
        self.packet.mul_f64(self.said.window.max(self.config.floor))
    }

    fn allowance(&self) -> Allowance {
        if self.config.budget && self.said.phase == 1 {
            let left = self.packet.mul_f64(self.granted.max(0.0));
            return Allowance::budget(left);
        }
        Allowance::window(self.packet * self.said.allowed.max(self.config.floor as u64))
    }

    fn pacing_rate(&self) -> Option<Rate> {
        let wire = self.said.pace as f64 * self.packet.get() as f64 / 1448.0;
        self.config
            .paced
            .then(|| Rate::from_bps((wire * 8.0 * self.config.gain) as u64))
    }

    fn recovery(&self) -> Recovery {
        if self.config.rack {
            return Recovery::rack();
        }
        let mut r = Config::preset(Mode::Paper).recovery;
        r.loss = verus_core::recovery::LossRule::DelayTimer {
            factor: self.config.timer,
        };
        r
    }
}

fn run(trace: &str, schemes: &[&str], buffer: &str) -> (f64, f64, f64, f64) {
    let registry = Registry::default().with::<InC>("c", "Verus in C");
    let scenario = Scenario {
        trace: trace.to_owned(),
        duration_s: 30.0,
        queue: buffer.to_owned(),
        flows: schemes.iter().copied().map(FlowSpec::new).collect(),
        ..Scenario::default()
    };
    let plan = scenario.plan_with(&registry).expect("a plan");
    let outcome = plan.run(&mut |_| true).expect("it ends");
    let m = &outcome.metrics;
    let loss: u64 = m.drops;
    (
        m.throughput_mbps,
        m.qdelay_mean_ms.unwrap_or(0.0),
        m.jain.unwrap_or(0.0),
        loss as f64 / m.arrivals as f64,
    )
}

#[test]
fn survey() {
    for trace in [
        "rate:2",
        "rate:12",
        "rate:50",
        "city-driving-lte-down",
        "city-stationary-3g-down",
    ] {
        for ratio in [2, 6] {
            for flows in [1, 2] {
                let mut line = format!("{trace} R={ratio} x{flows}:");
                for scheme in std::env::var("SCHEMES").unwrap().split_whitespace() {
                    let scheme = format!("{scheme},ratio={ratio}");
                    let all = vec![scheme.as_str(); flows];
                    let (t, q, j, l) = run(trace, &all, &Scenario::default().queue);
                    line += &format!(" | {t:.2} {q:.1} {j:.2} {:.2}%", l * 100.0);
                }
                println!("{line}");
            }
        }
    }
}
