//! The profilers on this machine: location, version and supported options.
//!
//! - `importer`: the program that nsys needs to write a report

mod importer;

pub use importer::ImporterState;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::child::{ChildError, ProbeOutput, probe};
use crate::command::{CommandLine, folders_in_variable, is_executable, matches_wildcards};
use crate::entries;

/// A candidate that cannot be used.
#[derive(Debug)]
pub struct RejectedCandidate {
    /// Path of the file.
    pub path: PathBuf,
    /// Reason.
    pub why: ToolError,
}

/// Result of a search for a tool.
#[derive(Debug)]
pub struct SearchResult<T> {
    /// First usable tool, if there is one.
    pub tool: Option<T>,
    /// Candidates that cannot be used.
    pub rejected: Vec<RejectedCandidate>,
}

impl<T> SearchResult<T> {
    /// Lists the candidates that cannot be used, each with its reason; `None` where there are none.
    pub fn tried(&self) -> Option<String> {
        let tried = self.rejected.iter();
        let tried: Vec<String> =
            tried.map(|candidate| format!("{}: {}", candidate.path.display(), candidate.why)).collect();
        (!tried.is_empty()).then(|| tried.join("; "))
    }
}

/// Places to search for a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    /// Path set by the user; if set, nothing else is searched.
    pub named: Option<PathBuf>,
    /// Folders of the `PATH`.
    pub path: Vec<PathBuf>,
    /// Root of the common install folders: `/`, or another folder in tests. `None` skips them.
    pub root: Option<PathBuf>,
}

impl Search {
    /// Creates a search of the `PATH` and the common install folders, unless the user set a path.
    pub fn from_env(named: Option<PathBuf>) -> Self {
        Self { named, path: folders_in_variable("PATH"), root: Some(PathBuf::from("/")) }
    }

    /// Lists candidates for nsys, best first.
    pub fn nsys(&self) -> Vec<PathBuf> {
        self.candidates(
            "nsys",
            &[
                "opt/nvidia/nsight-systems/*/bin/nsys",
                "opt/nvidia/nsight-systems/*/target-linux-*/nsys",
                "opt/nvidia/nsight-systems-*/bin/nsys",
                "opt/nvidia/nsight-systems-cli/*/bin/nsys",
                "usr/local/cuda*/nsight-systems-*/bin/nsys",
                "usr/local/cuda*/bin/nsys",
                "usr/lib/nsight-systems/bin/nsys",
                "usr/lib/*/nsight-systems/target-linux-*/nsys",
                // Nsight Compute includes an nsys.
                "opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
                "usr/local/cuda*/nsight-compute-*/host/target-linux-*/nsys",
                "usr/local/NVIDIA-Nsight-Compute*/host/target-linux-*/nsys",
            ],
        )
    }

    /// Lists candidates for ncu, best first.
    pub fn ncu(&self) -> Vec<PathBuf> {
        self.candidates(
            "ncu",
            &[
                "opt/nvidia/nsight-compute/*/ncu",
                "usr/local/cuda*/nsight-compute-*/ncu",
                "usr/local/cuda*/bin/ncu",
                "usr/local/NVIDIA-Nsight-Compute*/ncu",
                "usr/lib/nsight-compute/ncu",
            ],
        )
    }

    fn candidates(&self, name: &str, installed: &[&str]) -> Vec<PathBuf> {
        if let Some(path) = &self.named {
            return vec![path.clone()];
        }
        let mut candidates: Vec<PathBuf> = Vec::new();
        let mut add = |path: PathBuf| {
            // A file and a link to it are one candidate.
            let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
            if is_executable(&path) && !candidates.iter().any(|known| real(known) == real(&path)) {
                candidates.push(path);
            }
        };
        for folder in &self.path {
            add(folder.join(name));
        }
        if let Some(root) = &self.root {
            for pattern in installed {
                newest_first(expand(root, pattern)).into_iter().for_each(&mut add);
            }
        }
        candidates
    }
}

fn newest_first(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort_by_key(|path| std::cmp::Reverse(Version::find(&path.to_string_lossy())));
    paths
}

/// Expands a pattern below `root`. Each path component may contain one `*`.
pub(crate) fn expand(root: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut paths = vec![root.to_path_buf()];
    for part in pattern.split('/') {
        paths = paths.iter().flat_map(|path| expand_component(path, part)).collect();
    }
    paths
}

fn expand_component(folder: &Path, part: &str) -> Vec<PathBuf> {
    if !part.contains('*') {
        let next = folder.join(part);
        return if next.exists() { vec![next] } else { Vec::new() };
    }
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    entries(folder).into_iter().filter(|path| matches_wildcards(part, &name(path))).collect()
}

