//! MFU and MBU of each stage, why they are missing, and the terms behind them.

use super::numbers::{NONE, or_none, share, si, time};
use super::table::Table;
use roofgap_analyze::{About, Analysis, Mbu, Mfu, Stage, Term};

type Row<'a> = (&'a str, Option<&'a Mfu>, Option<&'a Mbu>);

/// Builds the table of MFU and MBU by stage, and for all stages together.
pub fn table(analysis: &Analysis) -> Table {
    let stages = analysis.stages.iter();
    let mut rows: Vec<Row<'_>> = stages.map(|s| (s.name.as_str(), s.mfu.as_ref(), s.mbu.as_ref())).collect();
    let whole = analysis.whole.iter();
    rows.extend(whole.map(|w| ("whole", w.mfu.as_ref(), w.mbu.as_ref())));
    let peak = |m: &Mfu| format!("{} ({})", si(m.peak_flops_per_s).trim_end(), m.dtype);
    Table::of(&rows)
        .text("stage", |r| r.0.to_owned())
        .number("FLOPs", |r| or_none(r.1, |m| si(m.flops)))
        .number("peak FLOP/s", move |r| or_none(r.1, peak))
        .number("MFU by wall %", |r| or_none(r.1, |m| share(m.by_wall_pct)))
        .number("MFU by busy %", |r| or_none(r.1.and_then(|m| m.by_busy_pct), share))
        .number("bytes", |r| or_none(r.2, |m| si(m.bytes)))
        .number("bandwidth B/s", |r| or_none(r.2, |m| si(m.bandwidth_bytes_per_s)))
        .number("MBU by wall %", |r| or_none(r.2, |m| share(m.by_wall_pct)))
        .number("MBU by busy %", |r| or_none(r.2.and_then(|m| m.by_busy_pct), share))
        .number("step floor", |r| or_none(r.2.and_then(|m| m.floor_step_ns), time))
        .number("step took", |r| or_none(r.2.and_then(|m| m.step_ns), time))
        .build()
}

/// States where the peaks of the table come from, each source once.
pub fn sources(analysis: &Analysis) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for stage in &analysis.stages {
        let peak = stage.mfu.iter().map(|mfu| {
            format!("peak of {}FLOP/s ({}): {}.", si(mfu.peak_flops_per_s), mfu.dtype, mfu.peak_source)
        });
        let bandwidth = stage.mbu.iter().map(|mbu| {
            let bandwidth = si(mbu.bandwidth_bytes_per_s);
            format!("bandwidth of {bandwidth}B/s: {}.", mbu.bandwidth_source)
        });
        for line in peak.chain(bandwidth) {
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    lines
}

/// Returns why MBU or MFU of a stage is missing. A missing MBU has the reason of the MFU unless it has its own.
pub fn why_missing<'a>(analysis: &'a Analysis, about: &About, stage: &str) -> &'a str {
    let mfu = || analysis.reason(&About::StageMfu(stage.to_owned()));
    analysis.reason(about).or_else(mfu).unwrap_or("unknown")
}

/// Groups the stages without MFU or MBU by reason: one sentence a reason.
pub fn missing(analysis: &Analysis) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for reason in &analysis.reasons {
        let (About::StageMfu(stage) | About::StageMbu(stage)) = &reason.about else {
            continue;
        };
        let stage = stage.as_str();
        match reasons.iter_mut().find(|(why, _)| *why == reason.why) {
            Some((_, stages)) if stages.contains(&stage) => {}
            Some((_, stages)) => stages.push(stage),
            None => reasons.push((&reason.why, vec![stage])),
        }
    }
    let sentence = |(why, stages): &(&str, Vec<&str>)| format!("{}: {why}.", stages.join(", "));
    if reasons.is_empty() && analysis.stages.is_empty() && analysis.whole.is_none() {
        return vec!["No MFU: the model is unknown; name it with --model NAME|config.json.".into()];
    }
    reasons.iter().map(sentence).collect()
}

/// The work of a stage, term by term.
pub struct Work<'a> {
    pub table: Table,
    /// Derivation of each term: too long for a cell of the table.
    pub derivations: Vec<(&'a str, &'a str)>,
    pub assumptions: Vec<&'a str>,
}

/// Collects the terms of MFU and MBU of a stage, each once; `None` if there are none.
pub fn work(stage: &Stage) -> Option<Work<'_>> {
    let (mfu, mbu) = (stage.mfu.as_ref(), stage.mbu.as_ref());
    let all = mfu.iter().flat_map(|m| &m.terms).chain(mbu.iter().flat_map(|m| &m.terms));
    let mut terms: Vec<&Term> = Vec::new();
    for term in all {
        if terms.iter().all(|seen| seen.name != term.name) {
            terms.push(term);
        }
    }
    let mfu_assumptions = mfu.iter().flat_map(|m| &m.assumptions);
    let mut assumptions: Vec<&str> = Vec::new();
    for assumption in mfu_assumptions.chain(mbu.iter().flat_map(|m| &m.assumptions)) {
        if !assumptions.contains(&assumption.as_str()) {
            assumptions.push(assumption);
        }
    }
    let amount = |value: f64| if value == 0.0 { NONE.to_owned() } else { si(value) };
    (!terms.is_empty()).then(|| Work {
        table: Table::of(&terms)
            .text("term", |t| t.name.clone())
            .number("FLOPs", move |t| amount(t.flops))
            .number("bytes", move |t| amount(t.bytes))
            .build(),
        derivations: terms.iter().map(|t| (t.name.as_str(), t.how.as_str())).collect(),
        assumptions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_of_a_peak_is_named_once() {
        let mut stage = Stage::default();
        stage.mfu = Some(Mfu {
            peak_flops_per_s: 19.22e9,
            dtype: "fp32".to_owned(),
            peak_source: "measured on this CPU".to_owned(),
            ..Mfu::default()
        });
        let mut analysis = Analysis::default();
        analysis.stages = vec![stage.clone(), stage];
        assert_eq!(sources(&analysis), ["peak of 19.22 GFLOP/s (fp32): measured on this CPU."]);
    }
}
