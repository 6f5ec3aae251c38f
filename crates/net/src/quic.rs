//! The core's controllers inside QUIC.
