//! A run: weights, peak, warm-ups, repeats, account.
//!
//! The peak of this machine, measured with the kernels the model itself uses.

use crate::exec::{Exec, Ranges, Silent, Stage};
use crate::model::{KvCache, Model};
use crate::ops;
use crate::props::{Preset, PromptShape, Shape, WorkloadProps};
use crate::source::{self, Image, Source, fill};
use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use roofgap_base::clock::ns;
use roofgap_base::error::Error;
use roofgap_base::file::{sha256, write_atomic};
use roofgap_base::numbers::{count, time};
use roofgap_wire::account::{
    Account, DeviceFacts, MeasuredPeak, ModelFacts, Repeat, SCHEMA, StageTime, TokenCounts,
};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Measuring time of each half of the peak.
const PEAK_BUDGET: Duration = Duration::from_millis(250);

/// Runs the model without ranges; writes the account where the properties say, and gives it back.
pub fn run(props: &WorkloadProps, progress: &mut dyn FnMut(&str)) -> Result<Account, Error> {
    run_with(props, &Silent, progress)
}

/// Runs the model with the given ranges.
pub fn run_with(
    props: &WorkloadProps,
    ranges: &dyn Ranges,
    progress: &mut dyn FnMut(&str),
) -> Result<Account, Error> {
    props.check()?;
    let shape = Shape::of(props.preset);
    let shape = match props.image_size {
        Some(image_size) => shape.with_image_size(image_size)?,
        None => shape,
    };
    let (sender, receiver) = channel();
    // The thread is new so that it can be the first of its own pool: then the parallel parts run on it and no call has to change threads.
    let account = thread::scope(|scope| {
        let failed = |how: String| Error::new(format!("the thread that runs the embedded model {how}"));
        let worker = thread::Builder::new()
            .name("workload".to_owned())
            .spawn_scoped(scope, || work(props, shape, ranges, sender))
            .map_err(|error| failed(format!("could not be started: {error}")))?;
        for event in receiver {
            progress(&event);
        }
        worker.join().unwrap_or_else(|_| Err(failed("ended early".to_owned())))
    })?;
    if let Some(path) = &props.account {
        let text = account.to_json().map_err(std::io::Error::other);
        let written = text.and_then(|text| write_atomic(path, &text));
        written.map_err(Error::io("write the workload account", path))?;
        progress(&format!("account written to {}", path.display()));
    }
    Ok(account)
}

fn work(
    props: &WorkloadProps,
    shape: Shape,
    ranges: &dyn Ranges,
    progress: Sender<String>,
) -> Result<Account, Error> {
    let threads = props.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let _pool =
        ThreadPoolBuilder::new().num_threads(threads).use_current_thread().build().map_err(|source| {
            Error::new(format!("could not start {threads} worker threads for the embedded model: {source}"))
        })?;
    // Nobody listening is no reason to stop: the account is the result.
    let tell = |line: String| drop(progress.send(line));
    let parameters = Model::count_parameters(&shape);
    let (preset, seed, known) = (props.preset, props.seed, count(parameters));
    tell(format!("{preset} model with {known} random parameters (seed {seed}) on {threads} threads"));

    let begin = Instant::now();
    let model = Model::new(&mut Source::seeded(props.seed), shape.clone());
    tell(format!("weights ready after {}", time(ns(begin.elapsed()))));
    // The repeats take these in turn.
    let prompts = props.prompt_shapes().into_iter();
    let inputs: Vec<Input> = prompts.map(|prompt| Input::new(props, &shape, prompt)).collect();
    let longest = inputs.iter().map(Input::positions).max().unwrap_or(0) + props.new_tokens;
    let mut cache = model.cache(longest);
    let mut exec = Exec::new(ranges);
    let passes = run_all(props, &inputs, &model, &mut cache, &mut exec, &tell);
    let peak = (props.preset != Preset::Nano).then(|| measure(PEAK_BUDGET, threads));
    if let Some(peak) = &peak {
        let giga = |rate: Option<f64>| rate.unwrap_or_default() / 1e9;
        let (flops, bytes) = (giga(peak.flops_per_s), giga(peak.bytes_per_s));
        tell(format!("this machine: {flops:.1} GFLOP/s, {bytes:.1} GB/s, measured"));
    }
    let used = inputs.iter().cycle().take(props.repeats);
    let mean = |count: fn(&Input) -> usize| {
        let sum: usize = used.clone().map(count).sum();
        (sum as f64 / props.repeats.max(1) as f64).round() as u64
    };
    let (prompt, vision) = (mean(Input::positions), mean(|input| input.vision));
    Ok(Account {
        schema: SCHEMA.to_owned(),
        model: Some(ModelFacts {
            name: Some(format!("deepseek-ocr-{}", props.preset)),
            parameters: Some(parameters),
            active_parameters: Some(shape.active_parameters()),
            dtype: Some("f32".to_owned()),
            weights: Some("random".to_owned()),
            config: Some(shape.config(longest)),
            ..ModelFacts::default()
        }),
        tokens: Some(TokenCounts {
            prompt: Some(prompt),
            generated: Some(props.new_tokens as u64),
            batch: Some(1),
            vision: Some(vision),
        }),
        device: Some(DeviceFacts {
            kind: Some("cpu".to_owned()),
            name: Some(format!("{}, {threads} threads", cpu_name())),
        }),
        operators: exec.operators(),
        token_hash: passes.first().map(|pass| hash(&pass.tokens)),
        notes: notes(props, &peak, &passes),
        peak,
        device_memory_bytes: resident_bytes(),
        repeats: passes
            .into_iter()
            .enumerate()
            .map(|(index, pass)| Repeat {
                warmup: index < props.warmup,
                stages: vec![pass.prefill, pass.decode],
            })
            .collect(),
        ..Account::default()
    })
}

