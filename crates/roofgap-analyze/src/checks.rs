//! Consistency of an analysis: parts add up, nothing is more than its whole, and findings and sentences agree with the numbers.
//!
//! The checks run at the end of every analysis. A violated one is declared as a loss that names the numbers, so that no report
//! contradicts itself silently.

use crate::result::*;
use crate::verdict::verdict;
use roofgap_base::numbers::{count, time};
use roofgap_trace::{LossKind, range_name};
use std::collections::BTreeMap;

/// Rounding of a share, percentage points.
const ROUNDING_PCT: f64 = 0.5;

/// Most of the elapsed time by which the parts of a stage differ from it, 1 in so many. Parts of engine steps overlap a little.
const TOLERANCE: i64 = 100;

/// Most violations that are named.
const MOST_NAMED: usize = 16;

/// Declares the violated checks of an analysis as a loss, in place of an earlier one.
pub fn declare(analysis: &mut Analysis) {
    let violated = violations(analysis);
    #[cfg(test)]
    assert!(violated.is_empty(), "{violated:#?}");
    let kind = LossKind::Inconsistent;
    analysis.losses.retain(|loss| loss.id != kind.id());
    if violated.is_empty() {
        return;
    }
    let count = violated.len() as u64;
    let message = |text: String| LossMessage { text, count: 1 };
    let messages = violated.into_iter().take(MOST_NAMED).map(message).collect();
    analysis.losses.insert(0, LossInfo::new(kind, count, messages));
}

/// Lists the checks that an analysis violates, each as a sentence with its numbers.
pub fn violations(analysis: &Analysis) -> Vec<String> {
    let mut checks = Checks::default();
    checks.of_trace(analysis);
    for stage in &analysis.stages {
        checks.about = stage.name.clone();
        checks.of_ranges(stage, &analysis.ranges);
        checks.of_stage(stage, &analysis.totals);
        checks.of_steps(stage);
    }
    checks.of_counters(analysis);
    for finding in &analysis.findings {
        let stage = finding.stage.as_deref().and_then(|name| analysis.stage(name));
        // Findings are about the warm part of a stage, but for its slow steps.
        let part = if finding.id == "step-tail" { stage } else { stage.map(Stage::warm) };
        checks.of_finding(finding, part, &analysis.totals);
    }
    checks.list
}

/// Checks of an analysis, and those that it violates.
#[derive(Default)]
struct Checks {
    /// Stage, kernel or finding that is checked.
    about: String,
    list: Vec<String>,
}

impl Checks {
    fn fail(&mut self, what: String) {
        self.list.push(format!("{}: {what}", self.about));
    }

    /// Checks that a time is at most another one.
    fn at_most(&mut self, part: (&str, i64), whole: (&str, i64)) {
        self.about_at_most(part, whole, 0);
    }

    /// Checks that a time is at most another one and a tolerance.
    fn about_at_most(&mut self, (what, ns): (&str, i64), (whole, most): (&str, i64), tolerance: i64) {
        if ns > most.saturating_add(tolerance) {
            self.fail(format!("{what} of {} is more than {whole} of {}", time(ns), time(most)));
        }
    }

    /// Checks that parts add up to a sum of their own.
    fn adds_up(&mut self, (parts, sum): (&str, i64), (whole, stated): (&str, i64)) {
        if sum != stated {
            self.fail(format!("{parts} add up to {}, {whole} is {}", time(sum), time(stated)));
        }
    }

    /// Checks that a share is between 0 and 100 %.
    fn share(&mut self, what: &str, pct: Option<f64>) {
        if let Some(pct) = pct.filter(|pct| !(-ROUNDING_PCT..=100.0 + ROUNDING_PCT).contains(pct)) {
            self.fail(format!("{what} is {pct:.1} %"));
        }
    }

    /// Checks the percentages of a sentence.
    fn sentence(&mut self, text: &str) {
        let mut words = text.split_whitespace().peekable();
        while let Some(word) = words.next() {
            let number = word.trim_start_matches('(').replace(',', "");
            if words.peek().is_some_and(|next| next.starts_with('%'))
                && number.parse::<f64>().is_ok_and(|pct| pct > 100.0 + ROUNDING_PCT)
            {
                self.fail(format!("{word} % in \"{text}\""));
            }
        }
    }