/// Time limit of a query. nsys unpacks files on its first start.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Failure of a query to a tool, a driver or an interpreter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ToolError(pub String);

impl From<ChildError> for ToolError {
    fn from(error: ChildError) -> Self {
        ToolError(error.to_string())
    }
}

/// Runs a query. Any exit status is accepted: `nsys stats --help-reports` exits with 1, and wrappers lose statuses.
fn query(path: &Path, args: &[&str]) -> Result<ProbeOutput, ToolError> {
    let command = CommandLine::new(path).args(args.iter().copied());
    let output = probe(&command, TIME_LIMIT)?;
    if output.exited {
        Ok(output)
    } else {
        Err(ToolError(format!("{command} {}, {}", output.ended, output.summary())))
    }
}

/// Runs `--version`, which must satisfy `is_tool`; returns its output.
fn query_version(
    path: &Path,
    tool: &'static str,
    is_tool: impl FnOnce(&str) -> bool,
) -> Result<String, ToolError> {
    let output = query(path, &["--version"])?;
    let text = output.text();
    if is_tool(&text) {
        Ok(text)
    } else {
        let (ended, output) = (&output.ended, output.summary());
        Err(ToolError(format!("unexpected answer to --version, not from {tool}: it {ended}, {output}")))
    }
}

/// A working nsys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nsys {
    /// Path of the program.
    pub path: PathBuf,
    /// Version, if known.
    pub version: Option<Version>,
    /// Options of `nsys profile`.
    pub profile: Help,
    /// Options of `nsys export`.
    pub export: Help,
    /// Reports of `nsys stats`.
    pub reports: Vec<String>,
    /// State of the importer.
    pub importer: ImporterState,
}

impl Nsys {
    /// Finds the first nsys that works and can import, else the first that works.
    pub fn find(search: &Search) -> SearchResult<Nsys> {
        let mut rejected = Vec::new();
        let mut fallback: Option<Nsys> = None;
        let cannot_import = |nsys: Nsys| RejectedCandidate {
            path: nsys.path,
            why: ToolError("it cannot import its recordings".to_owned()),
        };
        for path in search.nsys() {
            match Self::query(path.clone()) {
                Ok(nsys) if nsys.importer.remedy().is_none() => {
                    rejected.extend(fallback.map(cannot_import));
                    return SearchResult { tool: Some(nsys), rejected };
                }
                Ok(nsys) if fallback.is_none() => fallback = Some(nsys),
                Ok(nsys) => rejected.push(cannot_import(nsys)),
                Err(why) => rejected.push(RejectedCandidate { path, why }),
            }
        }
        SearchResult { tool: fallback, rejected }
    }

    fn query(path: PathBuf) -> Result<Self, ToolError> {
        let mut version = None;
        query_version(&path, "nsys", |text| {
            // A wrapper may print a banner with other numbers.
            let product = text.lines().find(|line| line.contains("Nsight Systems"));
            version = product
                .and_then(Version::find)
                .or_else(|| Version::find(text).filter(Version::starts_with_year));
            version.is_some() || product.is_some()
        })?;
        Ok(Self {
            profile: Help::parse(&query(&path, &["profile", "--help"])?.text()),
            export: Help::parse(&query(&path, &["export", "--help"])?.text()),
            reports: report_names(&query(&path, &["stats", "--help-reports"])?.text()),
            importer: importer::check(&path),
            path,
            version,
        })
    }
}

/// Extracts the report names of `nsys stats --help-reports`: `  cuda_gpu_kern_sum[:nvtx-name][:base|:mangled] -- CUDA GPU Kernel Summary`.
fn report_names(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| {
            let (head, _) = line.strip_prefix("  ")?.split_once(" -- ")?;
            let name = head.split(['[', ':', ' ']).next()?;
            (!name.is_empty()).then(|| name.to_owned())
        })
        .collect()
}

/// A working ncu.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ncu {
    /// Path of the program.
    pub path: PathBuf,
    /// Version, if known.
    pub version: Option<Version>,
    /// Options.
    pub help: Help,
    /// Section sets.
    pub sets: Vec<String>,
    /// Sections.
    pub sections: Vec<String>,
}

impl Ncu {
    /// Finds the first ncu that works.
    pub fn find(search: &Search) -> SearchResult<Self> {
        let mut rejected = Vec::new();
        for path in search.ncu() {
            match Self::query(path.clone()) {
                Ok(ncu) => {
                    return SearchResult { tool: Some(ncu), rejected };
                }
                Err(why) => rejected.push(RejectedCandidate { path, why }),
            }
        }
        SearchResult { tool: None, rejected }
    }

