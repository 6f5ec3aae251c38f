//! Verus, `forward` and the other controllers for programs in C.
//!
//! The header is `include/verus.h`. A program reports departures, acknowledgements and losses by packet number, with
//! its own time, and reads from [`State`] how much may leave, and when to call again. Nothing here reads a clock,
//! opens a socket or starts a thread. The README maps the callbacks of picoquic and ngtcp2.
//!
//! No panic crosses into C. Each function answers with a [`Status`]; a call that is refused changes nothing.

mod host;

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use host::Host;
use verus_senders::Scheme;

/// A time that is unknown, or that never comes.
pub const VERUS_UNKNOWN: u64 = u64::MAX;

/// How a call ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It was carried out.
    Ok = 0,
    /// A pointer is null.
    NullPointer = 1,
    /// The scheme is not one, and the message says why.
    BadScheme = 2,
    /// A packet of 0 or more than 65,535 bytes, or a time more than 31 years after the start.
    InvalidArgument = 3,
    /// The time is before that of an earlier call.
    TimeWentBack = 4,
    /// The packet's number is not above that of the last one sent, or is UINT64_MAX.
    NumberNotAscending = 5,
    /// No packet of this number is in flight, or was lost lately.
    UnknownPacket = 6,
    /// More than 1,048,576 packets are in flight.
    TooManyInFlight = 7,
    /// The controller panicked, in this call or an earlier one. It can only be freed.
    Panicked = 8,
}

impl Status {
    /// The sentence, with the zero that ends it in C.
    const fn describe(self) -> &'static CStr {
        match self {
            Status::Ok => c"carried out",
            Status::NullPointer => c"a pointer is null",
            Status::BadScheme => c"no such scheme",
            Status::InvalidArgument => c"a packet size or a time is out of range",
            Status::TimeWentBack => c"the time is before that of an earlier call",
            Status::NumberNotAscending => c"the packet's number is not above the last one",
            Status::UnknownPacket => c"no packet of this number is in flight or was lost lately",
            Status::TooManyInFlight => c"too many packets are in flight",
            Status::Panicked => c"the controller panicked and can only be freed",
        }
    }
}

/// A controller's present state and limits.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The congestion window.
    pub window_bytes: u64,
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// Bytes that may leave now. A packet may leave while this is at least its size.
    pub sendable_bytes: u64,
    /// The most bytes that may be in flight now, for stacks that compare a window with their own count.
    pub limit_bytes: u64,
    /// The rate at which departures are spread; 0: send as soon as the window allows.
    pub pacing_bits_per_s: u64,
    /// Bytes that may leave back to back at that rate; 0: the program decides.
    pub quantum_bytes: u64,
    /// When to call `verus_tick` next, by the program's clock; UINT64_MAX: not at all.
    pub next_tick_ns: u64,
    /// The smoothed round-trip time (RFC 6298); 0 before the first sample.
    pub smoothed_rtt_ns: u64,
    /// The least round-trip time; 0 before the first sample.
    pub min_rtt_ns: u64,
    /// The ECN code point for all packets (RFC 3168): 0 none, 1 ECT(1), 2 ECT(0).
    pub ecn: u8,
}

/// A controller of one flow. Only one thread may use it at a time.
#[derive(Debug)]
pub struct Controller {
    /// Empty after a panic.
    host: Option<Host>,
}

/// Calls `act` with the controller, and turns a panic into a status.
#[expect(unsafe_code, reason = "C passes a pointer")]
fn with(controller: *mut Controller, act: impl FnOnce(&mut Host) -> Result<(), Status>) -> Status {
    // SAFETY: it is null or from `verus_new`, not yet freed, and used by one thread, as the header demands.
    let Some(controller) = (unsafe { controller.as_mut() }) else {
        return Status::NullPointer;
    };
    let Some(mut host) = controller.host.take() else {
        return Status::Panicked;
    };
    let answer = catch_unwind(AssertUnwindSafe(move || {
        let answer = act(&mut host);
        (host, answer)
    }));
    match answer {
        Ok((host, answer)) => {
            controller.host = Some(host);
            answer.err().unwrap_or(Status::Ok)
        }
        Err(_) => Status::Panicked,
    }
}

/// Copies `text` and a zero into a buffer of C; a longer text is cut.
#[expect(unsafe_code, reason = "C passes a buffer")]
fn write_message(text: &str, message: *mut c_char, message_bytes: usize) {
    if message.is_null() || message_bytes == 0 {
        return;
    }
    let longest = text.len().min(message_bytes - 1);
    // The empty prefix ends at a boundary.
    let cut = (0..=longest)
        .rev()
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(0);
    // SAFETY: the buffer has room for `message_bytes`, as the header demands, and `cut` is less.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), message, cut);
        *message.add(cut) = 0;
    }
}

