-- Kernel shapes whose time varies most between runs.
-- For each kernel, shape, stage, GPU, model, type, workload, batch size and number of prompt and generated tokens, compares the fastest and the
-- slowest run by the mean time of a launch. A large spread at the same shape points at clocks, contention or data.
-- Parameters:
--   since        first date, default all
--   min_samples  least number of samples, default 5
--   min_hours    least total time, hours, default 0
--   limit        rows, default 50
-- Columns:
--   short_name, grid, block, stage, gpu, model, dtype, workload, batch, prompt_tokens, output_tokens  the kernel and its work
--   samples     runs with the kernel, counted once for each of their GPUs
--   calls       launches
--   gpu_hours   total time, hours
--   mean_ns     mean time of a launch, ns
--   fastest_ns  mean time of a launch in the fastest sample, ns
--   slowest_ns  mean time of a launch in the slowest sample, ns
--   spread      slowest divided by fastest
WITH shapes AS (
    SELECT k.name, k.grid, k.block, k.stage, r.gpu, r.model, r.dtype, r.workload, r.batch, r.prompt_tokens, r.output_tokens,
        MIN(k.short_name) AS short_name, COUNT(*) AS samples, SUM(k.calls) AS calls, SUM(CAST(k.total_ns AS DOUBLE)) AS total_ns,
        MIN(CAST(k.total_ns AS DOUBLE) / k.calls) AS fastest_ns,
        MAX(CAST(k.total_ns AS DOUBLE) / k.calls) AS slowest_ns
    FROM kernels k
    JOIN runs r ON r.run_key = k.run_key
    WHERE k.date >= {{since:1970-01-01}} AND r.date >= {{since:1970-01-01}} AND k.calls > 0 AND k.total_ns > 0
    GROUP BY k.name, k.grid, k.block, k.stage, r.gpu, r.model, r.dtype, r.workload, r.batch, r.prompt_tokens, r.output_tokens
)
SELECT short_name, grid, block, stage, gpu, model, dtype, workload, batch, prompt_tokens, output_tokens, samples, calls,
    total_ns / 3.6e12 AS gpu_hours,
    total_ns / calls AS mean_ns,
    fastest_ns, slowest_ns,
    slowest_ns / fastest_ns AS spread
FROM shapes
WHERE samples >= {{min_samples:5}} AND total_ns / 3.6e12 >= {{min_hours:0}}
ORDER BY spread DESC, short_name, name, grid NULLS LAST, block NULLS LAST, stage NULLS LAST, gpu NULLS LAST, model NULLS LAST,
    dtype NULLS LAST, workload NULLS LAST, batch NULLS LAST, prompt_tokens NULLS LAST, output_tokens NULLS LAST
LIMIT {{limit:50}}
