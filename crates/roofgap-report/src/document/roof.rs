//! The distance to the roof: its columns, and the sentences that explain them.

use super::{explanation, joined};
use roofgap_analyze::{About, Analysis, Kernel, RoofDistance, RoofSource, Stage};
use roofgap_base::numbers::{ms, or_none, percent, time};

/// Columns of the distance to the roof.
pub const COLUMNS: [&str; 2] = ["% of roof", "ms above the roof"];

/// Returns columns of a table of kernels, with those of the distance to the roof where a kernel has one.
pub fn columns<'a>(names: &[&'a str], kernels: &[Kernel]) -> Vec<&'a str> {
    names.iter().chain(COLUMNS.iter().filter(|_| is_known(kernels))).copied().collect()
}

/// Tells whether a kernel has a distance to the roof.
pub fn is_known(kernels: &[Kernel]) -> bool {
    kernels.iter().any(|kernel| kernel.roof.roof_pct.is_some())
}

/// Formats the share of the time that the roof needs, with a mark if it is modelled.
pub fn pct(roof: &RoofDistance) -> String {
    let mark = match roof.roof_source {
        Some(RoofSource::Modelled | RoofSource::Mixed) => "*",
        _ => "",
    };
    or_none(roof.roof_pct, |pct| format!("{pct:.1}{mark}"))
}

/// Formats the share of a kernel's time that the roof needs, and in brackets the part of that time which has a roof, where it is not
/// all.
pub fn pct_of(kernel: &Kernel) -> String {
    let share = pct(&kernel.roof);
    match covered(kernel) {
        Some(part) if part < 1.0 => format!("{share} (<1 %)"),
        Some(part) => format!("{share} ({part:.0} %)"),
        None => share,
    }
}

/// Returns the part of a kernel's time that has a roof, %; `None` without a roof, and where it is all of it.
fn covered(kernel: &Kernel) -> Option<f64> {
    let covered = kernel.roof.roof_covered_ns?;
    let part = 100.0 * covered as f64 / kernel.total_ns as f64;
    (part < 99.5).then_some(part)
}

/// Formats the time beyond the roof, ms.
pub fn above(roof: &RoofDistance) -> String {
    or_none(roof.above_roof_ns, ms)
}

/// Explains the columns; `None` where no distance is known.
pub fn note(analysis: &Analysis) -> Option<String> {
    let stages = analysis.stages.iter();
    let kernels = || analysis.kernels.iter().chain(stages.clone().flat_map(|stage| &stage.kernels));
    let all = kernels().map(|kernel| kernel.roof).chain(stages.clone().map(|stage| stage.roof));
    let sources: Vec<RoofSource> = all.filter_map(|roof| roof.roof_source).collect();
    let is_modelled = sources.iter().any(|source| matches!(source, RoofSource::Modelled | RoofSource::Mixed));
    let in_part = kernels().any(|kernel| covered(kernel).is_some());
    let parts = [("roof", true), ("roof-part", in_part), ("roof-modelled", is_modelled)];
    let said = parts.iter().filter(|(_, said)| *said).map(|(id, _)| explanation(id));
    (!sources.is_empty()).then(|| joined(said, " "))
}

/// Explains the distance to the roof where a table has it, or says where it comes from if kernels have none and there are no counters.
pub fn note_or_source(analysis: &Analysis) -> Option<String> {
    note(analysis).or_else(|| no_roof(analysis).map(str::to_owned))
}

/// Says where the distance to the roof comes from, if kernels have none and there are no counters.
pub fn no_roof(analysis: &Analysis) -> Option<&'static str> {
    // A selection of kernels without counters has no reason.
    let no_counters = analysis.counters.is_empty() && analysis.reason(&About::Counters).is_some();
    let unknown = no_counters && note(analysis).is_none();
    (unknown && !analysis.kernels.is_empty()).then(|| explanation("no-roof"))
}

