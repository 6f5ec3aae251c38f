//! Replays the fuzz targets' corpora: what once made a parser stumble never does again.

#[path = "../../../fuzz/checks/probe_wire.rs"]
mod probe_wire;
#[path = "../../../fuzz/checks/replay.rs"]
mod replay;

#[test]
fn no_packet_in_the_corpus_upsets_the_probe() {
    replay::replay("probe_wire", probe_wire::check);
}
