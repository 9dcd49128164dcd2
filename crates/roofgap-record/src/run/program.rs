//! The profiled program, as a command line for each phase.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use roofgap_analyze::Engine;
use roofgap_collect::command::CommandLine;
use roofgap_collect::program::{
    Annotation, HfDriver, HfModel, HydraModule, OperatorOutputs, Phase, ProgramContext, Scripts, UserCommand,
    embedded_command, launcher,
};

use super::error::ProgramError;
use roofgap_runs::config::settings::{Task, Workload, WorkloadKind};
use roofgap_runs::config::{Config, Span, model};
use roofgap_runs::run_dir::Layout;

/// The profiled program.
#[derive(Debug, Clone)]
pub struct Program {
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
        annotation: Option<Annotation>,
    },
    Command(UserCommand),
    /// `roofgap load` with the server after `--`.
    Server {
        executable: PathBuf,
        config: Box<Config>,
        annotation: Option<Annotation>,
    },
}

/// Files written for the program.
#[derive(Debug, Clone, Default)]
pub struct ProgramFiles {
    /// Python scripts embedded in this binary.
    pub scripts: Option<Scripts>,
    /// `config.json` of a preset.
    pub model_config: Option<PathBuf>,
}

impl ProgramFiles {
    /// Describes the files before they are written.
    pub fn planned(config: &Config, layout: &Layout) -> Result<Self, ProgramError> {
        let folder = layout.scripts();
        Ok(ProgramFiles {
            scripts: Some(Scripts { driver: folder.join("hf_driver.py"), annotate: folder.join("annotate") }),
            model_config: model::config_json(config)?.map(|_| layout.model_config()),
        })
    }
}

impl Program {
    /// Builds the program of a configuration.
    pub fn of(
        config: &Config,
        executable: &Path,
        layout: &Layout,
        files: &ProgramFiles,
    ) -> Result<Self, ProgramError> {
        let workload = &config.workload;
        let annotation = || {
            let scripts = files.scripts.as_ref().filter(|_| workload.annotate)?;
            Some(Annotation::from_env(&scripts.annotate, workload.annotate_sync))
        };
        let kind = match workload.kind {
            WorkloadKind::Embedded => {
                Kind::Embedded { executable: executable.to_owned(), workload: Box::new(workload.clone()) }
            }
            WorkloadKind::Hf => Kind::Hf {
                driver: Box::new(hf_driver(config, files)?),
                operators: OperatorOutputs {
                    account: layout.torch_account(),
                    trace: config.profiling.torch.trace.then(|| layout.torch_trace()),
                },
            },
            WorkloadKind::Hydra => Kind::Hydra {
                module: HydraModule {
                    python: workload.python.clone().into(),
                    module: workload
                        .module
                        .clone()
                        .ok_or(ProgramError::Unset("workload.module is not set"))?,
                    mode: config.run.mode.as_str().to_owned(),
                    manifest: config.inputs.manifest.clone().map(absolute),
                    light_overrides: Vec::new(),
                    overrides: workload.overrides.clone(),
                },
                outputs: layout.program_outputs(),
                annotation: annotation(),
            },
            WorkloadKind::Command => {
                Kind::Command(UserCommand { words: workload.words(), annotation: annotation() })
            }
            WorkloadKind::Server => Kind::Server {
                executable: executable.to_owned(),
                config: Box::new(config.clone()),
                annotation: annotation(),
            },
        };
        Ok(Program {
            kind,
            run_dir: layout.root().to_owned(),
            cwd: workload.cwd.clone(),
            env: workload.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        })
    }

