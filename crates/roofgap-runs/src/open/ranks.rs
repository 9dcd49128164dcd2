//! Several timelines as ranks of one job: which files belong to which rank, and their analyses joined into one.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use roofgap_analyze::{
    About, Analysis, Analyzed, Options, OtherProcess, RankRecord, Reason, analyze, join_ranks,
};
use roofgap_report::Context;
use roofgap_trace::{Input, OpKind, SourceFormat, Trace, detect, native};

use super::error::LoadError;
use super::input::read;
use super::loaded::Loaded;
use super::nsys_report::{Exporter, is_report};
use super::overrides::Overrides;

/// Ranks that are read at the same time. Each is reduced before the next is read, so memory does not grow with their number.
const AT_ONCE: usize = 2;

/// Extensions of captures that a folder is searched for. Other files in it are left alone.
pub const CAPTURES: [&str; 10] = [
    ".csv",
    ".csv.gz",
    ".json",
    ".json.gz",
    ".sqlite",
    ".sqlite.gz",
    ".nsys-rep",
    ".ncu-rep",
    ".rgcap",
    ".rgcap.gz",
];

/// Files of one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankFiles {
    /// Timelines.
    paths: Vec<PathBuf>,
    /// Rank in the capture, else in the file name.
    named: Option<u32>,
    /// Host in the capture.
    host: Option<String>,
}

/// Inputs divided into ranks.
#[derive(Debug, PartialEq, Eq)]
pub struct Division {
    pub(super) ranks: Vec<RankFiles>,
    /// Captures of processes that tell no rank.
    pub(super) without_rank: Vec<PathBuf>,
    /// Counters and accounts.
    pub(super) others: Vec<PathBuf>,
}

/// Replaces folders by the captures in them. A folder without captures stays, for the reader to refuse.
pub fn expand(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let inside = if path.is_dir() { captures_in(path) } else { Vec::new() };
        if inside.is_empty() {
            files.push(path.clone());
        } else {
            files.extend(inside);
        }
    }
    files
}

/// Names the format of a capture that is found in a folder; `None` for other files.
pub fn capture_format(path: &Path) -> Option<&'static str> {
    let format = found_format(path)?;
    Some(if is_report(path) { "nsys-rep" } else { format.as_str() })
}

/// Returns the format of a file in a folder, as its export has it; `None` where the name or the content is not that of a capture.
fn found_format(path: &Path) -> Option<SourceFormat> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if !CAPTURES.iter().any(|extension| name.ends_with(extension)) || !path.is_file() {
        return None;
    }
    if is_report(path) {
        return Some(SourceFormat::NsysSqlite);
    }
    detect(path).ok()
}

/// Lists the captures in a folder by name.
fn captures_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let format = |path: PathBuf| Some((found_format(&path)?, path));
    let mut found: Vec<(SourceFormat, PathBuf)> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter_map(format)
        // Totals say less than a timeline and cannot be joined with one.
        .filter(|(format, _)| *format != SourceFormat::KernelSummary)
        .collect();
    // The pages of an ncu report may be beside it.
    if found.iter().any(|(format, _)| *format == SourceFormat::NcuReport) {
        let is_page = |format| matches!(format, SourceFormat::NcuRawPage | SourceFormat::NcuDetailsPage);
        found.retain(|(format, _)| !is_page(*format));
    }
    let mut files: Vec<PathBuf> = found.into_iter().map(|(_, path)| path).collect();
    // The export of a report may be beside it.
    let all = files.clone();
    files.retain(|path| {
        let export = path.with_extension("sqlite");
        *path == export || !all.contains(&export) || !is_report(path)
    });
    files.sort();
    files
}

