//! The crate's behaviour from outside.

mod agree;
#[path = "../../../../fuzz/checks/kernel_law.rs"]
mod kernel_law;
mod law;
#[cfg(has_programs)]
mod object;
mod path;
mod program;
mod release;
#[path = "../../../../fuzz/checks/replay.rs"]
mod replay;
mod vectors;

#[test]
fn what_fuzzing_found_is_the_same_in_both_laws() {
    replay::replay("kernel_law", kernel_law::check);
}
