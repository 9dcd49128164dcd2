//! Types, template arguments and the values among them.

use super::parser::{Parser, Piece};

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
