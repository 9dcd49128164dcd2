-- Hosts that are slower than others at the same work.
-- Compares the mean time of a host with that of the other hosts for the same work, commit and stage, and averages over these groups.
WITH by_host AS (
    SELECT r.work, r.git_commit, s.stage, r.host, r.gpu,
        CASE WHEN s.token_ns > 0 THEN 1 ELSE 0 END AS per_token,
        COUNT(*) AS n,
        SUM(CASE WHEN s.token_ns > 0 THEN CAST(s.token_ns AS DOUBLE) ELSE CAST(s.elapsed_ns AS DOUBLE) / s.instances END) AS ns
    FROM stages s
    JOIN runs r ON r.run_key = s.run_key
    WHERE s.date >= {{since:1970-01-01}} AND r.host IS NOT NULL AND r.work IS NOT NULL AND r.git_commit IS NOT NULL
        AND (r.git_dirty IS NULL OR NOT r.git_dirty) AND s.elapsed_ns > 0 AND s.instances > 0
    GROUP BY r.work, r.git_commit, s.stage, r.host, r.gpu, CASE WHEN s.token_ns > 0 THEN 1 ELSE 0 END
),
compared AS (
    SELECT by_host.*, SUM(n) OVER same_work AS all_n, SUM(ns) OVER same_work AS all_ns
    FROM by_host
    WINDOW same_work AS (PARTITION BY work, git_commit, stage, per_token)
)
SELECT host, gpu, SUM(n) AS stage_rows,
    100e0 * (SUM(n * ((ns / n) / ((all_ns - ns) / (all_n - n)))) / SUM(n) - 1e0) AS slowdown_pct
FROM compared
WHERE all_n > n AND all_ns > ns
GROUP BY host, gpu
HAVING SUM(n) >= {{min_runs:3}}
ORDER BY slowdown_pct DESC, host, gpu NULLS LAST
LIMIT {{limit:50}}
