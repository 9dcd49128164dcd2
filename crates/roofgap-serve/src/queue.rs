//! The queue: sessions in the order of their requests, one at a time, because two on one GPU disturb each other.
//!
//! A requested session, as it is kept on disk.

use crate::ServeProps;
use crate::api_error::ApiError;
use crate::request::RunRequest;
use axum::http::StatusCode;
use roofgap_base::clock;
use roofgap_base::file::{read_document, write_atomic};
use roofgap_collect::child::{Cancel, ChildSpec, OutputTarget, StopPlan, Watch, run};
use roofgap_runs::run_dir::folder::{RunId, RunState, run_state};
use serde::{Deserialize, Serialize};
use serde_json::Value;
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
    sessions: Mutex<Sessions>,
    changed: Condvar,
    folder: QueueFolder,
    props: ServeProps,
}

#[derive(Debug, Default)]
struct Sessions {
    /// In the order of their requests.
    records: Vec<Queued>,
    /// The session that runs.
    running: Option<(String, Cancel)>,
    made: u64,
    ending: bool,
}

impl Sessions {
    fn in_state(&self, state: QueueState) -> impl Iterator<Item = &Queued> {
        self.records.iter().filter(move |record| record.state == state)
    }
}

impl Queue {
    /// Opens the queue as an earlier server left it: what waited waits again.
    ///
    /// # Errors
    /// Fails if another server has it.
    pub fn open(props: &ServeProps) -> std::io::Result<Arc<Self>> {
        let folder = QueueFolder::open(&props.runs)?;
        let records = folder.read()?;
        let sessions = Sessions { made: records.len() as u64, records, ..Sessions::default() };
        Ok(Arc::new(Queue {
            sessions: Mutex::new(sessions),
            changed: Condvar::new(),
            folder,
            props: props.clone(),
        }))
    }

