-- Ranks that compute longer than the other ranks of their job.
-- Compares the time of kernels without communication of each rank with the mean of the other ranks of the same run, then averages over runs.
-- A slow rank also spends less time in communication, because the others wait for it there.
-- Parameters:
--   since     first date, default all
--   min_runs  least number of runs of a rank, default 1
--   limit     rows, default 50
-- Columns:
--   rank_host          host of the rank
--   rank               number of the rank
--   runs               runs
--   slowdown_pct       compute time above that of the other ranks, %
--   communication_pct  communication time above that of the other ranks, %; below 0 where the others wait
WITH compute AS (
    SELECT run_key, rank_host, rank, kernel_ns - communication_ns AS ns, communication_ns
    FROM ranks
    WHERE date >= {{since:1970-01-01}} AND kernel_ns IS NOT NULL AND communication_ns IS NOT NULL
        AND run_key IN (SELECT run_key FROM runs)
),
jobs AS (
    SELECT compute.*,
        COUNT(*) OVER (PARTITION BY run_key) AS n,
        SUM(ns) OVER (PARTITION BY run_key) AS all_ns,
        SUM(communication_ns) OVER (PARTITION BY run_key) AS all_communication_ns
    FROM compute
),
ratios AS (
    SELECT rank_host, rank,
        CAST(ns AS DOUBLE) * (n - 1) / (all_ns - ns) AS ratio,
        CAST(communication_ns AS DOUBLE) * (n - 1) / NULLIF(all_communication_ns - communication_ns, 0) AS communication_ratio
    FROM jobs
    WHERE n > 1 AND all_ns > ns
)
SELECT rank_host, rank, COUNT(*) AS runs,
    100e0 * (AVG(ratio) - 1e0) AS slowdown_pct,
    100e0 * (AVG(communication_ratio) - 1e0) AS communication_pct
FROM ratios
GROUP BY rank_host, rank
HAVING COUNT(*) >= {{min_runs:1}}
ORDER BY slowdown_pct DESC, rank_host NULLS LAST, rank
LIMIT {{limit:50}}
