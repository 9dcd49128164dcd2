//! The plan for ncu: pure, from strata and limits.
//!
//! ncu filters by kernel name and measures each launch shape of a name once. So a name is the unit that is bought, and its
//! price is the number of its launch shapes in the stages measured, not only the shape that made it interesting.

use std::collections::BTreeMap;
use std::time::Duration;

use roofgap_analyze::is_communication;
use serde::{Deserialize, Serialize};

use super::strata::Stratum;

/// The schema of `ncu/plan.json`.
pub const SCHEMA: &str = "roofgap.plan/1";

/// What a plan must keep to.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Most strata of a stage.
    pub top_n: usize,
    /// Share of a stage's kernel time at which the selection stops.
    pub time_pct: f64,
    /// Time for the whole ncu run.
    pub budget: Duration,
    /// Time of the run without any measured launch: start, the program itself, end.
    pub startup: Duration,
    /// Time of one measured launch.
    pub per_launch: Duration,
    /// Passes of one measured launch.
    pub passes_per_launch: u32,
    /// Launches measured of each stratum.
    pub launch_count: u32,
}

/// What ncu does to clocks, caches and the program.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Policies {
    /// `none` or `base`.
    pub clock_control: String,
    /// `none` or `all`.
    pub cache_control: String,
    /// `kernel`, `application`, ...
    pub replay_mode: String,
}

/// `ncu/plan.json`: what is asked of ncu, and beside it what came back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// What of each stage is covered.
    pub stages: Vec<StageCover>,
    /// The strata asked for, most time first within a stage.
    pub strata: Vec<Planned>,
    /// Kernel names to measure.
    pub kernels: Vec<String>,
    /// Ranges to measure inside of, as `domain@name`; empty for the whole program.
    pub ranges: Vec<String>,
    /// Launches that will be measured, those of other shapes of the same names included.
    pub expected_launches: u64,
    /// Launches of the stages in the timeline.
    pub timeline_launches: u64,
    /// The former as % of the latter.
    pub replayed_pct: f64,
    /// Passes over all of them.
    pub expected_passes: u64,
    /// Seconds of the whole ncu run.
    pub expected_seconds: f64,
    /// Seconds it may take.
    pub budget_seconds: f64,
    /// What was interesting and is not asked for.
    pub left_out: Vec<LeftOut>,
    /// What ncu does to clocks, caches and the program.
    pub policies: Policies,
    /// Launches measured; null before the counters run.
    pub measured_launches: Option<u64>,
}

/// What the plan covers of a stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageCover {
    /// The stage.
    pub name: String,
    /// Its kernel time.
    pub kernel_ns: i64,
    /// Of that, in strata that are asked for or ride along with their names.
    pub covered_ns: i64,
    /// The same as %.
    pub covered_pct: f64,
    /// Strata it has.
    pub strata: u64,
}

/// A stratum that is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// The stage.
    pub stage: String,
    /// Kernel name.
    pub kernel: String,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Time in the timeline.
    pub total_ns: i64,
    /// Share of the stage's kernel time.
    pub share_pct: f64,
    /// Launches in the timeline.
    pub launches: u64,
    /// Launches that will be measured.
    pub expected_launches: u64,
    /// Passes they need.
    pub expected_passes: u64,
    /// Seconds they need.
    pub expected_seconds: f64,
    /// Launches measured; null before the counters run.
    pub measured_launches: Option<u64>,
    /// Where none was measured in this stage: another where the same kernel and shape was, since ncu measures each once.
    #[serde(default)]
    pub measured_in: Option<String>,
}

/// A stratum or kernel that is not asked for, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The stage.
    pub stage: String,
    /// Kernel name.
    pub kernel: String,
    /// Time in the timeline.
    pub total_ns: i64,
    /// Why.
    pub why: String,
}

/// A kernel name over all stages: its price.
#[derive(Debug, Default, Clone, Copy)]
struct Price {
    launches: u64,
}

