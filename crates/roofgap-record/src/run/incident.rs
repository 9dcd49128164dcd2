//! Keeps the last seconds of a watched program when something happens: a slow step, steps that become slower, a step that does not end, a
//! signal, a request, a line of a log, a gauge of the engine.
//!
//! The collector keeps its last records in a ring, and samplers keep stacks and vitals. Nothing is sent to the program but questions to
//! the collector, which threads of its own answer; a process that does not answer is left alone, and its files are copied as they are.

use super::attach::{CaptureProps, Samplers, check, take_account, write_run};
use super::context::PhaseContext;
use super::phases::stacks_now;
use crate::traffic::{agent, exported, get};
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
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Interval between looks at the steps of the program.
const LOOK: Duration = Duration::from_millis(50);

/// Longest wait for an answer of the collector.
const PATIENCE: Duration = Duration::from_secs(1);

/// Interval between looks for new processes, and at the metrics of the engine.
const SCRAPE: Duration = Duration::from_secs(1);

/// Time after which samplers begin new files.
const SAMPLES: Duration = Duration::from_secs(120);

/// Shortest time between two incidents.
const APART: Duration = Duration::from_secs(5);

/// Time in which no more than a number of incidents is kept.
const HOUR: Duration = Duration::from_secs(3600);

/// Steps of a kind that are known before one of them can be slow, and most that are kept.
const LEAST_STEPS: usize = 8;
const MOST_STEPS: usize = 256;

/// Shortest time beyond the expected one that is an incident, ns.
const LEAST_EXCESS_NS: u64 = 10_000_000;

/// Time of steps over the usual one from which on they have become slower, if it lasts.
const SLOWER: f64 = 1.5;

/// Length of the times whose steps are compared, ns; how many are slow before it lasts; fewest and most that are usual.
const SPELL_NS: u64 = 1_000_000_000;
const LASTS: usize = 2;
const LEAST_SPELLS: usize = 8;
const MOST_SPELLS: usize = 120;

/// Size limit of the captures of an incident, and of what is read of a log or of metrics at a time, bytes.
const MOST_BYTES: u64 = 44 << 20;
const MOST_TEXT: u64 = 1 << 20;

/// Answer to a request for an incident.
const ACCEPTED: &[u8] = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

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
    /// Address at which a request keeps a moment.
    pub listen: Option<SocketAddr>,
    /// Log, and the text in one of its lines.
    pub line: Option<(PathBuf, String)>,
    /// Gauge, and its limit.
    pub gauge: Option<(String, f64)>,
    /// Address of the engine's metrics.
    pub metrics: Option<String>,
    /// Most incidents an hour.
    pub most: usize,
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
pub type Kept<'a> = Result<(&'a Incident, &'a Path), Error>;

/// Keeps moments of a watched program until `is_over`. `signalled` tells whether a signal has come since it was last asked. `tell` gets each
/// incident and its run, or why it could not be kept.
pub fn record_incidents(
    props: &CaptureProps,
    triggers: &Triggers,
    is_over: &mut dyn FnMut() -> bool,
    signalled: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(Kept<'_>),
) -> Result<(), Error> {
    let mut recorder = Recorder::new(props, triggers)?;
    while !is_over() {
        std::thread::sleep(LOOK);
        recorder.tend()?;
        let signal =
            signalled().then(|| Trigger::new(IncidentTrigger::Signal, "a signal asked for it".into()));
        let found = signal.or_else(|| recorder.look());
        if let Some(trigger) = found.filter(|_| recorder.may_keep()) {
            match recorder.keep(trigger) {
                Ok((incident, run)) => tell(Ok((&incident, &run))),
                Err(error) => tell(Err(error)),
            }
        }
    }
    Ok(())
}

struct Recorder<'a> {
    props: &'a CaptureProps,
    triggers: &'a Triggers,
    steps: StepWatch,
    log: Option<LogTail>,
    listener: Option<Listener>,
    agent: ureq::Agent,
    /// Last answer of the engine, and the time of the last look.
    metrics: (Option<String>, Instant),
    is_above: bool,
    /// Processes with a collector, and the time of the last look.
    processes: (Vec<WatchedProcess>, Instant),
    /// The samplers, their files from before, and the time of their start.
    samplers: Samplers,
    earlier: Option<Samplers>,
    sampled_since: Instant,
    number: u64,
    kept: VecDeque<Instant>,
    refused: u64,
}

