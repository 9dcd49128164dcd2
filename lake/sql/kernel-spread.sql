-- Kernel shapes whose time varies most between runs.
-- For each kernel, shape, GPU and model, compares the fastest and the slowest run by the mean time of a launch. A large spread at the same
-- shape points at clocks, contention or data.
-- Parameters:
--   since     first date, default all
--   min_runs  least number of runs, default 5
--   min_hours  least total time, hours, default 0
--   limit     rows, default 50
-- Columns:
--   short_name, grid, block, gpu, model  the kernel
--   runs        runs with the kernel
--   calls       launches
--   gpu_hours   total time, hours
--   mean_ns     mean time of a launch, ns
--   fastest_ns  mean time of a launch in the fastest run, ns
--   slowest_ns  mean time of a launch in the slowest run, ns
--   spread      slowest divided by fastest
WITH by_run AS (
    SELECT k.run_key, k.short_name, k.grid, k.block, SUM(k.calls) AS calls, SUM(k.total_ns) AS total_ns
    FROM kernels k
    WHERE k.date >= {{since:1970-01-01}} AND k.calls > 0 AND k.total_ns > 0
    GROUP BY k.run_key, k.short_name, k.grid, k.block
),
shapes AS (
    SELECT b.short_name, b.grid, b.block, r.gpu, r.model,
        COUNT(*) AS runs, SUM(b.calls) AS calls, SUM(b.total_ns) AS total_ns,
        MIN(CAST(b.total_ns AS DOUBLE) / b.calls) AS fastest_ns,
        MAX(CAST(b.total_ns AS DOUBLE) / b.calls) AS slowest_ns
    FROM by_run b
    JOIN runs r ON r.run_key = b.run_key
    WHERE r.date >= {{since:1970-01-01}}
    GROUP BY b.short_name, b.grid, b.block, r.gpu, r.model
)
SELECT short_name, grid, block, gpu, model, runs, calls,
    total_ns / 3.6e12 AS gpu_hours,
    CAST(total_ns AS DOUBLE) / calls AS mean_ns,
    fastest_ns, slowest_ns,
    slowest_ns / fastest_ns AS spread
FROM shapes
WHERE runs >= {{min_runs:5}} AND total_ns / 3.6e12 >= {{min_hours:0}}
ORDER BY spread DESC, short_name, grid NULLS LAST, block NULLS LAST, gpu NULLS LAST, model NULLS LAST
LIMIT {{limit:50}}
