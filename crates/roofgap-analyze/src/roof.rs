//! The distance of kernels and stages to the roof of the device: [`RoofDistance`] has the rule.
//!
//! [`RoofSums`] adds up launches whose work is known. Their work comes from `counters`, or is modelled from the recorded shapes of
//! operators.

use crate::gpu::{Dtype, GpuFacts};
use crate::result::{Analysis, Kernel, RoofDistance, RoofSource, Stage};
use crate::stages::StageIndex;
use roofgap_trace::{NameId, OpKind, ShapedOperator, Trace};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::ops::Range;

/// Puts the distance to the roof beside every kernel and stage whose work is known.
pub fn attach(analysis: &mut Analysis, sums: &RoofSums) {
    distances(&mut analysis.kernels, None, sums);
    for stage in &mut analysis.stages {
        distances(&mut stage.kernels, Some(&stage.name), sums);
        stage.roof = sums.of_stage(&stage.name).distance();
        if let Some(warm) = &mut stage.warm {
            distances(&mut warm.kernels, Some(&stage.name), sums);
            for kernel in &mut warm.kernels {
                let whole = stage.kernels.iter().find(|whole| whole.name == kernel.name);
                kernel.roof = kernel.roof.part(kernel.total_ns, whole.map_or(0, |whole| whole.total_ns));
            }
            warm.roof = stage.roof.part(warm.kernel_ns.unwrap_or(0), stage.kernel_ns.unwrap_or(0));
        }
    }
}

/// Puts the distance beside each kernel of a table. The launches of one name on several devices are not told apart.
fn distances(kernels: &mut [Kernel], stage: Option<&str>, sums: &RoofSums) {
    let mut rows: FxHashMap<String, u32> = FxHashMap::default();
    for kernel in kernels.iter() {
        *rows.entry(kernel.name.clone()).or_default() += 1;
    }
    for kernel in kernels.iter_mut().filter(|kernel| rows[&kernel.name] == 1) {
        kernel.roof = sums.of_kernel(stage, &kernel.name).distance();
    }
}

/// The least time of a stage by each of its roofs, ns; 0 for a roof that is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StageRoofs {
    /// FLOPs of the model at the dense peak.
    pub compute_ns: i64,
    /// Bytes of the model at the memory bandwidth.
    pub memory_ns: i64,
    /// Messages at the peak of the link.
    pub communication_ns: i64,
    /// Work of the thread that launches.
    pub launch_ns: i64,
}

/// The work that is left without the cause of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeps {
    /// All of it: every roof holds.
    Work,
    /// The FLOPs, with fewer bytes: the memory roof does not hold.
    Flops,
    /// The bytes, with other FLOPs: the compute roof does not hold.
    Bytes,
    /// Less of both: neither of these roofs holds.
    Neither,
}

impl StageRoofs {
    /// Returns the roofs of a stage that its model tells.
    pub fn of(stage: &Stage) -> Self {
        let at_peak = |by_wall_pct: Option<f64>| {
            let share = by_wall_pct.filter(|pct| pct.is_finite()).unwrap_or(0.0) / 100.0;
            (stage.elapsed_ns() as f64 * share.clamp(0.0, 1.0)) as i64
        };
        Self {
            compute_ns: at_peak(stage.mfu.as_ref().map(|mfu| mfu.by_wall_pct)),
            memory_ns: at_peak(stage.mbu.as_ref().map(|mbu| mbu.by_wall_pct)),
            communication_ns: 0,
            launch_ns: if stage.period_ns.is_none() { stage.launching_ns } else { 0 },
        }
    }

    /// Returns the highest roof that holds, by name, and its time, ns. That of the launching thread holds for faster kernels.
    pub fn highest(self, keeps: Keeps, keeps_launches: bool) -> (&'static str, i64) {
        let holds = |roof: bool, ns: i64| if roof { ns } else { 0 };
        let roofs = [
            ("the compute roof", holds(matches!(keeps, Keeps::Work | Keeps::Flops), self.compute_ns)),
            ("the memory roof", holds(matches!(keeps, Keeps::Work | Keeps::Bytes), self.memory_ns)),
            ("the communication roof", holds(keeps == Keeps::Work, self.communication_ns)),
            ("the work of the launching thread", holds(keeps_launches, self.launch_ns)),
        ];
        roofs.into_iter().filter(|(_, ns)| *ns > 0).max_by_key(|(_, ns)| *ns).unwrap_or(("zero", 0))
    }
}

/// The time of some launches, and the part of it beyond the roof.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RoofSum {
    covered_ns: i64,
    above_ns: f64,
    source: Option<RoofSource>,
}

