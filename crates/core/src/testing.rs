//! A path made of events, for tests of controllers.
//!
//! It keeps true books (numbers, flight, deliveries, round-trip times), so that a test states only
//! the events: `path.fill(); path.wait_ms(40); path.feedback([1, 2], [0], []);`.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::controller::{Acked, Controller, Departure, Feedback, Timeout};
use crate::units::{Bytes, Duration, Time};

/// The size of every packet.
pub const SIZE: Bytes = Bytes::new(1000);

/// A packet that leaves at `at` with nothing else in flight and nothing delivered.
pub fn departure(number: u64, at: Time) -> Departure {
    Departure {
        number,
        at,
        size: SIZE,
        window: SIZE,
        in_flight: SIZE,
        delivered: Bytes::ZERO,
        delivered_at: Time::ZERO,
        sending: Duration::ZERO,
        app_limited: false,
    }
}

/// The feedback for such packets on arrival, with a least and mean round trip equal to theirs.
pub fn feedback(now: Time, acked: &[Acked]) -> Feedback<'_> {
    let rtt = acked[0].rtt;
    Feedback {
        now,
        acked,
        lost: &[],
        recovered: &[],
        marked: 0,
        report: None,
        in_flight_before: SIZE,
        in_flight: Bytes::ZERO,
        delivered: SIZE,
        smoothed_rtt: rtt,
        min_rtt: rtt,
    }
}

/// A controller, and the packets of its flow.
pub struct Path<C> {
    /// The controller under test.
    pub controller: C,
    /// The present time.
    pub now: Time,
    /// Whether packets leave marked as limited by the source.
    pub app_limited: bool,
    /// The receiver's claim of when a packet arrived that is acknowledged now.
    pub receiver_clock: Option<fn(Time) -> Time>,
    next: u64,
    open: BTreeMap<u64, Departure>,
    lost: BTreeMap<u64, Departure>,
    delivered: Bytes,
    delivered_at: Time,
    flight_since: Time,
    smoothed_rtt: Option<Duration>,
    min_rtt: Duration,
    backoff: u32,
}

impl<C: Controller> Path<C> {
    /// A path on which `controller` begins.
    pub fn new(mut controller: C) -> Self {
        controller.on_start(Time::ZERO, SIZE);
        Path {
            controller,
            now: Time::ZERO,
            app_limited: false,
            receiver_clock: None,
            next: 0,
            open: BTreeMap::new(),
            lost: BTreeMap::new(),
            delivered: Bytes::ZERO,
            delivered_at: Time::ZERO,
            flight_since: Time::ZERO,
            smoothed_rtt: None,
            min_rtt: Duration::MAX,
            backoff: 0,
        }
    }

    /// Time passes.
    pub fn wait(&mut self, span: Duration) {
        self.now += span;
    }

    /// Time passes, in ms.
    pub fn wait_ms(&mut self, millis: u64) {
        self.wait(Duration::from_millis(millis));
    }

    /// Bytes in flight.
    pub fn in_flight(&self) -> Bytes {
        SIZE * self.open.len() as u64
    }

    /// Numbers of the packets in flight, oldest first.
    pub fn in_flight_numbers(&self) -> Vec<u64> {
        self.open.keys().copied().collect()
    }

    /// Numbers of the packets declared lost and not acknowledged since, oldest first.
    pub fn lost_numbers(&self) -> Vec<u64> {
        self.lost.keys().copied().collect()
    }

    /// Sends `count` packets, whatever the window.
    pub fn send(&mut self, count: u64) {
        for _ in 0..count {
            if self.open.is_empty() {
                (self.delivered_at, self.flight_since) = (self.now, self.now);
            }
            let packet = Departure {
                number: self.next,
                at: self.now,
                size: SIZE,
                window: self.controller.window(),
                in_flight: self.in_flight() + SIZE,
                delivered: self.delivered,
                delivered_at: self.delivered_at,
                sending: self.now.since(self.flight_since),
                app_limited: self.app_limited,
            };
            self.next += 1;
            self.open.insert(packet.number, packet);
            self.controller.on_sent(&packet);
        }
    }

