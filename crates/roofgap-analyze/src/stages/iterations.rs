//! Iterations of a program that names no stages: the names that frameworks and people give them.

use super::Span;
use super::ranges::outermost;
use roofgap_base::stats::median;
use roofgap_trace::{NameId, Ns, ProcessId, Range, Trace};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// Start of the name under which PyTorch marks the time that it takes to get a batch from a data loader.
pub const DATA_LOADER: &str = "enumerate(DataLoader)";

/// The way in which a range marks an iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// It is the iteration.
    Around,
    /// The iteration ends with it.
    End,
    /// The iteration begins with it and ends with the next one.
    Begin,
}

/// A family of names that mark iterations.
struct Family {
    /// Returns what the names of one loop have in common; `None` for other names.
    stem: fn(&str) -> Option<&str>,
    mark: Mark,
    /// Fewest of them.
    least: usize,
}

/// Families, the most certain first. Only ranges with one stem count, those with most of the time.
const FAMILIES: [Family; 6] = [
    Family { stem: profiler_step, mark: Mark::Around, least: 1 },
    Family { stem: numbered, mark: Mark::Around, least: 2 },
    Family { stem: whole_pass, mark: Mark::Around, least: 2 },
    Family { stem: forward_pass, mark: Mark::Begin, least: 2 },
    Family { stem: |name| name.starts_with("Optimizer.step#").then_some(name), mark: Mark::End, least: 2 },
    Family { stem: compiled_graph, mark: Mark::Begin, least: 3 },
];

/// The step range of PyTorch's profiler, `ProfilerStep#7`.
fn profiler_step(name: &str) -> Option<&str> {
    let number = name.strip_prefix("ProfilerStep#")?;
    number.parse::<u64>().is_ok().then_some("ProfilerStep#")
}

/// Characters between the words of a name.
const BETWEEN: [char; 6] = ['_', ' ', '#', ':', '-', '/'];

/// An iteration with its number, such as `token_3`, `step 12` or `Training_Step_4`; not one of a part of an iteration, or before all.
fn numbered(name: &str) -> Option<&str> {
    const WORDS: [&str; 7] = ["token", "step", "iteration", "iter", "batch", "pass", "frame"];
    const PARTS: [&str; 6] = ["warm", "optim", "backward", "layer", "load", "micro"];
    let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let words = stem.trim_end_matches(BETWEEN).to_ascii_lowercase();
    let last = words.rsplit(BETWEEN).next()?;
    let is_whole = WORDS.contains(&last) && !PARTS.iter().any(|part| words.contains(part));
    (stem.len() < name.len() && is_whole).then_some(stem)
}

/// An iteration without a number, or one after the name of its sample, such as `frame_0017.e2e`.
fn whole_pass(name: &str) -> Option<&str> {
    const WORDS: [&str; 7] =
        ["iteration", "train_step", "training_step", "inference_step", "test_step", "timed_region", "e2e"];
    let word = name.to_ascii_lowercase().replace([' ', '-'], "_");
    let before = WORDS.iter().find_map(|known| word.strip_suffix(known))?;
    let is_word = before.is_empty() || before.ends_with(['_', '.']);
    let of_sample = before.contains(|letter: char| letter.is_ascii_digit());
    name.get(if of_sample { before.len() } else { 0 }..).filter(|_| is_word)
}

/// The beginning of an iteration whose other parts have ranges of their own.
fn forward_pass(name: &str) -> Option<&str> {
    ["forward pass", "forward_pass", "forward"]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
        .then_some(name)
}

/// A call of a graph that TorchInductor compiled.
fn compiled_graph(name: &str) -> Option<&str> {
    let begins = ["## Call CompiledFxGraph ", "Torch-Compiled Region: "];
    begins.iter().any(|begin| name.starts_with(begin)).then_some(name)
}

/// Returns the iterations of a trace in the order of start, and their common name: those of the first family with enough of them in which something was
/// launched. `launching` are the calls that launched GPU work, in the order of start.
pub fn iterations(trace: &Trace, launching: &[(Ns, ProcessId)]) -> (String, Vec<Span>) {
    let has_work = |span: &Span, process: ProcessId| {
        let from = launching.partition_point(|(start, _)| *start < span.start);
        let mut inside = launching[from..].iter().take_while(|(start, _)| *start <= span.end);
        inside.any(|(_, other)| *other == process)
    };
    for family in &FAMILIES {
        let marks = marks(trace, family);
        let mut spans = spans(&marks, family.mark, launching);
        spans.retain(|(span, range)| has_work(span, range.process));
        if spans.len() >= family.least {
            let stem = spans.first().and_then(|(_, range)| (family.stem)(trace.names.get(range.name)));
            let name = stem.unwrap_or_default().trim_end_matches(BETWEEN).to_owned();
            return (name, spans.into_iter().map(|(span, _)| span).collect());
        }
    }
    Default::default()
}

