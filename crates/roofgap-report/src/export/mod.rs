//! The timeline and its numbers for other programs: Perfetto, Parquet and flame graphs.
//!
//! - `timeline`: a trace for Perfetto; `parquet`: tables of many runs
//!
//! Here are the flame graphs: GPU time by the ranges and operators around the launch of each operation, and idle time by stack of the CPU.

#[cfg(feature = "parquet")]
pub mod parquet;
pub mod timeline;

use crate::Bundle;
use roofgap_analyze::{CallNode, HostStack, host_stacks, operation_tree};
use roofgap_base::file::write_atomic_with;
use roofgap_trace::{Ns, Trace};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
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

/// Writes stacks in the folded form of flame graph tools: frames separated by semicolons, and GPU time in nanoseconds.
pub fn save_folded(bundle: Bundle<'_>, path: &Path) -> Result<(), ExportError> {
    let stacks = gpu_time(bundle, with_operations(bundle, path)?);
    write_whole(path, |out| stacks.iter().try_for_each(|stack| write_folded(out, None, stack)))
}

/// Writes the idle time of each stage by stack of the launching thread in the folded form. The first frame is the stage.
pub fn save_folded_idle(bundle: Bundle<'_>, path: &Path) -> Result<(), ExportError> {
    let stages = host_stacks(with_operations(bundle, path)?, bundle.stages);
    if stages.iter().all(Vec::is_empty) {
        return Err(nothing(path, "the inputs have no stacks of the CPU in idle time"));
    }
    write_whole(path, |out| {
        for (at, stacks) in stages.iter().enumerate() {
            let stage = Some(bundle.stages.name(at));
            stacks.iter().try_for_each(|stack| write_folded(out, stage, stack))?;
        }
        Ok(())
    })
}

/// Writes the line of a stack. Characters that separate frames and lines are replaced.
fn write_folded(out: &mut impl Write, first: Option<&str>, stack: &HostStack) -> io::Result<()> {
    let plain = |name: &str| name.replace(';', ":").replace(char::is_control, " ");
    let frames = first.into_iter().chain(stack.functions.iter().map(String::as_str));
    let frames: Vec<String> = frames.map(plain).collect();
    writeln!(out, "{} {}", frames.join(";"), stack.ns)
}

/// Returns the timeline of a bundle, which stacks are made from.
fn with_operations<'a>(bundle: Bundle<'a>, path: &Path) -> Result<&'a Trace, ExportError> {
    let trace = bundle.trace.filter(|trace| !trace.ops.is_empty());
    trace.ok_or_else(|| nothing(path, "the inputs have no timeline with GPU operations"))
}

fn nothing(path: &Path, why: &'static str) -> ExportError {
    ExportError::Nothing { what: "stacks", path: path.to_path_buf(), why }
}

/// Returns the GPU time of a trace by stack: ranges and operators, outermost first, with the GPU operation as the last frame. Overlapping
/// operations count in full, each for its own stack.
fn gpu_time(bundle: Bundle<'_>, trace: &Trace) -> Vec<HostStack> {
    let kernels = bundle.analysis.kernels.iter();
    let short_names: HashMap<&str, &str> =
        kernels.map(|k| (k.name.as_str(), k.short_name.as_str())).collect();
    let mut stacks = Vec::new();
    let mut open: Vec<(Vec<String>, CallNode)> =
        operation_tree(trace, bundle.stages).into_iter().rev().map(|node| (Vec::new(), node)).collect();
    while let Some((mut functions, node)) = open.pop() {
        let is_operation = node.children.is_empty();
        let short = short_names.get(node.name.as_str()).filter(|_| is_operation);
        functions.push(short.map_or(node.name.clone(), |name| (*name).to_owned()));
        if is_operation {
            stacks.push(HostStack { functions, ns: node.gpu_ns });
        } else {
            open.extend(node.children.into_iter().rev().map(|child| (functions.clone(), child)));
        }
    }
    stacks
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
