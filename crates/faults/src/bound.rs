//! Bounds on the behaviour of each controller whose receiver lies.

use std::fmt;

use verus_core::Duration;
use verus_senders::catalogue;

/// Share of an honest receiver's bytes from which a flow has recovered.
const RECOVERED: f64 = 0.7;
/// A flow has recovered when it holds its share for this many seconds on average.
pub const RECOVERED_FOR: usize = 5;

/// The bound on a sender's rate while its receiver lies. A megabyte comes on top, since a new flow
/// does not know the path.
#[derive(Clone, Copy, Debug)]
pub enum Most {
    /// Multiples of the link's capacity.
    Links(f64),
    /// A fixed rate, Mbit/s, whatever the link.
    Mbps(f64),
}

impl Most {
    /// Bytes in `span` on a link of `link_mbps`.
    pub fn bytes(self, link_mbps: f64, span: Duration) -> f64 {
        let of = |mbps: f64| mbps * 1e6 / 8.0 * span.as_secs_f64();
        let carried = match self {
            Most::Links(many) => many * of(link_mbps),
            Most::Mbps(mbps) => of(mbps),
        };
        carried + 1e6
    }
}

impl fmt::Display for Most {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Most::Links(many) => write!(f, "{many} × the link"),
            Most::Mbps(mbps) => write!(f, "{mbps} Mbit/s"),
        }
    }
}

/// A controller's limits, whatever its receiver says.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// As a user names it; `model` takes a file besides.
    pub scheme: &'static str,
    /// Its rate while its receiver lies.
    pub sent: Most,
    /// Numbers and lost data that the sender remembers.
    pub remembered: usize,
    /// How long after the last lie it has recovered, s.
    pub recovers_within: f64,
    /// The share of an honest receiver's bytes that counts as recovered.
    pub share: f64,
    /// Whether it means an honest receiver's delay, too.
    pub delay: bool,
}

impl Bound {
    /// How long a flow goes on after the last lie: long enough to see whether it keeps the bound, and 25 s at least.
    pub fn afterwards(&self) -> Duration {
        Duration::from_secs_f64((self.recovers_within + RECOVERED_FOR as f64).max(25.0))
    }

    const fn share(self, share: f64) -> Self {
        Bound { share, ..self }
    }

    const fn whatever_delay(self) -> Self {
        let delay = false;
        Bound { delay, ..self }
    }
}

const fn bound(scheme: &'static str, sent: Most, remembered: usize, recovers_within: f64) -> Bound {
    Bound {
        scheme,
        sent,
        remembered,
        recovers_within,
        share: RECOVERED,
        delay: true,
    }
}

/// The bound of an algorithm that [`NAMED`] does not name.
const fn usual(scheme: &'static str) -> Bound {
    bound(scheme, Most::Links(1.5), 20_000, 20.0)
}

