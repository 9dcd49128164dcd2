//! The duty cycle: records one of N steps where the program marks its steps, else a part of the time.
//!
//! A step is a push/pop range with a known name. The first steps of each kind are recorded, then one of N, several in a row. A window begins before
//! the range of its step and ends before the range of the next step that is not recorded. A program without steps is recorded until
//! it is clear that it has none, then one of N windows of time.
//!
//! With a budget N is not set but measured, by a [`Trial`]. The first steps are run in blocks, with and without recording in turn. A block
//! without it is compared with the two around it, so that slow changes cancel out. Turning the recording on and off counts as its cost.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::options::Duty;
use super::{lock, now};
use roofgap_wire::Message;

/// Time without steps after which the cycle goes by time, ns; also the time after which another thread may have the steps.
const STEPS_OVER: u64 = 2_000_000_000;

/// Number of kinds of steps.
const KINDS: usize = 6;

/// Registered strings whose kind is kept; strings beyond that are no steps.
const STRINGS: usize = 4096;

/// Kind of each registered string by its id: 0 for none, else the kind plus 1.
static OF_STRING: [AtomicU8; STRINGS] = [const { AtomicU8::new(0) }; STRINGS];

/// Returns the kind of step of a range name. Kinds are counted apart, so that each has recorded steps.
fn kind_of(name: &[u8]) -> Option<usize> {
    let name = name.strip_prefix(b"LLM@").unwrap_or(name);
    let has = |part: &[u8]| name.windows(part.len()).any(|window| window == part);
    match name {
        b"decode_step" => Some(0),
        b"prefill" => Some(1),
        // vLLM: prompts, or prompts and generation; then generation alone.
        _ if name.starts_with(b"execute_") && has(b"context_") => {
            Some(if has(b"context_0(") { 3 } else { 2 })
        }
        _ if name.starts_with(b"[Executor] _forward_step") || name.starts_with(b"_forward_step") => Some(4),
        _ if name.starts_with(b"scheduler.run_batch") => Some(5),
        _ => None,
    }
}

/// Remembers the kind of a registered string.
pub fn register(id: u32, text: &[u8]) {
    if let (Some(kind), Some(slot)) = (kind_of(text), OF_STRING.get(id as usize)) {
        slot.store(kind as u8 + 1, Ordering::Relaxed);
    }
}

fn kind_of_message(message: &Message<'_>) -> Option<usize> {
    match message {
        Message::Inline(text) => kind_of(text.0),
        Message::Registered(id) => {
            let kind = OF_STRING.get(*id as usize)?.load(Ordering::Relaxed);
            usize::from(kind).checked_sub(1)
        }
        Message::None => None,
    }
}

/// Position of a thread in its steps: the domain of the open step and the number of ranges inside it.
pub type OpenStep = Cell<Option<(u32, u32)>>;

/// Steps that are kept for a client that looks for slow ones, and most of them in an answer.
const KEPT: usize = 256;
const ANSWERED: u64 = 128;

/// A step: begin and length, ns, and its work: kind and tokens.
type StepRow = [u64; 3];

/// The newest steps of a process.
pub struct StepLog {
    /// Begin of the step that is open, ns; 0 for none.
    open: AtomicU64,
    ended: AtomicU64,
    answered: AtomicU64,
    rows: [[AtomicU64; 3]; KEPT],
    /// The longest step since the last answer, which is answered even if it is not kept any more.
    longest: [AtomicU64; 3],
}

fn store(slot: &[AtomicU64; 3], row: StepRow) {
    slot.iter().zip(row).for_each(|(slot, value)| slot.store(value, Ordering::Relaxed));
}

impl StepLog {
    pub const fn new() -> Self {
        Self {
            open: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            rows: [const { [const { AtomicU64::new(0) }; 3] }; KEPT],
            longest: [const { AtomicU64::new(0) }; 3],
        }
    }

    /// Notes the begin of a step. Returns it, with the work of the step.
    pub fn begin(&self, message: &Message<'_>) -> (u64, u64) {
        let at = now();
        self.open.store(at, Ordering::Relaxed);
        (at, work_of(message))
    }

    /// Notes the end of a step.
    pub fn end(&self, (begin, work): (u64, u64)) {
        let row: StepRow = [begin, now().saturating_sub(begin), work];
        self.open.store(0, Ordering::Relaxed);
        let at = self.ended.fetch_add(1, Ordering::Relaxed);
        if let Some(slot) = self.rows.get(at as usize % KEPT) {
            store(slot, row);
        }
        if row[1] > self.longest[1].load(Ordering::Relaxed) {
            store(&self.longest, row);
        }
    }

