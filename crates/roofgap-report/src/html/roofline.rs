//! The roofline: one dot for each measured kernel and launch shape, below the roofs of the device.

use super::markup::absent;
use super::roofline_scale::{HEIGHT, PLOT, Scale, WIDTH, at};
use super::{cache_roofs, class, kernels};
use crate::view::numbers::{NONE, count, si, time};
use crate::view::provenance::missing;
use crate::view::table::{Table, cut};
use maud::{Markup, html};
use roofgap_analyze::gpu::{Dtype, GpuFacts, UnknownGpu, lookup};
use roofgap_analyze::{About, Analysis, CounterRow, DeviceInfo, ShortNames, Stage, family};
use std::collections::{HashMap, HashSet};

/// Distance of two roofs between which a label fits.
const LABEL: f64 = 20.0;

/// Renders the drawing, or why there is none.
pub fn roofline(analysis: &Analysis) -> Markup {
    let dots = dots(analysis);
    if dots.is_empty() {
        let why = match analysis.reason(&About::Counters) {
            Some(why) => why.to_owned(),
            None if analysis.counters.is_empty() => {
                missing(analysis, &About::Counters).trim_end_matches('.').to_owned()
            }
            None => "no measured kernel has both floating-point work and DRAM traffic".into(),
        };
        return absent(&format!("No roofline: {why}."));
    }
    let roofs = Roofs::of(analysis);
    let short_names = ShortNames::of(analysis);
    let scale = scale(analysis, &dots, &roofs);
    let highest = roofs.highest();
    let points = stage_points(analysis, &dots);
    let longest = dots.iter().map(|d| d.ns).max().unwrap_or(1).max(1) as f64;
    let mut families: Vec<&str> = dots.iter().map(|d| family(&d.row.kernel).as_str()).collect();
    families.sort_unstable();
    families.dedup();
    html! {
        div.scroll {
            svg.roofline viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="group" aria-label={ "roofline of " (dots.len()) " measured kernels" } {
                (axes(&scale, if cache_roofs::intensities(analysis).next().is_some() { "DRAM, L2 or L1" } else { "DRAM" }))
                (roofs.draw(&scale))
                (cache_roofs::draw(analysis, &scale, highest))
                @for (i, dot) in dots.iter().enumerate() {
                    @let stage = analysis.stages.iter().position(|s| Some(s.name.as_str()) == dot.row.stage.as_deref());
                    (dot.draw(&scale, longest, &short_names, stage, i == 0))
                }
                (roofs.names(&scale))
                (cache_roofs::names(analysis, &scale, highest))
                @for point in &points { (point.draw(&scale)) }
            }
        }
        (stage_note(&points))
        p #roofline-item.item aria-live="polite" { "Point at a dot, or go from dot to dot with the arrow keys, to read its kernel; Enter shows it in the timeline." }
        ul.legend { @for name in families { li { i class={ "f-" (class::css(name)) } {} (name) } } }
        p.hint { (hints(analysis, &roofs, dots.len())) (cache_roofs::hint(analysis)) }
        details {
            summary { "The dots as a table" }
            (table(&dots, &short_names).html())
        }
    }
}

/// A measured kernel and launch shape.
struct Dot<'a> {
    row: &'a CounterRow,
    intensity: f64,
    flops_per_s: f64,
    ns: i64,
}

/// Makes axes that hold the dots, the roofs and the caches.
fn scale(analysis: &Analysis, dots: &[Dot<'_>], roofs: &Roofs) -> Scale {
    let bandwidth = roofs.bandwidth.as_ref().map(|b| b.0);
    let ridges = roofs.peaks.iter().filter_map(|p| Some(p.1 / bandwidth?));
    let caches = cache_roofs::intensities(analysis);
    let xs = dots.iter().map(|d| d.intensity).chain(ridges).chain(caches);
    let ys = dots.iter().map(|d| d.flops_per_s);
    Scale::around(xs, ys.chain(roofs.peaks.iter().map(|p| p.1)))
}

/// Selects the rows with work and traffic, the longest first so that small dots are drawn on top.
fn dots(analysis: &Analysis) -> Vec<Dot<'_>> {
    let usable = |v: Option<f64>| v.filter(|v| v.is_finite() && *v > 0.0);
    let position = |row: &CounterRow| Some((usable(row.intensity)?, usable(row.achieved_flops_per_s)?));
    let weights = Weights::of(analysis);
    let mut dots: Vec<Dot<'_>> = analysis
        .counters
        .iter()
        .filter_map(|row| {
            let (intensity, flops_per_s) = position(row)?;
            Some(Dot { row, intensity, flops_per_s, ns: weights.ns(row) })
        })
        .collect();
    dots.sort_by_key(|d| std::cmp::Reverse(d.ns));
    dots
}

