-- Runs of each host and day.
-- Shows the days on which a host was not profiled, and those on which inputs could not be read.
-- Parameters:
--   since  first date, default all
--   until  last date, default all
-- Columns:
--   date, host  the day and the host
--   runs        runs in the lake
--   unreadable  inputs that could not be added, and were not added later
--   models      models
--   gpu_hours   elapsed time of the stages of all GPUs of the runs, hours
SELECT date, host,
    SUM(is_run) AS runs,
    SUM(is_error) AS unreadable,
    COUNT(DISTINCT model) AS models,
    SUM(gpu_ns) / 3.6e12 AS gpu_hours
FROM (
    SELECT date, host, 1 AS is_run, 0 AS is_error, model, COALESCE(CAST(wall_ns AS DOUBLE) * gpus, 0e0) AS gpu_ns
    FROM runs
    UNION ALL
    SELECT e.date, e.host, 0 AS is_run, 1 AS is_error, CAST(NULL AS VARCHAR(1)) AS model, 0e0 AS gpu_ns
    FROM errors e
    LEFT JOIN runs r ON r.run_key = e.run_key
    WHERE r.run_key IS NULL
) days
WHERE date >= {{since:1970-01-01}} AND date <= {{until:2149-01-01}}
GROUP BY date, host
ORDER BY date, host