    /// Builds the command line of a phase. The program writes its account to `account`.
    pub fn command(&self, phase: Phase, account: &Path) -> Result<CommandLine, ProgramError> {
        let setting = self.setting(phase, account);
        match &self.kind {
            Kind::Embedded { executable, workload } => {
                Ok(embedded_command(executable, &embedded_args(workload, phase), &setting))
            }
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
            Kind::Hydra { module, outputs, annotation } => {
                let line = module.command(&outputs.join(phase.as_str()), &setting);
                Ok(match annotation {
                    Some(annotation) => annotation.apply(line),
                    None => line,
                })
            }
            Kind::Command(command) => {
                command.command(&setting).ok_or(ProgramError::Unset("no program was given"))
            }
            Kind::Server { executable, config, annotation } => {
                let command = UserCommand {
                    words: load_words(executable, config, phase),
                    annotation: annotation.clone(),
                };
                command.command(&setting).ok_or(ProgramError::Unset("no server was given"))
            }
        }
    }

    /// Returns the serving engine or the launcher of ranks that the command starts, where it names one.
    pub fn serving_engine(&self) -> Option<&'static str> {
        let engine = |words: &[OsString]| Engine::of_command(words).map(|engine| engine.name);
        match &self.kind {
            Kind::Command(command) => engine(&command.words).or_else(|| launcher(&command.words)),
            // Servers start processes of their own.
            Kind::Server { config, .. } => engine(&config.workload.words()).or(Some("a server")),
            _ => None,
        }
    }

    fn setting(&self, phase: Phase, account: &Path) -> ProgramContext {
        ProgramContext {
            run_dir: self.run_dir.clone(),
            phase,
            account: account.to_owned(),
            cwd: self.cwd.clone(),
            env: self.env.clone(),
        }
    }

    /// Returns the Hydra module, which is asked for the overrides it accepts.
    pub fn hydra(&mut self) -> Option<(&mut HydraModule, PathBuf, ProgramContext)> {
        let setting = self.setting(Phase::Baseline, &self.run_dir.join("unused.json"));
        match &mut self.kind {
            Kind::Hydra { module, outputs, .. } => Some((module, outputs.join("check"), setting)),
            _ => None,
        }
    }
}

/// Builds `roofgap load OPTION... -- SERVER ARG...`. Under ncu, which replays every kernel, one round of short requests is enough.
fn load_words(executable: &Path, config: &Config, phase: Phase) -> Vec<OsString> {
    let (server, load) = (&config.server, &config.load);
    let counters = phase == Phase::Counters;
    let (requests, warmup, output) = if counters {
        let output = COUNTER_TOKENS.to_string();
        (load.requests.min(u64::from(load.concurrency)), 0, output)
    } else {
        (load.requests, load.warmup, load.output_tokens.to_string())
    };
    // A server starts and answers more slowly under ncu, and requests at a rate would pile up.
    let slower = |span: Span| {
        if counters { Span(span.0 * COUNTER_PATIENCE) } else { span }
    };
    let unless_counters = |span: Option<Span>| span.filter(|_| !counters);
    let seconds = |span: Span| format!("{}s", span.0.as_secs_f64());
    let options = [
        ("--url", Some(server.url.clone())),
        ("--health", server.health.clone()),
        ("--ready-timeout", Some(seconds(slower(server.ready_timeout)))),
        ("--grace", Some(seconds(config.run.grace))),
        ("--model", load.model.clone()),
        ("--concurrency", Some(load.concurrency.to_string())),
        ("--rate", load.rate.filter(|_| !counters).map(|rate| rate.to_string())),
        ("--requests", Some(requests.to_string())),
        ("--warmup", Some(warmup.to_string())),
        ("--duration", unless_counters(load.duration).map(seconds)),
        ("--prompt-tokens", Some(load.prompt_tokens.to_string())),
        ("--output-tokens", Some(output)),
        ("--vocabulary", Some(load.vocabulary.to_string())),
        ("--timeout", Some(seconds(slower(load.timeout)))),
        ("--seed", Some(config.workload.seed.to_string())),
        ("--good-ttft", load.good_ttft.map(seconds)),
        ("--good-itl", load.good_itl.map(seconds)),
    ];
    let mut words: Vec<OsString> = vec![executable.into(), "load".into()];
    for (name, value) in options {
        words.extend(value.map(|value| OsString::from(format!("{name}={value}"))));
    }
    if let Some(path) = &load.prompts {
        words.push("--prompts".into());
        words.push(absolute(path.clone()).into());
    }
    if phase == Phase::Timeline {
        words.extend(pair_options(config.profiling.native.overhead_pairs).map(OsString::from));
    }
    words.push("--".into());
    words.extend(config.workload.words());
    words
}

