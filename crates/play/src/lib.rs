//! The simulator as a WebAssembly module, for the playground (`verus play`).
//!
//! The page's worker opens up to two runs, its [lanes](lane::Lane), and reads their state at an
//! instant for each frame. Scenarios and results are the JSON of the rest of Verus. The state, read
//! sixty times a second, is an array of numbers in the module's memory, which the page reads in
//! place.
//!
//! A handful of functions that take and give numbers need no generator of bindings, which would be one more program to
//! install, of a version that must match: `exports` has them all, and `python/verus/play/worker.js` calls them.

#[cfg(target_arch = "wasm32")]
mod exports;
pub mod hand;
pub mod lane;
pub mod lists;

pub use lane::Lane;
