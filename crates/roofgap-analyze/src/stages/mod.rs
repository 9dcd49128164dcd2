//! The one owner of "which stage", and of its kind: the rules, the ranges of a trace that they find (`ranges`), steps that Python frames mark
//! (`frame_steps`), iterations of a trace without stages (`iterations`), and the index of what belongs to a stage (`index`).
//!
//! A rule has patterns `[domain@]name`, exact, with `*` only where written.

mod frame_steps;
mod index;
mod iterations;
mod ranges;

pub use index::{AbsentStage, Cold, Span, StageIndex, StageSpans};
pub use iterations::{DATA_LOADER, iterations};
pub use ranges::AllOfStage;

use std::fmt;

use crate::engines::EngineStep;
use crate::result::StageKind;
use roofgap_trace::ncu::NvtxRange;
use thiserror::Error;

/// A pattern for range names. Without a domain it means the default domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    domain: String,
    name: String,
}

/// An invalid pattern or stage.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StageError {
    /// No name in it.
    #[error("empty range pattern in {0:?}; write [domain@]name, such as LLM@prefill")]
    EmptyPattern(String),
    /// Not of the form NAME=PATTERN.
    #[error(
        "{0:?} is no stage; write NAME=PATTERN, such as decode=LLM@decode_all, several patterns separated by commas"
    )]
    NotAStage(String),
}

impl Pattern {
    /// Parses `[domain@]name`. `*` stands for any text.
    ///
    /// ```
    /// use roofgap_analyze::Pattern;
    /// let p = Pattern::parse("LLM@decode*").unwrap();
    /// assert!(p.matches("LLM", "decode_all"));
    /// assert!(!p.matches("", "decode_all"));
    /// assert!(Pattern::parse("*@prefill").unwrap().matches("anything", "prefill"));
    /// ```
    pub fn parse(text: &str) -> Result<Self, StageError> {
        let (domain, name) = text.split_once('@').unwrap_or(("", text));
        if name.is_empty() {
            return Err(StageError::EmptyPattern(text.to_owned()));
        }
        Ok(Self { domain: domain.to_owned(), name: name.to_owned() })
    }

    /// Tells whether a range matches. A name that is written `domain@name` in full matches in any domain.
    pub fn matches(&self, domain: &str, name: &str) -> bool {
        let is = |domain: &str, name: &str| glob(&self.domain, domain) && glob(&self.name, name);
        is(domain, name) || name.split_once('@').is_some_and(|(domain, name)| is(domain, name))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.domain.is_empty() {
            write!(out, "{}@", self.domain)?;
        }
        out.write_str(&self.name)
    }
}

/// Tells whether `text` matches `pattern`, in which `*` stands for any text.
fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The rule of one stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageRule {
    /// Stage name.
    pub name: String,
    /// Kind of the stage.
    pub kind: StageKind,
    /// Ranges that are instances of it.
    pub patterns: Vec<Pattern>,
    /// True if the user gave the patterns: then steps never stand in for missing instances.
    pub requested: bool,
    /// Ranges inside it that are its steps.
    pub steps: Vec<Pattern>,
    /// Ranges inside it that are worth a note.
    pub notes: Vec<Pattern>,
}

/// The rules of all stages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageSet {
    /// The stages.
    pub stages: Vec<StageRule>,
    /// Ranges whose inside is left out of every stage.
    pub warmup: Vec<Pattern>,
}

fn patterns(list: &[&str]) -> Vec<Pattern> {
    list.iter().filter_map(|p| Pattern::parse(p).ok()).collect()
}

/// Returns the kind of a stage that a program names itself.
pub fn kind_of(name: &str) -> StageKind {
    let known = [StageKind::Prefill, StageKind::Decode].into_iter().find(|kind| kind.as_str() == name);
    known.unwrap_or(StageKind::Custom)
}

/// Names the stage of the engine steps of a kind.
pub fn step_stage(kind: StageKind) -> &'static str {
    if kind == StageKind::Custom { "step" } else { kind.as_str() }
}

impl Default for StageSet {
    fn default() -> Self {
        let rule = |kind: StageKind, ranges: &[&str], steps: &[&str], notes: &[&str]| StageRule {
            name: kind.as_str().to_owned(),
            kind,
            patterns: patterns(ranges),
            requested: false,
            steps: patterns(steps),
            notes: patterns(notes),
        };
        let prefill = ["LLM@prefill", "prefill"];
        let parts = [
            "sam",
            "clip",
            "vision_encoder",
            "projector",
            "LLM@sam",
            "LLM@clip",
            "LLM@vision_encoder",
            "LLM@projector",
        ];
        let decode = ["LLM@decode_all", "LLM@decode", "decode_all", "decode"];
        let steps = ["LLM@decode_step", "decode_step"];
        Self {
            stages: vec![
                rule(StageKind::Prefill, &prefill, &[], &parts),
                rule(StageKind::Decode, &decode, &steps, &[]),
            ],
            warmup: patterns(&["*@warmup*"]),
        }
    }
}

/// The place of a launch among the stages, by the names of the ranges around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NamedPlace {
    /// In the stage at this position of the set.
    Stage(usize),
    /// In a step of an engine, which belongs to the stage of this name.
    Step(&'static str),
    /// Inside a warm-up.
    Warmup,
    /// In ranges that are not part of a stage, or in none.
    Outside,
}

