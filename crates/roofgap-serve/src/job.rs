//! A requested session, as it is kept on disk.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use roofgap_base::clock;
use roofgap_base::file::{read_document, write_atomic};
use serde::{Deserialize, Serialize};

use crate::request::RunRequest;

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
