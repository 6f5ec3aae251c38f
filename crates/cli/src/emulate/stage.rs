//! Order of a run: the link begins with the first data, the flows once all are connected, and all
//! end together.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration as Span, Instant};

use rustls::pki_types::CertificateDer;
use serde::Serialize;
use verus_channel::path::{self, Dropped, Why};
use verus_core::{Bytes, Duration, Time};
use verus_emu::emulator::{Emulator, Way, in_real_time};
use verus_emu::packet::Packet;
use verus_measure::Meter;
use verus_sim::{Paths, Scenario};

/// Limit of the time to connect, and of the time until a first packet of data.
const PATIENCE: Span = Span::from_secs(20);

/// Now, by the system's clock.
#[allow(
    clippy::disallowed_methods,
    reason = "programs and senders run in real time"
)]
pub fn now() -> Instant {
    Instant::now()
}

/// The state of a run, shared by its threads.
#[derive(Debug)]
pub struct Stage {
    scene: Mutex<Scene>,
    changed: Condvar,
    /// Wakes the emulator.
    ring: UnixStream,
    wake: Mutex<Option<UnixStream>>,
    packet_bytes: usize,
    bin: Duration,
    base_rtt: Duration,
    /// When the first flow sends.
    first_start: Duration,
    /// Whether each packet is recorded.
    records: bool,
}

#[derive(Debug, Default)]
struct Scene {
    /// Flows whose receiver listens.
    listening: Vec<usize>,
    /// Certificates of those that have one.
    certificates: Vec<(usize, CertificateDer<'static>)>,
    /// The mark of each connected sender's packets, and its flow.
    senders: Vec<(Mark, usize)>,
    /// Since when data may be sent.
    playing: Option<Instant>,
    /// The link has begun.
    begun: bool,
    over: bool,
}

/// The mark by which a flow's packets are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// Packets from this port.
    From(u16),
    /// Packets of a program: to this port, unless another flow claims them.
    Program(u16),
}

/// Measures the flows at the bottleneck. They are distinguished by their senders' ports, and
/// programs by their receivers' ports.
#[derive(Debug)]
pub struct FlowWatch {
    /// The meter.
    pub meter: Meter,
    /// The packets, if they are recorded.
    pub packets: Option<Packets>,
    flow_of: Box<[u16]>,
    programs: Vec<(u16, usize)>,
}

/// The fate of each packet at the bottleneck: those columns of the simulator's records that are visible there.
#[derive(Debug, Default, Serialize)]
pub struct Packets {
    flow: Vec<u32>,
    size_bytes: Vec<u32>,
    /// When it reached the bottleneck, ms. For a packet that a queue dropped after accepting it, that is when it was
    /// dropped.
    sent_ms: Vec<f64>,
    /// When it left the queue, ms.
    departed_ms: Vec<Option<f64>>,
    /// When it was dropped, ms.
    dropped_ms: Vec<Option<f64>>,
}

impl Packets {
    fn push(
        &mut self,
        flow: usize,
        size: Bytes,
        sent: Time,
        departed: Option<Time>,
        dropped: Option<Time>,
    ) {
        let ms = |time: Time| time.as_secs_f64() * 1e3;
        self.flow.push(flow as u32);
        self.size_bytes.push(size.get() as u32);
        self.sent_ms.push(ms(sent));
        self.departed_ms.push(departed.map(ms));
        self.dropped_ms.push(dropped.map(ms));
    }

    /// The packet of the last row is dropped after all.
    fn drop_last(&mut self, at: Time) {
        if let Some(dropped_ms) = self.dropped_ms.last_mut() {
            *dropped_ms = Some(at.as_secs_f64() * 1e3);
        }
    }
}

const NOBODY: u16 = u16::MAX;

impl Stage {
    /// A stage without programs. `records`: whether each packet is recorded.
    pub fn new(scenario: &Scenario, paths: &Paths, records: bool) -> io::Result<Self> {
        let (ring, wake) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let starts = scenario.flows.iter().map(|flow| flow.start_s);
        Ok(Stage {
            scene: Mutex::default(),
            changed: Condvar::new(),
            ring,
            wake: Mutex::new(Some(wake)),
            packet_bytes: scenario.packet_bytes as usize,
            bin: Duration::from_millis_f64(scenario.bin_ms),
            base_rtt: paths.there.base_delay(0) + paths.back.base_delay(0),
            first_start: Duration::from_secs_f64(starts.reduce(f64::min).unwrap_or(0.0)),
            records,
        })
    }

