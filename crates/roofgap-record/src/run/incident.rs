//! Keeps the last seconds of a watched program when something happens: a slow step, a step that does not end, a signal, a line of a log.
//!
//! The collector keeps its last records in a ring, and samplers keep stacks and vitals. Nothing is sent to the program but questions to
//! the collector, which threads of its own answer; a process that does not answer is left alone, and its files are copied as they are.

use super::attach::{CaptureProps, Samplers, check, take_account, write_run};
use super::context::PhaseContext;
use super::phases::stacks_now;
use roofgap_analyze::{INCIDENT_SCHEMA, Incident, IncidentProcess, IncidentThread, IncidentTrigger};
use roofgap_base::clock;
use roofgap_base::error::Error;
use roofgap_base::numbers::{counted, significant, time};
use roofgap_base::stats::{median, median_f64};
use roofgap_collect::child::Cancel;
use roofgap_collect::watch::{StepTime, WatchedProcess, ask_within, steps};
use roofgap_collect::{entries, process};
use roofgap_runs::run_dir::folder::write_json;
use roofgap_runs::run_dir::{Layout, PhaseStatus};
use roofgap_trace::native::older_segment;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Interval between looks at the steps of the program.
const LOOK: Duration = Duration::from_millis(50);

/// Longest wait for an answer of the collector.
const PATIENCE: Duration = Duration::from_secs(1);

/// Interval between looks for new processes.
const NEW_PROCESSES: Duration = Duration::from_secs(1);

/// Time after which samplers begin new files.
const SAMPLES: Duration = Duration::from_secs(120);

/// Shortest time between two incidents.
const APART: Duration = Duration::from_secs(5);

/// Most incidents in an hour.
const MOST_INCIDENTS: usize = 20;
const HOUR: Duration = Duration::from_secs(3600);

/// Steps of a kind that are known before one of them can be slow, and most that are kept.
const LEAST_STEPS: usize = 8;
const MOST_STEPS: usize = 256;

/// Shortest time beyond the expected one that is an incident, ns.
const LEAST_EXCESS_NS: u64 = 10_000_000;

/// Size limit of the captures of an incident, and of what is read of a log at a time, bytes.
const MOST_BYTES: u64 = 44 << 20;
const MOST_TEXT: u64 = 1 << 20;

/// Most processes and threads of a process that are listed.
const MOST_PROCESSES: usize = 64;
const MOST_THREADS: usize = 64;

/// Moments that are kept.
#[derive(Debug, Clone)]
pub struct Triggers {
    /// Time of a step over the expected one.
    pub slow: f64,
    /// Time after which a step does not end.
    pub hang: Duration,
    /// Log, and the text in one of its lines.
    pub line: Option<(PathBuf, String)>,
}

/// Something that happened.
struct Trigger {
    kind: IncidentTrigger,
    what: String,
    /// End of the step, ns since the epoch, and its time, ns.
    step: Option<(u64, u64)>,
}

impl Trigger {
    fn new(kind: IncidentTrigger, what: String) -> Self {
        Self { kind, what, step: None }
    }
}

/// An incident and its run, or why it could not be kept.
pub type Kept = Result<(Incident, PathBuf), Error>;

/// Keeps moments of a watched program until `is_over`. `signalled` tells whether a signal has come since it was last asked. `tell` gets each
/// incident and its run, or why it could not be kept.
pub fn record_incidents(
    props: &CaptureProps,
    triggers: &Triggers,
    is_over: &mut dyn FnMut() -> bool,
    signalled: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(Kept),
) -> Result<(), Error> {
    let mut recorder = Recorder {
        props,
        steps: StepWatch::new(triggers.slow, triggers.hang),
        log: triggers.line.as_ref().map(|(path, text)| LogTail::at_end(path, text)),
        processes: Vec::new(),
        looked: Instant::now(),
        samplers: Vec::new(),
        sampled_since: Instant::now(),
        sampler_folders: 0,
        kept: VecDeque::new(),
        refused: 0,
    };
    recorder.begin_samples()?;
    while !is_over() {
        std::thread::sleep(LOOK);
        recorder.tend()?;
        let signal =
            signalled().then(|| Trigger::new(IncidentTrigger::Signal, "a signal asked for it".into()));
        let happened = signal.or_else(|| recorder.look());
        if let Some(trigger) = happened.filter(|_| recorder.may_keep()) {
            tell(recorder.keep(trigger));
        }
    }
    Ok(())
}

