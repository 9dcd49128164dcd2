//! A search: candidates race against the best workload so far, and a gain is claimed only by a proof.
//!
//! A stage looks at each candidate in a few pairs, in random order with the best one, and drops those that are slower or behind. The best
//! candidates that do not exclude one another are also tried together. No claim follows from these pairs. The finalist is then proven with new
//! pairs by [`symmetric_limit`](roofgap_base::stats::symmetric_limit): where it gives nothing, the probability of a false win is at most
//! the level of the proof, whenever the search stops. The levels of all proofs sum to [`FALSE_WINS`].

use std::path::{Path, PathBuf};
use std::time::Duration;

use roofgap_analyze::{
    Direction, Failure, Goal, HashedFile, Knob, MeanTime, MeasuredTime, Sample, Search, SearchCandidate,
    Trial, TrialRow, TrialState, TrialVerdict,
};
use roofgap_base::clock::{now, ns};
use roofgap_base::error::Error;
use roofgap_base::file::{hash_file, read_text, sha256};
use roofgap_base::numbers::{counted, decimal, significant};
use roofgap_collect::child::Cancel;
use roofgap_collect::command::CommandLine;
use roofgap_collect::entries;
use roofgap_runs::config::{Span, read_space};
use roofgap_runs::run_dir::layout::stored;
use roofgap_runs::run_dir::{Layout, RunRef, read_trial_file};

use super::judge::{Rule, logs};
use super::plan::{Candidate, StageShare, TrialPlan, bound_ratio, is_other_work};
use super::round::{Contender, Program, Runner, Stop, TrialContext};
use super::run::new_trial;
use super::sample::{Unmeasured, Variant, conflict};
use super::text::collect_history;
use super::{TrialEvent, TrialProps};
use crate::distinct;
use crate::run::ProfileProps;

/// Share of searches that may claim a gain where there is none, whenever they stop.
pub const FALSE_WINS: f64 = 0.05;

/// Pairs of a first look.
pub const QUALIFYING_PAIRS: usize = 2;

/// Most pairs of a proof.
pub const MOST_PROOF_PAIRS: usize = 24;

/// Pairs after which a proof is given up where no gain shows.
const FUTILE_PAIRS: usize = 4;

/// Candidates that run in turn with one run of the best workload.
const AT_ONCE: usize = 8;

/// Proofs of a stage.
const PROOFS: usize = 3;

/// Smallest noise that is assumed, and that of a single pair, as logarithms.
const LEAST_NOISE: f64 = 0.002;
const NOISE_OF_ONE: f64 = 0.017;

/// Ratio to the roof at which a search ends.
const ROOF_LEFT: f64 = 1.1;

/// Ratio of the time of the unchanged workload to that of its run above which it is not the same workload.
const SLOW_BASE: f64 = 1.5;

/// Runs of the unchanged workload of which the fastest is compared with its run. A proof has more.
const BASE_RUNS: usize = 3;

/// Settings of a search.
#[derive(Debug, Clone)]
pub struct SearchProps {
    /// Quantity to improve.
    pub goal: Goal,
    /// Largest times of a kept change; those of good requests for [`Goal::Goodput`].
    pub limits: Vec<(MeasuredTime, Duration)>,
    /// Changes of the user; none for those of the findings and the engine.
    pub space: Vec<Knob>,
    /// Most memory of a kept change, bytes.
    pub max_memory_bytes: Option<u64>,
    /// Smallest gain worth a proof, as a ratio.
    pub least_ratio: f64,
    /// Take changes that others propose.
    pub accepts_proposals: bool,
}

/// Lists the overrides that every run of a search needs: the limits of good requests.
pub fn overrides(search: &Search) -> impl Iterator<Item = String> {
    let limits = search.limits.iter().filter(|_| search.goal == Goal::Goodput);
    limits.map(|limit| {
        let key = if limit.of == MeasuredTime::Ttft { "load.good_ttft" } else { "load.good_itl" };
        format!("{key}={}", Span(Duration::from_nanos(limit.mean_ns.unsigned_abs())))
    })
}

