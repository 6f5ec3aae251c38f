//! Invariants of any bytes that arrive as a message of a file transfer.

use std::fmt::Debug;

use verus_transfer::frames::{
    Answer, Demand, Frame, MAX_FRAME, MAX_RUN, Request, Supply, decode, encode,
};
use verus_transfer::paths::{MAX_PATH, RelativePath};

/// Reads `bytes` as a message of each kind.
///
/// # Panics
/// If a parsed message changes when it is encoded and read again, or its content is impossible.
pub fn check(bytes: &[u8]) {
    if let Some(Request::List { path } | Request::Get { path } | Request::Put { path, .. }) =
        again::<Request>(bytes)
        && let Ok(path) = RelativePath::parse(&path)
    {
        assert!(path.as_bytes().len() <= MAX_PATH && !path.as_bytes().starts_with(b"/"));
        assert!(
            path.names()
                .all(|name| name != ".." && name != "." && !name.is_empty())
        );
    }
    again::<Answer>(bytes);
    again::<Demand>(bytes);
    if let Some(Supply::Data { at, length }) = again::<Supply>(bytes) {
        assert!(length <= MAX_RUN && at.checked_add(length).is_some());
    }
}

fn again<F: Frame + PartialEq + Debug>(bytes: &[u8]) -> Option<F> {
    let read = decode::<F>(bytes).ok()?;
    let written = encode(&read).expect("what was read is short enough");
    assert!(written.len() <= 2 + MAX_FRAME);
    assert_eq!(decode::<F>(&written[2..]).as_ref(), Ok(&read));
    Some(read)
}