    /// Writes the time for which a step is open, ns, or 0, and the steps since the last answer: begin, length, kind and tokens of each.
    pub fn answer(&self) -> String {
        let open = match self.open.load(Ordering::Relaxed) {
            0 => 0,
            begin => now().saturating_sub(begin),
        };
        let ended = self.ended.load(Ordering::Relaxed);
        let answered = self.answered.swap(ended, Ordering::Relaxed);
        let mut text = open.to_string();
        let first = answered.max(ended.saturating_sub(ANSWERED));
        let newest = (first..ended).filter_map(|at| self.rows.get(at as usize % KEPT));
        let longest = (first > answered).then_some(&self.longest);
        for row in longest.into_iter().chain(newest) {
            let [begin, ns, work] = row.each_ref().map(|value| value.load(Ordering::Relaxed));
            text += &format!(" {begin},{ns},{},{}", work >> 32, work & u64::from(u32::MAX));
        }
        store(&self.longest, [0; 3]);
        text
    }
}

/// Returns the kind of a step and its tokens, the numbers in parentheses in its name.
fn work_of(message: &Message<'_>) -> u64 {
    let kind = kind_of_message(message).unwrap_or(0) as u64;
    let name = if let Message::Inline(text) = message { text.0 } else { &[] };
    let digit = |byte: &&u8| byte.is_ascii_digit();
    let number = |part: &[u8]| {
        let digits = part.iter().take_while(digit);
        digits.fold(0_u32, |sum, byte| sum.saturating_mul(10).saturating_add(u32::from(byte - b'0')))
    };
    let tokens = name.split(|byte| *byte == b'(').skip(1).map(number).fold(0, u32::saturating_add);
    kind << 32 | u64::from(tokens)
}

/// Counts a range that is a step and not inside another one.
pub fn count_step(steps: &AtomicU64, open: &OpenStep, domain: u32, message: &Message<'_>) {
    match open.get() {
        Some((of, depth)) if of == domain => open.set(Some((of, depth.saturating_add(1)))),
        Some(_) => {}
        None if kind_of_message(message).is_some() => {
            open.set(Some((domain, 0)));
            steps.fetch_add(1, Ordering::Relaxed);
        }
        None => {}
    }
}

/// The duty cycle of a recording.
pub struct Cycle {
    /// True while the cycle runs. A recording that starts dormant waits for a request.
    active: AtomicBool,
    /// Time at which it started, ns.
    started: AtomicU64,
    duty: Duty,
    /// Thread whose steps count, 0 for none.
    owner: AtomicU32,
    /// Begin of the last step, ns; 0 for none.
    last: AtomicU64,
    counts: [AtomicU32; KINDS],
    /// The measurement of the cost; used by one thread, the owner.
    trial: Option<Mutex<Trial>>,
}

impl Cycle {
    pub fn new(duty: Duty, active: bool) -> Self {
        Self {
            active: AtomicBool::new(active),
            started: AtomicU64::new(now()),
            duty,
            owner: AtomicU32::new(0),
            last: AtomicU64::new(0),
            counts: [const { AtomicU32::new(0) }; KINDS],
            trial: duty.budget_ppm.map(|ppm| Mutex::new(Trial::new(ppm, duty.every))),
        }
    }

    /// Starts or stops the cycle. Its first steps are counted from the start.
    pub fn set_active(&self, active: bool) {
        if active {
            self.started.store(now(), Ordering::Relaxed);
            self.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        }
        self.active.store(active, Ordering::Relaxed);
    }

    /// Returns true while the cycle runs.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Returns the time since the cycle started; `None` while it does not run.
    pub fn active_for(&self) -> Option<Duration> {
        let since = now().saturating_sub(self.started.load(Ordering::Relaxed));
        self.is_active().then(|| Duration::from_nanos(since))
    }

    /// Handles a range before it begins. Returns true if it is a step to record, and false if it is another step.
    pub fn push(&self, tid: u32, open: &OpenStep, domain: u32, message: &Message<'_>) -> Option<bool> {
        if let Some((of, depth)) = open.get() {
            // A step inside a step is the same work again.
            if of == domain {
                open.set(Some((of, depth.saturating_add(1))));
            }
            return None;
        }
        let kind = kind_of_message(message)?;
        if !self.owns(tid, now()) {
            return None;
        }
        open.set(Some((domain, 0)));
        self.is_active().then(|| self.is_recorded(kind))
    }

