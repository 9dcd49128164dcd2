-- Energy of a token by model and GPU.
-- Of the stages whose energy and tokens are known, weighted by their tokens.
-- Parameters:
--   since  first date, default all
-- Columns:
--   model, dtype, gpu, stage, batch  the group
--   runs              runs with the stage
--   joules            energy, J
--   joules_per_token  energy of a token, J
--   tokens_per_joule  tokens of a joule
--   idle_pct          part of the energy that idle GPUs would use in the same time, %
--   sm_mhz            mean clock of the multiprocessors, MHz; null where it was not sampled
SELECT r.model, r.dtype, r.gpu, s.stage, r.batch,
    COUNT(*) AS runs,
    SUM(s.joules) AS joules,
    SUM(s.joules) / SUM(s.joules / s.token_joules) AS joules_per_token,
    SUM(s.joules / s.token_joules) / SUM(s.joules) AS tokens_per_joule,
    100e0 * SUM(s.idle_joules) / SUM(s.joules) AS idle_pct,
    AVG(s.sm_mhz) AS sm_mhz
FROM stages s
JOIN runs r ON r.run_key = s.run_key
WHERE s.date >= {{since:1970-01-01}}
    AND r.date >= {{since:1970-01-01}}
    AND s.joules > 0
    AND s.token_joules > 0
GROUP BY r.model, r.dtype, r.gpu, s.stage, r.batch
ORDER BY model NULLS LAST, dtype NULLS LAST, gpu NULLS LAST, stage, batch NULLS LAST