/// Makes a controller of a scheme such as `forward` or `verus:ratio=4` for one flow, and writes it to `controller`.
///
/// `seed` gives the random numbers of schemes that draw some. `now_ns` is the time by the program's clock, which never
/// goes back (`CLOCK_MONOTONIC`). `packet_bytes` is the size of a full packet from the IP header on. If the scheme is
/// refused, the reason is written to `message`, which has room for `message_bytes` or is null. Free the controller by
/// `verus_free`.
///
/// # Safety
/// `scheme` is null or ends in a zero; `message` has room for `message_bytes`.
#[expect(unsafe_code, reason = "C calls it")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verus_new(
    scheme: *const c_char,
    seed: u64,
    now_ns: u64,
    packet_bytes: u32,
    controller: *mut *mut Controller,
    message: *mut c_char,
    message_bytes: usize,
) -> Status {
    if scheme.is_null() || controller.is_null() {
        return Status::NullPointer;
    }
    // SAFETY: not null, and ends in a zero, as the caller ensures.
    let scheme = unsafe { CStr::from_ptr(scheme) };
    let made = catch_unwind(|| {
        let text = scheme.to_str().map_err(|_| "not UTF-8".to_owned());
        let scheme = text.and_then(|text| Scheme::parse(text).map_err(|error| error.to_string()));
        let scheme = scheme.map_err(|why| {
            write_message(&why, message, message_bytes);
            Status::BadScheme
        })?;
        Host::new(scheme.config().build(seed), now_ns, packet_bytes)
    });
    match made {
        Ok(Ok(host)) => {
            let made = Box::new(Controller { host: Some(host) });
            // SAFETY: not null, and a place for a pointer.
            unsafe { *controller = Box::into_raw(made) };
            Status::Ok
        }
        Ok(Err(status)) => status,
        Err(_) => Status::Panicked,
    }
}

/// Frees a controller; null does nothing.
///
/// # Safety
/// It is of `verus_new`, and not freed before.
#[expect(unsafe_code, reason = "C calls it")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verus_free(controller: *mut Controller) {
    if !controller.is_null() {
        // SAFETY: `verus_new` made it by `Box::into_raw`, and the caller frees it once.
        let controller = unsafe { Box::from_raw(controller) };
        let _ = catch_unwind(AssertUnwindSafe(|| drop(controller)));
    }
}

/// A sentence for a status; never null, and not to be freed. The status is a number, so that any `int` is valid.
#[expect(unsafe_code, reason = "C calls it")]
#[unsafe(no_mangle)]
pub extern "C" fn verus_describe(status: i32) -> *const c_char {
    const ALL: [Status; 9] = [
        Status::Ok,
        Status::NullPointer,
        Status::BadScheme,
        Status::InvalidArgument,
        Status::TimeWentBack,
        Status::NumberNotAscending,
        Status::UnknownPacket,
        Status::TooManyInFlight,
        Status::Panicked,
    ];
    let named = ALL.into_iter().find(|named| *named as i32 == status);
    named.map_or(c"no such status", Status::describe).as_ptr()
}

/// A packet left, of `packet_bytes` from the IP header on. Numbers ascend, and gaps are allowed; a retransmission has a
/// new number.
///
/// # Safety
/// The controller is null or of `verus_new`, and not freed.
#[expect(unsafe_code, reason = "C calls it")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verus_sent(
    controller: *mut Controller,
    now_ns: u64,
    number: u64,
    packet_bytes: u32,
) -> Status {
    with(controller, |host| {
        host.on_sent(now_ns, number, packet_bytes)
    })
}

/// The program has nothing to send though the window is open: packets then say little about the path's capacity.
///
/// # Safety
/// The controller is null or of `verus_new`, and not freed.
#[expect(unsafe_code, reason = "C calls it")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verus_app_limited(controller: *mut Controller) -> Status {
    with(controller, |host| {
        host.set_app_limited();
        Ok(())
    })
}

/// A packet is acknowledged, also one that was taken for lost. Its round-trip time is the time since its departure less
/// `held_ns`, for which the receiver held the acknowledgement back (0 if unknown). `received_ns` is its arrival by the
/// receiver's clock (UINT64_MAX if unknown). All calls for one acknowledgement have one `now_ns`, and `verus_event_end`
/// follows them.
///
/// # Safety
/// The controller is null or of `verus_new`, and not freed.
#[expect(unsafe_code, reason = "C calls it")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verus_acked(
    controller: *mut Controller,
    now_ns: u64,
    number: u64,
    held_ns: u64,
    received_ns: u64,
) -> Status {
    with(controller, |host| {
        host.on_acked(now_ns, number, held_ns, received_ns)
    })
}

