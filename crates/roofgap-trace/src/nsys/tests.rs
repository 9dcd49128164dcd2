//! A real export, changed in the ways that versions of the tool and other programs change one.

use crate::{LossKind, OpKind, Trace, Wait, WaitKind};
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

/// What must not depend on how the rows are stored.
#[derive(Debug, PartialEq)]
struct Facts {
    kernels: Vec<(i64, i64, String, u32)>,
    calls: Vec<(i64, i64, String, u32)>,
    ranges: Vec<(i64, i64, String, String)>,
    copies: usize,
    devices: Vec<Option<String>>,
}

fn facts(trace: &Trace) -> Facts {
    let name = |id| trace.names.get(id).to_owned();
    let (ops, calls) = (&trace.ops, &trace.calls);
    Facts {
        kernels: (0..ops.len())
            .filter(|&i| ops.kind[i] == OpKind::Kernel)
            .map(|i| (ops.start[i], ops.end[i], name(ops.name[i]), ops.correlation[i]))
            .collect(),
        calls: (0..calls.len())
            .map(|i| (calls.start[i], calls.end[i], name(calls.name[i]), calls.correlation[i]))
            .collect(),
        ranges: trace.ranges.rows.iter().map(|r| (r.start, r.end, name(r.domain), name(r.name))).collect(),
        copies: ops.kind.iter().filter(|kind| **kind == OpKind::Copy).count(),
        devices: trace.devices.iter().map(|d| d.name.clone()).collect(),
    }
}

/// A fixture after some statements.
fn changed_in(folder: &Path, fixture: &str, sql: &str) -> PathBuf {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(fixture);
    let path = folder.join("changed.sqlite");
    let mut file = std::fs::File::create(&path).unwrap();
    let mut inside = flate2::read::GzDecoder::new(std::fs::File::open(packed).unwrap());
    std::io::copy(&mut inside, &mut file).unwrap();
    file.flush().unwrap();
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    path
}

/// The export after some statements.
fn changed(folder: &Path, sql: &str) -> PathBuf {
    changed_in(folder, "h200/llama4.sqlite.gz", sql)
}

fn after(sql: &str) -> Trace {
    after_in("h200/llama4.sqlite.gz", sql)
}

fn after_in(fixture: &str, sql: &str) -> Trace {
    let folder = tempfile::tempdir().unwrap();
    let path = changed_in(folder.path(), fixture, sql);
    crate::read(&[path]).unwrap().trace
}

/// Tables anew, with their rows in another order.
const SHUFFLED: &str = "
    CREATE TABLE k AS SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY (start * 7919) % 10007;
    CREATE TABLE r AS SELECT * FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY (start * 7919) % 10007;
    CREATE TABLE n AS SELECT * FROM NVTX_EVENTS ORDER BY (start * 7919) % 10007;
    DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL; ALTER TABLE k RENAME TO CUPTI_ACTIVITY_KIND_KERNEL;
    DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME; ALTER TABLE r RENAME TO CUPTI_ACTIVITY_KIND_RUNTIME;
    DROP TABLE NVTX_EVENTS; ALTER TABLE n RENAME TO NVTX_EVENTS;";

/// Tables by another name, with views in their place.
const VIEWS: &str = "
    ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO k;
    CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT * FROM k;
    ALTER TABLE NVTX_EVENTS RENAME TO n; CREATE VIEW NVTX_EVENTS AS SELECT * FROM n;
    ALTER TABLE StringIds RENAME TO s; CREATE VIEW StringIds AS SELECT * FROM s;";

/// A name that is not registered is text in the row itself.
const TEXTS: &str = "
    UPDATE NVTX_EVENTS SET text = (SELECT value FROM StringIds WHERE id = textId), textId = NULL WHERE textId NOT NULL;";

/// The name of a domain as a registered string.
const DOMAIN_BY_ID: &str = "
    INSERT INTO StringIds VALUES (900000, 'LLM');
    UPDATE NVTX_EVENTS SET text = NULL, textId = 900000 WHERE eventType = 75 AND text = 'LLM';";

/// Columns that older exports do not have.
const OLD_COLUMNS: &str = "
    ALTER TABLE NVTX_EVENTS DROP COLUMN endGlobalTid; ALTER TABLE NVTX_EVENTS DROP COLUMN jsonTextId;
    ALTER TABLE NVTX_EVENTS DROP COLUMN binaryData;
    ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN graphNodeId;
    ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN greenContextId;";

