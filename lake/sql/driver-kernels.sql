-- Kernels that became slower or faster with a driver.
-- Compares the mean time of a launch of the same kernel and shape in the same stage, on the same GPU and for the same model, type, workload,
-- batch size and number of prompt and generated tokens, between a driver and the driver that was in use before it.
-- Parameters:
--   min_pct    least change, %, default 5
--   min_calls  least number of launches with either driver, default 10
--   since      first date, default all
--   limit      rows, default 50
-- Columns:
--   short_name, grid, block, stage, gpu, model, dtype, workload, batch, prompt_tokens, output_tokens  the kernel and its work
--   driver           driver
--   previous_driver  driver in use before
--   calls            launches with the driver
--   before_ns        mean time of a launch with the driver before, ns
--   after_ns         mean time of a launch with the driver, ns
--   change_pct       change, %; above 0 is slower
--   lost_hours       time lost with the driver, hours; below 0 is won
WITH by_driver AS (
    SELECT k.name, k.grid, k.block, k.stage, r.gpu, r.model, r.dtype, r.workload, r.batch, r.prompt_tokens, r.output_tokens, r.driver,
        MIN(k.short_name) AS short_name, MIN(r.date) AS first_date, SUM(k.calls) AS calls, SUM(CAST(k.total_ns AS DOUBLE)) AS total_ns
    FROM kernels k
    JOIN runs r ON r.run_key = k.run_key
    WHERE k.date >= {{since:1970-01-01}}
        AND r.date >= {{since:1970-01-01}}
        AND r.driver IS NOT NULL
        AND k.calls > 0
    GROUP BY k.name, k.grid, k.block, k.stage, r.gpu, r.model, r.dtype, r.workload, r.batch, r.prompt_tokens, r.output_tokens, r.driver
),
means AS (
    SELECT by_driver.*, total_ns / calls AS mean_ns
    FROM by_driver
    WHERE calls >= {{min_calls:10}}
),
pairs AS (
    SELECT means.*,
        LAG(driver) OVER same_work AS previous_driver,
        LAG(mean_ns) OVER same_work AS before_ns
    FROM means
    WINDOW same_work AS (
        PARTITION BY name, grid, block, stage, gpu, model, dtype, workload, batch, prompt_tokens, output_tokens
        ORDER BY first_date, driver
    )
)
SELECT short_name, grid, block, stage, gpu, model, dtype, workload, batch, prompt_tokens, output_tokens,
    driver, previous_driver, calls, before_ns,
    mean_ns AS after_ns,
    100e0 * (mean_ns / before_ns - 1e0) AS change_pct,
    calls * (mean_ns - before_ns) / 3.6e12 AS lost_hours
FROM pairs
WHERE before_ns > 0 AND ABS(mean_ns / before_ns - 1e0) * 100e0 >= {{min_pct:5}}
ORDER BY change_pct DESC, short_name, name, grid NULLS LAST, block NULLS LAST, stage NULLS LAST, gpu NULLS LAST, model NULLS LAST,
    dtype NULLS LAST, workload NULLS LAST, batch NULLS LAST, prompt_tokens NULLS LAST, output_tokens NULLS LAST, driver
LIMIT {{limit:50}}
