//! A report as ncu writes it, read without ncu.
//!
//! The container is the letters `NVR`, a zero byte, and messages each behind a 32-bit length: a file header, then
//! blocks. A block is a header, which says how many bytes of messages follow, of which kinds, and adds to the table of
//! names; a session is spread over several headers. Modules of code fill most of a file and are passed over.
//! Only the fields that are used are described here, by their numbers.

use super::NcuError;
use super::container::{Counted, MAGIC, Stop};
use super::metric::unit_of;
use super::model::{CounterSet, LaunchCounters, Metric, MetricId, Rule, RuleKind, Speedup, SpeedupScope};
use super::nvtx::state_ranges;
use super::unit::Unit;
use crate::model::LossKind;
use crate::protobuf::{Fields, Malformed, Wire};
use rustc_hash::FxHashSet;
use std::io::{self, Read};

/// Reads a `.ncu-rep`.
///
/// ncu writes a report whole, so one that breaks off is a broken copy and not read in part.
///
/// # Errors
/// See [`NcuError`].
pub fn read(input: impl Read) -> Result<CounterSet, NcuError> {
    let mut input = Counted { input, offset: 0 };
    let mut report = Report::default();
    match blocks(&mut input, &mut report) {
        Ok(()) => {}
        Err(Stop::Io(source)) if source.kind() != io::ErrorKind::UnexpectedEof => {
            return Err(NcuError::Io { what: "an ncu report", source });
        }
        Err(Stop::NotAReport) => return Err(NcuError::NotAReport),
        Err(stop) => {
            return Err(NcuError::BadReport { offset: input.offset, problem: stop.problem() });
        }
    }
    report.set.drop_failed();
    if report.set.launches.is_empty() {
        return Err(NcuError::NoLaunches);
    }
    Ok(report.set)
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
    process_name: Option<String>,
}

fn blocks<R: Read>(input: &mut Counted<R>, report: &mut Report) -> Result<(), Stop> {
    let mut magic = [0u8; 4];
    input.input.read_exact(&mut magic).map_err(|_| Stop::NotAReport)?;
    if magic != MAGIC {
        return Err(Stop::NotAReport);
    }
    input.offset = 4;
    let Some(length) = input.length()? else {
        return Ok(());
    };
    let _file_header = input.message(length)?;
    while let Some(length) = input.length()? {
        let header = input.message(length)?;
        let block = report.block_header(&header).map_err(|Malformed| Stop::Malformed("a block header"))?;
        payload(input, report, &block)?;
    }
    Ok(())
}

/// Sources of code come first, then launches, then what has no kernel.
fn payload<R: Read>(input: &mut Counted<R>, report: &mut Report, block: &Block) -> Result<(), Stop> {
    let launches_end = block.sources.saturating_add(block.results);
    let mut left = block.payload;
    let mut index = 0;
    while left >= 4 {
        let Some(length) = input.length()? else {
            return Err(Stop::Malformed("the payload of a block"));
        };
        left -= 4;
        if u64::from(length) > left {
            return Err(Stop::Malformed("the length of a message"));
        }
        left -= u64::from(length);
        if (block.sources..launches_end).contains(&index) {
            let message = input.message(length)?;
            report.launch(&message, block).map_err(|Malformed| Stop::Malformed("the result of a launch"))?;
        } else {
            input.skip(u64::from(length))?;
            if index >= launches_end {
                report.set.losses.add(LossKind::EventUnknown, 1);
            }
        }
        index += 1;
    }
    input.skip(left)
}

