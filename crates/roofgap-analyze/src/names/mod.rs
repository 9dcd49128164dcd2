//! Kernel names: short name, family and other classes. Names of operators and of modules.

mod distinct;
mod family;
mod range;
mod short;

pub use distinct::{ShortNames, distinct_short_names};
pub use family::{Family, attention_phase, family, is_closed_source, is_expert};
pub use range::{ModuleName, layer_kind, module_name, operator_name};
pub use short::{Parts, short_name};

use roofgap_trace::{OpKind, Trace};
use rustc_hash::{FxHashMap, FxHashSet};

/// Short names and families of the kernels of a trace. Different kernels have different short names.
#[derive(Debug, Default)]
pub struct Naming(FxHashMap<String, (String, Family)>);

impl Naming {
    /// Names the kernels of a trace.
    pub(crate) fn of_trace(trace: &Trace) -> Self {
        let mut used = vec![false; trace.names.len()];
        let kernels = trace.ops.kind.iter().zip(&trace.ops.name);
        let kernels = kernels.filter_map(|(kind, name)| (*kind == OpKind::Kernel).then_some(*name));
        for name in kernels.chain(trace.kernel_totals.iter().map(|total| total.name)) {
            if let Some(used) = used.get_mut(name.index()) {
                *used = true;
            }
        }
        let names = trace.names.iter().filter(|(id, _)| used.get(id.index()) == Some(&true));
        Self::of_names(names.map(|(_, name)| name))
    }

    /// Names the kernels of a list.
    pub(crate) fn of_names<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let short = distinct_short_names(names, FxHashSet::default());
        let named = short.into_iter().map(|(name, short)| {
            let family = family(&name);
            (name, (short, family))
        });
        Self(named.collect())
    }

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
