//! Replays the fuzz target's corpus: inputs that once made the reader fail must not again.

#[path = "../../../../fuzz/checks/capture.rs"]
mod capture;
#[path = "../../../../fuzz/checks/replay.rs"]
mod replay;

#[test]
fn no_capture_in_the_corpus_upsets_the_reader() {
    replay::replay("capture", capture::check);
}
