//! Classes of the items on the page; each has a colour.

use roofgap_analyze::IdleCause;
use roofgap_trace::{CallClass, OpKind};

/// All classes, which the page refers to by position. Kernel families come first.
pub const CLASSES: [&str; 27] = [
    "gemm",
    "gemv",
    "attention",
    "elementwise",
    "reduction",
    "norm",
    "softmax",
    "copy/layout",
    "moe",
    "embedding",
    "sampling",
    "communication",
    "quantization",
    "convolution",
    "other",
    "memcpy",
    "memset",
    "graph",
    "launch",
    "sync",
    "range",
    "operator",
    "merged",
    "idle-launch",
    "idle-sync",
    "idle-copy",
    "idle-other",
];

/// Returns the position of a class, or that of `other` for an unknown name.
pub fn position(name: &str) -> u32 {
    let at = CLASSES.iter().position(|c| *c == name);
    at.or_else(|| CLASSES.iter().position(|c| *c == "other")).unwrap_or(0) as u32
}

/// Returns the class of a GPU operation by its kind and the name of the kernel.
pub fn of_op(kind: OpKind, name: &str) -> u32 {
    position(match kind {
        OpKind::Kernel => roofgap_analyze::family(name).as_str(),
        OpKind::Copy => "memcpy",
        OpKind::Set => "memset",
        OpKind::Graph => "graph",
    })
}

/// Returns the class of a call; `None` for a call that is not drawn.
pub fn of_call(class: CallClass) -> Option<&'static str> {
    match class {
        CallClass::Launch => Some("launch"),
        CallClass::GraphLaunch => Some("graph"),
        CallClass::Copy => Some("memcpy"),
        CallClass::Set => Some("memset"),
        CallClass::Sync => Some("sync"),
        CallClass::Memory | CallClass::Other => None,
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

/// Returns the name of a class in the style sheet.
pub fn css(name: &str) -> &'static str {
    match CLASSES[position(name) as usize] {
        "copy/layout" => "layout",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_colour() {
        let style = include_str!("style.css");
        for class in CLASSES {
            assert!(style.contains(&format!("--c-{}:", css(class))), "{class}");
        }
        assert_eq!(CLASSES[position("new family") as usize], "other");
    }
}