    fn of_trace(&mut self, analysis: &Analysis) {
        "the trace".clone_into(&mut self.about);
        let totals = &analysis.totals;
        self.kernels(&analysis.kernels, Some(totals.kernel_ns), totals.kernel_count);
        self.copies(&analysis.copies, totals.memcpy_ns);
        for row in &analysis.communication {
            self.about = row.collective.clone();
            self.at_most(("exposed time", row.exposed_ns), ("its time", row.total_ns));
        }
        let mut of_stage: BTreeMap<&str, f64> = BTreeMap::new();
        for row in &analysis.layers {
            *of_stage.entry(&row.stage).or_default() += row.share_pct;
        }
        for (stage, pct) in of_stage {
            stage.clone_into(&mut self.about);
            self.share("the sum of the shares of its layers", Some(pct));
        }
    }

    fn kernels(&mut self, rows: &[Kernel], stated_ns: Option<i64>, stated: u64) {
        let sum = rows.iter().fold(0i64, |sum, row| sum.saturating_add(row.total_ns));
        let calls: u64 = rows.iter().map(|row| row.calls).sum();
        self.adds_up(("kernels", sum), ("kernel time", stated_ns.unwrap_or(sum)));
        if calls != stated {
            self.fail(format!("{} launches of kernels are {} kernels", count(calls), count(stated)));
        }
        for row in rows {
            self.share(&format!("{} at the roof", row.short_name), row.roof.roof_pct);
        }
    }

    fn copies(&mut self, rows: &[CopyRow], stated_ns: Option<i64>) {
        let sum = rows.iter().fold(0i64, |sum, row| sum.saturating_add(row.total_ns));
        self.adds_up(("copies", sum), ("copy time", stated_ns.unwrap_or(sum)));
        for row in rows {
            self.at_most(("overlapped copy time", row.overlapped_ns), ("copy time", row.total_ns));
            self.share("copies of the peak of their link", row.peak_pct);
        }
    }

    fn of_stage(&mut self, stage: &Stage, totals: &Totals) {
        self.kernels(&stage.kernels, stage.kernel_ns, stage.kernel_count);
        self.copies(&stage.copies, stage.memcpy_ns);
        if let Some(mfu) = &stage.mfu {
            self.share("MFU by wall time", Some(mfu.by_wall_pct));
            self.share("MFU by busy time", mfu.by_busy_pct);
        }
        if let Some(mbu) = &stage.mbu {
            self.share("MBU by wall time", Some(mbu.by_wall_pct));
            self.share("MBU by busy time", mbu.by_busy_pct);
        }
        self.share("time at the roof", stage.roof.roof_pct);
        self.sentence(&verdict(stage).why);
        let (Some(busy), Some(idle)) = (stage.busy_ns, stage.idle) else {
            return;
        };
        self.at_most(("GPU busy", busy), ("that of the whole trace", totals.busy_ns.unwrap_or(busy)));
        let parts = [idle.launch_ns, idle.sync_ns, idle.copy_ns, idle.other_ns, busy];
        if parts.iter().any(|ns| *ns < 0) {
            self.fail(format!("a negative time: busy {busy} ns, {idle:?}"));
        }
        let causes = stage.launch_after.sync_ns + stage.launch_after.copy_ns + stage.data_loading_ns;
        self.at_most(("causes of late launches", causes), ("idle time before launches", idle.launch_ns));
        self.adds_up_to_its_time(stage, busy, idle);
        for stage in [Some(stage), stage.warm.as_deref()].into_iter().flatten() {
            self.host_adds_up(stage);
        }
    }

    /// Checks that the kernels of a stage are those of its ranges but for the ones beside them that it states. A name whose ranges are not
    /// all instances of the stage shows nothing.
    fn of_ranges(&mut self, stage: &Stage, ranges: &[RangeInfo]) {
        let Some(kernel_ns) = stage.kernel_ns else { return };
        let is_its = |row: &&RangeInfo| stage.ranges.contains(&range_name(&row.domain, &row.name));
        let (count, sum) = ranges
            .iter()
            .filter(is_its)
            .fold((0, 0), |(count, sum), row| (count + row.instances, sum + row.kernel_ns));
        if count == stage.instances {
            let beside = stage.beside_ranges.unwrap_or_default();
            let inside = kernel_ns - beside.launched_after.kernel_ns + beside.ran_before.kernel_ns;
            self.adds_up(("kernels of its ranges", sum), ("kernel time in ranges", inside));
        }
    }

