//! The measured cost of recording, by which a budget sets the share of recorded steps.
//!
//! The first steps are run in blocks, with and without recording in turn. A block without it is compared with the two around it, so that
//! slow changes cancel out. Turning the recording on and off counts as its cost.

/// Steps of a block. They are all of one kind.
const STEPS: u32 = 8;

/// Number of blocks that are not recorded.
const FREE: usize = 9;

/// Number of all blocks. The first and the last one are recorded, so that a program with few steps has some.
const BLOCKS: usize = 2 * FREE + 1;

/// Place of the ratio that is taken for the cost, among sorted ones: the third largest of nine. In 91 of 100 cases the median is below
/// it, and one slow block, which is in two ratios, does not decide.
const UPPER: usize = FREE - 3;

/// Steps after which the trial is given up: the program changes the kind of its steps too often for blocks.
const LIMIT: u32 = 2_048;

/// Smallest share of recorded steps is one of this many.
const MOST: u32 = 4_096;

/// What is to be done with a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// The trial goes on: the step is recorded, or not.
    Measure(bool),
    /// The trial is over: one of so many steps is recorded.
    OneOf(u32),
}

/// The trial of a duty cycle.
#[derive(Debug)]
pub struct Trial {
    budget_ppm: u32,
    /// Share of recorded steps if the cost cannot be measured.
    otherwise: u32,
    /// Kind of the steps of the blocks.
    kind: Option<usize>,
    /// Number of steps of another kind since the last one of this kind.
    others: u32,
    seen: u32,
    /// Steps of the open block that have begun, and its begin, ns.
    steps: u32,
    begun: u64,
    /// Number of blocks that have ended, and their times, ns.
    ended: usize,
    times: [u64; BLOCKS],
    chosen: Option<u32>,
}

impl Trial {
    /// Creates a trial for a budget in millionths of the time of the program.
    pub fn new(budget_ppm: u32, otherwise: u32) -> Self {
        Self {
            budget_ppm,
            otherwise,
            kind: None,
            others: 0,
            seen: 0,
            steps: 0,
            begun: 0,
            ended: 0,
            times: [0; BLOCKS],
            chosen: None,
        }
    }

    /// Handles a step before it begins.
    pub fn step(&mut self, kind: usize, at: u64) -> Plan {
        if let Some(every) = self.chosen {
            return Plan::OneOf(every);
        }
        self.seen += 1;
        if self.seen > LIMIT {
            return self.choose(self.otherwise);
        }
        if self.kind != Some(kind) {
            // The open block begins anew. Where another kind goes on, its steps are measured instead.
            self.steps = 0;
            self.others += 1;
            if self.kind.is_some() && self.others <= STEPS {
                return Plan::Measure(self.is_on());
            }
            (self.kind, self.ended) = (Some(kind), 0);
        }
        self.others = 0;
        if self.steps == STEPS {
            if let Some(time) = self.times.get_mut(self.ended) {
                *time = at.saturating_sub(self.begun);
            }
            (self.ended, self.steps) = (self.ended + 1, 0);
            if self.ended == BLOCKS {
                return self.choose(self.every());
            }
        }
        if self.steps == 0 {
            self.begun = at;
        }
        self.steps += 1;
        Plan::Measure(self.is_on())
    }

    /// Handles a step after the recording was turned on or off for it. Turning it off belongs to the block that ended.
    pub fn switched(&mut self, at: u64) {
        let is_on = self.is_on();
        let before = self.ended.checked_sub(1).and_then(|last| self.times.get_mut(last));
        if let Some(before) = before.filter(|_| self.chosen.is_none() && self.steps == 1 && !is_on) {
            *before += at.saturating_sub(self.begun);
            self.begun = at;
        }
    }

    fn is_on(&self) -> bool {
        self.ended.is_multiple_of(2)
    }

    fn choose(&mut self, every: u32) -> Plan {
        self.chosen = Some(every);
        Plan::OneOf(every)
    }

    /// Returns the share of recorded steps, one of so many, that keeps the budget at the upper end of the interval of the cost.
    fn every(&self) -> u32 {
        let mut ratios = [1.0; FREE];
        for (ratio, blocks) in ratios.iter_mut().zip(self.times.windows(3).step_by(2)) {
            if let [before, free, after] = blocks {
                *ratio = before.saturating_add(*after) as f64 / (2.0 * (*free).max(1) as f64);
            }
        }
        ratios.sort_by(f64::total_cmp);
        let cost = ratios.get(UPPER).map_or(0.0, |upper| upper - 1.0);
        let every = cost * 1e6 / f64::from(self.budget_ppm.max(1));
        (every.ceil() as u32).clamp(1, MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs steps of a program in which a step takes 1 ms and recording makes it slower, with what turning it on and off takes. Returns
    /// the number of steps of the trial, those that were recorded, and the choice.
    fn run(budget_ppm: u32, slower: f64, switch_ns: u64, kinds: impl Fn(u32) -> usize) -> (u32, u32, u32) {
        let (mut trial, mut at, mut was_on, mut recorded) = (Trial::new(budget_ppm, 16), 1_000, false, 0);
        for step in 0.. {
            let on = match trial.step(kinds(step), at) {
                Plan::Measure(on) => on,
                Plan::OneOf(every) => return (step, recorded, every),
            };
            at += if on == was_on { 0 } else { switch_ns };
            trial.switched(at);
            was_on = on;
            recorded += u32::from(on);
            // Steps get longer, as those of a growing cache do, and one is slow.
            let ns = (1e6 + f64::from(step) * 500.0) * if on { slower } else { 1.0 };
            at += ns as u64 + if step == 69 { 5_000_000 } else { 0 };
        }
        unreachable!("a trial ends");
    }

    #[test]
    fn the_share_follows_from_the_measured_cost() {
        let decode = |_| 0;
        // 20 % at a budget of 1 %: one of 20 steps. Turning it on and off takes 0.4 of the 8 ms of a block, 5 % more.
        assert_eq!(run(10_000, 1.2, 0, decode).2, 20);
        assert_eq!(run(10_000, 1.2, 200_000, decode).2, 25);
        assert_eq!(run(100_000, 1.2, 0, decode).2, 2);
        assert_eq!(run(10_000, 1.0, 0, decode).2, 1, "what costs nothing is recorded as a whole");
        assert_eq!(run(1, 9.0, 0, decode).2, MOST);
        let (steps, recorded, _) = run(10_000, 1.2, 0, decode);
        assert_eq!((steps, recorded), (BLOCKS as u32 * STEPS, (FREE as u32 + 1) * STEPS));
    }

    #[test]
    fn blocks_are_of_one_kind() {
        // A prompt before each 40 steps, and a first kind that does not come back.
        let requests = |step| if step < 4 { 2 } else { usize::from(step % 41 == 4) };
        let (steps, _, every) = run(10_000, 1.2, 0, requests);
        assert!((20..=22).contains(&every), "{every}");
        assert!(steps > BLOCKS as u32 * STEPS);
        // No eight steps in a row: nothing is measured, and the set share stays.
        assert_eq!(run(10_000, 1.2, 0, |step| step as usize / 5 % 2), (LIMIT, LIMIT, 16));
    }
}
