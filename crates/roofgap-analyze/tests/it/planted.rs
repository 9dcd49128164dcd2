//! Programs with a planted cause, played again without it: the bound of the finding holds, and is not far above the gain.

use crate::programs::{GEMM, LOADER, NCCL, Program, US};
use roofgap_analyze::{Analysis, Finding};

const MUL: &str = "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float>>(int)";
const SOFTMAX: &str = "void cunn_SoftMaxForward<4, float, float, float>(float*, float const*, int)";

fn of<'a>(analysis: &'a Analysis, id: &str) -> Option<&'a Finding> {
    analysis.findings.iter().find(|finding| finding.id == id)
}

/// Plays a program with a cause and without it. The finding is the first, its bound is at least the gain and at most 1.3 times the
/// gain, and the program without the cause has no such finding.
fn check(id: &str, with: Program, without: Program) {
    let (with, without) = (with.analysis(), without.analysis());
    let took = |analysis: &Analysis| analysis.stages[0].elapsed_ns();
    let gain = took(&with) - took(&without);
    let found = with.findings.first().unwrap_or_else(|| panic!("no {id}"));
    assert_eq!(found.id, id);
    // With the cause a launch or two of a step may go too, which are not its own.
    let most = found.bound_ns + found.bound_ns / 100;
    assert!(gain > 0 && gain <= most, "{id}: gain {gain}, bound {}", found.bound_ns);
    assert!(10 * found.bound_ns <= 13 * gain, "{id}: gain {gain}, bound {}", found.bound_ns);
    assert_eq!(found.terms.iter().map(|term| term.ns).sum::<i64>(), found.bound_ns);
    // The program without the cause has a queue in place of a graph, and another time of fused attention.
    let is_same = !["launch-bound", "unfused-attention"].contains(&id);
    if let Some(saves) = found.saves.filter(|_| is_same) {
        let real = 100.0 * gain as f64 / took(&with) as f64;
        assert!((saves.pct - real).abs() <= 1.0, "{id}: saves {real:.2} %, predicted {saves:?}");
    }
    assert!(of(&without, id).is_none(), "{id} without its cause: {:?}", without.findings);
}

/// Steps of 20 layers.
fn steps(mut layer: impl FnMut(&mut Program)) -> Program {
    let mut program = Program::on(1);
    program.decode(16, |p| (0..20).for_each(|_| layer(p)));
    program
}

#[test]
fn launches_by_the_cpu_and_by_a_graph() {
    for (kernel_us, cpu_us) in [(5, 30), (20, 60), (60, 150)] {
        let eager = steps(|p| {
            p.kernel(GEMM, 0, kernel_us * US);
            p.now += cpu_us * US;
        });
        let queued = steps(|p| {
            p.kernel(GEMM, 0, kernel_us.max(6) * US);
        });
        check("launch-bound", eager, queued);
    }
}

#[test]
fn batches_from_disk_and_from_memory() {
    let training = |loads_us: i64| {
        let mut program = Program::on(1);
        program.kernel(GEMM, 0, 100 * US);
        for step in 0..24 {
            program.range(&format!("ProfilerStep#{step}"), |p| {
                p.range(LOADER, |p| p.now += loads_us * US);
                for _ in 0..20 {
                    p.kernel(GEMM, 0, 100 * US);
                }
            });
        }
        program.wait();
        program
    };
    check("data-loading", training(5_000), training(0));
}

#[test]
fn communication_and_none() {
    let layer = |talk_us: i64| {
        steps(move |p| {
            p.kernel(GEMM, 0, 30 * US);
            p.kernel(MUL, 0, 20 * US);
            if talk_us > 0 {
                p.kernel(NCCL, 0, talk_us * US);
            }
        })
    };
    for talk_us in [150, 400] {
        check("communication-exposed", layer(talk_us), layer(0));
    }
}

#[test]
fn elementwise_kernels_and_a_fused_one() {
    let layer = |kernels: usize| {
        steps(move |p| {
            p.kernel(GEMM, 0, 40 * US);
            for _ in 0..kernels {
                p.kernel(MUL, 0, 25 * US);
            }
        })
    };
    for kernels in [3, 5, 9] {
        check("unfused-elementwise", layer(kernels), layer(1));
    }
}

#[test]
fn attention_in_kernels_and_in_one() {
    let eager = steps(|p| {
        p.kernel(GEMM, 0, 40 * US);
        p.kernel(MUL, 0, 30 * US);
        p.kernel(SOFTMAX, 0, 30 * US);
        p.kernel(GEMM, 0, 35 * US);
        p.kernel(NCCL, 0, 5 * US);
    });
    let fused = steps(|p| {
        p.kernel("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128>>(Flash_fwd_params)", 0, 42 * US);
        p.kernel(NCCL, 0, 5 * US);
    });
    check("unfused-attention", eager, fused);
    // A softmax at the end of a layer is not that of attention.
    let head = steps(|p| {
        p.kernel(GEMM, 0, 40 * US);
        p.kernel(SOFTMAX, 0, 30 * US);
        p.kernel("void topk_kernel(float*)", 0, 35 * US);
    });
    assert!(of(&head.analysis(), "unfused-attention").is_none());
}

/// Ten runs of a stage that begins and ends with work of the CPU.
#[test]
fn work_of_the_cpu_around_the_gpu() {
    let prefill = |edge_us: i64| {
        let mut program = Program::on(1);
        for _ in 0..10 {
            program.range("prefill", |p| {
                p.now += edge_us * US;
                for _ in 0..40 {
                    p.kernel(GEMM, 0, 50 * US);
                }
                p.wait();
                p.now += edge_us * US;
            });
        }
        program
    };
    check("host-outside", prefill(900), prefill(0));
}