/// A packet is declared lost; `verus_event_end` follows.
///
/// # Safety
/// The controller is null or of `verus_new`, and not freed.
#[expect(unsafe_code, reason = "C calls it")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verus_lost(
    controller: *mut Controller,
    now_ns: u64,
    number: u64,
) -> Status {
    with(controller, |host| host.on_lost(now_ns, number))
}

/// `packets` more packets were acknowledged with a congestion mark (ECN-CE); `verus_event_end` follows.
///
/// # Safety
/// The controller is null or of `verus_new`, and not freed.
#[expect(unsafe_code, reason = "C calls it")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verus_marked(
    controller: *mut Controller,
    now_ns: u64,
    packets: u32,
) -> Status {
    with(controller, |host| host.on_marked(now_ns, packets))
}

/// Ends the report of one acknowledgement or loss timer: the controller learns of all of it together. A call with
/// a later time does this, too, as do `verus_sent`, `verus_timeout`, `verus_tick` and `verus_packet_size`;
/// `verus_get_state` does not.
///
/// # Safety
/// The controller is null or of `verus_new`, and not freed.
#[expect(unsafe_code, reason = "C calls it")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verus_event_end(controller: *mut Controller, now_ns: u64) -> Status {
    with(controller, |host| host.on_event_end(now_ns))
}

/// Silence outlasted the retransmission timeout (in QUIC: persistent congestion, RFC 9002 §7.6). Everything in flight is
/// presumed lost.
///
/// # Safety
/// The controller is null or of `verus_new`, and not freed.
#[expect(unsafe_code, reason = "C calls it")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verus_timeout(controller: *mut Controller, now_ns: u64) -> Status {
    with(controller, |host| host.on_timeout(now_ns))
}

/// The time `next_tick_ns` of the state has come, perhaps late.
///
/// # Safety
/// The controller is null or of `verus_new`, and not freed.
#[expect(unsafe_code, reason = "C calls it")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verus_tick(controller: *mut Controller, now_ns: u64) -> Status {
    with(controller, |host| host.on_tick(now_ns))
}

/// A packet leaves the flight without a fate: its keys were discarded (RFC 9002 §6.4).
///
/// # Safety
/// The controller is null or of `verus_new`, and not freed.
#[expect(unsafe_code, reason = "C calls it")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verus_forget(controller: *mut Controller, number: u64) -> Status {
    with(controller, |host| host.forget(number))
}

/// A full packet now has this size (path MTU discovery).
///
/// # Safety
/// The controller is null or of `verus_new`, and not freed.
#[expect(unsafe_code, reason = "C calls it")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verus_packet_size(
    controller: *mut Controller,
    packet_bytes: u32,
) -> Status {
    with(controller, |host| host.set_packet_size(packet_bytes))
}

/// Writes what the controller allows now to `state`.
///
/// # Safety
/// The controller is null or of `verus_new`, and not freed; `state` is null or a place for one.
#[expect(unsafe_code, reason = "C calls it")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verus_get_state(controller: *mut Controller, state: *mut State) -> Status {
    with(controller, |host| {
        if state.is_null() {
            return Err(Status::NullPointer);
        }
        // SAFETY: not null, and a place for a state, as the caller ensures.
        unsafe { *state = host.state() };
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use verus_core::{Bytes, Feedback, Time, Timeout};

    use super::*;

    /// Panics at each tick.
    #[derive(Debug)]
    struct Faulty;

    impl verus_core::Controller for Faulty {
        fn on_feedback(&mut self, _: &Feedback<'_>) {}
        fn on_timeout(&mut self, _: &Timeout<'_>) {}
        fn on_tick(&mut self, _: Time, _: Bytes) {
            panic!("at its tick");
        }
        fn window(&self) -> Bytes {
            Bytes::new(3000)
        }
        fn next_tick(&self) -> Option<Time> {
            Some(Time::from_nanos(1))
        }
    }

    #[test]
    fn a_panic_becomes_a_status_and_the_controller_is_of_no_use_after_it() {
        let host = Host::new(Box::new(Faulty), 0, 1200).expect("a size in range");
        let mut controller = Controller { host: Some(host) };
        let mut call = |now| with(&mut controller, |host| host.on_tick(now));
        assert_eq!(call(0), Status::Ok);
        assert_eq!(call(1), Status::Panicked);
        assert_eq!(call(2), Status::Panicked);
        let mut state = State::default();
        let answer = with(&mut controller, |host| {
            state = host.state();
            Ok(())
        });
        assert_eq!((answer, state), (Status::Panicked, State::default()));
    }
}
