//! Kernel names as one expression for `--kernel-name`.

use serde::{Deserialize, Serialize};

/// Which name of a kernel is compared.
///
/// Mangled is the one to use: nsys and ncu agree on it to the letter. They do not agree on the demangled one (ncu leaves
/// out inner namespaces and casts that nsys shows), so a demangled name taken from a timeline often matches nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NameBase {
    /// As the compiler made it: `_ZN2at6native...`.
    #[default]
    Mangled,
    /// The bare function name: no namespace, no parameters. Covers all instances of a template.
    Function,
    /// With namespaces and parameters.
    Demangled,
}

impl NameBase {
    /// What ncu calls it.
    pub fn as_str(self) -> &'static str {
        match self {
            NameBase::Mangled => "mangled",
            NameBase::Function => "function",
            NameBase::Demangled => "demangled",
        }
    }
}

/// A longer name is matched by its beginning and its end: one argument may not exceed 128 KiB on Linux, and names of
/// generated kernels run to many thousand characters.
const LONGEST: usize = 1000;
/// The most the whole expression may take, with room for the rest of the argument.
const ROOM: usize = 120_000;

/// `regex:^(a|b|c)$` for these names, each taken literally; and how many of them found room in it.
pub fn alternation(names: &[String]) -> (String, usize) {
    let mut expression = String::from("regex:^(");
    let mut taken: Vec<String> = Vec::new();
    for name in names {
        let literal = literal(name);
        if taken.contains(&literal) {
            continue;
        }
        if expression.len() + literal.len() + 4 > ROOM {
            return (format!("{expression})$"), taken.len());
        }
        if !taken.is_empty() {
            expression.push('|');
        }
        expression.push_str(&literal);
        taken.push(literal);
    }
    (format!("{expression})$"), taken.len())
}

fn literal(name: &str) -> String {
    if name.chars().count() <= LONGEST {
        return escape(name);
    }
    let head: String = name.chars().take(LONGEST * 3 / 4).collect();
    let end: Vec<char> = name.chars().rev().take(LONGEST / 4).collect();
    let end: String = end.into_iter().rev().collect();
    format!("{}.*{}", escape(&head), escape(&end))
}

/// Puts a backslash before whatever has a meaning in an expression.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if matches!(
            c,
            '\\' | '^' | '$' | '.' | '|' | '?' | '*' | '+' | '(' | ')' | '[' | ']' | '{' | '}'
        ) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> (String, usize) {
        alternation(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn names_are_taken_literally_and_once() {
        assert_eq!(
            of(&["_Z4burnPf", "nvjet_1", "_Z4burnPf"]),
            ("regex:^(_Z4burnPf|nvjet_1)$".to_owned(), 2)
        );
        let (expression, _) = of(&["void at::f<(int)4, T[]>(T1 *, a::{b}) const^$|.?+\\"]);
        assert_eq!(
            expression,
            r"regex:^(void at::f<\(int\)4, T\[\]>\(T1 \*, a::\{b\}\) const\^\$\|\.\?\+\\)$"
        );
    }

    #[test]
    fn a_long_name_is_matched_by_both_ends() {
        let name = format!("{}{}", "a".repeat(5000), "(".repeat(5000));
        let (expression, count) = of(&[&name]);
        assert_eq!(count, 1);
        assert_eq!(
            expression,
            format!("regex:^({}.*{})$", "a".repeat(750), r"\(".repeat(250))
        );
    }

    #[test]
    fn an_argument_never_gets_too_long_for_the_kernel() {
        let names: Vec<String> = (0..500)
            .map(|index| format!("{index}_{}", "x".repeat(900)))
            .collect();
        let (expression, count) = alternation(&names);
        assert!(expression.len() <= 128 * 1024 - 32);
        assert!((100..500).contains(&count));
        assert!(expression.ends_with(")$"));
    }
}