/// Divides the inputs into ranks; `None` where they are one timeline.
///
/// Native captures are processes of one program, unless they or their file names tell ranks. The processes of one rank on one host
/// belong together.
pub fn divide(paths: &[PathBuf]) -> Result<Option<Division>, LoadError> {
    let mut timelines = Vec::new();
    let mut others = Vec::new();
    for path in paths {
        let format = if is_report(path) { SourceFormat::NsysSqlite } else { detect(path)? };
        match format {
            SourceFormat::KernelSummary => return Ok(None),
            format if format.is_timeline() => timelines.push((path, format)),
            _ => others.push(path.clone()),
        }
    }
    let native = timelines.iter().filter(|(_, format)| *format == SourceFormat::Native).count();
    if timelines.len() < 2 || (native > 0 && native < timelines.len()) {
        return Ok(None);
    }
    let mut ranks: Vec<RankFiles> = Vec::new();
    let mut without_rank = Vec::new();
    for (path, format) in timelines {
        let mut named = rank_in_name(path);
        let mut host = None;
        if format == SourceFormat::Native {
            // A damaged capture fails when it is read as a whole.
            if let Ok(Some(told)) = native::rank(path) {
                (named, host) = (Some(told.rank), told.host);
            }
            if named.is_none() {
                without_rank.push(path.clone());
                continue;
            }
            // The captures of another run are of another start of the program.
            let folder = path.parent();
            let same = |rank: &&mut RankFiles| {
                let beside = rank.paths.first().is_some_and(|first| first.parent() == folder);
                beside && (rank.named, &rank.host) == (named, &host)
            };
            if let Some(known) = ranks.iter_mut().find(same) {
                known.paths.push(path.clone());
                continue;
            }
        }
        ranks.push(RankFiles { paths: vec![path.clone()], named, host });
    }
    Ok((ranks.len() > 1).then_some(Division { ranks, without_rank, others }))
}

/// Finds a rank in the name of a file: the number after the last `rank`, else after the only `TP`, as SGLang writes it.
fn rank_in_name(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_string_lossy().to_lowercase();
    let parallel = |word: &str| numbers_after(&name, word);
    if let Some(rank) = parallel("rank").pop() {
        return Some(rank);
    }
    let others = ["dp", "pp", "ep"].iter().any(|word| !parallel(word).is_empty());
    match parallel("tp")[..] {
        [rank] if !others => Some(rank),
        _ => None,
    }
}

/// Lists the numbers that follow a word, directly or after one sign. The word begins the name or follows a sign.
fn numbers_after(name: &str, word: &str) -> Vec<u32> {
    let number = |(at, _): (usize, &str)| {
        let begins = name[..at].chars().next_back().is_none_or(|c| !c.is_ascii_alphanumeric());
        let rest = &name[at + word.len()..];
        let rest = rest.strip_prefix(['-', '_', '.', '=']).unwrap_or(rest);
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok().filter(|_| begins)
    };
    name.match_indices(word).filter_map(number).collect()
}

/// The rank that the report shows, as far as ranks were read.
struct Shown {
    rank: u32,
    at: usize,
    trace: Trace,
    analyzed: Analyzed,
}

/// One rank that was read.
struct ReadRank {
    at: usize,
    result: Result<Option<RankRecord>, LoadError>,
}

/// Loads ranks as one analysis: that of the rank the user names, else of the lowest, with the others beside it.
pub fn load(division: &Division, overrides: &Overrides, exporter: &Exporter) -> Result<Loaded, LoadError> {
    let others = read(&division.others, exporter)?;
    let options = Options { counters: others.counters, account: others.account, ..overrides.options()? };
    load_with(division, &options, overrides.rank, |paths| read(paths, exporter))
}

