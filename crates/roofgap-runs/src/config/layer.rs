//! Checks one layer of the configuration against the known keys.

use super::ConfigError;
use super::tree::{Node, Origin, Value};

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
                let full = if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
                match lower.get(name) {
                    Some(next) => check_below(node, next, base, &full)?,
                    None => return Err(unknown_key(&full, base, &node.origin)),
                }
            }
            Ok(())
        }
        (None, Some(_)) => Err(ConfigError::Value {
            key: key.to_owned(),
            value: super::yaml::inline(layer),
            origin: layer.origin.to_string(),
            why: "it is a map; set its keys one by one".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Builds the error for an unknown key.
pub fn unknown_key(key: &str, base: &Node, origin: &Origin) -> ConfigError {
    let leaves = base.leaves();
    let names = leaves.iter().map(|(name, _)| name.as_str()).chain(GROUPS.iter().copied());
    ConfigError::UnknownKey {
        key: key.to_owned(),
        nearest: nearest(key, names),
        origin: Box::new(origin.clone()),
    }
}

/// Replaces choices by those of an upper layer.
pub fn choose_all(choices: &mut [(String, Node)], upper: Vec<(String, Node)>) -> Result<(), ConfigError> {
    for (group, node) in upper {
        match choices.iter_mut().find(|(name, _)| *name == group) {
            Some((_, chosen)) => *chosen = node,
            None => {
                return Err(ConfigError::UnknownKey {
                    nearest: nearest(&group, GROUPS.iter().copied()),
                    key: group,
                    origin: Box::new(node.origin),
                });
            }
        }
    }
    Ok(())
}

/// Removes the chosen options from a layer: a map, or Hydra's list of maps.
pub fn take_defaults(layer: &mut Node) -> Result<Vec<(String, Node)>, ConfigError> {
    let Some(defaults) = layer.remove(&["defaults"]) else {
        return Ok(Vec::new());
    };
    let wrong = || ConfigError::Value {
        key: "defaults".to_owned(),
        value: super::yaml::inline(&defaults),
        origin: defaults.origin.to_string(),
        why: "expected a map of group: option".to_owned(),
    };
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
    use super::nearest;

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
