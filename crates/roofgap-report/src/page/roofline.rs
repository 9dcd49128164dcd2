//! The roofline: one dot for each measured kernel and launch shape, below the roofs of the device. Kernels without floating-point work
//! stand on an axis of bandwidth.

use super::{class, kernels};
use crate::document::table::Table;
use crate::document::{explanation, maybe, roof};
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

    /// Lists the powers of ten of an axis.
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
        let why = match analysis.counters.is_empty() {
            true => analysis.reason(&About::Counters).unwrap_or("no counters were measured"),
            false => "no measured kernel has both floating-point work and DRAM traffic",
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
                (roofs.draw(&scale, false))
                @for point in &points { (point.draw(&scale)) }
                @for (i, dot) in dots.iter().enumerate() { (draw(dot, scale.at(dot.intensity, dot.flops_per_s), i == 0)) }
                // Only the names of roofs lie above the dots.
                (roofs.draw(&scale, true))
            }
        }
        (strip)
        @if !points.is_empty() {
            p.hint {
                "A diamond is a stage: the work and traffic of its dots together, each by its time. "
                @for point in &points { (point.label) ". " }
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
        let (duration, kernel) = (row.duration_ns.unwrap_or(0), kernel_of(analysis, row));
        let all = shapes.get(&(row.stage.as_ref(), row.kernel.as_str())).copied().unwrap_or(0);
        // The time of the kernel in its stage, divided among its shapes by their duration.
        let ns = match kernel {
            Some(kernel) if all > 0 => (kernel.total_ns as f64 * duration as f64 / all as f64) as i64,
            _ => duration.saturating_mul(row.samples.max(1) as i64),
        };
        Some(Dot { row, intensity, flops_per_s, bytes_per_s, ns, kernel })
    });
    let mut dots: Vec<Dot<'_>> = rows.collect();
    dots.sort_by_key(|d| std::cmp::Reverse(d.ns));
    dots.into_iter().partition(|dot| dot.flops_per_s > 0.0)
}

/// Returns a value that has a place on an axis.
fn usable(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite() && *value > 0.0)
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
    /// Measured kernels by their traffic of a cache: row, intensity and FLOP/s.
    rings: Vec<(&'a CounterRow, f64, f64)>,
}

/// A cache: name, class, and the traffic and the peak of a row.
type Cache = (&'static str, &'static str, [fn(&CacheRates) -> Option<f64>; 2]);

const CACHES: [Cache; 2] = [
    ("L1", "roof l1", [|rates| rates.l1_bytes_per_s, |rates| rates.l1_peak_bytes_per_s]),
    ("L2", "roof l2", [|rates| rates.l2_bytes_per_s, |rates| rates.l2_peak_bytes_per_s]),
];

/// Returns the roof of a cache, whose bandwidth is the median of the peaks: they follow the clock of each launch.
fn cache_slope<'a>(analysis: &'a Analysis, (name, class, [rate, peak]): Cache) -> Option<Slope<'a>> {
    let rows = || analysis.counters.iter().filter_map(|row| Some((row, row.caches.as_ref()?)));
    let mut peaks: Vec<f64> = rows().filter_map(|(_, rates)| usable(peak(rates))).collect();
    let ring = |(row, rates): (&'a CounterRow, &CacheRates)| {
        let flops = usable(row.achieved_flops_per_s)?;
        Some((row, flops / usable(rate(rates))?, flops))
    };
    Some(Slope { name, class, bandwidth: median_f64(&mut peaks)?, rings: rows().filter_map(ring).collect() })
}

/// The roofs of a device.
struct Roofs<'a> {
    /// Roofs of DRAM and of the caches, as far as they are known.
    slopes: Vec<Slope<'a>>,
    /// Data type and FLOP/s of the compute peaks.
    peaks: Vec<(String, f64)>,
    /// Where the roofs come from.
    sources: Vec<String>,
}

