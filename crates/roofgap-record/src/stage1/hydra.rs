//! A Python module configured by Hydra: with its output in the run directory and its own profilers off.

use std::path::{Path, PathBuf};
use std::time::Duration;

use roofgap_collect::child::{ProbeOutput, probe};
use roofgap_collect::command::CommandLine;
use roofgap_collect::program::ProgramContext;

use crate::run::context::PhaseContext;
use crate::run::inputs::Manifest;
use crate::run::program::Program;
use roofgap_base::error::Error;

/// Time limit of a question to a Hydra module, which imports its libraries first.
const MODULE_LIMIT: Duration = Duration::from_secs(120);

/// Configures a Hydra module for all phases: gives it the manifest, and turns off its own measurements where it accepts that.
pub fn configure_module(context: &mut PhaseContext<'_>, program: &mut Program) -> Result<(), Error> {
    let Some((module, output, setting)) = program.hydra() else {
        return Ok(());
    };
    let own = module.own_config(&output, &setting)?;
    let inputs = match &context.config.inputs.manifest {
        Some(path) => give_manifest(context, module, &own, path)?,
        None => 1,
    };
    let accepted = module.inject_light_overrides(&own, inputs, &output, &setting)?;
    for text in accepted.dropped {
        context.note(format!("the module does not accept {text}; it was left out"));
    }
    for section in accepted.profilers_on {
        context.warn(format!(
            "torch.profiler of the module stays on ({section}): its times include that, and it can block nsys and ncu; turn it off with workload.overrides"
        ));
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
) -> Result<usize, Error> {
    /// Key of the Stage 1 runner: a file with one image a line.
    const FILE_LIST: &str = "dataset.subset_filelist";
    let unused = |why| {
        Error::new(format!(
            "the module would not use every item of {}: {why}; give it its inputs with workload.overrides, or remove inputs.manifest",
            path.display()
        ))
    };
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
    /// Overrides that turn off measurements of the module; see [`HydraModule::inject_light_overrides`].
    pub light_overrides: Vec<String>,
    /// Overrides of the user. They come last and win.
    pub overrides: Vec<String>,
    /// Keys among the light overrides that turn off torch.profiler.
    pub profiler_switches: Vec<String>,
}

/// Choice of a group that turns off the static analysis of the Stage 1 runner.
const NO_STATIC: &str = "runners=stage1.no-static";

/// Keys of the Stage 1 runner that its documents turn off when it is profiled.
const OUTPUTS: [&str; 2] = ["outputs.save_predictions", "outputs.visualization.enable"];

/// Keys that limit the inputs of one run, in the order of the runner's versions.
const INPUT_LIMITS: [&str; 2] = ["repeats", "dataset.sampling.num_samples_per_epoch"];

/// Sections of torch.profiler that the documents name. Both have the switch `enabled`, even where it is not in the file.
const PROFILERS: [&str; 2] = ["torch_profiler", "profiling"];

/// Overrides for a torch.profiler that cannot be turned off, below its section, beside those for a short run.
const LIGHTER: [(&str, &str); 4] = [
    ("activities", "[cpu]"),
    ("record_shapes", "false"),
    ("profile_memory", "false"),
    ("with_stack", "false"),
];

/// Overrides for a short run with torch.profiler on, below its section, where the module has the keys.
const SHORTER: [(&str, &str); 2] = [("warmup_rounds", "0"), ("rep_max_new_tokens", "16")];

impl HydraModule {
    /// Sets a key of the module, unless the user sets it.
    pub fn set(&mut self, name: &str, value: &str) {
        if !self.overrides.iter().any(|text| key(text) == name) {
            self.overrides.insert(0, assign(name, value));
        }
    }

    /// Builds `python -m MODULE ...` with the outputs of the module in `output`.
    pub fn command(&self, output: &Path, context: &ProgramContext) -> CommandLine {
        context.apply(self.line(output).env("PYTHONUNBUFFERED", "1"))
    }

    /// Returns the module with its torch.profiler on, for a short run; `None` for one whose profiler has no switch that it accepts.
    pub fn with_profiler(&self, config: Option<&ComposedConfig>) -> Option<Self> {
        let is_switch = |text: &String| self.profiler_switches.iter().any(|switch| key(text) == switch);
        let mut module = self.clone();
        let mut sections: Vec<String> = Vec::new();
        for text in module.light_overrides.iter_mut().filter(|text| is_switch(text)) {
            sections.extend(key(text).rsplit_once('.').map(|(section, _)| section.to_owned()));
            *text = text.replace("=false", "=true");
        }
        for section in &sections {
            for (name, value) in SHORTER {
                let key = format!("{section}.{name}");
                if config.is_some_and(|config| config.has(&key)) {
                    module.light_overrides.push(format!("{key}={value}"));
                }
            }
        }
        (!sections.is_empty()).then_some(module)
    }

    /// Asks the module for its configuration under the overrides of the user, without running it.
    pub fn own_config(&self, output: &Path, context: &ProgramContext) -> Result<ComposedConfig, Error> {
        let bare = Self { mode: String::new(), manifest: None, light_overrides: Vec::new(), ..self.clone() };
        let answer = bare.probe(output, context)?;
        if answer.output.success {
            return Ok(ComposedConfig::parse(&answer.output.stdout));
        }
        Err(answer.rejected())
    }

    /// Chooses the overrides for a profiled run: one pass over `inputs` inputs, no reports, and no torch.profiler, which would
    /// block the counters that nsys and ncu need.
    ///
    /// Torch.profiler is turned off by the switch that the documents name. A section elsewhere, which that switch would leave
    /// on, is turned off by its own switch.
    fn lighten(&mut self, own: &ComposedConfig, inputs: usize) {
        let mut light = vec![NO_STATIC.to_owned()];
        let outputs = OUTPUTS.into_iter().filter(|key| own.has(key));
        light.extend(outputs.map(|key| format!("{key}=false")));
        let limit = INPUT_LIMITS.into_iter().find(|key| own.has(key));
        light.extend(limit.map(|key| format!("{key}={inputs}")));
        for switch in own.reports_on() {
            if !light.iter().any(|text| key(text) == switch) {
                light.push(format!("{switch}=false"));
            }
        }
        let profilers = own.profilers_on();
        if profilers.is_empty() && !PROFILERS.iter().any(|section| own.has(section)) {
            light.push(set_or_add(own, "torch_profiler.enabled", "false"));
        }
        self.profiler_switches.clear();
        for section in profilers {
            let documented = PROFILERS.contains(&section.key.as_str());
            let switch = match section.switch {
                Some(switch) => Some(switch),
                None => documented.then(|| format!("{}.enabled", section.key)),
            };
            light.extend(switch.as_ref().map(|switch| set_or_add(own, switch, "false")));
            self.profiler_switches.extend(switch);
        }
        self.light_overrides = light;
    }

    /// Injects the overrides for a profiled run over `inputs` inputs into a module with the configuration `own`. Asks the module,
    /// without running it, which of them it accepts, and drops the others: not every module has a runner group or a profiler.
    /// A torch.profiler whose switch is rejected is made lighter instead.
    pub fn inject_light_overrides(
        &mut self,
        own: &ComposedConfig,
        inputs: usize,
        output: &Path,
        context: &ProgramContext,
    ) -> Result<AcceptedOverrides, Error> {
        self.lighten(own, inputs);
        let mut dropped = Vec::new();
        loop {
            let answer = self.probe(output, context)?;
            if answer.output.success {
                let config = ComposedConfig::parse(&answer.output.stdout);
                // A module without that group, but with a key of its name, takes the choice as a text.
                let group = self.light_overrides.iter().position(|text| text == NO_STATIC);
                if let Some(group) = group
                    && config.get("runners") == Some("stage1.no-static")
                {
                    dropped.push(self.light_overrides.remove(group));
                    continue;
                }
                let on = config.profilers_on().into_iter().map(|section| section.key);
                return Ok(AcceptedOverrides { dropped, profilers_on: on.collect(), config });
            }
            let text = answer.output.text();
            if self.drop_existing_key(&text, &mut dropped) {
                continue;
            }
            let Some(rejected) = self.rejected_override(&text) else {
                return Err(answer.rejected());
            };
            let rejected = self.light_overrides.remove(rejected);
            self.light_overrides.extend(lighter_profiler(own, &rejected));
            dropped.push(rejected);
        }
    }

    fn probe(&self, output: &Path, context: &ProgramContext) -> Result<Answer, Error> {
        let line = context.apply(self.line(output).args(["--cfg", "job"]));
        let output = probe(&line, MODULE_LIMIT).map_err(Error::of)?;
        Ok(Answer { line, output })
    }

    /// Handles a key that cannot be added because the module has it: drops the mode, sets the requested manifest.
    fn drop_existing_key(&mut self, error: &str, dropped: &mut Vec<String>) -> bool {
        if !self.mode.is_empty() && (error.contains("'run.mode'") || error.contains("override +run.mode=")) {
            let mode = std::mem::take(&mut self.mode);
            let why = if error.contains("already at") { " (the module has its own run.mode)" } else { "" };
            dropped.push(format!("+run.mode={mode}{why}"));
            return true;
        }
        if let Some(manifest) = &self.manifest
            && error.contains("already at 'inputs.manifest'")
        {
            let manifest = manifest.to_string_lossy().into_owned();
            self.manifest = None;
            self.set("inputs.manifest", &manifest);
            return true;
        }
        false
    }

    /// Finds the injected override that an error names.
    fn rejected_override(&self, error: &str) -> Option<usize> {
        let named = |text: &String| {
            let key = key(text);
            // Hydra names the missing group, the missing option, or the key that is not in the configuration.
            error.contains(&format!("'{key}'"))
                || error.contains(&format!("'{key}="))
                || error.contains(&format!("'{key}@"))
                || error.contains(&format!("full_key: {key}\n"))
                || error.contains(&format!("{key}/"))
        };
        let part_named = |text: &String| {
            key(text).rsplit_once('.').is_some_and(|(parent, leaf)| {
                let mut parts = parent.split('.').chain([leaf]);
                parts.any(|part| error.contains(&format!("Key '{part}'")))
            })
        };
        let light = &self.light_overrides;
        let whole = light.iter().position(named);
        whole.or_else(|| light.iter().position(part_named))
    }

    fn line(&self, output: &Path) -> CommandLine {
        let mut own =
            vec![assign("hydra.run.dir", &output.to_string_lossy()), "hydra.job.chdir=true".to_owned()];
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

/// Answer of a module to `--cfg job`.
struct Answer {
    line: CommandLine,
    output: ProbeOutput,
}

impl Answer {
    fn rejected(&self) -> Error {
        Error::new(format!(
            "the module rejects its configuration: it {}\n{}\nto reproduce: {}",
            self.output.ended,
            last_lines(&self.output.text(), 12),
            self.line
        ))
    }
}

/// Result of [`HydraModule::inject_light_overrides`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedOverrides {
    /// Overrides that the module rejected.
    pub dropped: Vec<String>,
    /// Keys of the sections of torch.profiler that stay on.
    pub profilers_on: Vec<String>,
    /// Configuration of the module under the accepted overrides.
    pub config: ComposedConfig,
}

/// Sets a key that exists, or adds it.
fn set_or_add(config: &ComposedConfig, key: &str, value: &str) -> String {
    let add = if config.has(key) { "" } else { "+" };
    format!("{add}{key}={value}")
}

/// Lists the overrides that make torch.profiler lighter, where the documented switch of a section was rejected.
fn lighter_profiler(own: &ComposedConfig, rejected: &str) -> Vec<String> {
    let section = key(rejected).strip_suffix(".enabled");
    let is_documented = |section: &&str| PROFILERS.contains(section) && own.has(section);
    let Some(section) = section.filter(is_documented) else {
        return Vec::new();
    };
    // The documents write `profiling=@profiling/torch/torch-profiler.min`, which Hydra takes as a text for the section.
    let mut all = vec![format!("profiling/torch@{section}=torch-profiler.min")];
    let lighter = LIGHTER.into_iter().chain(SHORTER);
    all.extend(lighter.map(|(name, value)| set_or_add(own, &format!("{section}.{name}"), value)));
    all
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
    // Backslashes are doubled only before a quote.
    let escaped = |part: &str| {
        let backslashes = part.len() - part.trim_end_matches('\\').len();
        format!("{part}{}", "\\".repeat(backslashes))
    };
    let parts: Vec<String> = value.split('\'').map(escaped).collect();
    format!("'{}'", parts.join("\\'")).replace("${", "\\${")
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Keys that turn a part of a configuration on or off, the one that wins first.
const SWITCHES: [&str; 2] = ["enable", "enabled"];

/// Maps whose switch turns on a report that costs time under a profiler.
const REPORTS: [&str; 4] = ["static", "static_analysis", "prediction", "visualization"];

/// The configuration of a module: dotted keys with their values. A map or a list has an empty value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ComposedConfig {
    entries: Vec<(String, String)>,
}

/// A section that configures torch.profiler.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ProfilerSection {
    /// Dotted key of the map.
    key: String,
    /// Dotted key of its switch, if it has one.
    switch: Option<String>,
}

impl ComposedConfig {
    /// Parses the YAML that OmegaConf writes: block style, one key a line. Other lines are ignored, because a module may
    /// print before Hydra does.
    pub fn parse(yaml: &str) -> Self {
        let mut entries = Vec::new();
        let mut parents: Vec<(usize, String)> = Vec::new();
        for line in yaml.lines() {
            let text = line.trim();
            let indent = line.len() - line.trim_start().len();
            let (key, value) = match text.split_once(": ") {
                Some((key, value)) => (key, value.trim()),
                None => match text.strip_suffix(':') {
                    Some(key) => (key, ""),
                    None => continue,
                },
            };
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
            if key.is_empty() || key.starts_with('-') || !key.chars().all(plain) {
                continue;
            }
            parents.retain(|(of, _)| *of < indent);
            let path = match parents.last() {
                Some((_, parent)) => format!("{parent}.{key}"),
                None => key.to_owned(),
            };
            entries.push((path.clone(), value.trim_matches(['\'', '"']).to_owned()));
            parents.push((indent, path));
        }
        Self { entries }
    }

    /// Returns true where the key exists.
    pub fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|(own, _)| own == key)
    }

    /// Returns the value of a key. A value that is another key, `${other.key}`, is followed.
    pub fn get(&self, key: &str) -> Option<&str> {
        let mut key = key;
        // A chain of references is short; a circle ends here.
        for _ in 0..8 {
            let (_, value) = self.entries.iter().find(|(own, _)| own == key)?;
            match value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) {
                Some(other) => key = other,
                None => return Some(value),
            }
        }
        None
    }

    /// Returns true unless the switch says off. A value that only the module can resolve counts as on.
    fn is_on(&self, key: &str) -> bool {
        let off = |value: &str| {
            matches!(value.to_ascii_lowercase().as_str(), "false" | "no" | "off" | "0" | "null")
        };
        self.has(key) && !self.get(key).is_some_and(off)
    }

    /// Finds the switch of a map.
    fn switch(&self, section: &str) -> Option<String> {
        let keys = SWITCHES.map(|name| format!("{section}.{name}"));
        keys.into_iter().find(|key| self.has(key))
    }

    /// Lists the sections of torch.profiler that are on: maps with `activities`, or named `torch_profiler`. Without a switch a
    /// section with activities is on.
    fn profilers_on(&self) -> Vec<ProfilerSection> {
        let mut found: Vec<ProfilerSection> = Vec::new();
        for (key, value) in &self.entries {
            let section = match key.rsplit_once('.') {
                Some((parent, "activities")) => parent,
                _ if last(key) == "torch_profiler" && value.is_empty() => key,
                _ => continue,
            };
            let switch = self.switch(section);
            let on = match &switch {
                Some(switch) => self.is_on(switch),
                None => self.has(&format!("{section}.activities")),
            };
            if on && !found.iter().any(|other| other.key == section) {
                found.push(ProfilerSection { key: section.to_owned(), switch });
            }
        }
        found
    }

    /// Lists the switches of reports that are on.
    fn reports_on(&self) -> Vec<&str> {
        let is_report = |key: &str| {
            key.rsplit_once('.').is_some_and(|(section, switch)| {
                SWITCHES.contains(&switch) && REPORTS.contains(&last(section))
            })
        };
        self.entries
            .iter()
            .map(|(key, _)| key.as_str())
            .filter(|key| is_report(key) && self.is_on(key))
            .collect()
    }
}

