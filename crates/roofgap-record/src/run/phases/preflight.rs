//! Checks the program, tools, GPU and disk space before anything runs, and records the environment and the inputs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use roofgap_base::numbers::size;
use roofgap_collect::child::free_bytes;
use roofgap_collect::command::{find_on_path, is_executable};
use roofgap_collect::program::{ComposedConfig, HydraModule, Scripts};

use super::inputs::write_inputs;
use super::requested::Requested;
use super::stage1;
use crate::run::context::PhaseContext;
use crate::run::environment::{PythonResult, gather, python_of};
use crate::run::error::{AttemptError, EMBEDDED_INSTEAD, ProgramError};
use crate::run::manifest::Manifest;
use crate::run::program::{Program, ProgramFiles};
use crate::run::props::ProfileProps;
use crate::run::tools::{GpuFacts, Tools};
use roofgap_runs::config::settings::WorkloadKind;
use roofgap_runs::config::{Config, model};
use roofgap_runs::run_dir::{Layout, PhaseName, PhaseStatus};

const PHASE: PhaseName = PhaseName::Preflight;

/// Checks that the session is possible before a run directory is created, so that a wrong name leaves nothing behind. Returns
/// the Python of the program, because asking it takes time.
pub fn check(props: &ProfileProps) -> Result<Option<PythonResult>, ProgramError> {
    let config = &props.composed.config;
    let layout = Layout::of(Path::new(""));
    let files = ProgramFiles::planned(config, &layout)?;
    Program::of(config, &props.executable, &layout, &files)?;
    check_files(config)?;
    check_executable(config, &props.search_path)?;
    let python = python_of(config);
    if let Some(python) = &python {
        check_packages(config, python)?;
    }
    check_gpu(props)?;
    Ok(python)
}

/// Runs the phase. `None` where the session cannot start.
pub fn run(
    context: &mut PhaseContext<'_>,
    props: &ProfileProps,
    python: Option<&PythonResult>,
    requested: Requested,
) -> Option<(Tools, Program)> {
    context.begin(PHASE);
    match attempt(context, props, python, requested) {
        Ok(ready) => {
            context.end(PHASE, PhaseStatus::Ok);
            Some(ready)
        }
        Err(error) => {
            context.end(PHASE, error.status());
            None
        }
    }
}

fn attempt(
    context: &mut PhaseContext<'_>,
    props: &ProfileProps,
    python: Option<&PythonResult>,
    requested: Requested,
) -> Result<(Tools, Program), AttemptError> {
    warn_about_disk_space(context);
    let gpus = GpuFacts::query(context.config, &props.search_path);
    let tools = if requested.needs_tools() {
        Tools::find(props, gpus.usable.clone())
    } else {
        Tools::not_needed(props, gpus.usable.clone())
    };
    let needed = requested.needs_tools().then_some(&tools);
    if let Some(tools) = needed {
        warn_about_tools(context, tools, requested);
    }
    let environment = gather(props, needed, &gpus, python);
    let written = context.run_dir.write_json("env.json", &environment);
    context.note_output(PHASE, written);
    write_inputs(context, &[]);
    let files = write_program_files(context)?;
    let mut program = Program::of(context.config, &props.executable, &context.layout, &files)?;
    configure_module(context, &mut program)?;
    Ok((tools, program))
}

/// Warns about little disk space. The session continues: commands are stopped before the disk is full.
fn warn_about_disk_space(context: &mut PhaseContext<'_>) {
    let wanted = context.config.run.min_free_bytes.0;
    let free = free_bytes(context.run_dir.path());
    if let Some(free) = free.filter(|free| *free < wanted) {
        let note = format!(
            "{} are free at {}, less than run.min_free_bytes ({}); free disk space, or set artifacts.stage2_dir",
            size(free),
            context.run_dir.path().display(),
            size(wanted)
        );
        context.warn(PHASE, note);
    }
}

