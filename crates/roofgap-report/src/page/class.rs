//! Classes of the items on the page; each has a colour.

use roofgap_analyze::{Family, IdleCause};
use roofgap_trace::{CallClass, OpKind};

/// Classes of what is not a kernel.
const OTHERS: [&str; 15] = [
    "memcpy",
    "memset",
    "graph",
    "launch",
    "sync",
    "memory",
    "range",
    "operator",
    "stack",
    "counter",
    "merged",
    "idle-launch",
    "idle-sync",
    "idle-copy",
    "idle-other",
];

/// Lists all classes, which the page refers to by position. Kernel families come first.
pub fn all() -> impl Iterator<Item = &'static str> {
    Family::ALL.iter().map(|family| family.as_str()).chain(OTHERS)
}

/// Returns the position of a class, or that of `other` for an unknown name.
pub fn position(name: &str) -> u32 {
    all().position(|class| class == name).unwrap_or(Family::Other as usize) as u32
}

/// Returns the class of a GPU operation by its kind and the name of the kernel.
pub fn of_op(kind: OpKind, name: &str) -> &'static str {
    match kind {
        OpKind::Kernel => roofgap_analyze::family(name).as_str(),
        kind => kind.as_str(),
    }
}

/// Returns the class of a call; `None` for a call that is not drawn.
pub fn of_call(class: CallClass) -> Option<&'static str> {
    match class {
        CallClass::Launch => Some("launch"),
        CallClass::GraphLaunch => Some("graph"),
        CallClass::Copy => Some("memcpy"),
        CallClass::Set => Some("memset"),
        CallClass::Sync => Some("sync"),
        CallClass::Memory => Some("memory"),
        CallClass::Other => None,
    }
}

/// Returns the class of idle time.
pub fn of_idle(cause: IdleCause) -> &'static str {
    match cause {
        IdleCause::Launch => "idle-launch",
        IdleCause::Sync => "idle-sync",
        IdleCause::Copy => "idle-copy",
        IdleCause::Other => "idle-other",
    }
}

/// Number of colours of stages.
const STAGES: usize = 6;

/// Returns the class of a stage by its position.
pub fn stage(at: usize) -> String {
    format!("s-{}", at % STAGES)
}

/// Returns the name of a class in the style sheet.
pub fn css(name: &str) -> &'static str {
    match all().find(|class| *class == name) {
        Some("copy/layout") => "layout",
        known => known.unwrap_or("other"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_colour() {
        let style = include_str!("style.css");
        for class in all() {
            assert!(style.contains(&format!("--c-{}:", css(class))), "{class}");
        }
        assert_eq!(all().nth(position("new family") as usize), Some("other"));
        assert_eq!(css("new family"), "other");
    }
}
