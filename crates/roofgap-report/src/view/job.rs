//! Several ranks of a job: their times, the collectives they share, and the ranks that others wait for.

use super::numbers::{NONE, count, or_none, plural, size, time};
use super::table::Table;
use roofgap_analyze::{About, Analysis, MatchedCollectives, RankInfo, Straggler, short_name};

/// Explains the columns of the table of ranks.
pub(crate) const RANKS: &str = "Hidden and exposed are of the communication kernels; idle time is that between the GPU operations of the \
     stages, by cause. Waited is exposed time in collectives before their last rank arrived; waited for is the time of the others \
     (their median) before this rank arrived. Both are of collectives that could be matched, among the ranks given.";

/// Explains the columns of the table of matched collectives.
pub(crate) const COLLECTIVES: &str = "Latency is the shortest duration over the ranks. Skew is the spread of their starts, in clocks aligned by \
     the ends of the collectives, where it is above the error of the clocks. Last is the rank that arrived last most often.";

/// Explains the columns of the table of stragglers.
pub(crate) const STRAGGLERS: &str = "More is time above the median of the other ranks in the same stage: of the kernel with the largest \
     difference, and of idle time.";

/// Names the rank of a capture and the size of its job, or the ranks that were given.
pub(crate) fn ranks_line(analysis: &Analysis) -> Option<String> {
    let size = |world_size: Option<u32>| match world_size {
        Some(size) => format!(" of {}", plural(u64::from(size), "rank")),
        None => String::new(),
    };
    match (&analysis.job, &analysis.ranks[..]) {
        (None, [rank, ..]) => Some(format!("{}{}", rank.rank, size(rank.world_size))),
        (None, []) => None,
        (Some(job), ranks) => Some(format!(
            "{}{}; {} given",
            job.shown_rank,
            size(job.world_size),
            count(ranks.len() as u64)
        )),
    }
}

/// Builds the table of ranks; empty unless several were given.
pub(crate) fn ranks(analysis: &Analysis) -> Table {
    let ranks = match analysis.job {
        Some(_) => &analysis.ranks[..],
        None => &[],
    };
    let mut table = Table::of(ranks)
        .number("rank", |row: &RankInfo| row.rank.to_string())
        .text("host", |row| row.host.clone().unwrap_or_else(|| NONE.into()))
        .count("kernels", |row| row.kernel_count)
        .ms("kernel", |row| row.kernel_ns)
        .ms("busy", |row| row.busy_ns)
        .ms("hidden", RankInfo::hidden_ns)
        .ms("exposed", |row| row.exposed_ns)
        .ms("idle: launch", |row| row.idle.map(|idle| idle.launch_ns))
        .ms("sync", |row| row.idle.map(|idle| idle.sync_ns))
        .ms("copy", |row| row.idle.map(|idle| idle.copy_ns))
        .ms("other", |row| row.idle.map(|idle| idle.other_ns))
        .ms("waited", |row| row.waited_ns)
        .ms("waited for", |row| row.waited_for_ns)
        .count("last", |row| row.last_count)
        .text("clock offset", |row| or_none(row.clock_offset_ns, time))
        .text("error", |row| or_none(row.clock_error_ns, time))
        .build();
    if ranks.iter().all(|rank| rank.host.is_none()) {
        let kept: Vec<String> = table
            .headings
            .iter()
            .map(|heading| heading.name.clone())
            .collect();
        let kept: Vec<&str> = kept
            .iter()
            .map(String::as_str)
            .filter(|name| *name != "host")
            .collect();
        table = table.pick(&kept);
    }
    table
}

/// Builds the table of collectives that were matched across ranks.
pub(crate) fn collectives(analysis: &Analysis) -> Table {
    let rows = analysis.job.as_ref().map_or(&[][..], |job| &job.collectives);
    let each = |sum: i64, row: &MatchedCollectives| sum / (row.count.max(1) as i64);
    Table::of(rows)
        .text("collective", |row: &MatchedCollectives| row.collective.clone())
        .text("group", |row| row.group.clone().unwrap_or_else(|| NONE.into()))
        .number("ranks", |row| row.ranks.len().to_string())
        .count("matched", |row| row.count)
        .text("by", |row| row.matched_by.clone())
        .number("bytes", |row| or_none(row.bytes, size))
        .text("mean latency", |row| time(each(row.latency_ns, row)))
        .text("mean skew", |row| or_none(row.skew_mean_ns, time))
        .text("largest skew", |row| or_none(row.skew_max_ns, time))
        .ms("waited", |row| row.waited_ns)
        .text("last", |row| {
            or_none(row.last_rank, |rank| {
                format!("rank {rank}, {} times", count(row.last_count))
            })
        })
        .build()
}

/// Builds the table of ranks that others wait for.
pub(crate) fn stragglers(analysis: &Analysis) -> Table {
    let rows = analysis.job.as_ref().map_or(&[][..], |job| &job.stragglers);
    Table::of(rows)
        .number("rank", |row: &Straggler| row.rank.to_string())
        .text("stage", |row| row.stage.clone().unwrap_or_else(|| NONE.into()))
        .ms("waited for", |row| row.waited_for_ns)
        .number("last at", |row| {
            format!("{} of {}", count(row.last_count), count(row.collective_count))
        })
        .text("kernel", |row| or_none(row.kernel.as_deref(), short_name))
        .ms("more", |row| row.kernel_excess_ns)
        .ms("more idle", |row| row.idle_excess_ns)
        .build()
}

/// Says what is not known about the ranks and their collectives.
pub(crate) fn gaps(analysis: &Analysis) -> Vec<String> {
    let about =
        |about: &About| matches!(about, About::Other(path) if path == "ranks" || path == "job.collectives");
    let reasons = analysis.reasons.iter().filter(|reason| about(&reason.about));
    reasons.map(|reason| reason.why.clone()).collect()
}
