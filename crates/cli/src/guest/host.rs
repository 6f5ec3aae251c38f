//! The host's side: it starts the guest, forwards its output, and returns the command's exit code.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::stat::{Mode, umask};
use nix::unistd::{getegid, geteuid};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{WaitOptions, getpid, set_child_subreaper};
use verus_emu::footprint::own_folder;

use super::kernel::Kernel;
use super::work::{CLOCK, FAILURE, OUTPUTS, SIGNAL, STATUS, WORK, Work};
use crate::failure::Failure;
use crate::signals::Signals;
use crate::ui::Ui;

/// Processor time in which the guest's clock may stand still, s.
pub const STALL_S: u64 = 60;
/// The guest's memory. The host allocates a page when the guest first uses it.
const MEMORY: &str = "2G";
/// The wall clock at boot: 2026-01-01T00:00:00Z, ns.
const START_NS: u64 = 1_767_225_600_000_000_000;
/// The shared folder, which is the guest kernel's working folder.
const HERE: &str = "/proc/self/cwd";
/// Interval of looks at the outputs, ms.
const LOOK_MS: i64 = 20;
/// Looks between those at the clock.
const LOOKS: u32 = 50;
/// Looks that a command has to end after a signal.
const LEAVE: u32 = 250;
/// Looks, a millisecond apart, at processes of a guest that was ended.
const LAST_LOOKS: u32 = 5_000;
/// Held while folders are made and removed.
const LOCK: &str = "lock";
/// Held as long as a folder's process lives.
const ALIVE: &str = "alive";
/// Variables by which the guest's `root` would be taken for that of another user.
const RIGHTS: [&str; 7] = [
    "SUDO_UID",
    "SUDO_GID",
    "SUDO_USER",
    "SUDO_COMMAND",
    "DOAS_USER",
    "PKEXEC_UID",
    // The folder is not in the guest.
    "XDG_RUNTIME_DIR",
];

/// A command for the guest.
pub struct Task {
    /// The command.
    pub command: Vec<OsString>,
    /// Seeds all of the guest's random numbers.
    pub seed: u64,
    /// Its standard input. Without it, that of this process if that is a file, else nothing.
    pub input: Option<Vec<u8>>,
    /// Command lines that run beside it.
    pub servers: Vec<OsString>,
    /// Processor time in which the guest's clock may stand still, s.
    pub stall_s: u64,
}

impl Task {
    /// A task with only a command.
    pub fn of(command: Vec<OsString>) -> Self {
        Task {
            command,
            seed: 1,
            input: None,
            servers: Vec::new(),
            stall_s: STALL_S,
        }
    }
}

/// Runs a task in a separate guest.
///
/// # Errors
/// If it could not be run, or it failed: then its exit code.
pub fn run(kernel: &Kernel, task: Task, ui: &Ui) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::launcher(format_args!("virtual time: {error}"));
    let mut signals = Signals::not_ignored().map_err(failed)?;
    let folder = Folder::new().map_err(failed)?;
    let stall_s = task.stall_s;
    prepare(&folder, task, kernel)
        .and_then(|mut command| {
            ui.detail(format_args!("guest kernel {}", kernel.sha256));
            command.spawn()
        })
        .map_err(failed)
        .and_then(|child| attend(&folder.path, child, &mut signals, stall_s))
}

