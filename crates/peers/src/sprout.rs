//! Sprout: sends no more than the link will, with 95 % certainty, deliver within 100 ms.
//!
//! The receiver counts arrivals in ticks of 20 ms and keeps a belief of the link's rate. It
//! forecasts how many packets will be delivered within the next one to eight ticks. Fewer arrive
//! with a probability of 5 % (Winstein, Sivaraman and Balakrishnan, "Stochastic Forecasts Achieve
//! High Throughput and Low Delay over Cellular Networks", NSDI 2013). The forecast travels back
//! with acknowledgements. The sender sends as much as the forecast allows for five ticks, minus its
//! estimate of the queue. Without room it sends a packet each 50 ms, so that the receiver can
//! distinguish an outage from a sender that waits. Losses are ignored.
//!
//! * [`belief`]: the belief of the rate, and its changes.
//! * [`forecast`]: from a belief to arrivals.
//! * [`receiver`]: the receiver half, [`receiver::Forecaster`].
//! * [`message`]: the messages between the halves.
//!
//! Where no receiver half reports (QUIC, a server without one, `receiver=no`), the sender makes the
//! forecast itself from acknowledgements: **a forecast at the sender**. It is another algorithm,
//! since jitter and losses on the way back then count as the link's own.
//!
//! **On long round trips Sprout starves itself.** The window is a cautious forecast for 100 ms, less all that was under way when the
//! report left, a round trip's worth. A round trip of 100 ms leaves nothing of it, so the sender, not the link, limits what arrives
//! in a tick. The receiver still takes it for the link's rate, and forecasts less. The authors' code follows the same
//! rules: it observes every tick in which something arrived, and has a new forecast only when data has arrived.
//!
//! When a forecast's tick ends, the queue is taken to be shorter by what that tick was to deliver (§3.5). The authors' code takes
//! off what all ticks up to it were to deliver; reports every 20 ms leave little between the two.
//!
//! Parameters are those of the authors' code (`keithw/sprout`). It counts 1400 bytes of payload
//! received, and 1440 sent, as a packet. Its packets have some 60 bytes of headers, so that the
//! equivalent here is 1460 and 1500 bytes (IP). Its packets are filled only as far as the forecast
//! allows, and its heartbeats are almost empty. Here each packet is whole, and leaves when the
//! forecast has room for half of it. A heartbeat counts as empty.

use std::collections::VecDeque;

use verus_core::configuration::Configured;
use verus_core::controller::{
    Allowance, Arrival, Controller, Departure, Feedback, Observer, Stamp, Timeout,
};
use verus_core::recovery::Recovery;
use verus_core::units::{Bytes, Duration, Time};
use verus_words::configuration::{CHECKED, Configuration};
use verus_words::range::{OutOfRange, Within};
use verus_words::spec::{Row, Takes, field};

pub mod belief;
pub mod forecast;
pub mod message;
pub mod receiver;

use forecast::{Counts, Origin};
use message::{Report, Tag};
use receiver::Forecaster;

/// The length of a tick (§3.1).
pub const TICK: Duration = Duration::from_millis(20);
/// The number of ticks in a forecast (§3.3).
pub const TICKS: usize = 8;

/// Arrivals are counted in packets of this many bytes (IP).
const RECEIVED_BYTES: u64 = 1460;
/// Forecasts count packets of this many bytes (IP).
const SENT_BYTES: u64 = 1500;
/// The number of ticks that the window covers (§3.4: 100 ms).
const WINDOW_TICKS: usize = 5;
/// The interval of packets that leave without room (§3.2): a heartbeat, which counts as empty.
const HEARTBEAT: Duration = Duration::from_millis(50);
/// After this long without feedback, heartbeats are further apart. The authors' have almost no
/// size; these are whole packets, with which an outage would fill the queue.
const UNHEARD: Duration = Duration::from_millis(250);
const SLOW_HEARTBEAT: Duration = Duration::from_secs(1);
/// If for this long all reports are older than the last one used, an older one is accepted. The
/// receiver half has restarted, or the last one used was false: an honest receiver half has a new
/// report every tick.
const OUTDATED: Duration = Duration::from_secs(1);
/// A packet that left this much before one that has arrived is given up.
const REORDERING: Duration = Duration::from_millis(10);

