-- Overhead of profiling by format and workload.
-- Parameters:
--   since      first date, default all
--   limit_pct  overhead that counts as high, %, default 25
-- Columns:
--   format, workload, engine, gpu  the group
--   runs               runs
--   measured           runs whose overhead is known
--   mean_overhead_pct  mean overhead, %
--   max_overhead_pct   highest overhead of a run, %
--   high               runs above limit_pct
SELECT format, workload, engine, gpu,
    COUNT(*) AS runs,
    COUNT(overhead_pct) AS measured,
    AVG(overhead_pct) AS mean_overhead_pct,
    MAX(overhead_pct) AS max_overhead_pct,
    SUM(CASE WHEN overhead_pct > {{limit_pct:25}} THEN 1 ELSE 0 END) AS high
FROM runs
WHERE date >= {{since:1970-01-01}}
GROUP BY format, workload, engine, gpu
ORDER BY max_overhead_pct DESC NULLS LAST, format NULLS LAST, workload NULLS LAST, engine NULLS LAST, gpu NULLS LAST
