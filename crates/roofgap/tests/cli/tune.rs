//! `roofgap tune` on a program whose times are fixed numbers.

use crate::support::{Run, ok, roofgap};
use crate::try_finding::Tried;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Every change that the program knows.
const SPACE: &str = "
- {env: FAST, values: [1]}
- {env: MORE, values: [1]}
- {env: SLOW, values: [1]}
- {env: WRONG, values: [1]}
- {env: CRASH, values: [1]}
- {env: SHORT, values: [1]}
";

fn space(tried: &Tried, text: &str) -> String {
    let path = tried.folder.path().join("space.yaml");
    std::fs::write(&path, text).unwrap();
    format!("--space={}", path.display())
}

fn command(tried: &Tried, args: &[&str]) -> Command {
    let mut command = roofgap(["tune", tried.run.to_str().unwrap(), "--yes"]);
    command.args(args);
    command
}

fn tune(tried: &Tried, args: &[&str]) -> Run {
    command(tried, args).output().unwrap().into()
}

fn certificate(tried: &Tried) -> PathBuf {
    tried.run.join("tune.json")
}

fn count(tried: &Tried) -> usize {
    std::fs::read_to_string(tried.folder.path().join("count")).unwrap().trim().parse().unwrap()
}

fn verify(tried: &Tried, args: &[&str]) -> Run {
    let mut command = roofgap(["tune", "verify", certificate(tried).to_str().unwrap()]);
    command.args(args).output().unwrap().into()
}

/// Returns the search on disk, checked against its schema.
fn search(tried: &Tried) -> Value {
    let document: Value = serde_json::from_slice(&std::fs::read(certificate(tried)).unwrap()).unwrap();
    let schema: Value = serde_json::from_str(&ok(["schema", "try"]).stdout).unwrap();
    let errors: Vec<String> = jsonschema::validator_for(&schema)
        .unwrap()
        .iter_errors(&document)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:?}");
    document["trials"][0].clone()
}

