//! Short forms and encodings of text.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Cuts text to at most `most` characters, with an ellipsis for the rest.
pub fn cut(text: &str, most: usize) -> String {
    if text.len() <= most || text.chars().nth(most).is_none() {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// Tells whether a terminal and a page show a character as it is: no control character, none that changes the direction of writing, and
/// none that begins a line.
pub fn is_harmless(c: char) -> bool {
    let directs =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !(c.is_control() || directs || matches!(c, '\u{2028}' | '\u{2029}'))
}

/// Replaces everything that is not harmless by spaces: text of inputs never controls where it is shown.
pub fn without_controls(text: &str) -> String {
    text.chars().map(|c| if is_harmless(c) { c } else { ' ' }).collect()
}

/// Replaces everything that is not harmless by spaces, except for the ends of lines and tabs.
pub fn lines_without_controls(text: &str) -> Cow<'_, str> {
    let keeps = |c: char| is_harmless(c) || matches!(c, '\n' | '\t');
    if text.chars().all(keeps) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if keeps(c) { c } else { ' ' }).collect())
}

/// Encodes bytes as lowercase hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the hexadecimal mask in a field of `/proc/PID/status`, such as `CapEff`.
pub fn status_mask(status: &str, field: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

/// Encodes bytes as base64 with padding.
pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Appends bytes as base64 to a text.
pub fn add_base64(bytes: &[u8], text: &mut String) {
    STANDARD.encode_string(bytes, text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_characters() {
        assert_eq!([cut("äöü", 3), cut("äöüx", 3), cut("abc", 0)], ["äöü", "äö…", "…"]);
    }

    #[test]
    fn encodings() {
        assert_eq!(hex(&[0, 10, 255]), "000aff");
        assert_eq!([base64(b""), base64(b"M"), base64(b"Ma"), base64(b"Man")], ["", "TQ==", "TWE=", "TWFu"]);
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }

    #[test]
    fn text_of_inputs_controls_nothing() {
        assert_eq!(without_controls("a\tb\x1b[0m"), "a b [0m");
        let turned = "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}\u{2028}\u{9b}\r";
        assert_eq!(without_controls(turned).trim(), "");
        assert_eq!(lines_without_controls("a\n\tb\x1b[8mc\u{202e}\r"), "a\n\tb [8mc  ");
        assert!(matches!(lines_without_controls("µ\n"), Cow::Borrowed(_)));
    }
}
