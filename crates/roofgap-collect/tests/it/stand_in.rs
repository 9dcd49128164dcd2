//! From finding a tool to its output files, with the fake tools of `tests/stand-in`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use roofgap_collect::child::{Cancel, ChildSpec, EndReason, Outcome, OutputTarget, StopPlan, Watch, run};
use roofgap_collect::command::{CommandLine, NvtxRange};
use roofgap_collect::ncu::{self, NcuFailure, NcuProfile, Page, is_measured_launch, split_supported};
use roofgap_collect::nsys::{self, CaptureEnd, CaptureRange, NsysProfile};
use roofgap_collect::tool::{Ncu, Nsys, Search};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/stand-in").canonicalize().unwrap()
}

fn search() -> Search {
    Search { named: None, path: vec![folder()], root: None }
}

fn nsys() -> Nsys {
    let found = Nsys::find(&search());
    found.tool.unwrap_or_else(|| panic!("{:?}", found.rejected))
}

fn ncu() -> Ncu {
    let found = Ncu::find(&search());
    found.tool.unwrap_or_else(|| panic!("{:?}", found.rejected))
}

fn program(script: &str) -> CommandLine {
    CommandLine::new("bash").args(["-c", script])
}

struct Stage {
    folder: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        // A blank and a percent sign, since both have broken things before.
        Stage { folder: tempfile::Builder::new().prefix("a 5%p ").tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, command: CommandLine, mode: &str) -> Outcome {
        self.run_with(command, mode, |_| {})
    }

