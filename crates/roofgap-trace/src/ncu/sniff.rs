//! Detects the inputs of ncu from their first bytes.

use super::page;
use super::rep;

/// The inputs of ncu that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NcuFormat {
    /// `--page raw --csv`.
    RawPage,
    /// `--page details --csv`.
    DetailsPage,
    /// `.ncu-rep`.
    Report,
}

/// The answer of [`sniff`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sniff {
    /// It is this.
    Yes(NcuFormat),
    /// It is none of ncu's.
    No,
    /// These bytes do not tell; more would.
    NeedMore,
}

/// Bytes searched for a header, since output of the program may precede it.
const PREAMBLE: usize = 1 << 20;

/// Tells an input of ncu by its first bytes; `whole` says that there are no more.
#[must_use]
pub fn sniff(head: &[u8], whole: bool) -> Sniff {
    let more = if whole { Sniff::No } else { Sniff::NeedMore };
    if head.starts_with(rep::MAGIC) {
        return Sniff::Yes(NcuFormat::Report);
    }
    if rep::MAGIC.starts_with(head) {
        return more;
    }
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    if text.iter().take(4096).any(|byte| *byte == 0) {
        return Sniff::No;
    }
    let first = text.split(|byte| *byte == b'\n').position(page::is_header);
    let Some(line) = first.and_then(|at| text.split(|byte| *byte == b'\n').nth(at)) else {
        let says_ncu = text.starts_with(b"==") || memchr::memmem::find(text, b"\n==PROF==").is_some();
        // Bytes that stop inside the header, or that carry ncu's marks, may still turn out to be a page.
        return if text.len() >= PREAMBLE || !(says_ncu || b"\"ID\",\"".starts_with(text)) {
            Sniff::No
        } else {
            more
        };
    };
    let holds = |needle: &[u8]| memchr::memmem::find(line, needle).is_some();
    if holds(b"Metric Name") {
        Sniff::Yes(NcuFormat::DetailsPage)
    } else if holds(b"__") && (holds(b"Kernel Name") || holds(b"Function Name")) {
        Sniff::Yes(NcuFormat::RawPage)
    } else if line.len() == text.len() {
        more
    } else {
        Sniff::No
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAW: &[u8] = b"\"ID\",\"Process ID\",\"Kernel Name\",\"dram__bytes.sum\"\n";
    const DETAILS: &[u8] = b"\"ID\",\"Process ID\",\"Kernel Name\",\"Section Name\",\"Metric Name\"\n";

    #[test]
    fn tells_the_three() {
        assert_eq!(sniff(b"NVR\0\x02\0\0\0", true), Sniff::Yes(NcuFormat::Report));
        assert_eq!(sniff(RAW, true), Sniff::Yes(NcuFormat::RawPage));
        assert_eq!(sniff(DETAILS, true), Sniff::Yes(NcuFormat::DetailsPage));
    }

    #[test]
    fn output_before_the_header() {
        let page = [
            b"tokens: 12\n==PROF== Connected to process 7\n".as_slice(),
            DETAILS,
        ]
        .concat();
        assert_eq!(sniff(&page, true), Sniff::Yes(NcuFormat::DetailsPage));
        assert_eq!(
            sniff(b"==PROF== Connected to process 7\n", false),
            Sniff::NeedMore
        );
        assert_eq!(sniff(b"==PROF== Connected to process 7\n", true), Sniff::No);
    }

    #[test]
    fn too_few_bytes() {
        assert_eq!(sniff(b"NV", false), Sniff::NeedMore);
        assert_eq!(sniff(b"NV", true), Sniff::No);
        assert_eq!(sniff(&RAW[..20], false), Sniff::NeedMore);
    }

    #[test]
    fn others() {
        assert_eq!(sniff(b"SQLite format 3\0", true), Sniff::No);
        assert_eq!(sniff(b"{\"traceEvents\": []}", false), Sniff::No);
        assert_eq!(sniff(b"Time (%),Total Time (ns)\n", true), Sniff::No);
    }
}
