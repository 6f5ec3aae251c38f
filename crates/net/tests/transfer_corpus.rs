//! Replays the fuzz target's corpus, and every damage to it that is one byte wide.

#[path = "../../../fuzz/checks/replay.rs"]
mod replay;
#[path = "../../../fuzz/checks/transfer_frames.rs"]
mod transfer_frames;

#[test]
fn no_message_in_the_corpus_upsets_a_transfer() {
    replay::replay("transfer_frames", transfer_frames::check);
}

#[test]
fn no_damaged_message_upsets_a_transfer() {
    replay::replay("transfer_frames", |bytes| {
        let mut damaged = bytes.to_vec();
        for at in 0..bytes.len().min(128) {
            for value in 0..=u8::MAX {
                damaged[at] = value;
                transfer_frames::check(&damaged);
            }
            damaged[at] = bytes[at];
            transfer_frames::check(&bytes[..at]);
        }
    });
}