impl<'a> Roofs<'a> {
    fn of(analysis: &'a Analysis) -> Self {
        let device = analysis.devices.first();
        let facts = device.map(facts);
        let known = facts.as_ref().and_then(|facts| facts.as_ref().ok());
        let stages = &analysis.stages;
        // The values that the analysis used win: the user may have set them.
        let used = stages.iter().find_map(|stage| stage.mbu.as_ref());
        let used = used.map(|mbu| (mbu.bandwidth_bytes_per_s, mbu.bandwidth_source.clone()));
        let reported = device.and_then(|device| device.bandwidth_bytes_per_s);
        let reported = reported.map(|rate| (rate as f64, "reported by the device".to_owned()));
        let listed =
            known.and_then(|facts| facts.bandwidth()).map(|(rate, source)| (rate, source.to_owned()));
        let dram = used.or(reported).or(listed).filter(|(rate, _)| usable(Some(*rate)).is_some());
        let mut peaks: Vec<(String, f64)> = Vec::new();
        let mut sources = Vec::new();
        let mut sentence =
            |what: &str, source: &str| sources.push(format!("{what}: {}.", source.trim_end_matches('.')));
        let mut slopes = Vec::new();
        if let Some((bandwidth, source)) = dram {
            slopes.push(Slope { name: "DRAM", class: "roof", bandwidth, rings: Vec::new() });
            sentence("DRAM roof", &source);
        }
        slopes.extend(CACHES.into_iter().filter_map(|cache| cache_slope(analysis, cache)));
        let used = stages.iter().find_map(|stage| stage.mfu.as_ref());
        let used = used.map(|mfu| (mfu.dtype.clone(), mfu.peak_flops_per_s, mfu.peak_source.clone()));
        let of_dtype = |dtype: Dtype| {
            let peak = known?.peak(dtype)?;
            Some((dtype.name().to_owned(), peak.flops_per_s, peak.source))
        };
        let listed = [Dtype::Bf16, Dtype::Fp8, Dtype::Fp32].into_iter().filter_map(of_dtype);
        for (name, peak, source) in used.into_iter().chain(listed) {
            if usable(Some(peak)).is_some() && peaks.iter().all(|(known, _)| *known != name) {
                sentence(&format!("{name} roof"), &source);
                peaks.push((name, peak));
            }
        }
        if peaks.is_empty() {
            let unknown = facts.and_then(Result::err).map(|why| why.to_string());
            sentence(
                "No compute roof",
                &unknown.unwrap_or_else(|| "the inputs do not name the GPU".to_owned()),
            );
        }
        let caches: Vec<&str> =
            slopes.iter().map(|slope| slope.name).filter(|name| *name != "DRAM").collect();
        sources.push(match caches.is_empty() {
            true => "No L1 and L2 roofs: ncu's hierarchical roofline sections were not collected.".to_owned(),
            false => format!(
                "Dashed roofs are those of {}, as ncu measured them (median of the launches); a ring is a kernel by its traffic of that cache.",
                caches.join(" and ")
            ),
        });
        Self { slopes, peaks, sources }
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

    /// Draws the roofs, and a ring for each kernel by its traffic of a cache; or the names of the roofs. A slope goes up to the highest
    /// peak.
    fn draw(&self, scale: &Scale, names: bool) -> Markup {
        let highest = self.peaks.iter().map(|p| p.1).reduce(f64::max).unwrap_or(scale.y.1);
        let height = |peak: f64| scale.at(scale.x.1, peak).1;
        html! {
            @for Slope { name, class, bandwidth, rings } in &self.slopes {
                @let ends = [scale.x.0.max(scale.y.0 / bandwidth), (highest / bandwidth).min(scale.x.1)];
                @let [(x1, y1), (x2, y2)] = ends.map(|x| scale.at(x, x * bandwidth));
                @let angle = at((y2 - y1).atan2(x2 - x1).to_degrees());
                @let along = if *name == "DRAM" { 0.45 } else { 0.7 };
                @let (x, y) = (at(x1 + (x2 - x1) * along), at(y1 + (y2 - y1) * along - 5.0));
                @if names {
                    text.roof-name x=(x) y=(y) text-anchor="middle" transform={ "rotate(" (angle) " " (x) " " (y) ")" } { (name) " " (si(*bandwidth)) "B/s" }
                } @else {
                    line class=(class) x1=(at(x1)) y1=(at(y1)) x2=(at(x2)) y2=(at(y2)) {}
                    @for (row, intensity, flops) in rings {
                        @let (x, y) = scale.at(*intensity, *flops);
                        circle class={ "ring " (class) } cx=(at(x)) cy=(at(y)) r="3.5" {
                            title { (cut(&short_name(&row.kernel), 120)) ": " (format!("{intensity:.2}")) " FLOP per byte of " (name) " traffic" }
                        }
                    }
                }
            }
            @for (name, peak) in &self.peaks {
                @let ridge = self.dram().map_or(scale.x.0, |bandwidth| peak / bandwidth);
                @let (x1, y) = scale.at(ridge.clamp(scale.x.0, scale.x.1), *peak);
                // The name is below the line where the next one is close.
                @let is_close = self.peaks.iter().any(|(_, other)| other > peak && y - height(*other) < LABEL);
                @if names {
                    text.roof-name x=(at(PLOT.2 - 4.0)) y=(at(y + if is_close { 14.0 } else { -5.0 })) text-anchor="end" { (name) " " (si(*peak)) "FLOP/s" }
                } @else {
                    line.roof x1=(at(x1)) y1=(at(y)) x2=(at(PLOT.2)) y2=(at(y)) {}
                }
            }
        }
    }

    /// Explains the dots and rings, and names the source of each roof. `left` rows are not drawn.
    fn hints(&self, left: usize) -> String {
        let left = maybe((left > 0).then_some(left as u64), |left| {
            format!(" {} more measured rows are not drawn: they have no DRAM traffic.", count(left))
        });
        format!("{}{left} {}", explanation("roofline"), self.sources.join(" "))
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
        let work = maybe(usable(Some(self.flops_per_s)), |flops| {
            format!("{:.2} FLOP/B, {}FLOP/s, ", self.intensity, si(flops))
        });
        let roof = maybe(self.kernel.filter(|kernel| kernel.roof.roof_pct.is_some()), |kernel| {
            format!("\n{} % of the roof, all its shapes", roof::pct(&kernel.roof))
        });
        let label = format!(
            "{}\n{}, {family}, {}\n{work}{}B/s of DRAM traffic{roof}\n{} in its stage",
            cut(&short, 120),
            row.stage.as_deref().unwrap_or("no stage"),
            row.bound.as_deref().unwrap_or("no verdict"),
            si(self.bytes_per_s),
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

/// The measured kernels of a stage together: what they are, and their intensity and FLOP/s.
struct StagePoint<'a> {
    name: &'a str,
    label: String,
    place: (f64, f64),
}

/// Adds up the dots of each stage, each by the time it stands for.
fn stage_points<'a>(analysis: &'a Analysis, dots: &[Dot<'_>]) -> Vec<StagePoint<'a>> {
    let point = |stage: &'a Stage| {
        let stage_dots = dots.iter().filter(|dot| dot.row.stage.as_deref() == Some(stage.name.as_str()));
        let (mut flops, mut bytes, mut ns) = (0.0, 0.0, 0.0);
        for dot in stage_dots {
            let time = dot.ns.max(0) as f64;
            ns += time;
            flops += dot.flops_per_s * time;
            bytes += dot.flops_per_s * time / dot.intensity;
        }
        let place = (ns > 0.0 && bytes > 0.0).then(|| (flops / bytes, flops / ns))?;
        let covered = maybe(stage.kernel_ns.filter(|kernel| *kernel > 0), |kernel| {
            format!(", {:.0} % of its kernel time", (100.0 * ns / kernel as f64).min(100.0))
        });
        let label =
            format!("{}: {:.2} FLOP/B, {}FLOP/s{covered}", cut(&stage.name, 60), place.0, si(place.1));
        Some(StagePoint { name: &stage.name, label, place })
    };
    analysis.stages.iter().filter_map(point).collect()
}

impl StagePoint<'_> {
    fn draw(&self, scale: &Scale) -> Markup {
        let (x, y) = scale.at(self.place.0, self.place.1);
        html! {
            g.stage-point {
                title { (self.label) }
                path d=(format!("M{x:.1} {y:.1}m0 -9l9 9l-9 9l-9 -9z")) {}
            }
            text.stage-name x=(at(x + 12.0)) y=(at(y + 4.0)) { (cut(self.name, 30)) }
        }
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
        assert!(Roofs::of(&analysis).hints(0).contains("No L1 and L2 roofs"));
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
        assert!(roofs.hints(0).contains("those of L2,"));
    }
}