/// Times by stage and kernel; the stage is `None` for a row outside of every stage.
#[derive(Default)]
struct Weights<'a> {
    stages: HashSet<&'a str>,
    /// Time of a kernel in the timeline, ns.
    totals: HashMap<(Option<&'a str>, &'a str), i64>,
    /// Sum of the measured durations of a kernel's shapes, ns.
    shapes: HashMap<(Option<&'a str>, &'a str), i64>,
}

impl<'a> Weights<'a> {
    fn of(analysis: &'a Analysis) -> Self {
        let mut weights = Self::default();
        let stages = analysis.stages.iter().map(|s| (Some(s.name.as_str()), &s.kernels));
        for (stage, kernels) in stages.chain([(None, &analysis.kernels)]) {
            weights.stages.extend(stage);
            for kernel in kernels {
                weights.totals.entry((stage, &kernel.name)).or_insert(kernel.total_ns);
            }
        }
        for row in &analysis.counters {
            let sum = weights.shapes.entry((row.stage.as_deref(), &row.kernel)).or_default();
            *sum = sum.saturating_add(row.duration_ns.unwrap_or(0));
        }
        weights
    }

    /// Returns the time a row stands for, ns: its kernel's time in the stage, divided among the kernel's shapes by their duration.
    fn ns(&self, row: &CounterRow) -> i64 {
        let own = row.duration_ns.unwrap_or(0);
        let stage = row.stage.as_deref();
        let known = stage.filter(|stage| self.stages.contains(stage));
        let total = self.totals.get(&(known, row.kernel.as_str()));
        let shapes = self.shapes.get(&(stage, row.kernel.as_str())).copied().unwrap_or(0);
        match total {
            Some(total) if shapes > 0 => (*total as f64 * own as f64 / shapes as f64) as i64,
            _ => own.saturating_mul(row.samples.max(1) as i64),
        }
    }
}

/// The bandwidth and the compute peaks of the device.
struct Roofs {
    /// DRAM bandwidth, bytes/s, and its source.
    bandwidth: Option<(f64, String)>,
    /// Data type, FLOP/s and source.
    peaks: Vec<(String, f64, String)>,
    unknown: Option<String>,
}

impl Roofs {
    fn of(analysis: &Analysis) -> Self {
        let mut roofs = Self { bandwidth: None, peaks: Vec::new(), unknown: None };
        let device = analysis.devices.first();
        match device.map(facts) {
            Some(Ok(facts)) => {
                roofs.bandwidth = facts.bandwidth().map(|(b, source)| (b, source.to_owned()));
                for dtype in [Dtype::Bf16, Dtype::Fp8, Dtype::Fp32] {
                    if let Some(peak) = facts.peak(dtype) {
                        roofs.peaks.push((dtype.name().into(), peak.flops_per_s, peak.source));
                    }
                }
            }
            Some(Err(why)) => roofs.unknown = Some(why.to_string()),
            None => roofs.unknown = Some("the inputs do not name the GPU".into()),
        }
        if let Some(reported) = device.and_then(|d| d.bandwidth_bytes_per_s) {
            roofs.bandwidth = Some((reported as f64, "reported by the device".into()));
        }
        // The values that the analysis used win: the user may have set them.
        if let Some(mbu) = analysis.stages.iter().find_map(|s| s.mbu.as_ref()) {
            roofs.bandwidth = Some((mbu.bandwidth_bytes_per_s, mbu.bandwidth_source.clone()));
        }
        if let Some(mfu) = analysis.stages.iter().find_map(|s| s.mfu.as_ref()) {
            roofs.peaks.retain(|p| p.0 != mfu.dtype);
            roofs.peaks.insert(0, (mfu.dtype.clone(), mfu.peak_flops_per_s, mfu.peak_source.clone()));
        }
        roofs.peaks.retain(|p| p.1.is_finite() && p.1 > 0.0);
        roofs.bandwidth = roofs.bandwidth.filter(|b| b.0.is_finite() && b.0 > 0.0);
        roofs
    }

    /// Returns the highest compute peak, FLOP/s; 0 without any.
    fn highest(&self) -> f64 {
        self.peaks.iter().map(|p| p.1).fold(0.0, f64::max)
    }

    /// Returns both ends of the DRAM roof, which goes up to the highest compute peak.
    fn slope(&self, scale: &Scale) -> Option<(f64, [(f64, f64); 2])> {
        let bandwidth = self.bandwidth.as_ref()?.0;
        let highest = self.highest();
        let end = if highest > 0.0 { highest } else { scale.y.1 };
        let low = scale.at(scale.x.0, scale.x.0 * bandwidth);
        let high = scale.at((end / bandwidth).min(scale.x.1), end.min(scale.x.1 * bandwidth));
        Some((bandwidth, [low, high]))
    }

