//! Measurement over UDP: what the core does, on a real path.
