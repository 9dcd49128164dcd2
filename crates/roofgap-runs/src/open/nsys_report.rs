//! Lets nsys export the reports whose form is not known here to SQLite.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_base::file::Unpacked;
use roofgap_collect::child::{Cancel, ChildSpec, OutputTarget, run};
use roofgap_collect::nsys;
use roofgap_collect::tool::{Nsys, Search, Version};
use roofgap_trace::{Input, REPORT_MAGIC, Sniffed, SourceFormat};

/// Time limit of an export. A report of hours of recording has many gigabytes.
const EXPORT_LIMIT: Duration = Duration::from_secs(3600);

/// nsys used for exports.
#[derive(Debug, Clone)]
pub struct Exporter {
    /// Search for nsys.
    pub search: Search,
    /// Cancellation flag.
    pub cancel: Cancel,
    /// Called before nsys runs, to let signals set the flag.
    pub before_export: fn(&Cancel),
}

impl Exporter {
    /// Creates an exporter that handles no signals.
    pub fn new(search: Search, cancel: Cancel) -> Self {
        Self { search, cancel, before_export: |_| {} }
    }
}

/// Lets nsys export a report and reads the export in its place. `unknown` names what is not read of the report here.
pub(super) fn read_exported(
    file: &Sniffed,
    unknown: &str,
    exporter: &Exporter,
    read: impl FnOnce(Sniffed) -> Result<Input, Error>,
) -> Result<Input, Error> {
    let path = &file.path;
    let temporary = |source: io::Error| {
        let path = path.display();
        Error::new(format!(
            "cannot write a temporary copy of {path}: {source}; set TMPDIR to a folder with space"
        ))
    };
    let made_by = version(path).map_err(temporary)?;
    let search = Nsys::find(&exporter.search);
    let Some(tool) = search.tool else {
        let why = match (search.tried(), &exporter.search.named) {
            (Some(tried), _) => format!("none is usable ({tried})"),
            (None, Some(named)) => format!("{} is not executable", named.display()),
            (None, None) => "none was found".to_owned(),
        };
        return Err(Error::new(format!(
            "{}: a report of nsys {made_by} with {unknown}, which only nsys can export, and {why}; install Nsight Systems, name it \
                 with --set profiling.nsys.path=FILE, or export it elsewhere with `nsys export --type=sqlite` and give the .sqlite",
            path.display()
        )));
    };
    let folder = tempfile::Builder::new()
        .prefix("roofgap-")
        .permissions(std::fs::Permissions::from_mode(0o700))
        .tempdir()
        .map_err(temporary)?;
    let report = if file.packed {
        unpacked(path, folder.path()).map_err(temporary)?
    } else {
        // An absolute path is never taken for an option.
        std::path::absolute(path).map_err(temporary)?
    };
    let sqlite = folder.path().join("report.sqlite");
    let failed = |why: String| {
        Error::new(format!(
            "{}: a report of nsys {made_by} that {} failed to export: {why}; an older nsys cannot read the report of a newer one",
            path.display(),
            tool.path.display()
        ))
    };
    (exporter.before_export)(&exporter.cancel);
    let command = nsys::export(&tool, &report, &sqlite);
    let memory = || OutputTarget::Memory { max_bytes: 1 << 20 };
    let mut child = ChildSpec::new(&command, memory(), memory());
    child.budget.time = Some(EXPORT_LIMIT);
    child.cancel = exporter.cancel.clone();
    let outcome = run(child, &mut |_| {}).map_err(|error| failed(error.to_string()))?;
    if exporter.cancel.is_requested() {
        let why = format!("interrupted while nsys exported {}", path.display());
        return Err(Error::new(why).with_exit(Exit::Interrupted));
    }
    // Status 0 without a file is a failure, and so is a file without status 0.
    let size = std::fs::metadata(&sqlite).map_or(0, |facts| facts.len());
    if size == 0 || !outcome.is_success() {
        let last = last_line(outcome.output_tail());
        return Err(failed(format!("it {}, last output: {last}", outcome.describe())));
    }
    let exported = sqlite.display().to_string();
    let mut input = read(Sniffed { path: sqlite, format: SourceFormat::NsysSqlite, packed: false })?;
    // The user knows the report.
    for source in input.trace.sources.iter_mut().filter(|source| source.path == exported) {
        source.path = path.display().to_string();
    }
    Ok(input)
}