#[test]
fn the_way_of_storing_does_not_matter() {
    let plain = facts(&after(""));
    assert_eq!((plain.kernels.len(), plain.ranges.len()), (3490, 21));
    for sql in [
        SHUFFLED,
        VIEWS,
        TEXTS,
        DOMAIN_BY_ID,
        OLD_COLUMNS,
        "PRAGMA page_size = 512; VACUUM",
        "PRAGMA page_size = 65536; PRAGMA auto_vacuum = 1; VACUUM",
        "PRAGMA journal_mode = wal; UPDATE StringIds SET value = value || ''",
        "CREATE TABLE rubbish AS SELECT * FROM CUPTI_ACTIVITY_KIND_RUNTIME; DROP TABLE rubbish",
    ] {
        let trace = after(sql);
        assert_eq!(trace.losses.iter().count(), 0, "{sql}: {:?}", trace.losses);
        assert!(facts(&trace) == plain, "{sql}");
    }
}

/// Exports up to 2021 have no nulls.
#[test]
fn zeros_in_place_of_nulls() {
    let plain = after("");
    let trace = after("UPDATE NVTX_EVENTS SET endGlobalTid = 0");
    assert_eq!(trace.losses.iter().count(), 0, "{:?}", trace.losses);
    assert!(facts(&trace) == facts(&plain));
    let open = "WHERE textId = (SELECT id FROM StringIds WHERE value = 'decode_all')";
    for end in ["NULL", "0"] {
        let trace = after(&format!("UPDATE NVTX_EVENTS SET end = {end} {open}"));
        assert_eq!(trace.losses.count(LossKind::RangeOpen), 1);
        assert_eq!(trace.ranges.rows.len(), plain.ranges.rows.len());
        assert_eq!(trace.ranges.rows.iter().filter(|r| r.open).count(), 1);
    }
}

#[test]
fn work_without_a_process_is_of_the_only_one() {
    let plain = after("");
    for sql in [
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN globalPid",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = NULL WHERE start % 2 = 0",
    ] {
        let trace = after(sql);
        let pids = |trace: &Trace| -> Vec<u32> {
            let pid = |p: &crate::ProcessId| trace.processes[p.index()].pid;
            trace.ops.process.iter().map(pid).collect()
        };
        assert_eq!(pids(&trace), pids(&plain));
    }
}

#[test]
fn a_gpu_as_older_exports_describe_it() {
    let device = |sql: &str| {
        let devices = after(sql).devices;
        assert_eq!(devices.len(), 1);
        devices.into_iter().next().unwrap()
    };
    let plain = device("");
    assert_eq!((plain.compute_capability, plain.sms), (Some((9, 0)), Some(132)));
    let columns = "ALTER TABLE TARGET_INFO_GPU DROP COLUMN computeMajor;
                   ALTER TABLE TARGET_INFO_GPU DROP COLUMN computeMinor";
    assert_eq!(device(columns), plain);
    let table =
        "CREATE TABLE TARGET_INFO_CUDA_GPU AS SELECT id AS deviceId, name, smCount AS numMultiprocessors,
                     totalMemory AS globalMemorySize, computeMajor AS computeCapabilityMajor,
                     computeMinor AS computeCapabilityMinor FROM TARGET_INFO_GPU;
                 DROP TABLE TARGET_INFO_GPU";
    let old = device(table);
    assert_eq!(
        (old.name, old.sms, old.memory_bytes, old.compute_capability),
        (plain.name, plain.sms, plain.memory_bytes, plain.compute_capability)
    );
    let mib = device("UPDATE TARGET_INFO_GPU SET totalMemory = 32510");
    assert_eq!(mib.memory_bytes, Some(32510 << 20));
}

/// Only a broken file has as many; the time does not grow with their square.
#[test]
fn more_devices_than_can_be() {
    let trace = after(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 70000)
         INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET (start, end, deviceId, contextId, streamId, globalPid, value, bytes, memKind)
         SELECT i, i, i, 0, 0, 0, 0, 0, 0 FROM n",
    );
    assert!(trace.devices.len() <= 4096);
    assert!(trace.ops.device.iter().all(|device| device.index() < trace.devices.len()));
}

#[test]
fn names_of_threads_are_no_loss() {
    let trace = after(
        "INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid, domainId) \
         SELECT 1, 39, 'a thread', globalTid, 0 FROM NVTX_EVENTS LIMIT 1",
    );
    assert_eq!(trace.losses.iter().count(), 0, "{:?}", trace.losses);
}

