//! Keeps a connection's epochs running.
//!
//! quinn calls its controller when a packet leaves or something is acknowledged, and at no other
//! time. A controller with epochs must be called when one ends, and the connection woken if it may
//! then send more. On a path whose round trip is far shorter than an epoch, all packets are
//! acknowledged long before the next budget, and nothing else would call the controller. quinn has
//! no call for waking a connection. Setting its send window wakes it as a side effect, and with an
//! unchanged value does nothing else.

use std::pin::pin;
use std::time::Duration;

use quinn::Connection;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::view::View;

/// The longest sleep of a driver before it checks whether a migration has given the connection
/// another controller. The old one then gets neither events nor timers.
const LOOK: Duration = Duration::from_secs(1);

/// Runs the epochs of one connection's controller until it is dropped or the connection ends.
///
/// It holds a handle on the connection: without an explicit close, quinn closes a connection only
/// once this is dropped too.
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
        // A program that closes a connection and drops its driver at once leaves the task no time
        // to notice the close.
        if self.connection.close_reason().is_some() {
            say_so(&self.connection);
        }
    }
}

/// Keeps the epochs of `connection`'s controller running.
///
/// While packets are in flight it wakes once each epoch; otherwise it sleeps. It ends with the
/// connection and informs the peer even where the window is full. It does nothing for a controller
/// that is not of a [`Factory`](super::Factory) or has no epochs. Without a driver a connection
/// still works. But on a path whose round trip is shorter than an epoch it sends little more than a
/// packet for each.
///
/// # Panics
/// Outside a tokio runtime.
pub fn drive(connection: &Connection) -> Driver {
    Driver {
        connection: connection.clone(),
        task: tokio::spawn(run(connection.clone())),
    }
}

/// Informs the peer of a closed connection. quinn-proto up to 0.11.19 keeps CONNECTION_CLOSE back
/// while the window is full, and takes no acknowledgement of the packets that fill it (issue 2785).
/// The peer would notice only at its idle timeout.
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
