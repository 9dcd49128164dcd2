//! The roofline: one dot for each measured kernel and launch shape, below the roofs of the device. Kernels without floating-point work
//! stand on an axis of bandwidth.

use super::{class, kernels};
use crate::document::provenance::missing;
use crate::document::roof;
use crate::document::table::Table;
use crate::render::html::absent;
use maud::{Markup, html};
use roofgap_analyze::gpu::{Dtype, GpuFacts, UnknownGpu, lookup};
use roofgap_analyze::{
    About, Analysis, CacheRates, CounterRow, DeviceInfo, Kernel, ShortNames, Stage, family, short_name,
};
use roofgap_base::numbers::{count, si, time};
use roofgap_base::stats::median_f64;
use roofgap_base::text::cut;
use std::collections::HashMap;

/// Width of the drawing.
const WIDTH: f64 = 920.0;
/// Height of the drawing.
const HEIGHT: f64 = 470.0;
/// Left, top, right and bottom of the plot.
const PLOT: (f64, f64, f64, f64) = (78.0, 22.0, 884.0, 412.0);

/// Formats a coordinate.
fn at(value: f64) -> String {
    format!("{value:.1}")
}

/// Two logarithmic axes, each from a power of ten to a power of ten.
struct Scale {
    x: (f64, f64),
    y: (f64, f64),
}

impl Scale {
    /// Makes axes that hold all values.
    fn around(xs: impl Iterator<Item = f64>, ys: impl Iterator<Item = f64>) -> Self {
        Self { x: around(xs), y: around(ys) }
    }

    /// Returns the place of a point in the drawing.
    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let part = |v: f64, (low, high): (f64, f64)| (v / low).log10() / (high / low).log10();
        (
            PLOT.0 + (PLOT.2 - PLOT.0) * part(x, self.x),
            PLOT.3 - (PLOT.3 - PLOT.1) * part(y, self.y).clamp(0.0, 1.0),
        )
    }

    /// Lists the powers of ten of an axis, at most 12.
    fn decades((low, high): (f64, f64)) -> Vec<f64> {
        let (from, to) = (low.log10().round() as i32, high.log10().round() as i32);
        // At most 12 lines per axis.
        let step = ((to - from) / 12 + 1).max(1);
        (from..=to).step_by(step as usize).map(|e| 10f64.powi(e)).collect()
    }
}

/// Returns the powers of ten around some values.
fn around(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::MAX, f64::MIN_POSITIVE), |(l, h), v| (l.min(v), h.max(v)));
    (10f64.powf(low.log10().floor()), 10f64.powf((high * 1.2).log10().ceil()))
}

/// Distance of two roofs between which a label fits.
const LABEL: f64 = 20.0;

/// Renders the drawing, or why there is none.
pub fn roofline(analysis: &Analysis) -> Markup {
    let (dots, moving) = dots(analysis);
    let roofs = Roofs::of(analysis);
    let short_names = ShortNames::of(analysis);
    let longest = dots.iter().chain(&moving).map(|d| d.ns).max().unwrap_or(1).max(1) as f64;
    let draw = |dot: &Dot<'_>, at, first| {
        let stage = analysis.stages.iter().position(|s| Some(s.name.as_str()) == dot.row.stage.as_deref());
        dot.draw(at, longest, &short_names, stage, first)
    };
    let strip = html! { @if !moving.is_empty() { (strip(&moving, roofs.dram(), draw)) } };
    if dots.is_empty() {
        let why = match analysis.reason(&About::Counters) {
            Some(why) => why.to_owned(),
            None if analysis.counters.is_empty() => {
                missing(analysis, &About::Counters).trim_end_matches('.').to_owned()
            }
            None => "no measured kernel has both floating-point work and DRAM traffic".into(),
        };
        return html! { (absent(&format!("No roofline: {why}."))) (strip) };
    }
    let scale = roofs.scale(&dots);
    let points = stage_points(analysis, &dots);
    let traffic = if roofs.rings().next().is_some() { "DRAM, L2 or L1" } else { "DRAM" };
    html! {
        div.scroll {
            svg.roofline viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="group" aria-label={ "roofline of " (dots.len()) " measured kernels" } {
                (axes(&scale, traffic))
                (roofs.draw(&scale))
                @for point in &points { (point.draw(&scale)) }
                @for (i, dot) in dots.iter().enumerate() { (draw(dot, scale.at(dot.intensity, dot.flops_per_s), i == 0)) }
                (roofs.names(&scale))
                @for point in &points { (point.name(&scale)) }
            }
        }
        (strip)
        @if !points.is_empty() {
            p.hint {
                "A diamond is a stage: the work and traffic of its dots together, each by its time. "
                @for point in &points { (point.label()) ". " }
            }
        }
        p.hint { (roofs.hints(analysis.counters.len() - dots.len() - moving.len())) }
        details {
            summary { "The dots as a table" }
            (table(&dots, &short_names).html())
        }
    }
}