    /// Handles a range after it ended.
    pub fn pop(open: &OpenStep, domain: u32) {
        if let Some((of, depth)) = open.get()
            && of == domain
        {
            open.set(depth.checked_sub(1).map(|depth| (of, depth)));
        }
    }

    fn is_recorded(&self, kind: usize) -> bool {
        let Some(count) = self.counts.get(kind) else {
            return false;
        };
        let Duty { mut every, mut first, steps, .. } = self.duty;
        if let Some(trial) = &self.trial {
            match lock(trial).step(kind, now()) {
                Plan::OneOf(measured) => (every, first) = (measured, 0),
                Plan::Measure(on) => return on,
            }
        }
        let before = count.fetch_add(1, Ordering::Relaxed);
        match before.checked_sub(first) {
            Some(later) => later % steps.saturating_mul(every) < steps,
            None => true,
        }
    }

    /// Notes that the recording was turned on or off for a step, which is about to begin.
    pub fn switched(&self) {
        if let Some(trial) = &self.trial {
            lock(trial).switched(now());
        }
    }

    /// Returns true if the steps of this thread count: it is the first one with steps, or the first one has none any more.
    fn owns(&self, tid: u32, at: u64) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        let over = at.saturating_sub(self.last.load(Ordering::Relaxed)) > STEPS_OVER;
        if owner != tid && owner != 0 && !over {
            return false;
        }
        self.owner.store(tid, Ordering::Relaxed);
        self.last.store(at, Ordering::Relaxed);
        true
    }

    /// Returns true while the program marks its steps.
    pub fn by_steps(&self) -> bool {
        let last = self.last.load(Ordering::Relaxed);
        last != 0 && now().saturating_sub(last) <= STEPS_OVER
    }
}

/// The cycle by time, run by the flush thread.
pub struct Clock {
    next: Instant,
    on: bool,
    /// True until the first window has begun.
    first: bool,
}

/// A turn of the cycle by time.
pub struct Turn {
    /// True to record from now on, false to stop; `None` to go on.
    pub set: Option<bool>,
    /// Time of the next turn.
    pub next: Instant,
}

impl Clock {
    /// Creates a clock that begins with a recorded window.
    pub fn new() -> Self {
        Self { next: Instant::now(), on: false, first: true }
    }

    /// Returns the turn that is due.
    pub fn turn(&mut self, cycle: &Cycle) -> Turn {
        let turn = |set, next| Turn { set, next };
        if !cycle.is_active() {
            // The flush thread is woken when the cycle starts.
            *self = Self::new();
            return turn(None, Instant::now() + Duration::from_secs(3600));
        }
        if Instant::now() < self.next {
            return turn(None, self.next);
        }
        let Duty { every, window, .. } = cycle.duty;
        if cycle.by_steps() {
            self.on = false;
            self.next = Instant::now() + window;
            return turn(None, self.next);
        }
        self.on = !self.on;
        let length = match (self.on, self.first) {
            (true, true) => window.max(Duration::from_nanos(STEPS_OVER)),
            (true, false) => window,
            (false, _) => window.saturating_mul(every.saturating_sub(1)),
        };
        self.first = false;
        self.next = Instant::now() + length;
        turn(Some(self.on), self.next)
    }
}

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
enum Plan {
    /// The trial goes on: the step is recorded, or not.
    Measure(bool),
    /// The trial is over: one of so many steps is recorded.
    OneOf(u32),
}

