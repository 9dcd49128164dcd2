//! A run: weights, warm-ups, repeats, account.
//!
//! The peak of this machine, measured with the kernels the model itself uses.

use crate::exec::{Exec, LLM_DOMAIN, Ranges};
use crate::model::{KvCache, Model};
use crate::ops::{self, Matrix, Source};
use crate::props::{CHANNELS, PromptShape, Shape, WorkloadProps};
use roofgap_base::clock::ns;
use roofgap_base::error::Error;
use roofgap_base::file::{sha256, write_atomic};
use roofgap_base::numbers::{count, time};
use roofgap_wire::account::{
    Account, DeviceFacts, MeasuredPeak, ModelFacts, Repeat, SCHEMA, StageTime, TokenCounts,
};
use std::thread;
use std::time::{Duration, Instant};

/// Measuring time of each half of the peak.
const PEAK_BUDGET: Duration = Duration::from_millis(250);

/// Runs the model with the given ranges; writes the account where the properties say, and returns it.
pub fn run(
    props: &WorkloadProps,
    ranges: &dyn Ranges,
    progress: &mut dyn FnMut(&str),
) -> Result<Account, Error> {
    props.check()?;
    let (mut config, shape) = props.model()?;
    let threads = props.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let (preset, seed) = (&props.preset, props.seed);
    progress(&format!("{preset} model with random weights (seed {seed}) on {threads} threads"));

    let begin = Instant::now();
    let mut source = Source::new(seed);
    let model = Model::new(&mut source, &shape);
    let parameters = source.parameters;
    progress(&format!("{} parameters ready after {}", count(parameters), time(ns(begin.elapsed()))));
    // The repeats take these in turn.
    let prompts = props.prompt_shapes().into_iter();
    let inputs: Vec<Input> = prompts.map(|prompt| Input::new(props, &shape, prompt)).collect();
    let longest = inputs.iter().map(Input::positions).max().unwrap_or(0) + props.new_tokens;
    config["max_position_embeddings"] = longest.into();
    let mut exec = Exec::new(ranges, threads);
    let passes = run_all(props, &inputs, &model, &mut model.cache(longest), &mut exec, progress);
    let peak = (preset != "nano").then(|| measure_peak(threads, progress));
    let used = inputs.iter().cycle().take(props.repeats);
    let mean = |count: fn(&Input) -> usize| {
        let sum: usize = used.clone().map(count).sum();
        Some((sum as f64 / props.repeats.max(1) as f64).round() as u64)
    };
    let resident_kib = proc_value("/proc/self/status", "VmHWM")
        .and_then(|value| value.strip_suffix("kB")?.trim().parse::<u64>().ok());
    let cpu = proc_value("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let account = Account {
        schema: SCHEMA.to_owned(),
        model: Some(ModelFacts {
            name: Some(format!("deepseek-ocr-{preset}")),
            parameters: Some(parameters),
            active_parameters: Some(model.active_parameters),
            dtype: Some("f32".to_owned()),
            weights: Some("random".to_owned()),
            config: Some(config),
            ..ModelFacts::default()
        }),
        tokens: Some(TokenCounts {
            prompt: mean(Input::positions),
            generated: Some(props.new_tokens as u64),
            batch: Some(1),
            vision: mean(|input| input.vision),
        }),
        device: Some(DeviceFacts {
            kind: Some("cpu".to_owned()),
            name: Some(format!("{cpu}, {threads} threads")),
        }),
        operators: exec.take_operators(),
        token_hash: passes.first().map(|(_, tokens)| hash(tokens)),
        notes: notes(props),
        peak,
        device_memory_bytes: resident_kib.map(|kib| kib * 1024),
        repeats: passes.into_iter().map(|(repeat, _)| repeat).collect(),
        ..Account::default()
    };
    if let Some(path) = &props.account {
        let text = account.to_json().map_err(std::io::Error::other);
        let written = text.and_then(|text| write_atomic(path, &text));
        written.map_err(Error::io("write the workload account", path))?;
        progress(&format!("account written to {}", path.display()));
    }
    Ok(account)
}