impl<'a> Recorder<'a> {
    fn new(props: &'a CaptureProps, triggers: &'a Triggers) -> Result<Self, Error> {
        let log = triggers.line.as_ref().map(|(path, text)| LogTail::at_end(path, text));
        Ok(Self {
            props,
            triggers,
            steps: StepWatch::new(triggers.slow, triggers.hang),
            log,
            listener: triggers.listen.map(Listener::at).transpose()?,
            agent: agent(PATIENCE, 1),
            metrics: (None, Instant::now()),
            is_above: false,
            processes: (Vec::new(), Instant::now()),
            samplers: Samplers::begin(props, "ring-0")?,
            earlier: None,
            sampled_since: Instant::now(),
            number: 0,
            kept: VecDeque::new(),
            refused: 0,
        })
    }

    /// Begins new files of the samplers from time to time, and turns the recording on again where a capture has turned it off.
    fn tend(&mut self) -> Result<(), Error> {
        if self.sampled_since.elapsed() < SAMPLES {
            return Ok(());
        }
        let mut ended = self.begin_samples()?;
        // What was not sampled is said with the next incident, for the samplers of that time.
        let _ = ended.pause();
        self.earlier = Some(ended);
        for process in self.props.watched.processes() {
            // A process that does not answer is asked again later.
            let _ = ask_within(&process.socket, "arm", PATIENCE);
        }
        Ok(())
    }

    /// Starts samplers, and returns those before them.
    fn begin_samples(&mut self) -> Result<Samplers, Error> {
        self.number += 1;
        self.sampled_since = Instant::now();
        let new = Samplers::begin(self.props, &format!("ring-{}", self.number))?;
        Ok(std::mem::replace(&mut self.samplers, new))
    }

    /// Looks for something that happened.
    fn look(&mut self) -> Option<Trigger> {
        let mut found = None;
        if self.processes.1.elapsed() >= SCRAPE || self.processes.0.is_empty() {
            self.processes = (self.props.watched.processes(), Instant::now());
        }
        for process in &self.processes.0 {
            if let Ok(news) = steps(&process.socket, PATIENCE) {
                let slow = self.steps.judge(process.pid, &news.ended);
                found = found.or(slow).or_else(|| self.steps.hang(process.pid, news.open_ns));
            }
        }
        let asked = self.listener.as_ref().and_then(Listener::look);
        asked.or(found).or_else(|| self.log.as_mut()?.look()).or_else(|| self.gauge())
    }

    /// Looks at the metrics of the engine.
    fn gauge(&mut self) -> Option<Trigger> {
        let url = self.triggers.metrics.as_deref()?;
        if self.metrics.1.elapsed() < SCRAPE {
            return None;
        }
        self.metrics = (scrape(&self.agent, url), Instant::now());
        let (name, limit) = self.triggers.gauge.as_ref()?;
        let value = gauge(self.metrics.0.as_deref()?, name)?;
        let was_above = std::mem::replace(&mut self.is_above, value > *limit);
        let what = format!("{name} is {}, above {}", significant(value), significant(*limit));
        (self.is_above && !was_above).then(|| Trigger::new(IncidentTrigger::Gauge, what))
    }

    /// Tells whether one more incident is kept, and counts those that are not.
    fn may_keep(&mut self) -> bool {
        while self.kept.pop_front_if(|at| at.elapsed() > HOUR).is_some() {}
        let is_apart = self.kept.back().is_none_or(|last| last.elapsed() >= APART);
        let may = is_apart && self.kept.len() < self.triggers.most;
        self.refused += u64::from(!may);
        may
    }

