//! A path, and a sender on it that obeys the law's window. Together they produce realistic events,
//! equal for equal seeds.

use std::collections::VecDeque;

use crate::law::{Acknowledgement, Answer, Event};

const MS: u64 = 1_000_000;
const PACKET: u64 = 1500;

/// A path with one bottleneck, and the disturbances on it.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// The seed of the random draws.
    pub seed: u64,
    /// The round trip without a queue, ms.
    pub base_ms: u64,
    /// The link's mean rate, kbit/s.
    pub rate_kbps: u64,
    /// The interval between random changes of the rate, ms; 0: the rate is constant.
    pub changes_ms: u64,
    /// The longest queue, ms at the mean rate.
    pub buffer_ms: u64,
    /// One packet in this many is lost at random; 0: none.
    pub loses: u64,
    /// One packet in this many is marked; 0: none.
    pub marks: u64,
    /// The time from which on the path is longer by half, ms; 0: never.
    pub longer_from_ms: u64,
    /// The standing queue of other flows, in every second period of 3 s, whatever this flow does;
    /// ms.
    pub others_ms: u64,
    /// The length of the link's outage in every 10 s, ms.
    pub outage_ms: u64,
    /// Whether the source has nothing to send in every fourth second.
    pub pauses: bool,
}

/// A random generator (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Whether an event of probability 1/n occurs; with 0, never.
    fn once_in(&mut self, n: u64) -> bool {
        n > 0 && self.next().is_multiple_of(n)
    }
}

/// A packet in flight.
struct Packet {
    sent: u64,
    /// When its acknowledgement arrives, or its loss is detected.
    acked_at: u64,
    lost: bool,
    marked: bool,
    app_limited: bool,
}

impl Path {
    /// Plays `duration_ms` of the path. `answer` handles each event, and its result limits the data
    /// in flight.
    pub fn play(&self, duration_ms: u64, mut answer: impl FnMut(Event) -> Answer) {
        let mut draws = Draws(self.seed);
        let mut flight: VecDeque<Packet> = VecDeque::new();
        let (mut now, mut free, mut last_acked_at) = (0, 0, 0);
        let (mut rate, mut rate_period) = (self.rate_kbps, 0);
        let (mut smoothed, mut lost, mut lost_sent) = (0, 0, 0);
        let mut allowed = 10 * PACKET;
        while now < duration_ms * MS {
            // Packets leave up to the limit.
            let paused = self.pauses && now / (1000 * MS) % 4 == 3;
            while !paused && (flight.len() as u64 + 1) * PACKET <= allowed.max(PACKET) {
                if self.changes_ms > 0 && now / (self.changes_ms * MS) != rate_period {
                    rate_period = now / (self.changes_ms * MS);
                    rate = self.rate_kbps * (20 + draws.next() % 160) / 100;
                }
                let mut begins = now.max(free);
                let within = begins % (10_000 * MS);
                if within < self.outage_ms * MS {
                    begins += self.outage_ms * MS - within;
                }
                let full = begins - now > self.buffer_ms.max(self.outage_ms) * MS;
                let lost = full || draws.once_in(self.loses);
                let mut acked_at = begins + self.base_ms * MS;
                if self.longer_from_ms > 0 && now >= self.longer_from_ms * MS {
                    acked_at += self.base_ms / 2 * MS;
                }
                if now / (3000 * MS) % 2 == 1 {
                    acked_at += self.others_ms * MS;
                }
                if !full {
                    free = begins + PACKET * 8 * MS / rate.max(1);
                    acked_at += free - begins;
                }
                flight.push_back(Packet {
                    sent: now,
                    acked_at: acked_at.max(last_acked_at),
                    lost,
                    marked: draws.once_in(self.marks),
                    app_limited: self.pauses && now / (1000 * MS) % 4 == 2,
                });
                last_acked_at = acked_at.max(last_acked_at);
            }
            // The next acknowledgement or loss follows, or a timeout after a second of silence.
            let Some(next) = flight.front() else {
                now += 100 * MS;
                continue;
            };
            if next.acked_at > now + 1000 * MS {
                now += 1000 * MS;
                allowed = answer(Event::Timeout { now }).allowed.unwrap_or(0);
                continue;
            }
            now = now.max(next.acked_at);
            // An acknowledgement covers all arrivals within a millisecond.
            let before = flight.len() as u64 * PACKET;
            let (mut acked, mut marked, mut newest) = (0, 0, None);
            while flight
                .front()
                .is_some_and(|packet| packet.acked_at <= now + MS)
            {
                let packet = flight.pop_front().expect("there is one");
                if packet.lost {
                    lost += PACKET;
                    lost_sent = packet.sent;
                    continue;
                }
                acked += PACKET;
                marked += u64::from(packet.marked);
                newest = Some(packet);
            }
            let Some(newest) = newest else { continue };
            now = now.max(newest.acked_at);
            let rtt = now - newest.sent;
            smoothed = if smoothed == 0 {
                rtt
            } else {
                smoothed - smoothed / 8 + rtt / 8
            };
            let answered = answer(Event::Acknowledged(Acknowledgement {
                now,
                sent: newest.sent,
                rtt,
                acked,
                lost: std::mem::take(&mut lost),
                marked,
                smoothed_rtt: smoothed,
                in_flight: before,
                app_limited: newest.app_limited,
                lost_sent,
            }));
            allowed = answered.allowed.unwrap_or(0);
        }
    }
}
