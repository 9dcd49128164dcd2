//! Detects the inputs of ncu from their first bytes.

use super::page;
use super::rep;
use crate::SourceFormat;
use crate::reader::Detected;

/// Bytes searched for a header, since output of the program may precede it.
const PREAMBLE: usize = 1 << 20;

/// Detects an input of ncu from its first bytes; `whole` is true if there are no more.
pub fn sniff(head: &[u8], whole: bool) -> Detected {
    let more = if whole { Detected::No } else { Detected::NeedMore };
    if head.starts_with(rep::MAGIC) {
        return Detected::Yes(SourceFormat::NcuReport);
    }
    if rep::MAGIC.starts_with(head) {
        return more;
    }
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    if text.iter().take(4096).any(|byte| *byte == 0) {
        return Detected::No;
    }
    let first = text.split(|byte| *byte == b'\n').position(page::is_header);
    let Some(line) = first.and_then(|at| text.split(|byte| *byte == b'\n').nth(at)) else {
        let says_ncu = text.starts_with(b"==") || memchr::memmem::find(text, b"\n==PROF==").is_some();
        // Bytes that stop inside the header, or that carry ncu's marks, may still turn out to be a page.
        return if text.len() >= PREAMBLE || !(says_ncu || b"\"ID\",\"".starts_with(text)) {
            Detected::No
        } else {
            more
        };
    };
    let holds = |needle: &[u8]| memchr::memmem::find(line, needle).is_some();
    if holds(b"Metric Name") {
        Detected::Yes(SourceFormat::NcuDetailsPage)
    } else if holds(b"__") && (holds(b"Kernel Name") || holds(b"Function Name")) {
        Detected::Yes(SourceFormat::NcuRawPage)
    } else if line.len() == text.len() {
        more
    } else {
        Detected::No
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAW: &[u8] = b"\"ID\",\"Process ID\",\"Kernel Name\",\"dram__bytes.sum\"\n";
    const DETAILS: &[u8] = b"\"ID\",\"Process ID\",\"Kernel Name\",\"Section Name\",\"Metric Name\"\n";

    #[test]
    fn tells_the_three() {
        assert_eq!(sniff(b"NVR\0\x02\0\0\0", true), Detected::Yes(SourceFormat::NcuReport));
        assert_eq!(sniff(RAW, true), Detected::Yes(SourceFormat::NcuRawPage));
        assert_eq!(sniff(DETAILS, true), Detected::Yes(SourceFormat::NcuDetailsPage));
    }

    #[test]
    fn output_before_the_header() {
        let page = [b"tokens: 12\n==PROF== Connected to process 7\n".as_slice(), DETAILS].concat();
        assert_eq!(sniff(&page, true), Detected::Yes(SourceFormat::NcuDetailsPage));
        assert_eq!(sniff(b"==PROF== Connected to process 7\n", false), Detected::NeedMore);
        assert_eq!(sniff(b"==PROF== Connected to process 7\n", true), Detected::No);
    }

    #[test]
    fn too_few_bytes() {
        assert_eq!(sniff(b"NV", false), Detected::NeedMore);
        assert_eq!(sniff(b"NV", true), Detected::No);
        assert_eq!(sniff(&RAW[..20], false), Detected::NeedMore);
    }

    #[test]
    fn others() {
        assert_eq!(sniff(b"SQLite format 3\0", true), Detected::No);
        assert_eq!(sniff(b"{\"traceEvents\": []}", false), Detected::No);
        assert_eq!(sniff(b"Time (%),Total Time (ns)\n", true), Detected::No);
    }
}
