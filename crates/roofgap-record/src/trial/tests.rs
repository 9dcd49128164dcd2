//! Searches on simulated runs: no false wins, no cheats, the same decision after a kill, and few runs.

use super::plan::TrialPlan;
use super::round::{Runner, TrialContext};
use super::run::new_trial;
use super::sample::{Unmeasured, Variant};
use super::{TrialEvent, TrialProps};
use crate::run::ProfileProps;
use roofgap_analyze::{
    Knob, MeasuredTime, Sample, Search, SearchCandidate, Trial, TrialRun, TrialState, TrialVerdict,
};
use roofgap_base::file::sha256;
use roofgap_base::stats::symmetric_evidence;
use roofgap_runs::config::{ConfigProps, compose, read_space};
use roofgap_runs::run_dir::RunRef;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Times of 40 runs of the embedded model (`workload.size=nano`) in a row on a busy machine of two cores, relative to
/// the median of all runs, by `scripts/tune-null.py`.
#[rustfmt::skip]
const MEASURED: [f64; 40] = [
    0.8403, 1.0928, 0.7784, 1.1118, 1.5093, 0.9566, 1.0000, 1.2081, 1.8562, 1.8756,
    1.3923, 1.3672, 0.9111, 1.3166, 1.1585, 0.8554, 3.2396, 0.8868, 1.7401, 1.4281,
    0.8330, 1.2109, 1.2224, 2.1687, 1.2844, 1.7977, 1.6548, 2.1774, 2.4221, 1.7632,
    2.0738, 1.6170, 1.5075, 1.1837, 1.4760, 0.7495, 0.7516, 1.1202, 1.0397, 0.9667,
];

/// Shapes of noise, as the logarithm of a factor on the time of run `at`.
#[derive(Debug, Clone, Copy)]
enum Noise {
    None,
    /// Gauss with this standard deviation.
    Normal(f64),
    /// Drawn from [`MEASURED`].
    Measured,
    /// Cauchy: no mean, no variance.
    Heavy,
    /// A machine that becomes slower by 1 % a run, in steps and waves.
    Drift,
    /// Two clocks.
    Bimodal,
    /// Every third run is slow.
    Periodic,
}