impl SearchProps {
    /// Lists the changes to try, the most promising first by what earlier trials measured and findings predict. Adds those that no
    /// finding has to `candidates`.
    pub fn candidates(
        &self,
        candidates: &mut Vec<Candidate>,
        catalogue: Vec<Knob>,
        stages: &[StageShare],
        run: &Path,
    ) -> Vec<SearchCandidate> {
        let mut origins = vec!["finding"; candidates.len()];
        let others = catalogue.into_iter().filter(|_| self.space.is_empty()).map(|knob| (knob, "catalogue"));
        for (knob, origin) in others.chain(self.space.iter().map(|knob| (knob.clone(), "space"))) {
            if !candidates.iter().any(|known| known.knob.changes == knob.changes) {
                candidates.push(Candidate { knob, findings: Vec::new() });
                origins.push(origin);
            }
        }
        let history = run.parent().and_then(|base| collect_history(base).ok());
        let prior = |id: &String| {
            let rows =
                history.iter().flat_map(|history| &history.rows).filter(|row| row.knobs == [id.clone()]);
            let gains: Vec<f64> = rows.map(|row| row.ratio.ln()).collect();
            (!gains.is_empty()).then(|| (gains.iter().sum::<f64>() / gains.len() as f64).exp())
        };
        let candidate = |(candidate, origin): (&Candidate, &str)| {
            let bound = |of: &MeasuredTime| bound_ratio(of, &[candidate], stages, &[], true);
            SearchCandidate {
                knob: candidate.knob.clone(),
                origin: origin.to_owned(),
                after_runs: 0,
                bound_ratio: self.goal.decides().iter().find_map(bound),
                prior_ratio: prior(&candidate.knob.id),
            }
        };
        let mut all: Vec<SearchCandidate> = candidates.iter().zip(origins).map(candidate).collect();
        let hope =
            |candidate: &SearchCandidate| candidate.prior_ratio.or(candidate.bound_ratio).unwrap_or(1.0);
        all.sort_by(|a, b| hope(b).total_cmp(&hope(a)));
        all
    }
}

/// Reads the changes that others proposed to the search of a run. A file that is not a list of changes is left out.
pub fn read_proposals(run: &Path) -> Vec<Knob> {
    let knobs = |file: PathBuf| read_space(&read_text(&file).ok()?, &file).ok();
    entries(&Layout::of(run).proposals()).into_iter().filter_map(knobs).flatten().collect()
}

/// Hashes the files that a search depends on: the configuration, the program, and the captures of the run.
fn hashed_files(props: &TrialProps) -> Vec<HashedFile> {
    let layout = Layout::of(&props.run.path);
    let workload = &props.session.composed.config.workload;
    let folder = workload.cwd.clone().unwrap_or_default();
    let program = workload.program.iter().map(|word| folder.join(word)).filter(|path| path.is_file());
    let captures = [layout.nsys_report(), layout.torch_trace()].into_iter().filter_map(stored);
    let files = [layout.config(), layout.baseline_account()].into_iter().chain(program);
    let hashed = |path: PathBuf| {
        let found = hash_file(&path).ok()?;
        Some(HashedFile { path: path.display().to_string(), sha256: found.sha256 })
    };
    files.chain(captures).chain(layout.native_captures()).filter_map(hashed).collect()
}

