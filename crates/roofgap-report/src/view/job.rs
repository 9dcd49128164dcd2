//! Several ranks of a job: their times, the collectives they share, and the ranks that others wait for.

use super::numbers::{NONE, count, counted, or_none, share, size, time};
use super::table::Table;
use roofgap_analyze::{
    About, Analysis, ExpertBalance, MatchedCollectives, MatchedTransfers, RankInfo, StageUtilisation,
    Straggler, short_name,
};

/// Explains the columns of the table of ranks.
pub const RANKS: &str = "Hidden and exposed are of the communication; idle time is that between the GPU operations of the \
     stages, by cause. Waited is exposed time in collectives before their last rank arrived; waited for is the time of the others \
     (their median) before this rank arrived. Both are of collectives that could be matched, among the ranks given.";

/// Explains the columns of the table of matched collectives.
pub const COLLECTIVES: &str = "Latency is the shortest duration over the ranks. Skew is the spread of their starts, in clocks aligned by \
     the ends of the collectives, where it is above the error of the clocks. Last is the rank that arrived last most often.";

/// Explains the columns of the table of stragglers.
pub const STRAGGLERS: &str = "More is time above the median of the other ranks in the same stage: of the kernel with the largest \
     difference, and of idle time.";

/// Explains the columns of the table of experts.
pub const EXPERTS: &str = "Time of grouped products and fused experts, by their names, before each matched collective: of the slowest rank \
     there, and the mean of the ranks. Waited is exposed time in these collectives, summed over ranks. Even experts would save at most the \
     time of the slowest above the mean, where a rank was seen to wait as long.";

/// Explains the columns of the table of transfers.
pub const TRANSFERS: &str = "Sends and receives of two ranks, matched by their numbers or their order. The receiver waits before the \
     sender arrives and the sender before the receiver does: exposed time, in clocks aligned by collectives. In a pipeline it is the bubble.";

/// Explains the columns of the table of utilisation.
pub const UTILISATION: &str = "By wall time and the share of the model that each rank has. All ranks: their work divided by what their \
     devices can do in the time of the slowest.";

/// Names the rank of a capture and the size of its job, or the ranks that were given.
pub fn ranks_line(analysis: &Analysis) -> Option<String> {
    let size = |world_size: Option<u32>| match world_size {
        Some(size) => format!(" of {}", counted(u64::from(size), "rank")),
        None => String::new(),
    };
    match (&analysis.job, &analysis.ranks[..]) {
        (None, [rank, ..]) => Some(format!("{}{}", rank.rank, size(rank.world_size))),
        (None, []) => None,
        (Some(job), ranks) => {
            Some(format!("{}{}; {} given", job.shown_rank, size(job.world_size), count(ranks.len() as u64)))
        }
    }
}

/// Builds the table of ranks; empty unless several were given.
pub fn ranks(analysis: &Analysis) -> Table {
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
        .ms("exposed", RankInfo::measured_exposed_ns)
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
        let kept: Vec<String> = table.headings.iter().map(|heading| heading.name.clone()).collect();
        let kept: Vec<&str> = kept.iter().map(String::as_str).filter(|name| *name != "host").collect();
        table = table.pick(&kept);
    }
    table
}

/// Builds the table of collectives that were matched across ranks.
pub fn collectives(analysis: &Analysis) -> Table {
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
            or_none(row.last_rank, |rank| format!("rank {rank}, {} times", count(row.last_count)))
        })
        .build()
}

/// Builds the table of ranks that others wait for.
pub fn stragglers(analysis: &Analysis) -> Table {
    let rows = analysis.job.as_ref().map_or(&[][..], |job| &job.stragglers);
    Table::of(rows)
        .number("rank", |row: &Straggler| row.rank.to_string())
        .text("stage", |row| row.stage.clone().unwrap_or_else(|| NONE.into()))
        .ms("waited for", |row| row.waited_for_ns)
        .number("last at", |row| format!("{} of {}", count(row.last_count), count(row.collective_count)))
        .text("kernel", |row| or_none(row.kernel.as_deref(), short_name))
        .ms("more", |row| row.kernel_excess_ns)
        .ms("more idle", |row| row.idle_excess_ns)
        .build()
}

/// Builds the table of the balance of experts.
pub fn experts(analysis: &Analysis) -> Table {
    let rows = analysis.job.as_ref().map_or(&[][..], |job| &job.experts);
    Table::of(rows)
        .text("stage", |row: &ExpertBalance| row.stage.clone().unwrap_or_else(|| NONE.into()))
        .count("collectives", |row| row.sections)
        .number("ranks", |row| row.ranks.len().to_string())
        .ms("slowest", |row| row.slowest_ns)
        .ms("mean", |row| row.mean_ns)
        .number("slowest / mean", |row| format!("{:.2}", row.imbalance))
        .text("slowest rank", |row| format!("rank {}, {} times", row.slowest_rank, count(row.slowest_count)))
        .ms("waited", |row| row.waited_ns)
        .ms("even saves", |row| row.bound_ns)
        .build()
}

/// Builds the table of transfers between ranks.
pub fn transfers(analysis: &Analysis) -> Table {
    let rows = analysis.job.as_ref().map_or(&[][..], |job| &job.transfers);
    Table::of(rows)
        .number("from", |row: &MatchedTransfers| row.from.to_string())
        .number("to", |row| row.to.to_string())
        .text("group", |row| row.group.clone().unwrap_or_else(|| NONE.into()))
        .count("matched", |row| row.count)
        .text("by", |row| row.matched_by.clone())
        .number("bytes", |row| or_none(row.bytes, size))
        .ms("receives", |row| row.receive_ns)
        .ms("receiver waited", |row| row.receiver_waited_ns)
        .ms("sender waited", |row| row.sender_waited_ns)
        .build()
}

/// Builds the table of MFU and MBU of each rank and of all together; empty where no share of the model is known.
pub fn utilisation(analysis: &Analysis) -> Table {
    let Some(job) = &analysis.job else {
        return Table::default();
    };
    let of_rank = |rank: &RankInfo| {
        let name = rank.rank.to_string();
        let rows = rank.utilisation.iter().cloned();
        rows.map(move |row| (name.clone(), row)).collect::<Vec<_>>()
    };
    let all = job.utilisation.iter().cloned();
    let rows: Vec<(String, StageUtilisation)> =
        all.map(|row| ("all".to_owned(), row)).chain(analysis.ranks.iter().flat_map(of_rank)).collect();
    Table::of(&rows)
        .text("rank", |(rank, _): &(String, StageUtilisation)| rank.clone())
        .text("stage", |(_, row)| row.stage.clone())
        .number("MFU %", |(_, row)| or_none(row.mfu_pct, share))
        .number("MBU %", |(_, row)| or_none(row.mbu_pct, share))
        .build()
}

/// Says what is not known about the ranks and their collectives.
pub fn gaps(analysis: &Analysis) -> Vec<String> {
    let about =
        |about: &About| matches!(about, About::Other(path) if path == "ranks" || path == "job.collectives");
    let reasons = analysis.reasons.iter().filter(|reason| about(&reason.about));
    reasons.map(|reason| reason.why.clone()).collect()
}
