//! The times at which each connection was open.

use verus_core::{Bytes, Duration, Time};

use crate::connection::Flow;
use crate::record::Connection;
use crate::traffic::Load;

/// Lists the connections of flows that do not send all the time.
#[derive(Debug)]
pub struct Connections {
    list: Vec<Connection>,
    /// For each flow, the index of its latest connection in the list.
    latest: Vec<Option<usize>>,
}

impl Connections {
    /// An empty list, for `flows` flows.
    pub fn new(flows: usize) -> Self {
        Connections {
            list: Vec::new(),
            latest: vec![None; flows],
        }
    }

    /// A connection begins.
    pub fn begin(&mut self, now: Time, index: usize, flow: &Flow) {
        self.latest[index] = Some(self.list.len());
        self.list.push(Connection {
            flow: index as u32,
            number: flow.connection,
            start: now,
            end: None,
            file: match flow.load {
                Load::File(bytes) => Some(bytes),
                _ => None,
            },
            delivered: Bytes::ZERO,
        });
    }

    /// The duration of a flow's latest connection so far, if it has one.
    pub fn lasted(&self, now: Time, index: usize) -> Option<Duration> {
        let at = self.latest[index]?;
        Some(now.since(self.list[at].start))
    }

    /// A flow's latest connection has ended as planned.
    pub fn end(&mut self, now: Time, index: usize) {
        if let Some(at) = self.latest[index] {
            self.list[at].end = Some(now);
        }
    }

    /// A flow's latest connection, if it has one, has delivered `delivered` bytes.
    pub fn delivered(&mut self, index: usize, delivered: Bytes) {
        if let Some(at) = self.latest[index] {
            self.list[at].delivered = delivered;
        }
    }

    /// The connections, in the order in which they began.
    pub fn finish(self) -> Vec<Connection> {
        self.list
    }
}
