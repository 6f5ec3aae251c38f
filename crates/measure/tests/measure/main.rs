//! The tests of verus-measure from outside. One program: each further one would link the crate again, and wait by itself.

mod corpus;
mod mahimahi;
mod meter;
