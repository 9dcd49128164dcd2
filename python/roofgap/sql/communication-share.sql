-- Share of communication in the kernel time, by number of ranks.
-- Of the timed collectives on GPUs. Exposed is the part of their time during which nothing else ran.
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
    100e0 * SUM(c.total_ns) / NULLIF(SUM(CAST(r.kernel_ns AS DOUBLE)), 0) AS share_pct,
    100e0 * SUM(c.exposed_ns) / NULLIF(SUM(CAST(r.kernel_ns AS DOUBLE)), 0) AS exposed_pct
FROM by_run c
JOIN runs r ON r.run_key = c.run_key
WHERE r.world_size > 1
GROUP BY r.model, r.gpu, r.world_size, c.collective
ORDER BY model NULLS LAST, gpu NULLS LAST, world_size, collective
