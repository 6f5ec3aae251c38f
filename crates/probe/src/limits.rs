//! A server's limits on tests.

use verus_core::{Bytes, Duration, Rate, Time};

use super::wire::{Reason, Request};

/// Limits of a server, each for good reason: it answers strangers.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Tests at a time.
    pub clients: usize,
    /// Of these, tests of one address (IPv4) or network (the first 64 bits of IPv6). One address
    /// gets the same share of all flows, and at least one test's flows.
    pub clients_per_address: usize,
    /// Flows of one test, both directions together.
    pub flows_per_client: usize,
    /// Flows of all tests together.
    pub flows: usize,
    /// How long a test may send.
    pub duration: Duration,
    /// How much of each direction one test may use; `None` for no limit.
    pub rate_per_client: Option<Rate>,
    /// How much of each direction all tests together may use; `None` for no limit.
    pub rate: Option<Rate>,
    /// A client whose last packet is older than this is forgotten.
    pub silence: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            clients: 64,
            clients_per_address: 16,
            flows_per_client: 128,
            flows: 1024,
            duration: Duration::from_secs(3600),
            rate_per_client: None,
            rate: None,
            silence: Duration::from_secs(60),
        }
    }
}

impl Limits {
    /// The most that one test may use of a direction.
    pub fn rate_of_one(&self) -> Option<Rate> {
        [self.rate_per_client, self.rate]
            .into_iter()
            .flatten()
            .min()
    }

    /// Flows that the tests of one address may have together.
    fn flows_per_address(&self) -> usize {
        let share = self.flows.saturating_mul(self.clients_per_address) / self.clients.max(1);
        share.max(self.flows_per_client)
    }

    /// Why `request` is refused, as text, if it is: `all` is open already, and of that `own` by the
    /// same address.
    pub fn refusal(&self, request: &Request, all: Use, own: Use) -> Option<(Reason, String)> {
        let flows = usize::from(request.upload_flows) + usize::from(request.download_flows);
        let refuse = |text: String| Some((Reason::Limit, text));
        if flows == 0 || (request.duration_nanos == 0 && request.bytes == 0) {
            let text = "a test has at least one flow, and a duration or a size";
            return Some((Reason::BadRequest, text.to_owned()));
        }
        if !PACKET_BYTES.contains(&request.packet_bytes) || request.status_millis < 20 {
            let text = "the packet size or the status interval is out of range";
            return Some((Reason::BadRequest, text.to_owned()));
        }
        if flows > self.flows_per_client {
            return refuse(format!(
                "{flows} flows, and this server takes {} a test",
                self.flows_per_client
            ));
        }
        let flows_one_way = request.upload_flows.max(request.download_flows);
        if let Some(refusal) = self.refusal_of_rate(request.rate_bps, flows_one_way) {
            return Some(refusal);
        }
        let busy = |text: String| Some((Reason::Busy, text));
        if all.tests >= self.clients {
            return busy(format!("{} tests are running", all.tests));
        }
        if own.tests >= self.clients_per_address {
            return busy(format!(
                "{} tests of the same address are running",
                own.tests
            ));
        }
        if all.flows + flows > self.flows {
            return busy(format!("{} of {} flows are in use", all.flows, self.flows));
        }
        let allowed = self.flows_per_address();
        if own.flows + flows > allowed {
            let used = own.flows;
            return busy(format!(
                "the same address uses {used} of its {allowed} flows"
            ));
        }
        if request.duration_nanos > self.duration.as_nanos() {
            return refuse(format!(
                "{} s, and this server takes {} s",
                request.duration_nanos / 1_000_000_000,
                self.duration.as_secs_f64()
            ));
        }
        None
    }

    /// Why `flows` in one direction that send `bps` each are refused, if they are. Sending less than was asked for
    /// would be another measurement.
    pub fn refusal_of_rate(&self, bps: u64, flows: u16) -> Option<(Reason, String)> {
        let mbps = |bps: u64| bps as f64 / 1e6;
        if bps > FASTEST.as_bps() {
            let (requested, most) = (mbps(bps), mbps(FASTEST.as_bps()));
            let text =
                format!("a flow of {requested} Mbit/s; the fastest there is has {most} Mbit/s");
            return Some((Reason::BadRequest, text));
        }
        let all = bps.saturating_mul(u64::from(flows));
        let granted = self
            .rate_of_one()
            .filter(|granted| all > granted.as_bps())?;
        let text = format!(
            "{flows} flow{} of {} Mbit/s, and this server grants a test {} Mbit/s",
            if flows == 1 { "" } else { "s" },
            mbps(bps),
            granted.as_mbps()
        );
        Some((Reason::Limit, text))
    }
}

/// A server's resources in use by tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// How many there are.
    pub tests: usize,
    /// Their flows.
    pub flows: usize,
}

impl std::ops::AddAssign for Use {
    fn add_assign(&mut self, other: Use) {
        self.tests += other.tests;
        self.flows += other.flows;
    }
}

impl std::ops::SubAssign for Use {
    fn sub_assign(&mut self, other: Use) {
        self.tests -= other.tests;
        self.flows -= other.flows;
    }
}

/// Faster than any link; also the limit of the command line.
const FASTEST: Rate = Rate::from_bps(1_000_000_000_000);

/// Sizes of packets that a test may ask for, bytes (IP).
pub const PACKET_BYTES: std::ops::RangeInclusive<u16> = 200..=65_000;

/// A token bucket: grants bytes at a rate, and saves up unused bytes for a while.
#[derive(Clone, Debug)]
pub struct Bucket {
    rate: Option<Rate>,
    full: Bytes,
    level: Bytes,
    at: Time,
}

