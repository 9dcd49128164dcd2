//! Small programs that lose time for one planted reason, with and without it.
//!
//! Removing the cause from the program gives the real gain, which the bound of a finding must reach and not exceed by much.

use serde_json::{Value, json};

/// Process and thread id of the program.
const PID: u32 = 4711;
/// Time of the first event, ns.
const BEGINNING: i64 = 5_000_000_000;
/// Duration of a launch call, ns.
const CALL: i64 = 4_000;

/// A reason for which a program loses time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Short kernels, each launched late.
    Launch,
    /// Every step waits for its batch.
    DataLoading,
    /// An all-reduce at the end of each step that nothing hides.
    Communication,
    /// Chains of elementwise kernels.
    Fusion,
    /// Matrix products that stream their weights at the memory roof.
    MemoryBound,
    /// Matrix products near the compute roof.
    ComputeBound,
    /// A value is read back in every layer.
    Sync,
    /// Code is loaded in the first step.
    ColdStart,
    /// CPU work before the first GPU operation of each step.
    HostFirst,
    /// One step pauses.
    Outlier,
    /// Launched work waits behind an event.
    Waiting,
    /// Batches are copied from pageable memory.
    Copies,
    /// CPU work without a call in the middle of each step.
    HostWork,
    /// A kernel is compiled before its first launch, in the only step.
    Compile,
    /// Device memory is allocated and freed in each layer.
    Allocation,
    /// The host reads managed memory after each step, page by page.
    ManagedMemory,
}

impl Cause {
    /// Every cause and its name in the corpus.
    pub const ALL: [(&'static str, Self); 16] = [
        ("launch", Self::Launch),
        ("data-loading", Self::DataLoading),
        ("communication", Self::Communication),
        ("fusion", Self::Fusion),
        ("memory-bound", Self::MemoryBound),
        ("compute-bound", Self::ComputeBound),
        ("sync", Self::Sync),
        ("cold-start", Self::ColdStart),
        ("host-first", Self::HostFirst),
        ("outlier", Self::Outlier),
        ("waiting", Self::Waiting),
        ("copies", Self::Copies),
        ("host-work", Self::HostWork),
        ("compile", Self::Compile),
        ("allocation", Self::Allocation),
        ("managed-memory", Self::ManagedMemory),
    ];
}

/// A program of equal steps. Times are in ns; 0 leaves a part out.
#[derive(Debug, Clone, PartialEq)]
pub struct Planted {
    /// Number of steps.
    pub steps: usize,
    /// Layers of a step: a matrix product and a chain of elementwise kernels each.
    pub layers: usize,
    /// Duration of a matrix product.
    pub gemm_ns: i64,
    /// Rows, inner dimension and columns of a matrix product.
    pub gemm_shape: [u64; 3],
    /// Elementwise kernels of a layer.
    pub chain: usize,
    /// Duration of an elementwise kernel.
    pub elementwise_ns: i64,
    /// CPU time of an operator, its launch call included.
    pub operator_ns: i64,
    /// A step is launched as one graph.
    pub graph: bool,
    /// The CPU waits for the GPU at the end of a step.
    pub item: bool,
    /// The CPU waits for the GPU after each layer, and works so long before the next one.
    pub sync_ns: i64,
    /// Time in the data loader before a step.
    pub loader_ns: i64,
    /// CPU work before the first GPU operation of a step.
    pub host_ns: i64,
    /// Copy of the batch from pageable memory, in which the CPU waits.
    pub copy_ns: i64,
    /// All-reduce after the last layer, before the next step.
    pub collective_ns: i64,
    /// Loading of a module before the first launch.
    pub cold_ns: i64,
    /// Pause in the middle of one step.
    pub pause_ns: i64,
    /// Call in which the CPU is then; none where it is in its own code.
    pub pause_in: Option<&'static str>,
    /// Time that a matrix product in the middle of one step takes longer.
    pub slow_ns: i64,
    /// Time that a kernel in the middle of each step waits after its launch.
    pub wait_ns: i64,
    /// CPU work without a call in the middle of each step.
    pub between_ns: i64,
    /// Compilation of the elementwise kernel before its first launch.
    pub compile_ns: i64,
    /// Calls that allocate and free memory before each layer, while the CPU waits for the GPU.
    pub allocation_ns: i64,
    /// Time of a page of managed memory that the host reads after a step, the fault before it included; there are `PAGES` of them.
    pub page_ns: i64,
}

impl Planted {
    /// Returns a program bound by its matrix products, without any of the causes.
    pub fn sound() -> Self {
        Self {
            steps: 12,
            layers: 8,
            gemm_ns: 400_000,
            gemm_shape: [4096, 4096, 8192],
            chain: 1,
            elementwise_ns: 20_000,
            operator_ns: 12_000,
            graph: false,
            item: false,
            sync_ns: 0,
            loader_ns: 0,
            host_ns: 0,
            copy_ns: 0,
            collective_ns: 0,
            cold_ns: 0,
            pause_ns: 0,
            pause_in: None,
            slow_ns: 0,
            wait_ns: 0,
            between_ns: 0,
            compile_ns: 0,
            allocation_ns: 0,
            page_ns: 0,
        }
    }