impl Noise {
    fn draw(self, rng: &mut fastrand::Rng, at: usize) -> f64 {
        let gauss = |rng: &mut fastrand::Rng| (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0;
        match self {
            Self::None => 0.0,
            Self::Normal(sd) => sd * gauss(rng),
            Self::Measured => MEASURED[rng.usize(..MEASURED.len())].ln(),
            Self::Heavy => (0.01 * (std::f64::consts::PI * (rng.f64() - 0.5)).tan()).clamp(-5.0, 5.0),
            Self::Drift => {
                0.01 * at as f64
                    + 0.05 * (at as f64 / 3.0).sin()
                    + 0.1 * f64::from(at % 13 > 6)
                    + 0.003 * gauss(rng)
            }
            Self::Bimodal => 0.05 * f64::from(rng.bool()) + 0.0005 * gauss(rng),
            Self::Periodic => 0.1 * f64::from(at.is_multiple_of(3)) + 0.003 * gauss(rng),
        }
    }
}

/// A workload of known times.
struct Simulated<F> {
    of: F,
    noise: Noise,
    seed: u64,
    /// Number of runs so far.
    at: usize,
    /// Runs after which it is killed.
    most: usize,
}

impl<F: Fn(&Variant) -> Sample> Runner for Simulated<F> {
    fn run(
        &mut self,
        variant: &Variant,
        _: Duration,
        _: &mut dyn FnMut(Duration),
    ) -> (Result<Sample, Unmeasured>, Duration) {
        if self.at >= self.most {
            return (Err(Unmeasured::Cancelled), Duration::ZERO);
        }
        // Of its own for each run, so that a search that continues finds the same noise.
        let digest = sha256(format!("{} {}", self.seed, self.at).as_bytes());
        let mut rng = fastrand::Rng::with_seed(u64::from_str_radix(&digest[..16], 16).unwrap());
        let factor = self.noise.draw(&mut rng, self.at).exp();
        self.at += 1;
        let mut sample = (self.of)(variant);
        sample.times.iter_mut().for_each(|(_, ns)| *ns *= factor);
        (Ok(sample), Duration::from_secs(1))
    }
}

fn sample(ns: f64) -> Sample {
    Sample {
        times: vec![(MeasuredTime::Run, ns), (MeasuredTime::Process, 2.0 * ns)],
        token_hash: Some("a".to_owned()),
        output_tokens: Some(128),
        requests: Some(64),
        ..Sample::default()
    }
}

fn props() -> TrialProps {
    TrialProps {
        run: RunRef::at(Path::new("run")),
        session: ProfileProps {
            composed: compose(&ConfigProps::default()).unwrap(),
            command_line: Vec::new(),
            executable: PathBuf::new(),
            version: String::new(),
            search_path: Vec::new(),
            native: Err(String::new()),
        },
        findings: Vec::new(),
        all: false,
        env: Vec::new(),
        budget: Duration::from_secs(1000),
        repeats: 2,
        accept_changed_output: false,
        search: None,
    }
}

/// Searches a space, continuing from recorded runs.
fn search(
    space: &[Knob],
    plan: &TrialPlan,
    runner: &mut dyn Runner,
    seed: u64,
    runs: Vec<TrialRun>,
) -> Trial {
    let props = props();
    let candidate = |knob: &Knob| SearchCandidate {
        knob: knob.clone(),
        origin: "space".to_owned(),
        after_runs: 0,
        bound_ratio: None,
        prior_ratio: None,
    };
    let search = Search {
        least_ratio: 1.01,
        false_wins: super::search::FALSE_WINS,
        seed,
        baseline_ns: plan.baseline_ns,
        candidates: space.iter().map(candidate).collect(),
        ..Search::default()
    };
    let trial = Trial { search: Some(search), runs, ..new_trial(&props) };
    let mut events = |_: TrialEvent<'_>| {};
    let mut context = TrialContext::begin(&props, plan, runner, &mut events, trial);
    context.execute().unwrap();
    context.trial
}

fn space(text: &str) -> Vec<Knob> {
    read_space(text, Path::new("space.yaml")).unwrap()
}

fn simulate(space: &[Knob], of: impl Fn(&Variant) -> Sample, noise: Noise, seed: u64) -> Trial {
    let mut runner = Simulated { of, noise, seed, at: 0, most: usize::MAX };
    search(space, &TrialPlan::default(), &mut runner, seed, Vec::new())
}

const NOTHING: &str = "[{env: A, values: [1, 2, 3]}, {env: B, values: [1, 2]}, {env: C, values: [1]}]";

#[test]
fn a_search_without_a_gain_claims_none_whatever_the_noise() {
    let space = space(NOTHING);
    // The largest number of false wins that a rate of 5 % explains: its 99 % quantile.
    for (noise, searches, most) in [
        (Noise::None, 10, 0),
        (Noise::Normal(0.05), 100, 11),
        (Noise::Measured, 200, 18),
        (Noise::Heavy, 100, 11),
        (Noise::Drift, 100, 11),
        (Noise::Bimodal, 100, 11),
        // Orders that depend on one another gave 13.
        (Noise::Periodic, 200, 8),
    ] {
        let trials = (0..searches).map(|seed| simulate(&space, |_| sample(1e9), noise, seed));
        let (mut wins, mut runs, mut proofs) = (0, 0, 0);
        for trial in trials {
            wins += usize::from(trial.winner.is_some());
            runs += trial.runs.len();
            proofs += trial.search.unwrap().proofs;
        }
        println!("{noise:?}: {wins} false wins in {searches} searches, {proofs} proofs, {runs} runs");
        assert!(wins <= most, "{noise:?}: {wins}");
    }
}

#[test]
fn a_proof_holds_its_level_at_any_stopping_time() {
    for noise in [Noise::Normal(0.01), Noise::Heavy, Noise::Drift, Noise::Bimodal] {
        let mut false_wins = 0;
        for seed in 0..1000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut logs = Vec::new();
            for pair in 0..60 {
                let times = [0, 1].map(|side| noise.draw(&mut rng, 2 * pair + side));
                let sign = if rng.bool() { 1.0 } else { -1.0 };
                logs.push(sign * (times[0] - times[1]));
                if symmetric_evidence(&logs, 0.0) >= 20.0 {
                    false_wins += 1;
                    break;
                }
            }
        }
        println!("{noise:?}: {false_wins} of 1000 at 5 %");
        // The 99 % quantile of 1000 draws at 5 %.
        assert!(false_wins <= 67, "{noise:?}: {false_wins}");
    }
}

