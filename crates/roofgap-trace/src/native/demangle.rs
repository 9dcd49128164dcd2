//! Kernel names as NVIDIA's tools write them.
//!
//! CUPTI gives mangled names, nsys and ncu print them in a style of their own: literals with their type (`(int)4`),
//! template parameters by number (`T2`), lambdas as `[lambda(int) (instance 1)]`. Names are the join key between
//! captures and counters, so this demangler is written by hand in that spelling. A name that is not understood stays mangled.

/// Demangles a function name; `None` if it is not mangled or not understood.
pub fn demangle(name: &str) -> Option<String> {
    let rest = name.strip_prefix("_Z")?;
    let mut parser = Parser { rest, depth: 0, written: 0, seen: Vec::new() };
    let text = parser.encoding()?;
    parser.rest.is_empty().then_some(text)
}

/// The longest readable name; references back can make a short mangled name very long.
const LONGEST: usize = 64 << 10;

/// The deepest nesting.
const DEEPEST: u32 = 200;

/// Operators between two values: a line has the code and the sign.
const BINARY: &str = "pl +
mi -
ml *
dv /
rm %
an &
or |
eo ^
ls <<
rs >>
lt <
gt >
le <=
ge >=
eq ==
ne !=
aa &&
oo ||";

/// Operators that only names of functions have.
const OPERATORS: &str = "cl ()
ix []
co ~
nt !
aS =
pL +=
mI -=
mL *=
dV /=
rM %=
aN &=
oR |=
eO ^=
lS <<=
rS >>=
pp ++
mm --
cm ,
pm ->*
pt ->
ps +
ng -
ad &
de *
nw new
dl delete";

const BUILTIN: &str = "v void
w wchar_t
b bool
c char
a signed char
h unsigned char
s short
t unsigned short
i int
j unsigned int
l long
m unsigned long
x long long
y unsigned long long
n __int128
o unsigned __int128
f float
d double
e long double
g __float128
z ...
Dn std::nullptr_t
Di char32_t
Ds char16_t
Du char8_t
Da auto
DF16b __bf16
DF16_ _Float16";

const OF_STD: &str = "Sa std::allocator
Sb std::basic_string
Ss std::string
Si std::istream
So std::ostream
Sd std::iostream";

/// A type in two halves, because a declarator stands inside it: `void (*` and `)(int)`.
#[derive(Debug, Clone)]
struct Piece {
    left: String,
    right: String,
}

impl Piece {
    fn plain(text: impl Into<String>) -> Self {
        Self { left: text.into(), right: String::new() }
    }

    fn text(self) -> String {
        self.left + &self.right
    }
}

/// The state of one name.
struct Parser<'a> {
    rest: &'a str,
    depth: u32,
    written: usize,
    seen: Vec<Piece>,
}

/// A name, and what of it matters to the function it names.
#[derive(Debug, Default)]
struct Name {
    text: String,
    /// It ends in template arguments, so the function's return type is spelled out.
    is_template: bool,
    /// ` const`, for a member function.
    qualifiers: String,
    /// Constructors and conversions have no return type spelled out.
    no_return: bool,
}

impl<'a> Parser<'a> {
    /// Returns the next byte; 0 beyond the end, which no rule accepts.
    fn peek(&self) -> u8 {
        self.rest.bytes().next().unwrap_or(0)
    }

