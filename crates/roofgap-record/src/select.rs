//! Selects the kernels for ncu within a time budget.
//!
//! Launches are grouped by stage, kernel, grid and block, because ncu measures one launch, which stands for all with the same, and by mangled
//! kernel names, on which all tools agree, while on readable names they do not. The plan, `ncu/plan.json`, is a pure function of launch
//! groups and limits.
//!
//! ncu filters by kernel name and measures each launch shape of a name once. So names are selected, and the cost of a name is
//! the number of all its launch shapes in the measured stages.

use roofgap_analyze::counters::canonical;
use roofgap_analyze::{Analyzed, Family, family};
use roofgap_collect::command::NvtxRange;
use roofgap_collect::ncu::{CacheControl, ClockControl, ReplayMode};
use roofgap_trace::ncu::LaunchCounters;
use roofgap_trace::sqlite::{Database, Tables};
use roofgap_trace::{NameId, OpKind, ReadError, Trace, native};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Name of the one stage of a program without stages.
pub const WHOLE: &str = "all";

/// The launches of one kernel with one grid and block in one stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchGroup {
    /// Stage.
    pub stage: String,
    /// Kernel name in the timeline.
    pub kernel: String,
    /// Grid, blocks.
    pub grid: [u32; 3],
    /// Block, threads.
    pub block: [u32; 3],
    /// Total kernel time, ns.
    pub total_ns: i64,
    /// Number of launches.
    pub launches: u64,
}

/// Groups the launches of every stage, or of the whole program where there are no stages. Most time first within a stage.
pub fn launch_groups(trace: &Trace, analyzed: &Analyzed) -> Vec<LaunchGroup> {
    let stages = &analyzed.analysis.stages;
    let mut sums: HashMap<(usize, NameId, LaunchShape), (i64, u64)> = HashMap::new();
    let ops = &trace.ops;
    for op in (0..ops.len()).filter(|op| ops.kind[*op] == OpKind::Kernel) {
        let stage = if stages.is_empty() { Some(0) } else { analyzed.stages.stage_of_op(op) };
        if let Some(stage) = stage {
            // Launch shapes also differ in registers and shared memory; ncu distinguishes only grid and block.
            let shape = ops.shape_of(op);
            let sum = sums.entry((stage, ops.name[op], (shape.grid, shape.block))).or_default();
            *sum = (sum.0 + ops.duration(op), sum.1 + 1);
        }
    }
    let group = |((stage, name, (grid, block)), (total_ns, launches)): ((usize, NameId, LaunchShape), _)| {
        let kernel = trace.names.get(name).to_owned();
        let name = stages.get(stage).map_or(WHOLE, |stage| &stage.name).to_owned();
        (stage, LaunchGroup { stage: name, kernel, grid, block, total_ns, launches })
    };
    let mut found: Vec<(usize, LaunchGroup)> = sums.into_iter().map(group).collect();
    found.sort_by(|(a, x), (b, y)| {
        (a, y.total_ns, &x.kernel, x.grid, x.block).cmp(&(b, x.total_ns, &y.kernel, y.grid, y.block))
    });
    found.into_iter().map(|(_, group)| group).collect()
}

/// Mangled names by readable name, which may have several.
pub type MangledNames = HashMap<String, BTreeSet<String>>;

