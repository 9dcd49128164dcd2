//! The queue: sessions in the order of their requests, one at a time, because two on one GPU disturb each other.
//!
//! A requested session, as it is kept on disk.

use crate::api_error::ApiError;
use crate::request::RunRequest;
use crate::state::ServeProps;
use roofgap_base::clock;
use roofgap_base::file::{read_document, write_atomic};
use roofgap_collect::child::{Cancel, ChildSpec, OutputTarget, StopPlan, Watch, run};
use roofgap_runs::run_dir::folder::{RunId, RunState, run_state};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Interval between looks at a session of an earlier server.
const LOOK: Duration = Duration::from_millis(200);
/// Characters of an error that a record keeps.
const MOST_ERROR: usize = 4000;

/// Requested sessions.
#[derive(Debug)]
pub struct Queue {
    jobs: Mutex<Jobs>,
    changed: Condvar,
    folder: JobFolder,
    props: ServeProps,
}

#[derive(Debug, Default)]
struct Jobs {
    records: BTreeMap<String, JobRecord>,
    waiting: VecDeque<String>,
    running: Option<(String, Cancel)>,
    made: u64,
    ending: bool,
}

impl Queue {
    /// Opens the queue as an earlier server left it: what waited waits again.
    ///
    /// # Errors
    /// Fails if another server has it.
    pub fn open(props: &ServeProps) -> std::io::Result<Arc<Self>> {
        let folder = JobFolder::open(&props.runs)?;
        let mut jobs = Jobs::default();
        for record in folder.read()? {
            if record.state == JobState::Queued {
                jobs.waiting.push_back(record.job.clone());
            }
            jobs.records.insert(record.job.clone(), record);
        }
        jobs.made = jobs.records.len() as u64;
        Ok(Arc::new(Queue { jobs: Mutex::new(jobs), changed: Condvar::new(), folder, props: props.clone() }))
    }

    /// Adds a request.
    pub fn add(&self, request: RunRequest) -> Result<JobRecord, ApiError> {
        let mut jobs = self.lock();
        if jobs.ending {
            return Err(ApiError::Ending);
        }
        if jobs.waiting.len() >= self.props.limits.queue {
            return Err(ApiError::QueueFull(jobs.waiting.len()));
        }
        let surplus = surplus(jobs.records.values(), KEPT);
        jobs.records.retain(|job, _| !surplus.contains(job));
        self.folder.remove(&surplus);
        jobs.made += 1;
        let record = JobRecord::new(request, jobs.made);
        self.folder.write(&record).map_err(ApiError::Queue)?;
        jobs.waiting.push_back(record.job.clone());
        jobs.records.insert(record.job.clone(), record.clone());
        self.changed.notify_all();
        Ok(record)
    }

    /// Finds a job by its id or that of its run.
    pub fn find(&self, id: &str) -> Option<JobRecord> {
        let jobs = self.lock();
        let by_run = || jobs.records.values().find(|record| record.run_id.as_deref() == Some(id));
        jobs.records.get(id).or_else(by_run).cloned()
    }

    /// Lists the jobs that are not over, in their order.
    pub fn open_jobs(&self) -> Vec<JobRecord> {
        let jobs = self.lock();
        let running = jobs.records.values().filter(|record| record.state == JobState::UnderWay);
        let waiting = jobs.waiting.iter().filter_map(|job| jobs.records.get(job));
        running.chain(waiting).cloned().collect()
    }

    /// Returns the number of sessions before a waiting one.
    pub fn position(&self, job: &str) -> Option<usize> {
        let jobs = self.lock();
        let before = jobs.waiting.iter().position(|waiting| waiting == job)?;
        Some(before + usize::from(jobs.running.is_some()))
    }

    /// Returns the folder of the jobs.
    pub fn folder(&self) -> &JobFolder {
        &self.folder
    }

    /// Cancels a session: one that waits is removed, one that runs is interrupted; a second request kills it.
    pub fn cancel(&self, id: &str) -> Result<JobRecord, ApiError> {
        let found = self.find(id).ok_or_else(|| ApiError::NotCancellable(id.to_owned()))?;
        let mut jobs = self.lock();
        if let Some((job, cancel)) = &jobs.running
            && *job == found.job
        {
            cancel.request();
            return Ok(found);
        }
        let Some(position) = jobs.waiting.iter().position(|job| *job == found.job) else {
            return Err(ApiError::NotCancellable(id.to_owned()));
        };
        jobs.waiting.remove(position);
        self.change(&mut jobs, &found.job, |record| record.state = JobState::Cancelled)
            .ok_or_else(|| ApiError::NotCancellable(id.to_owned()))
    }

    /// Ends the queue: interrupts the running session and starts no other. What waits stays on disk.
    pub fn end(&self) {
        let mut jobs = self.lock();
        jobs.ending = true;
        if let Some((_, cancel)) = &jobs.running {
            cancel.request();
        }
        self.changed.notify_all();
    }

