-- Drivers, engines, models, GPUs, hosts and commits that appeared since a date.
-- Parameters:
--   date  first date, default 2026-01-01
-- Columns:
--   kind        driver, cuda, engine, model, gpu, host or commit
--   value       name or version
--   first_date  date of its first run
--   runs        runs since then
WITH combinations AS (
    SELECT driver, cuda, engine, engine_version, model, gpu, host, git_commit, MIN(date) AS day, COUNT(*) AS run_count
    FROM runs
    GROUP BY driver, cuda, engine, engine_version, model, gpu, host, git_commit
),
kinds AS (
    SELECT 'driver' AS kind
    UNION ALL SELECT 'cuda' AS kind
    UNION ALL SELECT 'engine' AS kind
    UNION ALL SELECT 'model' AS kind
    UNION ALL SELECT 'gpu' AS kind
    UNION ALL SELECT 'host' AS kind
    UNION ALL SELECT 'commit' AS kind
),
seen AS (
    SELECT kind,
        CASE kind
            WHEN 'driver' THEN driver
            WHEN 'cuda' THEN cuda
            WHEN 'engine' THEN CASE WHEN engine IS NOT NULL THEN CONCAT(engine, ' ', COALESCE(engine_version, 'unknown')) END
            WHEN 'model' THEN model
            WHEN 'gpu' THEN gpu
            WHEN 'host' THEN host
            ELSE git_commit
        END AS value,
        day, run_count
    FROM combinations
    CROSS JOIN kinds
)
SELECT kind, value, MIN(day) AS first_date, SUM(run_count) AS runs
FROM seen
WHERE value IS NOT NULL
GROUP BY kind, value
HAVING MIN(day) >= {{date:2026-01-01}}
ORDER BY first_date, kind, value