/// Choose strata stage by stage, and cut the choice to the budget.
pub fn choose(strata: &[Stratum], ranges: &[String], limits: &Limits, policies: Policies) -> Plan {
    let per_shape = u64::from(limits.launch_count.max(1));
    let mut prices: BTreeMap<&str, Price> = BTreeMap::new();
    for (name, launches) in shapes(strata) {
        prices.entry(name).or_default().launches += launches.min(per_shape);
    }
    let stages = stages(strata);
    let mut left_out = Vec::new();
    let mut wanted: Vec<&Stratum> = Vec::new();
    for stage in &stages {
        wanted.extend(wanted_of(strata, stage, limits, &mut left_out));
    }
    // The budget goes to what takes most of the program's time, whichever stage it is in; but the first of each stage
    // comes before the second of any, so that no stage is left without a measurement.
    let mut order: Vec<(usize, &Stratum)> = Vec::new();
    for stage in &stages {
        order.extend(
            wanted
                .iter()
                .filter(|s| s.stage == stage.name)
                .enumerate()
                .map(|(rank, s)| (rank.min(1), *s)),
        );
    }
    order.sort_by_key(|(rank, s)| (*rank, std::cmp::Reverse(s.total_ns)));
    let affordable = affordable_launches(limits);
    let mut bought: Vec<&str> = Vec::new();
    let mut spent = 0;
    let mut over_budget: Vec<&Stratum> = Vec::new();
    for (_, stratum) in order {
        let name = stratum.kernel.as_str();
        if bought.contains(&name) {
            continue;
        }
        let price = prices.get(name).map_or(per_shape, |price| price.launches);
        if spent + price <= affordable {
            spent += price;
            bought.push(name);
        } else {
            over_budget.push(stratum);
        }
    }
    for first in distinct(&over_budget) {
        let price = prices
            .get(first.kernel.as_str())
            .map_or(per_shape, |price| price.launches);
        let same = over_budget
            .iter()
            .filter(|s| s.stage == first.stage && s.kernel == first.kernel);
        left_out.push(LeftOut {
            stage: first.stage.clone(),
            kernel: first.kernel.clone(),
            total_ns: same.map(|s| s.total_ns).sum(),
            why: format!(
                "its {price} launch shapes would take {:.0} s, beyond the budget; raise run.counter_budget",
                seconds(price, limits)
            ),
        });
    }
    let planned: Vec<Planned> = wanted
        .iter()
        .filter(|s| bought.contains(&s.kernel.as_str()))
        .map(|s| planned_of(s, &stages, limits))
        .collect();
    let covers = stages
        .iter()
        .map(|stage| cover_of(strata, stage, &bought))
        .collect();
    let timeline_launches: u64 = strata.iter().map(|s| s.launches).sum();
    Plan {
        schema: SCHEMA.to_owned(),
        stages: covers,
        strata: planned,
        kernels: bought.iter().map(|name| (*name).to_owned()).collect(),
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
    /// Note what came back: a launch measured for each entry of `measured` (stage, kernel, grid, block).
    /// `same_kernel` tells whether a name of the counters is a name of the plan.
    pub fn came_back(&mut self, measured: &[Measured], same_kernel: impl Fn(&str, &str) -> bool) {
        self.measured_launches = Some(measured.len() as u64);
        for planned in &mut self.strata {
            let alike: Vec<&Measured> = measured
                .iter()
                .filter(|m| m.grid == planned.grid && m.block == planned.block)
                .filter(|m| same_kernel(&m.kernel, &planned.kernel))
                .collect();
            let here = |m: &&&Measured| m.stage.as_ref().is_none_or(|stage| *stage == planned.stage);
            let hits = alike.iter().filter(here).count();
            planned.measured_launches = Some(hits as u64);
            planned.measured_in = alike.first().filter(|_| hits == 0).and_then(|m| m.stage.clone());
        }
    }

    /// How many strata asked for did not come back.
    pub fn unmet(&self) -> usize {
        let lost = |planned: &&Planned| planned.measured_launches == Some(0) && planned.measured_in.is_none();
        self.strata.iter().filter(lost).count()
    }
}

/// A launch that ncu measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// The stage, where the report tells it.
    pub stage: Option<String>,
    /// Kernel name as ncu has it.
    pub kernel: String,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
}

