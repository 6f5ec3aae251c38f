//! The tests of verus-sim from outside. One program: each further one would link the crate again, and wait by itself.
//! `foreign_queue` is another, since it installs a queue for all of its process.

mod common;
mod delay_min;
mod determinism;
mod ecn;
mod foreign_controllers;
mod forward;
mod goldens;
mod network;
mod own_controller;
mod paths;
mod qlog;
mod recordings;
mod replay;
mod senders;
mod sprout;
mod traffic;
