-- Cost of the energy of a million tokens by model and GPU.
-- Of the stages whose energy and tokens are known; cost-per-token has the cost of the GPUs. The cost of the run is that of its own prices
-- (cost.per_gpu_hour and cost.per_kwh), with the time of the GPUs.
-- Parameters:
--   since    first date, default all
--   per_kwh  price of a kWh, default 0.1
--   pue      energy of the building divided by that of the machine, default 1
-- Columns:
--   model, dtype, gpu, stage, engine  the group
--   runs                 runs with the stage
--   kwh                  energy of the GPUs, kWh
--   joules_per_token     energy of a token, J
--   energy_cost_per_million_tokens  cost of the energy
--   run_cost_per_million_tokens     mean cost by the prices of the runs; null where no run has prices
SELECT r.model, r.dtype, r.gpu, s.stage, r.engine,
    COUNT(*) AS runs,
    SUM(s.joules) / 3.6e6 AS kwh,
    SUM(s.joules) / SUM(s.joules / s.token_joules) AS joules_per_token,
    1e6 * {{per_kwh:0.1}} * {{pue:1}} / 3.6e6 * SUM(s.joules) / SUM(s.joules / s.token_joules) AS energy_cost_per_million_tokens,
    AVG(s.million_tokens_cost) AS run_cost_per_million_tokens
FROM stages s
JOIN runs r ON r.run_key = s.run_key
WHERE s.date >= {{since:1970-01-01}}
    AND r.date >= {{since:1970-01-01}}
    AND s.joules > 0
    AND s.token_joules > 0
GROUP BY r.model, r.dtype, r.gpu, s.stage, r.engine
ORDER BY energy_cost_per_million_tokens DESC, model NULLS LAST, dtype NULLS LAST, gpu NULLS LAST, stage, engine NULLS LAST