/// A stage in numbers.
#[derive(Debug)]
struct StageSum {
    name: String,
    kernel_ns: i64,
    strata: u64,
}

fn stages(strata: &[Stratum]) -> Vec<StageSum> {
    let mut sums: Vec<StageSum> = Vec::new();
    for stratum in strata {
        match sums.iter_mut().find(|sum| sum.name == stratum.stage) {
            Some(sum) => {
                sum.kernel_ns += stratum.total_ns;
                sum.strata += 1;
            }
            None => sums.push(StageSum {
                name: stratum.stage.clone(),
                kernel_ns: stratum.total_ns,
                strata: 1,
            }),
        }
    }
    sums
}

/// Distinct launch shapes with their launches over all stages: ncu counts them once, whichever stage they occur in.
fn shapes(strata: &[Stratum]) -> Vec<(&str, u64)> {
    let mut by_shape: BTreeMap<(&str, [u32; 3], [u32; 3]), u64> = BTreeMap::new();
    for s in strata {
        *by_shape.entry((&s.kernel, s.grid, s.block)).or_default() += s.launches;
    }
    by_shape
        .into_iter()
        .map(|((name, _, _), launches)| (name, launches))
        .collect()
}

/// The strata of a stage worth measuring, most time first.
fn wanted_of<'a>(
    strata: &'a [Stratum],
    stage: &StageSum,
    limits: &Limits,
    left_out: &mut Vec<LeftOut>,
) -> Vec<&'a Stratum> {
    let mut own: Vec<&Stratum> = strata
        .iter()
        .filter(|s| s.stage == stage.name && s.total_ns > 0)
        .collect();
    own.sort_by(|a, b| {
        (b.total_ns, &a.kernel, a.grid, a.block).cmp(&(a.total_ns, &b.kernel, b.grid, b.block))
    });
    let target = stage.kernel_ns as f64 * limits.time_pct / 100.0;
    let mut sum = 0.0;
    let mut wanted = Vec::new();
    for stratum in own {
        if sum >= target || wanted.len() >= limits.top_n {
            break;
        }
        sum += stratum.total_ns as f64;
        if is_communication(&stratum.kernel) {
            left_out.push(LeftOut {
                stage: stratum.stage.clone(),
                kernel: stratum.kernel.clone(),
                total_ns: stratum.total_ns,
                why: "it communicates with other GPUs; replayed alone it would wait for ever".to_owned(),
            });
        } else {
            wanted.push(stratum);
        }
    }
    wanted
}

/// The first stratum of each kernel in each stage.
fn distinct<'a>(strata: &[&'a Stratum]) -> Vec<&'a Stratum> {
    let mut firsts: Vec<&Stratum> = Vec::new();
    for stratum in strata {
        if !firsts
            .iter()
            .any(|first| first.stage == stratum.stage && first.kernel == stratum.kernel)
        {
            firsts.push(stratum);
        }
    }
    firsts
}

fn planned_of(stratum: &Stratum, stages: &[StageSum], limits: &Limits) -> Planned {
    let stage_ns = stages
        .iter()
        .find(|sum| sum.name == stratum.stage)
        .map_or(0, |sum| sum.kernel_ns);
    let expected_launches = stratum.launches.min(u64::from(limits.launch_count.max(1)));
    Planned {
        stage: stratum.stage.clone(),
        kernel: stratum.kernel.clone(),
        grid: stratum.grid,
        block: stratum.block,
        total_ns: stratum.total_ns,
        share_pct: percent(stratum.total_ns as f64, stage_ns as f64),
        launches: stratum.launches,
        expected_launches,
        expected_passes: expected_launches * u64::from(limits.passes_per_launch),
        expected_seconds: seconds(expected_launches, limits),
        measured_launches: None,
        measured_in: None,
    }
}

