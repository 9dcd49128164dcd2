//! Traces of the PyTorch profiler (Kineto): Chrome trace events in JSON, plain or compressed.
//!
//! The text is read in blocks by several threads and never held whole; a JSON crate does not do that, so the parser is
//! written by hand, and tests compare it with serde_json. A document that is truncated or damaged anywhere is an error.

use crate::{Format, ReadError, Source, SourceFormat, Trace};
use memchr::memmem;
use merge::Merge;
use pipeline::{Blocks, Division, Fault, run};
use std::path::Path;

pub mod cursor;
mod document;
mod event;
pub mod frames;
mod keys;
mod merge;
mod pipeline;
mod rows;

pub(crate) use event::Category;

#[cfg(test)]
mod tests;

pub const FORMAT: Format = Format {
    name: "kineto",
    description: "a PyTorch trace (.json, .json.gz)",
    profiler: "torch.profiler",
    is_timeline: true,
    endings: &[".json"],
    gpu_work_advice: "; the PyTorch profiler records it with ProfilerActivity.CUDA",
    stages_advice: "name the stages of the program with torch.profiler.record_function (for an LLM prefill, decode_all, decode_step)",
    range_word: "annotation",
    detect: |head| looks_like(&head.bytes).into(),
    read: |file, input| read(&file.path, &mut input.trace),
};

/// Returns true if unpacked text that begins with `head` looks like a PyTorch profiler trace.
pub fn looks_like(head: &[u8]) -> bool {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let has = |word: &str| memmem::find(text, word.as_bytes()).is_some();
    match text.first() {
        Some(b'{') => has("\"traceEvents\"") || (has("\"schemaVersion\"") && has("\"deviceProperties\"")),
        Some(b'[') => has("\"ph\""),
        _ => false,
    }
}

/// Reads a PyTorch profiler trace, compressed or not, into `trace`, which is empty after an error.
pub fn read(path: &Path, trace: &mut Trace) -> Result<(), ReadError> {
    read_divided(path, Division::default(), trace)
}

/// Reads a trace with a given division of the work.
pub fn read_divided(path: &Path, division: Division, trace: &mut Trace) -> Result<(), ReadError> {
    let blocks = Blocks::open(path).map_err(|e| ReadError::io(path, e))?;
    let is_packed = blocks.is_packed();
    let mut merge = Merge::new(std::mem::take(trace));
    let header = run(blocks, division, &mut merge).map_err(|fault| match fault {
        Fault::Source(error) => ReadError::content(path, is_packed, error),
        Fault::Foreign(found) => ReadError::Unrecognised {
            path: path.to_path_buf(),
            expected: "a PyTorch profiler trace (JSON with `traceEvents`)".into(),
            found,
        },
        Fault::Broken(what) => ReadError::damaged(path, "PyTorch profiler trace", what),
    })?;
    *trace = merge.finish(&header);
    let source = Source::new(path, SourceFormat::Kineto);
    trace.sources.push(Source { schema_version: header.schema_version, ..source });
    Ok(())
}
