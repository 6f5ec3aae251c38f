//! The tests of verus-transfer from outside. One program: each further one would link the crate again, and wait by itself.

mod corpus;
mod transfer_access;
mod transfer_addresses;
mod transfer_common;
mod transfer_files;
mod transfer_hostile;
