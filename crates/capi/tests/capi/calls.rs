//! Any sequence of calls, in any order and with any arguments, is answered without a panic and with correct counts.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::ptr;

use proptest::prelude::*;
use verus::{Controller, State, Status, VERUS_UNKNOWN};
use verus_senders::catalogue;

/// The program's clock at the start of a flow.
const START_NS: u64 = 1 << 60;
const SIZE: u32 = 1200;

/// A controller that frees itself.
struct Flow(*mut Controller);

impl Flow {
    fn new(scheme: &str) -> Result<Flow, (Status, String)> {
        let scheme = CString::new(scheme).expect("no zero inside");
        let mut controller = ptr::null_mut();
        let mut message = [0; 200];
        // SAFETY: the text ends in a zero, and the buffer is as long as stated.
        let status = unsafe {
            verus::verus_new(
                scheme.as_ptr(),
                7,
                START_NS,
                SIZE,
                &mut controller,
                message.as_mut_ptr(),
                message.len(),
            )
        };
        if status == Status::Ok {
            return Ok(Flow(controller));
        }
        // SAFETY: `verus_new` ends its message in a zero.
        let message = unsafe { CStr::from_ptr(message.as_ptr()) };
        Err((status, message.to_str().expect("UTF-8").to_owned()))
    }

    fn state(&self) -> State {
        let mut state = State::default();
        // SAFETY: the controller lives as long as `self`.
        let status = unsafe { verus::verus_get_state(self.0, &mut state) };
        assert_eq!(status, Status::Ok);
        state
    }

    fn call(&self, call: Call) -> Status {
        // SAFETY: the controller lives as long as `self`.
        unsafe { call.on(self.0) }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        // SAFETY: of `verus_new`, and freed once.
        unsafe { verus::verus_free(self.0) };
    }
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Sent(u64, u64, u32),
    AppLimited,
    Acked(u64, u64, u64, u64),
    Lost(u64, u64),
    Marked(u64, u32),
    EventEnd(u64),
    Timeout(u64),
    Tick(u64),
    Forget(u64),
    PacketSize(u32),
}

impl Call {
    /// # Safety
    /// The controller is null or not freed.
    unsafe fn on(self, flow: *mut Controller) -> Status {
        use verus::*;
        // SAFETY: as the caller ensures.
        unsafe {
            match self {
                Call::Sent(now, number, size) => verus_sent(flow, now, number, size),
                Call::AppLimited => verus_app_limited(flow),
                Call::Acked(now, number, held, received) => {
                    verus_acked(flow, now, number, held, received)
                }
                Call::Lost(now, number) => verus_lost(flow, now, number),
                Call::Marked(now, packets) => verus_marked(flow, now, packets),
                Call::EventEnd(now) => verus_event_end(flow, now),
                Call::Timeout(now) => verus_timeout(flow, now),
                Call::Tick(now) => verus_tick(flow, now),
                Call::Forget(number) => verus_forget(flow, number),
                Call::PacketSize(size) => verus_packet_size(flow, size),
            }
        }
    }
}

fn any_call() -> impl Strategy<Value = Call> {
    // Mostly a time and a number that make sense.
    let now = || {
        prop_oneof![
            20 => (0u64..3_000_000_000).prop_map(|since| START_NS + since),
            1 => any::<u64>(),
        ]
    };
    let number = || prop_oneof![20 => 0u64..40, 1 => any::<u64>()];
    let size = || prop_oneof![20 => 1u32..=1500, 1 => any::<u32>()];
    let other = || {
        prop_oneof![
            Just(0),
            Just(VERUS_UNKNOWN),
            any::<u64>(),
            0u64..100_000_000
        ]
    };
    prop_oneof![
        8 => (now(), number(), size()).prop_map(|(now, number, size)| Call::Sent(now, number, size)),
        1 => Just(Call::AppLimited),
        8 => (now(), number(), other(), other())
            .prop_map(|(now, number, held, received)| Call::Acked(now, number, held, received)),
        3 => (now(), number()).prop_map(|(now, number)| Call::Lost(now, number)),
        1 => (now(), any::<u32>()).prop_map(|(now, packets)| Call::Marked(now, packets)),
        4 => now().prop_map(Call::EventEnd),
        1 => now().prop_map(Call::Timeout),
        4 => now().prop_map(Call::Tick),
        1 => number().prop_map(Call::Forget),
        1 => size().prop_map(Call::PacketSize),
    ]
}

