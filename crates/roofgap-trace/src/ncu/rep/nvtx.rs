//! The NVTX state of a launch: domains by number, and a stack of ranges a thread and domain.

use super::super::model::{NvtxKind, NvtxRange};
use super::super::nvtx::domain;
use super::super::protobuf::{Fields, Malformed, Wire};
use rustc_hash::FxHashMap;

/// Reads the stacks of the launching thread, and the ranges open across threads.
pub fn ranges(state: &[u8], launching: Option<u64>, out: &mut Vec<NvtxRange>) -> Result<(), Malformed> {
    let mut domains: FxHashMap<u64, String> = FxHashMap::default();
    for field in Fields::of(state) {
        if let (1, Wire::Bytes(info)) = field? {
            let (mut id, mut name) = (None, None);
            for field in Fields::of(info) {
                match field? {
                    (1, Wire::Varint(value)) => id = Some(value),
                    (2, value) => name = value.text(),
                    _ => {}
                }
            }
            if let (Some(id), Some(name)) = (id, name) {
                domains.entry(id).or_insert(name);
            }
        }
    }
    let domain_name = |id: u64| domains.get(&id).and_then(|name| domain(name));
    for field in Fields::of(state) {
        match field? {
            (2, Wire::Bytes(thread)) => {
                let mut id = None;
                let mut stacks = Vec::new();
                for field in Fields::of(thread) {
                    match field? {
                        (1, Wire::Varint(value)) => id = Some(value),
                        (2, Wire::Bytes(domain)) => stacks.push(domain),
                        _ => {}
                    }
                }
                if launching.is_none() || id == launching {
                    for domain in stacks {
                        domain_ranges(domain, NvtxKind::PushPop, domain_name, out)?;
                    }
                }
            }
            (3, Wire::Bytes(domain)) => domain_ranges(domain, NvtxKind::StartEnd, domain_name, out)?,
            _ => {}
        }
    }
    Ok(())
}

fn domain_ranges(
    message: &[u8],
    kind: NvtxKind,
    domain_name: impl Fn(u64) -> Option<String>,
    out: &mut Vec<NvtxRange>,
) -> Result<(), Malformed> {
    let name_field = match kind {
        NvtxKind::PushPop => 1,
        NvtxKind::StartEnd => 2,
    };
    let mut domain = None;
    for field in Fields::of(message) {
        match field? {
            (1, Wire::Varint(id)) => domain = domain_name(id),
            (3, Wire::Bytes(range)) => {
                for field in Fields::of(range) {
                    let (number, value) = field?;
                    if number == name_field
                        && let Some(name) = value.text()
                    {
                        out.push(NvtxRange { domain: domain.clone(), name, kind });
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}
