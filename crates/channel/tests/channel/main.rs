//! The tests of verus-channel from outside. One program: each further one would link the crate again, and wait by itself.

mod corpus;
mod foreign_queues;
mod generate;
mod medium;
mod properties;
mod recordings;
