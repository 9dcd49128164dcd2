//! Whole runs of the smallest preset.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Mutex;

use clap::Parser;
use roofgap_workload::{Account, Ranges, WorkloadProps, run};

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    props: WorkloadProps,
}

fn nano() -> WorkloadProps {
    let options = ["--preset=nano", "--prompt-tokens=9", "--new-tokens=5", "--repeats=2"];
    Args::parse_from(["workload"].into_iter().chain(options)).props
}

fn account(props: &WorkloadProps) -> Account {
    run(props, &(), &mut |_| {}).unwrap()
}

#[test]
fn one_seed_gives_one_output_on_any_number_of_threads() {
    let hashes: Vec<_> = [1, 2, 3, 8]
        .into_iter()
        .map(|threads| {
            let account = account(&WorkloadProps { threads: Some(threads), ..nano() });
            assert!(!account.notes.iter().any(|note| note.contains("different")), "{:?}", account.notes);
            account.token_hash.unwrap()
        })
        .collect();
    assert!(hashes.iter().all(|hash| hash == &hashes[0]), "{hashes:?}");
    assert!(hashes[0].starts_with("sha256:") && hashes[0].len() == 71);
    let other = account(&WorkloadProps { seed: 1, ..nano() });
    assert_ne!(other.token_hash.as_ref(), Some(&hashes[0]));
}

#[test]
fn the_account_says_what_ran() {
    let account = account(&nano());
    assert_eq!(account.schema, "roofgap.workload/1");
    let (model, tokens) = (account.model.unwrap(), account.tokens.unwrap());
    assert_eq!(model.weights.as_deref(), Some("random"));
    assert!(account.notes[0].contains("random"));
    assert_eq!(tokens.vision, Some(4));
    assert_eq!(tokens.prompt, Some(4 + 9));
    assert_eq!(tokens.generated, Some(5));
    assert!(model.active_parameters < model.parameters);
    let config = model.config.unwrap();
    assert_eq!(config["n_routed_experts"], 8);
    assert_eq!(config["vision_config"]["width"]["sam_vit_b"]["layers"], 2);
}

#[test]
fn stages_hold_their_steps_and_notes() {
    let account = account(&nano());
    assert_eq!(account.repeats.len(), 3);
    let warm: Vec<bool> = account.repeats.iter().map(|r| r.warmup).collect();
    assert_eq!(warm, [true, false, false]);
    for repeat in &account.repeats {
        let [prefill, decode] = repeat.stages.as_slice() else {
            panic!("two stages, found {:?}", repeat.stages);
        };
        assert_eq!((&*prefill.name, &*decode.name), ("prefill", "decode"));
        assert_eq!(prefill.steps_ns, None);
        let notes: i64 = prefill.notes.iter().map(|note| note.wall_ns).sum();
        assert_eq!(prefill.notes.len(), 3);
        assert!(0 < notes && notes <= prefill.wall_ns);
        let steps = decode.steps_ns.as_ref().unwrap();
        assert_eq!(steps.len(), 5);
        assert!(steps.iter().sum::<i64>() <= decode.wall_ns);
    }
}

#[test]
fn operators_cover_both_stages_of_the_measured_repeats_only() {
    let account = account(&nano());
    let calls = |stage: &str, name: &str| {
        account
            .operators
            .iter()
            .find(|op| op.stage.as_deref() == Some(stage) && op.name == name)
            .map(|op| op.calls)
    };
    // Two measured repeats; two of the three decoder layers are sparse; five decode steps.
    assert_eq!(calls("prefill", "router"), Some(4));
    assert_eq!(calls("decode", "router"), Some(20));
    assert_eq!(calls("decode", "attention"), Some(30));
    assert_eq!(calls("decode", "sampling"), Some(10));
    assert_eq!(calls("prefill", "convolution"), Some(4));
    assert_eq!(calls("decode", "convolution"), None);
    for stage in ["prefill", "decode"] {
        let inside: i64 = account
            .operators
            .iter()
            .filter(|op| op.stage.as_deref() == Some(stage))
            .map(|op| op.self_cpu_ns)
            .sum();
        let wall: i64 = account
            .repeats
            .iter()
            .filter(|repeat| !repeat.warmup)
            .flat_map(|repeat| &repeat.stages)
            .filter(|found| found.name == stage)
            .map(|found| found.wall_ns)
            .sum();
        assert!(inside <= wall, "{stage}: {inside} of {wall}");
    }
}

#[test]
fn an_account_comes_back_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("workload.json");
    let mut seen = Vec::new();
    let props = WorkloadProps { account: Some(path.clone()), ..nano() };
    let written = run(&props, &(), &mut |line| seen.push(line.to_owned())).unwrap();
    assert_eq!(Account::from_json(&std::fs::read(&path).unwrap()).unwrap(), written);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(seen[0].starts_with("nano model with "), "{seen:?}");
    assert_eq!(seen.last().unwrap(), &format!("account written to {}", path.display()));
    let runs: Vec<&str> = seen.iter().filter_map(|line| line.strip_prefix("run ")?.get(..14)).collect();
    assert_eq!(runs, ["1 of 3, warm-u", "2 of 3: prefil", "3 of 3: prefil"]);
}

