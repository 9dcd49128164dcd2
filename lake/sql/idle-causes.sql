-- Idle time of the GPUs by cause, for each model and stage.
-- Times are summed over the GPUs of the stage. Stages whose causes of idle time are not known are left out.
-- Parameters:
--   since  first date, default all
-- Columns:
--   model, gpu, stage  the group
--   runs             runs with the stage
--   gpu_hours        elapsed time of the GPUs, hours
--   idle_hours       idle time of the GPUs, hours
--   idle_pct         idle time, % of the elapsed time
--   idle_launch_pct  idle because the CPU had not launched work yet, % of the elapsed time
--   idle_sync_pct    idle after a synchronisation, % of the elapsed time
--   idle_copy_pct    idle around a copy, % of the elapsed time
--   idle_other_pct   other idle time, % of the elapsed time
WITH sums AS (
    SELECT r.model, r.gpu, s.stage,
        COUNT(*) AS runs,
        SUM(CAST(s.elapsed_ns AS DOUBLE) * COALESCE(s.devices_per_instance, CAST(s.device_count AS DOUBLE))) AS gpu_ns,
        SUM(CAST(s.idle_launch_ns AS DOUBLE)) AS launch_ns,
        SUM(CAST(s.idle_sync_ns AS DOUBLE)) AS sync_ns,
        SUM(CAST(s.idle_copy_ns AS DOUBLE)) AS copy_ns,
        SUM(CAST(s.idle_other_ns AS DOUBLE)) AS other_ns
    FROM stages s
    JOIN runs r ON r.run_key = s.run_key
    WHERE s.date >= {{since:1970-01-01}}
        AND r.date >= {{since:1970-01-01}}
        AND s.elapsed_ns > 0
        AND s.device_count > 0
        AND s.idle_launch_ns IS NOT NULL
    GROUP BY r.model, r.gpu, s.stage
)
SELECT model, gpu, stage, runs,
    gpu_ns / 3.6e12 AS gpu_hours,
    (launch_ns + sync_ns + copy_ns + other_ns) / 3.6e12 AS idle_hours,
    100e0 * (launch_ns + sync_ns + copy_ns + other_ns) / NULLIF(gpu_ns, 0) AS idle_pct,
    100e0 * launch_ns / NULLIF(gpu_ns, 0) AS idle_launch_pct,
    100e0 * sync_ns / NULLIF(gpu_ns, 0) AS idle_sync_pct,
    100e0 * copy_ns / NULLIF(gpu_ns, 0) AS idle_copy_pct,
    100e0 * other_ns / NULLIF(gpu_ns, 0) AS idle_other_pct
FROM sums
ORDER BY idle_hours DESC NULLS LAST, model NULLS LAST, gpu NULLS LAST, stage
