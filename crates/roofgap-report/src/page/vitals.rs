//! Power and clock over the time of the trace.

use maud::{Markup, html};
use roofgap_base::numbers::time;
use roofgap_trace::vitals::{GpuState, GpuVitals};
use roofgap_trace::{Ns, Trace};
use std::fmt::Write;

/// Most points of a curve.
const POINTS: usize = 600;

const HEIGHT: f64 = 60.0;

/// Draws the curves of each GPU; `None` without any.
pub fn curves(trace: &Trace) -> Option<Markup> {
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

    #[test]
    fn a_curve_keeps_the_ends_of_many_points() {
        let points: Vec<(Ns, f64)> =
            (0..6_000).map(|at| (at, if at == 3_001 { 700.0 } else { 100.0 })).collect();
        let path = path(&points, (0, 6_000), 700.0);
        assert!(path.starts_with("M0.0 51.4") && path.contains("L300.1 0.0"), "{path}");
        assert!(path.matches('L').count() < POINTS);
        assert!(curves(&Trace::default()).is_none());
    }
}
