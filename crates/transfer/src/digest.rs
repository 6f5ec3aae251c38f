//! The digest that decides whether two files are equal: a BLAKE3 tree over their contents in which
//! holes cost nothing.
//!
//! A file is cut into blocks of 64 KiB and those into at most 1024 pieces. A block of zeros,
//! whether stored or a hole, contributes nothing. Any other block contributes its number and the
//! BLAKE3 hash of its bytes. The digest of a piece is the BLAKE3 hash of its blocks' contributions.
//! The digest of the file is the hash of its size and its pieces' digests.
//!
//! So a sparse file costs only its data, and the digest depends on nothing but size and contents. A
//! list of piece digests takes at most 32 KiB and tells two ends how much of an interrupted
//! transfer they share.

use blake3::Hasher;

/// Size of the unit that is hashed, sent and written; holes are whole blocks.
pub const BLOCK: u64 = 64 * 1024;
/// The smallest piece, in bytes.
const MIN_PIECE: u64 = 1024 * 1024;
/// The most pieces a file is cut into.
pub const MAX_PIECES: u64 = 1024;
/// The largest file, in bytes: offsets stay far from overflow.
pub const MAX_SIZE: u64 = 1 << 60;

/// A BLAKE3 hash.
pub type Digest = [u8; 32];

/// The size of a piece of a file of `size` bytes: the smallest power of two that gives no more than
/// [`MAX_PIECES`].
pub fn piece_bytes(size: u64) -> u64 {
    size.div_ceil(MAX_PIECES).next_power_of_two().max(MIN_PIECE)
}

/// Whether all of `bytes` are zero.
pub fn is_zero(bytes: &[u8]) -> bool {
    // Each byte equals its neighbour, and the first is zero: one memcmp, at the speed of memory.
    match bytes {
        [] => true,
        [first, rest @ ..] => *first == 0 && rest == &bytes[..rest.len()],
    }
}

/// The digest of a file in the making: contents go in from the beginning, in order.
#[derive(Clone, Debug)]
pub struct Tally {
    size: u64,
    piece: u64,
    done: Vec<Digest>,
    current: Hasher,
    position: u64,
}

impl Tally {
    /// For a file of `size` bytes, nothing of it read yet.
    ///
    /// # Panics
    /// If `size` exceeds [`MAX_SIZE`].
    pub fn new(size: u64) -> Self {
        assert!(size <= MAX_SIZE, "sizes are checked where they come in");
        Tally {
            size,
            piece: piece_bytes(size),
            done: Vec::new(),
            current: Hasher::new(),
            position: 0,
        }
    }

    /// How much was read, in bytes.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The size of a piece, in bytes.
    pub fn piece(&self) -> u64 {
        self.piece
    }

    /// How many pieces are complete.
    pub fn pieces(&self) -> usize {
        self.done.len()
    }

    /// Reads zeros up to `to`.
    ///
    /// # Panics
    /// If `to` lies before the position or beyond the end.
    pub fn zeros(&mut self, to: u64) {
        assert!((self.position..=self.size).contains(&to));
        loop {
            let end = (self.done.len() as u64 + 1) * self.piece;
            if to < end {
                break;
            }
            self.done.push(*self.current.finalize().as_bytes());
            self.current.reset();
        }
        self.position = to;
    }

    /// Reads `bytes` at the position, which must be the beginning of a block; all but the last block
    /// of the file are whole.
    ///
    /// # Panics
    /// If blocks are torn, or there is more than the file holds.
    pub fn data(&mut self, bytes: &[u8]) {
        assert!(self.position.is_multiple_of(BLOCK));
        for block in bytes.chunks(BLOCK as usize) {
            let end = self.position + block.len() as u64;
            assert!(block.len() as u64 == BLOCK || end == self.size);
            if !is_zero(block) {
                let number = self.position / BLOCK;
                self.current.update(&number.to_le_bytes());
                self.current.update(blake3::hash(block).as_bytes());
            }
            self.zeros(end);
        }
    }

    /// The digest of the current piece, over the bytes read until now. At a piece's end, the digest
    /// of that complete piece.
    pub fn latest(&self) -> Digest {
        match self.done.last() {
            Some(last) if self.position.is_multiple_of(self.piece) => *last,
            _ => *self.current.finalize().as_bytes(),
        }
    }

