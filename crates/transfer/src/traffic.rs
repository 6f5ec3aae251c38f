//! Traffic of a server: counts, and the controllers of open connections.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quinn::Connection;
use verus_core::Bytes;
use verus_quinn::View;

/// Counts of a server's connections to admitted clients, and the controllers of those that are open.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// Connections that began.
    pub connections: u64,
    /// Bytes that were acknowledged.
    pub acknowledged: Bytes,
    /// QUIC packets that were sent.
    pub packets: u64,
    /// QUIC packets that were taken for lost.
    pub lost: u64,
    /// The open connections.
    pub open: Vec<OpenConnection>,
}

/// An open connection.
#[derive(Clone, Debug)]
pub struct OpenConnection {
    /// Its controller.
    pub view: View,
    /// QUIC packets that were sent.
    pub packets: u64,
    /// Of these, those taken for lost.
    pub lost: u64,
}

/// Reads a server's traffic, from any thread; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Watch(Arc<Mutex<Watched>>);

#[derive(Debug, Default)]
struct Watched {
    next: u64,
    open: BTreeMap<u64, TrackedConnection>,
    /// Counts of closed connections.
    closed: Traffic,
}

/// A connection and its present controller: another path has another one.
#[derive(Debug)]
struct TrackedConnection {
    connection: Connection,
    view: View,
    /// Bytes of the present controller that are counted already.
    counted: Bytes,
    /// The controller of the path before, to which quinn returns if the new path is not validated, and its count.
    previous: Option<(View, Bytes)>,
    /// Bytes acknowledged on all paths.
    acknowledged: Bytes,
}

impl TrackedConnection {
    /// Counts what the present controller has delivered since it was last counted.
    fn count(&mut self) {
        let delivered = self.view.snapshot().delivered;
        self.acknowledged += delivered.saturating_sub(self.counted);
        self.counted = delivered;
    }

    fn count_into(&mut self, traffic: &mut Traffic) -> OpenConnection {
        if let Some(view) = verus_quinn::view(&self.connection)
            && !view.is_same(&self.view)
        {
            self.count();
            let counted = match self.previous.take() {
                Some((previous, counted)) if previous.is_same(&view) => counted,
                _ => Bytes::ZERO,
            };
            let former = std::mem::replace(&mut self.view, view);
            self.previous = Some((former, std::mem::replace(&mut self.counted, counted)));
        }
        self.count();
        let path = self.connection.stats().path;
        traffic.acknowledged += self.acknowledged;
        traffic.packets += path.sent_packets;
        traffic.lost += path.lost_packets;
        OpenConnection {
            view: self.view.clone(),
            packets: path.sent_packets,
            lost: path.lost_packets,
        }
    }
}

/// A connection is watched while this lasts.
#[derive(Debug)]
pub(super) struct Watching {
    watch: Watch,
    number: u64,
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut watched = self.watch.watched();
        let Watched { open, closed, .. } = &mut *watched;
        if let Some(mut connection) = open.remove(&self.number) {
            let _ = connection.count_into(closed);
        }
    }
}

impl Watch {
    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts and controllers, now.
    pub fn traffic(&self) -> Traffic {
        let mut watched = self.watched();
        let Watched { open, closed, .. } = &mut *watched;
        let mut traffic = closed.clone();
        let connections = open.values_mut();
        traffic.open = connections
            .map(|connection| connection.count_into(&mut traffic))
            .collect();
        traffic
    }

    /// Watches a connection; `None` if its controller is not ours.
    pub(super) fn add(&self, connection: &Connection) -> Option<Watching> {
        let view = verus_quinn::view(connection)?;
        let mut watched = self.watched();
        let number = watched.next;
        watched.next += 1;
        watched.closed.connections += 1;
        let open = TrackedConnection {
            connection: connection.clone(),
            view,
            counted: Bytes::ZERO,
            previous: None,
            acknowledged: Bytes::ZERO,
        };
        watched.open.insert(number, open);
        Some(Watching {
            watch: self.clone(),
            number,
        })
    }
}
