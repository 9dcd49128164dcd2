-- Idle time of the GPU by cause, for each model and stage.
-- Parameters:
--   since  first date, default all
-- Columns:
--   model, gpu, stage  the group
--   runs            runs with the stage
--   elapsed_hours   elapsed time of the stage, hours
--   idle_hours      idle time, hours
--   idle_pct        idle time, % of the elapsed time
--   idle_launch_pct  idle because the CPU had not launched work yet, % of the elapsed time
--   idle_sync_pct   idle after a synchronisation, % of the elapsed time
--   idle_copy_pct   idle around a copy, % of the elapsed time
--   idle_other_pct  other idle time, % of the elapsed time
WITH sums AS (
    SELECT r.model, r.gpu, s.stage,
        COUNT(*) AS runs,
        SUM(s.elapsed_ns) AS elapsed_ns,
        SUM(s.idle_launch_ns) AS launch_ns,
        SUM(s.idle_sync_ns) AS sync_ns,
        SUM(s.idle_copy_ns) AS copy_ns,
        SUM(s.idle_other_ns) AS other_ns
    FROM stages s
    JOIN runs r ON r.run_key = s.run_key
    WHERE s.date >= {{since:1970-01-01}} AND r.date >= {{since:1970-01-01}} AND s.elapsed_ns > 0
    GROUP BY r.model, r.gpu, s.stage
)
SELECT model, gpu, stage, runs,
    elapsed_ns / 3.6e12 AS elapsed_hours,
    (launch_ns + sync_ns + copy_ns + other_ns) / 3.6e12 AS idle_hours,
    100e0 * (launch_ns + sync_ns + copy_ns + other_ns) / elapsed_ns AS idle_pct,
    100e0 * launch_ns / elapsed_ns AS idle_launch_pct,
    100e0 * sync_ns / elapsed_ns AS idle_sync_pct,
    100e0 * copy_ns / elapsed_ns AS idle_copy_pct,
    100e0 * other_ns / elapsed_ns AS idle_other_pct
FROM sums
ORDER BY idle_hours DESC NULLS LAST, model NULLS LAST, gpu NULLS LAST, stage
