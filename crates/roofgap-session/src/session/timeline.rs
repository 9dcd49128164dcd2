//! What ran when: nsys or the native collector, ungated, sliced afterwards by range.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use roofgap_collect::child::Outcome;
use roofgap_collect::command::CommandLine;
use roofgap_collect::nsys::{self, CaptureEnd, CaptureRange, NsysProfile};
use roofgap_collect::program::Phase;
use roofgap_collect::range::NvtxRange;
use roofgap_collect::tool::Nsys;
use roofgap_trace::{Input, range_name};

use super::desk::{Desk, Errand};
use super::layout::Layout;
use super::program::Program;
use super::props::NativeLibrary;
use super::tools::Tools;
use crate::config::Config;
use crate::config::settings::{Mode, RangeEnd, TimelineTool};
use crate::record::{PhaseName, PhaseStatus};
use crate::runs::artifacts::sha256;

const PHASE: PhaseName = PhaseName::Timeline;

/// A recorded timeline.
pub(super) struct Timeline {
    /// What recorded it.
    pub(super) tool: Recorder,
    /// What it holds.
    pub(super) input: Input,
    /// Set where another tool was asked for by name: what became of it.
    pub(super) degraded: Option<String>,
}

/// What records a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recorder {
    /// Nsight Systems.
    Nsys,
    /// The native collector.
    Native,
}

impl Recorder {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Recorder::Nsys => "nsys",
            Recorder::Native => "native",
        }
    }
}

/// Why an attempt gave nothing.
struct Setback {
    why: String,
    log_tail: Option<String>,
}

impl From<String> for Setback {
    fn from(why: String) -> Self {
        Setback { why, log_tail: None }
    }
}

impl Setback {
    fn of(why: impl Into<String>, outcome: &Outcome) -> Self {
        Setback {
            why: why.into(),
            log_tail: Some(outcome.output_tail().to_owned()),
        }
    }
}

/// The recorders in the order in which they are tried.
pub(super) fn order(wanted: TimelineTool, mode: Mode) -> [Recorder; 2] {
    match (wanted, mode) {
        (TimelineTool::Nsys, _) | (TimelineTool::Auto, Mode::Deep) => [Recorder::Nsys, Recorder::Native],
        (TimelineTool::Native, _) | (TimelineTool::Auto, Mode::Light) => [Recorder::Native, Recorder::Nsys],
    }
}

/// Record a timeline with the first recorder that gives one.
pub(super) fn run(desk: &mut Desk<'_>, tools: &Tools, program: &Program) -> Option<Timeline> {
    desk.begin(PHASE);
    let wanted = desk.config.profiling.timeline;
    let order = order(wanted, desk.config.run.mode);
    let mut setbacks: Vec<(Recorder, Setback)> = Vec::new();
    let mut tried = false;
    for recorder in order {
        if desk.is_cancelled() {
            break;
        }
        let attempt = match recorder {
            Recorder::Nsys => match &tools.nsys {
                Ok(nsys) => {
                    tried = true;
                    with_nsys(desk, nsys, program)
                }
                Err(why) => Err(why.clone().into()),
            },
            Recorder::Native => match &tools.native {
                Ok(library) => {
                    tried = true;
                    with_native(desk, library, program)
                }
                Err(why) => Err(format!("the native collector cannot be used: {why}").into()),
            },
        };
        match attempt {
            Ok(input) => {
                desk.ledger.tool(PHASE, recorder.as_str());
                let degraded = degraded(desk, wanted, recorder, &setbacks);
                if input.trace.ops.is_empty() {
                    let note = match &tools.gpu {
                        Ok(()) => {
                            "no GPU operation was recorded: the program put no work on the GPU".to_owned()
                        }
                        Err(why) => format!("no GPU operation was recorded: {why}"),
                    };
                    desk.ledger.note(PHASE, note);
                }
                desk.end(PHASE, PhaseStatus::Ok);
                return Some(Timeline {
                    tool: recorder,
                    input,
                    degraded,
                });
            }
            Err(setback) => setbacks.push((recorder, setback)),
        }
    }
    let why = setbacks
        .iter()
        .map(|(_, setback)| setback.why.clone())
        .collect::<Vec<_>>()
        .join("; ");
    let status = if desk.is_cancelled() {
        PhaseStatus::failed(
            if why.is_empty() {
                "interrupted".to_owned()
            } else {
                why
            },
            None,
        )
    } else if tried {
        let tail = setbacks
            .iter()
            .rev()
            .find_map(|(_, setback)| setback.log_tail.as_deref());
        PhaseStatus::failed(
            format!("{why}; what is known comes from the program's own account"),
            tail,
        )
    } else {
        PhaseStatus::skipped(format!(
            "{why}; what is known comes from the program's own account"
        ))
    };
    desk.end(PHASE, status);
    None
}

