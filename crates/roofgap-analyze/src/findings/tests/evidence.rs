use super::*;
use crate::findings::evidence;
use crate::{Options, analyze};
use roofgap_trace::{
    Call, CallClass, Device, DeviceId, GpuOp, LaunchShape, MemoryKind, OpKind, ProcessId, Range, RangeStyle,
    ShapeId, ThreadId, Trace,
};

const ELEMENTWISE: &str = "void at::native::vectorized_elementwise_kernel<4>(int)";
const OTHER: &str = "void at::native::unrolled_elementwise_kernel<4>(int)";
const GEMM: &str = "nvjet_sm90_tst_64x8_64x16";
const NCCL: &str = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL";

/// One thread that launches, one decode with steps, one device of 132 multiprocessors.
struct Program {
    trace: Trace,
    process: ProcessId,
    thread: ThreadId,
    correlation: u32,
}

impl Program {
    fn new() -> Self {
        let mut trace = Trace::default();
        let process = trace.add_process(1, "python");
        let thread = trace.add_thread(process, 1, "main");
        trace.add_device(Device { sms: Some(132), compute_capability: Some((9, 0)), ..Device::default() });
        Self { trace, process, thread, correlation: 0 }
    }

    fn range(&mut self, name: &str, start: i64, end: i64) {
        let (domain, name) = (self.trace.names.intern("LLM"), self.trace.names.intern(name));
        self.trace.ranges.rows.push(Range {
            start,
            end,
            domain,
            name,
            process: self.process,
            thread: self.thread,
            end_thread: self.thread,
            style: RangeStyle::PushPop,
            open: false,
        });
    }

    fn call(&mut self, name: &str, at: i64, lasts: i64) -> u32 {
        self.correlation += 1;
        let id = self.trace.names.intern(name);
        self.trace.calls.push(Call {
            start: at,
            end: at + lasts,
            name: id,
            class: CallClass::from_name(name),
            process: self.process,
            thread: self.thread,
            correlation: self.correlation,
        });
        self.correlation
    }

    fn op(&mut self, launched: i64, start: i64, end: i64, stream: u32, op: GpuOp) {
        let call = if op.kind == OpKind::Copy { "cudaMemcpyAsync" } else { "cudaLaunchKernel" };
        let correlation = self.call(call, launched, 1);
        self.trace.ops.push(GpuOp { start, end, stream, process: self.process, correlation, ..op });
    }

    fn kernel(&mut self, name: &str, launched: i64, start: i64, end: i64, stream: u32) {
        let shape = self.trace.ops.intern_shape(LaunchShape {
            grid: [2, 3, 4],
            block: [32, 4, 1],
            ..LaunchShape::default()
        });
        let op = GpuOp { name: self.trace.names.intern(name), shape, ..blank(OpKind::Kernel) };
        self.op(launched, start, end, stream, op);
    }

    fn copy(&mut self, launched: i64, start: i64, end: i64, memory: (MemoryKind, MemoryKind)) {
        let op = GpuOp { bytes: 64, memory, ..blank(OpKind::Copy) };
        self.op(launched, start, end, 7, op);
    }

    fn evidence(mut self) -> StageEvidence {
        self.trace.sort();
        let stages = analyze(&self.trace, &Options::default()).stages;
        let mut all = evidence(&self.trace, &stages, &stages.members());
        assert_eq!(all.len(), 1);
        all.remove(0)
    }
}

fn blank(kind: OpKind) -> GpuOp {
    GpuOp {
        kind,
        start: 0,
        end: 0,
        name: Default::default(),
        device: DeviceId(0),
        stream: 0,
        process: ProcessId(0),
        correlation: 0,
        shape: ShapeId(0),
        bytes: 0,
        graph_node: 0,
        memory: Default::default(),
    }
}

