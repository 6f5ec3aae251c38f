//! The yardstick: a lean event loop that shares no code with the simulator.
//!
//! It simulates the same thing, as far as a fixed topology and shortcuts go: flows of Cubic over
//! one bottleneck, a fixed delay each way, an acknowledgement for each packet. The bottleneck is
//! drop-tail or RED, with a constant rate or opportunities from a trace.
//!
//! It has only the parts that every simulator of Cubic needs. These are a heap with the next event
//! of each source, rings of fixed size, the arithmetic of the law, and a timer for each flow. It
//! also stores when each packet left, and writes a record for each arrival into a buffer that is
//! reused. Gaps in the acknowledged numbers are losses: nothing is retransmitted, and reordering is
//! ignored.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The simulated setting.
pub struct Setting {
    /// Flows.
    pub flows: usize,
    /// Propagation each way, ns.
    pub delay: u64,
    /// The duration of the run, ns.
    pub end: u64,
    /// The service of the queue.
    pub service: Service,
    /// The queue.
    pub queue: Queue,
}

/// The service of a queue.
pub enum Service {
    /// A packet takes so long, ns.
    Every(u64),
    /// A packet at each of these instants (ns), over and over, the last being the period.
    At(Vec<u64>),
}

/// The rule for drops, in packets.
pub enum Queue {
    /// Drops a packet that finds so many waiting.
    DropTail(u32),
    /// By the moving average: nothing below the first, everything from the second on, and up to so many in between.
    Red(f64, f64, f64),
}

#[derive(Clone, Copy, Default)]
struct Packet {
    due: u64,
    sent: u64,
    number: u32,
    flow: u32,
}

const SLOTS: usize = 1 << 14;
/// A mebibyte of them, as a thread that writes them away would leave.
const RECORDS: usize = 1 << 15;

/// First in, first out; at most [`SLOTS`].
struct Fifo {
    slots: Box<[Packet]>,
    taken: u32,
    put: u32,
}

impl Fifo {
    fn new() -> Self {
        Fifo {
            slots: vec![Packet::default(); SLOTS].into(),
            taken: 0,
            put: 0,
        }
    }

    #[inline]
    fn len(&self) -> u32 {
        self.put.wrapping_sub(self.taken)
    }

    #[inline]
    fn put(&mut self, packet: Packet) {
        self.slots[self.put as usize % SLOTS] = packet;
        self.put = self.put.wrapping_add(1);
    }

    #[inline]
    fn take(&mut self) -> Packet {
        let packet = self.slots[self.taken as usize % SLOTS];
        self.taken = self.taken.wrapping_add(1);
        packet
    }

    /// The time at which the first is due.
    #[inline]
    fn due(&self) -> Option<u64> {
        (self.len() > 0).then(|| self.slots[self.taken as usize % SLOTS].due)
    }
}

struct Flow {
    window: f64,
    threshold: f64,
    in_flight: u32,
    next: u32,
    /// The next number to be acknowledged, and the one whose acknowledgement ends a recovery.
    expected: u32,
    recovery_end: u32,
    smoothed_rtt: f64,
    window_max: f64,
    inflection: f64,
    epoch_start: u64,
    timer: u64,
    left_at: Box<[u64]>,
    to_receiver: Fifo,
    to_sender: Fifo,
}

#[derive(Clone, Copy, Default)]
#[allow(dead_code)]
struct Record {
    at: u64,
    sent: u64,
    number: u32,
    flow: u32,
    queued: u32,
    window: u32,
}

/// The source of the next event.
enum Source {
    Link,
    Data(u32),
    Ack(u32),
    Timer(u32),
}

/// An event's place among those of its instant, and in the lowest bits its source.
const SOURCE_BITS: u32 = 16;
const KIND_BITS: u32 = 2;

impl Source {
    #[inline]
    fn pack(self) -> u64 {
        let (kind, flow) = match self {
            Source::Link => (0, 0),
            Source::Data(flow) => (1, flow),
            Source::Ack(flow) => (2, flow),
            Source::Timer(flow) => (3, flow),
        };
        u64::from(flow) << KIND_BITS | kind
    }