/// Pairs of windows that measure the overhead of the collector, and the shortest load that is worth them.
const PAIRS: u32 = 8;
const PAIRS_AFTER: &str = "5s";

/// Returns the options of `roofgap load` for the overhead of the collector. Without a collector in the server they do nothing.
fn pair_options(pairs: Option<u32>) -> impl Iterator<Item = String> {
    let options = match pairs {
        Some(0) => None,
        Some(pairs) => Some([format!("--overhead-pairs={}", pairs.max(3)), String::new()]),
        None => Some([format!("--overhead-pairs={PAIRS}"), format!("--overhead-after={PAIRS_AFTER}")]),
    };
    options.into_iter().flatten().filter(|option| !option.is_empty())
}

/// Makes a path independent of the working directory.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// Tokens generated under ncu. Each launch shape is measured once, and all steps have the same.
const COUNTER_TOKENS: u32 = 8;

/// Factor of the time limits of a server under ncu.
pub const COUNTER_PATIENCE: u32 = 3;

/// Returns the repeats of a phase. Under ncu one repeat contains every launch shape.
fn repeats_in(repeats: u32, phase: Phase) -> u32 {
    if phase == Phase::Counters { 1 } else { repeats }
}

fn embedded_args(workload: &Workload, phase: Phase) -> Vec<String> {
    let mut args = Vec::new();
    let mut value = |name: &str, value: String| args.extend([name.to_owned(), value]);
    value("--preset", workload.size.clone());
    value("--seed", workload.seed.to_string());
    if let Some(tokens) = workload.prompt_tokens {
        value("--prompt-tokens", tokens.to_string());
    }
    if let Some(tokens) = workload.tokens {
        value("--new-tokens", tokens.to_string());
    }
    value("--repeats", repeats_in(workload.repeats, phase).to_string());
    value("--warmup", workload.warmup.to_string());
    if let Some(size) = workload.image_size {
        value("--image-size", size.to_string());
    }
    if let Some(threads) = workload.threads {
        value("--threads", threads.to_string());
    }
    if !workload.kv_cache {
        args.push("--no-kv-cache".to_owned());
        args.extend(workload.context_limit.map(|limit| format!("--context-limit={limit}")));
    }
    args
}