/// Starts a search, or continues the one in `tune.json` of the run.
pub fn start(props: &TrialProps, plan: &TrialPlan) -> Result<Trial, Error> {
    let path = Layout::of(&props.run.path).search();
    let mut trial = Trial { search: Some(new_search(props, plan)), ..new_trial(props) };
    let earlier = read_trial_file(&path)?.and_then(|mut trials| trials.trials.pop());
    let (Some(earlier), Some(search)) = (earlier, &mut trial.search) else {
        return Ok(trial);
    };
    let Some(known) = earlier.search else {
        return Err(Error::new(format!("{} is not a search", path.display())));
    };
    // What the user asked for: what the search found out and others proposed is left out.
    let asked = |search: &Search| {
        let first = search.candidates.iter().filter(|candidate| candidate.origin != "proposal");
        let mut ids: Vec<String> = first.map(|candidate| candidate.knob.id.clone()).collect();
        ids.sort();
        let rules =
            (search.goal, search.limits.clone(), search.max_memory_bytes, search.accept_changed_output);
        (rules, search.least_ratio.to_bits(), ids)
    };
    let what = if known.files != search.files {
        "the configuration, the program or a capture has changed since"
    } else if asked(&known) != asked(search) {
        "its goal, limits or changes are others"
    } else {
        let (accepts_proposals, command) = (search.accepts_proposals, std::mem::take(&mut search.command));
        *search = Search { accepts_proposals, command, ..begun_again(known) };
        trial.runs = earlier.runs;
        if earlier.state == TrialState::Failed {
            // The run of the workload to compare with that failed is made again.
            trial.runs.pop();
        }
        return Ok(trial);
    };
    let hint = "move it away to start a new search";
    Err(Error::new(format!("{} is of another search: {what}", path.display())).with_hint(hint))
}

/// Returns a search before its first decision.
fn begun_again(search: Search) -> Search {
    Search { proofs: 0, noise_ratio: None, ..search }
}

fn new_search(props: &TrialProps, plan: &TrialPlan) -> Search {
    let Some(search) = &props.search else {
        return Search::default();
    };
    let limit = |(of, most): &(MeasuredTime, Duration)| MeanTime { of: of.clone(), mean_ns: ns(*most) };
    let started = now().to_string();
    let seed = sha256(format!("{} {started}", plan.run_id).as_bytes());
    Search {
        goal: search.goal,
        limits: search.limits.iter().map(limit).collect(),
        max_memory_bytes: search.max_memory_bytes,
        least_ratio: search.least_ratio,
        accept_changed_output: props.accept_changed_output,
        seed: seed.get(..13).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(1),
        false_wins: FALSE_WINS,
        roof_ratio: plan.roof_ratio,
        baseline_ns: plan.baseline_ns,
        candidates: plan.search.clone(),
        accepts_proposals: search.accepts_proposals,
        files: hashed_files(props),
        command: CommandLine::new("roofgap").args(props.session.command_line.iter().skip(1)).to_string(),
        ..Search::default()
    }
}

