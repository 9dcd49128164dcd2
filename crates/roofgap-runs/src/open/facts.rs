//! The key of a run and the facts about it beside its analysis, for tables of many runs.

use super::{Opened, is_run, ranks};
use crate::run_dir::environment::Environment;
use crate::run_dir::{Layout, SessionRecord};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use roofgap_base::error::Error;
use roofgap_base::file::{Unpacked, copy_hashed, sha256};
use roofgap_report::RunFacts;
use std::io;
use std::path::{Path, PathBuf};

/// Returns the key of a run directory, of a capture, or of a folder of captures: a hash of the record of the session, else of the content
/// of the captures. It is the same on every machine, for a copy and for a compressed capture.
pub fn run_key(input: &Path) -> Result<String, Error> {
    let files: Vec<PathBuf> = if is_run(input) {
        vec![Layout::of(input).session()]
    } else {
        ranks::expand(&[input.to_owned()])?.into_iter().map(|file| file.path).collect()
    };
    let hash = |path: &PathBuf| {
        let content = Unpacked::open(path).and_then(|mut file| copy_hashed(&mut file, &mut io::sink()));
        Ok(content.map_err(Error::io("read", path))?.sha256)
    };
    let mut hashes = files.iter().map(hash).collect::<Result<Vec<_>, Error>>()?;
    hashes.sort();
    let mut key = sha256(hashes.join(",").as_bytes());
    key.truncate(32);
    Ok(key)
}

/// Collects the facts about an input. `key` is that of [`run_key`].
pub fn run_facts(input: &Path, key: String, opened: &Opened) -> RunFacts {
    let mut facts = RunFacts {
        key,
        source: input.display().to_string(),
        host: host(opened),
        unreadable_files: opened.unreadable.len(),
        ..RunFacts::default()
    };
    let mut started = opened.trace.span().and_then(|(begin, _)| opened.trace.unix_ns(begin));
    if is_run(input) {
        let environment = Environment::read(&Layout::of(input));
        facts.driver = environment.driver();
        facts.gpu = environment.gpu_names().into_iter().next();
        facts.cuda = environment.package("nvidia-cuda-runtime");
        facts.dirty = environment.workload_revision.as_ref().map(|revision| revision.modified);
        facts.commit = environment.workload_revision.map(|revision| revision.commit);
        if let Ok(record) = SessionRecord::read(input) {
            let at = record.started.parse().ok().map(Timestamp::as_nanosecond);
            started = at.and_then(|at| i64::try_from(at).ok()).or(started);
            facts.run_id = Some(record.run_id);
            facts.workload = Some(record.workload);
            facts.exit_status = record.exit_status;
        }
    }
    let started = started.map(|at| Timestamp::from_nanosecond(at.into()).unwrap_or_default());
    facts.date = started.unwrap_or_default().to_zoned(TimeZone::UTC).date().to_string();
    facts.started_at = started.map(|at| at.to_string());
    facts
}

/// Returns the host of a capture; `None` where it tells none or several.
fn host(opened: &Opened) -> Option<String> {
    let ranks = opened.analysis.ranks.iter().filter_map(|rank| rank.host.as_ref());
    let mut hosts: Vec<&String> = ranks.chain(opened.trace.host.as_ref()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    match hosts.as_slice() {
        [host] => Some((*host).clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::fs;
    use std::io::Write as _;

    #[test]
    fn the_content_makes_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let trace = br#"{"traceEvents": [], "schemaVersion": 1}"#;
        fs::write(at("a.json"), trace).unwrap();
        let mut packed = GzEncoder::new(fs::File::create(at("b.json.gz")).unwrap(), Compression::fast());
        packed.write_all(trace).unwrap();
        packed.finish().unwrap();
        let key = run_key(&at("a.json")).unwrap();
        assert!(key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
        assert_eq!(key, run_key(&at("b.json.gz")).unwrap());
        fs::write(at("a.json"), br#"{"traceEvents": [], "schemaVersion": 2}"#).unwrap();
        assert_ne!(key, run_key(&at("a.json")).unwrap());
        assert!(run_key(&at("missing")).is_err());
    }
}
