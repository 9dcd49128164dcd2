//! The roofline: one dot for every kernel and launch shape that was measured, under the roofs of the device.

use super::class;
use super::markup::{cut, escape, escape_cut};
use crate::number::{count, si, time};
use roofgap_analyze::gpu::{Dtype, GpuFacts, lookup};
use roofgap_analyze::{About, Analysis, CounterRow, DeviceInfo, family, short_name};
use std::fmt::Write;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 460.0;
/// Left, top, right and bottom of the plot.
const PLOT: (f64, f64, f64, f64) = (70.0, 16.0, 884.0, 412.0);

/// The drawing, or why there is none.
pub(super) fn roofline(analysis: &Analysis) -> String {
    let dots = dots(analysis);
    if dots.is_empty() {
        let why = match analysis.reasons.iter().find(|r| r.about == About::Counters) {
            Some(reason) => reason.why.clone(),
            None if analysis.counters.is_empty() => "no counters were measured".into(),
            None => "the counters that were measured hold no floating-point work beside DRAM traffic".into(),
        };
        return super::absence("No roofline", &why);
    }
    let roofs = Roofs::of(analysis);
    let scale = Scale::of(&dots, &roofs);
    let mut out = format!(
        "<div class=\"scroll\"><svg class=\"roofline\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"roofline of {} measured kernels\">",
        dots.len()
    );
    axes(&scale, &mut out);
    roofs.draw(&scale, &mut out);
    let longest = dots.iter().map(|d| d.ns).max().unwrap_or(1).max(1) as f64;
    for dot in &dots {
        dot.draw(&scale, longest, &mut out);
    }
    out.push_str("</svg></div>");
    families(&dots, &mut out);
    hints(analysis, &roofs, dots.len(), &mut out);
    out
}

struct Dot<'a> {
    row: &'a CounterRow,
    intensity: f64,
    flops_per_s: f64,
    ns: i64,
}

/// Rows that have a place, the longest first so that small dots lie on top.
fn dots(analysis: &Analysis) -> Vec<Dot<'_>> {
    let usable = |v: Option<f64>| v.filter(|v| v.is_finite() && *v > 0.0);
    let place = |row: &CounterRow| Some((usable(row.intensity)?, usable(row.achieved_flops_per_s)?));
    let mut dots: Vec<Dot<'_>> = analysis
        .counters
        .iter()
        .filter_map(|row| {
            let (intensity, flops_per_s) = place(row)?;
            Some(Dot {
                row,
                intensity,
                flops_per_s,
                ns: weight(analysis, row),
            })
        })
        .collect();
    dots.sort_by_key(|d| std::cmp::Reverse(d.ns));
    dots
}

/// The time a row stands for: its kernel's time in the stage, shared among the kernel's shapes by their duration.
fn weight(analysis: &Analysis, row: &CounterRow) -> i64 {
    let own = row.duration_ns.unwrap_or(0);
    let stage = analysis
        .stages
        .iter()
        .find(|s| Some(&s.name) == row.stage.as_ref());
    let kernels = stage.map_or(&analysis.kernels, |s| &s.kernels);
    let total = kernels.iter().find(|k| k.name == row.kernel).map(|k| k.total_ns);
    let same = |r: &&CounterRow| r.kernel == row.kernel && r.stage == row.stage;
    let shapes: i64 = analysis
        .counters
        .iter()
        .filter(same)
        .filter_map(|r| r.duration_ns)
        .sum();
    match total {
        Some(total) if shapes > 0 => (total as f64 * own as f64 / shapes as f64) as i64,
        _ => own * row.samples.max(1) as i64,
    }
}

struct Roofs {
    bandwidth: Option<(f64, String)>,
    /// Name, FLOP/s and source.
    peaks: Vec<(String, f64, String)>,
    unknown: Option<String>,
}

