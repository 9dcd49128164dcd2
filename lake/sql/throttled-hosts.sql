-- Hosts whose GPUs run at a lower clock than they could.
-- Of the stages with a sampled clock: a stage is throttled where the driver gave a reason in at least min_pct of its samples.
-- Parameters:
--   since    first date, default all
--   min_pct  least share of the samples of a stage with a reason, %, default 10
--   limit    rows, default 50
-- Columns:
--   host, gpu, throttled_by  the group; throttled_by is the most frequent reason of the driver in a stage
--   stage_rows     throttled stages of runs
--   all_rows       stages of runs on the host with a sampled clock
--   throttled_pct  mean share of the samples of these stages with a reason, %
--   sm_mhz         mean clock in them, MHz
--   first_date     date of the first
--   last_date      date of the last
WITH sampled AS (
    SELECT r.host AS host, r.gpu, s.throttled_by, s.throttled_pct, s.sm_mhz, s.date AS date,
        COUNT(*) OVER (PARTITION BY r.host, r.gpu) AS all_rows
    FROM stages s
    JOIN runs r ON r.run_key = s.run_key
    WHERE s.date >= {{since:1970-01-01}}
        AND r.date >= {{since:1970-01-01}}
        AND s.throttled_pct IS NOT NULL
)
SELECT host, gpu, throttled_by,
    COUNT(*) AS stage_rows,
    MAX(all_rows) AS all_rows,
    AVG(throttled_pct) AS throttled_pct,
    AVG(sm_mhz) AS sm_mhz,
    MIN(date) AS first_date,
    MAX(date) AS last_date
FROM sampled
WHERE throttled_by IS NOT NULL AND throttled_pct >= {{min_pct:10}}
GROUP BY host, gpu, throttled_by
ORDER BY stage_rows DESC, host, gpu NULLS LAST, throttled_by
LIMIT {{limit:50}}