/// What to say where another recorder had to stand in.
fn degraded(
    desk: &mut Desk<'_>,
    wanted: TimelineTool,
    used: Recorder,
    setbacks: &[(Recorder, Setback)],
) -> Option<String> {
    let (first, setback) = setbacks.first()?;
    let note = format!(
        "{} gave no timeline ({}); {} stood in",
        first.as_str(),
        setback.why,
        used.as_str()
    );
    desk.ledger.note(PHASE, note.clone());
    // Where the choice was left to the session, the second recorder is as good an answer as the first.
    (wanted != TimelineTool::Auto).then_some(note)
}

/// What nsys is asked to record.
pub(super) fn profile_of(config: &Config, layout: &Layout) -> Result<NsysProfile, String> {
    let settings = &config.profiling.nsys;
    let capture_range = match &settings.nvtx_capture {
        None => None,
        Some(text) => Some(CaptureRange {
            range: NvtxRange::parse(text).ok_or_else(|| {
                format!("profiling.nsys.nvtx_capture is {text:?}; write it as [domain@]name")
            })?,
            end: match settings.capture_range_end {
                RangeEnd::Stop => CaptureEnd::Stop,
                RangeEnd::StopShutdown => CaptureEnd::StopShutdown,
            },
        }),
    };
    Ok(NsysProfile {
        trace: settings.trace.clone(),
        sample: settings.sample.clone(),
        cpuctxsw: settings.cpuctxsw.clone(),
        graph: settings.cuda_graph_trace,
        events: settings.cuda_event_trace,
        capture_range,
        extra: settings.extra_args.clone(),
        ..NsysProfile::new(layout.nsys_base())
    })
}

fn with_nsys(desk: &mut Desk<'_>, nsys: &Nsys, program: &Program) -> Result<Input, Setback> {
    let profile = profile_of(desk.config, &desk.layout)?;
    let settings = &desk.config.profiling.nsys;
    match record_with_nsys(desk, nsys, program, &profile, "nsys") {
        Err(setback)
            if profile.capture_range.is_some() && !profile.report().exists() && !desk.is_cancelled() =>
        {
            // Nothing was recorded: the range never opened. What did occur is only known from an ungated recording.
            let ungated = NsysProfile {
                capture_range: None,
                ..profile.clone()
            };
            let input = record_with_nsys(desk, nsys, program, &ungated, "nsys-ungated")?;
            let asked = settings.nvtx_capture.as_deref().unwrap_or_default();
            let note = format!(
                "the range {asked} never opened ({}); all was recorded instead. Ranges that did occur: {}",
                setback.why,
                ranges_of(&input)
            );
            desk.ledger.note(PHASE, note);
            Ok(input)
        }
        other => other,
    }
}