    /// Sends as much as the controller allows now.
    pub fn fill(&mut self) {
        while self.controller.allowance().sendable(self.in_flight()) >= SIZE {
            self.send(1);
        }
    }

    /// One acknowledgement.
    pub fn ack(&mut self, numbers: impl IntoIterator<Item = u64>) {
        self.feedback(numbers, [], []);
    }

    /// One feedback event: packets acknowledged, declared lost, and found not to have been lost.
    pub fn feedback(
        &mut self,
        acked: impl IntoIterator<Item = u64>,
        lost: impl IntoIterator<Item = u64>,
        recovered: impl IntoIterator<Item = u64>,
    ) {
        let in_flight_before = self.in_flight();
        let take = |list: &mut BTreeMap<u64, Departure>, number: u64| {
            list.remove(&number)
                .unwrap_or_else(|| panic!("packet {number} is not there"))
        };
        let now = self.now;
        let received_at = self.receiver_clock.map(|says| says(now));
        let arrived = |packet: Departure| Acked {
            packet,
            rtt: now.since(packet.at),
            received_at,
        };
        let acked: Vec<Acked> = acked
            .into_iter()
            .map(|number| arrived(take(&mut self.open, number)))
            .collect();
        let recovered: Vec<Acked> = recovered
            .into_iter()
            .map(|number| arrived(take(&mut self.lost, number)))
            .collect();
        let lost: Vec<Departure> = lost
            .into_iter()
            .map(|number| take(&mut self.open, number))
            .collect();
        for packet in &lost {
            self.lost.insert(packet.number, *packet);
        }
        for arrival in acked.iter().chain(&recovered) {
            self.delivered += SIZE;
            self.delivered_at = now;
            self.flight_since = self.flight_since.max(arrival.packet.at);
            self.backoff = 0;
            self.min_rtt = self.min_rtt.min(arrival.rtt);
            let smoothed = self.smoothed_rtt.unwrap_or(arrival.rtt);
            self.smoothed_rtt = Some((smoothed * 7 + arrival.rtt) / 8);
        }
        self.controller.on_feedback(&Feedback {
            now,
            acked: &acked,
            lost: &lost,
            recovered: &recovered,
            marked: 0,
            report: None,
            in_flight_before,
            in_flight: self.in_flight(),
            delivered: self.delivered,
            smoothed_rtt: self.smoothed_rtt.unwrap_or_default(),
            min_rtt: if self.min_rtt == Duration::MAX {
                Duration::ZERO
            } else {
                self.min_rtt
            },
        });
    }

    /// The retransmission timeout fires.
    pub fn time_out(&mut self) {
        self.backoff += 1;
        let presumed_lost: Vec<Departure> = self.open.values().copied().collect();
        self.lost.append(&mut self.open);
        self.controller.on_timeout(&Timeout {
            now: self.now,
            presumed_lost: &presumed_lost,
            backoff: self.backoff,
        });
    }

    /// Puts the lost packets back in flight, as after a spurious timeout.
    pub fn revive(&mut self) {
        self.open.append(&mut self.lost);
    }

    /// Calls the tick if its time has come.
    pub fn tick(&mut self) {
        if self.controller.next_tick().is_some_and(|at| at <= self.now) {
            self.controller.on_tick(self.now, self.in_flight());
        }
    }
}

/// Something that can happen to a flow. Numbers pick among the packets there are.
#[derive(Clone, Debug)]
pub enum Step {
    /// This many µs pass.
    Wait(u32),
    /// Packets leave as far as the allowance permits.
    Fill,
    /// This many packets leave, regardless of the allowance.
    Send(u8),
    /// This many of the oldest packets are acknowledged.
    Ack(u8),
    /// This many of the oldest packets are lost, and this many of the next acknowledged.
    Lose(u8, u8),
    /// This many of the lost packets, from the oldest or the newest, turn up, and as many as
    /// `acked` are acknowledged too.
    Recover {
        /// From the newest, not from the oldest.
        newest: bool,
        /// How many turn up.
        count: u8,
        /// How many are acknowledged with them.
        acked: u8,
    },
    /// Nothing answers until the timeout.
    Timeout,
    /// Whether the source has little to send from now on.
    AppLimited(bool),
}