/// Loads ranks under some options, each read by `read`.
pub fn load_with(
    division: &Division,
    options: &Options,
    wanted_rank: Option<u32>,
    read: impl Fn(&[PathBuf]) -> Result<Input, LoadError> + Sync,
) -> Result<Loaded, LoadError> {
    let next = AtomicUsize::new(0);
    let shown: Mutex<Option<Shown>> = Mutex::new(None);
    let done: Mutex<Vec<ReadRank>> = Mutex::new(Vec::new());
    let work = || {
        while let Some((at, files)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            division.ranks.get(at).map(|files| (at, files))
        } {
            let result = read(&files.paths).map(|input| {
                let analyzed = analyze(&input.trace, options);
                let record = RankRecord::of(&input.trace, &analyzed, files.named)?;
                let rank = record.rank();
                let wanted = wanted_rank.is_none_or(|wanted| wanted == rank);
                let mut shown = lock(&shown);
                let better = |shown: &Shown| (rank, at) < (shown.rank, shown.at);
                if wanted && shown.as_ref().is_none_or(better) {
                    *shown = Some(Shown { rank, at, trace: input.trace, analyzed });
                }
                Some(record)
            });
            lock(&done).push(ReadRank { at, result });
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..AT_ONCE {
            scope.spawn(work);
        }
        work();
    });
    let mut done = into_inner(done);
    done.sort_by_key(|rank| rank.at);
    let mut loaded = join(division, done, into_inner(shown), wanted_rank)?;
    for path in &division.without_rank {
        match read(std::slice::from_ref(path)) {
            Ok(input) => add_other_process(&mut loaded.analysis, path, &input.trace),
            Err(error) => loaded.unreadable.push(error.to_string()),
        }
    }
    Ok(loaded)
}

/// Divides a trace that holds several ranks, such as an nsys report of a launcher, and joins their analyses; `None` for any other.
pub fn load_divided(
    trace: &Trace,
    options: &Options,
    wanted_rank: Option<u32>,
) -> Option<Result<Loaded, LoadError>> {
    let ranks = trace.ranks();
    if ranks.len() < 2 {
        return None;
    }
    let files = |rank: &u32| RankFiles {
        paths: trace.sources.iter().map(|source| PathBuf::from(&source.path)).collect(),
        named: Some(*rank),
        host: None,
    };
    let division =
        Division { ranks: ranks.iter().map(files).collect(), without_rank: Vec::new(), others: Vec::new() };
    let next = AtomicUsize::new(0);
    // All are of the same files, so each call takes any rank that is left.
    let read = |_: &[PathBuf]| {
        let at = next.fetch_add(1, Ordering::Relaxed);
        let mut input = Input::default();
        input.trace = trace.of_rank(ranks.get(at).copied().unwrap_or(u32::MAX));
        Ok(input)
    };
    let loaded = load_with(&division, options, wanted_rank, read).map(|mut loaded| {
        let path = division.ranks[0].paths.first().cloned().unwrap_or_default();
        add_other_process(&mut loaded.analysis, &path, &trace.without_ranks());
        loaded
    });
    Some(loaded)
}

/// Names a process that did GPU work and tells no rank.
fn add_other_process(analysis: &mut Analysis, path: &Path, trace: &Trace) {
    let ops = &trace.ops;
    let process = ops.process.first().and_then(|process| trace.processes.get(process.index()));
    let (Some(process), Some(job)) = (process, &mut analysis.job) else {
        return;
    };
    let kernels = || (0..ops.len()).filter(|&op| ops.kind[op] == OpKind::Kernel);
    let other = OtherProcess {
        pid: process.pid,
        name: trace.names.get(process.name).to_owned(),
        source: path.display().to_string(),
        kernel_count: kernels().count() as u64,
        kernel_ns: kernels().map(|op| ops.duration(op)).sum(),
    };
    let why = format!(
        "process {} ({}) did GPU work and tells no rank: its {} kernels are in the numbers of no rank",
        other.pid, other.name, other.kernel_count
    );
    job.other_processes.push(other);
    analysis.reasons.push(Reason::new(About::Other("ranks".to_owned()), why));
}

