//! The profiled program, as a command line for each phase.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use roofgap_analyze::Engine;
use roofgap_collect::command::CommandLine;
use roofgap_collect::program::{Annotation, ProgramContext, Scripts, launcher};
use roofgap_runs::config::settings::{Load, Workload, WorkloadKind};
use roofgap_runs::config::{Config, model};
use roofgap_runs::open::run::account_at;
use roofgap_runs::run_dir::{Layout, PhaseName};
use serde_json::json;

use super::context::PhaseCommand;
use super::inputs::Manifest;
use crate::stage1::{ComposedConfig, HydraModule};
use roofgap_base::error::Error;

/// The profiled program.
#[derive(Debug, Clone)]
pub struct Program {
    pub config: Config,
    /// This binary, which runs the embedded model and sends load.
    pub executable: PathBuf,
    pub layout: Layout,
    files: ProgramFiles,
    module: Option<HydraModule>,
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
    pub fn planned(config: &Config, layout: &Layout) -> Result<Self, Error> {
        Ok(Self {
            scripts: Some(Scripts::in_folder(&layout.scripts())),
            model_config: model::config_json(config)?.map(|_| layout.model_config()),
        })
    }
}

/// Returns the command that samples the counters of all GPUs into a capture in `folder` until it is interrupted.
pub fn sampler(executable: &Path, interval_us: NonZeroU32, folder: &Path) -> CommandLine {
    let line = CommandLine::new(executable).args(["sample-counters", "--interval-us"]);
    line.arg(interval_us.to_string()).arg(folder)
}

impl Program {
    /// Builds the program of a configuration, and checks that it has a command line.
    pub fn of(
        config: &Config,
        executable: &Path,
        layout: &Layout,
        files: ProgramFiles,
    ) -> Result<Self, Error> {
        let workload = &config.workload;
        let module = match (workload.kind, &workload.module) {
            (WorkloadKind::Hydra, Some(name)) => Some(HydraModule {
                python: workload.python.clone().into(),
                module: name.clone(),
                mode: config.run.mode.as_str().to_owned(),
                manifest: config.inputs.manifest.clone().map(absolute),
                light_overrides: Vec::new(),
                overrides: workload.overrides.clone(),
                profiler_switches: Vec::new(),
            }),
            _ => None,
        };
        let (executable, layout) = (executable.to_owned(), layout.clone());
        let program = Self { config: config.clone(), executable, layout, files, module };
        program.command(PhaseName::Baseline, &program.layout.baseline_account())?;
        Ok(program)
    }

    /// Returns the command that samples the counters of all GPUs beside the native collector, until it is interrupted; `None` where none
    /// are to be sampled.
    pub fn sampler(&self) -> Option<CommandLine> {
        let interval_us = self.config.profiling.native.counters_us?;
        Some(sampler(&self.executable, interval_us, &self.layout.native()))
    }

    /// Describes the program as the command of a phase, with its logs beside its account.
    pub fn phase_command(&self, phase: PhaseName, account: &Path) -> Result<PhaseCommand, Error> {
        let folder = account.parent().unwrap_or(account).to_owned();
        let line = self.command(phase, account)?;
        Ok(PhaseCommand::new(line, folder, "program", self.config.run.timeout.0))
    }

    /// Builds the command line of a phase. The program writes its account to `account`.
    pub fn command(&self, phase: PhaseName, account: &Path) -> Result<CommandLine, Error> {
        let context = self.context(phase, account);
        let workload = &self.config.workload;
        let words = match workload.kind {
            WorkloadKind::Embedded => {
                let line = CommandLine::new(&self.executable).args(["workload", "--account"]).arg(account);
                let manifest = self.config.inputs.manifest.as_deref().map(Manifest::read).transpose()?;
                return Ok(context.apply(line.args(embedded_args(workload, manifest.as_ref(), phase))));
            }
            WorkloadKind::Hf => return Ok(context.apply(self.hf(phase, account)?)),
            WorkloadKind::Hydra => {
                let module = self.module.as_ref().ok_or_else(|| Error::new("workload.module is not set"))?;
                let line = module.command(&self.layout.program_outputs().join(phase.as_str()), &context);
                return Ok(self.annotate(line));
            }
            WorkloadKind::Command => workload.words(),
            WorkloadKind::Server => load_words(&self.executable, &self.config, phase),
        };
        let mut words = words.into_iter();
        let program = words.next().ok_or_else(|| Error::new("no program was given"))?;
        Ok(context.apply(self.annotate(CommandLine::new(program).args(words))))
    }