    fn scene(&self) -> MutexGuard<'_, Scene> {
        self.scene.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, how: impl FnOnce(&mut Scene)) {
        how(&mut self.scene());
        self.changed.notify_all();
        let _ = (&self.ring).write_all(b"!");
    }

    /// Waits until `ready` holds.
    fn wait(&self, what: &str, ready: impl Fn(&Scene) -> bool) -> io::Result<()> {
        let scene = self.scene();
        let (scene, waited) = self
            .changed
            .wait_timeout_while(scene, PATIENCE, |scene| !scene.over && !ready(scene))
            .unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() && !ready(&scene) {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("{what} took longer than {PATIENCE:?}"),
            ));
        }
        Ok(())
    }

    /// Announces that the receiver of `flow` listens.
    pub fn listen(&self, flow: usize) {
        self.change(|scene| scene.listening.push(flow));
    }

    /// Waits for the receiver of `flow`.
    pub fn await_receiver(&self, flow: usize) -> io::Result<()> {
        self.wait("listening", |scene| scene.listening.contains(&flow))
    }

    /// Announces that the sender of `flow` is connected, from `port`.
    pub fn announce(&self, flow: usize, port: u16) {
        self.change(|scene| scene.senders.push((Mark::From(port), flow)));
    }

    /// Announces that the program that sends as `flow` can be started; its receiver is at `port`.
    pub fn announce_program(&self, flow: usize, port: u16) {
        self.change(|scene| scene.senders.push((Mark::Program(port), flow)));
    }

    /// Waits until all senders are connected.
    pub fn await_play(&self) -> io::Result<()> {
        self.wait("connecting", |scene| scene.playing.is_some())
    }

    /// Whether data may be sent.
    pub fn is_playing(&self) -> bool {
        let scene = self.scene();
        scene.playing.is_some() || scene.over
    }

    /// Time since data may be sent; zero before.
    pub fn elapsed(&self) -> Duration {
        let playing = self.scene().playing;
        playing.map_or(Duration::ZERO, |since| {
            Duration::from_nanos((now() - since).as_nanos() as u64)
        })
    }

    /// Sleeps until data may have been sent for `at`, or the run is over.
    pub fn sleep_until(&self, at: Duration) {
        let remaining = at.saturating_sub(self.elapsed());
        if remaining > Duration::ZERO {
            let span = Span::from_nanos(remaining.as_nanos());
            let waited = self
                .changed
                .wait_timeout_while(self.scene(), span, |scene| !scene.over);
            drop(waited);
        }
    }

    /// Announces the `certificate` of the receiver of `flow`.
    pub fn offer(&self, flow: usize, certificate: CertificateDer<'static>) {
        self.change(|scene| scene.certificates.push((flow, certificate)));
    }

    /// The certificate of the receiver of `flow`.
    pub fn certificate(&self, flow: usize) -> Option<CertificateDer<'static>> {
        let scene = self.scene();
        let offered = scene.certificates.iter().find(|(other, _)| *other == flow);
        offered.map(|(_, certificate)| certificate.clone())
    }

    /// Waits until the run is over.
    pub fn await_end(&self) {
        let over = self.changed.wait_while(self.scene(), |scene| !scene.over);
        drop(over);
    }

    /// Whether the run is over.
    pub fn is_over(&self) -> bool {
        self.scene().over
    }

    /// Ends everything.
    pub fn end(&self) {
        self.change(|scene| scene.over = true);
    }

    /// Lets the flows send once all `flows` are connected, and waits until the link has begun.
    ///
    /// # Errors
    /// If a flow does not connect or the link does not begin; everything ends then.
    pub fn play(&self, flows: usize) -> io::Result<()> {
        let played = self
            .wait("connecting", |scene| scene.senders.len() == flows)
            .and_then(|()| {
                self.change(|scene| scene.playing = Some(now()));
                self.wait("sending a first packet", |scene| scene.begun)
            });
        if played.is_err() {
            self.end();
        }
        played
    }

    /// Runs the emulator on a separate thread until `duration` after the link began, then ends
    /// everything.
    pub fn emulate<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        mut emulator: Emulator,
        duration: Duration,
    ) -> ScopedJoinHandle<'scope, io::Result<(Emulator, FlowWatch)>> {
        Builder::new()
            .name("link".to_owned())
            .spawn_scoped(scope, move || {
                in_real_time();
                let ran = self.turn_until(&mut emulator, duration);
                self.end();
                ran.map(|watch| (emulator, watch))
            })
            .expect("a thread")
    }

    fn turn_until(&self, emulator: &mut Emulator, duration: Duration) -> io::Result<FlowWatch> {
        let mut wake = self
            .wake
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            .ok_or_else(|| io::Error::other("the stage was used"))?;
        let mut watch = FlowWatch {
            meter: Meter::new(1, &[self.base_rtt], self.bin),
            packets: self.records.then(Packets::default),
            flow_of: vec![NOBODY; 1 << 16].into(),
            programs: Vec::new(),
        };
        let mut awaiting = false;
        while emulator.elapsed().is_none_or(|elapsed| elapsed < duration) {
            let awake = emulator.turn(Some(duration), wake.as_fd(), &mut watch, &mut ())?;
            if emulator.elapsed().is_some() && awaiting {
                awaiting = false;
                self.change(|scene| scene.begun = true);
            }
            let mut rung = [0; 64];
            while awake && matches!(wake.read(&mut rung), Ok(1..)) {
                let scene = self.scene();
                if scene.over {
                    return Ok(watch);
                }
                if scene.playing.is_some() && !awaiting && emulator.elapsed().is_none() {
                    awaiting = true;
                    let flows = scene.senders.len();
                    watch.meter = Meter::new(flows, &vec![self.base_rtt; flows], self.bin);
                    for &(mark, flow) in &scene.senders {
                        match mark {
                            Mark::From(port) => watch.flow_of[usize::from(port)] = flow as u16,
                            Mark::Program(port) => watch.programs.push((port, flow)),
                        }
                    }
                    // The size of a program's packets is unknown before the first.
                    let programs_only = watch.programs.len() == flows;
                    let least_bytes = if programs_only { 1 } else { self.packet_bytes };
                    if self.first_start > Duration::ZERO {
                        emulator.begin();
                    } else {
                        emulator.begin_with(Way::Forth, least_bytes);
                    }
                }
            }
        }
        Ok(watch)
    }
}

