-- Commits at which a stage became slower or faster.
-- For each commit of one work and stage, compares the runs of up to `window` commits before it with its own runs and those of as many
-- commits after it. A change point is the largest change within a window on either side, is at least `min_pct`, and at least `min_sigma`
-- standard errors of the difference of the two means. Commits are in the order of their first run; runs with uncommitted changes are left out.
WITH commits AS (
    SELECT r.work, s.stage, r.git_commit,
        CASE WHEN s.token_ns > 0 THEN 'token' ELSE 'instance' END AS per,
        MIN(r.started_at) AS first_start, COUNT(*) AS runs,
        SUM(CASE WHEN s.token_ns > 0 THEN CAST(s.token_ns AS DOUBLE) ELSE CAST(s.elapsed_ns AS DOUBLE) / s.instances END) AS total,
        SUM(POWER(CASE WHEN s.token_ns > 0 THEN CAST(s.token_ns AS DOUBLE) ELSE CAST(s.elapsed_ns AS DOUBLE) / s.instances END, 2)) AS squares
    FROM stages s
    JOIN runs r ON r.run_key = s.run_key
    WHERE s.date >= {{since:1970-01-01}} AND r.work IS NOT NULL AND r.git_commit IS NOT NULL AND (r.git_dirty IS NULL OR NOT r.git_dirty)
        AND s.elapsed_ns > 0 AND s.instances > 0
    GROUP BY r.work, s.stage, r.git_commit, CASE WHEN s.token_ns > 0 THEN 'token' ELSE 'instance' END
),
scaled AS (
    SELECT commits.*, SUM(total) OVER (PARTITION BY work, stage, per) / SUM(runs) OVER (PARTITION BY work, stage, per) AS center
    FROM commits
),
-- Times relative to the mean of the series.
relative AS (
    SELECT scaled.*, total / center - runs AS sum_rel, squares / (center * center) - 2e0 * total / center + runs AS sum_rel2
    FROM scaled
),
sides AS (
    SELECT relative.*,
        SUM(runs) OVER earlier AS n0, SUM(sum_rel) OVER earlier AS a0, SUM(sum_rel2) OVER earlier AS q0,
        SUM(runs) OVER later AS n1, SUM(sum_rel) OVER later AS a1, SUM(sum_rel2) OVER later AS q1
    FROM relative
    WINDOW earlier AS (PARTITION BY work, stage, per ORDER BY first_start, git_commit ROWS BETWEEN {{window:5}} PRECEDING AND 1 PRECEDING),
        later AS (PARTITION BY work, stage, per ORDER BY first_start, git_commit ROWS BETWEEN CURRENT ROW AND {{window:5}} FOLLOWING)
),
differences AS (
    SELECT sides.*, a0 / n0 AS mean0, a1 / n1 AS mean1,
        ABS((1e0 + a1 / n1) / (1e0 + a0 / n0) - 1e0) AS size,
        (q0 - a0 * a0 / n0 + q1 - a1 * a1 / n1) / NULLIF(n0 + n1 - 2, 0) AS variance
    FROM sides
    WHERE n0 >= {{min_runs:3}} AND n1 >= {{min_runs:3}}
),
peaks AS (
    SELECT differences.*,
        MAX(size) OVER (
            PARTITION BY work, stage, per ORDER BY first_start, git_commit ROWS BETWEEN {{window:5}} PRECEDING AND {{window:5}} FOLLOWING
        ) AS peak
    FROM differences
)
SELECT work, stage, per, git_commit, first_start,
    center * (1e0 + mean0) AS before_ns,
    center * (1e0 + mean1) AS after_ns,
    100e0 * ((1e0 + mean1) / (1e0 + mean0) - 1e0) AS change_pct,
    n0 AS runs_before,
    n1 AS runs_after
FROM peaks
WHERE size = peak AND 100e0 * size >= {{min_pct:5}}
    AND (mean1 - mean0) * (mean1 - mean0) >= {{min_sigma:4}} * {{min_sigma:4}} * variance * (1e0 / n0 + 1e0 / n1)
ORDER BY change_pct DESC, work, stage, per, git_commit
