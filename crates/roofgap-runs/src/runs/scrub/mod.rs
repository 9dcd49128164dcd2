//! Packs what can be shared of a run, without host names, user names, home paths and secrets.
//!
//! The archive is built from a list: each file in it is written again by a rule here, and what has no rule stays out. Of recordings
//! that is the timeline, as Perfetto's format has it. The run itself is not changed.

mod private;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use roofgap_analyze::{Analysis, StageIndex};
use roofgap_base::clock;
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_base::file::{Unpacked, copy_hashed, read_text, write_atomic_with};
use roofgap_report::export::timeline;
use roofgap_report::{Bundle, Context, ReportFile};
use roofgap_trace::ncu;
use serde::Serialize;
use serde_json::Value;

use super::artifacts::{FoundFile, files, in_progress};
use crate::config::read_yaml;
use crate::open::run::{Run, context};
use crate::open::{Opened, Overrides};
use crate::run_dir::folder::{RunState, read_json, run_state};
use crate::run_dir::{Layout, RunRef, SessionRecord};
use private::Private;
pub use private::host_variables;

/// Schema of the result.
pub const SCHEMA: &str = "roofgap.scrub/2";

/// Result of packing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ScrubOutcome {
    /// Always [`SCHEMA`].
    pub schema: &'static str,
    /// Id of the run.
    pub run_id: String,
    /// Archive.
    pub pack: PathBuf,
    /// Size of the archive, bytes.
    pub bytes: u64,
    /// SHA-256 of the archive in hexadecimal.
    pub sha256: String,
    /// Files in it, by their paths in the run.
    pub packed: Vec<String>,
    /// Files of the run that are not in it.
    pub left_out: Vec<LeftOut>,
}

/// A file that is not in the archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Path below the folder of the run.
    pub path: String,
    /// Reason.
    pub why: String,
    /// True for a kind of file that is never packed, false for an error on this file.
    pub by_kind: bool,
}

impl ScrubOutcome {
    /// Returns the exit status: a file that is never packed is not a failure.
    pub fn exit(&self) -> Exit {
        if self.left_out.iter().all(|file| file.by_kind) { Exit::Done } else { Exit::Partial }
    }
}

/// Name of the timeline in an archive.
const TIMELINE: &str = "timeline.pftrace";

/// Returns the reason to leave a file out that is not on the list.
fn left_out(path: &str) -> &'static str {
    let plain = path.strip_suffix(".gz").unwrap_or(path);
    match plain.rsplit_once('.').map_or("", |(_, kind)| kind) {
        "nsys-rep" | "qdstrm" => "an nsys report holds the environment of every process; do not share it",
        "ncu-rep" => "an ncu report holds paths and modules of the program",
        "sqlite" | "rgcap" | "old" => "a recording holds facts of the machine; the archive has its timeline",
        "log" => "a log holds the output of the program",
        _ => "not on the list of what can be shared",
    }
}