#[test]
fn cheats_are_refused_in_all_of_40_tries() {
    let space = space("[{env: CHEAT, values: [1]}]");
    for seed in 0..10 {
        let noise = Noise::Normal(0.01);
        let fast = || sample(5e8);
        let cheats = [
            ("fewer tokens", Sample { output_tokens: Some(64), ..fast() }),
            ("tokens differ", Sample { token_hash: Some("b".to_owned()), ..fast() }),
            ("fewer requests", Sample { requests: Some(60), ..fast() }),
        ];
        for (words, cheat) in cheats {
            let of = |variant: &Variant| if variant.knobs.is_empty() { sample(1e9) } else { cheat.clone() };
            let trial = simulate(&space, of, noise, seed);
            let row = trial.rows.iter().find(|row| !row.knobs.is_empty()).unwrap();
            assert_eq!(row.verdict, TrialVerdict::Refused, "{words}: {row:?}");
            assert!(row.reason.as_ref().unwrap().contains(words), "{words}: {row:?}");
            assert_eq!(trial.winner, None);
        }
        // The unchanged program sleeps, so that anything is faster.
        let of = |variant: &Variant| sample(if variant.knobs.is_empty() { 2e9 } else { 1e9 });
        let mut runner = Simulated { of, noise, seed, at: 0, most: usize::MAX };
        let plan = TrialPlan { baseline_ns: Some(1_000_000_000), ..TrialPlan::default() };
        let trial = search(&space, &plan, &mut runner, seed, Vec::new());
        assert_eq!((trial.state, &trial.winner), (TrialState::Failed, &None));
        assert!(trial.reason.as_ref().unwrap().contains("a gain over it would not count"), "{trial:?}");
    }
}

#[test]
fn errors_memory_limits_and_missing_hashes_are_refused() {
    let of = |change: fn(&mut Sample)| {
        let mut after = Sample { device_memory_bytes: Some(1000), ..sample(5e8) };
        change(&mut after);
        let search = Search {
            max_memory_bytes: Some(1000),
            limits: vec![roofgap_analyze::MeanTime { of: MeasuredTime::Process, mean_ns: 3_000_000_000 }],
            ..Search::default()
        };
        let before = sample(1e9);
        let output = super::judge::compare_output(&[&before, &before], &[&after]);
        let effect = roofgap_analyze::OutputEffect::None;
        super::judge::refusal(&[&before, &before], &[&after], &output, effect, Some(&search))
    };
    assert_eq!(of(|_| {}), None);
    for (change, words) in [
        ((|after| after.log_errors = 1) as fn(&mut Sample), "1 lines with errors"),
        (|after| after.device_memory_bytes = Some(1001), "above the limit"),
        (|after| after.device_memory_bytes = None, "memory is not known"),
        (|after| after.times[1].1 = 4e9, "process is"),
        (|after| after.token_hash = None, "no hash"),
        (|after| after.output_tokens = None, "0 instead of 128"),
    ] {
        let reason = of(change).unwrap();
        assert!(reason.contains(words), "{words}: {reason}");
    }
}

/// A space of 24 configurations: 2 x 3 x 4 values, whose first are those of the base.
const GRID: &str =
    "[{env: GRAPHS, values: [1]}, {env: SEQS, values: [1, 2]}, {env: TOKENS, values: [1, 2, 3]}]";

/// Returns the time of a configuration: graphs and batches help, more of them together a little less; one value is slower.
fn grid_time(values: [usize; 3]) -> f64 {
    let [graphs, seqs, tokens] = values;
    let alone = [1.0, 0.72][graphs] * [1.0, 0.9, 0.8][seqs] * [1.0, 1.15, 0.93, 0.97][tokens];
    1e9 * alone * if graphs == 1 && seqs == 2 { 1.06 } else { 1.0 }
}

fn values_of(variant: &Variant) -> [usize; 3] {
    let value = |name: &str| {
        let prefix = format!("env.{name}=");
        let found = variant.knobs.iter().find_map(|knob| knob.id.strip_prefix(&prefix)?.parse().ok());
        found.unwrap_or(0)
    };
    [value("GRAPHS"), value("SEQS"), value("TOKENS")]
}