    /// Runs the sessions until the queue ends. One that an earlier server accepted and this one does not permit waits.
    pub fn work(self: &Arc<Self>) {
        self.adopt();
        let permitted = |jobs: &Jobs, job: &String| {
            let record = jobs.records.get(job);
            record.is_some_and(|record| record.request.is_permitted(self.props.permissions).is_ok())
        };
        loop {
            let mut jobs = self.lock();
            if jobs.ending {
                return;
            }
            let next = jobs.waiting.iter().position(|job| permitted(&jobs, job));
            let Some(job) = next.and_then(|at| jobs.waiting.remove(at)) else {
                drop(self.changed.wait(jobs).unwrap_or_else(PoisonError::into_inner));
                continue;
            };
            let cancel = Cancel::new();
            jobs.running = Some((job.clone(), cancel.clone()));
            let started = self.change(&mut jobs, &job, |record| record.state = JobState::UnderWay);
            drop(jobs);
            if let Some(record) = started {
                self.run(&record, cancel);
            }
            self.lock().running = None;
        }
    }

    /// Waits for the sessions of an earlier server, which die with it, and records their end.
    fn adopt(&self) {
        let left: Vec<JobRecord> = self
            .lock()
            .records
            .values()
            .filter(|record| record.state == JobState::UnderWay)
            .cloned()
            .collect();
        for record in left {
            let folder = record.run_id.as_ref().map(|run| self.props.runs.join(run));
            while folder.as_deref().map(run_state) == Some(RunState::UnderWay) {
                if self.lock().ending {
                    return;
                }
                std::thread::sleep(LOOK);
            }
            self.finish(&record.job, |record| {
                record.error = Some("the server ended while the session ran".to_owned());
            });
        }
    }

    fn run(self: &Arc<Self>, record: &JobRecord, cancel: Cancel) {
        let command = record.request.command_line(&self.props);
        let (answer, messages) = (self.folder.answer(&record.job), self.folder.messages(&record.job));
        let (queue, job) = (self.clone(), record.job.clone());
        let outcome = run(
            ChildSpec {
                cancel,
                // A session writes its reports after an interrupt, and profilers theirs before.
                stop: StopPlan { interrupt: Duration::from_secs(180), ..StopPlan::default() },
                watch: Some(Box::new(move |line| {
                    if let Some(run) = started_run(line) {
                        let mut jobs = queue.lock();
                        queue.change(&mut jobs, &job, |record| record.run_id = Some(run.as_str().to_owned()));
                    }
                    Watch::Continue
                })),
                ..ChildSpec::new(&command, OutputTarget::file(&answer), OutputTarget::file(messages))
            },
            &mut |_| {},
        );
        let run_id = || {
            let answer: Value = serde_json::from_slice(&read_document(&answer).ok()?).ok()?;
            let run = RunId::parse(answer.get("run_id")?.as_str()?)?;
            Some(run.as_str().to_owned())
        };
        self.finish(&record.job, |record| {
            record.run_id = record.run_id.take().or_else(run_id);
            match outcome {
                Ok(outcome) => {
                    record.exit_status = outcome.code;
                    if record.run_id.is_none() || outcome.code.is_none() {
                        let tail = outcome.output_tail().trim_end();
                        let skipped = tail.chars().count().saturating_sub(MOST_ERROR);
                        record.error = Some(tail.chars().skip(skipped).collect());
                    }
                }
                Err(error) => record.error = Some(error.to_string()),
            }
        });
    }

    fn finish(&self, job: &str, change: impl FnOnce(&mut JobRecord)) {
        let mut jobs = self.lock();
        self.change(&mut jobs, job, |record| {
            record.state = JobState::Ended;
            change(record);
        });
    }

    /// Changes a record in memory and on disk.
    fn change(&self, jobs: &mut Jobs, job: &str, change: impl FnOnce(&mut JobRecord)) -> Option<JobRecord> {
        let record = jobs.records.get_mut(job)?;
        change(record);
        // On a full disk the state in memory still holds.
        let _ = self.folder.write(record);
        Some(record.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the id of the run from the line with which `roofgap profile` announces it.
fn started_run(line: &str) -> Option<RunId> {
    let (id, _) = line.strip_prefix("run ")?.split_once(" in ")?;
    RunId::parse(id)
}

/// Schema of the document.
const SCHEMA: &str = "roofgap.job/1";
/// Ended jobs that are kept.
pub const KEPT: usize = 1000;

/// State of a requested session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Waits for its turn.
    Queued,
    /// Runs.
    UnderWay,
    /// Ended; the state of the run says how.
    Ended,
    /// Cancelled before its turn.
    Cancelled,
}

/// A requested session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Id: `job-` and the time of the request.
    pub job: String,
    /// State.
    pub state: JobState,
    /// Time of the request (RFC 3339, UTC).
    pub created: String,
    /// Request.
    pub request: RunRequest,
    /// Run; null until the session has made its folder.
    pub run_id: Option<String>,
    /// Exit status of the session; null until it has ended, and if it was killed.
    pub exit_status: Option<i32>,
    /// Error, if the session ended without a run or was killed.
    pub error: Option<String>,
}

impl JobRecord {
    /// Makes the record of a new request. `unique` tells apart requests of the same moment.
    pub fn new(request: RunRequest, unique: u64) -> Self {
        let now = clock::now();
        let id = now.to_string().replace(|c: char| !c.is_ascii_digit(), "");
        JobRecord {
            schema: SCHEMA.to_owned(),
            job: format!("job-{id}-{unique}"),
            state: JobState::Queued,
            created: now.to_string(),
            request,
            run_id: None,
            exit_status: None,
            error: None,
        }
    }

