//! The simulator as a WebAssembly module, for the playground (`verus play`).
//!
//! The page's worker opens up to two runs, its [lanes](lane::Lane), and reads their state at an
//! instant for each frame. Scenarios and results are the JSON of the rest of Verus. The state, read
//! sixty times a second, is an array of numbers in the module's memory, which the page reads in
//! place.
//!
//! The interface is a handful of functions of numbers: `exports` has them, and
//! `python/verus/play/worker.js` calls them. A generator of bindings would be one more program to
//! install, in a version that must match.

#[cfg(target_arch = "wasm32")]
mod exports;
pub mod hand;
pub mod lane;
pub mod lists;

pub use lane::Lane;