#[test]
fn without_the_full_name_the_short_one_is_taken() {
    let trace = after("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN demangledName");
    assert_eq!(trace.losses.count(LossKind::NameMissing), 0);
    assert!(
        (0..trace.ops.len()).any(|i| trace.names.get(trace.ops.name[i]) == "vectorized_elementwise_kernel")
    );
}

/// Names longer than a page, and than many.
#[test]
fn long_names_are_whole() {
    let trace = after(
        "UPDATE StringIds SET value = value || printf('%.*c', 5000 + 7 * id, 'x') \
         WHERE id IN (SELECT demangledName FROM CUPTI_ACTIVITY_KIND_KERNEL)",
    );
    let plain = after("");
    for i in 0..plain.ops.len() {
        if plain.ops.kind[i] == OpKind::Kernel {
            let (long, short) = (trace.names.get(trace.ops.name[i]), plain.names.get(plain.ops.name[i]));
            assert!(long.len() >= short.len() + 5000 && long.starts_with(short) && long.ends_with("xxx"));
        }
    }
}

#[test]
fn errors_and_warnings_of_nsys_are_losses() {
    let trace = after(
        "INSERT INTO DIAGNOSTIC_EVENT (timestamp, timestampType, source, severity, text)
         VALUES (1, 1, 1, 2, 'a warning'), (1, 1, 1, 2, 'No OpenGL events collected. Does the process use OpenGL?'),
                (1, 1, 1, 2, 'Not all Vulkan events might have been collected.'), (2, 1, 1, 3, 'an error'), (3, 1, 1, 3, 'another'), (4, 1, 1, 4, 'verbose')",
    );
    assert_eq!(trace.losses.count(LossKind::ToolWarning), 1);
    assert_eq!(trace.losses.count(LossKind::ToolError), 2);
    assert_eq!(trace.losses.iter().count(), 2, "{:?}", trace.losses);
    let errors: Vec<_> = trace.losses.messages(LossKind::ToolError).collect();
    assert_eq!(errors, [("an error", 1), ("another", 1)]);
}

#[test]
fn tables_with_rows_that_are_not_read_are_losses() {
    let trace = after(
        "CREATE TABLE MPI_P2P_EVENTS AS SELECT start, end, globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME;
         CREATE VIEW mine AS SELECT * FROM MPI_P2P_EVENTS;
         CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER, metricId INTEGER, value INTEGER);
         INSERT INTO GPU_METRICS VALUES (1, 2, 3, 4);
         CREATE TABLE NVTX_PAYLOAD_SCHEMAS AS SELECT 1 AS schemaId, 'ncclNvtxAllReduce' AS name;
         CREATE TABLE UCP_EVENTS (start INTEGER);
         CREATE TABLE ENUM_OF_TOMORROW (id INTEGER); INSERT INTO ENUM_OF_TOMORROW VALUES (1);",
    );
    let tables: Vec<_> = trace.losses.messages(LossKind::TableNotRead).collect();
    assert_eq!(tables, [("GPU_METRICS", 1), ("MPI_P2P_EVENTS", 9880), ("NVTX_PAYLOAD_SCHEMAS", 1)]);
    assert_eq!(trace.losses.count(LossKind::TableNotRead), 9882);
    assert!(facts(&trace) == facts(&after("")));
}

#[test]
fn what_no_number_needs_is_a_note() {
    let rows = "INSERT INTO DIAGNOSTIC_EVENT (timestamp, timestampType, source, severity, text)
        VALUES (1, 1, 1, 2, 'No NVTX events collected. Does the process use NVTX?'),
               (1, 1, 1, 2, ' Unable to collect CPU kernel IP/backtrace samples. perf event paranoid level is 2.'),
               (1, 1, 1, 3, 'Unable to configure the collection of CPU IP/backtrace samples, context switch data, or event sampling data.'),
               (1, 1, 1, 3, 'Unable to configure the collection of IP samples, backtraces, and scheduling data.'),
               (1, 1, 1, 3, 'GPU Metrics [0]: no permission to use the GPU performance counters.'),
               (1, 1, 1, 3, 'GPU Metrics [0]: The sampling buffer overflowed.'),
               (1, 1, 1, 2, 'Some events (7) were lost. Charts such as CPU utilization may be wrong.'),
               (1, 1, 1, 2, 'Some events (7) were lost.'),
               (1, 1, 1, 2, 'No CUDA events collected. Does the process use CUDA?'),
               (1, 1, 1, 2, 'Not all CUDA events might have been collected.');";
    let counts = |trace: &Trace| [ToolNote, ToolWarning, ToolError].map(|kind| trace.losses.count(kind));
    use LossKind::{ToolError, ToolNote, ToolWarning};
    assert_eq!(counts(&after(rows)), [7, 2, 1], "another process had no CUDA");
    let nothing =
        ["KERNEL", "MEMCPY", "MEMSET"].map(|kind| format!("DELETE FROM CUPTI_ACTIVITY_KIND_{kind};"));
    assert_eq!(counts(&after(&format!("{rows} {}", nothing.concat()))), [6, 3, 1]);
}