/// The copies of queries, keys and values, each a kernel that torch.compile made.
#[test]
fn kernels_that_a_compiler_made_are_no_chain() {
    let chains = |names: [&str; 3]| {
        let mut program = Program::new();
        program.range("decode_all", 0, 10_000);
        for (at, name) in (0..).zip([GEMM].into_iter().chain(names).chain([GEMM])) {
            program.kernel(name, at * 10, at * 10 + 100, at * 10 + 102, 7);
        }
        program.evidence().chains.count
    };
    let fused = ["triton_poi_fused_clone_2", "triton_poi_fused_clone_3", "triton_poi_fused_clone_4"];
    assert_eq!((chains(fused), chains([ELEMENTWISE, OTHER, ELEMENTWISE])), (0, 1));
}

#[test]
fn a_long_run_is_several_kernels_fused() {
    let chains = |last: &str| {
        let mut program = Program::new();
        program.range("decode_all", 0, 10_000);
        for at in 0..30 {
            let name = if at == 29 { last } else { ELEMENTWISE };
            program.kernel(name, at * 10, at * 10 + 100, at * 10 + 102 + i64::from(at == 3), 7);
        }
        program.evidence().chains
    };
    let found = chains(OTHER);
    // Parts of 12, 12 and 6 kernels keep 3, 2 and 2 ns of 61.
    assert_eq!((found.count, found.longest), (1, 30));
    assert_eq!((found.ns, found.beyond_longest_ns), (61, 54));
    assert_eq!(chains(ELEMENTWISE).count, 0, "one kernel again and again");
}

#[test]
fn a_softmax_of_single_kernels_is_attention() {
    const EXP: &str = "void at::native::vectorized_elementwise_kernel<4, at::native::exp_kernel_cuda()>(int)";
    const REDUCE: &str = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(int)";
    for (between, attends) in
        [([REDUCE, ELEMENTWISE, EXP, REDUCE], 1), ([REDUCE, ELEMENTWISE, ELEMENTWISE, REDUCE], 0)]
    {
        let mut program = Program::new();
        program.range("decode_all", 0, 1000);
        for (at, name) in [GEMM].into_iter().chain(between).chain([GEMM]).enumerate() {
            let at = at as i64 * 10;
            program.kernel(name, at, at + 100, at + 105, 7);
        }
        let found = program.evidence();
        assert_eq!((found.attention.count, found.chains.count), (attends, 1 - attends));
        assert_eq!(found.attention.kernels, 6 * attends);
    }
}

/// A softmax after the second product is that of a loss or of sampling.
#[test]
fn a_product_belongs_to_one_attention() {
    const SOFTMAX: &str = "void cunn_SoftMaxForward<4>(int)";
    let mut program = Program::new();
    program.range("decode_all", 0, 1000);
    for (at, name) in (0..).zip([GEMM, SOFTMAX, GEMM, SOFTMAX, GEMM]) {
        program.kernel(name, at * 10, at * 10 + 100, at * 10 + 105, 7);
    }
    let attention = program.evidence().attention;
    assert_eq!((attention.count, attention.ns), (1, 15));
}

#[test]
fn chains_end_where_other_work_begins() {
    let mut program = Program::new();
    program.range("decode_all", 0, 1000);
    for (at, name) in
        [ELEMENTWISE, OTHER, ELEMENTWISE, GEMM, ELEMENTWISE, OTHER, GEMM].into_iter().enumerate()
    {
        let at = at as i64 * 10;
        program.kernel(name, at, at + 100, at + 105 + at / 10, 7);
    }
    // A library reduces in kernels of its own.
    for (at, name) in [ELEMENTWISE, "cub::DeviceReduceKernel", ELEMENTWISE].into_iter().enumerate() {
        let at = 70 + at as i64 * 10;
        program.kernel(name, at, at + 100, at + 105, 7);
    }
    let found = program.evidence();
    // The first three, of 5, 6 and 7 ns; the two later ones are no chain.
    assert_eq!((found.chains.count, found.chains.kernels, found.chains.longest), (1, 3, 3));
    assert_eq!((found.chains.ns, found.chains.beyond_longest_ns), (18, 11));
    let shape = &found.shapes[0];
    assert_eq!((shape.blocks, shape.threads, shape.sms), (24, 128, Some(132)));
}

