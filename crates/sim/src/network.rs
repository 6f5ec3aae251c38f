//! The loop over virtual time: users, the path of their data, and the path back.
//!
//! ```text
//!            send                                           receive
//!  sender ──────────▶ data: loss ▶ queue ▶ link ▶ delay ──────────▶ receiver
//!     ▲                                                                 │
//!     └───────── delay ◀ (queue ◀ link) :acks ◀─────────────────────────┘
//!  on_acknowledgement                                acknowledge
//! ```
//!
//! Each arrow ends in a method of this file. [`Path`]s hold the packets under way, [`Flow`]s the
//! two ends of each user, and [`Observers`] record events. A path has at most one pending event for
//! its links and one for each pipe with packets under way. So the event queue holds a handful of
//! entries for any number of packets. Nothing is allocated per packet once the buffers have grown.
//!
//! Links are served late: only when the next packet is sent to them, or when a packet that left
//! them arrives, since nothing depends on them before. Each departure still counts as of the
//! instant when it was due. So a packet takes one event, its arrival.

use std::io;
use std::sync::Arc;

use verus_channel::path::delay::Flight;
use verus_channel::path::{Dropped, Watch};
use verus_channel::{Medium, Path, PathConfig, Schedule, Way};
use verus_core::receiver::Ack;
use verus_core::{Bytes, Duration, Ecn, Time};
use verus_measure::Metrics;
use verus_measure::qlog::{Qlog, Written};
use verus_senders::Sender;

use crate::connection::{Ends, Flow, Phase};
use crate::event::{Event, EventQueue};
use crate::guard::{MOST_AT_ONCE, caught, stuck, too_many};
use crate::observe::Observers;
use crate::observe::packets::Tap;
use crate::packet::{AckPacket, DataPacket, Says};
use crate::pages::ASK_AGAIN;
use crate::plan::Plan;
use crate::record::{Outcome, Records};
use crate::scenario::Error;
use crate::timer::Timer;
use crate::traffic::{Load, Traffic};

/// Why an acknowledgement cannot be false.
const HONEST: &str = "the simulated receiver acknowledges what arrived";

/// The outcome of a run, the results of writing each flow's log, and that of its tap.
pub type Observed = (Outcome, Vec<io::Result<Written>>, io::Result<()>);

/// A run in progress.
struct Network {
    plan: Arc<Plan>,
    end: Time,
    /// Interval at which time series are sampled and progress is checked.
    every: Duration,
    /// Interval at which progress is reported: a hundredth of the run.
    hundredth: Duration,
    next_told: Time,
    events: EventQueue,
    flows: Vec<Flow>,
    data: Direction<DataPacket>,
    acks: Direction<AckPacket>,
    /// Medium that both directions share, and the timer of its next transmission.
    medium: Option<(Medium, Timer)>,
    /// For each pipe of the data's path, a timer for its next arrival, on paths where a packet may arrive before one
    /// whose event is set already; on others empty.
    data_timers: Vec<Timer>,
    ack_timers: Vec<Timer>,
    /// Propagation delay of the acknowledgements of packets that come through each pipe, in runs in which a packet's
    /// arrival and its acknowledgement's are one event; see [`Plan::answers_are_certain`].
    certain: Option<Vec<Duration>>,
    /// The flows whose senders receive something at this instant.
    acknowledged: Vec<usize>,
    observers: Observers,
    /// Data packets sent so far, as [`DataPacket::id`] counts them.
    sent: u32,
    /// Whether the path may send a data packet on twice.
    duplicates: bool,
    /// The instant of the event under way, and the flow that it came to: where a controller is that panics.
    now: Time,
    at: usize,
    /// The mistake of a controller, and its flow, until the run ends by it.
    wrong: Option<(usize, String)>,
    /// How many events there will have been when to [`look`](Self::look) whether the run may go on.
    next_look: u64,
}

/// A path, and the event to serve its links.
struct Direction<P> {
    path: Path<P>,
    /// Moves to an earlier time where a packet comes that leaves before those in the links: over the first of two links,
    /// or as the first of a short train.
    service: Timer,
    /// The least time from a packet's departure from the links to the first event that depends on it, less 1 ns.
    foresight: Duration,
}

impl Plan {
    /// Runs the scenario. `progress` is called with the fraction done, about a hundred times at most, and cancels the
    /// run by returning `false`.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if `progress` said so, [`Error::Controller`] if a controller gave up.
    pub fn run(&self, progress: &mut dyn FnMut(f64) -> bool) -> Result<Outcome, Error> {
        let (outcome, ..) = self.run_logged(Vec::new(), None, progress)?;
        Ok(outcome)
    }

    /// Runs the scenario, with a log of what each flow's sender does, and a tap of the bottleneck; returns the results of
    /// writing these, too.
    ///
    /// # Errors
    /// As [`run`](Self::run). A log or a capture that cannot be written does not end the run.
    ///
    /// # Panics
    /// If there are logs, but not exactly one for each flow.
    pub fn run_logged(
        &self,
        logs: Vec<Qlog>,
        tap: Option<Box<dyn Tap>>,
        progress: &mut dyn FnMut(f64) -> bool,
    ) -> Result<Observed, Error> {
        let flows = self.scenario.flows.len();
        assert!(logs.is_empty() || logs.len() == flows, "one for each flow");
        let plan = Arc::new(self.clone());
        let made = caught(|| Network::new(Arc::clone(&plan), logs, tap));
        made.map_err(|problem| plan.gave_up(None, Time::ZERO, &problem))?
            .run(progress)
    }

