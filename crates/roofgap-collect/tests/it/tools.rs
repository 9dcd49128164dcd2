//! The real tools. `ROOFGAP_TEST_NSYS` and `ROOFGAP_TEST_NCU` name them; run with `--ignored real_nsys` or `real_ncu`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use roofgap_collect::child::{Cancel, ChildSpec, EndReason, Outcome, OutputTarget, StopPlan, probe, run};
use roofgap_collect::command::{CommandLine, NvtxRange};
use roofgap_collect::doctor::{DoctorProps, Status, SystemFacts, checks};
use roofgap_collect::ncu::{self, NcuProfile, split_supported};
use roofgap_collect::nsys::{self, CaptureEnd, CaptureRange, NsysProfile};
use roofgap_collect::tool::{ImporterState, Ncu, Nsys, Search};

fn named(variable: &str) -> PathBuf {
    std::env::var_os(variable).unwrap_or_else(|| panic!("{variable} must name the tool")).into()
}

fn real_nsys() -> Nsys {
    let found = Nsys::find(&Search::from_env(Some(named("ROOFGAP_TEST_NSYS"))));
    assert!(found.rejected.is_empty(), "{:?}", found.rejected);
    found.tool.unwrap()
}

/// Builds a program with NVTX ranges. Needs a C compiler and the headers of nsys.
fn program(nsys: &Nsys, folder: &Path) -> PathBuf {
    let root = std::fs::canonicalize(&nsys.path).unwrap();
    let include = root.parent().unwrap().join("nvtx/include");
    assert!(include.is_dir(), "{} has no NVTX headers", include.display());
    let source = folder.join("program.c");
    std::fs::write(
        &source,
        r#"
        #include <nvtx3/nvToolsExt.h>
        #include <stdio.h>
        #include <unistd.h>
        #include <string.h>
        static void push(nvtxDomainHandle_t domain, const char *name) {
            nvtxEventAttributes_t a = {0};
            a.version = NVTX_VERSION; a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
            a.messageType = NVTX_MESSAGE_TYPE_ASCII; a.message.ascii = name;
            nvtxDomainRangePushEx(domain, &a);
        }
        int main(int argc, char **argv) {
            nvtxDomainHandle_t llm = nvtxDomainCreateA("LLM");
            push(llm, "prefill"); usleep(20000); nvtxDomainRangePop(llm);
            push(llm, "decode_all");
            for (int i = 0; i < 3; i++) { push(llm, "decode_step"); usleep(5000); nvtxDomainRangePop(llm); }
            nvtxDomainRangePop(llm);
            puts("done"); fflush(stdout);
            if (argc > 1 && !strcmp(argv[1], "hang")) sleep(1000);
            return 0;
        }
        "#,
    )
    .unwrap();
    let binary = folder.join("program");
    let built =
        Command::new("cc").arg("-I").arg(include).arg("-o").arg(&binary).arg(&source).arg("-ldl").status();
    assert!(built.is_ok_and(|status| status.success()), "needs a C compiler");
    binary
}

