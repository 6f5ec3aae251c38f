//! The simulator as a WebAssembly module, for the playground (`verus play`).
//!
//! The page's worker opens up to two runs, its [lanes](lane::Lane), and asks at each frame how they stand at an instant.
//! Scenarios and results are the JSON that the rest of Verus reads and writes; what is asked sixty times a second is an
//! array of numbers, which the page reads where it lies in the module's memory.
//!
//! A handful of functions that take and give numbers need no generator of bindings, which would be one more program to
//! install, of a version that must match: `exports` has them all, and `python/verus/play/worker.js` calls them.

#[cfg(target_arch = "wasm32")]
mod exports;
pub mod hand;
pub mod lane;
pub mod lists;

pub use lane::Lane;