/// A configuration of Sprout.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// No higher rate is believed, packets/s (§3.1: 1000, 11.2 to 11.5 Mbit/s as it works out).
    pub max_rate: f64,
    /// The limit of arrivals counted in a tick (30, the "18 Mbit/s" of Verus §7).
    pub max_arrivals_per_tick: usize,
    /// σ, how the rate wanders, packets/s/√s (§3.1: 200).
    pub volatility: f64,
    /// λ_z, how often an outage ends, 1/s (§3.1: 1).
    pub escape_rate: f64,
    /// The chance that less is delivered than forecast, % (§3.3: 5).
    pub percentile: f64,
    /// Whether the receiver makes the forecast if it can.
    pub receiver: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            max_rate: 1000.0,
            max_arrivals_per_tick: 30,
            volatility: 200.0,
            escape_rate: 1.0,
            percentile: 5.0,
            receiver: true,
        }
    }
}

const MAX_RATE: Within = Within {
    words: "between 10 and 50000 packets/s",
    valid: |rate| (10.0..=50_000.0).contains(&rate),
};
const VOLATILITY: Within = Within {
    words: "between 1 and 10000 packets/s/√s",
    valid: |sigma| (1.0..=10_000.0).contains(&sigma),
};
const ESCAPE_RATE: Within = Within {
    words: "between 0.001 and 1000 per second",
    valid: |rate| (0.001..=1000.0).contains(&rate),
};
const PERCENTILE: Within = Within {
    words: "between 0.1 and 99.9 %",
    valid: |percent| (0.1..=99.9).contains(&percent),
};

impl Configuration for Config {
    const ROWS: &'static [Row<Self>] = &[
        field!(max_rate).within("packets/s", "no higher rate is believed (§3.1; binds first, at 11.2 to 11.5 Mbit/s)", MAX_RATE),
        Row::other(
            "max_arrivals_per_tick",
            || Takes::Number("packets"),
            "no more arrivals are counted in a tick of 20 ms (the 18 Mbit/s of Verus §7)",
            |c| c.max_arrivals_per_tick.to_string(),
            |c, setting| {
                let whole = setting.text().parse();
                c.max_arrivals_per_tick = whole.map_err(|_| setting.bad("a whole number"))?;
                Ok(())
            },
        ),
        field!(volatility).within("packets/s/√s", "σ, how the rate wanders (§3.1)", VOLATILITY),
        field!(escape_rate).within("1/s", "λ_z, how often an outage ends (§3.1)", ESCAPE_RATE),
        field!(percentile).within("%", "the chance that less is delivered than forecast (§3.3)", PERCENTILE),
        field!(receiver).flag("whether the receiver makes the forecast; no, and over QUIC: a forecast at the sender, from acknowledgements"),
    ];

    fn together(&self) -> Result<(), OutOfRange> {
        let arrivals = self.max_arrivals_per_tick;
        OutOfRange::unless(
            (1..=250).contains(&arrivals),
            "max_arrivals_per_tick",
            "between 1 and 250",
            arrivals as f64,
        )
    }
}

impl Configured for Config {
    fn label(&self) -> (String, &'static [&'static str]) {
        ("Sprout".to_owned(), &[])
    }

    fn build(&self, _seed: u64) -> Box<dyn Controller> {
        Box::new(Sprout::new(self.clone()).expect(CHECKED))
    }

    fn observer(&self) -> Option<Box<dyn Observer>> {
        self.receiver
            .then(|| Box::new(Forecaster::new(self)) as Box<dyn Observer>)
    }

    /// Tables for other parameters take up to 0.4 s and 9 MB; those for the published ones exist.
    /// Without a receiver half the sender forecasts, which takes ten times the work of sending.
    fn extra_cost(&self, sends: bool) -> Option<String> {
        let forecasts = sends || self.receiver;
        if forecasts && Origin::of(self) != Origin::of(&Config::default()) {
            let keys = "max_rate, max_arrivals_per_tick, volatility or escape_rate";
            return Some(format!(
                "another {keys} than the published one is more work"
            ));
        }
        (sends && !self.receiver).then(|| "a sender that forecasts is more work".to_owned())
    }
}

