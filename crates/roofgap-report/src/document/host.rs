//! Functions of the CPU in the idle time of the stages.

use super::table::Table;
use super::{Block, Document, Section};
use roofgap_analyze::Stage;
use roofgap_base::numbers::{percent, time};

impl Document<'_> {
    /// Tabulates the functions of the launching threads in the idle time of each stage.
    pub(super) fn host(&self) -> Section {
        let section = Section::new("host", "CPU code in the idle time of the GPU");
        let most = if self.text().stages_only { 0 } else { self.most(60) };
        let stages = || self.analysis.stages.iter().filter(|stage| stage.host_idle.is_some() && most > 0);
        let rows = stages().flat_map(|stage| stage.host.iter().take(most).map(move |row| (stage, row)));
        let rows: Vec<_> = rows.collect();
        let table = Table::of(&rows)
            .text("stage", |(stage, _)| &stage.name)
            .text("function", |(_, row)| row.spoken())
            .text("kind", |(_, row)| row.kind.as_str())
            .ms("own", |(_, row)| row.self_ns)
            .number("share %", |(stage, row)| Some(percent(row.self_ns, stage.host_idle?.idle_ns)))
            .ms("all", |(_, row)| row.idle_ns)
            .text("mostly in", |(_, row)| row.mostly.as_ref().map(|call| &call.function))
            .number("samples", |(_, row)| row.samples)
            .text("part", |(_, row)| row.part.as_ref())
            .build();
        section.with(Block::table(table.measured())).with(Block::list(stages().filter_map(rest)))
    }
}

/// Says how much of the idle time of a stage is not in a known function.
fn rest(stage: &Stage) -> Option<String> {
    let idle = stage.host_idle?;
    let parts = [idle.idle_ns, idle.others_ns, idle.unknown_ns].map(time);
    let [all, others, unknown] = parts;
    Some(format!(
        "{}: idle for {all} by the CPU; {others} in functions with less, {unknown} without a frame or a sample",
        stage.name
    ))
}