impl Report {
    fn block_header(&mut self, message: &[u8]) -> Result<Block, Malformed> {
        let mut block = Block::default();
        for field in Fields::of(message) {
            match field? {
                (1, Wire::Varint(count)) => block.sources = count,
                (2, Wire::Varint(count)) => block.results = count,
                (3, Wire::Bytes(session)) => self.session(session)?,
                (4, Wire::Bytes(table)) => {
                    let known = self.names.len();
                    for string in Fields::of(table) {
                        if let (1, Wire::Bytes(name)) = string? {
                            let name = String::from_utf8_lossy(name);
                            self.names.push((self.set.intern(&name), unit_of(&name)));
                        }
                    }
                    // A table adds what is new. One that begins with what is known is a table of its own, as where reports
                    // were joined.
                    let new = self.names.get(known..).unwrap_or_default();
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
                    for field in Fields::of(process) {
                        match field? {
                            (1, Wire::Varint(id)) => block.process = u32::try_from(id).ok(),
                            (3, name) => block.process_name = name.text().map(|path| file_name(&path)),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(block)
    }

    fn session(&mut self, message: &[u8]) -> Result<(), Malformed> {
        for field in Fields::of(message) {
            match field? {
                (2, Wire::Varint(seconds)) => self.set.tool.created_unix_s = Some(seconds),
                (8, Wire::Bytes(version)) => {
                    let (mut provider, mut text) = (None, None);
                    for field in Fields::of(version) {
                        match field? {
                            (1, value) => provider = value.text(),
                            (2, value) => text = value.text(),
                            _ => {}
                        }
                    }
                    match provider.as_deref() {
                        Some("CUDA Version") => self.set.tool.cuda_version = text,
                        Some(name) if name.starts_with("Nsight Compute") => {
                            self.set.tool.version = text
                                .map(|text| text.split_whitespace().next().unwrap_or_default().to_owned());
                        }
                        _ => {}
                    }
                }
                (11, command) => self.set.tool.command = command.text().map(|text| text.trim().to_owned()),
                _ => {}
            }
        }
        Ok(())
    }
}

fn file_name(path: &str) -> String {
    path.rsplit(['/', '\\']).next().unwrap_or(path).to_owned()
}

impl Report {
    fn launch(&mut self, message: &[u8], block: &Block) -> Result<(), Malformed> {
        let mut launch = LaunchCounters {
            id: self.set.launches.len() as u64,
            process: block.process,
            process_name: block.process_name.clone(),
            ..LaunchCounters::default()
        };
        let mut thread = None;
        let mut nvtx = None;
        let (mut demangled, mut function) = (None, None);
        for field in Fields::of(message) {
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
                (22, Wire::Varint(id)) => launch.context = u32::try_from(id).ok(),
                (23, Wire::Varint(id)) => launch.stream = u32::try_from(id).ok(),
                (25, Wire::Bytes(clocks)) => {
                    for field in Fields::of(clocks) {
                        if let (2, Wire::Varint(locked)) = field? {
                            launch.clocks_locked = Some(locked != 0);
                        }
                    }
                }
                _ => {}
            }
        }
        if let Some(state) = nvtx {
            state_ranges(state, thread, &mut launch.nvtx)?;
        }
        launch.kernel = [demangled, function, launch.mangled.clone()]
            .into_iter()
            .flatten()
            .find(|n| !n.is_empty())
            .unwrap_or_default();
        self.set.check(&mut launch);
        let number = |name: &str| {
            self.set
                .quantity(&launch, name)
                .map(|quantity| quantity.value)
                .filter(|value| (0.0..256.0).contains(value))
        };
        let device = number("launch__device_id").map(|id| id as u32);
        let major = number("device__attribute_compute_capability_major");
        let minor = number("device__attribute_compute_capability_minor");
        launch.device = device;
        launch.compute_capability = major.zip(minor).map(|(major, minor)| (major as u8, minor as u8));
        self.set.launches.push(launch);
        Ok(())
    }

    fn metric(&mut self, message: &[u8], launch: &mut LaunchCounters) -> Result<(), Malformed> {
        let (mut name, mut value) = (None, None);
        for field in Fields::of(message) {
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
            // The breakdown of a throughput lists metrics and has no value of its own.
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
        for field in Fields::of(message) {
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

fn dimensions(message: &[u8]) -> Result<Option<[u32; 3]>, Malformed> {
    let mut out = [0u32; 3];
    for field in Fields::of(message) {
        let (number, value) = field?;
        let slot = usize::try_from(number)
            .ok()
            .and_then(|number| number.checked_sub(1))
            .and_then(|at| out.get_mut(at));
        if let (Some(slot), Some(value)) = (slot, value.unsigned()) {
            let Ok(value) = u32::try_from(value) else {
                return Ok(None);
            };
            *slot = value;
        }
    }
    Ok(Some(out))
}

impl Report {
    fn rule(&mut self, message: &[u8]) -> Result<(), Malformed> {
        let (mut name, mut section, mut body) = (String::new(), String::new(), None);
        for field in Fields::of(message) {
            match field? {
                (1, value) => name = value.text().unwrap_or_default(),
                (3, Wire::Bytes(value)) => body = Some(value),
                (4, value) => section = value.text().unwrap_or_default(),
                _ => {}
            }
        }
        let Some(body) = body else { return Ok(()) };
        for item in Fields::of(body) {
            let (1, Wire::Bytes(item)) = item? else { continue };
            let (mut text, mut kind, mut speedup) = (None, RuleKind::Info, None);
            for field in Fields::of(item) {
                match field? {
                    (1, Wire::Bytes(message)) => {
                        for field in Fields::of(message) {
                            match field? {
                                (1, value) => text = value.text(),
                                (2, Wire::Varint(value)) => kind = rule_kind(value),
                                _ => {}
                            }
                        }
                    }
                    (10, Wire::Bytes(message)) => speedup = read_speedup(message)?,
                    _ => {}
                }
            }
            if let Some(text) = text {
                let (name, section) = (name.clone(), section.clone());
                let launch = self.set.launches.len();
                self.set.rules.push(Rule {
                    launch,
                    section,
                    name,
                    kind,
                    text: without_links(&text),
                    speedup,
                });
            }
        }
        Ok(())
    }
}

fn rule_kind(value: u64) -> RuleKind {
    match value {
        1 => RuleKind::Ok,
        2 => RuleKind::Warning,
        3 => RuleKind::Error,
        4 => RuleKind::Optimization,
        _ => RuleKind::Info,
    }
}

fn read_speedup(message: &[u8]) -> Result<Option<Speedup>, Malformed> {
    let (mut scope, mut percent) = (None, None);
    for field in Fields::of(message) {
        match field? {
            (1, Wire::Varint(1)) => scope = Some(SpeedupScope::Local),
            (1, Wire::Varint(2)) => scope = Some(SpeedupScope::Global),
            (2, Wire::Fixed64(bits)) => percent = Some(f64::from_bits(bits)).filter(Speedup::is_possible),
            _ => {}
        }
    }
    Ok(scope.zip(percent).map(|(scope, percent)| Speedup { scope, percent }))
}

/// Formats `@section:Id:Words@` and `@url:Words:address@` as the pages do: the words, then the address in parentheses.
fn without_links(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('@') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let inside = from.strip_prefix('@').unwrap_or(from);
        let link = inside.split_once('@').and_then(|(link, after)| Some((link_words(link)?, after)));
        match link {
            Some((words, after)) => {
                out.push_str(&words);
                rest = after;
            }
            None => {
                out.push('@');
                rest = inside;
            }
        }
    }
    out.push_str(rest);
    out
}

fn link_words(link: &str) -> Option<String> {
    let (kind, rest) = link.split_once(':')?;
    match kind {
        "section" | "source" | "metric" => rest.split_once(':').map(|(_, words)| words.to_owned()),
        "url" => rest.split_once(':').map(|(words, address)| format!("{words} ({address})")),
        _ => None,
    }
}