struct Recorder<'a> {
    props: &'a CaptureProps,
    steps: StepWatch,
    log: Option<LogTail>,
    /// Processes with a collector, and the time of the last look for them.
    processes: Vec<WatchedProcess>,
    looked: Instant,
    /// The running samplers last, after those of before whose files are kept.
    samplers: Vec<Samplers>,
    sampled_since: Instant,
    sampler_folders: u64,
    /// Times of the incidents of the last hour.
    kept: VecDeque<Instant>,
    /// Triggers since the last incident that were not kept.
    refused: u64,
}

impl Recorder<'_> {
    /// Begins new files of the samplers from time to time, and turns the recording on again where a capture has turned it off.
    fn tend(&mut self) -> Result<(), Error> {
        if self.sampled_since.elapsed() < SAMPLES {
            return Ok(());
        }
        self.begin_samples()?;
        let running = self.samplers.len() - 1;
        self.samplers.drain(..running.saturating_sub(1));
        // What was not sampled is said with the next incident, for the samplers of that time.
        self.samplers.first_mut().map(Samplers::pause);
        for process in self.props.watched.processes() {
            // A process that does not answer is asked again later.
            let _ = ask_within(&process.socket, "arm", PATIENCE);
        }
        Ok(())
    }

    /// Starts samplers beside those before them.
    fn begin_samples(&mut self) -> Result<(), Error> {
        self.samplers.push(Samplers::begin(self.props, &format!("ring-{}", self.sampler_folders))?);
        self.sampler_folders += 1;
        self.sampled_since = Instant::now();
        Ok(())
    }

    /// Looks for something that happened.
    fn look(&mut self) -> Option<Trigger> {
        if self.looked.elapsed() >= NEW_PROCESSES || self.processes.is_empty() {
            (self.processes, self.looked) = (self.props.watched.processes(), Instant::now());
        }
        let mut trigger = None;
        for process in &self.processes {
            if let Ok(news) = steps(&process.socket, PATIENCE) {
                let slow = self.steps.judge(process.pid, &news.ended);
                trigger = trigger.or(slow).or_else(|| self.steps.hang(process.pid, news.open_ns));
            }
        }
        trigger.or_else(|| self.log.as_mut()?.look())
    }

    /// Tells whether one more incident is kept, and counts those that are not.
    fn may_keep(&mut self) -> bool {
        while self.kept.pop_front_if(|at| at.elapsed() > HOUR).is_some() {}
        let is_apart = self.kept.back().is_none_or(|last| last.elapsed() >= APART);
        let may = is_apart && self.kept.len() < MOST_INCIDENTS;
        self.refused += u64::from(!may);
        may
    }

    /// Writes the run of an incident.
    fn keep(&mut self, trigger: Trigger) -> Kept {
        let began = Instant::now();
        self.kept.push_back(began);
        let now = clock::now();
        let unix_ns = i64::try_from(now.as_nanosecond()).unwrap_or(i64::MAX);
        let mut incident = Incident {
            schema: INCIDENT_SCHEMA.to_owned(),
            at: now.to_string(),
            unix_ns: trigger.step.map_or(unix_ns, |(end, _)| signed(end)),
            trigger: trigger.kind,
            what: trigger.what,
            step_ns: trigger.step.map(|(_, ns)| signed(ns)),
            dump_ms: 0,
            cause: None,
            processes: Vec::new(),
            notes: Vec::new(),
        };
        if self.refused > 0 {
            let refused = counted(std::mem::take(&mut self.refused), "trigger");
            incident.notes.push(format!("{refused} since the last incident not kept"));
        }
        self.begin_samples()?;
        let running = self.samplers.len() - 1;
        let mut samplers: Vec<Samplers> = self.samplers.drain(..running).collect();
        let props = self.props;
        let fill = |context: &mut PhaseContext<'_>| {
            take_ring(context, props, trigger.kind, &mut incident.notes);
            incident.processes = processes(props.watched.registration.pid);
            for (number, sampler) in samplers.iter_mut().enumerate() {
                incident.notes.extend(sampler.pause());
                incident.notes.extend(sampler.copy(context, &format!("{number}-")));
            }
            take_account(context, props);
            incident.dump_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            match write_json(&context.layout.incident(), &incident) {
                Ok(()) => check(context),
                Err(error) => PhaseStatus::failed(error.to_string(), None),
            }
        };
        let outcome = write_run(props, &Cancel::new(), &mut |_| {}, fill)?;
        if let Some(explained) = outcome.analysis.and_then(|analysis| analysis.incident) {
            incident = explained;
            write_json(&Layout::of(&outcome.run_dir).incident(), &incident)?;
        }
        Ok((incident, outcome.run_dir))
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// Copies what the collector holds of each process into the run directory.
fn take_ring(
    context: &PhaseContext<'_>,
    props: &CaptureProps,
    why: IncidentTrigger,
    notes: &mut Vec<String>,
) {
    let mut left = MOST_BYTES;
    let Ok(to) = context.run_dir.folder("native") else { return };
    for process in props.watched.processes() {
        let ask = |command: &str| ask_within(&process.socket, command, PATIENCE).is_ok();
        let name = format!("{}-", process.pid);
        let is_its_capture = |path: &PathBuf| {
            let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            file.starts_with(&name) && file.ends_with(".rgcap")
        };
        let captures = entries(&props.watched.captures());
        let Some(file) = captures.into_iter().rfind(is_its_capture) else { continue };
        let to = to.join(file.file_name().unwrap_or_default());
        let mut copy = |from: &Path, to: &Path| {
            let size = fs::metadata(from).map_or(0, |facts| facts.len());
            if size == 0 || size > left {
                return size == 0;
            }
            left -= size;
            fs::copy(from, to).is_ok()
        };
        // What hangs may hold a lock of CUPTI, which a flush would wait for.
        let answers = why == IncidentTrigger::NoStep || ask("flush");
        if !copy(&older_segment(&file), &older_segment(&to)) {
            notes.push(format!("process {}: the older half of its ring was too large", process.pid));
        }
        let current = if answers && ask("cut") { older_segment(&file) } else { file.clone() };
        if !copy(&current, &to) {
            notes.push(format!("process {}: its capture could not be copied", process.pid));
        }
    }
}

