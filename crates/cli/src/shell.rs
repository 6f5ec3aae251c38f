//! `shell`: any program behind an emulated link.

mod captured;
mod carried;
mod fields;
mod launch;
mod netem;
pub mod privilege;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, getpgrp, kill_process};
use verus_channel::catalogue;
use verus_channel::named::LONGEST_BUILT_IN;
use verus_channel::netem::Netem;
use verus_channel::path::replay;
use verus_channel::queue::QueueConfig;
use verus_channel::{PathConfig, PathSpec, Schedule, cut_warning, delays};
use verus_core::{Bytes, Duration};
use verus_emu::device::{Device, DeviceConfig, IPV6_LEAST_MTU};
use verus_emu::emulator::{Emulator, in_real_time};
use verus_emu::footprint::{self, Names, Place};
use verus_emu::log::{Heading, LinkLog};
use verus_emu::namespace::Namespace;
use verus_emu::netlink::{self, Confinement, Family, Masquerade};
use verus_emu::resolver::{self, Resolution};

use crate::draft::{self, DraftFile};
use crate::failure::Failure;
use crate::folder;
use crate::guest;
use crate::signals::{self, Signals};
use crate::typed::millis;
use crate::ui::Ui;

use fields::Fields;
use privilege::Standing;

pub use launch::Args as LaunchArgs;
pub use launch::run as launch;

