//! What a user points at: captures, reports of nsys and run directories, told apart by content and analysed as one.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use roofgap_analyze::gpu::UserLimits;
use roofgap_analyze::model::{Architecture, Tokens};
use roofgap_analyze::{Options, StageError, StageSet};
use roofgap_collect::child::{Cancel, Job, Sink, run};
use roofgap_collect::nsys;
use roofgap_collect::tool::{Nsys, Search, Version};
use roofgap_report::Context;
use roofgap_trace::gzip::Unpacked;
use roofgap_trace::{ReadError, Trace};
use tempfile::TempDir;

use crate::session::{self, Loaded, SessionError};

/// What the user states beside the files; it goes before what the files say.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// Stages to replace or add, as `NAME=PATTERN`.
    pub stages: Vec<String>,
    /// The model that ran.
    pub model: Option<Architecture>,
    /// Tokens of a run.
    pub tokens: Tokens,
    /// Limits of the device.
    pub limits: UserLimits,
}

/// Why inputs could not be analysed.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// A file could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A stage could not be understood.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// A run could not be read.
    #[error(transparent)]
    Run(#[from] SessionError),
    /// A run directory among other inputs.
    #[error(
        "{}: a run directory holds its own timeline and counters and cannot be joined with {}; analyse it alone, or compare \
         the two with `roofgap compare`",
        path.display(),
        other.display()
    )]
    NotAlone {
        /// The run directory.
        path: PathBuf,
        /// What was given with it.
        other: PathBuf,
    },
    /// A report of nsys, and no nsys that could export it.
    #[error(
        "{}: a report of nsys {made_by}, which only nsys can export, and {why}; install Nsight Systems, name it with --nsys, or \
         export it elsewhere with `nsys export --type=sqlite` and give the .sqlite",
        path.display()
    )]
    NoNsys {
        /// The report.
        path: PathBuf,
        /// The version that made it.
        made_by: String,
        /// Why no nsys can be used.
        why: String,
    },
    /// The nsys at hand could not export it.
    #[error(
        "{}: a report of nsys {made_by} that {} could not export: {why}; an older nsys cannot read the report of a newer one",
        path.display(),
        nsys.display()
    )]
    Export {
        /// The report.
        path: PathBuf,
        /// The version that made it.
        made_by: String,
        /// The nsys that was tried.
        nsys: PathBuf,
        /// What it said.
        why: String,
    },
    /// The user ended it.
    #[error("interrupted while nsys exported {}", path.display())]
    Interrupted {
        /// The report.
        path: PathBuf,
    },
    /// No room for what is exported.
    #[error("cannot make a temporary copy of {}: {source}; set TMPDIR to a folder with room", path.display())]
    Temporary {
        /// The input.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// How long an export may take: reports of hours of recording are many gigabytes.
const EXPORT_LIMIT: Duration = Duration::from_secs(3600);

/// What every report of nsys begins with, whatever its version; the version follows.
const REPORT_MAGIC: &[u8] = b"NVIDIA Tegra Profiler Report ";

/// The nsys that exports a report.
#[derive(Debug, Clone)]
pub struct Exporter {
    /// Where it is looked for.
    pub search: Search,
    /// Who may end it.
    pub cancel: Cancel,
}

/// Analyses what the user named: files that are joined, or one run directory. Nothing is written beside the inputs.
pub fn load(paths: &[PathBuf], given: &Given, exporter: &Exporter) -> Result<Loaded, InputError> {
    let mut stages = StageSet::default();
    for stage in &given.stages {
        stages.set(stage)?;
    }
    if let Some(run) = paths.iter().find(|path| is_run(path)) {
        return match paths.iter().find(|path| *path != run) {
            Some(other) => Err(InputError::NotAlone {
                path: run.clone(),
                other: other.clone(),
            }),
            None => Ok(session::load(run, given)?),
        };
    }
    let input = {
        let exports = paths
            .iter()
            .map(|path| Export::of(path, exporter))
            .collect::<Result<Vec<_>, _>>()?;
        let files: Vec<PathBuf> = paths
            .iter()
            .zip(&exports)
            .map(|(path, export)| export.as_ref().map_or(path, |export| &export.sqlite).clone())
            .collect();
        let mut input = roofgap_trace::read(&files)?;
        for export in exports.iter().flatten() {
            export.give_back_the_name(&mut input.trace);
        }
        input
    };
    let options = Options {
        stages,
        counters: input.counters,
        model: given.model.clone(),
        limits: given.limits,
        tokens: given.tokens.clone(),
        account: input.account,
        ..Options::default()
    };
    let title: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let analyzed = roofgap_analyze::analyze(&input.trace, &options);
    Ok(Loaded {
        analysis: analyzed.analysis,
        stages: analyzed.stages,
        trace: input.trace,
        context: Context {
            title: title.join(", "),
            ..Context::default()
        },
        unreadable: Vec::new(),
    })
}

/// Whether a path is the directory of a run.
pub fn is_run(path: &Path) -> bool {
    path.join("session.json").is_file()
}

/// Whether a file is a report of nsys, which has to be exported before it can be read.
pub fn is_report(path: &Path) -> bool {
    report_head(path).is_some()
}

/// The SQLite export of a report, in a folder that goes with it.
struct Export {
    /// The report, as the user named it.
    report: PathBuf,
    sqlite: PathBuf,
    _folder: TempDir,
}

impl Export {
    /// The export of `path`, if it is a report of nsys.
    fn of(path: &Path, exporter: &Exporter) -> Result<Option<Self>, InputError> {
        let Some(head) = report_head(path) else {
            return Ok(None);
        };
        let made_by = version(&head);
        let found = Nsys::find(&exporter.search);
        let Some(tool) = found.tool else {
            let tried: Vec<String> = found
                .rejected
                .iter()
                .map(|rejected| format!("{}: {}", rejected.path.display(), rejected.why))
                .collect();
            return Err(InputError::NoNsys {
                path: path.to_owned(),
                made_by,
                why: match (&exporter.search.named, tried.is_empty()) {
                    (Some(named), true) => format!("{} is not a program", named.display()),
                    (None, true) => "none was found here".to_owned(),
                    (_, false) => format!("none here can be used ({})", tried.join("; ")),
                },
            });
        };
        let temporary = |source| InputError::Temporary {
            path: path.to_owned(),
            source,
        };
        let folder = tempfile::Builder::new()
            .prefix("roofgap-")
            .tempdir()
            .map_err(temporary)?;
        let report = if head.packed {
            unpacked(path, folder.path()).map_err(temporary)?
        } else {
            // The tool may be started elsewhere; and a name that begins with a dash is no option.
            std::path::absolute(path).map_err(temporary)?
        };
        let sqlite = folder.path().join("report.sqlite");
        let failed = |why: String| InputError::Export {
            path: path.to_owned(),
            made_by: made_by.clone(),
            nsys: tool.path.clone(),
            why,
        };
        let command = nsys::export(&tool, &report, &sqlite);
        let memory = || Sink::Memory { cap: 1 << 20 };
        let mut job = Job::new(&command, memory(), memory());
        job.budget.time = Some(EXPORT_LIMIT);
        job.cancel = exporter.cancel.clone();
        let outcome = run(job, &mut |_| {}).map_err(|error| failed(error.to_string()))?;
        if exporter.cancel.is_requested() {
            return Err(InputError::Interrupted {
                path: path.to_owned(),
            });
        }
        // Status 0 proves nothing without the file; and a file is not whole where the export broke off.
        let size = std::fs::metadata(&sqlite).map_or(0, |facts| facts.len());
        if size == 0 || !outcome.is_success() {
            let said = last_line(outcome.last_words());
            return Err(failed(format!("it {} and said: {said}", outcome.describe())));
        }
        Ok(Some(Export {
            report: path.to_owned(),
            sqlite,
            _folder: folder,
        }))
    }

    /// A reader knows the file by the name the user gave, not by that of the export.
    fn give_back_the_name(&self, trace: &mut Trace) {
        let exported = self.sqlite.display().to_string();
        for source in trace.sources.iter_mut().filter(|source| source.path == exported) {
            source.path = self.report.display().to_string();
        }
    }
}

/// The beginning of a report.
struct ReportHead {
    bytes: Vec<u8>,
    packed: bool,
}

/// The first bytes of a file if they are those of a report of nsys. What cannot be read is left to the readers to complain of.
fn report_head(path: &Path) -> Option<ReportHead> {
    let begins = |from: &mut dyn Read| {
        let mut bytes = Vec::new();
        from.take(128).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    };
    if !path.is_file() {
        return None;
    }
    let bytes = begins(&mut File::open(path).ok()?)?;
    let packed = bytes.starts_with(&[0x1f, 0x8b]);
    let bytes = if packed {
        begins(&mut Unpacked::open(path).ok()?)?
    } else {
        bytes
    };
    bytes
        .starts_with(REPORT_MAGIC)
        .then_some(ReportHead { bytes, packed })
}

/// The version that made a report: `2023@4@4@54-234433681190v0.` follows the magic.
fn version(head: &ReportHead) -> String {
    let rest = head.bytes.get(REPORT_MAGIC.len()..).unwrap_or_default();
    let text: String = rest
        .iter()
        .take_while(|byte| byte.is_ascii_digit() || **byte == b'@')
        .map(|&byte| if byte == b'@' { '.' } else { char::from(byte) })
        .collect();
    Version::find(&text).map_or_else(|| "of unknown version".to_owned(), |_| text)
}

fn unpacked(path: &Path, folder: &Path) -> io::Result<PathBuf> {
    let target = folder.join("report.nsys-rep");
    io::copy(&mut Unpacked::open(path)?, &mut File::create_new(&target)?)?;
    Ok(target)
}

/// The end of what a tool said, on one line.
fn last_line(text: &str) -> String {
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    line.map_or_else(|| "nothing".to_owned(), |line| line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn nowhere() -> Exporter {
        Exporter {
            search: Search {
                named: None,
                path: Vec::new(),
                root: None,
            },
            cancel: Cancel::new(),
        }
    }

    fn report(packed: bool) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("capture");
        let bytes = b"NVIDIA Tegra Profiler Report 2025@3@1@90-253135822126v0.\n\x0bLocal (CLI)";
        let file = File::create(&path).unwrap();
        if packed {
            let mut file = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
            file.write_all(bytes).unwrap();
            file.finish().unwrap();
        } else {
            (&file).write_all(bytes).unwrap();
        }
        (folder, path)
    }

    #[test]
    fn a_report_without_an_nsys_names_its_version_and_the_remedy() {
        for packed in [false, true] {
            let (_folder, path) = report(packed);
            let error = load(&[path], &Given::default(), &nowhere())
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("nsys 2025.3.1.90, which only nsys can export"),
                "{error}"
            );
            assert!(
                error.contains("--nsys") && error.contains("nsys export"),
                "{error}"
            );
        }
    }

    #[test]
    fn an_nsys_that_makes_no_file_is_quoted() {
        let (folder, path) = report(false);
        let tool = folder.path().join("nsys");
        std::fs::write(
            &tool,
            "#!/bin/sh\ncase \"$1\" in --version) echo 'NVIDIA Nsight Systems version 2023.4.4.54';; \
             export) case \"$2\" in --help) ;; *) echo 'this report is too new' >&2;; esac;; esac\n",
        )
        .unwrap();
        std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut exporter = nowhere();
        exporter.search.named = Some(tool);
        let before: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .flatten()
            .map(|e| e.path())
            .collect();
        let error = load(&[path], &Given::default(), &exporter)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("2025.3.1.90") && error.contains("this report is too new"),
            "{error}"
        );
        let after: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .flatten()
            .map(|e| e.path())
            .collect();
        assert_eq!(before, after);
    }

    #[test]
    fn a_run_directory_is_analysed_alone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("session.json"), "{}").unwrap();
        let paths = [folder.path().to_owned(), PathBuf::from("other.sqlite")];
        let error = load(&paths, &Given::default(), &nowhere()).unwrap_err();
        assert!(matches!(error, InputError::NotAlone { .. }), "{error}");
    }

    #[test]
    fn a_stage_that_is_none_is_an_error_before_anything_is_read() {
        let given = Given {
            stages: vec!["decode".to_owned()],
            ..Given::default()
        };
        let error = load(&[PathBuf::from("absent")], &given, &nowhere()).unwrap_err();
        assert!(matches!(error, InputError::Stage(_)), "{error}");
    }
}
