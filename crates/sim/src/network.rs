//! The loop over virtual time: flows, the bottleneck they share, and the way back.
//!
//! ```text
//!  sender ──▶ random loss ──▶ queue ▶ link ──▶ propagation ──▶ receiver
//!     ▲                                                           │
//!     └── propagation ◀── link ◀ queue (or nothing: ideal) ◀── acknowledgement
//! ```
//!
//! A pipe is a FIFO with at most one pending event, so the event queue holds a handful of entries
//! however many packets are under way. Nothing is allocated per packet once the buffers have
//! grown.

use std::collections::VecDeque;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use verus_channel::path::link::Link;
use verus_core::model::Sampler;
use verus_core::receiver::{Ack, DataRange, Receiver, ReceiverConfig};
use verus_core::sender::{Counters, Sender};
use verus_core::{Bytes, Duration, Time, random};
use verus_measure::Meter;

use crate::event::{Event, EventQueue};
use crate::half::ReceiverHalf;
use crate::record::{Connection, FlowOutcome, Outcome, Records, Totals};
use crate::scenario::{Error, Plan};
use crate::traffic::{Load, Traffic, User};

/// Time between two snapshots of a delay profile, as Fig. 7b of the paper draws them ("only every
/// fifth interpolation is shown").
const SNAPSHOT_EVERY: Duration = Duration::from_secs(5);

/// What sets the seeds of one flow's connections apart: odd, with its bits spread (the golden ratio's), so that they
/// do not meet those of neighbouring flows or runs.
const CONNECTION_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// A packet under way.
#[derive(Clone, Copy, Debug)]
struct Packet {
    flow: u32,
    /// Which of the flow's connections it is of.
    connection: u32,
    number: u64,
    data: DataRange,
    record: usize,
}

/// An acknowledgement under way, with the data bytes that it answers for.
#[derive(Clone, Copy, Debug)]
struct AckPacket {
    flow: u32,
    answers: u32,
    /// The number of the report of the algorithm's receiver half; 0 where it has none.
    report: u32,
    connection: u32,
    ack: Ack,
}

/// A stretch of path with propagation delay: first in, first out, whatever happens to the delay.
#[derive(Debug)]
struct Pipe<P> {
    waiting: VecDeque<(Time, P)>,
    /// When what entered last arrives.
    last: Time,
}

impl<P> Pipe<P> {
    fn new() -> Self {
        Pipe {
            waiting: VecDeque::new(),
            last: Time::ZERO,
        }
    }

    /// Sends something on its way; returns its arrival if an event must be set for it.
    #[inline]
    fn push(&mut self, now: Time, delay: Duration, packet: P) -> Option<Time> {
        let at = (now + delay).max(self.last);
        self.last = at;
        self.waiting.push_back((at, packet));
        (self.waiting.len() == 1).then_some(at)
    }

    /// Takes what has arrived by `now`, if anything.
    #[inline]
    fn pop(&mut self, now: Time) -> Option<P> {
        if self.waiting.front()?.0 > now {
            return None;
        }
        self.waiting.pop_front().map(|(_, packet)| packet)
    }

    #[inline]
    fn next(&self) -> Option<Time> {
        self.waiting.front().map(|&(at, _)| at)
    }
}

/// A user: connections one after another, each with ends of its own. What is still under way of an earlier one when the
/// next begins uses the path and reaches nobody.
#[derive(Debug)]
struct Flow {
    user: Box<User>,
    /// Which connection this is, from 0.
    connection: u32,
    /// What the connection that began last, or that begins next, is to carry.
    load: Load,
    /// Where it is in the list of connections, if it is listed.
    listed: Option<usize>,
    /// Bytes of its file that have not been delivered; counts down from all there are where it has no file.
    missing: u64,
    /// For when its end is set; [`Time::MAX`] if only its file or the run ends it.
    pause_at: Time,
    /// Whether it is on, and whether it has been stopped for good.
    on: bool,
    stopped: bool,
    /// What the senders of earlier connections counted.
    earlier: Box<Counters>,
    sender: Sender,
    receiver: Receiver,
    /// The receiver half of the algorithm, where it has one.
    half: Option<Box<ReceiverHalf>>,
    forward: Pipe<Packet>,
    back: Pipe<AckPacket>,
    delay: Duration,
    /// For when the sender's timer event is set; [`Time::MAX`] if none is.
    timer: Time,
    receiver_timer: Time,
    /// Data bytes received and not yet acknowledged.
    unanswered: u32,
    /// Whether its sender's values are sampled.
    shown: bool,
}

