//! Drivers of the paths of noq's connections.

use noq::PathId;
use verus_quic::{self as quic, View};

/// A path of a connection of noq, as its driver sees it.
#[derive(Clone, Debug)]
pub struct Connection(noq::Connection, PathId);

/// Runs the epochs of one path's controller until it is dropped or the connection ends.
pub type Driver = quic::Driver<Connection>;

impl quic::Connection for Connection {
    fn view(&self) -> Option<View> {
        crate::view(&self.0, self.1)
    }

    fn is_closed(&self) -> bool {
        self.0.close_reason().is_some()
    }

    async fn closed(&self) {
        self.0.closed().await;
    }

    fn wake(&self, send_window: u64) {
        self.0.set_send_window(send_window);
    }
}

/// Keeps the epochs of one path's controller running; see [`Driver`](quic::Driver::new). A
/// connection begins with [`PathId::ZERO`]; each path that is opened later takes another driver.
///
/// # Panics
/// Outside a tokio runtime.
pub fn drive(connection: &noq::Connection, path: PathId) -> Driver {
    Driver::new(Connection(connection.clone(), path))
}