    /// The propagation delay of each flow, there and back, as known before the run.
    fn base_rtts(&self) -> Vec<Duration> {
        let (there, back) = (&self.paths.there, &self.paths.back);
        let both = |flow| there.base_delay(flow) + back.base_delay(flow);
        (0..self.scenario.flows.len()).map(both).collect()
    }

    /// Whether a packet's arrival determines when its acknowledgement reaches the sender, so that
    /// one event serves both. This requires that receivers acknowledge each packet at once over a
    /// way back of constant delay. It also requires that no receiver half has a timer, and no
    /// connection ends or begins during the run.
    fn answers_are_certain(&self) -> bool {
        let scenario = &self.scenario;
        let back = &self.paths.back;
        let delay_only = PathConfig {
            delays: back.delays.clone(),
            ..PathConfig::default()
        };
        let constant = |delay: &Schedule<Duration>| delay.steps().len() == 1;
        *back == delay_only
            && back.delays.iter().all(constant)
            // Flows that share a pipe share the way back.
            && (scenario.ack_delay_ms.is_none()
                || scenario.flows.iter().all(|flow| flow.delay_ms.is_none()))
            && !self.paths.there.may_overtake()
            && scenario.ack_every == 1
            && self
                .schemes
                .iter()
                .all(|scheme| scheme.observer().is_none())
            && self.traffic.iter().all(|traffic| *traffic == Traffic::Full)
    }
}

/// A run in steps, for callers that make decisions between them, such as external controllers.
pub struct Simulation(Network);

impl Simulation {
    /// A run of which nothing has happened yet.
    pub fn new(plan: Plan) -> Self {
        Simulation(Network::new(Arc::new(plan), Vec::new(), None))
    }

    /// Runs everything before `until`; returns whether more is to come before the end of the run.
    ///
    /// # Errors
    /// [`Error::Controller`] if a controller gave up.
    pub fn run_until(&mut self, until: Time) -> Result<bool, Error> {
        let network = &mut self.0;
        let ran = caught(|| {
            while let Some(at) = network.events.next_at()
                && at < until
                && at <= network.end
            {
                let (now, event) = network.events.pop().expect("it is next");
                network.handle(now, event, &mut |_| true)?;
            }
            network.plan.check_controllers()
        });
        ran.unwrap_or_else(|problem| Err(network.gave_up(network.at, &problem)))?;
        Ok(until < network.end)
    }

    /// The record of each packet so far, if the scenario requests records. Links are served only
    /// when something depends on them, so departures of the last round trip may be missing.
    pub fn records(&self) -> Option<&Records> {
        self.0.observers.records()
    }

    /// The sender of each flow, of its latest connection.
    pub fn senders(&self) -> impl Iterator<Item = &Sender> {
        self.0.flows.iter().map(|flow| &flow.ends.sender)
    }

    /// The metrics so far, of a run that has come to `now`. For the last round trip the limits of
    /// [`records`](Self::records) apply.
    pub fn so_far(&self, now: Time) -> Metrics {
        self.0.observers.so_far(&self.0.data.path, now)
    }

    /// Runs to the end, and returns the outcome.
    ///
    /// # Errors
    /// [`Error::Controller`] if a controller gave up.
    pub fn finish(self) -> Result<Outcome, Error> {
        let (outcome, ..) = self.0.run(&mut |_| true)?;
        Ok(outcome)
    }
}

impl Network {
    fn new(plan: Arc<Plan>, logs: Vec<Qlog>, tap: Option<Box<dyn Tap>>) -> Self {
        let scenario = &plan.scenario;
        let mut events = EventQueue::default();
        let mut flows = Vec::with_capacity(scenario.flows.len());
        for (index, spec) in scenario.flows.iter().enumerate() {
            let (flow, start) = Flow::new(&plan, index);
            flows.push(flow);
            events.push(start, Event::Start(index as u32));
            if let Some(stop) = spec.stop_s {
                events.push(Time::from_secs_f64(stop), Event::Stop(index as u32));
            }
        }
        let end = Time::from_secs_f64(scenario.duration_s);
        let base_rtt = plan.base_rtts();
        let (there, back) = (&plan.paths.there, &plan.paths.back);
        let data: Path<DataPacket> = there.build(scenario.seed, Way::Forth);
        let acks = back.build(scenario.seed, Way::Back);
        let certain = plan.answers_are_certain().then(|| {
            let mut way_back = vec![Duration::ZERO; flows.len()];
            for (flow, delay) in back.delays.iter().enumerate() {
                way_back[data.pipe_of(flow)] = min_delay(delay);
            }
            way_back
        });
        let soonest = |way: &PathConfig| way.delays.iter().map(min_delay).min().unwrap_or_default();
        let way_back = certain.as_ref().map_or(Duration::ZERO, |_| soonest(back));
        let timers = |overtakes| vec![Timer::default(); if overtakes { flows.len() } else { 0 }];
        let hundredth = Duration::from_secs_f64(scenario.duration_s / 100.0);
        let every = if scenario.series {
            Duration::from_millis_f64(scenario.bin_ms)
        } else {
            hundredth.max(Duration::from_nanos(1))
        };
        events.push(Time::ZERO + every, Event::Sample);
        Network {
            end,
            every,
            hundredth,
            next_told: Time::ZERO + hundredth,
            events,
            data_timers: timers(data.may_overtake()),
            ack_timers: timers(acks.may_overtake()),
            data: Direction::new(data, soonest(there) + way_back),
            // No lateness on the way back: a dropped acknowledgement changes the count of packets under way, which is
            // recorded with the sender's next packet.
            acks: Direction::new(acks, Duration::ZERO),
            medium: Medium::new(&plan.paths.medium, scenario.seed)
                .map(|medium| (medium, Timer::default())),
            flows,
            certain,
            acknowledged: Vec::new(),
            duplicates: there.duplicate > 0.0,
            observers: Observers::new(&plan, &base_rtt, end, logs, tap),
            sent: 0,
            now: Time::ZERO,
            at: 0,
            wrong: None,
            next_look: plan.next_look(0),
            plan,
        }
    }

