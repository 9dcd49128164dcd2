//! Drawings by time: the map of ranks, with compute and exposed communication of every rank, in one clock where it is known; power and
//! clock of each GPU.

use maud::{Markup, html};
use roofgap_analyze::{Analysis, RankActivity, RankInfo};
use roofgap_base::numbers::{or_none, time};
use roofgap_trace::vitals::{GpuState, GpuVitals};
use roofgap_trace::{Ns, Trace};
use std::fmt::Write as _;

/// Width of the time axis in the units of the drawing.
const WIDTH: f64 = 1000.0;
/// Height of a rank.
const ROW: f64 = 22.0;
/// Gap between two ranks.
const GAP: f64 = 4.0;
/// Width of the labels.
const LABEL: f64 = 70.0;

/// Draws the map; `None` unless several ranks were given.
pub fn ranks(analysis: &Analysis) -> Option<Markup> {
    let ranks: Vec<(&RankInfo, &RankActivity)> =
        analysis.ranks.iter().filter_map(|rank| Some((rank, rank.activity.as_ref()?))).collect();
    if ranks.len() < 2 {
        return None;
    }
    let reference = ranks[0].0.clock_reference;
    let aligned =
        ranks.iter().all(|(rank, _)| rank.clock_offset_ns.is_some() && rank.clock_reference == reference);
    let begin = |(rank, activity): &(&RankInfo, &RankActivity)| match rank.clock_offset_ns {
        Some(offset) if aligned => activity.begin_ns - offset,
        _ => 0,
    };
    let length = |activity: &RankActivity| activity.part_ns * activity.compute_pct.len() as i64;
    let first = ranks.iter().map(begin).min()?;
    let last = ranks.iter().map(|rank| begin(rank) + length(rank.1)).max()?;
    let scale = WIDTH / (last - first).max(1) as f64;
    let height = ranks.len() as f64 * (ROW + GAP);
    let caption = if aligned {
        "Every row is a rank, in clocks aligned by their collectives."
    } else {
        "Every row is a rank and begins with its first GPU operation, because the clocks of the ranks are not known."
    };
    Some(html! {
        p.hint {
            (caption) " The height is the part of the time in which its devices compute; above it, communication that no computation \
            hides. The whole is " (time(last - first)) "."
        }
        label #rank-choice hidden {
            "Rank "
            select #rank-select {
                option value="" { "all ranks" }
                @for (rank, _) in &ranks { option value=(rank.rank) { (rank.rank) } }
            }
        }
        svg.rank-map viewBox={ "0 0 " (LABEL + WIDTH) " " (height) } role="img" aria-label="Ranks by time" {
            @for (at, row) in ranks.iter().enumerate() {
                @let (rank, activity) = *row;
                @let top = at as f64 * (ROW + GAP);
                @let left = LABEL + (begin(row) - first) as f64 * scale;
                @let part = activity.part_ns as f64 * scale;
                g data-rank=(rank.rank) {
                    title { (describe(rank)) }
                    rect.rank-row x=(LABEL) y=(top) width=(WIDTH) height=(ROW) {}
                    text x="0" y=(top + 0.7 * ROW) { "rank " (rank.rank) }
                    path.rank-exposed d=(area(&stacked(activity), left, part, top)) {}
                    path.rank-compute d=(area(&activity.compute_pct, left, part, top)) {}
                }
            }
        }
    })
}

fn describe(rank: &RankInfo) -> String {
    let host = rank.host.as_ref().map_or(String::new(), |host| format!(" on {host}"));
    format!(
        "rank {}{host}: kernels {}, exposed communication {}",
        rank.rank,
        time(rank.kernel_ns),
        or_none(rank.measured_exposed_ns(), time)
    )
}

/// Adds exposed communication to compute, %.
fn stacked(activity: &RankActivity) -> Vec<u8> {
    let parts = activity.compute_pct.iter().zip(&activity.exposed_pct);
    parts.map(|(compute, exposed)| compute.saturating_add(*exposed).min(100)).collect()
}

/// Draws heights in % as steps above the base of a row; parts of one height are one step.
fn area(heights: &[u8], left: f64, part: f64, top: f64) -> String {
    let base = top + ROW;
    let mut path = format!("M{left:.1} {base:.1}");
    let mut at = 0;
    while let Some(height) = heights.get(at) {
        let same = heights[at..].iter().take_while(|other| *other == height).count();
        let y = base - ROW * f64::from(*height) / 100.0;
        at += same;
        // Writing to a string cannot fail.
        let _ = write!(path, "V{y:.1}H{:.1}", left + part * at as f64);
    }
    let _ = write!(path, "V{base:.1}Z");
    path
}

/// Most points of a curve.
const POINTS: usize = 600;