    /// Returns a program with a cause. `scale` makes the lost time larger.
    pub fn with(cause: Cause, scale: i64) -> Self {
        let sound = Self::sound();
        match cause {
            Cause::Launch => Self {
                layers: 40,
                gemm_ns: 9_000,
                gemm_shape: [16, 2048, 2048],
                elementwise_ns: 2_500,
                operator_ns: 14_000 + 6_000 * scale,
                item: true,
                ..sound
            },
            Cause::DataLoading => Self { loader_ns: 2_000_000 * scale, item: true, ..sound },
            Cause::Communication => Self { collective_ns: 1_500_000 * scale, ..sound },
            Cause::Fusion => Self { chain: 4 + 2 * scale as usize, elementwise_ns: 60_000, ..sound },
            Cause::MemoryBound => {
                Self { gemm_shape: [1, 8192, 28_672], gemm_ns: 103_000 * scale, layers: 20, ..sound }
                    .columns(28_672 * scale as u64)
            }
            Cause::ComputeBound => {
                Self { gemm_shape: [8192, 8192, 8192], gemm_ns: 1_400_000 * scale, ..sound }
                    .columns(8192 * scale as u64)
            }
            Cause::Sync => Self { sync_ns: 80_000 * scale, ..sound },
            Cause::ColdStart => Self { cold_ns: 200_000_000 * scale, ..sound },
            Cause::HostFirst => Self { host_ns: 2_000_000 * scale, item: true, ..sound },
            Cause::Outlier => Self { pause_ns: 200_000_000 * scale, item: true, ..sound },
            Cause::Waiting => Self { wait_ns: 2_000_000 * scale, ..sound },
            Cause::Copies => Self { copy_ns: 1_200_000 * scale, item: true, ..sound },
            Cause::HostWork => Self { between_ns: 4_000_000 * scale, item: true, ..sound },
            Cause::Compile => Self { compile_ns: 100_000_000 * scale, steps: 1, ..sound },
            Cause::Allocation => Self { allocation_ns: 1_500_000 * scale, ..sound },
            Cause::ManagedMemory => Self { page_ns: 20_000 * scale, item: true, ..sound },
        }
    }

    /// Returns the same program without the cause.
    pub fn without(cause: Cause, scale: i64) -> Self {
        let with = Self::with(cause, scale);
        match cause {
            Cause::Launch => Self { graph: true, ..with },
            Cause::DataLoading => Self { loader_ns: 0, ..with },
            Cause::Communication => Self { collective_ns: 0, ..with },
            Cause::Fusion => Self { chain: 1, ..with },
            // A kernel at its roof is as fast as the GPU allows.
            Cause::MemoryBound | Cause::ComputeBound => with,
            Cause::Sync => Self { sync_ns: 0, ..with },
            Cause::ColdStart => Self { cold_ns: 0, ..with },
            Cause::HostFirst => Self { host_ns: 0, ..with },
            Cause::Outlier => Self { pause_ns: 0, ..with },
            Cause::Waiting => Self { wait_ns: 0, ..with },
            Cause::Copies => Self { copy_ns: 0, ..with },
            Cause::HostWork => Self { between_ns: 0, ..with },
            Cause::Compile => Self { compile_ns: 0, ..with },
            Cause::Allocation => Self { allocation_ns: 0, ..with },
            Cause::ManagedMemory => Self { page_ns: 0, ..with },
        }
    }

    fn columns(self, columns: u64) -> Self {
        let [rows, inner, _] = self.gemm_shape;
        Self { gemm_shape: [rows, inner, columns], ..self }
    }

