//! Prepares a program to run with a dormant collector.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use roofgap_base::file::write_atomic;
use roofgap_collect::command::{CommandLine, word_text};
use roofgap_collect::program::{Annotation, Phase, ProgramContext, Scripts, UserCommand};
use roofgap_collect::watch::{Registry, Watched};

use super::capture::LONGEST_WINDOW;
use super::error::AttachError;
use crate::run::native::NativeLibrary;

/// Size limit of the two files of a process, MB. Half of it is the limit of a window.
const MAX_MB: u64 = 16_384;

/// Time beyond the longest window after which the collector turns itself off.
const ARMED_MARGIN: Duration = Duration::from_secs(10);

/// A program to watch.
#[derive(Debug)]
pub struct WatchPlan {
    /// Command line with the collector in its environment.
    pub command: CommandLine,
    /// Registration.
    pub watched: Watched,
}

/// Registers this process as the program and writes the files that it needs. The caller then replaces itself by the program, so that
/// standard streams, signals and exit status are the program's own. `None` if there are no words. Captures record one of `duty`
/// steps.
pub fn watch(
    registry: &Registry,
    words: &[OsString],
    library: &NativeLibrary,
    duty: NonZeroU32,
) -> Result<Option<WatchPlan>, AttachError> {
    if words.is_empty() {
        return Ok(None);
    }
    let watched = registry.register(words.iter().map(|word| word_text(word)).collect())?;
    let files = &watched.registration.files;
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| AttachError::Write { path, source }
    };
    std::fs::create_dir_all(watched.captures()).map_err(failed(files))?;
    let collector = files.join("libroofgap_inject.so");
    write_atomic(&collector, library.bytes).map_err(failed(&collector))?;
    let scripts = Scripts::install(&files.join("scripts")).map_err(failed(files))?;
    let command = command(words, &watched, &collector, &scripts, duty);
    Ok(command.map(|command| WatchPlan { command, watched }))
}

/// Builds the command line.
fn command(
    words: &[OsString],
    watched: &Watched,
    collector: &Path,
    scripts: &Scripts,
    duty: NonZeroU32,
) -> Option<CommandLine> {
    let program = UserCommand {
        words: words.to_vec(),
        annotation: Some(Annotation::from_env(&scripts.annotate, false)),
    };
    let context = ProgramContext {
        run_dir: watched.registration.files.clone(),
        phase: Phase::Timeline,
        account: watched.account(),
        cwd: None,
        env: Vec::new(),
    };
    let line = program
        .command(&context)?
        .env("CUDA_INJECTION64_PATH", collector)
        .env("NVTX_INJECTION64_PATH", collector)
        .env("ROOFGAP_NATIVE_DIR", watched.captures())
        .env("ROOFGAP_NATIVE_CONTROL", &watched.sockets)
        // The first capture loads CUPTI. Kernels of CUDA graphs from before are recorded, too.
        .env("ROOFGAP_NATIVE_DORMANT", "lazy")
        .env("ROOFGAP_NATIVE_DUTY", duty.to_string())
        // Annotations are recorded all the time. Files that a window does not need are dropped, but not within a window.
        .env("ROOFGAP_NATIVE_LAST_MS", (6 * LONGEST_WINDOW.as_millis()).to_string())
        .env("ROOFGAP_NATIVE_MAX_MB", MAX_MB.to_string())
        // A capture that was killed leaves the collector armed.
        .env("ROOFGAP_NATIVE_MAX_S", (LONGEST_WINDOW + ARMED_MARGIN).as_secs().to_string());
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_collect::watch::Registration;
    use roofgap_runs::config::settings::DUTY;
    use std::ffi::OsStr;

    #[test]
    fn the_collector_is_in_the_environment_and_dormant() {
        let watched = Watched {
            registration: Registration {
                pid: 7,
                start: 1,
                started: String::new(),
                command: Vec::new(),
                socket: "/run/7-1/7.sock".into(),
                files: "/tmp/7-1".into(),
            },
            sockets: "/run/7-1".into(),
        };
        let scripts = Scripts { driver: "/s/driver.py".into(), annotate: "/s/annotate".into() };
        let words: Vec<OsString> = ["vllm", "serve", "m"].map(OsString::from).to_vec();
        let collector = Path::new("/tmp/7-1/lib.so");
        let line = command(&words, &watched, collector, &scripts, DUTY).unwrap();
        assert_eq!(line.argv(), ["vllm", "serve", "m"]);
        for (name, value) in [
            ("CUDA_INJECTION64_PATH", "/tmp/7-1/lib.so"),
            ("NVTX_INJECTION64_PATH", "/tmp/7-1/lib.so"),
            ("ROOFGAP_NATIVE_DIR", "/tmp/7-1/captures"),
            ("ROOFGAP_NATIVE_CONTROL", "/run/7-1"),
            ("ROOFGAP_NATIVE_DORMANT", "lazy"),
            ("ROOFGAP_NATIVE_DUTY", "16"),
            ("ROOFGAP_NATIVE_LAST_MS", "3600000"),
            ("ROOFGAP_NATIVE_MAX_S", "610"),
            ("ROOFGAP_WORKLOAD_JSON", "/tmp/7-1/workload.json"),
        ] {
            assert_eq!(line.env_value(name), Some(Some(OsStr::new(value))), "{name}");
        }
    }
}
