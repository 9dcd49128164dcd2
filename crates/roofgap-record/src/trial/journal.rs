//! `try.json` on disk while a trial runs.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use roofgap_analyze::{TRY_SCHEMA, Trial, Trials};
use roofgap_base::file::write_atomic;

use crate::error::Error;
use roofgap_runs::run_dir::{Layout, RunRef, trials};

/// Writer of `try.json`. The trials that it had before stay.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    trials: Trials,
    /// Lock of the run directory, held until this is dropped.
    _lock: File,
}

impl Journal {
    /// Locks the run for a trial and reads its earlier trials.
    pub fn open(run: &RunRef, trial: &Trial) -> Result<Self, Error> {
        let folder = &run.path;
        let write_error = |source| cannot_write(folder, &source);
        let lock = File::open(folder).map_err(write_error)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::new(format!("another trial of {} is in progress", folder.display())));
            }
            // A file system without locks must not prevent a trial.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(write_error(error)),
        }
        let layout = Layout::of(folder);
        let mut trials = trials::read(&layout)
            .map_err(|error| Error::new(format!("{error}; rename it to start a new record")))?
            .unwrap_or_else(|| Trials {
                schema: TRY_SCHEMA.to_owned(),
                run_id: run.id.clone(),
                trials: Vec::new(),
            });
        trials.trials.push(trial.clone());
        let journal = Journal { path: layout.trials(), trials, _lock: lock };
        journal.save()?;
        Ok(journal)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the trial as it stands.
    pub fn write(&mut self, trial: &Trial) -> Result<(), Error> {
        if let Some(last) = self.trials.trials.last_mut() {
            last.clone_from(trial);
        }
        self.save()
    }

    fn save(&self) -> Result<(), Error> {
        let error = |source| cannot_write(&self.path, &source);
        let mut bytes = serde_json::to_vec_pretty(&self.trials).map_err(|source| error(source.into()))?;
        bytes.push(b'\n');
        write_atomic(&self.path, &bytes).map_err(error)
    }
}

/// Makes the error of a file of the trial that cannot be written.
pub fn cannot_write(path: &Path, source: &std::io::Error) -> Error {
    Error::new(format!("cannot write {}: {source}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> (tempfile::TempDir, RunRef) {
        let folder = tempfile::tempdir().unwrap();
        let run = RunRef::at(folder.path());
        (folder, run)
    }

    #[test]
    fn earlier_trials_stay_and_the_last_is_replaced() {
        let (folder, run) = run();
        assert_eq!(trials::read(&Layout::of(folder.path())).unwrap(), None);
        for number in 1..=2 {
            let mut trial = Trial::default();
            let mut journal = Journal::open(&run, &trial).unwrap();
            trial.repeats = number;
            journal.write(&trial).unwrap();
        }
        let trials = trials::read(&Layout::of(folder.path())).unwrap().unwrap().trials;
        let repeats: Vec<u32> = trials.iter().map(|trial| trial.repeats).collect();
        assert_eq!(repeats, [1, 2]);
    }

    #[test]
    fn two_trials_of_a_run_do_not_collide() {
        let (_folder, run) = run();
        let first = Journal::open(&run, &Trial::default()).unwrap();
        let second = Journal::open(&run, &Trial::default()).unwrap_err();
        assert!(second.to_string().starts_with("another trial of "), "{second}");
        drop(first);
        Journal::open(&run, &Trial::default()).unwrap();
    }

    #[test]
    fn a_damaged_record_is_not_overwritten() {
        let (folder, run) = run();
        let path = folder.path().join("try.json");
        for (text, schema) in
            [("{", false), (r#"{"schema": "roofgap.try/9", "run_id": "", "trials": []}"#, true)]
        {
            std::fs::write(&path, text).unwrap();
            let error = Journal::open(&run, &Trial::default()).unwrap_err();
            assert_eq!(error.to_string().contains("roofgap.try/9"), schema, "{error}");
            assert!(error.to_string().ends_with("; rename it to start a new record"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