    fn run_with(&self, command: CommandLine, mode: &str, change: impl FnOnce(&mut ChildSpec<'_>)) -> Outcome {
        let command = command.env("STANDIN_MODE", mode).cwd(self.folder.path());
        let mut child = ChildSpec::new(
            &command,
            OutputTarget::file(self.path("out.log")),
            OutputTarget::file(self.path("err.log")),
        );
        child.budget.time = Some(Duration::from_secs(600));
        child.stop = StopPlan {
            interrupt: Duration::from_secs(60),
            report: Duration::ZERO,
            terminate: Duration::from_secs(20),
            settle: Duration::from_millis(500),
        };
        change(&mut child);
        run(child, &mut |_| {}).unwrap()
    }
}

#[test]
fn they_are_found_and_recognised() {
    let nsys = nsys();
    assert_eq!(nsys.version.unwrap().to_string(), "2025.3.1.90");
    assert!(nsys.profile.has("--cuda-event-trace") && nsys.reports.contains(&"cuda_gpu_kern_sum".to_owned()));
    let ncu = ncu();
    assert_eq!(ncu.version.as_ref().unwrap().to_string(), "2025.3.1.0");
    assert!(ncu.sets.contains(&"roofline".to_owned()) && ncu.sections.contains(&"SpeedOfLight".to_owned()));
    let wanted = ["dram__bytes_read.sum", "sm__ops_path_tensor_src_fp16_dst_fp16.sum"].map(str::to_owned);
    let (have, lack) = split_supported(wanted.to_vec(), &ncu.metrics_of("gh100").unwrap());
    assert_eq!((have.as_slice(), lack.as_slice()), (&wanted[..1], &wanted[1..]));
}

#[test]
fn nsys_records_exports_and_sums_up() {
    let (stage, nsys) = (Stage::new(), nsys());
    let profile = NsysProfile::new(stage.path("run"));
    let outcome = stage.run(profile.command(&nsys, &program("touch ran; exit 0")).command, "playback");
    assert!(outcome.is_success(), "{}", outcome.output_tail());
    assert!(profile.report().is_file() && stage.path("ran").is_file());
    let sqlite = stage.path("run.sqlite");
    assert!(stage.run(nsys::export(&nsys, &profile.report(), &sqlite), "playback").is_success());
    assert!(std::fs::read(&sqlite).unwrap().starts_with(b"SQLite format 3\0"));
    let summary = nsys::kernel_summary(&nsys, &stage.path("summary")).unwrap();
    assert!(
        stage
            .run(nsys::stats(&nsys, &sqlite, &[summary.report], &stage.path("summary")), "playback")
            .is_success()
    );
    assert!(std::fs::read_to_string(&summary.file).unwrap().contains("Total Time"));
}

#[test]
fn nsys_fails_in_its_ways() {
    let (stage, nsys) = (Stage::new(), nsys());
    let record = |mode: &str, name: &str| {
        let profile = NsysProfile::new(stage.path(name));
        let outcome = stage.run(profile.command(&nsys, &program("exit 0")).command, mode);
        (profile, outcome)
    };
    let (profile, outcome) = record("nothing", "a");
    assert!(outcome.is_success() && !profile.report().exists() && !profile.unimported().exists());
    let (profile, outcome) = record("import-failed", "b");
    assert!(outcome.is_success() && !profile.report().exists() && profile.unimported().is_file());
    let (profile, outcome) = record("killed", "c");
    assert_eq!(outcome.signal, Some(9));
    assert!(!profile.report().exists());
    let (profile, outcome) = record("error", "d");
    assert!(outcome.code == Some(1) && !outcome.output_tail().is_empty() && !profile.report().exists());

    let failing = NsysProfile::new(stage.path("e"));
    let outcome = stage.run(failing.command(&nsys, &program("exit 7")).command, "playback");
    assert_eq!(outcome.code, Some(7));
    assert!(failing.report().is_file(), "a failing program is still recorded");
    let lost = nsys::export(&nsys, &failing.report(), &stage.path("e.sqlite"));
    assert_eq!(stage.run(lost.clone(), "export-failed").code, Some(1));
    assert!(stage.run(lost, "export-nothing").is_success() && !stage.path("e.sqlite").exists());
}

#[test]
fn a_capture_range_that_never_opens_leaves_nothing() {
    let (stage, nsys) = (Stage::new(), nsys());
    for (range, opens) in [("LLM@prefill", true), ("LLM@decode", false)] {
        let capture = CaptureRange { range: NvtxRange::parse(range).unwrap(), end: CaptureEnd::Stop };
        let profile = NsysProfile { capture_range: Some(capture), ..NsysProfile::new(stage.path(range)) };
        let command = profile.command(&nsys, &program("exit 0")).command;
        let outcome = stage.run(command.env("STANDIN_RANGES", "prefill@LLM decode_all@LLM"), "playback");
        assert!(outcome.is_success());
        assert_eq!(profile.report().exists(), opens, "{range}");
    }
}

#[test]
fn an_interrupted_recording_leaves_its_report() {
    let (stage, nsys) = (Stage::new(), nsys());
    let profile = NsysProfile::new(stage.path("run"));
    let cancel = Cancel::new();
    let asked = cancel.clone();
    let command = profile.command(&nsys, &program("echo ready; sleep 1000 & wait")).command;
    let outcome = stage.run_with(command, "playback", |child| {
        child.cancel = cancel.clone();
        child.watch = Some(Box::new(move |line| {
            if line == "ready" {
                asked.request();
            }
            Watch::Continue
        }));
    });
    assert_eq!(outcome.ended, EndReason::Cancelled);
    assert!(profile.report().is_file(), "{}", outcome.output_tail());
}

#[test]
fn ncu_measures_and_shows() {
    let (stage, ncu) = (Stage::new(), ncu());
    let profile = NcuProfile {
        kernels: vec!["_Z4burnPf".to_owned()],
        ranges: vec![NvtxRange::parse("LLM@prefill").unwrap()],
        metrics: vec!["gpu__time_duration.sum".to_owned()],
        sections: vec!["SpeedOfLight".to_owned()],
        ..NcuProfile::new(stage.path("all"))
    };
    let planned = profile.command(&ncu, &program("touch ran"));
    assert_eq!(planned.left_out, Vec::<String>::new());
    let outcome = stage.run(planned.command, "playback");
    assert!(outcome.is_success(), "{}", outcome.output_tail());
    assert!(profile.report().is_file() && stage.path("ran").is_file());
    let counted = outcome.stdout.tail.lines().filter(|line| is_measured_launch(line)).count();
    assert_eq!(counted, 3);
    for (page, expected) in [(Page::Raw, "Kernel Name"), (Page::Details, "Metric Value")] {
        let command = ncu::import(&ncu, &profile.report(), page);
        let outcome = stage.run_with(command, "playback", |child| {
            child.stdout = OutputTarget::File { path: stage.path("page.csv"), max_bytes: 64 << 20 };
        });
        assert!(outcome.is_success());
        assert_eq!(outcome.stdout.left_out, 0);
        assert!(std::fs::read_to_string(stage.path("page.csv")).unwrap().contains(expected));
    }
}

#[test]
fn ncu_fails_in_its_ways() {
    let (stage, ncu) = (Stage::new(), ncu());
    let measure = |mode: &str| {
        let profile = NcuProfile::new(stage.path(mode));
        let outcome = stage.run(profile.command(&ncu, &program("exit 0")).command, mode);
        assert!(!profile.report().exists(), "{mode}");
        let remedy = NcuFailure::find(&outcome.stdout.tail).map_or("", |failure| failure.remedy);
        (outcome, remedy)
    };
    assert_eq!(measure("permission").1, ncu::PERMISSION_REMEDY);
    let (outcome, remedy) = measure("no-kernels");
    assert!(outcome.is_success());
    assert!(remedy.starts_with("no launch matched the filters"), "{remedy}");
    assert!(measure("unknown-section").1.contains("--list-sections"));
    assert!(measure("no-driver").1.contains("nvidia-smi must work"));
    assert_eq!(measure("killed").0.signal, Some(9));
}

#[test]
fn a_plan_that_is_met_ends_the_program_and_keeps_the_report() {
    let (stage, ncu) = (Stage::new(), ncu());
    let profile = NcuProfile::new(stage.path("met"));
    let outcome =
        stage.run_with(profile.command(&ncu, &program("sleep 1000; true")).command, "watch", |child| {
            let mut left = 3;
            child.watch = Some(Box::new(move |line| {
                left -= i32::from(is_measured_launch(line));
                if left == 0 { Watch::Stop } else { Watch::Continue }
            }));
        });
    assert_eq!(outcome.ended, EndReason::StoppedByWatcher);
    assert!(profile.report().is_file(), "{}: {}", outcome.describe(), outcome.output_tail());
}

#[test]
fn a_profiler_that_hangs_is_ended_with_its_program() {
    let (stage, nsys) = (Stage::new(), nsys());
    let profile = NsysProfile::new(stage.path("run"));
    let command = profile.command(&nsys, &program("exit 0")).command.env("STANDIN_HANG_S", "1000");
    let outcome = stage.run_with(command, "hang", |child| {
        child.budget.time = Some(Duration::from_millis(700));
        child.stop.interrupt = Duration::from_millis(300);
        child.stop.terminate = Duration::from_millis(300);
    });
    assert!(matches!(outcome.ended, EndReason::TimeBudget { .. }));
}
