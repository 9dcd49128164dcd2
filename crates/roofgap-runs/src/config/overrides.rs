//! Overrides in Hydra's syntax: `group=option`, `a.b=v`, `+a.b=v`, `~a.b`.

use roofgap_base::error::Error;
use serde_json::{Map, Value};

use super::failed;
use super::tree::{Origin, plain};

/// A parsed override.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    /// Key or group as written.
    pub key: String,
    /// Override as written.
    pub text: String,
    /// Value of `key=value`; `None` for `~key`, which removes the key.
    pub value: Option<Value>,
    /// True for `+key=value` and `++key=value`, which add a key or set an existing one.
    pub adds: bool,
}

impl Override {
    /// Returns the origin of its value.
    pub fn origin(&self) -> Origin {
        Origin::Override(self.text.clone())
    }

    /// Returns the value as written, for options.
    pub fn plain(&self) -> Option<&str> {
        self.value.as_ref()?;
        self.text.split_once('=').map(|(_, value)| value.trim())
    }

    /// Makes the error of an override.
    pub fn wrong(text: &str, why: impl Into<String>) -> Error {
        failed(format!("cannot parse the override {text}: {}", why.into()))
    }

    /// Parses one override.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = |why| Self::wrong(text, why);
        let read = |key: &str, value, adds| {
            check_key(key).map_err(wrong)?;
            Ok(Self { key: key.to_owned(), text: text.to_owned(), value, adds })
        };
        if let Some(key) = text.strip_prefix('~') {
            // Hydra also accepts `~key=value`; the value is ignored.
            return read(key.split_once('=').map_or(key, |(key, _)| key), None, false);
        }
        let (key, value) = text.split_once('=').ok_or_else(|| {
            let why = "write group=option, key=value, +key=value or ~key (a program goes after --)";
            wrong(why.to_owned())
        })?;
        let bare = key.strip_prefix("++").or_else(|| key.strip_prefix('+'));
        let value = ValueParser { rest: value.trim() }.whole().map_err(wrong)?;
        read(bare.unwrap_or(key), Some(value), bare.is_some())
    }
}

fn check_key(key: &str) -> Result<(), String> {
    let bad = |c: char| !(c.is_ascii_alphanumeric() || "_-./".contains(c));
    if key.is_empty() {
        Err("the key is empty".to_owned())
    } else if let Some(c) = key.chars().find(|c| bad(*c)) {
        Err(format!("a key cannot contain {c:?}"))
    } else if key.split(['.', '/']).any(str::is_empty) {
        Err("a part of the key is empty".to_owned())
    } else {
        Ok(())
    }
}

/// Parser of a value: null, true, numbers, text, quoted text, `[a, b]`, `{a: 1, b: 2}`.
struct ValueParser<'a> {
    rest: &'a str,
}

impl ValueParser<'_> {
    /// Parses the whole text as one value.
    fn whole(&mut self) -> Result<Value, String> {
        if !self.rest.starts_with(['[', '{', '"', '\'']) {
            // A plain value may contain commas, brackets and blanks: `trace=cuda,nvtx`.
            return Ok(plain(self.rest));
        }
        let value = self.value(0)?;
        self.skip_blanks();
        match self.rest {
            "" => Ok(value),
            rest => Err(format!("unexpected {rest:?} after the value")),
        }
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, c: char) -> bool {
        self.skip_blanks();
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > 32 {
            return Err("the value is nested too deeply".to_owned());
        }
        if self.take('[') {
            let mut items = Vec::new();
            while !self.take(']') {
                if !items.is_empty() && !self.take(',') {
                    return Err("expected , or ] in the list".to_owned());
                }
                items.push(self.value(depth + 1)?);
            }
            return Ok(Value::Array(items));
        }
        if self.take('{') {
            let mut map = Map::new();
            while !self.take('}') {
                if !map.is_empty() && !self.take(',') {
                    return Err("expected , or } in the map".to_owned());
                }
                let key = match self.scalar(":,]}")? {
                    Value::String(text) => text,
                    Value::Number(number) => number.to_string(),
                    _ => return Err("expected a name in the map".to_owned()),
                };
                if !self.take(':') {
                    return Err(format!("expected : after {key:?} in the map"));
                }
                let value = self.value(depth + 1)?;
                map.insert(key, value);
            }
            return Ok(Value::Object(map));
        }
        self.scalar(",]}")
    }

    fn scalar(&mut self, ends: &str) -> Result<Value, String> {
        self.skip_blanks();
        let Some(quote) = self.rest.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
            let end = self.rest.find(|c| ends.contains(c)).unwrap_or(self.rest.len());
            let (text, rest) = self.rest.split_at(end);
            if text.trim().is_empty() {
                return Err("a value is missing".to_owned());
            }
            self.rest = rest;
            return Ok(plain(text.trim()));
        };
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1).peekable();
        while let Some((at, c)) = chars.next() {
            match c {
                // As in Hydra, only the quote and the backslash can be escaped.
                '\\' if chars.peek().is_some_and(|(_, next)| *next == quote || *next == '\\') => {
                    text.extend(chars.next().map(|(_, next)| next));
                }
                c if c == quote => {
                    self.rest = self.rest.get(at + c.len_utf8()..).unwrap_or_default();
                    return Ok(Value::String(text));
                }
                c => text.push(c),
            }
        }
        Err("a quote is not closed".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::tree::inline;

    fn set(text: &str) -> String {
        Override::parse(text).unwrap().value.map_or("removed".to_owned(), |value| inline(&value))
    }

    #[test]
    fn reads_values() {
        for (text, want) in [
            ("a=1", "1"),
            ("a=-2.5", "-2.5"),
            ("a=1e3", "1000.0"),
            ("a=TRUE", "true"),
            ("a=null", "null"),
            ("a=", "\"\""),
            ("a='1'", "\"1\""),
            ("a=\"x, \\\"y\\\"\"", "\"x, \\\"y\\\"\""),
            ("a=cuda,nvtx", "\"cuda,nvtx\""),
            ("a=k=v", "\"k=v\""),
            ("a=[1, b,'c d',[]]", "[1, b, \"c d\", []]"),
            ("a={b:1,c: x}", "{b: 1, c: x}"),
            ("+a.b=inf", "inf"),
            ("++a.b=5m", "\"5m\""),
            ("~a.b", "removed"),
            ("~a.b=1", "removed"),
        ] {
            assert_eq!(set(text), want, "{text}");
        }
    }

    #[test]
    fn refuses_what_is_not_an_override() {
        for text in
            ["", "a", "=1", "a..b=1", "a b=1", "a=[1", "a=[1]x", "a={b}", "a='x", "a={b:}", "~", "a=[1,,2]"]
        {
            let error = Override::parse(text).expect_err(text);
            assert!(error.to_string().starts_with("cannot parse the override"), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "[+~]{0,2}[a-z./]{0,8}=?[\\PC]{0,24}") {
            let _ = Override::parse(&text);
        }

        #[test]
        fn brackets_never_panic(text in "a=[\\[\\]{}:,'\"\\\\ a1]{0,24}") {
            let _ = Override::parse(&text);
        }
    }
}
