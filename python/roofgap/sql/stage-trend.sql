-- Time of a stage by commit, in the order in which the commits were first profiled.
-- Time is per token where the tokens are known, else per instance of the stage. Runs with uncommitted changes are left out.
WITH commits AS (
    SELECT r.work, r.git_commit,
        CASE WHEN s.token_ns > 0 THEN 'token' ELSE 'instance' END AS per,
        MIN(r.started_at) AS first_start, COUNT(*) AS runs,
        AVG(CASE WHEN s.token_ns > 0 THEN CAST(s.token_ns AS DOUBLE) ELSE CAST(s.elapsed_ns AS DOUBLE) / s.instances END) AS mean_ns
    FROM stages s
    JOIN runs r ON r.run_key = s.run_key
    WHERE s.date >= {{since:1970-01-01}} AND s.stage = {{stage:decode}} AND r.work IS NOT NULL AND r.git_commit IS NOT NULL
        AND (r.git_dirty IS NULL OR NOT r.git_dirty) AND s.elapsed_ns > 0 AND s.instances > 0
    GROUP BY r.work, r.git_commit, CASE WHEN s.token_ns > 0 THEN 'token' ELSE 'instance' END
),
previous AS (
    SELECT commits.*, LAG(mean_ns) OVER (PARTITION BY work, per ORDER BY first_start, git_commit) AS previous_ns
    FROM commits
)
SELECT work, per, git_commit, first_start, runs, mean_ns, 100e0 * (mean_ns / previous_ns - 1e0) AS change_pct
FROM previous
ORDER BY work, per, first_start, git_commit
