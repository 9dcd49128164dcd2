//! The real tools, where they are: `ROOFGAP_TEST_NSYS` and `ROOFGAP_TEST_NCU` name them.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use roofgap_collect::child::{Cancel, Ended, Job, Outcome, Sink, StopPlan, run};
use roofgap_collect::command::CommandLine;
use roofgap_collect::doctor::checks::checks;
use roofgap_collect::doctor::{DoctorProps, Findings, Status};
use roofgap_collect::ncu::{Plan, metrics};
use roofgap_collect::nsys::{self, CaptureEnd, Gate, Profile};
use roofgap_collect::range::NvtxRange;
use roofgap_collect::tool::{Import, Ncu, Nsys, Search};

fn named(variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map(PathBuf::from);
    if path.is_none() {
        eprintln!("skipped: {variable} names no tool");
    }
    path
}

fn real_nsys() -> Option<Nsys> {
    let found = Nsys::find(&Search::here(Some(named("ROOFGAP_TEST_NSYS")?)));
    assert_eq!(found.rejected, []);
    found.tool
}

/// A program with NVTX ranges that needs nothing but a C compiler and the headers nsys brings; `None` without either.
fn program(nsys: &Nsys, folder: &Path) -> Option<PathBuf> {
    let root = std::fs::canonicalize(&nsys.path).unwrap();
    let include = root.parent()?.join("nvtx/include");
    if !include.is_dir() {
        eprintln!("skipped: {} has no NVTX headers", include.display());
        return None;
    }
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
    let built = Command::new("cc")
        .arg("-I")
        .arg(include)
        .arg("-o")
        .arg(&binary)
        .arg(&source)
        .arg("-ldl")
        .status();
    if built.is_ok_and(|status| status.success()) {
        Some(binary)
    } else {
        eprintln!("skipped: no C compiler");
        None
    }
}

