//! Strings as JSON writes them.

use std::borrow::Cow;

/// Decodes the raw bytes between quotes. Unknown escapes are kept (old profilers wrote Windows paths without escaping them),
/// and invalid UTF-8 is replaced.
pub fn decode(raw: &[u8]) -> Cow<'_, str> {
    if !raw.contains(&b'\\') {
        return String::from_utf8_lossy(raw);
    }
    let text = String::from_utf8_lossy(raw);
    let mut out = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let plain = match after.as_bytes().first() {
            Some(b'"') => Some('"'),
            Some(b'\\') => Some('\\'),
            Some(b'/') => Some('/'),
            Some(b'b') => Some('\u{8}'),
            Some(b'f') => Some('\u{c}'),
            Some(b'n') => Some('\n'),
            Some(b'r') => Some('\r'),
            Some(b't') => Some('\t'),
            _ => None,
        };
        let (character, length) = match plain {
            Some(character) => (character, 1),
            None => unicode(after).unwrap_or(('\\', 0)),
        };
        out.push(character);
        rest = after.get(length..).unwrap_or_default();
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Decodes `uXXXX`, or a surrogate pair; returns the character and the number of bytes read.
fn unicode(text: &str) -> Option<(char, usize)> {
    let unit = |text: &str| {
        let digits = text.strip_prefix('u')?.get(..4)?;
        digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
    };
    let first = unit(text)?;
    if !(0xD800..0xE000).contains(&first) {
        return Some((char::from_u32(first)?, 5));
    }
    let second = text.get(5..).and_then(|t| t.strip_prefix('\\')).and_then(unit);
    match second {
        Some(second @ 0xDC00..0xE000) if first < 0xDC00 => {
            let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
            Some((char::from_u32(code)?, 11))
        }
        _ => Some((char::REPLACEMENT_CHARACTER, 5)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes() {
        assert_eq!(decode(br#"a\"b\\c\/\n\u00e9\ud83d\ude00"#), "a\"b\\c/\n\u{e9}\u{1f600}");
        assert_eq!(decode(br"C:\path\x"), "C:\\path\\x");
        assert_eq!(decode(br"\ud800x"), "\u{fffd}x");
        assert_eq!(decode(b"\xff"), "\u{fffd}");
        assert_eq!(decode(br"\"), "\\");
    }

    proptest! {
        #[test]
        fn what_serde_writes_comes_back(text in any::<String>()) {
            let written = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(&*decode(&written.as_bytes()[1..written.len() - 1]), &*text);
        }

        #[test]
        fn any_bytes_are_answered(raw in any::<Vec<u8>>()) {
            let _ = decode(&raw);
        }
    }
}
