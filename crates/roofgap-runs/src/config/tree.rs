//! The untyped configuration: a tree of values with their origins, its YAML form, and the checks of one layer.
//!
//! Reading YAML keeps the line of each value. Writing is by hand, so that a comment can name the origin.

use std::fmt;
use std::path::{Path, PathBuf};

use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};
use serde::Serialize;

use super::ConfigError;

/// Origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A built-in preset.
    Builtin {
        /// `group/option.yaml`.
        file: String,
    },
    /// A preset in `--config-dir`, or the file given by `--config`.
    File {
        /// File.
        path: PathBuf,
        /// Line of the value, from 1.
        line: usize,
    },
    /// An override on the command line.
    Override {
        /// Override as written.
        text: String,
    },
    /// The program after `--`.
    Program,
    /// Another choice that requires it.
    Implied {
        /// That choice, as written.
        by: String,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin { file } => write!(f, "built-in {file}"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Override { text } => write!(f, "command line: {text}"),
            Self::Program => write!(f, "command line: after --"),
            Self::Implied { by } => write!(f, "implied by {by}"),
        }
    }
}

/// A value with its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Value.
    pub value: Value,
    /// Origin.
    pub origin: Origin,
}

/// An untyped value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// Keys with values, in the order they were written.
    Map(Map),
}

/// Keys with values, in the order they were written.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Map {
    entries: Vec<(String, Node)>,
}

impl Map {
    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries.iter().find(|(k, _)| k == key).map(|(_, node)| node)
    }

    /// The value of a key, to change it.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        self.entries.iter_mut().find(|(k, _)| k == key).map(|(_, node)| node)
    }

    /// Sets a key; an existing key keeps its position.
    pub fn insert(&mut self, key: &str, node: Node) {
        match self.get_mut(key) {
            Some(existing) => *existing = node,
            None => self.entries.push((key.to_owned(), node)),
        }
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &str) -> Option<Node> {
        let at = self.entries.iter().position(|(k, _)| k == key)?;
        Some(self.entries.remove(at).1)
    }

    /// Iterates over keys and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.entries.iter().map(|(key, node)| (key.as_str(), node))
    }

    /// Returns true where there is no key.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl Node {
    /// Creates a node.
    pub fn new(value: Value, origin: Origin) -> Self {
        Self { value, origin }
    }

    /// Creates a text.
    pub fn text(text: impl Into<String>, origin: Origin) -> Self {
        Self::new(Value::Text(text.into()), origin)
    }

    /// Creates an empty map.
    pub fn map(origin: Origin) -> Self {
        Self::new(Value::Map(Map::default()), origin)
    }

    /// Makes the error of a value that does not suit its key.
    pub fn refused(&self, key: &str, why: impl Into<String>) -> ConfigError {
        let value = match self.value {
            Value::Map(_) => "this map".to_owned(),
            _ => inline(self),
        };
        ConfigError::Value { key: key.to_owned(), value, origin: self.origin.to_string(), why: why.into() }
    }

    /// Returns the map, if it is one.
    pub fn as_map(&self) -> Option<&Map> {
        match &self.value {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// Returns the text, if it is text.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Converts the value to JSON; a number that JSON cannot represent becomes null.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Int(value) => (*value).into(),
            Value::Float(value) => (*value).into(),
            Value::Text(value) => value.as_str().into(),
            Value::List(nodes) => nodes.iter().map(Self::to_json).collect(),
            Value::Map(map) => map.iter().map(|(key, node)| (key, node.to_json())).collect(),
        }
    }

    /// Returns the value at a path of keys; the node itself for an empty path.
    pub fn at(&self, path: &[&str]) -> Option<&Node> {
        path.iter().try_fold(self, |node, key| node.as_map()?.get(key))
    }

    /// Sets the value at a path of keys and creates missing maps.
    pub fn set(&mut self, path: &[&str], node: Node) {
        let Some((first, rest)) = path.split_first() else {
            *self = node;
            return;
        };
        if !matches!(self.value, Value::Map(_)) {
            *self = Self::map(node.origin.clone());
        }
        if let Value::Map(map) = &mut self.value {
            let mut next = map.get(first).cloned().unwrap_or_else(|| Self::map(node.origin.clone()));
            next.set(rest, node);
            map.insert(first, next);
        }
    }

    /// Removes the value at a path of keys.
    pub fn remove(&mut self, path: &[&str]) -> Option<Self> {
        let (first, rest) = path.split_first()?;
        let Value::Map(map) = &mut self.value else {
            return None;
        };
        if rest.is_empty() { map.remove(first) } else { map.get_mut(first)?.remove(rest) }
    }

    /// Merges another tree over this one: maps merge key by key, other values are replaced.
    pub fn lay_over(&mut self, upper: Node) {
        match (&mut self.value, upper.value) {
            (Value::Map(lower), Value::Map(upper_map)) => {
                for (key, node) in upper_map.entries {
                    match lower.get_mut(&key) {
                        Some(existing) => existing.lay_over(node),
                        None => lower.insert(&key, node),
                    }
                }
            }
            (_, value) => *self = Self::new(value, upper.origin),
        }
    }

    /// Lists the leaves with their dotted keys; an empty map is a leaf.
    pub fn leaves(&self) -> Vec<(String, &Node)> {
        let mut found = Vec::new();
        self.collect_leaves(String::new(), &mut found);
        found
    }

    fn collect_leaves<'a>(&'a self, key: String, found: &mut Vec<(String, &'a Node)>) {
        match self.as_map() {
            Some(map) if !map.is_empty() || key.is_empty() => {
                for (name, node) in map.iter() {
                    node.collect_leaves(below(&key, name), found);
                }
            }
            _ => found.push((key, self)),
        }
    }
}

