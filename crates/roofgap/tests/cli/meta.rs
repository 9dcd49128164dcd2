//! Help, completions, manual page, schema, configuration, doctor, streams and colours.

use crate::support::{ROOFGAP, Run, can_run, ok, roofgap, root, run};
use serde_json::Value;
use std::process::{Command, Stdio};

#[test]
fn help_and_version_are_answers_and_wrong_usage_is_an_error() {
    for args in [&["--help"] as &[&str], &["help", "profile"], &["--version"]] {
        let run = ok(args);
        assert!(!run.stdout.is_empty() && run.stderr.is_empty(), "{args:?}: {run:?}");
    }
    for args in [&["no-such-command"] as &[&str], &["analyze"], &["analyze", "--format=xml", "x"], &[]] {
        let run = run(args);
        assert_eq!(run.status, Some(2), "{args:?}");
        assert!(run.stdout.is_empty() && !run.stderr.is_empty(), "{args:?}: {run:?}");
    }
}

#[cfg(feature = "manual")]
#[test]
fn completions_for_every_shell_know_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = ok(["completions", shell]).stdout;
        for word in ["profile", "analyze", "doctor", "fail-on"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
    }
    assert_eq!(run(["completions", "ksh"]).status, Some(2));
    let mut bash = Command::new("bash");
    let script = ok(["completions", "bash"]).stdout;
    assert!(bash.args(["-n", "-c", &script]).status().unwrap().success());
}

#[cfg(feature = "manual")]
#[test]
fn the_manual_is_a_page() {
    let page = ok(["man"]).stdout;
    assert!(page.contains(".TH roofgap 1"), "{page}");
    assert!(page.contains("analyze"), "{page}");
    assert!(ok(["man", "runs", "list"]).stdout.contains(".TH roofgap-runs-list 1"));
}

#[cfg(not(feature = "manual"))]
#[test]
fn the_manual_is_part_of_a_release() {
    for args in [&["man"] as &[&str], &["completions", "bash"]] {
        let run = run(args);
        assert_eq!(run.status, Some(2), "{run:?}");
        assert!(
            run.stderr.contains("built without the command") && run.stderr.contains("archive"),
            "{run:?}"
        );
    }
}

#[test]
fn the_help_names_the_commands_by_task() {
    let help = ok(["--help"]).stdout;
    let tasks = ["\nRecord:\n", "\nRead:\n", "\nImprove:\n", "\nManage:\n", "\nGlobal options:\n"];
    let places: Vec<_> = tasks.iter().map(|task| help.find(task)).collect();
    assert!(places.is_sorted() && places.iter().all(Option::is_some), "{help}");
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
}

#[test]
fn a_format_that_a_command_does_not_have_is_refused() {
    for args in [&["doctor", "--format=html"] as &[&str], &["profile", "--dry-run", "--format=json"]] {
        let run = run(args);
        assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{args:?}");
        assert!(run.stderr.contains("--format is one of text"), "{}", run.stderr);
    }
}

#[test]
fn the_schema_is_the_one_in_the_repository() {
    let printed: Value = serde_json::from_str(&ok(["schema"]).stdout).unwrap();
    let kept = std::fs::read(root().join("crates/roofgap-report/schema/analysis-1.schema.json")).unwrap();
    assert_eq!(printed, serde_json::from_slice::<Value>(&kept).unwrap());
    let printed: Value = serde_json::from_str(&ok(["schema", "try"]).stdout).unwrap();
    assert_eq!(printed["title"], "roofgap.try/2");
}

#[test]
fn a_configuration_says_where_each_value_came_from() {
    let text = ok(["config", "show", "run.mode=light", "model=qwen3_8b"]).stdout;
    let line = text.lines().find(|line| line.trim_start().starts_with("mode:")).unwrap();
    assert!(line.contains("light") && line.contains("command line"), "{line}");
    let json = ok(["config", "show", "--format=json", "run.top_n_kernels=7"]).stdout;
    let values: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(values["run.top_n_kernels"]["value"], 7);
    assert_ne!(values["run.top_n_kernels"]["origin"], values["run.mode"]["origin"]);

    let groups = ok(["config", "list", "--format=json"]).stdout;
    let groups: serde_json::Value = serde_json::from_str(&groups).unwrap();
    assert!(groups[0]["options"][0]["name"].is_string(), "{groups}");
    let list = ok(["config", "list"]).stdout;
    for option in ["model=deepseek_ocr", "workload=embedded", "profiling/nsys=light"] {
        assert!(list.contains(option), "no {option} in {list}");
    }
}

