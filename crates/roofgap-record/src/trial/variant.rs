//! A workload with changes, as overrides of its configuration and as a command.

use std::path::Path;

use roofgap_analyze::{Knob, KnobChange, OutputEffect};
use roofgap_collect::command::{CommandLine, word_of_text};
use roofgap_runs::config::Config;
use roofgap_runs::config::settings::WorkloadKind;

use super::plan::Candidate;

/// Override that makes a session a run by itself. With the id of a run of several nodes, it would become another of them.
pub const SINGLE_RUN: &str = "run.id=null";

/// A workload with changes. Without any it is the workload of the run.
#[derive(Debug, Clone, Default)]
pub struct Variant<'a> {
    /// Changes, in the order in which they are applied.
    pub changes: Vec<&'a Candidate>,
}

impl Variant<'_> {
    /// Returns the ids of the changes.
    pub fn ids(&self) -> Vec<String> {
        self.changes.iter().map(|change| change.knob.id.clone()).collect()
    }

    /// Returns the name in messages.
    pub fn label(&self) -> String {
        if self.changes.is_empty() { "base".to_owned() } else { self.ids().join(" + ") }
    }

    /// Returns the largest effect of the changes on the output.
    pub fn effect(&self) -> OutputEffect {
        let has = |effect: &OutputEffect| self.changes.iter().any(|change| change.knob.output == *effect);
        let effects = [OutputEffect::Changes, OutputEffect::Rounding];
        effects.into_iter().find(has).unwrap_or(OutputEffect::None)
    }

    fn steps(&self) -> impl Iterator<Item = &KnobChange> {
        self.changes.iter().flat_map(|change| &change.knob.changes)
    }

    /// Returns the program and its arguments with the changed flags.
    fn program(&self, config: &Config) -> Vec<String> {
        let mut words = config.workload.program.clone();
        for change in self.steps() {
            match change {
                KnobChange::AddFlag { flag, value } => {
                    remove_flag(&mut words, flag, value.is_some());
                    words.push(flag.clone());
                    words.extend(value.clone());
                }
                KnobChange::RemoveFlag { flag, takes_value } => remove_flag(&mut words, flag, *takes_value),
                KnobChange::Setting { .. } | KnobChange::Environment { .. } => {}
            }
        }
        words
    }

    /// Returns the overrides that make these changes to the configuration of the run.
    pub fn overrides(&self, config: &Config) -> Vec<String> {
        let mut overrides: Vec<String> = self
            .steps()
            .filter_map(|change| match change {
                KnobChange::Setting { key, value } => Some(format!("{key}={value}")),
                KnobChange::Environment { name, value } => {
                    Some(format!("++workload.env.{name}={}", quoted(value)))
                }
                KnobChange::AddFlag { .. } | KnobChange::RemoveFlag { .. } => None,
            })
            .collect();
        let program = self.program(config);
        if program != config.workload.program {
            let words: Vec<String> = program.iter().map(|word| quoted(word)).collect();
            overrides.push(format!("workload.program=[{}]", words.join(", ")));
        }
        overrides
    }

    /// Returns the command that profiles the workload with these changes.
    pub fn profile_command(&self, run: &Path, config: &Config) -> String {
        let line = CommandLine::new("roofgap").args(["profile", "--config"]);
        line.arg(run.join("config.yaml"))
            .args(self.overrides(config))
            .args(config.run.id.as_ref().map(|_| SINGLE_RUN))
            .to_string()
    }

    /// Returns the command that runs the workload with these changes: that of the program itself where only its flags and its
    /// environment change.
    pub fn command(&self, run: &Path, config: &Config) -> String {
        let is_program = matches!(config.workload.kind, WorkloadKind::Command | WorkloadKind::Server)
            && !self.steps().any(|change| matches!(change, KnobChange::Setting { .. }));
        let mut words = self.program(config).into_iter().map(|word| word_of_text(&word));
        let Some(program) = words.next().filter(|_| is_program) else {
            return self.profile_command(run, config);
        };
        let mut line = CommandLine::new(program).args(words);
        for (name, value) in &config.workload.env {
            line = line.env(name, value);
        }
        for change in self.steps() {
            if let KnobChange::Environment { name, value } = change {
                line = line.env(name, value);
            }
        }
        if let Some(folder) = &config.workload.cwd {
            line = line.cwd(folder);
        }
        line.to_string()
    }
}

/// Tells whether two knobs change the same setting, flag or variable.
pub fn conflict(a: &Knob, b: &Knob) -> bool {
    fn subject(change: &KnobChange) -> (u8, String) {
        match change {
            KnobChange::Setting { key, .. } => (0, key.clone()),
            KnobChange::AddFlag { flag, .. } | KnobChange::RemoveFlag { flag, .. } => (1, spelled(flag)),
            KnobChange::Environment { name, .. } => (2, name.clone()),
        }
    }
    let subjects: Vec<_> = a.changes.iter().map(subject).collect();
    b.changes.iter().any(|change| subjects.contains(&subject(change)))
}

