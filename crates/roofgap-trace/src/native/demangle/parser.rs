//! Walking over a mangled name: the position, what can be referred back to, and limits against hostile input.

/// The longest readable name; references back can make a short mangled name very long.
const LONGEST: usize = 64 << 10;

/// The deepest nesting.
const DEEPEST: u32 = 200;

/// A type in two halves, because a declarator stands inside it: `void (*` and `)(int)`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Piece {
    pub left: String,
    pub right: String,
}

impl Piece {
    pub fn plain(text: impl Into<String>) -> Self {
        Self { left: text.into(), right: String::new() }
    }

    pub fn text(&self) -> String {
        format!("{}{}", self.left, self.right)
    }
}

/// The state of one name.
#[derive(Debug)]
pub struct Parser<'a> {
    input: &'a [u8],
    at: usize,
    depth: u32,
    written: usize,
    seen: Vec<Piece>,
}

impl<'a> Parser<'a> {
    pub fn new(input: &'a [u8]) -> Self {
        Self { input, at: 0, depth: 0, written: 0, seen: Vec::new() }
    }

    pub fn is_done(&self) -> bool {
        self.at >= self.input.len()
    }

    /// Returns the byte at `ahead`; 0 beyond the end, which no rule accepts.
    pub fn peek(&self, ahead: usize) -> u8 {
        self.input.get(self.at + ahead).copied().unwrap_or(0)
    }

    pub fn skip(&mut self, count: usize) {
        self.at += count;
    }

    pub fn take(&mut self, text: &str) -> bool {
        let found = self.input.get(self.at..).is_some_and(|rest| rest.starts_with(text.as_bytes()));
        if found {
            self.at += text.len();
        }
        found
    }

    /// Takes the next `count` bytes as text.
    pub fn slice(&mut self, count: usize) -> Option<&'a str> {
        let end = self.at.checked_add(count)?;
        let text = std::str::from_utf8(self.input.get(self.at..end)?).ok()?;
        self.at = end;
        Some(text)
    }

    /// Parses a decimal number.
    pub fn number(&mut self) -> Option<usize> {
        let begun = self.at;
        let mut value = 0usize;
        while self.peek(0).is_ascii_digit() {
            value = value.checked_mul(10)?.checked_add(usize::from(self.peek(0) - b'0'))?;
            self.at += 1;
        }
        (self.at > begun).then_some(value)
    }

    /// Parses an index in the given base: `_` is 0, `0_` is 1, and so on.
    pub fn index(&mut self, base: u32) -> Option<usize> {
        if self.take("_") {
            return Some(0);
        }
        let mut value = 0usize;
        loop {
            let byte = self.peek(0);
            if byte == b'_' {
                self.skip(1);
                return value.checked_add(1);
            }
            let digit = char::from(byte).to_digit(base).filter(|_| !byte.is_ascii_lowercase())?;
            value = value.checked_mul(base as usize)?.checked_add(digit as usize)?;
            self.skip(1);
        }
    }

    /// Remembers what later parts may refer back to.
    pub fn remember(&mut self, piece: Piece) -> Option<()> {
        self.written = self.written.checked_add(piece.left.len() + piece.right.len())?;
        if self.written > LONGEST {
            return None;
        }
        self.seen.push(piece);
        Some(())
    }

    /// Takes back the last thing remembered.
    pub fn forget(&mut self) {
        self.seen.pop();
    }

    pub fn remembered(&self, at: usize) -> Option<Piece> {
        self.seen.get(at).cloned()
    }

    /// Runs one rule, unless the name is nested too deeply or grows too long.
    pub fn deeper<R>(&mut self, rule: impl FnOnce(&mut Self) -> Option<R>) -> Option<R> {
        self.depth += 1;
        let result = if self.depth > DEEPEST { None } else { rule(self) };
        self.depth -= 1;
        result
    }
}
