//! Names: nested, local, with template arguments; lambdas and operators.

use super::parser::{Parser, Piece};

/// A name, and what of it matters to the function it names.
#[derive(Debug, Default)]
pub struct Name {
    pub text: String,
    /// It ends in template arguments, so the function's return type is spelled out.
    pub is_template: bool,
    /// ` const`, for a member function.
    pub qualifiers: String,
    /// Constructors and conversions have no return type spelled out.
    pub no_return: bool,
}

impl Parser<'_> {
    /// Parses a function with its parameters, or a variable.
    pub fn encoding(&mut self) -> Option<String> {
        let (name, function) = self.encoding_parts()?;
        Some(function.unwrap_or(name))
    }

    /// Parses a function, or a variable, and returns its name alone.
    pub fn encoding_name(&mut self) -> Option<String> {
        Some(self.encoding_parts()?.0)
    }

    /// Parses a function, or a variable: its name, and of a function the name with its type.
    fn encoding_parts(&mut self) -> Option<(String, Option<String>)> {
        self.deeper(|parser| {
            let name = parser.name()?;
            if parser.is_done() || matches!(parser.peek(0), b'E' | b'.') {
                return Some((name.text, None));
            }
            let returned =
                if name.is_template && !name.no_return { Some(parser.type_piece()?) } else { None };
            let parameters = parser.parameters()?;
            let function = format!("{}({parameters}){}", name.text, name.qualifiers);
            let function = match returned {
                Some(piece) => format!("{} {function}{}", piece.left, piece.right),
                None => function,
            };
            Some((name.text, Some(function)))
        })
    }

    /// Types until the end of the function, `void` alone being none.
    pub fn parameters(&mut self) -> Option<String> {
        let mut types = Vec::new();
        while !self.is_done() && !matches!(self.peek(0), b'E' | b'.') {
            types.push(self.type_piece()?.text());
        }
        if types == ["void"] {
            types.clear();
        }
        types.retain(|text| !text.is_empty());
        Some(types.join(", "))
    }

    pub fn name(&mut self) -> Option<Name> {
        self.deeper(|parser| match (parser.peek(0), parser.peek(1)) {
            (b'N', _) => parser.nested(),
            (b'Z', _) => parser.local(),
            (b'S', next) if next != b't' => {
                let piece = parser.substitution()?;
                let arguments = parser.arguments()?;
                Some(Name {
                    text: format!("{}{arguments}", piece.text()),
                    is_template: true,
                    ..Name::default()
                })
            }
            _ => {
                let prefix = if parser.take("St") { "std::" } else { "" };
                let text = format!("{prefix}{}", parser.unqualified("")?);
                if parser.peek(0) != b'I' {
                    return Some(Name { text, ..Name::default() });
                }
                parser.remember(Piece::plain(text.clone()))?;
                let arguments = parser.arguments()?;
                Some(Name { text: format!("{text}{arguments}"), is_template: true, ..Name::default() })
            }
        })
    }

    fn nested(&mut self) -> Option<Name> {
        self.skip(1);
        let mut name = Name::default();
        while let b'K' | b'V' | b'r' = self.peek(0) {
            if self.peek(0) == b'K' {
                name.qualifiers.push_str(" const");
            }
            self.skip(1);
        }
        if matches!((self.peek(0), self.peek(1)), (b'R' | b'O', next) if next != 0) {
            name.qualifiers.push_str(if self.peek(0) == b'R' { " &" } else { " &&" });
            self.skip(1);
        }
        let mut last = String::new();
        while !self.take("E") {
            match (self.peek(0), self.peek(1)) {
                (b'I', _) if !name.text.is_empty() => {
                    let arguments = self.arguments()?;
                    name.text.push_str(&arguments);
                    name.is_template = true;
                }
                (b'S', b't') => {
                    self.skip(2);
                    name.text.push_str("std");
                    continue;
                }
                (b'S', _) => {
                    name.text = self.substitution()?.text();
                    last = base_of(&name.text);
                    name.is_template = false;
                    continue;
                }
                (b'T', _) => name.text = self.template_parameter()?,
                (b'D', b't' | b'T') => name.text = self.type_piece()?.text(),
                _ => {
                    name.no_return = matches!(self.peek(0), b'C' | b'D');
                    let part = self.unqualified(&last)?;
                    if !name.text.is_empty() {
                        name.text.push_str("::");
                    }
                    name.text.push_str(&part);
                    name.is_template = false;
                    last = part;
                }
            }
            self.remember(Piece::plain(name.text.clone()))?;
        }
        self.forget();
        (!name.text.is_empty()).then_some(name)
    }

    /// Parses a name inside a function.
    fn local(&mut self) -> Option<Name> {
        self.skip(1);
        let function = self.encoding()?;
        if !self.take("E") {
            return None;
        }
        if self.take("s") {
            self.discriminator();
            return Some(Name { text: format!("{function}::string literal"), ..Name::default() });
        }
        if self.take("d") {
            let _ = self.number();
            if !self.take("_") {
                return None;
            }
        }
        let mut name = self.name()?;
        self.discriminator();
        name.text = format!("{function}::{}", name.text);
        Some(name)
    }

    fn discriminator(&mut self) {
        if self.peek(0) == b'_' && self.peek(1).is_ascii_digit() {
            self.skip(2);
        } else if self.peek(0) == b'_' && self.peek(1) == b'_' && self.peek(2).is_ascii_digit() {
            self.skip(2);
            let _ = self.number();
            self.take("_");
        }
    }

    /// Parses a component of a name; `class` is the one before it, for constructors.
    fn unqualified(&mut self, class: &str) -> Option<String> {
        // Internal linkage says nothing to a reader.
        if self.peek(0) == b'L' && self.peek(1).is_ascii_digit() {
            self.skip(1);
        }
        let mut text = match (self.peek(0), self.peek(1)) {
            (b'0'..=b'9', _) => self.source_name()?,
            (b'U', b'l') => self.lambda()?,
            (b'U', b't') => {
                self.skip(2);
                format!("[unnamed type (instance {})]", self.index(10)? + 1)
            }
            (b'C', b'1'..=b'5') => {
                self.skip(2);
                base_of(class)
            }
            (b'D', b'0'..=b'5') => {
                self.skip(2);
                format!("~{}", base_of(class))
            }
            (b'a'..=b'z', _) => self.operator()?,
            _ => return None,
        };
        while self.take("B") {
            text.push_str(&format!("[abi:{}]", self.source_name()?));
        }
        Some(text)
    }

    pub fn source_name(&mut self) -> Option<String> {
        let length = self.number()?;
        let text = self.slice(length)?;
        Some(if text.starts_with("_GLOBAL__N_") { "<unnamed>".to_owned() } else { text.to_owned() })
    }

    fn lambda(&mut self) -> Option<String> {
        self.skip(2);
        let parameters = self.parameters()?;
        if !self.take("E") {
            return None;
        }
        Some(format!("[lambda({parameters}) (instance {})]", self.index(10)? + 1))
    }

    fn operator(&mut self) -> Option<String> {
        const OPERATORS: [(&str, &str); 44] = [
            ("cl", "()"),
            ("ix", "[]"),
            ("pl", "+"),
            ("mi", "-"),
            ("ml", "*"),
            ("dv", "/"),
            ("rm", "%"),
            ("an", "&"),
            ("or", "|"),
            ("eo", "^"),
            ("co", "~"),
            ("nt", "!"),
            ("aS", "="),
            ("lt", "<"),
            ("gt", ">"),
            ("pL", "+="),
            ("mI", "-="),
            ("mL", "*="),
            ("dV", "/="),
            ("rM", "%="),
            ("aN", "&="),
            ("oR", "|="),
            ("eO", "^="),
            ("ls", "<<"),
            ("rs", ">>"),
            ("lS", "<<="),
            ("rS", ">>="),
            ("eq", "=="),
            ("ne", "!="),
            ("le", "<="),
            ("ge", ">="),
            ("aa", "&&"),
            ("oo", "||"),
            ("pp", "++"),
            ("mm", "--"),
            ("cm", ","),
            ("pm", "->*"),
            ("pt", "->"),
            ("ps", "+"),
            ("ng", "-"),
            ("ad", "&"),
            ("de", "*"),
            ("nw", "new"),
            ("dl", "delete"),
        ];
        if self.take("cv") {
            return Some(format!("operator {}", self.type_piece()?.text()));
        }
        let (code, sign) = OPERATORS
            .iter()
            .find(|(code, _)| self.peek(0) == code.as_bytes()[0] && self.peek(1) == code.as_bytes()[1])?;
        self.skip(code.len());
        Some(format!("operator {sign}"))
    }
}

/// Returns the last component of a name, without its template arguments.
fn base_of(name: &str) -> String {
    let plain = name.split('<').next().unwrap_or(name);
    plain.rsplit("::").next().unwrap_or(plain).to_owned()
}
