//! Kernels by layer of the model.
//!
//! A kernel belongs to the innermost module around its launch call. A kernel of a CUDA graph belongs to the innermost module
//! around the creation of its node, where that was recorded.

use crate::attribution::{Scope, around_calls};
use crate::names::{ModuleName, block_of, layer_kind, module_name};
use crate::numbers;
use crate::result::{About, LayerRow, LayerSpread, Reason};
use crate::stages::StageIndex;
use crate::timeline::Grouped;
use roofgap_base::stats::median;
use roofgap_trace::{NameId, Ns, OpKind, Range, RangeStyle, Trace};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;

/// Stands for "outside every module".
const NO_LAYER: u32 = u32::MAX;

/// Instances around a module that are a part of its name. More would say little and fill a line.
const AROUND: usize = 2;

/// Most modules around each other. Deeper ones belong to the module at this depth.
const DEEPEST: usize = 128;

/// Names of layers by number.
#[derive(Default)]
struct Layers(Grouped<String, String>);

impl Layers {
    fn number(&mut self, name: String) -> u32 {
        self.0.position(name.clone(), || name) as u32
    }

    /// Returns the layer of a module inside `around`, the names of instances around it, innermost last.
    fn inside(&mut self, module: ModuleName<'_>, around: &[&str]) -> u32 {
        match module {
            ModuleName::Qualified(name) => self.number(name.to_owned()),
            ModuleName::Instance(name) => {
                let mut parts: Vec<&str> = around.iter().rev().take(AROUND).rev().copied().collect();
                parts.push(name);
                self.number(parts.join("."))
            }
        }
    }

    /// Returns the layer of the innermost module of nested ranges, outermost first.
    fn innermost(&mut self, trace: &Trace, ranges: &[NameId]) -> u32 {
        let mut around = Vec::new();
        let mut layer = NO_LAYER;
        for name in ranges {
            let Some(module) = module_name(trace.names.get(*name)) else {
                continue;
            };
            layer = self.inside(module, &around);
            if let ModuleName::Instance(name) = module {
                around.push(name);
            }
        }
        layer
    }
}

/// The layer of a kernel, and the run of the layer that it is a part of.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    layer: u32,
    run: Run,
}

/// One run of a layer.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Run {
    /// The range of a module, by its position.
    Module(u32),
    /// A replay of a graph, by its launch call.
    Replay(u32),
}

const NOWHERE: Place = Place { layer: NO_LAYER, run: Run::Module(0) };

/// Sums of a layer in a stage.
#[derive(Default)]
struct Sum {
    kernel_ns: Ns,
    kernels: u64,
    runs: u64,
}

/// Adds up the kernels of each stage by layer. Returns the reason too for kernels of graphs that have none.
pub fn table(trace: &Trace, index: &StageIndex) -> (Vec<LayerRow>, Option<Reason>) {
    let modules = modules(trace);
    let mut layers = Layers::default();
    let of_call = places(trace, index, &modules, &mut layers);
    let stacks = trace.graph_nodes.stacks().iter();
    let of_stack: Vec<u32> = stacks.map(|ranges| layers.innermost(trace, ranges)).collect();
    let ops = &trace.ops;
    // Without any name there is no table, and without graphs no reason for that.
    if layers.0.items.is_empty() && ops.graph_node.is_empty() {
        return (Vec::new(), None);
    }
    // Sums by stage and layer, and the runs that were counted.
    let mut sums: FxHashMap<(usize, u32), Sum> = FxHashMap::default();
    let mut seen: FxHashSet<(usize, Place)> = FxHashSet::default();
    let (mut unknown, mut outside) = (0, 0);
    for op in (0..ops.len()).filter(|&op| ops.kind[op] == OpKind::Kernel) {
        let call = index.call_of_op(op);
        let mut place = of_call.get(call as usize).copied().unwrap_or(NOWHERE);
        let node = ops.graph_node(op);
        if node != 0 {
            let stack = trace.graph_nodes.stack_of(ops.process[op], node);
            let layer = stack.and_then(|stack| of_stack.get(stack)).copied();
            match layer {
                Some(layer) if layer != NO_LAYER => place = Place { layer, run: Run::Replay(call) },
                _ if place.layer != NO_LAYER => {}
                Some(_) => outside += 1,
                None => unknown += 1,
            }
        }
        // Without any name there is no table, only the reason.
        if !layers.0.items.is_empty() {
            for stage in (0..index.len()).filter(|&stage| index.holds(stage, op)) {
                let sum = sums.entry((stage, place.layer)).or_default();
                sum.kernel_ns += ops.duration(op);
                sum.kernels += 1;
                sum.runs += u64::from(place.layer != NO_LAYER && seen.insert((stage, place)));
            }
        }
    }
    (rows(index, sums, &layers), reason(unknown, outside))
}

fn reason(unknown: u64, outside: u64) -> Option<Reason> {
    let causes = [
        (unknown, "the capture of the graph was not recorded"),
        (outside, "no named module ran when the graph was captured"),
    ];
    let parts = causes.into_iter().filter(|(count, _)| *count > 0).map(|(count, why)| {
        format!("kernels of CUDA graphs without a layer, because {why}: {}", numbers::count(count))
    });
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| Reason::new(About::Other("layers".into()), parts.join("; ")))
}

