//! Who was on when.

use verus_core::{Bytes, Duration, Time};

use crate::connection::Flow;
use crate::record::Connection;
use crate::traffic::Load;

/// Lists the connections of flows that do not send all the time.
#[derive(Debug)]
pub struct Connections {
    list: Vec<Connection>,
    /// Where in the list each flow's latest is.
    latest: Vec<Option<usize>>,
}

impl Connections {
    /// None yet of so many flows.
    pub fn new(flows: usize) -> Self {
        Connections {
            list: Vec::new(),
            latest: vec![None; flows],
        }
    }

    /// One begins.
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

    /// How long the latest of a flow has lasted, if there is one.
    pub fn lasted(&self, now: Time, index: usize) -> Option<Duration> {
        let at = self.latest[index]?;
        Some(now.since(self.list[at].start))
    }

    /// The latest of a flow has done what it was for.
    pub fn end(&mut self, now: Time, index: usize) {
        if let Some(at) = self.latest[index] {
            self.list[at].end = Some(now);
        }
    }

    /// How much the latest of a flow delivered, if there is one.
    pub fn delivered(&mut self, index: usize, delivered: Bytes) {
        if let Some(at) = self.latest[index] {
            self.list[at].delivered = delivered;
        }
    }

    /// All of them, in the order in which they began.
    pub fn finish(self) -> Vec<Connection> {
        self.list
    }
}
