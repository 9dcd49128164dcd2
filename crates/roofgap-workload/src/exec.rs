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
pub trait Ranges: Sync {
    /// Opens a range on the calling thread.
    fn push(&self, _domain: Option<&'static str>, _name: &'static str) {}

    /// Closes the innermost range of that domain on the calling thread.
    fn pop(&self, _domain: Option<&'static str>) {}
}

/// Opens nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Ranges for Silent {}

/// A stage of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Prefill,
    Decode,
}

impl Stage {
    pub fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }

    fn range(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode_all",
        }
    }
}

#[derive(Debug)]
struct Entry {
    stage: Option<Stage>,
    name: &'static str,
    calls: u64,
    own: Duration,
    total: Duration,
}

/// Times operators and opens ranges; passed down through the whole model.
pub struct Exec<'a> {
    ranges: &'a dyn Ranges,
    stage: Option<Stage>,
    entries: Vec<Entry>,
    /// For each operator that is open, the time of the operators inside it.
    inner: Vec<Duration>,
    notes: Vec<NoteTime>,
}

impl<'a> Exec<'a> {
    pub fn new(ranges: &'a dyn Ranges) -> Exec<'a> {
        Exec { ranges, stage: None, entries: Vec::new(), inner: Vec::new(), notes: Vec::new() }
    }

    /// Times an operator that has no operator inside it.
    pub fn op<T>(&mut self, name: &'static str, run: impl FnOnce() -> T) -> T {
        self.group(name, |_| run())
    }

    /// Times an operator made of others.
    pub fn group<T>(&mut self, name: &'static str, run: impl FnOnce(&mut Exec<'a>) -> T) -> T {
        self.inner.push(Duration::ZERO);
        let start = Instant::now();
        let result = run(self);
        let total = start.elapsed();
        let inner = self.inner.pop().unwrap_or_default();
        if let Some(outer) = self.inner.last_mut() {
            *outer += total;
        }
        let stage = self.stage;
        let found = self.entries.iter_mut().find(|entry| entry.stage == stage && entry.name == name);
        match found {
            Some(entry) => {
                entry.calls += 1;
                entry.own += total.saturating_sub(inner);
                entry.total += total;
            }
            None => {
                self.entries.push(Entry { stage, name, calls: 1, own: total.saturating_sub(inner), total })
            }
        }
        result
    }

    /// Runs a stage inside its range; gives its wall time.
    pub fn stage<T>(&mut self, stage: Stage, run: impl FnOnce(&mut Exec<'a>) -> T) -> (T, Duration) {
        let outer = self.stage.replace(stage);
        let timed = self.range(Some(LLM_DOMAIN), stage.range(), run);
        self.stage = outer;
        timed
    }

    /// Runs a step of decode inside its range; gives its wall time.
    pub fn step<T>(&mut self, run: impl FnOnce(&mut Exec<'a>) -> T) -> (T, Duration) {
        self.range(Some(LLM_DOMAIN), "decode_step", run)
    }

    /// Runs a warm-up inside its range.
    pub fn warmup<T>(&mut self, run: impl FnOnce(&mut Exec<'a>) -> T) -> T {
        self.range(Some(LLM_DOMAIN), "warmup", run).0
    }

    /// Runs a part of a stage inside a range of the default domain, and notes its time.
    pub fn note<T>(&mut self, name: &'static str, run: impl FnOnce(&mut Exec<'a>) -> T) -> T {
        let (result, wall) = self.range(None, name, run);
        self.notes.push(NoteTime { name: name.to_owned(), wall_ns: ns(wall) });
        result
    }

    fn range<T>(
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

    /// Forgets the operators seen so far: a warm-up is not part of the figures.
    pub fn forget_operators(&mut self) {
        self.entries.clear();
    }

    /// Returns the operators, by self time.
    pub fn operators(&self) -> Vec<OperatorTime> {
        let mut operators: Vec<OperatorTime> = self
            .entries
            .iter()
            .map(|entry| OperatorTime {
                name: entry.name.to_owned(),
                stage: entry.stage.map(|stage| stage.name().to_owned()),
                calls: entry.calls,
                self_cpu_ns: ns(entry.own),
                total_cpu_ns: ns(entry.total),
                self_gpu_ns: None,
                total_gpu_ns: None,
            })
            .collect();
        operators.sort_by(|a, b| (b.self_cpu_ns, &a.name, &a.stage).cmp(&(a.self_cpu_ns, &b.name, &b.stage)));
        operators
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_inside_another_is_not_counted_twice() {
        let mut exec = Exec::new(&Silent);
        exec.stage(Stage::Prefill, |exec| {
            exec.group("outer", |exec| {
                exec.op("inner", || ());
            });
        });
        let operators = exec.operators();
        let find = |name: &str| operators.iter().find(|op| op.name == name).unwrap();
        let (outer, inner) = (find("outer"), find("inner"));
        assert_eq!(inner.self_cpu_ns, inner.total_cpu_ns);
        assert_eq!(outer.self_cpu_ns + inner.total_cpu_ns, outer.total_cpu_ns);
        assert_eq!(outer.stage.as_deref(), Some("prefill"));
    }

    #[test]
    fn operators_of_different_stages_are_kept_apart() {
        let mut exec = Exec::new(&Silent);
        for stage in [Stage::Prefill, Stage::Decode, Stage::Decode] {
            exec.stage(stage, |exec| exec.op("matmul", || ()));
        }
        let calls = |stage: &str| {
            exec.operators().iter().find(|op| op.stage.as_deref() == Some(stage)).map(|op| op.calls)
        };
        assert_eq!(calls("prefill"), Some(1));
        assert_eq!(calls("decode"), Some(2));
    }
}
