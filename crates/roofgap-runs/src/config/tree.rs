//! The untyped configuration: values with their origins by dotted key, and its YAML form.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};
use serde::Serialize;
use serde_json::{Map, Value};

use super::failed;
use roofgap_base::error::Error;

/// Origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A built-in preset: `group/option.yaml`.
    Builtin(String),
    /// A line of a preset in `--config-dir`, or of the file given by `--config`.
    File(PathBuf, usize),
    /// An override on the command line, as written.
    Override(String),
    /// The program after `--`.
    Program,
    /// Another choice that requires it, as written.
    Implied(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin(file) => write!(f, "built-in {file}"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Override(text) => write!(f, "command line: {text}"),
            Self::Program => write!(f, "command line: after --"),
            Self::Implied(by) => write!(f, "implied by {by}"),
        }
    }
}

/// A value that is not a map, or an empty map, with its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Leaf {
    /// Value.
    pub value: Value,
    /// Origin.
    pub origin: Origin,
}

impl Leaf {
    /// Creates a text.
    pub fn text(text: impl Into<String>, origin: Origin) -> Self {
        Self { value: Value::String(text.into()), origin }
    }

    /// Tells whether the value is that of a built-in preset.
    pub fn is_builtin(&self) -> bool {
        matches!(self.origin, Origin::Builtin(_))
    }

    /// Makes the error of a value that does not suit its key.
    pub fn refused(&self, key: &str, why: &str) -> Error {
        refusal(key, &inline(&self.value), &self.origin, why)
    }
}

fn refusal(key: &str, value: &str, origin: &Origin, why: &str) -> Error {
    failed(format!("{key} cannot be {value} ({origin}): {why}"))
}

/// A layer of a configuration, or all of it: leaves by their dotted keys.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tree(BTreeMap<String, Leaf>);

impl Tree {
    /// Creates a tree of a value at a key.
    pub fn new(key: &str, value: Value, origin: impl Fn(&str) -> Origin) -> Self {
        let mut tree = Self::default();
        tree.add(key, value, &origin);
        tree
    }

    fn add(&mut self, key: &str, value: Value, origin: &dyn Fn(&str) -> Origin) {
        match value {
            Value::Object(map) if !map.is_empty() || key.is_empty() => {
                map.into_iter().for_each(|(name, value)| self.add(&below(key, &name), value, origin));
            }
            value => {
                self.0.insert(key.to_owned(), Leaf { value, origin: origin(key) });
            }
        }
    }

    /// Lists the leaves with their keys.
    pub fn leaves(&self) -> impl Iterator<Item = (&str, &Leaf)> {
        self.0.iter().map(|(key, leaf)| (key.as_str(), leaf))
    }

    /// Returns a leaf.
    pub fn get(&self, key: &str) -> Option<&Leaf> {
        self.0.get(key)
    }

