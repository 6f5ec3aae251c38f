//! The product: [`verus`], the protocol of Zaki et al. (SIGCOMM 2015) with its three modes, and
//! [`forward`], the recommended algorithm.
//!
//! Read `verus.rs` first, with the paper in the other hand.

pub mod forward;
pub mod verus;
