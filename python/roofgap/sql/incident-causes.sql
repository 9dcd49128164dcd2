-- Causes of slow and hanging steps by host and version of the engine.
-- Of the moments that `roofgap watch --record` kept: trigger, and cause where one was found.
SELECT host, engine, engine_version, gpu, incident, incident_cause,
    COUNT(*) AS incidents,
    MIN(date) AS first_date,
    MAX(date) AS last_date
FROM runs
WHERE date >= {{since:1970-01-01}} AND incident IS NOT NULL
GROUP BY host, engine, engine_version, gpu, incident, incident_cause
ORDER BY incidents DESC, host NULLS LAST, engine NULLS LAST, engine_version NULLS LAST, gpu NULLS LAST, incident, incident_cause NULLS LAST
LIMIT {{limit:50}}
