//! Checks that a recording holds the GPU work of the program.

use std::collections::HashSet;

use roofgap_analyze::{EngineStep, LaunchCount, launch_counts};
use roofgap_collect::child::ProcessName;
use roofgap_trace::account::Account;
use roofgap_trace::{NameId, ProcessId, SourceFormat, Trace};

/// Reason why a recording lacks GPU work of the program.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Incomplete(String);

/// Compares a recording with the processes that loaded the CUDA driver and with the account of the program. Returns a note where some GPU
/// work was recorded and processes that may have had some are missing.
///
/// # Errors
/// Fails with the reason where the program used a GPU and no GPU work was recorded.
pub fn check(
    trace: &Trace,
    seen: &[ProcessName],
    account: Option<&Account>,
) -> Result<Option<String>, Incomplete> {
    let recorded = recorded_processes(trace);
    let missing: Vec<String> = seen
        .iter()
        .filter(|process| u32::try_from(process.pid).is_ok_and(|pid| !recorded.contains(&pid)))
        .map(|process| format!("{} (process {})", process.name, process.pid))
        .collect();
    let missing = missing.join(", ");
    if ends_before_the_steps(trace) {
        return Err(Incomplete(
            "the recorded GPU work ends before the first step of the engine: the engine ended before the recorder had read the rest"
                .to_owned(),
        ));
    }
    if !trace.ops.is_empty() {
        return Ok((!missing.is_empty()).then(|| {
            format!(
                "loaded the CUDA driver and made no recorded CUDA call: {missing}; GPU work of theirs, if any, is missing"
            )
        }));
    }
    if !missing.is_empty() {
        return Err(Incomplete(format!(
            "no GPU work was recorded, but these loaded the CUDA driver and made no recorded CUDA call: {missing}"
        )));
    }
    match account.and_then(gpu_in_account) {
        Some(device) => Err(Incomplete(format!(
            "no GPU work was recorded, but the program's own account says that the model ran on {device}"
        ))),
        None => Ok(None),
    }
}

/// Smallest share of launches whose work must be recorded, 0 to 1.
const LEAST_RECORDED: f64 = 0.999;

/// Describes the processes of which less of the launched work was recorded.
pub fn missing_kernels(trace: &Trace) -> Vec<String> {
    launch_counts(trace).iter().filter_map(missing_of).collect()
}

fn missing_of(count: &LaunchCount) -> Option<String> {
    let share = count.recorded_share().filter(|share| *share < LEAST_RECORDED)?;
    Some(format!(
        "process {}: {:.2} % of its launches were recorded with their GPU work: {} of {} kernel launches and {} of {} graph launches \
         have none",
        count.pid,
        100.0 * share,
        count.kernels_missing,
        count.kernels,
        count.graphs_missing,
        count.graphs
    ))
}

/// Tells whether an engine has named steps and all recorded GPU work is older than the first of them.
fn ends_before_the_steps(trace: &Trace) -> bool {
    let is_step = |name: &str| EngineStep::parse(name).is_some_and(|step| step.kind().is_some());
    let steps: HashSet<NameId> =
        trace.names.iter().filter(|(_, name)| is_step(name)).map(|(id, _)| id).collect();
    let rows = trace.ranges.rows.iter();
    let first = rows.filter(|range| steps.contains(&range.name)).map(|range| range.start).min();
    let last = trace.ops.end.iter().max();
    first.zip(last).is_some_and(|(first, last)| *last < first)
}

/// Returns the ids of the recorded processes. The native collector records a process by being part of it, with calls or without;
/// nsys lists every process of the machine, so only those with a CUDA call or GPU operation count.
fn recorded_processes(trace: &Trace) -> HashSet<u32> {
    if trace.sources.iter().any(|source| source.format == SourceFormat::Native) {
        return trace.processes.iter().map(|process| process.pid).collect();
    }
    let ids: HashSet<ProcessId> = trace.calls.process.iter().chain(&trace.ops.process).copied().collect();
    let pid = |id: ProcessId| trace.processes.get(id.0 as usize).map(|process| process.pid);
    ids.into_iter().filter_map(pid).collect()
}

/// Returns the GPU that an account names, where the program says that its model ran on it.
fn gpu_in_account(account: &Account) -> Option<&str> {
    let device = account.device.as_ref()?;
    let ran = account.engine.is_some() || !account.repeats.is_empty();
    let is_gpu = device.kind.as_deref() == Some("cuda");
    (ran && is_gpu).then(|| device.name.as_deref().unwrap_or("a GPU"))
}

