//! Text from a peer, made safe for a terminal.

/// Whether a letter would move the cursor, change colours, begin a line, reverse the reading direction or show
/// nothing: C0, DEL and C1 (ECMA-48), what orders and separates (Unicode, UAX #9 and section 23.2).
pub fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Text that may be shown on a terminal: what would move the cursor, change colours or reverse the
/// reading direction is escaped.
pub fn printable(bytes: &[u8]) -> String {
    let mut shown = String::new();
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if is_hidden(letter) {
                shown.extend(letter.escape_default());
            } else {
                shown.push(letter);
            }
        }
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_cannot_drive_a_terminal() {
        assert_eq!(printable(b"a\x1b[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(printable("a\u{202e}b".as_bytes()), "a\\u{202e}b");
        assert_eq!(printable(b"caf\xe9"), "caf\\xe9");
        assert_eq!(printable("café".as_bytes()), "café");
    }
}