    /// Checks that the functions of the CPU, and what they leave unknown, add up to the idle time that they explain, to the nanosecond.
    fn host_adds_up(&mut self, stage: &Stage) {
        let (Some(host), Some(idle)) = (stage.host_idle, stage.idle) else {
            return;
        };
        let outside = if stage.period_ns.is_some() { stage.between_ns } else { stage.before.idle_ns };
        let all = idle.launch_ns + idle.sync_ns + idle.copy_ns + outside;
        let listed: i64 = stage.host.iter().map(|row| row.self_ns).sum();
        if host.idle_ns != all || listed + host.others_ns + host.unknown_ns != all {
            let (all, explained, listed) = (time(all), time(host.idle_ns), time(listed));
            self.fail(format!("idle time of {all} by function: {explained} in all, {listed} of it listed"));
        }
    }

    /// Checks that busy and idle time, work of others and the time outside of GPU work are the time of a stage. Instances that overlap
    /// have less.
    fn adds_up_to_its_time(&mut self, stage: &Stage, busy: i64, idle: Idle) {
        let Some(projected) = stage.projected_ns else {
            return;
        };
        let inside = busy.saturating_add(idle.total_ns());
        let devices = devices(stage);
        let window = ("the time from the first to the last operation", projected.saturating_mul(devices));
        self.at_most(("busy and idle time", inside), window);
        let elapsed = stage.elapsed_ns();
        let (foreign, outside) = match stage.period_ns {
            Some(_) => (stage.foreign_ns(), stage.between_ns),
            None => (stage.foreign_ns() - stage.after_ns, (elapsed - projected).max(0)),
        };
        let all = stage.each_device(inside.saturating_add(foreign)).saturating_add(outside);
        let tolerance = elapsed / TOLERANCE + 1_000;
        let words = "busy and idle time, work of others and the time outside";
        self.about_at_most((words, all), ("its time", elapsed), tolerance);
        let is_simple = stage.instances == 1 && devices == 1 && stage.period_ns.is_none();
        if is_simple && all < elapsed - tolerance {
            self.fail(format!("{words} are {}, its time is {}", time(all), time(elapsed)));
        }
    }

    fn of_steps(&mut self, stage: &Stage) {
        let Some(steps) = &stage.steps else {
            return;
        };
        let (Some(shortest), Some(longest)) = (steps.each_ns.iter().min(), steps.each_ns.iter().max()) else {
            return;
        };
        if steps.count != steps.each_ns.len() as u64 {
            self.fail(format!(
                "{} steps have {} times",
                count(steps.count),
                count(steps.each_ns.len() as u64)
            ));
        }
        for (what, ns) in [
            ("mean", steps.mean_ns),
            ("median", steps.p50_ns),
            ("steady", stage.step_ns().unwrap_or(steps.mean_ns)),
        ] {
            if !(*shortest..=*longest).contains(&ns) {
                let (shortest, longest) = (time(*shortest), time(*longest));
                self.fail(format!("the {what} step of {} is not between {shortest} and {longest}", time(ns)));
            }
        }
        let sum = steps.each_ns.iter().fold(0i64, |sum, ns| sum.saturating_add(*ns));
        let elapsed = stage.elapsed_ns().saturating_mul(devices(stage));
        let tolerance = elapsed / TOLERANCE + 1_000;
        self.about_at_most(("the sum of the steps", sum), ("the time of the stage", elapsed), tolerance);
        let launches = steps.launches_per_step.unwrap_or(0.0) * steps.count as f64;
        if launches > 1.01 * stage.launch_count as f64 + 1.0 {
            let all = count(stage.launch_count);
            self.fail(format!("its steps have {launches:.0} launches, the stage has {all}"));
        }
    }

    fn of_counters(&mut self, analysis: &Analysis) {
        for row in &analysis.counters {
            row.kernel.clone_into(&mut self.about);
            for (what, pct) in [
                ("compute throughput", row.sm_pct),
                ("memory throughput", row.memory_pct),
                ("DRAM throughput", row.dram_pct),
                ("L2 throughput", row.l2_pct),
                ("L1 throughput", row.l1_pct),
                ("occupancy", row.occupancy_pct),
            ] {
                self.share(what, pct);
            }
        }
    }

