//! Replays the fuzz targets' corpora: inputs that once made a parser fail must not again.

#[path = "../../../../fuzz/checks/mix.rs"]
mod mix;
#[path = "../../../../fuzz/checks/probe_state.rs"]
mod probe_state;
#[path = "../../../../fuzz/checks/probe_wire.rs"]
mod probe_wire;
#[path = "../../../../fuzz/checks/replay.rs"]
mod replay;

#[test]
fn no_packet_in_the_corpus_upsets_the_probe() {
    replay::replay("probe_wire", probe_wire::check);
}

#[test]
fn no_script_in_the_corpus_upsets_either_end_of_the_probe() {
    replay::replay("probe_state", probe_state::check);
}

#[test]
fn no_mixture_of_scripts_upsets_either_end_of_the_probe() {
    mix::mix("probe_state", 0..400, probe_state::check);
}