/// Returns the dotted key of a name below a key.
fn below(key: &str, name: &str) -> String {
    if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") }
}

/// Reads one YAML document as JSON; a number that JSON cannot represent becomes null.
pub fn read_yaml(text: &str, file: &Path) -> Result<serde_json::Value, ConfigError> {
    Ok(read(text, file, &|_| Origin::Program)?.to_json())
}

/// Writes a value as YAML.
pub fn to_yaml(value: &impl Serialize) -> Result<String, ConfigError> {
    Ok(write(&node_of(value, &Origin::Program)?, &|_| None))
}

/// Converts a value to a tree. JSON is YAML.
pub fn node_of(value: &impl Serialize, origin: &Origin) -> Result<Node, ConfigError> {
    let file = Path::new("JSON");
    let text = serde_json::to_string(value).map_err(|error| not_yaml(file, error.to_string()))?;
    read(&text, file, &|_| origin.clone())
}

/// Makes the error of a file that is not supported YAML.
pub fn not_yaml(file: &Path, why: impl Into<String>) -> ConfigError {
    ConfigError::Yaml { file: file.to_owned(), why: why.into() }
}

/// Reads one YAML document. `origin` maps the line of a value to its origin.
pub fn read(text: &str, file: &Path, origin: &dyn Fn(usize) -> Origin) -> Result<Node, ConfigError> {
    let documents = MarkedYaml::load_from_str(text).map_err(|error| not_yaml(file, error.to_string()))?;
    match documents.as_slice() {
        [] => Ok(Node::map(origin(1))),
        [only] => convert(only, file, origin),
        _ => Err(not_yaml(file, "found several documents; keep one per file")),
    }
}

fn convert(
    yaml: &MarkedYaml<'_>,
    file: &Path,
    origin: &dyn Fn(usize) -> Origin,
) -> Result<Node, ConfigError> {
    let line = yaml.span.start.line();
    let bad = |why: &str| not_yaml(file, format!("line {line}: {why}"));
    let value = match &yaml.data {
        YamlData::Value(scalar) => match scalar {
            Scalar::Null => Value::Null,
            Scalar::Boolean(value) => Value::Bool(*value),
            Scalar::Integer(value) => Value::Int(*value),
            Scalar::FloatingPoint(value) => Value::Float(value.into_inner()),
            Scalar::String(value) => Value::Text(value.to_string()),
        },
        YamlData::Sequence(items) => {
            Value::List(items.iter().map(|item| convert(item, file, origin)).collect::<Result<_, _>>()?)
        }
        YamlData::Mapping(pairs) => {
            let mut map = Map::default();
            for (key, value) in pairs {
                let name = match &key.data {
                    YamlData::Value(Scalar::String(name)) => name.to_string(),
                    YamlData::Value(Scalar::Integer(number)) => number.to_string(),
                    _ => return Err(bad("a key must be text")),
                };
                map.insert(&name, convert(value, file, origin)?);
            }
            Value::Map(map)
        }
        YamlData::Tagged(..) => return Err(bad("tags are not supported")),
        _ => return Err(bad("not a value")),
    };
    Ok(Node::new(value, origin(line)))
}

/// Writes a tree as YAML in block style. `note` may return a comment for a leaf.
pub fn write(node: &Node, note: &dyn Fn(&Node) -> Option<String>) -> String {
    let mut out = String::new();
    match node.as_map() {
        Some(map) if !map.is_empty() => write_map(map, 0, note, &mut out),
        _ => out = format!("{}\n", inline(node)),
    }
    out
}