/// Describes the processes below another one, but for the samplers, which are processes of this program.
fn processes(ancestor: i32) -> Vec<IncidentProcess> {
    let all = process::all();
    let mut tree = HashSet::from([ancestor]);
    process::add_descendants(&mut tree, &all);
    tree.remove(&ancestor);
    let program = |pid: &str| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let this = program("self");
    let stacks = stacks_now(ancestor.unsigned_abs());
    let below = all.into_iter().filter(|process| tree.contains(&process.pid) && !process.is_zombie());
    let others = below.filter(|process| program(&process.pid.to_string()) != this);
    others.take(MOST_PROCESSES).map(|process| describe(process, &stacks)).collect()
}

/// Describes a process, with the threads that do something or whose stack is known.
fn describe(process: process::Process, stacks: &[(u32, u32, Vec<String>)]) -> IncidentProcess {
    let pid = process.pid.unsigned_abs();
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let read = |file: PathBuf| fs::read_to_string(file).unwrap_or_default();
    let status = read(folder.join("status"));
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    let tasks = fs::read_dir(folder.join("task")).into_iter().flatten().flatten().map(|task| task.path());
    let thread = |task: PathBuf| {
        let tid = task.file_name()?.to_str()?.parse::<u32>().ok()?;
        let facts = process::find(tid.cast_signed())?;
        let stack = stacks.iter().find(|sample| (sample.0, sample.1) == (pid, tid));
        let stack = stack.map(|sample| sample.2.clone()).unwrap_or_default();
        let is_listed = tid == pid || !stack.is_empty() || facts.state != 'S';
        is_listed.then(|| IncidentThread {
            tid,
            name: facts.name,
            state: facts.state.to_string(),
            waits_in: Some(read(task.join("wchan"))).filter(|place| !matches!(place.trim(), "" | "0")),
            stack,
        })
    };
    IncidentProcess {
        pid,
        name: process.name,
        resident_bytes: resident.and_then(|kb| Some(kb.parse::<u64>().ok()? * 1024)),
        threads: tasks.filter_map(thread).take(MOST_THREADS).collect(),
    }
}