#[cfg(test)]
mod tests {
    use roofgap_trace::account::{DeviceFacts, EngineFacts, Repeat};
    use roofgap_trace::{
        Call, CallClass, DeviceId, GpuOp, GpuOps, OpKind, Range, RangeStyle, ShapeId, Source,
    };

    use super::*;

    fn seen(pid: i32) -> ProcessName {
        ProcessName { pid, name: "python3".to_owned() }
    }

    /// A trace with CUDA calls of one process.
    fn calls_of(pid: u32) -> Trace {
        let mut trace = Trace::default();
        let process = trace.add_process(pid, "");
        let thread = trace.add_thread(process, pid, "");
        let name = trace.names.intern("cudaGetDeviceCount");
        trace.calls.push(Call {
            start: 1,
            end: 2,
            name,
            class: CallClass::Other,
            process,
            thread,
            correlation: 0,
        });
        trace
    }

    #[test]
    fn a_process_with_the_driver_and_without_calls_was_not_recorded() {
        let Err(Incomplete(why)) = check(&calls_of(7), &[seen(7), seen(8)], None) else {
            panic!("process 8 is missing");
        };
        assert!(why.ends_with("call: python3 (process 8)"), "{why}");
        // A program that only asks for the number of GPUs uses none.
        assert_eq!(check(&calls_of(7), &[seen(7)], None), Ok(None));
        assert_eq!(check(&Trace::default(), &[], None), Ok(None));
    }

    #[test]
    fn a_process_with_the_native_collector_was_recorded_even_without_calls() {
        let mut trace = Trace::default();
        trace.add_process(7, "");
        assert_ne!(check(&trace, &[seen(7)], None), Ok(None));
        trace.sources.push(Source {
            path: "1.rgn".to_owned(),
            format: SourceFormat::Native,
            tool_version: None,
            schema_version: None,
        });
        assert_eq!(check(&trace, &[seen(7)], None), Ok(None));
    }

    #[test]
    fn gpu_work_that_ends_before_the_first_step_was_not_read_to_its_end() {
        let mut trace = calls_of(7);
        let (process, thread) = (trace.calls.process[0], trace.calls.thread[0]);
        let name = trace.names.intern("execute_context_1(8)_generation_0(0)");
        trace.ranges.rows.push(Range {
            start: 100,
            end: 200,
            domain: NameId::default(),
            name,
            process,
            thread,
            end_thread: thread,
            style: RangeStyle::PushPop,
            open: false,
        });
        for (end, lost) in [(90, true), (150, false)] {
            trace.ops = GpuOps::default();
            trace.ops.push(GpuOp {
                kind: OpKind::Kernel,
                start: 80,
                end,
                name,
                device: DeviceId(0),
                stream: 7,
                process,
                correlation: 1,
                shape: ShapeId(0),
                bytes: 0,
                graph_node: 0,
                memory: Default::default(),
            });
            let found = check(&trace, &[seen(7)], None);
            assert_eq!(found.is_err(), lost, "{found:?}");
        }
    }

    #[test]
    fn launches_without_their_kernels_are_stated_from_one_in_a_thousand_on() {
        let count = |kernels_missing| LaunchCount {
            pid: 7,
            kernels: 1_000,
            kernels_missing,
            graphs: 1_000,
            graphs_missing: 1,
        };
        assert_eq!(missing_of(&count(1)), None);
        assert_eq!(
            missing_of(&count(9)).unwrap(),
            "process 7: 99.50 % of its launches were recorded with their GPU work: 9 of 1000 kernel launches and 1 of 1000 graph \
             launches have none"
        );
        assert_eq!(missing_of(&LaunchCount::default()), None);
    }

    #[test]
    fn an_account_of_a_gpu_contradicts_an_empty_recording() {
        let account = |kind: &str| Account {
            device: Some(DeviceFacts { kind: Some(kind.to_owned()), name: Some("NVIDIA H200".to_owned()) }),
            repeats: vec![Repeat::default()],
            ..Account::default()
        };
        let found = check(&Trace::default(), &[], Some(&account("cuda")));
        assert!(matches!(&found, Err(Incomplete(why)) if why.contains("NVIDIA H200")), "{found:?}");
        assert_eq!(check(&Trace::default(), &[], Some(&account("cpu"))), Ok(None));
        let engine = Account { repeats: Vec::new(), engine: Some(EngineFacts::default()), ..account("cuda") };
        assert_ne!(check(&Trace::default(), &[], Some(&engine)), Ok(None));
    }
}