    fn query(path: PathBuf) -> Result<Self, ToolError> {
        let text = query_version(&path, "ncu", |text| text.contains("Nsight Compute"))?;
        Ok(Self {
            version: version(&text),
            help: Help::parse(&query(&path, &["--help"])?.text()),
            sets: identifiers(&query(&path, &["--list-sets"])?.text()),
            sections: identifiers(&query(&path, &["--list-sections"])?.text()),
            path,
        })
    }

    /// Lists the metrics for a chip such as `gh100`. Needs no GPU; takes a few seconds.
    pub fn metrics_of(&self, chip: &str) -> Result<BTreeSet<String>, ToolError> {
        let output = query(&self.path, &["--query-metrics", "--chips", chip])?;
        let known = metric_names(&output.text());
        if known.is_empty() {
            let (ended, output) = (&output.ended, output.summary());
            Err(ToolError(format!("ncu lists no metrics for the chip {chip}: it {ended}, {output}")))
        } else {
            Ok(known)
        }
    }
}

/// Finds the version below the product name: the copyright line and banners contain other numbers.
fn version(output: &str) -> Option<Version> {
    output
        .lines()
        .skip_while(|line| !line.contains("Nsight Compute"))
        .filter(|line| line.contains("Version"))
        .find_map(Version::find)
}

/// Extracts the first column of `--list-sets` and `--list-sections`. Continuation rows start with a space.
fn identifiers(table: &str) -> Vec<String> {
    table
        .lines()
        .skip_while(|line| !line.starts_with("Identifier"))
        .skip(1)
        .filter(|line| line.starts_with(|c: char| c.is_ascii_alphanumeric()))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect()
}

/// Extracts the first column of `--query-metrics`: names with two underscores.
fn metric_names(table: &str) -> BTreeSet<String> {
    table
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|word| word.contains("__"))
        .map(str::to_owned)
        .collect()
}

/// Long options in the `--help` of a tool, each with its description.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Help {
    options: BTreeMap<String, String>,
}

impl Help {
    /// Parses the help of nsys or ncu. An option starts a line indented by one or two characters.
    pub fn parse(text: &str) -> Self {
        let mut options: BTreeMap<String, String> = BTreeMap::new();
        let mut current = None;
        for line in text.lines() {
            let stripped = line.trim_start();
            let indent = line.len() - stripped.len();
            if (1..=2).contains(&indent) && stripped.starts_with(['-', '(']) {
                current = long_option(stripped);
            }
            if let Some(option) = current {
                let description = options.entry(option.to_owned()).or_default();
                description.push_str(stripped);
                description.push('\n');
            }
        }
        Self { options }
    }

    /// Returns true when the tool lists this option, such as `--cuda-event-trace`.
    pub fn has(&self, option: &str) -> bool {
        self.options.contains_key(option)
    }

    /// Returns true when the description of an option contains this value as a word.
    pub fn offers(&self, option: &str, value: &str) -> bool {
        let word = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
        self.options.get(option).is_some_and(|text| text.split(|c| !word(c)).any(|part| part == value))
    }

    /// Returns true when no option is listed, so that nothing is known about any option.
    pub fn is_empty(&self) -> bool {
        self.options.is_empty()
    }
}

/// Extracts the long option of a heading: `-k [ --kernel-name ] arg`, `-f, --force-overwrite=`.
fn long_option(heading: &str) -> Option<&str> {
    let mut words = heading.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    words.find(|word| word.starts_with("--"))
}

/// A version such as 2025.3.1, compared part by part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(Vec<u32>);

impl Version {
    /// Finds the first dotted number in `text` that starts with a year, else the first dotted number.
    ///
    /// ```
    /// use roofgap_collect::tool::Version;
    /// let output = "NVIDIA Nsight Systems version 2023.4.4.54-234433681190v0";
    /// assert_eq!(Version::find(output).unwrap().to_string(), "2023.4.4.54");
    /// assert!(Version::find("2024.1.1.0").unwrap() < Version::find("Version 2025.3").unwrap());
    /// assert_eq!(Version::find("no number"), None);
    /// ```
    pub fn find(text: &str) -> Option<Self> {
        let runs = || {
            text.split(|c: char| !c.is_ascii_digit() && c != '.')
                .map(|run| run.trim_matches('.'))
                .filter(|run| run.contains('.'))
                .filter_map(Self::parse)
        };
        runs().find(Self::starts_with_year).or_else(|| runs().next())
    }

    /// Returns true when the version starts with a year, as those of nsys and ncu do.
    fn starts_with_year(&self) -> bool {
        self.0.first().is_some_and(|first| (2018..2100).contains(first))
    }

    /// Returns true for this year and release, or a later one.
    pub fn at_least(&self, year: u32, release: u32) -> bool {
        *self >= Version(vec![year, release])
    }

