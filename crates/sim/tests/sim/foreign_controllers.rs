//! Mistakes of another crate's controller: its run ends by an error that names the controller, the
//! time and the mistake.

use verus_core::configuration::Configured;
use verus_core::controller::{Arrival, Observer};
use verus_core::{Bytes, Controller, Departure, Duration, Feedback, Rate, Time, Timeout};
use verus_senders::Registry;
use verus_sim::{Error, FlowSpec, Outcome, Scenario, Simulation};
use verus_words::configuration::Configuration;
use verus_words::spec::Row;

/// One fault each.
const PANICS: u8 = 0;
const PANICS_AT_START: u8 = 1;
const RECEIVER_PANICS: u8 = 2;
const NAN: u8 = 3;
const NEGATIVE: u8 = 4;
const HUGE: u8 = 5;
const TICKS_NOW: u8 = 6;
const TICKS_EACH_NS: u8 = 7;
const RECEIVER_TICKS_NOW: u8 = 8;
const PACED_BY_NOTHING: u8 = 9;

/// Ten packets in flight, and the fault from 50 ms on.
#[derive(Clone, Debug)]
struct Foreign<const FAULT: u8> {
    packet: Bytes,
    window: f64,
    now: Time,
}

impl<const FAULT: u8> Default for Foreign<FAULT> {
    fn default() -> Self {
        Foreign {
            packet: Bytes::ZERO,
            window: 10.0,
            now: Time::ZERO,
        }
    }
}

impl<const FAULT: u8> Configuration for Foreign<FAULT> {
    const ROWS: &'static [Row<Self>] = &[];
}

impl<const FAULT: u8> Configured for Foreign<FAULT> {
    fn label(&self) -> (String, &'static [&'static str]) {
        ("Foreign".to_owned(), &[])
    }

    fn build(&self, _seed: u64) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn observer(&self) -> Option<Box<dyn Observer>> {
        let has_one = [RECEIVER_PANICS, RECEIVER_TICKS_NOW].contains(&FAULT);
        has_one.then(|| Box::new(Receiver::<FAULT>(Time::ZERO)) as Box<dyn Observer>)
    }
}

impl<const FAULT: u8> Controller for Foreign<FAULT> {
    fn on_start(&mut self, _now: Time, packet: Bytes) {
        self.packet = packet;
        assert!(FAULT != PANICS_AT_START, "at the start\nand in two lines");
    }

    fn on_sent(&mut self, packet: &Departure) {
        self.now = packet.at;
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        if feedback.now < Time::from_millis(50) {
            return;
        }
        let none: [u8; 0] = [];
        match FAULT {
            PANICS => assert!(none[feedback.acked.len()] > 0),
            NAN => self.window = f64::NAN,
            NEGATIVE => self.window = -3.0,
            HUGE => self.window = 1e15,
            _ => (),
        }
    }

    fn on_timeout(&mut self, _timeout: &Timeout<'_>) {}

    fn on_tick(&mut self, now: Time, _in_flight: Bytes) {
        self.now = now;
    }

    fn next_tick(&self) -> Option<Time> {
        match FAULT {
            TICKS_NOW => Some(self.now),
            TICKS_EACH_NS => Some(self.now + Duration::from_nanos(1)),
            _ => None,
        }
    }

    fn window(&self) -> Bytes {
        self.packet.mul_f64(self.window)
    }

    fn pacing_rate(&self) -> Option<Rate> {
        (FAULT == PACED_BY_NOTHING).then(|| Rate::from_mbps(f64::NAN))
    }
}

#[derive(Debug)]
struct Receiver<const FAULT: u8>(Time);

impl<const FAULT: u8> Observer for Receiver<FAULT> {
    fn on_packet(&mut self, packet: &Arrival<'_>) {
        self.0 = packet.at;
        assert!(FAULT != RECEIVER_PANICS, "a receiver's");
    }

    fn next_tick(&self) -> Option<Time> {
        (FAULT == RECEIVER_TICKS_NOW).then_some(self.0)
    }

