-- Runs that failed, or with files that could not be read.
SELECT date, host, run_key, run_id, source, exit_status, unreadable_files
FROM runs
WHERE date >= {{since:1970-01-01}} AND (exit_status <> 0 OR unreadable_files > 0)
ORDER BY date DESC, source, run_key
LIMIT {{limit:200}}