fn record_with_nsys(
    desk: &mut Desk<'_>,
    nsys: &Nsys,
    program: &Program,
    profile: &NsysProfile,
    log: &str,
) -> Result<Input, Setback> {
    let folder = desk.run_dir.folder("nsys").map_err(|error| error.to_string())?;
    let account = desk.layout.nsys_account();
    let line = program.command(Phase::Timeline, &account)?;
    let planned = profile.command(nsys, &line);
    planned
        .left_out
        .iter()
        .for_each(|left| desk.ledger.note(PHASE, left.clone()));
    let time = desk.config.run.timeout.0;
    let errand = Errand {
        profiler: true,
        ..Errand::new(&planned.command, &folder, log, time)
    };
    let outcome = desk.run(PHASE, errand)?;
    let report = profile.report();
    if !desk.ledger.output(PHASE, &report) {
        let why = if profile.unimported().exists() {
            "nsys recorded but could not import the recording (it left a .qdstrm); see `roofgap doctor`"
                .to_owned()
        } else if outcome.is_success() {
            "nsys ended with status 0 and left no report".to_owned()
        } else {
            format!("nsys left no report: it {}", outcome.describe())
        };
        return Err(Setback::of(why, &outcome));
    }
    if !outcome.is_success() {
        desk.ledger
            .note(PHASE, format!("under nsys the program {}", outcome.describe()));
    }
    desk.ledger.output(PHASE, &account);
    let sqlite = export(desk, nsys, &report, &folder)?;
    if desk.config.profiling.nsys.stats {
        summarise(desk, nsys, &sqlite, &folder)?;
    }
    read(&[sqlite])
}

/// The report as SQLite, whole or not at all.
fn export(desk: &mut Desk<'_>, nsys: &Nsys, report: &Path, folder: &Path) -> Result<PathBuf, Setback> {
    let interrupted = || {
        format!(
            "interrupted; `roofgap analyze {}` reads what was recorded",
            report.display()
        )
    };
    if desk.is_cancelled() {
        return Err(interrupted().into());
    }
    let (partial, sqlite) = (desk.layout.nsys_export(), desk.layout.nsys_sqlite());
    let line = nsys::export(nsys, report, &partial);
    let errand = Errand::new(&line, folder, "export", desk.config.run.timeout.0);
    let exported = desk.run(PHASE, errand)?;
    if exported.is_success()
        && std::fs::rename(&partial, &sqlite).is_ok()
        && desk.ledger.output(PHASE, &sqlite)
    {
        return Ok(sqlite);
    }
    let _ = std::fs::remove_file(&partial);
    if desk.is_cancelled() {
        return Err(interrupted().into());
    }
    let why = format!("nsys export left no SQLite file: it {}", exported.describe());
    Err(Setback::of(why, &exported))
}

/// The tool's own summary of kernels: a check of our numbers, never a source of them.
fn summarise(desk: &mut Desk<'_>, nsys: &Nsys, sqlite: &Path, folder: &Path) -> Result<(), String> {
    let base = desk.layout.nsys_summary();
    let Some(summary) = nsys::kernel_summary(nsys, &base) else {
        desk.ledger.note(PHASE, "this nsys has no kernel summary");
        return Ok(());
    };
    let line = nsys::stats(nsys, sqlite, &[summary.report], &base);
    desk.run(
        PHASE,
        Errand::new(&line, folder, "stats", desk.config.run.timeout.0),
    )?;
    if !desk.ledger.output(PHASE, &summary.file) {
        desk.ledger.note(
            PHASE,
            "nsys stats wrote no kernel summary: the recording holds no kernels",
        );
    }
    Ok(())
}

fn with_native(desk: &mut Desk<'_>, library: &NativeLibrary, program: &Program) -> Result<Input, Setback> {
    let folder = desk.run_dir.folder("native").map_err(|error| error.to_string())?;
    let path = write_library(desk, library)?;
    let account = desk.layout.native_account();
    let line = native_line(
        program.command(Phase::Timeline, &account)?,
        desk.config,
        &path,
        &folder,
    );
    let outcome = desk.run(
        PHASE,
        Errand::new(&line, &folder, "program", desk.config.run.timeout.0),
    )?;
    // It has done its work; the record keeps its hash.
    let _ = std::fs::remove_file(&path);
    let captures: Vec<PathBuf> = desk
        .layout
        .native_captures()
        .into_iter()
        .filter(|capture| desk.ledger.output(PHASE, capture))
        .collect();
    if captures.is_empty() {
        let how = if outcome.is_success() {
            "neither used CUDA nor made an NVTX range".to_owned()
        } else {
            outcome.describe()
        };
        let why = format!("the native collector left no capture: the program {how}");
        return Err(Setback::of(why, &outcome));
    }
    if !outcome.is_success() {
        desk.ledger.note(
            PHASE,
            format!("under the native collector the program {}", outcome.describe()),
        );
    }
    desk.ledger.output(PHASE, &account);
    // One file a process: that of a helper which was killed must not cost that of the model.
    let mut readable = Vec::new();
    for capture in captures {
        match roofgap_trace::read(std::slice::from_ref(&capture)) {
            Ok(_) => readable.push(capture),
            Err(error) => desk.ledger.note(PHASE, error.to_string()),
        }
    }
    read(&readable)
}

