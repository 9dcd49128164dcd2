//! Context of a forward pass: operator times and NVTX ranges.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Instant;

use roofgap_base::clock::ns;
use roofgap_wire::account::{NoteTime, OperatorTime};

/// The NVTX domain of the stages.
pub const LLM_DOMAIN: &str = "LLM";

/// Receiver of the nested ranges of one thread.
///
/// The embedded model opens `prefill`, `decode_all`, `decode_step` and `warmup` in domain [`LLM_DOMAIN`], and `sam`, `clip` and `projector`
/// in the default domain (`None`).
pub trait Ranges {
    /// Opens a range on the calling thread.
    fn push(&self, _domain: Option<&'static str>, _name: &'static str) {}

    /// Closes the innermost range of that domain on the calling thread.
    fn pop(&self, _domain: Option<&'static str>) {}
}

/// Ignores all ranges.
impl Ranges for () {}

/// Times operators and opens ranges; passed down through the whole model.
pub struct Exec<'a> {
    ranges: &'a dyn Ranges,
    threads: usize,
    stage: Option<&'static str>,
    /// Calls and time of each operator, by stage and name.
    operators: BTreeMap<(Option<&'static str>, &'static str), (u64, i64)>,
    notes: Vec<NoteTime>,
}

impl<'a> Exec<'a> {
    pub fn new(ranges: &'a dyn Ranges, threads: usize) -> Exec<'a> {
        Exec { ranges, threads, stage: None, operators: BTreeMap::new(), notes: Vec::new() }
    }

    /// Times an operator, which is given the number of threads to use.
    pub fn op<T>(&mut self, name: &'static str, run: impl FnOnce(usize) -> T) -> T {
        let start = Instant::now();
        let result = run(self.threads);
        let (calls, wall_ns) = self.operators.entry((self.stage, name)).or_default();
        *calls += 1;
        *wall_ns += ns(start.elapsed());
        result
    }

    /// Runs a stage inside its range; returns its wall time too, ns.
    pub fn stage<T>(
        &mut self,
        name: &'static str,
        range: &'static str,
        run: impl FnOnce(&mut Exec<'a>) -> T,
    ) -> (T, i64) {
        self.stage = Some(name);
        self.range(Some(LLM_DOMAIN), range, run)
    }

    /// Runs a part of a stage inside a range of the default domain, and notes its time.
    pub fn note<T>(&mut self, name: &'static str, run: impl FnOnce(&mut Exec<'a>) -> T) -> T {
        let (result, wall_ns) = self.range(None, name, run);
        self.notes.push(NoteTime { name: name.to_owned(), wall_ns });
        result
    }

    /// Runs something inside a range; returns its wall time too, ns.
    pub fn range<T>(
        &mut self,
        domain: Option<&'static str>,
        name: &'static str,
        run: impl FnOnce(&mut Exec<'a>) -> T,
    ) -> (T, i64) {
        self.ranges.push(domain, name);
        let start = Instant::now();
        let result = run(self);
        let wall_ns = ns(start.elapsed());
        self.ranges.pop(domain);
        (result, wall_ns)
    }

    /// Returns the parts noted since the last call.
    pub fn take_notes(&mut self) -> Vec<NoteTime> {
        std::mem::take(&mut self.notes)
    }

    /// Returns the operators since the last call, by time.
    pub fn take_operators(&mut self) -> Vec<OperatorTime> {
        let times = std::mem::take(&mut self.operators).into_iter();
        let operator = |((stage, name), (calls, wall_ns)): ((Option<&str>, &str), _)| OperatorTime {
            name: name.to_owned(),
            stage: stage.map(str::to_owned),
            calls,
            self_cpu_ns: wall_ns,
            total_cpu_ns: wall_ns,
            ..OperatorTime::default()
        };
        let mut operators: Vec<OperatorTime> = times.map(operator).collect();
        operators.sort_by_key(|operator| Reverse(operator.self_cpu_ns));
        operators
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_of_different_stages_are_kept_apart() {
        let mut exec = Exec::new(&(), 1);
        for stage in ["prefill", "decode", "decode"] {
            exec.stage(stage, stage, |exec| exec.op("matmul", |_| ()));
        }
        let operators = exec.take_operators();
        let calls =
            |stage: &str| operators.iter().find(|op| op.stage.as_deref() == Some(stage)).map(|op| op.calls);
        assert_eq!(calls("prefill"), Some(1));
        assert_eq!(calls("decode"), Some(2));
    }
}