/// Maps readable to mangled names of an nsys export.
pub fn mangled_in_nsys(sqlite: &Path) -> Result<MangledNames, ReadError> {
    const TABLE: &str = "CUPTI_ACTIVITY_KIND_KERNEL";
    let database = Database::open(sqlite)?;
    let mut names = MangledNames::new();
    if !database.has_column(TABLE, "mangledName") {
        return Ok(names);
    }
    let mut pairs: HashSet<(i64, i64)> = HashSet::new();
    database.each(TABLE, &["demangledName", "mangledName"], |row| {
        if let [readable, mangled] = row
            && let (Some(readable), Some(mangled)) = (readable.int(), mangled.int())
        {
            pairs.insert((readable, mangled));
        }
    })?;
    let wanted: HashSet<i64> = pairs.iter().flat_map(|(readable, mangled)| [*readable, *mangled]).collect();
    let mut strings: HashMap<i64, String> = HashMap::new();
    database.each("StringIds", &["id", "value"], |row| {
        if let [id, value] = row
            && let (Some(id), Some(text)) = (id.int().filter(|id| wanted.contains(id)), value.text())
        {
            strings.insert(id, text.into_owned());
        }
    })?;
    for (readable, mangled) in pairs {
        if let (Some(readable), Some(mangled)) = (strings.get(&readable), strings.get(&mangled)) {
            names.entry(readable.clone()).or_default().insert(mangled.clone());
        }
    }
    Ok(names)
}

/// Maps readable to mangled names of native captures.
pub fn mangled_in_native(captures: &[PathBuf]) -> Result<MangledNames, ReadError> {
    let mut names = MangledNames::new();
    for capture in captures {
        for (readable, mangled) in native::kernel_names(capture)? {
            names.entry(readable).or_default().insert(mangled);
        }
    }
    Ok(names)
}

/// Schema of `ncu/plan.json`.
pub const SCHEMA: &str = "roofgap.plan/1";

/// Limits of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Maximum number of launch groups per stage.
    pub top_n: usize,
    /// Share of a stage's kernel time at which the selection stops, %.
    pub time_pct: f64,
    /// Time budget of the whole ncu run.
    pub budget: Duration,
    /// Time of the run without a measured launch.
    pub startup: Duration,
    /// Time of one measured launch.
    pub per_launch: Duration,
    /// Passes of one measured launch.
    pub passes_per_launch: u32,
    /// Launches measured per group.
    pub launch_count: u32,
}

/// Clock, cache and replay policies of ncu.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Policies {
    /// Clocks.
    pub clock_control: ClockControl,
    /// Caches.
    pub cache_control: CacheControl,
    /// Unit of replay.
    pub replay_mode: ReplayMode,
}

/// `ncu/plan.json`: the plan for ncu and its result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Coverage of each stage.
    pub stages: Vec<StageCover>,
    /// Planned launch groups, most time first within a stage.
    #[serde(rename = "strata")]
    pub groups: Vec<PlannedGroup>,
    /// Kernel names to measure.
    pub kernels: Vec<String>,
    /// Ranges to measure, as `domain@name`; an `@` in a name of the default domain is `\@`. Empty for the whole program.
    pub ranges: Vec<NvtxRange>,
    /// Expected measured launches, including other shapes of the same kernels.
    pub expected_launches: u64,
    /// Launches of the stages in the timeline.
    pub timeline_launches: u64,
    /// Measured launches as % of the launches in the timeline.
    pub replayed_pct: f64,
    /// Expected passes over all launches.
    pub expected_passes: u64,
    /// Expected time of the whole ncu run, s.
    pub expected_seconds: f64,
    /// Time budget, s.
    pub budget_seconds: f64,
    /// Launch groups that are left out.
    pub left_out: Vec<LeftOut>,
    /// Clock, cache and replay policies of ncu.
    pub policies: Policies,
    /// Launches measured; null before the counters run.
    pub measured_launches: Option<u64>,
}

/// Coverage of a stage.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StageCover {
    /// Stage.
    pub name: String,
    /// Kernel time, ns.
    pub kernel_ns: i64,
    /// Kernel time of the measured kernels, ns.
    pub covered_ns: i64,
    /// Kernel time of the measured kernels, %.
    pub covered_pct: f64,
    /// Number of launch groups.
    #[serde(rename = "strata")]
    pub groups: u64,
}