/// Reads the nsys version of a report: `2023@4@4@54-234433681190v0.` follows the first bytes.
fn version(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    Unpacked::open(path)?.take(128).read_to_end(&mut bytes)?;
    let rest = bytes.get(REPORT_MAGIC.len()..).unwrap_or_default();
    let text: String = rest
        .iter()
        .take_while(|byte| byte.is_ascii_digit() || **byte == b'@')
        .map(|&byte| if byte == b'@' { '.' } else { char::from(byte) })
        .collect();
    Ok(Version::find(&text).map_or_else(|| "of unknown version".to_owned(), |_| text))
}

fn unpacked(path: &Path, folder: &Path) -> io::Result<PathBuf> {
    let target = folder.join("report.nsys-rep");
    io::copy(&mut Unpacked::open(path)?, &mut File::create_new(&target)?)?;
    Ok(target)
}

/// Returns the last line of the output of a tool.
fn last_line(text: &str) -> String {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("nothing").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::{Overrides, open_inputs};
    use std::io::Write;
    use tempfile::TempDir;

    fn no_nsys() -> Exporter {
        Exporter::new(Search { named: None, path: Vec::new(), root: None }, Cancel::new())
    }

    /// A report with events in a form that is not known.
    fn report(packed: bool) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("capture");
        let mut bytes = std::fs::read(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../fixtures/nsys-report/nsys-2023.4.4-cpu-nvtx.nsys-rep"
        ))
        .unwrap();
        let at = bytes.windows(8).position(|window| window == b"QDTEXT00").unwrap();
        bytes[at..at + 8].copy_from_slice(b"QDTEXT01");
        let file = File::create(&path).unwrap();
        if packed {
            let mut file = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
            file.write_all(&bytes).unwrap();
            file.finish().unwrap();
        } else {
            (&file).write_all(&bytes).unwrap();
        }
        (folder, path)
    }

    #[test]
    fn a_report_without_an_nsys_names_its_version() {
        for packed in [false, true] {
            let (_folder, path) = report(packed);
            let error = open_inputs(&[path], &Overrides::default(), &no_nsys()).unwrap_err();
            let error = error.to_string();
            assert!(
                error.contains("nsys 2023.4.4.54 with events of another form, which only nsys"),
                "{error}"
            );
        }
    }

    #[test]
    fn an_nsys_that_writes_no_file_is_quoted() {
        let (folder, path) = report(false);
        let tool = folder.path().join("nsys");
        std::fs::write(
            &tool,
            "#!/bin/sh\ncase \"$1\" in --version) echo 'NVIDIA Nsight Systems version 2023.4.4.54';; \
             export) case \"$2\" in --help) ;; *) echo 'this report is too new' >&2;; esac;; esac\n",
        )
        .unwrap();
        std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut exporter = no_nsys();
        exporter.search.named = Some(tool);
        let entries = || std::fs::read_dir(folder.path()).unwrap().count();
        let before = entries();
        let error = open_inputs(&[path], &Overrides::default(), &exporter).unwrap_err();
        let why = error.to_string();
        assert!(why.contains("nsys 2023.4.4.54 that") && why.contains("this report is too new"), "{why}");
        assert_eq!(entries(), before);
    }

    #[test]
    fn a_run_directory_is_loaded_alone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("session.json"), "{}").unwrap();
        let paths = [folder.path().to_owned(), PathBuf::from("other.sqlite")];
        let error = open_inputs(&paths, &Overrides::default(), &no_nsys()).unwrap_err();
        assert!(error.to_string().contains("analyse it alone"), "{error}");
    }

    #[test]
    fn a_malformed_stage_is_an_error_before_anything_is_read() {
        let overrides = Overrides { stages: vec!["decode".to_owned()], ..Overrides::default() };
        let error = open_inputs(&[PathBuf::from("absent")], &overrides, &no_nsys()).unwrap_err();
        assert!(error.to_string().contains("decode"), "{error}");
    }
}
