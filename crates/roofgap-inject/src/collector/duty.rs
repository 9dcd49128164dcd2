//! The duty cycle: records one of N steps where the program marks its steps, else a part of the time.
//!
//! A step is a push/pop range with a known name. The first steps of each kind are recorded, then one of N, several in a row. A window begins before
//! the range of its step and ends before the range of the next step that is not recorded. A program without steps is recorded until
//! it is clear that it has none, then one of N windows of time.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::now;
use super::options::Duty;
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
pub struct OpenStep(Cell<Option<(u32, u32)>>);

impl OpenStep {
    pub const fn none() -> Self {
        Self(Cell::new(None))
    }

    /// Returns true while a step is open.
    pub fn is_open(&self) -> bool {
        self.0.get().is_some()
    }

    /// Notes a range that begins. Returns the kind of the step that it opens, if `counts`; a step inside a step is the same work again.
    pub fn enter(&self, domain: u32, message: &Message<'_>, counts: impl FnOnce() -> bool) -> Option<usize> {
        if let Some((of_step, depth)) = self.0.get() {
            if of_step == domain {
                self.0.set(Some((of_step, depth.saturating_add(1))));
            }
            return None;
        }
        let kind = kind_of_message(message).filter(|_| counts())?;
        self.0.set(Some((domain, 0)));
        Some(kind)
    }

    /// Notes a range that ended. Returns true if the step ends with it.
    pub fn leave(&self, domain: u32) -> bool {
        let Some((of_step, depth)) = self.0.get().filter(|(of_step, _)| *of_step == domain) else {
            return false;
        };
        self.0.set(depth.checked_sub(1).map(|depth| (of_step, depth)));
        depth == 0
    }
}

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
    pub fn begin(&self, kind: usize, message: &Message<'_>) -> (u64, u64) {
        let at = now();
        self.open.store(at, Ordering::Relaxed);
        (at, (kind as u64) << 32 | u64::from(tokens_of(message)))
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

/// Returns the tokens of a step, the numbers in parentheses in its name.
fn tokens_of(message: &Message<'_>) -> u32 {
    let name = if let Message::Inline(text) = message { text.0 } else { &[] };
    let digit = |byte: &&u8| byte.is_ascii_digit();
    let number = |part: &[u8]| {
        let digits = part.iter().take_while(digit);
        digits.fold(0_u32, |sum, byte| sum.saturating_mul(10).saturating_add(u32::from(byte - b'0')))
    };
    name.split(|byte| *byte == b'(').skip(1).map(number).fold(0, u32::saturating_add)
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

    /// Returns whether a step that begins is to be recorded; `None` while the cycle does not run.
    pub fn turn(&self, kind: usize) -> Option<bool> {
        self.is_active().then(|| self.is_recorded(kind))
    }

    fn is_recorded(&self, kind: usize) -> bool {
        let Some(count) = self.counts.get(kind) else {
            return false;
        };
        let Duty { every, first, steps, .. } = self.duty;
        let before = count.fetch_add(1, Ordering::Relaxed);
        match before.checked_sub(first) {
            Some(later) => later % steps.saturating_mul(every) < steps,
            None => true,
        }
    }

    /// Returns true if the steps of this thread count: it is the first one with steps, or the first one has none any more.
    pub fn owns(&self, tid: u32, at: u64) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_wire::Text;

    fn cycle(every: u32, first: u32, steps: u32) -> Cycle {
        let window = Duration::from_millis(50);
        let duty = Duty { every, window, first, steps };
        Cycle::new(duty, true)
    }

    #[test]
    fn ended_steps_are_answered_once_with_their_work() {
        let log = StepLog::new();
        assert_eq!(log.answer(), "0");
        let begun = log.begin(2, &Message::Inline(Text(b"execute_context_2(768)_generation_14(14)")));
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
        (0..2 * KEPT).for_each(|_| log.end(log.begin(0, &Message::None)));
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
        let step = OpenStep::none();
        let enter = |name: &'static [u8]| step.enter(3, &Message::Inline(Text(name)), || true);
        assert_eq!((enter(b"layer"), enter(b"prefill"), enter(b"decode_step")), (None, Some(1), None));
        assert_eq!((step.leave(9), step.leave(3), step.leave(3)), (false, false, true));
        assert_eq!(enter(b"decode_step"), Some(0));
        assert!(step.leave(3) && !step.is_open());
        assert_eq!(step.enter(3, &Message::Inline(Text(b"prefill")), || false), None);
        assert!(!step.is_open());
    }

    #[test]
    fn registered_strings_have_their_kind() {
        register(4000, b"decode_step");
        assert_eq!(kind_of_message(&Message::Registered(4000)), Some(0));
        assert_eq!(kind_of_message(&Message::Registered(4001)), None);
        assert_eq!(kind_of_message(&Message::Registered(u32::MAX)), None);
        assert_eq!(kind_of_message(&Message::Inline(Text(b"prefill"))), Some(1));
    }
}
