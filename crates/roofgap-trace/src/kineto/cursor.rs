//! Reading JSON within one block of text, without recursion and without copying.

use memchr::memchr2;
use std::borrow::Cow;

/// Nesting limit. Traces nest four levels deep.
const MAX_DEPTH: usize = 512;

/// Strings up to this length are searched eight bytes at a time, which is faster than setting up a vector search.
const SHORT: usize = 32;

/// Why reading stopped before the end of what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseStop {
    /// The block ended first; more text may complete it.
    Incomplete,
    /// Syntax error at the cursor.
    Invalid(Expected),
}

/// Expected syntax at the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    Value,
    Key,
    Colon,
    CommaOrEnd,
    Event,
    Shallow,
    List,
    OneList,
    BaseTime,
    Nothing,
}

impl Expected {
    /// Returns the description for a message.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Value => "a value",
            Self::Key => "a key in quotes",
            Self::Colon => "a colon",
            Self::CommaOrEnd => "a comma or a closing bracket",
            Self::Event => "a trace event in braces",
            Self::Shallow => "values nested at most 512 deep",
            Self::List => "a list of trace events",
            Self::OneList => "one list of trace events and no second",
            Self::BaseTime => "a base time in nanoseconds",
            Self::Nothing => "the end of the file",
        }
    }
}

