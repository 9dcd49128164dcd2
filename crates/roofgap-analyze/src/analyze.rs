//! The whole analysis of a timeline.

use crate::analysis::*;
use crate::attribute::{Contexts, Launches, NO_CALL};
use crate::counters::{self, Timeline};
use crate::gpu::{Dtype, UserLimits};
use crate::idle::{Activity, Near};
use crate::instances::{NO_INSTANCE, StageRanges, Warmup, place_contexts};
use crate::interval::Union;
use crate::kernels;
use crate::model::{Architecture, Tokens};
use crate::names::Naming;
use crate::parallel::both;
use crate::stages::{StageRule, StageSet};
use crate::{enrich, findings, operators, steps};
use roofgap_trace::account::Account;
use roofgap_trace::ncu::CounterSet;
use roofgap_trace::{Losses, Ns, OpKind, RangeStyle, Trace, range_name};
use rustc_hash::{FxHashMap, FxHashSet};

/// What an analysis is told beside the trace.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The stages to look for.
    pub stages: StageSet,
    /// Counters to join with the timeline.
    pub counters: Vec<CounterSet>,
    /// The model that ran; without it the program's own account may name it.
    pub model: Option<Architecture>,
    /// Limits of the device as the user states them.
    pub limits: UserLimits,
    /// Tokens as the user states them; the program's own account fills in what is missing.
    pub tokens: Tokens,
    /// The program's own account.
    pub account: Option<Account>,
    /// Operators from a run of their own, instead of those of the trace.
    pub operators: Option<Vec<Operator>>,
    /// The price of watching.
    pub overhead: Vec<Overhead>,
}

/// Analyses a trace.
pub fn analyze(trace: &Trace, options: &Options) -> Analysis {
    let mut losses = trace.losses.clone();
    let launches = Launches::join(trace, &mut losses);
    let contexts = Contexts::build(trace, &launches.call_of_op);
    let work = Work {
        trace,
        launches: &launches,
        contexts: &contexts,
        context_of_op: launches
            .call_of_op
            .iter()
            .map(|&call| contexts.of(call))
            .collect(),
        activity: Activity::of(trace),
    };
    let account = options.account.as_ref();
    let mut naming = Naming::default();
    let mut reasons = Vec::new();

    let summary_only = trace.ops.is_empty() && !trace.kernel_totals.is_empty();
    // About as much work on either side.
    let ((kernels, mut stages, stage_reasons), ((operators, operator_reason), ranges, evidence)) = both(
        || {
            let kernels = if summary_only {
                kernels::from_totals(trace, &mut naming)
            } else {
                kernels::table(trace, 0..trace.ops.len(), &mut naming)
            };
            let (stages, reasons) = work.stages(&options.stages, &mut naming);
            (kernels, stages, reasons)
        },
        || {
            let evidence = findings::evidence(trace, &launches, &contexts, &options.stages);
            (work.operators(options), work.ranges(), evidence)
        },
    );
    if kernels.is_empty() {
        let why = "the capture holds no kernels: no GPU work was recorded";
        reasons.push(Reason {
            about: "kernels".into(),
            why: why.into(),
        });
    }
    reasons.extend(stage_reasons);
    if let Some(account) = account.filter(|_| stages.is_empty()) {
        stages = enrich::stages_of(account);
    }
    if stages.is_empty() {
        reasons.push(Reason {
            about: "stages".into(),
            why: no_stages(trace, summary_only),
        });
    }
    reasons.extend(operator_reason);
    let mut analysis = Analysis {
        schema: SCHEMA.into(),
        sources: sources(trace),
        devices: devices(trace),
        totals: work.totals(&kernels),
        stages,
        kernels,
        operators,
        ranges,
        overhead: options.overhead.clone(),
        workload: account.map(enrich::workload),
        reasons,
        ..Analysis::default()
    };

    let gpu = enrich::gpu_facts(trace, account, options.limits);
    let own_config = || account?.model.as_ref()?.config.as_ref();
    let model = match (&options.model, own_config()) {
        (Some(model), _) => Ok(model.clone()),
        (None, Some(config)) => Architecture::from_config(config).map_err(|why| {
            format!("the program's own configuration does not tell the work of its model: {why}")
        }),
        (None, None) => Err("the model is not known; name it with --model NAME|config.json".to_owned()),
    };
    let dtype = account.and_then(|a| a.model.as_ref()?.dtype.as_deref()?.parse::<Dtype>().ok());
    let tokens = enrich::tokens(&options.tokens, account);
    enrich::utilisation(&mut analysis, model.as_ref(), gpu.as_ref(), &tokens, dtype);
    let model = model.ok();

    let mut measured = Vec::new();
    if options.counters.is_empty() {
        let why = "no counters were given";
        analysis.reasons.push(Reason {
            about: "counters".into(),
            why: why.into(),
        });
    } else {
        let timeline = Timeline::of_stages(trace, &launches, &contexts, &options.stages);
        let joined = counters::join(&options.counters, &timeline, &options.stages, gpu.as_ref().ok());
        analysis.counters = joined.rows();
        losses.merge(&joined.losses);
        counters::attach(&mut analysis.kernels, &joined, None);
        for stage in &mut analysis.stages {
            counters::attach(&mut stage.kernels, &joined, Some(&stage.name));
        }
        measured = joined.measured;
    }
    analysis.findings = findings::find(findings::Inputs {
        analysis: &analysis,
        evidence: &evidence,
        model: model.as_ref(),
        counters: &measured,
    });
    analysis.losses = loss_rows(&losses);
    analysis
}