impl RoofSum {
    /// Adds launches with the time that they took. Together they are not faster than the roof.
    fn add(&mut self, took: RoofTime) {
        self.covered_ns += took.total_ns;
        self.above_ns += (took.total_ns as f64 - took.roof_ns).max(0.0);
        self.source = match self.source {
            Some(source) if source != took.source => Some(RoofSource::Mixed),
            _ => Some(took.source),
        };
    }

    /// Returns the distance to the roof; empty without any launch.
    pub fn distance(&self) -> RoofDistance {
        if self.covered_ns <= 0 {
            return RoofDistance::default();
        }
        RoofDistance {
            roof_pct: Some(100.0 * (1.0 - self.above_ns / self.covered_ns as f64)),
            above_roof_ns: Some(self.above_ns.round() as i64),
            roof_covered_ns: Some(self.covered_ns),
            roof_source: self.source,
        }
    }
}

/// The time of launches beside the time of their work at the roof.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoofTime {
    /// Time that they took, ns.
    pub total_ns: i64,
    /// Time at the roof, ns.
    pub roof_ns: f64,
    /// Origin of the work.
    pub source: RoofSource,
}

/// Sums by stage and kernel: of a kernel in the whole trace and in each stage, and of each stage.
#[derive(Debug, Default)]
pub struct RoofSums(FxHashMap<(Option<String>, Option<String>), RoofSum>);

impl RoofSums {
    /// Adds launches of a kernel.
    pub fn add(&mut self, stage: Option<&str>, kernel: &str, took: RoofTime) {
        let mut keys = vec![(None, Some(kernel))];
        keys.extend(stage.iter().flat_map(|_| [(stage, Some(kernel)), (stage, None)]));
        for (stage, kernel) in keys {
            self.0.entry((stage.map(str::to_owned), kernel.map(str::to_owned))).or_default().add(took);
        }
    }

    fn sum(&self, stage: Option<&str>, kernel: Option<&str>) -> RoofSum {
        self.0.get(&(stage.map(str::to_owned), kernel.map(str::to_owned))).copied().unwrap_or_default()
    }

    /// Returns the sum of a kernel in a stage, or in the whole trace.
    pub fn of_kernel(&self, stage: Option<&str>, kernel: &str) -> RoofSum {
        self.sum(stage, Some(kernel))
    }

    /// Returns the sum of a stage.
    pub fn of_stage(&self, stage: &str) -> RoofSum {
        self.sum(Some(stage), None)
    }
}

/// Adds the launches of operators with recorded shapes that launch exactly one kernel. Kernels that were measured in their stage
/// are left to the counters.
pub fn add_modelled(sums: &mut RoofSums, trace: &Trace, index: &StageIndex, gpu: &GpuFacts) {
    let mut shaped: Vec<&ShapedOperator> = trace.shaped.iter().collect();
    shaped.sort_by_key(|op| (op.thread, op.start, Reverse(op.end)));
    // Launches of a kernel in a stage, by the operator and its shapes, with the roof of one; `None` where those do not give the work.
    type Key = (Option<usize>, NameId, (NameId, NameId, NameId));
    let text = |id| trace.names.get(id);
    let mut groups: FxHashMap<Key, Option<(f64, RoofTime)>> = FxHashMap::default();
    for (operator, row) in single_kernels(trace, &shaped, index) {
        let Some(op) = shaped.get(operator) else { continue };
        let stage = index.stage_of_op(row);
        let key = (stage, trace.ops.name[row], (op.name, op.dims, op.types));
        let launches = groups.entry(key).or_insert_with(|| {
            let work = OperatorWork::from_shapes(text(op.name), text(op.dims), text(op.types))?;
            let each_ns = gpu.roof_ns(work.flops, work.bytes, gpu.peak(work.dtype))?;
            Some((each_ns, RoofTime { total_ns: 0, roof_ns: 0.0, source: RoofSource::Modelled }))
        });
        if let Some((each_ns, took)) = launches {
            // A launch that is faster than its roof is at the roof.
            let took_ns = trace.ops.duration(row);
            took.total_ns += took_ns;
            took.roof_ns += each_ns.min(took_ns as f64);
        }
    }
    let modelled = groups.into_iter().filter_map(|((stage, kernel, _), launches)| {
        Some((stage.map(|stage| index.name(stage)), text(kernel), launches?.1))
    });
    let new = |(stage, kernel, _): &(Option<&str>, &str, RoofTime)| {
        sums.of_kernel(*stage, kernel) == RoofSum::default()
    };
    let modelled: Vec<_> = modelled.filter(new).collect();
    for (stage, kernel, took) in modelled {
        sums.add(stage, kernel, took);
    }
}