/// Packs what can be shared of a run into a `.tar.gz` at `target`. `variables` are those of this machine, whose values are private.
///
/// # Errors
/// Fails for a run in progress, and where the archive cannot be written. An error on one file only leaves that file out.
pub fn scrub(run: &RunRef, variables: &[(String, String)], target: &Path) -> Result<ScrubOutcome, Error> {
    let layout = Layout::of(&run.path);
    let mut folders = std::iter::once(run.path.clone()).chain(layout.nodes());
    if folders.any(|folder| run_state(&folder) == RunState::UnderWay) {
        return Err(in_progress(run));
    }
    let failed = || Error::io("write", target);
    if fs::metadata(target).is_ok_and(|facts| !facts.is_file()) {
        return Err(failed()(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
    }
    let session = Run::open(&run.path).ok();
    let opened = session.as_ref().map(|session| session.open_recordings(&Overrides::default()));
    let private = gather(&layout, opened.as_ref(), variables);
    let run_id = run.id.clone();
    let mut outcome =
        ScrubOutcome { schema: SCHEMA, run_id, pack: target.to_owned(), ..ScrubOutcome::default() };
    // Without a name, so that a kill leaves nothing of it.
    let mut archive = tempfile::tempfile().map_err(failed())?;
    let mut tar = GzEncoder::new(BufWriter::new(&mut archive), Compression::new(6));
    let reports = render(&layout, session, &private).map_err(|error| error.to_string());
    let listed = files(&run.path)?;
    let is_hidden = |path: &String| path.split('/').any(|part| part.starts_with('.'));
    for path in listed.iter().map(FoundFile::name).filter(|path| !is_hidden(path)) {
        let name = private.clean(&path);
        let (why, by_kind) = match rewrite(&run.path, &path, &private, &reports) {
            None => (left_out(&path).to_owned(), true),
            Some(_) if name != path => ("its name holds private data".to_owned(), false),
            Some(Err(why)) => (private.clean(&why.to_string()), false),
            Some(Ok(bytes)) => {
                // The archive is compressed as a whole.
                let name = name.strip_suffix(".gz").unwrap_or(&name);
                let size = bytes.len() as u64;
                append(&mut tar, &format!("{}/{name}", run.id), size, &mut bytes.as_slice())
                    .map_err(failed())?;
                outcome.packed.push(name.to_owned());
                continue;
            }
        };
        outcome.left_out.push(LeftOut { path: name, why, by_kind });
    }
    if let Some(opened) = opened.filter(|opened| opened.trace.span().is_some()) {
        let mut file = write_timeline(opened, &private).map_err(failed())?;
        let size = file.stream_position().map_err(failed())?;
        file.rewind().map_err(failed())?;
        append(&mut tar, &format!("{}/{TIMELINE}", run.id), size, &mut file).map_err(failed())?;
        outcome.packed.push(TIMELINE.to_owned());
    }
    // Two blocks of zeros end an archive.
    tar.write_all(&[0; 2 * BLOCK]).map_err(failed())?;
    tar.finish().and_then(|mut file| file.flush()).and_then(|()| archive.rewind()).map_err(failed())?;
    let hash = write_atomic_with(target, |file| {
        // It stays readable by its owner only, who decides whom to share it with.
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        copy_hashed(&mut archive, file)
    });
    let hash = hash.map_err(failed())?;
    (outcome.bytes, outcome.sha256) = (hash.bytes, hash.sha256);
    Ok(outcome)
}

/// Collects what is private on this machine, and in the records and configurations of a run and of its nodes.
fn gather(layout: &Layout, opened: Option<&Opened>, variables: &[(String, String)]) -> Private {
    let mut private = Private::default();
    variables.iter().for_each(|(name, value)| private.variable(name, value));
    for layout in std::iter::once(layout.clone()).chain(layout.nodes().iter().map(|node| Layout::of(node))) {
        if let Ok(record) = SessionRecord::read(layout.root()) {
            private.arguments(&record.command_line);
            for command in record.phases.iter().flat_map(|phase| &phase.commands) {
                private.arguments(&command.argv);
                for (name, value) in &command.env {
                    private.variable(name, value.as_deref().unwrap_or_default());
                }
            }
        }
        let path = layout.config();
        let config = read_text(&path).ok().and_then(|text| read_yaml(&text, &path).ok());
        let env = config.as_ref().and_then(|config| config.pointer("/workload/env")?.as_object());
        for (name, value) in env.into_iter().flatten() {
            private.variable(name, value.as_str().unwrap_or_default());
        }
        let analysis = read_json::<Analysis>(&layout.metrics()).ok();
        let hosts = analysis.into_iter().flat_map(|analysis| analysis.ranks).filter_map(|rank| rank.host);
        hosts.for_each(|host| private.name(&host));
    }
    opened.and_then(|opened| opened.trace.host.as_deref()).into_iter().for_each(|host| private.name(host));
    private
}

type AnyError = Box<dyn std::error::Error>;

/// Renders the reports from the analysis alone, without hosts, paths and the environment of the machine.
fn render(layout: &Layout, session: Option<Run>, private: &Private) -> Result<Vec<ReportFile>, AnyError> {
    let mut document: Value = read_json(&layout.metrics())?;
    clean(&mut document, private);
    let mut analysis: Analysis = serde_json::from_value(document)?;
    for source in &mut analysis.sources {
        source.path = source.path.rsplit('/').next().unwrap_or_default().to_owned();
    }
    analysis.ranks.iter_mut().for_each(|rank| rank.host = None);
    let context = session.map(|run| context(&run.record, layout, &run.config));
    let mut context = Context { repeat: None, ..context.unwrap_or_default() };
    context.environment.retain(|(name, _)| ENVIRONMENT.contains(&name.as_str()));
    // Reasons quote messages of programs.
    context.phases.iter_mut().for_each(|phase| phase.why = None);
    let (stages, trace) = (&StageIndex::default(), None);
    Ok(roofgap_report::files(Bundle { analysis: &analysis, stages, trace, context: &context }))
}

/// Lines of the environment in a report that tell nothing of the machine.
const ENVIRONMENT: [&str; 5] = ["run", "started", "mode", "workload", "roofgap"];

/// Fields of documents that hold command lines, output of programs or names of machines.
const HOST_FACTS: [&str; 5] = ["command", "compare_command", "log_tail", "host", "uuid"];

/// Cleans the strings of a document, and empties those of [`HOST_FACTS`].
fn clean(value: &mut Value, private: &Private) {
    match value {
        Value::String(text) => *text = private.clean(text),
        Value::Array(values) => values.iter_mut().for_each(|value| clean(value, private)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if HOST_FACTS.contains(&name.as_str()) => text.clear(),
                    Value::Array(values) if HOST_FACTS.contains(&name.as_str()) => values.clear(),
                    value => clean(value, private),
                }
            }
        }
        _ => {}
    }
}

