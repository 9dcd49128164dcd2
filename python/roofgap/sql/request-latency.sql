-- Latency of requests by model, GPU and version of the engine.
-- Means over runs of the percentiles of each run, weighted by requests: what a typical run has, not the percentile of all requests.
WITH weighted AS (
    SELECT r.model, r.gpu, r.engine, r.engine_version, q.*, CAST(q.completed AS DOUBLE) AS weight
    FROM requests q
    JOIN runs r ON r.run_key = q.run_key
    WHERE q.date >= {{since:1970-01-01}} AND q.completed > 0
)
SELECT model, gpu, engine, engine_version,
    COUNT(*) AS runs,
    SUM(completed) AS completed,
    100e0 * SUM(failed) / SUM(sent) AS failed_pct,
    SUM(ttft_p50_ns * weight) / SUM(CASE WHEN ttft_p50_ns IS NOT NULL THEN weight END) AS ttft_p50_ns,
    SUM(ttft_p99_ns * weight) / SUM(CASE WHEN ttft_p99_ns IS NOT NULL THEN weight END) AS ttft_p99_ns,
    SUM(itl_p50_ns * weight) / SUM(CASE WHEN itl_p50_ns IS NOT NULL THEN weight END) AS itl_p50_ns,
    SUM(itl_p99_ns * weight) / SUM(CASE WHEN itl_p99_ns IS NOT NULL THEN weight END) AS itl_p99_ns,
    SUM(e2e_p50_ns * weight) / SUM(CASE WHEN e2e_p50_ns IS NOT NULL THEN weight END) AS e2e_p50_ns,
    SUM(e2e_p99_ns * weight) / SUM(CASE WHEN e2e_p99_ns IS NOT NULL THEN weight END) AS e2e_p99_ns
FROM weighted
GROUP BY model, gpu, engine, engine_version
ORDER BY model NULLS LAST, gpu NULLS LAST, engine NULLS LAST, engine_version NULLS LAST