/// Returns the outermost ranges of a family with one stem, in the order of start; without numbers those on the thread of the first.
fn marks<'a>(trace: &'a Trace, family: &Family) -> Vec<(u32, &'a Range)> {
    let mut stems: FxHashMap<NameId, Option<&str>> = FxHashMap::default();
    let mut is_outermost = outermost(false);
    let mut marks: Vec<(&str, u32, &Range)> = Vec::new();
    let mut sums: FxHashMap<&str, (usize, Ns)> = FxHashMap::default();
    for (row, range) in trace.ranges.rows.iter().enumerate() {
        let stem = *stems.entry(range.name).or_insert_with(|| (family.stem)(trace.names.get(range.name)));
        if let Some(stem) = stem
            && is_outermost(range)
        {
            let (count, ns) = sums.entry(stem).or_default();
            (*count, *ns) = (*count + 1, *ns + range.end - range.start);
            marks.push((stem, row as u32, range));
        }
    }
    let enough = sums.into_iter().filter(|(_, (count, _))| *count >= family.least);
    let longest = enough.max_by_key(|(stem, (_, ns))| (*ns, Reverse(*stem))).map(|(stem, _)| stem);
    marks.retain(|(stem, ..)| Some(*stem) == longest);
    let thread = marks.first().map(|(.., range)| range.thread);
    // Numbers tell the iterations of several threads apart.
    let numbered = |stem: &str, range: &Range| stem.len() < trace.names.get(range.name).len();
    let counts =
        |(stem, _, range): &(&str, u32, &Range)| numbered(stem, range) || Some(range.thread) == thread;
    marks.into_iter().filter(counts).map(|(_, row, range)| (row, range)).collect()
}

/// Returns the span of each iteration. One that only its begin or end marks, and that nothing bounds on the other side, takes as long as
/// the others.
fn spans<'a>(
    marks: &[(u32, &'a Range)],
    mark: Mark,
    launching: &[(Ns, ProcessId)],
) -> Vec<(Span, &'a Range)> {
    let edge = |range: &Range| if mark == Mark::End { range.end } else { range.start };
    let mut periods: Vec<Ns> = marks.windows(2).map(|pair| edge(pair[1].1) - edge(pair[0].1)).collect();
    let period = median(&mut periods).unwrap_or(0);
    let first_launch = launching.first().map_or(Ns::MIN, |(start, _)| *start);
    let span = |(at, (row, range)): (usize, &(u32, &'a Range))| {
        let (start, end) = match mark {
            Mark::Around => (range.start, range.end),
            Mark::End => {
                let before = at.checked_sub(1).and_then(|at| marks.get(at)).map(|(_, range)| range.end);
                (before.unwrap_or_else(|| (range.end - period).max(first_launch).min(range.start)), range.end)
            }
            Mark::Begin => {
                let next = marks.get(at + 1).map(|(_, range)| range.start);
                (range.start, next.unwrap_or_else(|| (range.start + period).max(range.end)))
            }
        };
        (Span { start, end, range: Some(*row) }, *range)
    };
    marks.iter().enumerate().map(span).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_iterations() {
        assert!(profiler_step("ProfilerStep#12").is_some() && profiler_step("ProfilerStep*").is_none());
        for name in [
            "token_0",
            "Step 12",
            "iteration#4",
            "batch-7",
            "iter 3",
            "decode_step_9",
            "Full_Training_Step_2",
        ] {
            assert!(numbered(name).is_some(), "{name}");
        }
        for name in ["token", "layer_3", "3", "stepper_1", "token_a", "optimizer_step_3", "warmup_iter_0"] {
            assert!(numbered(name).is_none(), "{name}");
        }
        assert!(whole_pass("my_train_step").is_some() && whole_pass("constrain_step").is_none());
        assert_eq!(whole_pass("timed region"), Some("timed region"));
        assert_eq!(whole_pass("Detector.test_step"), Some("Detector.test_step"));
        assert_eq!(whole_pass("scan_1533151603.e2e"), Some("e2e"), "one loop over named samples");
        assert!(forward_pass("Forward pass").is_some() && forward_pass("forward_hook").is_none());
    }
}