/// A planned launch group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedGroup {
    /// Launches in the timeline.
    #[serde(flatten)]
    pub group: LaunchGroup,
    /// Share of the stage's kernel time, %.
    pub share_pct: f64,
    /// Expected measured launches.
    pub expected_launches: u64,
    /// Expected passes.
    pub expected_passes: u64,
    /// Expected time, s.
    pub expected_seconds: f64,
    /// Launches measured; null before the counters run.
    pub measured_launches: Option<u64>,
    /// Stage in which the group was measured instead, because ncu measures each kernel and shape once.
    pub measured_in: Option<String>,
}

/// A kernel that is left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Stage.
    pub stage: String,
    /// Kernel name.
    pub kernel: String,
    /// Kernel time in the timeline, ns.
    pub total_ns: i64,
    /// Reason.
    pub why: String,
}

/// Selects launch groups stage by stage, within the budget.
pub fn choose(groups: &[LaunchGroup], ranges: &[NvtxRange], limits: &Limits, policies: Policies) -> Plan {
    let per_shape = u64::from(limits.launch_count.max(1));
    let mut costs: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, launches) in shapes(groups) {
        *costs.entry(name).or_default() += launches.min(per_shape);
    }
    let mut stages = stages(groups);
    let mut left_out: Vec<LeftOut> = Vec::new();
    let mut wanted: Vec<(usize, &LaunchGroup)> = Vec::new();
    for stage in &stages {
        wanted.extend(wanted_of(groups, stage, limits, &mut left_out).into_iter().enumerate());
    }
    // The first group of each stage comes before the second of any, so that every stage has a measurement; then the most
    // time wins, whatever its stage.
    let mut order: Vec<(usize, &LaunchGroup)> = wanted.iter().map(|(rank, s)| ((*rank).min(1), *s)).collect();
    order.sort_by_key(|(rank, s)| (*rank, std::cmp::Reverse(s.total_ns)));
    let affordable = affordable_launches(limits);
    let mut selected: Vec<&str> = Vec::new();
    let mut spent = 0;
    for (_, group) in order {
        let name = group.kernel.as_str();
        if selected.contains(&name) {
            continue;
        }
        let cost = costs.get(name).copied().unwrap_or(per_shape);
        if spent + cost <= affordable {
            spent += cost;
            selected.push(name);
        } else if let Some(known) =
            left_out.iter_mut().find(|left| left.stage == group.stage && left.kernel == group.kernel)
        {
            known.total_ns += group.total_ns;
        } else {
            let why = format!(
                "its {cost} launch shapes would take {:.0} s, beyond the budget; raise run.counter_budget",
                seconds(cost, limits)
            );
            left_out.push(LeftOut::of(group, why));
        }
    }
    let is_selected = |group: &LaunchGroup| selected.contains(&group.kernel.as_str());
    for stage in &mut stages {
        let own = groups.iter().filter(|group| group.stage == stage.name && is_selected(group));
        stage.covered_ns = own.map(|group| group.total_ns).sum();
        stage.covered_pct = percent(stage.covered_ns as f64, stage.kernel_ns as f64);
    }
    let planned = wanted.iter().filter(|(_, group)| is_selected(group));
    let planned = planned.map(|(_, group)| planned_of(group, &stages, limits)).collect();
    let timeline_launches: u64 = groups.iter().map(|s| s.launches).sum();
    Plan {
        schema: SCHEMA.to_owned(),
        stages,
        groups: planned,
        kernels: selected.iter().map(|name| (*name).to_owned()).collect(),
        ranges: ranges.to_vec(),
        expected_launches: spent,
        timeline_launches,
        replayed_pct: percent(spent as f64, timeline_launches as f64),
        expected_passes: spent * u64::from(limits.passes_per_launch),
        expected_seconds: limits.startup.as_secs_f64() + seconds(spent, limits),
        budget_seconds: limits.budget.as_secs_f64(),
        left_out,
        policies,
        measured_launches: None,
    }
}