fn cover_of(strata: &[Stratum], stage: &StageSum, bought: &[&str]) -> StageCover {
    let own = strata
        .iter()
        .filter(|s| s.stage == stage.name && bought.contains(&s.kernel.as_str()));
    let covered_ns = own.map(|s| s.total_ns).sum();
    StageCover {
        name: stage.name.clone(),
        kernel_ns: stage.kernel_ns,
        covered_ns,
        covered_pct: percent(covered_ns as f64, stage.kernel_ns as f64),
        strata: stage.strata,
    }
}

fn affordable_launches(limits: &Limits) -> u64 {
    let left = limits.budget.saturating_sub(limits.startup).as_secs_f64();
    let per_launch = limits.per_launch.as_secs_f64();
    if per_launch > 0.0 {
        (left / per_launch) as u64
    } else {
        u64::MAX
    }
}

fn seconds(launches: u64, limits: &Limits) -> f64 {
    launches as f64 * limits.per_launch.as_secs_f64()
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part * 100.0 / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stratum(stage: &str, kernel: &str, x: u32, total_ns: i64, launches: u64) -> Stratum {
        Stratum {
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

    fn plan(strata: &[Stratum], limits: &Limits) -> Plan {
        choose(strata, &[], limits, Policies::default())
    }

    #[test]
    fn stops_at_the_share_of_each_stage() {
        let strata = [
            stratum("prefill", "gemm", 8, 900, 10),
            stratum("prefill", "norm", 8, 100, 10),
            stratum("decode", "gemv", 1, 600, 100),
            stratum("decode", "attn", 1, 350, 100),
            stratum("decode", "norm", 1, 50, 100),
        ];
        let plan = plan(&strata, &limits());
        assert_eq!(plan.kernels, ["gemm", "gemv", "attn"]);
        let covered: Vec<(String, f64)> = plan
            .stages
            .iter()
            .map(|s| (s.name.clone(), s.covered_pct))
            .collect();
        assert_eq!(
            covered,
            [("prefill".to_owned(), 90.0), ("decode".to_owned(), 95.0)]
        );
        assert_eq!(plan.expected_launches, 3);
        assert_eq!(plan.expected_passes, 51);
        assert_eq!(plan.expected_seconds, 61.5);
        assert_eq!(plan.timeline_launches, 320);
    }

    #[test]
    fn stops_at_top_n() {
        let strata: Vec<Stratum> = (0..50)
            .map(|i| stratum("decode", &format!("k{i:02}"), 1, 100, 1))
            .collect();
        let plan = plan(&strata, &Limits { top_n: 3, ..limits() });
        assert_eq!(
            plan.kernels,
            ["k00", "k01", "k02"],
            "equal times go by name, so that plans repeat"
        );
    }

    #[test]
    fn the_price_of_a_name_is_all_its_shapes() {
        // An attention kernel whose grid grows with every token.
        let mut strata: Vec<Stratum> = (1..=600).map(|x| stratum("decode", "attn", x, 10, 1)).collect();
        strata.push(stratum("decode", "gemv", 1, 4000, 600));
        let plan = plan(&strata, &limits());
        assert_eq!(plan.kernels, ["gemv"]);
        assert_eq!(plan.left_out.len(), 1);
        assert_eq!(plan.left_out[0].total_ns, 190, "of the strata that were wanted");
        assert!(
            plan.left_out[0]
                .why
                .contains("600 launch shapes would take 300 s"),
            "{}",
            plan.left_out[0].why
        );
    }

    #[test]
    fn a_shape_in_two_stages_is_paid_once() {
        let strata = [
            stratum("prefill", "k", 1, 10, 5),
            stratum("decode", "k", 1, 10, 5),
        ];
        let plan = plan(&strata, &limits());
        assert_eq!(plan.expected_launches, 1);
        assert_eq!(plan.strata.len(), 2);
    }

    #[test]
    fn every_stage_gets_its_first_kernel_before_any_gets_its_second() {
        let strata = [
            stratum("prefill", "small", 1, 10, 1),
            stratum("decode", "a", 1, 1000, 1),
            stratum("decode", "b", 1, 900, 1),
            stratum("decode", "c", 1, 800, 1),
        ];
        let tight = Limits {
            budget: Duration::from_secs(61),
            ..limits()
        };
        assert_eq!(plan(&strata, &tight).kernels, ["a", "small"]);
    }

    #[test]
    fn communication_is_left_out_and_said_so() {
        let strata = [
            stratum("decode", "ncclDevKernel_AllReduce", 1, 500, 10),
            stratum(
                "decode",
                "void deep_ep::internode::dispatch<false, 8>(int4*)",
                1,
                500,
                10,
            ),
            stratum("decode", "gemv", 1, 500, 10),
        ];
        let plan = plan(&strata, &limits());
        assert_eq!(plan.kernels, ["gemv"]);
        assert_eq!(plan.left_out.len(), 2);
        assert!(
            plan.left_out
                .iter()
                .all(|left| left.why.contains("wait for ever"))
        );
    }

    #[test]
    fn nothing_to_measure_is_an_empty_plan() {
        let plan = plan(&[], &limits());
        assert!(plan.kernels.is_empty() && plan.strata.is_empty());
        assert_eq!(plan.replayed_pct, 0.0);
    }

    #[test]
    fn what_came_back_stands_beside_what_was_asked() {
        let strata = [
            stratum("decode", "a", 1, 500, 10),
            stratum("decode", "b", 2, 500, 10),
            stratum("decode", "c", 1, 500, 10),
        ];
        let mut plan = plan(&strata, &limits());
        let measured = |kernel: &str, stage: Option<&str>| Measured {
            stage: stage.map(str::to_owned),
            kernel: kernel.to_owned(),
            grid: [1, 1, 1],
            block: [128, 1, 1],
        };
        plan.came_back(
            &[
                measured("a", Some("decode")),
                measured("a", Some("prefill")),
                measured("c", Some("prefill")),
            ],
            |a, b| a == b,
        );
        assert_eq!(plan.measured_launches, Some(3));
        let came = |name: &str| {
            let planned = plan.strata.iter().find(|planned| planned.kernel == name).unwrap();
            (planned.measured_launches, planned.measured_in.as_deref())
        };
        assert_eq!(came("a"), (Some(1), None));
        assert_eq!(came("b"), (Some(0), None));
        assert_eq!(came("c"), (Some(0), Some("prefill")));
        assert_eq!(plan.unmet(), 1);
    }

    proptest! {
        #[test]
        fn never_beyond_the_budget(
            rows in proptest::collection::vec((0u8..3, 0u8..20, 1u32..30, 0i64..1_000_000, 1u64..500), 0..80),
            budget in 0u64..400,
            launch_count in 1u32..4,
        ) {
            let strata: Vec<Stratum> =
                rows.iter().map(|(s, k, x, ns, n)| stratum(&format!("s{s}"), &format!("k{k}"), *x, *ns, *n)).collect();
            let limits = Limits { budget: Duration::from_secs(budget), launch_count, ..limits() };
            let plan = plan(&strata, &limits);
            prop_assert!(plan.kernels.is_empty() || plan.expected_seconds <= plan.budget_seconds);
            prop_assert!(plan.stages.iter().all(|s| (0.0..=100.0 + 1e-9).contains(&s.covered_pct)));
            prop_assert!(plan.strata.iter().all(|s| plan.kernels.contains(&s.kernel)));
        }
    }
}
