//! Workload accounts of a run: the program's own times, and profiler overhead from them.

use std::path::PathBuf;

use roofgap_analyze::{Operator, Overhead, Profiler, StageKind};
use roofgap_trace::account::{self, Account, RequestStats};

use crate::run_dir::Layout;
use crate::run_dir::layout::stored;

/// Reads a workload account, plain or compressed.
pub fn account_at(path: PathBuf) -> Option<Account> {
    account::read(&stored(path)?).ok()
}

/// Reads the first account of a run, the one of the baseline before those under a profiler.
pub fn program_account(layout: &Layout) -> Option<Account> {
    [layout.baseline_account(), layout.nsys_account(), layout.native_account(), layout.torch_account()]
        .into_iter()
        .find_map(account_at)
}

/// Reads the operators recorded by torch.profiler, else those of the program's own account.
pub fn operators(layout: &Layout, own: Option<&Account>) -> Option<Vec<Operator>> {
    let torch = account_at(layout.torch_account());
    let account = torch.as_ref().or(own).filter(|account| !account.operators.is_empty())?;
    Some(roofgap_analyze::account_operators(account))
}

/// Reads the requests that were sent while the timeline was recorded by a tool.
pub fn recorded_requests(layout: &Layout, tool: Option<&str>) -> Option<RequestStats> {
    let path = match tool? {
        "native" => layout.native_account(),
        _ => layout.nsys_account(),
    };
    account_at(path)?.requests
}

/// Returns the overhead of each stage for every tool that ran: by pairs of windows of one server where they were measured, else of the
/// profiled run against the baseline.
pub fn overheads(layout: &Layout) -> Vec<Overhead> {
    let paired = account_at(layout.native_account()).and_then(|account| account.paired_overhead);
    let mut found = of_runs(layout);
    if let Some(paired) = paired {
        // Its steps make the time between tokens.
        let stage = StageKind::Decode.as_str();
        found.retain(|overhead| overhead.tool != Profiler::Native || overhead.stage != stage);
        found.push(Overhead {
            tool: Profiler::Native,
            stage: stage.to_owned(),
            ratio: paired.ratio,
            interval: Some((paired.low, paired.high)),
            pairs: Some(paired.pairs),
        });
    }
    found
}

/// Divides the profiled by the unprofiled time of each stage.
fn of_runs(layout: &Layout) -> Vec<Overhead> {
    let Some(base) = account_at(layout.baseline_account()) else {
        return Vec::new();
    };
    let profiled = [
        (Profiler::Nsys, layout.nsys_account()),
        (Profiler::Native, layout.native_account()),
        (Profiler::Torch, layout.torch_account()),
        (Profiler::Ncu, layout.ncu_account()),
    ];
    let mut found = Vec::new();
    for (tool, path) in profiled {
        if let Some(account) = account_at(path) {
            found.extend(ratios(&base, &account).into_iter().map(|(stage, ratio)| Overhead {
                tool,
                stage,
                ratio,
                interval: None,
                pairs: None,
            }));
        }
    }
    found
}

/// Divides the profiled by the unprofiled time of each stage in both accounts.
fn ratios(base: &Account, profiled: &Account) -> Vec<(String, f64)> {
    let base = fastest(base);
    fastest(profiled)
        .into_iter()
        .filter_map(|(stage, profiled_ns)| {
            let (_, base_ns) = base.iter().find(|(name, ns)| *name == stage && *ns > 0)?;
            Some((stage.to_owned(), profiled_ns as f64 / *base_ns as f64))
        })
        .collect()
}

/// Finds the fastest measured time of each stage, ns, in order of first occurrence. Other load on the machine only ever
/// adds to a time.
fn fastest(account: &Account) -> Vec<(&str, i64)> {
    let mut fastest: Vec<(&str, i64)> = Vec::new();
    let measured = account.repeats.iter().filter(|repeat| !repeat.warmup);
    for stage in measured.flat_map(|repeat| &repeat.stages) {
        match fastest.iter_mut().find(|(name, _)| *name == stage.name) {
            Some((_, best)) => *best = (*best).min(stage.wall_ns),
            None => fastest.push((&stage.name, stage.wall_ns)),
        }
    }
    fastest
}

#[cfg(test)]
mod tests {
    use roofgap_trace::account::{Repeat, StageTime};

    use super::*;

    fn account(times: &[(bool, &str, i64)]) -> Account {
        let repeat = |(warmup, name, wall_ns): &(bool, &str, i64)| Repeat {
            warmup: *warmup,
            stages: vec![StageTime { name: (*name).to_owned(), wall_ns: *wall_ns, ..StageTime::default() }],
        };
        Account { repeats: times.iter().map(repeat).collect(), ..Account::default() }
    }

    #[test]
    fn overhead_is_of_the_fastest_measured_repeats() {
        let base = account(&[(true, "decode", 1), (false, "decode", 120), (false, "decode", 100)]);
        let profiled = account(&[(false, "decode", 150), (false, "decode", 170), (false, "new", 5)]);
        assert_eq!(ratios(&base, &profiled), [("decode".to_owned(), 1.5)]);
        assert_eq!(ratios(&account(&[(false, "decode", 0)]), &profiled), []);
    }
}