    /// Adds a request.
    pub fn add(&self, request: RunRequest) -> Result<Queued, ApiError> {
        let mut sessions = self.lock();
        if sessions.ending {
            return Err(ApiError::ending());
        }
        let waiting = sessions.in_state(QueueState::Queued).count();
        if waiting >= self.props.limits.queue {
            let why = format!("{waiting} sessions wait already; try again later");
            return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, why));
        }
        self.folder.remove_surplus(&mut sessions.records, KEPT);
        sessions.made += 1;
        let record = Queued::new(request, sessions.made);
        let failed = |error| format!("cannot write the queue: {error}");
        let written = self.folder.write(&record).map_err(failed);
        written.map_err(|why| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, why))?;
        sessions.records.push(record.clone());
        self.changed.notify_all();
        Ok(record)
    }

    /// Finds a requested session by its id or that of its run.
    pub fn find(&self, id: &str) -> Option<Queued> {
        let sessions = self.lock();
        let mut records = sessions.records.iter();
        records.find(|record| record.id == id || record.run_id.as_deref() == Some(id)).cloned()
    }

    /// Lists the sessions that are not over, in their order.
    pub fn unfinished(&self) -> Vec<Queued> {
        let sessions = self.lock();
        let states = [QueueState::UnderWay, QueueState::Queued];
        states.into_iter().flat_map(|state| sessions.in_state(state)).cloned().collect()
    }

    /// Returns the number of sessions before a waiting one.
    pub fn position(&self, id: &str) -> Option<usize> {
        let sessions = self.lock();
        let before = sessions.in_state(QueueState::Queued).position(|waiting| waiting.id == id)?;
        Some(before + usize::from(sessions.running.is_some()))
    }

    /// Returns the folder of the sessions.
    pub fn folder(&self) -> &QueueFolder {
        &self.folder
    }

    /// Cancels a session: one that waits is removed, one that runs is interrupted; a second request kills it.
    pub fn cancel(&self, id: &str) -> Result<Queued, ApiError> {
        let refused = || {
            let why =
                format!("{id} cannot be cancelled here: it has ended, or was not started by this server");
            ApiError::new(StatusCode::CONFLICT, why)
        };
        let found = self.find(id).ok_or_else(refused)?;
        let mut sessions = self.lock();
        if let Some((running, cancel)) = &sessions.running
            && *running == found.id
        {
            cancel.request();
            return Ok(found);
        }
        // One that waited may run by now.
        let is_waiting = sessions.in_state(QueueState::Queued).any(|waiting| waiting.id == found.id);
        let cancelled = is_waiting
            .then(|| self.change(&mut sessions, &found.id, |record| record.state = QueueState::Cancelled));
        cancelled.flatten().ok_or_else(refused)
    }

    /// Ends the queue: interrupts the running session and starts no other. What waits stays on disk.
    pub fn end(&self) {
        let mut sessions = self.lock();
        sessions.ending = true;
        if let Some((_, cancel)) = &sessions.running {
            cancel.request();
        }
        self.changed.notify_all();
    }

    /// Runs the sessions until the queue ends. One that an earlier server accepted and this one does not permit waits.
    pub fn work(self: &Arc<Self>) {
        self.adopt();
        let is_permitted = |record: &&Queued| record.request.is_permitted(self.props.permissions).is_ok();
        loop {
            let mut sessions = self.lock();
            if sessions.ending {
                return;
            }
            let next = sessions.in_state(QueueState::Queued).find(is_permitted);
            let Some(id) = next.map(|record| record.id.clone()) else {
                drop(self.changed.wait(sessions).unwrap_or_else(PoisonError::into_inner));
                continue;
            };
            let cancel = Cancel::new();
            sessions.running = Some((id.clone(), cancel.clone()));
            let started = self.change(&mut sessions, &id, |record| record.state = QueueState::UnderWay);
            drop(sessions);
            if let Some(record) = started {
                self.run(&record, cancel);
            }
            self.lock().running = None;
        }
    }

    /// Waits for the sessions of an earlier server, which die with it, and records their end.
    fn adopt(&self) {
        let left: Vec<Queued> = self.lock().in_state(QueueState::UnderWay).cloned().collect();
        for record in left {
            let folder = record.run_id.as_ref().map(|run| self.props.runs.join(run));
            while folder.as_deref().map(run_state) == Some(RunState::UnderWay) {
                if self.lock().ending {
                    return;
                }
                std::thread::sleep(LOOK);
            }
            self.finish(&record.id, |record| {
                record.error = Some("the server ended while the session ran".to_owned());
            });
        }
    }

    fn run(self: &Arc<Self>, record: &Queued, cancel: Cancel) {
        let command = record.request.command_line(&self.props);
        let (answer, messages) = (self.folder.answer(&record.id), self.folder.messages(&record.id));
        let (queue, id) = (self.clone(), record.id.clone());
        let outcome = run(
            ChildSpec {
                cancel,
                // A session writes its reports after an interrupt, and profilers theirs before.
                stop: StopPlan { interrupt: Duration::from_secs(180), ..StopPlan::default() },
                watch: Some(Box::new(move |line| {
                    if let Some(run) = started_run(line) {
                        let mut sessions = queue.lock();
                        queue.change(&mut sessions, &id, |record| {
                            record.run_id = Some(run.as_str().to_owned())
                        });
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
        self.finish(&record.id, |record| {
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

    fn finish(&self, id: &str, change: impl FnOnce(&mut Queued)) {
        let mut sessions = self.lock();
        self.change(&mut sessions, id, |record| {
            record.state = QueueState::Ended;
            change(record);
        });
    }

    /// Changes a record in memory and on disk.
    fn change(&self, sessions: &mut Sessions, id: &str, change: impl FnOnce(&mut Queued)) -> Option<Queued> {
        let record = sessions.records.iter_mut().find(|record| record.id == id)?;
        change(record);
        // On a full disk the state in memory still holds.
        let _ = self.folder.write(record);
        Some(record.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the id of the run from the line with which `roofgap profile` announces it.
fn started_run(line: &str) -> Option<RunId> {
    let (id, _) = line.strip_prefix("run ")?.split_once(" in ")?;
    RunId::parse(id)
}

/// Schema of the document.
const SCHEMA: &str = "roofgap.job/1";
/// Ended sessions that are kept.
pub const KEPT: usize = 1000;

/// State of a requested session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueState {
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
pub struct Queued {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Id: `job-` and the time of the request.
    #[serde(rename = "job")]
    pub id: String,
    /// State.
    pub state: QueueState,
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

impl Queued {
    /// Makes the record of a new request. `unique` tells apart requests of the same moment.
    pub fn new(request: RunRequest, unique: u64) -> Self {
        let now = clock::now();
        let moment = now.to_string().replace(|c: char| !c.is_ascii_digit(), "");
        Queued {
            schema: SCHEMA.to_owned(),
            id: format!("job-{moment}-{unique}"),
            state: QueueState::Queued,
            created: now.to_string(),
            request,
            run_id: None,
            exit_status: None,
            error: None,
        }
    }

    /// Returns true once nothing will change any more.
    pub fn is_over(&self) -> bool {
        matches!(self.state, QueueState::Ended | QueueState::Cancelled)
    }
}

/// The folder of the sessions: a record, the answer and the messages of each. Only its owner may read it, as the runs.
#[derive(Debug)]
pub struct QueueFolder {
    path: PathBuf,
    /// Held until this server ends.
    _lock: File,
}

impl QueueFolder {
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
            Ok(()) => Ok(QueueFolder { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                let why = "another roofgap serve runs its sessions; stop it, or serve another folder";
                Err(io::Error::new(io::ErrorKind::ResourceBusy, why))
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Writes a record.
    pub fn write(&self, record: &Queued) -> io::Result<()> {
        let bytes = serde_json::to_vec_pretty(record)?;
        write_atomic(&self.file(&record.id, "json"), &bytes)
    }

    /// Reads all records, oldest first. Files of other kinds are left alone; the oldest of too many are removed.
    pub fn read(&self) -> io::Result<Vec<Queued>> {
        let mut records = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json")
                && let Ok(bytes) = read_document(&path)
                && let Ok(record) = serde_json::from_slice::<Queued>(&bytes)
                && path == self.file(&record.id, "json")
            {
                records.push(record);
            }
        }
        records.sort_by(|a, b| (&a.created, &a.id).cmp(&(&b.created, &b.id)));
        self.remove_surplus(&mut records, KEPT);
        Ok(records)
    }

    /// Removes the oldest of the ended sessions, of which `kept` stay. A file that cannot be removed is tried again at the next start.
    pub fn remove_surplus(&self, records: &mut Vec<Queued>, kept: usize) {
        let mut surplus = records.iter().filter(|record| record.is_over()).count().saturating_sub(kept);
        records.retain(|record| {
            let stays = surplus == 0 || !record.is_over();
            if !stays {
                surplus -= 1;
                for extension in ["json", "out", "log"] {
                    let _ = fs::remove_file(self.file(&record.id, extension));
                }
            }
            stays
        });
    }

    /// Returns the path of the answer of a session, `roofgap.profile/1`.
    pub fn answer(&self, id: &str) -> PathBuf {
        self.file(id, "out")
    }

    /// Returns the path of the messages of a session.
    pub fn messages(&self, id: &str) -> PathBuf {
        self.file(id, "log")
    }

    fn file(&self, id: &str, extension: &str) -> PathBuf {
        self.path.join(format!("{id}.{extension}"))
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
        let session = |number: u64, state: QueueState| Queued {
            id: format!("job-{number}"),
            state,
            ..Queued::new(RunRequest::default(), number)
        };
        let mut records = vec![
            session(1, QueueState::Queued),
            session(2, QueueState::Ended),
            session(3, QueueState::Cancelled),
            session(4, QueueState::UnderWay),
            session(5, QueueState::Ended),
        ];
        let folder = tempfile::tempdir().unwrap();
        let sessions = QueueFolder::open(folder.path()).unwrap();
        for record in &records {
            sessions.write(record).unwrap();
        }
        sessions.remove_surplus(&mut records, 3);
        assert_eq!(records.len(), 5);
        sessions.remove_surplus(&mut records, 1);
        assert_eq!(records.len(), 3);
        let left: Vec<String> = sessions.read().unwrap().into_iter().map(|record| record.id).collect();
        assert_eq!(left, ["job-1", "job-4", "job-5"]);
    }
}