/// A run in progress.
struct Network<'a> {
    plan: &'a Plan,
    events: EventQueue,
    flows: Vec<Flow>,
    outcomes: Vec<FlowOutcome>,
    connections: Vec<Connection>,
    link: Link<Packet>,
    link_set: bool,
    ack_link: Option<Link<AckPacket>>,
    ack_link_set: bool,
    /// Whether a packet's arrival and that of its acknowledgement are one event. A receiver that
    /// answers each packet at once, over a way back of fixed length, does nothing that anyone
    /// could notice in between, unless a receiver half has a clock of its own, or a connection ends or
    /// begins.
    direct: bool,
    loss: f64,
    /// Each flow draws its losses from a stream of its own: its n-th packet meets the same draw
    /// whatever the others do.
    loss_draws: Vec<ChaCha8Rng>,
    meter: Meter,
    records: Option<Records>,
    /// Where each flow's packets are in the records, by packet number.
    record_of: Vec<Vec<usize>>,
    network_bytes: u64,
    totals: Totals,
    packet_size: Bytes,
    ack_size: Bytes,
}

/// The ends of one connection of a flow, which know nothing of those before.
struct Ends {
    sender: Sender,
    receiver: Receiver,
    half: Option<Box<ReceiverHalf>>,
}

impl Ends {
    fn new(plan: &Plan, flow: usize, connection: u32, now: Time) -> Self {
        let scenario = &plan.scenario;
        let scheme = &plan.schemes[flow];
        // A stream for each connection, the first being that of a flow that has only one.
        let seed = (scenario.seed.wrapping_add(flow as u64))
            .wrapping_add(u64::from(connection).wrapping_mul(CONNECTION_SEED));
        let packet_size = Bytes::new(u64::from(scenario.packet_bytes));
        Ends {
            sender: Sender::new(scheme.build(seed), packet_size, now),
            receiver: Receiver::new(ReceiverConfig {
                ack_every: scenario.ack_every,
                ..Default::default()
            }),
            half: scheme
                .observer()
                .map(|half| Box::new(ReceiverHalf::new(half))),
        }
    }
}

impl Plan {
    /// Runs the scenario. `progress` hears the fraction done, about a hundred times, and stops the
    /// run by returning `false`.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if `progress` said so.
    pub fn run(&self, progress: &mut dyn FnMut(f64) -> bool) -> Result<Outcome, Error> {
        Network::new(self).run(progress)
    }
}