    /// Forgets all but the first `pieces` pieces, which must be complete.
    pub fn rewind(&mut self, pieces: usize) {
        assert!(pieces <= self.done.len());
        self.done.truncate(pieces);
        self.current.reset();
        self.position = pieces as u64 * self.piece;
    }

    /// The digest of the file, the rest of it being zeros.
    pub fn finish(mut self) -> Digest {
        self.zeros(self.size);
        let mut file = Hasher::new_derive_key("verus transfer 1: digest of a file");
        file.update(&self.size.to_le_bytes());
        for piece in &self.done {
            file.update(piece);
        }
        if !self.size.is_multiple_of(self.piece) {
            file.update(self.current.finalize().as_bytes());
        }
        *file.finalize().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn digest(bytes: &[u8]) -> Digest {
        let mut tally = Tally::new(bytes.len() as u64);
        tally.data(bytes);
        tally.finish()
    }

    #[test]
    fn a_hole_and_stored_zeros_are_the_same() {
        let mut bytes = vec![0; 3 * MIN_PIECE as usize + 17];
        bytes[2 * BLOCK as usize] = 1;
        *bytes.last_mut().expect("it is long") = 2;
        let mut sparse = Tally::new(bytes.len() as u64);
        sparse.zeros(2 * BLOCK);
        sparse.data(&bytes[2 * BLOCK as usize..3 * BLOCK as usize]);
        sparse.zeros(3 * MIN_PIECE);
        sparse.data(&bytes[3 * MIN_PIECE as usize..]);
        assert_eq!(sparse.finish(), digest(&bytes));
    }

    #[test]
    fn ten_gigabytes_of_hole_cost_no_time() {
        let a = Tally::new(10 << 30).finish();
        let b = Tally::new((10 << 30) + 1).finish();
        assert_ne!(a, b, "sizes differ");
    }

    #[test]
    fn the_tree_is_what_the_documentation_says() {
        // Worked by hand: two blocks, the first of zeros, the second short.
        let mut bytes = vec![0; BLOCK as usize + 3];
        bytes[BLOCK as usize..].copy_from_slice(b"abc");
        let mut piece = Hasher::new();
        piece.update(&[1, 0, 0, 0, 0, 0, 0, 0]);
        piece.update(blake3::hash(b"abc").as_bytes());
        let mut file = Hasher::new_derive_key("verus transfer 1: digest of a file");
        file.update(&(BLOCK + 3).to_le_bytes());
        file.update(piece.finalize().as_bytes());
        assert_eq!(digest(&bytes), *file.finalize().as_bytes());
    }

    #[test]
    fn pieces_stay_few_and_whole_blocks() {
        for size in [0, 1, MIN_PIECE, 1 << 30, (1 << 30) + 1, 1 << 40, MAX_SIZE] {
            let piece = piece_bytes(size);
            assert!(size.div_ceil(piece) <= MAX_PIECES, "{size}");
            assert!(piece.is_multiple_of(BLOCK));
        }
        assert_eq!(piece_bytes(1 << 30), 1 << 20);
        assert_eq!(piece_bytes((1 << 30) + 1), 1 << 21);
    }

    proptest! {
        #[test]
        fn any_change_shows(
            size in 1usize..300_000,
            at in any::<prop::sample::Index>(),
            fill in any::<u8>(),
        ) {
            let mut bytes = vec![fill; size];
            let before = digest(&bytes);
            let at = at.index(size);
            bytes[at] ^= 1;
            prop_assert_ne!(digest(&bytes), before);
        }

        #[test]
        fn rewinding_and_reading_again_gives_the_same(
            blocks in prop::collection::vec(0u8..3, 1..60),
            keep in any::<prop::sample::Index>(),
        ) {
            let bytes: Vec<u8> = blocks.iter().flat_map(|&b| vec![b; BLOCK as usize]).collect();
            let mut tally = Tally::new(bytes.len() as u64);
            tally.data(&bytes);
            let keep = keep.index(tally.pieces() + 1);
            tally.rewind(keep);
            tally.data(&bytes[tally.position() as usize..]);
            prop_assert_eq!(tally.finish(), digest(&bytes));
        }
    }
}