impl Plan {
    /// Adds the measured launches, each with its stage where that is known.
    pub fn add_result(&mut self, launches: &[LaunchCounters], stages: &[Option<String>]) {
        let measured = launches.iter().zip(stages);
        let measured: Vec<_> =
            measured.filter_map(|(launch, stage)| Some((launch, shape(launch)?, stage))).collect();
        self.measured_launches = Some(measured.len() as u64);
        for planned in &mut self.groups {
            let group = &planned.group;
            let same_shape = measured.iter().filter(|(_, shape, _)| *shape == (group.grid, group.block));
            let alike: Vec<&Option<String>> = same_shape
                .filter(|(launch, ..)| canonical(&launch.kernel) == canonical(&group.kernel))
                .map(|(.., stage)| *stage)
                .collect();
            let here = |stage: &&&Option<String>| stage.as_ref().is_none_or(|stage| *stage == group.stage);
            let hits = alike.iter().filter(here).count() as u64;
            planned.measured_launches = Some(hits);
            planned.measured_in = alike.first().filter(|_| hits == 0).and_then(|stage| (*stage).clone());
        }
    }

    /// Counts the planned launch groups that were not measured.
    pub fn unmeasured(&self) -> usize {
        let lost =
            |planned: &&PlannedGroup| planned.measured_launches == Some(0) && planned.measured_in.is_none();
        self.groups.iter().filter(lost).count()
    }
}

/// Grid and block of a launch.
type LaunchShape = ([u32; 3], [u32; 3]);

/// Returns the grid and block of a measured launch.
fn shape(launch: &LaunchCounters) -> Option<LaunchShape> {
    Some((launch.grid?, launch.block?))
}

/// Sums the launch groups of each stage, of which nothing is covered yet.
fn stages(groups: &[LaunchGroup]) -> Vec<StageCover> {
    let mut sums: Vec<StageCover> = Vec::new();
    for group in groups {
        match sums.iter_mut().find(|sum| sum.name == group.stage) {
            Some(sum) => {
                sum.kernel_ns += group.total_ns;
                sum.groups += 1;
            }
            None => sums.push(StageCover {
                name: group.stage.clone(),
                kernel_ns: group.total_ns,
                groups: 1,
                ..StageCover::default()
            }),
        }
    }
    sums
}

/// Lists the distinct launch shapes with their launches over all stages. ncu measures a shape once, whatever its stage.
fn shapes(groups: &[LaunchGroup]) -> Vec<(&str, u64)> {
    let mut by_shape: BTreeMap<(&str, LaunchShape), u64> = BTreeMap::new();
    for s in groups {
        *by_shape.entry((&s.kernel, (s.grid, s.block))).or_default() += s.launches;
    }
    by_shape.into_iter().map(|((name, _), launches)| (name, launches)).collect()
}

/// Lists the launch groups of a stage that are worth measuring, most time first.
fn wanted_of<'a>(
    groups: &'a [LaunchGroup],
    stage: &StageCover,
    limits: &Limits,
    left_out: &mut Vec<LeftOut>,
) -> Vec<&'a LaunchGroup> {
    let mut own: Vec<&LaunchGroup> =
        groups.iter().filter(|s| s.stage == stage.name && s.total_ns > 0).collect();
    own.sort_by(|a, b| {
        (b.total_ns, &a.kernel, a.grid, a.block).cmp(&(a.total_ns, &b.kernel, b.grid, b.block))
    });
    let target = stage.kernel_ns as f64 * limits.time_pct / 100.0;
    let mut sum = 0.0;
    let mut wanted = Vec::new();
    for group in own {
        if sum >= target || wanted.len() >= limits.top_n {
            break;
        }
        sum += group.total_ns as f64;
        if family(&group.kernel) == Family::Communication {
            let why = "it communicates with other GPUs; replayed alone it would never end";
            left_out.push(LeftOut::of(group, why.to_owned()));
        } else {
            wanted.push(group);
        }
    }
    wanted
}

impl LeftOut {
    fn of(group: &LaunchGroup, why: String) -> Self {
        Self { stage: group.stage.clone(), kernel: group.kernel.clone(), total_ns: group.total_ns, why }
    }
}