    fn parse(run: &str) -> Option<Self> {
        run.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u32>>>().map(Version)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(u32::to_string).collect();
        out.write_str(&parts.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn put(root: &Path, file: &str) -> PathBuf {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn the_path_first_then_the_newest_then_the_one_inside_nsight_compute() {
        let root = tempfile::tempdir().unwrap();
        let on_path = put(root.path(), "home/bin/nsys");
        let old = put(root.path(), "opt/nvidia/nsight-systems/2022.4.2/bin/nsys");
        let new = put(root.path(), "opt/nvidia/nsight-systems/2025.3.1/bin/nsys");
        let inside = put(root.path(), "opt/nvidia/nsight-compute/2025.3.1/host/target-linux-x64/nsys");
        let search = Search {
            named: None,
            path: vec![root.path().join("home/bin")],
            root: Some(root.path().to_path_buf()),
        };
        let candidates = search.nsys();
        assert_eq!(candidates, [on_path, new, old, inside]);
        assert!(search.ncu().is_empty());
    }

    #[test]
    fn a_link_to_the_same_file_counts_once_and_a_file_that_cannot_run_not_at_all() {
        let root = tempfile::tempdir().unwrap();
        let real = put(root.path(), "opt/nvidia/nsight-compute/2024.1.1/ncu");
        std::fs::create_dir_all(root.path().join("bin")).unwrap();
        std::os::unix::fs::symlink(&real, root.path().join("bin/ncu")).unwrap();
        let plain = put(root.path(), "usr/local/cuda-12.4/bin/ncu");
        std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o644)).unwrap();
        let search =
            Search { named: None, path: vec![root.path().join("bin")], root: Some(root.path().into()) };
        assert_eq!(search.ncu(), [root.path().join("bin/ncu")]);
    }

    #[test]
    fn a_named_file_is_the_only_one() {
        let search =
            Search { named: Some("/x/nsys".into()), path: vec!["/usr/bin".into()], root: Some("/".into()) };
        assert_eq!(search.nsys(), [PathBuf::from("/x/nsys")]);
    }
}

#[cfg(test)]
mod nsys_tests {
    use super::*;

    #[test]
    fn names_of_reports() {
        let text = "The following built-in reports are available:\n\n  cuda_api_sum -- CUDA API Summary\n  \
                    gpukernsum[:base|:mangled] -- CUDA GPU Kernel Summary\n  cuda_gpu_kern_sum[:nvtx-name][:base] -- X\n";
        assert_eq!(report_names(text), ["cuda_api_sum", "gpukernsum", "cuda_gpu_kern_sum"]);
    }
}

#[cfg(test)]
mod ncu_tests {
    use super::*;

    const SETS: &str = "\
---------- ----------------------------------- ------- -----------------
Identifier Sections                            Enabled Estimated Metrics
---------- ----------------------------------- ------- -----------------
basic      LaunchStats, Occupancy, SpeedOfLigh yes     213
           t, WorkloadDistribution
roofline   SpeedOfLight                        no      6649
";

    #[test]
    fn sets_and_their_folded_rows() {
        assert_eq!(identifiers(SETS), ["basic", "roofline"]);
        assert!(identifiers("==ERROR== something\n").is_empty());
    }

    #[test]
    fn names_of_metrics() {
        let text = "Device gh100\n------ --- ----\nMetric Name   Metric Type Metric Unit\n\
                    dram__bytes_read    Counter    byte  # of bytes\nsm__throughput  Throughput  %  ...\n";
        let names: Vec<_> = metric_names(text).into_iter().collect();
        assert_eq!(names, ["dram__bytes_read", "sm__throughput"]);
    }
}

#[cfg(test)]
mod help_tests {
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
        for option in ["--capture-range", "--ib-switch-congestion-percent"] {
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

#[cfg(test)]
mod version_tests {
    use super::*;

    #[test]
    fn the_forms_the_tools_use() {
        for (output, version) in [
            ("NVIDIA Nsight Systems version 2022.4.2.1-df9881f\n", "2022.4.2.1"),
            ("NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0", "2025.3.1.90"),
            (
                "NVIDIA (R) Nsight Compute Command Line Profiler\nCopyright (c) 2018-2024 NVIDIA Corporation\n\
                 Version 2024.1.1.0 (build 33998838) (public-release)",
                "2024.1.1.0",
            ),
            ("Python 3.11.7", "3.11.7"),
            ("580.159.04", "580.159.4"),
        ] {
            assert_eq!(Version::find(output).unwrap().to_string(), version);
        }
    }

    #[test]
    fn order_is_by_number() {
        let read = |text| Version::find(text).unwrap();
        assert!(read("2022.10.1") > read("2022.4.2"));
        assert!(read("2025.3.1").at_least(2025, 3));
        assert!(!read("2025.2.9").at_least(2025, 3));
    }
}