#[test]
fn an_account_that_cannot_be_written_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let props = WorkloadProps { account: Some(folder.path().join("absent/workload.json")), ..nano() };
    let error = run(&props, &(), &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("absent/workload.json"), "{error}");
}

#[test]
fn properties_out_of_bounds_are_refused_by_name() {
    let refused = |props: WorkloadProps| run(&props, &(), &mut |_| {}).unwrap_err().to_string();
    let image = refused(WorkloadProps { image_size: Some(100), ..nano() });
    assert!(image.contains("image_size") && image.contains("multiple of 32"), "{image}");
    let tokens = refused(WorkloadProps { new_tokens: 0, ..nano() });
    assert!(tokens.contains("new_tokens"), "{tokens}");
}

/// Writes down what was opened and closed.
#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl Ranges for Recorder {
    fn push(&self, domain: Option<&'static str>, name: &'static str) {
        let domain = domain.map_or(String::new(), |domain| format!("{domain}@"));
        self.0.lock().unwrap().push(format!("{domain}{name}"));
    }

    fn pop(&self, domain: Option<&'static str>) {
        let domain = domain.unwrap_or("default");
        self.0.lock().unwrap().push(format!("/{domain}"));
    }
}

#[test]
fn ranges_are_nested_and_closed() {
    let recorder = Recorder::default();
    let props = WorkloadProps { new_tokens: 2, repeats: 1, ..nano() };
    run(&props, &recorder, &mut |_| {}).unwrap();
    let one = "LLM@prefill sam /default clip /default projector /default /LLM \
               LLM@decode_all LLM@decode_step /LLM LLM@decode_step /LLM /LLM";
    let want = format!("LLM@warmup {one} /LLM {one}");
    assert_eq!(recorder.0.into_inner().unwrap().join(" "), want);
}

#[test]
fn decoding_without_a_cache_reads_everything_again_and_says_the_same() {
    let base = account(&nano());
    let slow = account(&WorkloadProps { kv_cache: false, ..nano() });
    assert_eq!(slow.token_hash, base.token_hash);
    assert!(slow.notes.iter().any(|note| note.contains("no KV cache")));
    let tokens = slow.tokens.unwrap();
    // Two measured repeats: each step puts the prompt and its tokens together.
    let joined = |account: &Account| {
        let ops = account.operators.iter();
        let mut found = ops.filter(|op| op.stage.as_deref() == Some("decode") && op.name == "concatenate");
        found.next().map(|op| op.calls)
    };
    assert_eq!(joined(&slow), tokens.generated.map(|steps| 2 * steps));
    assert_eq!(joined(&base), None);
}

#[test]
fn a_shorter_context_changes_the_output() {
    let whole = account(&nano());
    let short = account(&WorkloadProps { kv_cache: false, context_limit: Some(2), ..nano() });
    assert_ne!(short.token_hash, whole.token_hash);
    let nothing = WorkloadProps { context_limit: Some(0), ..nano() };
    assert!(run(&nothing, &(), &mut |_| {}).is_err());
}

#[cfg(target_os = "linux")]
#[test]
fn the_account_has_the_memory_of_the_process() {
    // The weights alone are four bytes for each parameter.
    let account = account(&nano());
    let weights = 4 * account.model.unwrap().parameters.unwrap();
    assert!(account.device_memory_bytes.unwrap() > weights);
}

/// Each repeat takes the next prompt; the account has the mean. A prompt without an image has no vision part.
#[test]
fn repeats_take_the_prompts_in_turn() {
    let prompts = ["9+image", "3"].map(|text| text.parse().unwrap());
    let props = WorkloadProps { prompts: prompts.to_vec(), repeats: 2, warmup: 0, ..nano() };
    let found = account(&props);
    let one = account(&WorkloadProps { prompt_tokens: 9, repeats: 1, warmup: 0, ..nano() });
    let (tokens, alone) = (found.tokens.unwrap(), one.tokens.unwrap());
    let vision = alone.vision.unwrap();
    assert_eq!(alone.prompt, Some(vision + 9));
    // Rounded from the mean of two.
    assert_eq!(tokens.prompt, Some((vision + 9 + 3).div_ceil(2)));
    assert_eq!(tokens.vision, Some(vision.div_ceil(2)));
    let parts = |at: usize| found.repeats[at].stages[0].notes.len();
    assert_eq!((parts(0), parts(1)), (3, 0));
    assert_eq!(found.token_hash, one.token_hash);
    assert!("x+image".parse::<roofgap_workload::PromptShape>().is_err());
}
