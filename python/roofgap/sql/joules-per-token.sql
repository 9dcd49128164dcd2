-- Energy of a token by model, GPU, stage and batch size.
-- Of the stages whose energy and tokens are known, weighted by their tokens.
SELECT r.model, r.dtype, r.gpu, s.stage, r.batch,
    COUNT(*) AS runs,
    SUM(s.joules) AS joules,
    SUM(s.joules) / SUM(s.joules / s.token_joules) AS joules_per_token,
    AVG(s.sm_mhz) AS sm_mhz
FROM stages s
JOIN runs r ON r.run_key = s.run_key
WHERE s.date >= {{since:1970-01-01}} AND s.joules > 0 AND s.token_joules > 0
GROUP BY r.model, r.dtype, r.gpu, s.stage, r.batch
ORDER BY model NULLS LAST, dtype NULLS LAST, gpu NULLS LAST, stage, batch NULLS LAST