/// Why there are no stages.
fn no_stages(trace: &Trace, summary_only: bool) -> String {
    if summary_only {
        "a summary table has no ranges".into()
    } else if trace.ranges.rows.is_empty() {
        "the capture has no ranges; add NVTX ranges to the program (domain LLM: prefill, decode_all, decode_step)".into()
    } else {
        "no range matches a stage; name one with --stage NAME=PATTERN".into()
    }
}

/// Why a stage that was asked for is not there.
fn no_match(trace: &Trace, rule: &StageRule) -> String {
    const MOST: usize = 12;
    let patterns: Vec<String> = rule.patterns.iter().map(ToString::to_string).collect();
    let mut seen = FxHashSet::default();
    let mut names = Vec::new();
    for range in &trace.ranges.rows {
        if seen.insert((range.domain, range.name)) && seen.len() <= MOST {
            names.push(range_name(
                trace.names.get(range.domain),
                trace.names.get(range.name),
            ));
        }
    }
    let there = match seen.len().saturating_sub(MOST) {
        _ if names.is_empty() => "the capture has no ranges".to_owned(),
        0 => format!("there are {}", names.join(", ")),
        more => format!("there are {} and {more} more", names.join(", ")),
    };
    format!("no range matches {}; {there}", patterns.join(", "))
}

fn sources(trace: &Trace) -> Vec<SourceInfo> {
    let info = |s: &roofgap_trace::Source| SourceInfo {
        path: s.path.clone(),
        format: s.format.into(),
        tool_version: s.tool_version.clone(),
        schema_version: s.schema_version.clone(),
    };
    trace.sources.iter().map(info).collect()
}

fn devices(trace: &Trace) -> Vec<DeviceInfo> {
    let info = |d: &roofgap_trace::Device| DeviceInfo {
        id: d.number,
        name: d.name.clone(),
        compute_capability: d
            .compute_capability
            .map(|(major, minor)| format!("{major}.{minor}")),
        sms: d.sms,
        memory_bytes: d.memory_bytes,
        bandwidth_bytes_per_s: d.bandwidth_bytes_per_s,
    };
    trace.devices.iter().map(info).collect()
}

fn loss_rows(losses: &Losses) -> Vec<LossInfo> {
    let mut rows: Vec<_> = losses.iter().collect();
    rows.sort_by_key(|l| std::cmp::Reverse(l.kind.severity()));
    let info = |l: roofgap_trace::Loss| LossInfo {
        id: l.kind.id().into(),
        severity: l.kind.severity().as_str().into(),
        count: l.count,
        meaning: l.kind.meaning().into(),
    };
    rows.into_iter().map(info).collect()
}

/// The trace with its operations attributed.
struct Work<'a> {
    trace: &'a Trace,
    launches: &'a Launches,
    contexts: &'a Contexts,
    /// The context in which each operation was launched.
    context_of_op: Vec<u32>,
    activity: Activity,
}

/// First start and last end of a group of operations.
#[derive(Clone, Copy)]
struct Span(Ns, Ns);

impl Span {
    const NONE: Self = Self(Ns::MAX, Ns::MIN);

    fn add(&mut self, start: Ns, end: Ns) {
        *self = Self(self.0.min(start), self.1.max(end));
    }

    fn length(self) -> Option<Ns> {
        (self.0 <= self.1).then(|| self.1 - self.0)
    }
}

