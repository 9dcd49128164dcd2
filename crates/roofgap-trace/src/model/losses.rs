//! Every row that was dropped, clipped, unmatched or not understood, counted under a name.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Severity of a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; no number is wrong because of it.
    Info,
    /// Some numbers miss a part.
    Warning,
    /// Some numbers cannot be trusted.
    Error,
}

impl Severity {
    /// Returns the word used in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// The losses that a reader or the analysis may declare. Each has a line in `losses.tsv`, in this order: its name in JSON, its severity
/// and its effect on the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "`losses.tsv` describes each")]
pub enum LossKind {
    OpNegative,
    OpNoLaunch,
    LaunchNoKernel,
    OpNoDevice,
    CallNegative,
    CallDuplicate,
    RangeOpen,
    RangeBegunBefore,
    RangeNegative,
    RangeCrossThread,
    RangeNoName,
    RangeNoDomain,
    NvtxUnknown,
    NameMissing,
    GraphWhole,
    NoRuntime,
    SummaryOnly,
    ClockEarly,
    TimeRounded,
    TimeOutOfRange,
    ValueOutOfRange,
    EventUnknown,
    OtherDevice,
    EventMalformed,
    StacksRecorded,
    ShapesRecorded,
    AllocationsRecorded,
    ToolDropped,
    ToolError,
    ToolWarning,
    ToolNote,
    GpuNotRecorded,
    KindNotRecorded,
    ForkNotRecorded,
    PartlyRecorded,
    WindowEdge,
    CaptureCut,
    EndMissing,
    TableNotRead,
    UnitUnknown,
    CounterMalformed,
    CounterFailed,
    SampleMalformed,
    SamplesDropped,
    SamplesForeign,
    SampledContradicts,
    Inconsistent,
    CounterUnmatched,
}

static FACTS: LazyLock<Vec<[&str; 3]>> = LazyLock::new(|| {
    let columns = |line: &'static str| {
        let mut columns = line.splitn(3, '\t');
        std::array::from_fn(|_| columns.next().unwrap_or_default())
    };
    include_str!("losses.tsv").lines().map(columns).collect()
});

impl LossKind {
    fn facts(self) -> [&'static str; 3] {
        FACTS.get(self as usize).copied().unwrap_or_default()
    }

    /// Returns the stable name used in JSON.
    pub fn id(self) -> &'static str {
        self.facts()[0]
    }

    /// Returns the severity.
    pub fn severity(self) -> Severity {
        match self.facts()[1] {
            "error" => Severity::Error,
            "warning" => Severity::Warning,
            _ => Severity::Info,
        }
    }

    /// Returns the effect on the numbers.
    pub fn meaning(self) -> &'static str {
        self.facts()[2]
    }
}

/// One declared loss with its count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// Kind of loss.
    pub kind: LossKind,
    /// Number of rows.
    pub count: u64,
}

/// Most messages that are kept of a kind, and most characters of one.
const MOST_MESSAGES: usize = 32;
const MOST_CHARACTERS: usize = 300;

/// The losses of a trace.
#[derive(Debug, Clone, Default)]
pub struct Losses {
    counts: BTreeMap<LossKind, u64>,
    /// Texts of the recording tool and names of tables, with the number of times each occurred or of rows.
    messages: BTreeMap<LossKind, BTreeMap<String, u64>>,
}

impl Losses {
    /// Counts `count` rows under `kind`.
    pub fn add(&mut self, kind: LossKind, count: u64) {
        if count > 0 {
            let known = self.counts.entry(kind).or_default();
            *known = known.saturating_add(count);
        }
    }

    /// Counts rows under `kind` and keeps the text that belongs to them.
    pub fn add_message(&mut self, kind: LossKind, text: &str, count: u64) {
        self.add(kind, count);
        let words: Vec<&str> = text.split_whitespace().collect();
        let line: String = words.join(" ").chars().take(MOST_CHARACTERS).collect();
        self.keep_message(kind, line, count);
    }

    fn keep_message(&mut self, kind: LossKind, line: String, count: u64) {
        let known = self.messages.entry(kind).or_default();
        if !line.is_empty() && (known.len() < MOST_MESSAGES || known.contains_key(&line)) {
            let times = known.entry(line).or_default();
            *times = times.saturating_add(count);
        }
    }

    /// Iterates over the texts kept under `kind`, each with the number of times it occurred.
    pub fn messages(&self, kind: LossKind) -> impl Iterator<Item = (&str, u64)> {
        let kept = self.messages.get(&kind).into_iter().flatten();
        kept.map(|(text, count)| (text.as_str(), *count))
    }

    /// Returns the number of rows counted under `kind`.
    pub fn count(&self, kind: LossKind) -> u64 {
        self.counts.get(&kind).copied().unwrap_or(0)
    }

    /// Adds all of another list.
    pub fn merge(&mut self, other: &Losses) {
        for loss in other.iter() {
            self.add(loss.kind, loss.count);
        }
        for (kind, texts) in &other.messages {
            for (text, count) in texts {
                self.keep_message(*kind, text.clone(), *count);
            }
        }
    }

    /// Iterates over the losses that occurred.
    pub fn iter(&self) -> impl Iterator<Item = Loss> + '_ {
        self.counts.iter().map(|(&kind, &count)| Loss { kind, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_loss_has_a_line() {
        assert_eq!(FACTS.len(), LossKind::CounterUnmatched as usize + 1);
        let first = (LossKind::OpNegative.id(), LossKind::OpNegative.severity());
        assert_eq!(first, ("op_negative_duration", Severity::Warning));
        assert_eq!(LossKind::NoRuntime.id(), "no_api_calls");
        assert_eq!(LossKind::ToolNote.id(), "tool_note");
        assert_eq!(LossKind::Inconsistent.severity(), Severity::Error);
        assert_eq!(LossKind::CounterUnmatched.id(), "counter_unmatched");
        assert!(FACTS.iter().flatten().all(|text| !text.is_empty()));
    }

    #[test]
    fn texts_of_the_tool_are_kept_once_each() {
        let mut losses = Losses::default();
        losses.add_message(LossKind::ToolWarning, "No CUDA events\n  collected.", 1);
        losses.add_message(LossKind::ToolWarning, "No CUDA events collected.", 1);
        losses.add_message(LossKind::ToolWarning, "", 1);
        losses.add(LossKind::ToolError, 1);
        let mut all = Losses::default();
        all.merge(&losses);
        all.merge(&losses);
        assert_eq!(all.count(LossKind::ToolWarning), 6);
        let texts: Vec<_> = all.messages(LossKind::ToolWarning).collect();
        assert_eq!(texts, [("No CUDA events collected.", 4)]);
        assert_eq!(all.messages(LossKind::ToolError).count(), 0);
    }

    #[test]
    fn different_texts_are_limited() {
        let mut losses = Losses::default();
        for number in 0..100 {
            losses.add_message(LossKind::ToolWarning, &format!("{number}: {}", "x".repeat(1000)), 1);
        }
        assert_eq!(losses.count(LossKind::ToolWarning), 100);
        let texts: Vec<_> = losses.messages(LossKind::ToolWarning).collect();
        assert_eq!(texts.len(), MOST_MESSAGES);
        assert!(texts.iter().all(|(text, _)| text.len() <= MOST_CHARACTERS));
    }
}