impl<'a> Network<'a> {
    fn new(plan: &'a Plan) -> Self {
        let scenario = &plan.scenario;
        let packet_size = Bytes::new(u64::from(scenario.packet_bytes));
        let mut events = EventQueue::default();
        // Added before the flows, so that a change at the instant of a start comes first.
        for (index, change) in scenario.changes.iter().enumerate() {
            events.push(
                Time::from_secs_f64(change.at_s),
                Event::Change(index as u32),
            );
        }
        let mut flows = Vec::with_capacity(scenario.flows.len());
        let mut outcomes = Vec::with_capacity(scenario.flows.len());
        for (index, spec) in scenario.flows.iter().enumerate() {
            let mut user = plan.traffic[index].user(scenario.seed, index as u64);
            let first = user.next();
            let (pause, load) = first.expect("all traffic has a first connection");
            let start = Time::from_secs_f64(spec.start_s) + pause;
            let ends = Ends::new(plan, index, 0, start);
            flows.push(Flow {
                user: Box::new(user),
                connection: 0,
                load,
                listed: None,
                missing: u64::MAX,
                pause_at: Time::MAX,
                on: false,
                stopped: false,
                earlier: Box::default(),
                sender: ends.sender,
                receiver: ends.receiver,
                half: ends.half,
                forward: Pipe::new(),
                back: Pipe::new(),
                delay: Duration::from_millis_f64(spec.delay_ms.unwrap_or(scenario.delay_ms)),
                timer: Time::MAX,
                receiver_timer: Time::MAX,
                unanswered: 0,
                shown: false,
            });
            outcomes.push(FlowOutcome {
                scheme: spec.scheme.clone(),
                epochs: scenario.epochs.then(Sampler::new),
                ..Default::default()
            });
            events.push(start, Event::Start(index as u32));
            if let Some(stop) = spec.stop_s {
                events.push(Time::from_secs_f64(stop), Event::Stop(index as u32));
            }
        }
        let halves = flows.iter().any(|flow| flow.half.is_some());
        let base_rtt: Vec<Duration> = flows.iter().map(|flow| flow.delay * 2).collect();
        let stream = |purpose, index| random::stream(scenario.seed, purpose, index);
        let bin = Duration::from_millis_f64(scenario.bin_ms);
        let mut meter = Meter::new(flows.len(), &base_rtt, bin);
        for (index, traffic) in plan.traffic.iter().enumerate() {
            if traffic.is_files() {
                meter.expect_files(index);
            }
        }
        Network {
            plan,
            meter,
            events,
            flows,
            outcomes,
            connections: Vec::new(),
            link: Link::new(
                plan.paths.service.clone(),
                &plan.paths.queue,
                stream("queue", 0),
            ),
            link_set: false,
            ack_link: plan
                .paths
                .ack
                .as_ref()
                .map(|(service, queue)| Link::new(service.clone(), queue, stream("queue", 1))),
            ack_link_set: false,
            direct: plan.paths.ack.is_none()
                && scenario.ack_every == 1
                && !halves
                && plan.traffic.iter().all(|traffic| *traffic == Traffic::Full)
                && scenario
                    .changes
                    .iter()
                    .all(|change| change.delay_ms.is_none()),
            loss: scenario.loss,
            loss_draws: (0..scenario.flows.len() as u64)
                .map(|index| stream("loss", index))
                .collect(),
            records: scenario.records.then(Records::default),
            record_of: vec![Vec::new(); scenario.flows.len()],
            network_bytes: 0,
            totals: Totals::default(),
            packet_size,
            ack_size: Bytes::new(u64::from(scenario.ack_bytes)),
        }
    }

    fn run(mut self, progress: &mut dyn FnMut(f64) -> bool) -> Result<Outcome, Error> {
        let scenario = &self.plan.scenario;
        let end = Time::from_secs_f64(scenario.duration_s);
        let bin = Duration::from_millis_f64(scenario.bin_ms);
        let hundredth = Duration::from_secs_f64(scenario.duration_s / 100.0);
        let every = if scenario.series {
            bin
        } else {
            hundredth.max(Duration::from_nanos(1))
        };
        let mut next_told = Time::ZERO + hundredth;
        let mut next_snapshot = Time::ZERO + SNAPSHOT_EVERY;
        self.meter.reserve(end);
        self.events.push(Time::ZERO + every, Event::Sample);
        while let Some((now, event)) = self.events.pop() {
            if now > end {
                break;
            }
            self.totals.events += 1;
            match event {
                Event::Data(flow) => self.on_data(now, flow as usize),
                Event::Ack(flow) => self.on_ack(now, flow as usize),
                Event::Departure => self.on_departure(now),
                Event::ObserverTimer(flow) => self.on_observer_timer(now, flow as usize),
                Event::SenderTimer(flow) => self.on_sender_timer(now, flow as usize),
                Event::ReceiverTimer(flow) => self.on_receiver_timer(now, flow as usize),
                Event::AckDeparture => self.on_ack_departure(now),
                Event::Start(flow) => self.on_start(now, flow as usize),
                Event::Pause(flow) => self.on_pause(now, flow as usize),
                Event::Stop(flow) => self.on_stop(now, flow as usize),
                Event::Change(index) => self.on_change(index as usize),
                Event::Sample => {
                    if scenario.series {
                        self.sample();
                        if now >= next_snapshot {
                            next_snapshot += SNAPSHOT_EVERY;
                            self.snapshot(now);
                        }
                    }
                    if now >= next_told {
                        next_told = now + hundredth;
                        if !progress(now.as_secs_f64() / scenario.duration_s) {
                            return Err(Error::Cancelled);
                        }
                    }
                    self.events.push(now + every, Event::Sample);
                }
            }
        }
        progress(1.0);
        Ok(self.finish(end, bin))
    }

