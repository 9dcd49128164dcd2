-- Share of communication by number of ranks.
-- Timed collectives and transfers of jobs with more than one rank, and the part of their time during which nothing else ran.
-- Parameters:
--   since  first date, default all
-- Columns:
--   model, gpu, world_size, collective  the group
--   runs         runs with the collective
--   calls        calls
--   bytes        bytes moved
--   hours        total time, hours
--   share_pct    time of the collective, % of the kernel time of its runs
--   exposed_pct  time during which nothing else ran, % of the kernel time of its runs
WITH by_run AS (
    SELECT run_key, collective, SUM(calls) AS calls, SUM(bytes) AS bytes,
        SUM(CAST(total_ns AS DOUBLE)) AS total_ns, SUM(CAST(exposed_ns AS DOUBLE)) AS exposed_ns
    FROM communication
    WHERE processor = 'gpu' AND total_ns IS NOT NULL AND date >= {{since:1970-01-01}}
    GROUP BY run_key, collective
)
SELECT r.model, r.gpu, r.world_size, c.collective,
    COUNT(*) AS runs,
    SUM(c.calls) AS calls,
    SUM(c.bytes) AS bytes,
    SUM(c.total_ns) / 3.6e12 AS hours,
    100e0 * SUM(c.total_ns) / NULLIF(SUM(CAST(r.kernel_ns AS DOUBLE)), 0) AS share_pct,
    100e0 * SUM(c.exposed_ns) / NULLIF(SUM(CAST(r.kernel_ns AS DOUBLE)), 0) AS exposed_pct
FROM by_run c
JOIN runs r ON r.run_key = c.run_key
WHERE r.date >= {{since:1970-01-01}} AND r.world_size > 1
GROUP BY r.model, r.gpu, r.world_size, c.collective
ORDER BY model NULLS LAST, gpu NULLS LAST, world_size, collective
