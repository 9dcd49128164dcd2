//! A Python module configured by Hydra, with its output in the run directory and its own profilers off.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::context::ProgramContext;
use crate::child::{ChildError, probe};
use crate::command::CommandLine;

/// A Hydra module and its overrides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HydraModule {
    /// Python interpreter.
    pub python: PathBuf,
    /// Module name, as after `python -m`.
    pub module: String,
    /// Value for `+run.mode`; empty if the module has its own.
    pub mode: String,
    /// Value for `+inputs.manifest`, if there is one.
    pub manifest: Option<PathBuf>,
    /// Overrides that turn off measurements of the module; see [`HydraModule::default_light_overrides`].
    pub light_overrides: Vec<String>,
    /// Overrides of the user. They come last and win.
    pub overrides: Vec<String>,
}

impl HydraModule {
    /// Returns the overrides that turn off static analysis and torch.profiler in a stage 1 runner. A second profiler
    /// would block the counters that nsys and ncu need.
    pub fn default_light_overrides() -> Vec<String> {
        [
            "runners=stage1.no-static",
            "pipeline.torch_profiler.enable=false",
            "pipeline.static_analysis.enable=false",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    /// Builds `python -m MODULE ...` with the outputs of the module in `output`.
    pub fn command(&self, output: &Path, context: &ProgramContext) -> CommandLine {
        context.apply(self.line(output).env("PYTHONUNBUFFERED", "1"))
    }

    /// Asks the module, without running it, which injected overrides it accepts. Drops the others and returns them: not
    /// every module has a runner group or a profiler.
    pub fn drop_rejected_overrides(
        &mut self,
        output: &Path,
        context: &ProgramContext,
        limit: Duration,
    ) -> Result<Vec<String>, HydraError> {
        let mut dropped = Vec::new();
        loop {
            let line = context.apply(self.line(output).args(["--cfg", "job"]));
            let output = probe(&line, limit)?;
            if output.success {
                return Ok(dropped);
            }
            let text = output.text();
            if self.drop_existing_key(&text, &mut dropped) {
                continue;
            }
            let Some(rejected) = self.rejected_override(&text) else {
                return Err(HydraError::Rejected {
                    command: line.to_string(),
                    ended: output.ended,
                    output: last_lines(&text, 12),
                });
            };
            dropped.push(self.light_overrides.remove(rejected));
        }
    }

    /// Handles a key that cannot be added because the module has it: drops the mode, sets the requested manifest.
    fn drop_existing_key(&mut self, error: &str, dropped: &mut Vec<String>) -> bool {
        if !self.mode.is_empty() && error.contains("already at 'run.mode'") {
            let mode = std::mem::take(&mut self.mode);
            dropped.push(format!("+run.mode={mode} (the module has its own run.mode)"));
            return true;
        }
        if let Some(manifest) = &self.manifest
            && error.contains("already at 'inputs.manifest'")
        {
            let set = assign("inputs.manifest", &manifest.to_string_lossy());
            self.manifest = None;
            self.overrides.insert(0, set);
            return true;
        }
        false
    }

    /// Finds the injected override that an error names.
    fn rejected_override(&self, error: &str) -> Option<usize> {
        self.light_overrides.iter().position(|text| {
            let key = key(text);
            // Hydra names the missing group, the missing option, or the key that is not in the configuration.
            error.contains(&format!("'{key}'"))
                || error.contains(&format!("'{key}="))
                || error.contains(&format!("full_key: {key}"))
                || error.contains(&format!("{key}/"))
                || key.rsplit_once('.').is_some_and(|(parent, leaf)| {
                    error.contains(&format!("Key '{leaf}'"))
                        || parent
                            .split('.')
                            .any(|part| error.contains(&format!("Key '{part}'")))
                })
        })
    }

    fn line(&self, output: &Path) -> CommandLine {
        let mut own = vec![
            assign("hydra.run.dir", &output.to_string_lossy()),
            "hydra.job.chdir=true".to_owned(),
        ];
        if !self.mode.is_empty() {
            own.push(assign("+run.mode", &self.mode));
        }
        if let Some(manifest) = &self.manifest {
            own.push(assign("+inputs.manifest", &manifest.to_string_lossy()));
        }
        own.extend(self.light_overrides.iter().cloned());
        // Hydra rejects a group given twice, and `+` for an existing key: only the override of the user counts.
        own.retain(|text| !self.overrides.iter().any(|other| key(other) == key(text)));
        CommandLine::new(&self.python)
            .args(["-m", &self.module])
            .args(own)
            .args(self.overrides.iter().map(String::as_str))
    }
}

/// Failure to configure a Hydra module.
#[derive(Debug, thiserror::Error)]
pub enum HydraError {
    /// The module cannot be started.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// The module rejects its configuration.
    #[error("the module rejects its configuration: it {ended}\n{output}\nto reproduce: {command}")]
    Rejected {
        /// Command line.
        command: String,
        /// Description of the end.
        ended: String,
        /// Last lines of the output.
        output: String,
    },
}

/// Extracts the key of an override, without `+`, `++`, `~` and `@package`.
fn key(text: &str) -> &str {
    let key = text.split('=').next().unwrap_or(text);
    let key = key.trim_start_matches(['+', '~']);
    key.split('@').next().unwrap_or(key)
}

fn assign(key: &str, value: &str) -> String {
    format!("{key}={}", quote(value))
}

/// Quotes a value for the grammar of Hydra: plain words as they are, others in single quotes, where only quotes,
/// backslashes before quotes, and interpolations have a meaning.
fn quote(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':' | '@' | '%');
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    let mut quoted = String::from("'");
    let mut backslashes = 0;
    for c in value.chars() {
        match c {
            '\\' => backslashes += 1,
            _ => {
                // Backslashes are doubled only before a quote.
                let written = if c == '\'' { backslashes * 2 } else { backslashes };
                quoted.extend(std::iter::repeat_n('\\', written));
                backslashes = 0;
                if c == '\'' {
                    quoted.push('\\');
                }
                quoted.push(c);
            }
        }
    }
    quoted.extend(std::iter::repeat_n('\\', backslashes * 2));
    quoted.push('\'');
    quoted.replace("${", "\\${")
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines
        .get(lines.len().saturating_sub(count)..)
        .unwrap_or_default()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::context::example;
    use super::*;

    fn module() -> HydraModule {
        HydraModule {
            python: "python3".into(),
            module: "app.runner".into(),
            mode: "deep".into(),
            manifest: Some("/data/in puts.yaml".into()),
            light_overrides: HydraModule::default_light_overrides(),
            overrides: vec!["device=cuda:0".to_owned()],
        }
    }

    #[test]
    fn outputs_go_into_the_run_and_profilers_are_off() {
        assert_eq!(
            module()
                .command(Path::new("/runs/1/baseline/out"), &example())
                .argv(),
            [
                "python3",
                "-m",
                "app.runner",
                "hydra.run.dir=/runs/1/baseline/out",
                "hydra.job.chdir=true",
                "+run.mode=deep",
                "+inputs.manifest='/data/in puts.yaml'",
                "runners=stage1.no-static",
                "pipeline.torch_profiler.enable=false",
                "pipeline.static_analysis.enable=false",
                "device=cuda:0",
            ]
        );
    }

    #[test]
    fn keys_that_exist_in_the_module() {
        let (mut module, mut dropped) = (module(), Vec::new());
        let taken = |key: &str| format!("Could not append to config. An item is already at '{key}'.");
        assert!(module.drop_existing_key(&taken("run.mode"), &mut dropped));
        assert!(module.drop_existing_key(&taken("inputs.manifest"), &mut dropped));
        for key in ["run.mode", "inputs.manifest", "another"] {
            assert!(
                !module.drop_existing_key(&taken(key), &mut dropped),
                "{key} a second time"
            );
        }
        assert_eq!(dropped.len(), 1);
        let argv = module.command(Path::new("/o"), &example()).argv();
        assert!(!argv.iter().any(|word| word.contains("run.mode")), "{argv:?}");
        assert!(
            argv.contains(&"inputs.manifest='/data/in puts.yaml'".to_owned()),
            "{argv:?}"
        );
    }

    #[test]
    fn overrides_of_the_user_replace_injected_ones() {
        let mut module = module();
        module.overrides = ["runners=mine", "hydra.job.chdir=false", "++run.mode=light"]
            .map(str::to_owned)
            .to_vec();
        let argv = module.command(Path::new("/o"), &example()).argv();
        assert_eq!(
            argv.iter()
                .filter(|word| word.contains("runners"))
                .collect::<Vec<_>>(),
            ["runners=mine"]
        );
        assert_eq!(
            argv.iter()
                .filter(|word| word.contains("run.mode"))
                .collect::<Vec<_>>(),
            ["++run.mode=light"]
        );
        assert_eq!(
            argv.iter()
                .filter(|word| word.contains("chdir"))
                .collect::<Vec<_>>(),
            ["hydra.job.chdir=false"]
        );
    }

    #[test]
    fn keys_of_overrides() {
        for (text, expected) in [
            ("a.b=c=d", "a.b"),
            ("+a=1", "a"),
            ("++a=1", "a"),
            ("~a.b", "a.b"),
            ("db@pkg=mysql", "db"),
        ] {
            assert_eq!(key(text), expected);
        }
    }

    #[test]
    fn values_are_quoted_for_hydra() {
        for (value, quoted) in [
            ("/plain/path-1.0_x", "/plain/path-1.0_x"),
            ("", "''"),
            ("a b", "'a b'"),
            ("a=b,c", "'a=b,c'"),
            ("it's", r"'it\'s'"),
            (r"back\slash", r"'back\slash'"),
            (r"end\", r"'end\\'"),
            (r"odd\'", r"'odd\\\''"),
            ("${x}", r"'\${x}'"),
        ] {
            assert_eq!(quote(value), quoted);
        }
    }
}
