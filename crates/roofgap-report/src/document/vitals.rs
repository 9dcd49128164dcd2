//! Clocks, power and energy of the GPUs.

use super::table::Table;
use super::{Block, Document, Section, joined, joined_any, maybe};
use roofgap_analyze::{EnergyRun, MeterEnergy, Stage, StageEnergy, StageVitals, Vitals, VitalsGpu};
use roofgap_base::numbers::{share, si, significant, time};

impl Document<'_> {
    /// Tabulates clocks and energy by stage, and describes the GPUs.
    pub(super) fn vitals(&self) -> Section {
        let section = Section::new("vitals", "Power, clocks and energy");
        let Some(vitals) = self.analysis.vitals.as_ref().filter(|_| !self.text().stages_only) else {
            return section;
        };
        let stages = &self.analysis.stages;
        let outside = vitals.energy.as_ref().map(|meter| StageEnergy {
            idle_j: meter.outside_idle_j,
            dynamic_j: meter.outside_dynamic_j,
            ..StageEnergy::default()
        });
        let of_stages = stages.iter().map(|stage| Row { stage: Some(stage), energy: energy(stage) });
        let rows: Vec<Row<'_>> = of_stages
            .chain(outside.iter().map(|outside| Row { stage: None, energy: Some(outside) }))
            .collect();
        let table = Table::of(&rows)
            .text("stage", |row| row.stage.map_or("outside of stages", |stage| &stage.name))
            .number("SM MHz", |row| Some(format!("{:.0}", clocks(row)?.sm_mhz?)))
            .number("MFU % (boost)", |row| Some(share(row.stage?.mfu.as_ref()?.by_wall_pct)))
            .number("MFU % (at clock)", |row| clocks(row)?.mfu_at_clock_pct.map(share))
            .number("roof % (boost)", |row| row.stage?.roof.roof_pct.map(share))
            .number("roof % (at clock)", |row| clocks(row)?.roof_at_clock_pct.map(share))
            .number("W", |row| row.stage.and(row.energy).map(|energy| significant(energy.watts)))
            .number("J", |row| row.energy.map(|energy| significant(energy.idle_j + energy.dynamic_j)))
            .number("idle J", |row| row.energy.map(|energy| significant(energy.idle_j)))
            .number("dynamic J", |row| row.energy.map(dynamic))
            .number("J/token", |row| row.energy?.token_j.map(significant))
            .text("lower clock because of", |row| clocks(row).and_then(reasons))
            .build();
        let limit = vitals.gpus.iter().map(|gpu| gpu.limit_w).sum::<Option<f64>>();
        let lines = vitals.gpus.iter().map(gpu).chain(vitals.energy.iter().map(metered));
        let lines = lines.chain(stages.iter().flat_map(|stage| energy_notes(stage, limit)));
        section
            .with(self.not_in_text(Some(Block::explanation("vitals"))))
            .with(self.on_page(Block::Drawing))
            .with(Block::table(table.measured()))
            .with(Block::list(lines))
    }
}

/// A row of the table: a stage, or the time outside of all.
struct Row<'a> {
    stage: Option<&'a Stage>,
    energy: Option<&'a StageEnergy>,
}

fn clocks<'a>(row: &Row<'a>) -> Option<&'a StageVitals> {
    row.stage?.vitals.as_ref()
}

fn energy(stage: &Stage) -> Option<&StageEnergy> {
    stage.vitals.as_ref()?.energy.as_ref()
}

/// Writes dynamic energy with half of its interval.
fn dynamic(energy: &StageEnergy) -> String {
    let half = maybe(energy.error_j, |half| format!(" ± {}", significant(half)));
    format!("{}{half}", significant(energy.dynamic_j))
}

/// Lists the reasons of a lower clock, with their share of the time.
fn reasons(vitals: &StageVitals) -> Option<String> {
    joined_any(vitals.throttle.iter().map(|time| format!("{} ({:.0} %)", time.reason, time.pct)), ", ")
}

/// Describes a GPU.
fn gpu(gpu: &VitalsGpu) -> String {
    let median = |value: Option<f64>, most: Option<f64>, unit: &str| {
        let most = maybe(most, |most| format!(" of {most:.0}"));
        value.map(|value| format!("{value:.0}{most} {unit} at the median"))
    };
    let lowered = gpu.limit_w.zip(gpu.default_limit_w).filter(|(limit, default)| limit < default);
    let others = gpu.others.iter().map(|other| {
        let name = other.name.as_deref().unwrap_or("a process");
        format!("{name} (process {}) used it too, {:.0} % of the time", other.pid, other.sm_pct)
    });
    let facts = [
        median(gpu.sm_mhz, gpu.max_sm_mhz, "MHz"),
        median(gpu.power_w, gpu.limit_w, "W"),
        lowered.map(|(_, default)| format!("its power limit is below the default of {default:.0} W")),
        gpu.celsius.map(|degrees| format!("at most {degrees:.0} °C")),
        gpu.mig.then(|| "divided into instances (MIG): its vitals are those of all instances".to_owned()),
    ];
    let name = gpu.name.as_deref().unwrap_or("GPU");
    format!("{name} ({}): {}", gpu.device, joined(facts.into_iter().flatten().chain(others), ", "))
}

