//! Names of fields that mean the same, and what configurations of some types do not say: two tables, and the arithmetic in them.

use super::UnknownModel;
use crate::model::{Block, Linear};
use serde_json::{Map, Value};

const FIELDS: &str = include_str!("fields.txt");
const EXCEPTIONS: &str = include_str!("exceptions.txt");
const RECURRENT: &str = include_str!("recurrent.txt");

/// Weights that a type has beside those of the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extra {
    /// Part of the model that has them.
    pub part: &'static str,
    /// Their number, as a formula of fields.
    pub formula: &'static str,
}

/// Tells whether a pattern with at most one star at each end stands for a name.
fn stands_for(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(rest), Some(_)) => name.contains(rest.trim_end_matches('*')),
        (Some(end), None) => name.ends_with(end),
        (None, Some(start)) => name.starts_with(start),
        (None, None) => name == pattern,
    }
}

fn synonyms() -> impl Iterator<Item = (&'static str, std::str::SplitWhitespace<'static>)> {
    FIELDS.lines().filter(|line| !line.starts_with(['#', '~'])).filter_map(|line| {
        let mut names = line.split_whitespace();
        Some((names.next()?, names))
    })
}

/// Tells whether a field changes neither parameters nor FLOPs, or is one that the rules know by another name.
pub fn is_known(name: &str) -> bool {
    let mut cosmetic =
        FIELDS.lines().filter_map(|line| line.strip_prefix('~')).flat_map(str::split_whitespace);
    cosmetic.any(|pattern| stands_for(pattern, name))
        || synonyms().any(|(first, mut others)| first == name || others.any(|other| other == name))
        || EXCEPTIONS.contains(name)
        || RECURRENT.contains(name)
}

fn is_set(map: &Map<String, Value>, key: &str) -> bool {
    map.get(key).is_some_and(|value| !value.is_null())
}

/// Adds the fields that the rules read to a configuration: by their other names, and as the exceptions of its type have them. Tells too
/// whether the type is in the table, and which weights it has beside those of the rules.
pub fn complete(map: &mut Map<String, Value>, kinds: [&str; 2]) -> Result<(bool, Vec<Extra>), UnknownModel> {
    for (first, mut others) in synonyms() {
        if !is_set(map, first)
            && let Some(value) = others.find_map(|other| map.get(other).filter(|value| !value.is_null()))
        {
            map.insert(first.to_owned(), value.clone());
        }
    }
    let (mut known, mut extras) = (false, Vec::new());
    for line in EXCEPTIONS.lines().filter(|line| !line.starts_with('#')) {
        let line = line.split("  #").next().unwrap_or_default();
        let (types, tokens) = line.split_once(':').unwrap_or((line, ""));
        let by_field = types.strip_prefix('?');
        let named =
            || types.split_whitespace().any(|pattern| kinds.iter().any(|kind| stands_for(pattern, kind)));
        if !by_field.map_or_else(named, |field| is_set(map, field)) {
            continue;
        }
        known |= by_field.is_none_or(|field| field != "vocab_size");
        for token in tokens.split_whitespace() {
            if set(map, token)? {
                continue;
            }
            if let Some((part, formula)) = token.split_once('+') {
                extras.push(Extra { part, formula });
            }
        }
    }
    Ok((known, extras))
}

/// Sets the field that a token `key=FORMULA` or `key:=FORMULA` is about; false for another token.
fn set(map: &mut Map<String, Value>, token: &str) -> Result<bool, UnknownModel> {
    let Some((key, formula)) = token.split_once('=') else {
        return Ok(false);
    };
    let forced = key.strip_suffix(':');
    if forced.is_some() || !is_set(map, key) {
        let value = evaluate(formula, map)?;
        let value = if value.fract() == 0.0 { (value as i64).into() } else { value.into() };
        map.insert(forced.unwrap_or(key).to_owned(), value);
    }
    Ok(true)
}

