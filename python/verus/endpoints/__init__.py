"""The Rust program `verus-endpoint`: where it is, and comparisons that it runs in real time."""
