-- Findings by the GPU hours that fixing them could save.
-- The bound of a finding is the most that its fix can save in one run. Bounds of different findings of a run may overlap, so they do not add up.
-- Parameters:
--   since  first date, default all
--   limit  rows, default 50
-- Columns:
--   finding         id of the finding
--   stage           stage, or null for the whole run
--   runs            runs with the finding
--   gpu_hours       upper bound of what its fix saves, hours of all GPUs of the runs
--   mean_bound_pct  mean bound, % of the stage
--   models          models with the finding
SELECT f.finding, f.stage,
    COUNT(DISTINCT f.run_key) AS runs,
    SUM(CAST(f.bound_ns AS DOUBLE) * COALESCE(r.gpus, 1)) / 3.6e12 AS gpu_hours,
    AVG(f.bound_pct) AS mean_bound_pct,
    COUNT(DISTINCT r.model) AS models
FROM findings f
JOIN runs r ON r.run_key = f.run_key
WHERE f.date >= {{since:1970-01-01}} AND r.date >= {{since:1970-01-01}}
GROUP BY f.finding, f.stage
ORDER BY gpu_hours DESC NULLS LAST, finding, stage NULLS LAST
LIMIT {{limit:50}}
