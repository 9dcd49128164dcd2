//! The untyped configuration: a tree of values with their origins.

use std::fmt;
use std::path::PathBuf;

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
            Origin::Builtin { file } => write!(f, "built-in {file}"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Override { text } => write!(f, "command line: {text}"),
            Origin::Program => write!(f, "command line: after --"),
            Origin::Implied { by } => write!(f, "implied by {by}"),
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
            Value::List(nodes) => nodes.iter().map(Node::to_json).collect(),
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
            *self = Node::new(Value::Map(Map::default()), node.origin.clone());
        }
        if let Value::Map(map) = &mut self.value {
            match map.get_mut(first) {
                Some(next) => next.set(rest, node),
                None => {
                    let mut fresh = Node::new(Value::Map(Map::default()), node.origin.clone());
                    fresh.set(rest, node);
                    map.insert(first, fresh);
                }
            }
        }
    }

    /// Removes the value at a path of keys.
    pub fn remove(&mut self, path: &[&str]) -> Option<Node> {
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
            (_, value) => *self = Node::new(value, upper.origin),
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
                    let full = if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
                    node.collect_leaves(full, found);
                }
            }
            _ => found.push((key, self)),
        }
    }
}
