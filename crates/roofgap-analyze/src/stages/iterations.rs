//! Iterations of a program that names no stages: the names that frameworks and people give them.

use super::Span;
use super::ranges::outermost;
use roofgap_base::stats::median;
use roofgap_trace::{NameId, Ns, ProcessId, Range, Trace};
use rustc_hash::FxHashMap;

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
    matches: fn(&str) -> bool,
    mark: Mark,
    /// Only ranges of one name count, the first that repeats.
    one_name: bool,
    /// Fewest of them.
    least: usize,
}

/// Families, the most certain first.
const FAMILIES: [Family; 5] = [
    Family { matches: is_profiler_step, mark: Mark::Around, one_name: false, least: 1 },
    Family { matches: is_numbered, mark: Mark::Around, one_name: false, least: 2 },
    Family { matches: is_pass, mark: Mark::Around, one_name: true, least: 2 },
    Family { matches: |name| name.starts_with("Optimizer.step#"), mark: Mark::End, one_name: true, least: 2 },
    Family { matches: is_compiled_graph, mark: Mark::Begin, one_name: true, least: 3 },
];

/// Returns true for the step range of PyTorch's profiler, `ProfilerStep#7`.
fn is_profiler_step(name: &str) -> bool {
    name.strip_prefix("ProfilerStep#").is_some_and(|number| number.parse::<u64>().is_ok())
}

/// Returns true for an iteration with its number, such as `token_3`, `step 12` or `iteration#4`.
fn is_numbered(name: &str) -> bool {
    const WORDS: [&str; 8] =
        ["token", "step", "iteration", "iter", "batch", "decode_step", "train_step", "frame"];
    let word = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let word_only = word.trim_end_matches(['_', ' ', '#', ':', '-', '/']);
    word.len() < name.len() && WORDS.iter().any(|known| word_only.eq_ignore_ascii_case(known))
}

/// Returns true for a pass or an iteration without a number.
fn is_pass(name: &str) -> bool {
    const WORDS: [&str; 6] =
        ["forward pass", "forward_pass", "iteration", "train_step", "training_step", "inference_step"];
    WORDS.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Returns true for a call of a graph that TorchInductor compiled.
fn is_compiled_graph(name: &str) -> bool {
    name.starts_with("## Call CompiledFxGraph ") || name.starts_with("Torch-Compiled Region: ")
}

/// Returns the iterations of a trace in the order of start: those of the first family with enough of them in which something was
/// launched. `launching` are the calls that launched GPU work, in the order of start.
pub fn iterations(trace: &Trace, launching: &[(Ns, ProcessId)]) -> Vec<Span> {
    let has_work = |span: &Span, process: ProcessId| {
        let from = launching.partition_point(|(start, _)| *start < span.start);
        let inside =
            launching.get(from..).unwrap_or_default().iter().take_while(|(start, _)| *start <= span.end);
        inside.into_iter().any(|(_, own)| *own == process)
    };
    for family in &FAMILIES {
        let marks = marks(trace, family);
        let mut spans = spans(&marks, family.mark, launching);
        spans.retain(|(span, range)| has_work(span, range.process));
        if spans.len() >= family.least {
            return spans.into_iter().map(|(span, _)| span).collect();
        }
    }
    Vec::new()
}

/// Returns the outermost ranges of a family on the thread of the first one, in the order of start.
fn marks<'a>(trace: &'a Trace, family: &Family) -> Vec<(u32, &'a Range)> {
    let mut known: FxHashMap<NameId, bool> = FxHashMap::default();
    let mut is_outermost = outermost(false);
    let mut found: Vec<(u32, &Range)> = Vec::new();
    for (row, range) in trace.ranges.rows.iter().enumerate() {
        let matches =
            *known.entry(range.name).or_insert_with(|| (family.matches)(trace.names.get(range.name)));
        if matches && is_outermost(range) {
            found.push((row as u32, range));
        }
    }
    if family.one_name {
        let mut counts: FxHashMap<NameId, usize> = FxHashMap::default();
        for (_, range) in &found {
            *counts.entry(range.name).or_default() += 1;
        }
        let enough = |range: &Range| counts.get(&range.name).is_some_and(|count| *count >= family.least);
        let first =
            found.iter().find(|(_, range)| enough(range)).map(|(_, range)| (range.name, range.thread));
        found.retain(|(_, range)| first == Some((range.name, range.thread)));
    }
    found
}

/// Returns the span of each iteration. One that only its begin or end marks, and that nothing bounds on the other side, takes as long as
/// the others.
fn spans<'a>(
    marks: &[(u32, &'a Range)],
    mark: Mark,
    launching: &[(Ns, ProcessId)],
) -> Vec<(Span, &'a Range)> {
    let edge = |range: &Range| if mark == Mark::End { range.end } else { range.start };
    let mut periods: Vec<Ns> = marks
        .windows(2)
        .filter_map(|pair| match pair {
            [(_, a), (_, b)] => Some(edge(b) - edge(a)),
            _ => None,
        })
        .collect();
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
        assert!(is_profiler_step("ProfilerStep#12") && !is_profiler_step("ProfilerStep*"));
        for name in ["token_0", "Step 12", "iteration#4", "batch-7", "iter 3", "decode_step_9"] {
            assert!(is_numbered(name), "{name}");
        }
        for name in ["token", "layer_3", "3", "stepper_1", "token_a"] {
            assert!(!is_numbered(name), "{name}");
        }
        assert!(is_pass("forward pass") && !is_pass("forward"));
    }
}
