//! GPU time by the ranges and operators around the launch of each operation, and idle time by stack of the CPU, for flame graphs.

use crate::Bundle;
use crate::export::{ExportError, write_whole};
use roofgap_analyze::{CallNode, HostStack, host_stacks, operation_tree};
use roofgap_trace::Trace;
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;

/// Writes stacks in the folded form of flame graph tools: frames separated by semicolons, and GPU time in nanoseconds.
pub fn save_folded(bundle: Bundle<'_>, path: &Path) -> Result<(), ExportError> {
    let stacks = gpu_time(bundle, timeline(bundle, path)?);
    write_whole(path, |out| stacks.iter().try_for_each(|stack| write_folded(out, None, stack)))
}

/// Writes the idle time of each stage by stack of the launching thread in the folded form. The first frame is the stage.
pub fn save_folded_idle(bundle: Bundle<'_>, path: &Path) -> Result<(), ExportError> {
    let stages = host_stacks(timeline(bundle, path)?, bundle.stages);
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
fn timeline<'a>(bundle: Bundle<'a>, path: &Path) -> Result<&'a Trace, ExportError> {
    let with_operations = bundle.trace.filter(|trace| !trace.ops.is_empty());
    with_operations.ok_or_else(|| nothing(path, "the inputs have no timeline with GPU operations"))
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