/// Returns the operators that launch exactly one kernel, with the row of that kernel.
fn single_kernels(trace: &Trace, shaped: &[&ShapedOperator], index: &StageIndex) -> Vec<(usize, usize)> {
    if shaped.is_empty() {
        return Vec::new();
    }
    let mut kernels: Vec<(u32, usize)> = vec![(0, 0); shaped.len()];
    let mut after = 0;
    for row in (0..trace.ops.len()).filter(|row| trace.ops.kind[*row] == OpKind::Kernel) {
        let call = index.call_of_op(row) as usize;
        let Some(start) = trace.calls.start.get(call) else { continue };
        let at = (trace.calls.thread[call], *start);
        let is_before = |after: usize| shaped.get(after).is_some_and(|op| (op.thread, op.start) <= at);
        // Mostly launches follow one another.
        after += usize::from(is_before(after));
        if is_before(after) || after.checked_sub(1).is_some_and(|last| !is_before(last)) {
            after = shaped.partition_point(|op| (op.thread, op.start) <= at);
        }
        let is_around = |kernel: &usize| shaped[*kernel].thread == at.0 && shaped[*kernel].end >= at.1;
        if let Some(kernel) = after.checked_sub(1).filter(is_around) {
            kernels[kernel] = (kernels[kernel].0 + 1, row);
        }
    }
    let single = kernels.iter().enumerate().filter(|(_, (count, _))| *count == 1);
    single.map(|(operator, (_, row))| (operator, *row)).collect()
}

/// FLOPs and bytes of an operator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OperatorWork {
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes, with every input and output moved once.
    pub bytes: f64,
    /// Type of the inputs.
    pub dtype: Dtype,
}

impl OperatorWork {
    /// Returns the work of an operator; `None` where name, shapes or types do not tell it.
    pub fn from_shapes(operator: &str, dims: &str, types: &str) -> Option<Self> {
        let dims: Vec<Vec<u64>> =
            serde_json::from_str::<Vec<serde_json::Value>>(dims).ok()?.iter().map(shape).collect();
        let types: Vec<String> = serde_json::from_str(types).ok()?;
        let input = |at: usize| dims.get(at).map(Vec::as_slice);
        let (flops, elements, inputs) = match operator {
            "aten::mm" => product(1, input(0)?, input(1)?, 0..2)?,
            "aten::addmm" => {
                let (flops, elements, inputs) = product(1, input(1)?, input(2)?, 0..3)?;
                (flops, elements + count(input(0)?), inputs)
            }
            "aten::bmm" => match (input(0)?, input(1)?) {
                ([batch, left @ ..], [other, right @ ..]) if batch == other => {
                    product(*batch, left, right, 0..2)?
                }
                _ => return None,
            },
            "aten::_scaled_dot_product_flash_attention"
            | "aten::_scaled_dot_product_efficient_attention"
            | "aten::_scaled_dot_product_cudnn_attention" => attention(input(0)?, input(1)?, input(2)?)?,
            _ => return None,
        };
        let dtype = dtype(types.get(inputs)?)?;
        (flops > 0.0).then_some(Self { flops, bytes: elements * dtype.bits() / 8.0, dtype })
    }
}

type Work = (f64, f64, Range<usize>);

/// Returns FLOPs and elements of `batch` products of a matrix of M x K and one of K x N.
fn product(batch: u64, left: &[u64], right: &[u64], inputs: Range<usize>) -> Option<Work> {
    let ([m, k], [same, n]) = (left, right) else {
        return None;
    };
    let [batch, m, k, n] = [batch, *m, *k, *n].map(|size| size as f64);
    let elements = batch * (m * k + k * n + m * n);
    (*same as f64 == k).then_some((2.0 * batch * m * n * k, elements, inputs))
}

/// Returns FLOPs and elements of the attention of one new token for each sequence. For several tokens the work depends on the mask,
/// which the shapes do not tell.
fn attention(query: &[u64], key: &[u64], value: &[u64]) -> Option<Work> {
    let ([batch, heads, 1, size], [_, _, length, _], [_, _, _, value_size]) = (query, key, value) else {
        return None;
    };
    let [batch, heads, size, length, value_size] =
        [*batch, *heads, *size, *length, *value_size].map(|size| size as f64);
    let flops = 2.0 * batch * heads * length * (size + value_size);
    let output = batch * heads * value_size;
    Some((flops, count(query) + count(key) + count(value) + output, 0..3))
}

fn count(shape: &[u64]) -> f64 {
    shape.iter().map(|size| *size as f64).product()
}