impl TrialContext<'_> {
    /// Races candidates against the best workload so far until nothing is left to gain: in a trial the given changes, each until it has
    /// an estimate; in a search whatever can help, until one is proven. Returns the reason why a search ended.
    pub fn race(&mut self, kept: &mut Variant) -> Result<Option<String>, Stop> {
        let is_search = self.trial.search.is_some();
        let (rule, at_once) =
            if is_search { (Rule::Qualify, AT_ONCE) } else { (Rule::Estimate, self.plan.at_once()) };
        let mut lost: Vec<String> = Vec::new();
        for stage in 0.. {
            self.take_proposals();
            if let Some(reason) = self.at_roof() {
                return Ok(Some(reason));
            }
            let entrants = self.entrants(kept, &mut lost);
            if entrants.is_empty() || !is_search && stage > 0 && !self.has_room() {
                break;
            }
            let mut field: Vec<Contender> = entrants.iter().map(|knob| self.contender(kept, knob)).collect();
            if is_search && stage == 0 {
                let row = self.push_row(None, kept, kept, Vec::new());
                field.insert(0, Contender::new(kept.clone(), row));
            }
            let mut end = Ok(());
            for some in field.chunks_mut(at_once) {
                match &end {
                    Ok(()) => end = self.measure(kept, some, rule),
                    Err(stop) => self.abandon(some, Some(stop)),
                }
            }
            for contender in field.iter_mut().filter(|contender| contender.variant.knobs.is_empty()) {
                contender.open = false;
                let row = &mut self.trial.rows[contender.row];
                match row.verdict {
                    TrialVerdict::Refused => {
                        let why = "base differs from base, so that refusals of changes may be chance";
                        self.trial.notes.push(why.to_owned());
                    }
                    _ if row.runs > 0 => row.verdict = TrialVerdict::Same,
                    _ => {}
                }
            }
            for contender in field.iter().filter(|contender| !contender.open) {
                let row = &self.trial.rows[contender.row];
                let is_left = match row.verdict {
                    TrialVerdict::Faster | TrialVerdict::Same => true,
                    TrialVerdict::Dropped => self.gain(contender).0 > 0.0,
                    _ => false,
                };
                lost.extend(contender.variant.knobs.last().filter(|_| !is_left).map(|knob| knob.id.clone()));
            }
            let winner = if is_search {
                end?;
                end = Ok(());
                self.prove_best(kept, field, &mut lost)?
            } else {
                self.best_estimate(kept, field, &mut lost)
            };
            match winner {
                Some(winner) => self.keep(kept, &winner),
                // Only what is proposed later can still help.
                None => lost.extend(entrants.into_iter().map(|knob| knob.id)),
            }
            self.save()?;
            end?;
        }
        let known = self.search(|search| counted(search.candidates.len() as u64, "change"));
        Ok(known.map(|known| format!("no other of {known} is shown to help")))
    }

    /// Returns the contender of a trial with the largest gain that may be kept. What a change gave alone says what it gave on top of others.
    fn best_estimate(
        &mut self,
        kept: &Variant,
        mut field: Vec<Contender>,
        lost: &mut Vec<String>,
    ) -> Option<Contender> {
        self.rank(&mut field);
        let mut winner: Option<Contender> = None;
        for contender in field {
            let is_faster = self.trial.rows[contender.row].verdict == TrialVerdict::Faster;
            let may_keep = !is_faster || self.may_keep(&contender);
            let is_best = is_faster && may_keep && winner.is_none();
            if let Some(knob) = contender.variant.knobs.last() {
                lost.extend((!may_keep).then(|| knob.id.clone()));
                if !kept.knobs.is_empty() {
                    let word = if is_best { "kept" } else { "not kept" };
                    self.explain(self.alone_row(knob), format!("{word} on top of {}", kept.label()));
                }
            }
            winner = if is_best { Some(contender) } else { winner };
        }
        winner
    }

    fn search<T>(&self, of: impl FnOnce(&Search) -> T) -> Option<T> {
        self.trial.search.as_ref().map(of)
    }

    /// Returns the smallest gain worth a proof, as a logarithm.
    fn least_gain(&self) -> f64 {
        self.search(|search| search.least_ratio.ln()).unwrap_or(0.0)
    }

    /// Returns the probability of an error of the next proof; `None` outside a search.
    pub fn next_proof(&mut self) -> Option<f64> {
        let search = self.trial.search.as_mut()?;
        search.proofs += 1;
        let number = search.proofs as f64;
        Some(search.false_wins / (number * (number + 1.0)))
    }

    /// Adds the changes that others proposed, each with the number of runs before it, so that a later call takes it at the same time.
    fn take_proposals(&mut self) {
        if self.is_replay() {
            return;
        }
        let (proposals, runs) = (self.runner.proposals(), self.cursor as u64);
        let Some(search) = &mut self.trial.search else {
            return;
        };
        for knob in proposals {
            if !search.candidates.iter().any(|known| known.knob.changes == knob.changes) {
                search.candidates.push(SearchCandidate {
                    knob,
                    origin: "proposal".to_owned(),
                    after_runs: runs,
                    bound_ratio: None,
                    prior_ratio: None,
                });
            }
        }
    }

    /// Returns the sentence on a roof that is reached.
    fn at_roof(&self) -> Option<String> {
        let search = self.trial.search.as_ref()?;
        // The roof is that of the recorded work.
        let roof =
            search.roof_ratio.filter(|_| !search.candidates.iter().any(|one| is_other_work(&one.knob)))?;
        let kept = self.trial.rows.iter().filter(|row| row.verdict == TrialVerdict::Kept);
        let gain: f64 = kept.filter_map(|row| row.deciding()?.ratio).product();
        let left = (roof / gain).max(1.0);
        (left <= ROOF_LEFT).then(|| {
            format!(
                "{} % of the roof: nothing that this tool knows can give more than {}x",
                decimal(100.0 / left, 0),
                significant(left)
            )
        })
    }

    /// Lists the candidates that can improve the best workload. Those that cannot have a row with the reason.
    fn entrants(&mut self, kept: &Variant, lost: &mut Vec<String>) -> Vec<Knob> {
        let least = self.search(|search| search.least_ratio.max(search.noise_ratio.unwrap_or(1.0)));
        let least = least.unwrap_or(1.0);
        let known = |search: &Search| {
            let known = search.candidates.iter().filter(|known| known.after_runs <= self.cursor as u64);
            known.map(|known| (known.knob.clone(), known.bound_ratio)).collect()
        };
        let given = || self.plan.candidates.iter().map(|known| (known.knob.clone(), None)).collect();
        let known: Vec<(Knob, Option<f64>)> = self.search(known).unwrap_or_else(given);
        let mut entrants = Vec::new();
        for (knob, bound) in known {
            if lost.contains(&knob.id) || kept.knobs.contains(&knob) {
                continue;
            }
            let same = kept.knobs.iter().find(|other| conflict(other, &knob));
            let same = same.map(|same| format!("it changes the same setting as {}, which is kept", same.id));
            let reason = same.or_else(|| {
                let bound = significant(bound.filter(|bound| *bound < least)?);
                Some(format!(
                    "it can give at most {bound}x, below the noise or the gain worth a run: {least:.3}x"
                ))
            });
            let Some(reason) = reason else {
                entrants.push(knob);
                continue;
            };
            lost.push(knob.id.clone());
            let known = self.alone_row(&knob);
            let row = known.unwrap_or_else(|| {
                let row = self.push_row(Some(&knob), kept, &kept.with(&knob), Vec::new());
                self.trial.rows[row].verdict = TrialVerdict::Skipped;
                row
            });
            self.explain(Some(row), reason);
        }
        entrants
    }

    /// Returns the mean logarithm of the gain of a contender and the number of its pairs.
    fn gain(&self, contender: &Contender) -> (f64, usize) {
        let change = self.trial.rows[contender.row].deciding();
        let gain = change.and_then(|change| Some((change.ratio?.ln(), change.after_ns.len())));
        gain.unwrap_or((f64::NEG_INFINITY, 0))
    }

    /// Returns the standard deviation of the logarithms of the ratios of successive runs of the unchanged workload.
    fn base_noise(&self) -> Option<f64> {
        let times = self.base_times();
        let squares: Vec<f64> = times.windows(2).map(|pair| (pair[0] / pair[1]).ln().powi(2)).collect();
        (!squares.is_empty()).then(|| (squares.iter().sum::<f64>() / squares.len() as f64).sqrt())
    }

    /// Drops the contenders that a further pair is not worth. No claim follows from that, so that the rule may be any.
    pub fn thin_out(&mut self, contenders: &mut [Contender], rule: Rule) {
        let noise_ratio = self.base_noise().map(f64::exp);
        if let Some(search) = &mut self.trial.search {
            search.noise_ratio = noise_ratio;
        }
        let least = self.least_gain();
        if let Rule::Prove(_) = rule {
            for contender in contenders.iter_mut().filter(|contender| contender.open) {
                let Some(change) = self.trial.rows[contender.row].deciding() else { continue };
                let (logs, direction) = (logs(change), change.direction());
                let (gain, pairs) = self.gain(contender);
                let spread = logs.iter().map(|log| (log - gain).powi(2)).sum::<f64>() / logs.len() as f64;
                let most = gain + 2.0 * (spread / logs.len() as f64).sqrt();
                if matches!(direction, Some(Direction::Faster | Direction::Slower)) {
                    self.close(contender, None);
                } else if pairs >= FUTILE_PAIRS && (gain <= 0.0 || most < least) || pairs == MOST_PROOF_PAIRS
                {
                    let pairs = counted(pairs as u64, "pair");
                    self.drop_out(contender, format!("not proven in {pairs}: {}x", significant(gain.exp())));
                }
            }
            return;
        }
        let noise = self.noise(contenders);
        let gains: Vec<(f64, usize)> = contenders.iter().map(|contender| self.gain(contender)).collect();
        for at in 0..contenders.len() {
            let ((gain, pairs), contender) = (gains[at], &contenders[at]);
            if !contender.open || contender.variant.knobs.is_empty() || pairs == 0 {
                continue;
            }
            let margin =
                3.0 * if pairs == 1 { noise.max(NOISE_OF_ONE) } else { noise } / (pairs as f64).sqrt();
            let ahead = |other: &usize| {
                let (a, b) = (contender.variant.knobs.last(), contenders[*other].variant.knobs.last());
                let same = a.zip(b).is_some_and(|(a, b)| conflict(a, b));
                same && contenders[*other].open && gains[*other].0 > gain + 1.5 * margin
            };
            let ratio = significant(gain.exp());
            let best = || (0..contenders.len()).find(ahead).map(|other| contenders[other].variant.label());
            let why = if gain < -margin {
                Some("slower".to_owned())
            } else if gain + margin < least {
                Some("no gain".to_owned())
            } else {
                best().map(|best| format!("behind {best}"))
            };
            if let Some(why) = why {
                let pairs = counted(pairs as u64, "pair");
                self.drop_out(&mut contenders[at], format!("{why}: {ratio}x in {pairs}"));
            }
        }
    }

    /// Returns the standard deviation of the logarithm of the ratio of a pair, from all contenders together.
    fn noise(&self, contenders: &[Contender]) -> f64 {
        let (mut squares, mut degrees) = (0.0, 0usize);
        for contender in contenders {
            let logs = self.trial.rows[contender.row].deciding().map(logs).unwrap_or_default();
            // The unchanged workload gains nothing over itself.
            let is_base = contender.variant.knobs.is_empty();
            let mean = if is_base { 0.0 } else { logs.iter().sum::<f64>() / logs.len().max(1) as f64 };
            squares += logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>();
            degrees += if is_base { logs.len() } else { logs.len().saturating_sub(1) };
        }
        let pooled = (degrees > 0).then(|| (squares / degrees as f64).sqrt());
        pooled.or(self.base_noise()).unwrap_or(NOISE_OF_ONE).max(LEAST_NOISE)
    }

    /// Ends a contender of a race.
    fn drop_out(&mut self, contender: &mut Contender, reason: String) {
        let row = &mut self.trial.rows[contender.row];
        row.verdict = TrialVerdict::Dropped;
        row.reason = Some(reason);
        self.close(contender, None);
    }

    /// Proves the best of a field against the best workload, several together first. Returns the winner; `None` without one.
    fn prove_best(
        &mut self,
        kept: &Variant,
        field: Vec<Contender>,
        lost: &mut Vec<String>,
    ) -> Result<Option<Contender>, Stop> {
        let noise = self.noise(&field);
        let least = self.least_gain();
        let mut finalists: Vec<Contender> = Vec::new();
        for mut contender in field.into_iter().filter(|contender| contender.open) {
            let (gain, pairs) = self.gain(&contender);
            let worth = least.max(noise / (pairs as f64).sqrt());
            if !self.may_keep(&contender) {
                let reason = self.trial.rows[contender.row].reason.take().unwrap_or_default();
                self.drop_out(&mut contender, reason);
            } else if gain < worth {
                self.drop_out(&mut contender, format!("{}x is not worth a proof", significant(gain.exp())));
            } else {
                finalists.push(contender);
            }
        }
        self.rank(&mut finalists);
        let mut joint = kept.clone();
        for contender in &finalists {
            let knob = contender.variant.knobs.last();
            let is_free = |knob: &&Knob| !joint.knobs.iter().any(|other| conflict(other, knob));
            if let Some(knob) = knob.filter(is_free) {
                joint = joint.with(knob);
            }
        }
        if joint.knobs.len() > kept.knobs.len() + 1 {
            let parts = finalists.iter().flat_map(|part| self.trial.rows[part.row].findings.clone());
            let row = self.push_row(None, kept, &joint, distinct(parts));
            let mut best = vec![Contender::new(joint, row), finalists.remove(0)];
            let end = self.measure(kept, &mut best, Rule::Qualify);
            if end.is_err() {
                self.abandon(&mut finalists, end.as_ref().err());
            }
            end?;
            best.retain(|contender| contender.open);
            self.rank(&mut best);
            best.extend(finalists);
            finalists = best;
        }
        let mut winner: Option<Contender> = None;
        let mut proofs = 0;
        let mut rest = finalists.into_iter();
        while let Some(mut contender) = rest.next() {
            if let Some(winner) = &winner {
                self.drop_out(&mut contender, format!("behind {}", winner.variant.label()));
                continue;
            }
            let level = if proofs < PROOFS { self.next_proof() } else { None };
            let Some(level) = level else {
                self.drop_out(&mut contender, "behind others that were not proven".to_owned());
                continue;
            };
            proofs += 1;
            if let Err(stop) = self.measure(kept, std::slice::from_mut(&mut contender), Rule::Prove(level)) {
                let mut others: Vec<Contender> = rest.collect();
                self.abandon(&mut others, Some(&stop));
                return Err(stop);
            }
            if self.trial.rows[contender.row].verdict == TrialVerdict::Faster && self.may_keep(&contender) {
                winner = Some(contender);
            } else {
                // Several together may fail where one of them is proven.
                lost.extend(
                    contender.variant.ids().into_iter().filter(|_| contender.variant.knobs.len() == 1),
                );
            }
        }
        Ok(winner)
    }

    /// Sorts contenders by their gains, the largest first.
    fn rank(&self, contenders: &mut [Contender]) {
        contenders.sort_by(|a, b| self.gain(b).0.total_cmp(&self.gain(a).0));
    }

    /// Lists the time that decides of every run of the unchanged workload, ns.
    fn base_times(&self) -> Vec<f64> {
        let runs = self.trial.runs.iter().take(self.cursor).filter(|run| run.knobs.is_empty());
        runs.filter_map(|run| Some(run.sample.as_ref()?.times.first()?.1)).collect()
    }

    /// Fails where all runs of the unchanged workload are much slower than in the run that is tuned.
    pub fn check_base(&self) -> Result<(), Failure> {
        let times = self.base_times();
        let then = self.search(|search| search.baseline_ns).flatten().unwrap_or(i64::MAX);
        let slow = times.iter().copied().fold(f64::MAX, f64::min) / then as f64;
        if times.len() < BASE_RUNS || slow <= SLOW_BASE {
            return Ok(());
        }
        let slow = significant(slow);
        Err(Failure::new(format!(
            "{slow} times as slow as in the run that is tuned; a gain over it would not count"
        )))
    }
}