/// A measured kernel and launch shape.
struct Dot<'a> {
    row: &'a CounterRow,
    /// FLOP per byte and FLOP/s; 0 for a kernel without floating-point work.
    intensity: f64,
    flops_per_s: f64,
    bytes_per_s: f64,
    ns: i64,
    /// Its kernel in the stage.
    kernel: Option<&'a Kernel>,
}

/// Selects the rows with work and traffic, and those with traffic alone, the longest first so that small dots are drawn on top.
fn dots(analysis: &Analysis) -> (Vec<Dot<'_>>, Vec<Dot<'_>>) {
    let usable = |v: Option<f64>| v.filter(|v| v.is_finite() && *v > 0.0);
    // Sum of the measured durations of the shapes of a kernel in a stage, ns.
    let mut shapes: HashMap<(Option<&String>, &str), i64> = HashMap::new();
    for row in &analysis.counters {
        let sum = shapes.entry((row.stage.as_ref(), &row.kernel)).or_default();
        *sum = sum.saturating_add(row.duration_ns.unwrap_or(0));
    }
    let rows = analysis.counters.iter().filter_map(|row| {
        let CounterRow { intensity, achieved_flops_per_s, dram_bytes, duration_ns, .. } = row;
        let position = usable(*intensity).zip(usable(*achieved_flops_per_s));
        let rate = dram_bytes.zip(*duration_ns).map(|(bytes, ns)| 1e9 * bytes as f64 / ns as f64);
        let bytes_per_s = match position {
            Some((intensity, flops)) => flops / intensity,
            None => usable(rate)?,
        };
        let (intensity, flops_per_s) = position.unwrap_or_default();
        let (own, kernel) = (row.duration_ns.unwrap_or(0), kernel_of(analysis, row));
        let all = shapes.get(&(row.stage.as_ref(), row.kernel.as_str())).copied().unwrap_or(0);
        // The time of the kernel in its stage, divided among its shapes by their duration.
        let ns = match kernel {
            Some(kernel) if all > 0 => (kernel.total_ns as f64 * own as f64 / all as f64) as i64,
            _ => own.saturating_mul(row.samples.max(1) as i64),
        };
        Some(Dot { row, intensity, flops_per_s, bytes_per_s, ns, kernel })
    });
    let mut dots: Vec<Dot<'_>> = rows.collect();
    dots.sort_by_key(|d| std::cmp::Reverse(d.ns));
    dots.into_iter().partition(|dot| dot.flops_per_s > 0.0)
}