/// Run a program in a separate network namespace, behind an emulated link.
#[derive(Clone, clap::Args)]
pub struct Args {
    /// Link to the program: a trace file, a channel of `verus list channels` such as city-driving-3g-up, or rate:MBPS
    /// (default: no limit).
    #[arg(long, value_name = "CHANNEL", required_unless_present_any = ["up", "netem", "up_netem"])]
    down: Option<String>,
    /// Link from the program (default: no limit).
    #[arg(long, value_name = "CHANNEL")]
    up: Option<String>,
    /// Propagation delay each way, in ms or as 0.02s.
    #[arg(long, visible_alias = "delay", value_name = "MS", default_value_t = DELAY_MS, value_parser = millis)]
    delay_ms: f64,
    /// Propagation delay from the program (default: as --delay-ms).
    #[arg(long, visible_alias = "up-delay", value_name = "MS", conflicts_with = "delay_series", value_parser = millis)]
    up_delay_ms: Option<f64>,
    /// Options of Linux's netem for packets to the program, such as 'delay 20ms 5ms loss gemodel 1% 10%'. They are
    /// translated into options here, which are printed.
    #[arg(long, value_name = "OPTIONS")]
    netem: Option<Netem>,
    /// The same for packets from the program.
    #[arg(long, value_name = "OPTIONS")]
    up_netem: Option<Netem>,
    /// Queue before the link to the program: KIND[:key=value,…], as in `verus list queues`.
    #[arg(long, value_name = "QUEUE", default_value = QUEUE, value_parser = queue)]
    queue: Queue,
    /// Queue before the link from the program (default: as --queue).
    #[arg(long, value_name = "QUEUE", value_parser = queue)]
    up_queue: Option<Queue>,
    #[command(flatten)]
    fields: Fields,
    /// File with a recorded series of propagation delays each way, in place of --delay-ms: a whole number of ms on each
    /// line, which holds for 10 ms.
    #[arg(long, value_name = "FILE", conflicts_with = "delay_ms")]
    delay_series: Option<PathBuf>,
    /// How long nothing must have left a light trace before a packet begins another train.
    #[arg(long, value_name = "MS", default_value_t = 0.0, value_parser = millis)]
    light_timer_ms: f64,
    /// Deliver nothing after the end of a trace (default: traces start again).
    #[arg(long)]
    once: bool,
    /// Bytes that one line of a trace delivers.
    #[arg(long, value_name = "BYTES", default_value_t = 1504, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    opportunity_bytes: u32,
    /// Largest packet, bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u16).range(576..=9000))]
    mtu: u16,
    /// Seeds built-in channels, queues and random loss.
    #[arg(long, default_value_t = SEED)]
    seed: u64,
    /// Write a log of the link to the program, in Mahimahi's format, for `verus analyze`.
    #[arg(long, value_name = "FILE")]
    log_down: Option<PathBuf>,
    /// Write a log of the link from the program likewise.
    #[arg(long, value_name = "FILE")]
    log_up: Option<PathBuf>,
    /// Write a capture (pcapng) of the headers of all packets on both sides of the links, for Wireshark and `verus
    /// analyze`.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Write results and time series into this folder, for `verus report`.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace earlier results in --out.
    #[arg(long, requires = "out")]
    force: bool,
    /// Exit with code 3 if the 99th percentile of the emulator's lateness in delivering packets is above this.
    #[arg(long, value_name = "MS", value_parser = millis)]
    max_lateness_ms: Option<f64>,
    /// Run on virtual time, in a guest kernel of `verus virtual build`: without root, and with the
    /// same result each time.
    #[arg(long = "virtual")]
    on_virtual_time: bool,
    /// With --virtual, a command line that runs beside the program at the near end of the link,
    /// which is $MAHIMAHI_BASE to the program; can be repeated.
    #[arg(long, value_name = "CMD", requires = "on_virtual_time")]
    server: Vec<OsString>,
    /// With --virtual, how much processor time the guest may take while its clock stands still, in s:
    /// a program that waits without sleeping stops it for good.
    #[arg(long, value_name = "S", default_value_t = guest::host::STALL_S, requires = "on_virtual_time")]
    stall_s: u64,
    /// The digest of the guest kernel that this is running in.
    #[arg(long, hide = true)]
    in_guest: Option<String>,
    /// The program and its arguments (default: a shell).
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Defaults, which `--netem` replaces.
const QUEUE: &str = "droptail:packets=10000";
const DELAY_MS: f64 = 20.0;
const SEED: u64 = 1;

/// A queue, and how it was written.
#[derive(Clone, Debug)]
struct Queue {
    text: String,
    config: QueueConfig,
}

fn queue(text: &str) -> Result<Queue, String> {
    let config = QueueConfig::parse(text).map_err(|error| error.to_string())?;
    Ok(Queue {
        text: text.to_owned(),
        config,
    })
}

/// The settings of one direction.
#[derive(Debug)]
pub struct DirectionSettings {
    /// `down` or `up`.
    pub name: &'static str,
    /// The channel; `None` without a limit.
    pub channel: Option<String>,
    /// Its content's hash, if it is a trace.
    pub sha256: Option<String>,
    /// The queue.
    pub queue: String,
    /// The emulated path.
    pub path: PathConfig,
}

impl Args {
    /// The directions from the program and to it.
    fn directions(&self) -> Result<[DirectionSettings; 2], Failure> {
        let series = self.delay_series.as_deref().map(delays::read).transpose();
        let series =
            series.map_err(|error| Failure::usage(format_args!("--delay-series: {error}")))?;
        let Fields([mut down, mut up]) = self.fields.clone();
        let up_queue = self.up_queue.as_ref().unwrap_or(&self.queue);
        let delayed = |spec: &mut PathSpec, ms| {
            let constant = || Schedule::constant(Duration::from_millis_f64(ms));
            spec.path.overtaking = series.is_some();
            spec.path.delays = vec![series.clone().unwrap_or_else(constant)];
        };
        delayed(&mut up, self.up_delay_ms.unwrap_or(self.delay_ms));
        delayed(&mut down, self.delay_ms);
        Ok([
            self.direction("up", self.up.clone(), up_queue, up)?,
            self.direction("down", self.down.clone(), &self.queue, down)?,
        ])
    }

    /// Warnings about files whose last line may be cut off.
    fn cut_warnings(&self) -> Vec<String> {
        let channels = [&self.up, &self.down].into_iter().flatten();
        let channels = channels.flat_map(|text| {
            let files = catalogue::find(text).and_then(|channel| channel.files(text));
            files.unwrap_or_default().into_iter().map(|(_, path)| path)
        });
        let files: BTreeSet<PathBuf> = channels
            .chain(self.delay_series.clone())
            .chain(self.fields.files())
            .collect();
        files.iter().filter_map(|path| cut_warning(path)).collect()
    }

