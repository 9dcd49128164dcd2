//! Context of a forward pass: operator times and NVTX ranges.

use std::time::{Duration, Instant};

use roofgap_base::clock::ns;
use roofgap_wire::account::{NoteTime, OperatorTime};

/// The NVTX domain of the stages.
pub const LLM_DOMAIN: &str = "LLM";

/// Something that takes nested ranges of one thread.
///
/// The embedded model opens `prefill`, `decode_all`, `decode_step` and `warmup` in domain [`LLM_DOMAIN`], and `sam`, `clip` and `projector`
/// in the default domain (`None`).
pub trait Ranges {
    /// Opens a range on the calling thread.
    fn push(&self, _domain: Option<&'static str>, _name: &'static str) {}

    /// Closes the innermost range of that domain on the calling thread.
    fn pop(&self, _domain: Option<&'static str>) {}
}

/// Opens nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Ranges for Silent {}

/// Times operators and opens ranges; passed down through the whole model.
pub struct Exec<'a> {
    ranges: &'a dyn Ranges,
    threads: usize,
    stage: Option<&'static str>,
    operators: Vec<OperatorTime>,
    notes: Vec<NoteTime>,
}

impl<'a> Exec<'a> {
    pub fn new(ranges: &'a dyn Ranges, threads: usize) -> Exec<'a> {
        Exec { ranges, threads, stage: None, operators: Vec::new(), notes: Vec::new() }
    }

    /// Times an operator, which is given the number of threads to use.
    pub fn op<T>(&mut self, name: &'static str, run: impl FnOnce(usize) -> T) -> T {
        let start = Instant::now();
        let result = run(self.threads);
        let took = ns(start.elapsed());
        let stage = self.stage;
        let same = |op: &&mut OperatorTime| op.name == name && op.stage.as_deref() == stage;
        match self.operators.iter_mut().find(same) {
            Some(op) => {
                op.calls += 1;
                op.self_cpu_ns += took;
                op.total_cpu_ns += took;
            }
            None => self.operators.push(OperatorTime {
                name: name.to_owned(),
                stage: stage.map(str::to_owned),
                calls: 1,
                self_cpu_ns: took,
                total_cpu_ns: took,
                ..OperatorTime::default()
            }),
        }
        result
    }

    /// Runs a stage inside its range; gives its wall time.
    pub fn stage<T>(
        &mut self,
        name: &'static str,
        range: &'static str,
        run: impl FnOnce(&mut Exec<'a>) -> T,
    ) -> (T, Duration) {
        let outer = self.stage.replace(name);
        let timed = self.range(Some(LLM_DOMAIN), range, run);
        self.stage = outer;
        timed
    }

    /// Runs a part of a stage inside a range of the default domain, and notes its time.
    pub fn note<T>(&mut self, name: &'static str, run: impl FnOnce(&mut Exec<'a>) -> T) -> T {
        let (result, wall) = self.range(None, name, run);
        self.notes.push(NoteTime { name: name.to_owned(), wall_ns: ns(wall) });
        result
    }

    /// Runs something inside a range; gives its wall time.
    pub fn range<T>(
        &mut self,
        domain: Option<&'static str>,
        name: &'static str,
        run: impl FnOnce(&mut Exec<'a>) -> T,
    ) -> (T, Duration) {
        self.ranges.push(domain, name);
        let start = Instant::now();
        let result = run(self);
        let wall = start.elapsed();
        self.ranges.pop(domain);
        (result, wall)
    }

    /// Returns the parts noted since the last call.
    pub fn take_notes(&mut self) -> Vec<NoteTime> {
        std::mem::take(&mut self.notes)
    }

    /// Returns the operators since the last call, by time.
    pub fn take_operators(&mut self) -> Vec<OperatorTime> {
        let mut operators = std::mem::take(&mut self.operators);
        operators.sort_by(|a, b| (b.self_cpu_ns, &a.name, &a.stage).cmp(&(a.self_cpu_ns, &b.name, &b.stage)));
        operators
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_of_different_stages_are_kept_apart() {
        let mut exec = Exec::new(&Silent, 1);
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
