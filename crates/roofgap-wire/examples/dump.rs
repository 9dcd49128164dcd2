//! Looks into a native capture: `dump FILE` prints its records one a line, `dump --summary FILE` their totals as JSON.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::BufReader;

use roofgap_wire::{EventKind, LaunchShape, Message, Reader, Record};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let path = arguments.pop().ok_or("name a file")?;
    let mut reader = Reader::open(BufReader::with_capacity(1 << 20, File::open(path)?))?;
    if arguments.iter().any(|argument| argument == "--summary") {
        let mut summary = Summary::default();
        while let Some(records) = reader.next_frame()? {
            records.for_each(|record| summary.add(&record));
        }
        let ending = reader.ending().map(|ending| format!("{ending:?}")).unwrap_or_default();
        println!("{}", summary.to_json(&ending));
        return Ok(());
    }
    println!("{:?}", reader.header());
    while let Some(records) = reader.next_frame()? {
        for record in records {
            println!("{record:?}");
        }
    }
    println!("{:?}", reader.ending());
    Ok(())
}

/// Totals of a capture.
#[derive(Default)]
struct Summary {
    records: BTreeMap<&'static str, u64>,
    texts: BTreeMap<u32, String>,
    shapes: BTreeMap<u32, LaunchShape>,
    call_names: BTreeMap<u32, String>,
    domains: BTreeMap<u32, String>,
    strings: BTreeMap<u32, String>,
    /// By shape: how many, and ns together.
    kernels: BTreeMap<u32, (u64, u64)>,
    calls: BTreeMap<u32, u64>,
    /// Correlations of calls, and of kernels.
    called: HashSet<u32>,
    launched: Vec<u32>,
    /// Kernels that are nodes of a graph.
    graph_kernels: u64,
    /// Function and correlation of each call.
    each_call: Vec<(u32, u32)>,
    /// Edges of the recorded windows: true where one begins, and its time.
    windows: Vec<(bool, u64)>,
    ranges: BTreeMap<(u32, String), u64>,
    facts: Vec<String>,
    losses: BTreeMap<String, (u64, String)>,
}

impl Summary {
    fn add(&mut self, record: &Record<'_>) {
        let kind = match record {
            Record::Kernel(kernel) => {
                let entry = self.kernels.entry(kernel.shape).or_default();
                entry.0 += 1;
                self.graph_kernels += u64::from(kernel.node != 0);
                self.launched.push(kernel.correlation);
                entry.1 += kernel.end.saturating_sub(kernel.start);
                "kernel"
            }
            Record::Call(call) => {
                *self.calls.entry(call.api).or_default() += 1;
                self.called.insert(call.correlation);
                self.each_call.push((call.api, call.correlation));
                "call"
            }
            Record::Memcpy(_) => "copy",
            Record::Memset(_) => "set",
            Record::SyncCall(_) | Record::Synchronization(_) => "sync",
            Record::GraphLaunch(_) => "graph_launch",
            Record::NvtxPop(_) => "nvtx_pop",
            Record::NvtxEnd(_) => "nvtx_end",
            Record::NvtxEvent(event) => {
                if event.kind != EventKind::Mark {
                    let text = match event.message {
                        Message::Inline(text) => text.to_str().into_owned(),
                        Message::Registered(id) => self.strings.get(&id).cloned().unwrap_or_default(),
                        Message::None => String::new(),
                    };
                    *self.ranges.entry((event.domain, text)).or_default() += 1;
                }
                "nvtx_event"
            }
            Record::TextEntry(entry) => {
                self.texts.insert(entry.id, entry.text.to_str().into_owned());
                "text"
            }
            Record::LaunchShape(shape) => {
                self.shapes.insert(shape.id, *shape);
                "shape"
            }
            Record::CallName(entry) => {
                self.call_names.insert(entry.api, entry.name.to_str().into_owned());
                "call_name"
            }
            Record::Domain(entry) => {
                self.domains.insert(entry.id, entry.name.to_str().into_owned());
                "domain"
            }
            Record::Registered(entry) => {
                self.strings.insert(entry.id, entry.text.to_str().into_owned());
                "registered"
            }
            Record::Loss(loss) => {
                let value = (loss.count, loss.detail.to_str().into_owned());
                self.losses.insert(loss.id.to_str().into_owned(), value);
                "loss"
            }
            Record::Process(_) | Record::Cupti(_) | Record::Device(_) => {
                self.facts.push(format!("{record:?}"));
                "fact"
            }
            Record::ClockPair(clocks) => {
                let apart = clocks.cupti.wrapping_sub(clocks.before) as i64;
                if apart < 0 || clocks.cupti > clocks.after {
                    self.facts.push(format!("clocks apart by {apart} ns"));
                }
                "clocks"
            }
            Record::Window(window) => {
                self.windows.push((window.on == 1, window.at));
                "window"
            }
            Record::GraphNode(_) => "graph_node",
            Record::Malformed(_) => "malformed",
            Record::Unknown(_) => "unknown",
            _ => "other",
        };
        *self.records.entry(kind).or_default() += 1;
    }

    fn to_json(&self, ending: &str) -> String {
        let kernels = self.kernels.iter().map(|(shape, (count, ns))| {
            let (name, grid, block) = match self.shapes.get(shape) {
                Some(shape) => {
                    (self.texts.get(&shape.name).map_or("?", String::as_str), shape.grid, shape.block)
                }
                None => ("?", [0; 3], [0; 3]),
            };
            format!(
                "{{\"name\":{name:?},\"grid\":{grid:?},\"block\":{block:?},\"count\":{count},\"ns\":{ns}}}"
            )
        });
        let calls = self.calls.iter().map(|(api, count)| {
            let name = self.call_names.get(api).map_or("?", String::as_str);
            format!("{name:?}:{count}")
        });
        let ranges = self.ranges.iter().map(|((domain, name), count)| {
            let domain = self.domains.get(domain).map_or("", String::as_str);
            format!("{:?}:{count}", format!("{domain}@{name}"))
        });
        let orphans = self.launched.iter().filter(|id| !self.called.contains(id)).count();
        let ran: HashSet<u32> = self.launched.iter().copied().collect();
        let is_launch =
            |api: &u32| self.call_names.get(api).is_some_and(|name| name.contains("LaunchKernel"));
        let without_kernel =
            self.each_call.iter().filter(|(api, id)| is_launch(api) && !ran.contains(id)).count();
        let (mut armed_ns, mut begun) = (0, None);
        for &(on, at) in &self.windows {
            match (on, begun) {
                (true, None) => begun = Some(at),
                (false, Some(start)) => {
                    armed_ns += at.saturating_sub(start);
                    begun = None;
                }
                _ => {}
            }
        }
        let losses = self.losses.iter().map(|(id, (count, detail))| format!("{id:?}:[{count},{detail:?}]"));
        format!(
            "{{\"ending\":{ending:?},\"kernels_without_call\":{orphans},\"launches_without_kernel\":{without_kernel},\"graph_kernels\":{},\"window_edges\":{},\"armed_ns\":{armed_ns},\"records\":{:?},\"facts\":{:?},\"calls\":{{{}}},\"ranges\":{{{}}},\"losses\":{{{}}},\"kernels\":[{}]}}",
            self.graph_kernels,
            self.windows.len(),
            self.records,
            self.facts,
            list(calls),
            list(ranges),
            list(losses),
            list(kernels)
        )
    }
}

fn list(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(",")
}