/// Returns the ranges that stand for modules.
fn modules(trace: &Trace) -> Vec<&Range> {
    let is_module: Vec<bool> = trace.names.iter().map(|(_, name)| module_name(name).is_some()).collect();
    let ranges = trace.ranges.rows.iter();
    ranges
        .filter(|range| range.style == RangeStyle::PushPop)
        // A frame that delimits steps is among the modules too, with its number.
        .filter(|range| trace.names.get(range.domain) != roofgap_trace::frames::FRAME_DOMAIN)
        .chain(&trace.modules)
        .filter(|range| is_module.get(range.name.index()) == Some(&true))
        .collect()
}

/// A module around a call.
#[derive(Clone, Copy)]
struct Inside<'a> {
    place: Place,
    /// Names of the innermost instances, outermost first.
    instances: [Option<&'a str>; AROUND],
}

/// Returns the place of each call: the innermost module around it, on its thread.
fn places<'t>(trace: &'t Trace, index: &StageIndex, modules: &[&Range], layers: &mut Layers) -> Vec<Place> {
    if modules.is_empty() {
        return Vec::new();
    }
    let items = modules.iter().zip(0u32..);
    let mut items: Vec<_> = items.map(|(range, run)| Scope::of_range(range, (range.name, run))).collect();
    items.sort_by_key(Scope::order);
    let root = Inside { place: NOWHERE, instances: [None; AROUND] };
    let child = |outer: Inside<'t>, (name, run): (NameId, u32)| -> Inside<'t> {
        let Some(module) = module_name(trace.names.get(name)) else {
            return outer;
        };
        let names: Vec<&str> = outer.instances.into_iter().flatten().collect();
        let place = Place { layer: layers.inside(module, &names), run: Run::Module(run) };
        let mut instances = outer.instances;
        if let ModuleName::Instance(name) = module {
            instances.rotate_left(1);
            instances[AROUND - 1] = Some(name);
        }
        Inside { place, instances }
    };
    let call_of_op = &index.launches().call_of_op;
    let mut places = vec![NOWHERE; trace.calls.len()];
    for (call, inside) in around_calls(trace, call_of_op, items.into_iter(), DEEPEST, root, child) {
        places[call] = inside.place;
    }
    places
}

/// Stage and kind of layers; `None` for what has no layer.
type Kind = (usize, Option<String>);

/// Joins the layers of one kind into rows: by stage, then by time, what has no layer last. A stage without any layer has no rows.
fn rows(index: &StageIndex, sums: FxHashMap<(usize, u32), Sum>, layers: &Layers) -> Vec<LayerRow> {
    let mut totals: FxHashMap<usize, (Ns, bool)> = FxHashMap::default();
    let mut kinds: FxHashMap<Kind, Vec<(&str, Sum)>> = FxHashMap::default();
    for ((stage, layer), sum) in sums {
        let total = totals.entry(stage).or_default();
        total.0 += sum.kernel_ns;
        let name = layers.0.items.get(layer as usize).map(String::as_str);
        total.1 |= name.is_some();
        let kind = name.map(layer_kind);
        kinds.entry((stage, kind)).or_default().push((name.unwrap_or_default(), sum));
    }
    let mut rows: Vec<(usize, LayerRow)> = Vec::with_capacity(kinds.len());
    for ((stage, kind), members) in kinds {
        let (total_ns, named) = totals.get(&stage).copied().unwrap_or_default();
        if !named {
            continue;
        }
        let kernel_ns = members.iter().map(|(_, sum)| sum.kernel_ns).sum();
        let has_layer = kind.is_some();
        let block = kind.as_deref().and_then(block_of).map(str::to_owned);
        rows.push((
            stage,
            LayerRow {
                stage: index.name(stage).to_owned(),
                layer: match members.as_slice() {
                    [(name, _)] if has_layer => Some((*name).to_owned()),
                    _ => kind,
                },
                block,
                layers: has_layer.then_some(members.len() as u64),
                kernel_ns,
                kernel_count: members.iter().map(|(_, sum)| sum.kernels).sum(),
                calls: has_layer.then(|| members.iter().map(|(_, sum)| sum.runs).sum()),
                share_pct: if total_ns > 0 { kernel_ns as f64 * 100.0 / total_ns as f64 } else { 0.0 },
                spread: spread(&members).filter(|_| has_layer),
            },
        ));
    }
    rows.sort_by(|a, b| {
        fn order((stage, row): &(usize, LayerRow)) -> (usize, bool, Reverse<Ns>, &Option<String>) {
            (*stage, row.layer.is_none(), Reverse(row.kernel_ns), &row.layer)
        }
        order(a).cmp(&order(b))
    });
    rows.into_iter().map(|(_, row)| row).collect()
}

fn spread(members: &[(&str, Sum)]) -> Option<LayerSpread> {
    let mut times: Vec<Ns> = members.iter().map(|(_, sum)| sum.kernel_ns).collect();
    let (longest, sum) = members.iter().max_by_key(|(name, sum)| (sum.kernel_ns, Reverse(*name)))?;
    let spread = LayerSpread {
        min_ns: *times.iter().min()?,
        median_ns: median(&mut times)?,
        max_ns: sum.kernel_ns,
        longest: (*longest).to_owned(),
    };
    (members.len() > 1).then_some(spread)
}
