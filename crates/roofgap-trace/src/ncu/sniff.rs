//! Detects the inputs of ncu from their first bytes.

use super::page;
use super::rep;
use crate::SourceFormat;
use crate::format::{Detected, Head};

/// Bytes searched for a header, since output of the program may precede it.
const PREAMBLE: usize = 1 << 20;

/// Tells whether a file has one of the formats of ncu.
pub fn is(format: SourceFormat, head: &Head) -> Detected {
    match sniff(&head.bytes, head.whole) {
        Ok(found) => (found == Some(format)).into(),
        Err(NeedMore) => Detected::NeedMore,
    }
}

/// The bytes are too few to decide.
#[derive(Debug, PartialEq, Eq)]
pub struct NeedMore;

/// Detects an input of ncu from its first bytes; `whole` is true if there are no more.
pub fn sniff(head: &[u8], whole: bool) -> Result<Option<SourceFormat>, NeedMore> {
    let more = if whole { Ok(None) } else { Err(NeedMore) };
    if head.starts_with(rep::MAGIC) {
        return Ok(Some(SourceFormat::NcuReport));
    }
    if rep::MAGIC.starts_with(head) {
        return more;
    }
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    if text.iter().take(4096).any(|byte| *byte == 0) {
        return Ok(None);
    }
    let Some(line) = text.split(|byte| *byte == b'\n').find(|line| page::is_header(line)) else {
        let says_ncu = text.starts_with(b"==") || memchr::memmem::find(text, b"\n==PROF==").is_some();
        // Bytes that stop inside the header, or that carry ncu's marks, may still turn out to be a page.
        let may_be = text.len() < PREAMBLE && (says_ncu || b"\"ID\",\"".starts_with(text));
        return if may_be { more } else { Ok(None) };
    };
    let holds = |needle: &[u8]| memchr::memmem::find(line, needle).is_some();
    if holds(b"Metric Name") {
        Ok(Some(SourceFormat::NcuDetailsPage))
    } else if holds(b"__") && (holds(b"Kernel Name") || holds(b"Function Name")) {
        Ok(Some(SourceFormat::NcuRawPage))
    } else if line.len() == text.len() {
        more
    } else {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAW: &[u8] = b"\"ID\",\"Process ID\",\"Kernel Name\",\"dram__bytes.sum\"\n";
    const DETAILS: &[u8] = b"\"ID\",\"Process ID\",\"Kernel Name\",\"Section Name\",\"Metric Name\"\n";

    #[test]
    fn tells_the_three() {
        assert_eq!(sniff(b"NVR\0\x02\0\0\0", true), Ok(Some(SourceFormat::NcuReport)));
        assert_eq!(sniff(RAW, true), Ok(Some(SourceFormat::NcuRawPage)));
        assert_eq!(sniff(DETAILS, true), Ok(Some(SourceFormat::NcuDetailsPage)));
    }

    #[test]
    fn output_before_the_header() {
        let page = [b"tokens: 12\n==PROF== Connected to process 7\n".as_slice(), DETAILS].concat();
        assert_eq!(sniff(&page, true), Ok(Some(SourceFormat::NcuDetailsPage)));
        assert_eq!(sniff(b"==PROF== Connected to process 7\n", false), Err(NeedMore));
        assert_eq!(sniff(b"==PROF== Connected to process 7\n", true), Ok(None));
    }

    #[test]
    fn too_few_bytes() {
        assert_eq!(sniff(b"NV", false), Err(NeedMore));
        assert_eq!(sniff(b"NV", true), Ok(None));
        assert_eq!(sniff(&RAW[..20], false), Err(NeedMore));
    }

    #[test]
    fn others() {
        assert_eq!(sniff(b"SQLite format 3\0", true), Ok(None));
        assert_eq!(sniff(b"{\"traceEvents\": []}", false), Ok(None));
        assert_eq!(sniff(b"Time (%),Total Time (ns)\n", true), Ok(None));
    }
}