/// Steps of the program so far, by process and kind, and the time of a slow one over the expected one.
struct StepWatch {
    slow: f64,
    hang: Duration,
    known: BTreeMap<(i32, u64), VecDeque<(u64, u64)>>,
    /// Processes whose open step was told.
    told: Vec<i32>,
}

impl StepWatch {
    fn new(slow: f64, hang: Duration) -> Self {
        Self { slow, hang, known: BTreeMap::new(), told: Vec::new() }
    }

    /// Adds the steps of a process. Returns the one that is furthest beyond the time that others of its kind and its tokens explain.
    fn judge(&mut self, pid: i32, ended: &[StepTime]) -> Option<Trigger> {
        let mut worst: Option<(u64, StepTime)> = None;
        for step in ended {
            let known = self.known.entry((pid, step.kind)).or_default();
            if let Some(expected) = expected_ns(known, step.tokens)
                && step.ns as f64 > self.slow * expected as f64
                && step.ns.saturating_sub(expected) >= LEAST_EXCESS_NS
                && worst.is_none_or(|(excess, _)| step.ns - expected > excess)
            {
                worst = Some((step.ns - expected, *step));
            }
            known.push_back((step.tokens, step.ns));
            if known.len() > MOST_STEPS {
                known.pop_front();
            }
        }
        if !ended.is_empty() {
            self.told.retain(|told| *told != pid);
        }
        let (excess, step) = worst?;
        let [took, expected] = [step.ns, step.ns - excess].map(|ns| time(signed(ns)));
        let what = format!("a step took {took}; {expected} was expected");
        let step = Some((step.begin_ns + step.ns, step.ns));
        Some(Trigger { step, ..Trigger::new(IncidentTrigger::SlowStep, what) })
    }

    /// Returns a step that does not end, once.
    fn hang(&mut self, pid: i32, open_ns: u64) -> Option<Trigger> {
        if Duration::from_nanos(open_ns) < self.hang || self.told.contains(&pid) {
            return None;
        }
        self.told.push(pid);
        let seconds = significant(open_ns as f64 / 1e9);
        let what = format!("a step of process {pid} has not ended after {seconds} s");
        Some(Trigger::new(IncidentTrigger::NoStep, what))
    }
}

/// Returns the time that a step with these tokens is expected to take, ns: that of others of its kind, and more in proportion to more tokens.
fn expected_ns(known: &VecDeque<(u64, u64)>, tokens: u64) -> Option<u64> {
    if known.len() < LEAST_STEPS {
        return None;
    }
    let mut times: Vec<i64> = known.iter().map(|(_, ns)| signed(*ns)).collect();
    let mut work: Vec<f64> = known.iter().map(|(tokens, _)| *tokens as f64).collect();
    let (time, usual) = (median(&mut times)?, median_f64(&mut work)?);
    let more = if usual > 0.0 { (tokens as f64 / usual).max(1.0) } else { 1.0 };
    Some((time as f64 * more) as u64)
}