/// Runs the warm-up passes and the repeats.
fn run_all(
    props: &WorkloadProps,
    inputs: &[Input],
    model: &Model,
    cache: &mut KvCache,
    exec: &mut Exec<'_>,
    tell: &impl Fn(String),
) -> Vec<Pass> {
    let mut passes = Vec::new();
    let of = props.warmup + props.repeats;
    for index in 0..of {
        let warmup = index < props.warmup;
        if index == props.warmup {
            exec.forget_operators();
        }
        let turn = if warmup { index } else { index - props.warmup };
        let Some(input) = inputs.get(turn % inputs.len().max(1)) else {
            break;
        };
        let pass = if warmup {
            exec.warmup(|exec| input.pass(exec, model, cache))
        } else {
            input.pass(exec, model, cache)
        };
        let warm = if warmup { ", warm-up" } else { "" };
        let (prefill, decode) = (time(pass.prefill.wall_ns), time(pass.decode.wall_ns));
        tell(format!("run {} of {of}{warm}: prefill {prefill}, decode {decode}", index + 1));
        passes.push(pass);
    }
    passes
}

/// Input of one repeat.
struct Input {
    image: Option<Image>,
    prompt: Vec<usize>,
    vision: usize,
    new_tokens: usize,
    /// Most positions that a decode step reads again; `None` with a KV cache.
    again: Option<usize>,
}

/// Result of one repeat.
struct Pass {
    prefill: StageTime,
    decode: StageTime,
    tokens: Vec<usize>,
}

impl Input {
    fn new(props: &WorkloadProps, shape: &Shape, prompt: PromptShape) -> Self {
        let mut state = source::mix(props.seed ^ 0x70ce);
        let vocabulary = shape.decoder.vocabulary;
        Self {
            image: prompt.has_image.then(|| Image::page(shape.image_size, props.seed)),
            prompt: (0..prompt.tokens)
                .map(|_| {
                    let token = (source::unit(&mut state) * vocabulary as f32) as usize;
                    token.min(vocabulary - 1)
                })
                .collect(),
            vision: if prompt.has_image { shape.vision_tokens() } else { 0 },
            new_tokens: props.new_tokens,
            again: (!props.kv_cache).then(|| props.context_limit.unwrap_or(usize::MAX)),
        }
    }

    /// Positions of the prompt, image and text together.
    fn positions(&self) -> usize {
        self.vision + self.prompt.len()
    }

    fn pass(&self, exec: &mut Exec<'_>, model: &Model, cache: &mut KvCache) -> Pass {
        cache.clear();
        exec.take_notes();
        let ((first, prompt), prefill) =
            exec.stage(Stage::Prefill, |exec| model.prefill(exec, self.image.as_ref(), &self.prompt, cache));
        let notes = exec.take_notes();
        let mut token = first;
        let mut tokens = vec![token];
        let (steps, decode) = exec.stage(Stage::Decode, |exec| {
            let mut steps = Vec::with_capacity(self.new_tokens);
            for _ in 0..self.new_tokens {
                let (next, wall) = exec.step(|exec| match self.again {
                    None => model.step(exec, token, cache),
                    Some(limit) => model.step_again(exec, &prompt, &tokens, limit, cache),
                });
                token = next;
                tokens.push(token);
                steps.push(ns(wall));
            }
            steps
        });
        let time = |stage: Stage, wall, steps_ns, notes| StageTime {
            name: stage.name().to_owned(),
            wall_ns: ns(wall),
            steps_ns,
            notes,
            ..StageTime::default()
        };
        Pass {
            prefill: time(Stage::Prefill, prefill, None, notes),
            decode: time(Stage::Decode, decode, Some(steps), Vec::new()),
            tokens,
        }
    }
}

