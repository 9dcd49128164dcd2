//! The judged corpus: captures, facts about them computed by another program, and judgements by hand.
//!
//! Shared by `examples/roofgap-judge.rs`, which judges every capture at hand, and `tests/it/judged.rs`, which judges those of the
//! repository. The corpus is `corpus.jsonl`, one capture a line; `corpus.py` gets third-party captures and computes the facts.

// The example and the tests use different parts.
#![allow(dead_code)]

use roofgap_analyze::{Analysis, Finding, Options, Stage, StageKind, analyze, verdict};
use roofgap_testkit::planted::{Cause, Planted};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// A capture and its judgement.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    /// Unique name.
    pub(crate) id: String,
    /// Origin of the capture.
    pub(crate) from: Origin,
    /// Facts computed by `corpus.py`; empty for a capture without a timeline.
    #[serde(default)]
    pub(crate) facts: Facts,
    /// Limits that are right, by stage.
    #[serde(default)]
    limit: BTreeMap<String, Vec<String>>,
    /// Rules of which one should come first; `none` for no finding.
    #[serde(default)]
    first: Vec<String>,
    /// Rules that may come first, but miss the point.
    #[serde(default)]
    also: Vec<String>,
    /// Rules that must not appear at all.
    #[serde(default)]
    never: Vec<String>,
    /// Step time by stage, ns. Several values are all right.
    #[serde(default)]
    step_ns: BTreeMap<String, Vec<i64>>,
    /// Reason of the judgement.
    pub(crate) why: String,
    /// A known fault that makes the verdict wrong; the rest of the judgement holds.
    #[serde(default)]
    pub(crate) open: Option<String>,
    /// Kept from the authors of the rules.
    #[serde(default)]
    pub(crate) unseen: bool,
}

/// Origin of a capture.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Origin {
    /// A file below `fixtures`.
    Fixture(String),
    /// A planted cause, its scale, and whether the cause is in the program.
    Planted(String, i64, bool),
    /// A file of a public repository. It is never committed.
    Public {
        /// Owner and name.
        repo: String,
        /// Path in the repository.
        path: String,
        /// Commit.
        commit: String,
        /// Hash of the file.
        sha256: String,
    },
}

/// Facts about the timeline of the device with the most kernel time.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Facts {
    kernels: Option<u64>,
    kernel_ns: Option<i64>,
    busy_ns: Option<i64>,
}

/// Grade of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Grade {
    Right,
    Imprecise,
    Wrong,
}

impl fmt::Display for Grade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Right => "right",
            Self::Imprecise => "imprecise",
            Self::Wrong => "wrong",
        })
    }
}

/// An answer of the analysis and its grade.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// Subject: `first`, `limit`, `step`, `facts` or `never`.
    pub(crate) subject: &'static str,
    /// Rule or limit that the analysis gives.
    pub(crate) rule: String,
    pub(crate) grade: Grade,
    /// Numbers for people.
    pub(crate) text: String,
}

/// Reads the corpus.
pub(crate) fn corpus() -> Vec<Case> {
    let text = include_str!("corpus.jsonl");
    text.lines()
        .map(|line| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("corpus.jsonl: {error}: {line}"))
        })
        .collect()
}

impl Case {
    /// Tells whether the repository has the capture.
    pub(crate) fn is_own(&self) -> bool {
        !matches!(self.from, Origin::Public { .. })
    }