fn warn_about_tools(context: &mut PhaseContext<'_>, tools: &Tools, requested: Requested) {
    let mut missing: Vec<String> = Vec::new();
    missing.extend(tools.gpu.as_ref().err().map(ToString::to_string));
    if requested.timeline {
        missing.extend(tools.nsys.as_ref().err().map(ToString::to_string));
    }
    if requested.counters {
        missing.extend(tools.ncu.as_ref().err().map(ToString::to_string));
    }
    for line in missing {
        context.warn(PHASE, line);
    }
}

/// Checks the files and folders of a configuration.
fn check_files(config: &Config) -> Result<(), ProgramError> {
    if let Some(folder) = config.workload.cwd.as_ref().filter(|folder| !folder.is_dir()) {
        return Err(ProgramError::Cwd(folder.clone()));
    }
    for (key, path) in [("inputs.manifest", &config.inputs.manifest), ("model.config", &config.model.config)]
    {
        if let Some(path) = path.as_ref().filter(|path| !path.is_file()) {
            return Err(ProgramError::NotAFile { key, path: path.clone() });
        }
    }
    check_manifest(config)?;
    match &config.stage1.run_dir {
        Some(folder) => stage1::read(folder).map(|_| ()),
        None => Ok(()),
    }
}

/// Checks that the program exists and is executable.
fn check_executable(config: &Config, search_path: &[PathBuf]) -> Result<(), ProgramError> {
    let name = match config.workload.kind {
        WorkloadKind::Embedded => return Ok(()),
        WorkloadKind::Hf | WorkloadKind::Hydra => config.workload.python.clone().into(),
        WorkloadKind::Command | WorkloadKind::Server => {
            config.workload.words().into_iter().next().unwrap_or_default()
        }
    };
    let path = Path::new(&name);
    let has_folder = path.components().count() > 1;
    let found = match &config.workload.cwd {
        // A path with a slash is relative to the working directory of the program.
        Some(folder) if has_folder => is_executable(&folder.join(path)),
        _ => find_on_path(path, search_path).is_some(),
    };
    if found {
        Ok(())
    } else if has_folder && path.is_file() {
        Err(ProgramError::NotExecutable(path.display().to_string()))
    } else {
        Err(ProgramError::NotFound(path.display().to_string()))
    }
}

/// Checks that Python has the packages of the workload.
fn check_packages(config: &Config, python: &PythonResult) -> Result<(), ProgramError> {
    let needed: &[&str] = match config.workload.kind {
        WorkloadKind::Hf => &["torch", "transformers"],
        WorkloadKind::Hydra => &["hydra-core"],
        WorkloadKind::Embedded | WorkloadKind::Command | WorkloadKind::Server => return Ok(()),
    };
    let python = python.as_ref().map_err(|error| ProgramError::Python(error.to_string()))?;
    let missing = needed.iter().copied().filter(|name| python.package(name).is_none());
    let packages: Vec<&str> = missing.collect();
    if packages.is_empty() {
        return Ok(());
    }
    Err(ProgramError::Packages {
        python: python.executable.clone(),
        packages,
        alternative: match config.workload.kind {
            WorkloadKind::Hf => EMBEDDED_INSTEAD,
            _ => "",
        },
    })
}

/// Checks that a Hugging Face model has the GPU that it asks for. On the CPU a model of real size would run for hours.
fn check_gpu(props: &ProfileProps) -> Result<(), ProgramError> {
    let config = &props.composed.config;
    if config.workload.kind != WorkloadKind::Hf || config.workload.device == "cpu" {
        return Ok(());
    }
    let gpus = GpuFacts::query(config, &props.search_path);
    gpus.usable.map_err(|error| ProgramError::NoGpu { why: error.to_string() })
}

