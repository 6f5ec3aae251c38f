//! Replays the fuzz target's corpus: what once made the parser stumble never does again.

#[path = "../../../fuzz/checks/model.rs"]
mod model;
#[path = "../../../fuzz/checks/replay.rs"]
mod replay;

#[test]
fn no_model_in_the_corpus_upsets_the_reader() {
    replay::replay("model", model::check);
}
