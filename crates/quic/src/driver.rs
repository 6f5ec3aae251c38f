//! Keeps a connection's epochs running.
//!
//! A stack calls its controller when a packet leaves or something is acknowledged, and at no other
//! time. A controller with epochs must be called when one ends, and the connection woken if it may
//! then send more. On a path whose round trip is far shorter than an epoch, all packets are
//! acknowledged long before the next budget, and nothing else would call the controller.

use std::pin::pin;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::view::View;

/// The longest sleep of a driver before it checks whether a migration has given the connection
/// another controller. The old one then gets neither events nor timers.
const LOOK: Duration = Duration::from_secs(1);

/// A handle on a stack's connection, for a [`Driver`].
pub trait Connection: Clone + Send + Sync + 'static {
    /// The controller of its present path, if it is one of ours.
    fn view(&self) -> Option<View>;

    /// Whether it has ended.
    fn is_closed(&self) -> bool;

    /// Waits until it has ended.
    fn closed(&self) -> impl Future<Output = ()> + Send;

    /// Wakes it, so that it checks whether it can send. Stacks have no call for this: setting the
    /// send window to its present value, `send_window` bytes, does it as a side effect.
    fn wake(&self, send_window: u64);
}

/// Runs the epochs of one connection's controller until it is dropped or the connection ends.
///
/// It holds a handle on the connection: without an explicit close, a stack closes a connection only
/// once this is dropped too.
#[derive(Debug)]
#[must_use = "epochs stop when the driver is dropped"]
pub struct Driver<C: Connection> {
    connection: C,
    task: JoinHandle<()>,
}

impl<C: Connection> Driver<C> {
    /// Keeps the epochs of `connection`'s controller running.
    ///
    /// While packets are in flight it wakes once each epoch; otherwise it sleeps. It ends with the
    /// connection and informs the peer even where the window is full. It does nothing for a
    /// controller that is not ours or has no epochs. Without a driver a connection still works. But
    /// on a path whose round trip is shorter than an epoch it sends little more than a packet for
    /// each.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(connection: C) -> Self {
        Driver {
            connection: connection.clone(),
            task: tokio::spawn(run(connection)),
        }
    }

    /// Whether it has ended, with the connection or because there was nothing to drive.
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }
}

impl<C: Connection> Drop for Driver<C> {
    fn drop(&mut self) {
        self.task.abort();
        // A program that closes a connection and drops its driver at once leaves the task no time
        // to notice the close.
        if self.connection.is_closed() {
            say_so(&self.connection);
        }
    }
}

/// Informs the peer of a closed connection. quinn-proto up to 0.11.19 keeps CONNECTION_CLOSE back
/// while the window is full, and takes no acknowledgement of the packets that fill it (issue 2785).
/// The peer would notice only at its idle timeout.
fn say_so(connection: &impl Connection) {
    if let Some(view) = connection.view() {
        view.path.close();
        connection.wake(view.path.send_window());
    }
}

async fn run(connection: impl Connection) {
    let mut closed = pin!(connection.closed());
    let Some(view) = connection.view() else {
        return;
    };
    let mut driving = view.driving();
    loop {
        let path = &driving.view().path;
        let now = Instant::now();
        let due = path.set_alarm(now.into_std()).map(Instant::from);
        let look = now + LOOK;
        tokio::select! {
            () = &mut closed => return say_so(&connection),
            () = sleep_until(due.map_or(look, |due| due.min(look))) => {}
            // Slow start asks for no tick but that which helps a stuck path, in a second. When it ends, an epoch does
            // within milliseconds.
            () = path.sooner() => continue,
        }
        let now = Instant::now();
        if due.is_some_and(|due| due <= now) && path.tick(now.into_std()) {
            connection.wake(path.send_window());
        }
        match connection.view() {
            // The path was abandoned.
            None => return,
            Some(view) if !view.is_same(driving.view()) => driving = view.driving(),
            Some(_) => {}
        }
    }
}
