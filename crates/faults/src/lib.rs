//! Seeded faults between two ends.
