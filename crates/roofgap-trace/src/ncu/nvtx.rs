//! The NVTX columns of a page: which ranges enclosed a launch.
//!
//! A cell is `714  "LLM:decode_all:none:none:RGB:0xff:REGISTERED:decode_all"  "LLM:decode_step:..."`: the thread, then
//! in quotes domain, name, and six fields of attributes, of which the last is the message again or `none`.

use super::model::NvtxRange;
use crate::model::RangeStyle;
use crate::protobuf::{Malformed, messages, number, text};
use rustc_hash::FxHashMap;

const DEFAULT_DOMAIN: &str = "<default domain>";

/// Reads a cell of one of the two NVTX columns.
pub fn ranges(cell: &str, kind: RangeStyle, out: &mut Vec<NvtxRange>) {
    let mut rest = cell;
    while let Some((_, inside)) = rest.split_once('"')
        && let Some(close) = closing_quote(inside)
    {
        out.extend(range(&inside[..close], kind));
        rest = &inside[close + 1..];
    }
}

/// Converts the name of a domain to that of the model.
pub fn domain(name: &str) -> Option<String> {
    Some(name.to_owned()).filter(|name| !name.is_empty() && name != DEFAULT_DOMAIN)
}

/// Finds the end of a quoted range. Names may have quotes, so only a quote before a space or the end counts.
fn closing_quote(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    memchr::memchr_iter(b'"', bytes).find(|&at| bytes.get(at + 1).is_none_or(|next| *next == b' '))
}

fn range(text: &str, kind: RangeStyle) -> Option<NvtxRange> {
    // A start/end range has its id in front.
    let numbered =
        text.split_once(':').filter(|(id, _)| kind == RangeStyle::StartEnd && id.parse::<u64>().is_ok());
    let (domain_name, rest) = numbered.map_or(text, |(_, rest)| rest).split_once(':')?;
    Some(NvtxRange { domain: domain(domain_name), name: name_of(rest)?.to_owned(), kind })
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
    let end = colons.len().checked_sub(ATTRIBUTES + 1).map_or(text.len(), |index| colons[index]);
    text.get(..end)
}

/// Reads the stacks of the launching thread, and the ranges open across threads.
pub fn state_ranges(state: &[u8], launching: Option<u64>, out: &mut Vec<NvtxRange>) -> Result<(), Malformed> {
    let mut domains: FxHashMap<u64, String> = FxHashMap::default();
    for info in messages(state, 1)? {
        if let (Some(id), Some(name)) = (number(info, 1)?, text(info, 2)?) {
            domains.entry(id).or_insert(name);
        }
    }
    let mut add = |message: &[u8], kind: RangeStyle, name_field: u64| -> Result<(), Malformed> {
        let domain = number(message, 1)?.and_then(|id| domain(domains.get(&id)?));
        for range in messages(message, 3)? {
            let name = text(range, name_field)?;
            out.extend(name.map(|name| NvtxRange { domain: domain.clone(), name, kind }));
        }
        Ok(())
    };
    for thread in messages(state, 2)? {
        if launching.is_none() || number(thread, 1)? == launching {
            for stack in messages(thread, 2)? {
                add(stack, RangeStyle::PushPop, 1)?;
            }
        }
    }
    for open in messages(state, 3)? {
        add(open, RangeStyle::StartEnd, 2)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(cell: &str, kind: RangeStyle) -> Vec<(Option<String>, String)> {
        let mut out = Vec::new();
        ranges(cell, kind, &mut out);
        out.into_iter().map(|range| (range.domain, range.name)).collect()
    }

    #[test]
    fn a_stack_in_two_domains() {
        let cell = r#"862  "<default domain>:warmup:none:none:none:none:none:none"  "LLM:decode_all:none:none:none:none:ASCII:decode_all"  "LLM:decode_step:none:none:none:none:REGISTERED:decode_step" "#;
        let llm = Some("LLM".to_owned());
        assert_eq!(
            read(cell, RangeStyle::PushPop),
            [(None, "warmup".into()), (llm.clone(), "decode_all".into()), (llm, "decode_step".into())]
        );
    }

    #[test]
    fn names_with_colons_and_quotes() {
        let cell = r#"1  "D:layer:0:attn:none:none:RGB:0xff:ASCII:layer:0:attn"  "D:aten::mm:none:none:none:none:none:none"  "D:say "hi":none:none:none:none:ASCII:say "hi"" "#;
        let names: Vec<String> = read(cell, RangeStyle::PushPop).into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["layer:0:attn", "aten::mm", "say \"hi\""]);
    }

    #[test]
    fn start_end_ranges_have_an_id() {
        let cell = r#""3:LLM:prefill:none:none:none:none:ASCII:prefill" "#;
        assert_eq!(read(cell, RangeStyle::StartEnd), [(Some("LLM".to_owned()), "prefill".to_owned())]);
    }

    #[test]
    fn nothing_and_nonsense() {
        assert!(read("", RangeStyle::PushPop).is_empty());
        assert!(read("862", RangeStyle::PushPop).is_empty());
        assert!(read("862 \"unfinished", RangeStyle::PushPop).is_empty());
        assert_eq!(read("\"a:b\"", RangeStyle::PushPop), [(Some("a".to_owned()), "b".to_owned())]);
    }
}
