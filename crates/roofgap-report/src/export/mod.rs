//! The timeline and its numbers for other programs: Perfetto, Parquet and flame graphs.
//!
//! - `timeline`: a trace for Perfetto; `parquet`: tables of many runs; `stacks`: GPU time by ranges and operators

#[cfg(feature = "parquet")]
pub mod parquet;
pub mod stacks;
pub mod timeline;

use roofgap_base::file::write_atomic_with;
use roofgap_trace::Ns;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// An export that failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The inputs have no data for the format.
    #[error("no {what} to write to {}: {why}", path.display())]
    Nothing {
        /// Content of the format.
        what: &'static str,
        /// Requested file or folder.
        path: PathBuf,
        /// Content of the inputs.
        why: &'static str,
    },
    /// Writing failed.
    #[error("cannot write {}", path.display())]
    Write {
        /// File or folder.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

impl ExportError {
    /// Creates an error about writing a file or folder.
    pub(crate) fn write(path: &Path, source: io::Error) -> Self {
        Self::Write { path: path.to_path_buf(), source }
    }
}

/// Writes a file whole: the old one stays until the new one is complete. A device, such as `/dev/null`, is written to and stays what
/// it is.
pub fn write_whole(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<&mut File>) -> io::Result<()>,
) -> Result<(), ExportError> {
    let fill_whole = |file: &mut File| {
        let mut out = BufWriter::with_capacity(1 << 20, file);
        fill(&mut out)?;
        out.flush()
    };
    let is_device = fs::metadata(path).is_ok_and(|facts| facts.file_type().is_char_device());
    let written = if is_device {
        File::options().write(true).open(path).and_then(|mut device| fill_whole(&mut device))
    } else {
        write_atomic_with(path, fill_whole)
    };
    written.map_err(|e| ExportError::write(path, e))
}

/// Lines of a track, each of which takes one item at a time: assigns items, sorted by start, to the first line that is free.
#[derive(Debug, Default)]
pub(crate) struct FreeLines {
    lines: usize,
    free: BinaryHeap<Reverse<usize>>,
    /// Ends of the items on the other lines, the next first.
    taken: BinaryHeap<Reverse<(Ns, usize)>>,
}

impl FreeLines {
    /// Returns the first line that is free at `start`, or a new one, and occupies it until `end`.
    pub(crate) fn assign(&mut self, start: Ns, end: Ns) -> usize {
        while let Some(&Reverse((until, line))) = self.taken.peek()
            && until <= start
        {
            self.taken.pop();
            self.free.push(Reverse(line));
        }
        let line = self.free.pop().map_or(self.lines, |Reverse(line)| line);
        self.lines = self.lines.max(line + 1);
        self.taken.push(Reverse((end, line)));
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_device_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("nothing");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        write_whole(&link, |out| out.write_all(b"x")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn many_lines_at_once_take_no_search_through_all() {
        let mut lines = FreeLines::default();
        // With so many lines, a search through all of them for each item would take minutes.
        for item in 0..300_000 {
            assert_eq!(lines.assign(item, i64::MAX - 1), item as usize);
        }
    }

    proptest! {
        #[test]
        fn the_first_free_line_is_taken(items in prop::collection::vec((0i64..6, 0i64..60), 0..200)) {
            let mut lines = FreeLines::default();
            let mut ends: Vec<i64> = Vec::new();
            let mut start = 0;
            for (later, length) in items {
                start += later;
                let expected = ends.iter().position(|end| *end <= start).unwrap_or(ends.len());
                ends.resize(ends.len().max(expected + 1), 0);
                ends[expected] = start + length;
                prop_assert_eq!(lines.assign(start, start + length), expected);
            }
        }
    }
}