impl Work<'_> {
    /// Every stage that occurs, in the order of its first instance, and why others do not.
    fn stages(&self, set: &StageSet, naming: &mut Naming) -> (Vec<Stage>, Vec<Reason>) {
        let mut reasons = Vec::new();
        let warmup = Warmup::of(self.trace, set);
        let mut stages: Vec<(Ns, Stage)> = Vec::new();
        for rule in &set.stages {
            let ranges = StageRanges::find(self.trace, rule, &warmup, set);
            if ranges.in_warmup > 0 && ranges.instances.is_empty() {
                let why = format!("all {} ranges that match lie inside a warm-up", ranges.in_warmup);
                reasons.push(Reason {
                    about: format!("stages.{}", rule.name),
                    why,
                });
            } else if rule.asked && ranges.instances.is_empty() {
                reasons.push(Reason {
                    about: format!("stages.{}", rule.name),
                    why: no_match(self.trace, rule),
                });
            }
            let Some(&first) = ranges.instances.first() else {
                continue;
            };
            let start = self.trace.ranges.rows.get(first as usize).map_or(0, |r| r.start);
            stages.push((start, self.stage(rule, &ranges, naming)));
        }
        stages.sort_by_key(|(start, _)| *start);
        (stages.into_iter().map(|(_, stage)| stage).collect(), reasons)
    }

    /// Operators of a run of their own, of the trace, or of the program's account; ranges stand in for none.
    fn operators(&self, options: &Options) -> (Vec<Operator>, Option<Reason>) {
        let reason = |why: &str| {
            Some(Reason {
                about: "operators".into(),
                why: why.into(),
            })
        };
        if let Some(operators) = options.operators.as_ref().filter(|o| !o.is_empty()) {
            return (operators.clone(), None);
        }
        if self.trace.cpu_ops.is_empty()
            && let Some(account) = options.account.as_ref().filter(|a| !a.operators.is_empty())
        {
            return (
                enrich::operators_of(account),
                reason("as the program itself timed them"),
            );
        }
        let operators = operators::table(self.trace, &self.launches.call_of_op);
        let why = if operators.is_empty() {
            reason("the capture holds neither operators of a framework nor ranges")
        } else if self.trace.cpu_ops.is_empty() {
            reason("no operators of a framework in the capture; ranges of the program stand in")
        } else {
            None
        };
        (operators, why)
    }

    fn totals(&self, kernels: &[Kernel]) -> Totals {
        let ops = &self.trace.ops;
        let time = |kind: OpKind| {
            (0..ops.len())
                .filter(|&i| ops.kind[i] == kind)
                .map(|i| ops.duration(i))
                .sum::<Ns>()
        };
        // Without a single operation nothing says that the GPU was watched at all.
        let known = !ops.is_empty();
        Totals {
            kernel_count: kernels.iter().map(|k| k.calls).sum(),
            kernel_ns: kernels.iter().map(|k| k.total_ns).sum(),
            busy_ns: known.then(|| self.activity.busy_ns()),
            memcpy_ns: known.then(|| time(OpKind::Copy)),
            memset_ns: known.then(|| time(OpKind::Set)),
            unattributed_count: self.launches.call_of_op.iter().filter(|c| **c == NO_CALL).count() as u64,
        }
    }

    fn stage(&self, rule: &StageRule, ranges: &StageRanges, naming: &mut Naming) -> Stage {
        let (trace, ops) = (self.trace, &self.trace.ops);
        let rows = &trace.ranges.rows;
        let place = place_contexts(self.contexts, &ranges.instances, rows.len());
        let instance = |context: u32| place.get(context as usize).copied().unwrap_or(NO_INSTANCE);
        let mut members: Vec<u32> = Vec::new();
        let mut spans = vec![Span::NONE; ranges.instances.len()];
        let devices = trace.devices.len().max(1);
        let mut device_spans = vec![Span::NONE; ranges.instances.len() * devices];
        for (op, &context) in self.context_of_op.iter().enumerate() {
            let at = instance(context);
            if at == NO_INSTANCE {
                continue;
            }
            members.push(op as u32);
            let (at, device) = (at as usize, ops.device[op].index());
            spans[at].add(ops.start[op], ops.end[op]);
            if let Some(span) = device_spans.get_mut(at * devices + device) {
                span.add(ops.start[op], ops.end[op]);
            }
        }
        let launch_count = self
            .contexts
            .of_call
            .iter()
            .filter(|&&c| instance(c) != NO_INSTANCE)
            .count() as u64;
        let kernels = kernels::table(trace, members.iter().map(|&op| op as usize), naming);
        let (busy_ns, idle, launch_after) = self.busy_and_idle(&members, &device_spans, devices);
        let device_count = (0..devices)
            .filter(|&device| {
                let mut own = device_spans.iter().skip(device).step_by(devices);
                own.any(|span| span.length().is_some())
            })
            .count() as u64;
        let pairs = device_spans.iter().filter(|span| span.length().is_some()).count();
        let with_work = spans.iter().filter(|span| span.length().is_some()).count();
        let late = |(&row, span): (&u32, &Span)| {
            let end = rows.get(row as usize).map_or(Ns::MAX, |range| range.end);
            span.length().map_or(0, |_| (span.1.saturating_sub(end)).max(0))
        };
        let queued: Ns = device_spans
            .iter()
            .enumerate()
            .filter(|(_, span)| span.length().is_some())
            .map(|(at, span)| {
                let row = ranges.instances.get(at / devices).copied().unwrap_or(NO_INSTANCE);
                let start = rows.get(row as usize).map_or(span.0, |range| range.start);
                self.activity.busy_in(at % devices, start, span.0)
            })
            .sum();
        let copies = members
            .iter()
            .filter(|&&op| ops.kind[op as usize] == OpKind::Copy);
        let gpu = !members.is_empty();
        let measured = !trace.ops.is_empty();
        let mut names: Vec<String> = ranges.instances.iter().map(|&r| self.range_name(r)).collect();
        names.sort_unstable();
        names.dedup();
        Stage {
            name: rule.name.clone(),
            ranges: names,
            instances: ranges.instances.len() as u64,
            wall_ns: ranges
                .instances
                .iter()
                .map(|&r| rows[r as usize].end - rows[r as usize].start)
                .sum(),
            projected_ns: gpu.then(|| spans.iter().filter_map(|s| s.length()).sum()),
            kernel_ns: measured.then(|| kernels.iter().map(|k| k.total_ns).sum()),
            busy_ns: measured.then_some(busy_ns),
            kernel_count: kernels.iter().map(|k| k.calls).sum(),
            gpu_op_count: members.len() as u64,
            launch_count,
            device_count,
            devices_per_instance: pairs as f64 / with_work.max(1) as f64,
            memcpy_ns: measured.then(|| copies.map(|&op| ops.duration(op as usize)).sum()),
            queued_ns: queued,
            late_ns: ranges.instances.iter().zip(&spans).map(late).sum(),
            idle: gpu.then_some(idle),
            launch_after,
            steps: self.steps(ranges),
            kernels,
            notes: self.notes(ranges),
            mfu: None,
            mbu: None,
            from: "timeline".into(),
        }
    }

    /// Union of a stage's operations, and its gaps by cause. Operations are in the order of their start.
    fn busy_and_idle(&self, members: &[u32], spans: &[Span], devices: usize) -> (Ns, Idle, LaunchAfter) {
        let ops = &self.trace.ops;
        let mut busy = 0;
        let mut idle = Idle::default();
        let mut after = LaunchAfter::default();
        struct Sweep {
            inside: Union,
            covered: Option<Ns>,
            near: Near,
        }
        let mut sweeps: Vec<Sweep> = (0..devices)
            .map(|device| {
                // Instances one after another are apart; time between them is not the stage's.
                let own = spans
                    .iter()
                    .skip(device)
                    .step_by(devices)
                    .filter(|s| s.length().is_some());
                Sweep {
                    inside: Union::of(own.map(|s| (s.0, s.1)).collect()),
                    covered: None,
                    near: Near::default(),
                }
            })
            .collect();
        for &op in members {
            let op = op as usize;
            let (start, end, device) = (ops.start[op], ops.end[op], ops.device[op]);
            let Some(sweep) = sweeps.get_mut(device.index()) else {
                continue;
            };
            let until = sweep.covered.unwrap_or(start);
            if start > until && sweep.inside.encloses(until, start) {
                let call = self.launches.call_of_op[op];
                self.activity.split(
                    self.trace,
                    device,
                    (until, start),
                    call,
                    &mut sweep.near,
                    (&mut idle, &mut after),
                );
            }
            busy += (end - start.max(until)).max(0);
            sweep.covered = Some(until.max(end));
        }
        (busy, idle, after)
    }

    fn steps(&self, ranges: &StageRanges) -> Option<Steps> {
        let rows = &self.trace.ranges.rows;
        let each: Vec<Ns> = ranges
            .steps
            .iter()
            .map(|&r| rows[r as usize].end - rows[r as usize].start)
            .collect();
        let place = place_contexts(self.contexts, &ranges.steps, rows.len());
        let inside = |c: u32| place.get(c as usize).is_some_and(|p| *p != NO_INSTANCE);
        let launches = self.contexts.of_call.iter().filter(|&&c| inside(c)).count();
        let per_step =
            (!self.trace.ops.is_empty() && !each.is_empty()).then(|| launches as f64 / each.len() as f64);
        steps::summary(each, per_step)
    }

    fn notes(&self, ranges: &StageRanges) -> Vec<Note> {
        let (ops, rows) = (&self.trace.ops, &self.trace.ranges.rows);
        let place = place_contexts(self.contexts, &ranges.notes, rows.len());
        let mut work = vec![(0u64, 0i64); ranges.notes.len()];
        if !ranges.notes.is_empty() {
            for (op, &context) in self.context_of_op.iter().enumerate() {
                let at = place.get(context as usize).copied().unwrap_or(NO_INSTANCE);
                if let Some(sum) = work.get_mut(at as usize)
                    && ops.kind[op] == OpKind::Kernel
                {
                    *sum = (sum.0 + 1, sum.1 + ops.duration(op));
                }
            }
        }
        let mut notes: Vec<Note> = Vec::new();
        for (&row, &(count, ns)) in ranges.notes.iter().zip(&work) {
            let range = &rows[row as usize];
            let name = self.trace.names.get(range.name);
            let at = notes.iter().position(|n| n.name == name).unwrap_or_else(|| {
                notes.push(Note {
                    name: name.to_owned(),
                    ..Note::default()
                });
                notes.len() - 1
            });
            if let Some(note) = notes.get_mut(at) {
                note.instances += 1;
                note.wall_ns += range.end - range.start;
                note.kernel_count += count;
                if !ops.is_empty() {
                    *note.kernel_ns.get_or_insert(0) += ns;
                }
            }
        }
        notes
    }

    fn range_name(&self, row: u32) -> String {
        let range = &self.trace.ranges.rows[row as usize];
        let names = &self.trace.names;
        range_name(names.get(range.domain), names.get(range.name))
    }

    /// Every range name with what was launched inside it.
    fn ranges(&self) -> Vec<RangeInfo> {
        let (trace, ops) = (self.trace, &self.trace.ops);
        #[derive(Clone, Copy)]
        struct Sum {
            kernels: u64,
            kernel_ns: Ns,
            ops: u64,
            launches: u64,
            span: Span,
        }
        const NOTHING: Sum = Sum {
            kernels: 0,
            kernel_ns: 0,
            ops: 0,
            launches: 0,
            span: Span::NONE,
        };
        let mut of_context = vec![NOTHING; self.contexts.len()];
        for (op, &context) in self.context_of_op.iter().enumerate() {
            let Some(sum) = of_context.get_mut(context as usize) else {
                continue;
            };
            sum.ops += 1;
            sum.span.add(ops.start[op], ops.end[op]);
            if ops.kind[op] == OpKind::Kernel {
                sum.kernels += 1;
                sum.kernel_ns += ops.duration(op);
            }
        }
        for &context in &self.contexts.of_call {
            if let Some(sum) = of_context.get_mut(context as usize) {
                sum.launches += 1;
            }
        }
        let mut of_range = vec![NOTHING; trace.ranges.rows.len()];
        for (context, sum) in of_context.iter().enumerate() {
            for &range in self.contexts.ranges(context as u32) {
                let Some(total) = of_range.get_mut(range as usize) else {
                    continue;
                };
                total.kernels += sum.kernels;
                total.kernel_ns += sum.kernel_ns;
                total.ops += sum.ops;
                total.launches += sum.launches;
                if sum.span.length().is_some() {
                    total.span.add(sum.span.0, sum.span.1);
                }
            }
        }
        let mut groups: FxHashMap<_, RangeInfo> = FxHashMap::default();
        for (range, sum) in trace.ranges.rows.iter().zip(&of_range) {
            let info = groups
                .entry((range.domain, range.name, range.style))
                .or_insert_with(|| RangeInfo {
                    domain: trace.names.get(range.domain).to_owned(),
                    name: trace.names.get(range.name).to_owned(),
                    style: if range.style == RangeStyle::PushPop {
                        "push_pop"
                    } else {
                        "start_end"
                    }
                    .into(),
                    ..RangeInfo::default()
                });
            info.instances += 1;
            info.wall_ns += range.end - range.start;
            info.projected_ns += sum.span.length().unwrap_or(0);
            info.kernel_count += sum.kernels;
            info.kernel_ns += sum.kernel_ns;
            info.gpu_op_count += sum.ops;
            info.launch_count += sum.launches;
        }
        let mut list: Vec<RangeInfo> = groups.into_values().collect();
        list.sort_by(|a, b| {
            b.wall_ns
                .cmp(&a.wall_ns)
                .then_with(|| (&a.domain, &a.name, &a.style).cmp(&(&b.domain, &b.name, &b.style)))
        });
        list
    }
}