#[test]
fn chains_are_those_of_one_stream() {
    let mut program = Program::new();
    program.range("decode_all", 0, 1000);
    for at in 0..4 {
        program.kernel(ELEMENTWISE, at * 10, at * 10 + 100, at * 10 + 105, 7 + (at % 2) as u32);
    }
    let found = program.evidence();
    assert_eq!(found.chains.count, 0);
}

#[test]
fn kernels_share_the_device_while_both_run() {
    let mut program = Program::new();
    program.range("decode_all", 0, 1000);
    // A long one beside two short ones that also overlap each other, then one alone.
    program.kernel(NCCL, 0, 100, 200, 9);
    program.kernel(GEMM, 10, 120, 150, 7);
    program.kernel(ELEMENTWISE, 20, 140, 160, 8);
    program.kernel(GEMM, 30, 300, 350, 7);
    let found = program.evidence();
    let shared = |name: &str| {
        let shape = found.shapes.iter().find(|shape| shape.name == name).unwrap();
        (shape.total_ns, shape.shared_ns)
    };
    assert_eq!(shared(NCCL), (100, 40));
    assert_eq!(shared(GEMM), (80, 30));
    assert_eq!(shared(ELEMENTWISE), (20, 20));
}

#[test]
fn communication_is_exposed_where_nothing_computes() {
    let talk = |later: &[(i64, i64)]| {
        let mut program = Program::new();
        program.range("decode_all", 0, 1000);
        program.kernel(NCCL, 0, 100, 200, 9);
        program.kernel(GEMM, 10, 150, 170, 7);
        program.kernel(NCCL, 20, 300, 350, 9);
        for (start, end) in later {
            program.kernel(GEMM, 30, *start, *end, 7);
        }
        program.evidence().communication.unwrap()
    };
    let found = talk(&[]);
    assert_eq!((found.count, found.ns, found.exposed_ns), (2, 150, 130));
    // The one product hides some of it already, and what comes later could hide the rest.
    assert_eq!(found.hideable_ns, 0);
    assert_eq!(talk(&[(400, 430)]).hideable_ns, 30);
    assert_eq!(talk(&[(400, 900)]).hideable_ns, 130);
}

#[test]
fn host_copies_by_kind_of_memory() {
    use MemoryKind::{Device as OnDevice, Pageable, Pinned};
    let mut program = Program::new();
    program.range("decode_all", 0, 1000);
    program.copy(0, 100, 110, (Pageable, OnDevice));
    program.copy(10, 120, 140, (OnDevice, Pinned));
    program.copy(20, 150, 190, (OnDevice, OnDevice));
    program.kernel(GEMM, 30, 130, 160, 8);
    let copies = program.evidence().host_copies;
    assert_eq!((copies.count, copies.pageable, copies.bytes, copies.ns), (2, 1, 128, 30));
    assert_eq!(copies.streams, 1);
    // Half of the second one runs beside the product.
    assert_eq!(copies.exposed_ns, 20);
}

#[test]
fn waits_inside_steps_and_at_the_end() {
    let mut program = Program::new();
    program.range("decode_all", 0, 1000);
    program.range("decode_step", 0, 400);
    program.range("decode_step", 400, 800);
    program.kernel(GEMM, 10, 100, 110, 7);
    program.call("cudaStreamSynchronize", 200, 50);
    program.call("cudaStreamSynchronize", 600, 50);
    program.call("cudaDeviceSynchronize", 900, 50);
    // Outside of the stage.
    program.call("cudaDeviceSynchronize", 2000, 50);
    let syncs = program.evidence().syncs;
    assert_eq!((syncs.count, syncs.inside, syncs.ns), (3, 2, 150));
    assert_eq!(syncs.most_common.as_deref(), Some("cudaStreamSynchronize"));
}

#[test]
fn without_steps_one_wait_ends_the_stage() {
    let mut program = Program::new();
    program.range("prefill", 0, 1000);
    program.kernel(GEMM, 10, 100, 110, 7);
    program.call("cudaDeviceSynchronize", 900, 50);
    assert_eq!(program.evidence().syncs.inside, 0);
}
