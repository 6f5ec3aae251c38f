//! Reasons why a congestion control cannot be loaded, each in one line with a remedy.

use std::path::PathBuf;

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program was built without the loader.
    #[error("this verus-endpoint cannot load programs into the kernel: {0}")]
    NotBuilt(&'static str),
    /// The user is not root.
    #[error("loading a congestion control into the kernel takes root (sudo)")]
    NotRoot,
    /// The kernel is older than this crate's programs can run on.
    #[error(
        "this kernel is {running}: a congestion control by eBPF takes Linux {needed} or later (before, the kernel calls \
         cong_control with other arguments)"
    )]
    OldKernel {
        /// The running kernel.
        running: String,
        /// The kernel needed.
        needed: &'static str,
    },
    /// The kernel does not describe its types.
    #[error(
        "this kernel does not describe its types: /sys/kernel/btf/vmlinux is missing (CONFIG_DEBUG_INFO_BTF)"
    )]
    NoTypes,
    /// The BPF file system is not mounted, and cannot be.
    #[error("the BPF file system cannot be mounted at {}: {why}", at.display())]
    NoFileSystem {
        /// Where it belongs.
        at: PathBuf,
        /// The system's error.
        why: String,
    },
    /// Others may change the folder of pins.
    #[error("`{}` {why}: another user could take out what is pinned there. Remove it, or restrict it to root", at.display())]
    Unsafe {
        /// The folder.
        at: PathBuf,
        /// Its defect.
        why: String,
    },
    /// A setting that is not one.
    #[error("{0}")]
    Setting(String),
    /// A name that no congestion control can have.
    #[error("{0}")]
    Name(String),
    /// There is one of that name.
    #[error("the kernel has a congestion control `{0}` already (--name gives another)")]
    Exists(String),
    /// None of that name was loaded by this crate.
    #[error("no congestion control `{name}` was loaded by `verus kernel load`{}", names_of(.loaded))]
    Unknown {
        /// The requested name.
        name: String,
        /// The names that are loaded.
        loaded: Vec<String>,
    },
    /// It is the default of new connections.
    #[error(
        "`{name}` is the default for new connections: first set another, such as `sysctl -w \
         net.ipv4.tcp_congestion_control={other}`"
    )]
    Default {
        /// Its name.
        name: String,
        /// One that may take its place in this network namespace.
        other: String,
    },
    /// The kernel refuses it.
    #[error("{doing}: {why}")]
    Kernel {
        /// The attempted operation.
        doing: String,
        /// The error of the kernel or libbpf.
        why: String,
    },
}

fn names_of(loaded: &[String]) -> String {
    if loaded.is_empty() {
        "; none is loaded".to_owned()
    } else {
        format!("; loaded: {}", loaded.join(", "))
    }
}