#[test]
fn databases_of_other_tools_are_named() {
    let refused = |sql: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other.sqlite");
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        crate::read(&[path]).unwrap_err().to_string()
    };
    // Views, which are not read, do not hide whose database it is.
    let views = "CREATE VIEW a AS SELECT count(*) AS n FROM t; CREATE VIEW b AS SELECT max(n) FROM a;";
    let other = refused(&format!("CREATE TABLE t (x); {views}"));
    assert!(other.contains("found tables a, b, t"), "{other}");
    assert!(!other.contains("..."), "all are listed: {other}");
    let many = refused(
        "CREATE TABLE t1 (x); CREATE TABLE t2 (x); CREATE TABLE t3 (x); CREATE TABLE t4 (x); CREATE TABLE t5 (x); CREATE TABLE t6 (x);",
    );
    assert!(many.contains("found tables t1, t2, t3, t4, t5, ..."), "{many}");
    let rocpd = refused(&format!("CREATE TABLE rocpd_api (x); CREATE TABLE t (x); {views}"));
    assert!(rocpd.contains("AMD's ROCm"), "{rocpd}");
    let nsys = refused(&format!("CREATE VIEW StringIds AS SELECT 1; CREATE TABLE NVTX_EVENTS (x); {views}"));
    assert!(nsys.contains("`StringIds` is a view with a query of its own"), "{nsys}");
}

#[test]
fn the_version_is_that_of_the_recording() {
    let plain = after("");
    assert_eq!(plain.sources[0].tool_version.as_deref(), Some("2025.3.2.0"));
    let env = "INSERT INTO TARGET_INFO_SYSTEM_ENV (globalVid, devStateName, name, nameEnum, value)
               VALUES (1, 'Local (CLI)', 'TargetInstallDir', 170, '/opt/nvidia/nsight-systems/2024.5.1/target-linux-x64');";
    let older = after(env);
    assert_eq!(older.sources[0].tool_version.as_deref(), Some("2024.5.1"));
    let same = after(&env.replace("2024.5.1", "2025.3.2"));
    assert_eq!(same.sources[0].tool_version.as_deref(), Some("2025.3.2.0"), "with more digits");
}

#[test]
fn the_rank_is_in_the_recorded_environment() {
    let rank = |variables: &str| {
        let sql = format!(
            "DELETE FROM META_DATA_CAPTURE WHERE name LIKE '%ENVIRONMENT_VARIABLE';
             INSERT INTO META_DATA_CAPTURE (name, value) VALUES ('COMMAND:0:ENVIRONMENT_VARIABLE', {variables});"
        );
        let job = after(&sql).distributed?;
        job.rank.zip(job.world_size)
    };
    let torchrun =
        "'HOME=/' || char(0) || 'WORLD_SIZE=8' || char(0) || 'RANK=3' || char(0) || 'LOCAL_RANK=1'";
    assert_eq!(rank(torchrun), Some((3, 8)));
    let quoted = "'WORLD_SIZE=\"8\"'), ('PROCESS_0:ENVIRONMENT_VARIABLE', 'RANK=\"3\"'";
    assert_eq!(rank(quoted), Some((3, 8)), "a row for each");
    let mpi = "'OMPI_COMM_WORLD_SIZE=2' || char(0) || 'OMPI_COMM_WORLD_RANK=1'";
    assert_eq!(rank(mpi), Some((1, 2)));
    assert_eq!(rank("'RANK=3'"), None, "without the number of ranks");
    assert_eq!(rank("'RANK=8' || char(0) || 'WORLD_SIZE=8'"), None);
    assert_eq!(rank("'SLURM_PROCID=0' || char(0) || 'SLURM_NTASKS=4'"), None);
}

