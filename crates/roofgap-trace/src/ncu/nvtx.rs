//! The NVTX columns of a page: which ranges enclosed a launch.
//!
//! A cell is `714  "LLM:decode_all:none:none:RGB:0xff:REGISTERED:decode_all"  "LLM:decode_step:..."`: the thread, then
//! in quotes domain, name, and six fields of attributes, of which the last is the message again or `none`.

use super::model::{NvtxKind, NvtxRange};
use crate::protobuf::{Fields, Malformed, Wire};
use rustc_hash::FxHashMap;

const DEFAULT_DOMAIN: &str = "<default domain>";

/// Reads a cell of one of the two NVTX columns.
pub fn ranges(cell: &str, kind: NvtxKind, out: &mut Vec<NvtxRange>) {
    let mut rest = cell;
    while let Some(open) = rest.find('"') {
        let Some(inside) = rest.get(open + 1..) else {
            return;
        };
        let Some(close) = closing_quote(inside) else {
            return;
        };
        if let Some(range) = inside.get(..close).and_then(|text| range(text, kind)) {
            out.push(range);
        }
        match inside.get(close + 1..) {
            Some(next) => rest = next,
            None => return,
        }
    }
}

/// Converts the name of a domain to that of the model.
pub fn domain(name: &str) -> Option<String> {
    if name.is_empty() || name == DEFAULT_DOMAIN { None } else { Some(name.to_owned()) }
}

/// Finds the end of a quoted range. Names may have quotes, so only a quote before a space or the end counts.
fn closing_quote(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    memchr::memchr_iter(b'"', bytes).find(|&at| bytes.get(at + 1).is_none_or(|next| *next == b' '))
}

fn range(text: &str, kind: NvtxKind) -> Option<NvtxRange> {
    // A start/end range has its id in front.
    let text = match kind {
        NvtxKind::PushPop => text,
        NvtxKind::StartEnd => match text.split_once(':') {
            Some((id, rest)) if !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()) => rest,
            _ => text,
        },
    };
    let (domain_name, rest) = text.split_once(':')?;
    let name = name_of(rest)?;
    Some(NvtxRange { domain: domain(domain_name), name: name.to_owned(), kind })
}

/// Extracts the name from `name:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg`; name and message may have colons.
fn name_of(text: &str) -> Option<&str> {
    const ATTRIBUTES: usize = 5;
    let colons: Vec<usize> = memchr::memchr_iter(b':', text.as_bytes()).collect();
    // With a message, the name is the message: the split where both are the same is the right one.
    for &at in colons.iter().rev() {
        let (name, tail) = (text.get(..at)?, text.get(at..)?);
        let between = tail.strip_suffix(name).and_then(|tail| tail.strip_suffix(':'));
        if let Some(between) = between
            && !name.is_empty()
            && between.matches(':').count() == ATTRIBUTES
        {
            return Some(name);
        }
    }
    let end = colons.len().checked_sub(ATTRIBUTES + 1).and_then(|index| colons.get(index));
    match end {
        Some(&end) => text.get(..end),
        None => Some(text),
    }
}

/// Reads the stacks of the launching thread, and the ranges open across threads.
pub fn state_ranges(state: &[u8], launching: Option<u64>, out: &mut Vec<NvtxRange>) -> Result<(), Malformed> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(cell: &str, kind: NvtxKind) -> Vec<(Option<String>, String)> {
        let mut out = Vec::new();
        ranges(cell, kind, &mut out);
        out.into_iter().map(|range| (range.domain, range.name)).collect()
    }

    #[test]
    fn a_stack_in_two_domains() {
        let cell = r#"862  "<default domain>:warmup:none:none:none:none:none:none"  "LLM:decode_all:none:none:none:none:ASCII:decode_all"  "LLM:decode_step:none:none:none:none:REGISTERED:decode_step" "#;
        let llm = Some("LLM".to_owned());
        assert_eq!(
            read(cell, NvtxKind::PushPop),
            [(None, "warmup".into()), (llm.clone(), "decode_all".into()), (llm, "decode_step".into())]
        );
    }

    #[test]
    fn names_with_colons_and_quotes() {
        let cell = r#"1  "D:layer:0:attn:none:none:RGB:0xff:ASCII:layer:0:attn"  "D:aten::mm:none:none:none:none:none:none"  "D:say "hi":none:none:none:none:ASCII:say "hi"" "#;
        let names: Vec<String> = read(cell, NvtxKind::PushPop).into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["layer:0:attn", "aten::mm", "say \"hi\""]);
    }

    #[test]
    fn start_end_ranges_have_an_id() {
        let cell = r#""3:LLM:prefill:none:none:none:none:ASCII:prefill" "#;
        assert_eq!(read(cell, NvtxKind::StartEnd), [(Some("LLM".to_owned()), "prefill".to_owned())]);
    }

    #[test]
    fn nothing_and_nonsense() {
        assert!(read("", NvtxKind::PushPop).is_empty());
        assert!(read("862", NvtxKind::PushPop).is_empty());
        assert!(read("862 \"unfinished", NvtxKind::PushPop).is_empty());
        assert_eq!(read("\"a:b\"", NvtxKind::PushPop), [(Some("a".to_owned()), "b".to_owned())]);
    }
}
