//! The guest's first process: it makes a system of the kernel, runs the command, and ends the guest.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration as Span;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::personality::{self, Persona};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{Mode, umask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::fs::{OFlags, open};
use rustix::time::{ClockId, clock_getres, clock_gettime};
use verus_emu::netlink;

use super::work::{CLOCK, FAILURE, OUTPUTS, SIGNAL, SIGNALS, STATUS, WORK, Work};
use crate::failure::Failure;

/// File systems without a device: the kind, the place, and whether the place must be made.
const MOUNTS: [(&str, &str, bool); 7] = [
    ("proc", "/proc", false),
    ("sysfs", "/sys", false),
    ("devtmpfs", "/dev", false),
    ("devpts", "/dev/pts", true),
    ("tmpfs", "/dev/shm", true),
    ("tmpfs", "/run", false),
    ("tmpfs", "/run/lock", true),
];
/// Names in `/dev` that udev makes elsewhere.
const LINKS: [(&str, &str); 4] = [
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
];
/// Interval of the guest's clock at which it is written and signals are looked for.
const BEAT: Span = Span::from_millis(50);
/// How long servers have to listen before the command begins. Computing takes no time.
const SETTLE: Span = Span::from_secs(1);
/// Limit of the wait for timers of high resolution, of the guest's clock.
const PATIENCE: Span = Span::from_secs(60);

/// Runs what the folder says, and ends the guest. It returns only if the guest cannot be ended.
pub fn run(folder: &Path) -> Result<(), Failure> {
    // Files are opened before anything is mounted over their folder.
    let ended = Desk::open(folder).and_then(|mut desk| {
        let code = desk.run();
        let name = if code.is_ok() { STATUS } else { FAILURE };
        let text = code.map_or_else(|error| error.to_string(), |code| code.to_string());
        desk.write(name, &text)
    });
    if let Err(error) = ended {
        // To the kernel's console, whose last lines the host shows.
        crate::plain::warn(format_args!("verus: {}: {error}", folder.display()));
    }
    rustix::fs::sync();
    match reboot(RebootMode::RB_POWER_OFF) {
        Ok(never) => match never {},
        Err(error) => Err(Failure::launcher(format_args!("power off: {error}"))),
    }
}

/// The shared folder, and what to do.
struct Desk {
    /// The folder as a path that mounts do not hide: it is the first process's working folder.
    folder: PathBuf,
    work: Work,
    clock: File,
    input: Stdio,
}

impl Desk {
    fn open(folder: &Path) -> io::Result<Self> {
        std::env::set_current_dir(folder)?;
        let folder = PathBuf::from(".");
        let work: Work = serde_json::from_slice(&fs::read(folder.join(WORK))?)?;
        let input = match &work.input {
            Some(path) => File::open(path)
                .map_err(|error| named("standard input", path, &error))?
                .into(),
            None => Stdio::null(),
        };
        Ok(Desk {
            clock: File::create(folder.join(CLOCK))?,
            input,
            folder,
            work,
        })
    }

