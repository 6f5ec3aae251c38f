//! Confines the calling process before it runs a controller's file that somebody else wrote.
//!
//! Landlock (Linux 5.13) denies files, TCP and signals to processes outside, as far as the kernel has each. A seccomp
//! filter denies what Landlock cannot: other sockets, new processes, wider limits, memory that several processes share,
//! and calls of the kernel that would lead around the filter.

use std::path::PathBuf;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// Confines the calling thread and those that it starts, for good. Files can be read at or below `readable` alone, names
/// of files at or below `listed`, too; none can be written, and no socket or process can be made. Open descriptors stay
/// usable. Returns Landlock's version.
///
/// # Errors
/// If the system has no Landlock, or other threads run already, which would stay unconfined.
#[pyfunction]
pub(crate) fn confine(readable: Vec<PathBuf>, listed: Vec<PathBuf>) -> PyResult<i32> {
    confined(&readable, &listed).map_err(PyOSError::new_err)
}

#[cfg(target_os = "linux")]
fn confined(readable: &[PathBuf], listed: &[PathBuf]) -> Result<i32, String> {
    use landlock::{
        ABI, Access, AccessFs, AccessNet, LandlockStatus, RestrictionStatus, Ruleset, RulesetAttr,
        RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
    };
    /// The newest version that we know. The kernel enforces the part that it supports.
    const NEWEST: ABI = ABI::V9;

    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads != 1 {
        return Err(format!("{threads} threads run already"));
    }
    let restrict = || -> Result<RestrictionStatus, RulesetError> {
        Ruleset::default()
            .handle_access(AccessFs::from_all(NEWEST))?
            .handle_access(AccessNet::from_all(NEWEST))?
            .scope(Scope::from_all(NEWEST))?
            .create()?
            .add_rules(path_beneath_rules(
                readable,
                AccessFs::ReadFile | AccessFs::ReadDir,
            ))?
            .add_rules(path_beneath_rules(listed, AccessFs::ReadDir))?
            .restrict_self()
    };
    let status = restrict().map_err(|error| error.to_string())?;
    let abi = match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, _) => return Err(MISSING.to_owned()),
        (
            _,
            LandlockStatus::Available {
                effective_abi,
                kernel_abi,
            },
        ) => kernel_abi.unwrap_or(effective_abi as i32),
        _ => return Err(MISSING.to_owned()),
    };
    filter().map_err(|error| error.to_string())?;
    Ok(abi)
}

/// Landlock exists only on Linux.
#[cfg(not(target_os = "linux"))]
fn confined(_: &[PathBuf], _: &[PathBuf]) -> Result<i32, String> {
    Err(MISSING.to_owned())
}

/// The reason where a system cannot confine a process.
const MISSING: &str = "this system offers no Landlock";

/// Denies system calls for the rest of the process's life.
#[cfg(target_os = "linux")]
fn filter() -> Result<(), seccompiler::Error> {
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpArgLen::Qword, SeccompCmpOp,
        SeccompCondition, SeccompFilter, SeccompRule, apply_filter,
    };

    /// Calls for sockets, processes, memory and queues that processes share, files' metadata, and other processes.
    const DENIED: &[i64] = &[
        libc::SYS_socket,
        libc::SYS_socketpair,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_process_madvise,
        libc::SYS_pidfd_getfd,
        libc::SYS_pidfd_send_signal,
        libc::SYS_kcmp,
        libc::SYS_shmget,
        libc::SYS_shmat,
        libc::SYS_msgget,
        libc::SYS_semget,
        libc::SYS_mq_open,
        libc::SYS_setrlimit,
        libc::SYS_setpriority,
        libc::SYS_ioprio_set,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setattr,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setscheduler,
        // Landlock lets through what changes a file's times, owner and rights, in which one run could leave word for the next.
        libc::SYS_fchmod,
        libc::SYS_fchmodat,
        libc::SYS_fchmodat2,
        libc::SYS_fchown,
        libc::SYS_fchownat,
        libc::SYS_utimensat,
        libc::SYS_setxattr,
        libc::SYS_lsetxattr,
        libc::SYS_fsetxattr,
        libc::SYS_removexattr,
        libc::SYS_lremovexattr,
        libc::SYS_fremovexattr,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_open_by_handle_at,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_io_uring_setup,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_keyctl,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_kexec_load,
        libc::SYS_reboot,
        libc::SYS_swapon,
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        libc::SYS_clock_adjtime,
        libc::SYS_adjtimex,
        libc::SYS_tkill,
        libc::SYS_rt_sigqueueinfo,
        libc::SYS_rt_tgsigqueueinfo,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_vfork,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chmod,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chown,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_lchown,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utime,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utimes,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_futimesat,
    ];

    let this_process = u64::from(std::process::id());
    let when = |condition| SeccompRule::new(vec![condition]).map(|rule| vec![rule]);
    let mut denied: std::collections::BTreeMap<i64, Vec<SeccompRule>> =
        DENIED.iter().map(|&call| (call, Vec::new())).collect();
    // A thread is a process for the kernel, too; a new process has no such flag.
    let thread = SeccompCmpOp::MaskedEq(libc::CLONE_THREAD as u64);
    let is_process = SeccompCondition::new(0, Qword, thread, 0)?;
    denied.insert(libc::SYS_clone, when(is_process)?);
    let sets_limit = SeccompCondition::new(2, Qword, SeccompCmpOp::Ne, 0)?;
    denied.insert(libc::SYS_prlimit64, when(sets_limit)?);
    // The C library signals this process alone, such as to abort it.
    for call in [libc::SYS_kill, libc::SYS_tgkill] {
        let other = SeccompCondition::new(0, Dword, SeccompCmpOp::Ne, this_process)?;
        denied.insert(call, when(other)?);
    }
    // The arguments of `clone3` are in memory, which no filter can read: the C library then takes `clone`.
    let unknown = [(libc::SYS_clone3, Vec::new())].into_iter().collect();
    for (calls, error) in [(denied, libc::EPERM), (unknown, libc::ENOSYS)] {
        let filter = SeccompFilter::new(
            calls,
            SeccompAction::Allow,
            SeccompAction::Errno(error as u32),
            std::env::consts::ARCH.try_into()?,
        )?;
        let program: BpfProgram = filter.try_into()?;
        apply_filter(&program)?;
    }
    Ok(())
}
