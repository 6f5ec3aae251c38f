//! What the crate does, seen from outside.

mod law;
#[cfg(has_programs)]
mod object;
mod path;
mod vectors;
