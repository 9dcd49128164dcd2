-- Kernels that take most GPU hours.
-- Sums the recorded time of each kernel over all runs. Kernels are told apart by their full name; two can have the same short name.
-- Parameters:
--   since  first date, default all
--   limit  rows, default 50
-- Columns:
--   short_name  kernel
--   family      family of the kernel
--   runs        runs with the kernel
--   calls       launches
--   gpu_hours   total time, hours
--   share_pct   share of the time of all kernels, %
--   mean_ns     mean time of a launch, ns
WITH by_kernel AS (
    SELECT name, family, MIN(short_name) AS short_name, COUNT(DISTINCT run_key) AS runs, SUM(calls) AS calls,
        SUM(CAST(total_ns AS DOUBLE)) AS total_ns
    FROM kernels
    WHERE date >= {{since:1970-01-01}} AND run_key IN (SELECT run_key FROM runs)
    GROUP BY name, family
),
shares AS (
    SELECT by_kernel.*, SUM(total_ns) OVER () AS all_ns
    FROM by_kernel
)
SELECT short_name, family, runs, calls,
    total_ns / 3.6e12 AS gpu_hours,
    100e0 * total_ns / NULLIF(all_ns, 0) AS share_pct,
    total_ns / NULLIF(calls, 0) AS mean_ns
FROM shares
ORDER BY total_ns DESC, short_name, name, family
LIMIT {{limit:50}}