    /// Checks that a finding saves no more than there is: at most its stage, down to the higher of its roofs, and that its evidence and
    /// its title have no part larger than the whole.
    fn of_finding(&mut self, finding: &Finding, stage: Option<&Stage>, totals: &Totals) {
        let name = stage.map_or("the measured launches", |stage| stage.spoken());
        self.about = format!("{} of {name}", finding.id);
        let whole = stage.map_or(totals.kernel_ns, Stage::elapsed_ns);
        self.at_most(("a saving", finding.bound_ns), ("the time", whole));
        self.share("its saving", Some(finding.bound_pct));
        let time = stage.map_or(totals.kernel_ns, Stage::own_ns);
        let pct = 100.0 * finding.bound_ns as f64 / time.max(1) as f64;
        if (pct - finding.bound_pct).abs() > ROUNDING_PCT {
            self.fail(format!("a saving of {pct:.1} % is stated as {:.1} %", finding.bound_pct));
        }
        let mfu = stage.and_then(|stage| stage.mfu.as_ref()).map_or(0.0, |mfu| mfu.by_wall_pct);
        let mbu = stage.and_then(|stage| stage.mbu.as_ref()).map_or(0.0, |mbu| mbu.by_wall_pct);
        let roof = mfu.max(mbu);
        if roof <= 100.0 && finding.bound_pct > 100.0 - roof + ROUNDING_PCT {
            self.fail(format!(
                "a saving of {:.1} % leaves less than the roof of {roof:.1} %",
                finding.bound_pct
            ));
        }
        self.sentence(&finding.title);
        let devices = stage.map_or(1, devices);
        for (key, value) in &finding.evidence {
            let Some(value) = value.as_f64() else {
                continue;
            };
            if key.ends_with("_pct") {
                self.share(key, Some(value));
            } else if key.ends_with("_ns")
                && stage.is_none_or(|stage| key != "wall_ns" || stage.wall_ns != value as i64)
            {
                // Kernels of several streams take more than the time.
                let kernels = stage.map_or(0, |stage| stage.kernel_ns.unwrap_or(0));
                let whole = ("all of its time", whole.saturating_mul(devices).max(kernels));
                self.about_at_most((key, value as i64), whole, whole.1 / 1_000 + 1_000);
            }
            let number = stage.and_then(|stage| same_number(stage, key));
            if let Some(number) = number.filter(|number| (number - value).abs() > number.abs() / 100.0 + 1.0)
            {
                self.fail(format!("{key} is {value:.1} in the finding and {number:.1} in the stage"));
            }
        }
        self.of_one_kind(finding, stage);
    }

    /// Checks that a saving of idle time leaves the busy time.
    fn of_one_kind(&mut self, finding: &Finding, stage: Option<&Stage>) {
        const OF_IDLE_TIME: [&str; 4] =
            ["launch-bound", "data-loading", "gaps-between-steps", "sync-in-step"];
        let busy = stage.and_then(|stage| Some((stage, stage.busy_ns?)));
        if let Some((stage, busy)) = busy.filter(|_| OF_IDLE_TIME.contains(&finding.id.as_str())) {
            let idle = (stage.elapsed_ns() - stage.each_device(busy)).max(0);
            let saving = ("a saving of idle time", finding.bound_ns);
            self.about_at_most(saving, ("all idle time", idle), 1_000);
        }
    }
}

/// Returns the number of a stage that evidence of the same name repeats.
fn devices(stage: &Stage) -> i64 {
    i64::try_from(stage.device_count.max(1)).unwrap_or(1)
}