/// Draws kernels without floating-point work by their DRAM traffic, below the bandwidth of the device.
fn strip(
    dots: &[Dot<'_>],
    bandwidth: Option<f64>,
    draw: impl Fn(&Dot<'_>, (f64, f64), bool) -> Markup,
) -> Markup {
    let rates = dots.iter().map(|dot| dot.bytes_per_s).chain(bandwidth);
    let scale = Scale::around(rates, std::iter::once(1.0));
    let x = |rate: f64| scale.at(rate, 1.0).0;
    let line = |class: &str, rate: f64, y: f64| {
        html! {
            line class=(class) x1=(at(x(rate))) x2=(at(x(rate))) y1="14" y2="96" {}
            text x=(at(x(rate))) y=(at(y)) text-anchor="middle" { (tick(rate)) "B/s" }
        }
    };
    html! {
        h3 { "Kernels without floating-point work, by DRAM traffic" }
        div.scroll { svg.roofline viewBox={ "0 -14 " (WIDTH + 16.0) " 136" } role="group" aria-label={ "bandwidth of " (dots.len()) " measured kernels" } {
            @for rate in Scale::decades(scale.x) { (line("grid", rate, 110.0)) }
            @if let Some(peak) = bandwidth { (line("roof", peak, 10.0)) }
            // Three lines, so that fewer lie above each other.
            @for (i, dot) in dots.iter().enumerate() { (draw(dot, (x(dot.bytes_per_s), 33.0 + 22.0 * (i % 3) as f64), i == 0)) }
        } }
    }
}

/// Returns the kernel of a row in its stage; in the whole trace for a row outside of every stage.
fn kernel_of<'a>(analysis: &'a Analysis, row: &CounterRow) -> Option<&'a Kernel> {
    let stage = row.stage.as_deref().and_then(|name| analysis.stage(name));
    let kernels = stage.map_or(&analysis.kernels, |stage| &stage.kernels);
    kernels.iter().find(|kernel| kernel.name == row.kernel)
}

/// The roof of a memory: a line that rises with the intensity.
struct Slope<'a> {
    name: &'static str,
    class: &'static str,
    /// Bandwidth, bytes/s.
    bandwidth: f64,
    /// Place of the name along the line.
    name_at: f64,
    /// Measured kernels by their traffic of a cache: row, intensity and FLOP/s.
    rings: Vec<(&'a CounterRow, f64, f64)>,
}

impl Slope<'_> {
    fn label(&self) -> String {
        format!("{} {}B/s", self.name, si(self.bandwidth))
    }
}

fn peak_label(name: &str, peak: f64) -> String {
    format!("{name} {}FLOP/s", si(peak))
}

/// The roofs of a device.
struct Roofs<'a> {
    /// Roofs of DRAM and of the caches, as far as they are known.
    slopes: Vec<Slope<'a>>,
    dram_source: Option<String>,
    /// Data type, FLOP/s and source of the compute peaks.
    peaks: Vec<(String, f64, String)>,
    unknown: Option<String>,
}

/// A cache: name, class, and the traffic and the peak of a row.
type Cache = (&'static str, &'static str, [fn(&CacheRates) -> Option<f64>; 2]);

const CACHES: [Cache; 2] = [
    ("L1", "roof l1", [|rates| rates.l1_bytes_per_s, |rates| rates.l1_peak_bytes_per_s]),
    ("L2", "roof l2", [|rates| rates.l2_bytes_per_s, |rates| rates.l2_peak_bytes_per_s]),
];

/// Returns the roof of a cache, whose bandwidth is the median of the peaks: they follow the clock of each launch.
fn cache_slope<'a>(analysis: &'a Analysis, (name, class, [rate, peak]): Cache) -> Option<Slope<'a>> {
    let usable = |value: Option<f64>| value.filter(|value| *value > 0.0);
    let rows = &analysis.counters;
    let mut peaks: Vec<f64> = rows.iter().filter_map(|row| usable(peak(row.caches.as_ref()?))).collect();
    let ring = |row: &'a CounterRow| {
        let flops = usable(row.achieved_flops_per_s)?;
        Some((row, flops / usable(rate(row.caches.as_ref()?))?, flops))
    };
    let bandwidth = median_f64(&mut peaks)?;
    Some(Slope { name, class, bandwidth, name_at: 0.7, rings: rows.iter().filter_map(ring).collect() })
}

