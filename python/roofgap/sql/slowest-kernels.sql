-- Kernels that take most GPU hours.
-- Kernels are told apart by their full name; two can have the same short name.
SELECT k.name, k.family,
    MIN(k.short_name) AS short_name,
    COUNT(DISTINCT k.run_key) AS runs,
    SUM(k.calls) AS calls,
    SUM(CAST(k.total_ns AS DOUBLE)) / 3.6e12 AS gpu_hours,
    SUM(CAST(k.above_roof_ns AS DOUBLE)) / 3.6e12 AS hours_above_roof,
    SUM(CAST(k.total_ns AS DOUBLE)) / NULLIF(SUM(k.calls), 0) AS mean_ns
FROM kernels k
JOIN runs r ON r.run_key = k.run_key
WHERE k.date >= {{since:1970-01-01}}
GROUP BY k.name, k.family
ORDER BY gpu_hours DESC, name, family
LIMIT {{limit:50}}