/// A forecast in use.
#[derive(Clone, Copy, Debug)]
struct Operative {
    tick: u32,
    counts: Counts,
    /// The time of its arrival.
    at: Time,
    /// The number of ticks passed since.
    passed: usize,
}

impl Operative {
    /// Bytes that the link will deliver within the window's ticks.
    fn window(&self) -> u64 {
        let end = (self.passed + WINDOW_TICKS).min(TICKS - 1);
        u64::from(self.counts[end] - self.counts[self.passed]) * SENT_BYTES
    }

    /// The end of its next tick, if another follows.
    fn next(&self) -> Option<Time> {
        (self.passed < TICKS - 1).then(|| self.at + TICK * (self.passed as u64 + 1))
    }
}

/// The receiver half as the sender runs it, fed with acknowledgements.
#[derive(Debug)]
struct AtSender {
    forecaster: Forecaster,
    /// The stamps of the packets in flight, by number.
    stamps: VecDeque<(u64, Stamp)>,
}

/// A flow's Sprout: the sender half.
#[derive(Debug)]
pub struct Sprout {
    config: Config,
    packet_size: u64,
    /// Bytes sent in the flow's life.
    sent: u64,
    /// Bytes taken to be under way or in the queue.
    queued: u64,
    operative: Option<Operative>,
    /// The packets that may still be overtaken without being given up: when they left, and how many
    /// bytes had been sent before.
    open: VecDeque<(Time, u64)>,
    /// The packets that left after the last one acknowledged, likewise. They cannot have arrived
    /// before the report that comes with its acknowledgement.
    unheard_of: VecDeque<(Time, u64)>,
    /// The departure of the last one acknowledged.
    newest_acked: Time,
    /// The time at which a packet leaves even without room in the forecast.
    heartbeat: Time,
    heartbeat_due: bool,
    /// Whether the last packet was one.
    last_heartbeat: bool,
    /// The time of the last report, or of the flow's beginning.
    last_report_at: Time,
    /// The forecast at the sender, until the receiver half reports.
    at_sender: Option<Box<AtSender>>,
}

impl Sprout {
    /// A controller for one flow.
    ///
    /// # Errors
    /// If the configuration is out of range.
    pub fn new(config: Config) -> Result<Self, OutOfRange> {
        config.validate()?;
        Ok(Sprout {
            at_sender: Some(Box::new(AtSender {
                forecaster: Forecaster::new(&config),
                stamps: VecDeque::new(),
            })),
            config,
            packet_size: 1500,
            sent: 0,
            queued: 0,
            operative: None,
            open: VecDeque::new(),
            unheard_of: VecDeque::new(),
            newest_acked: Time::ZERO,
            heartbeat: Time::ZERO,
            heartbeat_due: true,
            last_heartbeat: false,
            last_report_at: Time::ZERO,
        })
    }

    /// The forecast's room for more.
    fn room(&self) -> u64 {
        let window = self.operative.as_ref().map_or(0, Operative::window);
        window.saturating_sub(self.queued)
    }

    /// Whether at least half a packet fits.
    fn fits(&self) -> bool {
        2 * self.room() >= self.packet_size
    }

    /// Whether a packet may leave: it fits, or one is due.
    fn may_send(&self) -> bool {
        self.heartbeat_due || self.fits()
    }

    /// The tag of `packet`, the last one sent.
    fn tag(&self, packet: &Departure) -> Tag {
        let before = match self.last_heartbeat {
            true => self.sent,
            false => self.sent - packet.size.get(),
        };
        let open = self.open.front().map_or(0, |&(_, first)| before - first);
        Tag {
            sent: before,
            open: u32::try_from(open).unwrap_or(u32::MAX),
            heartbeat: self.last_heartbeat,
            due: if self.may_send() && !packet.app_limited {
                Duration::ZERO
            } else {
                self.heartbeat.since(packet.at)
            },
        }
    }

