//! Replays the fuzz targets' corpora, so that an input that once broke a parser never does again.
//! Also tries every change of one byte.

#[path = "../../../../fuzz/checks/mix.rs"]
mod mix;
#[path = "../../../../fuzz/checks/replay.rs"]
mod replay;
#[path = "../../../../fuzz/checks/transfer_frames.rs"]
mod transfer_frames;
#[path = "../../../../fuzz/checks/transfer_state.rs"]
pub mod transfer_state;

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

#[test]
fn no_script_in_the_corpus_upsets_either_end_of_a_transfer() {
    replay::replay("transfer_state", transfer_state::check);
}

#[test]
fn no_mixture_of_scripts_upsets_either_end_of_a_transfer() {
    mix::mix("transfer_state", 0..100, transfer_state::check);
}