impl<'a> Roofs<'a> {
    fn of(analysis: &'a Analysis) -> Self {
        let mut roofs = Self { slopes: Vec::new(), dram_source: None, peaks: Vec::new(), unknown: None };
        let mut dram: Option<(f64, String)> = None;
        let device = analysis.devices.first();
        match device.map(facts) {
            Some(Ok(facts)) => {
                dram = facts.bandwidth().map(|(b, source)| (b, source.to_owned()));
                for dtype in [Dtype::Bf16, Dtype::Fp8, Dtype::Fp32] {
                    let peak = facts.peak(dtype);
                    roofs.peaks.extend(peak.map(|peak| (dtype.name().into(), peak.flops_per_s, peak.source)));
                }
            }
            Some(Err(why)) => roofs.unknown = Some(why.to_string()),
            None => roofs.unknown = Some("the inputs do not name the GPU".into()),
        }
        if let Some(reported) = device.and_then(|d| d.bandwidth_bytes_per_s) {
            dram = Some((reported as f64, "reported by the device".into()));
        }
        // The values that the analysis used win: the user may have set them.
        if let Some(mbu) = analysis.stages.iter().find_map(|s| s.mbu.as_ref()) {
            dram = Some((mbu.bandwidth_bytes_per_s, mbu.bandwidth_source.clone()));
        }
        if let Some(mfu) = analysis.stages.iter().find_map(|s| s.mfu.as_ref()) {
            roofs.peaks.retain(|p| p.0 != mfu.dtype);
            roofs.peaks.insert(0, (mfu.dtype.clone(), mfu.peak_flops_per_s, mfu.peak_source.clone()));
        }
        roofs.peaks.retain(|p| p.1.is_finite() && p.1 > 0.0);
        if let Some((bandwidth, source)) = dram.filter(|b| b.0.is_finite() && b.0 > 0.0) {
            roofs.dram_source = Some(source);
            roofs.slopes.push(Slope {
                name: "DRAM",
                class: "roof",
                bandwidth,
                name_at: 0.45,
                rings: Vec::new(),
            });
        }
        roofs.slopes.extend(CACHES.into_iter().filter_map(|cache| cache_slope(analysis, cache)));
        roofs
    }

    /// Returns the DRAM bandwidth, bytes/s.
    fn dram(&self) -> Option<f64> {
        self.slopes.iter().find(|slope| slope.name == "DRAM").map(|slope| slope.bandwidth)
    }

    fn rings(&self) -> impl Iterator<Item = &(&'a CounterRow, f64, f64)> {
        self.slopes.iter().flat_map(|slope| &slope.rings)
    }

