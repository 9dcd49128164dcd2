//! The rank of a distributed job in the recorded environment.

use crate::launcher;
use crate::sqlite::Database;
use crate::{Distributed, ReadError};

/// Reads the rank that the launcher gave to the recorded program; `None` without one.
pub fn distributed(db: &Database) -> Result<Option<Distributed>, ReadError> {
    let mut found = None;
    db.each("META_DATA_CAPTURE", &["name", "value"], |row| {
        if let (Some(name), Some(value)) = (row[0].text(), row[1].text())
            && name.ends_with("ENVIRONMENT_VARIABLE")
            && found.is_none()
        {
            found = in_environment(&value);
        }
    })?;
    Ok(found.map(|(rank, world_size)| Distributed {
        rank: Some(rank),
        world_size: Some(world_size),
        ..Distributed::default()
    }))
}

/// Finds the rank and the number of ranks in variables that are separated by zeros.
fn in_environment(variables: &str) -> Option<(u32, u32)> {
    launcher::rank(|name| {
        let mut variables = variables.split('\0').filter_map(|variable| variable.split_once('='));
        let (_, value) = variables.find(|(known, _)| *known == name)?;
        value.parse().ok()
    })
}
