//! Checks of the message and exit code of a failed command.

use std::process::Output;

/// One message, with each of `words` in it, and the exit code.
pub fn refused(output: &Output, code: i32, words: &[&str]) {
    assert!(output.stdout.is_empty(), "{output:?}");
    failed(output, code, words);
}

/// A command that ends with this code and one message with these words, whatever it has printed before.
pub fn failed(output: &Output, code: i32, words: &[&str]) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    for word in words {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
    let messages = error
        .lines()
        .filter(|line| line.starts_with("verus: ") || line.starts_with("error: "));
    assert_eq!(messages.count(), 1, "{error}");
    assert!(!error.contains("panicked"), "{error}");
}