/// A position in a block of JSON text.
#[derive(Debug, Clone)]
pub struct Cursor<'a> {
    text: &'a [u8],
    /// Offset of the cursor, bytes.
    pub at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a [u8], at: usize) -> Self {
        Self { text, at }
    }

    /// Returns the text from `from` up to the cursor.
    pub fn since(&self, from: usize) -> &'a [u8] {
        self.text.get(from..self.at).unwrap_or_default()
    }

    /// Passes over white space; the byte after it, which is not consumed.
    #[inline(always)]
    pub fn peek(&mut self) -> Result<u8, ParseStop> {
        loop {
            match self.text.get(self.at) {
                Some(&byte) if byte > b' ' => return Ok(byte),
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                Some(_) => return Err(ParseStop::Invalid(Expected::Value)),
                None => return Err(ParseStop::Incomplete),
            }
        }
    }

    /// Passes over the mark that some editors put before text.
    pub fn byte_order_mark(&mut self) -> Result<(), ParseStop> {
        const MARK: &[u8] = b"\xef\xbb\xbf";
        let rest = self.text.get(self.at..).unwrap_or_default();
        if rest.starts_with(MARK) {
            self.at += MARK.len();
        } else if MARK.starts_with(rest) {
            return Err(ParseStop::Incomplete);
        }
        Ok(())
    }

    /// Passes over white space and one given byte.
    #[inline(always)]
    pub fn take(&mut self, byte: u8, expected: Expected) -> Result<(), ParseStop> {
        if self.peek()? != byte {
            return Err(ParseStop::Invalid(expected));
        }
        self.at += 1;
        Ok(())
    }

    /// Parses a key and its colon.
    #[inline(always)]
    pub fn key(&mut self) -> Result<&'a [u8], ParseStop> {
        self.take(b'"', Expected::Key)?;
        let key = self.string_rest()?;
        self.take(b':', Expected::Colon)?;
        Ok(key)
    }

    /// Passes over `text` if exactly that stands here.
    #[inline(always)]
    pub fn take_exactly(&mut self, text: &[u8]) -> bool {
        let is_there = self.text.get(self.at..).is_some_and(|rest| rest.starts_with(text));
        if is_there {
            self.at += text.len();
        }
        is_there
    }

    /// Parses the rest of a string after its opening quote; returns the raw bytes with escapes.
    #[inline(always)]
    pub fn string_rest(&mut self) -> Result<&'a [u8], ParseStop> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let mut from = 0;
        while from < SHORT
            && let Some(&eight) = rest.get(from..).and_then(|rest| rest.first_chunk())
        {
            if let Some(i) = first_special(eight) {
                let end = from + i;
                if rest.get(end) != Some(&b'"') {
                    break;
                }
                self.at += end + 1;
                return Ok(rest.get(..end).unwrap_or_default());
            }
            from += 8;
        }
        self.long_string_rest(rest, from)
    }

    /// Parses the rest of a string that has no escapes before `from`.
    fn long_string_rest(&mut self, rest: &'a [u8], mut from: usize) -> Result<&'a [u8], ParseStop> {
        loop {
            let special = memchr2(b'"', b'\\', rest.get(from..).ok_or(ParseStop::Incomplete)?);
            let i = from + special.ok_or(ParseStop::Incomplete)?;
            if rest.get(i) == Some(&b'"') {
                self.at += i + 1;
                return Ok(rest.get(..i).unwrap_or_default());
            }
            from = i + 2;
        }
    }

    /// Parses a string, number or literal; skips a list or an object and returns `None`.
    #[inline(always)]
    pub fn scalar(&mut self) -> Result<Option<&'a [u8]>, ParseStop> {
        match self.peek()? {
            b'"' => {
                self.at += 1;
                self.string_rest().map(Some)
            }
            b'{' | b'[' => self.skip().map(|()| None),
            byte => {
                let from = self.at;
                self.bare(byte)?;
                Ok(Some(self.since(from)))
            }
        }
    }

    /// Passes over a number or a literal, of which `first` is the first byte.
    #[inline(always)]
    fn bare(&mut self, first: u8) -> Result<(), ParseStop> {
        let from = self.at;
        if first.is_ascii_digit() && self.plain_number() {
            return Ok(());
        }
        if first.is_ascii_digit() || first == b'-' {
            let is_part = |b: &&u8| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
            self.at += self.text.get(from..).unwrap_or_default().iter().take_while(is_part).count();
            let after = *self.text.get(self.at).ok_or(ParseStop::Incomplete)?;
            if !after.is_ascii_alphabetic() && self.since(from).last().is_some_and(u8::is_ascii_digit) {
                return Ok(());
            }
            self.at = from;
        }
        self.literal()
    }

    /// Passes over digits, with or without decimals, that a separator follows; otherwise over nothing.
    #[inline(always)]
    fn plain_number(&mut self) -> bool {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let mut length = digits(rest);
        if rest.get(length) == Some(&b'.') {
            let decimals = digits(rest.get(length + 1..).unwrap_or_default());
            length += if decimals > 0 { 1 + decimals } else { 0 };
        }
        let ends = matches!(rest.get(length), Some(b',' | b'}' | b']' | b' ' | b'\n'));
        self.at += if ends { length } else { 0 };
        ends
    }

    /// Parses a literal. Infinite and undefined numbers are not JSON, but profilers have written them for ratios.
    #[cold]
    fn literal(&mut self) -> Result<(), ParseStop> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let length = rest.iter().take_while(|b| b.is_ascii_alphabetic() || **b == b'-').count();
        if length == rest.len() && length <= "-Infinity".len() {
            return Err(ParseStop::Incomplete);
        }
        match rest.get(..length).unwrap_or_default() {
            b"true" | b"false" | b"null" => {}
            b"NaN" | b"Infinity" | b"-Infinity" | b"nan" | b"-nan" | b"inf" | b"-inf" => {}
            _ => return Err(ParseStop::Invalid(Expected::Value)),
        }
        self.at += length;
        Ok(())
    }

    /// Passes over one value of any kind, checking its grammar.
    #[inline]
    pub fn skip(&mut self) -> Result<(), ParseStop> {
        match self.peek()? {
            b'"' => {
                self.at += 1;
                self.string_rest().map(|_| ())
            }
            b'{' | b'[' => self.skip_nested(),
            byte => self.bare(byte),
        }
    }

    /// Parses a list of three whole numbers; passes over nothing if it is anything else.
    pub fn three_numbers(&mut self) -> Option<[u32; 3]> {
        let mut numbers = [0u32; 3];
        let (mut last, mut position) = (b'[', 0);
        let list = self.text.get(self.at..)?.strip_prefix(b"[")?;
        for (byte, after) in list.iter().zip(self.at + 2..) {
            let after_number = last.is_ascii_digit() || last == b' ';
            match byte {
                b'0'..=b'9' if last != b' ' => {
                    let number = numbers.get_mut(position)?;
                    *number = number.checked_mul(10)?.checked_add(u32::from(byte - b'0'))?;
                }
                b',' if after_number => position += 1,
                b' ' | b'\n' | b'\r' | b'\t' if after_number => {
                    last = b' ';
                    continue;
                }
                b' ' | b'\n' | b'\r' | b'\t' => continue,
                b']' if after_number && position == 2 => {
                    self.at = after;
                    return Some(numbers);
                }
                _ => return None,
            }
            last = *byte;
        }
        None
    }

    /// Passes over a list of whole numbers up to its closing bracket; over nothing if it has anything else.
    #[inline(always)]
    fn skip_whole_numbers(&mut self) {
        let mut last = b'[';
        for (byte, at) in self.text.get(self.at..).unwrap_or_default().iter().zip(self.at..) {
            match byte {
                b'0'..=b'9' => {}
                b',' if last.is_ascii_digit() => {}
                b' ' if last == b',' => {}
                b']' if last.is_ascii_digit() => {
                    self.at = at;
                    return;
                }
                _ => return,
            }
            last = *byte;
        }
    }

    /// Passes over a list or an object.
    fn skip_nested(&mut self) -> Result<(), ParseStop> {
        let mut open = Open::default();
        loop {
            // A value stands here.
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    self.string_rest()?;
                }
                b'{' => {
                    self.at += 1;
                    if self.peek()? != b'}' {
                        open.push(true)?;
                        self.key()?;
                        continue;
                    }
                    self.at += 1;
                }
                b'[' => {
                    self.at += 1;
                    if open.depth < MAX_DEPTH {
                        self.skip_whole_numbers();
                    }
                    if self.peek()? != b']' {
                        open.push(false)?;
                        continue;
                    }
                    self.at += 1;
                }
                byte => self.bare(byte)?,
            }
            // A value ended here.
            loop {
                let Some(in_object) = open.last() else {
                    return Ok(());
                };
                match self.peek()? {
                    b',' => {
                        self.at += 1;
                        if in_object {
                            self.key()?;
                        }
                        break;
                    }
                    b'}' if in_object => {}
                    b']' if !in_object => {}
                    _ => return Err(ParseStop::Invalid(Expected::CommaOrEnd)),
                }
                self.at += 1;
                open.pop();
            }
        }
    }
}