/// Result of checking a search.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Verified {
    /// Number of runs in the record.
    pub runs: u64,
    /// Number of rows.
    pub rows: u64,
    /// Files whose hashes match.
    pub files: u64,
    /// Files that are not here.
    pub missing: Vec<String>,
    /// Everything that does not match.
    pub problems: Vec<String>,
    /// Gain of the winner in new pairs.
    pub again: Option<f64>,
}

/// A record that is checked: no run is made.
struct Recorded;

impl Runner for Recorded {
    fn run(
        &mut self,
        _: &Variant,
        _: Duration,
        _: &mut dyn FnMut(Duration),
    ) -> (Result<Sample, Unmeasured>, Duration) {
        (Err(Unmeasured::Cancelled), Duration::ZERO)
    }
}

/// Checks `tune.json`: hashes its files, and computes every interval and decision again from the recorded runs.
///
/// # Errors
/// Fails when the file is not the record of a search, or its runs are not those of one.
pub fn verify(path: &Path, session: &ProfileProps) -> Result<(Trial, Verified), Error> {
    let no_search = || Error::new(format!("{} is not the record of a search", path.display()));
    let trials = read_trial_file(path)?.ok_or_else(no_search)?;
    let recorded = trials.trials.last().cloned().ok_or_else(no_search)?;
    let search = recorded.search.clone().ok_or_else(no_search)?;
    let (mut missing, mut problems, mut files) = (Vec::new(), Vec::new(), 0);
    for file in &search.files {
        match hash_file(Path::new(&file.path)) {
            Ok(found) if found.sha256 == file.sha256 => files += 1,
            Ok(_) => problems.push(format!("{} has changed", file.path)),
            Err(_) => missing.push(file.path.clone()),
        }
    }
    let again = replay(&recorded, search, path, session)?;
    // What a reader of the record relies on; the ninth digit of a factor may differ by its text in JSON.
    let claims = |row: &TrialRow| {
        let times = row.times.iter().map(|change| (&change.of, change.ratio, change.interval));
        let times: Vec<_> = times.collect();
        format!("{:?} {:?} {:?} {times:.6?}", row.knobs, row.verdict, row.output)
    };
    for (at, row) in recorded.rows.iter().enumerate() {
        if again.rows.get(at).map(claims) != Some(claims(row)) {
            let knobs = row.knobs.join(" + ");
            problems.push(format!("row {} ({knobs}) does not follow from the runs", at + 1));
        }
    }
    if again.rows.len() != recorded.rows.len() {
        problems.push(format!("the runs give {} rows, not {}", again.rows.len(), recorded.rows.len()));
    }
    let knobs = |trial: &Trial| trial.winner.as_ref().map(|winner| winner.knobs.clone());
    if knobs(&again) != knobs(&recorded) {
        problems.push("the winner does not follow from the runs".to_owned());
    }
    let (runs, rows) = (recorded.runs.len() as u64, recorded.rows.len() as u64);
    Ok((recorded, Verified { runs, rows, files, missing, problems, again: None }))
}