/// Checks that the program uses every item of the manifest. A Hydra module is asked later.
fn check_manifest(config: &Config) -> Result<(), ProgramError> {
    let Some(path) = config.inputs.manifest.clone() else {
        return Ok(());
    };
    match config.workload.kind {
        WorkloadKind::Embedded => Err(ProgramError::ManifestUnused { path }),
        WorkloadKind::Command | WorkloadKind::Server => Err(ProgramError::ManifestOfCommand { path }),
        WorkloadKind::Hydra => Ok(()),
        WorkloadKind::Hf => {
            let items = Manifest::read(&path)?.items.len();
            let (repeats, batch) = (config.workload.repeats as usize, config.workload.batch as usize);
            if items <= repeats.saturating_mul(batch) {
                return Ok(());
            }
            Err(ProgramError::ManifestTooLong {
                path,
                items,
                repeats,
                batch,
                needed: items.div_ceil(batch.max(1)),
            })
        }
    }
}

/// Time limit of a question to a Hydra module, which imports its libraries first.
const MODULE_LIMIT: Duration = Duration::from_secs(120);

/// Configures a Hydra module for all phases: gives it the manifest, and turns off its own measurements where it accepts that.
fn configure_module(context: &mut PhaseContext<'_>, program: &mut Program) -> Result<(), ProgramError> {
    let Some((module, output, setting)) = program.hydra() else {
        return Ok(());
    };
    let own = module.own_config(&output, &setting, MODULE_LIMIT)?;
    let inputs = match &context.config.inputs.manifest {
        Some(path) => give_manifest(context, module, &own, path)?,
        None => 1,
    };
    let accepted = module.inject_light_overrides(&own, inputs, &output, &setting, MODULE_LIMIT)?;
    for text in accepted.dropped {
        let note = format!("the module does not accept {text}; it was left out");
        context.record.note(PHASE, note);
    }
    for section in accepted.profilers_on {
        let warning = format!(
            "torch.profiler of the module stays on ({section}): its times include that, and it can block nsys and ncu; turn it off with workload.overrides"
        );
        context.warn(PHASE, warning);
    }
    context.module_config = Some(accepted.config);
    Ok(())
}

/// Gives the manifest to a module that has a key for it, or its images to a Stage 1 runner as a list of files. Returns the number
/// of inputs.
fn give_manifest(
    context: &PhaseContext<'_>,
    module: &mut HydraModule,
    own: &ComposedConfig,
    path: &Path,
) -> Result<usize, ProgramError> {
    /// Key of the Stage 1 runner: a file with one image a line.
    const FILE_LIST: &str = "dataset.subset_filelist";
    let unused = |why| ProgramError::ManifestOfModule { path: path.to_owned(), why };
    if own.has("inputs.manifest") {
        // The format is that of the module.
        return Ok(Manifest::read(path).map_or(1, |manifest| manifest.items.len()));
    }
    if !own.has(FILE_LIST) {
        return Err(unused(
            "it has neither inputs.manifest nor dataset.subset_filelist in its configuration",
        ));
    }
    let manifest = Manifest::read(path)?;
    let images = manifest
        .images_only()
        .ok_or_else(|| unused("it takes a list of images, and some items have a prompt"))?;
    let list: String = images.iter().map(|image| format!("{}\n", image.display())).collect();
    context.run_dir.folder("program")?;
    let file = context.run_dir.write("program/inputs.txt", list.as_bytes())?;
    module.manifest = None;
    module.set(FILE_LIST, &file.to_string_lossy());
    Ok(images.len())
}

/// Writes the files that the program needs.
fn write_program_files(context: &PhaseContext<'_>) -> Result<ProgramFiles, ProgramError> {
    let config = context.config;
    let mut files = ProgramFiles::default();
    let needs_scripts = match config.workload.kind {
        WorkloadKind::Hf => true,
        WorkloadKind::Command | WorkloadKind::Server | WorkloadKind::Hydra => config.workload.annotate,
        WorkloadKind::Embedded => false,
    };
    if needs_scripts {
        let folder = context.layout.scripts();
        let scripts = Scripts::install(&folder).map_err(|source| ProgramError::Scripts { folder, source })?;
        files.scripts = Some(scripts);
    }
    if let Some(text) = model::config_json(config)? {
        context.run_dir.folder("model")?;
        files.model_config = Some(context.run_dir.write("model/config.json", text.as_bytes())?);
    }
    Ok(files)
}
