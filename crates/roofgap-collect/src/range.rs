//! NVTX range names in the syntax of nsys and ncu.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A range, identified by domain and name. Its text is `[domain@]name`; an `@` that separates nothing is `\@`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct NvtxRange {
    /// Domain; `None` for the default domain.
    pub domain: Option<String>,
    /// Name of the range.
    pub name: String,
}

impl NvtxRange {
    /// Parses `[domain@]name`, the order this project uses.
    ///
    /// ```
    /// use roofgap_collect::range::NvtxRange;
    /// let range = NvtxRange::parse("LLM@prefill").unwrap();
    /// assert_eq!(range.for_nsys(), "prefill@LLM");
    /// assert_eq!(range.for_ncu(), "LLM@prefill/");
    /// // A range of that very name in the default domain.
    /// let literal = NvtxRange::parse(r"LLM\@prefill").unwrap();
    /// assert_eq!(literal.for_ncu(), r"LLM\@prefill/");
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let separates = |(at, _): &(usize, &str)| !text[..*at].ends_with('\\');
        let literal = |part: &str| part.replace(r"\@", "@");
        let (domain, name) = match text.match_indices('@').find(separates) {
            Some((at, _)) => (Some(literal(&text[..at])), text[at + 1..].to_owned()),
            None => (None, literal(text)),
        };
        let filled = !name.is_empty() && domain.as_ref().is_none_or(|domain| !domain.is_empty());
        filled.then_some(NvtxRange { domain, name })
    }

    /// Formats as `name@domain` for `nsys --nvtx-capture`; escapes `@` in names.
    pub fn for_nsys(&self) -> String {
        let name = self.name.replace('@', r"\@");
        match &self.domain {
            Some(domain) => format!("{name}@{}", domain.replace('@', r"\@")),
            None => name,
        }
    }

    /// Formats as `domain@name/` for `ncu --nvtx-include`; the slash means a push/pop range.
    pub fn for_ncu(&self) -> String {
        format!("{}/", self.of_process_for_ncu())
    }

    /// Formats as `domain@name` for `ncu --nvtx-exclude`: a start/end range, which encloses the kernels of all threads.
    pub fn of_process_for_ncu(&self) -> String {
        let name = escape_for_ncu(&self.name);
        match &self.domain {
            Some(domain) => format!("{}@{name}", escape_for_ncu(domain)),
            None => name,
        }
    }
}

impl fmt::Display for NvtxRange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.domain {
            Some(domain) => write!(out, "{}@{}", domain.replace('@', r"\@"), self.name),
            None => out.write_str(&self.name.replace('@', r"\@")),
        }
    }
}

impl From<NvtxRange> for String {
    fn from(range: NvtxRange) -> Self {
        range.to_string()
    }
}

impl TryFrom<String> for NvtxRange {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or_else(|| format!("{text:?} is no range: expected [domain@]name"))
    }
}

/// Escapes the characters that have a meaning in a range expression of ncu.
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
        assert_eq!((plain.for_nsys().as_str(), plain.for_ncu().as_str()), ("sam", "sam/"));
        assert_eq!(plain.of_process_for_ncu(), "sam");
        let odd = NvtxRange::parse("D@step [1/2]@x").unwrap();
        assert_eq!(odd.for_nsys(), r"step [1/2]\@x@D");
        assert_eq!(odd.for_ncu(), r"D@step \[1\/2\]\@x/");
        assert_eq!(odd.to_string(), "D@step [1/2]@x");
    }

    #[test]
    fn a_literal_label_is_not_a_domain() {
        let literal = NvtxRange { domain: None, name: "LLM@decode_all".to_owned() };
        assert_eq!(literal.for_ncu(), r"LLM\@decode_all/");
        assert_eq!(literal.for_nsys(), r"LLM\@decode_all");
        for range in [literal, NvtxRange { domain: Some("a@b".to_owned()), name: "c@d".to_owned() }] {
            assert_eq!(NvtxRange::parse(&range.to_string()), Some(range));
        }
    }

    #[test]
    fn invalid_ranges() {
        for text in ["", "@", "LLM@", "@prefill"] {
            assert_eq!(NvtxRange::parse(text), None, "{text}");
        }
    }
}
