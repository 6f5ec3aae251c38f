//! Who begins when: the link with the first data, the flows when all are connected, and everybody's end.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::Duration as Span;

use rustls::pki_types::CertificateDer;
use verus_channel::path::{self, Dropped, Why};
use verus_core::{Bytes, Duration, Time};
use verus_emu::emulator::{Emulator, Way, in_real_time};
use verus_emu::packet::Packet;
use verus_measure::Meter;
use verus_sim::{Paths, Scenario};

/// How long connecting may take, and a first packet of data.
const PATIENCE: Span = Span::from_secs(20);

/// Where a run is, for all threads of it.
#[derive(Debug)]
pub struct Stage {
    scene: Mutex<Scene>,
    changed: Condvar,
    /// To the emulator.
    ring: UnixStream,
    wake: Mutex<Option<UnixStream>>,
    packet_bytes: usize,
    bin: Duration,
    base_rtt: Duration,
}

#[derive(Debug, Default)]
struct Scene {
    /// Flows whose receiver listens.
    listening: Vec<usize>,
    /// Certificates of those that have one.
    certificates: Vec<(usize, CertificateDer<'static>)>,
    /// By what the packets of each connected sender are known, and its flow.
    senders: Vec<(Mark, usize)>,
    /// Data may be sent.
    playing: bool,
    /// The link has begun.
    begun: bool,
    over: bool,
}

/// By what a flow's packets are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// They come from this port.
    From(u16),
    /// They are a program's: those to this port, if not to others.
    Program(u16),
}

/// Measures the flows at the bottleneck, told apart by their senders' ports, and programs by their receivers'.
#[derive(Debug)]
pub struct Watch {
    /// The meter.
    pub meter: Meter,
    flow_of: Box<[u16]>,
    programs: Vec<(u16, usize)>,
}

const NOBODY: u16 = u16::MAX;

impl Stage {
    /// A stage without programs.
    pub fn new(scenario: &Scenario, paths: &Paths) -> io::Result<Self> {
        let (ring, wake) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        Ok(Stage {
            scene: Mutex::default(),
            changed: Condvar::new(),
            ring,
            wake: Mutex::new(Some(wake)),
            packet_bytes: scenario.packet_bytes as usize,
            bin: Duration::from_millis_f64(scenario.bin_ms),
            base_rtt: paths.there.base_delay(0) + paths.back.base_delay(0),
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

    /// A receiver listens.
    pub fn listen(&self, flow: usize) {
        self.change(|scene| scene.listening.push(flow));
    }

    /// Waits for the receiver of `flow`.
    pub fn await_receiver(&self, flow: usize) -> io::Result<()> {
        self.wait("listening", |scene| scene.listening.contains(&flow))
    }

    /// The sender of `flow` is connected, from `port`.
    pub fn announce(&self, flow: usize, port: u16) {
        self.change(|scene| scene.senders.push((Mark::From(port), flow)));
    }

    /// The program that sends as `flow` can be started; its receiver is at `port`.
    pub fn announce_program(&self, flow: usize, port: u16) {
        self.change(|scene| scene.senders.push((Mark::Program(port), flow)));
    }

    /// Waits until all senders are connected.
    pub fn await_play(&self) -> io::Result<()> {
        self.wait("connecting", |scene| scene.playing)
    }

    /// Whether data may be sent.
    pub fn is_playing(&self) -> bool {
        let scene = self.scene();
        scene.playing || scene.over
    }

    /// The receiver of `flow` is known by `certificate`.
    pub fn offer(&self, flow: usize, certificate: CertificateDer<'static>) {
        self.change(|scene| scene.certificates.push((flow, certificate)));
    }

    /// By what to know the receiver of `flow`.
    pub fn certificate(&self, flow: usize) -> Option<CertificateDer<'static>> {
        let scene = self.scene();
        let offered = scene.certificates.iter().find(|(other, _)| *other == flow);
        offered.map(|(_, certificate)| certificate.clone())
    }

    /// Whether everything is to end.
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
    /// If one of that does not happen; everything ends then.
    pub fn play(&self, flows: usize) -> io::Result<()> {
        let played = self
            .wait("connecting", |scene| scene.senders.len() == flows)
            .and_then(|()| {
                self.change(|scene| scene.playing = true);
                self.wait("sending a first packet", |scene| scene.begun)
            });
        if played.is_err() {
            self.end();
        }
        played
    }

    /// Runs the emulator on a thread of its own until `duration` after the link began, then ends everything.
    pub fn emulate<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        mut emulator: Emulator,
        duration: Duration,
    ) -> ScopedJoinHandle<'scope, io::Result<(Emulator, Watch)>> {
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

    fn turn_until(&self, emulator: &mut Emulator, duration: Duration) -> io::Result<Watch> {
        let mut wake = self
            .wake
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            .ok_or_else(|| io::Error::other("the stage was used"))?;
        let mut watch = Watch {
            meter: Meter::new(1, &[self.base_rtt], self.bin),
            flow_of: vec![NOBODY; 1 << 16].into(),
            programs: Vec::new(),
        };
        let mut awaiting = false;
        while emulator.elapsed().is_none_or(|elapsed| elapsed < duration) {
            emulator.turn(Some(duration), wake.as_fd(), &mut watch, &mut ())?;
            if emulator.elapsed().is_some() && awaiting {
                awaiting = false;
                self.change(|scene| scene.begun = true);
            }
            let mut rung = [0; 64];
            while matches!(wake.read(&mut rung), Ok(1..)) {
                let scene = self.scene();
                if scene.over {
                    return Ok(watch);
                }
                if scene.playing && !awaiting && emulator.elapsed().is_none() {
                    awaiting = true;
                    let flows = scene.senders.len();
                    watch.meter = Meter::new(flows, &vec![self.base_rtt; flows], self.bin);
                    for &(mark, flow) in &scene.senders {
                        match mark {
                            Mark::From(port) => watch.flow_of[usize::from(port)] = flow as u16,
                            Mark::Program(port) => watch.programs.push((port, flow)),
                        }
                    }
                    // How large a program's packets are is not known before any has left.
                    let programs_only = watch.programs.len() == flows;
                    let least = if programs_only { 1 } else { self.packet_bytes };
                    emulator.begin_with(Way::Forth, least);
                }
            }
        }
        Ok(watch)
    }
}

impl Watch {
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
            // It may use more ports than we know of, and fragments have none.
            [(_, flow)] => Some(flow),
            _ => {
                let to = ports?.1;
                let known = self.programs.iter().find(|(port, _)| *port == to);
                known.map(|&(_, flow)| flow)
            }
        }
    }
}

impl path::Watch<Packet> for Watch {
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
        }
    }

    #[inline]
    fn on_dropped(&mut self, _: Time, size: Bytes, packet: &Packet, dropped: Dropped) {
        if let Some(flow) = self.flow(packet) {
            match dropped.why {
                Why::Chance => self.meter.on_path_loss(flow, size),
                Why::Refused | Why::Waited => self.meter.on_drop(flow, size),
            }
        }
    }
}
