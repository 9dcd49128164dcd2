-- Hosts that are slower than others at the same work.
-- Compares the mean time of a host with the mean of the other hosts for the same project, commit, model, type, GPU, workload, engine, batch
-- size, number of prompt and generated tokens, labels, number of ranks and stage, then averages over these groups, weighted by runs.
-- Runs without a host, commit or model, and those with uncommitted changes, are left out.
-- Parameters:
--   since     first date, default all
--   min_runs  least number of compared stages of a host, default 3
--   limit     rows, default 50
-- Columns:
--   host          host
--   gpu           GPU
--   host_groups   groups in which the host is compared
--   stage_rows    stages of runs that are compared
--   slowdown_pct  mean time above that of the other hosts, %
WITH by_host AS (
    SELECT r.project AS project, r.git_commit, r.model, r.dtype, r.gpu, r.workload, r.engine, r.batch, r.prompt_tokens, r.output_tokens, r.labels,
        r.world_size, s.stage,
        CASE WHEN s.token_ns > 0 THEN 1 ELSE 0 END AS per_token,
        r.host AS host,
        COUNT(*) AS n,
        SUM(CASE WHEN s.token_ns > 0 THEN CAST(s.token_ns AS DOUBLE) ELSE CAST(s.elapsed_ns AS DOUBLE) / s.instances END) AS ns
    FROM stages s
    JOIN runs r ON r.run_key = s.run_key
    WHERE s.date >= {{since:1970-01-01}}
        AND r.date >= {{since:1970-01-01}}
        AND r.host <> 'unknown'
        AND r.git_commit IS NOT NULL
        AND (r.git_dirty IS NULL OR NOT r.git_dirty)
        AND r.model IS NOT NULL
        AND s.elapsed_ns > 0
        AND s.instances > 0
    GROUP BY r.project, r.git_commit, r.model, r.dtype, r.gpu, r.workload, r.engine, r.batch, r.prompt_tokens, r.output_tokens, r.labels,
        r.world_size, s.stage,
        CASE WHEN s.token_ns > 0 THEN 1 ELSE 0 END, r.host
),
compared AS (
    SELECT by_host.*,
        SUM(n) OVER same_work AS all_n,
        SUM(ns) OVER same_work AS all_ns
    FROM by_host
    WINDOW same_work AS (
        PARTITION BY project, git_commit, model, dtype, gpu, workload, engine, batch, prompt_tokens, output_tokens, labels, world_size,
            stage, per_token
    )
),
hosts AS (
    SELECT host, gpu, COUNT(*) AS host_groups, SUM(n) AS stage_rows,
        SUM(n * ((ns / n) / ((all_ns - ns) / (all_n - n)))) / SUM(n) AS ratio
    FROM compared
    WHERE all_n > n AND all_ns > ns
    GROUP BY host, gpu
)
SELECT host, gpu, host_groups, stage_rows, 100e0 * (ratio - 1e0) AS slowdown_pct
FROM hosts
WHERE stage_rows >= {{min_runs:3}}
ORDER BY slowdown_pct DESC, host, gpu NULLS LAST
LIMIT {{limit:50}}
