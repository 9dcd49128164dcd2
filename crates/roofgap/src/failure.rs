//! Expected failures, each with its message, hint and exit status.

use roofgap_analyze::compare::GateError;
use roofgap_analyze::model::PresetError;
use roofgap_base::exit::Exit;
use roofgap_runs::config::ConfigError;
use roofgap_runs::open::LoadError;
use roofgap_runs::run_dir::LocateError;
use roofgap_runs::runs::RunsError;
use std::path::PathBuf;
use thiserror::Error;

/// A failure of a command.
#[derive(Debug, Error)]
pub enum Failure {
    /// The inputs cannot be analysed.
    #[error(transparent)]
    Input(#[from] LoadError),
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A session, a capture, a load or a trial cannot start, or failed.
    #[error(transparent)]
    Record(#[from] roofgap_record::Error),
    /// No run matches.
    #[error(transparent)]
    Locate(#[from] LocateError),
    /// A run cannot be listed, pruned or scrubbed.
    #[error(transparent)]
    Runs(#[from] RunsError),
    /// A trial needs consent, and there is nobody to ask.
    #[error("the runs take time; --yes starts them without asking")]
    Consent,
    /// A gate is malformed.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// The timeline cannot be exported.
    #[error(transparent)]
    Export(#[from] roofgap_report::ExportError),
    /// A report cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    /// The answer cannot be printed.
    #[error("cannot write to standard output: {0}")]
    Stdout(std::io::Error),
    /// `--model` names neither a preset nor a file.
    #[error("{preset}, and {name} is not a file")]
    UnknownModel { name: String, preset: PresetError },
    /// The file that `--model` names does not describe a model.
    #[error("cannot use {} as a model: {why}", path.display())]
    ModelFile { path: PathBuf, why: Box<dyn std::error::Error> },
    /// The path of this program is unknown, so that a session cannot run the embedded model.
    #[error("cannot find the path of this program: {0}")]
    Executable(std::io::Error),
    /// The embedded model failed.
    #[cfg(feature = "embedded")]
    #[error(transparent)]
    Workload(#[from] roofgap_workload::WorkloadError),
    /// `--only` names a stage that the analysis does not have.
    #[error("no stage {stage}; {}", known(stages))]
    NoStage { stage: String, stages: Vec<String> },
    /// `--kernel` is not a regular expression.
    #[error("{pattern:?} is not a regular expression: {why}")]
    Regex { pattern: String, why: regex_lite::Error },
    /// `explain` names a finding that does not exist.
    #[error("no finding {finding:?}; the findings are {}", known.join(", "))]
    NoFinding { finding: String, known: Vec<&'static str> },
    /// `man` names a command that does not exist.
    #[error("no command {command:?}; `roofgap --help` lists all")]
    NoCommand { command: String },
    /// A command or option is a feature that this program was built without.
    #[cfg(not(all(feature = "mcp", feature = "parquet", feature = "serve")))]
    #[error("this roofgap was built without the {what}")]
    NotBuilt { what: &'static str },
    /// `roofgap-lake` is not installed.
    #[error("roofgap-lake is neither beside this program nor on PATH")]
    NoLake,
    /// `roofgap-lake` cannot be started.
    #[error("cannot start {}: {source}", path.display())]
    Lake { path: PathBuf, source: std::io::Error },
    /// The tools for agents cannot be served.
    #[cfg(feature = "mcp")]
    #[error(transparent)]
    Mcp(#[from] roofgap_mcp::McpError),
    /// The HTTP server cannot run.
    #[cfg(feature = "serve")]
    #[error(transparent)]
    Serve(#[from] roofgap_serve::ServeError),
    /// No folder for the token is known.
    #[cfg(feature = "serve")]
    #[error("neither XDG_STATE_HOME nor HOME is set; name a file with --token-file")]
    NoStateFolder,
    /// `--rate` is not a rate.
    #[error("{rate} requests per second is not a rate; give a number above 0")]
    Rate { rate: f64 },
    /// The session was cancelled before its run directory was created.
    #[error("interrupted before the run started")]
    Interrupted,
    /// Signals cannot be handled.
    #[error("cannot handle signals: {0}")]
    Signals(std::io::Error),
    /// A value has no JSON form.
    #[error("cannot write JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A panic.
    #[error("roofgap panicked")]
    Panic,
}

/// Lists the stages of an analysis.
fn known(stages: &[String]) -> String {
    if stages.is_empty() {
        "the analysis has no stages".to_owned()
    } else {
        format!("the stages are {}", stages.join(", "))
    }
}

impl Failure {
    /// Returns the exit status that the failure ends with.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Signals(_) | Self::Json(_) | Self::Panic => Exit::Bug,
            // As on a full disk: the work is done, its answer is incomplete.
            Self::Stdout(_) => Exit::Partial,
            Self::Interrupted => Exit::Interrupted,
            Self::Runs(error) => error.exit(),
            Self::Input(error) => error.exit(),
            Self::Record(error) => error.exit(),
            _ => Exit::Usage,
        }
    }

    /// Returns what to do about it, where the message does not already say so.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Config(ConfigError::UnknownKey { .. }) => Some(
                "`roofgap config show` prints every key; those of a Hydra module go into workload.overrides='[KEY=VALUE]'",
            ),
            Self::Config(_) => Some("`roofgap config list` shows every group and option"),
            Self::Consent => Some("`--dry-run` prints the plan and its cost"),
            Self::NoLake => Some(
                "`cargo install --path lake` builds it from the sources of roofgap; release archives made with LAKE=1 have it beside roofgap",
            ),
            #[cfg(not(all(feature = "mcp", feature = "parquet", feature = "serve")))]
            Self::NotBuilt { .. } => Some(
                "`cargo install --path crates/roofgap --features mcp,parquet,serve` builds it from the sources of roofgap; the programs of a release have it",
            ),
            Self::ModelFile { .. } => Some("give the config.json of a Hugging Face model"),
            Self::Signals(_) | Self::Json(_) | Self::Panic => {
                Some("this is a bug; please report the command line and the output above")
            }
            _ => None,
        }
    }
}