/// Returns the first value of a key in a file of Linux's `/proc`.
fn proc_value(path: &str, key: &str) -> Option<String> {
    let facts = std::fs::read_to_string(path).ok()?;
    let mut pairs = facts.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
}

/// Runs the warm-up passes and the repeats.
fn run_all(
    props: &WorkloadProps,
    inputs: &[Input],
    model: &Model,
    cache: &mut KvCache,
    exec: &mut Exec<'_>,
    progress: &mut dyn FnMut(&str),
) -> Vec<(Repeat, Vec<usize>)> {
    let count = props.warmup + props.repeats;
    let mut passes = Vec::new();
    for index in 0..count {
        let is_warmup = index < props.warmup;
        let (turn, label) = if is_warmup { (index, ", warm-up") } else { (index - props.warmup, "") };
        if index == props.warmup {
            // A warm-up is not part of the figures.
            exec.take_operators();
        }
        let mut pass = |exec: &mut Exec<'_>| inputs[turn % inputs.len()].pass(props, exec, model, cache);
        let (stages, tokens) =
            if is_warmup { exec.range(Some(LLM_DOMAIN), "warmup", pass).0 } else { pass(exec) };
        let times: Vec<String> =
            stages.iter().map(|stage| format!("{} {}", stage.name, time(stage.wall_ns))).collect();
        progress(&format!("run {} of {count}{label}: {}", index + 1, times.join(", ")));
        passes.push((Repeat { warmup: is_warmup, stages }, tokens));
    }
    passes
}

/// Input of one repeat.
struct Input {
    /// The patches of an image.
    image: Option<Matrix>,
    prompt: Vec<usize>,
    vision: usize,
}

impl Input {
    fn new(props: &WorkloadProps, shape: &Shape, prompt: PromptShape) -> Self {
        let mut state = ops::mix(props.seed ^ 0x70ce);
        let vocabulary = shape.vocab_size;
        Self {
            image: prompt.has_image.then(|| {
                let patch = CHANNELS * shape.vision().sam.patch_size.pow(2);
                Source::new(!props.seed).matrix(shape.grid().pow(2), patch)
            }),
            prompt: (0..prompt.tokens)
                .map(|_| {
                    let token = (ops::unit(&mut state) * vocabulary as f32) as usize;
                    token.min(vocabulary - 1)
                })
                .collect(),
            vision: if prompt.has_image { shape.vision_grid().pow(2) } else { 0 },
        }
    }

    /// Positions of the prompt, image and text together.
    fn positions(&self) -> usize {
        self.vision + self.prompt.len()
    }

    /// Runs prefill and decode; returns their times and the generated tokens.
    fn pass(
        &self,
        props: &WorkloadProps,
        exec: &mut Exec<'_>,
        model: &Model,
        cache: &mut KvCache,
    ) -> (Vec<StageTime>, Vec<usize>) {
        cache.length = 0;
        let ((first, prompt), prefill_ns) = exec.stage("prefill", "prefill", |exec| {
            let x = model.read(exec, self.image.as_ref(), &self.prompt);
            (model.next(exec, x.clone(), cache), x)
        });
        let notes = exec.take_notes();
        let mut tokens = vec![first];
        let (steps_ns, decode_ns) = exec.stage("decode", "decode_all", |exec| {
            let step = |index| {
                let (next, wall_ns) = exec.range(Some(LLM_DOMAIN), "decode_step", |exec| {
                    if props.kv_cache {
                        let x = model.embed(exec, &tokens[index..]);
                        return model.next(exec, x, cache);
                    }
                    cache.length = 0;
                    let text = model.embed(exec, &tokens);
                    let x = exec.op("concatenate", |_| {
                        let x = prompt.clone().append(&text);
                        let skipped = props.context_limit.map_or(0, |limit| x.height().saturating_sub(limit));
                        x.gather((skipped..x.height()).map(Some))
                    });
                    model.next(exec, x, cache)
                });
                tokens.push(next);
                wall_ns
            };
            (0..props.new_tokens).map(step).collect()
        });
        let stage =
            |name: &str, wall_ns| StageTime { name: name.to_owned(), wall_ns, ..StageTime::default() };
        let prefill = StageTime { notes, ..stage("prefill", prefill_ns) };
        let decode = StageTime { steps_ns: Some(steps_ns), ..stage("decode", decode_ns) };
        (vec![prefill, decode], tokens)
    }
}