    /// Makes axes that hold the dots, the roofs and the rings.
    fn scale(&self, dots: &[Dot<'_>]) -> Scale {
        let ridges = self.peaks.iter().filter_map(|p| Some(p.1 / self.dram()?));
        let xs = dots.iter().map(|d| d.intensity).chain(ridges).chain(self.rings().map(|ring| ring.1));
        Scale::around(xs, dots.iter().map(|d| d.flops_per_s).chain(self.peaks.iter().map(|p| p.1)))
    }

    /// Returns both ends of a sloped roof, which goes up to the highest compute peak.
    fn ends(&self, slope: &Slope<'_>, scale: &Scale) -> [(f64, f64); 2] {
        let highest = self.peaks.iter().map(|p| p.1).fold(0.0, f64::max);
        let end = if highest > 0.0 { highest } else { scale.y.1 };
        let from = scale.x.0.max(scale.y.0 / slope.bandwidth);
        let to = (end / slope.bandwidth).min(scale.x.1);
        [from, to].map(|x| scale.at(x, x * slope.bandwidth))
    }

    /// Draws the roofs, and a ring for each kernel by its traffic of a cache.
    fn draw(&self, scale: &Scale) -> Markup {
        html! {
            @for slope in &self.slopes {
                @let [(x1, y1), (x2, y2)] = self.ends(slope, scale);
                line class=(slope.class) x1=(at(x1)) y1=(at(y1)) x2=(at(x2)) y2=(at(y2)) { title { (slope.label()) } }
                @for (row, intensity, flops) in &slope.rings {
                    @let (x, y) = scale.at(*intensity, *flops);
                    circle class={ "ring " (slope.class) } cx=(at(x)) cy=(at(y)) r="3.5" {
                        title { (cut(&short_name(&row.kernel), 120)) ": " (format!("{intensity:.2}")) " FLOP per byte of " (slope.name) " traffic" }
                    }
                }
            }
            @for (name, peak, _) in &self.peaks {
                @let ridge = self.dram().map_or(scale.x.0, |bandwidth| peak / bandwidth);
                @let (x1, y) = scale.at(ridge.clamp(scale.x.0, scale.x.1), *peak);
                line.roof x1=(at(x1)) y1=(at(y)) x2=(at(PLOT.2)) y2=(at(y)) { title { (peak_label(name, *peak)) } }
            }
        }
    }

    /// Writes the names of the roofs.
    fn names(&self, scale: &Scale) -> Markup {
        let height = |peak: f64| scale.at(scale.x.1, peak).1;
        let above = |peak: f64| {
            let higher = self.peaks.iter().map(|p| p.1).filter(|other| *other > peak);
            height(peak) - higher.map(height).fold(f64::MIN, f64::max)
        };
        html! {
            @for slope in &self.slopes {
                @let [(x1, y1), (x2, y2)] = self.ends(slope, scale);
                @let angle = at((y2 - y1).atan2(x2 - x1).to_degrees());
                @let (x, y) = (at(x1 + (x2 - x1) * slope.name_at), at(y1 + (y2 - y1) * slope.name_at - 5.0));
                text.roof-name x=(x) y=(y) text-anchor="middle" transform={ "rotate(" (angle) " " (x) " " (y) ")" } { (slope.label()) }
            }
            @for (name, peak, _) in &self.peaks {
                // Below the line where the next one is close.
                @let label = height(*peak) + if above(*peak) >= LABEL { -5.0 } else { 14.0 };
                text.roof-name x=(at(PLOT.2 - 4.0)) y=(at(label)) text-anchor="end" { (peak_label(name, *peak)) }
            }
        }
    }

    /// Explains the dots and rings, and names the source of each roof. `left` rows are not drawn.
    fn hints(&self, left: usize) -> String {
        let mut lines = vec![
            "A dot is one kernel and launch shape in one stage. Its area grows with the kernel's time in that stage, divided among its \
             shapes by their measured duration."
                .to_owned(),
        ];
        if left > 0 {
            lines.push(format!(
                "{} more measured rows are not drawn: they have no DRAM traffic.",
                count(left as u64)
            ));
        }
        let sentence = |what: &str, source: &str| format!("{what}: {}.", source.trim_end_matches('.'));
        lines.extend(self.dram_source.iter().map(|source| sentence("DRAM roof", source)));
        lines.extend(self.peaks.iter().map(|(name, _, source)| sentence(&format!("{name} roof"), source)));
        let unknown = self.unknown.iter().filter(|_| self.peaks.is_empty());
        lines.extend(unknown.map(|why| sentence("No compute roof", why)));
        lines.push(self.cache_hint());
        lines.join(" ")
    }

    /// Explains the rings; says which caches have no roof.
    fn cache_hint(&self) -> String {
        let caches = self.slopes.iter().map(|slope| slope.name).filter(|name| *name != "DRAM");
        let known: Vec<&str> = caches.collect();
        if known.is_empty() {
            return "No L1 and L2 roofs: ncu's hierarchical roofline sections were not collected.".into();
        }
        format!(
            "Dashed roofs are those of {}, as ncu measured them (median of the launches); a ring is a kernel by its traffic of that cache.",
            known.join(" and ")
        )
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
            text x=(px) y=(PLOT.3 + 18.0) text-anchor="middle" { (tick(x)) }
        }
        @for y in Scale::decades(scale.y) {
            @let py = scale.at(scale.x.0, y).1;
            line.grid x1=(PLOT.0) y1=(at(py)) x2=(PLOT.2) y2=(at(py)) {}
            text x=(PLOT.0 - 6.0) y=(at(py + 4.0)) text-anchor="end" { (tick(y)) }
        }
        text x=(at((PLOT.0 + PLOT.2) / 2.0)) y=(at(PLOT.3 + 48.0)) text-anchor="middle" { "FLOP per byte of " (traffic) " traffic" }
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
        (x, y): (f64, f64),
        longest: f64,
        short_names: &ShortNames,
        stage: Option<usize>,
        first: bool,
    ) -> Markup {
        let radius = 3.5 + 16.0 * (self.ns.max(0) as f64 / longest).sqrt();
        let row = self.row;
        let short = short_names.get(&row.kernel);
        let family = family(&row.kernel).as_str();
        let work = match self.flops_per_s > 0.0 {
            true => format!("{:.2} FLOP/B, {}FLOP/s, ", self.intensity, si(self.flops_per_s)),
            false => String::new(),
        };
        let roof = self.kernel.filter(|kernel| kernel.roof.roof_pct.is_some());
        let roof = roof.map(|kernel| format!("\n{} % of the roof, all its shapes", roof::pct(&kernel.roof)));
        let label = format!(
            "{}\n{}, {family}, {}\n{work}{}B/s of DRAM traffic{}\n{} in its stage",
            cut(&short, 120),
            row.stage.as_deref().unwrap_or("no stage"),
            row.bound.as_deref().unwrap_or("no verdict"),
            si(self.bytes_per_s),
            roof.unwrap_or_default(),
            time(self.ns)
        );
        html! {
            circle cx=(at(x)) cy=(at(y)) r=(at(radius)) class={ "dot f-" (class::css(family)) } data-kernel=(cut(&short, 300)) data-family=(family)
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
            }
        }
    }

    fn name(&self, scale: &Scale) -> Markup {
        let (x, y) = scale.at(self.intensity, self.flops_per_s);
        html! { text.stage-name x=(at(x + 12.0)) y=(at(y + 4.0)) { (cut(self.name, 30)) } }
    }
}

fn table(dots: &[Dot<'_>], short_names: &ShortNames) -> Table {
    Table::of(dots)
        .text("kernel", |dot| cut(&short_names.get(&dot.row.kernel), 160))
        .text("stage", |dot| dot.row.stage.as_ref())
        .text("grid", |dot| dot.row.grid.map(|n| n.to_string()).join(" × "))
        .ms("time", |dot| dot.ns)
        .number("FLOP/B", |dot| format!("{:.2}", dot.intensity))
        .number("FLOP/s", |dot| si(dot.flops_per_s))
        .text("bound", |dot| dot.row.bound.as_ref())
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_has_a_roof_only_where_its_peak_was_measured() {
        let mut analysis = Analysis::default();
        assert!(Roofs::of(&analysis).slopes.is_empty());
        assert!(Roofs::of(&analysis).cache_hint().contains("No L1 and L2 roofs"));
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
        let roofs = Roofs::of(&analysis);
        assert_eq!(roofs.slopes[0].bandwidth, 1e13);
        assert_eq!(roofs.rings().map(|ring| ring.1).collect::<Vec<_>>(), [2.0, 2.0, 2.0]);
        assert!(roofs.cache_hint().contains("those of L2,"));
    }
}