/// The trial of a duty cycle.
#[derive(Debug)]
struct Trial {
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
    fn new(budget_ppm: u32, otherwise: u32) -> Self {
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
    fn step(&mut self, kind: usize, at: u64) -> Plan {
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
    fn switched(&mut self, at: u64) {
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
    use roofgap_wire::Text;

    fn cycle(every: u32, first: u32, steps: u32) -> Cycle {
        let window = Duration::from_millis(50);
        let duty = Duty { every, window, first, steps, budget_ppm: None };
        Cycle::new(duty, true)
    }

    #[test]
    fn ended_steps_are_answered_once_with_their_work() {
        let log = StepLog::new();
        assert_eq!(log.answer(), "0");
        let begun = log.begin(&Message::Inline(Text(b"execute_context_2(768)_generation_14(14)")));
        assert_eq!(begun.1, 2 << 32 | 782);
        let open = log.answer();
        assert!(!open.contains(' ') && open.parse::<u64>().is_ok(), "{open}");
        log.end(begun);
        let answer = log.answer();
        let (open, step) = answer.split_once(' ').unwrap();
        assert_eq!(open, "0");
        assert!(step.starts_with(&format!("{},", begun.0)) && step.ends_with(",2,782"), "{step}");
        assert_eq!(log.answer(), "0");
        // Of more steps than are kept, the newest and the longest are answered.
        log.end((1_000, 7));
        (0..2 * KEPT).for_each(|_| log.end(log.begin(&Message::None)));
        let answer = log.answer();
        assert_eq!(answer.split(' ').count() as u64, 2 + ANSWERED);
        assert!(answer.starts_with("0 1000,") && answer.contains(",0,7 "), "{answer}");
        assert!(answer.len() < 8192, "a client reads no more");
    }

    #[test]
    fn steps_of_the_known_programs_are_found() {
        for (name, kind) in [
            ("decode_step", 0),
            ("LLM@decode_step", 0),
            ("prefill", 1),
            ("execute_context_2(768)_generation_14(14)", 2),
            ("execute_context_0(0)_generation_14(14)", 3),
            ("[Executor] _forward_step 100: 2 ctx reqs, 4096 ctx tokens, 30 gen reqs", 4),
            ("scheduler.run_batch", 5),
        ] {
            assert_eq!(kind_of(name.as_bytes()), Some(kind), "{name}");
            assert!(kind < KINDS);
        }
        for name in ["decode_all", "decode_steps", "execute_model", "sam", ""] {
            assert_eq!(kind_of(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn one_of_n_steps_of_each_kind_is_recorded() {
        let cycle = cycle(4, 0, 1);
        let recorded: Vec<bool> = (0..9).map(|_| cycle.is_recorded(0)).collect();
        assert_eq!(recorded, [true, false, false, false, true, false, false, false, true]);
        assert!(cycle.is_recorded(1), "the first of another kind");
    }

    #[test]
    fn the_first_steps_are_all_recorded_and_then_some_in_a_row() {
        let cycle = cycle(3, 1, 2);
        for _ in 0..2 {
            let recorded: Vec<bool> = (0..9).map(|_| cycle.is_recorded(0)).collect();
            assert_eq!(recorded, [true, true, true, false, false, false, false, true, true]);
            // A new request begins anew.
            cycle.set_active(true);
        }
    }

    #[test]
    fn the_steps_of_one_thread_count_until_it_has_none() {
        let cycle = cycle(4, 0, 1);
        assert!(cycle.owns(7, 10) && cycle.owns(7, 20));
        assert!(!cycle.owns(8, 30));
        assert!(cycle.owns(8, 30 + STEPS_OVER));
        assert!(!cycle.owns(7, 40 + STEPS_OVER));
    }

    #[test]
    fn a_step_inside_a_step_counts_once() {
        let (steps, open) = (AtomicU64::new(0), OpenStep::new(None));
        let push = |name: &'static [u8]| count_step(&steps, &open, 3, &Message::Inline(Text(name)));
        push(b"layer");
        push(b"prefill");
        push(b"decode_step");
        Cycle::pop(&open, 3);
        Cycle::pop(&open, 3);
        push(b"decode_step");
        assert_eq!(steps.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn registered_strings_and_nested_ranges_are_followed() {
        register(4000, b"decode_step");
        assert_eq!(kind_of_message(&Message::Registered(4000)), Some(0));
        assert_eq!(kind_of_message(&Message::Registered(4001)), None);
        assert_eq!(kind_of_message(&Message::Registered(u32::MAX)), None);
        assert_eq!(kind_of_message(&Message::Inline(Text(b"prefill"))), Some(1));
        let open = OpenStep::new(Some((3, 1)));
        Cycle::pop(&open, 9);
        assert_eq!(open.get(), Some((3, 1)));
        Cycle::pop(&open, 3);
        assert_eq!(open.get(), Some((3, 0)));
        Cycle::pop(&open, 3);
        assert_eq!(open.get(), None);
    }
}

#[cfg(test)]
mod trial_tests {
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
