//! What code from outside this crate may do wrong, a controller or a queue of somebody's own, so that its run ends by an error
//! and no other does.
//!
//! Rust has types where Python has to look at what it gets, but three things no type excludes: a panic; a sender that lets
//! bytes leave, or asks for ticks, without end at one instant; and a sender that allows nothing ever again. What endures
//! for ever at an advancing clock is bounded by [`Scenario::max_events`](crate::Scenario::max_events).

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use verus_core::Time;
use verus_senders::Sender;

/// The most packets that a sender may let leave at one instant: the largest window that a scheme can begin with
/// ([`WINDOW_PACKETS`](verus_words::range::WINDOW_PACKETS)). Beyond it a mistaken unit is likelier than a wish, and the
/// memory of this machine is at stake.
pub(crate) const MOST_AT_ONCE: u32 = 1_000_000;

/// Timers of one flow, none with a packet that leaves, that may come within a second of simulated time.
const MOST_TICKS: u32 = 1_000_000;

thread_local! {
    /// Whether this thread is in [`caught`].
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Where its last panic was, and what it said.
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Does `work`; a panic in it becomes a sentence of one line. With `RUST_BACKTRACE` set it is printed, too, as usual.
///
/// # Errors
/// What the panic said, and where in the source.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let inside = INSIDE.get();
            if inside {
                let payload = info.payload();
                let text = payload.downcast_ref::<String>().map(String::as_str);
                let said = text.or_else(|| payload.downcast_ref::<&str>().copied());
                let said = said.unwrap_or("of something that is no text");
                let place = info
                    .location()
                    .map_or_else(String::new, |at| format!(" ({at})"));
                let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
                SAID.replace(format!("it panicked: {said}{place}"));
            }
            if !inside || std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
                usual(info);
            }
        }));
    });
    let before = INSIDE.replace(true);
    // What is broken by a panic halfway is dropped by the caller, with the run.
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    INSIDE.set(before);
    done.map_err(|_| SAID.take())
}

/// Counts the timers of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ticks {
    count: u32,
    since: Time,
}

impl Ticks {
    /// A timer came at `now`, and nothing left; what is wrong, if they come too often.
    pub(crate) fn count(&mut self, now: Time) -> Option<String> {
        self.count += 1;
        if self.count < MOST_TICKS {
            return None;
        }
        let seconds = now.since(self.since).as_secs_f64();
        (self.count, self.since) = (0, now);
        (seconds < 1.0).then(|| {
            format!(
                "it asked for {MOST_TICKS} ticks in {seconds:.6} s: next_tick() must be after now"
            )
        })
    }
}

/// What is wrong with a sender that lets too many packets leave at one instant.
#[cold]
pub(crate) fn too_many(sender: &Sender) -> String {
    let window = sender.window().get();
    format!("it lets more than {MOST_AT_ONCE} packets leave at once; its window is {window} bytes")
}

/// What is wrong with a sender that has data, of which nothing will ever leave: with nothing in flight there is nothing to be
/// heard, and no timer is to come. A window of NaN or less than zero packets ends here, since it is one of 0 bytes.
pub(crate) fn stuck(sender: &Sender) -> Option<String> {
    let ever = !sender.has_data() || !sender.in_flight().is_zero() || sender.next_timer().is_some();
    (!ever).then(|| {
        let window = sender.window().get();
        format!(
            "it will never send again: nothing is in flight, it asks for no tick, and its window is {window} bytes"
        )
    })
}
