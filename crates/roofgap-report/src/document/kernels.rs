//! Kernels, of a timeline or measured by ncu; operators, counters, ncu's own rules, and kernels by layer of the model.

use super::table::Table;
use super::{
    Block, Document, Form, KERNELS, Section, capitalized, explanation, gpu_work, joined, joined_any, maybe,
    roof,
};
use crate::render::text::TextOptions;
use roofgap_analyze::{
    About, Analysis, CounterRow, Kernel, KernelOrigin, LayerRow, NcuRule, ShortNames, Stage, StageKind,
};
use roofgap_base::numbers::{count, counted, decimal, ms, percent, si, time, us};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// The name of a measured share of peak, and its value in a row of counters, %.
pub type CounterShare = (&'static str, fn(&CounterRow) -> Option<f64>);

/// The measured shares of peak.
pub const COUNTER_SHARES: [CounterShare; 6] = [
    ("SM", |row| row.sm_pct),
    ("memory", |row| row.memory_pct),
    ("DRAM", |row| row.dram_pct),
    ("L2", |row| row.l2_pct),
    ("L1", |row| row.l1_pct),
    ("occupancy", |row| row.occupancy_pct),
];

/// Columns of the table of kernels that ncu measured.
const MEASURED: [&str; 9] =
    ["kernel", "launches", "mean µs", "share %", "SM %", "memory %", "DRAM %", "occupancy %", "bound"];

/// Columns of the table of kernels in text.
const TEXT: [&str; 7] = ["kernel", "device", "family", "total ms", "share %", "calls", "mean µs"];

/// Columns of the table of kernels in Markdown.
const MARKDOWN: [&str; 9] =
    ["kernel", "device", "total ms", "calls", "mean ms", "share %", "stage", "family", "bound"];

impl Document<'_> {
    /// Lists the kernels: of the whole trace in text and on the page, of each stage in text and in the report.
    pub(super) fn kernels(&self) -> Vec<Section> {
        let analysis = self.analysis;
        let whole = Section::new("kernels", "Kernels");
        let none = analysis.kernels.is_empty();
        if only_measured(analysis) {
            let drawn = self.on_page(Block::Drawing).filter(|_| !none);
            let measured = Section::new("kernels", "Kernels measured by ncu").with(self.measured());
            return vec![measured, Section::new("kernels", "All kernels").inner().with(drawn)];
        }
        if none && self.form != Form::Report {
            return vec![whole.with([self.missing(&About::Kernels)])];
        }
        if self.is_page() {
            return vec![whole.with([Block::Drawing])];
        }
        let TextOptions { stages_only, kernels: most, .. } = self.text();
        let has_whole = self.is_text() && !stages_only;
        let all = has_whole
            .then(|| whole.with(self.of_kernels(&analysis.kernels, analysis.totals.kernel_ns, most)));
        // The tables of stages are shorter where the whole trace has one, too.
        let most = if has_whole { most.div_ceil(2) } else { self.most(0) };
        let stages = analysis.stages.iter().filter(|stage| !(has_whole && stage.kind == StageKind::Whole));
        let of_stage = |stage: &Stage| {
            let kernels = self.of_kernels(&stage.kernels, stage.kernel_ns.unwrap_or(0), most);
            Section::new("kernels", format!("Kernels of {}", stage.name)).with(kernels)
        };
        let of_stages = stages.filter(|stage| !stage.kernels.is_empty()).map(of_stage);
        let mut sections: Vec<Section> = all.into_iter().chain(of_stages).collect();
        if let Some(last) = sections.last_mut() {
            last.blocks.extend(roof::note_or_source(analysis).map(Block::Note));
        }
        sections
    }

    /// Tabulates the first kernels; a share is of `whole_ns`.
    fn of_kernels(&self, kernels: &[Kernel], whole_ns: i64, most: usize) -> Vec<Block> {
        let (shown, rest) = kernels.split_at(kernels.len().min(most));
        let several = on_several_devices(self.analysis);
        let names = if self.is_text() { &TEXT[..] } else { &MARKDOWN[..] };
        let mut columns = roof::columns(names, kernels);
        columns.retain(|name| several || !self.is_text() || *name != "device");
        let total: i64 = rest.iter().map(|kernel| kernel.total_ns).sum();
        let noun = if self.is_text() { "" } else { " kernels" };
        let with = format!("{noun} with {} in total", time(total));
        let table = table(self.analysis, shown, whole_ns, &columns);
        Block::table(table).into_iter().chain(Block::rest(kernels.len(), shown.len(), &with)).collect()
    }

    /// Lists the kernels of `kernels.md`.
    pub fn all_kernels(&self) -> Section {
        let (kernels, totals) = (&self.analysis.kernels, &self.analysis.totals);
        let section = Section::new("kernels", "");
        if !self.has_timeline_kernels() {
            return section.with(self.measured());
        }
        let line = format!(
            "{} kernels in {} launches, {} of kernel time. Sorted by total time; shares are of all kernel time.",
            count(kernels.len() as u64),
            count(totals.kernel_count),
            time(totals.kernel_ns)
        );
        section
            .with([Block::Line(line)])
            .with(self.of_kernels(kernels, totals.kernel_ns, KERNELS))
            .with(roof::note(self.analysis).map(Block::Note))
    }

    /// Tells whether there are kernels of a timeline.
    pub fn has_timeline_kernels(&self) -> bool {
        !self.analysis.kernels.is_empty() && !only_measured(self.analysis)
    }

    /// Lists the kernels that ncu measured, with a verdict for each.
    fn measured(&self) -> Vec<Block> {
        let analysis = self.analysis;
        let kernels = &analysis.kernels;
        if kernels.is_empty() {
            return vec![self.missing(&About::Kernels)];
        }
        let most = match self.form {
            Form::Report => usize::MAX,
            Form::List => KERNELS,
            _ => self.most(50),
        };
        let summary = Block::Line(self.sentence(&measured_summary(analysis)));
        let shown = &kernels[..kernels.len().min(most)];
        let table = table(analysis, shown, analysis.totals.kernel_ns, &roof::columns(&MEASURED, shown));
        let roof = roof::note_or_source(analysis).filter(|_| self.is_text()).map(Block::Note);
        let verdict = |kernel: &Kernel| {
            let row = kernel.counters.as_ref()?;
            let bound = row.bound.as_deref().unwrap_or("no verdict");
            Some(format!("{}: {bound}: {}", kernel.short_name, row.reason))
        };
        let blocks = self.not_in_text(Some(summary)).into_iter().chain(Block::table(table));
        let blocks =
            blocks.chain(Block::rest(kernels.len(), most, "")).chain([Block::explanation("measured")]);
        blocks.chain(roof).chain(Block::list(shown.iter().filter_map(verdict))).collect()
    }

    /// Lists the kernels of each stage by layer.
    pub(super) fn layers(&self) -> Section {
        let mut listed: HashMap<String, usize> = HashMap::new();
        let most = if self.is_text() { self.text().kernels } else { usize::MAX };
        let is_listed = |row: &&LayerRow| {
            let listed = listed.entry(row.stage.clone()).or_default();
            *listed += 1;
            *listed <= most
        };
        let rows: Vec<&LayerRow> = self.analysis.layers.iter().filter(is_listed).collect();
        let table = Table::of(&rows)
            .text("stage", |row| &row.stage)
            .text("layer", |row| row.layer.as_deref().unwrap_or("(no module)"))
            .text("block", |row| row.block.as_ref())
            .number("layers", |row| row.layers)
            .ms("kernel", |row| row.kernel_ns)
            .number("share %", |row| row.share_pct)
            .number("kernels", |row| row.kernel_count)
            .number("calls", |row| row.calls)
            .number("ms per layer", |row| {
                row.spread.as_ref().map(|spread| format!("{} to {}", ms(spread.min_ns), ms(spread.max_ns)))
            })
            .text("longest", |row| row.spread.as_ref().map(|spread| &spread.longest))
            .build();
        let table = if self.is_text() { table.without(&["block", "longest"]) } else { table };
        let is_known = !self.analysis.layers.is_empty();
        let unnamed =
            self.analysis.reason(&About::Other("layers".into())).filter(|_| is_known && !self.is_page());
        Section::new("layers", "Kernel time by layer")
            .with(self.not_in_text(is_known.then(|| Block::explanation("layers"))))
            .with(Block::table(table))
            .with(Block::rest(self.analysis.layers.len(), rows.len(), ""))
            .with(unnamed.map(Block::line))
    }

    /// Tabulates the counters of each kernel and launch shape.
    pub(super) fn counters(&self) -> Section {
        let analysis = self.analysis;
        let section = Section::new("counters", "Counters");
        if self.is_text() {
            // Kernels that were measured in one launch shape each are in their own table already.
            let by_shape = analysis.counters.len() > analysis.kernels.len() || !only_measured(analysis);
            let columns = ["kernel", "stage", "µs", "SM %", "DRAM %", "L2 %", "FLOP/B", "bound"];
            let table = if by_shape { counters(analysis).pick(&columns) } else { Table::default() };
            return section.with(Block::first_rows(table, self.text().kernels));
        }
        if analysis.counters.is_empty() {
            let no_roof = roof::no_roof(analysis).map(Block::line);
            return section.with([self.missing(&About::Counters)]).with(no_roof);
        }
        section.with(Block::table(counters(analysis)))
    }

    /// Lists the first results of ncu's own rules.
    pub(super) fn ncu_rules(&self) -> Section {
        let section = Section::new("rules", "Rules of ncu");
        if self.is_text() && !only_measured(self.analysis) {
            return section;
        }
        let names = ShortNames::of(self.analysis);
        let saving = |rule: &NcuRule| {
            let is_kernel = rule.speedup_of.as_deref() == Some("kernel");
            let whole = if is_kernel { "the kernel" } else { "the part it is about" };
            Some(format!("{:.1} % of {whole}", rule.speedup_pct?))
        };
        let table = Table::of(&self.analysis.ncu_rules)
            .text("kernel", |r| names.get(&r.kernel))
            .number("launches", |r| r.launches)
            .text("rule", |r| &r.rule)
            .text("kind", |r| &r.kind)
            .text("estimated saving", saving)
            .text("text", |r| joined(r.text.split_whitespace(), " "))
            .build();
        let most = self.most(50);
        if self.is_page() {
            return section.with(Block::first_rows(table, most));
        }
        // A cell would cut the texts.
        let texts = table.rows.iter().take(most).map(|row| format!("{}: {}", row[2], row[5]));
        let texts = self.not_in_text(Block::list(texts));
        section.with(Block::first_rows(table.without(&["text"]), most)).with(texts)
    }

    /// Lists the first operators, or says why there are none.
    pub fn operators(&self) -> Section {
        let analysis = self.analysis;
        let section = Section::new("operators", "Operators");
        let imported = analysis.stage1.as_ref().is_some_and(|figures| !figures.operators.is_empty());
        if analysis.operators.is_empty() {
            let listed =
                Block::line("The operators are those that the Stage 1 runner lists (section Stage 1).");
            return section.with([if imported { listed } else { self.missing(&About::Operators) }]);
        }
        let table = Table::of(&analysis.operators)
            .text("operator", |o| &o.name)
            .number("calls", |o| o.calls)
            .ms("self CPU", |o| o.self_cpu_ns)
            .ms("total CPU", |o| o.total_cpu_ns)
            .ms("self GPU", |o| o.self_gpu_ns)
            .ms("total GPU", |o| o.total_gpu_ns)
            .ms("mean CPU", |o| o.total_cpu_ns / (o.calls.max(1) as i64))
            .build();
        // What the operators are, if they are not those of a framework.
        let what = maybe(analysis.reason(&About::Operators), |what| format!("{}. ", capitalized(what)));
        let blocks = Block::first_rows(table, self.most(30));
        section.with([Block::Note(what + explanation("operators"))]).with(blocks)
    }
}

