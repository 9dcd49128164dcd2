//! The blocks of a report and the session they describe.

use std::io::{self, Read};

use super::super::error::NcuError;
use super::super::metric::unit_of;
use super::super::model::{CounterSet, MetricId};
use super::super::protobuf::{Fields, Malformed, Wire};
use super::super::unit::Unit;
use super::container::{Counted, MAGIC, Stop};
use crate::model::LossKind;
use rustc_hash::FxHashSet;

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
pub struct Report {
    pub(super) set: CounterSet,
    /// The table of names, by the index that metrics refer to.
    pub(super) names: Vec<(MetricId, Option<Unit>)>,
    /// The metrics in `names`.
    known: FxHashSet<MetricId>,
}

/// Fields of a block header.
#[derive(Default)]
pub struct Block {
    sources: u64,
    results: u64,
    payload: u64,
    pub(super) process: Option<u32>,
    pub(super) process_name: Option<String>,
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