/// Returns the position of the first quote or backslash in eight bytes.
#[inline(always)]
fn first_special(eight: [u8; 8]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    // The high bit of every byte that is zero. Above the first one there may be wrong ones; only the first is used.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & (ONES << 7);
    let word = u64::from_le_bytes(eight);
    let special = zeros(word ^ (ONES * u64::from(b'"'))) | zeros(word ^ (ONES * u64::from(b'\\')));
    (special != 0).then_some((special.trailing_zeros() / 8) as usize)
}

/// Counts the digits that text begins with.
#[inline(always)]
fn digits(text: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    let mut from = 0;
    while let Some(eight) = text.get(from..).and_then(|rest| rest.first_chunk()) {
        // Digits become 0 to 9. The high bit is that of every byte that is none; only the first is used, as above.
        let word = u64::from_le_bytes(*eight) ^ (ONES * u64::from(b'0'));
        let others = (word.wrapping_add(ONES * (0x80 - 10)) | word) & (ONES << 7);
        if others != 0 {
            return from + (others.trailing_zeros() / 8) as usize;
        }
        from += 8;
    }
    from + text.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count()
}

/// The brackets that are open, one bit each: set for an object.
#[derive(Default)]
struct Open {
    depth: usize,
    bits: [u64; MAX_DEPTH / 64],
}

impl Open {
    #[inline(always)]
    fn push(&mut self, object: bool) -> Result<(), ParseStop> {
        let word = self.bits.get_mut(self.depth / 64).ok_or(ParseStop::Invalid(Expected::Shallow))?;
        let bit = 1 << (self.depth % 64);
        *word = if object { *word | bit } else { *word & !bit };
        self.depth += 1;
        Ok(())
    }

    #[inline(always)]
    fn last(&self) -> Option<bool> {
        let top = self.depth.checked_sub(1)?;
        self.bits.get(top / 64).map(|word| word >> (top % 64) & 1 == 1)
    }