#[cfg(not(feature = "serve"))]
#[test]
fn a_command_that_is_not_built_in_says_how_to_get_it() {
    let run = run(["serve", "--listen=127.0.0.1:0"]);
    assert_eq!(run.status, Some(2));
    assert!(run.stderr.contains("built without the command serve"), "{}", run.stderr);
    assert!(run.stderr.contains("--features mcp,parquet,serve,stacks"), "{}", run.stderr);
    assert!(!ok(["--help"]).stdout.contains("not part of this build"));
}

#[test]
fn a_key_that_does_not_exist_is_answered_with_the_nearest() {
    for args in [["config", "show", "run.top_kernels=1"], ["profile", "--dry-run", "run.top_kernels=1"]] {
        let run = run(args);
        assert_eq!(run.status, Some(2), "{args:?}");
        assert_eq!(run.stdout, "", "{args:?}");
        assert!(run.stderr.contains("run.top_n_kernels"), "{args:?}: {}", run.stderr);
    }
    let run = run(["config", "show", "model=deepseek_orc"]);
    assert_eq!(run.status, Some(2));
    assert!(run.stderr.contains("deepseek_ocr"), "{}", run.stderr);
}

#[test]
fn doctor_says_what_is_there_and_what_to_do() {
    let checks: Value = serde_json::from_str(&ok(["doctor", "--format=json"]).stdout).unwrap();
    let checks = checks.as_array().unwrap();
    for id in ["nsys", "ncu"] {
        let check = checks.iter().find(|check| check["id"] == id);
        let check = check.unwrap_or_else(|| panic!("no check {id} in {checks:?}"));
        assert!(!check["found"].as_str().unwrap().is_empty());
        if check["status"] != "ok" {
            assert!(check["remedy"].is_string(), "{check}");
        }
    }
    let text = ok(["doctor"]).stdout;
    assert!(text.contains("nsys"), "{text}");
}

#[test]
fn quiet_says_nothing_but_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let out = format!("--out={}", folder.path().display());
    let loud = ok(["analyze", "fixtures/native/stand-in.rgcap", &out]);
    let quiet = ok(["analyze", "--quiet", "fixtures/native/stand-in.rgcap", &out]);
    assert_ne!(loud.stderr, "");
    assert_eq!(quiet.stderr, "");
    assert_eq!(quiet.stdout, loud.stdout);
}

#[test]
fn a_closed_pipe_is_not_a_failure() {
    let mut child = roofgap(["schema"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let run: Run = child.wait_with_output().unwrap().into();
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_full_disk_is_an_error_and_not_a_panic() {
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let run: Run = roofgap(["schema"]).stdout(full()).output().unwrap().into();
    assert_eq!(run.status, Some(3));
    assert!(run.stderr.starts_with("error: cannot write to standard output"), "{}", run.stderr);
    // Nothing can be reported when stderr is full too; the exit status still can.
    let status = roofgap(["analyze", "absent"]).stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

#[test]
fn control_characters_of_a_file_do_not_reach_the_terminal() {
    let run = run(["analyze", "absent\u{1b}]0;title\u{7}\u{9b}2J.sqlite"]);
    assert_eq!(run.status, Some(2));
    assert!(run.stderr.contains("absent"), "{}", run.stderr);
    assert!(!run.stderr.chars().any(|c| c.is_control() && c != '\n'), "{:?}", run.stderr);
}

/// `script` gives a program a terminal.
#[test]
fn colours_are_for_terminals_and_no_color_is_respected() {
    let script = Command::new("script").arg("--version").output();
    if !can_run(script.is_ok(), "`script` is not installed") {
        return;
    }
    let on_a_terminal = |no_color: Option<&str>| -> String {
        let line = format!("'{ROOFGAP}' analyze fixtures/native/stand-in.rgcap");
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).current_dir(root());
        command.stdin(Stdio::null()).env_remove("NO_COLOR").env("TERM", "xterm");
        command.envs(no_color.map(|value| ("NO_COLOR", value)));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let coloured = on_a_terminal(None);
    assert!(coloured.contains("\x1b[1m"), "{coloured:?}");
    assert!(!on_a_terminal(Some("1")).contains('\x1b'));
}