    fn run(mut self, progress: &mut dyn FnMut(f64) -> bool) -> Result<Observed, Error> {
        let ran = caught(|| {
            while let Some((now, event)) = self.events.pop()
                && now <= self.end
            {
                self.handle(now, event, progress)?;
            }
            self.now = self.end;
            self.check_senders()
        });
        ran.unwrap_or_else(|problem| Err(self.gave_up(self.at, &problem)))?;
        progress(1.0);
        let (plan, end, at) = (Arc::clone(&self.plan), self.end, self.at);
        caught(|| self.finish()).map_err(|problem| plan.gave_up(Some(at), end, &problem))
    }

    /// The error by which the run ends where the controller of this flow did something wrong.
    #[cold]
    fn gave_up(&self, flow: usize, problem: &str) -> Error {
        self.plan.gave_up(Some(flow), self.now, problem)
    }

    /// Refuses to go on with a controller that gave up, or that allows nothing ever again.
    #[cold]
    fn check_senders(&self) -> Result<(), Error> {
        self.plan.check_controllers()?;
        let mut open = self.flows.iter().enumerate().filter(|(_, flow)| {
            // A controller learns of a live source's frames, and may drop them.
            flow.phase == Phase::On && flow.ends.frames.is_none()
        });
        let stuck_flow = open.find_map(|(index, flow)| Some((index, stuck(&flow.ends.sender)?)));
        stuck_flow.map_or(
            Ok(()),
            |(index, problem)| Err(self.gave_up(index, &problem)),
        )
    }

    /// Called from one place, a million times a second.
    #[inline(always)]
    fn handle(
        &mut self,
        now: Time,
        event: Event,
        progress: &mut dyn FnMut(f64) -> bool,
    ) -> Result<(), Error> {
        self.observers.totals.events += 1;
        self.now = now;
        if self.observers.totals.events == self.next_look {
            self.look(progress)?;
        }
        match event {
            Event::Start(flow) => self.on_start(now, flow as usize),
            Event::Frame(flow) => self.on_frame(now, flow as usize),
            Event::Ask(flow) => self.on_ask(now, flow as usize),
            Event::Turn(flow) => self.on_turn(now, flow as usize),
            Event::Pause(flow) => self.on_pause(now, flow as usize),
            Event::Stop(flow) => self.on_stop(now, flow as usize),
            Event::SenderTimer(flow) => self.on_sender_timer(now, flow as usize),
            Event::Service => self.on_service(now),
            Event::Data(pipe) => self.on_data(now, pipe as usize),
            Event::ReceiverTimer(flow) => self.on_receiver_timer(now, flow as usize),
            Event::ObserverTimer(flow) => self.on_observer_timer(now, flow as usize),
            Event::AckService => self.on_ack_service(now),
            Event::Medium => self.on_medium(now),
            Event::Ack(pipe) => self.on_ack(now, pipe as usize),
            Event::Sample => return self.on_sample(now, progress),
        }
        match &self.wrong {
            None => Ok(()),
            Some((flow, problem)) => Err(self.gave_up(*flow, problem)),
        }
    }

    /// Whether the run may go on, however little its clock has moved.
    #[cold]
    fn look(&mut self, progress: &mut dyn FnMut(f64) -> bool) -> Result<(), Error> {
        let events = self.observers.totals.events;
        if let Some(most) = self.plan.scenario.max_events.filter(|&most| events > most) {
            self.plan.check_controllers()?;
            let seconds = self.now.as_secs_f64();
            return Err(Error::Controller(format!(
                "the run took more than {most} events (max_events) up to {seconds:.6} s"
            )));
        }
        self.next_look = self.plan.next_look(events);
        self.go_on(progress)
    }

    /// Reports the progress.
    fn go_on(&self, progress: &mut dyn FnMut(f64) -> bool) -> Result<(), Error> {
        let fraction = self.now.as_secs_f64() / self.plan.scenario.duration_s;
        if progress(fraction.min(1.0)) {
            Ok(())
        } else {
            Err(Error::Cancelled)
        }
    }

    /// Samples the time series, and reports the progress.
    #[cold]
    fn on_sample(&mut self, now: Time, progress: &mut dyn FnMut(f64) -> bool) -> Result<(), Error> {
        if let Some(series) = &mut self.observers.series {
            series.sample(now, &self.flows);
        }
        if now >= self.next_told {
            self.next_told = now + self.hundredth;
            self.check_senders()?;
            self.go_on(progress)?;
        }
        self.events.push(now + self.every, Event::Sample);
        Ok(())
    }

