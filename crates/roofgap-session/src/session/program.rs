//! The profiled program as a command line for each phase.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use roofgap_collect::command::CommandLine;
use roofgap_collect::program::{
    Annotation, HfDriver, HfModel, HydraModule, OperatorOutputs, Phase, ProgramContext, Scripts, UserCommand,
    embedded_command,
};

use super::layout::Layout;
use super::model;
use crate::config::Config;
use crate::config::settings::{Task, Workload, WorkloadKind};

/// What is profiled, ready to be run in any phase.
#[derive(Debug, Clone)]
pub(super) struct Program {
    kind: Kind,
    run_dir: PathBuf,
    cwd: Option<PathBuf>,
    env: Vec<(String, String)>,
}

#[derive(Debug, Clone)]
enum Kind {
    Embedded {
        executable: PathBuf,
        workload: Box<Workload>,
    },
    Hf {
        driver: Box<HfDriver>,
        operators: OperatorOutputs,
    },
    Hydra {
        module: HydraModule,
        outputs: PathBuf,
    },
    Command(UserCommand),
}

/// The files that a program needs beside itself.
#[derive(Debug, Clone, Default)]
pub(super) struct Beside {
    /// The Python that this binary carries.
    pub(super) scripts: Option<Scripts>,
    /// A `config.json` made from a preset.
    pub(super) model_config: Option<PathBuf>,
}

impl Beside {
    /// Where those files will be.
    pub(super) fn planned(config: &Config, layout: &Layout) -> Result<Self, String> {
        let folder = layout.scripts();
        Ok(Beside {
            scripts: Some(Scripts {
                driver: folder.join("hf_driver.py"),
                annotate: folder.join("annotate"),
            }),
            model_config: model::text(config)?.map(|_| layout.model_config()),
        })
    }
}

impl Program {
    /// The program that the configuration names.
    pub(super) fn of(
        config: &Config,
        executable: &Path,
        layout: &Layout,
        beside: &Beside,
    ) -> Result<Self, String> {
        let workload = &config.workload;
        let kind = match workload.kind {
            WorkloadKind::Embedded => Kind::Embedded {
                executable: executable.to_owned(),
                workload: Box::new(workload.clone()),
            },
            WorkloadKind::Hf => Kind::Hf {
                driver: Box::new(hf_driver(config, beside)?),
                operators: OperatorOutputs {
                    account: layout.torch_account(),
                    trace: config.profiling.torch.trace.then(|| layout.torch_trace()),
                },
            },
            WorkloadKind::Hydra => Kind::Hydra {
                module: HydraModule {
                    python: workload.python.clone().into(),
                    module: workload.module.clone().ok_or("workload.module is not set")?,
                    mode: mode_word(config).to_owned(),
                    manifest: config.inputs.manifest.clone().map(absolute),
                    light_overrides: HydraModule::default_light_overrides(),
                    overrides: workload.overrides.clone(),
                },
                outputs: layout.program_outputs(),
            },
            WorkloadKind::Command => {
                let scripts = beside.scripts.as_ref().filter(|_| workload.annotate);
                Kind::Command(UserCommand {
                    words: workload.program.iter().map(OsString::from).collect(),
                    annotation: scripts
                        .map(|scripts| Annotation::from_env(&scripts.annotate, workload.annotate_sync)),
                })
            }
        };
        Ok(Program {
            kind,
            run_dir: layout.root().to_owned(),
            cwd: workload.cwd.clone(),
            env: workload
                .env
                .iter()
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        })
    }

    /// The command line of a phase; the program writes its account to `account`.
    pub(super) fn command(&self, phase: Phase, account: &Path) -> Result<CommandLine, String> {
        let setting = ProgramContext {
            run_dir: self.run_dir.clone(),
            phase,
            account: account.to_owned(),
            cwd: self.cwd.clone(),
            env: self.env.clone(),
        };
        match &self.kind {
            Kind::Embedded { executable, workload } => Ok(embedded_command(
                executable,
                &embedded_args(workload, phase),
                &setting,
            )),
            Kind::Hf { driver, operators } => {
                let mut driver = driver.as_ref().clone();
                if phase == Phase::Operators {
                    driver.operators = Some(operators.clone());
                }
                driver.repeats = driver.repeats.map(|repeats| repeats_in(repeats, phase));
                if phase == Phase::Counters {
                    driver.warmup = Some(0);
                    driver.new_tokens = driver.new_tokens.map(|tokens| tokens.min(COUNTER_TOKENS));
                }
                Ok(driver.command(&setting))
            }
            Kind::Hydra { module, outputs } => Ok(module.command(&outputs.join(phase.as_str()), &setting)),
            Kind::Command(verbatim) => verbatim
                .command(&setting)
                .ok_or_else(|| "no program was given".to_owned()),
        }
    }

    /// A Hydra module, to be asked which overrides it takes.
    pub(super) fn hydra(&mut self) -> Option<(&mut HydraModule, PathBuf, ProgramContext)> {
        let setting = ProgramContext {
            run_dir: self.run_dir.clone(),
            phase: Phase::Baseline,
            account: self.run_dir.join("unused.json"),
            cwd: self.cwd.clone(),
            env: self.env.clone(),
        };
        match &mut self.kind {
            Kind::Hydra { module, outputs } => Some((module, outputs.join("check"), setting)),
            _ => None,
        }
    }
}

/// `deep` or `light`.
pub(super) fn mode_word(config: &Config) -> &'static str {
    match config.run.mode {
        crate::config::settings::Mode::Deep => "deep",
        crate::config::settings::Mode::Light => "light",
    }
}

