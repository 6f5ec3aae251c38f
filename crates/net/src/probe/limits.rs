//! What a server grants, whoever asks.

use verus_core::{Bytes, Duration, Rate, Time};

use super::wire::{Reason, Request};

/// Limits of a server, each for good reason: it answers strangers.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Tests at a time.
    pub clients: usize,
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
    /// A client from which nothing was heard for so long is forgotten.
    pub silence: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            clients: 64,
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
    /// Why `request` is refused, in words, if it is. `flows` are open already.
    pub fn refusal(&self, request: &Request, flows: usize) -> Option<(Reason, String)> {
        let asked = usize::from(request.upload_flows) + usize::from(request.download_flows);
        let refuse = |text: String| Some((Reason::Limit, text));
        if asked == 0 || (request.duration_nanos == 0 && request.bytes == 0) {
            let text = "a test has at least one flow, and a duration or a size";
            return Some((Reason::BadRequest, text.to_owned()));
        }
        if !PACKET_BYTES.contains(&request.packet_bytes) || request.status_millis < 20 {
            let text = "the packet size or the status interval is out of range";
            return Some((Reason::BadRequest, text.to_owned()));
        }
        if asked > self.flows_per_client {
            return refuse(format!(
                "{asked} flows, and this server takes {} a test",
                self.flows_per_client
            ));
        }
        if flows + asked > self.flows {
            let text = format!("{flows} of {} flows are in use", self.flows);
            return Some((Reason::Busy, text));
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
}

/// Sizes of packets that a test may ask for, bytes (IP).
pub const PACKET_BYTES: std::ops::RangeInclusive<u16> = 200..=65_000;

/// Grants bytes at a rate, saving up 100 ms of it at the most.
#[derive(Clone, Debug)]
pub struct Bucket {
    rate: Option<Rate>,
    full: Bytes,
    level: Bytes,
    at: Time,
}

impl Bucket {
    /// A full bucket; one without a rate grants everything.
    pub fn new(rate: Option<Rate>, now: Time) -> Self {
        let saved = rate.map_or(Bytes::ZERO, |rate| {
            rate.bytes_in(Duration::from_millis(100))
        });
        // Room for one packet of any size, or it could never leave.
        let full = saved.max(Bytes::new(1 << 16));
        Bucket {
            rate,
            full,
            level: full,
            at: now,
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
            upload_flows: 1,
            download_flows: 1,
            packet_bytes: 1400,
            status_millis: 100,
            duration_nanos: 10_000_000_000,
            bytes: 0,
            rate_bps: 0,
            seed: 1,
            scheme: "verus".to_owned(),
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
        let reason = |change: fn(&mut Request), open| {
            let mut asked = request();
            change(&mut asked);
            limits.refusal(&asked, open).map(|(reason, _)| reason)
        };
        assert_eq!(reason(|_| (), 0), None);
        assert_eq!(
            reason(|asked| asked.upload_flows = 4, 0),
            Some(Reason::Limit)
        );
        assert_eq!(reason(|_| (), 5), Some(Reason::Busy));
        let hour = |asked: &mut Request| asked.duration_nanos = 3_600_000_000_000;
        assert_eq!(reason(hour, 0), Some(Reason::Limit));
        for nonsense in [
            |asked: &mut Request| asked.duration_nanos = 0,
            |asked: &mut Request| asked.packet_bytes = 10,
            |asked: &mut Request| asked.status_millis = 0,
            |asked: &mut Request| (asked.upload_flows, asked.download_flows) = (0, 0),
        ] {
            assert_eq!(reason(nonsense, 0), Some(Reason::BadRequest));
        }
    }

    #[test]
    fn a_bucket_grants_its_rate() {
        let mut bucket = Bucket::new(Some(Rate::from_mbps(8.0)), Time::ZERO);
        let size = Bytes::new(1000); // 1 ms each
        let (mut now, mut granted) = (Time::ZERO, 0);
        while now < Time::from_millis(10_000) {
            while bucket.take(now, size) {
                granted += 1;
            }
            now = bucket.wait(now, size).expect("the bucket is empty");
        }
        assert!((10_000..10_200).contains(&granted), "{granted}");
    }
}