/// Hashes token ids: SHA-256 of their decimal numbers, separated by commas.
fn hash(tokens: &[usize]) -> String {
    let text: Vec<String> = tokens.iter().map(usize::to_string).collect();
    format!("sha256:{}", sha256(text.join(",").as_bytes()))
}

fn notes(props: &WorkloadProps, peak: &Option<MeasuredPeak>, passes: &[Pass]) -> Vec<String> {
    let mut notes = vec![
        format!(
            "the weights are random (seed {}): the tokens have no meaning, only their cost has",
            props.seed
        ),
        "operator times are wall times of the thread that drives the model; an operator may use every thread"
            .to_owned(),
    ];
    if !props.kv_cache {
        notes.push("there is no KV cache: every decode step reads its context again".to_owned());
    }
    if !props.prompts.is_empty() {
        notes.push(
            "prompts and images have the lengths and sizes of the manifest, not its content; the account has the mean number of tokens"
                .to_owned(),
        );
    }
    if peak.is_none() {
        notes.push(format!("the peak of this machine is not measured for preset {}", props.preset));
    }
    let differs = passes.iter().zip(passes.iter().skip(1)).any(|(a, b)| a.tokens != b.tokens);
    if differs && props.prompts.len() < 2 {
        notes.push("repeats gave different tokens; the hash is of the first".to_owned());
    }
    notes
}

/// Returns the most resident memory of this process so far, from Linux.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Returns the processor name from Linux, else the architecture.
fn cpu_name() -> String {
    let facts = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = facts.lines().find(|line| line.starts_with("model name"));
    let name = model.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim());
    name.unwrap_or(std::env::consts::ARCH).to_owned()
}

/// Columns and depth of the product: small enough that many fit the budget, since the best of many is what a busy machine can still do.
const SIDE: usize = 512;
/// Rows of the product for each thread: two blocks of work.
const ROWS_PER_THREAD: usize = 128;
/// Values of each of the three arrays: 64 MiB, beyond the caches of most machines.
const VALUES: usize = 16 << 20;
/// Values one task moves.
const CHUNK: usize = 1 << 16;

/// Measures arithmetic and memory bandwidth, each for about `budget` and at least three times; the best counts.
pub fn measure(budget: Duration, threads: usize) -> MeasuredPeak {
    let rows = SIDE.max(threads * ROWS_PER_THREAD);
    let (flops_per_s, products) = arithmetic(budget, rows);
    let (bytes_per_s, passes) = bandwidth(budget);
    MeasuredPeak {
        flops_per_s: Some(flops_per_s),
        bytes_per_s: Some(bytes_per_s),
        how: format!(
            "measured on this CPU with {threads} threads: f32 matmul {rows} x {SIDE} x {SIDE}, best of {products}; \
             triad over three arrays of {} MiB, best of {passes}",
            (VALUES * size_of::<f32>()) >> 20
        ),
    }
}

fn arithmetic(budget: Duration, rows: usize) -> (f64, usize) {
    let mut source = Source::seeded(1);
    let (a, b) = (source.matrix(rows, SIDE), source.matrix(SIDE, SIDE));
    let (best, runs) = best_of(budget, || {
        std::hint::black_box(ops::matmul(a.view(), b.view()));
    });
    let flops = 2.0 * (rows * SIDE * SIDE) as f64;
    (flops / best.as_secs_f64(), runs)
}

fn bandwidth(budget: Duration) -> (f64, usize) {
    let mut a = vec![0.0f32; VALUES];
    let mut b = vec![0.0f32; VALUES];
    let mut c = vec![0.0f32; VALUES];
    for (seed, values) in [&mut a, &mut b, &mut c].into_iter().enumerate() {
        fill(values, seed as u64, 1.0);
    }
    let (best, runs) = best_of(budget, || {
        a.par_chunks_mut(CHUNK).zip(b.par_chunks(CHUNK)).zip(c.par_chunks(CHUNK)).for_each(|((a, b), c)| {
            for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
                *a = b + 3.0 * c;
            }
        });
        std::hint::black_box(&a);
    });
    let bytes = (3 * VALUES * size_of::<f32>()) as f64;
    (bytes / best.as_secs_f64(), runs)
}

fn best_of(budget: Duration, mut run: impl FnMut()) -> (Duration, usize) {
    let begin = Instant::now();
    let mut best = Duration::MAX;
    let mut runs = 0;
    while runs < 3 || begin.elapsed() < budget {
        let start = Instant::now();
        run();
        // A clock that did not move would make the peak infinite.
        best = best.min(start.elapsed().max(Duration::from_nanos(1)));
        runs += 1;
    }
    (best, runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_of_decimal_numbers_with_commas() {
        // `printf 1,2,3 | sha256sum`: the Python driver hashes in the same way.
        assert_eq!(
            hash(&[1, 2, 3]),
            "sha256:8a6ae15122001229edb8866f56e342af12ae8187203c3e3b33931743e7c0c48d"
        );
    }
}
