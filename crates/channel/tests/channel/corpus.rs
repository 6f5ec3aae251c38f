//! Replays the fuzz targets' corpora: what once made a parser stumble never does again.

#[path = "../../../../fuzz/checks/light_trace.rs"]
mod light_trace;
#[path = "../../../../fuzz/checks/raw_log.rs"]
mod raw_log;
#[path = "../../../../fuzz/checks/replay.rs"]
mod replay;
#[path = "../../../../fuzz/checks/trace.rs"]
mod trace;

#[test]
fn no_trace_in_the_corpus_upsets_the_parser() {
    replay::replay("trace", trace::check);
}

#[test]
fn no_raw_log_in_the_corpus_upsets_the_parser() {
    replay::replay("raw_log", raw_log::check);
}

#[test]
fn no_light_trace_in_the_corpus_upsets_the_parser_or_the_path() {
    replay::replay("light_trace", light_trace::check);
}
