//! `forward` in Linux: a congestion control of the kernel's own TCP, for every program.
//!
//! ```text
//!  bpf/forward.h      the law, as the core has it (crates/forward/src/forward.rs); also compiles natively, for tests
//!  bpf/forward.bpf.c  what the kernel calls   ┐ compiled by build.rs, loaded by libbpf
//!  bpf/flows.bpf.c    reads flows out         │
//!  bpf/connections.bpf.c  reads all of TCP    ┘
//! ```
//!
//! Linux takes a congestion control as an eBPF program (struct_ops): no module, no reboot. It is
//! registered while a link to it exists. The link is pinned in the BPF file system, so that it
//! outlives the command that made it. This crate leaves only that pin: either it exists, or nothing
//! does.

mod error;
mod settings;

#[cfg(has_programs)]
mod connections;
#[cfg(has_programs)]
mod flows;
#[cfg(has_programs)]
mod host;
#[cfg(has_programs)]
mod loaded;
#[cfg(not(has_programs))]
mod without;

pub use error::Error;
pub use settings::{Config, Connection, Flow, LAW, Loaded, NAME_BYTES};

#[cfg(has_programs)]
pub use connections::connections;
#[cfg(has_programs)]
pub use flows::Reader;
#[cfg(has_programs)]
pub use loaded::{Held, default_name, hold, list, load, unload};
#[cfg(not(has_programs))]
pub use without::{Held, Reader, connections, default_name, hold, list, load, unload};
