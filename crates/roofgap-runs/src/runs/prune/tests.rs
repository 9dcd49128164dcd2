use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::run_dir::folder::RunDir;
use roofgap_collect::child::Cancel;

use super::super::killed::{ChildTest, moments};
use super::*;

/// Text that compresses like a trace does: somewhat.
fn trace(kilobytes: usize) -> Vec<u8> {
    let mut state = 7u32;
    let mut bytes = Vec::new();
    while bytes.len() < kilobytes << 10 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes.extend_from_slice(format!("{},kernel_{},{}\n", state, state % 17, state % 1000).as_bytes());
    }
    bytes
}

fn run(base: &Path, id: &str, files: &[(&str, usize)]) -> PathBuf {
    let path = base.join(id);
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("session.json"), "{}").unwrap();
    fs::write(path.join("report.md"), "# report\n".repeat(1000)).unwrap();
    for (name, kilobytes) in files {
        let file = path.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, trace(*kilobytes)).unwrap();
    }
    path
}

fn props(base: &Path, keep: usize, max_run_bytes: u64) -> PruneProps {
    PruneProps { base: base.to_owned(), keep, max_run_bytes }
}

fn done(plan: &PrunePlan) -> PruneOutcome {
    execute(plan, &Cancel::new(), &mut |_, _| {})
}

