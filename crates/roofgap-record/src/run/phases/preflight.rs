//! Checks the program, tools, GPU and disk space before anything runs, and records the environment and the inputs.

use std::path::{Path, PathBuf};

use roofgap_base::exit::Exit;
use roofgap_base::numbers::size;
use roofgap_collect::child::free_bytes;
use roofgap_collect::command::{find_on_path, is_executable};
use roofgap_collect::doctor::DoctorProps;
use roofgap_collect::program::Scripts;
use roofgap_runs::config::settings::{TimelineTool, WorkloadKind};
use roofgap_runs::config::{Config, model};
use roofgap_runs::run_dir::{Layout, PhaseName};

use super::counters::Counters;
use super::timeline::TimelineRecording;
use super::{Phase, Ready, Results, needs_tools};
use crate::run::context::{AttemptError, PhaseContext};
use crate::run::inputs::{Manifest, write_inputs};
use crate::run::program::{Program, ProgramFiles};
use crate::run::props::ProfileProps;
use crate::run::tools::{GpuCheck, PythonResult, Tools, gather_environment, python_of};
use crate::stage1;
use roofgap_base::error::Error;

const NAME: PhaseName = PhaseName::Preflight;

/// The workload that runs on any machine, as the end of a message.
const EMBEDDED_INSTEAD: &str = ", or profile the embedded model instead: `roofgap profile workload=embedded`";

/// The phase.
pub struct Preflight;

impl Phase for Preflight {
    fn name(&self) -> PhaseName {
        NAME
    }

    fn run(&self, context: &mut PhaseContext<'_>, found: &mut Results) -> Result<(), AttemptError> {
        found.ready =
            Some(prepare(context, found.python.as_ref()).map_err(|error| error.ending(Exit::Usage))?);
        Ok(())
    }
}

/// Checks that the session is possible before a run directory is created, so that a wrong name leaves nothing behind. Returns
/// the Python of the program, because asking it takes time.
pub fn check(props: &ProfileProps) -> Result<Option<PythonResult>, Error> {
    let config = &props.composed.config;
    let layout = Layout::of(Path::new(""));
    let files = ProgramFiles::planned(config, &layout)?;
    Program::of(config, &props.executable, &layout, files)?;
    check_files(config)?;
    model::check(config)?;
    check_executable(config, &props.search_path)?;
    let python = python_of(config);
    if let Some(python) = &python {
        check_packages(config, python)?;
    }
    check_gpu(props)?;
    Ok(python)
}

fn prepare(context: &mut PhaseContext<'_>, python: Option<&PythonResult>) -> Result<Ready, AttemptError> {
    warn_about_disk_space(context);
    if let Some(warning) = model::without_weights(context.config) {
        context.warn(warning);
    }
    let props = context.props;
    let gpus = GpuCheck::query(context.config, &props.search_path);
    let is_needed = needs_tools(context.config);
    let tools = Tools::find(props, gpus.usable.clone(), is_needed);
    // Nobody misses an nsys where the native collector records.
    let is_native = tools.native.is_ok() && context.config.profiling.timeline != TimelineTool::Nsys;
    let is_missed = |phase: &dyn Phase| phase.not_requested(context.config).is_none();
    let nsys = tools.nsys.as_ref().err().filter(|_| is_missed(&TimelineRecording) && !is_native);
    let ncu = tools.ncu.as_ref().err().filter(|_| is_missed(&Counters));
    let problems = nsys.into_iter().chain(ncu);
    let no_gpu = tools.gpu.as_ref().err().filter(|_| is_needed);
    for why in no_gpu.into_iter().chain(problems) {
        context.warn(why.to_string());
    }
    let searched = is_needed.then_some(&tools);
    let environment = gather_environment(props, searched, &gpus, python);
    let written = context.run_dir.write_json("env.json", &environment);
    context.note_output(written);
    write_inputs(context, &[]);
    let files = write_program_files(context)?;
    let mut program = Program::of(context.config, &props.executable, &context.layout, files)?;
    stage1::configure_module(context, &mut program)?;
    Ok(Ready { program, tools })
}

/// Warns about little disk space. The session continues: commands are stopped before the disk is full.
fn warn_about_disk_space(context: &mut PhaseContext<'_>) {
    let wanted = DoctorProps::default().min_free_bytes;
    let free = free_bytes(context.run_dir.path());
    if let Some(free) = free.filter(|free| *free < wanted) {
        context.warn(format!(
            "{} are free at {}, less than {}; free disk space, or set artifacts.stage2_dir",
            size(free),
            context.run_dir.path().display(),
            size(wanted)
        ));
    }
}

/// Checks the files and folders of a configuration.
fn check_files(config: &Config) -> Result<(), Error> {
    if let Some(folder) = config.workload.cwd.as_ref().filter(|folder| !folder.is_dir()) {
        return Err(Error::new(format!("workload.cwd is {}, which is not a folder", folder.display())));
    }
    for (key, path) in [("inputs.manifest", &config.inputs.manifest), ("model.config", &config.model.config)]
    {
        if let Some(path) = path.as_ref().filter(|path| !path.is_file()) {
            return Err(Error::new(format!("{key} is {}, which is not a file", path.display())));
        }
    }
    check_manifest(config)?;
    match &config.stage1.run_dir {
        Some(folder) => stage1::read(folder).map(|_| ()),
        None => Ok(()),
    }
}

/// Checks that the program exists and is executable.
fn check_executable(config: &Config, search_path: &[PathBuf]) -> Result<(), Error> {
    let name = match config.workload.kind {
        WorkloadKind::Embedded => return Ok(()),
        WorkloadKind::Hf | WorkloadKind::Hydra => config.workload.python.clone().into(),
        WorkloadKind::Command | WorkloadKind::Server => {
            config.workload.words().into_iter().next().unwrap_or_default()
        }
    };
    find_program(Path::new(&name), config.workload.cwd.as_deref(), search_path)
}

