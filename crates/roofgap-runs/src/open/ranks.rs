//! Folders of captures, and several timelines as ranks of one job: which files belong to which rank, and their analyses joined into
//! one.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};

use roofgap_analyze::{
    About, Analysis, Analyzed, Options, OtherProcess, RankRecord, Reason, analyze, join_ranks,
};
use roofgap_base::error::Error;
use roofgap_base::exit::Exit;
use roofgap_collect::entries;
use roofgap_report::Context;
use roofgap_trace::{Input, OpKind, Sniffed, SourceFormat, Trace};

use super::{Opened, no_rank};

/// Ranks that are read at the same time. Each is reduced before the next is read, so memory does not grow with their number.
const AT_ONCE: usize = 2;

/// Files of one rank.
#[derive(Debug)]
pub struct RankFiles {
    /// Timelines.
    files: Vec<Sniffed>,
    /// Rank in the capture, else in the file name.
    named: Option<u32>,
    /// Host in the capture.
    host: Option<String>,
}

/// Inputs divided into ranks.
#[derive(Debug, Default)]
pub struct Division {
    ranks: Vec<RankFiles>,
    /// Captures of processes that tell no rank.
    without_rank: Vec<Sniffed>,
    /// Counters and accounts.
    pub(super) others: Vec<Sniffed>,
}

/// Detects the formats of inputs, and of the captures in folders among them. A folder without captures is an error.
pub fn expand(paths: &[PathBuf]) -> Result<Vec<Sniffed>, Error> {
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let inside = if path.is_dir() { captures_in(path) } else { Vec::new() };
        if inside.is_empty() {
            files.push(Sniffed::of(path)?);
        } else {
            files.extend(inside);
        }
    }
    Ok(files)
}

/// Lists the captures in a folder by name.
fn captures_in(folder: &Path) -> Vec<Sniffed> {
    let mut captures: Vec<Sniffed> = entries(folder)
        .iter()
        .filter_map(|path| Sniffed::in_folder(path)?.ok())
        // Totals say less than a timeline and cannot be joined with one.
        .filter(|file| !file.format.is_summary())
        .collect();
    // The pages of an ncu report may be beside it.
    if captures.iter().any(|file| file.format == SourceFormat::NcuReport) {
        let is_page = |format| matches!(format, SourceFormat::NcuRawPage | SourceFormat::NcuDetailsPage);
        captures.retain(|file| !is_page(file.format));
    }
    // The export of a report may be beside it.
    let all: Vec<PathBuf> = captures.iter().map(|file| file.path.clone()).collect();
    captures.retain(|file| {
        let export = file.path.with_extension("sqlite");
        file.format != SourceFormat::NsysReport || export == file.path || !all.contains(&export)
    });
    captures
}

/// Divides the inputs into ranks; `None` where they are one timeline.
///
/// Native captures are processes of one program, unless they or their file names tell ranks. The processes of one rank on one host
/// belong together.
pub fn divide(files: &[Sniffed]) -> Option<Division> {
    let (timelines, others): (Vec<Sniffed>, Vec<Sniffed>) =
        files.iter().cloned().partition(|file| file.format.is_timeline());
    let is = |format| move |file: &&Sniffed| file.format == format;
    let native = timelines.iter().filter(is(SourceFormat::Native)).count();
    let has_summary = timelines.iter().any(|file| file.format.is_summary());
    if has_summary || timelines.len() < 2 || (native > 0 && native < timelines.len()) {
        return None;
    }
    let mut ranks: Vec<RankFiles> = Vec::new();
    let mut without_rank = Vec::new();
    for file in timelines {
        let mut named = rank_in_name(&file.path);
        let mut host = None;
        if file.format == SourceFormat::Native {
            // A damaged capture fails when it is read as a whole.
            if let Some(told) = file.rank() {
                (named, host) = (Some(told.rank), told.host);
            }
            if named.is_none() {
                without_rank.push(file);
                continue;
            }
            // The captures of another run are of another start of the program.
            let same = |rank: &&mut RankFiles| {
                let beside =
                    rank.files.first().is_some_and(|first| first.path.parent() == file.path.parent());
                beside && (rank.named, &rank.host) == (named, &host)
            };
            if let Some(known) = ranks.iter_mut().find(same) {
                known.files.push(file);
                continue;
            }
        }
        ranks.push(RankFiles { files: vec![file], named, host });
    }
    (ranks.len() > 1).then_some(Division { ranks, without_rank, others })
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

/// Opens ranks as one analysis: that of the rank the user names, else of the lowest, with the others beside it. `read` gets the
/// position of a rank and its files.
pub fn open_ranks(
    division: &Division,
    options: &Options,
    wanted_rank: Option<u32>,
    read: impl Fn(usize, &[Sniffed]) -> Result<Input, Error> + Sync,
) -> Result<Opened, Error> {
    let reduce = |at: usize, rank: &RankFiles| {
        read(at, &rank.files).map(|input| {
            let analyzed = analyze(&input.trace, options);
            let record = RankRecord::of(&input.trace, &analyzed, rank.named);
            (input.trace, analyzed, record)
        })
    };
    let mut shown: Option<Shown> = None;
    let mut records = Vec::new();
    let ranks: Vec<(usize, &RankFiles)> = division.ranks.iter().enumerate().collect();
    for ranks in ranks.chunks(AT_ONCE) {
        let reduced: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = ranks.iter().map(|(at, rank)| scope.spawn(|| reduce(*at, rank))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect()
        });
        for ((at, _), result) in ranks.iter().zip(reduced) {
            records.push(result.map(|(trace, analyzed, record)| {
                let rank = record.as_ref()?.rank();
                let is_wanted = wanted_rank.is_none_or(|wanted| wanted == rank);
                if is_wanted && shown.as_ref().is_none_or(|shown| rank < shown.rank) {
                    shown = Some(Shown { rank, at: *at, trace, analyzed });
                }
                record
            }));
        }
    }
    let mut opened = join(division, records, shown, wanted_rank)?;
    for (at, file) in (division.ranks.len()..).zip(&division.without_rank) {
        match read(at, std::slice::from_ref(file)) {
            Ok(input) => add_other_process(&mut opened.analysis, &file.path, &input.trace),
            Err(error) => opened.unreadable.push(error.to_string()),
        }
    }
    Ok(opened)
}