/// Joins the ranks that were read. Files that are not readable or tell no rank cost only themselves.
fn join(
    division: &Division,
    done: Vec<ReadRank>,
    shown: Option<Shown>,
    wanted: Option<u32>,
) -> Result<Loaded, LoadError> {
    let mut records: Vec<RankRecord> = Vec::new();
    let mut unreadable = Vec::new();
    let mut reasons = Vec::new();
    let mut first_error = None;
    for ReadRank { at, result } in done {
        let path = &division.ranks[at].paths[0];
        match result {
            Ok(Some(record)) => records.push(record),
            Ok(None) => {
                let why = format!(
                    "{}: neither the capture nor its file name tells its rank; left out",
                    path.display()
                );
                reasons.push(Reason::new(About::Other("ranks".to_owned()), &why));
                unreadable.push(why);
            }
            Err(error @ LoadError::Interrupted { .. }) => return Err(error),
            Err(error) => {
                let why = error.to_string();
                reasons.push(Reason::new(About::Other("ranks".to_owned()), &why));
                unreadable.push(why);
                first_error.get_or_insert(error);
            }
        }
    }
    let mut ranks: Vec<u32> = records.iter().map(RankRecord::rank).collect();
    ranks.sort_unstable();
    let distinct = {
        let mut distinct = ranks.clone();
        distinct.dedup();
        distinct.len()
    };
    if records.is_empty()
        && let Some(error) = first_error
    {
        return Err(error);
    }
    if let Some(error) = other_job(&records) {
        return Err(error);
    }
    if distinct < 2 && records.len() + unreadable.len() > 1 && first_error.is_none() {
        return Err(LoadError::NotRanks {
            path: division.ranks[1].paths[0].clone(),
            first: division.ranks[0].paths[0].clone(),
            why: match ranks.first() {
                Some(rank) if ranks.len() > 1 => format!("both are of rank {rank}"),
                _ => "nothing tells that they are ranks of one job".to_owned(),
            },
        });
    }
    let Some(shown) = shown else {
        return Err(LoadError::NoRank { rank: wanted.unwrap_or(0), given: ranks });
    };
    let mut twice: Vec<u32> =
        ranks.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    twice.dedup();
    unreadable.extend(
        twice
            .iter()
            .map(|rank| format!("rank {rank} was given more than once; the first capture of it counts")),
    );
    let mut analysis = shown.analyzed.analysis;
    analysis.reasons.extend(reasons);
    join_ranks(&mut analysis, shown.rank, records);
    let title: Vec<String> =
        division.ranks[shown.at].paths.iter().map(|path| path.display().to_string()).collect();
    Ok(Loaded {
        analysis,
        stages: shown.analyzed.stages,
        trace: shown.trace,
        context: Context {
            title: format!("{} (rank {} of {distinct} given)", title.join(", "), shown.rank),
            ..Context::default()
        },
        unreadable,
    })
}

/// Finds a capture of another job than the first by the number of ranks.
fn other_job(records: &[RankRecord]) -> Option<LoadError> {
    let known = || records.iter().filter_map(|record| Some((record, record.world_size()?)));
    let (first, size) = known().next()?;
    let (other, other_size) = known().find(|(_, other)| *other != size)?;
    let path = |record: &RankRecord| record.sources().first().map(PathBuf::from).unwrap_or_default();
    Some(LoadError::NotRanks {
        path: path(other),
        first: path(first),
        why: format!("their jobs have {size} and {other_size} ranks"),
    })
}

/// Locks a mutex. A thread that panics ends the program, so its data is never seen.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_in_file_names() {
        for (name, rank) in [
            ("rank0.json.gz", Some(0)),
            ("trace_rank-17.Apr_03.pt.trace.json.gz", Some(17)),
            ("host-3_rank_2.sqlite", Some(2)),
            ("Rank=5.rgcap", Some(5)),
            ("1741-TP-3.trace.json.gz", Some(3)),
            ("1741-TP-3-DP-1.trace.json.gz", None),
            ("frank7.json", None),
            ("rank.json", None),
            ("http2.json", None),
            ("rank99999999999.json", None),
            ("plain.sqlite", None),
        ] {
            assert_eq!(rank_in_name(Path::new(name)), rank, "{name}");
        }
    }
}