    fn finish(mut self) -> Observed {
        let end = self.end;
        self.data.path.serve(end, &mut self.observers);
        if self.certain.is_some() {
            // Packets that have arrived and whose acknowledgements are still under way.
            let mut pipes: Vec<usize> = (0..self.flows.len())
                .map(|flow| self.data.path.pipe_of(flow))
                .collect();
            pipes.sort_unstable();
            pipes.dedup();
            for pipe in pipes {
                while let Some((at, packet)) = self.data.path.arrive(end, pipe, &mut self.observers)
                {
                    self.receive(at, &packet);
                }
            }
        }
        let data = &self.data.path;
        self.observers
            .finish(&self.plan, &self.flows, data, self.end)
    }

    // Users.

    /// The connection that is due begins.
    #[cold]
    fn on_start(&mut self, now: Time, index: usize) {
        self.catch_up(now);
        self.at = index;
        let flow = &mut self.flows[index];
        if flow.phase != Phase::Pausing {
            return; // it was stopped before
        }
        if flow.is_used() {
            let old = flow.renew(&self.plan, index, now);
            // The receiver that should have acknowledged these is gone.
            self.observers.on_settled(u64::from(old.unanswered));
            self.observers.on_forgotten(now, index, old.delivered);
        }
        flow.begin(now);
        match flow.load {
            Load::For(time) => self.events.push(now + time, Event::Pause(index as u32)),
            Load::Frames(_) | Load::Media(_) => {
                self.events.push(now, Event::Frame(index as u32));
            }
            Load::Pages(_) => self.events.push(now, Event::Ask(index as u32)),
            Load::Turns(turns) => self.events.push(now + turns.on, Event::Turn(index as u32)),
            Load::Endless | Load::File(_) => (),
        }
        self.observers.on_begin(now, index, flow);
        if flow.is_complete() {
            self.complete(now, index);
        }
        self.pump(now, index);
    }

    /// A live source has another frame.
    #[cold]
    fn on_frame(&mut self, now: Time, index: usize) {
        self.at = index;
        let flow = &mut self.flows[index];
        let Ends { sender, frames, .. } = &mut flow.ends;
        if flow.phase == Phase::On
            && let Some(frames) = frames
        {
            let (size, next) = frames.offer(now, sender.controller().media_rate());
            sender.offer(size);
            if let Some(at) = next {
                self.events.push(at, Event::Frame(index as u32));
            }
            self.pump(now, index);
        } else if flow.phase == Phase::On
            && let Some(feed) = &mut flow.ends.feed
        {
            if let Some(at) = feed.offer(now) {
                self.events.push(at, Event::Frame(index as u32));
            }
            if flow.is_complete() {
                self.complete(now, index);
            } else {
                self.pump(now, index);
            }
        }
    }

    /// A client requests a page, or repeats a request that was lost.
    #[cold]
    fn on_ask(&mut self, now: Time, index: usize) {
        let flow = &mut self.flows[index];
        let Some(client) = flow
            .ends
            .client
            .as_mut()
            .filter(|_| flow.phase == Phase::On)
        else {
            return;
        };
        let size = client.ask(now);
        let packet = AckPacket {
            flow: index as u32,
            connection: flow.connection,
            answers: 0,
            says: Says::Asks,
        };
        self.send_back(now, size, packet);
    }

    /// A request reaches the server.
    fn on_asked(&mut self, index: usize) {
        let ends = &mut self.flows[index].ends;
        if let Some(client) = &mut ends.client {
            ends.sender.offer(client.on_asked());
            if self.acknowledged.last() != Some(&index) {
                self.acknowledged.push(index);
            }
        }
    }

    /// The source of an open connection begins to send again, or pauses.
    #[cold]
    fn on_turn(&mut self, now: Time, index: usize) {
        let flow = &mut self.flows[index];
        let (Load::Turns(turns), Phase::On) = (flow.load, flow.phase) else {
            return;
        };
        let Some(feed) = &mut flow.ends.feed else {
            return;
        };
        if let Some(time) = feed.turn(&turns) {
            self.events.push(now + time, Event::Turn(index as u32));
        }
        self.pump(now, index);
    }

    /// A connection ends because its time is over.
    #[cold]
    fn on_pause(&mut self, now: Time, index: usize) {
        if self.flows[index].phase != Phase::On {
            return; // it was stopped before
        }
        self.catch_up(now);
        self.flows[index].ends.sender.stop();
        self.observers.cut_epochs(now, index);
        self.observers.on_end(now, index);
        self.await_next(now, index);
    }

    /// All bytes of a connection's file have arrived.
    #[cold]
    fn complete(&mut self, now: Time, index: usize) {
        self.catch_up(now);
        self.observers.on_complete(now, index, &self.flows[index]);
        self.observers.on_end(now, index);
        self.await_next(now, index);
    }

    /// A user whose connection is over waits for the next, if there is one.
    fn await_next(&mut self, now: Time, index: usize) {
        if let Some(pause) = self.flows[index].end() {
            self.events.push(now + pause, Event::Start(index as u32));
        }
    }

    /// A user stops for good.
    #[cold]
    fn on_stop(&mut self, now: Time, index: usize) {
        self.catch_up(now);
        self.flows[index].stop();
        self.observers.on_stop(now, index);
    }