    /// Uses a report if it is newer than the one in use. A report may be false, so its values are
    /// limited to those that an honest receiver half could send.
    fn adopt(&mut self, now: Time, report: &Report) {
        while let Some(&(at, _)) = self.unheard_of.front()
            && at <= self.newest_acked
        {
            self.unheard_of.pop_front();
        }
        let newer = self
            .operative
            .as_ref()
            .is_none_or(|operative| (report.tick.wrapping_sub(operative.tick) as i32) > 0);
        if newer || now.since(self.last_report_at) > OUTDATED {
            self.last_report_at = now;
            // The receiver is there: at slow heartbeats it would go on seeing an outage in the time between.
            self.heartbeat = self.heartbeat.min(now + HEARTBEAT);
            let max_settled = self
                .unheard_of
                .front()
                .map_or(self.sent, |&(_, before)| before);
            self.queued = self.sent - report.settled.min(max_settled);
            let a_tick = self.config.max_arrivals_per_tick as u16;
            self.operative = Some(Operative {
                tick: report.tick,
                counts: std::array::from_fn(|at| report.counts[at].min(a_tick * (at as u16 + 1))),
                at: now,
                passed: 0,
            });
        }
    }

    fn forecast_here(&mut self, feedback: &Feedback<'_>) {
        let Some(at_sender) = &mut self.at_sender else {
            return;
        };
        for acked in feedback.acked.iter().chain(feedback.recovered) {
            let number = acked.packet.number;
            let stamps = &mut at_sender.stamps;
            while stamps.front().is_some_and(|&(first, _)| first < number) {
                stamps.pop_front();
            }
            let stamp = stamps.front().filter(|&&(first, _)| first == number);
            at_sender.forecaster.on_packet(&Arrival {
                at: feedback.now,
                number,
                size: acked.packet.size,
                stamp: stamp.map(|(_, stamp)| stamp.as_slice()),
            });
        }
        let report = at_sender.forecaster.latest();
        self.adopt(feedback.now, &report);
    }
}

impl Controller for Sprout {
    fn on_start(&mut self, now: Time, packet_size: Bytes) {
        self.packet_size = packet_size.get();
        self.heartbeat = now;
        self.last_report_at = now;
    }

    fn on_sent(&mut self, packet: &Departure) {
        let size = packet.size.get();
        while let Some(&(at, _)) = self.open.front()
            && at + REORDERING < packet.at
        {
            self.open.pop_front();
        }
        self.last_heartbeat = !self.fits();
        if !self.last_heartbeat {
            self.open.push_back((packet.at, self.sent));
            self.unheard_of.push_back((packet.at, self.sent));
            self.sent += size;
            self.queued += size;
        }
        self.heartbeat = packet.at
            + if packet.at > self.last_report_at + UNHEARD {
                SLOW_HEARTBEAT
            } else {
                HEARTBEAT
            };
        self.heartbeat_due = false;
        if self.at_sender.is_some() {
            let stamp = self.tag(packet).stamp();
            if let Some(at_sender) = &mut self.at_sender {
                at_sender.stamps.push_back((packet.number, stamp));
            }
        }
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        for acked in feedback.acked.iter().chain(feedback.recovered) {
            self.newest_acked = self.newest_acked.max(acked.packet.at);
        }
        let report = feedback.report.filter(|_| self.config.receiver);
        match report.and_then(Report::read) {
            Some(report) => {
                if self.at_sender.take().is_some() {
                    self.operative = None; // its ticks are numbered otherwise
                }
                self.adopt(feedback.now, &report);
            }
            None => self.forecast_here(feedback),
        }
    }

    fn on_timeout(&mut self, _timeout: &Timeout<'_>) {
        // Silence is the receiver's to judge.
    }

    fn on_tick(&mut self, now: Time, _in_flight: Bytes) {
        while let Some(operative) = &mut self.operative
            && operative.next().is_some_and(|at| at <= now)
        {
            let before = match operative.passed {
                0 => 0,
                passed => operative.counts[passed - 1],
            };
            let drained = operative.counts[operative.passed] - before;
            self.queued = self.queued.saturating_sub(u64::from(drained) * SENT_BYTES);
            operative.passed += 1;
        }
        self.heartbeat_due |= self.heartbeat <= now;
        if self.heartbeat <= now {
            self.heartbeat = now + HEARTBEAT;
        }
    }

    fn on_packet_size(&mut self, size: Bytes) {
        self.packet_size = size.get();
    }