    /// Lets Python inside the program name its stages, if wanted. Not only if it is Python: a shell script may start it.
    fn annotate(&self, line: CommandLine) -> CommandLine {
        let workload = &self.config.workload;
        match self.files.scripts.as_ref().filter(|_| workload.annotate) {
            Some(scripts) => Annotation::from_env(&scripts.annotate, workload.annotate_sync).apply(line),
            None => line,
        }
    }

    /// Returns the serving engine or the launcher of ranks that the command starts, where it names one.
    pub fn serving_engine(&self) -> Option<&'static str> {
        let words = self.config.workload.words();
        let engine = || Engine::of_command(&words).map(|engine| engine.name);
        match self.config.workload.kind {
            WorkloadKind::Command => engine().or_else(|| launcher(&words)),
            // Servers start processes of their own.
            WorkloadKind::Server => engine().or(Some("a server")),
            _ => None,
        }
    }

    /// Returns the engine or launcher that the command, or the account of an earlier phase, names.
    pub fn engine(&self) -> Option<String> {
        let layout = &self.layout;
        let accounts = [layout.baseline_account(), layout.native_account(), layout.nsys_account()];
        let by_account = || accounts.into_iter().find_map(|path| account_at(path)?.engine?.name);
        self.serving_engine().map(str::to_owned).or_else(by_account)
    }

    fn context(&self, phase: PhaseName, account: &Path) -> ProgramContext {
        let workload = &self.config.workload;
        ProgramContext {
            run_dir: self.layout.root().to_owned(),
            phase: phase.as_str(),
            account: account.to_owned(),
            cwd: workload.cwd.clone(),
            env: workload.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        }
    }

    /// Returns the Hydra module, which is asked for the overrides it accepts, with its output folder and its context then.
    pub fn hydra(&mut self) -> Option<(&mut HydraModule, PathBuf, ProgramContext)> {
        let context = self.context(PhaseName::Baseline, &self.layout.root().join("unused.json"));
        let output = self.layout.program_outputs().join("check");
        Some((self.module.as_mut()?, output, context))
    }

    /// Builds the command line of a Hydra module with its own torch.profiler on; `None` for another program, and where the module has
    /// no switch for it.
    pub fn with_own_profiler(&self, config: Option<&ComposedConfig>) -> Option<CommandLine> {
        let phase = PhaseName::Operators;
        let module = self.module.as_ref()?.with_profiler(config)?;
        let context = self.context(phase, &self.layout.torch_other_account());
        let output = self.layout.program_outputs().join(phase.as_str());
        Some(self.annotate(module.command(&output, &context)))
    }

    /// Builds `python3 hf_driver.py --model=... --account=...`, which runs a Hugging Face model.
    fn hf(&self, phase: PhaseName, account: &Path) -> Result<CommandLine, Error> {
        let Config { workload, model, profiling, inputs, .. } = &self.config;
        let scripts = self.files.scripts.as_ref();
        let scripts =
            scripts.ok_or_else(|| Error::new("the driver for Hugging Face models was not written"))?;
        let config_json = model::own_config(model).or(self.files.model_config.clone());
        let (from, source) = match (model::weights(model), config_json, &model.model_type) {
            (Some(folder), ..) => ("--model", absolute(folder).into_os_string()),
            (None, Some(file), _) => ("--config-json", absolute(file).into_os_string()),
            (None, None, Some(kind)) => ("--model-type", kind.into()),
            (None, None, None) => {
                return Err(Error::new("no model: choose model=NAME, model.target or model.config"));
            }
        };
        // Always `--name=value`: a value may start with a dash.
        let mut line = CommandLine::new(&workload.python).arg(&scripts.driver).option(from, source);
        for (key, value) in &model.set {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            line = line.option("--set", format!("{key}={value}"));
        }
        let number = |value: u32| Some(OsString::from(value.to_string()));
        let text = |value: &Option<String>| value.as_ref().map(OsString::from);
        let is_counters = phase == PhaseName::Counters;
        let most_tokens = if is_counters { COUNTER_TOKENS.get() } else { u32::MAX };
        let operators = (phase == PhaseName::Operators).then_some(&self.layout);
        let options = [
            ("--name", text(&model.name)),
            ("--revision", text(&model.revision)),
            ("--dtype", Some((&model.dtype).into())),
            ("--device", Some((&workload.device).into())),
            ("--prompt-tokens", workload.prompt_tokens.and_then(number)),
            ("--new-tokens", workload.tokens.and_then(|tokens| number(tokens.min(most_tokens)))),
            ("--batch", number(workload.batch)),
            ("--repeats", number(repeats_in(workload.repeats, phase))),
            ("--warmup", number(if is_counters { 0 } else { workload.warmup })),
            ("--seed", Some(workload.seed.to_string().into())),
            ("--prompt", text(&workload.prompt)),
            ("--image-size", workload.image_size.and_then(number)),
            ("--manifest", inputs.manifest.clone().map(|path| absolute(path).into())),
            ("--profile-operators", operators.map(|layout| layout.torch_account().into())),
            (
                "--trace-out",
                operators.filter(|_| profiling.torch.trace).map(|layout| layout.torch_trace().into()),
            ),
            ("--account", Some(account.into())),
        ];
        for (name, value) in options {
            line = value.into_iter().fold(line, |line, value| line.option(name, value));
        }
        let last = [
            workload.compile.then(|| "--compile".to_owned()),
            workload.cuda_graphs.then(|| "--cuda-graphs".to_owned()),
            Some(format!("--task={}", model.task.as_str())),
            model.attention.as_ref().map(|name| format!("--attention={name}")),
            model.experts.as_ref().map(|name| format!("--experts={name}")),
            model.trust_remote_code.then(|| "--trust-remote-code".to_owned()),
        ];
        // Buffered output would be lost when the program is killed.
        Ok(line.args(last.into_iter().flatten()).env("PYTHONUNBUFFERED", "1"))
    }
}