impl StageSet {
    /// Places a launch by the ranges around it, for a tool that records their names without times.
    pub fn place(&self, ranges: &[NvtxRange]) -> NamedPlace {
        let matches = |patterns: &[Pattern], range: &NvtxRange| {
            let domain = range.domain.as_deref().unwrap_or_default();
            patterns.iter().any(|pattern| pattern.matches(domain, &range.name))
        };
        let inside = |patterns: &[Pattern]| ranges.iter().any(|range| matches(patterns, range));
        // A stage that is itself a warm-up by name was requested.
        let is_warmup = |rule: &StageRule| {
            let in_stage_and_warmup =
                |range: &NvtxRange| matches(&rule.patterns, range) && matches(&self.warmup, range);
            rule.requested && ranges.iter().any(in_stage_and_warmup)
        };
        let holds = |rule: &StageRule| inside(&rule.patterns) || (!rule.requested && inside(&rule.steps));
        let position = if inside(&self.warmup) {
            self.stages.iter().position(is_warmup).ok_or(NamedPlace::Warmup)
        } else {
            let step = || {
                let steps = ranges.iter().filter_map(|range| EngineStep::parse(&range.name));
                let kind = steps.filter_map(|step| step.kind()).next();
                kind.map_or(NamedPlace::Outside, |kind| NamedPlace::Step(step_stage(kind)))
            };
            self.stages.iter().position(holds).ok_or_else(step)
        };
        position.map_or_else(|nowhere| nowhere, NamedPlace::Stage)
    }

    /// Replaces, renames or adds a stage by `NAME=PATTERN[,PATTERN...]`. A new name for patterns of a known stage renames it. Kind,
    /// steps and notes of a replaced or renamed stage stay.
    pub fn set(&mut self, text: &str) -> Result<(), StageError> {
        let not_a_stage = || StageError::NotAStage(text.to_owned());
        let (name, list) = text.split_once('=').ok_or_else(not_a_stage)?;
        if name.is_empty() || list.is_empty() {
            return Err(not_a_stage());
        }
        let patterns = list.split(',').map(Pattern::parse).collect::<Result<Vec<_>, _>>()?;
        let of_name = self.stages.iter().position(|stage| stage.name == name);
        let is_same = |rule: &StageRule| {
            !rule.requested && patterns.iter().all(|pattern| rule.patterns.contains(pattern))
        };
        let replaced = of_name.or_else(|| self.stages.iter().position(is_same));
        let name = name.to_owned();
        match replaced.and_then(|at| self.stages.get_mut(at)) {
            Some(stage) => (stage.name, stage.patterns, stage.requested) = (name, patterns, true),
            None => self.stages.push(StageRule {
                name,
                kind: StageKind::Custom,
                patterns,
                requested: true,
                steps: Vec::new(),
                notes: Vec::new(),
            }),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_exact_unless_a_star_is_written() {
        let m = |p: &str, d: &str, n: &str| Pattern::parse(p).unwrap().matches(d, n);
        assert!(m("LLM@prefill", "LLM", "prefill"));
        assert!(!m("LLM@prefill", "LLM", "prefill_warm"));
        assert!(!m("LLM@prefill", "llm", "prefill"));
        assert!(!m("prefill", "LLM", "prefill"));
        assert!(m("LLM@prefill", "", "LLM@prefill") && m("LLM@prefill", "torch", "LLM@prefill"));
        assert!(!m("LLM@prefill", "", "other@prefill") && !m("prefill", "", "LLM@prefill"));
        assert!(m("prefill", "", "prefill"));
        assert!(m("*@pre*l", "X", "prefill"));
        assert!(m("a*b*c", "", "a-b-b-c"));
        assert!(!m("a*b*c", "", "a-c-b"));
        assert!(!m("ab*ba", "", "aba"));
        assert!(m("step [0-9]", "", "step [0-9]"));
        assert!(Pattern::parse("LLM@").is_err());
    }

    #[test]
    fn a_launch_in_a_step_of_an_engine_belongs_to_its_stage() {
        let range = |name: &str| NvtxRange {
            domain: None,
            name: name.to_owned(),
            kind: roofgap_trace::RangeStyle::PushPop,
        };
        let place = |names: &[&str]| {
            let ranges: Vec<NvtxRange> = names.iter().map(|name| range(name)).collect();
            StageSet::default().place(&ranges)
        };
        let decode = "execute_context_0(0)_generation_4(4)";
        assert_eq!(place(&[decode]), NamedPlace::Step("decode"));
        let mixed = "execute_context_1(8)_generation_4(4)";
        assert_eq!(place(&["forward", mixed]), NamedPlace::Step("mixed"));
        assert_eq!(place(&["warmup", decode]), NamedPlace::Warmup);
        assert_eq!(place(&["execute_context_0(0)_generation_0(0)"]), NamedPlace::Outside);
    }

    #[test]
    fn a_stage_is_replaced_or_added() {
        let mut set = StageSet::default();
        set.set("decode=gen,LLM@gen").unwrap();
        set.set("vision=sam").unwrap();
        assert_eq!(set.stages.len(), 3);
        assert_eq!(set.stages[2].kind, StageKind::Custom);
        assert!(set.stages[1].patterns[1].matches("LLM", "gen"));
        assert!(!set.stages[1].steps.is_empty(), "steps of decode stay");
        assert!(set.set("decode").is_err());
        assert!(set.set("=x").is_err());
    }

    #[test]
    fn a_new_name_for_known_ranges_renames_their_stage() {
        let mut set = StageSet::default();
        set.set("generate=decode_all,LLM@decode_all").unwrap();
        assert_eq!(set.stages.len(), 2);
        let generate = &set.stages[1];
        assert_eq!((generate.name.as_str(), generate.kind), ("generate", StageKind::Decode));
        assert_eq!((generate.patterns.len(), generate.steps.len()), (2, 2));
        // A second name for the same ranges is a stage beside it.
        set.set("again=decode_all").unwrap();
        assert_eq!((set.stages.len(), set.stages[2].kind), (3, StageKind::Custom));
    }
}
