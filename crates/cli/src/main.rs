//! `verus-endpoint`: the verbs that a server or a phone needs.
//!
//! `verus` hands these verbs to this program unchanged, so the same words work either way.

fn main() {}
