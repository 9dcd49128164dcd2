//! `roofgap open`, `demo` and `report`: pages of runs and captures, shown in the user's browser. The capture of `demo` is inside the binary:
//! a small Llama on an H200, its timeline and its counters.

use super::analyze::{exporter, write_reports};
use crate::args::{Demo, Open, Report};
use crate::printer::Printer;
use crate::reading::open as open_captures;
use roofgap_analyze::Options;
use roofgap_analyze::model::{Architecture, Tokens};
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_base::file::write_atomic;
use roofgap_record::run::attach::add_requests;
use roofgap_record::run::write_reports_with;
use roofgap_report::text;
use roofgap_runs::open::Overrides;
use roofgap_runs::run_dir::{Layout, locate};
use roofgap_runs::runs::resolve;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Opens the page of a run or a capture.
pub fn open(args: Open, dir: &Path, printer: &Printer) -> Result<Exit, Error> {
    let page = page(&args, dir, printer)?;
    printer.text(&format!("{}\n", page.display()))?;
    show_in_browser(&page, args.no_browser, printer);
    Ok(Exit::Done)
}

/// Opens a page, which is there also where no browser can be started.
fn show_in_browser(page: &Path, no_browser: bool, printer: &Printer) {
    if !no_browser && let Err(why) = open_in_browser(page) {
        printer.warning(&why);
    }
}

/// Finds the page of the input, or writes it.
fn page(args: &Open, dir: &Path, printer: &Printer) -> Result<PathBuf, Error> {
    let run = match args.inputs.as_slice() {
        [] => "latest",
        [one] if is_run_name(one) => one,
        [one] if Layout::of(Path::new(one)).page().is_file() => return Ok(Layout::of(Path::new(one)).page()),
        inputs => return capture_page(inputs, printer),
    };
    let run = resolve(dir, run)?.path;
    let page = Layout::of(&run).page();
    if !page.is_file() {
        printer.warnings(&write_reports_with(&run, &[])?.unreadable);
    }
    Ok(page)
}

/// Returns true for a run directory, and for an id or a part of one, which never has the form of a path.
fn is_run_name(text: &str) -> bool {
    let path = Path::new(text);
    locate::is_run(path) || (!path.exists() && !text.contains(['/', '.']))
}

/// Writes the reports of captures into a folder of their own, because nothing is written beside an input.
fn capture_page(inputs: &[String], printer: &Printer) -> Result<PathBuf, Error> {
    let inputs: Vec<PathBuf> = inputs.iter().map(PathBuf::from).collect();
    let opened = open_captures(&inputs, &Overrides::default(), &exporter(None), printer)?;
    write_reports(&kept_folder()?, &opened, printer)
}

/// Creates a folder for temporary files that stays, because a browser reads it later.
fn kept_folder() -> Result<PathBuf, Error> {
    // Others can list the folder for temporary files.
    let owner_only = std::fs::Permissions::from_mode(0o700);
    let folder = tempfile::Builder::new().prefix("roofgap-").permissions(owner_only).tempdir();
    folder.map(tempfile::TempDir::keep).map_err(Error::io("write", &std::env::temp_dir()))
}

/// Analyses the capture inside the binary and opens its page.
pub fn demo(args: Demo, printer: &Printer) -> Result<Exit, Error> {
    let folder = args.out.map_or_else(kept_folder, Ok)?;
    let captures = write_demo(&folder)?;
    let mut opened = open_captures(&captures, &demo_overrides(), &exporter(None), printer)?;
    opened.context.title = DEMO_TITLE.to_owned();
    let page = write_reports(&folder, &opened, printer)?;
    printer.text(&text::brief(&opened.analysis, printer.text_options(0)))?;
    printer.page(&page)?;
    show_in_browser(&page, args.no_browser, printer);
    Ok(Exit::Done)
}

/// Writes the reports of a run again.
pub fn report(args: Report, dir: &Path, printer: &Printer) -> Result<Exit, Error> {
    let run = resolve(dir, &args.run)?.path;
    if let Some(load) = &args.requests {
        add_requests(&run, load)?;
    }
    let rendered = write_reports_with(&run, &args.overrides)?;
    printer.warnings(&rendered.unreadable);
    let files = rendered.files.iter();
    let list: String = files.map(|file| format!("{}\n", file.display())).collect();
    printer.text(&list)?;
    Ok(if rendered.unreadable.is_empty() { Exit::Done } else { Exit::Partial })
}

/// Program that opens a file in the application the user has chosen for it.
const OPENER: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };

/// Variables of which one is set where a browser can show a page.
const DISPLAYS: [&str; 4] = ["DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME", "BROWSER"];

/// Time in which the opener reports an error. Some openers end with the browser only.
const PATIENCE: Duration = Duration::from_secs(2);

/// Opens a page. The browser outlives this process.
fn open_in_browser(page: &Path) -> Result<(), Error> {
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let failed = |why: String| Error::new(format!("no browser was opened: {why}; open the page yourself"));
    if !cfg!(target_os = "macos") && !DISPLAYS.iter().any(is_set) {
        return Err(failed("this session has no display".to_owned()));
    }
    let start = |error: std::io::Error| failed(format!("{OPENER} cannot be started: {error}"));
    let page: PathBuf = page.canonicalize().map_err(start)?;
    let mut opener = Command::new(OPENER)
        .arg(page)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C in this terminal does not reach the browser.
        .process_group(0)
        .spawn()
        .map_err(start)?;
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        match opener.try_wait().map_err(start)? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(failed(format!("{OPENER} ended with {status}"))),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    Ok(())
}

/// Title of the reports.
const DEMO_TITLE: &str = "demo: a Llama with 4 layers on an NVIDIA H200";

const CAPTURES: [(&str, &[u8]); 2] = [
    ("timeline.sqlite.gz", include_bytes!("../../demo/timeline.sqlite.gz")),
    ("counters.csv.gz", include_bytes!("../../demo/counters.csv.gz")),
];

/// Writes the captures into a folder and returns their paths.
fn write_demo(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    std::fs::create_dir_all(folder).map_err(Error::io("write", folder))?;
    let mut paths = Vec::new();
    for (name, bytes) in CAPTURES {
        let path = folder.join(name);
        write_atomic(&path, bytes).map_err(Error::io("write", &path))?;
        paths.push(path);
    }
    Ok(paths)
}

/// Returns the model and its tokens, which the captures do not name.
fn demo_overrides() -> Overrides {
    let config = serde_json::from_slice(include_bytes!("../../demo/config.json")).unwrap_or_default();
    let given = Options {
        // The test checks that the file describes a model.
        model: Architecture::from_config(&config).ok(),
        tokens: Tokens { prompt: Some(256), generated: Some(8), batch: Some(1), ..Tokens::default() },
        ..Options::default()
    };
    Overrides { given, ..Overrides::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_captures_are_the_fixtures() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
        let names = ["h200/llama4.sqlite.gz", "ncu/llama4_light_raw_base.csv.gz"];
        for ((name, bytes), fixture) in CAPTURES.into_iter().zip(names) {
            assert!(std::fs::read(fixtures.join(fixture)).unwrap() == bytes, "{name}");
        }
        let size: usize = CAPTURES.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(size < 1 << 20, "{size} bytes");
    }

    #[test]
    fn the_model_is_known() {
        assert!(demo_overrides().given.model.is_some());
    }
}
