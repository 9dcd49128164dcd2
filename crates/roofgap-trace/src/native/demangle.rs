//! Kernel names as NVIDIA's tools write them.
//!
//! CUPTI gives mangled names, nsys and ncu print them in a style of their own: literals with their type (`(int)4`),
//! template parameters by number (`T2`), lambdas as `[lambda(int) (instance 1)]`. Names are the join key between
//! captures and counters, so this demangler is written by hand in that spelling. A name that is not understood stays mangled.

/// Demangles a function name; `None` if it is not mangled or not understood.
pub fn demangle(name: &str) -> Option<String> {
    let mangled = name.strip_prefix("_Z")?;
    let mut parser = Parser::new(mangled.as_bytes());
    let text = parser.encoding()?;
    parser.is_done().then_some(text)
}

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

impl Parser<'_> {
    pub fn type_piece(&mut self) -> Option<Piece> {
        self.deeper(Self::type_rule)
    }

    fn type_rule(&mut self) -> Option<Piece> {
        let piece = match (self.peek(0), self.peek(1)) {
            (b'r' | b'V' | b'K', _) => self.qualified()?,
            (b'P', _) => self.pointer("*")?,
            (b'R', _) => self.pointer("&")?,
            (b'O', _) => self.pointer("&&")?,
            (b'F', _) => self.function()?,
            (b'A', _) => self.array()?,
            (b'M', _) => self.member_pointer()?,
            (b'T', _) => {
                let name = self.template_parameter()?;
                if self.peek(0) == b'I' {
                    self.remember(Piece::plain(name.clone()))?;
                    let arguments = self.arguments()?;
                    Piece::plain(format!("{name}{arguments}"))
                } else {
                    Piece::plain(name)
                }
            }
            (b'S', next) if next != b't' => {
                let piece = self.substitution()?;
                if self.peek(0) != b'I' {
                    return Some(piece);
                }
                let arguments = self.arguments()?;
                Piece::plain(format!("{}{arguments}", piece.text()))
            }
            (b'D', b'p') => {
                self.skip(2);
                Piece::plain(format!("{}...", self.type_piece()?.text()))
            }
            (b'D', b't' | b'T') => {
                self.skip(2);
                let value = self.expression()?;
                if !self.take("E") {
                    return None;
                }
                Piece::plain(format!("decltype({value})"))
            }
            (b'D', _) => return self.long_builtin(),
            (b'u', _) => {
                self.skip(1);
                let length = self.number()?;
                Piece::plain(self.slice(length)?)
            }
            (b'a'..=b'z', _) => return self.builtin(),
            _ => Piece::plain(self.name()?.text),
        };
        self.remember(piece.clone())?;
        Some(piece)
    }

    fn builtin(&mut self) -> Option<Piece> {
        let name = match self.peek(0) {
            b'v' => "void",
            b'w' => "wchar_t",
            b'b' => "bool",
            b'c' => "char",
            b'a' => "signed char",
            b'h' => "unsigned char",
            b's' => "short",
            b't' => "unsigned short",
            b'i' => "int",
            b'j' => "unsigned int",
            b'l' => "long",
            b'm' => "unsigned long",
            b'x' => "long long",
            b'y' => "unsigned long long",
            b'n' => "__int128",
            b'o' => "unsigned __int128",
            b'f' => "float",
            b'd' => "double",
            b'e' => "long double",
            b'g' => "__float128",
            b'z' => "...",
            _ => return None,
        };
        self.skip(1);
        Some(Piece::plain(name))
    }

    fn long_builtin(&mut self) -> Option<Piece> {
        const NAMES: [(&str, &str); 7] = [
            ("Dn", "std::nullptr_t"),
            ("Di", "char32_t"),
            ("Ds", "char16_t"),
            ("Du", "char8_t"),
            ("Da", "auto"),
            ("DF16b", "__bf16"),
            ("DF16_", "_Float16"),
        ];
        let (_, name) = NAMES.iter().find(|(code, _)| self.take(code))?;
        Some(Piece::plain(*name))
    }

    fn qualified(&mut self) -> Option<Piece> {
        let mut words = Vec::new();
        loop {
            match self.peek(0) {
                b'r' => {}
                b'V' => words.push("volatile"),
                b'K' => words.push("const"),
                _ => break,
            }
            self.skip(1);
        }
        words.sort_unstable();
        let words = words.join(" ");
        let mut piece = self.type_piece()?;
        if words.is_empty() {
            return Some(piece);
        }
        // A qualifier of a pointer follows it; of anything else it stands first.
        piece.left = match piece.left.ends_with(['*', '&']) {
            true => format!("{}{words}", piece.left),
            false => format!("{words} {}", piece.left),
        };
        Some(piece)
    }

    fn pointer(&mut self, sign: &str) -> Option<Piece> {
        self.skip(1);
        let mut piece = self.type_piece()?;
        if piece.right.starts_with(['(', '[']) {
            piece.left = format!("{} ({sign}", piece.left);
            piece.right = format!("){}", piece.right);
        } else if piece.left.ends_with(['*', '&']) {
            piece.left.push_str(sign);
        } else {
            piece.left = format!("{} {sign}", piece.left);
        }
        Some(piece)
    }

    fn function(&mut self) -> Option<Piece> {
        self.skip(1);
        self.take("Y");
        let returned = self.type_piece()?;
        let parameters = self.parameters()?;
        self.take("R");
        if !self.take("E") {
            return None;
        }
        Some(Piece { left: returned.left, right: format!("({parameters}){}", returned.right) })
    }

    fn array(&mut self) -> Option<Piece> {
        self.skip(1);
        let size = match self.peek(0) {
            b'_' => String::new(),
            b'0'..=b'9' => self.number()?.to_string(),
            _ => self.expression()?,
        };
        if !self.take("_") {
            return None;
        }
        let element = self.type_piece()?;
        Some(Piece { left: element.left, right: format!("[{size}]{}", element.right) })
    }

    fn member_pointer(&mut self) -> Option<Piece> {
        self.skip(1);
        let class = self.type_piece()?.text();
        let member = self.type_piece()?;
        Some(match member.right.is_empty() {
            true => Piece::plain(format!("{} {class}::*", member.left)),
            false => {
                Piece { left: format!("{} ({class}::*", member.left), right: format!("){}", member.right) }
            }
        })
    }

    /// Parses a template parameter: `T_` is the first, `T0_` the second.
    pub fn template_parameter(&mut self) -> Option<String> {
        if !self.take("T") {
            return None;
        }
        Some(format!("T{}", self.index(10)? + 1))
    }

    pub fn substitution(&mut self) -> Option<Piece> {
        const KNOWN: [(&str, &str); 6] = [
            ("Sa", "std::allocator"),
            ("Sb", "std::basic_string"),
            ("Ss", "std::string"),
            ("Si", "std::istream"),
            ("So", "std::ostream"),
            ("Sd", "std::iostream"),
        ];
        if let Some((_, name)) = KNOWN.iter().find(|(code, _)| self.take(code)) {
            return Some(Piece::plain(*name));
        }
        if !self.take("S") {
            return None;
        }
        let at = self.index(36)?;
        self.remembered(at)
    }

    pub fn arguments(&mut self) -> Option<String> {
        if !self.take("I") {
            return None;
        }
        Some(format!("<{}>", self.list()?))
    }

    /// Arguments until `E`, separated by commas; an empty pack leaves its comma.
    fn list(&mut self) -> Option<String> {
        let mut parts = Vec::new();
        while !self.take("E") {
            parts.push(self.deeper(Self::argument)?);
        }
        Some(parts.join(", "))
    }

    fn argument(&mut self) -> Option<String> {
        match self.peek(0) {
            b'L' => self.literal(),
            b'J' => {
                self.skip(1);
                self.list()
            }
            b'X' => {
                self.skip(1);
                let value = self.expression()?;
                self.take("E").then_some(value)
            }
            _ => Some(self.type_piece()?.text()),
        }
    }

    /// Parses a value with its type: `(int)4`.
    fn literal(&mut self) -> Option<String> {
        self.skip(1);
        if self.take("_Z") {
            let name = self.encoding_name()?;
            return self.take("E").then(|| format!("&{name}"));
        }
        let kind = self.type_piece()?.text();
        let sign = if self.take("n") { "-" } else { "" };
        let mut value = String::new();
        while self.peek(0) != b'E' {
            let byte = self.peek(0);
            if !byte.is_ascii_alphanumeric() {
                return None;
            }
            value.push(char::from(byte));
            self.skip(1);
        }
        self.skip(1);
        Some(format!("({kind}){sign}{value}"))
    }

    /// Parses the few expressions that occur in kernel names.
    fn expression(&mut self) -> Option<String> {
        self.deeper(|parser| match (parser.peek(0), parser.peek(1)) {
            (b'T', _) => parser.template_parameter(),
            (b'L', _) => parser.literal(),
            (b's', b'Z') => {
                parser.skip(2);
                Some(format!("sizeof...({})", parser.template_parameter()?))
            }
            (b's', b't') => {
                parser.skip(2);
                Some(format!("sizeof({})", parser.type_piece()?.text()))
            }
            (b's', b'r') => {
                parser.skip(2);
                let scope = if parser.peek(0).is_ascii_digit() {
                    parser.unresolved_scope()?
                } else {
                    parser.type_piece()?.text()
                };
                Some(format!("{scope}::{}", parser.simple_name()?))
            }
            (b'a', b'd') => {
                parser.skip(2);
                match parser.peek(0) {
                    // The literal has the sign already.
                    b'L' => parser.literal(),
                    _ => Some(format!("&{}", parser.expression()?)),
                }
            }
            (first, second) => {
                const BINARY: [(&[u8; 2], &str); 14] = [
                    (b"pl", "+"),
                    (b"mi", "-"),
                    (b"ml", "*"),
                    (b"dv", "/"),
                    (b"rm", "%"),
                    (b"lt", "<"),
                    (b"gt", ">"),
                    (b"le", "<="),
                    (b"ge", ">="),
                    (b"eq", "=="),
                    (b"ne", "!="),
                    (b"aa", "&&"),
                    (b"oo", "||"),
                    (b"an", "&"),
                ];
                if (first, second) == (b'n', b't') {
                    parser.skip(2);
                    return Some(format!("!{}", parser.expression()?));
                }
                let (_, sign) = BINARY.iter().find(|(code, _)| **code == [first, second])?;
                parser.skip(2);
                let (left, right) = (parser.expression()?, parser.expression()?);
                Some(format!("{left}{sign}{right}"))
            }
        })
    }

    /// Parses the names of a scope that depends on template parameters, up to its `E`. Later parts do not refer back to them.
    fn unresolved_scope(&mut self) -> Option<String> {
        let mut names = Vec::new();
        while !self.take("E") {
            names.push(self.simple_name()?);
        }
        Some(names.join("::"))
    }

    /// Parses a name with its template arguments, if it has any.
    fn simple_name(&mut self) -> Option<String> {
        let name = self.source_name()?;
        Some(match self.peek(0) {
            b'I' => format!("{name}{}", self.arguments()?),
            _ => name,
        })
    }
}

#[cfg(test)]
mod tests;
