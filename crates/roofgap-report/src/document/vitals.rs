//! Clocks, power and energy of the GPUs.

use super::table::Table;
use super::{Block, Document, Section, joined, joined_any, maybe};
use roofgap_analyze::{
    About, ClassEnergy, EnergyRun, KernelEnergy, MeterEnergy, Stage, StageEnergy, StageVitals, Vitals,
    VitalsGpu,
};
use roofgap_base::numbers::{share, si, significant, time};

/// Explains the columns.
const MEANING: &str = "The clock is the median of the multiprocessors while the stage ran. MFU and roof are against the \
     published peak (boost), and against the peak at the clock that ran. Idle energy is that of the idle GPU in the same time, dynamic energy the rest.";

impl<'a> Document<'a> {
    /// Tabulates clocks and energy by stage, and describes the GPUs.
    pub(super) fn vitals(&self) -> Section {
        let section = Section::new("vitals", "Power, clocks and energy");
        let Some(vitals) = self.analysis.vitals.as_ref().filter(|_| !self.text().stages_only) else {
            return section;
        };
        let energy = |stage: &'a Stage| stage.vitals.as_ref()?.energy.clone();
        let of_stage = |stage: &'a Stage| (stage.name.as_str(), Some(stage), energy(stage));
        let outside = vitals.energy.as_ref().map(|own| {
            let (idle_j, dynamic_j) = (own.outside_idle_j, own.outside_dynamic_j);
            ("outside of stages", None, Some(StageEnergy { idle_j, dynamic_j, ..StageEnergy::default() }))
        });
        let rows: Vec<(&str, Option<&Stage>, Option<StageEnergy>)> =
            self.analysis.stages.iter().map(of_stage).chain(outside).collect();
        let clocks = |row: &(&str, Option<&'a Stage>, Option<StageEnergy>)| row.1?.vitals.as_ref();
        let table = Table::of(&rows)
            .text("stage", |row| row.0)
            .number("SM MHz", |row| Some(format!("{:.0}", clocks(row)?.sm_mhz?)))
            .number("MFU % (boost)", |row| Some(share(row.1?.mfu.as_ref()?.by_wall_pct)))
            .number("MFU % (at clock)", |row| clocks(row)?.mfu_at_clock_pct.map(share))
            .number("roof % (boost)", |row| row.1?.roof.roof_pct.map(share))
            .number("roof % (at clock)", |row| clocks(row)?.roof_at_clock_pct.map(share))
            .number("W", |row| row.1.and(row.2.as_ref()).map(|own| significant(own.watts)))
            .number("J", |row| row.2.as_ref().map(|own| significant(own.idle_j + own.dynamic_j)))
            .number("idle J", |row| row.2.as_ref().map(|own| significant(own.idle_j)))
            .number("dynamic J", |row| row.2.as_ref().map(|own| dynamic(own.dynamic_j, own.error_j)))
            .number("J/token", |row| row.2.as_ref()?.token_j.map(significant))
            .text("lower clock because of", |row| clocks(row).and_then(reasons))
            .build();
        let notes = self.not_in_text(Some(Block::note(MEANING)));
        let lines = vitals.gpus.iter().map(gpu).chain(vitals.energy.iter().map(metered));
        let limit = vitals.gpus.iter().map(|gpu| gpu.limit_w).sum::<Option<f64>>();
        let lines = lines.chain(self.analysis.stages.iter().flat_map(|stage| energy_notes(stage, limit)));
        let drawing = self.on_page(Block::Drawing);
        let section = section.with(notes).with(drawing).with(Block::table(table.measured()));
        let section = section.with(Block::list(lines));
        match &vitals.kernels {
            Some(kernels) => section
                .with(Block::table(energy_table("family", &kernels.families)))
                .with(self.not_in_text(Block::table(energy_table("kernel", &kernels.kernels))))
                .with(Block::list(kernel_notes(kernels))),
            None => {
                let why = self.analysis.reason(&About::Other("vitals.kernels".to_owned()));
                section.with(why.map(|why| Block::note(&format!("No energy of kernels: {why}."))))
            }
        }
    }
}

/// Writes dynamic energy with half of its interval.
fn dynamic(joules: f64, half: Option<f64>) -> String {
    format!("{}{}", significant(joules), maybe(half, |half| format!(" ± {}", significant(half))))
}

/// Tabulates the energy of kernels or of their families.
fn energy_table(of: &'static str, rows: &[ClassEnergy]) -> Table {
    Table::of(rows)
        .text(of, |row| &row.name)
        .number("W", |row| significant(row.watts))
        .number("J", |row| significant(row.joules))
        .number("% of meter", |row| share(row.pct))
        .number("idle J", |row| significant(row.idle_j))
        .number("dynamic J", |row| dynamic(row.dynamic_j, row.error_j))
        .text("not told apart from", |row| joined_any(&row.together_with, ", "))
        .build()
}

/// Says which run the energy of kernels is of, and how good it is.
fn kernel_notes(own: &KernelEnergy) -> Vec<String> {
    let rest = share(100.0 * own.rest_j / own.meter_j);
    let of = format!(
        "families: of {}J {}; {rest} % while no kernel ran; the powers predict other times within {} %",
        si(own.meter_j),
        run(EnergyRun::Profiled),
        share(own.held_out_pct)
    );
    let shared = own.families.iter().any(|family| !family.together_with.is_empty()).then(|| {
        "families that the meter does not tell apart share their dynamic energy by their times".to_owned()
    });
    [of].into_iter().chain(shared).collect()
}

/// Lists the reasons of a lower clock, with their share of the time.
fn reasons(own: &StageVitals) -> Option<String> {
    joined_any(own.throttle.iter().map(|time| format!("{} ({:.0} %)", time.reason, time.pct)), ", ")
}

/// Describes a GPU.
fn gpu(own: &VitalsGpu) -> String {
    let of = |value: Option<f64>, most: Option<f64>, unit: &str| {
        let most = maybe(most, |most| format!(" of {most:.0}"));
        value.map(|value| format!("{value:.0}{most} {unit} at the median"))
    };
    let lowered = own.limit_w.zip(own.default_limit_w).filter(|(limit, default)| limit < default);
    let others = own.others.iter().map(|other| {
        let name = other.name.as_deref().unwrap_or("a process");
        format!("{name} (process {}) used it too, {:.0} % of the time", other.pid, other.sm_pct)
    });
    let facts = [
        of(own.sm_mhz, own.max_sm_mhz, "MHz"),
        of(own.power_w, own.limit_w, "W"),
        lowered.map(|(_, default)| format!("its power limit is below the default of {default:.0} W")),
        own.celsius.map(|degrees| format!("at most {degrees:.0} °C")),
        own.mig.then(|| "divided into instances (MIG): its vitals are those of all instances".to_owned()),
    ];
    let name = own.name.as_deref().unwrap_or("GPU");
    format!("{name} ({}): {}", own.device, joined(facts.into_iter().flatten().chain(others), ", "))
}

/// Says what is special about the energy of a stage. `limit_w` is that of all GPUs.
fn energy_notes(stage: &Stage, limit_w: Option<f64>) -> Vec<String> {
    let Some(own) = stage.vitals.as_ref().and_then(|own| own.energy.as_ref()) else { return Vec::new() };
    let name = &stage.name;
    let together = own.together_with.as_ref().map(|other| {
        format!("{name}: the meter does not tell it apart from {other}; they share their dynamic energy by their times")
    });
    let above = limit_w.filter(|limit| own.watts > *limit).map(|limit| {
        format!("{name}: more than the power limit of {limit:.0} W, which the driver keeps over longer times; the division of short stages is uncertain")
    });
    together.into_iter().chain(above).collect()
}

/// States the energy of the whole run.
fn metered(own: &MeterEnergy) -> String {
    let lowest = if own.idle_in_context {
        ""
    } else {
        ", the lowest of half a second; no idle time with a context was seen"
    };
    let (joules, run, length) = (si(own.meter_j), run(own.run), time(own.meter_ns));
    format!("{joules}J {run} in {length}, as the driver counts it; idle at {:.0} W{lowest}", own.idle_w)
}

/// Names a run whose energy was metered.
pub fn run(run: EnergyRun) -> &'static str {
    match run {
        EnergyRun::Baseline => "without a profiler",
        EnergyRun::Profiled => "while profiled",
    }
}

