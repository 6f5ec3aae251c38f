//! The tests of verus-emu from outside. One program: each further one would link the crate again, and wait by itself.

#[cfg(target_os = "linux")]
mod direction;
#[cfg(target_os = "linux")]
mod footprint;
#[cfg(target_os = "linux")]
mod log;