fn configurations() -> Vec<[usize; 3]> {
    let all = (0..24).map(|at| [at / 12, at / 4 % 3, at % 4]);
    all.collect()
}

/// Runs of one configuration that a grid needs to tell 3 % apart: the fewest of `roofgap try`.
const REPEATS: usize = 5;

#[test]
fn a_search_comes_near_the_best_of_a_grid_in_a_third_of_its_runs() {
    let space = space(GRID);
    let best = configurations().into_iter().map(grid_time).fold(f64::MAX, f64::min);
    let grid = 24 * REPEATS;
    let (searches, mut table) = (100u64, Vec::new());
    let (mut reached, mut runs, mut most) = (0, 0, 0);
    for seed in 0..searches {
        let trial =
            simulate(&space, |variant| sample(grid_time(values_of(variant))), Noise::Normal(0.01), seed);
        let ids = trial.winner.map(|winner| winner.knobs).unwrap_or_default();
        let knobs = space.iter().filter(|knob| ids.contains(&knob.id)).cloned().collect();
        reached += usize::from(best / grid_time(values_of(&Variant { knobs })) >= 0.97);
        runs += trial.runs.len();
        most = most.max(trial.runs.len());
    }
    table.push(("roofgap tune", reached, runs / searches as usize));
    // The others measure a configuration five times and believe the mean.
    let mut random = (0, 0);
    let mut one = (0, 0);
    for seed in 0..searches {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mean = |values: [usize; 3], rng: &mut fastrand::Rng| {
            let runs = (0..REPEATS).map(|at| grid_time(values) * Noise::Normal(0.01).draw(rng, at).exp());
            runs.sum::<f64>() / REPEATS as f64
        };
        let mut all = configurations();
        rng.shuffle(&mut all);
        all.truncate(grid / 3 / REPEATS);
        let best_of = |some: &[[usize; 3]], rng: &mut fastrand::Rng| {
            let timed = some.iter().map(|values| (*values, mean(*values, rng)));
            timed.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap().0
        };
        random.0 += usize::from(best / grid_time(best_of(&all, &mut rng)) >= 0.97);
        random.1 += all.len() * REPEATS;
        let mut now = [0, 0, 0];
        for (knob, count) in [2, 3, 4].into_iter().enumerate() {
            let some: Vec<[usize; 3]> = (0..count)
                .map(|value| {
                    let mut values = now;
                    values[knob] = value;
                    values
                })
                .collect();
            one.1 += some.len() * REPEATS;
            now = best_of(&some, &mut rng);
        }
        one.0 += usize::from(best / grid_time(now) >= 0.97);
    }
    table.push(("random search", random.0, random.1 / searches as usize));
    table.push(("one at a time", one.0, one.1 / searches as usize));
    table.push(("grid", searches as usize, grid));
    for (name, reached, runs) in &table {
        println!("{name}: {reached} of {searches} reach 97 % of the best, {runs} runs");
    }
    println!("most runs of a search: {most}");
    assert!(table[0].1 >= 95 && table[0].2 <= grid / 3, "{table:?}");
    assert!(table[0].1 > table[1].1, "{table:?}");
}

#[test]
fn a_killed_search_comes_to_the_same_decision_with_every_run_counted_once() {
    let space = space(GRID);
    let of = |variant: &Variant| sample(grid_time(values_of(variant)));
    let noise = Noise::Normal(0.02);
    for seed in 0..5 {
        let whole = simulate(&space, of, noise, seed);
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut runs: Vec<TrialRun> = Vec::new();
        while runs.len() < whole.runs.len() {
            let most = rng.usize(runs.len()..=whole.runs.len());
            let mut runner = Simulated { of, noise, seed, at: runs.len(), most };
            let trial = search(&space, &TrialPlan::default(), &mut runner, seed, runs);
            let ended = if most < whole.runs.len() { TrialState::Interrupted } else { TrialState::Done };
            assert_eq!(trial.state, ended);
            runs = trial.runs.clone();
            assert_eq!(runs, whole.runs[..runs.len()]);
            if ended == TrialState::Done {
                assert_eq!((&trial.rows, &trial.winner), (&whole.rows, &whole.winner));
                break;
            }
        }
    }
}