/// Describes the distance of a stage, and the part of its kernel time that it is known for.
pub fn of_stage(stage: &Stage) -> Option<String> {
    let roof = &stage.roof;
    let (pct, above, covered) = (roof.roof_pct?, roof.above_roof_ns?, roof.roof_covered_ns?);
    let by = match roof.roof_source? {
        RoofSource::Counters | RoofSource::Sampled => "whose counters give a roof",
        RoofSource::Modelled => "whose shapes are known",
        RoofSource::Mixed => "whose counters or shapes give a roof",
    };
    Some(format!(
        "roof: kernels {by} ({} % of kernel time) are {} above their roof, at {pct:.1} % of it",
        percent(covered, stage.kernel_ns?),
        time(above)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofgap_analyze::{CounterRow, Reason};

    #[test]
    fn columns_appear_with_a_distance() {
        let known = RoofDistance {
            roof_pct: Some(43.21),
            above_roof_ns: Some(1_234_567_890),
            roof_covered_ns: Some(2_000_000_000),
            roof_source: Some(RoofSource::Counters),
        };
        let kernels = [Kernel::default(), Kernel { roof: known, ..Kernel::default() }];
        assert_eq!(columns(&["kernel"], &kernels[..1]), ["kernel"]);
        assert_eq!(columns(&["kernel"], &kernels), ["kernel", "% of roof", "ms above the roof"]);
        assert_eq!((pct(&known), above(&known)), ("43.2".into(), "1,234.568".into()));
        let modelled = RoofDistance { roof_source: Some(RoofSource::Modelled), ..known };
        assert_eq!(pct(&modelled), "43.2*");
        let mut analysis = Analysis::default();
        assert_eq!(note(&analysis), None);
        let mut kernel = Kernel { roof: known, total_ns: 2_000_000_000, ..Kernel::default() };
        analysis.kernels = vec![kernel.clone()];
        assert_eq!(note(&analysis).as_deref(), Some(explanation("roof")));
        kernel.roof = modelled;
        analysis.kernels.push(kernel);
        let note = note(&analysis).expect("a note");
        assert!(note.ends_with("it then shows as 100 %."), "{note}");
        let mut stage = Stage::default();
        assert_eq!(of_stage(&stage), None);
        (stage.roof, stage.kernel_ns) = (known, Some(4_000_000_000));
        assert_eq!(
            of_stage(&stage).as_deref(),
            Some(
                "roof: kernels whose counters give a roof (50.0 % of kernel time) are 1.23 s above their roof, at 43.2 % of it"
            )
        );
    }

    #[test]
    fn a_roof_of_some_launches_says_of_how_much_time() {
        let mut kernel = Kernel {
            roof: RoofDistance {
                roof_pct: Some(66.0),
                above_roof_ns: Some(232_000),
                roof_covered_ns: Some(684_000),
                roof_source: Some(RoofSource::Counters),
            },
            total_ns: 1_374_000,
            ..Kernel::default()
        };
        assert_eq!(pct_of(&kernel), "66.0 (50 %)");
        let mut analysis = Analysis::default();
        analysis.kernels = vec![kernel.clone()];
        let said = note(&analysis).expect("a note");
        assert!(said.ends_with(explanation("roof-part")), "{said}");
        kernel.total_ns = 684_000;
        assert_eq!(pct_of(&kernel), "66.0");
        analysis.kernels = vec![kernel.clone()];
        assert_eq!(note(&analysis).as_deref(), Some(explanation("roof")));
        kernel.total_ns = 684_000_000;
        assert_eq!(pct_of(&kernel), "66.0 (<1 %)");
        kernel.roof = RoofDistance::default();
        assert_eq!(pct_of(&kernel), pct(&kernel.roof));
    }

    #[test]
    fn counters_are_asked_for_where_there_are_kernels() {
        let mut analysis = Analysis::default();
        assert_eq!(no_roof(&analysis), None);
        analysis.kernels = vec![Kernel::default()];
        assert_eq!(no_roof(&analysis), None);
        analysis.reasons = vec![Reason::new(About::Counters, "none")];
        assert_eq!(no_roof(&analysis), Some(explanation("no-roof")));
        analysis.counters = vec![CounterRow::default()];
        assert_eq!(no_roof(&analysis), None);
    }
}