    fn report(&self, _into: &mut Vec<u8>) {}
}

fn registry() -> Registry {
    Registry::default()
        .with::<Foreign<PANICS>>("panics", "")
        .with::<Foreign<PANICS_AT_START>>("panics-at-start", "")
        .with::<Foreign<RECEIVER_PANICS>>("receiver-panics", "")
        .with::<Foreign<NAN>>("nan", "")
        .with::<Foreign<NEGATIVE>>("negative", "")
        .with::<Foreign<HUGE>>("huge", "")
        .with::<Foreign<TICKS_NOW>>("ticks-now", "")
        .with::<Foreign<TICKS_EACH_NS>>("ticks-each-ns", "")
        .with::<Foreign<RECEIVER_TICKS_NOW>>("receiver-ticks-now", "")
        .with::<Foreign<PACED_BY_NOTHING>>("paced-by-nothing", "")
}

fn scenario(flows: &[&str]) -> Scenario {
    Scenario {
        trace: "rate:12".to_owned(),
        queue: "infinite".to_owned(),
        duration_s: 10.0,
        flows: flows.iter().copied().map(FlowSpec::new).collect(),
        ..Scenario::default()
    }
}

fn run(scenario: &Scenario) -> Result<Outcome, Error> {
    let plan = scenario.plan_with(&registry()).expect("a plan");
    plan.run(&mut |_| true)
}

/// By what a run of this scheme beside Cubic ends.
fn message_of(scheme: &str) -> String {
    match run(&scenario(&["cubic", scheme])) {
        Err(Error::Controller(message)) => message,
        other => panic!("{scheme}: {:?}", other.map(|_| "it ran")),
    }
}

#[test]
fn a_panic_ends_its_run_with_scheme_and_time_and_the_next_one_runs() {
    let first = message_of("panics");
    let (place, problem) = first.split_once(" s: ").expect("a time");
    assert!(place.starts_with("`panics` at 0.05"), "{first}");
    assert!(
        problem.starts_with("it panicked: index out of bounds: the len is 0"),
        "{first}"
    );
    assert!(problem.contains("foreign_controllers.rs:"), "{first}");
    assert_eq!(first, message_of("panics"));
    run(&scenario(&["cubic"])).expect("it runs");
}

#[test]
fn a_panic_before_the_first_packet_or_in_the_receivers_half_is_told_alike() {
    let started = message_of("panics-at-start");
    assert!(
        started.starts_with(
            "`cubic+panics-at-start` at 0.000000 s: it panicked: at the start and in two lines"
        ),
        "{started}"
    );
    let received = message_of("receiver-panics");
    assert!(
        received.starts_with("`receiver-panics` at 0.0"),
        "{received}"
    );
    assert!(received.contains("it panicked: a receiver's"), "{received}");
}

#[test]
fn a_run_in_steps_ends_alike() {
    let plan = scenario(&["panics"]).plan_with(&registry());
    let mut simulation = Simulation::new(plan.expect("a plan"));
    let stepped = simulation.run_until(Time::from_millis(200));
    let stepped = stepped.expect_err("it panics").to_string();
    assert!(stepped.starts_with("`panics` at 0.05"), "{stepped}");
}

#[test]
fn a_window_or_a_pace_of_which_nothing_can_come_is_an_error() {
    for scheme in ["nan", "negative"] {
        let message = message_of(scheme);
        assert!(
            message.ends_with(
                "it will never send again: nothing is in flight, it asks for no tick, and its window is 0 bytes"
            ),
            "{message}"
        );
        assert!(
            message.starts_with(&format!("`{scheme}` at 0.")),
            "{message}"
        );
    }
    let paced = message_of("paced-by-nothing");
    assert!(paced.contains("it will never send again"), "{paced}");
}

#[test]
fn a_window_without_bounds_is_an_error_before_memory_runs_out() {
    let message = message_of("huge");
    assert!(message.starts_with("`huge` at 0.05"), "{message}");
    assert!(
        message.ends_with(
            "it lets more than 1000000 packets leave at once; its window is 1500000000000000000 bytes"
        ),
        "{message}"
    );
}

#[test]
fn ticks_without_end_are_an_error() {
    for (scheme, starts) in [
        ("ticks-now", "`ticks-now` at 0.0"),
        ("ticks-each-ns", "`ticks-each-ns` at 0.0"),
        ("receiver-ticks-now", "`receiver-ticks-now` at 0.0"),
    ] {
        let message = message_of(scheme);
        assert!(message.starts_with(starts), "{message}");
        assert!(
            message.contains("it asked for 1000000 ticks in 0.0")
                && message.ends_with(" s: next_tick() must be after now"),
            "{message}"
        );
    }
}

#[test]
fn a_run_may_take_so_many_events_and_no_more() {
    let unbounded = run(&scenario(&["cubic"])).expect("it runs");
    let events = unbounded.totals.events;
    let bounded = |most| {
        run(&Scenario {
            max_events: Some(most),
            ..scenario(&["cubic"])
        })
    };
    let same = bounded(events).expect("it takes no more");
    assert_eq!(
        format!("{:?}", same.metrics),
        format!("{:?}", unbounded.metrics)
    );
    for most in [1, 5000, events - 1] {
        let message = bounded(most).expect_err("it takes more").to_string();
        let expected = format!("the run took more than {most} events (max_events) up to ");
        assert!(message.starts_with(&expected), "{message}");
    }
}
