//! Epochs that end late at random, so that flows of equal ε do not keep step.
//!
//! A flow sends as its epochs begin. Between flows of equal ε the phase never changes, so that one flow always finds the
//! shared queue full because another has just filled it: its losses, and so its share, then depend on when it happened to
//! begin (Floyd and Jacobson 1992, *On Traffic Phase Effects in Packet-Switched Gateways*, who also have the remedy). Each
//! epoch of a flow that shares its path ends at a random moment within so large a share of ε after its due time; due times stay
//! ε apart.

use super::{Flow, Part};

/// Short of a whole ε, so that every epoch has some length.
const LARGEST_SHARE: f64 = 0.9;

/// Random ends of epochs.
#[derive(Debug, Default)]
pub struct Jitter;

impl Part for Jitter {
    fn late(&self, flow: &Flow) -> f64 {
        if flow.is_alone() { 0.0 } else { LARGEST_SHARE }
    }
}