/// Waits until the program hangs.
fn until_it_hangs(tried: &Tried, child: &mut Child) {
    let hangs = tried.folder.path().join("count.hangs");
    let end = Instant::now() + Duration::from_secs(300);
    while !hangs.exists() && Instant::now() < end {
        assert!(child.try_wait().unwrap().is_none(), "it ended before the program hangs");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_search_keeps_what_it_proves_and_its_record_can_be_checked() {
    let tried = Tried::new(&[]);
    let space = space(&tried, SPACE);
    let plan = tune(&tried, &[&space, "--dry-run", "--format=json"]);
    assert_eq!(plan.status, Some(0), "{}", plan.stderr);
    let plan: Value = serde_json::from_str(&plan.stdout).unwrap();
    assert_eq!(plan["search"].as_array().unwrap().len(), 6, "{plan}");
    assert!(!certificate(&tried).exists());

    let run = tune(&tried, &[&space]);
    assert_eq!(run.status, Some(0), "{}\n{}", run.stderr, run.stdout);
    let trial = search(&tried);
    let runs = trial["runs"].as_array().unwrap();
    assert_eq!(
        count(&tried),
        1 + runs.len() + 1,
        "the profiled run, the search, and the profile of the winner"
    );
    assert_eq!(trial["winner"]["knobs"], json!(["env.FAST=1", "env.MORE=1"]), "{}", run.stdout);
    let rows = trial["rows"].as_array().unwrap();
    let row = |id: &str| rows.iter().find(|row| row["knob"]["id"] == id).unwrap();
    let of = |id: &str| (row(id)["verdict"].as_str().unwrap(), row(id)["reason"].as_str().unwrap());
    assert_eq!(of("env.WRONG=1"), ("refused", "its tokens differ from those without the change"));
    assert_eq!(of("env.CRASH=1"), ("failed", "the program ended with status 3"));
    assert_eq!(of("env.SHORT=1"), ("refused", "it generated fewer tokens: 5 instead of 10"));
    assert_eq!(of("env.SLOW=1").0, "dropped");
    let winner = &rows[trial["winner"]["row"].as_u64().unwrap() as usize];
    assert_eq!(winner["times"][0]["before_ns"].as_array().unwrap().len(), 6, "the fewest pairs that prove");
    assert!(winner["times"][0]["interval"][0].as_f64().unwrap() > 5.0, "{winner}");
    let page = std::fs::read_to_string(tried.run.join("report.html")).unwrap();
    for words in ["Tuned", "base against base", "Path of the best: base, then together: env.FAST=1"] {
        assert!(page.contains(words), "{words}");
    }

    let checked = verify(&tried, &["--run"]);
    assert_eq!(checked.status, Some(0), "{}{}", checked.stdout, checked.stderr);
    assert!(checked.stdout.contains("without a proof: 6"), "{}", checked.stdout);
    // The same search again has nothing left to run.
    let (runs, before) = (runs.len(), count(&tried));
    assert_eq!(tune(&tried, &[&space]).status, Some(0));
    assert_eq!(search(&tried)["runs"].as_array().unwrap().len(), runs);
    assert!(count(&tried) <= before + 1, "at most the profile of the winner");

    // A time that was made better, and a verdict that was.
    let text = std::fs::read_to_string(certificate(&tried)).unwrap();
    for (from, to) in [("\"verdict\": \"refused\"", "\"verdict\": \"kept\""), ("100000000.0", "100000.0")] {
        assert!(text.contains(from), "{from}");
        std::fs::write(certificate(&tried), text.replacen(from, to, 1)).unwrap();
        let checked = verify(&tried, &[]);
        assert_ne!(checked.status, Some(0), "{from}: {}", checked.stdout);
    }
    std::fs::write(certificate(&tried), &text).unwrap();
    let program = tried.folder.path().join("program.sh");
    let source = std::fs::read_to_string(&program).unwrap();
    std::fs::write(&program, source + "\n# changed\n").unwrap();
    let checked = verify(&tried, &[]);
    assert_eq!(checked.status, Some(5), "{}", checked.stdout);
    assert!(checked.stdout.contains("program.sh has changed"), "{}", checked.stdout);
    let other = tune(&tried, &[&space]);
    assert_eq!(other.status, Some(2), "{}", other.stdout);
    assert!(other.stderr.contains("has changed since"), "{}", other.stderr);
}

#[test]
fn a_killed_search_goes_on_with_every_run_counted_once() {
    let tried = Tried::new(&["++workload.env.HANG_AT='9'"]);
    let space = space(&tried, SPACE);
    let start = || command(&tried, &[&space]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut child = start();
    until_it_hangs(&tried, &mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    let before = search(&tried);
    assert_eq!(before["state"], "under_way");
    let known = before["runs"].as_array().unwrap().clone();
    assert_eq!(known.len(), 7, "the runs before the one that hangs, and none of it");

    let other = tune(&tried, &[&space, "--goal=tpot"]);
    assert_eq!(other.status, Some(2), "{}", other.stdout);
    assert!(other.stderr.contains("another search"), "{}", other.stderr);

    let run = tune(&tried, &[&space]);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let after = search(&tried);
    let runs = after["runs"].as_array().unwrap();
    assert_eq!(runs[..7], known);
    assert_eq!(count(&tried), 1 + runs.len() + 1 + 1, "and the run that was killed");
    assert_eq!(after["winner"]["knobs"], json!(["env.FAST=1", "env.MORE=1"]));
    assert_eq!(verify(&tried, &[]).status, Some(0));
}

#[test]
fn a_slow_base_and_a_spent_budget_prove_nothing() {
    let tried = Tried::new(&[]);
    let space = space(&tried, "[{env: FAST, values: [1]}]");
    let spent = tune(&tried, &[&space, "--budget=0s"]);
    assert_eq!(spent.status, Some(3), "{}", spent.stderr);
    assert_eq!(search(&tried)["winner"], Value::Null);
    // The program is made slow where it is not changed; a new search would find a gain.
    std::fs::remove_file(certificate(&tried)).unwrap();
    let program = tried.folder.path().join("program.sh");
    let source = std::fs::read_to_string(&program).unwrap();
    let slowed = source.replacen(
        "[ -n \"$FAST\" ]",
        "[ -z \"$FAST\" ] && decode=$(( decode * 3 ))\n[ -n \"$FAST\" ]",
        1,
    );
    assert_ne!(source, slowed);
    std::fs::write(&program, slowed).unwrap();
    let run = tune(&tried, &[&space]);
    assert_eq!(run.status, Some(4), "{}", run.stderr);
    assert!(run.stdout.contains("a gain over it would not count"), "{}", run.stdout);
    assert_eq!(search(&tried)["winner"], Value::Null);
}

#[test]
fn wrong_input_is_named() {
    let tried = Tried::new(&[]);
    for (text, words) in [
        ("{}", "not a list of changes"),
        ("[{env: A}]", "A has no values"),
        ("[{env: A, flag: --b, values: [1]}]", "expected one of flag, remove, env and setting"),
        ("[]", "it is empty"),
    ] {
        let run = tune(&tried, &[&space(&tried, text)]);
        assert_eq!(run.status, Some(2), "{text}");
        assert!(run.stderr.contains(words), "{text}: {}", run.stderr);
    }
    let fine = space(&tried, "[{env: A, values: [1]}]");
    for (args, words) in [
        (&["--limit=x=1s"][..], "expected ttft=TIME"),
        (&["--least=0.5"][..], "a ratio of at least 1"),
        (&["--goal=ttft", fine.as_str()][..], ""),
    ] {
        let run = tune(&tried, args);
        assert!(run.stderr.contains(words), "{args:?}: {}", run.stderr);
        assert_ne!(run.status, Some(1), "{args:?}");
    }
    // Without a time that the goal is about, nothing is compared.
    let goal = tune(&tried, &["--goal=goodput", fine.as_str()]);
    assert_ne!(goal.status, Some(0), "{}", goal.stdout);
}

#[cfg(feature = "mcp")]
#[test]
fn an_agent_proposes_and_the_search_decides() {
    use crate::mcp::client::Client;
    let tried = Tried::new(&["++workload.env.HANG_AT='6'"]);
    let space = space(&tried, "[{env: SLOW, values: [1]}]");
    let start = |args: &[&str]| {
        let mut command = command(&tried, args);
        command.arg(&space).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut child = start(&["--accept-proposals"]);
    until_it_hangs(&tried, &mut child);
    let runs = tried.folder.path().join("runs");
    let mut client = Client::connect(&[], &runs);
    let input = tried.run.file_name().unwrap().to_str().unwrap().to_owned();
    let propose = |change: Value| json!({ "input": input, "change": change });
    let wrong = client.call("tune_propose", propose(json!({ "env": "FAST" }))).unwrap_err();
    assert!(wrong.to_string().contains("has no values"), "{wrong}");
    client.call("tune_propose", propose(json!({ "env": "FAST", "values": ["1"] }))).unwrap();
    client.call("tune_propose", propose(json!({ "env": "WRONG", "values": ["1"] }))).unwrap();
    let status = client.call("tune_status", json!({ "input": input })).unwrap();
    let search = &status["search"];
    assert_eq!((&search["state"], &search["winner"]), (&json!("under_way"), &Value::Null));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(tune(&tried, &[&space, "--accept-proposals"]).status, Some(0));
    let certificate = client.call("tune_certificate", json!({ "input": input })).unwrap();
    assert_eq!(certificate["search"]["winner"]["knobs"], json!(["env.FAST=1"]), "{certificate}");
    let status = client.call("tune_status", json!({ "input": input })).unwrap();
    let rows = status["search"]["rows"].as_array().unwrap();
    assert!(
        rows.iter().any(|row| row["knob"]["id"] == "env.WRONG=1" && row["verdict"] == "refused"),
        "{status}"
    );
    assert_eq!(verify(&tried, &[]).status, Some(0));
}