    fn direction(
        &self,
        name: &'static str,
        channel: Option<String>,
        queue: &Queue,
        mut spec: PathSpec,
    ) -> Result<DirectionSettings, Failure> {
        let prefix = if name == "up" { "up-" } else { "" };
        let max_mtu = replay::OPPORTUNITY.get();
        if spec.light_trace.is_some() && u64::from(self.mtu) > max_mtu {
            return Err(Failure::usage(format_args!(
                "--mtu must be at most {max_mtu} beside --{prefix}light-trace, not {}",
                self.mtu
            )));
        }
        let opened = (channel.as_deref())
            .map(|text| catalogue::open(text, self.seed, LONGEST_BUILT_IN))
            .transpose()
            .map_err(|error| Failure::usage(format_args!("--{name}: {error}")))?;
        let trace = opened.as_ref().and_then(|channel| channel.trace());
        let sha256 = trace.map(|trace| trace.sha256().to_owned());
        spec.link = opened.map(|channel| (channel, queue.config.clone()));
        spec.light_timer = Duration::from_millis_f64(self.light_timer_ms);
        let opportunity = Bytes::new(u64::from(self.opportunity_bytes));
        let path = spec.read(opportunity, !self.once);
        let path = path.map_err(|(field, error)| {
            Failure::usage(format_args!("--{}: {error}", fields::option(prefix, field)))
        })?;
        Ok(DirectionSettings {
            name,
            channel,
            sha256,
            queue: queue.text.clone(),
            path,
        })
    }

    /// The file of the capture, if requested.
    fn capture(
        &self,
        place: &Place,
        standing: &Standing,
    ) -> Result<Option<(DraftFile, File)>, Failure> {
        let Some(path) = &self.pcap else {
            return Ok(None);
        };
        let create = |file, draft| Ok((draft, file));
        drafted("--pcap", path, place, standing, create).map(Some)
    }