impl Roofs {
    fn of(analysis: &Analysis) -> Self {
        let mut roofs = Self {
            bandwidth: None,
            peaks: Vec::new(),
            unknown: None,
        };
        let device = analysis.devices.first();
        match device.map(facts) {
            Some(Ok(facts)) => {
                roofs.bandwidth = facts.bandwidth().map(|(b, source)| (b, source.to_owned()));
                for dtype in [Dtype::Bf16, Dtype::Fp8, Dtype::Fp32] {
                    if let Some(peak) = facts.peak(dtype) {
                        roofs
                            .peaks
                            .push((dtype.name().into(), peak.flops_per_s, peak.source));
                    }
                }
            }
            Some(Err(why)) => roofs.unknown = Some(why),
            None => roofs.unknown = Some("the inputs do not say which GPU it was".into()),
        }
        if let Some(reported) = device.and_then(|d| d.bandwidth_bytes_per_s) {
            roofs.bandwidth = Some((reported as f64, "as the device reports it".into()));
        }
        // What the analysis used comes first: the user may have set it.
        if let Some(mbu) = analysis.stages.iter().find_map(|s| s.mbu.as_ref()) {
            roofs.bandwidth = Some((mbu.bandwidth_bytes_per_s, mbu.bandwidth_source.clone()));
        }
        if let Some(mfu) = analysis.stages.iter().find_map(|s| s.mfu.as_ref()) {
            roofs.peaks.retain(|p| p.0 != mfu.dtype);
            roofs.peaks.insert(
                0,
                (mfu.dtype.clone(), mfu.peak_flops_per_s, mfu.peak_source.clone()),
            );
        }
        roofs.peaks.retain(|p| p.1.is_finite() && p.1 > 0.0);
        roofs.bandwidth = roofs.bandwidth.filter(|b| b.0.is_finite() && b.0 > 0.0);
        roofs
    }

    fn draw(&self, scale: &Scale, out: &mut String) {
        let highest = self.peaks.iter().map(|p| p.1).fold(0.0, f64::max);
        let end = if highest > 0.0 { highest } else { scale.y.1 };
        if let Some((bandwidth, _)) = &self.bandwidth {
            let from = (scale.x.0, scale.x.0 * bandwidth);
            let to = ((end / bandwidth).min(scale.x.1), end.min(scale.x.1 * bandwidth));
            let (x1, y1) = scale.at(from.0, from.1);
            let (x2, y2) = scale.at(to.0, to.1);
            let angle = (y2 - y1).atan2(x2 - x1).to_degrees();
            let (tx, ty) = (x1 + (x2 - x1) * 0.45, y1 + (y2 - y1) * 0.45 - 6.0);
            let _ = write!(
                out,
                "<line class=\"roof\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/><text class=\"roof-name\" x=\"{tx:.1}\" y=\"{ty:.1}\" text-anchor=\"middle\" transform=\"rotate({angle:.1} {tx:.1} {ty:.1})\">DRAM {}B/s</text>",
                si(*bandwidth)
            );
        }
        for (name, peak, _) in &self.peaks {
            let ridge = self.bandwidth.as_ref().map_or(scale.x.0, |b| peak / b.0);
            let (x1, y) = scale.at(ridge.clamp(scale.x.0, scale.x.1), *peak);
            // Only the highest has room above it.
            let label = if *peak >= highest { y - 6.0 } else { y + 14.0 };
            let _ = write!(
                out,
                "<line class=\"roof\" x1=\"{x1:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"/><text class=\"roof-name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{} {}FLOP/s</text>",
                PLOT.2,
                PLOT.2 - 4.0,
                label,
                escape(name),
                si(*peak)
            );
        }
    }
}

fn facts(device: &DeviceInfo) -> Result<GpuFacts, String> {
    let name = device.name.as_deref().unwrap_or("");
    let capability = device.compute_capability.as_deref().and_then(|text| {
        let (major, minor) = text.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    lookup(name, capability, device.memory_bytes)
        .cloned()
        .map_err(|why| why.to_string())
}

/// Two axes, each from a power of ten to a power of ten.
struct Scale {
    x: (f64, f64),
    y: (f64, f64),
}

impl Scale {
    fn of(dots: &[Dot<'_>], roofs: &Roofs) -> Self {
        let around = |values: &mut dyn Iterator<Item = f64>| {
            let (low, high) = values.fold((f64::MAX, f64::MIN_POSITIVE), |(l, h), v| (l.min(v), h.max(v)));
            (
                10f64.powf(low.log10().floor()),
                10f64.powf((high * 1.2).log10().ceil()),
            )
        };
        let bandwidth = roofs.bandwidth.as_ref().map(|b| b.0);
        let ridges = roofs.peaks.iter().filter_map(|p| Some(p.1 / bandwidth?));
        let xs = dots.iter().map(|d| d.intensity).chain(ridges);
        let ys = dots
            .iter()
            .map(|d| d.flops_per_s)
            .chain(roofs.peaks.iter().map(|p| p.1));
        Self {
            x: around(&mut xs.into_iter()),
            y: around(&mut ys.into_iter()),
        }
    }

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let part = |v: f64, (low, high): (f64, f64)| (v / low).log10() / (high / low).log10();
        (
            PLOT.0 + (PLOT.2 - PLOT.0) * part(x, self.x),
            PLOT.3 - (PLOT.3 - PLOT.1) * part(y, self.y).clamp(0.0, 1.0),
        )
    }

    fn decades((low, high): (f64, f64)) -> Vec<f64> {
        let (from, to) = (low.log10().round() as i32, high.log10().round() as i32);
        // At most a dozen lines on an axis.
        let step = ((to - from) / 12 + 1).max(1);
        (from..=to)
            .step_by(step as usize)
            .map(|e| 10f64.powi(e))
            .collect()
    }
}

fn axes(scale: &Scale, out: &mut String) {
    for x in Scale::decades(scale.x) {
        let (px, _) = scale.at(x, scale.y.0);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{px:.1}\" y1=\"{}\" x2=\"{px:.1}\" y2=\"{}\"/><text x=\"{px:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            PLOT.1,
            PLOT.3,
            PLOT.3 + 16.0,
            tick(x)
        );
    }
    for y in Scale::decades(scale.y) {
        let (_, py) = scale.at(scale.x.0, y);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{}\" y1=\"{py:.1}\" x2=\"{}\" y2=\"{py:.1}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            PLOT.0,
            PLOT.2,
            PLOT.0 - 6.0,
            py + 4.0,
            tick(y)
        );
    }
    let _ = write!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">FLOP a byte of DRAM traffic</text><text x=\"14\" y=\"{:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 14 {:.1})\">FLOP/s</text>",
        (PLOT.0 + PLOT.2) / 2.0,
        PLOT.3 + 38.0,
        (PLOT.1 + PLOT.3) / 2.0,
        (PLOT.1 + PLOT.3) / 2.0
    );
}

