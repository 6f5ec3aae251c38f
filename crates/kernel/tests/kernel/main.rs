//! What the crate does, seen from outside.

mod law;
mod path;
mod vectors;