    fn log(
        &self,
        path: Option<&Path>,
        settings: &DirectionSettings,
        place: &Place,
        standing: &Standing,
    ) -> Result<Option<carried::Log>, Failure> {
        let Some(path) = path else { return Ok(None) };
        let heading = Heading {
            link: if settings.name == "up" {
                "Uplink"
            } else {
                "Downlink"
            },
            channel: settings
                .channel
                .clone()
                .unwrap_or_else(|| "no limit".into()),
            queue: settings.queue.clone(),
        };
        let service = settings
            .path
            .link
            .as_ref()
            .map(|(service, _)| service.clone());
        let create = |file, draft| {
            let log = LinkLog::new(file, &heading, service)?;
            Ok(carried::Log { log, draft })
        };
        let option = format!("--log-{}", settings.name);
        drafted(&option, path, place, standing, create).map(Some)
    }
}

/// Result of `create` with the draft of a file, which the caller may write there.
fn drafted<T: Send>(
    option: &str,
    path: &Path,
    place: &Place,
    standing: &Standing,
    create: impl FnOnce(File, DraftFile) -> io::Result<T> + Send,
) -> Result<T, Failure> {
    let name = draft::name(path).map_err(launcher_failure)?;
    place
        .draft(&path.with_file_name(&name))
        .map_err(launcher_failure)?;
    let create = || {
        let (draft, file) = DraftFile::create(path, name)?;
        create(file, draft)
    };
    standing
        .as_caller(create)
        .and_then(|created| created)
        .map_err(|error| {
            let path = path.display();
            Failure::usage(format_args!(
                "{option}: `{path}` cannot be written ({error})"
            ))
        })
}

/// Runs the program to its end.
///
/// # Errors
/// If it could not be run, or it failed: then its exit code.
pub fn run(args: &Args, ui: &Ui) -> Result<(), Failure> {
    let (args, translated) = netem::translated(args)?;
    let args = &args;
    if let Some(options) = translated.filter(|_| args.in_guest.is_none()) {
        ui.note(format_args!("netem: {options}"));
    }
    if args.pcap.is_some() && args.fields.0.iter().any(|spec| spec.path.duplicate > 0.0) {
        return Err(Failure::usage(
            "--pcap: a capture has a packet once, so it takes paths without duplicates",
        ));
    }
    let directions = args.directions()?;
    if args.in_guest.is_none() {
        for warning in args.cut_warnings() {
            ui.note(format_args!("Warning: {warning}"));
        }
        if args.on_virtual_time {
            return on_virtual_time(args, ui);
        }
    }
    let caller = privilege::caller()?;
    if let Some(out) = &args.out {
        let check = || folder::check("--out", out, args.force);
        privilege::as_caller(caller.as_ref(), check).map_err(launcher_failure)??;
    }
    let standing = privilege::acquire(caller)?;
    if standing.is_for_root() && args.in_guest.is_none() {
        ui.note("started as root itself, and not through sudo, doas or pkexec: the program runs as root too");
    }
    let mut signals = Signals::not_ignored().map_err(launcher_failure)?;
    let host = set_up_host(&standing, args, ui)?;
    let logs = [
        args.log(
            args.log_up.as_deref(),
            &directions[0],
            &host.place,
            &standing,
        )?,
        args.log(
            args.log_down.as_deref(),
            &directions[1],
            &host.place,
            &standing,
        )?,
    ];
    let capture = args.capture(&host.place, &standing)?;
    let paths = [directions[0].path.clone(), directions[1].path.clone()];
    let mut emulator = Emulator::new(host.devices, &paths, args.seed).map_err(launcher_failure)?;
    if let Some(signal) = signals.take() {
        return Err(Failure::signal(signal));
    }
    emulator.begin();
    let capture = capture.map(captured::begin).transpose();
    let mut watch = carried::Watch::new(logs, capture.map_err(launcher_failure)?);

    let stop = AtomicBool::new(false);
    let (ring, wake) = UnixStream::pair().map_err(launcher_failure)?;
    let (ended, status) = mpsc::channel();
    let (done, notify) = UnixStream::pair().map_err(launcher_failure)?;
    let (broken, break_off) = (
        AtomicBool::new(false),
        notify.try_clone().map_err(launcher_failure)?,
    );
    let mut command = Command::new("/proc/self/exe");
    command.args(standing.launch(host.resolver.as_deref(), &args.command));
    command.env("MAHIMAHI_BASE", host.names.ipv4.0.to_string());
    let (status, emulated) = thread::scope(|scope| {
        let emulation = thread::Builder::new()
            .name("link".to_owned())
            .spawn_scoped(scope, || {
                in_real_time();
                let mut last = Ok(());
                let [forth, back] = &mut watch.directions;
                while !stop.load(Ordering::Relaxed) && last.is_ok() {
                    last = emulator.turn(None, wake.as_fd(), forth, back).map(drop);
                }
                if last.is_err() {
                    broken.store(true, Ordering::Relaxed);
                    let _ = (&break_off).write_all(b"!");
                }
                last
            })
            .map_err(launcher_failure)?;
        // A child is killed when the thread that started it ends, so this thread waits.
        let (inner, apart) = (&host.inner, standing.is_for_root());
        scope.spawn(move || {
            let waited = inner.within(|| -> io::Result<(u32, ExitStatus)> {
                if apart {
                    // For this thread's children: a program as root can then end only processes of
                    // the new namespace.
                    unshare(CloneFlags::CLONE_NEWPID)?;
                }
                let mut child: Child = command.spawn()?;
                let _ = ended.send(Ok(Ended::Started(child.id())));
                let _ = (&notify).write_all(b"!");
                Ok((child.id(), child.wait()?))
            });
            let _ = ended.send(
                waited
                    .and_then(|status| status)
                    .map(|(_, status)| Ended::Ended(status)),
            );
            let _ = (&notify).write_all(b"!");
        });
        let result = attend(&status, &done, &mut signals, &broken, apart);
        stop.store(true, Ordering::Relaxed);
        let _ = (&ring).write_all(b"!");
        let emulated = emulation
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok::<_, Failure>((result, emulated))
    })?;
    let status = status.map_err(launcher_failure)?;
    emulated.map_err(launcher_failure)?;

    let drops = device_drops(&host.inner, &host.names.device).map_err(launcher_failure)?;
    let summary = watch.finish(&emulator, &directions, drops, &standing);
    drop(emulator);
    for line in summary.table() {
        ui.note(line);
    }
    summary.logs.map_err(launcher_failure)?;
    if let Some(out) = &args.out {
        let write = || carried::write(out, args, &directions, &summary.runs, &summary.timing);
        standing.as_caller(write).map_err(launcher_failure)??;
    }
    drop(host.place);
    verdict(args, ui, exit_code(status), summary.timing.lateness_p99_ms)
}

/// Runs the same command in a guest.
fn on_virtual_time(args: &Args, ui: &Ui) -> Result<(), Failure> {
    if args.command.is_empty() {
        return Err(Failure::usage(
            "--virtual needs a program, as in `verus shell --virtual … -- CMD`: nobody can type on virtual time",
        ));
    }
    let kernel = guest::Kernel::find()?;
    let program = std::env::current_exe().map_err(launcher_failure)?;
    let mut command: Vec<OsString> = std::env::args_os().collect();
    command[0] = program.into();
    let verb = command.iter().position(|word| word == "shell");
    let options = verb.map_or(1, |verb| verb + 1);
    let guest_kernel = ["--in-guest".into(), kernel.sha256.clone().into()];
    command.splice(options..options, guest_kernel);
    let task = guest::host::Task {
        seed: args.seed,
        servers: args.server.clone(),
        stall_s: args.stall_s,
        ..guest::host::Task::of(command)
    };
    guest::host::run(&kernel, task, ui)
}

/// The command's result: from the program's exit code, and from the punctuality of the link.
fn verdict(args: &Args, ui: &Ui, code: u8, late: f64) -> Result<(), Failure> {
    let invalid = args
        .max_lateness_ms
        .filter(|&bound| late > bound)
        .map(|bound| {
            format!(
                "the run is invalid: the 99th percentile of the deliveries' lateness is {late:.3} ms, and --max-lateness-ms {bound}"
            )
        });
    match (code, invalid) {
        (0, None) => Ok(()),
        (0, Some(invalid)) => Err(Failure::missed(invalid)),
        (code, invalid) => {
            // The program's exit code says more, and only one can be returned.
            if let Some(invalid) = invalid {
                ui.note(format_args!("verus: {invalid}"));
            }
            Err(Failure::passed_on(code))
        }
    }
}

/// State of the program.
enum Ended {
    /// It runs, under this process ID.
    Started(u32),
    /// It has ended.
    Ended(ExitStatus),
}

/// Passes signals on until the program has ended; ends it if the emulator is `broken`. The first
/// process of a separate PID namespace (`apart`) ignores signals until it handles them. It has
/// started nothing by then, so it is killed.
fn attend(
    status: &mpsc::Receiver<io::Result<Ended>>,
    done: &UnixStream,
    signals: &mut Signals,
    broken: &AtomicBool,
    apart: bool,
) -> io::Result<ExitStatus> {
    done.set_nonblocking(true)?;
    let (mut child, mut pending, mut ended_by) = (None, None, None);
    loop {
        let _ = (&*done).read(&mut [0; 16]);
        while let Ok(news) = status.try_recv() {
            match news? {
                Ended::Started(id) => child = i32::try_from(id).ok().and_then(Pid::from_raw),
                Ended::Ended(status) => {
                    return Ok(ended_by.map_or(status, ExitStatus::from_raw));
                }
            }
        }
        pending = signals.take().and_then(Signal::from_named_raw).or(pending);
        if broken.load(Ordering::Relaxed) {
            pending = Some(Signal::KILL);
        }
        if let Some(child) = child
            && let Some(signal) = pending.take()
            && !sent_by_terminal(signal)
        {
            let unheard = apart && !signals::is_handled(child.as_raw_pid(), signal.as_raw());
            if unheard && signal != Signal::KILL {
                ended_by = Some(signal.as_raw());
                let _ = kill_process(child, Signal::KILL);
            } else {
                let _ = kill_process(child, signal);
            }
        }
        let mut fds = [
            PollFd::new(done, PollFlags::IN),
            PollFd::new(signals, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether a signal came from the keyboard. The program gets it too, since it is in the foreground
/// with us; other signals go to us alone.
fn sent_by_terminal(signal: Signal) -> bool {
    let foreground = || {
        let terminal = std::fs::File::open("/dev/tty").ok()?;
        rustix::termios::tcgetpgrp(terminal).ok()
    };
    (signal == Signal::INT || signal == Signal::QUIT) && foreground() == Some(getpgrp())
}

/// The code that a shell would give it.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Both ends of the path on this host.
struct Ends {
    /// The program's end and ours.
    devices: [Device; 2],
    names: Names,
    inner: Namespace,
    /// The file that the program gets as `/etc/resolv.conf`.
    resolver: Option<PathBuf>,
    place: Place,
    _masquerades: Vec<Masquerade>,
    /// Kept until the place is given up, and with it forwarding.
    _confinements: Vec<Confinement>,
}

fn set_up_host(standing: &Standing, args: &Args, ui: &Ui) -> Result<Ends, Failure> {
    let cannot = |what: &str, error: &io::Error| privilege::explain(what, error);
    let place = Place::take(&standing.notes())
        .map_err(|error| cannot("a place for the emulated path", &error))?;
    let names = Names::new(place.number());
    let ipv6 = args.mtu >= IPV6_LEAST_MTU && footprint::has_ipv6();
    // Without such a route, programs must not wait for IPv6.
    let ipv6_beyond = ipv6
        && standing.reaches_internet()
        && netlink::has_ipv6_default_route().map_err(launcher_failure)?;
    let end = |ipv4, v6| DeviceConfig {
        name: names.device.clone(),
        ipv4,
        ipv6: ipv6.then_some(v6),
        mtu: args.mtu,
    };
    let outer = Device::new(&end(names.ipv4.0, names.ipv6.0))
        .map_err(|error| cannot("a TUN device", &error))?;
    let inner = Namespace::new().map_err(|error| cannot("a network namespace", &error))?;
    let far = end(names.ipv4.1, names.ipv6.1);
    let device = inner
        .within(|| -> io::Result<Device> {
            let device = Device::new(&far)?;
            let index = device.index()?;
            netlink::default_route(index, Family::V4)?;
            if ipv6_beyond {
                netlink::default_route(index, Family::V6)?;
            }
            Ok(device)
        })
        .and_then(|device| device)
        .map_err(|error| cannot("the program's end of the path", &error))?;
    let mut masquerades = Vec::new();
    let mut confinements = Vec::new();
    let mut resolver = None;
    if args.in_guest.is_some() {
        if args.server.is_empty() {
            ui.note("verus: on virtual time the program reaches no other machine: --server starts what it talks to");
        }
    } else if standing.reaches_internet() {
        let table = format!("{}-{}", names.device, std::process::id());
        let translated = (|| -> io::Result<()> {
            masquerades.push(Masquerade::new(&table, names.ipv4.1.into())?);
            confinements.extend(place.forward(&names.device, false)?);
            if ipv6_beyond {
                masquerades.push(Masquerade::new(&table, names.ipv6.1.into())?);
                confinements.extend(place.forward(&names.device, true)?);
            }
            Ok(())
        })();
        if let Err(error) = translated {
            ui.note(format_args!(
                "verus: the program reaches this host only, not what is beyond it: no address translation ({error})"
            ));
        }
        let resolution = Resolution::of_host();
        if let Some(text) = resolution.configuration(names.ipv4.0) {
            let file = place.file("resolv.conf");
            std::fs::write(&file, text).map_err(launcher_failure)?;
            // Readable for every user of the program, with any umask.
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644))
                .map_err(launcher_failure)?;
            resolver = Some(file);
        }
        if let Resolution::Relay(server) = resolution {
            relay_queries(names.ipv4.0, server, ui)?;
        }
    } else {
        ui.note(
            "verus: without root the far end of the link is an empty host of its own (see docs/emulator.md)",
        );
    }
    Ok(Ends {
        devices: [device, outer],
        names,
        inner,
        resolver,
        place,
        _masquerades: masquerades,
        _confinements: confinements,
    })
}

fn relay_queries(
    near: std::net::Ipv4Addr,
    server: std::net::SocketAddr,
    ui: &Ui,
) -> Result<(), Failure> {
    let ui = *ui;
    thread::Builder::new()
        .name("names".to_owned())
        .spawn(move || {
            let relayed = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .and_then(|runtime| runtime.block_on(resolver::relay(near, server)));
            if let Err(error) = relayed {
                ui.note(format_args!(
                    "verus: the program cannot resolve names: {error}"
                ));
            }
        })
        .map_err(launcher_failure)?;
    Ok(())
}

/// Packets that both devices dropped, as their kernels count.
fn device_drops(inner: &Namespace, device: &str) -> io::Result<u64> {
    Ok(netlink::device_drops(device)? + inner.within(|| netlink::device_drops(device))??)
}

/// A failure of the launcher rather than the program.
fn launcher_failure(error: io::Error) -> Failure {
    Failure::launcher(format_args!("shell: {error}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// The program may be anybody's, while the emulator runs as root, without another limit of its
    /// memory.
    #[test]
    fn the_default_queue_is_bounded_whichever_way() {
        let line = Line::parse_from(["shell", "--down", "rate:1", "--up", "rate:1"]);
        for settings in line.args.directions().expect("valid") {
            let (_, queue) = settings.path.link.expect("a rate");
            assert_ne!(queue, QueueConfig::Infinite, "{}", settings.name);
        }
    }

    #[test]
    fn each_file_whose_last_line_may_be_cut_off_is_named_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("a file");
            path.display().to_string()
        };
        let (cut, whole) = (file("cut", "1\n2\n30"), file("whole", "1\n2\n30\n"));
        let line = Line::parse_from([
            "shell",
            "--down",
            &format!("{cut}[0:1]+{whole}"),
            "--up",
            &cut,
        ]);
        let warnings = line.args.cut_warnings();
        assert!(
            matches!(&warnings[..], [one] if one.contains("cut`")),
            "{warnings:?}"
        );
    }
}
