//! Settings as people type them: `verus:ratio=4,epoch_ms=0.01s`.
//!
//! A text is a name with keys and values ([`spec`]); a value may have a unit ([`quantity`]) and lies in a range ([`range`]).
//! A configuration is a table of such keys ([`configuration`]), from which parser, lists, defaults and completion follow. A
//! mistyped name is answered with the nearest one ([`near`]).

pub mod configuration;
pub mod near;
pub mod quantity;
pub mod range;
pub mod spec;
