//! Changes of a workload that users and agents write down.

use super::read_yaml;
use roofgap_analyze::{Knob, KnobChange, OutputEffect};
use roofgap_base::error::Error;
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

/// A change with the values to try.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpaceKnob {
    flag: Option<String>,
    remove: Option<String>,
    env: Option<String>,
    setting: Option<String>,
    #[serde(default)]
    values: Vec<Value>,
    output: Option<OutputEffect>,
    title: Option<String>,
}

/// Makes a change of a flag, variable or setting from its name and a value.
type MakeChange = fn(String, Option<String>) -> KnobChange;

/// Reads changes from YAML: a list of `flag`, `env` or `setting`, each with `values` to try, or of `remove`, a switch.
///
/// # Errors
/// Fails when the text is not YAML of that form.
pub fn read_space(text: &str, file: &Path) -> Result<Vec<Knob>, Error> {
    let wrong = |why: String| Error::new(format!("{} is not a list of changes: {why}", file.display()));
    let value = read_yaml(text, file).map_err(|error| wrong(error.to_string()))?;
    let rows: Vec<SpaceKnob> = serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
    let mut knobs = Vec::new();
    for SpaceKnob { flag, remove, env, setting, values, output, title } in rows {
        let needs_value = env.is_some() || setting.is_some();
        let (prefix, subject, change): (&str, String, MakeChange) = match (flag, remove, env, setting) {
            (Some(flag), None, None, None) => ("", flag, |flag, value| KnobChange::AddFlag { flag, value }),
            (None, Some(flag), None, None) if !values.is_empty() => {
                return Err(wrong(format!("remove takes a switch, and {flag} has values")));
            }
            (None, Some(flag), None, None) => {
                ("without ", flag, |flag, _| KnobChange::RemoveFlag { flag, takes_value: false })
            }
            (None, None, Some(name), None) => ("env.", name, |name, value| {
                let value = value.unwrap_or_default();
                KnobChange::Environment { name, value }
            }),
            (None, None, None, Some(key)) => {
                ("", key, |key, value| KnobChange::Setting { key, value: value.unwrap_or_default() })
            }
            _ => return Err(wrong("expected one of flag, remove, env and setting in each row".to_owned())),
        };
        let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let mut values: Vec<Option<String>> = values.into_iter().map(|value| Some(text(value))).collect();
        if values.is_empty() {
            if needs_value {
                return Err(wrong(format!("{subject} has no values")));
            }
            values.push(None);
        }
        for value in values {
            let suffix = value.as_ref().map(|value| format!("={value}")).unwrap_or_default();
            let change = change(subject.clone(), value);
            let verb = if prefix == "without " { "run " } else { "set " };
            knobs.push(Knob {
                id: format!("{prefix}{subject}{suffix}"),
                title: title.clone().unwrap_or_else(|| format!("{verb}{change}")),
                changes: vec![change],
                output: output.unwrap_or(OutputEffect::None),
                applies: "given by the user".to_owned(),
            });
        }
    }
    if knobs.is_empty() {
        return Err(wrong("it is empty".to_owned()));
    }
    Ok(knobs)
}
