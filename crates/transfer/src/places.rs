//! Places at a server: a limited number of clients, and the eviction of idle ones when all places
//! are taken.
//!
//! When all places are taken, a newcomer replaces a client that has been idle for a while. Of the
//! network with the most places, it replaces the client that has been idle for the longest. So an
//! attacker with one address competes only with itself, and a client that has just arrived keeps its
//! place long enough to make a request.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use verus_net::Network;

/// When a client last made progress, and how much it has under way.
#[derive(Debug)]
pub(super) struct Pulse {
    began: Instant,
    /// Milliseconds since `began`.
    beaten: AtomicU64,
    open: AtomicUsize,
}

impl Pulse {
    pub(super) fn new() -> Self {
        Pulse {
            began: Instant::now(),
            beaten: AtomicU64::new(0),
            open: AtomicUsize::new(0),
        }
    }

    /// Notes progress.
    pub(super) fn beat(&self) {
        let since = self.began.elapsed().as_millis();
        let since = u64::try_from(since).unwrap_or(u64::MAX);
        self.beaten.fetch_max(since, Ordering::Relaxed);
    }

    pub(super) fn last(&self) -> Instant {
        self.began + Duration::from_millis(self.beaten.load(Ordering::Relaxed))
    }

    /// Time since the last progress.
    pub(super) fn quiet(&self) -> Duration {
        self.last().elapsed()
    }

    /// Marks work as under way until the returned value is dropped.
    pub(super) fn open(self: &Arc<Self>) -> Open {
        self.open.fetch_add(1, Ordering::Relaxed);
        Open(Arc::clone(self))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.open.load(Ordering::Relaxed) == 0
    }

    /// Waits until nothing was under way for `patience`.
    pub(super) async fn idle_for(&self, patience: Duration) {
        loop {
            let until = match self.is_idle() {
                true if self.quiet() >= patience => return,
                true => self.last() + patience,
                false => Instant::now() + patience,
            };
            sleep_until(until).await;
        }
    }
}

/// Something under way.
#[derive(Debug)]
pub(super) struct Open(Arc<Pulse>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.beat();
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A limited number of places, and their holders.
#[derive(Debug)]
pub(super) struct Places {
    limit: usize,
    each: usize,
    /// Time without progress, or without any request yet, after which a client may lose its place.
    grace: Duration,
    holders: Mutex<Vec<Arc<Holder>>>,
    /// How many are taken.
    crowd: watch::Sender<usize>,
}

#[derive(Debug)]
struct Holder {
    network: Network,
    pulse: Arc<Pulse>,
    evicted: Notify,
}

/// A place; dropped, it is free.
#[derive(Debug)]
pub(super) struct HeldPlace {
    places: Arc<Places>,
    holder: Arc<Holder>,
}

impl Places {
    /// `limit` places in all, `each` of them for one network.
    pub(super) fn new(limit: usize, each: usize, grace: Duration) -> Arc<Self> {
        Arc::new(Places {
            limit,
            each,
            grace,
            holders: Mutex::new(Vec::new()),
            crowd: watch::Sender::new(0),
        })
    }

    fn holders(&self) -> MutexGuard<'_, Vec<Arc<Holder>>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn taken(&self) -> usize {
        self.holders().len()
    }

    /// The number of taken places, as it changes.
    pub(super) fn crowd(&self) -> watch::Receiver<usize> {
        self.crowd.subscribe()
    }

    /// Takes a place, another client's if need be; nothing if none can be spared.
    pub(super) fn take(self: &Arc<Self>, network: Network) -> Option<HeldPlace> {
        let mut holders = self.holders();
        let mut counts = BTreeMap::new();
        for holder in holders.iter() {
            *counts.entry(holder.network).or_insert(0_usize) += 1;
        }
        let at_home = counts.get(&network).copied().unwrap_or(0) >= self.each;
        if at_home || holders.len() >= self.limit {
            let spared = holders
                .iter()
                .enumerate()
                .filter(|(_, holder)| !at_home || holder.network == network)
                .map(|(index, holder)| (index, holder, holder.pulse.quiet()))
                .filter(|(.., quiet)| *quiet >= self.grace)
                .max_by_key(|(index, holder, quiet)| {
                    // Of equals, the one that came first.
                    (counts[&holder.network], *quiet, usize::MAX - index)
                })
                .map(|(index, ..)| index)?;
            holders.remove(spared).evicted.notify_one();
        }
        let holder = Arc::new(Holder {
            network,
            pulse: Arc::new(Pulse::new()),
            evicted: Notify::new(),
        });
        holders.push(Arc::clone(&holder));
        self.crowd.send_replace(holders.len());
        Some(HeldPlace {
            places: Arc::clone(self),
            holder,
        })
    }
}

