//! Jobs of several ranks with known skew, waits, exposed communication and clock offsets.

use crate::random::Random;
use std::io::{self, BufWriter, Write};

/// Kernel that takes longer on a late rank.
pub const LATE_KERNEL: &str = "flash_fwd_kernel";

/// Kernel that takes its place in a job of experts.
pub const EXPERT_KERNEL: &str = "fused_moe_kernel";

/// Start of the first step in the clock of rank 0, ns.
const BEGIN: i64 = 1_000_000_000;

/// Time from the end of a step to the start of the next, ns.
const GAP: i64 = 20_000;

/// Specification of a job. Every step computes on every rank and ends in an all-reduce of all ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSpec {
    /// Extra computation of each rank in each step, ns; its length is the number of ranks.
    pub late_ns: Vec<i64>,
    /// Clock of each rank minus that of rank 0, ns; missing ranks have none.
    pub clock_offset_ns: Vec<i64>,
    /// Number of steps.
    pub steps: u32,
    /// Number of compute kernels of a step; at least one.
    pub kernels: u32,
    /// Duration of a compute kernel, ns.
    pub kernel_ns: i64,
    /// Duration of an all-reduce after the last rank arrived, ns.
    pub latency_ns: i64,
    /// Part of it that computation on another stream hides, from the start of the all-reduce, ns; at most `latency_ns`.
    pub hidden_ns: i64,
    /// Largest difference of the ends of an all-reduce, ns.
    pub jitter_ns: i64,
    /// Numbers the collectives.
    pub numbered: bool,
    /// The late kernel computes experts, and the collective is an all-to-all.
    pub experts: bool,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl JobSpec {
    /// Creates a specification of some ranks without skew, clock offsets or hidden communication.
    pub fn even(ranks: usize, steps: u32) -> Self {
        Self {
            late_ns: vec![0; ranks],
            clock_offset_ns: Vec::new(),
            steps,
            kernels: 8,
            kernel_ns: 10_000,
            latency_ns: 30_000,
            hidden_ns: 0,
            jitter_ns: 0,
            numbered: false,
            experts: false,
            seed: 1,
        }
    }
}

/// Expected results of one rank; field names are those of `roofgap.analysis/1`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ExpectedRank {
    pub clock_offset_ns: i64,
    pub kernel_ns: i64,
    pub communication_ns: i64,
    pub exposed_ns: i64,
    pub waited_ns: i64,
    pub waited_for_ns: i64,
    pub last_count: u64,
}

/// A kernel of a rank, in the time of rank 0.
struct RankKernel {
    name: &'static str,
    stream: u32,
    start: i64,
    end: i64,
    /// Number of the all-reduce.
    collective: Option<u32>,
}

/// A simulated job.
pub struct JobRun {
    spec: JobSpec,
    kernels: Vec<Vec<RankKernel>>,
    /// Start of each step.
    begins: Vec<i64>,
    /// Expected results of each rank.
    pub ranks: Vec<ExpectedRank>,
    /// Shortest duration of the all-reduces over ranks, summed, ns.
    pub latency_ns: i64,
    /// Spread of the starts of every all-reduce, ns.
    pub skew_ns: i64,
}

impl JobRun {
    /// Simulates a job.
    pub fn run(spec: &JobSpec) -> Self {
        let mut random = Random::new(spec.seed);
        let count = spec.late_ns.len();
        let offset = |rank: usize| spec.clock_offset_ns.get(rank).copied().unwrap_or(0);
        let latest = spec.late_ns.iter().copied().max().unwrap_or(0);
        let earliest = spec.late_ns.iter().copied().min().unwrap_or(0);
        let last = (0..count).max_by_key(|rank| spec.late_ns[*rank]).unwrap_or(0);
        let compute_ns = i64::from(spec.kernels) * spec.kernel_ns;
        let period = compute_ns + latest + spec.latency_ns + spec.jitter_ns + GAP;
        let mut run = Self {
            kernels: (0..count).map(|_| Vec::new()).collect(),
            ranks: (0..count)
                .map(|rank| ExpectedRank {
                    clock_offset_ns: offset(rank) - offset(0),
                    ..ExpectedRank::default()
                })
                .collect(),
            begins: (0..i64::from(spec.steps)).map(|step| BEGIN + step * period).collect(),
            latency_ns: 0,
            skew_ns: latest - earliest,
            spec: spec.clone(),
        };
        for step in 0..spec.steps {
            let begin = run.begins[step as usize];
            let arrived = begin + compute_ns + latest;
            let mut shortest = i64::MAX;
            for rank in 0..count {
                let kernels = &mut run.kernels[rank];
                let mut at = begin;
                for number in 0..spec.kernels {
                    let (name, extra) = match number {
                        0 if spec.experts => (EXPERT_KERNEL, spec.late_ns[rank]),
                        0 => (LATE_KERNEL, spec.late_ns[rank]),
                        _ => ("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", 0),
                    };
                    kernels.push(RankKernel {
                        name,
                        stream: 7,
                        start: at,
                        end: at + spec.kernel_ns + extra,
                        collective: None,
                    });
                    at += spec.kernel_ns + extra;
                }
                let end = arrived + spec.latency_ns + random.between(0, spec.jitter_ns + 1);
                kernels.push(RankKernel {
                    name: if spec.experts {
                        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
                    } else {
                        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
                    },
                    stream: 13,
                    start: at,
                    end,
                    collective: Some(step),
                });
                if spec.hidden_ns > 0 {
                    kernels.push(RankKernel {
                        name: "vectorized_elementwise_kernel",
                        stream: 7,
                        start: at,
                        end: at + spec.hidden_ns,
                        collective: None,
                    });
                }
                shortest = shortest.min(end - at);
                let expected = &mut run.ranks[rank];
                expected.kernel_ns += end - begin + spec.hidden_ns;
                expected.communication_ns += end - at;
                expected.exposed_ns += end - at - spec.hidden_ns;
                expected.waited_ns += arrived - at;
            }
            run.latency_ns += shortest;
            if latest > earliest {
                let mut others: Vec<i64> =
                    (0..count).filter(|rank| *rank != last).map(|rank| latest - spec.late_ns[rank]).collect();
                others.sort_unstable();
                run.ranks[last].waited_for_ns += others[(others.len() - 1) / 2];
                run.ranks[last].last_count += 1;
            }
        }
        run
    }