    fn take(&mut self, text: &str) -> bool {
        let after = self.rest.strip_prefix(text);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    /// Takes a text that has to follow.
    fn need(&mut self, text: &str) -> Option<()> {
        self.take(text).then_some(())
    }

    /// Takes a code of a table, and returns what it stands for.
    fn one_of(&mut self, table: &'static str) -> Option<&'static str> {
        let mut rows = table.lines().filter_map(|row| row.split_once(' '));
        rows.find(|(code, _)| self.take(code)).map(|(_, text)| text)
    }

    /// Takes the next `count` bytes as text.
    fn slice(&mut self, count: usize) -> Option<&'a str> {
        let (text, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(text)
    }

    /// Parses a decimal number.
    fn number(&mut self) -> Option<usize> {
        let digits = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        self.slice(digits)?.parse().ok()
    }

    /// Parses an index in the given base: `_` is 0, `0_` is 1, and so on.
    fn index(&mut self, base: u32) -> Option<usize> {
        let (text, rest) = self.rest.split_once('_')?;
        self.rest = rest;
        let is_digit = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_uppercase();
        match text {
            "" => Some(0),
            _ if !text.bytes().all(is_digit) => None,
            _ => usize::from_str_radix(text, base).ok()?.checked_add(1),
        }
    }

    /// Parses the number of a lambda, an unnamed type or a template parameter, which count from 1.
    fn ordinal(&mut self) -> Option<usize> {
        self.index(10)?.checked_add(1)
    }

    /// Remembers what later parts may refer back to.
    fn remember(&mut self, piece: Piece) -> Option<()> {
        self.written = self.written.checked_add(piece.left.len() + piece.right.len())?;
        if self.written > LONGEST {
            return None;
        }
        self.seen.push(piece);
        Some(())
    }

    /// Runs one rule, unless the name is nested too deeply or grows too long.
    fn deeper<R>(&mut self, rule: impl FnOnce(&mut Self) -> Option<R>) -> Option<R> {
        self.depth += 1;
        let result = if self.depth > DEEPEST { None } else { rule(self) };
        self.depth -= 1;
        result
    }

    /// Parses a function with its parameters, or a variable.
    fn encoding(&mut self) -> Option<String> {
        let (name, function) = self.encoding_parts()?;
        Some(function.unwrap_or(name))
    }

    /// Parses a function, or a variable: its name, and of a function the name with its type.
    fn encoding_parts(&mut self) -> Option<(String, Option<String>)> {
        self.deeper(|parser| {
            let name = parser.name()?;
            if parser.is_at_end() {
                return Some((name.text, None));
            }
            let returned =
                if name.is_template && !name.no_return { Some(parser.type_piece()?) } else { None };
            let function = format!("{}({}){}", name.text, parser.parameters()?, name.qualifiers);
            let function = match returned {
                Some(piece) => format!("{} {function}{}", piece.left, piece.right),
                None => function,
            };
            Some((name.text, Some(function)))
        })
    }

    fn is_at_end(&self) -> bool {
        matches!(self.peek(), 0 | b'E' | b'.')
    }

    /// Types until the end of the function, `void` alone being none.
    fn parameters(&mut self) -> Option<String> {
        let mut types = Vec::new();
        while !self.is_at_end() {
            types.push(self.type_text()?);
        }
        if types == ["void"] {
            types.clear();
        }
        types.retain(|text| !text.is_empty());
        Some(types.join(", "))
    }

    fn name(&mut self) -> Option<Name> {
        self.deeper(|parser| {
            if parser.take("N") {
                return parser.nested();
            }
            if parser.take("Z") {
                return parser.local();
            }
            let is_std = parser.take("St");
            if !is_std && parser.peek() == b'S' {
                let text = parser.substitution()?.text() + &parser.arguments()?;
                return Some(Name { text, is_template: true, ..Name::default() });
            }
            let text = if is_std { "std::" } else { "" }.to_owned() + &parser.unqualified("")?;
            let is_template = parser.peek() == b'I';
            if is_template {
                parser.remember(Piece::plain(&text))?;
            }
            Some(Name { text: parser.with_arguments(text)?, is_template, ..Name::default() })
        })
    }

    fn nested(&mut self) -> Option<Name> {
        let mut name = Name::default();
        while let b'K' | b'V' | b'r' = self.peek() {
            name.qualifiers.push_str(if self.slice(1)? == "K" { " const" } else { "" });
        }
        if matches!(self.peek(), b'R' | b'O') {
            name.qualifiers.push_str(if self.slice(1)? == "R" { " &" } else { " &&" });
        }
        let mut last = String::new();
        while !self.take("E") {
            match self.peek() {
                b'I' if !name.text.is_empty() => {
                    name.text += &self.arguments()?;
                    name.is_template = true;
                }
                b'S' if self.take("St") => {
                    name.text.push_str("std");
                    continue;
                }
                b'S' => {
                    name.text = self.substitution()?.text();
                    last = base_of(&name.text);
                    name.is_template = false;
                    continue;
                }
                b'T' => name.text = self.template_parameter()?,
                b'D' if self.rest.starts_with("Dt") || self.rest.starts_with("DT") => {
                    name.text = self.type_text()?;
                }
                first => {
                    name.no_return = matches!(first, b'C' | b'D');
                    last = self.unqualified(&last)?;
                    if !name.text.is_empty() {
                        name.text.push_str("::");
                    }
                    name.text.push_str(&last);
                    name.is_template = false;
                }
            }
            self.remember(Piece::plain(&name.text))?;
        }
        // The whole name is remembered as a type, where it is one.
        self.seen.pop();
        (!name.text.is_empty()).then_some(name)
    }

    /// Parses a name inside a function.
    fn local(&mut self) -> Option<Name> {
        let function = self.encoding()?;
        self.need("E")?;
        let mut name = Name { text: "string literal".to_owned(), ..Name::default() };
        if !self.take("s") {
            if self.take("d") {
                let _ = self.number();
                self.need("_")?;
            }
            name = self.name()?;
        }
        self.discriminator();
        name.text = format!("{function}::{}", name.text);
        Some(name)
    }

    fn discriminator(&mut self) {
        let is_digit = |at: usize| self.rest.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
        if self.rest.starts_with('_') && is_digit(1) {
            self.slice(2);
        } else if self.rest.starts_with("__") && is_digit(2) {
            self.slice(2);
            let _ = self.number();
            self.take("_");
        }
    }

    /// Parses a component of a name; `class` is the one before it, for constructors.
    fn unqualified(&mut self, class: &str) -> Option<String> {
        // Internal linkage says nothing to a reader.
        self.take("L");
        let second = self.rest.as_bytes().get(1).copied().unwrap_or(0);
        let mut text = match self.peek() {
            b'0'..=b'9' => self.source_name()?,
            b'U' if self.take("Ul") => {
                let parameters = self.parameters()?;
                self.need("E")?;
                format!("[lambda({parameters}) (instance {})]", self.ordinal()?)
            }
            b'U' if self.take("Ut") => format!("[unnamed type (instance {})]", self.ordinal()?),
            b'C' if matches!(second, b'1'..=b'5') => {
                self.slice(2)?;
                base_of(class)
            }
            b'D' if matches!(second, b'0'..=b'5') => {
                self.slice(2)?;
                format!("~{}", base_of(class))
            }
            b'c' if self.take("cv") => format!("operator {}", self.type_text()?),
            _ => format!("operator {}", self.one_of(BINARY).or_else(|| self.one_of(OPERATORS))?),
        };
        while self.take("B") {
            text += &format!("[abi:{}]", self.source_name()?);
        }
        Some(text)
    }

    fn source_name(&mut self) -> Option<String> {
        let length = self.number()?;
        let text = self.slice(length)?;
        Some(if text.starts_with("_GLOBAL__N_") { "<unnamed>" } else { text }.to_owned())
    }

    fn type_text(&mut self) -> Option<String> {
        Some(self.type_piece()?.text())
    }

    fn type_piece(&mut self) -> Option<Piece> {
        self.deeper(Self::type_rule)
    }

    fn type_rule(&mut self) -> Option<Piece> {
        let piece = match self.peek() {
            b'r' | b'V' | b'K' => self.qualified()?,
            b'P' | b'R' | b'O' => self.pointer()?,
            b'F' => self.function()?,
            b'A' => self.array()?,
            b'M' => self.member_pointer()?,
            b'T' => {
                let name = self.template_parameter()?;
                if self.peek() == b'I' {
                    self.remember(Piece::plain(&name))?;
                }
                Piece::plain(self.with_arguments(name)?)
            }
            b'S' if !self.rest.starts_with("St") => {
                let piece = self.substitution()?;
                if self.peek() != b'I' {
                    return Some(piece);
                }
                Piece::plain(piece.text() + &self.arguments()?)
            }
            b'D' if self.take("Dp") => Piece::plain(self.type_text()? + "..."),
            b'D' if self.take("Dt") || self.take("DT") => {
                let value = self.expression()?;
                self.need("E")?;
                Piece::plain(format!("decltype({value})"))
            }
            b'u' if self.take("u") => {
                let length = self.number()?;
                Piece::plain(self.slice(length)?)
            }
            b'D' | b'a'..=b'z' => return self.one_of(BUILTIN).map(Piece::plain),
            _ => Piece::plain(self.name()?.text),
        };
        self.remember(piece.clone())?;
        Some(piece)
    }

    fn qualified(&mut self) -> Option<Piece> {
        let mut words = Vec::new();
        while let b'r' | b'V' | b'K' = self.peek() {
            match self.slice(1)? {
                "V" => words.push("volatile"),
                "K" => words.push("const"),
                _ => {}
            }
        }
        words.sort_unstable();
        let words = words.join(" ");
        let Piece { left, right } = self.type_piece()?;
        // A qualifier of a pointer follows it; of anything else it stands first.
        let left = match left.ends_with(['*', '&']) {
            _ if words.is_empty() => left,
            true => left + &words,
            false => format!("{words} {left}"),
        };
        Some(Piece { left, right })
    }

    fn pointer(&mut self) -> Option<Piece> {
        let sign = match self.slice(1)? {
            "P" => "*",
            "R" => "&",
            _ => "&&",
        };
        let Piece { left, right } = self.type_piece()?;
        Some(match right.starts_with(['(', '[']) {
            true => Piece { left: format!("{left} ({sign}"), right: format!("){right}") },
            false if left.ends_with(['*', '&']) => Piece { left: left + sign, right },
            false => Piece { left: format!("{left} {sign}"), right },
        })
    }

    fn function(&mut self) -> Option<Piece> {
        self.need("F")?;
        self.take("Y");
        let Piece { left, right } = self.type_piece()?;
        let right = format!("({}){right}", self.parameters()?);
        self.take("R");
        self.need("E")?;
        Some(Piece { left, right })
    }

    fn array(&mut self) -> Option<Piece> {
        self.need("A")?;
        let size = match self.peek() {
            b'_' => String::new(),
            b'0'..=b'9' => self.number()?.to_string(),
            _ => self.expression()?,
        };
        self.need("_")?;
        let Piece { left, right } = self.type_piece()?;
        Some(Piece { left, right: format!("[{size}]{right}") })
    }

    fn member_pointer(&mut self) -> Option<Piece> {
        self.need("M")?;
        let class = self.type_text()?;
        let Piece { left, right } = self.type_piece()?;
        Some(match right.is_empty() {
            true => Piece::plain(format!("{left} {class}::*")),
            false => Piece { left: format!("{left} ({class}::*"), right: format!("){right}") },
        })
    }

    /// Parses a template parameter: `T_` is the first, `T0_` the second.
    fn template_parameter(&mut self) -> Option<String> {
        self.need("T")?;
        Some(format!("T{}", self.ordinal()?))
    }

    fn substitution(&mut self) -> Option<Piece> {
        if let Some(name) = self.one_of(OF_STD) {
            return Some(Piece::plain(name));
        }
        self.need("S")?;
        let at = self.index(36)?;
        self.seen.get(at).cloned()
    }

    /// Appends template arguments, if there are any.
    fn with_arguments(&mut self, name: String) -> Option<String> {
        Some(if self.peek() == b'I' { name + &self.arguments()? } else { name })
    }

    fn arguments(&mut self) -> Option<String> {
        self.need("I")?;
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
        if self.take("J") {
            return self.list();
        }
        if self.take("X") {
            let value = self.expression()?;
            return self.need("E").map(|()| value);
        }
        if self.peek() == b'L' { self.literal() } else { self.type_text() }
    }

    /// Parses a value with its type: `(int)4`.
    fn literal(&mut self) -> Option<String> {
        self.need("L")?;
        if self.take("_Z") {
            let (name, _) = self.encoding_parts()?;
            return self.need("E").map(|()| format!("&{name}"));
        }
        let kind = self.type_text()?;
        let sign = if self.take("n") { "-" } else { "" };
        let (value, rest) = self.rest.split_once('E')?;
        self.rest = rest;
        value.bytes().all(|byte| byte.is_ascii_alphanumeric()).then(|| format!("({kind}){sign}{value}"))
    }

    /// Parses the few expressions that occur in kernel names.
    fn expression(&mut self) -> Option<String> {
        self.deeper(|parser| {
            Some(match parser.peek() {
                b'T' => parser.template_parameter()?,
                b'L' => parser.literal()?,
                b's' if parser.take("sZ") => format!("sizeof...({})", parser.template_parameter()?),
                b's' if parser.take("st") => format!("sizeof({})", parser.type_text()?),
                b's' if parser.take("sr") => {
                    let scope = match parser.peek() {
                        b'0'..=b'9' => parser.unresolved_scope()?,
                        _ => parser.type_text()?,
                    };
                    format!("{scope}::{}", parser.simple_name()?)
                }
                b'a' if parser.take("ad") => match parser.peek() {
                    // The literal has the sign already.
                    b'L' => parser.literal()?,
                    _ => format!("&{}", parser.expression()?),
                },
                b'n' if parser.take("nt") => format!("!{}", parser.expression()?),
                _ => {
                    let sign = parser.one_of(BINARY)?;
                    let left = parser.expression()?;
                    format!("{left}{sign}{}", parser.expression()?)
                }
            })
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
        self.with_arguments(name)
    }
}

/// Returns the last component of a name, without its template arguments.
fn base_of(name: &str) -> String {
    let plain = name.split('<').next().unwrap_or(name);
    plain.rsplit("::").next().unwrap_or(plain).to_owned()
}

#[cfg(test)]
mod tests;
