//! Checks that a recording holds the GPU work of the program.

use std::collections::HashSet;

use roofgap_collect::child::GpuProcess;
use roofgap_trace::account::Account;
use roofgap_trace::{ProcessId, SourceFormat, Trace};

/// Result of the check.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Completeness {
    /// Nothing is known to be missing.
    Complete,
    /// Some GPU work was recorded, and processes that may have had some are missing.
    MissingProcesses(String),
    /// The program used a GPU and no GPU work was recorded.
    NoGpuWork(String),
}

/// Compares a recording with the processes that loaded the CUDA driver and with the account of the program.
pub(super) fn check(trace: &Trace, seen: &[GpuProcess], account: Option<&Account>) -> Completeness {
    let recorded = recorded_processes(trace);
    let missing: Vec<String> = seen
        .iter()
        .filter(|process| u32::try_from(process.pid).is_ok_and(|pid| !recorded.contains(&pid)))
        .map(|process| format!("{} (process {})", process.name, process.pid))
        .collect();
    let missing = missing.join(", ");
    if !trace.ops.is_empty() {
        return match missing.as_str() {
            "" => Completeness::Complete,
            _ => Completeness::MissingProcesses(format!(
                "loaded the CUDA driver and made no recorded CUDA call: {missing}; GPU work of theirs, if any, is missing"
            )),
        };
    }
    if !missing.is_empty() {
        return Completeness::NoGpuWork(format!(
            "no GPU work was recorded, but these loaded the CUDA driver and made no recorded CUDA call: {missing}"
        ));
    }
    match account.and_then(gpu_in_account) {
        Some(device) => Completeness::NoGpuWork(format!(
            "no GPU work was recorded, but the program's own account says that the model ran on {device}"
        )),
        None => Completeness::Complete,
    }
}

/// Returns the ids of the recorded processes. The native collector records a process by being part of it, with calls or without;
/// nsys lists every process of the machine, so only those with a CUDA call or GPU operation count.
fn recorded_processes(trace: &Trace) -> HashSet<u32> {
    if trace
        .sources
        .iter()
        .any(|source| source.format == SourceFormat::Native)
    {
        return trace.processes.iter().map(|process| process.pid).collect();
    }
    let ids: HashSet<ProcessId> = trace
        .calls
        .process
        .iter()
        .chain(&trace.ops.process)
        .copied()
        .collect();
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
    use roofgap_trace::{Call, CallClass, Source};

    use super::*;

    fn seen(pid: i32) -> GpuProcess {
        GpuProcess {
            pid,
            name: "python3".to_owned(),
        }
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
        let Completeness::NoGpuWork(why) = check(&calls_of(7), &[seen(7), seen(8)], None) else {
            panic!("process 8 is missing");
        };
        assert!(why.ends_with("call: python3 (process 8)"), "{why}");
        // A program that only asks for the number of GPUs uses none.
        assert_eq!(check(&calls_of(7), &[seen(7)], None), Completeness::Complete);
        assert_eq!(check(&Trace::default(), &[], None), Completeness::Complete);
    }

    #[test]
    fn a_process_with_the_native_collector_was_recorded_even_without_calls() {
        let mut trace = Trace::default();
        trace.add_process(7, "");
        assert_ne!(check(&trace, &[seen(7)], None), Completeness::Complete);
        trace.sources.push(Source {
            path: "1.rgn".to_owned(),
            format: SourceFormat::Native,
            tool_version: None,
            schema_version: None,
        });
        assert_eq!(check(&trace, &[seen(7)], None), Completeness::Complete);
    }

    #[test]
    fn an_account_of_a_gpu_contradicts_an_empty_recording() {
        let account = |kind: &str| Account {
            device: Some(DeviceFacts {
                kind: Some(kind.to_owned()),
                name: Some("NVIDIA H200".to_owned()),
            }),
            repeats: vec![Repeat::default()],
            ..Account::default()
        };
        let found = check(&Trace::default(), &[], Some(&account("cuda")));
        assert!(
            matches!(&found, Completeness::NoGpuWork(why) if why.contains("NVIDIA H200")),
            "{found:?}"
        );
        assert_eq!(
            check(&Trace::default(), &[], Some(&account("cpu"))),
            Completeness::Complete
        );
        let engine = Account {
            repeats: Vec::new(),
            engine: Some(EngineFacts::default()),
            ..account("cuda")
        };
        assert_ne!(
            check(&Trace::default(), &[], Some(&engine)),
            Completeness::Complete
        );
    }
}
