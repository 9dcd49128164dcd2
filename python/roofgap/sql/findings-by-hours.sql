-- Findings by the GPU hours that fixing them could save.
-- A bound is the most that a fix saves in one run. Bounds of different findings of a run may overlap, so they do not add up.
SELECT f.finding, f.stage,
    COUNT(DISTINCT f.run_key) AS runs,
    SUM(CAST(f.bound_ns AS DOUBLE) * r.gpus) / 3.6e12 AS gpu_hours,
    AVG(f.bound_pct) AS mean_bound_pct,
    COUNT(DISTINCT r.model) AS models
FROM findings f
JOIN runs r ON r.run_key = f.run_key
WHERE f.date >= {{since:1970-01-01}}
GROUP BY f.finding, f.stage
ORDER BY gpu_hours DESC, finding, stage NULLS LAST
LIMIT {{limit:50}}