    /// Writes a file, whole.
    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let part = self.folder.join(format!("{name}.part"));
        fs::write(&part, text)?;
        fs::rename(part, self.folder.join(name))
    }

    /// Runs the command to its end; returns its exit code, as a shell would.
    fn run(&mut self) -> io::Result<i32> {
        // Before the mounts, which may hide it.
        let place = open(
            &self.work.folder,
            OFlags::PATH | OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )
        .map_err(|error| named("the working folder", &self.work.folder, &error.into()))?;
        set_up()?;
        self.beat()?;
        await_fine_timers()?;
        umask(Mode::from_bits_truncate(self.work.umask));
        let mut forwarded = Vec::new();
        let mut servers = Vec::new();
        for line in &self.work.servers {
            let (uid, gid) = self.work.user;
            let mut command = Command::new("/proc/self/exe");
            command.args([crate::LAUNCH, "--parent", "1"]);
            if uid != 0 {
                command.args(["--uid", &uid.to_string(), "--gid", &gid.to_string()]);
            }
            command.args(["--", "/bin/sh", "-c"]).arg(line);
            let command = command.stdin(Stdio::null());
            servers.push((line, self.start(command, &place, &mut forwarded)?));
        }
        if !servers.is_empty() {
            thread::sleep(SETTLE);
            for (line, server) in &mut servers {
                if let Some(status) = server.try_wait()?
                    && !status.success()
                {
                    return Err(io::Error::other(format!(
                        "the server `{}` ended before the program began ({status})",
                        line.to_string_lossy()
                    )));
                }
            }
        }
        // It says why a command cannot be run, with the exit code for that.
        let mut command = Command::new("/proc/self/exe");
        command
            .args([crate::LAUNCH, "--parent", "1", "--"])
            .args(&self.work.arguments)
            .stdin(std::mem::replace(&mut self.input, Stdio::null()));
        let child = self.start(&mut command, &place, &mut forwarded)?;
        let id = i32::try_from(child.id()).map_err(io::Error::other)?;
        let code = self.attend(Pid::from_raw(id))?;
        // All others, which hold the outputs open.
        let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
        for thread in forwarded {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(code)
    }

    /// Starts a command in the working folder; threads of `forwarded` write its outputs.
    fn start(
        &self,
        command: &mut Command,
        place: &OwnedFd,
        forwarded: &mut Vec<JoinHandle<io::Result<()>>>,
    ) -> io::Result<Child> {
        let environment = self.work.environment.iter().cloned();
        let (out, err) = (io::pipe()?, io::pipe()?);
        let child = command
            .env_clear()
            .envs(environment)
            .process_group(0)
            .current_dir(format!("/proc/self/fd/{}", place.as_raw_fd()))
            .stdout(out.1)
            .stderr(err.1)
            .spawn()
            .map_err(|error| named("the command", Path::new(command.get_program()), &error))?;
        // The ends for writing are the child's alone, so that theirs are the last to close.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        for (mut from, name) in [out.0, err.0].into_iter().zip(OUTPUTS) {
            let path = self.folder.join(name);
            let mut to = OpenOptions::new().create(true).append(true).open(path)?;
            forwarded.push(thread::Builder::new().spawn(move || {
                let mut buffer = [0; 1 << 16];
                loop {
                    match from.read(&mut buffer)? {
                        0 => return Ok(()),
                        read => to.write_all(&buffer[..read])?,
                    }
                }
            })?);
        }
        Ok(child)
    }

    /// Waits for the command and for orphans, and passes signals on.
    fn attend(&self, command: Pid) -> io::Result<i32> {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(id, code)) if id == command => return Ok(code),
                Ok(WaitStatus::Signaled(id, signal, _)) if id == command => {
                    return Ok(128 + signal as i32);
                }
                Ok(WaitStatus::StillAlive) => {
                    self.beat()?;
                    for number in SIGNALS {
                        let request = self.folder.join(format!("{SIGNAL}{number}"));
                        if fs::remove_file(request).is_ok()
                            && let Ok(signal) = Signal::try_from(number)
                        {
                            // It may have ended.
                            let _ = kill(command, signal);
                        }
                    }
                    thread::sleep(BEAT);
                }
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes what the clock says.
    fn beat(&self) -> io::Result<()> {
        let now = clock_gettime(ClockId::Monotonic);
        let ns = now.tv_sec * 1_000_000_000 + now.tv_nsec;
        self.clock.write_all_at(&ns.to_ne_bytes(), 0)
    }
}

/// Mounts, switches the loopback interface on, and makes addresses the same each time.
fn set_up() -> io::Result<()> {
    for (kind, place, new) in MOUNTS {
        let made = if new {
            fs::create_dir_all(place)
        } else {
            Ok(())
        };
        let nothing: Option<&str> = None;
        made.and_then(|()| {
            Ok(mount(
                Some(kind),
                place,
                Some(kind),
                MsFlags::empty(),
                nothing,
            )?)
        })
        .map_err(|error| named(kind, Path::new(place), &error))?;
    }
    for (target, link) in LINKS {
        // devtmpfs of another kernel may have it.
        let _ = std::os::unix::fs::symlink(target, link);
    }
    netlink::loopback_up()?;
    let persona = personality::get()?;
    personality::set(persona | Persona::ADDR_NO_RANDOMIZE)?;
    Ok(())
}

/// Waits until timers are exact. Until the kernel has switched to its high resolution, they have that
/// of its ticks, and packets would leave in bursts.
fn await_fine_timers() -> io::Result<()> {
    let mut waited = Span::ZERO;
    while clock_getres(ClockId::Monotonic).tv_nsec > 1 {
        if waited > PATIENCE {
            return Err(io::Error::other(
                "the guest kernel has no timers of high resolution",
            ));
        }
        thread::sleep(BEAT);
        waited += BEAT;
    }
    Ok(())
}

fn named(what: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("{what} `{}`: {error}", path.display()),
    )
}
