-- Cost of a million tokens by model and GPU.
-- Needs the table of prices: a CSV file with the columns gpu (as in runs.gpu) and price_per_hour; the highest counts where a GPU is there
-- twice. Uses the runs whose tokens per second are known (runs.tokens_per_s), weighted by their wall time. Time outside of the repeats, the
-- load or the steps that the rate was measured over is not in the cost.
-- Parameters:
--   since  first date, default all
-- Columns:
--   model, dtype, gpu, engine, workload  the group
--   runs                    runs
--   gpu_hours               wall time of all GPUs of the runs, hours
--   tokens_per_s            tokens per second of a GPU
--   price_per_hour          price; null where the table has none
--   cost_per_million_tokens  cost; null without a price
WITH totals AS (
    SELECT model, dtype, gpu, engine, workload,
        COUNT(*) AS runs,
        SUM(CAST(wall_ns AS DOUBLE) * gpus) AS gpu_ns,
        SUM(tokens_per_s * wall_ns / 1e9) AS tokens
    FROM runs
    WHERE date >= {{since:1970-01-01}} AND tokens_per_s > 0 AND wall_ns > 0 AND gpus > 0
    GROUP BY model, dtype, gpu, engine, workload
)
SELECT g.model, g.dtype, g.gpu, g.engine, g.workload, g.runs,
    g.gpu_ns / 3.6e12 AS gpu_hours,
    1e9 * g.tokens / g.gpu_ns AS tokens_per_s,
    p.price_per_hour,
    1e6 * p.price_per_hour * (g.gpu_ns / 3.6e12) / g.tokens AS cost_per_million_tokens
FROM totals g
LEFT JOIN (SELECT gpu, MAX(price_per_hour) AS price_per_hour FROM prices GROUP BY gpu) p ON p.gpu = g.gpu
ORDER BY cost_per_million_tokens NULLS LAST, model NULLS LAST, dtype NULLS LAST, gpu NULLS LAST, engine NULLS LAST, workload NULLS LAST
