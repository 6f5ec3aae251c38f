//! The record of one transfer, as it goes to a server's log.

use std::net::SocketAddr;
use std::time::Duration;

use super::access::ClientName;

/// Which way a file went, as the server sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the client.
    Sent,
    /// From the client.
    Received,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The file is whole at its place.
    Complete,
    /// It was there already, the very same.
    Same,
    /// It is not, and why.
    Failed(String),
}

/// A transfer that has ended, or was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Where the client is.
    pub client: SocketAddr,
    /// The client's name; clients have none where every client is served.
    pub name: Option<ClientName>,
    /// The file, in letters that can be printed.
    pub path: String,
    /// Which way it went.
    pub direction: Direction,
    /// Its size in bytes, if that is known.
    pub size: Option<u64>,
    /// How many bytes of its data went over the wire, whatever became of them.
    pub moved: u64,
    /// How many an earlier attempt had left.
    pub kept: u64,
    /// From the request to the end.
    pub took: Duration,
    /// How it ended.
    pub outcome: Outcome,
}
