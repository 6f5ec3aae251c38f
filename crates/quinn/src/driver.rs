//! Keeps a connection's epochs running.
//!
//! quinn calls its controller when a packet leaves or something is acknowledged, and at no other time.
//! A controller that decides each epoch needs to be called when one ends, and the connection woken if
//! it may send more: without that, on a path whose round trip is far shorter than an epoch, all is
//! acknowledged long before the next budget, and nothing is left to call the controller. quinn has no call
//! for waking a connection. Setting its send window does it as a side effect, and with the value
//! that it has changes nothing else.

use std::pin::pin;
use std::time::Duration;

use quinn::Connection;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::view::View;

/// How long a driver sleeps at most before it looks whether a migration has given the connection another
/// controller: the old one gets no more events and sets no more timers.
const LOOK: Duration = Duration::from_secs(1);

/// Runs the epochs of one connection's controller until it is dropped or the connection ends.
///
/// It holds a handle on the connection: quinn closes a connection of its own accord only once this is
/// dropped too.
#[derive(Debug)]
#[must_use = "epochs stop when the driver is dropped"]
pub struct Driver {
    connection: Connection,
    task: JoinHandle<()>,
}

impl Driver {
    /// Whether it has ended, with the connection or because there was nothing to drive.
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
        // Whoever closes a connection and drops its driver at once leaves the task no time to see it.
        if self.connection.close_reason().is_some() {
            say_so(&self.connection);
        }
    }
}

/// Keeps the epochs of `connection`'s controller running.
///
/// While something is in flight it wakes once each epoch; otherwise it sleeps. It ends with the
/// connection, whose peer it lets know even where the window is full, and does nothing for one whose
/// controller is not of a [`Factory`](super::Factory) or has no epochs. Without it a connection still works,
/// but on a path whose round trip is shorter than an epoch it sends little more than a packet for each.
///
/// # Panics
/// Outside a tokio runtime.
pub fn drive(connection: &Connection) -> Driver {
    Driver {
        connection: connection.clone(),
        task: tokio::spawn(run(connection.clone())),
    }
}

/// Lets the peer of a closed connection know. quinn-proto up to 0.11.19 keeps CONNECTION_CLOSE back while the window is
/// full, and takes no acknowledgement of what fills it (issue 2785): the peer would know at its idle timeout.
fn say_so(connection: &Connection) {
    if let Some(view) = View::of(connection.congestion_state()) {
        view.shared.close();
        connection.set_send_window(view.shared.send_window());
    }
}

async fn run(connection: Connection) {
    let mut closed = pin!(connection.closed());
    let Some(view) = View::of(connection.congestion_state()) else {
        return;
    };
    let mut driving = view.driving();
    loop {
        let shared = &driving.view().shared;
        let now = Instant::now();
        let due = shared.set_alarm(now.into_std()).map(Instant::from);
        let look = now + LOOK;
        tokio::select! {
            _ = &mut closed => return say_so(&connection),
            () = sleep_until(due.map_or(look, |due| due.min(look))) => {}
            // Slow start asks for no tick but that which helps a stuck path, in a second. When it ends, an epoch does
            // within milliseconds.
            () = shared.sooner() => continue,
        }
        let now = Instant::now();
        if due.is_some_and(|due| due <= now) && shared.tick(now.into_std()) {
            connection.set_send_window(shared.send_window());
        }
        if let Some(view) = View::of(connection.congestion_state())
            && !view.is_same(driving.view())
        {
            driving = view.driving();
        }
    }
}
