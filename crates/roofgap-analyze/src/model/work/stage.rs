//! Terms of work and their sums.

use serde::Serialize;

/// A term of the work of a stage, with its formula so that a reader can check it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Term {
    /// Name.
    pub name: String,
    /// Floating-point operations (a multiplication and an addition are two).
    pub flops: f64,
    /// Weights that have to be read from memory.
    pub weight_bytes: f64,
    /// Cached keys and values that have to be read or written.
    pub kv_bytes: f64,
    /// Inputs and outputs of the products. They may stay in a cache, so they are shown and not counted as traffic.
    pub activation_bytes: f64,
    /// The formula with its numbers.
    pub how: String,
}

impl Term {
    /// Bytes that must cross the memory bus: weights and cached keys and values.
    pub fn moved_bytes(&self) -> f64 {
        self.weight_bytes + self.kv_bytes
    }
}

/// The work of a stage.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageWork {
    /// Terms.
    pub terms: Vec<Term>,
    /// Decode steps it stands for, where it is a decode.
    pub steps: Option<u64>,
    /// Devices that share it. Busy time is summed over devices and wall time is not, so they count by wall time alone.
    pub devices: u32,
    /// Assumptions.
    pub assumptions: Vec<String>,
}

impl StageWork {
    /// Floating-point operations in all.
    pub fn flops(&self) -> f64 {
        self.terms.iter().map(|term| term.flops).sum()
    }

    /// Bytes that must move.
    pub fn moved_bytes(&self) -> f64 {
        self.terms.iter().map(Term::moved_bytes).sum()
    }

    /// The least a decode step can take at this bandwidth, in nanoseconds.
    pub fn floor_step_ns(&self, bandwidth_bytes_per_s: f64) -> Option<f64> {
        let steps = self.steps.filter(|steps| *steps > 0)?;
        (bandwidth_bytes_per_s > 0.0).then(|| self.moved_bytes() / steps as f64 / bandwidth_bytes_per_s * 1e9)
    }

    /// The same work shared by several devices.
    pub fn on_devices(mut self, devices: u32) -> Self {
        self.devices = devices.max(1);
        self
    }

    /// The work of one of several ranks that split every term.
    pub fn split_over(mut self, ranks: u32) -> Self {
        let part = 1.0 / f64::from(ranks.max(1));
        for term in &mut self.terms {
            term.flops *= part;
            term.weight_bytes *= part;
            term.kv_bytes *= part;
            term.activation_bytes *= part;
            term.how = format!("1/{ranks} of: {}", term.how);
        }
        self.assumptions.push(format!(
            "the capture holds one of {ranks} tensor-parallel ranks, which split every term evenly"
        ));
        self
    }

    /// The same work done several times.
    pub fn times(mut self, count: u64) -> Self {
        if count != 1 {
            let factor = count as f64;
            for term in &mut self.terms {
                term.flops *= factor;
                term.weight_bytes *= factor;
                term.kv_bytes *= factor;
                term.activation_bytes *= factor;
                term.how = format!("{count} times: {}", term.how);
            }
            self.steps = self.steps.map(|steps| steps.saturating_mul(count));
        }
        self
    }

    /// The work of several stages together, each with its name.
    pub fn together<'a>(parts: impl IntoIterator<Item = (&'a str, &'a Self)>) -> Self {
        let mut whole = Self { terms: Vec::new(), steps: None, devices: 1, assumptions: Vec::new() };
        for (stage, part) in parts {
            whole.devices = whole.devices.max(part.devices);
            whole.terms.extend(
                part.terms
                    .iter()
                    .map(|term| Term { name: format!("{stage}: {}", term.name), ..term.clone() }),
            );
            for assumption in &part.assumptions {
                if !whole.assumptions.contains(assumption) {
                    whole.assumptions.push(assumption.clone());
                }
            }
        }
        whole
    }
}
