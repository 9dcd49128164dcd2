//! Native captures of the ranks of a job: read together, merged from several nodes.

use crate::support::{ok, roofgap, run};
use roofgap_wire::{
    Call, CallName, End, EventKind, FrameBuilder, Header, Host, Kernel, LaunchShape, LauncherVariable,
    Message, NvtxEvent, NvtxPop, Process, Record, StreamEntry, Text, TextEntry, Thread,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A process to record.
struct Recorded {
    pid: u32,
    host: &'static str,
    /// Rank of two.
    rank: Option<u32>,
    /// Duration of a kernel, ns.
    compute: u64,
}

/// Writes a capture of three steps: a kernel, then an all-reduce of gloo that ends at the same time on all ranks.
fn write(path: &Path, recorded: &Recorded) {
    let mut frame = FrameBuilder::new();
    frame.put(&Record::Process(Process { pid: recorded.pid, parent: 1, at: 1, name: Text(b"python3") }));
    for (name, value) in recorded.rank.iter().flat_map(|rank| [("RANK", *rank), ("WORLD_SIZE", 2)]) {
        let name = Text(name.as_bytes());
        frame.put(&Record::LauncherVariable(LauncherVariable { value, name }));
    }
    let name = Text(recorded.host.as_bytes());
    frame.put(&Record::Host(Host { name }));
    frame.put(&Record::TextEntry(TextEntry { id: 0, text: Text(b"gemm") }));
    frame.put(&Record::LaunchShape(LaunchShape {
        id: 0,
        name: 0,
        grid: [3, 1, 1],
        block: [128, 1, 1],
        registers: 40,
        static_shared: 0,
        dynamic_shared: 0,
        local: 0,
    }));
    frame.put(&Record::StreamEntry(StreamEntry { id: 0, device: 0, context: 1, stream: 7 }));
    frame.put(&Record::CallName(CallName { api: 211, name: Text(b"cudaLaunchKernel_v7000") }));
    frame.put(&Record::Thread(Thread { tid: 7, handle: 900, at: 50 }));
    let mut event = |kind: EventKind, at: u64, text: &str| {
        frame.put(&Record::NvtxEvent(NvtxEvent {
            kind,
            tid: 7,
            domain: 0,
            at,
            range: 0,
            category: 0,
            payload_kind: 0,
            payload: 0,
            message: Message::Inline(Text(text.as_bytes())),
        }));
        frame.len()
    };
    if let Some(rank) = recorded.rank {
        let group = format!("roofgap.group rank={rank} world=2 name=0 size=2 ranks=0-1 desc=default_pg");
        event(EventKind::Mark, 60, &group);
    }
    let began = |step: u32| 1_000_000 * u64::from(step + 1);
    for step in 0..3 {
        let begin = began(step);
        if recorded.rank.is_some() {
            let call = format!(
                "roofgap.collective all_reduce group=0 desc=default_pg size=2 in=4096 out=4096 on=host wait=1 seq={step}"
            );
            event(EventKind::Push, begin + recorded.compute + 1_000, &call);
        }
    }
    for step in 0..3 {
        let begin = began(step);
        if recorded.rank.is_some() {
            // The ranges were opened in the order of the steps, so the last closes first.
            let at = began(2 - step) + 900_000;
            frame.put(&Record::NvtxPop(NvtxPop { tid: 7, domain: 0, at }));
        }
        frame.put(&Record::Call(Call {
            api: 211,
            thread: 900,
            correlation: step + 1,
            result: 0,
            start: begin,
            end: begin + 500,
        }));
        frame.put(&Record::Kernel(Kernel {
            shape: 0,
            stream_id: 0,
            correlation: step + 1,
            graph: 0,
            start: begin + 1_000,
            end: begin + 1_000 + recorded.compute,
            node: 0,
        }));
    }
    let mut bytes = Header::new(recorded.pid, 1, 2).encode().to_vec();
    bytes.extend_from_slice(frame.close());
    frame.put(&Record::End(End { how: 1, at: 9_000_000 }));
    bytes.extend_from_slice(frame.close());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// Writes two ranks of one host; rank 1 computes longer.
fn two(folder: &Path) {
    for (pid, rank, compute) in [(11, 1, 500_000), (12, 0, 100_000)] {
        let recorded = Recorded { pid, host: "node7", rank: Some(rank), compute };
        write(&folder.join(format!("{pid}-2.rgcap")), &recorded);
    }
}

fn analysis(args: &[&str]) -> Value {
    let mut all = vec!["analyze", "--format=json"];
    all.extend(args);
    serde_json::from_str(&ok(all).stdout).unwrap()
}

#[test]
fn the_processes_of_a_job_are_its_ranks() {
    let folder = tempfile::tempdir().unwrap();
    two(folder.path());
    let place = folder.path().to_str().unwrap();
    let found = analysis(&[place]);
    let job = &found["job"];
    assert_eq!((&job["world_size"], &job["missing"]), (&json!(2), &json!([])));
    let ranks = found["ranks"].as_array().unwrap();
    for (rank, waited, waited_for, compute) in [(0, 1_200_000, 0, 300_000), (1, 0, 1_200_000, 1_500_000)] {
        let row = &ranks[rank];
        assert_eq!((&row["rank"], &row["host"]), (&json!(rank), &json!("node7")));
        assert_eq!((&row["kernel_count"], &row["kernel_ns"]), (&json!(3), &json!(compute)));
        assert_eq!(
            (&row["waited_ns"], &row["waited_for_ns"]),
            (&json!(waited), &json!(waited_for)),
            "rank {rank}"
        );
        assert_eq!(row["clock_offset_ns"], 0);
    }
    let matched = &job["collectives"][0];
    assert_eq!(
        (&matched["collective"], &matched["count"], &matched["bytes"]),
        (&json!("all_reduce"), &json!(3), &json!(3 * 4096))
    );
    assert_eq!((&matched["matched_by"], &matched["last_rank"]), (&json!("sequence"), &json!(1)));
    assert_eq!(job["stragglers"][0]["rank"], 1);
    let own = &found["communication"][0];
    assert_eq!(
        (&own["on"], &own["calls"], &own["bytes"], &own["device"]),
        (&json!("cpu"), &json!(3), &json!(3 * 4096), &Value::Null)
    );
    let names: Vec<&str> =
        found["ranges"].as_array().unwrap().iter().map(|range| range["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["all_reduce [0 (default_pg)]"], "one row without the numbers");
    let other = analysis(&["--rank=1", place]);
    assert_eq!(other["totals"]["kernel_ns"], 1_500_000);
    assert_eq!(other["ranks"], found["ranks"]);
}

#[test]
fn perfetto_has_a_group_of_processes_for_each_rank() {
    let folder = tempfile::tempdir().unwrap();
    two(folder.path());
    let trace = folder.path().join("all.trace");
    ok(["export", "perfetto", "--out", trace.to_str().unwrap(), folder.path().to_str().unwrap()]);
    let trace: Value = serde_json::from_slice(&std::fs::read(trace).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let names: Vec<&str> = events
        .iter()
        .filter(|event| event["name"] == "process_name")
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    for name in ["rank 0: python3 12", "rank 1: python3 11", "rank 0: GPU 0: unknown"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let kernels = |rank: usize| {
        let pid = events
            .iter()
            .find(|event| event["args"]["name"] == format!("rank {rank}: GPU 0: unknown"))
            .unwrap();
        let own = events.iter().filter(|event| event["cat"] == "kernel" && event["pid"] == pid["pid"]);
        own.map(|event| event["ts"].as_f64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(kernels(0), [0.0, 1_000.0, 2_000.0]);
    assert_eq!(kernels(1), kernels(0));
}

#[test]
fn a_process_without_a_rank_is_named() {
    let folder = tempfile::tempdir().unwrap();
    two(folder.path());
    let other = Recorded { pid: 13, host: "node7", rank: None, compute: 7_000 };
    write(&folder.path().join("13-2.rgcap"), &other);
    let found = analysis(&[folder.path().to_str().unwrap()]);
    let process = &found["job"]["other_processes"][0];
    assert_eq!(
        (&process["pid"], &process["name"], &process["kernel_count"], &process["kernel_ns"]),
        (&json!(13), &json!("python3"), &json!(3), &json!(21_000))
    );
    let text = ok(["analyze", folder.path().to_str().unwrap(), "--full"]).stdout;
    assert!(text.contains("process 13 (python3) did GPU work and tells no rank"), "{text}");
}

/// Makes a run that holds one rank of another host.
fn node(base: &Path, rank: u32, host: &'static str, pid: u32) -> PathBuf {
    let place = base.join(host);
    let stage2 = format!("artifacts.stage2_dir='{}'", place.display());
    ok(["profile", "--quiet", &stage2, "runner=unwatched", "--", "true"]);
    let run = std::fs::read_dir(&place)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.join("session.json").is_file())
        .unwrap();
    let recorded = Recorded { pid, host, rank: Some(rank), compute: 100_000 + 400_000 * u64::from(rank) };
    // Both nodes have a process with the same id and start.
    write(&run.join("native/11-2.rgcap"), &recorded);
    run
}

#[test]
fn runs_of_several_nodes_are_merged() {
    let folder = tempfile::tempdir().unwrap();
    let first = node(folder.path(), 1, "node1", 11);
    let second = node(folder.path(), 0, "node0", 11);
    let out = folder.path().join("job");
    let merge = |runs: &[&PathBuf]| {
        let mut args = vec!["runs".to_owned(), "merge".to_owned(), "--out".to_owned()];
        args.push(out.display().to_string());
        args.extend(runs.iter().map(|run| run.display().to_string()));
        args.push("--format=json".to_owned());
        run(args)
    };
    let merged = merge(&[&first, &second]);
    assert_eq!(merged.status, Some(0), "{}", merged.stderr);
    let answer: Value = serde_json::from_str(&merged.stdout).unwrap();
    assert_eq!((&answer["ranks"], &answer["captures"]), (&json!([0, 1]), &json!(2)));
    let metrics = || std::fs::read_to_string(out.join("metrics.json")).unwrap();
    let found: Value = serde_json::from_str(&metrics()).unwrap();
    assert_eq!(found["job"]["collectives"][0]["count"], 3);
    let hosts: Vec<&Value> = found["ranks"].as_array().unwrap().iter().map(|rank| &rank["host"]).collect();
    assert_eq!(hosts, ["node0", "node1"]);

    // Again, in another order and with a run twice: the same.
    let before = metrics();
    let again = merge(&[&second, &first, &second]);
    assert_eq!(again.status, Some(0), "{}", again.stderr);
    assert_eq!(again.stdout, merged.stdout);
    assert_eq!(metrics(), before);

    // A second machine that recorded rank 0 is named.
    let third = node(folder.path(), 0, "node9", 19);
    let twice = merge(&[&first, &second, &third]);
    assert_eq!(twice.status, Some(3), "{}", twice.stderr);
    assert!(twice.stdout.contains("rank 0 was recorded on node0 and on node9"), "{}", twice.stdout);
    let elsewhere = run(["runs", "merge", "--out", first.to_str().unwrap(), second.to_str().unwrap()]);
    assert_eq!(elsewhere.status, Some(2), "{}", elsewhere.stdout);
    assert!(elsewhere.stderr.contains("holds files that no merge wrote"), "{}", elsewhere.stderr);
}

/// Builds a session of one node of a job. Its program waits for `others` sessions, then records a rank.
fn session(base: &Path, job: &str, rank: u32, host: &'static str, others: usize) -> std::process::Command {
    let recorded = Recorded { pid: 11, host, rank: Some(rank), compute: 100_000 + 400_000 * u64::from(rank) };
    let capture = base.join(format!("{host}.capture"));
    write(&capture, &recorded);
    let program = format!(
        "mkdir -p \"$ROOFGAP_RUN_DIR/native\" && cp '{}' \"$ROOFGAP_RUN_DIR/native/11-2.rgcap\"; \
         while [ $(ls '{}/{job}/nodes' | wc -l) -lt {others} ]; do sleep 0.05; done",
        capture.display(),
        base.display()
    );
    let stage2 = format!("artifacts.stage2_dir='{}'", base.display());
    let id = format!("run.id={job}");
    roofgap(["profile", "--quiet", &stage2, &id, "runner=unwatched", "--", "sh", "-c", &program])
}

fn metrics_of(run: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(run.join("metrics.json")).unwrap()).unwrap()
}

#[test]
fn sessions_of_several_nodes_become_one_run() {
    let folder = tempfile::tempdir().unwrap();
    // The id of a batch job is a number.
    let started: Vec<_> = [(1, "node1"), (0, "node0")]
        .map(|(rank, host)| {
            let mut command = session(folder.path(), "4711", rank, host, 2);
            command.stdout(std::process::Stdio::piped()).spawn().unwrap()
        })
        .into_iter()
        .collect();
    let mut said = String::new();
    for child in started {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        said.push_str(&String::from_utf8(output.stdout).unwrap());
    }
    let job = folder.path().join("4711");
    assert!(said.contains(&format!("job: {}, 2 sessions", job.display())), "{said}");
    let found = metrics_of(&job);
    assert_eq!(found["job"]["collectives"][0]["count"], 3);
    let hosts: Vec<&Value> = found["ranks"].as_array().unwrap().iter().map(|rank| &rank["host"]).collect();
    assert_eq!(hosts, ["node0", "node1"]);
    assert_eq!(std::fs::read_dir(job.join("nodes")).unwrap().count(), 2);
    // Captures are not copied.
    assert!(!job.join("native/11-2.rgcap").exists());
    // Neither are trials of a node: those of the job stay.
    let trial = |run_id: &str| {
        let base = json!({"runs": 0, "token_hash": null, "deterministic": null, "device_memory_bytes": null, "times": [], "times_reason": null});
        let trial = json!({
            "schema": "roofgap.try/2", "run_id": run_id, "roofgap_version": "0", "started": "", "finished": null, "state": "done",
            "reason": null, "budget_ns": 0, "spent_ns": 0, "repeats": 5, "base": base, "rows": [], "winner": null,
        });
        trial.to_string()
    };
    for node in std::fs::read_dir(job.join("nodes")).unwrap() {
        std::fs::write(node.unwrap().path().join("try.json"), trial("node")).unwrap();
    }
    std::fs::write(job.join("try.json"), trial("4711")).unwrap();
    let base = format!("--dir={}", folder.path().display());
    let again = ok(["report", &base, "4711"]);
    assert_eq!(metrics_of(&job), found, "{}", again.stdout);
    let kept = std::fs::read_to_string(job.join("try.json")).unwrap();
    assert_eq!(kept, trial("4711"));
}

#[test]
fn a_job_has_a_report_although_a_node_died() {
    let folder = tempfile::tempdir().unwrap();
    let job = folder.path().join("job-7");
    // A session of another machine that will never end.
    ok_command(session(folder.path(), "job-7", 1, "node1", 1));
    let dead = std::fs::read_dir(job.join("nodes")).unwrap().next().unwrap().unwrap().path();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let marker = json!({"pid": 1, "start_ticks": 1, "boot_id": "another", "pid_namespace": "another",
                        "started_unix_s": now.as_secs()});
    std::fs::write(dead.join(".running.json"), marker.to_string()).unwrap();
    std::fs::remove_file(job.join("metrics.json")).unwrap();
    let said = ok_command(session(folder.path(), "job-7", 0, "node0", 2));
    assert!(said.contains("not written yet"), "{said}");
    assert!(!job.join("metrics.json").exists());
    let report = run(["report".to_owned(), job.display().to_string()]);
    assert_eq!(report.status, Some(3), "{}", report.stderr);
    assert!(report.stderr.contains("its node died"), "{}", report.stderr);
    assert_eq!(metrics_of(&job)["ranks"].as_array().unwrap().len(), 2);
}

#[test]
fn a_rank_of_two_starts_of_a_job_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for (rank, host) in [(0, "node0"), (1, "node1"), (0, "node0")] {
        let mut command = session(folder.path(), "twice", rank, host, 1);
        command.output().unwrap();
    }
    let job = folder.path().join("twice");
    let report = run(["report".to_owned(), job.display().to_string()]);
    assert_eq!(report.status, Some(3), "{}", report.stderr);
    assert!(report.stderr.contains("rank 0 was recorded by"), "{}", report.stderr);
    // The second start is not added to the first.
    let ranks = metrics_of(&job)["ranks"].clone();
    assert_eq!(ranks.as_array().unwrap().len(), 2, "{ranks}");
    assert_eq!(ranks[0]["kernel_count"], 3);
}

#[test]
fn the_id_of_a_job_is_the_name_of_a_folder() {
    for id in ["../elsewhere", "a/b", ".hidden", "''"] {
        let refused = run(["profile".to_owned(), format!("run.id={id}"), "--dry-run".to_owned()]);
        assert_eq!(refused.status, Some(2), "{id}: {}", refused.stdout);
        assert!(refused.stderr.contains("run.id"), "{id}: {}", refused.stderr);
    }
}

/// Runs a command that must succeed; returns its output.
fn ok_command(mut command: std::process::Command) -> String {
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout).unwrap()
}
