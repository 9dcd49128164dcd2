-- Latency of requests by model, GPU and version of the engine.
-- The lake has percentiles of each run. A mean of them over runs is not the percentile of all requests: it tells what a typical run has.
-- Parameters:
--   since  first date, default all
-- Columns:
--   model, gpu, engine, engine_version  the group
--   runs                runs with requests
--   completed           completed requests
--   failed_pct          failed requests, % of those sent
--   ttft_p50_ns         time to first token, median of a run, mean over runs weighted by requests, ns
--   ttft_p99_ns         time to first token, 99th percentile of a run, mean over runs weighted by requests, ns
--   worst_ttft_p99_ns   time to first token, highest 99th percentile of a run, ns
--   itl_p50_ns          time between parts of an answer, median of a run, mean over runs weighted by requests, ns
--   itl_p99_ns          time between parts of an answer, 99th percentile of a run, mean over runs weighted by requests, ns
--   e2e_p50_ns          time to the end of the answer, median of a run, mean over runs weighted by requests, ns
--   e2e_p99_ns          time to the end of the answer, 99th percentile of a run, mean over runs weighted by requests, ns
--   worst_e2e_p99_ns    time to the end of the answer, highest 99th percentile of a run, ns
SELECT r.model, r.gpu, r.engine, r.engine_version,
    COUNT(*) AS runs,
    SUM(q.completed) AS completed,
    100e0 * SUM(q.failed) / NULLIF(SUM(q.sent), 0) AS failed_pct,
    SUM(CAST(q.ttft_p50_ns AS DOUBLE) * q.completed) / NULLIF(SUM(CASE WHEN q.ttft_p50_ns IS NOT NULL THEN q.completed END), 0) AS ttft_p50_ns,
    SUM(CAST(q.ttft_p99_ns AS DOUBLE) * q.completed) / NULLIF(SUM(CASE WHEN q.ttft_p99_ns IS NOT NULL THEN q.completed END), 0) AS ttft_p99_ns,
    MAX(q.ttft_p99_ns) AS worst_ttft_p99_ns,
    SUM(CAST(q.itl_p50_ns AS DOUBLE) * q.completed) / NULLIF(SUM(CASE WHEN q.itl_p50_ns IS NOT NULL THEN q.completed END), 0) AS itl_p50_ns,
    SUM(CAST(q.itl_p99_ns AS DOUBLE) * q.completed) / NULLIF(SUM(CASE WHEN q.itl_p99_ns IS NOT NULL THEN q.completed END), 0) AS itl_p99_ns,
    SUM(CAST(q.e2e_p50_ns AS DOUBLE) * q.completed) / NULLIF(SUM(CASE WHEN q.e2e_p50_ns IS NOT NULL THEN q.completed END), 0) AS e2e_p50_ns,
    SUM(CAST(q.e2e_p99_ns AS DOUBLE) * q.completed) / NULLIF(SUM(CASE WHEN q.e2e_p99_ns IS NOT NULL THEN q.completed END), 0) AS e2e_p99_ns,
    MAX(q.e2e_p99_ns) AS worst_e2e_p99_ns
FROM requests q
JOIN runs r ON r.run_key = q.run_key
WHERE q.date >= {{since:1970-01-01}} AND r.date >= {{since:1970-01-01}}
GROUP BY r.model, r.gpu, r.engine, r.engine_version
ORDER BY model NULLS LAST, gpu NULLS LAST, engine NULLS LAST, engine_version NULLS LAST