fn execute(command: &CommandLine, folder: &Path, change: impl FnOnce(&mut ChildSpec<'_>)) -> Outcome {
    let mut child = ChildSpec::new(
        command,
        OutputTarget::file(folder.join("out.log")),
        OutputTarget::file(folder.join("err.log")),
    );
    child.budget.time = Some(Duration::from_secs(240));
    child.stop = StopPlan::for_profiler();
    change(&mut child);
    run(child, &mut |_| {}).unwrap()
}

/// Returns true when the SQLite file contains the text.
fn mentions(sqlite: &Path, text: &str) -> bool {
    let bytes = std::fs::read(sqlite).unwrap();
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
#[ignore = "needs nsys: set ROOFGAP_TEST_NSYS"]
fn real_nsys_records_and_exports() {
    let nsys = real_nsys();
    assert!(nsys.version.is_some());
    assert!(nsys.profile.has("--capture-range") && nsys.profile.offers("--trace", "nvtx"));
    assert!(!nsys.reports.is_empty());
    assert!(matches!(nsys.importer, ImporterState::Works { .. }), "{:?}", nsys.importer);

    let folder = tempfile::Builder::new().prefix("100%p ").tempdir().unwrap();
    let program = program(&nsys, folder.path());
    let profile = NsysProfile {
        trace: ["cuda", "nvtx", "osrt"].map(str::to_owned).to_vec(),
        ..NsysProfile::new(folder.path().join("run"))
    };
    let outcome =
        execute(&profile.command(&nsys, &CommandLine::new(&program)).command, folder.path(), |_| {});
    assert!(outcome.is_success(), "{}: {}", outcome.describe(), outcome.output_tail());
    assert!(
        profile.report().is_file(),
        "{:?}",
        std::fs::read_dir(folder.path()).unwrap().collect::<Vec<_>>()
    );
    assert_eq!(outcome.leftovers, []);

    let sqlite = folder.path().join("run.sqlite");
    let outcome = execute(&nsys::export(&nsys, &profile.report(), &sqlite), folder.path(), |_| {});
    assert!(outcome.is_success(), "{}", outcome.output_tail());
    assert!(mentions(&sqlite, "decode_step") && mentions(&sqlite, "LLM"));

    let summary = nsys::kernel_summary(&nsys, &folder.path().join("summary")).unwrap();
    let outcome = execute(
        &nsys::stats(&nsys, &sqlite, &[summary.report], &folder.path().join("summary")),
        folder.path(),
        |_| {},
    );
    assert!(outcome.is_success(), "{}", outcome.output_tail());
    assert!(summary.file.is_file(), "{}", outcome.stdout.tail);
}

#[test]
#[ignore = "needs nsys: set ROOFGAP_TEST_NSYS"]
fn real_nsys_is_found_by_the_doctor() {
    let path = named("ROOFGAP_TEST_NSYS");
    let props = DoctorProps { nsys: Some(path.clone()), ..DoctorProps::default() };
    let checks = checks(&SystemFacts::collect(&props), &props);
    let nsys = checks.iter().find(|check| check.id == "nsys").unwrap();
    assert_eq!(nsys.status, Status::Ok, "{checks:#?}");
    assert!(nsys.found.ends_with(&path.display().to_string()));
    assert!(
        checks.iter().any(|check| check.id == "nsys_import" && check.status == Status::Ok),
        "{checks:#?}"
    );
}

#[test]
#[ignore = "needs nsys: set ROOFGAP_TEST_NSYS"]
fn real_nsys_capture_range_that_opens_and_one_that_does_not() {
    let nsys = real_nsys();
    let folder = tempfile::tempdir().unwrap();
    let program = program(&nsys, folder.path());
    for (range, opens) in [("LLM@decode_all", true), ("LLM@no_such_range", false)] {
        let capture = CaptureRange { range: NvtxRange::parse(range).unwrap(), end: CaptureEnd::Stop };
        let profile =
            NsysProfile { capture_range: Some(capture), ..NsysProfile::new(folder.path().join(range)) };
        let outcome =
            execute(&profile.command(&nsys, &CommandLine::new(&program)).command, folder.path(), |_| {});
        assert!(outcome.is_success(), "{}: {}", outcome.describe(), outcome.output_tail());
        assert_eq!(profile.report().is_file(), opens, "{range}: {}", outcome.stdout.tail);
    }
}

#[test]
#[ignore = "needs nsys: set ROOFGAP_TEST_NSYS"]
fn real_nsys_keeps_an_interrupted_recording() {
    let nsys = real_nsys();
    let folder = tempfile::tempdir().unwrap();
    let program = program(&nsys, folder.path());
    let profile = NsysProfile::new(folder.path().join("run"));
    let command = profile.command(&nsys, &CommandLine::new(&program).arg("hang")).command;
    let mut child = ChildSpec::new(
        &command,
        OutputTarget::file(folder.path().join("out")),
        OutputTarget::file(folder.path().join("err")),
    );
    child.stop = StopPlan::for_profiler();
    let cancel = Cancel::new();
    child.cancel = cancel.clone();
    let outcome = run(child, &mut |tick| {
        let said = std::fs::read_to_string(folder.path().join("out")).unwrap_or_default();
        if !tick.stopping && said.contains("done") {
            cancel.request();
        }
    })
    .unwrap();
    assert_eq!(outcome.ended, EndReason::Cancelled);
    assert!(profile.report().is_file(), "{}\n{}", outcome.describe(), outcome.stdout.tail);
    let still_there = Command::new("pgrep").arg("-f").arg(&program).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&still_there.stdout), "");
}