/// Writes the folder; returns the command that becomes the guest.
fn prepare(folder: &Folder, task: Task, kernel: &Kernel) -> io::Result<Command> {
    let number = folder.number;
    let folder = &folder.path;
    let input = match task.input {
        Some(bytes) => {
            let path = folder.join("stdin");
            fs::write(&path, bytes)?;
            Some(path)
        }
        // A pipe or a terminal belongs to the machine's time.
        None => fs::read_link("/proc/self/fd/0")
            .ok()
            .filter(|path| path.is_file()),
    };
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let mut environment: Vec<(OsString, OsString)> = env::vars_os().collect();
    let set = |environment: &mut Vec<(OsString, OsString)>, name: &str, value: String| {
        environment.push((name.into(), value.into()));
    };
    if uid != 0 {
        environment.retain(|(name, _)| !RIGHTS.iter().any(|other| name == other));
        set(&mut environment, "SUDO_UID", uid.to_string());
        set(&mut environment, "SUDO_GID", gid.to_string());
    }
    if env::var_os("PYTHONHASHSEED").is_none() {
        let seed = u32::try_from(task.seed % (1 << 32)).expect("a remainder");
        set(&mut environment, "PYTHONHASHSEED", seed.to_string());
    }
    let mask = umask(Mode::empty());
    umask(mask);
    let work = Work {
        arguments: task.command,
        environment,
        folder: env::current_dir()?,
        input,
        umask: mask.bits(),
        servers: task.servers,
        user: (uid, gid),
    };
    fs::write(folder.join(WORK), serde_json::to_vec(&work)?)?;
    std::os::unix::fs::symlink(env::current_exe()?, folder.join("init"))?;
    let console = File::create(folder.join("console"))?;
    let mut command = Command::new("/proc/self/exe");
    command.args([
        "guest",
        "launch",
        "--parent",
        &std::process::id().to_string(),
        "--number",
        &number.to_string(),
        "--",
    ]);
    command.arg(&kernel.path);
    command.args([
        "rootfstype=hostfs",
        "rootflags=/",
        "rw",
        "quiet",
        "time-travel=inf-cpu",
    ]);
    command.arg(format!("time-travel-start={START_NS}"));
    command.arg(format!("mem={MEMORY}"));
    // Its last lines are in the message if it fails.
    command.args(["con=null", "con0=null,fd:1"]);
    // The kernel's random numbers depend on its command line, which names no folder for that reason.
    // Until the guest mounts `/proc`, it sees the host's, where `self` is the guest kernel.
    command.args(["uml_dir=.", "umid=guest"]);
    command.arg(format!("init={HERE}/init"));
    command.args(["--", "guest", "first", HERE]);
    command.current_dir(folder);
    command.env("UML_RANDOM_SEED", task.seed.to_string());
    command.stdin(Stdio::null());
    command.stdout(console.try_clone()?).stderr(console);
    Ok(command)
}

/// Forwards outputs and signals until the guest has ended.
fn attend(folder: &Path, child: Child, signals: &mut Signals, stall_s: u64) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::launcher(format_args!("virtual time: {error}"));
    let mut guest = Guest(child);
    // Processes of a guest that has ended become children of this process, which waits for them.
    set_child_subreaper(Some(getpid())).map_err(|error| failed(error.into()))?;
    let mut outputs = OUTPUTS.map(|name| Tail::new(folder.join(name)));
    let mut standstill = Standstill::new(folder.join(CLOCK), guest.0.id(), stall_s);
    let (mut looks, mut leave) = (0_u32, None);
    loop {
        let ended = guest.0.try_wait().map_err(failed)?;
        let [out, err] = &mut outputs;
        out.forward(&mut io::stdout())
            .and_then(|()| err.forward(&mut io::stderr()))
            .map_err(|error| Failure::output(&error))?;
        if ended.is_some() {
            return verdict(folder);
        }
        if let Some(signal) = signals.take() {
            // A second one does not wait.
            if leave.is_some() {
                return Err(Failure::signal(signal));
            }
            leave = Some((signal, looks));
            File::create(folder.join(format!("{SIGNAL}{signal}"))).map_err(failed)?;
        }
        if let Some((signal, since)) = leave
            && looks - since > LEAVE
        {
            return Err(Failure::signal(signal));
        }
        if looks.is_multiple_of(LOOKS) && standstill.is_too_long() {
            return Err(Failure::launcher(format_args!(
                "the guest's clock stood still for {stall_s} s of processor time: something in it computes for so long, or waits without sleeping, which never ends on virtual time"
            )));
        }
        looks += 1;
        let wait = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: LOOK_MS * 1_000_000,
        };
        match poll(&mut [PollFd::new(signals, PollFlags::IN)], Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(failed(error.into())),
        }
    }
}

/// The result of a guest that has ended.
fn verdict(folder: &Path) -> Result<(), Failure> {
    if let Ok(code) = fs::read_to_string(folder.join(STATUS)) {
        return match code.parse::<i32>() {
            Ok(0) => Ok(()),
            code => Err(Failure::passed_on(
                code.ok()
                    .and_then(|code| u8::try_from(code).ok())
                    .unwrap_or(u8::MAX),
            )),
        };
    }
    if let Ok(reason) = fs::read_to_string(folder.join(FAILURE)) {
        return Err(Failure::launcher(format_args!("virtual time: {reason}")));
    }
    let console = fs::read(folder.join("console")).unwrap_or_default();
    let console = String::from_utf8_lossy(&console);
    let lines: Vec<&str> = console
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let last = &lines[lines.len().saturating_sub(10)..];
    Err(
        Failure::launcher("the guest kernel ended before the command (it takes ptrace, and memory that may be executed in /dev/shm or TMPDIR)")
            .listing(last.iter().map(|&line| line.to_owned()).collect()),
    )
}

/// The running guest, which ends with this.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        // Its processes end with it (PR_SET_PDEATHSIG in the kernel's source), in a moment; they are
        // children of this process by now.
        for _ in 0..LAST_LOOKS {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => thread::sleep(Duration::from_millis(1)),
                Err(_) => return, // there are none
            }
        }
    }
}

