//! The tables of `roofgap.lake/1`. Columns are only ever added, at the end.

use std::sync::Arc;

use super::{Cell, Column, Micros, Record, Table, Value, records};

type Text = Arc<str>;

records! {
    /// A run or a capture. A run is in the lake when its row in this table is.
    RunRow in "runs" by ["started_at", "run_key"] {
        /// Key of the run: a hash of its content, project and labels.
        run_key: Text,
        /// Id of the run directory; null for a capture.
        run_id: Option<Text>,
        /// Path or address that was added.
        source: Text,
        /// `run` (a run directory) or `capture`.
        kind: Text,
        /// Format of the timeline, else of the first file, as in `sources[].format`.
        format: Option<Text>,
        /// Start of the run; null where the input does not tell it.
        started_at: Option<Micros>,
        /// Origin of the partition `date`: `flag`, `run` (`started_at`), `file` (modification time of the input).
        date_from: Text,
        /// Commit of the profiled program.
        git_commit: Option<Text>,
        /// True where the profiled program had uncommitted changes.
        git_dirty: Option<bool>,
        /// Model name.
        model: Option<Text>,
        /// Number format of the weights.
        dtype: Option<Text>,
        /// GPU name; the first where they differ; that of the machine where no GPU work was recorded.
        gpu: Option<Text>,
        /// Number of GPUs in the capture, over all ranks given.
        gpus: i64,
        /// Version of the GPU driver.
        driver: Option<Text>,
        /// Version of the CUDA runtime of the profiled program.
        cuda: Option<Text>,
        /// Serving engine.
        engine: Option<Text>,
        /// Version of the serving engine.
        engine_version: Option<Text>,
        /// Workload kind: `embedded`, `hf`, `hydra`, `command`, `server`; null for a capture.
        workload: Option<Text>,
        /// Version of roofgap that made the rows.
        roofgap_version: Text,
        /// Number of ranks of the job; null where unknown.
        world_size: Option<i64>,
        /// Batch size, sequences.
        batch: Option<i64>,
        /// Prompt tokens.
        prompt_tokens: Option<i64>,
        /// Generated tokens of one repeat.
        output_tokens: Option<i64>,
        /// Elapsed time of all stages, ns; null without stages.
        wall_ns: Option<i64>,
        /// Time with at least one GPU operation, summed over GPUs, ns.
        busy_ns: Option<i64>,
        /// Total kernel time, ns.
        kernel_ns: i64,
        /// Number of kernels.
        kernel_count: i64,
        /// Generated tokens per second, all sequences together; null where only the rate of decode is known.
        tokens_per_s: Option<f64>,
        /// Model FLOPs utilisation over wall time, %.
        mfu_pct: Option<f64>,
        /// Memory bandwidth utilisation over wall time, %.
        mbu_pct: Option<f64>,
        /// Overhead of the profiler that recorded the timeline, % of the time without it; the largest over stages.
        overhead_pct: Option<f64>,
        /// Trigger of the moment that the run was kept for by `roofgap watch --record`; null for other runs.
        incident: Option<Text>,
        /// Cause of that moment, as in `stages[].spikes[].cause`; null where it was not found.
        incident_cause: Option<Text>,
        /// Exit status of the session; null for a capture and for a session that did not end.
        exit_status: Option<i64>,
        /// Labels given with `--label`, as `key=value` in the order of the keys, separated by commas; null without labels.
        labels: Option<Text>,
        /// Number of files of the run that could not be read.
        unreadable_files: i64,
    }

    /// A stage of a run, such as prefill or decode.
    StageRow in "stages" by ["stage", "run_key"] {
        /// Key of the run.
        run_key: Text,
        /// Stage name.
        stage: Text,
        /// `prefill`, `decode`, `mixed`, `whole` or `custom`.
        kind: Text,
        /// Number of instances.
        instances: i64,
        /// Total CPU time of the instances, ns.
        wall_ns: i64,
        /// Time of the stage, ns: the periods of engine steps; otherwise wall time and the GPU work that ran after it.
        elapsed_ns: i64,
        /// Time with at least one of its GPU operations, summed over GPUs, ns.
        busy_ns: Option<i64>,
        /// Total kernel time, ns.
        kernel_ns: Option<i64>,
        /// Idle time because the CPU had not launched yet, summed over GPUs, ns.
        idle_launch_ns: Option<i64>,
        /// Idle time because of a wait for the device, summed over GPUs, ns.
        idle_sync_ns: Option<i64>,
        /// Idle time because of a copy, summed over GPUs, ns.
        idle_copy_ns: Option<i64>,
        /// Other idle time, summed over GPUs, ns.
        idle_other_ns: Option<i64>,
        /// Number of kernels.
        kernel_count: i64,
        /// Number of calls that launched GPU work.
        launch_count: i64,
        /// Number of GPUs with work of the stage.
        device_count: i64,
        /// Tokens per second, all sequences together.
        tokens_per_s: Option<f64>,
        /// Time per token, ns: the time of the stage divided by its tokens, all sequences together.
        token_ns: Option<i64>,
        /// Mean time of an instance, ns.
        mean_ns: Option<i64>,
        /// Model FLOPs utilisation over wall time, %.
        mfu_pct: Option<f64>,
        /// Memory bandwidth utilisation over wall time, %.
        mbu_pct: Option<f64>,
        /// Time at the roof, % of the time of the launches whose work is known.
        roof_pct: Option<f64>,
        /// Time beyond the roof of the launches whose work is known, ns.
        above_roof_ns: Option<i64>,
        /// Tokens that an engine scheduled to read prompts.
        context_tokens: Option<i64>,
        /// Tokens that an engine scheduled to be generated.
        generation_tokens: Option<i64>,
        /// Main limit of the stage, such as `GPU-bound` or `launch-bound`; null where no GPU work was recorded.
        limited_by: Option<Text>,
        /// Mean number of GPUs per instance; null where no GPU work was recorded.
        devices_per_instance: Option<f64>,
        /// Median clock of the multiprocessors, MHz.
        sm_mhz: Option<f64>,
        /// Share of the samples in which the driver lowered the clock, %, by the most frequent reason.
        throttled_pct: Option<f64>,
        /// That reason, such as `power cap`; null where there is none.
        throttled_by: Option<Text>,
        /// Energy of all GPUs, J.
        joules: Option<f64>,
        /// Part of `joules` that the idle GPUs would use in the same time, J.
        idle_joules: Option<f64>,
        /// Energy of a token, J.
        token_joules: Option<f64>,
        /// Cost of a million tokens by the prices of the run; null without prices.
        million_tokens_cost: Option<f64>,
    }

    /// The steps of a stage, summarised.
    StepRow in "steps" by ["stage", "run_key"] {
        /// Key of the run.
        run_key: Text,
        /// Stage name.
        stage: Text,
        /// Number of steps.
        step_count: i64,
        /// Mean time of a step, ns.
        mean_ns: i64,
        /// Shortest step, ns.
        min_ns: Option<i64>,
        /// Median, ns.
        p50_ns: i64,
        /// 90th percentile, ns.
        p90_ns: i64,
        /// 99th percentile, ns.
        p99_ns: i64,
        /// Longest step, ns.
        max_ns: Option<i64>,
        /// First step, ns.
        first_ns: Option<i64>,
        /// Mean number of launches per step.
        launches_per_step: Option<f64>,
    }

    /// The launches of one kernel with one launch shape on one GPU in one stage. Each recorded launch is in one row.
    KernelRow in "kernels" by ["name", "run_key"] {
        /// Key of the run.
        run_key: Text,
        /// Stage name; null outside of stages.
        stage: Option<Text>,
        /// Demangled name as the tool gave it.
        name: Text,
        /// Short name for tables.
        short_name: Text,
        /// Kind of work.
        family: Text,
        /// Grid in blocks, as `XxYxZ`; null where not recorded.
        grid: Option<Text>,
        /// Block in threads, as `XxYxZ`; null where not recorded.
        block: Option<Text>,
        /// GPU number; null where only totals are known.
        device: Option<i64>,
        /// Number of launches.
        calls: i64,
        /// Total time, ns.
        total_ns: i64,
        /// Shortest launch, ns.
        min_ns: Option<i64>,
        /// Longest launch, ns.
        max_ns: Option<i64>,
        /// Share of the kernel time of the run, %.
        share_pct: Option<f64>,
    }

    /// A hardware counter of one kernel and launch shape.
    CounterRow in "counters" by ["metric", "run_key"] {
        /// Key of the run.
        run_key: Text,
        /// Stage name; null where unknown.
        stage: Option<Text>,
        /// Kernel name.
        kernel: Text,
        /// Grid in blocks, as `XxYxZ`.
        grid: Text,
        /// Block in threads, as `XxYxZ`.
        block: Text,
        /// Counter, as the field of `counters[]`.
        metric: Text,
        /// Unit: `%`, `ns`, `bytes`, `flops`, `flops/byte`, `flops/s`, `bytes/s`, `ratio` or `launches`.
        unit: Text,
        /// Value.
        value: f64,
    }

    /// A finding.
    FindingRow in "findings" by ["finding", "run_key"] {
        /// Key of the run.
        run_key: Text,
        /// Stable id of the rule, as in `findings[].id`.
        finding: Text,
        /// Stage name; null for the whole run.
        stage: Option<Text>,
        /// Place in the order by possible saving, from 1.
        position: i64,
        /// Upper bound on the saving, ns.
        bound_ns: i64,
        /// Upper bound on the saving, % of the time of the stage.
        bound_pct: f64,
        /// Title of one line.
        title: Text,
        /// Action to take.
        action: Text,
    }

    /// The communication of one collective and group on one GPU.
    CommunicationRow in "communication" by ["collective", "run_key"] {
        /// Key of the run.
        run_key: Text,
        /// Rank that was recorded; null where unknown.
        rank: Option<i64>,
        /// GPU number; null on the CPU.
        device: Option<i64>,
        /// Processor that runs it: `gpu` or `cpu`.
        processor: Text,
        /// Collective, such as `all_reduce`.
        collective: Text,
        /// Process group; null where unknown.
        process_group: Option<Text>,
        /// Number of ranks in the group; null where unknown.
        group_size: Option<i64>,
        /// Number of kernels; on the CPU, of calls.
        calls: i64,
        /// Recorded message sizes, summed, bytes.
        bytes: Option<i64>,
        /// Total time, ns; null where no call was timed.
        total_ns: Option<i64>,
        /// Part of `total_ns` that no computation hides, ns.
        exposed_ns: Option<i64>,
        /// Bus bandwidth by the formulas of nccl-tests, bytes per second.
        bus_bandwidth_bytes_per_s: Option<f64>,
    }

    /// A rank of a distributed job.
    RankRow in "ranks" by ["run_key", "rank"] {
        /// Key of the run.
        run_key: Text,
        /// Rank.
        rank: i64,
        /// Number of ranks of the job; null where unknown.
        world_size: Option<i64>,
        /// Host of the rank; null where unknown.
        rank_host: Option<Text>,
        /// Number of kernels.
        kernel_count: i64,
        /// Total kernel time, ns.
        kernel_ns: i64,
        /// Time with at least one GPU operation, summed over GPUs, ns.
        busy_ns: Option<i64>,
        /// Total communication time, ns; null where none was timed.
        communication_ns: Option<i64>,
        /// Part of `communication_ns` that no computation hides, ns.
        exposed_ns: Option<i64>,
        /// Idle time, summed over stages, ns.
        idle_ns: Option<i64>,
        /// Exposed time in matched collectives before the last rank arrived, ns.
        waited_ns: Option<i64>,
        /// Number of matched collectives in which the rank arrived last.
        last_count: Option<i64>,
        /// Exposed time that the other ranks (their median) waited for it, ns.
        waited_for_ns: Option<i64>,
    }

    /// The requests that a load generator sent in a run, summarised.
    RequestRow in "requests" by ["run_key"] {
        /// Key of the run.
        run_key: Text,
        /// Requests sent, without those of the warm-up.
        sent: i64,
        /// Requests that were answered completely. All figures below are of these.
        completed: i64,
        /// Requests that failed.
        failed: i64,
        /// Prompt tokens; null where the server does not count them.
        prompt_tokens: Option<i64>,
        /// Generated tokens; null where the server does not count them.
        output_tokens: Option<i64>,
        /// Time from the first request to the end of the last answer, ns.
        window_ns: i64,
        /// Time to first token, mean, ns.
        ttft_mean_ns: Option<i64>,
        /// Time to first token, median, ns.
        ttft_p50_ns: Option<i64>,
        /// Time to first token, 90th percentile, ns.
        ttft_p90_ns: Option<i64>,
        /// Time to first token, 99th percentile, ns.
        ttft_p99_ns: Option<i64>,
        /// Time between parts of an answer, mean, ns.
        itl_mean_ns: Option<i64>,
        /// Time between parts of an answer, median, ns.
        itl_p50_ns: Option<i64>,
        /// Time between parts of an answer, 90th percentile, ns.
        itl_p90_ns: Option<i64>,
        /// Time between parts of an answer, 99th percentile, ns.
        itl_p99_ns: Option<i64>,
        /// Time from the request to the end of the answer, mean, ns.
        e2e_mean_ns: Option<i64>,
        /// Time from the request to the end of the answer, median, ns.
        e2e_p50_ns: Option<i64>,
        /// Time from the request to the end of the answer, 90th percentile, ns.
        e2e_p90_ns: Option<i64>,
        /// Time from the request to the end of the answer, 99th percentile, ns.
        e2e_p99_ns: Option<i64>,
        /// Generated tokens per second of the window.
        tokens_per_s: Option<f64>,
        /// Completed requests per second of the window.
        requests_per_s: Option<f64>,
    }

    /// An input that could not be added.
    ErrorRow in "errors" by ["source"] {
        /// Key of the input: a hash of its content, project and labels, of its path where the content is not readable.
        run_key: Text,
        /// Path or address.
        source: Text,
        /// Error message.
        error: Text,
        /// Version of roofgap that failed.
        roofgap_version: Text,
    }

    /// A single kernel, copy, memset or graph; only with `--events`.
    EventRow in "events" by ["run_key", "start_ns"] {
        /// Key of the run.
        run_key: Text,
        /// `kernel`, `memcpy`, `memset` or `graph`.
        kind: Text,
        /// Name.
        name: Text,
        /// Stage name; null outside of stages.
        stage: Option<Text>,
        /// GPU number.
        device: Option<i64>,
        /// Stream.
        stream: i64,
        /// Start on the clock of the capture, ns.
        start_ns: i64,
        /// End on the clock of the capture, ns.
        end_ns: i64,
        /// Grid in blocks, as `XxYxZ`; null where it has none.
        grid: Option<Text>,
        /// Block in threads, as `XxYxZ`; null where it has none.
        block: Option<Text>,
    }
}