impl FlowWatch {
    fn flow(&self, packet: &Packet) -> Option<usize> {
        let ports = packet.ports();
        if let Some((from, _)) = ports {
            let flow = self.flow_of[usize::from(from)];
            if flow != NOBODY {
                return Some(usize::from(flow));
            }
        }
        match *self.programs {
            [] => None,
            // A program may use additional ports, and fragments have none.
            [(_, flow)] => Some(flow),
            _ => {
                let to = ports?.1;
                let program = self.programs.iter().find(|(port, _)| *port == to);
                program.map(|&(_, flow)| flow)
            }
        }
    }
}

impl path::Watch<Packet> for FlowWatch {
    #[inline]
    fn on_entered(&mut self, now: Time, size: Bytes, packet: &Packet) {
        if let Some(flow) = self.flow(packet) {
            self.meter.on_arrival(now, flow, size);
        }
    }

    #[inline]
    fn on_left(&mut self, now: Time, size: Bytes, entered: Time, packet: &Packet) {
        if let Some(flow) = self.flow(packet) {
            self.meter.on_departure(now, flow, size, entered);
            if let Some(packets) = &mut self.packets {
                packets.push(flow, size, entered, Some(now), None);
            }
        }
    }

    #[inline]
    fn on_dropped(&mut self, now: Time, size: Bytes, packet: &Packet, dropped: Dropped) {
        if let Some(flow) = self.flow(packet) {
            if let Some(packets) = &mut self.packets {
                match dropped.why {
                    // It has left the link just now, and has its row.
                    Why::Corrupted => packets.drop_last(now),
                    Why::Chance | Why::Refused | Why::Waited => {
                        packets.push(flow, size, now, None, Some(now));
                    }
                }
            }
            match dropped.why {
                Why::Chance => self.meter.on_path_loss(flow, size),
                Why::Refused | Why::Waited => self.meter.on_drop(flow, size),
                Why::Corrupted => self.meter.on_corrupted(flow),
            }
        }
    }
}
