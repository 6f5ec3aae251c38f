//! The simulator's link on the real clock, between two TUN devices: for unmodified programs.
//!
//! ```text
//!  namespace ── device ──▶ loss ▶ queue ▶ link ▶ propagation ──▶ device ── namespace
//!               device ◀── propagation ◀ link ◀ queue ◀ loss ◀── device
//! ```
//!
//! [`direction`] is sans-IO and runs in tests on a made-up clock; [`emulator`] gives it devices and the
//! time. Linux only.

#[cfg(target_os = "linux")]
pub mod device;
#[cfg(target_os = "linux")]
pub mod direction;
#[cfg(target_os = "linux")]
pub mod emulator;
#[cfg(target_os = "linux")]
pub mod footprint;
#[cfg(target_os = "linux")]
pub mod log;
#[cfg(target_os = "linux")]
pub mod namespace;
#[cfg(target_os = "linux")]
pub mod netlink;
#[cfg(target_os = "linux")]
pub mod packet;
#[cfg(target_os = "linux")]
pub mod resolver;
