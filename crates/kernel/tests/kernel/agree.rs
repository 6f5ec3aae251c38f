//! Tests that both implementations give the same numbers, on random events and on random paths.

use std::cell::RefCell;

use proptest::prelude::*;
use verus_forward::law;

use crate::law::{Acknowledgement, Core, Event, Native, assert_same};
use crate::path::Path;
use crate::vectors::STEADY;

/// Numbers of every length. Short and usual ones are more frequent than long ones.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0u32..48, any::<u64>()).prop_map(|(bits, number)| number & ((1 << bits) - 1)),
        1 => any::<u64>().prop_map(|number| number >> 2),
        1 => prop::sample::select(vec![0, 1, 1500, 1_000_000, 40_000_000]),
    ]
}

/// Events that a path could produce, and events that no path could. `true`: times are relative.
pub fn event() -> impl Strategy<Value = (bool, Event)> {
    let arbitrary = (
        (number(), number(), number()),
        (
            0u64..1 << 31,
            prop_oneof![3 => Just(0), 1 => 0u64..1 << 31],
            prop_oneof![3 => Just(0), 1 => 0u64..100],
        ),
        (number(), number(), any::<bool>(), number()),
    );
    let arbitrary = arbitrary.prop_map(
        |(
            (now, sent, rtt),
            (acked, lost, marked),
            (smoothed_rtt, in_flight, app_limited, lost_sent),
        )| {
            Event::Acknowledged(Acknowledgement {
                now,
                sent,
                rtt,
                acked,
                lost,
                marked,
                smoothed_rtt,
                in_flight,
                app_limited,
                lost_sent,
            })
        },
    );
    let likely = (
        (0u64..20_000_000, 20_000_000u64..200_000_000),
        (0u64..20_000, 0u64..200_000),
    );
    let likely = likely.prop_map(|((step, rtt), (acked, in_flight))| {
        Event::Acknowledged(Acknowledgement {
            now: step,
            rtt,
            acked,
            smoothed_rtt: rtt,
            in_flight,
            ..Acknowledgement::default()
        })
    });
    prop_oneof![
        1 => arbitrary.prop_map(|event| (false, event)),
        8 => likely.prop_map(|event| (true, event)),
        1 => number().prop_map(|now| (false, Event::Timeout { now })),
        1 => (64u64..10_000).prop_map(|bytes| (false, Event::PacketSize { bytes })),
    ]
}

/// The event in absolute times, if they are relative to `clock`. `clock` moves on to the event.
pub fn at_absolute_time(clock: &mut u64, relative: bool, event: Event) -> Event {
    match event {
        Event::Acknowledged(acknowledgement) if relative => {
            *clock = clock.saturating_add(acknowledgement.now);
            Event::Acknowledged(Acknowledgement {
                now: *clock,
                sent: clock.saturating_sub(acknowledgement.rtt),
                ..acknowledgement
            })
        }
        Event::Acknowledged(Acknowledgement { now, .. }) | Event::Timeout { now } => {
            *clock = (*clock).max(now);
            event
        }
        Event::PacketSize { .. } => event,
    }
}

/// Paths of random properties.
fn path() -> impl Strategy<Value = Path> {
    let sometimes = |range: std::ops::Range<u64>| prop_oneof![2 => Just(0), 1 => range];
    let link = (any::<u64>(), 1u64..400, 300u64..8_000, sometimes(20..500));
    let queue = (1u64..600, sometimes(3..300), sometimes(3..300));
    let others = (sometimes(100..10_000), sometimes(1..300));
    (link, queue, others, sometimes(100..4000), any::<bool>()).prop_map(
        |(
            (seed, base_ms, rate_kbps, changes_ms),
            (buffer_ms, loses, marks),
            (longer_from_ms, others_ms),
            outage_ms,
            pauses,
        )| Path {
            seed,
            base_ms,
            rate_kbps,
            changes_ms,
            buffer_ms,
            loses,
            marks,
            longer_from_ms,
            others_ms,
            outage_ms,
            pauses,
        },
    )
}

thread_local! {
    static NATIVE: RefCell<Native> = RefCell::new(Native::new());
}

proptest! {
    #[test]
    fn both_laws_agree_on_random_events(
        begin in 0u64..1 << 40,
        packet in 64u64..70_000,
        budget_ms in 6.0..1000.0f64,
        steps in prop::collection::vec(event(), 1..400),
    ) {
        NATIVE.with_borrow_mut(|native| {
            let mut core = Core::start(begin, packet, budget_ms);
            native.start(begin, packet, budget_ms);
            let mut clock = begin;
            for (relative, event) in steps {
                let event = at_absolute_time(&mut clock, relative, event);
                assert_same(native.handle(event), core.handle(event), event);
            }
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn window_and_pace_are_the_same(
        (rate, given) in (number(), 0u64..1 << 40),
        [base, queue, target, lead] in prop::array::uniform4(prop_oneof![3 => 0u64..1_000_000, 1 => number()]),
        packet in 0u64..65_536,
        phase in prop::sample::select(vec![
            law::Phase::Given,
            law::Phase::Law,
            law::Phase::Drain,
            law::Phase::ShortDrain,
        ]),
    ) {
        let state = law::State { rate, base, queue, target, lead, packet, given, phase };
        let native = NATIVE.with_borrow_mut(|native| native.decide(&state));
        prop_assert_eq!(native, law::decide(&state));
    }
}

proptest! {
    // Each case is a flow of 15 s.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn both_laws_agree_on_random_paths(path in path(), budget_ms in 6.0..300.0f64) {
        assert_agreement(&path, budget_ms, 15_000);
    }
}

/// Asserts the same answers on a path. Returns the lowest bound of the target, ms.
fn assert_agreement(path: &Path, budget_ms: f64, duration_ms: u64) -> f64 {
    NATIVE.with_borrow_mut(|native| {
        let mut core = Core::start(0, 1500, budget_ms);
        native.start(0, 1500, budget_ms);
        let (mut events, mut answers) = (Vec::new(), Vec::new());
        path.play(duration_ms, |event| {
            let answer = core.handle(event);
            events.push(event);
            answers.push(answer);
            answer
        });
        let bounds_ms = answers.iter().map(|answer| answer.room_ms);
        let lowest_ms = bounds_ms.fold(f64::INFINITY, f64::min);
        let pairs = native.handle_all(&events).into_iter().zip(answers);
        for ((native, core), event) in pairs.zip(events) {
            assert_same(native, core, event);
        }
        lowest_ms
    })
}

/// A buffer of three packets drops what exceeds the link's rate, as a policer does.
#[test]
fn both_laws_agree_in_trials_of_a_shorter_queue() {
    let policed = Path {
        rate_kbps: 10_000,
        buffer_ms: 3,
        ..STEADY
    };
    let lowest_ms = assert_agreement(&policed, 90.0, 60_000);
    assert!(lowest_ms < 1.3, "{lowest_ms} ms");
    let by_chance = Path {
        buffer_ms: 100,
        loses: 12,
        ..policed
    };
    assert_agreement(&by_chance, 90.0, 60_000);
}
