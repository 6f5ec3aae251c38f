//! The tests of verus-faults from outside. One program: each further one would link the crate again, and wait by itself.

mod hostile;
mod proxy;
mod seeds;
