-- Tokens per second by version of the engine, in the order in which the versions were first used.
-- The change is from the previous version at the same work; above 0 is faster.
WITH versions AS (
    SELECT engine, work, engine_version, MIN(started_at) AS first_start, COUNT(*) AS runs, AVG(tokens_per_s) AS tokens_per_s
    FROM runs
    WHERE date >= {{since:1970-01-01}} AND engine IS NOT NULL AND work IS NOT NULL AND tokens_per_s > 0
    GROUP BY engine, work, engine_version
),
pairs AS (
    SELECT versions.*,
        LAG(tokens_per_s) OVER (PARTITION BY engine, work ORDER BY first_start, engine_version NULLS LAST) AS previous
    FROM versions
)
SELECT engine, work, engine_version, first_start, runs, tokens_per_s, 100e0 * (tokens_per_s / previous - 1e0) AS change_pct
FROM pairs
ORDER BY engine, work, first_start, engine_version NULLS LAST
