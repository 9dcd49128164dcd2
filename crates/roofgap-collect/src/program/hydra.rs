//! A Python module configured by Hydra: its output into the run directory, its own profilers off.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::setting::Setting;
use crate::child::{Answer, ChildError, probe};
use crate::command::CommandLine;

/// A module and what is said to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hydra {
    /// The Python that runs it.
    pub python: PathBuf,
    /// The module, as after `python -m`.
    pub module: String,
    /// `run.mode`, which the module may look at; empty where it has one of its own.
    pub mode: String,
    /// `inputs.manifest`, where there is one.
    pub manifest: Option<PathBuf>,
    /// Overrides that turn off what the module measures itself; see [`Hydra::lightest`].
    pub quiet: Vec<String>,
    /// The user's overrides, as they are. They come last and win.
    pub overrides: Vec<String>,
}

impl Hydra {
    /// The overrides that make a runner of the first stage as light as it can be: no static analysis, no profiler of
    /// its own, which would hold the counters that nsys and ncu need.
    pub fn lightest() -> Vec<String> {
        [
            "runners=stage1.no-static",
            "pipeline.torch_profiler.enable=false",
            "pipeline.static_analysis.enable=false",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    /// `python -m MODULE ...`, the outputs of the module in `output`.
    pub fn command(&self, output: &Path, setting: &Setting) -> CommandLine {
        setting.apply(self.line(output).env("PYTHONUNBUFFERED", "1"))
    }

    /// Asks the module, without running it, which of the injected overrides it takes, and drops the others: not every
    /// module has a runner group or a profiler. Gives back what was dropped.
    pub fn settle(
        &mut self,
        output: &Path,
        setting: &Setting,
        limit: Duration,
    ) -> Result<Vec<String>, HydraError> {
        let mut dropped = Vec::new();
        loop {
            let line = setting.apply(self.line(output).args(["--cfg", "job"]));
            let answer = probe(&line, limit)?;
            if answer.ok {
                return Ok(dropped);
            }
            if self.yield_to_own(&answer, &mut dropped) {
                continue;
            }
            let Some(refused) = self.refused(&answer) else {
                let said = last_lines(&answer.text(), 12);
                return Err(HydraError::Refused {
                    command: line.to_string(),
                    how: answer.how,
                    said,
                });
            };
            dropped.push(self.quiet.remove(refused));
        }
    }

    /// A key that is to be added is there already: its mode is the module's own affair, while a manifest was asked for.
    fn yield_to_own(&mut self, answer: &Answer, dropped: &mut Vec<String>) -> bool {
        let said = answer.text();
        if !self.mode.is_empty() && said.contains("already at 'run.mode'") {
            let mode = std::mem::take(&mut self.mode);
            dropped.push(format!("+run.mode={mode} (it has a run.mode of its own)"));
            return true;
        }
        if let Some(manifest) = &self.manifest
            && said.contains("already at 'inputs.manifest'")
        {
            let set = assign("inputs.manifest", &manifest.to_string_lossy());
            self.manifest = None;
            self.overrides.insert(0, set);
            return true;
        }
        false
    }

    /// Which of the injected overrides an error speaks of.
    fn refused(&self, answer: &Answer) -> Option<usize> {
        let said = answer.text();
        self.quiet.iter().position(|text| {
            let key = key(text);
            // Hydra names a group it does not have, an option it does not have, or the key that is not in the structure.
            said.contains(&format!("'{key}'"))
                || said.contains(&format!("'{key}="))
                || said.contains(&format!("full_key: {key}"))
                || said.contains(&format!("{key}/"))
                || key.rsplit_once('.').is_some_and(|(parent, leaf)| {
                    said.contains(&format!("Key '{leaf}'"))
                        || parent
                            .split('.')
                            .any(|part| said.contains(&format!("Key '{part}'")))
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
        own.extend(self.quiet.iter().cloned());
        // Hydra refuses the same key twice for groups, and `+` where it is set already: the user's word counts alone.
        own.retain(|text| !self.overrides.iter().any(|other| key(other) == key(text)));
        CommandLine::new(&self.python)
            .args(["-m", &self.module])
            .args(own)
            .args(self.overrides.iter().map(String::as_str))
    }
}

/// Why a Hydra module cannot be profiled.
#[derive(Debug, thiserror::Error)]
pub enum HydraError {
    /// It could not be asked.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// It does not accept its configuration.
    #[error("the module does not accept its configuration: it {how}\n{said}\ntry it: {command}")]
    Refused {
        /// What was run.
        command: String,
        /// How that ended.
        how: String,
        /// What it said.
        said: String,
    },
}

/// The key of an override, without what Hydra allows around it: `+`, `++`, `~`, `@package`.
fn key(text: &str) -> &str {
    let key = text.split('=').next().unwrap_or(text);
    let key = key.trim_start_matches(['+', '~']);
    key.split('@').next().unwrap_or(key)
}

fn assign(key: &str, value: &str) -> String {
    format!("{key}={}", quote(value))
}

/// A value as Hydra's grammar reads it back. Plain words stand as they are; others go into single quotes, in which only
/// quotes, backslashes before them, and interpolations have a meaning.
pub fn quote(value: &str) -> String {
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
                // A run of backslashes counts double before a quote, and single elsewhere.
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
    use super::super::setting::example;
    use super::*;

    fn module() -> Hydra {
        Hydra {
            python: "python3".into(),
            module: "app.runner".into(),
            mode: "deep".into(),
            manifest: Some("/data/in puts.yaml".into()),
            quiet: Hydra::lightest(),
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
    fn keys_that_the_module_has_itself() {
        let said = |text: &str| Answer {
            ok: false,
            itself: true,
            how: "ended with status 1".to_owned(),
            stdout: String::new(),
            stderr: text.to_owned(),
        };
        let (mut module, mut dropped) = (module(), Vec::new());
        let taken = |key: &str| {
            said(&format!(
                "Could not append to config. An item is already at '{key}'."
            ))
        };
        assert!(module.yield_to_own(&taken("run.mode"), &mut dropped));
        assert!(module.yield_to_own(&taken("inputs.manifest"), &mut dropped));
        for key in ["run.mode", "inputs.manifest", "another"] {
            assert!(
                !module.yield_to_own(&taken(key), &mut dropped),
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
    fn the_users_word_counts_alone() {
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