#[test]
fn an_old_export_without_events_is_read() {
    let tables = tables_of_the_export();
    let kept = ["StringIds", "TARGET_INFO_SYSTEM_ENV", "TARGET_INFO_GPU", "PROCESSES"];
    let drop: Vec<String> = tables
        .iter()
        .filter(|table| !kept.contains(&table.as_str()))
        .map(|table| format!("DROP TABLE \"{table}\";"))
        .collect();
    assert!(drop.len() > 20);
    let trace = after(&drop.concat());
    assert_eq!((trace.ops.len(), trace.calls.len()), (0, 0));
    assert_eq!(trace.sources[0].tool_version, None);
}

/// The tables of the export.
fn tables_of_the_export() -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let database = Connection::open(changed(folder.path(), "")).unwrap();
    let mut query = database
        .prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        .unwrap();
    let names = query.query_map([], |row| row.get(0)).unwrap();
    names.map(Result::unwrap).collect()
}

/// A view may be anything: an endless query, or one that fills the memory.
#[test]
fn a_view_with_a_query_of_its_own_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let sql = "ALTER TABLE StringIds RENAME TO s;
               CREATE VIEW StringIds AS WITH RECURSIVE n (id) AS (SELECT 1 UNION ALL SELECT id FROM n)
               SELECT id, 'x' AS value FROM n;";
    let path = changed(folder.path(), sql);
    let error = crate::read(&[path]).unwrap_err().to_string();
    assert!(error.contains("`StringIds` is a view"), "{error}");
    assert!(error.contains("export the report again"), "{error}");
}

#[test]
fn a_table_without_row_ids_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let sql = "CREATE TABLE s (id INTEGER PRIMARY KEY, value TEXT) WITHOUT ROWID;
               INSERT INTO s SELECT * FROM StringIds; DROP TABLE StringIds; ALTER TABLE s RENAME TO StringIds;";
    let error = crate::read(&[changed(folder.path(), sql)]).unwrap_err().to_string();
    assert!(error.contains("`StringIds` is stored WITHOUT ROWID"), "{error}");
}

#[test]
fn times_near_the_edge_are_a_loss() {
    let plain = after("");
    let trace = after(
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = 9223372036854775807 WHERE rowid = 5;
         UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET start = -9223372036854775808 WHERE rowid = 7",
    );
    assert_eq!(trace.losses.count(LossKind::TimeOutOfRange), 2);
    assert_eq!(trace.ops.len() + 1, plain.ops.len());
    assert_eq!(trace.calls.len() + 1, plain.calls.len());
    let (first, last) = trace.span().unwrap();
    assert!(first >= 0 && last <= plain.span().unwrap().1);
}

#[test]
fn graph_nodes_have_the_ranges_of_their_creation_and_so_have_their_clones() {
    let trace = after(
        "CREATE TABLE CUDA_GRAPH_NODE_EVENTS (start INTEGER, end INTEGER, globalTid INTEGER, graphNodeId INTEGER, originalGraphNodeId INTEGER);
         INSERT INTO CUDA_GRAPH_NODE_EVENTS SELECT start + 1, start + 1, globalTid, 101, NULL FROM NVTX_EVENTS
             WHERE eventType = 59 AND end > start + 2 ORDER BY start LIMIT 1;
         INSERT INTO CUDA_GRAPH_NODE_EVENTS SELECT start + 2, end, globalTid, 7, NULL FROM CUDA_GRAPH_NODE_EVENTS WHERE graphNodeId = 101;
         INSERT INTO CUDA_GRAPH_NODE_EVENTS SELECT start + 3, end, globalTid, 7, 101 FROM CUDA_GRAPH_NODE_EVENTS WHERE graphNodeId = 101;
         INSERT INTO CUDA_GRAPH_NODE_EVENTS SELECT start + 4, end, globalTid, 8, 900 FROM CUDA_GRAPH_NODE_EVENTS WHERE graphNodeId = 101;
         INSERT INTO CUDA_GRAPH_NODE_EVENTS SELECT -1000000000000, 0, globalTid, 102, NULL FROM CUDA_GRAPH_NODE_EVENTS WHERE graphNodeId = 101;",
    );
    let first = &trace.ranges.rows[0];
    let ranges = |node| {
        let stack = trace.graph_nodes.stack_of(first.process, node)?;
        Some(trace.graph_nodes.stacks()[stack].clone())
    };
    assert_eq!(ranges(101), Some(vec![first.name]));
    assert_eq!(ranges(7), Some(vec![first.name]));
    assert_eq!(ranges(8), None, "the original was not recorded");
    assert_eq!(ranges(102), Some(vec![]), "created outside of every range");
}

