//! Kernel names as one `--kernel-name` expression.

/// Form of the kernel name that ncu compares.
///
/// There is no demangled variant: nsys and ncu demangle differently (ncu drops inner namespaces and casts), so a demangled
/// name from a timeline often matches nothing. They agree exactly on mangled names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NameBase {
    /// Mangled name: `_ZN2at6native...`.
    #[default]
    Mangled,
    /// Function name without namespace and parameters. Matches all instances of a template.
    Function,
}

impl NameBase {
    /// Returns the value of `--kernel-name-base`.
    pub fn as_str(self) -> &'static str {
        match self {
            NameBase::Mangled => "mangled",
            NameBase::Function => "function",
        }
    }
}

/// Longest name, in characters, that is matched in full; longer names are matched by start and end. Linux limits one
/// argument to 128 KiB, and names of generated kernels reach many thousand characters.
const MAX_NAME: usize = 1000;
/// Maximum length of the expression, bytes.
const MAX_EXPRESSION: usize = 120_000;

/// Builds `regex:^(a|b|c)$` that matches these names literally; returns it and the number of names that fit.
pub fn alternation(names: &[String]) -> (String, usize) {
    let mut expression = String::from("regex:^(");
    let mut taken: Vec<String> = Vec::new();
    for name in names {
        let literal = literal(name);
        if taken.contains(&literal) {
            continue;
        }
        if expression.len() + literal.len() + 4 > MAX_EXPRESSION {
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
    if name.chars().count() <= MAX_NAME {
        return escape(name);
    }
    let head: String = name.chars().take(MAX_NAME * 3 / 4).collect();
    let end: Vec<char> = name.chars().rev().take(MAX_NAME / 4).collect();
    let end: String = end.into_iter().rev().collect();
    format!("{}.*{}", escape(&head), escape(&end))
}

/// Escapes regular expression syntax.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if matches!(c, '\\' | '^' | '$' | '.' | '|' | '?' | '*' | '+' | '(' | ')' | '[' | ']' | '{' | '}') {
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
        assert_eq!(of(&["_Z4burnPf", "nvjet_1", "_Z4burnPf"]), ("regex:^(_Z4burnPf|nvjet_1)$".to_owned(), 2));
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
        assert_eq!(expression, format!("regex:^({}.*{})$", "a".repeat(750), r"\(".repeat(250)));
    }

    #[test]
    fn an_argument_never_gets_too_long_for_the_kernel() {
        let names: Vec<String> = (0..500).map(|index| format!("{index}_{}", "x".repeat(900))).collect();
        let (expression, count) = alternation(&names);
        assert!(expression.len() <= 128 * 1024 - 32);
        assert!((100..500).contains(&count));
        assert!(expression.ends_with(")$"));
    }
}