    /// Draws the lines.
    fn draw(&self, scale: &Scale) -> Markup {
        html! {
            @if let Some((_, [(x1, y1), (x2, y2)])) = self.slope(scale) {
                line.roof x1=(at(x1)) y1=(at(y1)) x2=(at(x2)) y2=(at(y2)) {}
            }
            @for (_, peak, _) in &self.peaks {
                @let ridge = self.bandwidth.as_ref().map_or(scale.x.0, |b| peak / b.0);
                @let (x1, y) = scale.at(ridge.clamp(scale.x.0, scale.x.1), *peak);
                line.roof x1=(at(x1)) y1=(at(y)) x2=(at(PLOT.2)) y2=(at(y)) {}
            }
        }
    }

    /// Writes the names of the lines, which stand above the dots.
    fn names(&self, scale: &Scale) -> Markup {
        let height = |peak: f64| scale.at(scale.x.1, peak).1;
        let above = |peak: f64| {
            let higher = self.peaks.iter().map(|p| p.1).filter(|other| *other > peak);
            height(peak) - higher.map(height).fold(f64::MIN, f64::max)
        };
        html! {
            @if let Some((bandwidth, [(x1, y1), (x2, y2)])) = self.slope(scale) {
                @let angle = at((y2 - y1).atan2(x2 - x1).to_degrees());
                @let (x, y) = (at(x1 + (x2 - x1) * 0.45), at(y1 + (y2 - y1) * 0.45 - 6.0));
                text.roof-name x=(x) y=(y) text-anchor="middle" transform={ "rotate(" (angle) " " (x) " " (y) ")" } { "DRAM " (si(bandwidth)) "B/s" }
            }
            @for (name, peak, _) in &self.peaks {
                // Below the line where the next one is close.
                @let label = height(*peak) + if above(*peak) >= LABEL { -5.0 } else { 14.0 };
                text.roof-name x=(at(PLOT.2 - 4.0)) y=(at(label)) text-anchor="end" { (name) " " (si(*peak)) "FLOP/s" }
            }
        }
    }
}

fn facts(device: &DeviceInfo) -> Result<&'static GpuFacts, UnknownGpu> {
    let name = device.name.as_deref().unwrap_or("");
    let capability = device.compute_capability.as_deref().and_then(|text| {
        let (major, minor) = text.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    lookup(name, capability, device.memory_bytes)
}

fn axes(scale: &Scale, traffic: &str) -> Markup {
    let middle = at((PLOT.1 + PLOT.3) / 2.0);
    html! {
        @for x in Scale::decades(scale.x) {
            @let px = at(scale.at(x, scale.y.0).0);
            line.grid x1=(px) y1=(PLOT.1) x2=(px) y2=(PLOT.3) {}
            text x=(px) y=(PLOT.3 + 16.0) text-anchor="middle" { (tick(x)) }
        }
        @for y in Scale::decades(scale.y) {
            @let py = scale.at(scale.x.0, y).1;
            line.grid x1=(PLOT.0) y1=(at(py)) x2=(PLOT.2) y2=(at(py)) {}
            text x=(PLOT.0 - 6.0) y=(at(py + 4.0)) text-anchor="end" { (tick(y)) }
        }
        text x=(at((PLOT.0 + PLOT.2) / 2.0)) y=(at(PLOT.3 + 38.0)) text-anchor="middle" { "FLOP per byte of " (traffic) " traffic" }
        text.y-name x="14" y=(middle) text-anchor="middle" transform={ "rotate(-90 14 " (middle) ")" } { "FLOP/s" }
    }
}

/// Formats a power of ten as the label of an axis.
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
    fn draw(
        &self,
        scale: &Scale,
        longest: f64,
        short_names: &ShortNames,
        stage: Option<usize>,
        first: bool,
    ) -> Markup {
        let (x, y) = scale.at(self.intensity, self.flops_per_s);
        let radius = 3.5 + 16.0 * (self.ns.max(0) as f64 / longest).sqrt();
        let row = self.row;
        let short = short_names.get(&row.kernel);
        let label = format!(
            "{}\n{}, {}\n{:.2} FLOP/B, {}FLOP/s\n{} in its stage",
            cut(&short, 120),
            row.stage.as_deref().unwrap_or("no stage"),
            row.bound.as_deref().unwrap_or("no verdict"),
            self.intensity,
            si(self.flops_per_s),
            time(self.ns)
        );
        html! {
            circle cx=(at(x)) cy=(at(y)) r=(at(radius)) class={ "dot f-" (class::css(family(&row.kernel).as_str())) } data-kernel=(cut(&short, 300))
                data-stage=[stage] data-shape=(kernels::shape(row)) tabindex=(if first { "0" } else { "-1" }) role="button" aria-label=(label.replace('\n', ", ")) {
                title { (label) }
            }
        }
    }
}

