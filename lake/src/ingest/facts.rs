//! The origin of a run: when, where and with which versions it ran.

use std::path::Path;
use std::time::SystemTime;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use roofgap_runs::open::{Opened, is_run};
use roofgap_runs::run_dir::environment::Environment;
use roofgap_runs::run_dir::{Layout, SessionRecord};

use super::AddProps;
use crate::layout::{Partition, partition_value};
use crate::tables::record::Micros;

/// Facts about a run beside its analysis.
#[derive(Debug, Default)]
pub struct Facts {
    pub kind: &'static str,
    pub run_id: Option<String>,
    pub started_at: Option<Micros>,
    pub commit: Option<String>,
    pub dirty: Option<bool>,
    pub driver: Option<String>,
    /// GPUs of the machine.
    pub gpus: Vec<String>,
    pub cuda: Option<String>,
    pub workload: Option<String>,
    pub exit_status: Option<u8>,
}

impl Facts {
    /// Reads the facts of a run directory; a capture has none.
    pub fn of(input: &Path) -> Self {
        if !is_run(input) {
            return Self { kind: "capture", ..Self::default() };
        }
        let environment = Environment::read(&Layout::of(input));
        let record = SessionRecord::read(input).ok();
        let record = record.as_ref();
        Self {
            kind: "run",
            run_id: record.map(|record| record.run_id.clone()),
            started_at: record.and_then(|record| moment(&record.started)),
            driver: environment.driver(),
            gpus: environment.gpu_names(),
            cuda: environment.package("nvidia-cuda-runtime"),
            workload: record.map(|record| record.workload.clone()),
            exit_status: record.and_then(|record| record.exit_status),
            dirty: environment.workload_revision.as_ref().map(|revision| revision.modified),
            commit: environment.workload_revision.map(|revision| revision.commit),
        }
    }
}

/// Returns the partition of an input and the origin of its date. `opened` is `None` for one that cannot be read.
pub fn partition(
    input: &Path,
    facts: &Facts,
    opened: Option<&Opened>,
    stated: &AddProps,
) -> (Partition, &'static str) {
    let started = facts.started_at.and_then(|at| Timestamp::from_microsecond(at.0).ok());
    let (date, from) = match (&stated.date, started) {
        (Some(date), _) => (date.clone(), "flag"),
        (None, Some(started)) => (day(started), "run"),
        (None, None) => (day(modified(input)), "file"),
    };
    let host = stated.host.clone().or_else(|| host(opened?));
    let partition = Partition {
        date,
        project: stated.project.clone(),
        host: host.unwrap_or_else(|| "unknown".to_owned()),
    };
    (partition, from)
}

/// Returns the host of a capture, as part of a path; `None` where it tells none or several.
fn host(opened: &Opened) -> Option<String> {
    let ranks = &opened.analysis.ranks;
    let mut hosts: Vec<&str> = ranks.iter().filter_map(|rank| rank.host.as_deref()).collect();
    hosts.extend(opened.trace.host.as_deref());
    hosts.sort_unstable();
    hosts.dedup();
    let [host] = hosts.as_slice() else {
        return None;
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let clean: String = host.chars().map(|c| if allowed(c) { c } else { '-' }).collect();
    partition_value("host", &clean).ok()
}

fn moment(text: &str) -> Option<Micros> {
    let at: Timestamp = text.parse().ok()?;
    Some(Micros(at.as_microsecond()))
}

fn modified(path: &Path) -> Timestamp {
    let modified = std::fs::metadata(path).and_then(|facts| facts.modified());
    let at = modified.unwrap_or(SystemTime::UNIX_EPOCH);
    Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn day(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC).date().to_string()
}
