//! Kernel names: a short one that fits a table, and the family of work.

mod communication;
mod family;
mod short;

pub use communication::is_communication;
pub use family::family;
pub use short::short_name;

use rustc_hash::FxHashMap;

/// Short names and families, worked out once for each kernel name.
#[derive(Debug, Default)]
pub struct Naming(FxHashMap<String, (String, String)>);

impl Naming {
    /// Short name and family of a kernel.
    pub fn of(&mut self, name: &str) -> (String, String) {
        if let Some(known) = self.0.get(name) {
            return known.clone();
        }
        let found = (short_name(name), family(name).to_owned());
        self.0.insert(name.to_owned(), found.clone());
        found
    }
}
