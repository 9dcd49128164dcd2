//! Mangled kernel names. All tools agree on these; on readable names they do not.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use roofgap_trace::ReadError;
use roofgap_trace::native;
use roofgap_trace::sqlite::Database;

/// Maps readable to mangled names of an nsys export. One readable name may have several.
pub fn from_nsys(sqlite: &Path) -> Result<HashMap<String, Vec<String>>, ReadError> {
    const TABLE: &str = "CUPTI_ACTIVITY_KIND_KERNEL";
    let database = Database::open(sqlite)?;
    let mut names = HashMap::new();
    if !database.has_column(TABLE, "mangledName") {
        return Ok(names);
    }
    let mut pairs: HashSet<(i64, i64)> = HashSet::new();
    database.each(TABLE, &["demangledName", "mangledName"], |row| {
        if let [readable, mangled] = row
            && let (Some(readable), Some(mangled)) = (readable.int(), mangled.int())
        {
            pairs.insert((readable, mangled));
        }
    })?;
    let wanted: HashSet<i64> = pairs.iter().flat_map(|(readable, mangled)| [*readable, *mangled]).collect();
    let mut strings: HashMap<i64, String> = HashMap::new();
    database.each("StringIds", &["id", "value"], |row| {
        if let [id, value] = row
            && let (Some(id), Some(text)) = (id.int().filter(|id| wanted.contains(id)), value.text())
        {
            strings.insert(id, text.into_owned());
        }
    })?;
    for (readable, mangled) in pairs {
        if let (Some(readable), Some(mangled)) = (strings.get(&readable), strings.get(&mangled)) {
            names.entry(readable.clone()).or_insert_with(Vec::new).push(mangled.clone());
        }
    }
    names.values_mut().for_each(|list| list.sort());
    Ok(names)
}

/// Maps readable to mangled names of native captures.
pub fn from_native(captures: &[PathBuf]) -> Result<HashMap<String, Vec<String>>, ReadError> {
    let mut names: HashMap<String, Vec<String>> = HashMap::new();
    for capture in captures {
        for (readable, mangled) in native::kernel_names(capture)? {
            names.entry(readable).or_default().push(mangled);
        }
    }
    for list in names.values_mut() {
        list.sort();
        list.dedup();
    }
    Ok(names)
}
