//! Our numbers against those of made-up captures, which were added up while the events were made.

use roofgap_analyze::{Analysis, Options, analyze};
use roofgap_testkit::{Expected, ExpectedStage, ExpectedTotals, Graphs, Program, Spec, kineto, nsys};
use std::fs::File;
use std::path::Path;

const KERNELS: u64 = 20_000;

fn analysis_of(path: &Path) -> Analysis {
    let input = roofgap_trace::read(&[path.to_path_buf()]).expect("the made-up capture reads");
    analyze(&input.trace, &Options::default()).analysis
}

fn of_nsys(spec: &Spec) -> (Analysis, Expected) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made.sqlite");
    let program = Program::run(spec);
    nsys::write(&program, &path).unwrap();
    let analysis = analysis_of(&path);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is written beside the input");
    (analysis, program.expected)
}

fn of_kineto(spec: &Spec) -> (Analysis, Expected) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made.json");
    let program = Program::run(spec);
    kineto::write(&program, File::create(&path).unwrap()).unwrap();
    (analysis_of(&path), program.expected)
}

fn equal((analysis, expected): (Analysis, Expected)) {
    let totals = &analysis.totals;
    let found = ExpectedTotals {
        kernel_count: totals.kernel_count,
        kernel_ns: totals.kernel_ns,
        busy_ns: totals.busy_ns.unwrap(),
        memcpy_ns: totals.memcpy_ns.unwrap(),
        memset_ns: totals.memset_ns.unwrap(),
        unattributed_count: totals.unattributed_count,
    };
    assert_eq!(found, expected.totals);
    let names = |list: &[ExpectedStage]| list.iter().map(|s| s.name.clone()).collect::<Vec<_>>();
    assert_eq!(analysis.stages.iter().map(|s| s.name.clone()).collect::<Vec<_>>(), names(&expected.stages));
    for (stage, expected) in analysis.stages.iter().zip(&expected.stages) {
        let name = &stage.name;
        assert_eq!(
            (stage.instances, stage.wall_ns, stage.projected_ns),
            (expected.instances, expected.wall_ns, Some(expected.projected_ns)),
            "{name}"
        );
        assert_eq!(
            (stage.kernel_count, stage.kernel_ns, stage.busy_ns),
            (expected.kernel_count, Some(expected.kernel_ns), Some(expected.busy_ns)),
            "{name}"
        );
        assert_eq!(
            (stage.gpu_op_count, stage.launch_count),
            (expected.gpu_op_count, expected.launch_count),
            "{name}"
        );
        let steps = stage.steps.clone().unwrap_or_default();
        let on_cpu = steps.cpu.as_ref().map_or(&steps.each_ns, |cpu| &cpu.each_ns);
        assert_eq!(*on_cpu, expected.steps_ns, "{name}");
        if !steps.each_ns.is_empty() {
            let mean = expected.step_launches as f64 / expected.steps_ns.len() as f64;
            assert_eq!(steps.launches_per_step, Some(mean), "{name}");
        }
        let mut notes = stage.notes.clone();
        notes.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!(notes.len(), expected.notes.len(), "{name}");
        for (note, expected) in notes.iter().zip(&expected.notes) {
            assert_eq!(
                (&note.name, note.instances, note.wall_ns, note.kernel_ns, note.kernel_count),
                (
                    &expected.name,
                    expected.instances,
                    expected.wall_ns,
                    Some(expected.kernel_ns),
                    expected.kernel_count
                )
            );
        }
    }
    assert_eq!(analysis.kernels.len(), expected.kernels.len());
    for (kernel, expected) in analysis.kernels.iter().zip(&expected.kernels) {
        assert_eq!(
            (&kernel.name, kernel.device, kernel.calls, kernel.total_ns),
            (&expected.name, Some(expected.device), expected.calls, expected.total_ns)
        );
    }
}

#[test]
fn a_simple_export() {
    equal(of_nsys(&Spec::simple(KERNELS)));
}

#[test]
fn colliding_ids_graphs_streams_and_devices_in_no_order() {
    equal(of_nsys(&Spec::tangled(KERNELS)));
}

#[test]
fn graphs_recorded_whole() {
    equal(of_nsys(&Spec { graphs: Graphs::Whole, ..Spec::tangled(KERNELS) }));
}

#[test]
fn one_process_on_several_devices() {
    equal(of_nsys(&Spec { processes: 1, devices: 4, ..Spec::tangled(KERNELS) }));
}

#[test]
fn row_order_does_not_matter() {
    let spec = Spec::tangled(KERNELS);
    let (mut shuffled, _) = of_nsys(&spec);
    let (mut sorted, _) = of_nsys(&Spec { shuffled: false, ..spec });
    shuffled.sources.clear();
    sorted.sources.clear();
    assert_eq!(shuffled, sorted);
}

#[test]
fn a_pytorch_trace() {
    equal(of_kineto(&Spec {
        streams: 3,
        devices: 2,
        graphs: Graphs::Nodes,
        orphans: 5,
        ..Spec::simple(KERNELS)
    }));
}
