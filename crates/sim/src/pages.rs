//! Requests and the pages that answer them, on one connection.
//!
//! ```text
//!  client  ask ·······┐         ┌······ there ── thinking ── ask ···
//!  way back           └▶ asked  │
//!  server                 ├───page───┤
//! ```
//!
//! The client asks over the way back, which takes what an acknowledgement of that size would; the server has the page to
//! send when the request comes. A page is there when all of it is, and has taken from the asking on.

use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp};
use verus_core::{Bytes, Duration, Time};

use crate::traffic::Pages;

/// How long a client waits for a page whose request was lost before it asks again: the first timeout of RFC 6298.
pub const ASK_AGAIN: Duration = Duration::from_secs(1);

/// One connection's client: what it asked for, and what of it is there.
#[derive(Clone, Debug)]
pub struct Client {
    pages: Pages,
    draws: ChaCha8Rng,
    /// Pages so far, the one that is awaited among them.
    asked: u64,
    /// When that was asked for, if one is awaited.
    since: Option<Time>,
    /// Whether its request has come.
    heard: bool,
    /// Where in the connection's data the last page ends.
    end: Bytes,
}

impl Client {
    /// One that has asked for nothing.
    pub fn new(pages: Pages, draws: ChaCha8Rng) -> Self {
        Client {
            pages,
            draws,
            asked: 0,
            since: None,
            heard: false,
            end: Bytes::ZERO,
        }
    }

    /// Asks at `now`, for the first time or again; how large the request is.
    pub fn ask(&mut self, now: Time) -> Bytes {
        if self.since.is_none() {
            self.since = Some(now);
            self.asked += 1;
            self.heard = false;
        }
        self.pages.request
    }

    /// The request comes to the server; how large the page is.
    pub fn on_asked(&mut self) -> Bytes {
        let size = self.pages.size.draw_bytes(&mut self.draws);
        self.heard = true;
        self.end += size;
        size
    }

    /// So much has been delivered by `now`: how long the page took, if it is there by this.
    pub fn on_delivered(&mut self, now: Time, delivered: Bytes) -> Option<Duration> {
        if !self.heard || delivered < self.end {
            return None;
        }
        let since = self.since.take()?;
        Some(now.since(since))
    }

    /// How long the client thinks before it asks for the next page, if there is one.
    pub fn think(&mut self) -> Option<Duration> {
        if self.pages.count == Some(self.asked) {
            return None;
        }
        if self.pages.think_s == 0.0 {
            return Some(Duration::ZERO);
        }
        let times = Exp::new(1.0 / self.pages.think_s).expect("its settings were checked");
        Some(Duration::from_secs_f64(times.sample(&mut self.draws)))
    }

    /// Whether the last page is there.
    pub fn is_complete(&self) -> bool {
        self.since.is_none() && self.pages.count == Some(self.asked)
    }
}
