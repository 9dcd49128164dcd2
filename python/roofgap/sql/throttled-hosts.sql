-- Hosts whose GPUs run at a lower clock than they could.
-- A stage is throttled where the driver gave a reason in at least `min_pct` of its samples.
SELECT r.host, r.gpu, s.throttled_by,
    COUNT(*) AS stage_rows,
    AVG(s.throttled_pct) AS throttled_pct,
    AVG(s.sm_mhz) AS sm_mhz,
    MIN(r.date) AS first_date,
    MAX(r.date) AS last_date
FROM stages s
JOIN runs r ON r.run_key = s.run_key
WHERE s.date >= {{since:1970-01-01}} AND s.throttled_by IS NOT NULL AND s.throttled_pct >= {{min_pct:10}}
GROUP BY r.host, r.gpu, s.throttled_by
ORDER BY stage_rows DESC, host NULLS LAST, gpu NULLS LAST, throttled_by
LIMIT {{limit:50}}
