//! A request for a run, and the command line that serves it.

use std::path::Path;

use axum::http::StatusCode;
use roofgap_base::text::cut;
use roofgap_collect::command::CommandLine;
use roofgap_runs::config::{ConfigProps, compose, list};
use serde::{Deserialize, Serialize};

use crate::api_error::ApiError;
use crate::{Permissions, ServeProps};

/// Words of a command line at most.
const MOST_WORDS: usize = 256;

/// Body of `POST /profile/run`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    /// Presets, each `group=option`.
    #[serde(default)]
    pub presets: Vec<String>,
    /// Depth: `deep` or `light`.
    #[serde(default)]
    pub mode: Option<Mode>,
    /// Number of kernels with counters in each stage.
    #[serde(default)]
    pub top_n_kernels: Option<u32>,
    /// Program and arguments; needs `--allow-command`.
    #[serde(default)]
    pub command: Vec<String>,
    /// True to answer when the session has ended, with the result of `roofgap profile`.
    #[serde(default, skip_serializing)]
    pub wait: bool,
}

/// Depth of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// All phases.
    Deep,
    /// Fewer kernels and counters.
    Light,
}

impl RunRequest {
    /// Refuses what the server may not start.
    pub fn is_permitted(&self, permissions: Permissions) -> Result<(), ApiError> {
        let why = match permissions {
            Permissions { run: false, .. } => "this server starts no runs; start it with --allow-run",
            Permissions { command: false, .. } if !self.command.is_empty() => {
                "this server runs no command lines; start it with --allow-command"
            }
            _ => return Ok(()),
        };
        Err(ApiError::new(StatusCode::FORBIDDEN, why))
    }

    /// Refuses what the server may not start and what would not run.
    pub fn check(&self, permissions: Permissions, config_dir: Option<&Path>) -> Result<(), ApiError> {
        self.is_permitted(permissions)?;
        if self.command.len() > MOST_WORDS || self.presets.len() > MOST_WORDS {
            return Err(ApiError::body(format!("more than {MOST_WORDS} words")));
        }
        if self.command.iter().chain(&self.presets).any(|word| word.contains('\0')) {
            return Err(ApiError::body("a word contains a null character"));
        }
        let groups = list(config_dir)?;
        let is_preset = |text: &str| {
            text.split_once('=').is_some_and(|(group, option)| {
                let mut options = groups.iter().filter(|known| known.name == group).flat_map(|g| &g.options);
                options.any(|known| known.name == option)
            })
        };
        if let Some(unknown) = self.presets.iter().find(|text| !is_preset(text)) {
            let unknown = cut(unknown, 200);
            let why =
                format!("{unknown:?} is not a preset; `roofgap config list` lists them as group=option");
            return Err(ApiError::new(StatusCode::BAD_REQUEST, why));
        }
        compose(&ConfigProps {
            config_dir: config_dir.map(Path::to_owned),
            config: None,
            overrides: self.overrides(),
            program: self.command.clone(),
        })?;
        Ok(())
    }

    /// Builds the command line of the session.
    pub fn command_line(&self, props: &ServeProps) -> CommandLine {
        let mut line = CommandLine::new(&props.executable).args(["profile", "--format", "json"]);
        if let Some(folder) = &props.config_dir {
            line = line.arg("--config-dir").arg(folder);
        }
        let mut runs = std::ffi::OsString::from("artifacts.stage2_dir=");
        runs.push(&props.runs);
        line = line.args(self.overrides()).arg(runs);
        if self.command.is_empty() { line } else { line.arg("--").args(&self.command) }
    }

    fn overrides(&self) -> Vec<String> {
        let mut overrides = self.presets.clone();
        overrides.extend(self.mode.map(|mode| match mode {
            Mode::Deep => "run.mode=deep".to_owned(),
            Mode::Light => "run.mode=light".to_owned(),
        }));
        overrides.extend(self.top_n_kernels.map(|n| format!("run.top_n_kernels={n}")));
        overrides
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::guard::Token;
    use roofgap_collect::child::Cancel;

    const ALL: Permissions = Permissions { run: true, command: true };
    const PRESETS_ONLY: Permissions = Permissions { run: true, command: false };

    fn request(json: &str) -> RunRequest {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn only_known_presets_run_and_commands_need_their_own_permission() {
        let presets = request(r#"{"presets": ["workload=embedded", "runner=light"], "mode": "light"}"#);
        assert!(presets.check(PRESETS_ONLY, None).is_ok());
        let none = Permissions::default();
        let refused = |answer: Result<(), ApiError>| answer.unwrap_err().message;
        assert!(refused(presets.check(none, None)).contains("--allow-run"));
        let command = request(r#"{"command": ["/bin/true"]}"#);
        assert!(refused(command.check(PRESETS_ONLY, None)).contains("--allow-command"));
        assert!(command.check(ALL, None).is_ok());
        for preset in [
            "workload=nothing",
            "workload.python=/tmp/x",
            "+a.b=c",
            "~a.b",
            "artifacts.stage2_dir=/tmp",
            "model=../../etc",
            "--config=/etc/passwd",
            "workload",
            "",
        ] {
            let wanted = RunRequest { presets: vec![preset.to_owned()], ..RunRequest::default() };
            assert!(refused(wanted.check(ALL, None)).contains("is not a preset"), "{preset}");
        }
        assert!(serde_json::from_str::<RunRequest>(r#"{"artifacts.stage2_dir": "/tmp"}"#).is_err());
    }

    #[test]
    fn the_command_line_has_the_folder_of_the_runs_last() {
        let folder = tempfile::tempdir().unwrap();
        let props = ServeProps {
            runs: "/data/my runs".into(),
            listen: ([127, 0, 0, 1], 0).into(),
            token: Token::open(&folder.path().join("token")).unwrap().0,
            hosts: Vec::new(),
            tls: None,
            behind_tls_proxy: false,
            permissions: ALL,
            config_dir: Some("/presets".into()),
            executable: "/bin/roofgap".into(),
            version: "0".into(),
            limits: Limits::default(),
            cancel: Cancel::new(),
        };
        let wanted = request(
            r#"{"presets": ["model=auto"], "mode": "deep", "top_n_kernels": 3, "command": ["a b", "-x"]}"#,
        );
        assert_eq!(
            wanted.command_line(&props).to_string(),
            "/bin/roofgap profile --format json --config-dir /presets model=auto run.mode=deep run.top_n_kernels=3 \
             'artifacts.stage2_dir=/data/my runs' -- 'a b' -x"
        );
    }
}