proptest! {
    #[test]
    fn any_calls_are_answered_and_counted(
        scheme in prop::sample::select(schemes()),
        mut calls in prop::collection::vec(any_call(), 0..120),
        in_order in any::<bool>(),
    ) {
        if in_order {
            calls.sort_by_key(|call| match *call {
                Call::Sent(now, ..) | Call::Acked(now, ..) | Call::Lost(now, _) | Call::Marked(now, _)
                | Call::EventEnd(now) | Call::Timeout(now) | Call::Tick(now) => now,
                Call::AppLimited | Call::Forget(_) | Call::PacketSize(_) => START_NS,
            });
            let mut number = 0;
            for call in &mut calls {
                if let Call::Sent(_, sent, _) = call {
                    (*sent, number) = (number, number + 1);
                }
            }
        }
        let flow = Flow::new(&scheme).expect("of the catalogue");
        let mut in_flight = BTreeMap::new();
        for call in calls {
            let before = flow.state();
            let status = flow.call(call);
            prop_assert!(status != Status::Panicked, "{scheme}: {call:?}");
            let state = flow.state();
            if status != Status::Ok {
                prop_assert_eq!(state, before, "{} was refused and changed something", scheme);
                continue;
            }
            match call {
                Call::Sent(_, number, size) => {
                    in_flight.insert(number, u64::from(size));
                }
                Call::Acked(_, number, ..) | Call::Lost(_, number) | Call::Forget(number) => {
                    in_flight.remove(&number);
                }
                Call::Timeout(_) => in_flight.clear(),
                _ => {}
            }
            prop_assert_eq!(state.in_flight_bytes, in_flight.values().sum::<u64>());
            prop_assert!(state.limit_bytes >= state.in_flight_bytes);
        }
    }
}

/// Every scheme that a name alone makes.
fn schemes() -> Vec<String> {
    let alone = catalogue().into_iter().filter(|entry| entry.stands_alone());
    alone.map(|entry| entry.name.to_owned()).collect()
}

#[test]
fn null_pointers_are_refused() {
    let calls = [
        Call::Sent(START_NS, 0, SIZE),
        Call::AppLimited,
        Call::Acked(START_NS, 0, 0, VERUS_UNKNOWN),
        Call::Lost(START_NS, 0),
        Call::Marked(START_NS, 1),
        Call::EventEnd(START_NS),
        Call::Timeout(START_NS),
        Call::Tick(START_NS),
        Call::Forget(0),
        Call::PacketSize(SIZE),
    ];
    for call in calls {
        // SAFETY: null is allowed.
        let status = unsafe { call.on(ptr::null_mut()) };
        assert_eq!(status, Status::NullPointer, "{call:?}");
    }
    let flow = Flow::new("verus").expect("in the catalogue");
    let mut controller = ptr::null_mut();
    let none = ptr::null_mut();
    // SAFETY: null is allowed.
    unsafe {
        assert_eq!(
            verus::verus_get_state(flow.0, ptr::null_mut()),
            Status::NullPointer
        );
        assert_eq!(
            verus::verus_get_state(none, &mut State::default()),
            Status::NullPointer
        );
        let text = c"verus".as_ptr();
        let new = verus::verus_new;
        assert_eq!(
            new(ptr::null(), 1, 0, SIZE, &mut controller, ptr::null_mut(), 0),
            Status::NullPointer
        );
        assert_eq!(
            new(text, 1, 0, SIZE, ptr::null_mut(), ptr::null_mut(), 0),
            Status::NullPointer
        );
        assert_eq!(
            new(
                c"verse".as_ptr(),
                1,
                0,
                SIZE,
                &mut controller,
                ptr::null_mut(),
                9
            ),
            Status::BadScheme
        );
        verus::verus_free(ptr::null_mut());
    }
    assert!(controller.is_null());
}

