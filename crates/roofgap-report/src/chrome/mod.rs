//! The timeline as a Chrome trace for Perfetto and `chrome://tracing`.
//!
//! Stages have a track of their own. Each thread has a track for its ranges and operators and one for its CUDA calls, each
//! stream one for its operations. Arrows lead from a launch to its operation. Counters show the launched operations that have
//! not ended on each device, and the percentages measured for a kernel and launch shape.
//!
//! - `tracks`: assigns events to tracks
//! - `event`: writes single events
//! - `counters`: counters along the timeline

mod counters;
mod event;
mod tracks;

use crate::bundle::Bundle;
use crate::export::{self, ExportError};
use event::{Track, Writer};
use flate2::Compression;
use flate2::write::GzEncoder;
use roofgap_analyze::{Launches, NO_CALL};
use roofgap_trace::{Ns, OpKind, RangeStyle, Trace};
use std::io::{self, Write};
use std::path::Path;
use tracks::Tracks;

/// Writes the trace to a file, compressed if its name ends in `.gz`.
pub fn save(bundle: Bundle<'_>, path: &Path) -> Result<(), ExportError> {
    let nothing = |why| ExportError::Nothing { what: "timeline", path: path.to_path_buf(), why };
    let trace = bundle.trace.ok_or_else(|| nothing("the capture is not available"))?;
    if trace.span().is_none() {
        return Err(nothing("the inputs have totals or counters, but no single events"));
    }
    export::write_whole(path, |out| {
        if path.extension().is_some_and(|e| e == "gz") {
            let mut packed = GzEncoder::new(out, Compression::default());
            write(bundle, trace, &mut packed)?;
            packed.finish().map(|_| ())
        } else {
            write(bundle, trace, out)
        }
    })
}

/// Writes the trace.
pub fn write(bundle: Bundle<'_>, trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    // Marks do not count for the span, so one may come before it.
    let marks = trace.ranges.marks.iter().map(|mark| mark.at);
    let first = trace.span().map(|span| span.0).into_iter().chain(marks).min();
    let mut writer = Writer::new(out, first.unwrap_or(0))?;
    events(bundle, trace, &mut writer)?;
    writer.finish()
}

/// A rank of a job, and the moment in its clock that is the begin of the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankPlace {
    /// Rank.
    pub rank: u32,
    /// Begin of the document in the clock of the rank, ns.
    pub begin: Ns,
}

/// Writes the trace of one rank.
type WriteRank<'a> = dyn FnMut(Bundle<'_>) -> io::Result<()> + 'a;