fn write_map(map: &Map, depth: usize, note: &dyn Fn(&Node) -> Option<String>, out: &mut String) {
    for (key, node) in map.iter() {
        let head = format!("{}{}:", "  ".repeat(depth), scalar_text(key));
        match node.as_map() {
            Some(inner) if !inner.is_empty() => {
                out.push_str(&format!("{head}\n"));
                write_map(inner, depth + 1, note, out);
            }
            _ => {
                let comment = note(node).map(|note| format!("  # {}", note.replace(['\n', '\r'], " ")));
                out.push_str(&format!("{head} {}{}\n", inline(node), comment.unwrap_or_default()));
            }
        }
    }
}

/// Writes a value on one line.
pub fn inline(node: &Node) -> String {
    match &node.value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Float(value) => float_text(*value),
        Value::Text(value) => scalar_text(value),
        Value::List(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::Map(map) => {
            let pair = |(key, node): (&str, &Node)| format!("{}: {}", scalar_text(key), inline(node));
            format!("{{{}}}", map.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
    }
}

/// Writes a float with a point or an exponent, so that it reads back as a float.
fn float_text(value: f64) -> String {
    match value {
        f64::INFINITY => ".inf".to_owned(),
        f64::NEG_INFINITY => "-.inf".to_owned(),
        _ if value.is_nan() => ".nan".to_owned(),
        _ => format!("{value:?}"),
    }
}

/// Writes text as a plain scalar where every reader reads it as that text, quoted otherwise.
fn scalar_text(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./@+".contains(c))
        && matches!(Scalar::parse_from_cow(text.into()), Scalar::String(_))
        // Booleans of YAML 1.1, which some readers still accept.
        && !["y", "n", "yes", "no", "on", "off"].contains(&text.to_ascii_lowercase().as_str());
    if plain { text.to_owned() } else { quoted(text) }
}

/// Writes a double-quoted scalar: that of JSON, where further characters that are not printable in YAML are escaped.
fn quoted(text: &str) -> String {
    let escaped = |c: char| match c {
        c if c.is_control() || "\u{feff}\u{fffe}\u{ffff}\u{2028}\u{2029}".contains(c) => {
            format!("\\U{:08x}", u32::from(c))
        }
        c => c.to_string(),
    };
    serde_json::Value::from(text).to_string().chars().map(escaped).collect()
}

/// Groups in display order.
pub const GROUPS: &[&str] =
    &["workload", "model", "runner", "profiling/nsys", "profiling/ncu", "profiling/torch", "hardware"];

/// Maps with keys chosen by the user.
const FREE: &[&str] = &["stages", "workload.env", "model.set"];

/// Returns true where any key is allowed below this one.
pub fn is_free(key: &str) -> bool {
    FREE.iter().any(|free| key == *free || key.strip_prefix(free).is_some_and(|rest| rest.starts_with('.')))
}

/// Checks that every key of a layer exists in the base.
pub fn check(layer: &Node, base: &Node) -> Result<(), ConfigError> {
    check_below(layer, base, base, "")
}

/// Checks a layer that belongs at a path of the tree.
pub fn check_at(layer: &Node, base: &Node, path: &[&str]) -> Result<(), ConfigError> {
    match base.at(path) {
        Some(below) => check_below(layer, below, base, &path.join(".")),
        None => Err(unknown_key(&path.join("."), base, &layer.origin)),
    }
}

fn check_below(layer: &Node, known: &Node, base: &Node, key: &str) -> Result<(), ConfigError> {
    if is_free(key) {
        return Ok(());
    }
    match (layer.as_map(), known.as_map()) {
        (Some(upper), Some(lower)) => {
            for (name, node) in upper.iter() {
                let full = below(key, name);
                match lower.get(name) {
                    Some(next) => check_below(node, next, base, &full)?,
                    None => return Err(unknown_key(&full, base, &node.origin)),
                }
            }
            Ok(())
        }
        (None, Some(_)) => Err(layer.refused(key, "it is a map; set its keys one by one")),
        _ => Ok(()),
    }
}

/// Builds the error for an unknown key.
pub fn unknown_key(key: &str, base: &Node, origin: &Origin) -> ConfigError {
    let leaves = base.leaves();
    unknown(key, leaves.iter().map(|(name, _)| name.as_str()).chain(GROUPS.iter().copied()), origin)
}

fn unknown<'a>(key: &str, names: impl Iterator<Item = &'a str>, origin: &Origin) -> ConfigError {
    let origin = Box::new(origin.clone());
    ConfigError::UnknownKey { key: key.to_owned(), nearest: nearest(key, names), origin }
}

/// Replaces choices by those of an upper layer.
pub fn choose_all(choices: &mut [(String, Node)], upper: Vec<(String, Node)>) -> Result<(), ConfigError> {
    for (group, node) in upper {
        match choices.iter_mut().find(|(name, _)| *name == group) {
            Some((_, chosen)) => *chosen = node,
            None => return Err(unknown(&group, GROUPS.iter().copied(), &node.origin)),
        }
    }
    Ok(())
}

/// Removes the chosen options from a layer: a map, or Hydra's list of maps.
pub fn take_defaults(layer: &mut Node) -> Result<Vec<(String, Node)>, ConfigError> {
    let Some(defaults) = layer.remove(&["defaults"]) else {
        return Ok(Vec::new());
    };
    let wrong = || defaults.refused("defaults", "expected a map of group: option");
    let maps = match &defaults.value {
        Value::Map(map) => vec![map],
        Value::List(items) => items.iter().map(Node::as_map).collect::<Option<Vec<_>>>().ok_or_else(wrong)?,
        _ => return Err(wrong()),
    };
    let pairs = maps.into_iter().flat_map(|map| map.iter());
    Ok(pairs.map(|(group, node)| (group.to_owned(), node.clone())).collect())
}

/// Finds the candidate most similar to a written name, if one is similar enough.
pub fn nearest<'a>(written: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    candidates
        .into_iter()
        .map(|candidate| (similarity(written, candidate), candidate))
        .filter(|(similarity, _)| *similarity > 0.6)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate.to_owned())
}