/// Removes a flag, written as `--flag`, `--flag value` or `--flag=value`.
fn remove_flag(words: &mut Vec<String>, flag: &str, takes_value: bool) {
    let flag = spelled(flag);
    let mut kept = Vec::new();
    let mut rest = std::mem::take(words).into_iter();
    while let Some(word) = rest.next() {
        match word.split_once('=') {
            None if spelled(&word) == flag => {
                if takes_value {
                    rest.next();
                }
            }
            Some((name, _)) if spelled(name) == flag => {}
            _ => kept.push(word),
        }
    }
    *words = kept;
}

/// Returns one spelling of a flag: engines accept `--max_num_seqs` for `--max-num-seqs`.
fn spelled(flag: &str) -> String {
    flag.replace('_', "-")
}

/// Quotes a value of an override.
pub fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_runs::config::{ConfigProps, compose};

    fn candidate(id: &str, changes: Vec<KnobChange>) -> Candidate {
        Candidate { knob: knob(id, changes), findings: Vec::new() }
    }

    fn knob(id: &str, changes: Vec<KnobChange>) -> Knob {
        Knob {
            id: id.to_owned(),
            title: id.to_owned(),
            changes,
            output: OutputEffect::None,
            applies: String::new(),
        }
    }

    fn flag(flag: &str, value: Option<&str>) -> KnobChange {
        KnobChange::AddFlag { flag: flag.to_owned(), value: value.map(str::to_owned) }
    }

    fn variable(name: &str, value: &str) -> KnobChange {
        KnobChange::Environment { name: name.to_owned(), value: value.to_owned() }
    }

    fn without(flag: &str, takes_value: bool) -> KnobChange {
        KnobChange::RemoveFlag { flag: flag.to_owned(), takes_value }
    }

    fn config(overrides: &[&str]) -> Config {
        let overrides = overrides.iter().map(|text| (*text).to_owned()).collect();
        let props = ConfigProps { overrides, ..ConfigProps::default() };
        compose(&props).unwrap().config
    }

    #[test]
    fn flags_are_added_replaced_and_removed() {
        let config = config(&[
            "workload=command",
            "workload.program=[python, run.py, --enforce-eager, --max_num_seqs=8, --dtype, half, -x]",
        ]);
        let change = candidate(
            "k",
            vec![
                without("--enforce-eager", false),
                without("--dtype", true),
                flag("--max-num-seqs", Some("64")),
                flag("--fast", None),
            ],
        );
        let variant = Variant { changes: vec![&change] };
        let expected = ["python", "run.py", "-x", "--max-num-seqs", "64", "--fast"];
        assert_eq!(variant.program(&config), expected);
        assert_eq!(variant.command(Path::new("r"), &config), "python run.py -x --max-num-seqs 64 --fast");
        assert!(Variant::default().overrides(&config).is_empty());
    }

    #[test]
    fn overrides_compose_to_the_changed_workload() {
        let words = ["sh", "-c", "echo 'a, b]' \\\\ $X", "--eager"];
        let list = words.map(quoted).join(", ");
        let program = format!("workload.program=[{list}]");
        let base = ["workload=command", program.as_str()];
        let change = candidate("k", vec![without("--eager", false), variable("MODE", "it's \\ 1, 2")]);
        let overrides = Variant { changes: vec![&change] }.overrides(&config(&base));
        let mut all: Vec<&str> = base.to_vec();
        all.extend(overrides.iter().map(String::as_str));
        let changed = config(&all);
        assert_eq!(changed.workload.program, words[..3]);
        assert_eq!(changed.workload.env["MODE"], "it's \\ 1, 2");
    }

    #[test]
    fn a_setting_is_kept_by_a_command_of_roofgap() {
        let setting =
            KnobChange::Setting { key: "workload.cuda_graphs".to_owned(), value: "true".to_owned() };
        let change = candidate("hf.cuda_graphs", vec![setting]);
        let variant = Variant { changes: vec![&change] };
        assert_eq!(
            variant.command(Path::new("/runs/1"), &config(&[])),
            "roofgap profile --config /runs/1/config.yaml workload.cuda_graphs=true"
        );
        assert_eq!(
            variant.command(Path::new("/runs/job7"), &config(&["run.id=job7"])),
            "roofgap profile --config /runs/job7/config.yaml workload.cuda_graphs=true run.id=null",
            "another run, not another node of the job"
        );
        assert_eq!(variant.label(), "hf.cuda_graphs");
        assert_eq!(Variant::default().label(), "base");
    }

    #[test]
    fn knobs_of_the_same_flag_conflict() {
        let a = knob("a", vec![flag("--max-num-seqs", Some("64"))]);
        let b = knob("b", vec![flag("--max_num_seqs", Some("128"))]);
        let c = knob("c", vec![variable("--max-num-seqs", "1")]);
        assert!(conflict(&a, &b) && conflict(&b, &a));
        assert!(!conflict(&a, &c));
    }
}