impl Bucket {
    /// A full bucket, which holds its rate's bytes of the given time; one without a rate grants
    /// everything.
    pub fn new(rate: Option<Rate>, saves: Duration, now: Time) -> Self {
        let saved = rate.map_or(Bytes::ZERO, |rate| rate.bytes_in(saves));
        // Room for one packet of any size, or it could never leave.
        let full = saved.max(Bytes::new(1 << 16));
        Bucket {
            rate,
            full,
            level: full,
            at: now,
        }
    }

    /// The same, empty: bytes granted never exceed the rate, however short a test is.
    pub fn empty(rate: Option<Rate>, saves: Duration, now: Time) -> Self {
        Bucket {
            level: Bytes::ZERO,
            ..Bucket::new(rate, saves, now)
        }
    }

    /// Takes `size` if there is as much.
    pub fn take(&mut self, now: Time, size: Bytes) -> bool {
        let Some(rate) = self.rate else {
            return true;
        };
        let refilled = rate.bytes_in(now.since(self.at));
        // Time too short for a byte is kept for the next call.
        if !refilled.is_zero() {
            self.level = (self.level + refilled).min(self.full);
            self.at = now;
        }
        let granted = self.level >= size;
        if granted {
            self.level -= size;
        }
        granted
    }

    /// When `size` will be there; `None` if it is now.
    pub fn wait(&self, now: Time, size: Bytes) -> Option<Time> {
        let rate = self.rate?;
        let level = (self.level + rate.bytes_in(now.since(self.at))).min(self.full);
        (level < size).then(|| now + rate.time_for(size - level) + Duration::from_micros(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        Request {
            download_flows: 1,
            duration_nanos: 10_000_000_000,
            scheme: "verus".to_owned(),
            ..Request::default()
        }
    }

    #[test]
    fn a_request_is_held_against_each_limit() {
        let limits = Limits {
            flows_per_client: 4,
            flows: 6,
            duration: Duration::from_secs(60),
            ..Limits::default()
        };
        let reason = |change: fn(&mut Request), flows| {
            let mut test = request();
            change(&mut test);
            let open = Use { tests: 1, flows };
            let refusal = limits.refusal(&test, open, Use::default());
            refusal.map(|(reason, _)| reason)
        };
        assert_eq!(reason(|_| (), 0), None);
        assert_eq!(reason(|test| test.upload_flows = 4, 0), Some(Reason::Limit));
        assert_eq!(reason(|_| (), 5), Some(Reason::Busy));
        let hour = |test: &mut Request| test.duration_nanos = 3_600_000_000_000;
        assert_eq!(reason(hour, 0), Some(Reason::Limit));
        for nonsense in [
            |test: &mut Request| test.duration_nanos = 0,
            |test: &mut Request| test.packet_bytes = 10,
            |test: &mut Request| test.status_millis = 0,
            |test: &mut Request| (test.upload_flows, test.download_flows) = (0, 0),
        ] {
            assert_eq!(reason(nonsense, 0), Some(Reason::BadRequest));
        }
    }

    #[test]
    fn no_address_takes_every_place_nor_every_flow() {
        let limits = Limits::default();
        let refused = |all, own| limits.refusal(&request(), all, own);
        let of = |tests, flows| Use { tests, flows };
        assert_eq!(refused(of(63, 126), of(15, 30)), None);
        for (all, own, words) in [
            (of(64, 128), of(0, 0), "64 tests are running"),
            (
                of(16, 32),
                of(16, 32),
                "16 tests of the same address are running",
            ),
            (of(9, 1023), of(0, 0), "1023 of 1024 flows are in use"),
            (
                of(3, 255),
                of(3, 255),
                "the same address uses 255 of its 256 flows",
            ),
        ] {
            let refusal = refused(all, own).expect("it is too much");
            assert_eq!(refusal, (Reason::Busy, words.to_owned()));
        }
    }

    #[test]
    fn rates_that_are_not_granted_or_that_nobody_means_are_refused_in_words() {
        let limits = Limits {
            rate_per_client: Some(Rate::from_mbps(5.0)),
            ..Limits::default()
        };
        assert_eq!(limits.refusal_of_rate(2_500_000, 2), None);
        let (reason, text) = limits.refusal_of_rate(2_500_000, 3).expect("too much");
        assert_eq!(reason, Reason::Limit);
        assert_eq!(
            text,
            "3 flows of 2.5 Mbit/s, and this server grants a test 5 Mbit/s"
        );
        let (reason, _) = limits.refusal_of_rate((1 << 61) - 1, 1).expect("absurd");
        assert_eq!(reason, Reason::BadRequest);
        let open = Limits::default();
        assert_eq!(open.refusal_of_rate(1_000_000_000_000, 8), None);
        assert!(open.refusal_of_rate(1_000_000_000_001, 1).is_some());
    }

    #[test]
    fn a_bucket_grants_its_rate_and_at_first_what_it_holds() {
        let (rate, saves) = (Some(Rate::from_mbps(8.0)), Duration::from_millis(100));
        let size = Bytes::new(1000); // 1 ms each
        for (mut bucket, expected) in [
            (Bucket::new(rate, saves, Time::ZERO), 1_090..=1_110),
            (Bucket::empty(rate, saves, Time::ZERO), 990..=1_000),
        ] {
            let (mut now, mut granted) = (Time::ZERO, 0);
            while now < Time::from_millis(1_000) {
                while bucket.take(now, size) {
                    granted += 1;
                }
                now = bucket.wait(now, size).expect("the bucket is empty");
            }
            assert!(expected.contains(&granted), "{granted}");
        }
    }
}
