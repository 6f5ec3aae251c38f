//! Replays the fuzz target's corpus: inputs that once made the parser fail must not again.

#[path = "../../../../fuzz/checks/link_log.rs"]
mod link_log;
#[path = "../../../../fuzz/checks/replay.rs"]
mod replay;

#[test]
fn no_link_log_in_the_corpus_upsets_the_parser() {
    replay::replay("link_log", link_log::check);
}