fn hf_driver(config: &Config, files: &ProgramFiles) -> Result<HfDriver, ProgramError> {
    let (workload, model) = (&config.workload, &config.model);
    let scripts = files
        .scripts
        .as_ref()
        .ok_or(ProgramError::Unset("the driver for Hugging Face models was not written"))?;
    let config_json = model.config.as_ref().or(files.model_config.as_ref());
    let source = match (model::weights(&config.model), config_json, &model.model_type) {
        (Some(folder), ..) => HfModel::Folder(absolute(folder)),
        (None, Some(file), _) => HfModel::ConfigJson(absolute(file.clone())),
        (None, None, Some(kind)) => HfModel::ModelType(kind.clone()),
        (None, None, None) => {
            return Err(ProgramError::Unset("no model: choose model=NAME, model.target or model.config"));
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
        set: model.set.iter().map(|(key, value)| (key.clone(), plain(value))).collect(),
        name: model.name.clone(),
        revision: model.revision.clone(),
        dtype: Some(workload.dtype.clone().unwrap_or_else(|| model.dtype.clone())),
        device: Some(workload.device.clone()),
        prompt_tokens: workload.prompt_tokens,
        new_tokens: workload.tokens,
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
    use roofgap_runs::config::{ConfigProps, compose};

    fn program(overrides: &[&str]) -> Program {
        let overrides = overrides.iter().map(|text| (*text).to_owned()).collect();
        let config = compose(&ConfigProps { overrides, ..ConfigProps::default() }).unwrap().config;
        let files = ProgramFiles {
            scripts: Some(Scripts { driver: "/s/hf_driver.py".into(), annotate: "/s/annotate".into() }),
            model_config: None,
        };
        Program::of(&config, Path::new("/bin/roofgap"), &Layout::of(Path::new("/r")), &files).unwrap()
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
            assert!(argv.iter().any(|found| found == word), "{word} is not in {argv:?}");
        }
        assert!(!argv.iter().any(|word| word.starts_with("--profile-operators")));
        let argv = words(&program, Phase::Operators);
        assert!(argv.contains(&"--profile-operators=/r/torch/operators.json".to_owned()), "{argv:?}");
        let argv = words(&program, Phase::Counters);
        for word in ["--repeats=1", "--warmup=0", "--new-tokens=8"] {
            assert!(argv.iter().any(|found| found == word), "{word} is not in {argv:?}");
        }
    }

    #[test]
    fn the_embedded_model_is_this_binary() {
        let argv = words(&program(&["workload.size=small", "workload.threads=2"]), Phase::Baseline);
        assert_eq!(argv[..2], ["/bin/roofgap", "workload"]);
        assert!(argv.windows(2).any(|pair| pair == ["--preset", "small"]), "{argv:?}");
        assert!(argv.windows(2).any(|pair| pair == ["--threads", "2"]), "{argv:?}");
    }

    #[test]
    fn a_server_gets_its_load_and_less_of_it_under_ncu() {
        let program = program(&[
            "workload=server",
            "workload.program=[vllm, serve, m]",
            "load.rate=2.5",
            "load.prompt_tokens=100-900",
            "load.good_ttft=500ms",
        ]);
        let argv = words(&program, Phase::Baseline);
        assert_eq!(argv[..2], ["/bin/roofgap", "load"]);
        for word in [
            "--rate=2.5",
            "--requests=64",
            "--warmup=8",
            "--prompt-tokens=100-900",
            "--output-tokens=128",
            "--good-ttft=0.5s",
        ] {
            assert!(argv.contains(&word.to_owned()), "{word} in {argv:?}");
        }
        assert!(argv.ends_with(&["--", "vllm", "serve", "m"].map(str::to_owned)));
        let counters = words(&program, Phase::Counters);
        for word in
            ["--requests=8", "--warmup=0", "--output-tokens=8", "--ready-timeout=1800s", "--timeout=900s"]
        {
            assert!(counters.contains(&word.to_owned()), "{word} in {counters:?}");
        }
        assert!(!counters.iter().any(|word| word.starts_with("--rate")), "{counters:?}");
    }

    #[test]
    fn the_overhead_in_a_server_is_measured_with_the_timeline_only() {
        let options = |setting: &str, phase| {
            let program = program(&["workload=server", "workload.program=[s]", setting]);
            let words = words(&program, phase);
            let own = words.into_iter().filter(|word| word.starts_with("--overhead"));
            own.collect::<Vec<String>>()
        };
        let pairs = "profiling.native.overhead_pairs";
        let unset = format!("{pairs}=null");
        assert_eq!(options(&unset, Phase::Timeline), ["--overhead-pairs=8", "--overhead-after=5s"]);
        assert!(options(&unset, Phase::Baseline).is_empty());
        assert_eq!(options(&format!("{pairs}=20"), Phase::Timeline), ["--overhead-pairs=20"]);
        assert!(options(&format!("{pairs}=0"), Phase::Timeline).is_empty());
    }
}