#[test]
#[ignore = "needs ncu: set ROOFGAP_TEST_NCU"]
fn real_ncu_accepts_all_options() {
    let found = Ncu::find(&Search::from_env(Some(named("ROOFGAP_TEST_NCU"))));
    assert!(found.rejected.is_empty(), "{:?}", found.rejected);
    let ncu = found.tool.unwrap();
    assert!(ncu.version.is_some());
    assert!(
        ncu.sets.iter().any(|set| set == "roofline")
            && ncu.sections.iter().any(|section| section == "SpeedOfLight")
    );
    let wanted = ["gpu__time_duration.sum", "dram__bytes_read.sum", "no_such_metric.sum"].map(str::to_owned);
    let (have, lack) = split_supported(wanted.to_vec(), &ncu.metrics_of("gh100").unwrap());
    assert_eq!((have.len(), lack.len()), (2, 1));
    // Nothing can be measured without a GPU, but ncu must accept all arguments.
    let folder = tempfile::tempdir().unwrap();
    let profile = NcuProfile {
        kernels: vec!["_Z4burnPf".to_owned()],
        ranges: vec![NvtxRange::parse("LLM@prefill").unwrap()],
        set: Some("basic".to_owned()),
        sections: vec!["SpeedOfLight".to_owned()],
        metrics: have,
        ..NcuProfile::new(folder.path().join("run"))
    };
    let planned = profile.command(&ncu, &CommandLine::new("true"));
    // Added after 2022.
    let expected = usize::from(!ncu.help.offers("--filter-mode", "per-launch-config"));
    assert_eq!(planned.left_out.len(), expected, "{:?}", planned.left_out);
    let outcome = execute(&planned.command, folder.path(), |_| {});
    let said = format!("{}{}", outcome.stdout.tail, outcome.stderr.tail);
    for error in ["unrecognised option", "did not match", "Failed to find metric", "invalid"] {
        assert!(!said.contains(error), "{said}");
    }
}

/// ncu filters the launches of a stored report as it filters those of a program, so that this needs no GPU.
#[test]
#[ignore = "needs ncu: set ROOFGAP_TEST_NCU"]
fn real_ncu_takes_an_escaped_label_for_a_range_of_the_default_domain() {
    let ncu = Ncu::find(&Search::from_env(Some(named("ROOFGAP_TEST_NCU")))).tool.unwrap();
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/ncu/mt_basic.ncu-rep.gz");
    let mut report = Command::new("gzip").arg("-dc").arg(packed).output().unwrap().stdout;
    // The range `warmup` of the default domain encloses all six launches. It gets a name with an `@`, of the same length.
    let (old, new) = (b"warmup", b"L@warm");
    for at in 0..report.len() - old.len() {
        if report[at..].starts_with(old) {
            report[at..at + old.len()].copy_from_slice(new);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.ncu-rep");
    std::fs::write(&path, report).unwrap();
    let launches = |range: NvtxRange| {
        let line = ncu::import(&ncu, &path, ncu::Page::Raw).arg("--nvtx-include").arg(range.for_ncu());
        let table = probe(&line, Duration::from_secs(600)).unwrap().stdout;
        let rows = table.lines().skip_while(|line| !line.starts_with("\"ID\"")).skip(2);
        rows.filter(|line| !line.is_empty()).count()
    };
    let range = |domain: Option<&str>, name: &str| NvtxRange {
        domain: domain.map(str::to_owned),
        name: name.to_owned(),
    };
    assert_eq!(launches(range(None, "L@warm")), 6);
    assert_eq!(launches(range(Some("L"), "warm")), 0);
    assert_eq!(launches(range(Some("LLM"), "decode_all")), 1);
}