/// The end of a log that grows.
struct LogTail {
    path: PathBuf,
    text: String,
    read: u64,
}

impl LogTail {
    fn at_end(path: &Path, text: &str) -> Self {
        let read = fs::metadata(path).map_or(0, |facts| facts.len());
        Self { path: path.to_owned(), text: text.to_owned(), read }
    }

    /// Reads new lines. A line that is not complete is read again.
    fn look(&mut self) -> Option<Trigger> {
        let length = fs::metadata(&self.path).ok()?.len();
        // A log that was begun anew is read from its start.
        self.read = if length < self.read { 0 } else { self.read.max(length.saturating_sub(MOST_TEXT)) };
        if length == self.read {
            return None;
        }
        let mut file = File::open(&self.path).ok()?;
        file.seek(SeekFrom::Start(self.read)).ok()?;
        let mut bytes = Vec::new();
        file.take(MOST_TEXT).read_to_end(&mut bytes).ok()?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.read += whole as u64;
        let text = String::from_utf8_lossy(bytes.get(..whole)?).into_owned();
        let line = text.lines().find(|line| line.contains(&self.text))?;
        let short: String = line.chars().take(200).collect();
        Some(Trigger::new(IncidentTrigger::LogLine, format!("the log says: {short}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const MS: u64 = 1_000_000;

    fn step(ns: u64, tokens: u64) -> StepTime {
        StepTime { begin_ns: 1_000 * MS, ns, kind: 2, tokens }
    }

    #[test]
    fn a_slow_step_is_one_that_its_tokens_do_not_explain() {
        let mut watch = StepWatch::new(3.0, Duration::from_secs(10));
        assert!(watch.judge(1, &[step(900 * MS, 0)]).is_none(), "nothing is known yet");
        let usual: Vec<StepTime> = (0..20).map(|_| step(10 * MS, 100)).collect();
        assert!(watch.judge(1, &usual).is_none());
        assert!(watch.judge(1, &[step(29 * MS, 100)]).is_none(), "less than three times");
        assert!(watch.judge(1, &[step(200 * MS, 2_000)]).is_none(), "a longer prompt");
        let slow = watch.judge(1, &[step(50 * MS, 100), step(90 * MS, 100), step(40 * MS, 100)]).unwrap();
        assert_eq!(slow.step, Some((1_090 * MS, 90 * MS)));
        assert!(slow.what.starts_with("a step took 90.0 ms; 10.0 ms was expected"), "{}", slow.what);
        assert!(watch.judge(2, &[step(90 * MS, 100)]).is_none(), "another process");
        // Short steps are slow for many reasons that nobody notices.
        let mut short = StepWatch::new(3.0, Duration::from_secs(10));
        short.judge(1, &[step(MS, 0); 20]);
        assert!(short.judge(1, &[step(9 * MS, 0)]).is_none());
    }

    #[test]
    fn a_step_that_does_not_end_is_told_once() {
        let mut watch = StepWatch::new(3.0, Duration::from_secs(2));
        assert!(watch.hang(1, 1_900 * MS).is_none());
        assert_eq!(watch.hang(1, 2_100 * MS).unwrap().kind, IncidentTrigger::NoStep);
        assert!(watch.hang(1, 9_000 * MS).is_none());
        watch.judge(1, &[step(9_000 * MS, 0)]);
        assert!(watch.hang(1, 2_100 * MS).is_some(), "the next one");
    }

    #[test]
    fn a_line_counts_once_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, "an old ERROR\n").unwrap();
        let mut tail = LogTail::at_end(&path, "ERROR");
        assert!(tail.look().is_none());
        let add = |text: &str| {
            let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        add("fine\nERROR: out");
        assert!(tail.look().is_none());
        add(" of memory\nmore\n");
        assert_eq!(tail.look().unwrap().what, "the log says: ERROR: out of memory");
        assert!(tail.look().is_none());
        fs::write(&path, "ERROR\n").unwrap();
        assert!(tail.look().is_some(), "a log that was begun anew");
    }
}