    fn finish(mut self, end: Time, bin: Duration) -> Outcome {
        if self.direct {
            self.receive_last(end);
        }
        self.totals.network_bytes = self.network_bytes;
        for (flow, outcome) in self.flows.iter().zip(&mut self.outcomes) {
            outcome.counters = *flow.earlier + *flow.sender.counters();
            if let Some(sampler) = &mut outcome.epochs {
                sampler.close(end);
            }
        }
        for index in 0..self.flows.len() {
            self.note_delivered(index);
        }
        let bins = if self.plan.scenario.series {
            end.as_nanos().div_ceil(bin.as_nanos())
        } else {
            0
        };
        let capacity_mbps = (0..bins)
            .map(|index| {
                let from = Time::ZERO + bin * index;
                let to = (from + bin).min(end);
                (self.link.capacity(from, to) / to.since(from)).as_mbps()
            })
            .collect();
        let link = &self.link;
        Outcome {
            metrics: self.meter.finish(end, |from, to| link.capacity(from, to)),
            channel: self.plan.paths.channel.clone(),
            ack_channel: self.plan.paths.ack_channel.clone(),
            flows: self.outcomes,
            connections: self.connections,
            capacity_mbps,
            bin_ms: bin.as_millis_f64(),
            records: self.records,
            totals: self.totals,
        }
    }