/// Of the algorithms whose bound is another, and why.
const NAMED: &[Bound] = &[
    // Over QUIC no receiver reports times of arrival. An acknowledgement at once after a silence of
    // 280 ms counts as the path's delivery in 80 ms, and half of the data is lost.
    bound("forward", Most::Links(2.0), 20_000, 10.0),
    // A flow whose acknowledgements were late from its first packet on takes a full queue for the
    // path. Only losses correct that: 19 s under one seed of a thousand.
    bound("verus", Most::Links(1.5), 20_000, 20.0),
    // Points of the profile count for ever, and the curve goes on with its slope beyond the last. A
    // liar's points therefore stay, and a flat curve leads to any window that the transport
    // permits. The paper's text prescribes this. The sender remembers 131,072 packets that are not
    // in flight (the ledger). It also remembers 64 MiB in flight or waiting to be sent again, which
    // are 47,934 packets of 1400 bytes.
    bound("verus:mode=paper", Most::Links(40.0), 180_000, 10.0)
        .share(0.2)
        .whatever_delay(),
    // Its curve leads as far. D_min, once raised, does not come back.
    bound("verus:mode=prototype", Most::Links(40.0), 180_000, 10.0)
        .share(0.2)
        .whatever_delay(),
    bound("cubic", Most::Links(1.5), 20_000, 10.0),
    bound("cubic:hystart=plusplus", Most::Links(1.5), 20_000, 10.0),
    // After timeouts it grows from two packets, by one each round trip: 70 % of 12 Mbit/s in 120 ms
    // are 90 packets, 11 s. Before that, a timer that silence has doubled may have 5 s to go.
    bound("newreno", Most::Links(1.5), 20_000, 16.0),
    // It grows as slowly. As Linux's, it measures its path anew after a timeout: one that late acknowledgements cause
    // makes it take its own full queue for the path, and keep that queue.
    bound("vegas", Most::Links(1.5), 20_000, 20.0).whatever_delay(),
    // The estimated rate is at most the rate at which the packets left. The least round trip counts
    // for 10 s, and each lower one counts anew. The pace, 1 % below the bandwidth, drains a queue
    // by 10 ms each second, so that ProbeRtt does not come. Of four round trips of 120 ms, 360 ms
    // must drain, less 155 for an honest queue of 90: 20 s.
    bound("bbr1", Most::Links(1.5), 20_000, 20.0),
    // The bound set by losses rises again only by packets, in one probe every 2 to 3 s. A rate
    // counts for two cycles, and a cycle that ProbeRTT ends does not count (draft,
    // AdaptLongTermModel). Where round trips are long enough for ProbeRTT to end each cycle, a
    // false rate keeps the queue full, which keeps the round trips long.
    bound("bbr", Most::Links(1.5), 20_000, 20.0).whatever_delay(),
    // A flow misled into seeing a competitor goes on competing with itself. It raises δ until the
    // queue drops packets, then halves it, so that the queue is never empty again on a path of a
    // few packets.
    bound("copa", Most::Links(1.5), 20_000, 10.0).whatever_delay(),
    // It ignores losses, and v has no bound. A swinging window goes on swinging: v doubles with
    // each round trip from the fifth on, and the queue that should turn it is observed a round trip
    // later. The link stays busy; the queue never settles.
    bound("copa:variant=mvfst", Most::Links(4.0), 20_000, 10.0).whatever_delay(),
    // After timeouts it grows from two packets by half a packet each round trip, where that is
    // between 60 and 120 ms. It needs 105 packets of 1200 bytes, 70 % of 12 Mbit/s in 120 ms: 25 s,
    // and a tenth more in slowdowns. A timer that silence has doubled may have 5 s to go before
    // that.
    bound("ledbatpp", Most::Links(1.5), 20_000, 33.0),
    // Falsely reported jitter becomes part of the path, up to 250 ms, and permits as much queueing,
    // which then causes the jitter.
    bound("c4", Most::Links(1.5), 20_000, 20.0).whatever_delay(),
    // A full queue does not grow, and one packet in twenty lost is acceptable to it: a flow led
    // there stays.
    bound("vivace", Most::Links(1.5), 20_000, 20.0).whatever_delay(),
    usual("scream"),
    // After timeouts it grows as NewReno.
    usual("prague"),
    // A forecast of 30 packets a tick for five ticks is in flight at a time. It may settle for one
    // packet a tick, even with an honest receiver: the arrivals in a tick count as the link's
    // capacity, although only these had left. One packet a tick is 40 packets/s, 4 % of 12 Mbit/s.
    bound("sprout", Most::Mbps(90.0), 20_000, 10.0)
        .share(0.03)
        .whatever_delay(),
    // Loss says nothing to it either: of the 100 ms that it may queue, a queue of 30 ms drops the rest.
    bound("sprout:receiver=no", Most::Links(2.0), 20_000, 10.0)
        .share(0.03)
        .whatever_delay(),
    // Each epoch may have as many packets as any that the model was trained on. Its states are delays, and it was
    // trained on several queues: a walk that was led to the delay of a full one goes on there.
    bound("model", Most::Mbps(30.0), 20_000, 10.0)
        .share(0.4)
        .whatever_delay(),
    bound("saturate", Most::Links(8.0), 40_000, 10.0),
    bound("constant:rate_mbps=5", Most::Mbps(5.0), 20_000, 10.0),
];

/// Of every algorithm that schemes can name.
pub fn bounds() -> Vec<Bound> {
    let named = |name| {
        let is = |bound: &Bound| bound.scheme.split(':').next() == Some(name);
        NAMED.iter().any(is)
    };
    let others = catalogue().into_iter().map(|entry| entry.name);
    let others = others.filter(|name| !named(*name)).map(usual);
    NAMED.iter().copied().chain(others).collect()
}
