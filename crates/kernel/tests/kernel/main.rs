//! What the crate does, seen from outside.

mod law;