fn execute(command: &CommandLine, folder: &Path, change: impl FnOnce(&mut Job<'_>)) -> Outcome {
    let mut job = Job::new(
        command,
        Sink::file(folder.join("out.log")),
        Sink::file(folder.join("err.log")),
    );
    job.budget.time = Some(Duration::from_secs(240));
    job.stop = StopPlan::patient();
    change(&mut job);
    run(job, &mut |_| {}).unwrap()
}

/// The kernel of the check: does the SQLite file name the range?
fn mentions(sqlite: &Path, text: &str) -> bool {
    let bytes = std::fs::read(sqlite).unwrap();
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn nsys_records_and_exports() {
    let Some(nsys) = real_nsys() else { return };
    assert!(nsys.version.is_some());
    assert!(nsys.profile.has("--capture-range") && nsys.profile.offers("--trace", "nvtx"));
    assert!(!nsys.reports.is_empty());
    assert!(matches!(nsys.import, Import::Works { .. }), "{:?}", nsys.import);

    let folder = tempfile::Builder::new().prefix("100%p ").tempdir().unwrap();
    let Some(program) = program(&nsys, folder.path()) else {
        return;
    };
    let profile = Profile {
        trace: ["cuda", "nvtx", "osrt"].map(str::to_owned).to_vec(),
        ..Profile::to(folder.path().join("run"))
    };
    let outcome = execute(
        &profile.command(&nsys, &CommandLine::new(&program)).command,
        folder.path(),
        |_| {},
    );
    assert!(
        outcome.is_success(),
        "{}: {}",
        outcome.describe(),
        outcome.last_words()
    );
    assert!(
        profile.report().is_file(),
        "{:?}",
        std::fs::read_dir(folder.path()).unwrap().collect::<Vec<_>>()
    );
    assert_eq!(outcome.leftovers, []);

    let sqlite = folder.path().join("run.sqlite");
    let outcome = execute(
        &nsys::export(&nsys, &profile.report(), &sqlite),
        folder.path(),
        |_| {},
    );
    assert!(outcome.is_success(), "{}", outcome.last_words());
    assert!(mentions(&sqlite, "decode_step") && mentions(&sqlite, "LLM"));

    let summary = nsys::kernel_summary(&nsys, &folder.path().join("summary")).unwrap();
    let outcome = execute(
        &nsys::stats(&nsys, &sqlite, &[summary.report], &folder.path().join("summary")),
        folder.path(),
        |_| {},
    );
    assert!(outcome.is_success(), "{}", outcome.last_words());
    assert!(summary.file.is_file(), "{}", outcome.stdout.tail);
}

#[test]
fn the_doctor_finds_it() {
    let Some(path) = named("ROOFGAP_TEST_NSYS") else {
        return;
    };
    let props = DoctorProps {
        nsys: Some(path.clone()),
        ..DoctorProps::default()
    };
    let checks = checks(&Findings::here(&props), &props);
    let nsys = checks.iter().find(|check| check.id == "nsys").unwrap();
    assert_eq!(nsys.status, Status::Ok, "{checks:#?}");
    assert!(nsys.found.ends_with(&path.display().to_string()));
    assert!(
        checks
            .iter()
            .any(|check| check.id == "nsys_import" && check.status == Status::Ok),
        "{checks:#?}"
    );
}

#[test]
fn a_gate_that_opens_and_one_that_does_not() {
    let Some(nsys) = real_nsys() else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(&nsys, folder.path()) else {
        return;
    };
    for (range, opens) in [("LLM@decode_all", true), ("LLM@no_such_range", false)] {
        let gate = Gate {
            range: NvtxRange::parse(range).unwrap(),
            end: CaptureEnd::Stop,
        };
        let profile = Profile {
            gate: Some(gate),
            ..Profile::to(folder.path().join(range))
        };
        let outcome = execute(
            &profile.command(&nsys, &CommandLine::new(&program)).command,
            folder.path(),
            |_| {},
        );
        assert!(
            outcome.is_success(),
            "{}: {}",
            outcome.describe(),
            outcome.last_words()
        );
        assert_eq!(
            profile.report().is_file(),
            opens,
            "{range}: {}",
            outcome.stdout.tail
        );
    }
}

#[test]
fn an_interrupted_recording_is_kept_and_nothing_stays_behind() {
    let Some(nsys) = real_nsys() else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = program(&nsys, folder.path()) else {
        return;
    };
    let profile = Profile::to(folder.path().join("run"));
    let command = profile
        .command(&nsys, &CommandLine::new(&program).arg("hang"))
        .command;
    let mut job = Job::new(
        &command,
        Sink::file(folder.path().join("out")),
        Sink::file(folder.path().join("err")),
    );
    job.stop = StopPlan::patient();
    let cancel = Cancel::new();
    job.cancel = cancel.clone();
    let outcome = run(job, &mut |tick| {
        let said = std::fs::read_to_string(folder.path().join("out")).unwrap_or_default();
        if !tick.stopping && said.contains("done") {
            cancel.request();
        }
    })
    .unwrap();
    assert_eq!(outcome.ended, Ended::Cancelled);
    assert!(
        profile.report().is_file(),
        "{}\n{}",
        outcome.describe(),
        outcome.stdout.tail
    );
    let still_there = Command::new("pgrep").arg("-f").arg(&program).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&still_there.stdout), "");
}

#[test]
fn ncu_lists_what_the_plan_asks_for() {
    let Some(path) = named("ROOFGAP_TEST_NCU") else {
        return;
    };
    let found = Ncu::find(&Search::here(Some(path)));
    assert_eq!(found.rejected, []);
    let ncu = found.tool.unwrap();
    assert!(ncu.version.is_some());
    assert!(
        ncu.sets.iter().any(|set| set == "roofline")
            && ncu.sections.iter().any(|section| section == "SpeedOfLight")
    );
    let (have, lack) = metrics::existing(metrics::deep(), &ncu.metrics_of("gh100").unwrap());
    assert!(have.len() > 25, "missing: {lack:?}");
    // Without a GPU nothing can be measured; the arguments at least must all be understood.
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan {
        kernels: vec!["_Z4burnPf".to_owned()],
        ranges: vec![NvtxRange::parse("LLM@prefill").unwrap()],
        set: Some("basic".to_owned()),
        sections: vec!["SpeedOfLight".to_owned()],
        metrics: have,
        ..Plan::to(folder.path().join("run"))
    };
    let planned = plan.command(&ncu, &CommandLine::new("true"));
    // The mode came after 2022.
    let expected = usize::from(!ncu.help.offers("--filter-mode", "per-launch-config"));
    assert_eq!(planned.left_out.len(), expected, "{:?}", planned.left_out);
    let outcome = execute(&planned.command, folder.path(), |_| {});
    let said = format!("{}{}", outcome.stdout.tail, outcome.stderr.tail);
    for complaint in [
        "unrecognised option",
        "did not match",
        "Failed to find metric",
        "invalid",
    ] {
        assert!(!said.contains(complaint), "{said}");
    }
}