/// Builds `roofgap load OVERRIDE... -- SERVER ARG...`. Under ncu, which replays every kernel, one round of short requests is enough.
fn load_words(executable: &Path, config: &Config, phase: PhaseName) -> Vec<OsString> {
    let server = &config.server;
    let (mut load, mut ready_timeout) = (config.load.clone(), server.ready_timeout);
    if phase == PhaseName::Counters {
        // A server starts and answers more slowly under ncu, and requests at a rate would pile up.
        ready_timeout.0 *= COUNTER_PATIENCE;
        load.timeout.0 *= COUNTER_PATIENCE;
        load = Load {
            requests: load.requests.min(u64::from(load.concurrency)),
            warmup: 0,
            output_tokens: COUNTER_TOKENS,
            rate: None,
            duration: None,
            ..load
        };
    }
    load.prompts = load.prompts.map(absolute);
    let keys = json!({
        "server": { "url": server.url, "ready_timeout": ready_timeout },
        "run": { "grace": config.run.grace },
        "workload": { "seed": config.workload.seed },
        "load": load,
    });
    let mut words: Vec<OsString> = vec![executable.into(), "load".into()];
    for (section, values) in keys.as_object().into_iter().flatten() {
        let values = values.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        words.extend(values.map(|(key, value)| format!("{section}.{key}={value}").into()));
    }
    words.push("--".into());
    words.extend(config.workload.words());
    words
}

/// Makes a path independent of the working directory.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// Tokens generated under ncu. Each launch shape is measured once, and all steps have the same.
const COUNTER_TOKENS: NonZeroU32 = NonZeroU32::MIN.saturating_add(7);

/// Factor of the time limits of a server under ncu.
pub const COUNTER_PATIENCE: u32 = 3;

/// Returns the repeats of a phase. Under ncu one repeat contains every launch shape.
fn repeats_in(repeats: u32, phase: PhaseName) -> u32 {
    if phase == PhaseName::Counters { 1 } else { repeats }
}

