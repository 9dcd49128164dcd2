//! GPU work other than kernels by name: copies, whole graphs and communication. Several ranks of a job: their times, the collectives
//! they share, and the ranks that others wait for.

use super::table::{Cell, Table};
use super::{Block, Document, Section, maybe};
use roofgap_analyze::{About, Analysis, Job, RankInfo, Stage, StageUtilisation, short_name};
use roofgap_base::numbers::{count, counted, decimal, percent, share, size, time};

impl Document<'_> {
    /// Tabulates the GPU work of the whole trace that is not a kernel by name.
    pub(super) fn gpu_work(&self) -> Vec<Section> {
        let analysis = self.analysis;
        let one_device = self.is_text() && analysis.devices.len() < 2;
        let shown = |table: fn(&Analysis) -> Table| {
            let table = Some(table(analysis)).filter(|_| !self.text().stages_only)?;
            Some(if one_device { table.without(&["device"]) } else { table })
        };
        let tables =
            [("graphs", shown(graphs)), ("copies", shown(copies)), ("communication", shown(communication))];
        self.all_tabled(tables, self.text().kernels).collect()
    }

    /// Tabulates the ranks and what they do together.
    pub(super) fn job(&self) -> Vec<Section> {
        let (job, ranks) = (self.analysis.job.as_ref(), &self.analysis.ranks);
        let tables = [
            ("ranks", job.map(|_| ranks_table(ranks))),
            ("collectives", job.map(collectives)),
            ("stragglers", job.map(stragglers)),
            ("experts", job.map(experts)),
            ("transfers", job.map(transfers)),
            ("utilisation", job.map(|job| utilisation(job, ranks))),
        ];
        let about = |about: &About| matches!(about, About::Other(path) if path == "ranks" || path == "job.collectives");
        let unknown = self.analysis.reasons.iter().filter(|reason| self.is_text() && about(&reason.about));
        let unknown = unknown.map(|reason| Block::Line(reason.why.clone()));
        let tables = self.all_tabled(tables, self.text().kernels.max(LISTED));
        tables.chain([Section::new("ranks", "").with(unknown)]).collect()
    }

    /// Returns a section for each id and table.
    fn all_tabled<const N: usize>(
        &self,
        tables: [(&'static str, Option<Table>); N],
        most: usize,
    ) -> impl Iterator<Item = Section> {
        tables.into_iter().map(move |(id, table)| self.tabled(id, table.unwrap_or_default(), most))
    }
}

fn graphs(analysis: &Analysis) -> Table {
    Table::of(&analysis.graphs)
        .text("graph", |row| row.graph.map(|id| id.to_string()))
        .text("device", |row| row.device)
        .number("launches", |row| row.launches)
        .ms("total", |row| row.total_ns)
        .ms("mean", |row| row.total_ns / (row.launches.max(1) as i64))
        .build()
}

fn copies(analysis: &Analysis) -> Table {
    Table::of(&analysis.copies)
        .text("copy", |row| row.kind.as_str())
        .text("device", |row| row.device)
        .text("host memory", |row| row.pinned.map(|pinned| if pinned { "pinned" } else { "pageable" }))
        .number("calls", |row| row.calls)
        .number("bytes", |row| row.bytes.map(size))
        .ms("total", |row| row.total_ns)
        .number("GB/s", |row| row.bandwidth_bytes_per_s.map(gbs))
        .number("overlapped %", |row| percent(row.overlapped_ns, row.total_ns))
        .number("of peak %", |row| row.peak_pct)
        .text("link", |row| link(row.link.as_ref(), row.peak_bytes_per_s))
        .build()
}

fn communication(analysis: &Analysis) -> Table {
    Table::of(&analysis.communication)
        .text("collective", |row| &row.collective)
        .text("group", |row| row.group.as_ref())
        .number("ranks", |row| row.group_size)
        .text("device", |row| if row.on == "cpu" { "CPU".to_owned() } else { row.device.cell() })
        .number("calls", |row| row.calls)
        .number("bytes", |row| row.bytes.map(size))
        .ms("total", |row| row.is_timed().then_some(row.total_ns))
        .ms("hidden", |row| row.is_timed().then(|| row.hidden_ns()))
        .ms("exposed", |row| row.is_timed().then_some(row.exposed_ns))
        .number("bus GB/s", |row| row.bus_bandwidth_bytes_per_s.map(gbs))
        .number("of peak %", |row| row.peak_pct)
        .text("link", |row| link(row.link.as_ref(), row.peak_bytes_per_s))
        .build()
}

/// Names a link and its peak, if both are known.
fn link(link: Option<&String>, peak: Option<f64>) -> Option<String> {
    Some(format!("{}, {} GB/s", link?, gbs(peak?)))
}

/// Describes the whole graphs of a stage.
pub fn graphs_of_stage(stage: &Stage) -> Option<String> {
    let total_ns: i64 = stage.graphs.iter().map(|row| row.total_ns).sum();
    let count: u64 = stage.graphs.iter().map(|row| row.launches).sum();
    let text = || {
        format!("of its GPU work {} was recorded as {} of whole CUDA graphs", time(total_ns), launches(count))
    };
    (count > 0).then(text)
}

/// Formats a number of launches.
pub fn launches(n: u64) -> String {
    format!("{} launch{}", count(n), if n == 1 { "" } else { "es" })
}

/// Formats bytes per second as GB/s, with more decimals for a small rate.
fn gbs(bytes_per_s: f64) -> String {
    match bytes_per_s / 1e9 {
        rate if rate >= 10.0 => decimal(rate, 1),
        rate if rate >= 0.1 => format!("{rate:.2}"),
        rate => format!("{rate:.4}"),
    }
}

/// Ranks that text lists even where it lists fewer kernels.
const LISTED: usize = 64;

/// Names the rank of a capture and the size of its job, or the ranks that were given.
pub fn ranks_line(analysis: &Analysis) -> Option<String> {
    let size = |world_size: Option<u32>| {
        maybe(world_size, |size| format!(" of {}", counted(u64::from(size), "rank")))
    };
    match (&analysis.job, &analysis.ranks[..]) {
        (None, [rank, ..]) => Some(format!("{}{}", rank.rank, size(rank.world_size))),
        (None, []) => None,
        (Some(job), ranks) => {
            Some(format!("{}{}; {} given", job.shown_rank, size(job.world_size), count(ranks.len() as u64)))
        }
    }
}

fn ranks_table(ranks: &[RankInfo]) -> Table {
    let table = Table::of(ranks)
        .number("rank", |row| row.rank)
        .text("host", |row| row.host.as_ref())
        .number("kernels", |row| row.kernel_count)
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
        .number("last", |row| row.last_count)
        .text("clock offset", |row| row.clock_offset_ns.map(time))
        .text("error", |row| row.clock_error_ns.map(time))
        .build();
    let hosts = ranks.iter().any(|rank| rank.host.is_some());
    if hosts { table } else { table.without(&["host"]) }
}

fn collectives(job: &Job) -> Table {
    Table::of(&job.collectives)
        .text("collective", |row| &row.collective)
        .text("group", |row| row.group.as_ref())
        .number("ranks", |row| row.ranks.len().to_string())
        .number("matched", |row| row.count)
        .text("by", |row| &row.matched_by)
        .number("bytes", |row| row.bytes.map(size))
        .text("mean latency", |row| time(row.latency_ns / (row.count.max(1) as i64)))
        .text("mean skew", |row| row.skew_mean_ns.map(time))
        .text("largest skew", |row| row.skew_max_ns.map(time))
        .ms("waited", |row| row.waited_ns)
        .text("last", |row| Some(format!("rank {}, {} times", row.last_rank?, count(row.last_count))))
        .build()
}

fn stragglers(job: &Job) -> Table {
    Table::of(&job.stragglers)
        .number("rank", |row| row.rank)
        .text("stage", |row| row.stage.as_ref())
        .ms("waited for", |row| row.waited_for_ns)
        .number("last at", |row| format!("{} of {}", count(row.last_count), count(row.collective_count)))
        .text("kernel", |row| row.kernel.as_deref().map(short_name))
        .ms("more", |row| row.kernel_excess_ns)
        .ms("more idle", |row| row.idle_excess_ns)
        .build()
}

fn experts(job: &Job) -> Table {
    Table::of(&job.experts)
        .text("stage", |row| row.stage.as_ref())
        .number("collectives", |row| row.sections)
        .number("ranks", |row| row.ranks.len().to_string())
        .ms("slowest", |row| row.slowest_ns)
        .ms("mean", |row| row.mean_ns)
        .number("slowest / mean", |row| format!("{:.2}", row.imbalance))
        .text("slowest rank", |row| format!("rank {}, {} times", row.slowest_rank, count(row.slowest_count)))
        .ms("waited", |row| row.waited_ns)
        .ms("even saves", |row| row.bound_ns)
        .build()
}

fn transfers(job: &Job) -> Table {
    Table::of(&job.transfers)
        .number("from", |row| row.from)
        .number("to", |row| row.to)
        .text("group", |row| row.group.as_ref())
        .number("matched", |row| row.count)
        .text("by", |row| &row.matched_by)
        .number("bytes", |row| row.bytes.map(size))
        .ms("receives", |row| row.receive_ns)
        .ms("receiver waited", |row| row.receiver_waited_ns)
        .ms("sender waited", |row| row.sender_waited_ns)
        .build()
}

/// Tabulates MFU and MBU of each rank and of all together; empty where no share of the model is known.
fn utilisation(job: &Job, ranks: &[RankInfo]) -> Table {
    let all = job.utilisation.iter().map(|row| ("all".to_owned(), row));
    let each = ranks.iter().flat_map(|rank| rank.utilisation.iter().map(|row| (rank.rank.to_string(), row)));
    let rows: Vec<(String, &StageUtilisation)> = all.chain(each).collect();
    Table::of(&rows)
        .text("rank", |(rank, _)| rank)
        .text("stage", |(_, row)| &row.stage)
        .number("MFU %", |(_, row)| row.mfu_pct.map(share))
        .number("MBU %", |(_, row)| row.mbu_pct.map(share))
        .build()
}