    #[inline]
    fn unpack(packed: u64) -> Self {
        let flow = (packed as u32 & ((1 << SOURCE_BITS) - 1)) >> KIND_BITS;
        match packed & 3 {
            0 => Source::Link,
            1 => Source::Data(flow),
            2 => Source::Ack(flow),
            _ => Source::Timer(flow),
        }
    }
}

struct Loop<'a> {
    setting: &'a Setting,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    added: u64,
    flows: Vec<Flow>,
    queue: Fifo,
    link_set: bool,
    /// The next opportunity of a trace: which, and of which repetition.
    opportunity: usize,
    repeated: u64,
    average: f64,
    random: u64,
    records: Box<[Record]>,
    recorded: usize,
    acknowledged: u64,
}

/// Runs it; returns how many packets were acknowledged.
// Its instructions are counted by its name.
#[inline(never)]
pub fn run(setting: &Setting) -> u64 {
    let flow = || Flow {
        window: 10.0,
        threshold: f64::MAX,
        in_flight: 0,
        next: 0,
        expected: 0,
        recovery_end: 0,
        smoothed_rtt: 2.0 * setting.delay as f64,
        window_max: 0.0,
        inflection: 0.0,
        epoch_start: 0,
        timer: 0,
        left_at: vec![0; SLOTS].into(),
        to_receiver: Fifo::new(),
        to_sender: Fifo::new(),
    };
    let mut lean = Loop {
        setting,
        events: BinaryHeap::with_capacity(4 * setting.flows + 4),
        added: 0,
        flows: (0..setting.flows).map(|_| flow()).collect(),
        queue: Fifo::new(),
        link_set: false,
        opportunity: 0,
        repeated: 0,
        average: 0.0,
        random: 1,
        records: vec![Record::default(); RECORDS].into(),
        recorded: 0,
        acknowledged: 0,
    };
    for flow in 0..setting.flows {
        lean.send(flow, 0);
        lean.flows[flow].timer = 1_000_000_000;
        lean.add(1_000_000_000, Source::Timer(flow as u32));
    }
    lean.set_link(0);
    lean.run();
    lean.acknowledged
}