    /// Returns the text at a key.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.get(key)?.value.as_str()
    }

    /// Lists the leaves below a key.
    fn section(&self, key: &str) -> impl Iterator<Item = (&String, &Leaf)> {
        let prefix = format!("{key}.");
        self.0.range(prefix.clone()..).take_while(move |(below, _)| below.starts_with(&prefix))
    }

    /// Returns true where there is a leaf or a section of that key.
    pub fn has(&self, key: &str) -> bool {
        self.0.contains_key(key) || self.section(key).next().is_some()
    }

    /// Sets a leaf, in place of whatever was at its key.
    pub fn set(&mut self, key: &str, leaf: Leaf) {
        self.take(key);
        let parents = key.match_indices('.').filter_map(|(at, _)| key.get(..at));
        parents.for_each(|parent| drop(self.0.remove(parent)));
        self.0.insert(key.to_owned(), leaf);
    }

    /// Removes a leaf or a section and returns it.
    pub fn take(&mut self, key: &str) -> Vec<(String, Leaf)> {
        let mut keys: Vec<String> = self.section(key).map(|(below, _)| below.clone()).collect();
        keys.push(key.to_owned());
        keys.iter().filter_map(|key| self.0.remove_entry(key)).collect()
    }

    /// Lays another tree over this one. An empty map replaces no section.
    pub fn lay_over(&mut self, upper: Self) {
        for (key, leaf) in upper.0 {
            if leaf.value != Value::Object(Map::new()) || self.section(&key).next().is_none() {
                self.set(&key, leaf);
            }
        }
    }

    /// Converts the tree to JSON.
    pub fn to_json(&self) -> Value {
        let mut whole = Map::new();
        self.leaves().for_each(|(key, leaf)| insert(&mut whole, key, leaf.value.clone()));
        Value::Object(whole)
    }

    /// Returns the key and the origin of a leaf, or of the first one of a section.
    pub fn origin(&self, key: &str) -> Option<(&str, &Origin)> {
        let (key, leaf) = self.0.get_key_value(key).or_else(|| self.section(key).next())?;
        Some((key, &leaf.origin))
    }

    /// Makes the error of a value at a path of serde, or of the closest section above it.
    pub fn refused(&self, path: &str, why: &str) -> Error {
        let key = path.split(['[', '?']).next().unwrap_or(path).trim_end_matches('.');
        let at = |key: &str| match self.get(key) {
            Some(leaf) => Some(leaf.refused(key, why)),
            None => Some(refusal(key, "this map", self.origin(key)?.1, why)),
        };
        let mut keys = std::iter::successors(Some(key), |key| Some(key.rsplit_once('.')?.0));
        keys.find_map(at).unwrap_or_else(|| failed(format!("the configuration cannot be used: {why}")))
    }

    /// Makes the error of a key that this tree does not have.
    pub fn unknown_key(&self, key: &str, origin: &Origin) -> Error {
        unknown(key, self.0.keys().map(String::as_str).chain(GROUPS), origin)
    }

    /// Removes the keys that are not in another tree and returns them.
    pub fn drop_unknown(&mut self, known: &Self) -> Option<String> {
        let is_known = |key: &str| is_free(key) || known.0.contains_key(key);
        let keys: Vec<String> = self.0.extract_if(.., |key, _| !is_known(key)).map(|(key, _)| key).collect();
        (!keys.is_empty()).then(|| keys.join(", "))
    }

    /// Writes the tree as YAML. `note` may return a comment for a leaf.
    pub fn write(&self, note: impl Fn(&Leaf) -> Option<String>) -> String {
        let mut out = String::new();
        let mut last: Vec<&str> = Vec::new();
        for (key, leaf) in self.leaves() {
            let path: Vec<&str> = key.split('.').collect();
            let known = path.iter().zip(&last).take_while(|(name, other)| name == other).count();
            for (depth, name) in path.iter().enumerate().skip(known) {
                let end = if depth + 1 < path.len() { "\n" } else { "" };
                out.push_str(&format!("{}{}:{end}", "  ".repeat(depth), scalar_text(name)));
            }
            let comment = note(leaf).map(|note| format!("  # {}", note.replace(['\n', '\r'], " ")));
            out.push_str(&format!(" {}{}\n", inline(&leaf.value), comment.unwrap_or_default()));
            last = path;
        }
        out
    }
}

/// Sets the value of a dotted key.
fn insert(map: &mut Map<String, Value>, key: &str, value: Value) {
    match key.split_once('.') {
        None => drop(map.insert(key.to_owned(), value)),
        Some((first, rest)) => {
            if let Value::Object(below) = map.entry(first).or_insert_with(|| Map::new().into()) {
                insert(below, rest, value);
            }
        }
    }
}

/// Returns the dotted key of a name below a key.
fn below(key: &str, name: &str) -> String {
    if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") }
}

/// Writes a value as YAML.
pub fn to_yaml(value: &impl Serialize) -> Result<String, serde_json::Error> {
    Ok(Tree::new("", serde_json::to_value(value)?, |_| Origin::Program).write(|_| None))
}

