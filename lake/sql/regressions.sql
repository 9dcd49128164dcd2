-- Commits at which a stage became slower or faster.
-- For each commit of a series, compares the runs of the commits before it, as many as the window has, with its own runs and those of as
-- many commits after it. A change point is a commit whose change is the largest within a window on either side, is at least min_pct, and is
-- at least min_sigma standard errors of the difference of the two means. A series is one project, model, type, GPU, workload, engine, batch
-- size, number of prompt and generated tokens, labels, number of ranks and stage. Commits are in the order of their first run, so an old commit
-- that is profiled late counts as new. Runs without a model are left out, because nothing tells that they did the same work, and so are
-- runs with uncommitted changes.
-- Parameters:
--   window     commits before, and commits after, default 5
--   min_pct    least change, %, default 5
--   min_sigma  least change in standard errors, default 4
--   min_runs   least number of runs on either side, default 3
--   since      first date, default all
-- Columns:
--   project, model, dtype, gpu, workload, engine, batch, prompt_tokens, output_tokens, labels, world_size, stage  the series
--   per          token or instance
--   git_commit   first commit with the changed time
--   first_date   date of its first run
--   before_ns    mean time before, ns per token or instance
--   after_ns     mean time since, ns per token or instance
--   change_pct   change, %; above 0 is slower
--   noise_pct    standard deviation of a run about the means before and since, % of the mean of the series
--   runs_before  runs before, within the window
--   runs_after   runs since, within the window
WITH samples AS (
    SELECT r.project AS project, r.model, r.dtype, r.gpu, r.workload, r.engine, r.batch, r.prompt_tokens, r.output_tokens, r.labels,
        r.world_size, s.stage, r.git_commit, r.date AS date, r.started_at,
        CASE WHEN s.token_ns > 0 THEN 'token' ELSE 'instance' END AS per,
        CASE WHEN s.token_ns > 0 THEN CAST(s.token_ns AS DOUBLE) ELSE CAST(s.elapsed_ns AS DOUBLE) / s.instances END AS ns
    FROM stages s
    JOIN runs r ON r.run_key = s.run_key
    WHERE s.date >= {{since:1970-01-01}}
        AND r.date >= {{since:1970-01-01}}
        AND r.git_commit IS NOT NULL
        AND (r.git_dirty IS NULL OR NOT r.git_dirty)
        AND r.model IS NOT NULL
        AND s.elapsed_ns > 0
        AND s.instances > 0
),
commits AS (
    SELECT project, model, dtype, gpu, workload, engine, batch, prompt_tokens, output_tokens, labels, world_size, stage, per, git_commit,
        MIN(date) AS first_date, MIN(started_at) AS first_start, COUNT(*) AS runs, SUM(ns) AS total, SUM(ns * ns) AS squares
    FROM samples
    GROUP BY project, model, dtype, gpu, workload, engine, batch, prompt_tokens, output_tokens, labels, world_size, stage, per, git_commit
),
numbered AS (
    SELECT commits.*,
        DENSE_RANK() OVER (
            ORDER BY project, model, dtype, gpu, workload, engine, batch, prompt_tokens, output_tokens, labels, world_size, stage, per
        ) AS series
    FROM commits
),
scaled AS (
    SELECT numbered.*,
        SUM(total) OVER (PARTITION BY series) / SUM(runs) OVER (PARTITION BY series) AS center
    FROM numbered
),
-- Times relative to the mean of the series.
relative AS (
    SELECT scaled.*,
        total / center - runs AS sum_rel,
        squares / (center * center) - 2e0 * total / center + runs AS sum_rel2
    FROM scaled
),
sides AS (
    SELECT relative.*,
        SUM(runs) OVER earlier AS n0,
        SUM(sum_rel) OVER earlier AS a0,
        SUM(sum_rel2) OVER earlier AS q0,
        SUM(runs) OVER later AS n1,
        SUM(sum_rel) OVER later AS a1,
        SUM(sum_rel2) OVER later AS q1
    FROM relative
    WINDOW earlier AS (
            PARTITION BY series
            ORDER BY first_date, first_start NULLS LAST, git_commit
            ROWS BETWEEN {{window:5}} PRECEDING AND 1 PRECEDING
        ),
        later AS (
            PARTITION BY series
            ORDER BY first_date, first_start NULLS LAST, git_commit
            ROWS BETWEEN CURRENT ROW AND {{window:5}} FOLLOWING
        )
),
differences AS (
    SELECT sides.*,
        a0 / n0 AS mean0,
        a1 / n1 AS mean1,
        ABS((1e0 + a1 / n1) / (1e0 + a0 / n0) - 1e0) AS size,
        (q0 - a0 * a0 / n0 + q1 - a1 * a1 / n1) / NULLIF(n0 + n1 - 2, 0) AS variance
    FROM sides
    WHERE n0 >= {{min_runs:3}} AND n1 >= {{min_runs:3}}
),
peaks AS (
    SELECT differences.*,
        MAX(size) OVER (
            PARTITION BY series
            ORDER BY first_date, first_start NULLS LAST, git_commit
            ROWS BETWEEN {{window:5}} PRECEDING AND {{window:5}} FOLLOWING
        ) AS peak
    FROM differences
)
SELECT project, model, dtype, gpu, workload, engine, batch, prompt_tokens, output_tokens, labels, world_size, stage, per, git_commit,
    first_date,
    center * (1e0 + mean0) AS before_ns,
    center * (1e0 + mean1) AS after_ns,
    100e0 * ((1e0 + mean1) / (1e0 + mean0) - 1e0) AS change_pct,
    100e0 * SQRT(CASE WHEN variance > 0 THEN variance ELSE 0e0 END) AS noise_pct,
    n0 AS runs_before,
    n1 AS runs_after
FROM peaks
WHERE size = peak
    AND 100e0 * size >= {{min_pct:5}}
    AND (mean1 - mean0) * (mean1 - mean0) >= {{min_sigma:4}} * {{min_sigma:4}} * variance * (1e0 / n0 + 1e0 / n1)
ORDER BY change_pct DESC, project, model, dtype NULLS LAST, gpu NULLS LAST, workload NULLS LAST, engine NULLS LAST, batch NULLS LAST,
    prompt_tokens NULLS LAST, output_tokens NULLS LAST, labels NULLS LAST, world_size NULLS LAST, stage, per, git_commit