/// The program with the collector loaded into it.
pub(super) fn native_line(
    program: CommandLine,
    config: &Config,
    library: &Path,
    folder: &Path,
) -> CommandLine {
    let native = &config.profiling.native;
    let copies = native.copies.unwrap_or(config.run.mode == Mode::Deep);
    let graph = match native.graph {
        nsys::GraphTrace::Node => "node",
        nsys::GraphTrace::Graph => "graph",
    };
    program
        .env("CUDA_INJECTION64_PATH", library)
        .env("NVTX_INJECTION64_PATH", library)
        .env("ROOFGAP_NATIVE_DIR", folder)
        .env("ROOFGAP_NATIVE_COPIES", if copies { "1" } else { "0" })
        .env("ROOFGAP_NATIVE_GRAPH", graph)
}

/// Where the collector is written out.
pub(super) const LIBRARY: &str = "native/libroofgap_inject.so";

/// Write the collector out, and make sure that it is what was built.
fn write_library(desk: &mut Desk<'_>, library: &NativeLibrary) -> Result<PathBuf, String> {
    let path = desk
        .run_dir
        .write(LIBRARY, library.bytes)
        .map_err(|error| error.to_string())?;
    let found = sha256(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    if found != library.sha256 {
        return Err(format!(
            "{} has SHA-256 {found}, expected {}",
            path.display(),
            library.sha256
        ));
    }
    desk.ledger
        .note(PHASE, format!("native collector of SHA-256 {found}"));
    Ok(path)
}

/// Read what was recorded; a recording without anything in it is none.
fn read(paths: &[PathBuf]) -> Result<Input, Setback> {
    let input = roofgap_trace::read(paths).map_err(|error| error.to_string())?;
    if input.trace.ops.is_empty() && input.trace.ranges.rows.is_empty() {
        return Err("the recording holds neither GPU operations nor NVTX ranges"
            .to_owned()
            .into());
    }
    Ok(input)
}

/// The names of ranges that occur, most often first.
fn ranges_of(input: &Input) -> String {
    let trace = &input.trace;
    let mut calls: HashMap<_, u64> = HashMap::new();
    for range in &trace.ranges.rows {
        *calls.entry((range.domain, range.name)).or_default() += 1;
    }
    let mut counts: Vec<(String, u64)> = calls
        .into_iter()
        .map(|((domain, name), count)| {
            let (domain, name) = (trace.names.get(domain), trace.names.get(name));
            (range_name(domain, name), count)
        })
        .collect();
    if counts.is_empty() {
        return "none".to_owned();
    }
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let shown: Vec<&str> = counts.iter().take(20).map(|(name, _)| name.as_str()).collect();
    let more = counts.len().saturating_sub(shown.len());
    if more > 0 {
        format!("{} and {more} more", shown.join(", "))
    } else {
        shown.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn light_mode_prefers_the_native_collector_and_a_name_is_obeyed() {
        assert_eq!(order(TimelineTool::Auto, Mode::Deep)[0], Recorder::Nsys);
        assert_eq!(order(TimelineTool::Auto, Mode::Light)[0], Recorder::Native);
        assert_eq!(order(TimelineTool::Nsys, Mode::Light)[0], Recorder::Nsys);
        assert_eq!(order(TimelineTool::Native, Mode::Deep)[0], Recorder::Native);
    }
}