/// Hashes token ids: SHA-256 of their decimal numbers, separated by commas.
fn hash(tokens: &[usize]) -> String {
    let text: Vec<String> = tokens.iter().map(usize::to_string).collect();
    format!("sha256:{}", sha256(text.join(",").as_bytes()))
}

fn notes(props: &WorkloadProps) -> Vec<String> {
    let seed = props.seed;
    let weights =
        format!("the weights are random (seed {seed}): the tokens have no meaning, only their cost has");
    let notes = [
        (true, weights.as_str()),
        (
            true,
            "operator times are wall times of the thread that drives the model; an operator may use every thread",
        ),
        (!props.kv_cache, "there is no KV cache: every decode step reads its context again"),
        (
            !props.prompts.is_empty(),
            "prompts and images have the lengths and sizes of the manifest, not its content; the account has the mean number of tokens",
        ),
    ];
    notes.into_iter().filter(|(holds, _)| *holds).map(|(_, text)| text.to_owned()).collect()
}

/// Columns and depth of the product: small enough that many fit the budget, since the best of many is what a busy machine can still do.
const SIDE: usize = 512;
/// Rows of the product for each thread.
const ROWS_PER_THREAD: usize = 128;
/// Values of each of the three arrays: 64 MiB, beyond the caches of most machines.
const VALUES: usize = 16 << 20;

/// Measures arithmetic and memory bandwidth; the best of several times counts.
fn measure_peak(threads: usize, progress: &mut dyn FnMut(&str)) -> MeasuredPeak {
    let rows = SIDE.max(threads * ROWS_PER_THREAD);
    let mut source = Source::new(1);
    let (x, weight) = (source.matrix(rows, SIDE), source.matrix(SIDE, SIDE));
    let (product, products) = best_of(|| drop(std::hint::black_box(ops::product(threads, &x, &weight))));
    let [mut a, b, c] = [1.0f32, 2.0, 3.0].map(|value| vec![value; VALUES]);
    let (triad, triads) = best_of(|| {
        ops::in_parallel(threads, VALUES, &mut a, 1, |first, a| {
            for ((a, b), c) in a.iter_mut().zip(&b[first..]).zip(&c[first..]) {
                *a = b + 3.0 * c;
            }
        });
        std::hint::black_box(&a);
    });
    let flops_per_s = 2.0 * (rows * SIDE * SIDE) as f64 / product;
    let bytes_per_s = (3 * VALUES * size_of::<f32>()) as f64 / triad;
    let (gigaflops, gigabytes) = (flops_per_s / 1e9, bytes_per_s / 1e9);
    progress(&format!("this machine: {gigaflops:.1} GFLOP/s, {gigabytes:.1} GB/s, measured"));
    MeasuredPeak {
        flops_per_s: Some(flops_per_s),
        bytes_per_s: Some(bytes_per_s),
        how: format!(
            "measured on this CPU with {threads} threads: f32 matmul {rows} x {SIDE} x {SIDE}, best of {products}; \
             triad over three arrays of {} MiB, best of {triads}",
            (VALUES * size_of::<f32>()) >> 20
        ),
    }
}

/// Runs for about the budget, at least three times; gives the least seconds, and how often it ran.
fn best_of(mut run: impl FnMut()) -> (f64, usize) {
    let begin = Instant::now();
    let mut best = f64::MAX;
    let mut runs = 0;
    while runs < 3 || begin.elapsed() < PEAK_BUDGET {
        let start = Instant::now();
        run();
        // A clock that did not move would make the peak infinite.
        best = best.min(start.elapsed().as_secs_f64().max(1e-9));
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
