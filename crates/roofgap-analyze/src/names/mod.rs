//! Kernel names: short name, family, and whether a kernel communicates. Names of operators.

mod communication;
mod family;
mod operator;
mod parts;
mod short;
mod triton;

pub use communication::is_communication;
pub use family::{Family, family};
pub use short::short_name;

pub(crate) use operator::operator_name;

use rustc_hash::FxHashMap;

/// Cache of short names and families.
#[derive(Debug, Default)]
pub(crate) struct Naming(FxHashMap<String, (String, Family)>);

impl Naming {
    /// Returns the short name and the family of a kernel.
    pub(crate) fn of(&mut self, name: &str) -> (String, Family) {
        if let Some(known) = self.0.get(name) {
            return known.clone();
        }
        let found = (short_name(name), family(name));
        self.0.insert(name.to_owned(), found.clone());
        found
    }
}
