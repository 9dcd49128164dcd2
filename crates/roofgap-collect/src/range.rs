//! An NVTX range by name, as both profilers want it written.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A push/pop range: its name and, where it is not the default one, its domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NvtxRange {
    /// The domain; `None` is the default one.
    pub domain: Option<String>,
    /// The name of the range.
    pub name: String,
}

impl NvtxRange {
    /// Reads `[domain@]name`, the order this project uses.
    ///
    /// ```
    /// use roofgap_collect::range::NvtxRange;
    /// let range = NvtxRange::parse("LLM@prefill").unwrap();
    /// assert_eq!(range.for_nsys(), "prefill@LLM");
    /// assert_eq!(range.for_ncu(), "LLM@prefill/");
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let (domain, name) = match text.split_once('@') {
            Some((domain, name)) => (Some(domain), name),
            None => (None, text),
        };
        let filled = !name.is_empty() && domain.is_none_or(|domain| !domain.is_empty());
        filled.then(|| NvtxRange {
            domain: domain.map(str::to_owned),
            name: name.to_owned(),
        })
    }

    /// `name@domain` for `nsys --nvtx-capture`; an `@` within a name is escaped.
    pub fn for_nsys(&self) -> String {
        let name = self.name.replace('@', r"\@");
        match &self.domain {
            Some(domain) => format!("{name}@{}", domain.replace('@', r"\@")),
            None => name,
        }
    }

    /// `domain@name/` for `ncu --nvtx-include`: the other order, and the slash makes it a push/pop range.
    pub fn for_ncu(&self) -> String {
        let name = escape_for_ncu(&self.name);
        match &self.domain {
            Some(domain) => format!("{}@{name}/", escape_for_ncu(domain)),
            None => format!("{name}/"),
        }
    }
}

impl fmt::Display for NvtxRange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.domain {
            Some(domain) => write!(out, "{domain}@{}", self.name),
            None => out.write_str(&self.name),
        }
    }
}

/// What ncu gives a meaning in a range expression is taken literally behind a backslash.
fn escape_for_ncu(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '@' | '/' | '[' | ']' | ',' | '*' | '+' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_orders() {
        let plain = NvtxRange::parse("sam").unwrap();
        assert_eq!(
            (plain.for_nsys().as_str(), plain.for_ncu().as_str()),
            ("sam", "sam/")
        );
        let odd = NvtxRange::parse("D@step [1/2]@x").unwrap();
        assert_eq!(odd.for_nsys(), r"step [1/2]\@x@D");
        assert_eq!(odd.for_ncu(), r"D@step \[1\/2\]\@x/");
        assert_eq!(odd.to_string(), "D@step [1/2]@x");
    }

    #[test]
    fn what_is_no_range() {
        for text in ["", "@", "LLM@", "@prefill"] {
            assert_eq!(NvtxRange::parse(text), None, "{text}");
        }
    }
}