/// A file that grows.
struct Tail {
    path: PathBuf,
    file: Option<File>,
    at: u64,
}

impl Tail {
    fn new(path: PathBuf) -> Self {
        Tail {
            path,
            file: None,
            at: 0,
        }
    }

    /// Writes all additions since the last call.
    fn forward(&mut self, to: &mut impl Write) -> io::Result<()> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        file.seek(SeekFrom::Start(self.at))?;
        let copied = io::copy(file, to)?;
        self.at += copied;
        if copied > 0 { to.flush() } else { Ok(()) }
    }
}

/// Whether the guest's processes compute while its clock stands still.
struct Standstill {
    clock: PathBuf,
    session: u32,
    limit_s: u64,
    last: Vec<u8>,
    since_ticks: u64,
}

impl Standstill {
    fn new(clock: PathBuf, session: u32, limit_s: u64) -> Self {
        Standstill {
            clock,
            session,
            limit_s,
            last: Vec::new(),
            since_ticks: 0,
        }
    }

    fn is_too_long(&mut self) -> bool {
        let clock = fs::read(&self.clock).unwrap_or_default();
        let used = processor_ticks(self.session);
        if clock != self.last {
            self.last = clock;
            self.since_ticks = used;
        }
        let spent = used.saturating_sub(self.since_ticks);
        spent > self.limit_s * rustix::param::clock_ticks_per_second()
    }
}

/// Processor time of a session's processes, in the kernel's ticks.
fn processor_ticks(session: u32) -> u64 {
    let mut ticks = 0;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if !entry.file_name().as_encoded_bytes()[0].is_ascii_digit() {
            continue;
        }
        // It may have ended.
        let text = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name, in parentheses, may contain anything (proc_pid_stat(5)).
        let Some((_, fields)) = text.rsplit_once(')') else {
            continue;
        };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |index: usize| {
            fields
                .get(index)
                .and_then(|field| field.parse::<u64>().ok())
        };
        if number(3) == Some(u64::from(session)) {
            ticks += (11..15).filter_map(number).sum::<u64>();
        }
    }
    ticks
}

/// A folder for one guest, which is removed with this. Those of processes that were killed are
/// removed when the next one is made.
struct Folder {
    path: PathBuf,
    /// The least that no other guest has.
    number: usize,
    _alive: File,
}

impl Folder {
    fn new() -> io::Result<Self> {
        let parent = env::temp_dir().join(format!("verus-virtual-{}", geteuid()));
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("`{}`: {error}", parent.display()))
        };
        let _lock = lock(&parent).map_err(named)?;
        sweep(&parent).map_err(named)?;
        let (number, path) = (0_usize..)
            .map(|number| (number, parent.join(number.to_string())))
            .find(|(_, path)| !path.exists())
            .expect("fewer folders than numbers");
        DirBuilder::new().mode(0o700).create(&path)?;
        let alive = File::create(path.join(ALIVE))?;
        flock(&alive, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Folder {
            path,
            number,
            _alive: alive,
        })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
        let Some(parent) = self.path.parent() else {
            return;
        };
        if let Ok(_lock) = lock(parent)
            && fs::read_dir(parent).is_ok_and(|entries| entries.count() == 1)
        {
            let _ = fs::remove_file(parent.join(LOCK));
            let _ = fs::remove_dir(parent);
        }
    }
}

/// Locks the folder of all guests, which it makes if there is none.
fn lock(parent: &Path) -> io::Result<File> {
    loop {
        own_folder(parent)?;
        let path = parent.join(LOCK);
        let Some(file) = present(File::create(&path))? else {
            continue;
        };
        flock(&file, FlockOperation::LockExclusive)?;
        // Its last holder may have removed it meanwhile.
        let current = present(fs::metadata(&path))?;
        if current.is_some_and(|current| {
            file.metadata()
                .is_ok_and(|ours| ours.ino() == current.ino())
        }) {
            return Ok(file);
        }
    }
}

/// `None` if it is not there.
fn present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// Removes what guests have left whose processes were killed.
fn sweep(parent: &Path) -> io::Result<()> {
    for entry in fs::read_dir(parent)? {
        let path = entry?.path();
        let is_held = |alive| flock(alive, FlockOperation::NonBlockingLockExclusive).is_err();
        if path.ends_with(LOCK) || File::open(path.join(ALIVE)).is_ok_and(is_held) {
            continue;
        }
        // A guest that ends may just remove it.
        present(fs::remove_dir_all(&path))?;
    }
    Ok(())
}