/// Reads one YAML document as JSON.
pub fn read_yaml(text: &str, file: &Path) -> Result<Value, Error> {
    Ok(Reader::read(text, file)?.0)
}

/// Reads a file of keys with values, which stand below `key`. `origin` maps the line of a value to its origin.
pub fn read(text: &str, file: &Path, key: &str, origin: impl Fn(usize) -> Origin) -> Result<Tree, Error> {
    let (value, lines) = Reader::read(text, file)?;
    let line = |full: &str| {
        let in_file = full.strip_prefix(key).unwrap_or(full).trim_start_matches('.');
        origin(lines.get(in_file).copied().unwrap_or(1))
    };
    match value {
        // A file of comments only is empty.
        Value::Null => Ok(Tree::default()),
        Value::Object(map) if map.is_empty() => Ok(Tree::default()),
        Value::Object(_) => Ok(Tree::new(key, value, line)),
        _ => Err(not_yaml(file, "expected keys with values")),
    }
}

/// Makes the error of a file that is not supported YAML.
fn not_yaml(file: &Path, why: impl fmt::Display) -> Error {
    failed(format!("cannot parse {}: {why}", file.display()))
}

/// Deepest value that is read.
const DEEPEST: usize = 64;

/// Reader of a document.
struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    file: &'a Path,
    /// Lines of the values below maps, by their dotted keys.
    lines: BTreeMap<String, usize>,
}

impl<'a> Reader<'a> {
    fn read(text: &'a str, file: &'a Path) -> Result<(Value, BTreeMap<String, usize>), Error> {
        let mut reader = Self { parser: Parser::new_from_str(text), file, lines: BTreeMap::new() };
        let mut value = None;
        loop {
            match reader.next()? {
                (Event::StreamEnd, _) => return Ok((value.unwrap_or_default(), reader.lines)),
                (Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd, _) => {}
                _ if value.is_some() => {
                    return Err(not_yaml(file, "found several documents; keep one per file"));
                }
                first => value = Some(reader.value(first, Some(""), 0)?),
            }
        }
    }

