//! GPU time by the ranges and operators around the launch of each operation, for flame graphs and speedscope.

use crate::bundle::Bundle;
use crate::export::{ExportError, write_whole};
use roofgap_analyze::{innermost, scopes};
use roofgap_trace::{NameId, Ns, Range, ThreadId, Trace, range_name};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;

/// The most frames of a stack. Deeper ranges and operators count for the frame at this depth.
const DEEPEST: usize = 128;

/// Frame of operations whose launch is not in the capture.
const NOT_RECORDED: &str = "(launch not recorded)";

/// The root of the tree, which is no frame.
const ROOT: u32 = 0;

/// One place in the tree.
#[derive(Debug, Clone, Copy)]
struct Node {
    parent: u32,
    frame: u32,
    /// GPU time of the operations that end a stack here, ns.
    own_ns: Ns,
}

/// Writes stacks in the folded form of flame graph tools: frames separated by semicolons, and GPU time in nanoseconds.
pub fn save_folded(bundle: Bundle<'_>, path: &Path) -> Result<(), ExportError> {
    let stacks = Stacks::of(bundle, timeline(bundle, path)?);
    let names: Vec<String> = stacks.frames.iter().map(|name| plain(name)).collect();
    write_whole(path, |out| {
        for (frames, ns) in stacks.iter() {
            let frames: Vec<&str> = frames.iter().map(|frame| names[*frame as usize].as_str()).collect();
            writeln!(out, "{} {ns}", frames.join(";"))?;
        }
        Ok(())
    })
}

/// Writes a profile for speedscope.
pub fn save_speedscope(bundle: Bundle<'_>, path: &Path) -> Result<(), ExportError> {
    let stacks = Stacks::of(bundle, timeline(bundle, path)?);
    let profile = profile(&bundle.context.title, &stacks);
    write_whole(path, |out| serde_json::to_writer(out, &profile).map_err(io::Error::from))
}

/// Builds the document: a sampled profile, in which each stack is a sample that weighs its GPU time.
fn profile(title: &str, stacks: &Stacks<'_>) -> Value {
    let (samples, weights): (Vec<Vec<u32>>, Vec<i64>) = stacks.iter().unzip();
    let total: i64 = weights.iter().sum();
    let frames: Vec<Value> = stacks.frames.iter().map(|name| json!({ "name": name })).collect();
    json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": title,
        "exporter": concat!("roofgap ", env!("CARGO_PKG_VERSION")),
        "activeProfileIndex": 0,
        "shared": { "frames": frames },
        "profiles": [{
            "type": "sampled",
            "name": "GPU time",
            "unit": "nanoseconds",
            "startValue": 0,
            "endValue": total,
            "samples": samples,
            "weights": weights,
        }],
    })
}

/// Replaces the characters that separate frames and lines.
fn plain(name: &str) -> String {
    let replace = |c: char| match c {
        ';' => ':',
        c if c.is_control() => ' ',
        c => c,
    };
    name.chars().map(replace).collect()
}

/// Returns the timeline of a bundle, which stacks are made from.
fn timeline<'a>(bundle: Bundle<'a>, path: &Path) -> Result<&'a Trace, ExportError> {
    let with_operations = bundle.trace.filter(|trace| !trace.ops.is_empty());
    with_operations.ok_or_else(|| ExportError::Nothing {
        what: "stacks",
        path: path.to_path_buf(),
        why: "the inputs have no timeline with GPU operations",
    })
}

/// Identity of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Range { domain: NameId, name: NameId },
    Operator(NameId),
    Operation(NameId),
    NotRecorded,
}

/// A tree of stacks: ranges and operators, outermost first, with the GPU operation as the last frame.
struct Stacks<'a> {
    bundle: Bundle<'a>,
    trace: &'a Trace,
    /// Short name of each kernel by its full name.
    short_names: HashMap<&'a str, &'a str>,
    /// Names of the frames.
    frames: Vec<String>,
    frame_of_key: HashMap<Key, u32>,
    nodes: Vec<Node>,
    children: HashMap<(u32, u32), u32>,
}