/// Says what is special about the energy of a stage. `limit_w` is that of all GPUs.
fn energy_notes(stage: &Stage, limit_w: Option<f64>) -> Vec<String> {
    let Some(energy) = energy(stage) else { return Vec::new() };
    let name = &stage.name;
    let together = energy.together_with.as_ref().map(|other| {
        format!("{name}: the meter does not tell it apart from {other}; they share their dynamic energy by their times")
    });
    let above = limit_w.filter(|limit| energy.watts > *limit).map(|limit| {
        format!("{name}: more than the power limit of {limit:.0} W, which the driver keeps over longer times; the division of short stages is uncertain")
    });
    together.into_iter().chain(above).collect()
}

/// States the energy of the whole run.
fn metered(meter: &MeterEnergy) -> String {
    let lowest = if meter.idle_in_context {
        ""
    } else {
        ", the lowest of half a second; no idle time with a context was seen"
    };
    format!("{}, as the driver counts it; idle at {:.0} W{lowest}", used(meter), meter.idle_w)
}

/// States the energy of the metered run and its time.
fn used(meter: &MeterEnergy) -> String {
    let run = match meter.run {
        EnergyRun::Baseline => "without a profiler",
        EnergyRun::Profiled => "while profiled",
    };
    format!("{}J {run} in {}", si(meter.meter_j), time(meter.meter_ns))
}

/// Returns the facts of the energy card of the page.
pub fn card(vitals: &Vitals) -> Option<Vec<(&'static str, String)>> {
    let energy = vitals.energy.as_ref()?;
    let mhz = vitals.gpus.iter().filter_map(|gpu| gpu.sm_mhz).reduce(f64::min);
    let clock = mhz.map(|mhz| ("SM clock", format!("{mhz:.0} MHz at the median")));
    let idle = ("Idle", format!("{:.0} W", energy.idle_w));
    Some([("Meter", used(energy))].into_iter().chain(clock).chain([idle]).collect())
}

#[cfg(test)]
mod tests {
    use crate::render::text::{TextOptions, show};
    use roofgap_analyze::{
        Analysis, EnergyRun, MeterEnergy, Mfu, Stage, StageEnergy, StageVitals, ThrottleReason, ThrottleTime,
        Vitals, VitalsGpu,
    };

    #[test]
    fn both_clocks_and_all_parts_of_the_meter_are_shown() {
        let energy = StageEnergy {
            run: EnergyRun::Baseline,
            joules: 700.0,
            idle_j: 100.0,
            dynamic_j: 600.0,
            error_j: Some(12.0),
            together_with: Some("decode".to_owned()),
            watts: 690.0,
            token_j: Some(0.0412),
        };
        let mut stage = Stage::default();
        stage.name = "prefill".to_owned();
        stage.mfu = Some(Mfu { by_wall_pct: 60.0, ..Mfu::default() });
        stage.vitals = Some(StageVitals {
            samples: 20,
            sm_mhz: Some(1575.0),
            peak_mhz: Some(1830.0),
            mfu_at_clock_pct: Some(69.7),
            throttle: vec![ThrottleTime { reason: ThrottleReason::PowerCap, pct: 96.0 }],
            energy: Some(energy),
            ..StageVitals::default()
        });
        let gpu = VitalsGpu {
            name: Some("NVIDIA H200".to_owned()),
            max_sm_mhz: Some(1980.0),
            sm_mhz: Some(1575.0),
            power_w: Some(498.0),
            limit_w: Some(500.0),
            default_limit_w: Some(700.0),
            celsius: Some(61.0),
            ..VitalsGpu::default()
        };
        let meter = MeterEnergy {
            run: EnergyRun::Baseline,
            meter_j: 1_000.0,
            meter_ns: 4_000_000_000,
            idle_w: 100.0,
            idle_in_context: true,
            outside_idle_j: 250.0,
            outside_dynamic_j: 50.0,
        };
        let mut analysis = Analysis::default();
        analysis.stages = vec![stage];
        let names = ["vitals".to_owned()];
        let without = show(&analysis, TextOptions::default(), &names).unwrap();
        assert!(without.starts_with("no vitals: the capture has none"), "{without}");
        analysis.vitals = Some(Vitals { gpus: vec![gpu], energy: Some(meter) });
        let text = show(&analysis, TextOptions::default(), &names).unwrap();
        insta::assert_snapshot!(text);
    }
}