/// The stages in which each kernel ran.
pub struct KernelStages<'a>(BTreeMap<&'a str, Vec<(usize, &'a Kernel)>>);

impl<'a> KernelStages<'a> {
    /// Finds the stages of every kernel.
    pub fn of(analysis: &'a Analysis) -> Self {
        let mut rows: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (at, stage) in analysis.stages.iter().enumerate() {
            for kernel in &stage.kernels {
                rows.entry(kernel.name.as_str()).or_default().push((at, kernel));
            }
        }
        Self(rows)
    }

    /// Returns the positions of the stages of a kernel on the given devices, the one with most of its time first.
    pub fn positions(&self, name: &str, on: impl Fn(Option<u32>) -> bool) -> Vec<usize> {
        let mut times: BTreeMap<usize, i64> = BTreeMap::new();
        for (at, kernel) in self.0.get(name).into_iter().flatten().filter(|(_, k)| on(k.device)) {
            *times.entry(*at).or_default() += kernel.total_ns;
        }
        let mut positions: Vec<usize> = times.keys().copied().collect();
        positions.sort_by_key(|at| Reverse(times.get(at)));
        positions
    }
}

/// Tabulates some columns of kernels; a share is of `whole_ns`.
pub fn table(analysis: &Analysis, kernels: &[Kernel], whole_ns: i64, columns: &[&str]) -> Table {
    let stages = KernelStages::of(analysis);
    let names = |kernel: &Kernel| {
        let positions = stages.positions(&kernel.name, |device| device == kernel.device);
        joined_any(positions.iter().filter_map(|at| Some(&analysis.stages.get(*at)?.name)), ", ")
    };
    let table = Table::of(kernels)
        .only(columns)
        .text("kernel", |k| &k.short_name)
        .number("launches", |k| k.calls)
        .text("device", |k| k.device)
        .ms("total", |k| k.total_ns)
        .number("calls", |k| k.calls)
        .number("mean ms", |k| decimal(k.mean_ns as f64 / 1e6, 6))
        .number("share %", |k| percent(k.total_ns, whole_ns))
        .text("stage", names)
        .text("family", |k| k.family.as_str())
        .text("bound", |k| k.counters.as_ref().and_then(|row| row.bound.as_ref()))
        .number("mean µs", |k| us(k.mean_ns))
        .number("median µs", |k| k.median_ns.map(us))
        .number("min µs", |k| k.min_ns.map(us))
        .number("max µs", |k| k.max_ns.map(us))
        .number(roof::COLUMNS[0], roof::pct_of)
        .number(roof::COLUMNS[1], |k| roof::above(&k.roof));
    let with_shares = COUNTER_SHARES.iter().fold(table, |table, (name, share)| {
        table.number(&format!("{name} %"), |k| k.counters.as_ref().and_then(share))
    });
    with_shares.build()
}

/// Tells whether kernels ran on more than one device, so that a row needs its device.
pub fn on_several_devices(analysis: &Analysis) -> bool {
    let mut devices = analysis.kernels.iter().filter_map(|kernel| kernel.device);
    let first = devices.next();
    devices.any(|device| Some(device) != first)
}

/// Tabulates counters. A report picks its columns.
fn counters(analysis: &Analysis) -> Table {
    let dims = |d: [u32; 3]| format!("{}x{}x{}", d[0], d[1], d[2]);
    let short_names = ShortNames::of(analysis);
    let table = Table::of(&analysis.counters)
        .text("kernel", |r| short_names.get(&r.kernel))
        .text("stage", |r| r.stage.as_ref())
        .text("grid", |r| dims(r.grid))
        .text("block", |r| dims(r.block))
        .number("µs", |r| r.duration_ns.map(us))
        .number("× timeline", |r| r.timeline_ratio.map(|ratio| format!("{ratio:.2}")));
    let shares = COUNTER_SHARES.iter();
    shares
        .fold(table, |table, (name, share)| table.number(&format!("{name} %"), share))
        .number("FLOP/B", |r| r.intensity)
        .number("FLOP/s", |r| r.achieved_flops_per_s.map(si))
        .text("bound", |r| r.bound.as_ref())
        .text("reason", |r| &r.reason)
        .build()
}

/// Returns the family of kernels that takes most of the kernel time of a stage, and its share, %.
pub fn largest_family(stage: &Stage) -> Option<(&str, f64)> {
    let mut families: BTreeMap<&str, i64> = BTreeMap::new();
    for kernel in &stage.kernels {
        *families.entry(kernel.family.as_str()).or_default() += kernel.total_ns;
    }
    let total = families.values().sum::<i64>().max(1) as f64;
    let (family, ns) = families.into_iter().max_by_key(|(_, ns)| *ns)?;
    Some((family, 100.0 * ns as f64 / total))
}

/// Tells whether the kernels of an analysis are launches that ncu measured.
pub fn only_measured(analysis: &Analysis) -> bool {
    analysis.totals.from == KernelOrigin::Counters
}

/// States the number of measured launches and kernels, and their time.
pub fn measured_summary(analysis: &Analysis) -> String {
    let launches: u64 = analysis.counters.iter().map(|row| row.samples).sum();
    let launches = gpu_work::launches(launches);
    if analysis.kernels.is_empty() {
        return format!("measured by ncu: {launches}, without their durations");
    }
    format!(
        "measured by ncu: {launches} of {}, {} in total under ncu",
        counted(analysis.kernels.len() as u64, "kernel"),
        time(analysis.totals.kernel_ns)
    )
}
