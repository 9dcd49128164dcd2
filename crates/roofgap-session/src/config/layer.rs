//! Checks of one layer against the keys that exist.

use super::error::ConfigError;
use super::nearest::nearest;
use super::presets::GROUPS;
use super::tree::{Node, Origin, Value};

/// Maps whose keys are the user's own.
const FREE: &[&str] = &["stages", "workload.env", "model.set"];

/// Whether any key may stand below this one.
pub(crate) fn is_free(key: &str) -> bool {
    FREE.iter()
        .any(|free| key == *free || key.strip_prefix(free).is_some_and(|rest| rest.starts_with('.')))
}

/// Every key of the layer must exist in the base.
pub(crate) fn check(layer: &Node, base: &Node) -> Result<(), ConfigError> {
    check_below(layer, base, base, "")
}

/// The same for a layer that lies at a place in the tree.
pub(crate) fn check_at(layer: &Node, base: &Node, path: &[&str]) -> Result<(), ConfigError> {
    match base.at(path) {
        Some(place) => check_below(layer, place, base, &path.join(".")),
        None => Err(unknown_key(&path.join("."), base, &layer.origin)),
    }
}

fn check_below(layer: &Node, place: &Node, base: &Node, key: &str) -> Result<(), ConfigError> {
    if is_free(key) {
        return Ok(());
    }
    match (layer.as_map(), place.as_map()) {
        (Some(upper), Some(lower)) => {
            for (name, node) in upper.iter() {
                let full = if key.is_empty() {
                    name.to_owned()
                } else {
                    format!("{key}.{name}")
                };
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
            why: "it holds keys; set them one by one".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// The error for a key that does not exist.
pub(crate) fn unknown_key(key: &str, base: &Node, origin: &Origin) -> ConfigError {
    let leaves = base.leaves();
    let names = leaves
        .iter()
        .map(|(name, _)| name.as_str())
        .chain(GROUPS.iter().copied());
    ConfigError::UnknownKey {
        key: key.to_owned(),
        nearest: nearest(key, names),
        origin: Box::new(origin.clone()),
    }
}

/// Lay the choices of one layer over those below it.
pub(crate) fn choose_all(
    choices: &mut [(String, Node)],
    upper: Vec<(String, Node)>,
) -> Result<(), ConfigError> {
    for (group, node) in upper {
        match choices.iter_mut().find(|(name, _)| *name == group) {
            Some((_, place)) => *place = node,
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

/// Take the chosen options out of a layer: a map, or Hydra's list of maps.
pub(crate) fn take_defaults(layer: &mut Node) -> Result<Vec<(String, Node)>, ConfigError> {
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
        Value::List(items) => items
            .iter()
            .map(Node::as_map)
            .collect::<Option<Vec<_>>>()
            .ok_or_else(wrong)?,
        _ => return Err(wrong()),
    };
    let pairs = maps.into_iter().flat_map(|map| map.iter());
    Ok(pairs
        .map(|(group, node)| (group.to_owned(), node.clone()))
        .collect())
}
