-- Ranks that compute longer than the other ranks of their job.
-- Compares the time of kernels without communication with the mean of the other ranks of the run. A slow rank spends less time in
-- communication, because the others wait for it there.
WITH compute AS (
    SELECT k.run_key, k.rank_host, k.rank, k.kernel_ns - k.communication_ns AS ns, k.communication_ns
    FROM ranks k
    JOIN runs r ON r.run_key = k.run_key
    WHERE k.date >= {{since:1970-01-01}} AND k.communication_ns IS NOT NULL
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