    // Data: from the sender to the receiver.

    /// Lets a sender send what its controller allows, and sets its timer.
    #[inline]
    fn pump(&mut self, now: Time, index: usize) {
        self.at = index;
        let Flow {
            ends, connection, ..
        } = &mut self.flows[index];
        let before = self.sent;
        self.observers.before_sending(now, index, &ends.sender);
        let packet_size = Bytes::new(u64::from(self.plan.scenario.packet_bytes));
        if let Some(feed) = &mut ends.feed {
            feed.feed(now, &mut ends.sender, packet_size);
        }
        while let Some(transmit) = ends.sender.poll_transmit(now) {
            if self.sent.wrapping_sub(before) == MOST_AT_ONCE {
                self.wrong = Some((index, too_many(&ends.sender)));
                return;
            }
            if let Some(feed) = &mut ends.feed
                && !transmit.retransmission
            {
                feed.on_left();
                feed.feed(now, &mut ends.sender, packet_size);
            }
            let packet = DataPacket {
                flow: index as u32,
                connection: *connection,
                number: transmit.number,
                data: transmit.data,
                id: self.sent,
                ecn: ends.sender.ecn(),
            };
            self.sent = self.sent.wrapping_add(1);
            self.observers
                .on_sent(now, &ends.sender, &transmit, &packet);
            if let Some(half) = &mut ends.receiver_half {
                half.on_sent(transmit.number, transmit.stamp);
            }
            let mut watch = DataWatch {
                observers: &mut self.observers,
                events: &mut self.events,
                certain: self.certain.as_deref(),
                timers: &mut self.data_timers,
            };
            self.data.path.serve_before(now, &mut watch);
            self.data.path.send(now, transmit.size, packet, &mut watch);
        }
        let sent = self.sent != before;
        self.observers.after_sending(now, index, &ends.sender, sent);
        if sent {
            self.data.set_service(Event::Service, &mut self.events);
            self.contend(now);
        }
        self.set_sender_timer(now, index);
    }

    /// Sets the event at which a station of a shared medium transmits.
    #[inline]
    fn contend(&mut self, now: Time) {
        if let Some((medium, timer)) = &mut self.medium {
            let backlogged = [
                self.data.path.is_backlogged(),
                self.acks.path.is_backlogged(),
            ];
            if let Some(at) = timer.set(medium.contend(now, backlogged)) {
                self.events.push(at, Event::Medium);
            }
        }
    }

    /// Stations of the shared medium transmit.
    #[cold]
    fn on_medium(&mut self, now: Time) {
        let Some((medium, timer)) = &mut self.medium else {
            return;
        };
        if !timer.comes(now) {
            return;
        }
        let (limits, [data, acks]) = (medium.limits(), medium.winners());
        let mut watch = DataWatch {
            observers: &mut self.observers,
            events: &mut self.events,
            certain: self.certain.as_deref(),
            timers: &mut self.data_timers,
        };
        let mut transmit_data = || self.data.path.transmit(now, &limits, &mut watch);
        let data_end = data.then(&mut transmit_data).flatten();
        let mut watch = AckWatch {
            observers: &mut self.observers,
            events: &mut self.events,
            timers: &mut self.ack_timers,
        };
        let mut transmit_acks = || self.acks.path.transmit(now, &limits, &mut watch);
        let acks_end = acks.then(&mut transmit_acks).flatten();
        if medium.occupy([data_end, acks_end]) {
            if let Some(end) = data_end {
                self.data.path.receive(end);
                self.data.set_service(Event::Service, &mut self.events);
            }
            if let Some(end) = acks_end {
                self.acks.path.receive(end);
                self.acks.set_service(Event::AckService, &mut self.events);
            }
        }
        self.contend(now);
    }

    fn on_service(&mut self, now: Time) {
        let mut watch = DataWatch {
            observers: &mut self.observers,
            events: &mut self.events,
            certain: self.certain.as_deref(),
            timers: &mut self.data_timers,
        };
        if let Some(at) = self.data.serve(now, &mut watch) {
            self.events.push(at, Event::Service);
        }
    }

    /// Lets the data's links serve packets due before `now`.
    fn catch_up(&mut self, now: Time) {
        let mut watch = DataWatch {
            observers: &mut self.observers,
            events: &mut self.events,
            certain: self.certain.as_deref(),
            timers: &mut self.data_timers,
        };
        self.data.path.serve_before(now, &mut watch);
    }

    fn on_data(&mut self, now: Time, pipe: usize) {
        if !comes(&mut self.data_timers, pipe, now) {
            return;
        }
        while let Some((at, packet)) = self.data.path.arrive(now, pipe, &mut self.observers) {
            if self.receive(at, &packet) {
                self.acknowledge(at, packet.flow as usize);
            }
        }
        let next = self.data.path.next_arrival(pipe);
        if let Some(at) = next.filter(|at| needs_event(&mut self.data_timers, pipe, *at)) {
            self.events.push(at, Event::Data(pipe as u32));
        }
    }

