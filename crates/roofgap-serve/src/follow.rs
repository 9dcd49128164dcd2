//! The events of a session: its place in the queue, its phases, their progress and the new lines of its logs.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use axum::response::sse::Event;
use futures_util::{Stream, stream};
use roofgap_runs::run_dir::folder::{RunState, run_state};
use roofgap_runs::run_dir::{PhaseStatus, RunRef, SessionRecord};
use roofgap_runs::runs::show;
use serde_json::{Value, json};

use crate::Shared;
use crate::queue::QueueState;

/// Interval between looks at the files of a session.
const LOOK: Duration = Duration::from_millis(250);
/// Interval between events of progress.
const PROGRESS: Duration = Duration::from_secs(1);
/// Bytes of a log that one event carries.
const MOST_LOG: u64 = 8 << 10;
/// Depth to which logs are searched in a run.
const LOG_DEPTH: usize = 2;

/// A named event and its data.
type Named = (&'static str, Value);

/// A client that follows a session.
#[derive(Debug)]
struct Follower {
    shared: Shared,
    id: String,
    /// Last place in the queue that was sent.
    position: Option<usize>,
    run_sent: bool,
    /// Status of each phase that was sent.
    phases: BTreeMap<&'static str, &'static str>,
    /// Bytes of each log that were sent.
    logs: BTreeMap<PathBuf, u64>,
    progress: Option<Instant>,
    ended: bool,
}

/// Follows a run, or a request for one, until it ends. Looks happen at the pace of the client, so that a slow one costs nothing.
pub fn events(shared: Shared, id: String) -> impl Stream<Item = Result<Event, Infallible>> {
    let follower = Follower {
        shared,
        id,
        position: None,
        run_sent: false,
        phases: BTreeMap::new(),
        logs: BTreeMap::new(),
        progress: None,
        ended: false,
    };
    stream::unfold((follower, VecDeque::new()), |(mut follower, mut events)| async move {
        loop {
            if let Some((name, data)) = events.pop_front() {
                let data: Value = data;
                let event = Event::default().event::<&'static str>(name).data(data.to_string());
                return Some((Ok(event), (follower, events)));
            }
            if follower.ended {
                return None;
            }
            let looked = tokio::task::spawn_blocking(move || {
                let found = follower.look();
                (follower, found)
            })
            .await;
            let Ok((again, found)) = looked else {
                return None;
            };
            follower = again;
            events = found;
            if events.is_empty() {
                tokio::time::sleep(LOOK).await;
            }
        }
    })
}

impl Follower {
    /// Collects what happened since the last look.
    fn look(&mut self) -> VecDeque<Named> {
        let mut events = VecDeque::new();
        let requested = self.shared.queue.find(&self.id);
        if let Some(queued) = &requested {
            let position = self.shared.queue.position(&queued.id);
            if position.is_some() && position != self.position {
                events.push_back(("queued", json!({ "job": queued.id, "sessions_before": position })));
                self.position = position;
            }
            let messages = self.shared.queue.folder().messages(&queued.id);
            self.log(&messages, "session", &mut events);
            if queued.state == QueueState::Cancelled || (queued.is_over() && queued.run_id.is_none()) {
                let state = if queued.state == QueueState::Cancelled { "cancelled" } else { "failed" };
                events.push_back((
                    "end",
                    json!({ "job": queued.id, "run_id": null, "state": state, "error": queued.error }),
                ));
                self.ended = true;
                return events;
            }
        }
        let Ok(run) = self.shared.run(&self.id) else {
            return events;
        };
        // Before the last look at the record, so that nothing of a run that ends in between is missed.
        let over =
            run_state(&run.path) != RunState::UnderWay && requested.is_none_or(|queued| queued.is_over());
        if !self.run_sent {
            events.push_back(("run", json!({ "run_id": run.id })));
            self.run_sent = true;
        }
        if let Ok(record) = SessionRecord::read(&run.path) {
            self.phases(&record, &mut events);
        }
        for path in logs(&run.path, LOG_DEPTH) {
            let name = path.strip_prefix(&run.path).unwrap_or(&path).display().to_string();
            self.log(&path, &name, &mut events);
        }
        if over {
            events.push_back(("end", end(&run)));
            self.ended = true;
        }
        events
    }

    fn phases(&mut self, record: &SessionRecord, events: &mut VecDeque<Named>) {
        for phase in &record.phases {
            let (name, word) = (phase.name.as_str(), phase.status.word());
            if phase.status != PhaseStatus::Pending && self.phases.insert(name, word) != Some(word) {
                let data = json!({ "name": name, "status": word, "why": phase.status.why(), "wall_ns": phase.wall_ns });
                events.push_back(("phase", data));
            }
            let due = self.progress.is_none_or(|last| last.elapsed() >= PROGRESS);
            if phase.status == PhaseStatus::Running && due {
                let started = phase.started.as_deref().and_then(|text| text.parse::<jiff::Timestamp>().ok());
                let elapsed =
                    started.map(|started| roofgap_base::clock::now().duration_since(started).as_millis());
                let data =
                    json!({ "phase": name, "elapsed_ms": elapsed.and_then(|ms| i64::try_from(ms).ok()) });
                events.push_back(("progress", data));
                self.progress = Some(Instant::now());
            }
        }
    }

    /// Adds the new end of a log; what was skipped because it is too much is counted.
    fn log(&mut self, path: &Path, name: &str, events: &mut VecDeque<Named>) {
        let sent = self.logs.get(path).copied().unwrap_or(0);
        let Some((text, skipped, end)) = tail(path, sent) else {
            return;
        };
        self.logs.insert(path.to_owned(), end);
        if !text.is_empty() {
            events.push_back(("log", json!({ "file": name, "text": text, "skipped_bytes": skipped })));
        }
    }
}

/// Describes the end of a run.
fn end(run: &RunRef) -> Value {
    match show(run) {
        Ok(details) => json!({
            "run_id": run.id,
            "state": details.summary.status,
            "exit_status": details.summary.exit_status,
            "missing": details.missing,
        }),
        Err(error) => json!({ "run_id": run.id, "state": "unreadable", "error": error.to_string() }),
    }
}

/// Reads a file from `sent` on, its last bytes only if there are many. Returns the text, the bytes left out and the end.
fn tail(path: &Path, sent: u64) -> Option<(String, u64, u64)> {
    let length = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?.len();
    if length <= sent {
        return None;
    }
    let start = sent.max(length.saturating_sub(MOST_LOG));
    let mut file = File::open(path).ok()?;
    file.seek(SeekFrom::Start(start)).ok()?;
    let mut bytes = Vec::new();
    file.take(length - start).read_to_end(&mut bytes).ok()?;
    let end = start + bytes.len() as u64;
    Some((String::from_utf8_lossy(&bytes).into_owned(), start - sent, end))
}

/// Lists the logs of a run.
fn logs(folder: &Path, depth: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth > 0 => found.extend(logs(&path, depth - 1)),
            Ok(kind) if kind.is_file() && path.extension().is_some_and(|e| e == "log") => found.push(path),
            _ => {}
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_new_end_of_a_log_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        assert_eq!(tail(&path, 0), None);
        fs::write(&path, "one\n").unwrap();
        assert_eq!(tail(&path, 0), Some(("one\n".to_owned(), 0, 4)));
        assert_eq!(tail(&path, 4), None);
        fs::write(&path, format!("one\n{}", "x".repeat(20_000))).unwrap();
        let (text, skipped, end) = tail(&path, 4).unwrap();
        assert_eq!((text.len() as u64, skipped, end), (MOST_LOG, 20_000 - MOST_LOG, 20_004));
    }
}
