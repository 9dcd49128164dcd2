//! A report as ncu writes it, read without ncu.
//!
//! The container is the letters `NVR`, a zero byte, and messages each behind a 32-bit length: a file header, then
//! blocks. A block is a header, which says how many bytes of messages follow, of which kinds, and adds to the table of
//! names; a session is spread over several headers. Modules of code fill most of a file and are passed over.
//! Only the fields that are used are described here, by their numbers.

use super::NcuError;
use super::metric::unit_of;
use super::model::{CounterSet, LaunchCounters, Metric, MetricId, Rule, RuleKind, Speedup, SpeedupScope};
use super::nvtx::state_ranges;
use super::unit::Unit;
use crate::model::LossKind;
use crate::protobuf::{Fields, Malformed, Wire, dimensions, last, messages, number, text};
use rustc_hash::FxHashSet;
use std::io::{self, Read, Write};

/// First bytes of a report.
pub const MAGIC: &[u8] = b"NVR\0";

/// A message that is read whole is never this large; one that claims to be is not read.
const MESSAGE_LIMIT: u32 = 512 << 20;

/// Reads a `.ncu-rep`.
///
/// ncu writes a report whole, so one that breaks off is a broken copy and not read in part.
///
/// # Errors
/// See [`NcuError`].
pub fn read(input: impl Read) -> Result<CounterSet, NcuError> {
    let mut report = Report::default();
    blocks(&mut Counted { input, offset: 0 }, &mut report)?;
    report.set.finished()
}

/// The messages of a report, each behind its length.
struct Counted<R> {
    input: R,
    offset: u64,
}

impl<R: Read> Counted<R> {
    fn bad(&self, problem: impl Into<String>) -> NcuError {
        NcuError::BadReport { offset: self.offset, problem: problem.into() }
    }

    fn unknown_form(&self, what: &str) -> NcuError {
        self.bad(format!("{what} is not as this version of the format has it"))
    }

    fn breaks_off(&self) -> NcuError {
        self.bad("the file breaks off")
    }

    /// Copies at most this many bytes.
    fn copy(&mut self, length: u64, to: &mut impl Write) -> Result<u64, NcuError> {
        let copied =
            io::copy(&mut (&mut self.input).take(length), to).map_err(|source| match source.kind() {
                io::ErrorKind::UnexpectedEof => self.breaks_off(),
                _ => NcuError::Io { what: "an ncu report", source },
            })?;
        self.offset += copied;
        Ok(copied)
    }

    /// Reads a length; `None` at the end of the file.
    fn length(&mut self) -> Result<Option<u32>, NcuError> {
        let mut bytes = Vec::new();
        if self.copy(4, &mut bytes)? == 0 {
            return Ok(None);
        }
        let bytes = bytes.try_into().map_err(|_| self.breaks_off())?;
        Ok(Some(u32::from_le_bytes(bytes)))
    }

    fn message(&mut self, length: u32) -> Result<Vec<u8>, NcuError> {
        if length > MESSAGE_LIMIT {
            return Err(self.bad(format!("a message claims {length} bytes")));
        }
        // Grows with what is there, not with what is claimed.
        let mut message = Vec::new();
        self.exactly(length.into(), &mut message)?;
        Ok(message)
    }

    fn exactly(&mut self, length: u64, to: &mut impl Write) -> Result<(), NcuError> {
        if self.copy(length, to)? == length { Ok(()) } else { Err(self.breaks_off()) }
    }
}

/// State of reading a report.
#[derive(Default)]
struct Report {
    set: CounterSet,
    /// The table of names, by the index that metrics refer to.
    names: Vec<(MetricId, Option<Unit>)>,
    /// The metrics in `names`.
    known: FxHashSet<MetricId>,
}

/// Fields of a block header.
#[derive(Default)]
struct Block {
    sources: u64,
    results: u64,
    payload: u64,
    process: Option<u32>,
}

fn blocks<R: Read>(input: &mut Counted<R>, report: &mut Report) -> Result<(), NcuError> {
    let mut magic = Vec::new();
    if input.copy(4, &mut magic).is_err() || magic != MAGIC {
        return Err(NcuError::NotAReport);
    }
    let Some(length) = input.length()? else {
        return Ok(());
    };
    let _file_header = input.message(length)?;
    while let Some(length) = input.length()? {
        let header = input.message(length)?;
        let block = report.block_header(&header).map_err(|Malformed| input.unknown_form("a block header"))?;
        payload(input, report, &block)?;
    }
    Ok(())
}