impl<'a> Stacks<'a> {
    /// Adds up the operations of a trace. Overlapping operations count in full, each for its own stack.
    fn of(bundle: Bundle<'a>, trace: &'a Trace) -> Self {
        let kernels = bundle.analysis.kernels.iter();
        let mut stacks = Self {
            bundle,
            trace,
            short_names: kernels.map(|k| (k.name.as_str(), k.short_name.as_str())).collect(),
            frames: Vec::new(),
            frame_of_key: HashMap::new(),
            nodes: vec![Node { parent: ROOT, frame: 0, own_ns: 0 }],
            children: HashMap::new(),
        };
        stacks.fill();
        stacks
    }

    /// Iterates over the stacks with GPU time of their own, in the order of their first launch: frames, outermost first, and time in ns.
    fn iter(&self) -> impl Iterator<Item = (Vec<u32>, Ns)> {
        self.nodes.iter().filter(|node| node.own_ns > 0).map(|node| {
            let mut frames = vec![node.frame];
            let mut at = node.parent;
            while at != ROOT {
                frames.push(self.nodes[at as usize].frame);
                at = self.nodes[at as usize].parent;
            }
            frames.reverse();
            (frames, node.own_ns)
        })
    }

    /// Adds up the operations below the ranges and operators around their launches.
    fn fill(&mut self) {
        let range = |range: &Range| Key::Range { domain: range.domain, name: range.name };
        let items = scopes(self.trace, range, Key::Operator);
        let launches = self.launches();
        let calls = launches.iter().map(|&(thread, start, end, _)| (thread, start, end));
        let child = |parent: u32, key: Key| self.node(parent, key);
        let parents = innermost(items, calls, DEEPEST, ROOT, child);
        for ((.., row), parent) in launches.iter().zip(parents) {
            self.add(parent, *row);
        }
        for row in 0..self.trace.ops.len() {
            if self.call_of(row).is_none() {
                let parent = self.node(ROOT, Key::NotRecorded);
                self.add(parent, row);
            }
        }
    }

    /// Collects the operations with a known launch: its thread, start and end, and the row of the operation.
    fn launches(&self) -> Vec<(ThreadId, Ns, Ns, usize)> {
        let calls = &self.trace.calls;
        let launch = |row: usize| {
            let call = self.call_of(row)?;
            Some((calls.thread[call], calls.start[call], calls.end[call], row))
        };
        let mut launches: Vec<_> = (0..self.trace.ops.len()).filter_map(launch).collect();
        launches.sort_unstable();
        launches
    }

    fn call_of(&self, row: usize) -> Option<usize> {
        let call = *self.bundle.stages.launches().call_of_op.get(row)? as usize;
        (call < self.trace.calls.len()).then_some(call)
    }

    /// Adds the time of an operation below a node.
    fn add(&mut self, parent: u32, row: usize) {
        let node = self.node(parent, Key::Operation(self.trace.ops.name[row]));
        let own_ns = &mut self.nodes[node as usize].own_ns;
        *own_ns = own_ns.saturating_add(self.trace.ops.duration(row));
    }

    fn node(&mut self, parent: u32, key: Key) -> u32 {
        let frame = self.frame(key);
        *self.children.entry((parent, frame)).or_insert_with(|| {
            self.nodes.push(Node { parent, frame, own_ns: 0 });
            self.nodes.len() as u32 - 1
        })
    }

    fn frame(&mut self, key: Key) -> u32 {
        if let Some(&frame) = self.frame_of_key.get(&key) {
            return frame;
        }
        let names = &self.trace.names;
        let name = match key {
            Key::Range { domain, name } => range_name(names.get(domain), names.get(name)),
            Key::Operator(name) => names.get(name).to_owned(),
            Key::Operation(name) => {
                let name = names.get(name);
                self.short_names.get(name).copied().unwrap_or(name).to_owned()
            }
            Key::NotRecorded => NOT_RECORDED.to_owned(),
        };
        let frame = self.frames.len() as u32;
        self.frames.push(name);
        self.frame_of_key.insert(key, frame);
        frame
    }
}
