//! The map of ranks by time: compute and exposed communication of every rank, in one clock where it is known.

use maud::{Markup, html};
use roofgap_analyze::{Analysis, RankActivity, RankInfo};
use roofgap_base::numbers::{or_none, time};
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
pub fn map(analysis: &Analysis) -> Option<Markup> {
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
        let aligned = map(&two(Some(8_000))).unwrap().into_string();
        assert!(aligned.contains("M70.0 22.0V0.0H570.0V22.0H820.0V22.0Z"), "{aligned}");
        assert!(aligned.contains("M320.0 48.0V26.0H820.0V48.0H1070.0V48.0Z"), "{aligned}");
        assert!(aligned.contains("M320.0 48.0V26.0H820.0V37.0H1070.0V48.0Z"), "{aligned}");
        let apart = map(&two(None)).unwrap().into_string();
        assert!(apart.contains("M70.0 48.0"), "{apart}");
        assert!(apart.contains("the clocks of the ranks are not known"));
        assert!(map(&analysis(vec![rank(0, 0, None)])).is_none());
    }
}
