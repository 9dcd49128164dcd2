-- MFU and MBU by model, GPU and stage.
-- Means over runs, weighted by the time of the stage.
SELECT r.model, r.dtype, r.gpu, s.stage,
    COUNT(*) AS runs,
    SUM(CAST(s.elapsed_ns AS DOUBLE) * s.gpus) / 3.6e12 AS gpu_hours,
    SUM(s.mfu_pct * s.elapsed_ns) / NULLIF(SUM(CASE WHEN s.mfu_pct IS NOT NULL THEN CAST(s.elapsed_ns AS DOUBLE) END), 0) AS mfu_pct,
    SUM(s.mbu_pct * s.elapsed_ns) / NULLIF(SUM(CASE WHEN s.mbu_pct IS NOT NULL THEN CAST(s.elapsed_ns AS DOUBLE) END), 0) AS mbu_pct,
    MAX(s.mfu_pct) AS best_mfu_pct,
    MAX(s.mbu_pct) AS best_mbu_pct
FROM stages s
JOIN runs r ON r.run_key = s.run_key
WHERE s.date >= {{since:1970-01-01}}
GROUP BY r.model, r.dtype, r.gpu, s.stage
ORDER BY model NULLS LAST, dtype NULLS LAST, gpu NULLS LAST, stage