    #[inline(always)]
    fn pop(&mut self) {
        self.depth -= 1;
    }
}

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

    fn skipped(text: &str) -> Result<usize, ParseStop> {
        let mut cursor = Cursor::new(text.as_bytes(), 0);
        cursor.skip().map(|()| cursor.at)
    }

    #[test]
    fn a_whole_value_is_passed_over() {
        let lists =
            ["[]", "[ -1.5e3 , null ]", "[NaN,-inf]", "[[1, 20],[3], [], [ 4], [5 ], [6, -7], [8, 9.5]]"];
        let others = [r#"{"a":[1,{"b":"}]\""},[]],"c":{}}"#, r#""x\\""#, "12", "1.25", "1e3", "-3"];
        for value in lists.into_iter().chain(others) {
            assert_eq!(skipped(&format!("{value},")), Ok(value.len()), "{value}");
        }
    }

    #[test]
    fn a_value_cut_anywhere_is_incomplete() {
        let value = r#"{"a":[1,{"b":"}]\""},[]],"c":{},"d":-1.25e3,"e":true}"#;
        for end in 0..value.len() {
            assert_eq!(skipped(&value[..end]), Err(ParseStop::Incomplete), "{}", &value[..end]);
        }
    }

    #[test]
    fn broken_grammar_is_invalid() {
        for value in [
            "[1 2]",
            "[1,]",
            "[1, ]",
            "[,1]",
            "[1,,2]",
            "[1, 2}",
            "{1:2}",
            r#"{"a" 1}"#,
            r#"{"a":1]"#,
            "[1}",
            "tru ",
            "- ",
            "1.e,",
            "]",
            "\u{1}",
        ] {
            assert!(matches!(skipped(value), Err(ParseStop::Invalid(_))), "{value}");
        }
    }

    #[test]
    fn three_numbers_are_parsed_or_left() {
        let parsed = |text: &str| {
            let mut cursor = Cursor::new(text.as_bytes(), 0);
            (cursor.three_numbers(), cursor.at)
        };
        assert_eq!(parsed("[1, 20,300], 4"), (Some([1, 20, 300]), 11));
        assert_eq!(parsed("[4294967295, 0, 7]"), (Some([u32::MAX, 0, 7]), 18));
        for other in
            ["[1, 2]", "[1, 2, 3, 4]", "[1, 2, 4294967296]", "[1, 2, ]", "[1 2, 3]", "[1, 2, 3", "1", "[]"]
        {
            assert_eq!(parsed(other), (None, 0), "{other}");
        }
    }

    #[test]
    fn the_first_quote_or_backslash_is_found() {
        for bytes in [*b"abcdefgh", [0; 8], [0xff; 8], [b'"' + 1; 8], [b'"' - 1; 8], [b'\\' ^ 0x80; 8]] {
            assert_eq!(first_special(bytes), None);
            for first in 0..8 {
                for special in [b'"', b'\\'] {
                    let mut with = bytes;
                    with[first] = special;
                    assert_eq!(first_special(with), Some(first));
                    with[7] = b'"';
                    assert_eq!(first_special(with), Some(first));
                }
            }
        }
    }

    #[test]
    fn digits_are_counted_up_to_the_first_other_byte() {
        for length in 0..20 {
            let text = "0193456782".repeat(2)[..length].to_owned();
            assert_eq!(digits(text.as_bytes()), length);
            for other in ["/", ":", ".", "\u{e9}", " ", "\0"] {
                assert_eq!(digits(format!("{text}{other}12345678").as_bytes()), length, "{other:?}");
            }
        }
    }

    #[test]
    fn nesting_has_a_limit() {
        let deep = |n: usize| "[".repeat(n) + "1" + &"]".repeat(n);
        assert_eq!(skipped(&deep(MAX_DEPTH)), Ok(2 * MAX_DEPTH + 1));
        assert_eq!(skipped(&deep(MAX_DEPTH + 1)), Err(ParseStop::Invalid(Expected::Shallow)));
        assert_eq!(skipped(&deep(200_000)), Err(ParseStop::Invalid(Expected::Shallow)));
    }
}

#[cfg(test)]
mod text_tests {
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