/// Sources of code come first, then launches, then what has no kernel.
fn payload<R: Read>(input: &mut Counted<R>, report: &mut Report, block: &Block) -> Result<(), NcuError> {
    let launches_end = block.sources.saturating_add(block.results);
    let mut left = block.payload;
    let mut index = 0;
    while left >= 4 {
        let Some(length) = input.length()? else {
            return Err(input.unknown_form("the payload of a block"));
        };
        left -= 4;
        if u64::from(length) > left {
            return Err(input.unknown_form("the length of a message"));
        }
        left -= u64::from(length);
        if (block.sources..launches_end).contains(&index) {
            let message = input.message(length)?;
            let read = report.launch(&message, block);
            read.map_err(|Malformed| input.unknown_form("the result of a launch"))?;
        } else {
            input.exactly(length.into(), &mut io::sink())?;
            if index >= launches_end {
                report.set.losses.add(LossKind::EventUnknown, 1);
            }
        }
        index += 1;
    }
    input.exactly(left, &mut io::sink())
}

impl Report {
    fn block_header(&mut self, message: &[u8]) -> Result<Block, Malformed> {
        let mut block = Block::default();
        for field in Fields::new(message) {
            match field? {
                (1, Wire::Varint(count)) => block.sources = count,
                (2, Wire::Varint(count)) => block.results = count,
                (3, Wire::Bytes(session)) => self.session(session)?,
                (4, Wire::Bytes(table)) => {
                    let known = self.names.len();
                    for name in messages(table, 1)? {
                        let name = String::from_utf8_lossy(name);
                        self.names.push((self.set.intern(&name), unit_of(&name)));
                    }
                    // A table adds what is new. One that begins with what is known is a table of its own, as where reports
                    // were joined.
                    let new = &self.names[known..];
                    if new.first().is_some_and(|(id, _)| self.known.contains(id)) {
                        self.names.drain(..known);
                        self.known.clear();
                        self.known.extend(self.names.iter().map(|(id, _)| *id));
                    } else {
                        self.known.extend(new.iter().map(|(id, _)| *id));
                    }
                }
                (5, Wire::Varint(size)) => block.payload = size,
                (6, Wire::Bytes(process)) => {
                    block.process = number(process, 1)?.and_then(|id| u32::try_from(id).ok());
                }
                _ => {}
            }
        }
        Ok(block)
    }

    /// Reads the version of ncu.
    fn session(&mut self, message: &[u8]) -> Result<(), Malformed> {
        for version in messages(message, 8)? {
            if text(version, 1)?.is_some_and(|name| name.starts_with("Nsight Compute")) {
                let first = |text: String| text.split_whitespace().next().unwrap_or("").to_owned();
                self.set.tool_version = text(version, 2)?.map(first);
            }
        }
        Ok(())
    }

    fn launch(&mut self, message: &[u8], block: &Block) -> Result<(), Malformed> {
        let mut launch = LaunchCounters {
            id: self.set.launches.len() as u64,
            process: block.process,
            ..LaunchCounters::default()
        };
        let mut thread = None;
        let mut nvtx = None;
        let (mut demangled, mut function) = (None, None);
        for field in Fields::new(message) {
            match field? {
                (1, Wire::Varint(id)) => thread = Some(id),
                (5, name) => launch.mangled = name.text(),
                (6, name) => function = name.text(),
                (7, name) => demangled = name.text(),
                (10, Wire::Bytes(grid)) => launch.grid = dimensions(grid)?,
                (11, Wire::Bytes(block)) => launch.block = dimensions(block)?,
                (13, Wire::Bytes(metric)) => self.metric(metric, &mut launch)?,
                (19, Wire::Bytes(rule)) => self.rule(rule)?,
                (21, Wire::Bytes(state)) => nvtx = Some(state),
                (25, Wire::Bytes(clocks)) => {
                    launch.clocks_locked = number(clocks, 2)?.map(|locked| locked != 0);
                }
                _ => {}
            }
        }
        if let Some(state) = nvtx {
            state_ranges(state, thread, &mut launch.nvtx)?;
        }
        let names = [demangled, function, launch.mangled.clone()];
        launch.kernel = names.into_iter().flatten().find(|name| !name.is_empty()).unwrap_or_default();
        self.set.check(&mut launch);
        let small = |name: &str| {
            let value = self.set.quantity(&launch, name)?.value;
            (0.0..256.0).contains(&value).then_some(value as u8)
        };
        let major = small("device__attribute_compute_capability_major");
        let minor = small("device__attribute_compute_capability_minor");
        launch.device = small("launch__device_id").map(u32::from);
        launch.compute_capability = major.zip(minor);
        self.set.launches.push(launch);
        Ok(())
    }