/// Height of a curve.
const HEIGHT: f64 = 60.0;

/// Draws the curves of each GPU; `None` without any.
pub fn vitals(trace: &Trace) -> Option<Markup> {
    let (first, last) = trace.span()?;
    let (from, to) = (first + trace.utc_offset, last + trace.utc_offset);
    type Value = fn(&GpuState) -> Option<f64>;
    let curve = |vitals: &GpuVitals, name: &str, unit: &str, most: Option<f64>, value: Value| {
        let states = vitals.states.iter().filter(|state| (from..=to).contains(&state.at));
        let points: Vec<(Ns, f64)> = states.filter_map(|state| Some((state.at, value(state)?))).collect();
        let highest = points.iter().map(|point| point.1).fold(most.unwrap_or(0.0), f64::max);
        let text =
            format!("{name} of GPU {}: 0 to {highest:.0} {unit} over {}", vitals.number, time(to - from));
        let path = path(&points, (from, to), highest);
        (!points.is_empty()).then(|| html! {
            figure.steps.curve {
                figcaption.hint { (text) }
                svg viewBox={ "0 0 " (POINTS) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(text) { path d=(path) {} }
            }
        })
    };
    let of_gpu = |vitals: &GpuVitals| {
        let power = curve(vitals, "Power", "W", vitals.limit_w, |state| state.watts);
        [power, curve(vitals, "Clock", "MHz", vitals.max_sm_mhz, |state| state.sm_mhz)]
    };
    let curves: Vec<Markup> = trace.vitals.iter().flat_map(of_gpu).flatten().collect();
    (!curves.is_empty()).then(|| html! { @for curve in curves { (curve) } })
}

/// Returns the line through points, the lowest and the highest of those that fall together.
fn path(points: &[(Ns, f64)], (from, to): (Ns, Ns), highest: f64) -> String {
    let mut path = String::new();
    let many = points.len().div_ceil(POINTS / 2).max(1);
    for near in points.chunks(many) {
        let by_value = |a: &&(Ns, f64), b: &&(Ns, f64)| a.1.total_cmp(&b.1);
        let mut ends: Vec<&(Ns, f64)> =
            near.iter().min_by(by_value).into_iter().chain(near.iter().max_by(by_value)).collect();
        ends.sort_by_key(|end| end.0);
        for (at, value) in ends {
            let x = POINTS as f64 * (at - from) as f64 / (to - from).max(1) as f64;
            let y = HEIGHT * (1.0 - value / highest.max(1.0));
            let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { "M" } else { "L" });
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(rank: u32, begin_ns: i64, clock_offset_ns: Option<i64>) -> RankInfo {
        RankInfo {
            rank,
            clock_offset_ns,
            clock_reference: clock_offset_ns.map(|_| 0),
            activity: Some(RankActivity {
                begin_ns,
                part_ns: 50,
                compute_pct: vec![100, 100, 0],
                exposed_pct: vec![0, 0, 50],
            }),
            ..RankInfo::default()
        }
    }

    #[test]
    fn rows_begin_in_one_clock() {
        let analysis = |ranks: Vec<RankInfo>| {
            let mut analysis = Analysis::default();
            analysis.ranks = ranks;
            analysis
        };
        let two = |offset| analysis(vec![rank(0, 1_000, Some(0)), rank(1, 9_050, offset)]);
        // In the clock of rank 0, rank 1 begins 50 later: the whole is 200.
        let aligned = ranks(&two(Some(8_000))).unwrap().into_string();
        assert!(aligned.contains("M70.0 22.0V0.0H570.0V22.0H820.0V22.0Z"), "{aligned}");
        assert!(aligned.contains("M320.0 48.0V26.0H820.0V48.0H1070.0V48.0Z"), "{aligned}");
        assert!(aligned.contains("M320.0 48.0V26.0H820.0V37.0H1070.0V48.0Z"), "{aligned}");
        let apart = ranks(&two(None)).unwrap().into_string();
        assert!(apart.contains("M70.0 48.0"), "{apart}");
        assert!(apart.contains("the clocks of the ranks are not known"));
        assert!(ranks(&analysis(vec![rank(0, 0, None)])).is_none());
    }
}

#[cfg(test)]
mod curve_tests {
    use super::*;

    #[test]
    fn a_curve_keeps_the_ends_of_many_points() {
        let points: Vec<(Ns, f64)> =
            (0..6_000).map(|at| (at, if at == 3_001 { 700.0 } else { 100.0 })).collect();
        let path = path(&points, (0, 6_000), 700.0);
        assert!(path.starts_with("M0.0 51.4") && path.contains("L300.1 0.0"), "{path}");
        assert!(path.matches('L').count() < POINTS);
        assert!(vitals(&Trace::default()).is_none());
    }
}
