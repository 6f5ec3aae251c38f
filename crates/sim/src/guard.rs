//! Mistakes of code from outside this crate, a controller or a queue. They end the run of that code
//! by an error, and no other run.
//!
//! Rust has types where Python has to check its input, but no type excludes three things. One is a
//! panic. Another is a sender that releases bytes, or requests ticks, without end at one instant.
//! The third is a sender that never allows anything again. An endless run at an advancing clock is
//! bounded by [`Scenario::max_events`](crate::Scenario::max_events).

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
    /// The place and the message of its last panic.
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
    // The caller drops the state that a panic leaves half-changed, together with the run.
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
    /// A timer came at `now`, and nothing left. Returns the mistake, if timers come too often.
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

/// The message for a sender that lets too many packets leave at one instant.
#[cold]
pub(crate) fn too_many(sender: &Sender) -> String {
    let window = sender.window().get();
    format!("it lets more than {MOST_AT_ONCE} packets leave at once; its window is {window} bytes")
}

/// The message for a sender with data of which nothing will ever leave. With nothing in flight
/// there is no feedback, and no timer is set. A window of NaN or less than zero packets ends here,
/// since it is one of 0 bytes.
pub(crate) fn stuck(sender: &Sender) -> Option<String> {
    let ever = !sender.has_data() || !sender.in_flight().is_zero() || sender.next_timer().is_some();
    (!ever).then(|| {
        let window = sender.window().get();
        let budget = sender.controller().allowance().most_more();
        let budget = budget.map(|bytes| format!(", its budget {} bytes", bytes.get()));
        let pace = sender.controller().pacing_rate();
        let pace = pace.map(|rate| format!(", its pace {} Mbit/s", rate.as_mbps()));
        format!(
            "it will never send again: nothing is in flight, it asks for no tick, and its window is {window} bytes{}{}",
            budget.unwrap_or_default(),
            pace.unwrap_or_default()
        )
    })
}
