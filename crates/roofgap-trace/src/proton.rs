//! Profiles of Proton, the profiler of Triton (`.hatchet`): a tree of scopes and kernels, in which a kernel has its launches and their time.
//!
//! The second part of the file describes the GPUs. Written by `third_party/proton/csrc/lib/Data/Dump/Hatchet.cpp` of Triton.

use crate::kineto::cursor::{Cursor, Expected, Stop, decode};
use crate::native::demangle;
use crate::stats::summary::Totals;
use crate::{Device, Format, KernelTotal, LossKind, ReadError, Source, SourceFormat, Trace, input};
use serde_json::Value;
use std::path::Path;

/// Name of the format in messages.
const NAME: &str = "Proton profile";

/// Size limit, bytes: a profile has a node for each kernel of a scope, not for each launch.
const MAX_BYTES: u64 = 256 << 20;

/// Scope of what Proton itself launches, alone or with a colon and a name behind it.
const OWN_SCOPE: &str = "__proton_launch_metadata";

pub const FORMAT: Format = Format {
    name: "proton",
    description: "a Proton profile (.hatchet)",
    profiler: "proton",
    is_timeline: true,
    endings: &[".hatchet"],
    detect: |head| looks_like(&head.bytes).into(),
    read: |file, input| read(&file.path, &mut input.trace),
    ..Format::DEFAULT
};

/// Returns true if a file that begins with `head` is a list of nodes.
fn looks_like(head: &[u8]) -> bool {
    let mut cursor = Cursor::new(head, 0);
    let begin = cursor.take(b'[', Expected::Value).and_then(|()| cursor.take(b'{', Expected::Value));
    matches!(begin.and_then(|()| cursor.key()), Ok(b"children" | b"frame" | b"metrics"))
}

/// Reads a profile into `trace`.
fn read(path: &Path, trace: &mut Trace) -> Result<(), ReadError> {
    let text = input::load(path, NAME, MAX_BYTES)?;
    let damaged = |what: &str| ReadError::damaged(path, NAME, what);
    let mut cursor = Cursor::new(&text, 0);
    let mut profile = Profile::default();
    profile.read(&mut cursor, trace).map_err(|stop| match stop {
        Stop::Incomplete => damaged("the text ends early"),
        Stop::Invalid(expected) => damaged(&format!("expected {} at byte {}", expected.as_str(), cursor.at)),
    })?;
    let mut totals = Totals::default();
    for (name, total_ns, calls) in profile.kernels {
        // A launch hook writes the shape behind the name, as `matmul_kernel [M=8192, N=8192]`.
        let name = name.split_once(" [").map_or(name.as_str(), |(name, _)| name);
        let name = trace.names.intern(demangle(name).as_deref().unwrap_or(name));
        let kernel = KernelTotal { name, total_ns, calls, median_ns: None, min_ns: None, max_ns: None };
        totals.add_launches(kernel).ok_or_else(|| damaged("the sum of times or launches overflows"))?;
    }
    if totals.rows.is_empty() {
        return Err(damaged("no kernel has a time (a profile of samples or cycles has none)"));
    }
    trace.losses.add(LossKind::SummaryOnly, totals.rows.len() as u64);
    trace.kernel_totals.extend(totals.rows);
    trace.sources.push(Source::new(path, SourceFormat::Proton));
    Ok(())
}

/// A scope or a kernel, as far as it is read.
#[derive(Default)]
struct Node {
    name: String,
    total_ns: Option<i64>,
    calls: Option<u64>,
    /// Number of kernels before those in it.
    before: usize,
}

/// Kernels of all scopes: names, times in ns and launches.
#[derive(Default)]
struct Profile {
    kernels: Vec<(String, i64, u64)>,
}