    /// A packet reaches the receiver; returns whether the receiver of its connection is still there.
    #[inline(always)]
    fn receive(&mut self, now: Time, packet: &DataPacket) -> bool {
        let index = packet.flow as usize;
        self.at = index;
        let size = self.plan.scenario.packet_bytes;
        let flow = &mut self.flows[index];
        if packet.connection != flow.connection {
            self.observers.on_settled(u64::from(size));
            return false;
        }
        let ends = &mut flow.ends;
        // A copy is acknowledged again; its mark and its arrival count once (RFC 9000 §12.3).
        let copy = self.duplicates && ends.receiver.has(packet.number);
        let new = ends.receiver.on_packet(now, packet.number, packet.data);
        if packet.ecn == Ecn::Ce && !copy {
            ends.receiver.on_mark(now);
        }
        ends.unanswered += size;
        ends.delivered += new;
        if let Some(half) = &mut ends.receiver_half
            && !copy
        {
            half.on_packet(now, packet.number, Bytes::new(u64::from(size)));
            if let Some(at) = half.set_timer() {
                self.events.push(at, Event::ObserverTimer(packet.flow));
            }
        }
        self.observers.on_delivered(packet, new);
        if let Some(frames) = &mut ends.frames {
            let in_order = ends.receiver.in_order();
            frames.on_arrived(now, in_order, |took| self.observers.on_piece(index, took));
        }
        if let Some(feed) = &mut ends.feed
            && let Some(took) = feed.on_arrived(now, packet.data)
        {
            self.observers.on_piece(index, took);
        }
        if let Some(client) = &mut ends.client
            && let Some(took) = client.on_delivered(now, ends.delivered)
        {
            self.observers.on_piece(index, took);
            if let Some(pause) = client.think() {
                self.events.push(now + pause, Event::Ask(packet.flow));
            }
        }
        if flow.is_complete() {
            self.complete(now, index);
        }
        true
    }

    // Acknowledgements: from the receiver to the sender.

    /// Sends the acknowledgement that is due, or sets a timer for it.
    #[inline]
    fn acknowledge(&mut self, now: Time, index: usize) {
        let flow = &mut self.flows[index];
        let ends = &mut flow.ends;
        let Some(ack) = ends.receiver.poll_ack(now) else {
            if let Some(at) = flow.receiver_timer.set(ends.receiver.next_timer()) {
                self.events.push(at, Event::ReceiverTimer(index as u32));
            }
            return;
        };
        let packet = AckPacket {
            flow: index as u32,
            connection: flow.connection,
            answers: std::mem::take(&mut ends.unanswered),
            says: Says::Arrived {
                report: ends.receiver_half.as_mut().map(|half| half.report()),
                ack,
            },
        };
        let size = Bytes::new(u64::from(self.plan.scenario.ack_bytes));
        self.send_back(now, size, packet);
    }

    /// Sends something over the way back.
    #[inline]
    fn send_back(&mut self, now: Time, size: Bytes, packet: AckPacket) {
        let mut watch = AckWatch {
            observers: &mut self.observers,
            events: &mut self.events,
            timers: &mut self.ack_timers,
        };
        self.acks.path.send(now, size, packet, &mut watch);
        self.acks.set_service(Event::AckService, &mut self.events);
        self.contend(now);
    }

    fn on_ack_service(&mut self, now: Time) {
        let mut watch = AckWatch {
            observers: &mut self.observers,
            events: &mut self.events,
            timers: &mut self.ack_timers,
        };
        if let Some(at) = self.acks.serve(now, &mut watch) {
            self.events.push(at, Event::AckService);
        }
    }

    /// Acknowledgements arrive. All senders process those of this instant before any of them sends.
    fn on_ack(&mut self, now: Time, pipe: usize) {
        match &self.certain {
            Some(way_back) => self.hear_certain(now, pipe, way_back[pipe]),
            None => {
                if !comes(&mut self.ack_timers, pipe, now) {
                    return;
                }
                while let Some((_, packet)) = self.acks.path.arrive(now, pipe, &mut ()) {
                    let index = packet.flow as usize;
                    if packet.connection != self.flows[index].connection {
                        self.observers.on_settled(u64::from(packet.answers));
                        continue;
                    }
                    match packet.says {
                        Says::Arrived { ack, report } => {
                            self.on_acknowledgement(now, index, &ack, packet.answers, report);
                        }
                        Says::Asks => self.on_asked(index),
                    }
                }
                let next = self.acks.path.next_arrival(pipe);
                if let Some(at) = next.filter(|at| needs_event(&mut self.ack_timers, pipe, *at)) {
                    self.events.push(at, Event::Ack(pipe as u32));
                }
            }
        }
        for at in 0..self.acknowledged.len() {
            self.pump(now, self.acknowledged[at]);
        }
        self.acknowledged.clear();
    }

    /// Acknowledgements arrive of packets that reached the receiver `way_back` ago and were acknowledged at once.
    #[inline]
    fn hear_certain(&mut self, now: Time, pipe: usize, way_back: Duration) {
        let answered = now - way_back;
        let next = loop {
            let path = &mut self.data.path;
            let (at, packet) = match path.arrive_or_next(answered, pipe, &mut self.observers) {
                Ok(arrived) => arrived,
                Err(next) => break next,
            };
            if !self.receive(at, &packet) {
                continue;
            }
            let index = packet.flow as usize;
            let Ends {
                sender,
                receiver,
                unanswered,
                ..
            } = &mut self.flows[index].ends;
            let answers = std::mem::take(unanswered);
            if let Some(ack) = receiver.due_ack(at) {
                self.observers.on_settled(u64::from(answers));
                self.at = index;
                sender.on_ack(now, ack, None).expect(HONEST);
                self.observers.on_acknowledged(now, index, ack, sender);
                if self.acknowledged.last() != Some(&index) {
                    self.acknowledged.push(index);
                }
            }
        };
        if let Some(at) = next {
            self.events.push(at + way_back, Event::Ack(pipe as u32));
        }
    }