fn embedded_args(workload: &Workload, manifest: Option<&Manifest>, phase: PhaseName) -> Vec<String> {
    // Every item of a manifest has its turn.
    let items = manifest.map_or(0, |manifest| u32::try_from(manifest.items.len()).unwrap_or(u32::MAX));
    let repeats = repeats_in(workload.repeats, phase).max(items);
    let own = manifest.map(|manifest| manifest.embedded_options(workload.prompt_tokens.unwrap_or(1)));
    let number = |value: Option<u32>| value.map(|value| value.to_string());
    let options = [
        ("--preset", Some(workload.size.clone())),
        ("--seed", Some(workload.seed.to_string())),
        ("--prompt-tokens", number(workload.prompt_tokens)),
        ("--new-tokens", number(workload.tokens)),
        ("--repeats", number(Some(repeats))),
        ("--warmup", number(Some(workload.warmup))),
        ("--image-size", number(workload.image_size)),
        ("--threads", number(workload.threads)),
    ];
    let given = options.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value?]));
    let mut args: Vec<String> = given.flatten().collect();
    if !workload.kv_cache {
        args.push("--no-kv-cache".to_owned());
        args.extend(workload.context_limit.map(|limit| format!("--context-limit={limit}")));
    }
    args.extend(own.into_iter().flatten());
    args
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
        Program::of(&config, Path::new("/bin/roofgap"), &Layout::of(Path::new("/r")), files).unwrap()
    }

    fn words(program: &Program, phase: PhaseName) -> Vec<String> {
        program.command(phase, Path::new("/r/a.json")).unwrap().argv()
    }

    #[test]
    fn a_model_by_its_type_and_its_options() {
        let program = program(&[
            "workload=hf",
            "model=deepseek_ocr2",
            "+model.set.use_cache=true",
            "workload.tokens=8",
        ]);
        let argv = words(&program, PhaseName::Baseline);
        for word in [
            "--model-type=deepseek_ocr2",
            "--set=use_cache=true",
            "--new-tokens=8",
            "--task=image_text",
            "--repeats=3",
        ] {
            assert!(argv.iter().any(|found| found == word), "{word} is not in {argv:?}");
        }
        assert!(!argv.iter().any(|word| word.starts_with("--profile-operators")));
        let argv = words(&program, PhaseName::Operators);
        assert!(argv.contains(&"--profile-operators=/r/torch/operators.json".to_owned()), "{argv:?}");
        let argv = words(&program, PhaseName::Counters);
        for word in ["--repeats=1", "--warmup=0", "--new-tokens=8"] {
            assert!(argv.iter().any(|found| found == word), "{word} is not in {argv:?}");
        }
    }

    #[test]
    fn the_embedded_model_is_this_binary() {
        let argv = words(&program(&["workload.size=small", "workload.threads=2"]), PhaseName::Baseline);
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
            "load.prompt_tokens=900",
            "load.duration=500ms",
        ]);
        let argv = words(&program, PhaseName::Baseline);
        assert_eq!(argv[..2], ["/bin/roofgap", "load"]);
        for word in [
            "load.rate=2.5",
            "load.requests=64",
            "load.warmup=8",
            "load.prompt_tokens=900",
            "load.output_tokens=128",
            "load.duration=\"0.5s\"",
        ] {
            assert!(argv.contains(&word.to_owned()), "{word} in {argv:?}");
        }
        assert!(argv.ends_with(&["--", "vllm", "serve", "m"].map(str::to_owned)));
        let counters = words(&program, PhaseName::Counters);
        for word in [
            "load.requests=8",
            "load.warmup=0",
            "load.output_tokens=8",
            "server.ready_timeout=\"30m\"",
            "load.timeout=\"15m\"",
        ] {
            assert!(counters.contains(&word.to_owned()), "{word} in {counters:?}");
        }
        assert!(!counters.iter().any(|word| word.starts_with("load.rate")), "{counters:?}");
    }

    #[test]
    fn a_folder_with_weights_is_the_model() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), r#"{"model_type": "llama"}"#).unwrap();
        let target = format!("model.target='{}'", folder.path().display());
        let argv = words(&program(&["workload=hf", &target]), PhaseName::Baseline);
        let config = format!("--config-json={}", folder.path().join("config.json").display());
        assert_eq!(argv[..3], ["python3", "/s/hf_driver.py", &config], "random weights: {argv:?}");
        std::fs::write(folder.path().join("model.safetensors"), "x").unwrap();
        let argv = words(&program(&["workload=hf", &target]), PhaseName::Baseline);
        let model = format!("--model={}", folder.path().display());
        assert_eq!(argv[..3], ["python3", "/s/hf_driver.py", &model], "{argv:?}");
        assert!(argv.contains(&"--account=/r/a.json".to_owned()), "{argv:?}");
    }

    #[test]
    fn the_driver_accepts_every_option() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = folder.path().join("no-such-manifest.yaml");
        let overrides = [
            "workload=hf",
            "model=deepseek_ocr2",
            "+model.set.num_hidden_layers=2",
            "model.name=tiny",
            "model.revision=main",
            "model.dtype=bf16",
            "workload.device=cpu",
            "workload.prompt='-what is this?'",
            "workload.image_size=64",
            "workload.compile=true",
            "workload.cuda_graphs=true",
            "model.attention=eager",
            "model.experts=eager",
            &format!("inputs.manifest='{}'", manifest.display()),
        ]
        .map(str::to_owned);
        let composed = compose(&ConfigProps { overrides: overrides.to_vec(), ..ConfigProps::default() });
        let scripts = Some(Scripts::install(folder.path()).unwrap());
        let files = ProgramFiles { scripts, model_config: None };
        let layout = Layout::of(folder.path());
        let program = Program::of(&composed.unwrap().config, Path::new("/x"), &layout, files).unwrap();
        let line = program.command(PhaseName::Operators, &folder.path().join("a.json")).unwrap();
        let Ok(output) = roofgap_collect::child::probe(&line, std::time::Duration::from_secs(600)) else {
            return;
        };
        // The manifest is checked only after all arguments are parsed.
        assert!(output.stderr.contains("no such file: --manifest"), "{}", output.text());
    }
}
