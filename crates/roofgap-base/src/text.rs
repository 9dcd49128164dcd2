//! Short forms and encodings of text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Cuts text to at most `most` characters, with an ellipsis for the rest.
pub fn cut(text: &str, most: usize) -> String {
    if text.len() <= most || text.chars().nth(most).is_none() {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// Replaces control characters by spaces.
pub fn without_controls(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Encodes bytes as lowercase hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Encodes bytes as base64 with padding.
pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
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
        assert_eq!(without_controls("a\tb\x1b[0m"), "a b [0m");
    }
}