    /// Returns the file of the capture, written into `folder` if it is made. Third-party captures are in `public`, by their hash.
    pub(crate) fn file(&self, public: Option<&Path>, folder: &Path) -> Option<PathBuf> {
        match &self.from {
            Origin::Fixture(path) => {
                Some(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures")).join(path))
            }
            Origin::Planted(..) => {
                let path = folder.join(format!("{}.json", self.id));
                std::fs::write(&path, self.planted()?.run().trace.to_string()).unwrap();
                Some(path)
            }
            Origin::Public { path, sha256, .. } => {
                let name = path.rsplit('/').next().unwrap_or(path);
                public
                    .map(|public| public.join(format!("{}-{name}", &sha256[..12])))
                    .filter(|path| path.exists())
            }
        }
    }

    fn planted(&self) -> Option<Planted> {
        let Origin::Planted(name, scale, present) = &self.from else {
            return None;
        };
        let (_, cause) = Cause::ALL.into_iter().find(|(known, _)| known == name)?;
        Some(if *present { Planted::with(cause, *scale) } else { Planted::without(cause, *scale) })
    }

    /// Judges the analysis of the capture.
    pub(crate) fn judge(&self, file: &Path) -> Vec<Answer> {
        let input = match roofgap_trace::read(&[file.to_path_buf()]) {
            Ok(input) => input,
            Err(error) => {
                let grade = if self.first == ["refused"] { Grade::Right } else { Grade::Wrong };
                return vec![Answer {
                    subject: "first",
                    rule: "refused".to_owned(),
                    grade,
                    text: error.to_string(),
                }];
            }
        };
        let options = Options { counters: input.counters, account: input.account, ..Options::default() };
        let analysis = analyze(&input.trace, &options).analysis;
        let mut answers = self.first(&analysis.findings);
        answers.extend(self.facts(&analysis));
        for stage in &analysis.stages {
            answers.extend(self.limit(stage));
            answers.extend(self.step(stage));
        }
        answers
    }

    fn first(&self, findings: &[Finding]) -> Vec<Answer> {
        let first = findings.first();
        let rule = first.map_or("none", |finding| &finding.id);
        let listed = |rules: &[String], rule: &str| {
            rules
                .iter()
                .any(|known| known == rule || known.strip_suffix('*').is_some_and(|p| rule.starts_with(p)))
        };
        let grade = match (listed(&self.first, rule), listed(&self.also, rule)) {
            (true, _) => Grade::Right,
            (_, true) => Grade::Imprecise,
            _ => Grade::Wrong,
        };
        let text = first.map_or_else(String::new, |f| format!("{} (saves {:.1} %)", f.title, f.bound_pct));
        let mut answers = Vec::new();
        if !self.first.is_empty() {
            answers.push(Answer { subject: "first", rule: rule.to_owned(), grade, text });
        }
        for finding in findings.iter().filter(|finding| listed(&self.never, &finding.id)) {
            let (rule, text) = (finding.id.clone(), finding.title.clone());
            answers.push(Answer { subject: "never", rule, grade: Grade::Wrong, text });
        }
        answers
    }

    fn facts(&self, analysis: &Analysis) -> Vec<Answer> {
        let totals = &analysis.totals;
        let found = [
            ("kernels", self.facts.kernels.map(|n| n as i64), Some(totals.kernel_count as i64)),
            ("kernel time", self.facts.kernel_ns, Some(totals.kernel_ns)),
            ("busy time", self.facts.busy_ns, totals.busy_ns),
        ];
        let mut answers = Vec::new();
        for (name, expected, found) in found {
            let (Some(expected), Some(found)) = (expected.filter(|_| analysis.devices.len() < 2), found)
            else {
                continue;
            };
            // Times in microseconds round each operation.
            let slack = (expected / 1000).max(2000);
            let grade = if (found - expected).abs() <= slack { Grade::Right } else { Grade::Wrong };
            answers.push(Answer {
                subject: "facts",
                rule: name.to_owned(),
                grade,
                text: format!("{found}, not {expected}"),
            });
        }
        answers
    }

    fn limit(&self, stage: &Stage) -> Option<Answer> {
        let right = self.limit.get(judged(stage))?;
        let rule = kebab(&format!("{:?}", verdict(stage).label));
        let grade = if right.contains(&rule) { Grade::Right } else { Grade::Wrong };
        let text = format!("{}: {}, not {}", stage.name, verdict(stage).why, right.join(" or "));
        Some(Answer { subject: "limit", rule, grade, text })
    }

    fn step(&self, stage: &Stage) -> Option<Answer> {
        // A planted program knows its step time.
        let planted = self.planted().map(|program| vec![program.run().step_ns]);
        let right = planted.as_ref().or_else(|| self.step_ns.get(judged(stage)))?;
        let found = step_ns(stage);
        let near = |ns: i64, by: i64| right.iter().any(|right| (ns - right).abs() * 100 <= right * by);
        let grade = match found {
            Some(ns) if near(ns, 2) => Grade::Right,
            Some(ns) if near(ns, 5) => Grade::Imprecise,
            _ => Grade::Wrong,
        };
        let text = format!("{}: {found:?} ns, not {right:?}", stage.name);
        Some(Answer { subject: "step", rule: "step".to_owned(), grade, text })
    }
}

/// Returns the name under which a stage was judged: the loop of a trace, whose name is found, was part of all of it.
fn judged(stage: &Stage) -> &str {
    if stage.kind == StageKind::Loop { "all" } else { &stage.name }
}

/// Returns the step time that the report gives.
fn step_ns(stage: &Stage) -> Option<i64> {
    let stage = stage.warm();
    let (steps, steady) = (stage.steps.as_ref().filter(|steps| steps.count > 0), stage.steady.as_ref());
    steps.map(|steps| steps.usual_ns()).or(steady.map(|steady| steady.median_ns))
}

/// Writes the name of a variant in lower case with dashes.
fn kebab(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

/// Returns the worst grade of some answers.
pub(crate) fn worst(answers: &[Answer]) -> Grade {
    answers.iter().map(|answer| answer.grade).max().unwrap_or(Grade::Right)
}