    /// Writes one rank as a PyTorch profiler trace in its own clock.
    pub fn write(&self, rank: usize, to: impl Write) -> io::Result<()> {
        let mut out = BufWriter::with_capacity(1 << 20, to);
        let offset = self.spec.clock_offset_ns.get(rank).copied().unwrap_or(0);
        let micros = |ns: i64| format!("{}.{:03}", (ns + offset) / 1000, (ns + offset) % 1000);
        let length = |ns: i64| format!("{}.{:03}", ns / 1000, ns % 1000);
        let count = self.kernels.len();
        let all: Vec<String> = (0..count).map(|rank| rank.to_string()).collect();
        write!(
            out,
            r#"{{"schemaVersion": 1, "deviceProperties": [{{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "computeMajor": 9, "computeMinor": 0, "numSms": 132}}],
"distributedInfo": {{"backend": "nccl", "rank": {rank}, "world_size": {count}, "pg_count": 1, "pg_config": [{{"pg_name": "0", "pg_desc": "default_pg", "pg_size": {count}, "ranks": [{}]}}]}},
"traceEvents": [
{{"ph": "M", "name": "process_name", "pid": 1000, "tid": 0, "ts": 0, "args": {{"name": "python3"}}}}"#,
            all.join(", ")
        )?;
        let mut range = |name: &str, start: i64, end: i64| {
            write!(
                out,
                ",\n{{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"{name}\", \"pid\": 1000, \"tid\": 1000, \"ts\": {}, \"dur\": {}, \"args\": {{}}}}",
                micros(start),
                length(end - start)
            )
        };
        if let (Some(first), Some(last)) = (self.begins.first(), self.begins.last()) {
            range("decode", first - 8_000, last - 1_000)?;
        }
        for begin in &self.begins {
            range("decode_step", begin - 7_000, begin - 2_000)?;
        }
        let mut step = 0;
        let mut launched = 0;
        for (number, kernel) in self.kernels[rank].iter().enumerate() {
            let correlation = number + 1;
            while step + 1 < self.begins.len() && kernel.start >= self.begins[step + 1] {
                step += 1;
                launched = 0;
            }
            let call = self.begins[step] - 6_500 + 100 * launched;
            launched += 1;
            let name = if self.spec.experts { "all_to_allv" } else { "allreduce" };
            let described = format!(", \"Collective name\": \"{name}\"{COLLECTIVE}, \"Group size\": {count}");
            let collective = match kernel.collective {
                Some(number) if self.spec.numbered => format!("{described}, \"Seq\": {number}"),
                Some(_) => described,
                None => String::new(),
            };
            write!(
                out,
                ",\n{{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 1000, \"tid\": 1000, \"ts\": {}, \"dur\": {}, \"args\": {{\"cbid\": 211, \"correlation\": {correlation}}}}}",
                micros(call),
                length(50)
            )?;
            write!(
                out,
                ",\n{{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"{}\", \"pid\": 0, \"tid\": {stream}, \"ts\": {}, \"dur\": {}, \"args\": {{\"device\": 0, \"context\": 1, \"stream\": {stream}, \"correlation\": {correlation}, \"grid\": [132, 1, 1], \"block\": [128, 1, 1]{collective}}}}}",
                kernel.name,
                micros(kernel.start),
                length(kernel.end - kernel.start),
                stream = kernel.stream,
            )?;
        }
        out.write_all(b"\n]}\n")?;
        out.flush()
    }
}

/// Arguments of a collective.
const COLLECTIVE: &str = ", \"In msg nelems\": 4096, \"Out msg nelems\": 4096, \"dtype\": \"BFloat16\", \
                          \"Process Group Name\": \"0\", \"Process Group Description\": \"default_pg\"";
