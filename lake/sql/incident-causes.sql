-- Causes of slow and hanging steps by host and version of the engine.
-- Of the moments that `roofgap watch --record` kept.
-- Parameters:
--   since  first date, default all
--   limit  rows, default 50
-- Columns:
--   host, engine, engine_version, gpu, incident, incident_cause  the group; incident is the trigger, incident_cause null where none was found
--   incidents   moments that were kept
--   first_date  date of the first
--   last_date   date of the last
SELECT host, engine, engine_version, gpu, incident, incident_cause,
    COUNT(*) AS incidents,
    MIN(date) AS first_date,
    MAX(date) AS last_date
FROM runs
WHERE date >= {{since:1970-01-01}} AND incident IS NOT NULL
GROUP BY host, engine, engine_version, gpu, incident, incident_cause
ORDER BY incidents DESC, host, engine NULLS LAST, engine_version NULLS LAST, gpu NULLS LAST, incident, incident_cause NULLS LAST
LIMIT {{limit:50}}
