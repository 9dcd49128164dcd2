//! Steps of a serving engine over time, the latency of requests joined with them, and the numbers of one run.

results! {
    /// The steps of a serving engine together. All but the rates are of one process: of the processes that split a model, the one with
    /// the most steps.
    #[derive(Default)]
    pub struct Serving {
        /// Time from the start of the first step to the end of the last, ns: time between steps is part of it.
        pub span_ns: i64,
        /// Number of copies of the model whose rates are added; null where several processes ran steps and the engine did not state
        /// it.
        pub replicas: Option<u64>,
        /// Prompt tokens per second of `span_ns`; null where the names of the steps do not give them, where steps are missing or where
        /// `replicas` is unknown.
        pub context_tokens_per_s: Option<f64>,
        /// Generated tokens per second of `span_ns`, without the first token of each request, which a step with prompts generates.
        pub generation_tokens_per_s: Option<f64>,
        /// Slices of equal length of the span, in order.
        pub over_time: Vec<ServingSlice>,
        /// Decode steps by the number of requests in them.
        pub batches: Vec<BatchRow>,
        /// Waits of requests that generate for prompts of others.
        pub stalls: Stalls,
        /// Latency of requests by its parts; null where no requests were sent while the steps were recorded.
        pub latency: Option<JoinedLatency>,
        /// Work before the first step; null where the capture begins with the steps.
        pub startup: Option<Startup>,
        /// GPU time of each request; left out where nothing says which requests were in a step.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub receipts: Option<Receipts>,
    }

    /// The GPU time of the steps of one process, divided over the requests in each step by their tokens in it.
    #[derive(Default)]
    pub struct Receipts {
        /// First time of the capture, to which the times of requests are relative, ns.
        pub begin_ns: i64,
        /// The same, ns since the epoch; null where the capture has no wall clock.
        pub begin_unix_ns: Option<i64>,
        /// Number of steps.
        pub steps: u64,
        /// Time in which their GPUs ran something, ns.
        pub busy_ns: i64,
        /// Time from the first to the last operation of each step in which they ran nothing, ns.
        pub idle_ns: i64,
        /// Number of steps of which nothing says which requests were in them.
        pub unassigned_steps: u64,
        /// Busy and idle time of those, ns.
        pub unassigned_ns: i64,
        /// Number of requests.
        pub requests: u64,
        /// Requests of the load that was sent meanwhile whose steps were recorded, found by their ids; null without a load that gave them ids.
        pub of_load: Option<u64>,
        /// Busy and idle time of requests that are not listed, ns. With `each` and `unassigned_ns` it adds up to `busy_ns` and `idle_ns`.
        pub others_ns: i64,
        /// The most expensive requests, at most 1,000.
        pub each: Vec<Receipt>,
    }

    /// The part of the GPU time that a request used.
    #[derive(Default)]
    pub struct Receipt {
        /// Id that the engine gave it.
        pub id: String,
        /// Start of its first step, ns from the first event of the capture.
        pub start_ns: i64,
        /// End of its last step, ns from the first event of the capture.
        pub end_ns: i64,
        /// End of the last step that read its prompt, from the same moment, ns; null where none was recorded.
        pub prompt_end_ns: Option<i64>,
        /// Time of the steps that read its prompt, ns.
        pub prompt_ns: i64,
        /// Time of steps in which it generates while prompts of others are read, ns.
        pub behind_prompts_ns: i64,
        /// Number of its steps.
        pub steps: u64,
        /// Tokens that were scheduled for it.
        pub tokens: u64,
        /// Its part of the busy time of its steps, ns.
        pub busy_ns: i64,
        /// Its part of their idle time, ns.
        pub idle_ns: i64,
        /// Its part of the energy of the steps, J; null where none was measured.
        pub joules: Option<f64>,
        /// Time at which the load generator sent it, from the same moment, ns; null for a request of somebody else.
        pub sent_ns: Option<i64>,
        /// Arrival of its last token there, ns.
        pub answered_ns: Option<i64>,
    }

    /// A part of the start of a program.
    #[derive(Eq)]
    pub struct StartPart {
        /// Name.
        pub name: String,
        /// Time, ns.
        pub ns: i64,
    }

    /// Work of an engine before its first step: weights, compiled code, captured graphs, trial runs. It is in no stage and in no rate.
    #[derive(Copy, Eq, Default)]
    pub struct Startup {
        /// Time from the first call or GPU operation to the first step, ns.
        pub elapsed_ns: i64,
        /// Bytes that were copied from the host to the GPU.
        pub copied_bytes: u64,
        /// Time of these copies, ns.
        pub copy_ns: i64,
        /// Time of calls that load code, ns.
        pub loading_ns: i64,
        /// Number of captured graphs.
        pub captured_graphs: u64,
        /// Time in which graphs were captured and instantiated, ns.
        pub capture_ns: i64,
        /// Number of kernels.
        pub kernel_count: u64,
        /// Time of kernels, ns.
        pub kernel_ns: i64,
    }

    /// A slice of time. A step belongs to the slice in which it begins.
    #[derive(Default)]
    pub struct ServingSlice {
        /// Start, ns from the start of the first step.
        pub start_ns: i64,
        /// Length, ns.
        pub length_ns: i64,
        /// Number of prefill steps.
        pub prefill_steps: u64,
        /// Number of mixed steps.
        pub mixed_steps: u64,
        /// Number of decode steps.
        pub decode_steps: u64,
        /// Mean number of requests in a step; null without steps or where their names do not give it.
        pub requests_per_step: Option<f64>,
        /// Prompt tokens; null where the names do not give them.
        pub context_tokens: Option<u64>,
        /// Generated tokens; null where the names do not give them.
        pub generation_tokens: Option<u64>,
    }

    /// Decode steps with the same number of requests.
    #[derive(Eq, Default)]
    pub struct BatchRow {
        /// Requests in a step.
        pub requests: u64,
        /// Number of steps.
        pub steps: u64,
        /// Number of steps whose kernels were mostly launched by CUDA graphs.
        pub graph_steps: u64,
        /// Mean time from the first to the last GPU operation of a step, ns; null without GPU work.
        pub mean_ns: Option<i64>,
        /// Idle time inside the steps without graphs, ns.
        pub eager_idle_ns: i64,
    }

    /// Prefill steps between steps that generate, and the requests that surely waited meanwhile.
    #[derive(Copy, Eq, Default)]
    pub struct Stalls {
        /// Number of prefill steps during which at least one request waited.
        pub steps: u64,
        /// Time of those steps, ns.
        pub total_ns: i64,
        /// Longest time around such prefill steps from the end of a step that generates to the start of the next, ns.
        pub longest_ns: i64,
        /// Sum over these steps of time multiplied by waiting requests, ns.
        pub request_ns: i64,
    }

    /// Latency of requests, joined with the steps by time. Both have the wall clock of one host.
    #[derive(Default)]
    pub struct JoinedLatency {
        /// Number of requests with a time to first token.
        pub requests: u64,
        /// Number of those with a recorded step that read prompts before their first token.
        pub joined: u64,
        /// Change of the wall clock against the steady clock over the window, ns; null where it was not compared.
        pub clock_change_ns: Option<i64>,
        /// Time to first token of the joined requests by its parts, in order; the means add up to the first row.
        pub ttft: Vec<LatencyPart>,
        /// Mean time per token after the first by its parts; the others add up to the first row. Empty without tokens to
        /// count, or where the steps take longer than the tokens.
        pub token_time: Vec<LatencyPart>,
    }

    /// A part of a latency.
    #[derive(Eq, Default)]
    pub struct LatencyPart {
        /// Name of the part.
        pub part: String,
        /// Mean, ns.
        pub mean_ns: i64,
        /// Median, ns; null for a part that is known only on average.
        pub p50_ns: Option<i64>,
        /// 90th percentile, ns; null for a part that is known only on average.
        pub p90_ns: Option<i64>,
        /// Mean over the hundredth of the requests with the longest time to first token, ns; null for a part of another time.
        pub slowest_ns: Option<i64>,
    }

    /// Numbers of one run: a prefill and the decode that follows it, as means over the runs of a capture.
    #[derive(Default)]
    pub struct PerRun {
        /// Number of runs.
        pub runs: u64,
        /// Time to first token, ns: prefill and the first step of decode.
        pub ttft_ns: Option<i64>,
        /// Time per generated token, ns: the time of decode divided by its tokens, all sequences together.
        pub token_ns: Option<i64>,
        /// Generated tokens per second of decode, all sequences together.
        pub tokens_per_s: Option<f64>,
    }
}

impl Receipts {
    /// Tells whether GPU work of the steps was recorded.
    pub fn has_gpu_time(&self) -> bool {
        self.busy_ns > 0
    }
}

impl Receipt {
    /// Returns trace and span of the caller, where the id of the request has its `traceparent`.
    pub fn caller(&self) -> Option<(&str, &str)> {
        let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        self.id.match_indices("00-").find_map(|(at, start)| {
            let (trace, rest) = self.id.get(at + start.len()..)?.split_at_checked(32)?;
            let (span, flags) = rest.strip_prefix('-')?.split_at_checked(16)?;
            (is_hex(trace) && is_hex(span) && flags.starts_with('-')).then_some((trace, span))
        })
    }
}
