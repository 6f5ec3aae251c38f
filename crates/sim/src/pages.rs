//! Requests and the pages that answer them, on one connection.
//!
//! ```text
//!  client  ask ·······┐         ┌···· arrived ── thinking ── ask ···
//!  way back           └▶ asked  │
//!  server                 ├───page───┤
//! ```
//!
//! The client's request crosses the way back like an acknowledgement of its size; the server sends the page when the
//! request arrives. A page has taken the time from its request to the arrival of its last byte.

use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp};
use verus_core::{Bytes, Duration, Time};

use crate::traffic::Pages;

/// How long a client waits for a page whose request was lost before it asks again: the first timeout of RFC 6298.
pub const ASK_AGAIN: Duration = Duration::from_secs(1);

/// One connection's client: which pages it requested, and which have arrived.
#[derive(Clone, Debug)]
pub struct Client {
    pages: Pages,
    draws: ChaCha8Rng,
    /// Pages requested so far, including the one that is awaited.
    requested: u64,
    /// The request time of the awaited page, if any.
    since: Option<Time>,
    /// Whether its request has reached the server.
    request_arrived: bool,
    /// The end of the last page in the connection's data.
    end: Bytes,
}

impl Client {
    /// A client that has not requested anything yet.
    pub fn new(pages: Pages, draws: ChaCha8Rng) -> Self {
        Client {
            pages,
            draws,
            requested: 0,
            since: None,
            request_arrived: false,
            end: Bytes::ZERO,
        }
    }

    /// Sends a request at `now`, for the first time or again; returns its size.
    pub fn ask(&mut self, now: Time) -> Bytes {
        if self.since.is_none() {
            self.since = Some(now);
            self.requested += 1;
            self.request_arrived = false;
        }
        self.pages.request
    }

    /// The request reaches the server; returns the size of the page.
    pub fn on_asked(&mut self) -> Bytes {
        let size = self.pages.size.draw_bytes(&mut self.draws);
        self.request_arrived = true;
        self.end += size;
        size
    }

    /// `delivered` bytes have been delivered by `now`; returns how long the page took, if this completes it.
    pub fn on_delivered(&mut self, now: Time, delivered: Bytes) -> Option<Duration> {
        if !self.request_arrived || delivered < self.end {
            return None;
        }
        let since = self.since.take()?;
        Some(now.since(since))
    }

    /// The time the client waits before it requests the next page, if there is one.
    pub fn think(&mut self) -> Option<Duration> {
        if self.pages.count == Some(self.requested) {
            return None;
        }
        if self.pages.think_s == 0.0 {
            return Some(Duration::ZERO);
        }
        let times = Exp::new(1.0 / self.pages.think_s).expect("its settings were checked");
        Some(Duration::from_secs_f64(times.sample(&mut self.draws)))
    }

    /// Whether the last page has arrived.
    pub fn is_complete(&self) -> bool {
        self.since.is_none() && self.pages.count == Some(self.requested)
    }
}