/// A power of ten as the mark on an axis.
fn tick(value: f64) -> String {
    if (0.001..1000.0).contains(&value) {
        format!("{value}")
    } else if value < 0.001 {
        format!("1e{}", value.log10().round())
    } else {
        si(value).replace(".00", "")
    }
}

impl Dot<'_> {
    fn draw(&self, scale: &Scale, longest: f64, out: &mut String) {
        let (x, y) = scale.at(self.intensity, self.flops_per_s);
        let radius = 3.5 + 16.0 * (self.ns.max(0) as f64 / longest).sqrt();
        let row = self.row;
        let short = short_name(&row.kernel);
        let about = format!(
            "{}\n{}, {}\n{:.2} FLOP/B, {}FLOP/s\n{} in its stage",
            cut(&short, 120),
            row.stage.as_deref().unwrap_or("no stage"),
            row.bound.as_deref().unwrap_or("no verdict"),
            self.intensity,
            si(self.flops_per_s),
            time(self.ns)
        );
        // Line ends are wanted here, so each line is escaped by itself.
        let about: Vec<String> = about.lines().map(escape).collect();
        let _ = write!(
            out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" class=\"f-{}\" data-kernel=\"{}\"><title>{}</title></circle>",
            class::css(family(&row.kernel).as_str()),
            escape_cut(&short, 300),
            about.join("\n")
        );
    }
}

fn families(dots: &[Dot<'_>], out: &mut String) {
    let mut seen: Vec<&str> = dots.iter().map(|d| family(&d.row.kernel).as_str()).collect();
    seen.sort_unstable();
    seen.dedup();
    out.push_str("<ul class=\"legend\">");
    for name in seen {
        let _ = write!(
            out,
            "<li><i class=\"f-{}\"></i>{}</li>",
            class::css(name),
            escape(name)
        );
    }
    out.push_str("</ul>");
}

fn hints(analysis: &Analysis, roofs: &Roofs, drawn: usize, out: &mut String) {
    out.push_str("<p class=\"hint\">A dot is one kernel and launch shape in one stage. Its area grows with the kernel's time in that stage, shared among its shapes by their measured duration.");
    let left = analysis.counters.len().saturating_sub(drawn);
    if left > 0 {
        let _ = write!(
            out,
            " {} more measured rows have no place here: no floating-point work or no DRAM traffic was counted.",
            count(left as u64)
        );
    }
    if let Some((_, source)) = &roofs.bandwidth {
        let _ = write!(out, " DRAM roof: {}.", escape(source.trim_end_matches('.')));
    }
    for (name, _, source) in &roofs.peaks {
        let _ = write!(
            out,
            " {} roof: {}.",
            escape(name),
            escape(source.trim_end_matches('.'))
        );
    }
    if let Some(why) = roofs.unknown.as_ref().filter(|_| roofs.peaks.is_empty()) {
        let _ = write!(out, " No compute roof: {}.", escape(why.trim_end_matches('.')));
    }
    out.push_str("</p>");
}