    /// An acknowledgement of `answers` bytes reaches the sender, with the receiver half's report of this number.
    fn on_acknowledgement(
        &mut self,
        now: Time,
        index: usize,
        ack: &Ack,
        answers: u32,
        report: Option<u32>,
    ) {
        self.observers.on_settled(u64::from(answers));
        self.at = index;
        let ends = &mut self.flows[index].ends;
        let report = (ends.receiver_half.as_mut().zip(report))
            .and_then(|(half, report)| half.take_report(report));
        ends.sender.on_ack(now, ack, report).expect(HONEST);
        self.observers
            .on_acknowledged(now, index, ack, &ends.sender);
        if self.acknowledged.last() != Some(&index) {
            self.acknowledged.push(index);
        }
    }

    // Timers.

    /// A flow that was idle asked for no ticks; the one that it missed is due at once, not when it would have been.
    #[inline(always)]
    fn set_sender_timer(&mut self, now: Time, index: usize) {
        let flow = &mut self.flows[index];
        let due = flow.ends.sender.next_timer().map(|at| at.max(now));
        if let Some(at) = flow.sender_timer.set(due) {
            self.events.push(at, Event::SenderTimer(index as u32));
        }
    }

    fn on_sender_timer(&mut self, now: Time, index: usize) {
        let Flow {
            sender_timer, ends, ..
        } = &mut self.flows[index];
        if !sender_timer.comes(now) {
            return;
        }
        self.at = index;
        if ends.sender.on_timer_if_due(now) {
            self.observers.on_timer(now, index, &ends.sender);
            let before = self.sent;
            self.pump(now, index);
            if self.sent == before
                && let Some(problem) = self.flows[index].ticks.count(now)
            {
                self.wrong = Some((index, problem));
            }
        } else {
            self.set_sender_timer(now, index);
        }
    }

    fn on_receiver_timer(&mut self, now: Time, index: usize) {
        if self.flows[index].receiver_timer.comes(now) {
            self.acknowledge(now, index);
        }
    }

    fn on_observer_timer(&mut self, now: Time, index: usize) {
        self.at = index;
        let flow = &mut self.flows[index];
        if let Some(half) = &mut flow.ends.receiver_half
            && half.on_timer(now)
            && let Some(at) = half.set_timer()
        {
            self.events
                .push(at.max(now), Event::ObserverTimer(index as u32));
            if let Some(problem) = flow.ticks.count(now) {
                self.wrong = Some((index, problem));
            }
        }
    }
}

impl<P: verus_channel::path::Packet> Direction<P> {
    /// A path on which nothing depends on a packet until `least` after it has left the links.
    fn new(path: Path<P>, least: Duration) -> Self {
        Direction {
            path,
            service: Timer::default(),
            // The last instant before `least` has passed.
            foresight: least.saturating_sub(Duration::from_nanos(1)),
        }
    }

    /// Sets the event that serves the links, if they have packets and it is not set yet.
    #[inline]
    fn set_service(&mut self, event: Event, events: &mut EventQueue) {
        let due = self.path.next_departure().map(|at| at + self.foresight);
        if let Some(at) = self.service.set(due) {
            events.push(at, event);
        }
    }

    /// The event that serves the links has come; returns when to set the next, if one is needed.
    #[inline]
    #[must_use]
    fn serve(&mut self, now: Time, watch: &mut impl Watch<P>) -> Option<Time> {
        if !self.service.comes(now) {
            return None;
        }
        let next = self.path.serve(now, watch);
        self.service.set(next.map(|at| at + self.foresight))
    }
}

/// The least of the values of a delay.
fn min_delay(delay: &Schedule<Duration>) -> Duration {
    let values = delay.steps().iter().map(|step| step.1);
    values.min().unwrap_or_default()
}

/// Whether an arrival of `pipe` at `at` needs an event. Always, on paths where no packet overtakes another.
#[inline]
fn needs_event(timers: &mut [Timer], pipe: usize, at: Time) -> bool {
    let timer = timers.get_mut(pipe);
    timer.is_none_or(|timer| timer.set(Some(at)).is_some())
}

/// Whether an event for the arrivals of `pipe` is valid, rather than replaced by that of an earlier arrival.
#[inline]
fn comes(timers: &mut [Timer], pipe: usize, now: Time) -> bool {
    let timer = timers.get_mut(pipe);
    timer.is_none_or(|timer| timer.comes(now))
}

/// Sets an event for the next arrival of each pipe of the data's path, and tells the observers.
struct DataWatch<'a> {
    observers: &'a mut Observers,
    events: &'a mut EventQueue,
    certain: Option<&'a [Duration]>,
    timers: &'a mut [Timer],
}