/// Compares two dotted keys: as a whole, or by their last names.
fn similarity(written: &str, candidate: &str) -> f64 {
    let last = |key: &str| key.rsplit(['.', '/']).next().unwrap_or(key).to_owned();
    let whole = strsim::normalized_damerau_levenshtein(written, candidate);
    let tail = strsim::normalized_damerau_levenshtein(&last(written), &last(candidate));
    // The last names only count where they are almost equal.
    whole.max(if tail > 0.75 { 0.9 * tail } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn origin(line: usize) -> Origin {
        Origin::File { path: "x.yaml".into(), line }
    }

    fn parse(text: &str) -> Node {
        read(text, Path::new("x.yaml"), &origin).unwrap()
    }

    #[test]
    fn keeps_the_line_of_each_value() {
        let node = parse("a: 1\nb:\n  c: [x, 2.5]\n");
        let c = node.at(&["b", "c"]).unwrap();
        assert_eq!(c.origin, origin(3));
        assert_eq!(inline(c), "[x, 2.5]");
    }

    #[test]
    fn an_empty_file_is_an_empty_map() {
        let node = parse("# only a comment\n");
        assert!(matches!(&node.value, Value::Map(map) if map.is_empty()), "{node:?}");
    }

    #[test]
    fn refuses_what_it_cannot_hold() {
        for text in ["a: [1", "--- 1\n--- 2\n", "? [a]\n: 1\n", "a: !mine x\n", "a: 1\na: 2\n"] {
            assert!(read(text, Path::new("x.yaml"), &origin).is_err(), "{text:?} was read");
        }
    }

    #[test]
    fn quotes_what_would_read_as_something_else() {
        for text in [
            "",
            "1",
            "1.5",
            "true",
            "null",
            "~",
            "no",
            "a: b",
            "- x",
            "#c",
            "a #b",
            "0x10",
            " x",
            "é",
            "${run.mode}",
        ] {
            let node = Node::new(Value::Text(text.to_owned()), origin(1));
            let back = parse(&format!("k: {}\n", inline(&node)));
            assert_eq!(back.at(&["k"]).unwrap().as_text(), Some(text), "{}", inline(&node));
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::Int),
            proptest::num::f64::NORMAL.prop_map(Value::Float),
            any::<String>().prop_map(Value::Text),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            let node = inner.prop_map(|value| Node::new(value, origin(1)));
            prop_oneof![
                proptest::collection::vec(node.clone(), 0..4).prop_map(Value::List),
                proptest::collection::vec((any::<String>(), node), 0..4).prop_map(|pairs| {
                    let mut map = Map::default();
                    for (key, node) in pairs {
                        map.insert(&key, node);
                    }
                    Value::Map(map)
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(value in values()) {
            let mut map = Map::default();
            map.insert("k", Node::new(value, origin(1)));
            let node = Node::new(Value::Map(map), origin(1));
            let text = write(&node, &|_| Some("a note".to_owned()));
            let back = read(&text, Path::new("x.yaml"), &|_| origin(1)).unwrap();
            prop_assert_eq!(back.to_json(), node.to_json(), "{}", text);
        }
    }

    #[test]
    fn the_most_similar_name_is_found() {
        let keys = ["run.mode", "run.top_n_kernels", "workload.tokens", "workload.prompt_tokens"];
        assert_eq!(nearest("run.mod", keys).as_deref(), Some("run.mode"));
        assert_eq!(nearest("run.top_n_kernel", keys).as_deref(), Some("run.top_n_kernels"));
        assert_eq!(nearest("tokens", keys).as_deref(), Some("workload.tokens"));
        assert_eq!(nearest("mode", keys).as_deref(), Some("run.mode"));
        assert_eq!(nearest("zzz", keys), None);
    }
}