#[test]
fn graph_nodes_have_a_limited_number_of_ranges() {
    let trace = after(
        "CREATE TABLE first AS SELECT start, globalTid FROM NVTX_EVENTS WHERE eventType = 59 AND end > start + 2000 ORDER BY start LIMIT 1;
         INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid)
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)
             SELECT start + i, start + 1000 - i, 59, 'deep', globalTid FROM n, first;
         CREATE TABLE CUDA_GRAPH_NODE_EVENTS (start INTEGER, end INTEGER, globalTid INTEGER, graphNodeId INTEGER, originalGraphNodeId INTEGER);
         INSERT INTO CUDA_GRAPH_NODE_EVENTS SELECT start + 400, start + 400, globalTid, 101, NULL FROM first;
         INSERT INTO CUDA_GRAPH_NODE_EVENTS SELECT start + 401, start + 401, globalTid, 102, NULL FROM first;
         INSERT INTO CUDA_GRAPH_NODE_EVENTS SELECT start + 1001, start + 1001, globalTid, 103, NULL FROM first;",
    );
    let process = trace.ranges.rows[0].process;
    let depth = |node| {
        let stack = trace.graph_nodes.stack_of(process, node).unwrap();
        trace.graph_nodes.stacks()[stack].len()
    };
    assert_eq!((depth(101), depth(102)), (128, 128));
    assert_eq!(depth(103), 1, "the deep ranges ended");
}

/// Samples, calls into the system libraries and switches of the thread that launches, and of one that does not.
const STACKS: &str = "
    CREATE TABLE t AS SELECT globalTid AS id, min(start) AS first, end AS last FROM CUPTI_ACTIVITY_KIND_RUNTIME GROUP BY globalTid ORDER BY count(*) DESC LIMIT 1;
    INSERT INTO StringIds VALUES (900001, 'leaf'), (900002, 'caller'), (900003, '/usr/lib/libwork.so.1'), (900004, 'poll'), (900005, '0x7f');
    CREATE TABLE COMPOSITE_EVENTS (id INTEGER NOT NULL PRIMARY KEY, start INTEGER NOT NULL, cpu INTEGER, threadState INTEGER, globalTid INTEGER, cpuCycles INTEGER NOT NULL);
    CREATE TABLE SAMPLING_CALLCHAINS (id INTEGER NOT NULL, symbol INTEGER NOT NULL, module INTEGER NOT NULL, kernelMode INTEGER, thumbCode INTEGER,
        unresolved INTEGER, specialEntry INTEGER, originalIP INTEGER, unwindMethod INTEGER, stackDepth INTEGER NOT NULL, PRIMARY KEY (id, stackDepth));
    CREATE TABLE OSRT_API (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, nameId INTEGER NOT NULL,
        returnValue INTEGER NOT NULL, nestingLevel INTEGER, callchainId INTEGER NOT NULL);
    CREATE TABLE SCHED_EVENTS (start INTEGER NOT NULL, cpu INTEGER NOT NULL, isSchedIn INTEGER NOT NULL, globalTid INTEGER);
    INSERT INTO COMPOSITE_EVENTS SELECT 8, first + 200, 0, 1, id, 1 FROM t;
    INSERT INTO COMPOSITE_EVENTS SELECT 7, first + 100, 0, 1, id, 1 FROM t;
    INSERT INTO COMPOSITE_EVENTS SELECT 9, first + 300, 0, 1, id + 1, 1 FROM t;
    INSERT INTO SAMPLING_CALLCHAINS VALUES (9, 900001, 900003, 0, 0, 0, 0, 0, 0, 0), (7, 900002, 900003, 0, 0, 0, 0, 0, 0, 1),
        (8, 900005, 900003, 0, 0, 1, 0, 0, 0, 0), (7, 900001, 900003, 0, 0, 0, 0, 0, 0, 0), (8, 900002, 900003, 0, 0, 0, 0, 0, 0, 1);
    INSERT INTO OSRT_API SELECT first + 400, first + 450, 27, id, 900004, 0, 0, 0 FROM t;
    INSERT INTO OSRT_API SELECT first + 500, first + 500, 27, id, 900004, 0, 0, 0 FROM t;
    INSERT INTO OSRT_API SELECT first + 400, first + 450, 27, id + 1, 900004, 0, 0, 0 FROM t;
    INSERT INTO OSRT_API SELECT last + 20, last + 40, 27, id, 900004, 0, 0, 0 FROM t;
    INSERT INTO SCHED_EVENTS SELECT last + 25, 0, 0, id FROM t;
    INSERT INTO SCHED_EVENTS SELECT last + 35, 0, 1, id FROM t;
    INSERT INTO SCHED_EVENTS SELECT first + 430, 0, 1, id FROM t;
    INSERT INTO SCHED_EVENTS SELECT first + 410, 0, 0, id FROM t;
    INSERT INTO SCHED_EVENTS SELECT last + 470, 0, 0, id FROM t;
    DROP TABLE t;";

