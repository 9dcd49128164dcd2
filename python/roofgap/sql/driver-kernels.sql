-- Kernels that became slower or faster with a driver.
-- Compares the mean time of a launch of the same kernel in the same work with the driver that was in use before.
WITH by_driver AS (
    SELECT k.name, r.work, r.driver, MIN(k.short_name) AS short_name, MIN(r.started_at) AS first_start, SUM(k.calls) AS calls,
        SUM(CAST(k.total_ns AS DOUBLE)) / SUM(k.calls) AS mean_ns
    FROM kernels k
    JOIN runs r ON r.run_key = k.run_key
    WHERE k.date >= {{since:1970-01-01}} AND r.driver IS NOT NULL AND r.work IS NOT NULL AND k.calls > 0
    GROUP BY k.name, r.work, r.driver
    HAVING SUM(k.calls) >= {{min_calls:10}}
),
pairs AS (
    SELECT by_driver.*, LAG(driver) OVER same_work AS previous_driver, LAG(mean_ns) OVER same_work AS before_ns
    FROM by_driver
    WINDOW same_work AS (PARTITION BY name, work ORDER BY first_start, driver)
)
SELECT name, short_name, work, driver, previous_driver, calls, before_ns, mean_ns AS after_ns,
    100e0 * (mean_ns / before_ns - 1e0) AS change_pct
FROM pairs
WHERE before_ns > 0 AND 100e0 * ABS(mean_ns / before_ns - 1e0) >= {{min_pct:5}}
ORDER BY change_pct DESC, name, work, driver
LIMIT {{limit:50}}