    /// Runs the program.
    pub fn run(&self) -> PlantedRun {
        let mut machine =
            Machine { now: BEGINNING, free: BEGINNING, events: Vec::new(), correlation: 0, launched: 0 };
        let mut ends = vec![BEGINNING];
        for step in 0..self.steps {
            let begin = machine.now;
            self.step(step, &mut machine);
            machine.range(&format!("ProfilerStep#{}", step + 3), begin);
            ends.push(machine.free.max(machine.now));
        }
        machine.now += 30_000;
        // The profiler opens a step that the program never runs.
        machine.range(&format!("ProfilerStep#{}", self.steps + 3), machine.now - 20_000);
        let mut steps: Vec<i64> = ends.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let wall_ns = steps.iter().sum();
        steps.sort_unstable();
        PlantedRun {
            trace: json!({
                "schemaVersion": 1,
                "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150_109_880_320_u64,
                                      "computeMajor": 9, "computeMinor": 0, "numSms": 132}],
                "record_shapes": 1,
                "traceEvents": machine.events,
            }),
            wall_ns,
            step_ns: steps.get(steps.len() / 2).copied().unwrap_or(0),
        }
    }

    fn step(&self, number: usize, machine: &mut Machine) {
        let begin = machine.now;
        if self.loader_ns > 0 {
            machine.now += self.loader_ns;
            machine.range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin);
        }
        if self.host_ns > 0 {
            let begin = machine.now;
            machine.now += self.host_ns;
            machine.operator("aten::stack", begin, &json!([[64, 3, 224, 224]]));
        }
        if self.copy_ns > 0 {
            machine.copy(self.copy_ns);
        }
        if number == 0 && self.cold_ns > 0 {
            machine.call("cuModuleLoadData", self.cold_ns);
        }
        machine.graph(self.graph);
        for layer in 0..self.layers {
            let pauses = layer == self.layers / 2 && number == self.steps / 2;
            if layer == self.layers / 2 {
                match self.pause_in.filter(|_| pauses) {
                    Some(call) => machine.synchronizing(call, self.pause_ns),
                    None if pauses => machine.now += self.pause_ns,
                    None => {}
                }
                machine.free = machine.free.max(machine.now) + self.wait_ns;
                machine.now += self.between_ns;
            }
            if self.allocation_ns > 0 {
                machine.synchronizing("cudaMalloc", self.allocation_ns / 2);
                machine.synchronizing("cudaFree", self.allocation_ns / 2);
            }
            let [rows, inner, columns] = self.gemm_shape;
            let shape = json!([[rows, inner], [inner, columns]]);
            let gemm_ns = self.gemm_ns + if pauses { self.slow_ns } else { 0 };
            machine.launch(GEMM, "aten::mm", &shape, gemm_ns, self.operator_ns);
            let elementwise = if self.compile_ns > 0 { COMPILED } else { ELEMENTWISE };
            if layer == 0 && number == 0 {
                machine.now += self.compile_ns;
            }
            for _ in 0..self.chain {
                let shape = json!([[rows, columns], [rows, columns]]);
                machine.launch(elementwise, "aten::mul", &shape, self.elementwise_ns, self.operator_ns);
            }
            if self.sync_ns > 0 {
                machine.synchronize();
                machine.now += self.sync_ns;
            }
        }
        if self.collective_ns > 0 {
            machine.launch(
                COLLECTIVE,
                "nccl:all_reduce",
                &json!([[16_777_216]]),
                self.collective_ns,
                self.operator_ns,
            );
        }
        if self.item {
            machine.synchronize();
        }
        if self.page_ns > 0 {
            (0..PAGES).for_each(|_| machine.page(self.page_ns));
        }
    }
}

/// Pages of managed memory that the host reads after a step.
const PAGES: usize = 100;

/// A run of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct PlantedRun {
    /// PyTorch profiler trace.
    pub trace: Value,
    /// Time of all steps, ns.
    pub wall_ns: i64,
    /// Median step, from the end of the one before it to its own end, ns.
    pub step_ns: i64,
}

const GEMM: (&str, u32, u32) = ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNT", 7, 264);
const ELEMENTWISE: (&str, u32, u32) = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, at::native::MulFunctor<float>>, std::array<char*, 3ul>>(int, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, at::native::MulFunctor<float>>, std::array<char*, 3ul>)",
    7,
    2112,
);
const COMPILED: (&str, u32, u32) = ("triton_poi_fused_mul_0", 7, 2112);
const COLLECTIVE: (&str, u32, u32) =
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 20, 24);

/// A thread that launches work, and a GPU that runs it in order.
struct Machine {
    /// Time of the thread, ns.
    now: i64,
    /// Time at which the GPU is free, ns.
    free: i64,
    events: Vec<Value>,
    correlation: u32,
    /// Correlation id of the open graph; 0 for none.
    launched: u32,
}