#[test]
fn stacks_of_launching_threads_are_read() {
    let (plain, trace) = (after(""), after(STACKS));
    assert_eq!(facts(&plain), facts(&trace));
    assert!(plain.stacks.is_empty());
    let (stacks, name) = (&trace.stacks, |id| trace.names.get(id));
    let mut threads: Vec<usize> = vec![0; trace.threads.len()];
    trace.calls.thread.iter().for_each(|thread| threads[thread.index()] += 1);
    let busiest = (0..threads.len()).max_by_key(|thread| threads[*thread]).unwrap();
    let calls = trace.calls.thread.iter().zip(&trace.calls.start);
    let first = calls.filter(|(thread, _)| thread.index() == busiest).map(|(_, start)| *start).min().unwrap();
    let spans: Vec<_> = stacks
        .spans
        .iter()
        .map(|span| (span.start - first, span.end - first, name(stacks.frame(span.frame).function)))
        .collect();
    let call = trace.calls.start.iter().position(|start| *start == first).unwrap();
    let last = trace.calls.end[call] - first;
    // What the driver does inside a call has the name of the call.
    let inside = name(trace.calls.name[call]);
    let outside = [(last + 20, last + 40, "poll"), (last + 25, last + 35, crate::NOT_RUNNING)];
    assert_eq!(spans, [&[(400, 450, inside), (410, 430, inside)], &outside[..]].concat());
    let samples: Vec<_> = stacks
        .samples
        .iter()
        .map(|sample| {
            let (mut at, mut frames) = (sample.stack.index(), Vec::new());
            while let Some((caller, frame)) = at.checked_sub(1).and_then(|row| stacks.stacks().get(row)) {
                let frame = stacks.frame(*frame);
                frames.push((name(frame.function), name(frame.file)));
                at = caller.index();
            }
            (sample.at - first, frames)
        })
        .collect();
    let library = "/usr/lib/libwork.so.1";
    let caller = ("caller", library);
    assert_eq!(
        samples,
        [(100, vec![("leaf", library), caller]), (200, vec![("[unresolved]", library), caller])]
    );
}

/// Samples every 20 us around the kernels, of one GPU: 2 counters, one of them in two forms, and one that is not read.
const SAMPLES: &str = "
    CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER, sourceId INTEGER, typeName TEXT, metricId INTEGER, metricName TEXT);
    INSERT INTO TARGET_INFO_GPU_METRICS VALUES
        (281479271677952, 1, '', 3, 'SMs Active [Throughput %]'), (281479271677952, 1, '', 13, 'Compute Warps in Flight [Avg]'),
        (281479271677952, 1, '', 18, 'DRAM Read Bandwidth [Throughput %]'), (281479271678208, 1, '', 0, 'EndTimestamp');
    CREATE TABLE GPU_METRICS (rawTimestamp INTEGER, timestamp INTEGER, typeId INTEGER, metricId INTEGER, value INTEGER);
    CREATE TABLE span AS SELECT min(start) AS first, max(end) AS last FROM CUPTI_ACTIVITY_KIND_KERNEL;
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999)
    INSERT INTO GPU_METRICS SELECT 0, first - 10000000 + i * 20000, 281479271677952, m.metricId, i % 100
        FROM n, span, (SELECT 3 AS metricId UNION SELECT 13 UNION SELECT 18) m WHERE i != 700;";

