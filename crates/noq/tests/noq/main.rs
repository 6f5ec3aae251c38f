//! The tests of verus-noq from outside.

mod agreement;
mod virtual_ends;