/// Returns the block of a layer of this kind that keeps a state.
pub fn recurrent(map: &Map<String, Value>, kind: &str) -> Result<Block, UnknownModel> {
    let fits =
        |when: &str| when.strip_prefix('@').map_or_else(|| is_set(map, when), |name| kind.starts_with(name));
    let rows = RECURRENT.lines().filter_map(|line| {
        let (name, rest) = line.split_once('|')?;
        rest.split_once('|').map(|(when, tokens)| (name, when, tokens))
    });
    let mut map_of_layer = map.clone();
    map_of_layer.entry("conv_kernel").or_insert(4.into());
    let mut block = Block::default();
    let Some((name, _, tokens)) = rows.into_iter().find(|(_, when, _)| fits(when)) else {
        return Ok(block);
    };
    block.name = name;
    for token in tokens.split_whitespace() {
        if set(&mut map_of_layer, token)? {
            continue;
        }
        let Some((name, (inputs, outputs))) =
            token.split_once(':').and_then(|(n, rest)| Some((n, rest.split_once('>')?)))
        else {
            continue;
        };
        let (outputs, bias) = outputs.split_once('!').unwrap_or((outputs, ""));
        let width = |formula: &str| -> Result<u64, UnknownModel> {
            let value = evaluate(formula, &map_of_layer)?;
            match (1.0..=2f64.powi(32)).contains(&value) {
                true => Ok(value.ceil() as u64),
                false => Err(UnknownModel(format!("{formula} is {value}, which is no width of a layer"))),
            }
        };
        let bias = number(&map_of_layer, bias).is_some_and(|value| value != 0.0);
        block.linears.push(Linear::new(name, width(inputs)?, width(outputs)?, bias));
    }
    block.vectors = evaluate("vectors", &map_of_layer)?;
    block.state = evaluate("state", &map_of_layer)?;
    Ok(block)
}

/// Returns a field as a number: true is 1, a list its first item.
pub fn number(map: &Map<String, Value>, key: &str) -> Option<f64> {
    match map.get(key)? {
        Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
        Value::Array(items) => items.first()?.as_f64(),
        value => value.as_f64(),
    }
    .filter(|value| value.abs() <= 2f64.powi(75))
}

/// Computes a formula of fields and numbers with + - * / and parentheses.
pub fn evaluate(formula: &str, map: &Map<String, Value>) -> Result<f64, UnknownModel> {
    let mut reader = Reader { text: formula, map };
    let value = reader.sum()?;
    match reader.text.is_empty() {
        true => Ok(value),
        false => Err(UnknownModel(format!("{formula:?} is no formula"))),
    }
}

struct Reader<'a> {
    text: &'a str,
    map: &'a Map<String, Value>,
}

impl Reader<'_> {
    fn takes(&mut self, sign: char) -> bool {
        let rest = self.text.strip_prefix(sign);
        self.text = rest.unwrap_or(self.text);
        rest.is_some()
    }

    fn sum(&mut self) -> Result<f64, UnknownModel> {
        let mut value = self.product()?;
        loop {
            if self.takes('+') {
                value += self.product()?;
            } else if self.takes('-') {
                value -= self.product()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self) -> Result<f64, UnknownModel> {
        let mut value = self.atom()?;
        loop {
            if self.takes('*') {
                value *= self.atom()?;
            } else if self.takes('/') {
                value /= self.atom()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn atom(&mut self) -> Result<f64, UnknownModel> {
        if self.takes('(') {
            let value = self.sum()?;
            self.takes(')');
            return Ok(value);
        }
        let end = self.text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.');
        let (name, rest) = self.text.split_at(end.unwrap_or(self.text.len()));
        self.text = rest;
        let optional = self.takes('?');
        let value = name.parse().ok().or_else(|| number(self.map, name)).or(optional.then_some(0.0));
        value.ok_or_else(|| {
            UnknownModel(format!("config has no {name}: without it the work of the model cannot be counted"))
        })
    }
}