/// Measures the winner of a search again in a few pairs. Returns the mean gain.
///
/// # Errors
/// Fails when the search has no winner, or a run fails or is refused.
pub fn measure_again(
    trial: &Trial,
    run: RunRef,
    session: &ProfileProps,
    cancel: &Cancel,
    events: &mut dyn FnMut(TrialEvent<'_>),
) -> Result<f64, Error> {
    let found = trial.search.as_ref().zip(trial.winner.as_ref());
    let (search, winner) = found.ok_or_else(|| Error::new("the search has no winner to measure again"))?;
    let known = search.candidates.iter().filter(|known| winner.knobs.contains(&known.knob.id));
    let variant = Variant { knobs: known.map(|known| known.knob.clone()).collect() };
    let props = bare_props(trial, search, run, session);
    let (plan, base) = (TrialPlan::default(), Variant::default());
    let fresh = Trial { search: Some(search.clone()), ..new_trial(&props) };
    let mut program = Program::begin(&props, cancel, &fresh, false)?;
    let mut context = TrialContext::begin(&props, &plan, &mut program, events, fresh);
    let row = context.push_row(None, &base, &variant, Vec::new());
    let end = context.measure(&base, &mut [Contender::new(variant, row)], Rule::Qualify);
    let row = context.trial.rows.remove(row);
    let counts = end.is_ok() && !matches!(row.verdict, TrialVerdict::Failed | TrialVerdict::Refused);
    let gain = row.deciding().and_then(|change| change.ratio).filter(|_| counts);
    gain.ok_or_else(|| {
        Error::new(format!("it could not be measured again: {}", row.reason.unwrap_or_default()))
    })
}

/// Decides again from the runs of a record.
fn replay(recorded: &Trial, search: Search, path: &Path, session: &ProfileProps) -> Result<Trial, Error> {
    let run = RunRef::at(path.parent().unwrap_or(path));
    let props = bare_props(recorded, &search, run, session);
    let plan = TrialPlan::default();
    let trial = Trial { search: Some(begun_again(search)), runs: recorded.runs.clone(), ..new_trial(&props) };
    let (mut runner, mut events) = (Recorded, |_: TrialEvent<'_>| {});
    let mut context = TrialContext::begin(&props, &plan, &mut runner, &mut events, trial);
    context.execute()?;
    if context.is_replay() {
        return Err(Error::new("the record has runs after the end of the search"));
    }
    Ok(context.trial)
}

/// Makes the input of runs of a recorded search.
fn bare_props(trial: &Trial, search: &Search, run: RunRef, session: &ProfileProps) -> TrialProps {
    TrialProps {
        run,
        session: session.clone(),
        findings: Vec::new(),
        all: false,
        env: Vec::new(),
        budget: Duration::MAX,
        repeats: trial.repeats,
        accept_changed_output: search.accept_changed_output,
        search: None,
    }
}
