-- Runs that failed or could not be read.
-- Parameters:
--   since  first date, default all
--   limit  rows, default 200
-- Columns:
--   date, project, host  where
--   status   unreadable (not added, also not later), partial (added without some of its files) or failed (exit status above 0)
--   run_key  key of the run or input
--   source   path or address that was added
--   detail   error message, number of files or exit status
SELECT date, project, host, status, run_key, source, detail
FROM (
    SELECT e.date, e.project, e.host, 'unreadable' AS status, e.run_key, e.source, e.error AS detail
    FROM errors e
    LEFT JOIN runs r ON r.run_key = e.run_key
    WHERE e.date >= {{since:1970-01-01}} AND r.run_key IS NULL
    UNION ALL
    SELECT date, project, host, 'partial' AS status, run_key, source, CONCAT('unreadable files: ', unreadable_files) AS detail
    FROM runs
    WHERE date >= {{since:1970-01-01}} AND unreadable_files > 0
    UNION ALL
    SELECT date, project, host, 'failed' AS status, run_key, source, CONCAT('exit status ', exit_status) AS detail
    FROM runs
    WHERE date >= {{since:1970-01-01}} AND exit_status <> 0
) failures
ORDER BY date DESC, project, host, status, source, run_key
LIMIT {{limit:200}}
