-- Time of a stage by commit.
-- One row for each series and commit, in the order in which the commits were first profiled. A series is one project, model, type, GPU,
-- workload, engine, batch size, number of prompt and generated tokens, labels and number of ranks. Runs without a model are in one series
-- whatever they ran: give them labels. Runs with uncommitted changes are left out. Time is per token where the tokens are known, else per
-- instance of the stage.
-- Parameters:
--   stage  name of the stage, default decode
--   model  name of the model, default all
--   since  first date, default all
-- Columns:
--   project, model, dtype, gpu, workload, engine, batch, prompt_tokens, output_tokens, labels, world_size  the series
--   per         token or instance
--   git_commit  commit
--   first_date  date of the first run of the commit
--   runs        runs of the commit
--   mean_ns     mean time, ns per token or instance
--   min_ns      shortest time of a run, ns
--   max_ns      longest time of a run, ns
--   change_pct  change of the mean from the previous commit, %
WITH samples AS (
    SELECT r.project AS project, r.model, r.dtype, r.gpu, r.workload, r.engine, r.batch, r.prompt_tokens, r.output_tokens, r.labels,
        r.world_size, r.git_commit, r.date AS date, r.started_at,
        CASE WHEN s.token_ns > 0 THEN 'token' ELSE 'instance' END AS per,
        CASE WHEN s.token_ns > 0 THEN CAST(s.token_ns AS DOUBLE) ELSE CAST(s.elapsed_ns AS DOUBLE) / s.instances END AS ns
    FROM stages s
    JOIN runs r ON r.run_key = s.run_key
    WHERE s.stage = {{stage:decode}}
        AND s.date >= {{since:1970-01-01}}
        AND r.date >= {{since:1970-01-01}}
        AND ({{model:}} = '' OR r.model = {{model:}})
        AND r.git_commit IS NOT NULL
        AND (r.git_dirty IS NULL OR NOT r.git_dirty)
        AND s.elapsed_ns > 0
        AND s.instances > 0
),
commits AS (
    SELECT project, model, dtype, gpu, workload, engine, batch, prompt_tokens, output_tokens, labels, world_size, per, git_commit,
        MIN(date) AS first_date, MIN(started_at) AS first_start, COUNT(*) AS runs,
        AVG(ns) AS mean_ns, MIN(ns) AS min_ns, MAX(ns) AS max_ns
    FROM samples
    GROUP BY project, model, dtype, gpu, workload, engine, batch, prompt_tokens, output_tokens, labels, world_size, per, git_commit
),
previous AS (
    SELECT commits.*,
        LAG(mean_ns) OVER (
            PARTITION BY project, model, dtype, gpu, workload, engine, batch, prompt_tokens, output_tokens, labels, world_size, per
            ORDER BY first_date, first_start NULLS LAST, git_commit
        ) AS previous_ns
    FROM commits
)
SELECT project, model, dtype, gpu, workload, engine, batch, prompt_tokens, output_tokens, labels, world_size, per, git_commit,
    first_date, runs, mean_ns, min_ns, max_ns,
    100e0 * (mean_ns / previous_ns - 1e0) AS change_pct
FROM previous
ORDER BY project, model NULLS LAST, dtype NULLS LAST, gpu NULLS LAST, workload NULLS LAST, engine NULLS LAST, batch NULLS LAST,
    prompt_tokens NULLS LAST, output_tokens NULLS LAST, labels NULLS LAST, world_size NULLS LAST, per,
    first_date, first_start NULLS LAST, git_commit