/// Reads the shape of an input; empty for one that is not a tensor.
fn shape(value: &serde_json::Value) -> Vec<u64> {
    let sizes = value.as_array().map(Vec::as_slice).unwrap_or_default();
    sizes.iter().filter_map(serde_json::Value::as_u64).collect()
}

/// Returns the type that all inputs share. That of `float` is left out: whether TF32 is allowed is not recorded.
fn dtype(types: &[String]) -> Option<Dtype> {
    let first = types.first()?;
    if types.iter().any(|other| other != first) {
        return None;
    }
    match first.as_str() {
        "c10::BFloat16" => Some(Dtype::Bf16),
        "c10::Half" => Some(Dtype::Fp16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_beyond_the_roof_adds_up() {
        let took = |total_ns, roof_ns, source| RoofTime { total_ns, roof_ns, source };
        let mut sums = RoofSums::default();
        sums.add(Some("decode"), "gemm", took(1_000, 400.0, RoofSource::Counters));
        // Faster than its roof: at the roof.
        sums.add(Some("decode"), "gemm", took(500, 600.0, RoofSource::Counters));
        sums.add(None, "gemm", took(500, 500.0, RoofSource::Counters));
        sums.add(Some("decode"), "copy", took(300, 100.0, RoofSource::Modelled));
        let gemm = sums.of_kernel(Some("decode"), "gemm").distance();
        assert_eq!(gemm.above_roof_ns, Some(600));
        assert_eq!(gemm.roof_covered_ns, Some(1_500));
        assert_eq!(gemm.roof_pct, Some(60.0));
        let whole = sums.of_kernel(None, "gemm").distance();
        assert_eq!((whole.above_roof_ns, whole.roof_covered_ns), (Some(600), Some(2_000)));
        let stage = sums.of_stage("decode").distance();
        assert_eq!((stage.above_roof_ns, stage.roof_covered_ns), (Some(800), Some(1_800)));
        assert_eq!(stage.roof_source, Some(RoofSource::Mixed));
        assert_eq!(sums.of_stage("prefill").distance(), RoofDistance::default());
    }

    const BF16: &str = r#"["c10::BFloat16", "c10::BFloat16", "c10::BFloat16"]"#;

    fn work(operator: &str, dims: &str) -> Option<(f64, f64)> {
        OperatorWork::from_shapes(operator, dims, BF16).map(|work| (work.flops, work.bytes))
    }

    #[test]
    fn products_by_hand() {
        // 2 x 3 times 3 x 4: 2 * 2 * 4 * 3 operations; 6 + 12 + 8 elements of two bytes.
        assert_eq!(work("aten::mm", "[[2, 3], [3, 4]]"), Some((48.0, 52.0)));
        assert_eq!(work("aten::addmm", "[[4], [2, 3], [3, 4], [], []]"), Some((48.0, 60.0)));
        assert_eq!(work("aten::bmm", "[[5, 2, 3], [5, 3, 4]]"), Some((240.0, 260.0)));
        assert_eq!(work("aten::mm", "[[2, 3], [5, 4]]"), None);
        assert_eq!(work("aten::bmm", "[[5, 2, 3], [6, 3, 4]]"), None);
        assert_eq!(work("aten::mul", "[[2, 3], [3, 4]]"), None);
        assert_eq!(work("aten::mm", "nonsense"), None);
    }

    #[test]
    fn attention_of_one_token_by_hand() {
        let operator = "aten::_scaled_dot_product_flash_attention";
        // 1 sequence, 4 heads of 8, 2 heads of keys, 10 tokens: 2 * 4 * 10 * 16 operations; 32 + 160 + 160 + 32 elements.
        let decode = "[[1, 4, 1, 8], [1, 2, 10, 8], [1, 2, 10, 8]]";
        assert_eq!(work(operator, decode), Some((1280.0, 768.0)));
        // The mask of several tokens is not known.
        assert_eq!(work(operator, "[[1, 4, 10, 8], [1, 4, 10, 8], [1, 4, 10, 8]]"), None);
    }

    #[test]
    fn types_must_tell_the_peak() {
        let with = |types: &str| OperatorWork::from_shapes("aten::mm", "[[2, 3], [3, 4]]", types);
        assert_eq!(with(r#"["float", "float"]"#), None);
        assert_eq!(with(r#"["c10::Half", "c10::BFloat16"]"#), None);
        assert_eq!(with(r#"["c10::Half", "c10::Half"]"#).map(|work| work.dtype), Some(Dtype::Fp16));
        assert_eq!(with("[]"), None);
    }
}