/// Returns the last part of a dotted key.
fn last(key: &str) -> &str {
    key.rsplit_once('.').map_or(key, |(_, last)| last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> ProgramContext {
        ProgramContext {
            run_dir: "/runs/1".into(),
            phase: "baseline",
            account: "/runs/1/baseline/workload.json".into(),
            ..ProgramContext::default()
        }
    }

    fn module() -> HydraModule {
        HydraModule {
            python: "python3".into(),
            module: "app.runner".into(),
            mode: "deep".into(),
            manifest: Some("/data/in puts.yaml".into()),
            light_overrides: vec!["runners=stage1.no-static".to_owned()],
            overrides: vec!["device=cuda:0".to_owned()],
            profiler_switches: Vec::new(),
        }
    }

    /// Returns the overrides chosen for a module with this configuration.
    fn light(yaml: &str) -> Vec<String> {
        let mut module = module();
        module.lighten(&ComposedConfig::parse(yaml), 2);
        module.light_overrides
    }

    #[test]
    fn the_profiler_of_the_module_is_turned_on_for_its_operators() {
        let config = ComposedConfig::parse(
            "torch_profiler:\n  enabled: true\n  warmup_rounds: 2\n  activities:\n  - cpu\n",
        );
        let mut module = module();
        module.lighten(&config, 1);
        assert!(module.light_overrides.contains(&"torch_profiler.enabled=false".to_owned()));
        let on = module.with_profiler(Some(&config)).unwrap().light_overrides;
        for word in
            ["runners=stage1.no-static", "torch_profiler.enabled=true", "torch_profiler.warmup_rounds=0"]
        {
            assert!(on.iter().any(|text| text == word), "no {word} in {on:?}");
        }
        // A module without torch.profiler has nothing to turn on.
        module.lighten(&ComposedConfig::parse("repeats: 3\n"), 1);
        assert_eq!(module.with_profiler(None), None);
    }

    #[test]
    fn outputs_go_into_the_run() {
        assert_eq!(
            module().command(Path::new("/runs/1/baseline/out"), &example()).argv(),
            [
                "python3",
                "-m",
                "app.runner",
                "hydra.run.dir=/runs/1/baseline/out",
                "hydra.job.chdir=true",
                "+run.mode=deep",
                "+inputs.manifest='/data/in puts.yaml'",
                "runners=stage1.no-static",
                "device=cuda:0",
            ]
        );
    }

    #[test]
    fn documented_keys_of_a_stage_1_runner_are_set() {
        let first = "repeats: 3\noutputs:\n  save_predictions: true\n  visualization:\n    enable: true\n\
                     torch_profiler:\n  enabled: true\n  activities:\n  - cpu\n";
        assert_eq!(
            light(first),
            [
                "runners=stage1.no-static",
                "outputs.save_predictions=false",
                "outputs.visualization.enable=false",
                "repeats=2",
                "torch_profiler.enabled=false",
            ]
        );
    }

    #[test]
    fn a_documented_switch_that_is_not_in_the_file_is_added() {
        assert_eq!(
            light("profiling:\n  activities:\n  - cpu\n"),
            ["runners=stage1.no-static", "+profiling.enabled=false"]
        );
        // A module without any section of torch.profiler may still read the switch.
        assert_eq!(light("device: cuda:0\n"), ["runners=stage1.no-static", "+torch_profiler.enabled=false"]);
        assert_eq!(light("torch_profiler:\n  enabled: false\n"), ["runners=stage1.no-static"]);
    }

    #[test]
    fn a_profiler_elsewhere_is_turned_off_by_its_own_switch() {
        let later = "dataset:\n  sampling:\n    num_samples_per_epoch: null\npipeline:\n  static_analysis:\n    enable: true\n  \
                     torch_profiler:\n    enabled: true\n    activities:\n    - cpu\n    enable: ${pipeline.torch_profiler.enabled}\n";
        assert_eq!(
            light(later),
            [
                "runners=stage1.no-static",
                "dataset.sampling.num_samples_per_epoch=2",
                "pipeline.static_analysis.enable=false",
                "pipeline.torch_profiler.enable=false",
            ]
        );
    }

    #[test]
    fn a_profiler_that_cannot_be_turned_off_is_made_lighter() {
        let own = ComposedConfig::parse("profiling:\n  activities:\n  - cpu\n");
        let lighter = lighter_profiler(&own, "+profiling.enabled=false");
        assert_eq!(
            lighter,
            [
                "profiling/torch@profiling=torch-profiler.min",
                "profiling.activities=[cpu]",
                "+profiling.record_shapes=false",
                "+profiling.profile_memory=false",
                "+profiling.with_stack=false",
                "+profiling.warmup_rounds=0",
                "+profiling.rep_max_new_tokens=16",
            ]
        );
        assert_eq!(lighter_profiler(&own, "+torch_profiler.enabled=false"), Vec::<String>::new());
    }

    #[test]
    fn keys_that_exist_in_the_module() {
        let (mut module, mut dropped) = (module(), Vec::new());
        let taken = |key: &str| format!("Could not append to config. An item is already at '{key}'.");
        assert!(module.drop_existing_key(&taken("run.mode"), &mut dropped));
        assert!(module.drop_existing_key(&taken("inputs.manifest"), &mut dropped));
        for key in ["run.mode", "inputs.manifest", "another"] {
            assert!(!module.drop_existing_key(&taken(key), &mut dropped), "{key} a second time");
        }
        assert_eq!(dropped.len(), 1);
        let argv = module.command(Path::new("/o"), &example()).argv();
        assert!(!argv.iter().any(|word| word.contains("run.mode")), "{argv:?}");
        assert!(argv.contains(&"inputs.manifest='/data/in puts.yaml'".to_owned()), "{argv:?}");
    }

    #[test]
    fn overrides_of_the_user_replace_injected_ones() {
        let mut module = module();
        module.overrides =
            ["runners=mine", "hydra.job.chdir=false", "++run.mode=light"].map(str::to_owned).to_vec();
        let argv = module.command(Path::new("/o"), &example()).argv();
        assert_eq!(argv.iter().filter(|word| word.contains("runners")).collect::<Vec<_>>(), ["runners=mine"]);
        assert_eq!(
            argv.iter().filter(|word| word.contains("run.mode")).collect::<Vec<_>>(),
            ["++run.mode=light"]
        );
        assert_eq!(
            argv.iter().filter(|word| word.contains("chdir")).collect::<Vec<_>>(),
            ["hydra.job.chdir=false"]
        );
    }

    #[test]
    fn keys_of_overrides() {
        for (text, expected) in
            [("a.b=c=d", "a.b"), ("+a=1", "a"), ("++a=1", "a"), ("~a.b", "a.b"), ("db@pkg=mysql", "db")]
        {
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

    const YAML: &str = "\
loading the module: done
dataset:
  root: '/data/with: colon'
  patterns:
  - images/*.png
pipeline:
  static_analysis:
    enable: true
  torch_profiler:
    enabled: true
    activities:
    - cpu
    enable: ${pipeline.torch_profiler.enabled}
    output:
      visualization:
        enable: true
profiling:
  activities:
  - cpu
circle: ${circle}
repeats: 3
";

    #[test]
    fn keys_have_the_path_of_their_maps() {
        let config = ComposedConfig::parse(YAML);
        assert_eq!(config.get("repeats"), Some("3"));
        assert_eq!(config.get("dataset.root"), Some("/data/with: colon"));
        assert_eq!(config.get("pipeline.torch_profiler.enable"), Some("true"));
        assert_eq!(config.get("circle"), None);
        assert!(config.has("pipeline.torch_profiler") && !config.has("torch_profiler"));
    }

    #[test]
    fn profilers_and_reports_that_are_on() {
        let config = ComposedConfig::parse(YAML);
        let section = |key: &str, switch: Option<&str>| ProfilerSection {
            key: key.to_owned(),
            switch: switch.map(str::to_owned),
        };
        assert_eq!(
            config.profilers_on(),
            [
                section("pipeline.torch_profiler", Some("pipeline.torch_profiler.enable")),
                section("profiling", None)
            ]
        );
        assert_eq!(
            config.reports_on(),
            ["pipeline.static_analysis.enable", "pipeline.torch_profiler.output.visualization.enable"]
        );
        let unknown = ComposedConfig::parse("torch_profiler:\n  enabled: ${oc.env:PROFILE}\n");
        assert_eq!(unknown.profilers_on().len(), 1);
        let off = ComposedConfig::parse("torch_profiler:\n  enabled: false\n  activities:\n  - cpu\n");
        assert_eq!(off.profilers_on(), []);
    }
}