#[test]
fn a_scheme_that_is_refused_says_why() {
    let (status, message) = Flow::new("verus:ratio=0").err().expect("out of range");
    assert_eq!(status, Status::BadScheme);
    assert!(message.contains("ratio"), "{message}");
    let (_, message) = Flow::new(&"ü".repeat(300)).err().expect("no such scheme");
    assert!(message.len() <= 199, "{} bytes", message.len());
}

#[test]
fn times_and_numbers_that_go_back_are_refused() {
    let flow = Flow::new("forward").expect("in the catalogue");
    let at = |ms: u64| START_NS + ms * 1_000_000;
    assert_eq!(
        flow.call(Call::Sent(START_NS - 1, 5, SIZE)),
        Status::TimeWentBack
    );
    assert_eq!(flow.call(Call::Sent(at(10), 5, SIZE)), Status::Ok);
    assert_eq!(flow.call(Call::Sent(at(9), 6, SIZE)), Status::TimeWentBack);
    assert_eq!(
        flow.call(Call::Sent(at(10), 5, SIZE)),
        Status::NumberNotAscending
    );
    assert_eq!(flow.call(Call::Sent(at(10), 6, 0)), Status::InvalidArgument);
    assert_eq!(
        flow.call(Call::Tick(VERUS_UNKNOWN)),
        Status::InvalidArgument
    );
    assert_eq!(
        flow.call(Call::Acked(at(11), 4, 0, VERUS_UNKNOWN)),
        Status::UnknownPacket
    );
    assert_eq!(flow.state().in_flight_bytes, u64::from(SIZE));
}

#[test]
fn round_trips_are_each_packets_own_less_the_hold_time() {
    let flow = Flow::new("cubic").expect("in the catalogue");
    let at = |ms: u64| START_NS + ms * 1_000_000;
    flow.call(Call::Sent(at(0), 0, SIZE));
    flow.call(Call::Acked(at(50), 0, 10_000_000, VERUS_UNKNOWN));
    let state = flow.state();
    assert_eq!(
        (state.smoothed_rtt_ns, state.min_rtt_ns),
        (40_000_000, 40_000_000)
    );
    assert_eq!(state.in_flight_bytes, 0);
}

#[test]
fn a_loss_shrinks_the_window_at_the_end_of_its_event() {
    let flow = Flow::new("cubic").expect("in the catalogue");
    let at = |ms: u64| START_NS + ms * 1_000_000;
    for number in 0..10 {
        flow.call(Call::Sent(at(0), number, SIZE));
    }
    let before = flow.state().window_bytes;
    flow.call(Call::Lost(at(40), 0));
    for number in 1..10 {
        flow.call(Call::Acked(at(40), number, 0, VERUS_UNKNOWN));
    }
    assert_eq!(flow.state().window_bytes, before);
    flow.call(Call::EventEnd(at(40)));
    assert!(flow.state().window_bytes < before);
    assert_eq!(
        flow.call(Call::Acked(at(41), 0, 0, VERUS_UNKNOWN)),
        Status::Ok,
        "late, not lost"
    );
}

#[test]
fn every_status_has_a_sentence() {
    let sentence = |status: i32| {
        // SAFETY: ends in a zero.
        unsafe { CStr::from_ptr(verus::verus_describe(status)) }
            .to_str()
            .expect("UTF-8")
    };
    assert_eq!(sentence(0), "carried out");
    assert_eq!(
        sentence(Status::Panicked as i32),
        "the controller panicked and can only be freed"
    );
    assert_eq!(sentence(-1), "no such status");
    assert_eq!(sentence(9), "no such status");
}
