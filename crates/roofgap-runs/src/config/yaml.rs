//! Reads and writes YAML. Reading keeps the line of each value. Writing is by hand, so that a comment can name the origin.

use std::path::Path;

use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};

use super::ConfigError;
use super::tree::{Map, Node, Origin, Value};

/// Reads one YAML document. `origin` maps the line of a value to its origin.
pub fn read(text: &str, file: &Path, origin: &dyn Fn(usize) -> Origin) -> Result<Node, ConfigError> {
    let documents = MarkedYaml::load_from_str(text)
        .map_err(|error| ConfigError::Yaml { file: file.to_owned(), why: error.to_string() })?;
    let mut documents = documents.into_iter();
    let Some(first) = documents.next() else {
        return Ok(Node::new(Value::Map(Map::default()), origin(1)));
    };
    if documents.next().is_some() {
        return Err(ConfigError::Yaml {
            file: file.to_owned(),
            why: "found several documents; keep one per file".to_owned(),
        });
    }
    convert(&first, file, origin)
}

fn convert(
    yaml: &MarkedYaml<'_>,
    file: &Path,
    origin: &dyn Fn(usize) -> Origin,
) -> Result<Node, ConfigError> {
    let line = yaml.span.start.line();
    let bad = |why: &str| ConfigError::Yaml { file: file.to_owned(), why: format!("line {line}: {why}") };
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
        _ => {
            out.push_str(&inline(node));
            out.push('\n');
        }
    }
    out
}

fn write_map(map: &Map, depth: usize, note: &dyn Fn(&Node) -> Option<String>, out: &mut String) {
    for (key, node) in map.iter() {
        for _ in 0..depth {
            out.push_str("  ");
        }
        out.push_str(&scalar_text(key));
        out.push(':');
        match node.as_map() {
            Some(inner) if !inner.is_empty() => {
                out.push('\n');
                write_map(inner, depth + 1, note, out);
            }
            _ => {
                out.push(' ');
                out.push_str(&inline(node));
                if let Some(comment) = note(node) {
                    out.push_str("  # ");
                    out.push_str(&comment.replace(['\n', '\r'], " "));
                }
                out.push('\n');
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
            let pairs: Vec<String> =
                map.iter().map(|(key, node)| format!("{}: {}", scalar_text(key), inline(node))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
    }
}

/// Writes a float with a point or an exponent, so that it reads back as a float.
fn float_text(value: f64) -> String {
    if value.is_nan() {
        ".nan".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { ".inf".to_owned() } else { "-.inf".to_owned() }
    } else {
        format!("{value:?}")
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

/// Writes a double-quoted scalar. Characters that are not printable in YAML are escaped.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control()
                || ('\u{fffe}'..='\u{ffff}').contains(&c)
                || "\u{feff}\u{2028}\u{2029}".contains(c) =>
            {
                out.push_str(&format!("\\U{:08x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
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
}
