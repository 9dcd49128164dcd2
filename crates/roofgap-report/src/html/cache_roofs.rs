//! The roofs of the caches, and the measured kernels by their traffic of each cache.

use super::roofline_scale::{Scale, at};
use crate::view::numbers::si;
use crate::view::table::cut;
use maud::{Markup, html};
use roofgap_analyze::{Analysis, CacheRates, CounterRow, short_name};
use roofgap_base::stats::median_f64;

/// A cache: its name, the traffic and the peak of a row.
struct Level {
    name: &'static str,
    class: &'static str,
    rate: fn(&CacheRates) -> Option<f64>,
    peak: fn(&CacheRates) -> Option<f64>,
}

const LEVELS: [Level; 2] = [
    Level {
        name: "L1",
        class: "roof l1",
        rate: |rates| rates.l1_bytes_per_s,
        peak: |rates| rates.l1_peak_bytes_per_s,
    },
    Level {
        name: "L2",
        class: "roof l2",
        rate: |rates| rates.l2_bytes_per_s,
        peak: |rates| rates.l2_peak_bytes_per_s,
    },
];

impl Level {
    /// Returns the median of the peaks, which follow the clock of each launch.
    fn bandwidth(&self, analysis: &Analysis) -> Option<f64> {
        let rates = analysis.counters.iter().filter_map(|row| row.caches.as_ref());
        let mut peaks: Vec<f64> = rates.filter_map(self.peak).filter(|peak| *peak > 0.0).collect();
        median_f64(&mut peaks)
    }

    /// Lists the rows with work and traffic of this cache: intensity and FLOP/s.
    fn points<'a>(&'a self, analysis: &'a Analysis) -> impl Iterator<Item = (&'a CounterRow, f64, f64)> {
        analysis.counters.iter().filter_map(|row| {
            let flops = row.achieved_flops_per_s.filter(|flops| *flops > 0.0)?;
            let rate = (self.rate)(row.caches.as_ref()?).filter(|rate| *rate > 0.0)?;
            Some((row, flops / rate, flops))
        })
    }
}

/// Lists the intensities of all points, for the axis.
pub fn intensities(analysis: &Analysis) -> impl Iterator<Item = f64> {
    LEVELS.iter().flat_map(move |level| level.points(analysis).map(|point| point.1))
}

/// Returns both ends of the roof of a bandwidth, up to the highest compute peak.
fn slope(bandwidth: f64, scale: &Scale, highest: f64) -> [(f64, f64); 2] {
    let end = if highest > 0.0 { highest } else { scale.y.1 };
    let from = scale.x.0.max(scale.y.0 / bandwidth);
    let to = (end / bandwidth).min(scale.x.1);
    [from, to].map(|x| scale.at(x, x * bandwidth))
}

/// Writes the names of the roofs, which stand above the dots.
pub fn names(analysis: &Analysis, scale: &Scale, highest: f64) -> Markup {
    html! {
        @for level in &LEVELS {
            @if let Some(bandwidth) = level.bandwidth(analysis) {
                @let [(x1, y1), (x2, y2)] = slope(bandwidth, scale, highest);
                @let angle = at((y2 - y1).atan2(x2 - x1).to_degrees());
                @let (x, y) = (at(x1 + (x2 - x1) * 0.7), at(y1 + (y2 - y1) * 0.7 - 5.0));
                text.roof-name x=(x) y=(y) text-anchor="middle" transform={ "rotate(" (angle) " " (x) " " (y) ")" } { (level.name) " " (si(bandwidth)) "B/s" }
            }
        }
    }
}

/// Draws the roof of each cache up to the highest compute peak, and a ring for each kernel.
pub fn draw(analysis: &Analysis, scale: &Scale, highest: f64) -> Markup {
    html! {
        @for level in &LEVELS {
            @if let Some(bandwidth) = level.bandwidth(analysis) {
                @let [(x1, y1), (x2, y2)] = slope(bandwidth, scale, highest);
                line class=(level.class) x1=(at(x1)) y1=(at(y1)) x2=(at(x2)) y2=(at(y2)) {}
                @for (row, intensity, flops) in level.points(analysis) {
                    @let (x, y) = scale.at(intensity, flops);
                    circle class={ "ring " (level.class) } cx=(at(x)) cy=(at(y)) r="3.5" {
                        title { (cut(&short_name(&row.kernel), 120)) ": " (format!("{intensity:.2}")) " FLOP per byte of " (level.name) " traffic" }
                    }
                }
            }
        }
    }
}

/// Explains the rings; says which caches have no roof.
pub fn hint(analysis: &Analysis) -> String {
    let known: Vec<&str> =
        LEVELS.iter().filter(|level| level.bandwidth(analysis).is_some()).map(|level| level.name).collect();
    if known.is_empty() {
        return " No L1 and L2 roofs: ncu's hierarchical roofline sections were not collected.".into();
    }
    format!(
        " Dashed roofs are those of {}, as ncu measured them (median of the launches); a ring is a kernel by its traffic of that cache.",
        known.join(" and ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_has_a_roof_only_where_its_peak_was_measured() {
        let mut analysis = Analysis::default();
        assert_eq!(LEVELS[1].bandwidth(&analysis), None);
        assert!(hint(&analysis).contains("No L1 and L2 roofs"));
        let row = |peak: f64| CounterRow {
            achieved_flops_per_s: Some(1e12),
            caches: Some(CacheRates {
                l2_bytes_per_s: Some(5e11),
                l2_peak_bytes_per_s: Some(peak),
                ..CacheRates::default()
            }),
            ..CounterRow::default()
        };
        analysis.counters = vec![row(9e12), row(1e13), row(1.1e13)];
        assert_eq!(LEVELS[1].bandwidth(&analysis), Some(1e13));
        assert_eq!(intensities(&analysis).collect::<Vec<_>>(), [2.0, 2.0, 2.0]);
        assert!(hint(&analysis).contains("those of L2,"));
    }
}
