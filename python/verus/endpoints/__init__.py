"""The Rust program `verus-endpoint`: its location, and comparisons that it runs in real time."""