/// The measured kernels of a stage together.
struct StagePoint<'a> {
    name: &'a str,
    intensity: f64,
    flops_per_s: f64,
    /// Share of the kernel time of the stage, %; `None` where that is not known.
    covered_pct: Option<f64>,
}

/// Adds up the dots of each stage, each by the time it stands for.
fn stage_points<'a>(analysis: &'a Analysis, dots: &[Dot<'_>]) -> Vec<StagePoint<'a>> {
    let point = |stage: &'a Stage| {
        let own = dots.iter().filter(|dot| dot.row.stage.as_deref() == Some(stage.name.as_str()));
        let (mut flops, mut bytes, mut ns) = (0.0, 0.0, 0.0);
        for dot in own {
            let time = dot.ns.max(0) as f64;
            ns += time;
            flops += dot.flops_per_s * time;
            bytes += dot.flops_per_s * time / dot.intensity;
        }
        let kernel_ns = stage.kernel_ns.filter(|kernel| *kernel > 0);
        (ns > 0.0 && bytes > 0.0).then(|| StagePoint {
            name: &stage.name,
            intensity: flops / bytes,
            flops_per_s: flops / ns,
            covered_pct: kernel_ns.map(|kernel| 100.0 * ns / kernel as f64),
        })
    };
    analysis.stages.iter().filter_map(point).collect()
}

impl StagePoint<'_> {
    fn label(&self) -> String {
        let name = cut(self.name, 60);
        let covered = self.covered_pct.map(|pct| format!(", {:.0} % of its kernel time", pct.min(100.0)));
        format!(
            "{name}: {:.2} FLOP/B, {}FLOP/s{}",
            self.intensity,
            si(self.flops_per_s),
            covered.unwrap_or_default()
        )
    }

    fn draw(&self, scale: &Scale) -> Markup {
        let (x, y) = scale.at(self.intensity, self.flops_per_s);
        let path = format!(
            "M{x:.1} {:.1}L{:.1} {y:.1}L{x:.1} {:.1}L{:.1} {y:.1}Z",
            y - 9.0,
            x + 9.0,
            y + 9.0,
            x - 9.0
        );
        html! {
            g.stage-point {
                title { (self.label()) }
                path d=(path) {}
                text x=(at(x + 12.0)) y=(at(y + 4.0)) { (cut(self.name, 30)) }
            }
        }
    }
}

fn stage_note(points: &[StagePoint<'_>]) -> Markup {
    html! {
        @if !points.is_empty() {
            p.hint {
                "A diamond is a stage: the work and traffic of its dots together, each by its time. "
                @for point in points { (point.label()) ". " }
            }
        }
    }
}

fn table(dots: &[Dot<'_>], short_names: &ShortNames) -> Table {
    Table::of(dots)
        .text("kernel", |dot: &Dot<'_>| cut(&short_names.get(&dot.row.kernel), 160))
        .text("stage", |dot| dot.row.stage.clone().unwrap_or_else(|| NONE.into()))
        .text("grid", |dot| dot.row.grid.map(|n| n.to_string()).join(" × "))
        .ms("time", |dot| dot.ns)
        .number("FLOP/B", |dot| format!("{:.2}", dot.intensity))
        .number("FLOP/s", |dot| si(dot.flops_per_s))
        .text("bound", |dot| dot.row.bound.clone().unwrap_or_else(|| NONE.into()))
        .build()
}

/// Explains the dots, and names the source of each roof.
fn hints(analysis: &Analysis, roofs: &Roofs, drawn: usize) -> String {
    let mut lines = vec![
        "A dot is one kernel and launch shape in one stage. Its area grows with the kernel's time in that stage, divided among its \
         shapes by their measured duration."
            .to_owned(),
    ];
    let left = analysis.counters.len().saturating_sub(drawn);
    if left > 0 {
        let left = count(left as u64);
        lines.push(format!(
            "{left} more measured rows are not drawn: they have no floating-point work or no DRAM traffic."
        ));
    }
    let sentence = |what: &str, source: &str| format!("{what}: {}.", source.trim_end_matches('.'));
    lines.extend(roofs.bandwidth.iter().map(|(_, source)| sentence("DRAM roof", source)));
    let peaks = roofs.peaks.iter();
    lines.extend(peaks.map(|(name, _, source)| sentence(&format!("{name} roof"), source)));
    if let Some(why) = roofs.unknown.as_ref().filter(|_| roofs.peaks.is_empty()) {
        lines.push(sentence("No compute roof", why));
    }
    lines.join(" ")
}
