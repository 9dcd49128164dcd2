//! Place of a process in a distributed job: variables of its launcher, and its host.

use crate::Distributed;
use crate::launcher;
use roofgap_wire::Record;
use rustc_hash::FxHashMap;

/// Variables and host of a process, as far as they are read.
#[derive(Debug, Default)]
pub struct Place {
    variables: FxHashMap<String, u32>,
    host: Option<String>,
}

impl Place {
    /// Takes a record that tells something of the place.
    pub fn take(&mut self, record: &Record<'_>) {
        match record {
            Record::LauncherVariable(variable) => {
                self.variables.insert(variable.name.to_str().into_owned(), variable.value);
            }
            Record::Host(host) => {
                self.host = Some(host.name.to_str().into_owned()).filter(|name| !name.is_empty());
            }
            _ => {}
        }
    }

    /// Returns the rank in a job of several; `None` without one.
    pub fn distributed(&self) -> Option<Distributed> {
        let (rank, world_size) = launcher::rank(|name| self.variables.get(name).copied())?;
        (world_size > 1).then(|| Distributed {
            rank: Some(rank),
            world_size: Some(world_size),
            ..Distributed::default()
        })
    }

    /// Takes the host name.
    pub fn take_host(&mut self) -> Option<String> {
        self.host.take()
    }
}
