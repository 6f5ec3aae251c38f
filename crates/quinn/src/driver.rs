//! Drivers of quinn's connections.

use verus_quic::{self as quic, View};

/// A connection of quinn, as its driver sees it.
#[derive(Clone, Debug)]
pub struct Connection(quinn::Connection);

/// Runs the epochs of one connection's controller until it is dropped or the connection ends.
pub type Driver = quic::Driver<Connection>;

impl quic::Connection for Connection {
    fn view(&self) -> Option<View> {
        crate::view(&self.0)
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

/// Keeps the epochs of `connection`'s controller running; see [`Driver`](quic::Driver::new).
///
/// # Panics
/// Outside a tokio runtime.
pub fn drive(connection: &quinn::Connection) -> Driver {
    Driver::new(Connection(connection.clone()))
}