impl HeldPlace {
    pub(super) fn pulse(&self) -> &Arc<Pulse> {
        &self.holder.pulse
    }

    /// Waits until another client has this place.
    pub(super) async fn evicted(&self) {
        self.holder.evicted.notified().await;
    }
}

impl Drop for HeldPlace {
    fn drop(&mut self) {
        let mut holders = self.places.holders();
        holders.retain(|holder| !Arc::ptr_eq(holder, &self.holder));
        self.places.crowd.send_replace(holders.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{advance, timeout};

    const GRACE: Duration = Duration::from_secs(3);

    fn network(number: u8) -> Network {
        Network::of([192, 0, 2, number].into())
    }

    async fn is_evicted(held: &HeldPlace) -> bool {
        timeout(Duration::ZERO, held.evicted()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_newcomer_takes_the_place_of_the_oldest_of_the_network_that_has_most() {
        let places = Places::new(4, 4, GRACE);
        let honest = places.take(network(1)).expect("a place");
        let mut crowd = Vec::new();
        for _ in 0..3 {
            advance(Duration::from_millis(10)).await;
            crowd.push(places.take(network(2)).expect("a place"));
        }
        assert!(places.take(network(3)).is_none(), "all have just come");
        advance(GRACE).await;
        let newcomer = places.take(network(3)).expect("somebody makes room");
        assert!(is_evicted(&crowd[0]).await);
        assert!(!is_evicted(&honest).await && !is_evicted(&crowd[1]).await);
        crowd.push(places.take(network(2)).expect("somebody makes room"));
        assert!(is_evicted(&crowd[1]).await);
        assert_eq!(places.taken(), 4);
        drop((crowd, newcomer));
        assert_eq!(places.taken(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_gets_on_keeps_the_place_and_whoever_does_not_loses_it() {
        let places = Places::new(2, 2, GRACE);
        let busy = places.take(network(1)).expect("a place");
        let stuck = places.take(network(1)).expect("a place");
        let work = (busy.pulse().open(), stuck.pulse().open());
        advance(GRACE - Duration::from_millis(1)).await;
        assert!(places.take(network(2)).is_none(), "both may yet get on");
        busy.pulse().beat();
        advance(Duration::from_millis(2)).await;
        let newcomer = places.take(network(2)).expect("one does not get on");
        assert!(is_evicted(&stuck).await && !is_evicted(&busy).await);
        drop((work, newcomer));
    }

    #[tokio::test(start_paused = true)]
    async fn one_network_never_has_all_places() {
        let places = Places::new(4, 2, GRACE);
        let taken: Vec<_> = (0..2)
            .map(|_| places.take(network(1)).expect("a place"))
            .collect();
        let work: Vec<_> = taken.iter().map(|taken| taken.pulse().open()).collect();
        assert!(places.take(network(1)).is_none());
        assert!(places.take(network(2)).is_some());
        drop(work);
        assert!(places.take(network(1)).is_none(), "they may ask for more");
        advance(GRACE).await;
        let again = places.take(network(1)).expect("one of its own makes room");
        assert!(is_evicted(&taken[0]).await);
        drop(again);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pulse_is_idle_only_when_nothing_is_under_way() {
        let pulse = Arc::new(Pulse::new());
        let work = pulse.open();
        let idle = pulse.idle_for(GRACE);
        tokio::pin!(idle);
        assert!(timeout(10 * GRACE, &mut idle).await.is_err());
        drop(work);
        let began = Instant::now();
        timeout(10 * GRACE, idle).await.expect("it is idle");
        assert!(began.elapsed() >= GRACE.saturating_sub(Duration::from_millis(1)));
    }
}