    /// The connection that is due begins.
    fn on_start(&mut self, now: Time, index: usize) {
        if self.flows[index].stopped {
            return;
        }
        if self.flows[index].listed.is_some() {
            self.renew(now, index);
        }
        let flow = &mut self.flows[index];
        (flow.on, flow.shown) = (true, true);
        flow.missing = match flow.load {
            Load::File(bytes) => {
                flow.sender.offer(bytes);
                bytes.get()
            }
            Load::Endless | Load::For(_) => {
                flow.sender.offer_bulk();
                u64::MAX
            }
        };
        if let Load::For(time) = flow.load {
            flow.pause_at = now + time;
            self.events.push(flow.pause_at, Event::Pause(index as u32));
        }
        if flow.load != Load::Endless {
            flow.listed = Some(self.connections.len());
            self.connections.push(Connection {
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
        self.meter.set_active(now, index, true);
        if self.flows[index].missing == 0 {
            self.complete(now, index);
        }
        self.pump(now, index);
    }

    /// Gives a flow ends that know nothing of its connections before.
    #[cold]
    fn renew(&mut self, now: Time, index: usize) {
        self.note_delivered(index);
        let flow = &mut self.flows[index];
        flow.connection += 1;
        *flow.earlier = *flow.earlier + *flow.sender.counters();
        let ends = Ends::new(self.plan, index, flow.connection, now);
        (flow.sender, flow.receiver, flow.half) = (ends.sender, ends.receiver, ends.half);
        // The receiver that was to acknowledge these is gone.
        self.network_bytes -= u64::from(std::mem::take(&mut flow.unanswered));
        self.record_of[index].clear();
        self.cut_epochs(now, index);
    }

    /// The clock ends a connection.
    fn on_pause(&mut self, now: Time, index: usize) {
        let flow = &mut self.flows[index];
        if !flow.on || flow.pause_at != now {
            return; // it was stopped before
        }
        flow.sender.stop();
        self.cut_epochs(now, index);
        self.end_connection(now, index);
    }

    /// All of a connection's file has arrived.
    #[cold]
    fn complete(&mut self, now: Time, index: usize) {
        if let Some(at) = self.flows[index].listed {
            let took = now.since(self.connections[at].start);
            self.meter.on_completion(index, took);
        }
        self.end_connection(now, index);
    }

    /// A connection has done what it was for: its user goes off, until the next.
    fn end_connection(&mut self, now: Time, index: usize) {
        self.meter.set_active(now, index, false);
        let flow = &mut self.flows[index];
        flow.on = false;
        if let Some(at) = flow.listed {
            self.connections[at].end = Some(now);
        }
        if let Some((pause, load)) = flow.user.next() {
            flow.load = load;
            flow.shown = false;
            self.events.push(now + pause, Event::Start(index as u32));
        }
    }

    /// Writes down what the connection that is about to be forgotten delivered.
    fn note_delivered(&mut self, index: usize) {
        let flow = &self.flows[index];
        if let Some(at) = flow.listed {
            let connection = &mut self.connections[at];
            let whole = connection.file.map_or(u64::MAX, Bytes::get);
            connection.delivered = Bytes::new(whole - flow.missing);
        }
    }

    fn cut_epochs(&mut self, now: Time, index: usize) {
        if let Some(sampler) = &mut self.outcomes[index].epochs {
            sampler.close(now);
            sampler.cut();
        }
    }

    fn on_stop(&mut self, now: Time, index: usize) {
        self.flows[index].sender.stop();
        self.cut_epochs(now, index);
        let flow = &mut self.flows[index];
        (flow.on, flow.stopped) = (false, true);
        self.meter.set_active(now, index, false);
    }

    fn on_change(&mut self, index: usize) {
        // The rate is part of the link's own schedule.
        let change = &self.plan.scenario.changes[index];
        if let Some(loss) = change.loss {
            self.loss = loss;
        }
        if let Some(delay) = change.delay_ms {
            for flow in &mut self.flows {
                flow.delay = Duration::from_millis_f64(delay);
            }
        }
    }

    /// Lets a sender send what it may, and sets its timer.
    #[inline]
    fn pump(&mut self, now: Time, index: usize) {
        let mut sent = false;
        if let Some(sampler) = &mut self.outcomes[index].epochs {
            sampler.align(now, self.flows[index].sender.controller().next_tick());
        }
        while let Some(transmit) = self.flows[index].sender.poll_transmit(now) {
            sent = true;
            if let Some(sampler) = &mut self.outcomes[index].epochs {
                sampler.on_sent(now);
            }
            self.meter
                .on_sent(index, transmit.size, transmit.retransmission);
            self.meter.on_arrival(now, index, transmit.size);
            let record = self.record(now, index, &transmit);
            if let Some(half) = &mut self.flows[index].half {
                half.on_sent(transmit.number, transmit.stamp);
            }
            let packet = Packet {
                flow: index as u32,
                connection: self.flows[index].connection,
                number: transmit.number,
                data: transmit.data,
                record,
            };
            let lost = self.loss > 0.0 && self.loss_draws[index].random::<f64>() < self.loss;
            if lost || self.link.enqueue(now, transmit.size, packet).is_err() {
                self.meter.on_drop(now, index, transmit.size);
                if let Some(records) = &mut self.records {
                    records.dropped_ms[record] = now.as_millis_f64();
                }
            } else {
                self.network_bytes += transmit.size.get();
            }
        }
        if sent {
            self.totals.peak_network_bytes = self.totals.peak_network_bytes.max(self.network_bytes);
            let window = self.flows[index].sender.controller().window().get();
            self.totals.peak_window_bytes = self.totals.peak_window_bytes.max(window);
            self.set_link();
        }
        self.set_timer(index);
        if let Some(sampler) = &mut self.outcomes[index].epochs {
            sampler.set_under_way(!self.flows[index].sender.in_flight().is_zero());
            if self.flows[index].sender.is_idle() {
                sampler.close(now);
                sampler.cut();
            }
        }
    }

    #[inline]
    fn set_link(&mut self) {
        if !self.link_set
            && let Some(at) = self.link.next_departure()
        {
            self.link_set = true;
            self.events.push(at, Event::Departure);
        }
    }

    #[inline]
    fn set_timer(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        // A timer that moved later is found out when its event comes; only an earlier one needs
        // an event of its own.
        if let Some(at) = flow.sender.next_timer()
            && at < flow.timer
        {
            flow.timer = at;
            self.events.push(at, Event::SenderTimer(index as u32));
        }
    }

    fn on_departure(&mut self, now: Time) {
        self.link_set = false;
        while self.link.next_departure().is_some_and(|at| at <= now) {
            let (meter, records, network_bytes) =
                (&mut self.meter, &mut self.records, &mut self.network_bytes);
            let departed = self.link.depart(now, |dropped| {
                let packet = dropped.packet;
                meter.on_drop(now, packet.flow as usize, dropped.size);
                *network_bytes -= dropped.size.get();
                if let Some(records) = records {
                    records.dropped_ms[packet.record] = now.as_millis_f64();
                }
            });
            let Some(departed) = departed else { continue };
            let packet = departed.packet;
            let index = packet.flow as usize;
            self.meter
                .on_departure(now, index, departed.size, departed.entered);
            if let Some(records) = &mut self.records {
                records.departed_ms[packet.record] = now.as_millis_f64();
            }
            let flow = &mut self.flows[index];
            if self.direct {
                if let Some(at) = flow.forward.push(now, flow.delay * 2, packet) {
                    self.events.push(at, Event::Ack(packet.flow));
                }
            } else if let Some(at) = flow.forward.push(now, flow.delay, packet) {
                self.events.push(at, Event::Data(packet.flow));
            }
        }
        self.set_link();
    }

    fn on_data(&mut self, now: Time, index: usize) {
        while let Some(packet) = self.flows[index].forward.pop(now) {
            if self.receive(now, index, &packet) {
                self.acknowledge(now, index);
            }
        }
        if let Some(at) = self.flows[index].forward.next() {
            self.events.push(at, Event::Data(index as u32));
        }
    }

    /// Sends the acknowledgement that is due, or sets a timer for it.
    #[inline]
    fn acknowledge(&mut self, now: Time, index: usize) {
        let flow = &mut self.flows[index];
        let Some(ack) = flow.receiver.poll_ack(now) else {
            if let Some(at) = flow.receiver.next_timer()
                && at < flow.receiver_timer
            {
                flow.receiver_timer = at;
                self.events.push(at, Event::ReceiverTimer(index as u32));
            }
            return;
        };
        let answers = std::mem::take(&mut flow.unanswered);
        let packet = AckPacket {
            flow: index as u32,
            answers,
            report: flow.half.as_mut().map_or(0, |half| half.report()),
            connection: flow.connection,
            ack,
        };
        match &mut self.ack_link {
            None => {
                if let Some(at) = flow.back.push(now, flow.delay, packet) {
                    self.events.push(at, Event::Ack(index as u32));
                }
            }
            Some(link) => {
                if link.enqueue(now, self.ack_size, packet).is_err() {
                    self.network_bytes -= u64::from(answers);
                }
                self.set_ack_link();
            }
        }
    }

    fn on_receiver_timer(&mut self, now: Time, index: usize) {
        if self.flows[index].receiver_timer != now {
            return; // an earlier timer has taken its place
        }
        self.flows[index].receiver_timer = Time::MAX;
        self.acknowledge(now, index);
    }

    fn on_observer_timer(&mut self, now: Time, index: usize) {
        let Some(half) = &mut self.flows[index].half else {
            return;
        };
        if half.timer != now {
            return; // an earlier timer has taken its place
        }
        half.timer = Time::MAX;
        if half.observer.next_tick().is_some_and(|at| at <= now) {
            half.observer.on_tick(now);
        }
        self.set_observer_timer(index);
    }

    fn set_observer_timer(&mut self, index: usize) {
        if let Some(half) = &mut self.flows[index].half
            && let Some(at) = half.observer.next_tick()
            && at < half.timer
        {
            half.timer = at;
            self.events.push(at, Event::ObserverTimer(index as u32));
        }
    }

    fn set_ack_link(&mut self) {
        if let Some(link) = &self.ack_link
            && !self.ack_link_set
            && let Some(at) = link.next_departure()
        {
            self.ack_link_set = true;
            self.events.push(at, Event::AckDeparture);
        }
    }

    fn on_ack_departure(&mut self, now: Time) {
        self.ack_link_set = false;
        let Some(link) = &mut self.ack_link else {
            return;
        };
        while link.next_departure().is_some_and(|at| at <= now) {
            let network_bytes = &mut self.network_bytes;
            let departed = link.depart(now, |dropped| {
                *network_bytes -= u64::from(dropped.packet.answers);
            });
            let Some(departed) = departed else { continue };
            let packet = departed.packet;
            let flow = &mut self.flows[packet.flow as usize];
            if let Some(at) = flow.back.push(now, flow.delay, packet) {
                self.events.push(at, Event::Ack(packet.flow));
            }
        }
        self.set_ack_link();
    }

    /// A packet reaches the receiver; whether there is still one.
    #[inline]
    fn receive(&mut self, now: Time, index: usize, packet: &Packet) -> bool {
        let flow = &mut self.flows[index];
        if packet.connection != flow.connection {
            self.network_bytes -= self.packet_size.get();
            if let Some(records) = &mut self.records {
                records.received_ms[packet.record] = now.as_millis_f64();
            }
            return false;
        }
        let new = flow.receiver.on_packet(now, packet.number, packet.data);
        flow.unanswered += self.packet_size.get() as u32;
        flow.missing -= new.get();
        let complete = flow.on && flow.missing == 0;
        if let Some(half) = &mut flow.half {
            half.on_packet(now, packet.number, self.packet_size);
            self.set_observer_timer(index);
        }
        self.meter.on_delivery(now, index, new);
        if let Some(records) = &mut self.records {
            records.received_ms[packet.record] = now.as_millis_f64();
            records.new_bytes[packet.record] = new.get() as u32;
        }
        if complete {
            self.complete(now, index);
        }
        true
    }

    /// An acknowledgement that answers for `answers` bytes reaches the sender, with the report of
    /// this number.
    #[inline]
    fn hear(&mut self, now: Time, index: usize, ack: &Ack, answers: u32, report: u32) {
        self.network_bytes -= u64::from(answers);
        let flow = &mut self.flows[index];
        let report = flow.half.as_mut().and_then(|half| half.hear(report));
        flow.sender
            .on_ack(now, ack, report)
            .expect("the simulated receiver acknowledges what arrived");
        let revealed = flow.sender.last_revealed();
        for acked in &revealed.acked {
            self.meter.on_rtt(index, acked.rtt);
        }
        if let Some(sampler) = &mut self.outcomes[index].epochs {
            for acked in revealed.acked.iter().chain(&revealed.recovered) {
                sampler.on_acked(now, acked.rtt);
            }
        }
        if self.records.is_some() {
            self.record_acked(now, index);
        }
    }

    fn on_ack(&mut self, now: Time, index: usize) {
        if self.direct {
            while let Some(packet) = self.flows[index].forward.pop(now) {
                let received = now - self.flows[index].delay;
                if !self.receive(received, index, &packet) {
                    continue;
                }
                let flow = &mut self.flows[index];
                let answers = std::mem::take(&mut flow.unanswered);
                if let Some(ack) = flow.receiver.poll_ack(received) {
                    self.hear(now, index, &ack, answers, 0);
                }
            }
            if let Some(at) = self.flows[index].forward.next() {
                self.events.push(at, Event::Ack(index as u32));
            }
        } else {
            while let Some(packet) = self.flows[index].back.pop(now) {
                if packet.connection != self.flows[index].connection {
                    self.network_bytes -= u64::from(packet.answers);
                    continue;
                }
                self.hear(now, index, &packet.ack, packet.answers, packet.report);
            }
            if let Some(at) = self.flows[index].back.next() {
                self.events.push(at, Event::Ack(index as u32));
            }
        }
        self.pump(now, index);
    }

    /// At the end of a run: packets that have reached the receiver, with their answers still on the
    /// way.
    fn receive_last(&mut self, end: Time) {
        for index in 0..self.flows.len() {
            let delay = self.flows[index].delay;
            while let Some(at) = self.flows[index].forward.next()
                && let Some(packet) = self.flows[index].forward.pop(end + delay)
            {
                self.receive(at - delay, index, &packet);
            }
        }
    }

    fn on_sender_timer(&mut self, now: Time, index: usize) {
        let flow = &mut self.flows[index];
        if flow.timer != now {
            return; // an earlier timer has taken its place
        }
        flow.timer = Time::MAX;
        if flow.sender.next_timer().is_some_and(|at| at <= now) {
            flow.sender.on_timer(now);
            self.pump(now, index);
        } else {
            self.set_timer(index);
        }
    }

    /// One value a bin of what the senders show of themselves.
    fn sample(&mut self) {
        for (flow, outcome) in self.flows.iter().zip(&mut self.outcomes) {
            let mut at = 0;
            let mut record = |name: &'static str, value: f64| {
                if outcome.columns.len() == at {
                    outcome.columns.push(name);
                    outcome.samples.push(Vec::new());
                }
                outcome.samples[at].push(if flow.shown { value } else { f64::NAN });
                at += 1;
            };
            let controller = flow.sender.controller();
            record("window_bytes", controller.window().as_f64());
            record("in_flight_bytes", flow.sender.in_flight().as_f64());
            controller.probe(&mut record);
        }
    }

    fn snapshot(&mut self, now: Time) {
        for (flow, outcome) in self.flows.iter().zip(&mut self.outcomes) {
            if let Some(profile) = flow.sender.controller().profile()
                && flow.shown
            {
                outcome.profiles.push((now, profile));
            }
        }
    }

    /// Begins a packet's record; returns its index.
    #[inline]
    fn record(
        &mut self,
        now: Time,
        index: usize,
        transmit: &verus_core::sender::Transmit,
    ) -> usize {
        let Some(records) = &mut self.records else {
            return 0;
        };
        records.flow.push(index as u32);
        records.connection.push(self.flows[index].connection);
        records.number.push(transmit.number);
        records.size_bytes.push(transmit.size.get() as u32);
        records
            .window_bytes
            .push(self.flows[index].sender.controller().window().as_f64());
        records.retransmission.push(transmit.retransmission);
        records.sent_ms.push(now.as_millis_f64());
        records.departed_ms.push(f64::NAN);
        records.received_ms.push(f64::NAN);
        records.new_bytes.push(0);
        records.acked_ms.push(f64::NAN);
        records.dropped_ms.push(f64::NAN);
        self.record_of[index].push(records.flow.len() - 1);
        records.flow.len() - 1
    }

    fn record_acked(&mut self, now: Time, index: usize) {
        let Some(records) = &mut self.records else {
            return;
        };
        let revealed = self.flows[index].sender.last_revealed();
        for acked in revealed.acked.iter().chain(&revealed.recovered) {
            let record = self.record_of[index][acked.packet.number as usize];
            records.acked_ms[record] = now.as_millis_f64();
        }
    }
}