/// Divides a trace that holds several ranks, such as an nsys report of a launcher, and joins their analyses; `None` for any other.
pub fn open_divided(
    trace: &Trace,
    options: &Options,
    wanted_rank: Option<u32>,
) -> Option<Result<Opened, Error>> {
    let ranks = trace.ranks();
    if ranks.len() < 2 {
        return None;
    }
    let sources = trace.sources.iter();
    let files: Vec<Sniffed> = sources
        .map(|source| Sniffed { path: PathBuf::from(&source.path), format: source.format, packed: false })
        .collect();
    let of_rank = |rank: &u32| RankFiles { files: files.clone(), named: Some(*rank), host: None };
    let division = Division { ranks: ranks.iter().map(of_rank).collect(), ..Division::default() };
    let read = |at: usize, _: &[Sniffed]| {
        let mut input = Input::default();
        input.trace = trace.of_rank(ranks.get(at).copied().unwrap_or(u32::MAX));
        Ok(input)
    };
    Some(open_ranks(&division, options, wanted_rank, read).map(|mut opened| {
        let path = files.first().map(|file| file.path.clone()).unwrap_or_default();
        add_other_process(&mut opened.analysis, &path, &trace.without_ranks());
        opened
    }))
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
    results: Vec<Result<Option<RankRecord>, Error>>,
    shown: Option<Shown>,
    wanted: Option<u32>,
) -> Result<Opened, Error> {
    let mut records: Vec<RankRecord> = Vec::new();
    let mut unreadable = Vec::new();
    let mut first_error = None;
    for (at, result) in results.into_iter().enumerate() {
        match result {
            Ok(Some(record)) => records.push(record),
            Ok(None) => unreadable.push(format!(
                "{}: neither the capture nor its file name tells its rank; left out",
                division.ranks[at].files[0].path.display()
            )),
            Err(error) if error.exit() == Exit::Interrupted => return Err(error),
            Err(error) => {
                unreadable.push(error.to_string());
                first_error.get_or_insert(error);
            }
        }
    }
    let reasons: Vec<Reason> =
        unreadable.iter().map(|why| Reason::new(About::Other("ranks".to_owned()), why)).collect();
    let mut ranks: Vec<u32> = records.iter().map(RankRecord::rank).collect();
    ranks.sort_unstable();
    let same: Vec<&[u32]> = ranks.chunk_by(|a, b| a == b).collect();
    let distinct = same.len();
    if records.is_empty()
        && let Some(error) = first_error
    {
        return Err(error);
    }
    if let Some(error) = other_job(&records) {
        return Err(error);
    }
    if distinct < 2 && records.len() + unreadable.len() > 1 && first_error.is_none() {
        return Err(not_ranks(division, &ranks));
    }
    let Some(shown) = shown else {
        return Err(no_rank(wanted.unwrap_or(0), &ranks));
    };
    for twice in same.iter().filter(|same| same.len() > 1) {
        let rank = twice[0];
        unreadable.push(format!("rank {rank} was given more than once; the first capture of it counts"));
    }
    let mut analysis = shown.analyzed.analysis;
    analysis.reasons.extend(reasons);
    join_ranks(&mut analysis, shown.rank, records);
    let title: Vec<String> =
        division.ranks[shown.at].files.iter().map(|file| file.path.display().to_string()).collect();
    Ok(Opened {
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

/// Says why captures that are not of different ranks cannot be joined.
fn not_ranks(division: &Division, ranks: &[u32]) -> Error {
    let path = |at: usize| &division.ranks[at].files[0].path;
    let why = match ranks {
        [rank, _, ..] => format!("both are of rank {rank}"),
        _ => "nothing tells that they are ranks of one job".to_owned(),
    };
    second_timeline(path(1), path(0), &why)
}

fn second_timeline(path: &Path, first: &Path, why: &str) -> Error {
    Error::new(format!(
        "{}: a second timeline beside {}, and {why}; analyse one at a time, compare the two with `roofgap compare`, or name the \
         ranks of a job in their file names (rank0, rank1)",
        path.display(),
        first.display()
    ))
}

/// Finds a capture of another job than the first by the number of ranks.
fn other_job(records: &[RankRecord]) -> Option<Error> {
    let known = || records.iter().filter_map(|record| Some((record, record.world_size()?)));
    let (first, size) = known().next()?;
    let (other, other_size) = known().find(|(_, other)| *other != size)?;
    let path = |record: &RankRecord| record.sources().first().map(PathBuf::from).unwrap_or_default();
    let why = format!("their jobs have {size} and {other_size} ranks");
    Some(second_timeline(&path(other), &path(first), &why))
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