/// Random histories, mostly of bulk transfer.
pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0u32..200_000).prop_map(Step::Wait),
        8 => Just(Step::Fill),
        1 => (1u8..5).prop_map(Step::Send),
        12 => (1u8..40).prop_map(Step::Ack),
        3 => (1u8..6, 0u8..6).prop_map(|(lost, acked)| Step::Lose(lost, acked)),
        2 => (any::<bool>(), 1u8..6, 0u8..2)
            .prop_map(|(newest, count, acked)| Step::Recover { newest, count, acked }),
        1 => Just(Step::Timeout),
        1 => any::<bool>().prop_map(Step::AppLimited),
    ];
    prop::collection::vec(step, 1..300)
}

/// Runs a history; calls `check` after each step.
pub fn run<C: Controller>(path: &mut Path<C>, steps: &[Step], mut check: impl FnMut(&Path<C>)) {
    for step in steps {
        match *step {
            Step::Wait(micros) => path.wait(Duration::from_micros(u64::from(micros))),
            Step::Fill => {
                // Bounded: a random history may open any window.
                for _ in 0..2000 {
                    if path.controller.allowance().sendable(path.in_flight()) < SIZE {
                        break;
                    }
                    path.send(1);
                }
            }
            Step::Send(count) => path.send(u64::from(count)),
            Step::Ack(count) => {
                let numbers = path.in_flight_numbers();
                let count = usize::from(count).min(numbers.len());
                if count > 0 {
                    path.ack(numbers[..count].iter().copied());
                }
            }
            Step::Lose(lost, acked) => {
                let numbers = path.in_flight_numbers();
                let lost = usize::from(lost).min(numbers.len());
                let acked = usize::from(acked).min(numbers.len() - lost);
                if lost > 0 {
                    path.feedback(
                        numbers[lost..lost + acked].iter().copied(),
                        numbers[..lost].iter().copied(),
                        [],
                    );
                }
            }
            Step::Recover {
                newest,
                count,
                acked,
            } => {
                let mut lost = path.lost_numbers();
                let count = usize::from(count).min(lost.len());
                if newest {
                    lost.drain(..lost.len() - count);
                } else {
                    lost.truncate(count);
                }
                let numbers = path.in_flight_numbers();
                let acked = usize::from(acked).min(numbers.len());
                if count > 0 {
                    path.feedback(numbers[..acked].iter().copied(), [], lost);
                }
            }
            Step::Timeout => {
                if !path.open.is_empty() {
                    path.time_out();
                }
            }
            Step::AppLimited(limited) => path.app_limited = limited,
        }
        path.tick();
        check(path);
    }
}

/// Checks that hold for every window controller in every history. The window is at least one packet
/// and within reason, an empty flight can always send, every probe present is finite, and the same
/// history gives the same windows.
pub fn assert_sound<C: Controller>(make: impl Fn() -> C, steps: &[Step]) {
    let windows = || {
        let mut windows = Vec::new();
        let mut path = Path::new(make());
        run(&mut path, steps, |path| {
            let window = path.controller.window();
            assert!(window >= SIZE, "{window:?} is less than a packet");
            // Slow start doubles: a bound that only runaway arithmetic passes.
            assert!(
                window <= SIZE * (path.next + 100) * 4,
                "{window:?} is out of bounds"
            );
            assert!(path.controller.allowance().sendable(Bytes::ZERO) >= SIZE);
            path.controller.probe(&mut |name, value| {
                assert!(!value.is_infinite(), "{name} is {value}");
            });
            windows.push(window);
        });
        windows
    };
    assert_eq!(windows(), windows());
}