/// Writes the traces of several ranks to a file, each rank as a group of processes, in one clock. `load` passes a rank to the function
/// that it is given, so that only one is in memory.
pub fn save_ranks(
    path: &Path,
    ranks: &[RankPlace],
    mut load: impl FnMut(u32, &mut WriteRank<'_>) -> io::Result<()>,
) -> Result<(), ExportError> {
    export::write_whole(path, |out| {
        if path.extension().is_some_and(|e| e == "gz") {
            let mut packed = GzEncoder::new(out, Compression::default());
            write_ranks(ranks, &mut load, &mut packed)?;
            packed.finish().map(|_| ())
        } else {
            write_ranks(ranks, &mut load, out)
        }
    })
}

fn write_ranks(
    ranks: &[RankPlace],
    load: &mut dyn FnMut(u32, &mut WriteRank<'_>) -> io::Result<()>,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut writer = Writer::new(out, 0)?;
    for (at, place) in ranks.iter().enumerate() {
        writer.rank(at, place.rank, place.begin);
        load(place.rank, &mut |bundle| match bundle.trace {
            Some(trace) => events(bundle, trace, &mut writer),
            None => Ok(()),
        })?;
    }
    writer.finish()
}

fn events<W: Write>(bundle: Bundle<'_>, trace: &Trace, writer: &mut Writer<'_, W>) -> io::Result<()> {
    let tracks = Tracks::of(trace);
    tracks.describe(trace, writer)?;
    stages(bundle, writer)?;
    ranges(trace, &tracks, writer)?;
    operators(trace, &tracks, writer)?;
    calls(trace, &tracks, writer)?;
    let launches = bundle.stages.launches();
    operations(trace, &tracks, launches, writer)?;
    counters::waiting(trace, launches, writer)?;
    counters::measured(bundle.analysis, trace, writer)
}

fn stages<W: Write>(bundle: Bundle<'_>, writer: &mut Writer<W>) -> io::Result<()> {
    if !bundle.stages.is_empty() {
        writer.process(Track::STAGES.pid, "stages", 0)?;
        writer.thread(Track::STAGES, "stages", 0)?;
    }
    for (at, stage) in bundle.analysis.stages.iter().enumerate() {
        for span in &bundle.stages.spans(at).instances {
            writer.slice(Track::STAGES, "stage", &stage.name, (span.start, span.end), &[])?;
        }
    }
    Ok(())
}

fn ranges<W: Write>(trace: &Trace, tracks: &Tracks, writer: &mut Writer<W>) -> io::Result<()> {
    for (row, range) in trace.ranges.rows.iter().enumerate() {
        let Some(track) = tracks.thread(range.thread) else {
            continue;
        };
        let (name, domain) = (trace.names.get(range.name), trace.names.get(range.domain));
        let domain = [("domain", domain.into())];
        let args = if domain[0].1 == "" { &domain[..0] } else { &domain[..] };
        let time = (range.start, range.end);
        match range.style {
            RangeStyle::PushPop => writer.slice(track, "range", name, time, args)?,
            RangeStyle::StartEnd => writer.async_slice(track, name, time, row as u64 + 1)?,
        }
    }
    for mark in &trace.ranges.marks {
        if let Some(track) = tracks.thread(mark.thread) {
            writer.instant(track, trace.names.get(mark.name), mark.at)?;
        }
    }
    Ok(())
}

fn operators<W: Write>(trace: &Trace, tracks: &Tracks, writer: &mut Writer<W>) -> io::Result<()> {
    let ops = &trace.cpu_ops;
    for (((start, end), name), thread) in ops.start.iter().zip(&ops.end).zip(&ops.name).zip(&ops.thread) {
        if let Some(track) = tracks.thread(*thread) {
            writer.slice(track, "operator", trace.names.get(*name), (*start, *end), &[])?;
        }
    }
    Ok(())
}

fn calls<W: Write>(trace: &Trace, tracks: &Tracks, writer: &mut Writer<W>) -> io::Result<()> {
    let calls = &trace.calls;
    let times = calls.start.iter().zip(&calls.end);
    for (((start, end), name), (thread, correlation)) in
        times.zip(&calls.name).zip(calls.thread.iter().zip(&calls.correlation))
    {
        let Some(track) = tracks.calls(*thread) else {
            continue;
        };
        let args = [("correlation", (*correlation).into())];
        let args = if *correlation == 0 { &args[..0] } else { &args[..] };
        writer.slice(track, "cuda", trace.names.get(*name), (*start, *end), args)?;
    }
    Ok(())
}

fn operations<W: Write>(
    trace: &Trace,
    tracks: &Tracks,
    launches: &Launches,
    writer: &mut Writer<W>,
) -> io::Result<()> {
    let ops = &trace.ops;
    for row in 0..ops.len() {
        let Some(track) = tracks.operation(row) else {
            continue;
        };
        let time: (Ns, Ns) = (ops.start[row], ops.end[row]);
        let name = trace.names.get(ops.name[row]);
        let (category, args) = match ops.kind[row] {
            OpKind::Kernel => {
                let shape = ops.shape_of(row);
                let args = vec![
                    ("grid", serde_json::json!(shape.grid)),
                    ("block", serde_json::json!(shape.block)),
                    ("registers", shape.registers.into()),
                    (
                        "shared_bytes",
                        (u64::from(shape.static_shared) + u64::from(shape.dynamic_shared)).into(),
                    ),
                ];
                ("kernel", args)
            }
            kind => {
                let bytes = ops.transfers.get(&(row as u32)).map(|t| ("bytes", t.bytes.into()));
                let category = match kind {
                    OpKind::Copy => "memcpy",
                    OpKind::Set => "memset",
                    _ => "graph",
                };
                (category, bytes.into_iter().collect())
            }
        };
        writer.slice(track, category, name, time, &args)?;
        let call = launches.call_of_op.get(row).copied().unwrap_or(NO_CALL) as usize;
        let thread = trace.calls.thread.get(call);
        if let (Some(from), Some(at)) = (thread.and_then(|t| tracks.calls(*t)), trace.calls.start.get(call)) {
            writer.flow((from, *at), (track, time.0), row as u64 + 1)?;
        }
    }
    Ok(())
}
