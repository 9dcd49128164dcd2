//! The workload account: a JSON file in which a profiled program describes its own run.
//!
//! A program writes it to the path in `ROOFGAP_WORKLOAD_JSON`. Programs of any language write accounts, so every field
//! but the schema is optional.
//!
//! Requests that a load generator sent to a server.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Schema of the account.
pub const SCHEMA: &str = "roofgap.workload/1";

/// Declares parts of the account.
macro_rules! facts {
    ($($(#[$meta:meta])* pub struct $name:ident { $($fields:tt)* })*) => {$(
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        $(#[$meta])*
        pub struct $name { $($fields)* }
    )*};
}

facts! {
    /// A program's description of its own run.
    pub struct Account {
        /// Always [`SCHEMA`].
        pub schema: String,
        /// The model.
        pub model: Option<ModelFacts>,
        /// The serving engine that ran it.
        pub engine: Option<EngineFacts>,
        /// Tokens of one repeat.
        pub tokens: Option<TokenCounts>,
        /// The device the model ran on.
        pub device: Option<DeviceFacts>,
        /// Repeats in order, warm-ups included.
        #[serde(default)]
        pub repeats: Vec<Repeat>,
        /// Operators that the program timed, over the measured repeats.
        #[serde(default)]
        pub operators: Vec<OperatorTime>,
        /// Hash of the generated tokens; equal hashes mean equal output.
        pub token_hash: Option<String>,
        /// Peak of the device as the program measured it.
        pub peak: Option<MeasuredPeak>,
        /// Most memory of the device in use at once, bytes; of a program on the CPU, its resident memory.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub device_memory_bytes: Option<u64>,
        /// Parts of the start, from the start of the first process to the first step; they add up.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub startup: Vec<NoteTime>,
        /// Requests that a load generator sent to a server.
        pub requests: Option<RequestStats>,
        /// Remarks for the reader.
        #[serde(default)]
        pub notes: Vec<String>,
        /// Figures of the Stage 1 runner that ran the model.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub stage1: Option<Stage1Figures>,
    }

    /// The model that ran.
    #[serde(default)]
    pub struct ModelFacts {
        /// Name.
        pub name: Option<String>,
        /// Revision of the weights.
        pub revision: Option<String>,
        /// Number of parameters.
        pub parameters: Option<u64>,
        /// Parameters that one decoded token uses: without embedding table, vision and unselected experts.
        pub active_parameters: Option<u64>,
        /// Data type of the weights, such as `bf16`.
        pub dtype: Option<String>,
        /// Origin of the weights: `random` or `local`.
        pub weights: Option<String>,
        /// Architecture in the form of a Hugging Face `config.json`.
        pub config: Option<Value>,
        /// Modules with weights, those of one class and shape in several layers as one row.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub modules: Vec<ModuleFacts>,
    }

    /// Modules of a model that are alike.
    #[derive(Eq)]
    #[serde(default)]
    pub struct ModuleFacts {
        /// Place in the model, with `*` for numbers.
        pub path: String,
        /// Class.
        pub class: String,
        /// Number of such modules.
        pub count: u64,
        /// First number in their places.
        pub layers: Vec<u64>,
        /// Weights of each.
        pub weights: Vec<WeightFacts>,
    }

    /// A weight of a module.
    #[derive(Eq)]
    #[serde(default)]
    pub struct WeightFacts {
        /// Name, such as `weight`.
        pub name: String,
        /// Size of each dimension.
        pub shape: Vec<u64>,
        /// Data type, such as `bf16`.
        pub dtype: String,
        /// Bytes in memory.
        pub bytes: u64,
        /// True if another module listed before has the same memory.
        pub shared: bool,
        /// True if it is a buffer, as of a quantised weight.
        pub packed: bool,
    }

    /// The serving engine that ran a model.
    #[derive(Eq)]
    #[serde(default)]
    pub struct EngineFacts {
        /// Name, such as `vLLM`.
        pub name: Option<String>,
        /// Version.
        pub version: Option<String>,
        /// Number of parts by kind of parallelism: `tensor`, `pipeline`, `data`, `expert`.
        pub parallelism: Option<BTreeMap<String, u64>>,
    }

    /// Tokens of one repeat.
    #[derive(Copy, Eq)]
    #[serde(default)]
    pub struct TokenCounts {
        /// Prompt tokens, vision tokens included.
        pub prompt: Option<u64>,
        /// Decode steps. The token that prefill produces is not counted.
        pub generated: Option<u64>,
        /// Sequences at once.
        pub batch: Option<u64>,
        /// Prompt tokens that came from images.
        pub vision: Option<u64>,
    }
}

impl TokenCounts {
    /// Takes what is missing from other counts.
    pub fn or(self, other: Self) -> Self {
        Self {
            prompt: self.prompt.or(other.prompt),
            generated: self.generated.or(other.generated),
            batch: self.batch.or(other.batch),
            vision: self.vision.or(other.vision),
        }
    }
}

facts! {
    /// The device a model ran on.
    #[derive(Eq)]
    #[serde(default)]
    pub struct DeviceFacts {
        /// `cpu` or `cuda`.
        pub kind: Option<String>,
        /// Name.
        pub name: Option<String>,
    }

    /// One pass over prompt and decode.
    #[derive(Eq)]
    #[serde(default)]
    pub struct Repeat {
        /// True for a warm-up, which is not part of the figures.
        pub warmup: bool,
        /// Stages in order.
        pub stages: Vec<StageTime>,
    }

    /// Wall time of a stage.
    #[derive(Eq)]
    pub struct StageTime {
        /// Name, such as `prefill`.
        pub name: String,
        /// Wall time, ns.
        pub wall_ns: i64,
        /// Begin, ns since the epoch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub start_ns: Option<i64>,
        /// Wall time of each step, ns.
        pub steps_ns: Option<Vec<i64>>,
        /// Named parts of the stage.
        #[serde(default)]
        pub notes: Vec<NoteTime>,
    }

    /// Wall time of a named part of a stage.
    #[derive(Eq)]
    pub struct NoteTime {
        /// Name, such as `sam`.
        pub name: String,
        /// Wall time, ns.
        pub wall_ns: i64,
    }

    /// Time of one operator in one stage.
    #[derive(Eq)]
    pub struct OperatorTime {
        /// Name, such as `matmul`.
        pub name: String,
        /// Stage the operator ran in.
        pub stage: Option<String>,
        /// Number of calls.
        pub calls: u64,
        /// CPU time without nested operators, ns.
        pub self_cpu_ns: i64,
        /// CPU time with nested operators, ns.
        pub total_cpu_ns: i64,
        /// GPU time without nested operators, ns.
        pub self_gpu_ns: Option<i64>,
        /// GPU time with nested operators, ns.
        pub total_gpu_ns: Option<i64>,
    }

    /// Peak of a device as a program measured it.
    #[serde(default)]
    pub struct MeasuredPeak {
        /// Arithmetic peak, operations per second.
        pub flops_per_s: Option<f64>,
        /// Memory bandwidth, bytes per second.
        pub bytes_per_s: Option<f64>,
        /// Method of measurement.
        pub how: String,
    }

    /// Figures of a Stage 1 runner (`llm_profile_runner`), as it wrote them.
    #[serde(default)]
    pub struct Stage1Figures {
        /// Output folder of the runner.
        pub path: String,
        /// Times of the stages and of the vision parts of prefill.
        pub times: Vec<Stage1Time>,
        /// Generated tokens of a run.
        pub tokens: Option<Statistic>,
        /// Decode throughput, tokens per second.
        pub tokens_per_s: Option<Statistic>,
        /// MFU as the runner computed it.
        pub mfu: Vec<Stage1Mfu>,
        /// Peak that the runner assumed for its MFU, TFLOP/s.
        pub peak_tflops: Option<f64>,
        /// Operators of its torch.profiler run, in its order.
        pub operators: Vec<Stage1Operator>,
    }

    /// Mean and standard deviation over the runs of a Stage 1 runner.
    #[derive(Copy)]
    pub struct Statistic {
        /// Mean.
        pub mean: f64,
        /// Standard deviation.
        pub std: f64,
    }

    /// Time of a stage over the runs of a Stage 1 runner.
    #[derive(Eq)]
    pub struct Stage1Time {
        /// Name, such as `prefill` or `sam`.
        pub name: String,
        /// Mean, ns.
        pub mean_ns: i64,
        /// Standard deviation, ns.
        pub std_ns: i64,
    }

    /// MFU of a stage as a Stage 1 runner computed it.
    pub struct Stage1Mfu {
        /// Stage, or `model` for all of them.
        pub name: String,
        /// MFU, %.
        pub pct: f64,
    }

    /// Operator of a Stage 1 runner. The runner adds the self time and the total time of an operator.
    #[derive(Eq)]
    pub struct Stage1Operator {
        /// Name, such as `aten::mm`.
        pub name: String,
        /// Number of calls.
        pub calls: u64,
        /// Sum of self and total CPU time, ns.
        pub cpu_ns: i64,
        /// Sum of self and total GPU time, ns.
        pub gpu_ns: i64,
    }
}

/// Reason a text is not an account.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccountError {
    /// The text is not JSON, or a field has another type.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The text has another schema.
    #[error("schema {found:?}, expected {SCHEMA:?}")]
    Schema {
        /// Schema in the text.
        found: String,
    },
    /// A count is larger than any program has.
    #[error("{count} is no possible count of `{name}`")]
    Count {
        /// Field.
        name: String,
        /// Count in the text.
        count: u64,
    },
    /// A time is negative, longer than a century, or in another century.
    #[error("{ns} ns is no possible time of `{name}`")]
    Time {
        /// Field.
        name: String,
        /// Time in the text, ns.
        ns: i64,
    },
}

/// Largest sum of the counts of an account.
const MOST_COUNT: u64 = 1 << 52;

/// Longest time of an account, ns: a century.
const MOST_NS: i64 = 100 * 366 * 86_400 * 1_000_000_000;

/// Fields whose numbers are not added up: facts as others have them, and a difference.
const NOT_ADDED: [&str; 6] = ["config", "modules", "metrics", "gauges", "peak", "clock_change_ns"];

/// Fields with moments.
const MOMENTS: [&str; 4] = ["start_unix_ns", "start_ns", "first_ns", "last_ns"];

/// Sums over an account, which are checked so that no total of its numbers can overflow.
#[derive(Default)]
struct Totals {
    count: u64,
    ns: i64,
}

impl Totals {
    /// Adds the integers of a field, by its name counts or times.
    fn add(&mut self, name: &str, field: &Value) -> Result<(), AccountError> {
        match field {
            _ if NOT_ADDED.contains(&name) => Ok(()),
            Value::Object(fields) => fields.iter().try_for_each(|(key, field)| {
                // The percentiles of a time are times.
                self.add(if name.ends_with("_ns") { name } else { key }, field)
            }),
            Value::Array(items) => items.iter().try_for_each(|item| self.add(name, item)),
            Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(ns), _) if MOMENTS.contains(&name) => possible_time(name, ns, 0),
                (Some(ns), _) if name.ends_with("_ns") => self.add_time(name, ns),
                (_, Some(count)) => self.add_count(name, count),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn add_count(&mut self, name: &str, count: u64) -> Result<(), AccountError> {
        self.count = self.count.saturating_add(count);
        if self.count > MOST_COUNT {
            return Err(AccountError::Count { name: name.to_owned(), count });
        }
        Ok(())
    }

    fn add_time(&mut self, name: &str, ns: i64) -> Result<(), AccountError> {
        possible_time(name, ns, self.ns)?;
        self.ns += ns;
        Ok(())
    }
}

/// Checks a time, and the total of those before it.
fn possible_time(name: &str, ns: i64, total: i64) -> Result<(), AccountError> {
    if (0..=MOST_NS).contains(&ns) && total <= MOST_NS {
        return Ok(());
    }
    Err(AccountError::Time { name: name.to_owned(), ns })
}

impl Account {
    /// Parses an account.
    ///
    /// # Errors
    /// Fails when the text is not an account of schema [`SCHEMA`].
    pub fn from_json(text: &[u8]) -> Result<Self, AccountError> {
        let account: Self = serde_json::from_slice(text)?;
        if account.schema != SCHEMA {
            return Err(AccountError::Schema { found: account.schema });
        }
        let mut totals = Totals::default();
        totals.add("account", &serde_json::to_value(&account)?)?;
        for times in account.requests.iter().flat_map(|requests| &requests.each) {
            totals.add_time("first_ns", times.first_ns.saturating_sub(times.start_ns))?;
            totals.add_time("last_ns", times.last_ns.saturating_sub(times.first_ns))?;
        }
        Ok(account)
    }

    /// Formats the account as JSON.
    ///
    /// # Errors
    /// Fails when a number of the model's configuration has no JSON form.
    pub fn to_json(&self) -> Result<Vec<u8>, AccountError> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }
}

facts! {
    /// Latency and throughput of the requests of one window of load.
    #[serde(default)]
    pub struct RequestStats {
        /// Requests sent, without those of the warm-up.
        pub sent: u64,
        /// Requests that were answered completely. All figures below are of these.
        pub completed: u64,
        /// Requests that failed.
        pub failed: u64,
        /// Prompt tokens, as the server counts them; null if it does not.
        pub prompt_tokens: Option<u64>,
        /// Generated tokens, as the server counts them; null if it does not.
        pub output_tokens: Option<u64>,
        /// Start of the window, ns since 1970.
        pub start_unix_ns: i64,
        /// Time from the first request to the end of the last answer, ns.
        pub window_ns: i64,
        /// Time from the request to its first token, ns.
        pub ttft_ns: Option<Percentiles>,
        /// Time between parts of an answer, ns. A part is one token unless the server sends several at once.
        pub itl_ns: Option<Percentiles>,
        /// Time from the request to the end of the answer, ns.
        pub e2e_ns: Option<Percentiles>,
        /// Generated tokens per second of the window.
        pub tokens_per_s: Option<f64>,
        /// Completed requests per second of the window.
        pub requests_per_s: Option<f64>,
        /// Failures by message, the most frequent first.
        pub failures: Vec<RequestFailure>,
        /// Change of the counters that the server exports, over the window.
        pub metrics: BTreeMap<String, f64>,
        /// Gauges that the server exports, sampled about once a second of the window.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub gauges: BTreeMap<String, GaugeStats>,
        /// Change of the wall clock against the steady clock over the window, ns; left out where it was not compared.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub clock_change_ns: Option<i64>,
        /// First half of the trace ids of the requests, 16 hexadecimal digits; null where they had none.
        pub trace: Option<String>,
        /// Times of the completed requests, by their start; at most 10,000; left out without any.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub each: Vec<RequestTimes>,
    }
}

/// Most requests whose times are kept.
pub const MOST_KEPT: usize = 10_000;

facts! {
    /// Times of one request, ns from `RequestStats::start_unix_ns`.
    #[derive(Copy, Eq)]
    #[serde(default)]
    pub struct RequestTimes {
        /// Number of the request, from 1: the second half of its trace id, and its span id.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub number: Option<u64>,
        /// Time at which the request was due.
        pub start_ns: i64,
        /// Arrival of the first token.
        pub first_ns: i64,
        /// Arrival of the last token.
        pub last_ns: i64,
        /// Tokens of the prompt, as the server counts them.
        pub prompt_tokens: Option<u64>,
        /// Tokens of the answer, as the server counts them.
        pub output_tokens: Option<u64>,
    }
}

/// Returns the `traceparent` of request `number`, with the first half of its trace id.
pub fn traceparent(trace: &str, number: u64) -> String {
    format!("00-{trace}{number:016x}-{number:016x}-01")
}

facts! {
    /// Samples of a gauge. Usages are the largest over the labels of the gauge, other values are sums.
    #[derive(Copy)]
    #[serde(default)]
    pub struct GaugeStats {
        /// Number of samples.
        pub samples: u64,
        /// Value before the window.
        pub first: f64,
        /// Value after the window.
        pub last: f64,
        /// Mean of the samples.
        pub mean: f64,
        /// Largest sample.
        pub max: f64,
    }

    /// Mean and percentiles of a time, ns.
    #[derive(Copy, Eq)]
    #[serde(default)]
    pub struct Percentiles {
        /// Number of values.
        pub count: u64,
        /// Mean.
        pub mean: i64,
        /// Median.
        pub p50: i64,
        /// 90th percentile.
        pub p90: i64,
        /// 99th percentile.
        pub p99: i64,
        /// Largest value.
        pub max: i64,
    }

    /// Failures with the same message.
    #[derive(Eq)]
    #[serde(default)]
    pub struct RequestFailure {
        /// Message.
        pub why: String,
        /// Number of requests.
        pub count: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_schema_is_required() {
        let account = Account::from_json(br#"{"schema": "roofgap.workload/1"}"#).unwrap();
        assert_eq!(Account::from_json(&account.to_json().unwrap()).unwrap(), account);
    }

    #[test]
    fn an_engine_describes_itself() {
        let text = br#"{"schema": "roofgap.workload/1", "tokens": null,
            "engine": {"name": "vLLM", "version": "0.26.0", "parallelism": {"tensor": 2, "pipeline": 1}}}"#;
        let account = Account::from_json(text).unwrap();
        let engine = account.engine.clone().unwrap();
        assert_eq!(engine.version.as_deref(), Some("0.26.0"));
        assert_eq!(engine.parallelism.unwrap()["tensor"], 2);
        assert_eq!(Account::from_json(&account.to_json().unwrap()).unwrap(), account);
    }

    #[test]
    fn another_schema_is_rejected() {
        let error = Account::from_json(br#"{"schema": "roofgap.workload/9"}"#).unwrap_err();
        assert!(matches!(error, AccountError::Schema { found } if found.ends_with("/9")));
    }

    #[test]
    fn requests_at_times_that_cannot_be_are_rejected() {
        let requests = |start: i64, [due, first, last]: [i64; 3]| {
            let each = format!(r#"[{{"start_ns": {due}, "first_ns": {first}, "last_ns": {last}}}]"#);
            let text = format!(
                r#"{{"schema": "roofgap.workload/1", "requests": {{"start_unix_ns": {start}, "each": {each}}}}}"#
            );
            Account::from_json(text.as_bytes())
        };
        let now = 1_790_000_000_000_000_000;
        assert!(requests(now, [5, 10, 10]).is_ok());
        for (start, times) in [
            (i64::MAX, [5, 10, 20]),
            (-1, [5, 10, 20]),
            (now, [-1, 10, 20]),
            (now, [i64::MIN, 10, i64::MAX]),
            (now, [5, 4, 20]),
            (now, [5, 10, 9]),
            (now, [5, 10, i64::MAX]),
        ] {
            let error = requests(start, times).unwrap_err();
            assert!(matches!(error, AccountError::Time { .. }), "{error}");
        }
    }

    #[test]
    fn counts_that_cannot_be_are_rejected() {
        const MAX: u64 = u64::MAX;
        let read = |fields: &str| {
            Account::from_json(format!(r#"{{"schema": "roofgap.workload/1", {fields}}}"#).as_bytes())
        };
        assert!(read(r#""tokens": {"prompt": 1000000, "generated": 4096}"#).is_ok());
        let operator =
            format!(r#"{{"name": "a", "calls": {}, "self_cpu_ns": 1, "total_cpu_ns": 1}}"#, MAX / 2);
        for fields in [
            format!(r#""tokens": {{"prompt": {MAX}}}"#),
            format!(r#""tokens": {{"generated": {MAX}, "batch": {MAX}}}"#),
            format!(r#""model": {{"parameters": {MAX}}}"#),
            format!(r#""operators": [{operator}, {operator}, {operator}]"#),
            format!(r#""requests": {{"sent": {MAX}}}"#),
            format!(r#""requests": {{"each": [{{"output_tokens": {MAX}}}]}}"#),
            format!(r#""engine": {{"parallelism": {{"tensor": {MAX}}}}}"#),
        ] {
            let error = read(&fields).unwrap_err();
            assert!(matches!(error, AccountError::Count { .. }), "{fields}: {error}");
        }
    }

    #[test]
    fn times_that_cannot_be_are_rejected() {
        for (ns, steps) in [("-5", "[]"), ("5", "[1, -1]"), ("9223372036854775807", "[]")] {
            let text = format!(
                r#"{{"schema": "roofgap.workload/1", "repeats": [{{"stages": [{{"name": "prefill", "wall_ns": {ns}, "steps_ns": {steps}}}]}}]}}"#
            );
            let error = Account::from_json(text.as_bytes()).unwrap_err();
            assert!(
                matches!(&error, AccountError::Time { name, .. } if name == "wall_ns" || name == "steps_ns"),
                "{error}"
            );
        }
    }
}