fn planned_of(group: &LaunchGroup, stages: &[StageCover], limits: &Limits) -> PlannedGroup {
    let stage_ns = stages.iter().find(|sum| sum.name == group.stage).map_or(0, |sum| sum.kernel_ns);
    let expected_launches = group.launches.min(u64::from(limits.launch_count.max(1)));
    PlannedGroup {
        group: group.clone(),
        share_pct: percent(group.total_ns as f64, stage_ns as f64),
        expected_launches,
        expected_passes: expected_launches * u64::from(limits.passes_per_launch),
        expected_seconds: seconds(expected_launches, limits),
        measured_launches: None,
        measured_in: None,
    }
}

fn affordable_launches(limits: &Limits) -> u64 {
    let left = limits.budget.saturating_sub(limits.startup).as_secs_f64();
    let per_launch = limits.per_launch.as_secs_f64();
    if per_launch > 0.0 { (left / per_launch) as u64 } else { u64::MAX }
}

fn seconds(launches: u64, limits: &Limits) -> f64 {
    launches as f64 * limits.per_launch.as_secs_f64()
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part * 100.0 / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn group(stage: &str, kernel: &str, x: u32, total_ns: i64, launches: u64) -> LaunchGroup {
        LaunchGroup {
            stage: stage.to_owned(),
            kernel: kernel.to_owned(),
            grid: [x, 1, 1],
            block: [128, 1, 1],
            total_ns,
            launches,
        }
    }

    fn limits() -> Limits {
        Limits {
            top_n: 20,
            time_pct: 90.0,
            budget: Duration::from_secs(300),
            startup: Duration::from_secs(60),
            per_launch: Duration::from_millis(500),
            passes_per_launch: 17,
            launch_count: 1,
        }
    }

    fn plan(groups: &[LaunchGroup], limits: &Limits) -> Plan {
        choose(groups, &[], limits, Policies::default())
    }

    #[test]
    fn stops_at_the_share_of_each_stage() {
        let groups = [
            group("prefill", "gemm", 8, 900, 10),
            group("prefill", "norm", 8, 100, 10),
            group("decode", "gemv", 1, 600, 100),
            group("decode", "attn", 1, 350, 100),
            group("decode", "norm", 1, 50, 100),
        ];
        let plan = plan(&groups, &limits());
        assert_eq!(plan.kernels, ["gemm", "gemv", "attn"]);
        let covered: Vec<(String, f64)> =
            plan.stages.iter().map(|s| (s.name.clone(), s.covered_pct)).collect();
        assert_eq!(covered, [("prefill".to_owned(), 90.0), ("decode".to_owned(), 95.0)]);
        assert_eq!(plan.expected_launches, 3);
        assert_eq!(plan.expected_passes, 51);
        assert_eq!(plan.expected_seconds, 61.5);
        assert_eq!(plan.timeline_launches, 320);
    }

    #[test]
    fn stops_at_top_n() {
        let groups: Vec<LaunchGroup> =
            (0..50).map(|i| group("decode", &format!("k{i:02}"), 1, 100, 1)).collect();
        let plan = plan(&groups, &Limits { top_n: 3, ..limits() });
        assert_eq!(plan.kernels, ["k00", "k01", "k02"], "equal times go by name, so that plans repeat");
    }

    #[test]
    fn the_cost_of_a_name_is_all_its_shapes() {
        // An attention kernel whose grid grows with every token.
        let mut groups: Vec<LaunchGroup> = (1..=600).map(|x| group("decode", "attn", x, 10, 1)).collect();
        groups.push(group("decode", "gemv", 1, 4000, 600));
        let plan = plan(&groups, &limits());
        assert_eq!(plan.kernels, ["gemv"]);
        assert_eq!(plan.left_out.len(), 1);
        assert_eq!(plan.left_out[0].total_ns, 190, "of the selected groups");
        assert!(
            plan.left_out[0].why.contains("600 launch shapes would take 300 s"),
            "{}",
            plan.left_out[0].why
        );
    }

    #[test]
    fn a_shape_in_two_stages_counts_once() {
        let groups = [group("prefill", "k", 1, 10, 5), group("decode", "k", 1, 10, 5)];
        let plan = plan(&groups, &limits());
        assert_eq!(plan.expected_launches, 1);
        assert_eq!(plan.groups.len(), 2);
    }

    #[test]
    fn every_stage_gets_its_first_kernel_before_any_gets_its_second() {
        let groups = [
            group("prefill", "small", 1, 10, 1),
            group("decode", "a", 1, 1000, 1),
            group("decode", "b", 1, 900, 1),
            group("decode", "c", 1, 800, 1),
        ];
        let tight = Limits { budget: Duration::from_secs(61), ..limits() };
        assert_eq!(plan(&groups, &tight).kernels, ["a", "small"]);
    }

    #[test]
    fn communication_is_left_out() {
        let groups = [
            group("decode", "ncclDevKernel_AllReduce", 1, 500, 10),
            group("decode", "void deep_ep::internode::dispatch<false, 8>(int4*)", 1, 500, 10),
            group("decode", "gemv", 1, 500, 10),
        ];
        let plan = plan(&groups, &limits());
        assert_eq!(plan.kernels, ["gemv"]);
        assert_eq!(plan.left_out.len(), 2);
        assert!(plan.left_out.iter().all(|left| left.why.contains("communicates")));
    }

    #[test]
    fn nothing_to_measure_is_an_empty_plan() {
        let plan = plan(&[], &limits());
        assert!(plan.kernels.is_empty() && plan.groups.is_empty());
        assert_eq!(plan.replayed_pct, 0.0);
    }

    #[test]
    fn what_add_result_stands_beside_what_was_asked() {
        let groups = [
            group("decode", "a", 1, 500, 10),
            group("decode", "b", 2, 500, 10),
            group("decode", "c", 1, 500, 10),
        ];
        let mut plan = plan(&groups, &limits());
        let measured = |kernel: &str| LaunchCounters {
            kernel: kernel.to_owned(),
            grid: Some([1, 1, 1]),
            block: Some([128, 1, 1]),
            ..LaunchCounters::default()
        };
        plan.add_result(
            &["a", "a", "c", "a"].map(measured),
            &["decode", "prefill", "prefill", "decode"].map(|stage| Some(stage.to_owned())),
        );
        assert_eq!(plan.measured_launches, Some(4));
        let result = |name: &str| {
            let planned = plan.groups.iter().find(|planned| planned.group.kernel == name).unwrap();
            (planned.measured_launches, planned.measured_in.as_deref())
        };
        assert_eq!(result("a"), (Some(2), None));
        assert_eq!(result("b"), (Some(0), None));
        assert_eq!(result("c"), (Some(0), Some("prefill")));
        assert_eq!(plan.unmeasured(), 1);
    }

    proptest! {
        #[test]
        fn never_beyond_the_budget(
            rows in proptest::collection::vec((0u8..3, 0u8..20, 1u32..30, 0i64..1_000_000, 1u64..500), 0..80),
            budget in 0u64..400,
            launch_count in 1u32..4,
        ) {
            let groups: Vec<LaunchGroup> =
                rows.iter().map(|(s, k, x, ns, n)| group(&format!("s{s}"), &format!("k{k}"), *x, *ns, *n)).collect();
            let limits = Limits { budget: Duration::from_secs(budget), launch_count, ..limits() };
            let plan = plan(&groups, &limits);
            prop_assert!(plan.kernels.is_empty() || plan.expected_seconds <= plan.budget_seconds);
            prop_assert!(plan.stages.iter().all(|s| (0.0..=100.0 + 1e-9).contains(&s.covered_pct)));
            prop_assert!(plan.groups.iter().all(|s| plan.kernels.contains(&s.group.kernel)));
        }
    }
}