fn same_number(stage: &Stage, key: &str) -> Option<f64> {
    Some(match key {
        "wall_ns" => stage.wall_ns as f64,
        "busy_ns" => stage.busy_ns? as f64,
        "idle_total_ns" => stage.idle?.total_ns() as f64,
        "idle_launch_ns" => stage.idle?.launch_ns as f64,
        "between_ns" => stage.between_ns as f64,
        "launches" => stage.launch_count as f64,
        "launches_per_step" => stage.steps.as_ref()?.launches_per_step?,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stage of 1 ms: 600 µs of kernels, 300 µs idle, 100 µs before its first operation.
    fn analysis() -> Analysis {
        let kernels = vec![Kernel { total_ns: 600_000, calls: 6, ..Kernel::default() }];
        let stage = Stage {
            name: "decode".into(),
            instances: 1,
            wall_ns: 1_000_000,
            projected_ns: Some(900_000),
            kernel_ns: Some(600_000),
            busy_ns: Some(600_000),
            kernel_count: 6,
            launch_count: 6,
            device_count: 1,
            idle: Some(Idle { launch_ns: 300_000, ..Idle::default() }),
            steps: crate::timeline::step_summary(vec![480_000, 500_000], Some(3.0)),
            mfu: Some(Mfu { by_wall_pct: 64.0, ..Mfu::default() }),
            kernels: kernels.clone(),
            ..Stage::default()
        };
        let mut finding =
            Finding { id: "launch-bound".into(), stage: Some("decode".into()), ..Finding::default() };
        (finding.bound_ns, finding.bound_pct) = (300_000, 30.0);
        finding.title = "the GPU is idle 30 % of the time".into();
        Analysis {
            totals: Totals {
                kernel_count: 6,
                kernel_ns: 600_000,
                busy_ns: Some(600_000),
                ..Totals::default()
            },
            stages: vec![stage],
            kernels,
            findings: vec![finding],
            ..Analysis::default()
        }
    }

    #[test]
    fn a_sound_analysis_violates_nothing() {
        assert_eq!(violations(&analysis()), Vec::<String>::new());
        assert_eq!(violations(&Analysis::default()), Vec::<String>::new());
    }

    /// Each change makes one statement wrong, and the violation names it with its numbers.
    #[test]
    fn each_contradiction_is_named() {
        type Change = fn(&mut Analysis);
        let cases: [(Change, &str); 14] = [
            (|a| a.totals.kernel_ns = 7, "the trace: kernels add up to 600 µs, kernel time is 7 ns"),
            (|a| a.stages[0].kernel_count = 9, "decode: 6 launches of kernels are 9 kernels"),
            (
                |a| a.totals.busy_ns = Some(5),
                "decode: GPU busy of 600 µs is more than that of the whole trace of 5 ns",
            ),
            (
                |a| a.stages[0].projected_ns = Some(800_000),
                "decode: busy and idle time of 900 µs is more than",
            ),
            (
                |a| a.stages[0].wall_ns = 700_000,
                "work of others and the time outside of 900 µs is more than its time",
            ),
            (
                |a| a.stages[0].idle = Some(Idle::default()),
                "the time outside are 700 µs, its time is 1.00 ms",
            ),
            (
                |a| a.stages[0].mfu.as_mut().unwrap().by_wall_pct = 120.8,
                "decode: MFU by wall time is 120.8 %",
            ),
            (
                |a| a.stages[0].steps.as_mut().unwrap().mean_ns = 600_000,
                "the mean step of 600 µs is not between",
            ),
            (
                |a| a.stages[0].steps.as_mut().unwrap().each_ns[1] = 900_000,
                "the sum of the steps of 1.38 ms is more",
            ),
            (
                |a| a.stages[0].steps.as_mut().unwrap().launches_per_step = Some(351.0),
                "702 launches, the stage has 6",
            ),
            (|a| a.findings[0].bound_pct = 41.0, "a saving of 30.0 % is stated as 41.0 %"),
            (
                |a| (a.findings[0].bound_ns, a.findings[0].bound_pct) = (390_000, 39.0),
                "launch-bound of decode: a saving of 39.0 % leaves less than the roof of 64.0 %",
            ),
            (
                |a| a.findings[0].title = "one gap is 188 % of this time".into(),
                "188 % in \"one gap is 188 % of",
            ),
            (
                |a| {
                    a.findings[0].evidence.insert("kernel_ns".into(), 1_756_160.into());
                },
                "launch-bound of decode: kernel_ns of 1.76 ms is more than all of its time of 1.00 ms",
            ),
        ];
        for (change, words) in cases {
            let mut analysis = analysis();
            change(&mut analysis);
            let found = violations(&analysis);
            assert!(found.iter().any(|violation| violation.contains(words)), "{words}: {found:#?}");
        }
    }
}