impl Profile {
    /// Reads the tree without recursion: stacks of Python frames are deep.
    fn read(&mut self, cursor: &mut Cursor<'_>, trace: &mut Trace) -> Result<(), Stop> {
        cursor.take(b'[', Expected::Value)?;
        cursor.take(b'{', Expected::Value)?;
        let mut open = vec![Node::default()];
        while let Some(node) = open.last_mut() {
            match cursor.peek()? {
                b',' => cursor.at += 1,
                b'}' => {
                    cursor.at += 1;
                    open.pop().into_iter().for_each(|node| self.close(node));
                    match cursor.peek()? {
                        _ if open.is_empty() => {}
                        b',' => {
                            cursor.at += 1;
                            open.push(self.begin(cursor)?);
                        }
                        _ => cursor.take(b']', Expected::CommaOrEnd)?,
                    }
                }
                _ => match cursor.key()? {
                    b"children" => {
                        cursor.take(b'[', Expected::Value)?;
                        match cursor.peek()? {
                            b']' => cursor.at += 1,
                            _ => open.push(self.begin(cursor)?),
                        }
                    }
                    b"frame" => fields(cursor, |key, value| {
                        if key == b"name" {
                            node.name = decode(value).into_owned();
                        }
                    })?,
                    b"metrics" => fields(cursor, |key, value| node.measure(key, value, trace))?,
                    _ => cursor.skip()?,
                },
            }
        }
        if cursor.peek()? == b',' {
            cursor.at += 1;
            cursor.peek()?;
            let from = cursor.at;
            cursor.skip()?;
            trace.devices.extend(devices(cursor.since(from)));
        }
        cursor.take(b']', Expected::CommaOrEnd)
    }

    fn begin(&self, cursor: &mut Cursor<'_>) -> Result<Node, Stop> {
        cursor.take(b'{', Expected::Value)?;
        Ok(Node { before: self.kernels.len(), ..Node::default() })
    }

    fn close(&mut self, node: Node) {
        let own = node.name.strip_prefix(OWN_SCOPE);
        if own.is_some_and(|rest| rest.is_empty() || rest.starts_with(':')) {
            self.kernels.truncate(node.before);
        } else if let (Some(total_ns), Some(calls @ 1..)) = (node.total_ns, node.calls) {
            self.kernels.push((node.name, total_ns, calls));
        }
    }
}

impl Node {
    fn measure(&mut self, key: &[u8], value: &[u8], trace: &mut Trace) {
        let number = std::str::from_utf8(value).ok().and_then(|text| text.parse::<i64>().ok());
        let number = number.filter(|number| *number >= 0);
        match key {
            b"time (ns)" => self.total_ns = number,
            b"count" => self.calls = number.and_then(|calls| u64::try_from(calls).ok()),
            b"device_id" | b"device_type" => return,
            // FLOPs and bytes that the program states, and others; the root has a zero of each.
            _ if value != b"0" => {
                let metric = format!("metric {}", decode(key));
                return trace.losses.add_message(LossKind::EventUnknown, &metric, 1);
            }
            _ => return,
        }
        trace.losses.add(LossKind::ValueOutOfRange, u64::from(number.is_none()));
    }
}

/// Passes the keys and plain values of an object to a function.
fn fields(cursor: &mut Cursor<'_>, mut each: impl FnMut(&[u8], &[u8])) -> Result<(), Stop> {
    cursor.take(b'{', Expected::Value)?;
    loop {
        match cursor.peek()? {
            b'}' => {
                cursor.at += 1;
                return Ok(());
            }
            b',' => cursor.at += 1,
            _ => {
                let key = cursor.key()?;
                if let Some(value) = cursor.scalar()? {
                    each(key, value);
                }
            }
        }
    }
}