    /// Returns the next event and its line.
    fn next(&mut self) -> Result<(Event<'a>, usize), Error> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, span.start.line())),
            Some(Err(error)) => Err(not_yaml(self.file, error)),
            None => Err(not_yaml(self.file, "it ends too early")),
        }
    }

    /// Reads the value that an event begins. `key` is its dotted key, which values in lists have not.
    fn value(
        &mut self,
        (event, line): (Event<'a>, usize),
        key: Option<&str>,
        depth: usize,
    ) -> Result<Value, Error> {
        let file = self.file;
        let bad = |why: &str| Err(not_yaml(file, format!("line {line}: {why}")));
        if let Some(key) = key {
            self.lines.insert(key.to_owned(), line);
        }
        if depth > DEEPEST {
            return bad("it is nested too deeply");
        }
        match event {
            Event::Scalar(.., Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => bad("tags are not supported"),
            Event::Scalar(text, ScalarStyle::Plain, ..) if text.is_empty() || text == "~" => Ok(Value::Null),
            Event::Scalar(text, ScalarStyle::Plain, ..) => Ok(plain(&text)),
            Event::Scalar(text, ..) => Ok(Value::String(text.into_owned())),
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => return Ok(Value::Array(items)),
                        first => items.push(self.value(first, None, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(..) => {
                let mut map = Map::new();
                loop {
                    let name = match self.next()? {
                        (Event::MappingEnd, _) => return Ok(Value::Object(map)),
                        (Event::Scalar(name, ..), _) => name.into_owned(),
                        _ => return bad("a key must be text"),
                    };
                    if map.contains_key(&name) {
                        return bad(&format!("the key {name} is there twice"));
                    }
                    let first = self.next()?;
                    let full = key.map(|key| below(key, &name));
                    let value = self.value(first, full.as_deref(), depth + 1)?;
                    map.insert(name, value);
                }
            }
            Event::Alias(_) => bad("references (*name) are not supported; write the value again"),
            _ => bad("not a value"),
        }
    }
}

/// Interprets a value without quotes.
pub fn plain(text: &str) -> Value {
    match text.to_ascii_lowercase().as_str() {
        "null" => return Value::Null,
        "true" => return Value::Bool(true),
        "false" => return Value::Bool(false),
        _ => {}
    }
    if let Ok(number) = text.parse::<i64>() {
        return number.into();
    }
    // `nan` and `inf` are text: no key accepts them as numbers.
    let number = text.parse::<f64>().ok().filter(|_| text.contains(|c: char| c.is_ascii_digit()));
    number.and_then(serde_json::Number::from_f64).map_or_else(|| text.into(), Value::Number)
}

/// Writes a value on one line.
pub fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => scalar_text(text),
        Value::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let pair = |(key, value): (&String, &Value)| format!("{}: {}", scalar_text(key), inline(value));
            format!("{{{}}}", map.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// Writes text as a plain scalar where every reader reads it as that text, quoted otherwise.
fn scalar_text(text: &str) -> String {
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./@+".contains(c))
        && plain(text).is_string()
        // Booleans of YAML 1.1, which some readers still accept.
        && !["y", "n", "yes", "no", "on", "off"].contains(&text.to_ascii_lowercase().as_str());
    if is_plain { text.to_owned() } else { quoted(text) }
}

/// Writes a double-quoted scalar: that of JSON, where further characters that are not printable in YAML are escaped.
fn quoted(text: &str) -> String {
    let escaped = |c: char| match c {
        c if c.is_control() || "\u{feff}\u{fffe}\u{ffff}\u{2028}\u{2029}".contains(c) => {
            format!("\\U{:08x}", u32::from(c))
        }
        c => c.to_string(),
    };
    Value::from(text).to_string().chars().map(escaped).collect()
}

/// Groups in display order.
pub const GROUPS: [&str; 7] =
    ["workload", "model", "runner", "profiling/nsys", "profiling/ncu", "profiling/torch", "hardware"];

/// Maps with keys chosen by the user.
const FREE: [&str; 3] = ["stages", "workload.env", "model.set"];

/// Returns true where any key is allowed below this one.
pub fn is_free(key: &str) -> bool {
    FREE.iter()
        .any(|free| key.strip_prefix(free).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}

/// Makes the error of a name that is none of `names`.
fn unknown<'a>(key: &str, names: impl Iterator<Item = &'a str>, origin: &Origin) -> Error {
    let names: Vec<&str> = names.collect();
    // A key that was removed has the right name.
    let guess = if names.contains(&key) { String::new() } else { did_you_mean(key, names) };
    Error::new(format!("there is no key {key}{guess} ({origin})")).with_hint(
        "`roofgap config show` prints every key; those of a Hydra module go into workload.overrides='[KEY=VALUE]'",
    )
}

/// Replaces choices by those of an upper layer.
pub fn choose(choices: &mut Tree, upper: Tree) -> Result<(), Error> {
    if let Some((group, leaf)) = upper.leaves().find(|(group, _)| !GROUPS.contains(group)) {
        return Err(unknown(group, GROUPS.into_iter(), &leaf.origin));
    }
    choices.lay_over(upper);
    Ok(())
}

/// Removes the chosen options from a layer: a map, or Hydra's list of maps, below `key`.
pub fn take_defaults(layer: &mut Tree, key: &str) -> Result<Tree, Error> {
    let mut choices = Tree::default();
    for (full, leaf) in layer.take(key) {
        let wrong = || leaf.refused(key, "expected a map of group: option");
        match (full.strip_prefix(key).and_then(|rest| rest.strip_prefix('.')), &leaf.value) {
            (Some(group), _) => choices.set(group, leaf),
            (None, Value::Array(items)) => {
                for item in items.iter().filter(|item| *item != "_self_") {
                    let item = item.as_object().ok_or_else(wrong)?.clone();
                    choices.lay_over(Tree::new("", item.into(), |_| leaf.origin.clone()));
                }
            }
            (None, Value::Object(_)) => {}
            _ => return Err(wrong()),
        }
    }
    Ok(choices)
}

/// Asks whether the most similar name was meant.
pub fn did_you_mean<'a>(written: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(written, candidates).map(|name| format!(", did you mean {name}?")).unwrap_or_default()
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

    fn parse(text: &str) -> Tree {
        read(text, Path::new("x.yaml"), "", |line| Origin::File("x.yaml".into(), line)).unwrap()
    }

    #[test]
    fn keeps_the_line_of_each_value() {
        let tree = parse("a: 1\nb:\n  c: [x, 2.5]\n");
        let c = tree.get("b.c").unwrap();
        assert_eq!(c.origin, Origin::File("x.yaml".into(), 3));
        assert_eq!(inline(&c.value), "[x, 2.5]");
    }

    #[test]
    fn an_empty_file_is_an_empty_map() {
        for text in ["", "# only a comment\n", "---\n", "{}"] {
            assert_eq!(parse(text), Tree::default(), "{text:?}");
        }
    }

    #[test]
    fn reads_the_forms_of_yaml() {
        let text = "a: |\n  x\n  y\nb: >-\n  long\n  line\nc: plain over\n  two lines\n'd e': \"\\u00e9\"\nf: ''\n\
                    g:\n- 1\n- h: ~\n  i: -2.5e3\nj: {k: [l, m: n]}\no: &p q\nr: 0x10\ns:\n";
        let expected = serde_json::json!({
            "a": "x\ny\n", "b": "long line", "c": "plain over two lines", "d e": "é", "f": "",
            "g": [1, {"h": null, "i": -2500.0}], "j": {"k": ["l", {"m": "n"}]}, "o": "q", "r": "0x10", "s": null,
        });
        assert_eq!(read_yaml(text, Path::new("x")).unwrap(), expected);
    }

    #[test]
    fn refuses_what_it_cannot_hold() {
        let deep = "[".repeat(200);
        for text in [
            "a: [1",
            "--- 1\n--- 2\n",
            "? [a]\n: 1\n",
            "a: !mine x\n",
            "a: !m [x]\n",
            "a: 1\na: 2\n",
            &deep,
            "a: &b [1]\nc: *b\n",
        ] {
            assert!(read_yaml(text, Path::new("x.yaml")).is_err(), "{text:?} was read");
        }
    }

    #[test]
    fn a_layer_replaces_leaves_and_keeps_sections() {
        let mut tree = parse("a: {b: 1, c: 2}\nd: {}\n");
        tree.lay_over(parse("a: {}\nd: {e: 3}\n"));
        assert_eq!(tree.to_json(), serde_json::json!({"a": {"b": 1, "c": 2}, "d": {"e": 3}}));
        tree.set("a", Leaf { value: 5.into(), origin: Origin::Program });
        assert_eq!(tree.write(|_| None), "a: 5\nd:\n  e: 3\n");
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
            let back = parse(&format!("k: {}\n", inline(&text.into())));
            assert_eq!(back.text("k"), Some(text));
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::from),
            proptest::num::f64::NORMAL.prop_map(Value::from),
            any::<String>().prop_map(Value::String),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                proptest::collection::btree_map("[^.]*", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(value in values()) {
            let tree = Tree::new("k", value, |_| Origin::Program);
            let text = tree.write(|_| Some("a note".to_owned()));
            prop_assert_eq!(parse(&text).to_json(), tree.to_json(), "{}", text);
        }

        #[test]
        fn reading_never_panics(text in "[-a :\\[\\]{},&*!|>'\"#\n]{0,40}") {
            let _ = read_yaml(&text, Path::new("x"));
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