/// Writes the timeline: operations, calls, ranges and operators with their cleaned names.
fn write_timeline(mut opened: Opened, private: &Private) -> io::Result<File> {
    opened.trace.names.rewrite(|name| private.clean(name));
    for device in &mut opened.trace.devices {
        device.name = device.name.take().map(|name| private.clean(&name));
    }
    for stage in &mut opened.analysis.stages {
        stage.name = private.clean(&stage.name);
    }
    let mut file = tempfile::tempfile()?;
    let mut out = BufWriter::new(&mut file);
    timeline::write(opened.bundle(), &opened.trace, timeline::Format::Perfetto, &mut out)?;
    out.flush()?;
    drop(out);
    Ok(file)
}

/// Writes the file `name` of a run again, plain; `None` for one that is not on the list.
fn rewrite(
    root: &Path,
    name: &str,
    private: &Private,
    reports: &Result<Vec<ReportFile>, String>,
) -> Option<Result<Vec<u8>, AnyError>> {
    let open = || Unpacked::open(&root.join(name));
    let plain = name.strip_suffix(".gz").unwrap_or(name);
    let (folder, file) = plain.split_once('/').unwrap_or(("", plain));
    let is_csv = file.ends_with(".csv");
    let write = || match (folder, file) {
        ("", "metrics.json" | "report.md" | "kernels.md" | "operators.md")
        | ("", "stakeholder_summary.md" | "report.html") => {
            let report = reports.as_ref().map_err(String::clone)?.iter().find(|report| report.name == file);
            Ok(Some(report.ok_or("it is a report of another version")?.bytes.clone()))
        }
        ("", "try.json")
        | ("ncu", "plan.json")
        | ("torch", "operators.json")
        | ("baseline" | "nsys" | "native" | "torch" | "ncu", "workload.json") => {
            let mut document: Value = serde_json::from_reader(BufReader::new(open()?))?;
            clean(&mut document, private);
            Ok(Some(serde_json::to_vec_pretty(&document)?))
        }
        // A table of nsys holds names of kernels and calls.
        ("nsys", _) if is_csv && file.starts_with("summary_") => {
            Ok(Some(private.clean(&io::read_to_string(open()?)?).into_bytes()))
        }
        // Of a page of ncu, the columns of launches and metrics.
        ("ncu", _) if is_csv => {
            let mut page = Vec::new();
            ncu::write_launches(open()?, &mut page, &|text| private.clean(text))?;
            Ok(Some(page))
        }
        _ => Ok(None),
    };
    write().transpose()
}

/// Bytes of a block of a tar archive.
const BLOCK: usize = 512;

/// Adds a file to a tar archive (USTAR), without owner and group, which have names.
fn append(tar: &mut impl Write, name: &str, size: u64, content: &mut dyn Read) -> io::Result<()> {
    let now = clock::now().as_second();
    let padding = "\0".repeat(100_usize.saturating_sub(name.len()));
    // The sum of the header is taken with blanks in its place.
    let header = |sum: &str| {
        let rights = "0000644\x000000000\x000000000\x00";
        format!(
            "{name}{padding}{rights}{size:011o}\0{now:011o}\0{sum:8}0{:\0<100}ustar\0{:0<2}{:\0<247}",
            "", "", ""
        )
    };
    let sum: u32 = header("").bytes().map(u32::from).sum();
    let header = header(&format!("{sum:06o}\0"));
    if header.len() != BLOCK {
        return Err(io::Error::other(format!("{name} is too long or too large for a tar archive")));
    }
    tar.write_all(header.as_bytes())?;
    io::copy(content, tar)?;
    let rest = size.next_multiple_of(BLOCK as u64) - size;
    io::copy(&mut io::repeat(0).take(rest), tar).map(drop)
}