#[test]
fn sampled_counters_are_windows_around_the_kernels() {
    let trace = after(SAMPLES);
    let [sampled] = trace.sampled.as_slice() else { panic!("{}", trace.sampled.len()) };
    let first = trace.ops.start.iter().min().copied().unwrap();
    // From a millisecond before the first operation on; the sample before the missing one covers twice the time.
    let (start, end) = sampled.windows[0];
    assert!(start >= first - 1_000_000 && end - start == 20_000, "{start} {end} {first}");
    assert!(sampled.windows.iter().all(|window| [20_000, 40_000].contains(&(window.1 - window.0))));
    assert_eq!(trace.devices[sampled.device.index()].name.as_deref(), Some("NVIDIA H200"));
    let read: Vec<crate::SampledMetric> = sampled.metrics.iter().map(|(metric, _)| *metric).collect();
    assert_eq!(read, [crate::SampledMetric::DramReadPct, crate::SampledMetric::SmActivePct]);
    assert!(sampled.metrics.iter().all(|(_, values)| values.len() == sampled.windows.len()));
    assert!(after("").sampled.is_empty());
}

const VLLM: &str = "vllm/vllm_dense_graph.sqlite.gz";

/// Waits by kind: those whose event was recorded by a call before on another stream, and all.
fn waits_by_kind(trace: &Trace) -> Vec<(WaitKind, usize, usize)> {
    let calls: BTreeMap<u32, (i64, &str)> = (0..trace.calls.len())
        .map(|row| {
            (trace.calls.correlation[row], (trace.calls.start[row], trace.names.get(trace.calls.name[row])))
        })
        .collect();
    let has_record = |wait: &&Wait| {
        let Some(event) = wait.event else { return false };
        let (recorded, name) = calls[&event.correlation];
        recorded < calls[&wait.correlation].0
            && name.contains("EventRecord")
            && wait.stream != Some(event.stream)
    };
    let kinds = [WaitKind::Device, WaitKind::Stream, WaitKind::Event, WaitKind::StreamForEvent];
    let of_kind = |kind| trace.waits.iter().filter(move |wait| wait.kind == kind);
    kinds.map(|kind| (kind, of_kind(kind).filter(has_record).count(), of_kind(kind).count())).to_vec()
}

#[test]
fn every_wait_for_an_event_has_its_record() {
    let trace = after_in(VLLM, "");
    let expected = [
        (WaitKind::Device, 0, 1),
        (WaitKind::Stream, 0, 0),
        (WaitKind::Event, 28, 28),
        (WaitKind::StreamForEvent, 28, 28),
    ];
    assert_eq!(waits_by_kind(&trace), expected);
    let streams: BTreeSet<u32> = trace.ops.stream.iter().copied().collect();
    for wait in &trace.waits {
        assert!(wait.device.is_some());
        assert!(wait.stream.is_none_or(|stream| streams.contains(&stream)), "{wait:?}");
        assert!(wait.event.is_none_or(|event| streams.contains(&event.stream)), "{wait:?}");
    }
    // Older exports have only the number of the event, which is recorded again and again.
    let older = "ALTER TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION DROP COLUMN eventSyncId;
                 ALTER TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT DROP COLUMN eventSyncId";
    assert_eq!(after_in(VLLM, older).waits, trace.waits);
    let without = after_in(VLLM, "DROP TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT");
    assert!(without.waits.iter().all(|wait| wait.event.is_none()));
    assert_eq!(without.waits.len(), trace.waits.len());
}

#[test]
fn the_call_tells_the_kind_of_a_wait() {
    // nsys gives this wait for a stream the number of waits of a stream.
    let trace = after("");
    let wait = trace.waits[0];
    assert_eq!((trace.waits.len(), wait.kind, wait.stream), (1, WaitKind::Stream, Some(7)));
    let other = "UPDATE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION SET";
    assert_eq!(after(&format!("{other} correlationId = 4000000000")).waits[0].kind, WaitKind::Stream);
    let unknown = after(&format!("{other} syncType = 9, correlationId = 4000000000"));
    assert_eq!((unknown.waits.len(), unknown.losses.count(LossKind::EventUnknown)), (0, 1));
    for damage in ["correlationId = NULL", "streamId = -5", "eventId = 'x'", "contextId = 1 << 40"] {
        let trace = after(&format!("{other} {damage}"));
        assert_eq!((trace.waits.len(), trace.losses.count(LossKind::EventMalformed)), (0, 1), "{damage}");
    }
}
