//! Options a tool lists in its help. They differ between versions.

use std::collections::BTreeMap;

/// Long options in the `--help` of a tool, each with its description.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Help {
    options: BTreeMap<String, String>,
}

impl Help {
    /// Parses the help of nsys or ncu. An option starts a line indented by one or two characters.
    pub fn parse(text: &str) -> Self {
        let mut options: BTreeMap<String, String> = BTreeMap::new();
        let mut current: Vec<String> = Vec::new();
        for line in text.lines() {
            let stripped = line.trim_start();
            let indent = line.len() - stripped.len();
            if (1..=2).contains(&indent) && (stripped.starts_with('-') || stripped.starts_with('(')) {
                current = long_options(stripped);
                for name in &current {
                    options.entry(name.clone()).or_default();
                }
            }
            for name in &current {
                if let Some(text) = options.get_mut(name) {
                    text.push_str(stripped);
                    text.push('\n');
                }
            }
        }
        Help { options }
    }

    /// Returns true when the tool lists this option, such as `--cuda-event-trace`.
    pub fn has(&self, option: &str) -> bool {
        self.options.contains_key(option)
    }

    /// Returns true when the description of an option contains this value as a word.
    pub fn offers(&self, option: &str, value: &str) -> bool {
        let word = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
        self.options.get(option).is_some_and(|text| text.split(|c| !word(c)).any(|found| found == value))
    }

    /// Returns true when no option is listed, so that nothing is known about any option.
    pub fn is_empty(&self) -> bool {
        self.options.is_empty()
    }
}

/// Extracts the long options of a heading: `-k [ --kernel-name ] arg`, `-f, --force-overwrite=`, `--nvtx-domain-[include|exclude]=`.
fn long_options(heading: &str) -> Vec<String> {
    let Some(start) = heading.find("--") else {
        return Vec::new();
    };
    let rest = heading.get(start..).unwrap_or_default();
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let end = rest.find(|c| !letter(c)).unwrap_or(rest.len());
    let (name, after) = rest.split_at(end);
    match after.strip_prefix('[').and_then(|choices| choices.split_once(']')) {
        Some((choices, _)) => choices.split('|').map(|choice| format!("{name}{choice}")).collect(),
        None => vec![name.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NSYS: &str = "usage: nsys profile [<args>] [application] [<application args>]\n\n\
        \t-c, --capture-range=\n\n\t   Possible values are none, cudaProfilerApi, nvtx, hotkey.\n\n\
        \t--nvtx-domain-[include|exclude]=\n\n\t   Possible values are a comma-separated list.\n\n\
        \t(Experimental) --ib-switch-congestion-percent=\n\n\t   Percent. See --not-an-option.\n";
    const NCU: &str = "usage: ncu [options] [program] [program-arguments]\n\nGeneral Options:\n\
        \x20 -h [ --help ]                         Print this help message.\n\
        \x20 --filter-mode arg (=global)           Set the filter mode. Available modes:\n\
        \x20                                          per-launch-config: Apply filters --launch-count\n\
        \x20 -k [ --kernel-name ] arg              Filter the kernel\n";

    #[test]
    fn nsys_options() {
        let help = Help::parse(NSYS);
        for option in [
            "--capture-range",
            "--nvtx-domain-include",
            "--nvtx-domain-exclude",
            "--ib-switch-congestion-percent",
        ] {
            assert!(help.has(option), "{option}");
        }
        assert!(!help.has("--not-an-option") && !help.has("--cuda-event-trace"));
        assert!(help.offers("--capture-range", "nvtx") && !help.offers("--capture-range", "cuda"));
    }

    #[test]
    fn ncu_options() {
        let help = Help::parse(NCU);
        assert!(help.has("--help") && help.has("--filter-mode") && help.has("--kernel-name"));
        assert!(!help.has("--launch-count"));
        assert!(help.offers("--filter-mode", "per-launch-config"));
        assert!(!help.offers("--filter-mode", "per-launch"));
    }

    #[test]
    fn other_text_lists_nothing() {
        assert!(Help::parse("").is_empty());
        assert!(Help::parse("error: --version is not known here").is_empty());
    }
}
