-- Tokens per second by version of the engine.
-- Versions are in the order in which they were first used. The change is from the previous version of the same engine for the same model,
-- type, GPU, workload, batch size, number of prompt and generated tokens, labels and number of ranks.
-- Parameters:
--   since  first date, default all
-- Columns:
--   engine, model, dtype, gpu, workload, batch, prompt_tokens, output_tokens, labels, world_size  the group
--   engine_version  version
--   first_date      date of its first run
--   runs            runs
--   tokens_per_s    mean tokens per second of a run
--   best            highest tokens per second of a run
--   change_pct      change of the mean from the previous version, %; above 0 is faster
WITH versions AS (
    SELECT engine, model, dtype, gpu, workload, batch, prompt_tokens, output_tokens, labels, world_size, engine_version,
        MIN(date) AS first_date, COUNT(*) AS runs, AVG(tokens_per_s) AS tokens_per_s, MAX(tokens_per_s) AS best
    FROM runs
    WHERE date >= {{since:1970-01-01}} AND engine IS NOT NULL AND tokens_per_s > 0
    GROUP BY engine, model, dtype, gpu, workload, batch, prompt_tokens, output_tokens, labels, world_size, engine_version
),
pairs AS (
    SELECT versions.*,
        LAG(tokens_per_s) OVER (
            PARTITION BY engine, model, dtype, gpu, workload, batch, prompt_tokens, output_tokens, labels, world_size
            ORDER BY first_date, engine_version NULLS LAST
        ) AS previous
    FROM versions
)
SELECT engine, model, dtype, gpu, workload, batch, prompt_tokens, output_tokens, labels, world_size, engine_version,
    first_date, runs, tokens_per_s, best,
    100e0 * (tokens_per_s / previous - 1e0) AS change_pct
FROM pairs
ORDER BY engine, model NULLS LAST, dtype NULLS LAST, gpu NULLS LAST, workload NULLS LAST, batch NULLS LAST, prompt_tokens NULLS LAST,
    output_tokens NULLS LAST, labels NULLS LAST, world_size NULLS LAST, first_date, engine_version NULLS LAST
