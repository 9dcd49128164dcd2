//! Saved queries and their parameters.

use std::collections::BTreeMap;

use crate::LakeError;
use crate::layout::date;

/// Name and text of every saved query.
static QUERIES: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/queries.rs"));

/// A saved query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query {
    /// Name.
    pub name: &'static str,
    /// Text with its parameters.
    pub text: &'static str,
}

impl Query {
    /// Lists the saved queries by name.
    pub fn all() -> impl Iterator<Item = Self> {
        QUERIES.iter().map(|(name, text)| Self { name, text })
    }

    /// Finds a saved query.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|query| query.name == name)
    }

    /// Finds a saved query, or says how to list them.
    pub fn required(name: &str) -> Result<Self, LakeError> {
        let hint = "`roofgap lake queries` lists them; SQL is recognised by its spaces";
        Self::named(name).ok_or_else(|| LakeError::Usage(format!("no saved query {name:?}; {hint}")))
    }

    /// Returns the title: the first line of the head.
    pub fn title(&self) -> &'static str {
        let first = self.text.lines().next().unwrap_or_default();
        first.trim_start_matches('-').trim().trim_end_matches('.')
    }
}

/// The type of a parameter, by its default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    Date,
    Text,
}

impl Kind {
    fn of(value: &str) -> Self {
        if is_number(value) {
            Self::Number
        } else if date("", value).is_ok() {
            Self::Date
        } else {
            Self::Text
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Number => "a number",
            Self::Date => "a date (YYYY-MM-DD)",
            Self::Text => "text",
        }
    }
}

/// Parses parameters, as `NAME=VALUE`.
pub fn parameters(texts: &[String]) -> Result<BTreeMap<String, String>, LakeError> {
    let parameter = |text: &String| {
        let parts = text.split_once('=').filter(|(name, _)| !name.is_empty());
        let (name, value) =
            parts.ok_or_else(|| LakeError::Usage(format!("--param {text:?}: write NAME=VALUE")))?;
        Ok((name.to_owned(), value.to_owned()))
    };
    texts.iter().map(parameter).collect()
}

/// Replaces every `{{name:default}}` by the value given, or by the default, as an SQL literal of the type of the default.
pub fn fill(sql: &str, given: &BTreeMap<String, String>) -> Result<String, LakeError> {
    let mut filled = String::with_capacity(sql.len());
    let mut known: Vec<String> = Vec::new();
    let mut rest = sql;
    while let Some((before, after)) = rest.split_once("{{") {
        let syntax = || {
            let near: String = after.chars().take(40).collect();
            let rule = "the query has {{ without }}, or a parameter that is not {{name:default}}";
            LakeError::Usage(format!("{rule}: {near:?}"))
        };
        let (inside, end) = after.split_once("}}").ok_or_else(syntax)?;
        let (name, default) = inside.split_once(':').ok_or_else(syntax)?;
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase());
        if !is_name || default.contains(['{', '}']) {
            return Err(syntax());
        }
        filled.push_str(before);
        filled.push_str(&literal(name, given.get(name).map_or(default, String::as_str), default)?);
        known.push(name.to_owned());
        rest = end;
    }
    filled.push_str(rest);
    known.sort();
    known.dedup();
    match given.keys().find(|name| !known.contains(name)) {
        Some(name) if known.is_empty() => {
            Err(LakeError::Usage(format!("--param {name}: the query has no parameters")))
        }
        Some(name) => {
            let known = known.join(", ");
            Err(LakeError::Usage(format!("--param {name}: the query has the parameters {known}")))
        }
        None => Ok(filled),
    }
}

fn literal(name: &str, value: &str, default: &str) -> Result<String, LakeError> {
    let kind = Kind::of(default);
    let fits = match kind {
        Kind::Number => is_number(value),
        Kind::Date => date("", value).is_ok(),
        Kind::Text => true,
    };
    if !fits {
        let expected = kind.noun();
        return Err(LakeError::Usage(format!(
            "--param {name}={value}: expected {expected}, as the default {default:?} is"
        )));
    }
    Ok(match kind {
        Kind::Number => value.to_owned(),
        Kind::Date => format!("DATE '{value}'"),
        Kind::Text => format!("'{}'", value.replace('\'', "''")),
    })
}

/// Tells whether a text is `-?[0-9]+(.[0-9]+)?`.
fn is_number(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let text = text.strip_prefix('-').unwrap_or(text);
    match text.split_once('.') {
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => digits(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(sql: &str, given: &[(&str, &str)]) -> Result<String, LakeError> {
        let given = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        fill(sql, &given.collect())
    }

    #[test]
    fn a_parameter_is_a_literal_of_the_type_of_its_default() {
        let sql =
            "where a > {{least:5}} and d >= {{since:1970-01-01}} and s = {{stage:decode}} or {{model:}} = ''";
        let expected = "where a > 5 and d >= DATE '1970-01-01' and s = 'decode' or '' = ''";
        assert_eq!(filled(sql, &[]).unwrap(), expected);
        let given = [("least", "-2.5"), ("since", "2026-03-01"), ("stage", "it's")];
        let expected = "where a > -2.5 and d >= DATE '2026-03-01' and s = 'it''s' or '' = ''";
        assert_eq!(filled(sql, &given).unwrap(), expected);
    }

    #[test]
    fn a_value_cannot_change_the_query() {
        let sql = "limit {{n:5}}";
        for value in ["5; drop", "1e3", "", "--1", "1.", "5 or 1=1"] {
            let error = filled(sql, &[("n", value)]).unwrap_err();
            assert!(error.to_string().contains("expected a number"), "{error}");
        }
        let unknown = filled(sql, &[("m", "1")]).unwrap_err().to_string();
        assert_eq!(unknown, "--param m: the query has the parameters n");
        for broken in ["{{n:5", "{{n}}", "{{N:5}}", "{{:5}}"] {
            let error = filled(broken, &[]).unwrap_err().to_string();
            assert!(error.contains("without }}"), "{error}");
        }
    }

    #[test]
    fn every_saved_query_has_a_title_and_fills_with_its_defaults() {
        for query in Query::all() {
            assert!(!query.title().is_empty() && query.text.starts_with("-- "), "{}", query.name);
            let filled = fill(query.text, &BTreeMap::new()).unwrap();
            assert!(!filled.contains("{{"), "{}", query.name);
        }
    }
}
