//! Records a timeline with the native collector, a library loaded into the program.

use std::path::PathBuf;

use roofgap_base::file::hash_file;
use roofgap_collect::nsys::GraphTrace;
use roofgap_collect::program::Phase;
use roofgap_trace::Input;

use super::{PHASE, read_complete};
use crate::run::context::{PhaseCommand, PhaseContext};
use crate::run::error::{AttemptError, ProgramError};
use crate::run::native::NativeLibrary;
use crate::run::phases::stage1_runner;
use crate::run::program::Program;
use roofgap_runs::config::Config;
use roofgap_runs::config::settings::{LayerRanges, Mode, Profiling};
use roofgap_runs::run_dir::Layout;

/// Describes the command of a recording: the program with the collector loaded into it.
pub fn command(config: &Config, layout: &Layout, program: &Program) -> Result<PhaseCommand, ProgramError> {
    let mut line = program
        .command(Phase::Timeline, &layout.native_account())?
        .env("CUDA_INJECTION64_PATH", layout.native_library())
        .env("NVTX_INJECTION64_PATH", layout.native_library())
        .env("ROOFGAP_NATIVE_DIR", layout.native());
    for (name, value) in settings(&config.profiling, config.run.mode) {
        line = line.env(name, value);
    }
    let limit = config.run.timeout.0;
    Ok(PhaseCommand::new(PHASE, line, layout.native(), "program", limit))
}

/// Returns the settings of the collector as variables of the environment.
fn settings(profiling: &Profiling, mode: Mode) -> Vec<(&'static str, String)> {
    let native = &profiling.native;
    let copies = native.copies.unwrap_or(mode == Mode::Deep);
    let graph = match native.graph {
        GraphTrace::Node => "node",
        GraphTrace::Graph => "graph",
    };
    let mut settings = vec![
        ("ROOFGAP_NATIVE_COPIES", u8::from(copies).to_string()),
        ("ROOFGAP_NATIVE_GRAPH", graph.to_owned()),
    ];
    if profiling.layers != LayerRanges::Off {
        // Engines capture their graphs as they start, also outside of the recorded steps.
        settings.push(("ROOFGAP_NATIVE_NODES", "always".to_owned()));
    }
    settings.push(("ROOFGAP_LAYERS", profiling.layers.as_str().to_owned()));
    settings.extend(native.duty_in(mode).map(|every| ("ROOFGAP_NATIVE_DUTY", every.to_string())));
    settings
}

/// Records with the native collector.
pub fn record(
    context: &mut PhaseContext<'_>,
    library: &NativeLibrary,
    program: &Program,
) -> Result<Input, AttemptError> {
    context.run_dir.folder("native")?;
    write_library(context, library)?;
    let command = command(context.config, &context.layout, program)?;
    let outcome = context.run(&command)?;
    // The record keeps the hash of the library.
    let _ = std::fs::remove_file(context.layout.native_library());
    let found = context.layout.native_captures();
    keep_main(&found);
    let found = context.layout.native_captures();
    let captures: Vec<PathBuf> = found.into_iter().filter(|capture| context.output(PHASE, capture)).collect();
    if captures.is_empty() {
        let how = if outcome.is_success() {
            "used neither CUDA nor NVTX ranges".to_owned()
        } else {
            outcome.describe()
        };
        let why = format!("the native collector left no capture: the program {how}");
        return Err(AttemptError::after(why, &outcome));
    }
    context.program_ended(PHASE, "the native collector", &outcome);
    let account = context.layout.native_account();
    stage1_runner::write_account(context, PHASE, Phase::Timeline, &account);
    context.output(PHASE, &account);
    read_complete(context, &captures, &outcome, account)
}

/// Keeps the captures of the load itself, where windows that measured the overhead of the collector followed them.
fn keep_main(captures: &[PathBuf]) {
    for path in captures {
        let main = path.to_string_lossy();
        if let Some(name) = main.strip_suffix(".main.rgcap") {
            // The windows are in the capture of that name, which is replaced.
            let _ = std::fs::rename(path, format!("{name}.rgcap"));
        }
    }
}

/// Writes the library and checks its hash.
fn write_library(context: &mut PhaseContext<'_>, library: &NativeLibrary) -> Result<(), AttemptError> {
    let path = context.layout.native_library();
    context.run_dir.write(&path, library.bytes)?;
    let found = hash_file(&path)?.sha256;
    if found != library.sha256 {
        let why = format!("{} has SHA-256 {found}, expected {}", path.display(), library.sha256);
        return Err(AttemptError::new(why));
    }
    context.record.note(PHASE, format!("native collector, SHA-256 {found}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_runs::config::{ConfigProps, compose};

    #[test]
    fn the_capture_of_the_load_replaces_that_of_the_windows_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let files = [("1-2.main.rgcap", "load"), ("1-2.rgcap", "windows"), ("3-4.rgcap", "other")];
        for (name, text) in files {
            std::fs::write(path(name), text).unwrap();
        }
        keep_main(&files.map(|(name, _)| path(name)));
        assert_eq!(std::fs::read_to_string(path("1-2.rgcap")).unwrap(), "load");
        assert_eq!(std::fs::read_to_string(path("3-4.rgcap")).unwrap(), "other");
        assert!(!path("1-2.main.rgcap").exists());
    }

    #[test]
    fn the_configuration_becomes_settings_of_the_collector() {
        let mut profiling = compose(&ConfigProps::default()).unwrap().config.profiling;
        let names = |profiling: &Profiling, mode| {
            let settings = settings(profiling, mode);
            settings.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        let deep = [
            "ROOFGAP_NATIVE_COPIES=1",
            "ROOFGAP_NATIVE_GRAPH=node",
            "ROOFGAP_NATIVE_NODES=always",
            "ROOFGAP_LAYERS=auto",
        ];
        assert_eq!(names(&profiling, Mode::Deep), deep, "deep mode records all");
        let light = names(&profiling, Mode::Light);
        assert_eq!(light[0], "ROOFGAP_NATIVE_COPIES=0");
        assert_eq!(light.last().map(String::as_str), Some("ROOFGAP_NATIVE_DUTY=16"));
        profiling.native.duty = std::num::NonZeroU32::new(4);
        let with_duty = names(&profiling, Mode::Deep);
        assert_eq!(with_duty[0], "ROOFGAP_NATIVE_COPIES=1");
        assert_eq!(with_duty.last().map(String::as_str), Some("ROOFGAP_NATIVE_DUTY=4"));
        profiling.native.duty = std::num::NonZeroU32::new(1);
        profiling.layers = LayerRanges::Off;
        let off = names(&profiling, Mode::Deep);
        assert_eq!(off.len(), 3, "one of one is all");
        assert_eq!(off[2], "ROOFGAP_LAYERS=off");
        assert_eq!(names(&profiling, Mode::Light).len(), 3, "also in light mode");
    }
}