    fn metric(&mut self, message: &[u8], launch: &mut LaunchCounters) -> Result<(), Malformed> {
        let (mut name, mut value) = (None, None);
        for field in Fields::new(message) {
            match field? {
                (1, Wire::Varint(index)) => {
                    name = usize::try_from(index).ok().and_then(|at| self.names.get(at))
                }
                (2, Wire::Bytes(message)) => value = Value::read(message)?,
                _ => {}
            }
        }
        let Some(&(id, unit)) = name else {
            self.set.losses.add(LossKind::NameMissing, 1);
            return Ok(());
        };
        match value {
            Some(Value::Number(value)) if value.is_finite() => {
                let unit = unit.unwrap_or_else(|| {
                    self.set.losses.add(LossKind::UnitUnknown, 1);
                    Unit::UNSTATED
                });
                launch.metrics.push(Metric { id, unit, value });
            }
            Some(Value::Number(_)) => launch.missing.push(id),
            Some(Value::Text(text)) if !text.is_empty() => launch.texts.push((id, text.into())),
            Some(Value::Text(_)) => {}
            // The breakdown of a throughput lists metrics and has no value itself.
            None if self.set.name(id).starts_with("breakdown:") => {}
            None => launch.missing.push(id),
        }
        Ok(())
    }
}

enum Value {
    Number(f64),
    Text(String),
}

impl Value {
    fn read(message: &[u8]) -> Result<Option<Self>, Malformed> {
        let mut value = None;
        for field in Fields::new(message) {
            match field? {
                (1, text) => value = text.text().map(Self::Text),
                (2, Wire::Fixed32(bits)) => value = Some(Self::Number(f64::from(f32::from_bits(bits)))),
                (3, Wire::Fixed64(bits)) => value = Some(Self::Number(f64::from_bits(bits))),
                (4 | 5, Wire::Varint(number)) => value = Some(Self::Number(number as f64)),
                _ => {}
            }
        }
        Ok(value)
    }
}

impl Report {
    fn rule(&mut self, message: &[u8]) -> Result<(), Malformed> {
        let (name, section) = (text(message, 1)?.unwrap_or_default(), text(message, 4)?.unwrap_or_default());
        let body = messages(message, 3)?.pop().unwrap_or_default();
        for item in messages(body, 1)? {
            let said = messages(item, 1)?.pop().unwrap_or_default();
            let Some(words) = text(said, 1)? else { continue };
            self.set.rules.push(Rule {
                launch: self.set.launches.len(),
                section: section.clone(),
                name: name.clone(),
                kind: match number(said, 2)? {
                    Some(1) => RuleKind::Ok,
                    Some(2) => RuleKind::Warning,
                    Some(3) => RuleKind::Error,
                    Some(4) => RuleKind::Optimization,
                    _ => RuleKind::Info,
                },
                text: without_links(&words),
                speedup: speedup(messages(item, 10)?.pop().unwrap_or_default())?,
            });
        }
        Ok(())
    }
}

fn speedup(message: &[u8]) -> Result<Option<Speedup>, Malformed> {
    let scope = match number(message, 1)? {
        Some(1) => SpeedupScope::Local,
        Some(2) => SpeedupScope::Global,
        _ => return Ok(None),
    };
    Ok(match last(message, 2)? {
        Some(Wire::Fixed64(bits)) => Some(f64::from_bits(bits)).filter(Speedup::is_possible),
        _ => None,
    }
    .map(|percent| Speedup { scope, percent }))
}

/// Formats `@section:Id:Words@` and `@url:Words:address@` as the pages do: the words, then the address in parentheses.
fn without_links(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, inside)) = rest.split_once('@') {
        let link = inside.split_once('@').and_then(|(link, after)| Some((link_words(link)?, after)));
        let (words, after) = link.unwrap_or_else(|| ("@".to_owned(), inside));
        out.extend([before, &words]);
        rest = after;
    }
    out + rest
}

fn link_words(link: &str) -> Option<String> {
    let (kind, rest) = link.split_once(':')?;
    let (first, second) = rest.split_once(':')?;
    match kind {
        "section" | "source" | "metric" => Some(second.to_owned()),
        "url" => Some(format!("{first} ({second})")),
        _ => None,
    }
}
