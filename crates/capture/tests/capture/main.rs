//! Tests of this crate from outside.

mod corpus;
mod direction;
mod record;
mod simulated;
