//! The composed configuration of a Hydra module, as `--cfg job` prints it.

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
pub struct ProfilerSection {
    /// Dotted key of the map.
    pub(super) key: String,
    /// Dotted key of its switch, if it has one.
    pub(super) switch: Option<String>,
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
        ComposedConfig { entries }
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
    pub(super) fn profilers_on(&self) -> Vec<ProfilerSection> {
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
    pub(super) fn reports_on(&self) -> Vec<&str> {
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
