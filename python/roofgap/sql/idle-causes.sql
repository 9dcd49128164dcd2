-- Idle time of the GPUs by cause, for each model and stage.
-- In % of the elapsed time of the GPUs: because the CPU had not launched yet, after a synchronisation, around a copy, and other.
WITH sums AS (
    SELECT r.model, r.gpu, s.stage,
        COUNT(*) AS runs,
        SUM(CAST(s.elapsed_ns AS DOUBLE) * s.gpus) AS gpu_ns,
        SUM(CAST(s.idle_launch_ns AS DOUBLE)) AS launch_ns,
        SUM(CAST(s.idle_sync_ns AS DOUBLE)) AS sync_ns,
        SUM(CAST(s.idle_copy_ns AS DOUBLE)) AS copy_ns,
        SUM(CAST(s.idle_other_ns AS DOUBLE)) AS other_ns
    FROM stages s
    JOIN runs r ON r.run_key = s.run_key
    WHERE s.date >= {{since:1970-01-01}} AND s.elapsed_ns > 0 AND s.gpus > 0 AND s.idle_launch_ns IS NOT NULL
    GROUP BY r.model, r.gpu, s.stage
)
SELECT model, gpu, stage, runs,
    gpu_ns / 3.6e12 AS gpu_hours,
    (launch_ns + sync_ns + copy_ns + other_ns) / 3.6e12 AS idle_hours,
    100e0 * launch_ns / gpu_ns AS launch_pct,
    100e0 * sync_ns / gpu_ns AS sync_pct,
    100e0 * copy_ns / gpu_ns AS copy_pct,
    100e0 * other_ns / gpu_ns AS other_pct
FROM sums
ORDER BY idle_hours DESC, model NULLS LAST, gpu NULLS LAST, stage