    /// Writes the run of an incident.
    fn keep(&mut self, trigger: Trigger) -> Result<(Incident, PathBuf), Error> {
        let began = Instant::now();
        self.kept.push_back(began);
        let now = clock::now();
        let unix_ns = i64::try_from(now.as_nanosecond()).unwrap_or(i64::MAX);
        let mut incident = Incident {
            schema: INCIDENT_SCHEMA.to_owned(),
            at: now.to_string(),
            unix_ns: trigger.step.map_or(unix_ns, |(end, _)| i64::try_from(end).unwrap_or(i64::MAX)),
            trigger: trigger.kind,
            what: trigger.what,
            step_ns: trigger.step.map(|(_, ns)| i64::try_from(ns).unwrap_or(i64::MAX)),
            dump_ms: 0,
            cause: None,
            finding: None,
            processes: Vec::new(),
            notes: Vec::new(),
        };
        if self.refused > 0 {
            let refused = counted(self.refused, "trigger");
            incident.notes.push(format!("{refused} since the last incident not kept"));
            self.refused = 0;
        }
        let mut samplers = Vec::from_iter(self.earlier.take());
        samplers.push(self.begin_samples()?);
        let (props, metrics) = (self.props, self.triggers.metrics.as_deref());
        let agent = &self.agent;
        let fill = |context: &mut PhaseContext<'_>| {
            take_ring(context, props, trigger.kind, &mut incident.notes);
            incident.processes = processes(props.watched.registration.pid);
            for (number, sampler) in samplers.iter_mut().enumerate() {
                incident.notes.extend(sampler.pause());
                incident.notes.extend(sampler.copy(context, &format!("{number}-")));
            }
            take_account(context, props);
            if let Some(text) = metrics.and_then(|url| scrape(agent, url)) {
                let written = fs::write(context.layout.engine_metrics(), text);
                context.note_output(written.map(|()| context.layout.engine_metrics()));
            }
            incident.dump_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            let file = context.layout.incident();
            match write_json(&file, &incident) {
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

/// Asks for the metrics of an engine; `None` where it does not answer.
fn scrape(agent: &ureq::Agent, url: &str) -> Option<String> {
    get(agent, url, MOST_TEXT).ok().filter(|(status, _)| *status == 200).map(|(_, text)| text)
}

/// Returns the sum of a gauge over its labels in the text of Prometheus.
fn gauge(text: &str, name: &str) -> Option<f64> {
    let own = exported(text).filter(|(own, _)| *own == name);
    own.map(|(_, value)| value).reduce(|sum, value| sum + value)
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
        let own = |path: &PathBuf| {
            let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            file.starts_with(&name) && file.ends_with(".rgcap")
        };
        let captures = entries(&props.watched.captures());
        let Some(file) = captures.into_iter().rfind(own) else { continue };
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

/// Describes the processes below another one.
fn processes(ancestor: i32) -> Vec<IncidentProcess> {
    let all = process::all();
    let mut tree = HashSet::from([ancestor]);
    process::add_descendants(&mut tree, &all);
    let stacks = stacks_now(ancestor.unsigned_abs());
    let describe = |process: process::Process| {
        let pid = process.pid.unsigned_abs();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let resident =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let tids = tasks.filter_map(|task| task.file_name().to_str()?.parse::<i32>().ok());
        let thread = |tid: i32| {
            let found = process::of(tid)?;
            let stack = stacks.iter().find(|own| (own.0, own.1) == (pid, tid.unsigned_abs()));
            let stack = stack.map(|own| own.2.clone()).unwrap_or_default();
            let is_listed = tid == process.pid || !stack.is_empty() || found.state != 'S';
            let place = fs::read_to_string(format!("/proc/{pid}/task/{tid}/wchan")).unwrap_or_default();
            is_listed.then(|| IncidentThread {
                tid: tid.unsigned_abs(),
                name: found.name,
                state: found.state.to_string(),
                waits_in: Some(place).filter(|place| !matches!(place.trim(), "" | "0")),
                stack,
            })
        };
        IncidentProcess {
            pid,
            name: process.name.clone(),
            resident_bytes: resident.and_then(|kb| Some(kb.parse::<u64>().ok()? * 1024)),
            threads: tids.filter_map(thread).take(MOST_THREADS).collect(),
        }
    };
    let is_below = |pid: i32| pid != ancestor && tree.contains(&pid);
    let own = all.into_iter().filter(|process| is_below(process.pid) && !process.is_zombie());
    // Samplers are processes of this program.
    let program = |pid: &str| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let this = program("self");
    let own = own.filter(|process| program(&process.pid.to_string()) != this);
    own.take(MOST_PROCESSES).map(describe).collect()
}

/// Steps of the program so far, by process and kind, and the time of a slow one over the expected one.
struct StepWatch {
    slow: f64,
    hang: Duration,
    known: BTreeMap<(i32, u64), VecDeque<(u64, u64)>>,
    paces: BTreeMap<(i32, u64), Pace>,
    /// Processes whose open step was told.
    told: Vec<i32>,
}

impl StepWatch {
    fn new(slow: f64, hang: Duration) -> Self {
        Self { slow, hang, known: BTreeMap::new(), paces: BTreeMap::new(), told: Vec::new() }
    }

    /// Adds the steps of a process. Returns the one that is furthest beyond the time that others of its kind and its tokens explain.
    fn judge(&mut self, pid: i32, ended: &[StepTime]) -> Option<Trigger> {
        let (mut worst, mut slower): (Option<(u64, Trigger)>, _) = (None, None);
        for step in ended {
            slower = slower.or(self.paces.entry((pid, step.kind)).or_default().add(step));
            let known = self.known.entry((pid, step.kind)).or_default();
            if let Some(expected) = expected_ns(known, step.tokens)
                && step.ns as f64 > self.slow * expected as f64
                && step.ns.saturating_sub(expected) >= LEAST_EXCESS_NS
                && worst.as_ref().is_none_or(|(excess, _)| step.ns - expected > *excess)
            {
                let shown = |ns: u64| time(i64::try_from(ns).unwrap_or(i64::MAX));
                let what = format!("a step took {}; {} was expected", shown(step.ns), shown(expected));
                let step_end = Some((step.begin_ns + step.ns, step.ns));
                let trigger = Trigger { step: step_end, ..Trigger::new(IncidentTrigger::SlowStep, what) };
                worst = Some((step.ns - expected, trigger));
            }
            known.push_back((step.tokens, step.ns));
            if known.len() > MOST_STEPS {
                known.pop_front();
            }
        }
        if !ended.is_empty() {
            self.told.retain(|told| *told != pid);
        }
        worst.map(|(_, trigger)| trigger).or(slower)
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
    let mut times: Vec<i64> = known.iter().map(|(_, ns)| i64::try_from(*ns).unwrap_or(i64::MAX)).collect();
    let mut work: Vec<f64> = known.iter().map(|(tokens, _)| *tokens as f64).collect();
    let (time, usual) = (median(&mut times)?, median_f64(&mut work)?);
    let more = if usual > 0.0 { (tokens as f64 / usual).max(1.0) } else { 1.0 };
    Some((time as f64 * more) as u64)
}

/// The usual time of steps, second by second.
#[derive(Default)]
struct Pace {
    /// End of the second, and tokens and times of its steps.
    end_ns: u64,
    steps: Vec<(u64, u64)>,
    /// Median tokens and times of the seconds before.
    spells: VecDeque<(f64, f64)>,
}

impl Pace {
    /// Adds a step. Returns a trigger where the steps of the last seconds took longer than those before, and their tokens do not explain it.
    fn add(&mut self, step: &StepTime) -> Option<Trigger> {
        let mut found = None;
        if step.begin_ns >= self.end_ns {
            let ended = std::mem::take(&mut self.steps);
            self.end_ns = step.begin_ns + SPELL_NS;
            if ended.len() >= LEAST_STEPS {
                self.spells
                    .push_back(medians(ended.iter().map(|(tokens, ns)| (*tokens as f64, *ns as f64)))?);
                found = self.slower();
            }
            if found.is_some() {
                // From now on this is their usual time.
                self.spells.clear();
            } else if self.spells.len() > MOST_SPELLS {
                self.spells.pop_front();
            }
        }
        self.steps.push((step.tokens, step.ns));
        found
    }

    fn slower(&self) -> Option<Trigger> {
        let known = self.spells.len().checked_sub(LASTS).filter(|known| *known >= LEAST_SPELLS)?;
        let (tokens, usual) = medians(self.spells.iter().take(known).copied())?;
        let expected = |own: f64| usual * if tokens > 0.0 { (own / tokens).max(1.0) } else { 1.0 };
        let is_slower = |(own, ns): &(f64, f64)| *ns > SLOWER * expected(*own);
        let (_, now) = *self.spells.back()?;
        let shown = |ns: f64| time(ns as i64);
        let what = format!("steps take {} since {LASTS} s; {} was usual", shown(now), shown(usual));
        let last = self.spells.iter().skip(known);
        last.clone().all(is_slower).then(|| Trigger::new(IncidentTrigger::SlowerSteps, what))
    }
}

/// Returns the medians of both sides of pairs.
fn medians(pairs: impl Iterator<Item = (f64, f64)>) -> Option<(f64, f64)> {
    let (mut first, mut second): (Vec<f64>, Vec<f64>) = pairs.unzip();
    Some((median_f64(&mut first)?, median_f64(&mut second)?))
}

/// An address at which a request keeps a moment.
struct Listener(TcpListener);

impl Listener {
    fn at(address: SocketAddr) -> Result<Self, Error> {
        let listener = TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        listener.map(Self).map_err(|error| Error::new(format!("cannot listen at {address}: {error}")))
    }

    /// Answers those who asked.
    fn look(&self) -> Option<Trigger> {
        let mut asked = None;
        while let Ok((mut stream, from)) = self.0.accept() {
            asked = Some(Trigger::new(IncidentTrigger::Request, format!("{} asked for it", from.ip())));
            // Who does not wait for the answer has asked all the same.
            let _ = stream.set_nonblocking(false);
            let _ = stream.set_read_timeout(Some(LOOK));
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(ACCEPTED);
        }
        asked
    }
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
        let found = watch.judge(1, &[step(50 * MS, 100), step(90 * MS, 100), step(40 * MS, 100)]).unwrap();
        assert_eq!(found.step, Some((1_090 * MS, 90 * MS)));
        assert!(found.what.starts_with("a step took 90.0 ms; 10.0 ms was expected"), "{}", found.what);
        assert!(watch.judge(2, &[step(90 * MS, 100)]).is_none(), "another process");
        // Short steps are slow for many reasons that nobody notices.
        let mut short = StepWatch::new(3.0, Duration::from_secs(10));
        short.judge(1, &[step(MS, 0); 20]);
        assert!(short.judge(1, &[step(9 * MS, 0)]).is_none());
    }

    #[test]
    fn steps_that_become_slower_are_told_once_if_it_lasts() {
        let mut watch = StepWatch::new(3.0, Duration::from_secs(10));
        let mut seconds = |seconds: std::ops::Range<u64>, ms: u64, tokens: u64| {
            let steps = seconds.flat_map(|second| (0..20).map(move |at| second * 1_000 * MS + at * 50 * MS));
            let steps: Vec<StepTime> =
                steps.map(|begin_ns| StepTime { begin_ns, ns: ms * MS, kind: 2, tokens }).collect();
            watch.judge(1, &steps)
        };
        assert!(seconds(1..11, 4, 8).is_none());
        assert!(seconds(11..12, 7, 8).is_none() && seconds(12..14, 4, 8).is_none(), "it did not last");
        assert!(seconds(14..18, 12, 24).is_none(), "larger batches");
        let slower = seconds(18..22, 7, 8).unwrap();
        assert_eq!(slower.kind, IncidentTrigger::SlowerSteps);
        assert!(
            slower.what.starts_with("steps take 7.00 ms since 2 s; 4.00 ms was usual"),
            "{}",
            slower.what
        );
        assert!(seconds(22..40, 7, 8).is_none(), "told");
    }

    #[test]
    fn a_request_keeps_a_moment_and_is_answered() {
        let listener = Listener::at(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        assert!(listener.look().is_none());
        let mut stream = std::net::TcpStream::connect(listener.0.local_addr().unwrap()).unwrap();
        stream.write_all(b"POST / HTTP/1.1\r\n\r\n").unwrap();
        let found = std::iter::repeat_with(|| listener.look()).flatten().next().unwrap();
        assert_eq!((found.kind, &*found.what), (IncidentTrigger::Request, "127.0.0.1 asked for it"));
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
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
    fn a_gauge_is_the_sum_over_its_labels() {
        let text = "# HELP vllm:num_requests_waiting x\nvllm:num_requests_waiting{model=\"a}b\"} 3.0\n\
                    vllm:num_requests_waiting{model=\"c\"} 4\nvllm:num_requests_waiting_total 9\nup 1\n";
        assert_eq!(gauge(text, "vllm:num_requests_waiting"), Some(7.0));
        assert_eq!((gauge(text, "up"), gauge(text, "down")), (Some(1.0), None));
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