impl Machine {
    fn event(
        &mut self,
        category: &str,
        name: &str,
        place: (u32, u32),
        start: i64,
        end: i64,
        arguments: Value,
    ) {
        let micros = |ns: i64| ns as f64 / 1000.0;
        self.events.push(json!({"ph": "X", "cat": category, "name": name, "pid": place.0, "tid": place.1,
                                "ts": micros(start), "dur": micros(end - start), "args": arguments}));
    }

    fn range(&mut self, name: &str, begin: i64) {
        self.event("user_annotation", name, (PID, PID), begin, self.now, json!({}));
    }

    fn operator(&mut self, name: &str, begin: i64, shape: &Value) {
        let kinds = vec!["c10::BFloat16"; shape.as_array().map_or(0, Vec::len)];
        let arguments = json!({"External id": self.correlation, "Input Dims": shape, "Input type": kinds});
        self.event("cpu_op", name, (PID, PID), begin, self.now, arguments);
    }

    fn call(&mut self, name: &str, ns: i64) {
        self.correlation += 1;
        let arguments =
            json!({"cbid": 211, "correlation": self.correlation, "External id": self.correlation});
        self.event("cuda_runtime", name, (PID, PID), self.now, self.now + ns, arguments);
        self.now += ns;
    }

    /// Launches a graph of the kernels that follow, or ends one.
    fn graph(&mut self, one: bool) {
        self.launched = 0;
        if one {
            self.call("cudaGraphLaunch", 5 * CALL);
            self.launched = self.correlation;
        }
    }

    fn launch(&mut self, kernel: (&str, u32, u32), operator: &str, shape: &Value, ns: i64, operator_ns: i64) {
        let begin = self.now;
        let mut node = 0;
        if self.launched == 0 {
            self.now += (operator_ns - CALL) * 3 / 4;
            self.call("cudaLaunchKernel", CALL);
        } else {
            node = self.events.len();
        }
        let correlation = if self.launched == 0 { self.correlation } else { self.launched };
        let start = self.free.max(self.now);
        self.free = start + ns;
        let (name, stream, blocks) = kernel;
        let mut arguments = json!({"device": 0, "context": 1, "stream": stream, "correlation": correlation,
                                   "External id": correlation, "grid": [blocks, 1, 1], "block": [256, 1, 1]});
        if node > 0 {
            arguments["graph node id"] = json!(node);
        }
        if stream == COLLECTIVE.1 {
            arguments["Collective name"] = json!("allreduce");
            arguments["Group size"] = json!(8);
            arguments["In msg nelems"] = json!(16_777_216);
            arguments["dtype"] = json!("BFloat16");
        }
        self.event("kernel", name, (0, stream), start, start + ns, arguments);
        if self.launched == 0 {
            self.now = begin + operator_ns;
            self.operator(operator, begin, shape);
        }
    }

    fn copy(&mut self, ns: i64) {
        let start = self.free.max(self.now + CALL);
        self.call("cudaMemcpyAsync", start + ns - self.now);
        self.free = start + ns;
        let arguments = json!({"device": 0, "context": 1, "stream": 7, "correlation": self.correlation,
                               "bytes": ns * 10, "memory bandwidth (GB/s)": 10.0});
        self.event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", (0, 7), start, start + ns, arguments);
    }

    /// Moves a page of managed memory to the host, as no call asks for.
    fn page(&mut self, ns: i64) {
        self.now += ns;
        let start = self.now - ns / 10;
        self.free = self.now;
        let arguments = json!({"device": 0, "context": 1, "stream": 9, "bytes": 65_536});
        self.event("gpu_memcpy", "[CUDA memcpy Unified Device-to-Host]", (0, 9), start, self.now, arguments);
    }

    fn synchronize(&mut self) {
        self.synchronizing("cudaStreamSynchronize", CALL);
    }

    /// Calls a function that waits for the GPU and then takes `ns`.
    fn synchronizing(&mut self, name: &str, ns: i64) {
        self.call(name, (self.free - self.now).max(0) + ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_costs_time() {
        for (name, cause) in Cause::ALL {
            let (with, without) = (Planted::with(cause, 1).run(), Planted::without(cause, 1).run());
            let at_the_roof = matches!(cause, Cause::MemoryBound | Cause::ComputeBound);
            assert_eq!(with.wall_ns > without.wall_ns * 105 / 100, !at_the_roof, "{name}");
        }
    }

    #[test]
    fn a_rare_cause_does_not_change_the_median_step() {
        for cause in [Cause::ColdStart, Cause::Outlier] {
            assert_eq!(Planted::with(cause, 1).run().step_ns, Planted::without(cause, 1).run().step_ns);
        }
    }
}