/// Reads the GPUs: by kind and number, with clocks in kHz and the width of the memory bus in bits.
fn devices(text: &[u8]) -> Vec<Device> {
    let found: Value = serde_json::from_slice(text).unwrap_or_default();
    let kinds = found.as_object().into_iter().flatten();
    let numbered =
        kinds.flat_map(|(kind, list)| list.as_object().into_iter().flatten().map(move |it| (kind, it)));
    let device = |(kind, (number, facts)): (&String, (&String, &Value))| {
        let fact = |key: &str| facts.get(key).and_then(Value::as_u64).filter(|value| *value > 0);
        let (clock, width) = (fact("memory_clock_rate"), fact("bus_width"));
        let arch = facts.get("arch").and_then(Value::as_str).and_then(|arch| arch.parse::<u32>().ok());
        Some(Device {
            number: number.parse().ok()?,
            compute_capability: arch.map(|arch| (arch / 10, arch % 10)),
            sms: fact("num_sms").and_then(|sms| u32::try_from(sms).ok()),
            clock_hz: fact("clock_rate").and_then(|clock| clock.checked_mul(1_000)),
            // Two transfers a clock, in bits. The clock of an AMD GPU is not that of its transfers.
            bandwidth_bytes_per_s: clock
                .zip(width)
                .filter(|_| kind == "CUDA")
                .and_then(|(clock, width)| Some(clock.checked_mul(2_000)?.checked_mul(width)? / 8)),
            ..Device::default()
        })
    };
    numbered.filter_map(device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Trace, ReadError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        assert_eq!(crate::Sniffed::of(file.path()).unwrap().format, SourceFormat::Proton);
        crate::read(&[file.path().to_path_buf()]).map(|input| input.trace)
    }

    fn rows(trace: &Trace) -> Vec<(&str, i64, u64)> {
        let row = |kernel: &KernelTotal| (trace.names.get(kernel.name), kernel.total_ns, kernel.calls);
        trace.kernel_totals.iter().map(row).collect()
    }

    const FIXTURE: &str = include_str!("../../../fixtures/proton/layers.hatchet");

    #[test]
    fn kernels_of_all_scopes_are_added_without_those_of_proton() {
        let trace = read_text(FIXTURE).unwrap();
        assert_eq!(
            rows(&trace),
            [
                ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT", 1_200_000 + 910_000, 40 + 20),
                ("softmax_kernel", 88_000, 20),
                ("void exp_kernel<4>()", 64_000, 20),
            ]
        );
        let losses: Vec<_> = trace.losses.iter().map(|loss| (loss.kind, loss.count)).collect();
        assert_eq!(losses, [(LossKind::SummaryOnly, 3), (LossKind::EventUnknown, 3)]);
        let [gpu] = &trace.devices[..] else { panic!("{:?}", trace.devices) };
        assert_eq!((gpu.number, gpu.compute_capability, gpu.sms), (0, Some((9, 0)), Some(132)));
        assert_eq!((gpu.clock_hz, gpu.bandwidth_bytes_per_s), (Some(1_980_000_000), Some(4_916_736_000_000)));
    }

    #[test]
    fn stacks_may_be_deep() {
        const DEPTH: usize = 20_000;
        let leaf = r#"{"frame": {"name": "k"}, "metrics": {"count": 2, "time (ns)": 9}, "children": []}"#;
        let text = format!("[{}{leaf}{}, {{}}]", r#"{"children": ["#.repeat(DEPTH), "]}".repeat(DEPTH));
        assert_eq!(rows(&read_text(&text).unwrap()), [("k", 9, 2)]);
    }

    #[test]
    fn what_is_damaged_is_told() {
        let half = FIXTURE.len() / 2;
        let huge =
            r#"[{"frame": {"name": "k"}, "metrics": {"count": 1, "time (ns)": 9223372036854775807}}, {}]"#;
        for (text, why) in [
            (r#"[{"children": [], "frame": {"name": "ROOT"}, "metrics": {}}, {}]"#, "no kernel has a time"),
            (&FIXTURE[..half], "the text ends early"),
            (r#"[{"children": [1]}]"#, "expected a value at byte 15"),
            (r#"[{"frame": 7}]"#, "expected a value at byte 11"),
            (huge, "overflows"),
        ] {
            let error = read_text(text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
