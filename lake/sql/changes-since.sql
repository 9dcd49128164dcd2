-- Stages whose time changed since a date.
-- Compares the runs before the date with those since, for the same project, model, type, GPU, workload, engine, batch size, number of prompt
-- and generated tokens, labels, number of ranks and stage. Runs without a model are left out, because nothing tells that they did the
-- same work.
-- Parameters:
--   date     first date of the runs that are compared with the earlier ones, default 2026-01-01
--   from     first date of the earlier runs, default all
--   min_pct  least change, %, default 3
--   limit    rows, default 50
-- Columns:
--   project, model, dtype, gpu, workload, engine, batch, prompt_tokens, output_tokens, labels, world_size, stage  the series
--   per          token or instance
--   runs_before  runs before the date
--   runs_since   runs since the date
--   before_ns    mean time before, ns per token or instance
--   since_ns     mean time since, ns per token or instance
--   change_pct   change, %; above 0 is slower
--   lost_hours   time lost since the date, hours of the stage; below 0 is won
WITH samples AS (
    SELECT r.project AS project, r.model, r.dtype, r.gpu, r.workload, r.engine, r.batch, r.prompt_tokens, r.output_tokens, r.labels,
        r.world_size, s.stage,
        CASE WHEN r.date >= {{date:2026-01-01}} THEN 1 ELSE 0 END AS later,
        CASE WHEN s.token_ns > 0 THEN 'token' ELSE 'instance' END AS per,
        CASE WHEN s.token_ns > 0 THEN CAST(s.token_ns AS DOUBLE) ELSE CAST(s.elapsed_ns AS DOUBLE) / s.instances END AS ns,
        CAST(s.elapsed_ns AS DOUBLE) AS elapsed_ns
    FROM stages s
    JOIN runs r ON r.run_key = s.run_key
    WHERE s.date >= {{from:1970-01-01}} AND r.date >= {{from:1970-01-01}} AND r.model IS NOT NULL AND s.elapsed_ns > 0 AND s.instances > 0
),
sides AS (
    SELECT project, model, dtype, gpu, workload, engine, batch, prompt_tokens, output_tokens, labels, world_size, stage, per,
        SUM(1 - later) AS runs_before,
        SUM(later) AS runs_since,
        AVG(CASE WHEN later = 0 THEN ns END) AS before_ns,
        AVG(CASE WHEN later = 1 THEN ns END) AS since_ns,
        SUM(CASE WHEN later = 1 THEN elapsed_ns END) AS elapsed_ns
    FROM samples
    GROUP BY project, model, dtype, gpu, workload, engine, batch, prompt_tokens, output_tokens, labels, world_size, stage, per
)
SELECT project, model, dtype, gpu, workload, engine, batch, prompt_tokens, output_tokens, labels, world_size, stage, per,
    runs_before, runs_since, before_ns, since_ns,
    100e0 * (since_ns / before_ns - 1e0) AS change_pct,
    elapsed_ns * (1e0 - before_ns / since_ns) / 3.6e12 AS lost_hours
FROM sides
WHERE runs_before > 0 AND runs_since > 0 AND 100e0 * ABS(since_ns / before_ns - 1e0) >= {{min_pct:3}}
ORDER BY change_pct DESC, project, model, dtype NULLS LAST, gpu NULLS LAST, workload NULLS LAST, engine NULLS LAST, batch NULLS LAST,
    prompt_tokens NULLS LAST, output_tokens NULLS LAST, labels NULLS LAST, world_size NULLS LAST, stage, per
LIMIT {{limit:50}}