fn unpacked(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(fs::File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn older_runs_are_compressed_and_reports_stay() {
    let base = tempfile::tempdir().unwrap();
    let old = run(base.path(), "20260101-000000", &[("nsys/run.sqlite", 64), ("ncu/plan_raw.csv", 32)]);
    let new = run(base.path(), "20260102-000000", &[("nsys/run.sqlite", 64)]);
    let plan = plan(&props(base.path(), 1, u64::MAX)).unwrap();
    assert!(old.join("nsys/run.sqlite").is_file(), "planning touches nothing");
    assert_eq!(plan.runs[1].left_alone.as_deref(), Some("one of the latest runs"));
    let outcome = done(&plan);
    assert_eq!(outcome.done.len(), 2);
    assert!(outcome.failed.is_empty());
    assert_eq!(unpacked(&old.join("nsys/run.sqlite.gz")), trace(64));
    assert!(!old.join("nsys/run.sqlite").exists());
    assert!(old.join("report.md").is_file());
    assert!(new.join("nsys/run.sqlite").is_file());
    // The estimate is near what came of it.
    let (said, won) = (plan.saves_bytes as f64, outcome.saved_bytes as f64);
    assert!((said - won).abs() < 0.1 * won, "{said} {won}");
    // A second time there is nothing to do.
    assert_eq!(super::plan(&props(base.path(), 1, u64::MAX)).unwrap().saves_bytes, 0);
}

#[test]
fn a_run_in_progress_is_left_alone() {
    let base = tempfile::tempdir().unwrap();
    let live = RunDir::create(base.path()).unwrap();
    live.write("nsys.csv", &trace(64)).unwrap();
    run(base.path(), "20260101-000000", &[("nsys/run.sqlite", 64)]);
    let plan = plan(&props(base.path(), 0, 1)).unwrap();
    let own = plan.runs.iter().find(|run| run.run_id == live.id().as_str()).unwrap();
    assert_eq!(own.left_alone.as_deref(), Some("the run is in progress"));
    // It may also begin after the plan was made.
    let mut late = plan.clone();
    late.runs[0].path = live.path().to_owned();
    let outcome = done(&late);
    assert!(outcome.done.is_empty());
    assert!(outcome.failed.iter().all(|left| left.why.contains("in progress")));
}

#[test]
fn over_the_limit_regenerable_files_are_deleted() {
    let base = tempfile::tempdir().unwrap();
    let path = run(
        base.path(),
        "20260101-000000",
        &[
            ("nsys/run.nsys-rep.gz", 20),
            ("nsys/run.sqlite", 256),
            ("nsys/summary_cuda_gpu_kern_sum.csv", 16),
            ("native/1.rgcap", 64),
        ],
    );
    // Room for everything but the export, even compressed.
    let plan = plan(&props(base.path(), 5, 80 << 10)).unwrap();
    let what: Vec<(Action, &str)> =
        plan.runs[0].steps.iter().map(|step| (step.action, step.path.to_str().unwrap())).collect();
    assert_eq!(
        what,
        [
            (Action::Compress, "native/1.rgcap"),
            (Action::Delete, "nsys/summary_cuda_gpu_kern_sum.csv"),
            (Action::Delete, "nsys/run.sqlite"),
        ]
    );
    // Without what it is made from, it stays.
    let mut orphan = plan.clone();
    fs::rename(path.join("nsys/run.nsys-rep.gz"), path.join("elsewhere")).unwrap();
    let outcome = done(&orphan);
    assert!(path.join("nsys/run.sqlite").is_file());
    assert!(outcome.failed.iter().all(|left| left.why.contains("is missing")), "{outcome:?}");
    fs::rename(path.join("elsewhere"), path.join("nsys/run.nsys-rep.gz")).unwrap();
    orphan = super::plan(&props(base.path(), 5, 80 << 10)).unwrap();
    assert!(done(&orphan).failed.is_empty());
    assert!(!path.join("nsys/run.sqlite").exists());
}

#[test]
fn files_that_cannot_be_regenerated_are_kept() {
    let base = tempfile::tempdir().unwrap();
    let path = run(base.path(), "20260101-000000", &[("nsys/run.sqlite", 256)]);
    let plan = plan(&props(base.path(), 5, 10 << 10)).unwrap();
    assert!(plan.runs[0].over_cap_bytes > 0);
    done(&plan);
    assert_eq!(unpacked(&path.join("nsys/run.sqlite.gz")), trace(256));
}

#[test]
fn a_file_under_two_names_counts_once() {
    let base = tempfile::tempdir().unwrap();
    let path = run(base.path(), "20260101-000000", &[("ncu/plan.ncu-rep", 64)]);
    fs::hard_link(path.join("ncu/plan.ncu-rep"), path.join("ncu/zdecode.ncu-rep")).unwrap();
    let plan = plan(&props(base.path(), 5, u64::MAX)).unwrap();
    assert!(plan.bytes < 80 << 10, "{}", plan.bytes);
}

#[test]
fn a_changed_file_is_kept() {
    let base = tempfile::tempdir().unwrap();
    let path = run(base.path(), "20260101-000000", &[("nsys/run.sqlite", 64)]);
    let plan = plan(&props(base.path(), 0, u64::MAX)).unwrap();
    fs::write(path.join("nsys/run.sqlite"), trace(65)).unwrap();
    let outcome = done(&plan);
    assert!(outcome.failed[0].why.contains("another process is writing it"), "{outcome:?}");
    assert_eq!(fs::read(path.join("nsys/run.sqlite")).unwrap(), trace(65));
}

#[test]
fn a_cancellation_stops_between_two_files() {
    let base = tempfile::tempdir().unwrap();
    run(base.path(), "20260101-000000", &[("nsys/run.sqlite", 64), ("ncu/plan_raw.csv", 64)]);
    let plan = plan(&props(base.path(), 0, u64::MAX)).unwrap();
    let cancel = Cancel::new();
    let outcome = execute(&plan, &cancel, &mut |_, _| cancel.request());
    assert!(outcome.interrupted);
    assert_eq!(outcome.done.len(), 1);
}

/// A disk with room for so many bytes.
struct Full(fs::File, usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1 =
            self.1.checked_sub(bytes.len()).ok_or_else(|| io::Error::from(io::ErrorKind::StorageFull))?;
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn a_full_disk_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.sqlite");
    fs::write(&path, trace(512)).unwrap();
    for room in [0, 1 << 10, 150 << 10] {
        let error = pack_through(&path, |file| Full(file, room)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).unwrap(), trace(512));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing half is left");
    }
}

/// The child of the next test: prunes until it is killed. Does nothing when it is run as a test.
#[test]
fn prune_as_a_child() {
    if let Some(base) = std::env::var_os("ROOFGAP_TEST_PRUNE_CHILD") {
        let plan = plan(&props(Path::new(&base), 0, u64::MAX)).unwrap();
        done(&plan);
    }
}

#[test]
fn a_kill_at_any_moment_loses_nothing() {
    let child =
        ChildTest { name: "runs::prune::tests::prune_as_a_child", variable: "ROOFGAP_TEST_PRUNE_CHILD" };
    let content = trace(2048);
    let names = ["nsys/run.sqlite", "ncu/plan_raw.csv"];
    let new_run = || {
        let base = tempfile::tempdir().unwrap();
        let path = run(base.path(), "20260101-000000", &names.map(|name| (name, 2048)));
        (base, path)
    };
    let packed = |path: &Path, name: &str| unpacked(&path.join(format!("{name}.gz")));
    let ends_whole = |base: &Path, path: &Path| {
        for name in names {
            let plain = fs::read(path.join(name));
            assert!(plain.unwrap_or_else(|_| packed(path, name)) == content, "{name} is damaged");
        }
        // What is there now can be pruned to the end.
        done(&plan(&props(base, 0, u64::MAX)).unwrap());
        for name in names {
            assert!(packed(path, name) == content);
        }
    };
    let (base, _) = new_run();
    let whole = child.whole(base.path());
    for moment in moments(10, whole) {
        let (base, path) = new_run();
        child.kill_after(base.path(), moment);
        ends_whole(base.path(), &path);
    }
    let in_the_middle = || {
        let (base, path) = new_run();
        let is_hit = child.kill_in_the_middle(base.path());
        ends_whole(base.path(), &path);
        is_hit
    };
    assert!((0..50).any(|_| in_the_middle()), "no kill was in the middle");
}

#[test]
fn only_real_runs_are_pruned() {
    let base = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    // A folder that is named like a run, and a link to a run elsewhere.
    let photos = base.path().join("20250101-000000");
    fs::create_dir(&photos).unwrap();
    fs::write(photos.join("list.csv"), trace(64)).unwrap();
    let outside = run(elsewhere.path(), "20250102-000000", &[("nsys/run.sqlite", 64)]);
    std::os::unix::fs::symlink(&outside, base.path().join("20250102-000000")).unwrap();
    run(base.path(), "20250103-000000", &[("nsys/run.sqlite", 64)]);
    let plan = plan(&props(base.path(), 0, u64::MAX)).unwrap();
    let ids: Vec<&str> = plan.runs.iter().map(|run| run.run_id.as_str()).collect();
    assert_eq!(ids, ["20250103-000000"]);
}

#[test]
fn a_folder_that_became_a_link_is_not_followed() {
    let base = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let path = run(base.path(), "20250103-000000", &[("nsys/run.sqlite", 64)]);
    let plan = plan(&props(base.path(), 0, u64::MAX)).unwrap();
    let moved = elsewhere.path().join("nsys");
    fs::rename(path.join("nsys"), &moved).unwrap();
    std::os::unix::fs::symlink(&moved, path.join("nsys")).unwrap();
    let outcome = execute(&plan, &Cancel::new(), &mut |_, _| {});
    assert_eq!(outcome.failed.len(), 1, "{outcome:?}");
    assert!(moved.join("run.sqlite").exists());
}

#[test]
fn the_older_segment_of_a_capture_is_compressed_with_it() {
    let base = tempfile::tempdir().unwrap();
    let names = ["native/1.rgcap", "native/1.rgcap.old"];
    let path = run(base.path(), "20260101-000000", &names.map(|name| (name, 64)));
    assert!(done(&plan(&props(base.path(), 0, u64::MAX)).unwrap()).failed.is_empty());
    for name in names {
        assert!(!path.join(name).exists(), "{name}");
        assert_eq!(unpacked(&path.join(format!("{name}.gz"))), trace(64));
    }
    // What is compressed is not compressed again.
    let again = plan(&props(base.path(), 0, u64::MAX)).unwrap();
    assert!(again.runs[0].steps.is_empty(), "{again:?}");
}

#[test]
fn a_plan_speaks_of_one_run_and_of_several() {
    let run = RunPlan {
        run_id: "20260101-000000".into(),
        path: "20260101-000000".into(),
        bytes: 1_000,
        saves_bytes: 1_000,
        left_alone: None,
        steps: vec![PruneStep {
            action: Action::Delete,
            path: "nsys/run.sqlite".into(),
            bytes: 1_000,
            saves_bytes: 1_000,
            why: "regenerated from the report".into(),
            made_from: None,
        }],
        over_cap_bytes: 0,
    };
    let text = |runs: Vec<RunPlan>| {
        let plan = PrunePlan { bytes: 1_000 * runs.len() as u64, saves_bytes: 0, runs };
        crate::runs::text::plan(&plan, roofgap_report::Screen::default())
    };
    let one = text(vec![run.clone()]);
    assert!(one.contains("\n1 run takes 1.0 kB;"), "{one}");
    assert!(one.contains("delete"), "{one}");
    let two = text(vec![run.clone(), run.clone()]);
    assert!(two.contains("\n2 runs take 2.0 kB;"), "{two}");
    let json = serde_json::to_value(&run).unwrap();
    assert_eq!(json["steps"][0]["action"], "delete");
    assert_eq!(json["saves_bytes"], 1_000);
}