impl Loop<'_> {
    #[inline]
    fn add(&mut self, at: u64, source: Source) {
        self.added += 1;
        let order = self.added << SOURCE_BITS | source.pack();
        self.events.push(Reverse((at, order)));
    }

    fn run(&mut self) {
        while let Some(Reverse((now, order))) = self.events.pop() {
            if now >= self.setting.end {
                return;
            }
            match Source::unpack(order) {
                Source::Link => self.depart(now),
                Source::Data(flow) => self.answer(flow as usize, now),
                Source::Ack(flow) => self.acknowledge(flow as usize, now),
                Source::Timer(flow) => self.check_timer(flow as usize, now),
            }
        }
    }

    /// A packet leaves the queue.
    #[inline]
    fn depart(&mut self, now: u64) {
        self.link_set = false;
        if self.queue.len() > 0 {
            let mut packet = self.queue.take();
            packet.due = now + self.setting.delay;
            let pipe = &mut self.flows[packet.flow as usize].to_receiver;
            let first = pipe.len() == 0;
            pipe.put(packet);
            if first {
                self.add(packet.due, Source::Data(packet.flow));
            }
        }
        self.set_link(now);
    }

    /// Says when the link serves next: an idle one of constant rate waits for a packet.
    #[inline]
    fn set_link(&mut self, now: u64) {
        if self.link_set {
            return;
        }
        let at = match &self.setting.service {
            Service::Every(_) if self.queue.len() == 0 => return,
            Service::Every(time) => now + time,
            Service::At(times) => {
                let period = times[times.len() - 1];
                let at = self.repeated * period + times[self.opportunity];
                self.opportunity += 1;
                if self.opportunity == times.len() {
                    self.opportunity = 0;
                    self.repeated += 1;
                }
                at
            }
        };
        self.link_set = true;
        self.add(at, Source::Link);
    }

    /// A packet arrives, and is acknowledged.
    #[inline]
    fn answer(&mut self, flow: usize, now: u64) {
        let Flow {
            to_receiver,
            to_sender,
            ..
        } = &mut self.flows[flow];
        let mut packet = to_receiver.take();
        packet.due = now + self.setting.delay;
        let first = to_sender.len() == 0;
        to_sender.put(packet);
        let next = to_receiver.due();
        if first {
            self.add(packet.due, Source::Ack(flow as u32));
        }
        if let Some(next) = next {
            self.add(next, Source::Data(flow as u32));
        }
    }

    /// An acknowledgement arrives.
    #[inline]
    fn acknowledge(&mut self, flow: usize, now: u64) {
        let packet = self.flows[flow].to_sender.take();
        if let Some(next) = self.flows[flow].to_sender.due() {
            self.add(next, Source::Ack(flow as u32));
        }
        let flow_state = &mut self.flows[flow];
        flow_state.on_ack(&packet, now);
        let record = Record {
            at: now,
            sent: packet.sent,
            number: packet.number,
            flow: packet.flow,
            queued: self.queue.len(),
            window: flow_state.window as u32,
        };
        self.records[self.recorded % RECORDS] = record;
        self.recorded += 1;
        self.acknowledged += 1;
        self.send(flow, now);
        if let Service::Every(_) = self.setting.service {
            self.set_link(now);
        }
    }

    /// Sends what the window allows.
    #[inline]
    fn send(&mut self, index: usize, now: u64) {
        loop {
            let flow = &mut self.flows[index];
            if f64::from(flow.in_flight) >= flow.window {
                return;
            }
            let number = flow.next;
            flow.next += 1;
            flow.in_flight += 1;
            flow.left_at[number as usize % SLOTS] = now;
            if self.accepts() {
                self.queue.put(Packet {
                    due: 0,
                    sent: now,
                    number,
                    flow: index as u32,
                });
            }
        }
    }

    /// Whether the queue takes another packet.
    #[inline]
    fn accepts(&mut self) -> bool {
        let waiting = self.queue.len();
        match self.setting.queue {
            Queue::DropTail(most) => waiting < most,
            Queue::Red(least, most, chance) => {
                self.average += 0.002 * (f64::from(waiting) - self.average);
                if self.average <= least {
                    return true;
                }
                // A linear congruential generator (Knuth's MMIX).
                self.random = (self.random)
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let drawn = (self.random >> 11) as f64 * 0.5_f64.powi(53);
                self.average < most && drawn >= chance * (self.average - least) / (most - least)
            }
        }
    }

    /// A timer that moved is set anew; one that is due collapses the window.
    fn check_timer(&mut self, index: usize, now: u64) {
        let flow = &mut self.flows[index];
        if flow.timer <= now {
            flow.threshold = (flow.window / 2.0).max(2.0);
            flow.window = 2.0;
            flow.timer = now + 1_000_000_000;
            if self.queue.len() == 0 {
                flow.in_flight = 0;
            }
            self.send(index, now);
            self.set_link(now);
        }
        let at = self.flows[index].timer;
        self.add(at, Source::Timer(index as u32));
    }
}

impl Flow {
    /// Cubic (RFC 9438): C = 0.4, β = 0.7, and the window that Reno would have.
    #[inline]
    fn on_ack(&mut self, packet: &Packet, now: u64) {
        let skipped = packet.number - self.expected;
        self.expected = packet.number + 1;
        self.in_flight = self.in_flight.saturating_sub(skipped + 1);
        let rtt = (now - self.left_at[packet.number as usize % SLOTS]) as f64;
        self.smoothed_rtt += (rtt - self.smoothed_rtt) / 8.0;
        self.timer = now + (2.0 * self.smoothed_rtt) as u64 + 200_000_000;
        if skipped > 0 {
            if packet.number >= self.recovery_end {
                self.recovery_end = self.next;
                self.window_max = self.window;
                self.window = (self.window * 0.7).max(2.0);
                self.threshold = self.window;
                self.inflection = (self.window_max * 0.3 / 0.4).cbrt();
                self.epoch_start = now;
            }
        } else if self.window < self.threshold {
            self.window += 1.0;
        } else {
            let time = (now - self.epoch_start) as f64 / 1e9;
            let from_inflection = time - self.inflection;
            let cubic = 0.4 * from_inflection.powi(3) + self.window_max;
            let reno = self.threshold + 9.0 / 17.0 * time / (self.smoothed_rtt / 1e9);
            let target = cubic.min(1.5 * self.window).max(reno);
            self.window += (target - self.window).max(0.01) / self.window;
        }
    }
}