/// A path that means the same from another folder.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// Tokens generated under ncu: a launch shape is measured once, and steps are alike.
const COUNTER_TOKENS: u32 = 8;

/// Under ncu every measured launch is replayed, so one repeat shows all there is.
fn repeats_in(repeats: u32, phase: Phase) -> u32 {
    if phase == Phase::Counters { 1 } else { repeats }
}

fn embedded_args(workload: &Workload, phase: Phase) -> Vec<String> {
    let mut args = Vec::new();
    let mut value = |name: &str, value: String| args.extend([name.to_owned(), value]);
    value("--preset", workload.size.clone());
    value("--seed", workload.seed.to_string());
    value("--prompt-tokens", workload.prompt_tokens.to_string());
    value("--new-tokens", workload.tokens.to_string());
    value("--repeats", repeats_in(workload.repeats, phase).to_string());
    value("--warmup", workload.warmup.to_string());
    if let Some(size) = workload.image_size {
        value("--image-size", size.to_string());
    }
    if let Some(threads) = workload.threads {
        value("--threads", threads.to_string());
    }
    args
}

fn hf_driver(config: &Config, beside: &Beside) -> Result<HfDriver, String> {
    let (workload, model) = (&config.workload, &config.model);
    let scripts = beside
        .scripts
        .as_ref()
        .ok_or("the driver of Hugging Face models was not written out")?;
    let config_json = model.config.as_ref().or(beside.model_config.as_ref());
    let source = match (model::weights(&config.model), config_json, &model.model_type) {
        (Some(folder), ..) => HfModel::Folder(absolute(folder)),
        (None, Some(file), _) => HfModel::ConfigJson(absolute(file.clone())),
        (None, None, Some(kind)) => HfModel::ModelType(kind.clone()),
        (None, None, None) => {
            return Err("no model: choose model=NAME, model.target or model.config".to_owned());
        }
    };
    let mut extra = vec![format!(
        "--task={}",
        match model.task {
            Task::Causal => "causal",
            Task::ImageText => "image_text",
        }
    )];
    extra.extend(model.attention.as_ref().map(|name| format!("--attention={name}")));
    extra.extend(model.experts.as_ref().map(|name| format!("--experts={name}")));
    extra.extend(model.trust_remote_code.then(|| "--trust-remote-code".to_owned()));
    let plain = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Ok(HfDriver {
        set: model
            .set
            .iter()
            .map(|(key, value)| (key.clone(), plain(value)))
            .collect(),
        name: model.name.clone(),
        revision: model.revision.clone(),
        dtype: Some(workload.dtype.clone().unwrap_or_else(|| model.dtype.clone())),
        device: Some(workload.device.clone()),
        prompt_tokens: Some(workload.prompt_tokens),
        new_tokens: Some(workload.tokens),
        batch: Some(workload.batch),
        repeats: Some(workload.repeats),
        warmup: Some(workload.warmup),
        seed: Some(workload.seed),
        compile: workload.compile,
        cuda_graphs: workload.cuda_graphs,
        prompt: workload.prompt.clone(),
        image_size: workload.image_size,
        manifest: config.inputs.manifest.clone().map(absolute),
        extra,
        ..HfDriver::new(&workload.python, &scripts.driver, source)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigProps, compose};

    fn program(overrides: &[&str]) -> Program {
        let overrides = overrides.iter().map(|text| (*text).to_owned()).collect();
        let config = compose(&ConfigProps {
            overrides,
            ..ConfigProps::default()
        })
        .unwrap()
        .config;
        let beside = Beside {
            scripts: Some(Scripts {
                driver: "/s/hf_driver.py".into(),
                annotate: "/s/annotate".into(),
            }),
            model_config: None,
        };
        Program::of(
            &config,
            Path::new("/bin/roofgap"),
            &Layout::of(Path::new("/r")),
            &beside,
        )
        .unwrap()
    }

    fn words(program: &Program, phase: Phase) -> Vec<String> {
        program.command(phase, Path::new("/r/a.json")).unwrap().argv()
    }

    #[test]
    fn a_model_by_its_type_and_its_options() {
        let program = program(&[
            "workload=hf",
            "model=deepseek_ocr2",
            "+model.set.num_hidden_layers=2",
            "workload.tokens=8",
        ]);
        let argv = words(&program, Phase::Baseline);
        for word in [
            "--model-type=deepseek_ocr2",
            "--set=num_hidden_layers=2",
            "--new-tokens=8",
            "--task=image_text",
            "--repeats=3",
        ] {
            assert!(
                argv.iter().any(|found| found == word),
                "{word} is not in {argv:?}"
            );
        }
        assert!(!argv.iter().any(|word| word.starts_with("--profile-operators")));
        let argv = words(&program, Phase::Operators);
        assert!(
            argv.contains(&"--profile-operators=/r/torch/operators.json".to_owned()),
            "{argv:?}"
        );
        let argv = words(&program, Phase::Counters);
        for word in ["--repeats=1", "--warmup=0", "--new-tokens=8"] {
            assert!(
                argv.iter().any(|found| found == word),
                "{word} is not in {argv:?}"
            );
        }
    }

    #[test]
    fn the_embedded_model_is_this_binary() {
        let argv = words(
            &program(&["workload.size=small", "workload.threads=2"]),
            Phase::Baseline,
        );
        assert_eq!(argv[..2], ["/bin/roofgap", "workload"]);
        assert!(
            argv.windows(2).any(|pair| pair == ["--preset", "small"]),
            "{argv:?}"
        );
        assert!(argv.windows(2).any(|pair| pair == ["--threads", "2"]), "{argv:?}");
    }
}
