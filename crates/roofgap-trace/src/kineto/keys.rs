//! Keys of objects, remembered as they were written: most objects repeat the keys and the white space of those before.

use super::cursor::{Cursor, Expected, ParseStop};

/// Most keys that are remembered.
const MOST_KEYS: usize = 64;

/// A key, and what it means; a closing brace means nothing.
#[derive(Debug, Clone, Copy)]
struct Key<'a, F> {
    /// The key with everything between the value before it and its value.
    text: &'a [u8],
    field: Option<F>,
    /// Positions of keys that followed it.
    next: [usize; 2],
    /// The last value that was skipped, if it tells where it ends.
    value: &'a [u8],
}

/// The keys of one kind of object, in the order of first sight. The first is none and stands for the opening brace.
#[derive(Debug)]
pub struct Keys<'a, F>(Vec<Key<'a, F>>);

impl<F> Default for Keys<'_, F> {
    fn default() -> Self {
        Self(vec![Key { text: b"", field: None, next: [0; 2], value: b"" }])
    }
}

impl<'a, F: Copy + for<'k> From<&'k [u8]>> Keys<'a, F> {
    /// Passes over what stands before the next value, after that of the key at `last`, which is 0 after the opening brace. Returns the
    /// position of its key and what it means; `None` after the closing brace.
    #[inline(always)]
    pub fn next(&mut self, last: usize, cursor: &mut Cursor<'a>) -> Result<Option<(usize, F)>, ParseStop> {
        for at in self.0[last].next {
            let key = &self.0[at];
            if at > 0 && cursor.take_exactly(key.text) {
                return Ok(key.field.map(|field| (at, field)));
            }
        }
        self.find(last, cursor)
    }

    fn find(&mut self, last: usize, cursor: &mut Cursor<'a>) -> Result<Option<(usize, F)>, ParseStop> {
        let from = cursor.at;
        let field = match cursor.peek()? {
            b'}' => {
                cursor.at += 1;
                None
            }
            _ => {
                if last > 0 {
                    cursor.take(b',', Expected::CommaOrEnd)?;
                }
                let field = F::from(cursor.key()?);
                cursor.peek()?;
                Some(field)
            }
        };
        let text = cursor.since(from);
        let known = self.0.iter().position(|key| key.text == text);
        let at = known.unwrap_or_else(|| {
            if self.0.len() == MOST_KEYS {
                *self = Self::default();
            }
            self.0.push(Key { text, field, next: [0; 2], value: b"" });
            self.0.len() - 1
        });
        if let Some(Key { next, .. }) = self.0.get_mut(last) {
            *next = [at, next[0]];
        }
        Ok(field.map(|field| (at, field)))
    }

    /// Passes over the value of the key at `at`.
    #[inline(always)]
    pub fn value(&mut self, at: usize, cursor: &mut Cursor<'a>) -> Result<&'a [u8], ParseStop> {
        let last = &mut self.0[at].value;
        if !last.is_empty() && cursor.take_exactly(last) {
            return Ok(last);
        }
        let from = cursor.at;
        cursor.skip()?;
        let value = cursor.since(from);
        if matches!(value, [.., b']' | b'}' | b'"']) {
            *last = value;
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Length(usize);

    impl From<&[u8]> for Length {
        fn from(key: &[u8]) -> Self {
            Self(key.len())
        }
    }

    /// Reads objects one after the other: the length of each key and its value.
    fn read(text: &str) -> Result<Vec<(usize, &[u8])>, ParseStop> {
        let (mut keys, mut cursor, mut values) =
            (Keys::default(), Cursor::new(text.as_bytes(), 0), Vec::new());
        while cursor.at < text.len() {
            cursor.take(b'{', Expected::Event)?;
            let mut last = 0;
            while let Some((at, Length(length))) = keys.next(last, &mut cursor)? {
                values.push((length, keys.value(at, &mut cursor)?));
                last = at;
            }
        }
        Ok(values)
    }

    #[test]
    fn a_remembered_key_is_read_as_a_new_one() {
        let objects = [
            r#"{"a": 1, "bc": [1], "def": "x"}"#,
            r#"{"a": 12, "bc": [1, 2], "def": "xy"}"#,
            r#"{"a": 1,"def": "x", "a": 1}"#,
            r#"{"def": "x\"", "a": {"a": 1}}{}"#,
        ];
        let alone: Vec<_> = objects.iter().flat_map(|object| read(object).unwrap()).collect();
        assert_eq!(alone.len(), 11);
        assert_eq!(read(&objects.concat()).unwrap(), alone);
        // One more byte than before, which ends the value elsewhere.
        assert_eq!(read(r#"{"a": 1, "a": 1}{"a": 12, "a": 1}"#).unwrap()[2], (1, &b"12"[..]));
        for wrong in [r#"{"a": 1}{, "a": 1}"#, r#"{"a": 1 "a": 1}"#, r#"{"a": 1, "b": 2}{"a": 1, }"#] {
            assert!(matches!(read(wrong), Err(ParseStop::Invalid(_))), "{wrong}");
        }
    }

    #[test]
    fn more_keys_than_are_remembered() {
        let members: Vec<String> =
            (0..3 * MOST_KEYS).map(|n| format!("\"{}\": {n}", "k".repeat(n))).collect();
        let text = format!("{{{}}}", members.join(", ")).repeat(2);
        let values = read(&text).unwrap();
        assert_eq!(values.len(), 6 * MOST_KEYS);
        for (at, (length, value)) in values.iter().enumerate() {
            assert_eq!((at % (3 * MOST_KEYS), length.to_string().as_bytes()), (*length, *value));
        }
    }
}