/// Checks that a program that is to start in `folder` exists and is executable.
pub fn find_program(path: &Path, folder: Option<&Path>, search_path: &[PathBuf]) -> Result<(), Error> {
    let has_folder = path.components().count() > 1;
    let found = match folder {
        // A path with a slash is relative to the working directory of the program.
        Some(folder) if has_folder => is_executable(&folder.join(path)),
        _ => find_on_path(path, search_path).is_some(),
    };
    if found {
        Ok(())
    } else if has_folder && path.is_file() {
        Err(Error::new(format!(
            "{} is not executable; run chmod +x on it, or name its interpreter",
            path.display()
        )))
    } else {
        Err(Error::new(format!(
            "the program {} was not found; check that it is installed and on the PATH",
            path.display()
        )))
    }
}

/// Checks that Python has the packages of the workload.
fn check_packages(config: &Config, python: &PythonResult) -> Result<(), Error> {
    let needed: Vec<&str> = match config.workload.kind {
        WorkloadKind::Hf => ["torch", "transformers"].into_iter().chain(input_packages(config)?).collect(),
        WorkloadKind::Hydra => vec!["hydra-core"],
        WorkloadKind::Embedded | WorkloadKind::Command | WorkloadKind::Server => return Ok(()),
    };
    let python = python.as_ref().map_err(|why| Error::of(why.clone()))?;
    let missing = needed.into_iter().filter(|name| python.package(name).is_none());
    let packages: Vec<&str> = missing.collect();
    if packages.is_empty() {
        return Ok(());
    }
    let alternative = if config.workload.kind == WorkloadKind::Hf { EMBEDDED_INSTEAD } else { "" };
    let python = python.executable.display();
    Err(Error::new(format!(
        "{python} lacks {}; install with `{python} -m pip install {}`, or set workload.python{alternative}",
        packages.join(" and "),
        packages.join(" ")
    )))
}

/// Lists the packages that the inputs of a Hugging Face model need.
fn input_packages(config: &Config) -> Result<Vec<&'static str>, Error> {
    let manifest = config.inputs.manifest.as_deref().map(Manifest::read).transpose()?;
    let items = manifest.map_or(Vec::new(), |manifest| manifest.items);
    let mut packages = Vec::new();
    if !items.is_empty() {
        packages.push("pyyaml");
    }
    if items.iter().any(|item| item.image.is_some()) {
        packages.push("pillow");
    }
    let has_text = config.workload.prompt.is_some() || items.iter().any(|item| item.prompt.is_some());
    // A tokenizer in the form of SentencePiece alone cannot be read by transformers itself.
    let only_pieces = |folder: &PathBuf| {
        folder.join("tokenizer.model").is_file() && !folder.join("tokenizer.json").is_file()
    };
    if has_text && model::weights(&config.model).as_ref().is_some_and(only_pieces) {
        packages.push("sentencepiece");
    }
    Ok(packages)
}

/// Checks that a Hugging Face model has the GPU that it asks for. On the CPU a model of real size would run for hours.
fn check_gpu(props: &ProfileProps) -> Result<(), Error> {
    let config = &props.composed.config;
    if config.workload.kind != WorkloadKind::Hf || config.workload.device == "cpu" {
        return Ok(());
    }
    let gpus = GpuCheck::query(config, &props.search_path);
    gpus.usable.map_err(|why| {
        Error::new(format!(
            "workload=hf runs the model on a GPU, and there is none ({why}); run it on the CPU with workload.device=cpu{EMBEDDED_INSTEAD}"
        ))
    })
}

/// Checks that the program uses every item of the manifest. A Hydra module is asked later.
fn check_manifest(config: &Config) -> Result<(), Error> {
    let Some(path) = config.inputs.manifest.clone() else {
        return Ok(());
    };
    match config.workload.kind {
        WorkloadKind::Embedded => Manifest::read(&path).map(|_| ()),
        WorkloadKind::Command | WorkloadKind::Server => Err(Error::new(format!(
            "the program after -- does not read {}; give it its inputs as arguments, or remove inputs.manifest",
            path.display()
        ))),
        WorkloadKind::Hydra => Ok(()),
        WorkloadKind::Hf => {
            let items = Manifest::read(&path)?.items.len();
            let (repeats, batch) = (config.workload.repeats as usize, config.workload.batch as usize);
            if items <= repeats.saturating_mul(batch) {
                return Ok(());
            }
            Err(Error::new(format!(
                "{} has {items} items, but workload.repeats={repeats} with workload.batch={batch} uses {}; set workload.repeats={}",
                path.display(),
                repeats.saturating_mul(batch),
                items.div_ceil(batch.max(1))
            )))
        }
    }
}

/// Writes the files that the program needs.
fn write_program_files(context: &PhaseContext<'_>) -> Result<ProgramFiles, Error> {
    let config = context.config;
    let mut files = ProgramFiles::default();
    let needs_scripts = match config.workload.kind {
        WorkloadKind::Hf => true,
        WorkloadKind::Command | WorkloadKind::Server | WorkloadKind::Hydra => config.workload.annotate,
        WorkloadKind::Embedded => false,
    };
    if needs_scripts {
        let folder = context.layout.scripts();
        let scripts = Scripts::install(&folder).map_err(|source| {
            Error::new(format!("cannot write the scripts to {}: {source}", folder.display()))
        })?;
        files.scripts = Some(scripts);
    }
    if let Some(text) = model::config_json(config)? {
        context.run_dir.folder("model")?;
        files.model_config = Some(context.run_dir.write("model/config.json", text.as_bytes())?);
    }
    Ok(files)
}