    /// Returns true once nothing will change any more.
    pub fn is_over(&self) -> bool {
        matches!(self.state, JobState::Ended | JobState::Cancelled)
    }
}

/// Returns the oldest of the ended jobs, given oldest first, of which `kept` stay.
pub fn surplus<'a>(records: impl Iterator<Item = &'a JobRecord>, kept: usize) -> BTreeSet<String> {
    let ended: Vec<&JobRecord> = records.filter(|record| record.is_over()).collect();
    let surplus = ended.len().saturating_sub(kept);
    ended[..surplus].iter().map(|record| record.job.clone()).collect()
}

/// The folder of the jobs: a record, the answer and the messages of each. Only its owner may read it, as the runs.
#[derive(Debug)]
pub struct JobFolder {
    path: PathBuf,
    /// Held until this server ends.
    _lock: File,
}

impl JobFolder {
    /// Opens the folder below that of the runs, and makes it if it is missing.
    ///
    /// # Errors
    /// Fails if another server has it.
    pub fn open(runs: &Path) -> io::Result<Self> {
        let path = runs.join(".serve");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
        let lock = File::options().create(true).append(true).mode(0o600).open(path.join("lock"))?;
        match lock.try_lock() {
            Ok(()) => Ok(JobFolder { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                let why = "another roofgap serve runs its sessions; stop it, or serve another folder";
                Err(io::Error::new(io::ErrorKind::ResourceBusy, why))
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Writes a record.
    pub fn write(&self, record: &JobRecord) -> io::Result<()> {
        let bytes = serde_json::to_vec_pretty(record)?;
        write_atomic(&self.file(&record.job, "json"), &bytes)
    }

    /// Reads all records, oldest first. Files of other kinds are left alone; the oldest of too many are removed.
    pub fn read(&self) -> io::Result<Vec<JobRecord>> {
        let mut records = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json")
                && let Ok(bytes) = read_document(&path)
                && let Ok(record) = serde_json::from_slice::<JobRecord>(&bytes)
                && path == self.file(&record.job, "json")
            {
                records.push(record);
            }
        }
        records.sort_by(|a, b| (&a.created, &a.job).cmp(&(&b.created, &b.job)));
        let surplus = surplus(records.iter(), KEPT);
        records.retain(|record| !surplus.contains(&record.job));
        self.remove(&surplus);
        Ok(records)
    }

    /// Removes the files of jobs. One that cannot be removed is tried again at the next start.
    pub fn remove(&self, jobs: &BTreeSet<String>) {
        for job in jobs {
            for extension in ["json", "out", "log"] {
                let _ = fs::remove_file(self.file(job, extension));
            }
        }
    }

    /// Returns the path of the answer of a session, `roofgap.profile/1`.
    pub fn answer(&self, job: &str) -> PathBuf {
        self.file(job, "out")
    }

    /// Returns the path of the messages of a session.
    pub fn messages(&self, job: &str) -> PathBuf {
        self.file(job, "log")
    }

    fn file(&self, job: &str, extension: &str) -> PathBuf {
        self.path.join(format!("{job}.{extension}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_announced_run_is_read_and_nothing_else() {
        let run = started_run("run 20260304-050607-2 in /data/runs/20260304-050607-2").unwrap();
        assert_eq!(run.as_str(), "20260304-050607-2");
        for line in ["run ../../etc in /x", "run 20260304-050607", "warning: run x in y", ""] {
            assert!(started_run(line).is_none(), "{line}");
        }
    }

    #[test]
    fn the_oldest_ended_jobs_are_surplus_and_waiting_ones_never_are() {
        let job = |number: u64, state: JobState| JobRecord {
            job: format!("job-{number}"),
            state,
            ..JobRecord::new(RunRequest::default(), number)
        };
        let records = [
            job(1, JobState::Queued),
            job(2, JobState::Ended),
            job(3, JobState::Cancelled),
            job(4, JobState::UnderWay),
            job(5, JobState::Ended),
        ];
        assert!(surplus(records.iter(), 3).is_empty());
        let gone = surplus(records.iter(), 1);
        assert_eq!(gone, BTreeSet::from(["job-2".to_owned(), "job-3".to_owned()]));
        let folder = tempfile::tempdir().unwrap();
        let jobs = JobFolder::open(folder.path()).unwrap();
        for record in &records {
            jobs.write(record).unwrap();
        }
        jobs.remove(&gone);
        let left: Vec<String> = jobs.read().unwrap().into_iter().map(|record| record.job).collect();
        assert_eq!(left, ["job-1", "job-4", "job-5"]);
    }
}