    fn window(&self) -> Bytes {
        let forecast = self.operative.as_ref().map_or(0, Operative::window);
        Bytes::new(forecast.max(self.packet_size)) // a heartbeat leaves even in an outage
    }

    fn allowance(&self) -> Allowance {
        let room = if self.may_send() {
            self.room().max(self.packet_size)
        } else {
            0
        };
        Allowance::budget(Bytes::new(room))
    }

    fn next_tick(&self) -> Option<Time> {
        let forecast = self.operative.as_ref().and_then(Operative::next);
        Some(forecast.map_or(self.heartbeat, |at| at.min(self.heartbeat)))
    }

    fn stamp(&self, packet: &Departure) -> Option<Stamp> {
        self.config.receiver.then(|| self.tag(packet).stamp())
    }

    fn recovery(&self) -> Recovery {
        Recovery {
            probe_with_new_data: true,
            ..Recovery::rack()
        }
    }

    fn probe(&self, record: &mut dyn FnMut(&'static str, f64)) {
        let last = self
            .operative
            .as_ref()
            .map(|operative| operative.counts[TICKS - 1]);
        record("queue_estimate_bytes", self.queued as f64);
        record("forecast_packets", last.map_or(f64::NAN, f64::from));
        record(
            "forecast_at_sender",
            f64::from(u8::from(self.at_sender.is_some())),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verus_core::testing::{self, Path, SIZE};

    fn path(config: Config) -> Path<Sprout> {
        Path::new(Sprout::new(config).expect("a valid configuration"))
    }

    fn report(tick: u32, settled: u64, per_tick: u16) -> Report {
        let counts = std::array::from_fn(|at| per_tick * (at as u16 + 1));
        Report {
            tick,
            settled,
            counts,
        }
    }

    /// The sender's timers until `millis`; returns when packets left.
    fn run_until(path: &mut Path<Sprout>, millis: u64) -> Vec<u64> {
        let mut departures = Vec::new();
        loop {
            let before = path.in_flight();
            path.fill();
            departures.extend((before != path.in_flight()).then(|| path.now.as_millis()));
            match path.controller.next_tick() {
                Some(at) if at <= Time::from_millis(millis) => path.now = at,
                _ => return departures,
            }
            path.controller.on_tick(path.now, path.in_flight());
        }
    }

    #[test]
    fn without_a_forecast_only_heartbeats_leave_and_fewer_when_nothing_is_heard() {
        let departures = run_until(&mut path(Config::default()), 3000);
        assert_eq!(departures, [0, 50, 100, 150, 200, 250, 300, 1300, 2300]);
    }

    #[test]
    fn the_window_is_what_five_ticks_deliver_less_what_is_under_way() {
        let mut path = path(Config::default());
        let now = path.now;
        path.controller.adopt(now, &report(1, 0, 4));
        assert_eq!(path.controller.window(), Bytes::new(20 * SENT_BYTES));
        path.fill();
        assert_eq!(path.in_flight(), SIZE * 30);
        // Each tick releases the packets that it is taken to have delivered, until the forecast
        // ends.
        assert_eq!(run_until(&mut path, 19), []);
        assert_eq!(run_until(&mut path, 40), [20, 40]);
        assert_eq!(path.in_flight(), SIZE * 42);
        assert_eq!(run_until(&mut path, 89), []);
    }

    #[test]
    fn a_round_trip_of_the_windows_length_leaves_no_room() {
        // Seven packets arrive in each tick: 4.2 Mbit/s.
        let tables = forecast::Tables::shared(&Config::default());
        let mut belief = belief::Belief::default();
        for _ in 0..100 {
            belief.evolve(tables.motion());
            belief.observe(tables.motion(), 7);
        }
        let counts = tables.forecast(&belief, Config::default().percentile);
        let room = |ticks_under_way: u64| {
            let mut path = path(Config::default());
            path.controller.sent = 7 * SENT_BYTES * ticks_under_way;
            let report = Report {
                tick: 1,
                settled: 0,
                counts,
            };
            path.controller.adopt(path.now, &report);
            path.controller.room()
        };
        assert!(room(2) > 3 * SENT_BYTES, "40 ms: {}", room(2));
        assert_eq!(room(5), 0, "100 ms");
    }

    #[test]
    fn a_newer_report_counts_and_an_older_one_does_not() {
        let mut path = path(Config::default());
        let now = path.now;
        path.controller.adopt(now, &report(7, 0, 4));
        path.controller.adopt(now, &report(6, 0, 9));
        path.controller.adopt(now, &report(7, 0, 9));
        assert_eq!(path.controller.window(), Bytes::new(20 * SENT_BYTES));
        path.fill();
        path.controller.adopt(now, &report(8, 25_000, 4));
        assert_eq!(path.controller.queued, 5000);
    }

    #[test]
    fn a_report_says_no_more_than_an_honest_one_could() {
        let mut path = path(Config::default());
        let huge = |tick| Report {
            tick: (u32::MAX >> 1) + tick,
            settled: u64::MAX,
            counts: [u16::MAX; TICKS],
        };
        path.controller.adopt(path.now, &huge(0));
        // 30 packets a tick, for five ticks.
        let limit = Bytes::new(150 * SENT_BYTES);
        assert_eq!(path.controller.window(), limit);
        path.wait_ms(1);
        path.fill();
        assert_eq!(path.in_flight(), limit);
        // Packets that left after the last one acknowledged cannot have arrived.
        path.wait_ms(39);
        path.controller.adopt(path.now, &huge(1));
        assert_eq!(path.controller.queued, limit.get());
        path.controller.newest_acked = path.now;
        path.controller.adopt(path.now, &huge(2));
        assert_eq!(path.controller.queued, 0);
        // A tick far ahead holds honest reports off for a second, no longer.
        path.wait_ms(1000);
        path.controller.adopt(path.now, &report(7, 0, 4));
        assert_eq!(path.controller.window(), limit);
        path.wait_ms(1);
        path.controller.adopt(path.now, &report(8, 0, 4));
        assert_eq!(path.controller.window(), Bytes::new(20 * SENT_BYTES));
    }

    #[test]
    fn the_last_of_a_flight_says_when_the_next_is_due() {
        let mut path = path(Config::default());
        let now = path.now;
        path.controller.adopt(now, &report(1, 0, 1));
        let mut tags = Vec::new();
        while path.controller.allowance().sendable(path.in_flight()) >= SIZE {
            path.send(1);
            let packet = Departure {
                window: Bytes::ZERO,
                delivered_at: now,
                ..testing::departure(0, now)
            };
            tags.push(path.controller.tag(&packet));
        }
        let due: Vec<u64> = tags.iter().map(|tag| tag.due.as_micros() / 1000).collect();
        assert_eq!(due, [0, 0, 0, 0, 0, 0, 0, 50], "room for 7500 bytes");
        assert_eq!(tags[7].sent, 7000);
        assert_eq!(tags[7].open, 7000, "all left within 10 ms");
        assert!(!tags[7].heartbeat);
    }

    #[test]
    fn without_reports_the_sender_makes_the_forecast() {
        let mut path = path(Config {
            receiver: false,
            ..Config::default()
        });
        assert!(path.controller.config.observer().is_none());
        let mut sent = 0;
        for _ in 0..100 {
            let now = path.now.as_millis();
            sent += run_until(&mut path, now).len();
            path.wait_ms(40);
            path.controller.on_tick(path.now, path.in_flight());
            let arrived = path.in_flight_numbers();
            if !arrived.is_empty() {
                path.ack(arrived);
            }
        }
        assert!(sent > 50);
        assert!(
            path.controller.window() > SIZE * 5,
            "{:?}",
            path.controller.window()
        );
    }

    #[test]
    fn loss_and_silence_say_nothing() {
        let mut path = path(Config::default());
        let now = path.now;
        path.controller.adopt(now, &report(1, 0, 4));
        path.fill();
        let window = path.controller.window();
        path.controller.on_timeout(&Timeout {
            now,
            presumed_lost: &[],
            backoff: 1,
        });
        assert_eq!(path.controller.window(), window);
    }

    #[test]
    fn a_parameter_out_of_range_is_named() {
        let config = Config {
            max_arrivals_per_tick: 0,
            ..Config::default()
        };
        let error = Sprout::new(config).expect_err("out of range").to_string();
        assert!(error.contains("max_arrivals_per_tick must be between 1 and 250"));
    }
}
