//! Safe output: lines that cannot drive a terminal or forge another line, even if a peer chose the
//! words in them. Everything that this program prints is escaped here, at the time of printing. So
//! no caller has to know which parts came from a peer, a file system or a trace.

use std::fmt::{Display, Write as _};
use std::io::{self, Write as _};

use serde::Serialize;
use verus_transfer::printable::is_hidden;

/// Longest line for a person, in characters. A peer's reason fits into a packet, but a thousand
/// escaped control characters would fill the screen.
const MOST: usize = 1024;
const LEFT_OUT: &str = " … ";

/// One line for a person. If it is too long, its middle is left out: names come first and causes
/// last.
pub fn line(text: impl Display) -> String {
    let text = escaped(text.to_string());
    let letters = text.chars().count();
    if letters <= MOST {
        return text;
    }
    let kept = MOST - LEFT_OUT.chars().count();
    let head = text.chars().take(kept / 2);
    let tail = text.chars().skip(letters - kept.div_ceil(2));
    head.chain(LEFT_OUT.chars()).chain(tail).collect()
}

/// One line on standard error, printed even with --quiet.
pub fn warn(text: impl Display) {
    // Without standard error, nothing can be reported.
    let _ = writeln!(io::stderr(), "{}", line(text));
}

/// A value as JSON on one line, of any length.
pub fn json(value: &impl Serialize) -> String {
    escaped(serde_json::to_string(value).expect("objects whose keys are text"))
}

/// Writes out newlines and all other hidden characters as in JSON. JSON itself escapes only C0, and
/// leaves DEL, C1 and characters that reorder text. They occur only in strings, where the escape
/// means the same.
fn escaped(text: String) -> String {
    if !text.contains(is_hidden) {
        return text;
    }
    let mut shown = String::with_capacity(text.len() * 2);
    for letter in text.chars() {
        match letter {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            letter if is_hidden(letter) => {
                for unit in letter.encode_utf16(&mut [0; 2]) {
                    let _ = write!(shown, "\\u{unit:04x}");
                }
            }
            letter => shown.push(letter),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Attacks by strangers: titles, colours, clearing, extra lines, C1, text that runs backwards.
    const HOSTILE: &str = "\x1b]0;owned\x07\x1b[2J\x1b[31mFAKE\r\n10.0.0.1:1: done\x08\x7f\u{9b}31m\u{85}\
                           \u{202e}gpj.exe\u{2066}\u{200f}\u{61c}\u{2028}\u{2029}\u{feff}";

    fn harmless(text: &str) -> bool {
        !text.contains(|letter: char| letter.is_control())
            && !text.contains([
                '\u{61c}', '\u{200e}', '\u{200f}', '\u{2028}', '\u{2029}', '\u{202a}', '\u{202b}',
                '\u{202c}', '\u{202d}', '\u{202e}', '\u{2066}', '\u{2067}', '\u{2068}', '\u{2069}',
            ])
    }

    #[test]
    fn a_line_is_one_line_and_drives_no_terminal() {
        let shown = line(HOSTILE);
        assert!(harmless(&shown), "{shown:?}");
        assert!(
            shown.contains("\\u001b[31mFAKE\\r\\n10.0.0.1:1: done"),
            "{shown}"
        );
        assert!(shown.contains("\\u202egpj.exe"), "{shown}");
        for code in (0..=0x2fff).filter_map(char::from_u32) {
            assert!(harmless(&line(code)), "{code:?}");
        }
    }

    #[test]
    fn letters_of_all_scripts_stand_as_they_are() {
        for text in [
            "Ünïcödé `a/b c`: 5 % – …",
            "資料 данные عربى עברית",
            "µs × 2",
        ] {
            assert_eq!(line(text), text);
        }
    }

    #[test]
    fn a_long_line_keeps_its_ends() {
        for letter in ["x", "\x1b", "資"] {
            let shown = line(format_args!(
                "10.0.0.1: left: {}, at last",
                letter.repeat(9000)
            ));
            assert_eq!(shown.chars().count(), MOST);
            assert!(shown.starts_with("10.0.0.1: left: ") && shown.ends_with(", at last"));
        }
    }

    #[test]
    fn json_is_as_harmless_and_means_the_same() {
        let value = json!({"why": HOSTILE, HOSTILE: [1.5, null, "資料"], "tag": "\u{e0001}"});
        let shown = json(&value);
        assert!(harmless(&shown), "{shown:?}");
        assert!(shown.contains("\\u202e") && shown.contains("資料"));
        assert_eq!(serde_json::from_str::<Value>(&shown).expect("JSON"), value);
        // The same for JSON printed as an ordinary line.
        assert_eq!(
            serde_json::from_str::<Value>(&line(&value)).expect("JSON"),
            value
        );
        let long = json!("x".repeat(9000));
        assert_eq!(
            serde_json::from_str::<Value>(&json(&long)).expect("JSON"),
            long
        );
    }
}