impl Watch<DataPacket> for DataWatch<'_> {
    #[inline]
    fn on_entered(&mut self, now: Time, size: Bytes, packet: &DataPacket) {
        self.observers.on_entered(now, size, packet);
    }

    #[inline]
    fn on_dropped(&mut self, now: Time, size: Bytes, packet: &DataPacket, dropped: Dropped) {
        self.observers.on_dropped(now, size, packet, dropped);
    }

    #[inline(always)]
    fn on_left(&mut self, now: Time, size: Bytes, entered: Time, packet: &DataPacket) {
        self.observers.on_left(now, size, entered, packet);
    }

    #[inline(always)]
    fn on_under_way(&mut self, flight: Flight) {
        if !flight.first || !needs_event(self.timers, flight.pipe, flight.arrives) {
            return;
        }
        let pipe = flight.pipe as u32;
        match self.certain {
            Some(way_back) => {
                let feedback_at = flight.arrives + way_back[flight.pipe];
                self.events.push(feedback_at, Event::Ack(pipe));
            }
            None => self.events.push(flight.arrives, Event::Data(pipe)),
        }
    }
}

/// As [`DataWatch`], for acknowledgements; observers hear only of dropped ones.
struct AckWatch<'a> {
    observers: &'a mut Observers,
    events: &'a mut EventQueue,
    timers: &'a mut [Timer],
}

impl Watch<AckPacket> for AckWatch<'_> {
    #[inline]
    fn on_dropped(&mut self, now: Time, _: Bytes, packet: &AckPacket, _: Dropped) {
        self.observers.on_settled(u64::from(packet.answers));
        if let Says::Asks = packet.says {
            self.events.push(now + ASK_AGAIN, Event::Ask(packet.flow));
        }
    }

    #[inline]
    fn on_under_way(&mut self, flight: Flight) {
        if flight.first && needs_event(self.timers, flight.pipe, flight.arrives) {
            self.events
                .push(flight.arrives, Event::Ack(flight.pipe as u32));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{FlowSpec, Scenario};

    /// The outcome of a run as text, without the number of its events.
    fn outcome_text(scenario: &Scenario, late: bool) -> String {
        let plan = scenario.plan().expect("valid");
        let mut network = Network::new(Arc::new(plan), Vec::new(), None);
        if !late {
            network.data.foresight = Duration::ZERO;
        }
        let (mut outcome, ..) = network.run(&mut |_| true).expect("nobody cancels");
        outcome.totals.events = 0;
        format!("{outcome:?}")
    }

    /// The path of a light trace whose delay falls and rises, with trains of four packets.
    fn light() -> String {
        let trains = (0..50).map(|train| {
            let base = [60, 15, 40, 5][train % 4];
            format!("{} {base} 0 {} 9 30\n", train * 90, train % 5)
        });
        let name = format!("verus-light-trace-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, trains.collect::<String>()).expect("it can be written");
        path.display().to_string()
    }

    #[test]
    fn links_that_are_served_when_somebody_needs_to_know_serve_as_if_it_were_on_time() {
        let flow = |scheme: &str, traffic: Option<&str>, stop_s| FlowSpec {
            traffic: traffic.map(str::to_owned),
            stop_s,
            ..FlowSpec::new(scheme)
        };
        let steady = vec![
            flow("cubic", None, None),
            flow("verus:ratio=2", None, Some(4.0)),
            flow("newreno", None, None),
        ];
        let mut busy = steady.clone();
        busy.push(flow("cubic", Some("files:bytes=100000,gap_s=0.1"), None));
        busy.push(flow("vegas", Some("on-off:off_s=1,begin=on"), None));
        busy.push(flow("prague", None, None));
        busy.push(flow("cubic:ecn=yes", None, None));
        let light = light();
        let red = "red:min=30000,max=90000,p=0.1";
        for (trace, queue) in [
            ("rate:8", "droptail:bytes=60000"),
            ("city-driving-3g-up@1", red),
            ("city-driving-3g-up@2", "codel"),
            ("highway-driving-3g-up@3", "red:preset=cs244"),
            ("rate:8", "droptail:delay_ms=50"),
            ("city-driving-lte-down@2", "droptail:delay_ms=50"),
            ("city-driving-3g-up@1", "pie:ecn=yes"),
            ("city-driving-lte-down@2", "fq_codel"),
            ("rate:8", "dualpi2"),
        ] {
            for flows in [&steady, &busy] {
                let scenario = Scenario {
                    trace: trace.to_owned(),
                    queue: queue.to_owned(),
                    duration_s: 6.0,
                    loss: 0.001,
                    records: true,
                    flows: flows.clone(),
                    ..Default::default()
                };
                let wavering = Scenario {
                    jitter: "wifi:mean_ms=7".to_owned(),
                    reorder: "uniform:p=0.05,max_ms=30".to_owned(),
                    ..scenario.clone()
                };
                let replayed = Scenario {
                    packet_bytes: 1400,
                    light_trace: Some(light.clone()),
                    ..scenario.clone()
                };
                let both_ways = Scenario {
                    ack: "same".to_owned(),
                    ack_light_trace: Some(light.clone()),
                    reorder: "uniform:p=0.05,max_ms=30".to_owned(),
                    ..replayed.clone()
                };
                let shared = Scenario {
                    trace: "rate:26".to_owned(),
                    ack: "same".to_owned(),
                    medium: "wifi:aggregate=8".to_owned(),
                    ..scenario.clone()
                };
                for scenario in [scenario, wavering, replayed, both_ways, shared] {
                    assert_eq!(
                        outcome_text(&scenario, true),
                        outcome_text(&scenario, false),
                        "{trace} {queue} {}",
                        scenario.jitter
                    );
                }
            }
        }
        std::fs::remove_file(light).expect("it was written");
    }
}