/// Returns the facts of the energy card of the page.
pub fn card(vitals: &Vitals) -> Option<Vec<(&'static str, String)>> {
    let energy = vitals.energy.as_ref()?;
    let mhz = vitals.gpus.iter().filter_map(|gpu| gpu.sm_mhz).reduce(f64::min);
    let meter = format!("{}J {} in {}", si(energy.meter_j), run(energy.run), time(energy.meter_ns));
    let clock = mhz.map(|mhz| ("SM clock", format!("{mhz:.0} MHz at the median")));
    let idle = ("Idle", format!("{:.0} W", energy.idle_w));
    Some([("Meter", meter)].into_iter().chain(clock).chain([idle]).collect())
}

#[cfg(test)]
mod tests {
    use crate::render::text::{TextOptions, show};
    use roofgap_analyze::{
        About, Analysis, ClassEnergy, EnergyRun, KernelEnergy, MeterEnergy, Mfu, Reason, Stage, StageEnergy,
        StageVitals, ThrottleReason, ThrottleTime, Vitals, VitalsGpu,
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
        let family = |name: &str, joules: f64, other: Option<&str>| ClassEnergy {
            name: name.to_owned(),
            joules,
            idle_j: 0.2 * joules,
            dynamic_j: 0.8 * joules,
            error_j: other.is_none().then_some(0.01 * joules),
            together_with: other.map(str::to_owned).into_iter().collect(),
            watts: joules,
            pct: joules / 11.0,
        };
        let kernels = KernelEnergy {
            meter_j: 1_100.0,
            families: vec![
                family("gemm", 600.0, None),
                family("norm", 200.0, Some("softmax")),
                family("softmax", 100.0, Some("norm")),
            ],
            kernels: Vec::new(),
            rest_j: 200.0,
            held_out_pct: 2.14,
        };
        analysis.vitals = Some(Vitals { gpus: vec![gpu], energy: Some(meter), kernels: Some(kernels) });
        let text = show(&analysis, TextOptions::default(), &names).unwrap();
        insta::assert_snapshot!(text);
        analysis.vitals.iter_mut().for_each(|own| own.kernels = None);
        let about = About::Other("vitals.kernels".to_owned());
        analysis.reasons.push(Reason::new(about, "the meter was read 8 times"));
        let text = show(&analysis, TextOptions::default(), &names).unwrap();
        assert!(text.contains("No energy of kernels: the meter was read 8 times."), "{text}");
    }
}
