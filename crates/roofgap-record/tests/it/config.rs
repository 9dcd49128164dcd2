//! Composing a configuration: layers, overrides, errors, and the round trip through `config.yaml`.

use std::path::{Path, PathBuf};

use roofgap_base::error::Error;
use roofgap_runs::config::settings::{Mode, Task, TimelineTool, WorkloadKind};
use roofgap_runs::config::{Composed, ConfigProps, compose, list};

fn with(overrides: &[&str]) -> Result<Composed, Error> {
    compose(&ConfigProps {
        overrides: overrides.iter().map(|s| (*s).to_owned()).collect(),
        ..Default::default()
    })
}

fn error(overrides: &[&str]) -> String {
    with(overrides).expect_err("was composed").to_string()
}

fn origin(composed: &Composed, key: &str) -> String {
    let (.., origin) = composed.explain().find(|e| e.0 == key).unwrap_or_else(|| panic!("no {key}"));
    origin.to_string()
}

fn write(folder: &Path, file: &str, text: &str) -> PathBuf {
    let path = folder.join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn runs_are_in_one_folder_whatever_is_profiled() {
    for keys in
        [&[][..], &["workload=hydra", "workload.module=m"], &["runner=stage2"], &["stage1.run_dir=/run"]]
    {
        assert_eq!(with(keys).unwrap().config.artifacts.stage2_dir, Path::new("tmp/stage2"), "{keys:?}");
    }
    let named = with(&["stage1.run_dir=/run", "artifacts.stage2_dir=there"]).unwrap();
    assert_eq!(named.config.artifacts.stage2_dir, Path::new("there"));
}

#[test]
fn the_defaults_are_the_embedded_model_in_deep_mode() {
    let composed = with(&[]).unwrap();
    let config = &composed.config;
    assert_eq!(config.run.mode, Mode::Deep);
    assert_eq!(config.run.counter_budget.0.as_secs(), 300);
    assert_eq!(config.workload.kind, WorkloadKind::Embedded);
    assert_eq!(config.profiling.timeline, TimelineTool::Auto);
    assert_eq!(config.profiling.nsys.trace, ["cuda", "nvtx", "osrt"]);
    assert_eq!(config.retention.keep, 5);
    assert_eq!(config.hardware.peak_tflops, None);
    assert_eq!(origin(&composed, "workload.tokens"), "built-in workload/embedded.yaml");
    assert_eq!(origin(&composed, "workload.batch"), "built-in workload/_base.yaml");
}

#[test]
fn the_typed_configuration_has_every_key_of_the_base_and_no_other() {
    fn keys(value: &serde_json::Value, at: &str, out: &mut Vec<String>) {
        match value.as_object() {
            Some(map) if !map.is_empty() => map.iter().for_each(|(k, v)| keys(v, &format!("{at}.{k}"), out)),
            _ => out.push(at.trim_start_matches('.').to_owned()),
        }
    }
    let composed = with(&[]).unwrap();
    let mut typed = Vec::new();
    keys(&serde_json::to_value(&composed.config).unwrap(), "", &mut typed);
    let mut base: Vec<String> = composed.explain().map(|(key, ..)| key.to_owned()).collect();
    typed.sort();
    base.sort();
    assert_eq!(typed, base);
}

#[test]
fn every_option_of_every_group_composes() {
    for group in list(None).unwrap() {
        for option in group.options {
            let choice = format!("{}={}", group.name, option.name);
            let mut props = ConfigProps { overrides: vec![choice.clone()], ..Default::default() };
            match choice.as_str() {
                "workload=command" | "workload=server" => props.program = vec!["true".to_owned()],
                "workload=hf" => props.overrides.push("model=deepseek_ocr2".to_owned()),
                "workload=hydra" => props.overrides.push("workload.module=a.b".to_owned()),
                _ => {}
            }
            compose(&props).unwrap_or_else(|error| panic!("{choice}: {error}"));
        }
    }
}

#[test]
fn light_mode_takes_the_light_options_unless_told_otherwise() {
    let light = with(&["run.mode=light"]).unwrap();
    assert!(!light.config.runner.operators);
    assert_eq!(light.config.profiling.nsys.trace, ["cuda", "nvtx"]);
    assert_eq!(light.config.profiling.ncu.sections, ["LaunchStats"]);
    let mixed = with(&["profiling/ncu=deep", "run.mode=light"]).unwrap();
    assert!(mixed.config.profiling.ncu.sections.len() > 1);
    assert!(!mixed.config.runner.operators);
}

#[test]
fn overrides_choose_set_add_and_remove() {
    let composed = with(&[
        "model=deepseek_ocr2",
        "workload=hf",
        "run.top_n_kernels=7",
        "run.counter_budget=90s",
        "profiling.nsys.trace=cuda,nvtx",
        "+workload.env.OMP_NUM_THREADS=2",
        "+stages.draft=[LLM@draft]",
        "+model.set.num_hidden_layers=2",
        "~model.revision",
        "model.target='models/my model'",
    ])
    .unwrap();
    let config = &composed.config;
    assert_eq!(config.model.task, Task::ImageText);
    assert_eq!(config.run.top_n_kernels, 7);
    assert_eq!(config.run.counter_budget.0.as_secs(), 90);
    assert_eq!(config.profiling.nsys.trace, ["cuda", "nvtx"]);
    assert_eq!(config.workload.env["OMP_NUM_THREADS"], "2");
    assert_eq!(config.stages["draft"], ["LLM@draft"]);
    assert_eq!(config.model.set["num_hidden_layers"], 2);
    assert_eq!(config.model.target.as_deref(), Some("models/my model"));
    assert_eq!(origin(&composed, "run.top_n_kernels"), "command line: run.top_n_kernels=7");
}

#[test]
fn a_plus_sets_an_existing_key_as_well() {
    let composed = with(&[
        "+run.mode=light",
        "++run.top_n_kernels=3",
        "+inputs.manifest=/abs/inputs.yaml",
        "+hardware=auto",
    ])
    .unwrap();
    assert_eq!(composed.config.run.mode, Mode::Light);
    assert!(!composed.config.runner.operators, "the presets follow the mode");
    assert_eq!(composed.config.run.top_n_kernels, 3);
    assert_eq!(composed.config.inputs.manifest.as_deref(), Some(Path::new("/abs/inputs.yaml")));
}

#[test]
fn preset_names_of_the_original_documents() {
    let named = |mode: &str| {
        with(&[
            mode,
            "profiling/nsys=nsys.default",
            "profiling/ncu=ncu.default",
            "profiling/torch=torch-profiler.min",
            "runner=stage2.light",
        ])
        .unwrap()
        .config
    };
    let deep = named("run.mode=deep");
    assert_eq!(deep.profiling.nsys.trace, ["cuda", "nvtx", "osrt"]);
    assert!(deep.profiling.ncu.sections.len() > 1);
    assert!(!deep.profiling.torch.trace);
    assert!(!deep.runner.operators);
    assert_eq!(named("run.mode=light").profiling.nsys.trace, ["cuda", "nvtx"]);

    let folder = tempfile::tempdir().unwrap();
    write(
        folder.path(),
        "profiling/nsys/nsys.default.yaml",
        "trace: cuda\ncapture_range: none\ncapture_range_end: null\nnvtx_capture: prefill\n",
    );
    let own = compose(&ConfigProps {
        config_dir: Some(folder.path().to_owned()),
        overrides: vec!["profiling/nsys=nsys.default".to_owned()],
        ..Default::default()
    })
    .unwrap();
    assert_eq!(own.config.profiling.nsys.trace, ["cuda"], "a file of that name wins");
}

#[test]
fn a_gate_needs_its_range() {
    let text = error(&["profiling.nsys.capture_range=nvtx"]);
    assert!(text.contains("profiling.nsys.nvtx_capture"), "{text}");
    with(&[
        "profiling.nsys.capture_range=nvtx",
        "profiling.nsys.nvtx_capture=LLM@decode_all",
        "profiling.ncu.nvtx_include=decode*",
    ])
    .unwrap();
    let text = error(&["profiling.nsys.capture_range=range"]);
    assert!(text.contains("`none` or `nvtx`"), "{text}");
}

#[test]
fn a_named_model_is_the_one_that_is_profiled() {
    for named in ["model=qwen3_8b", "model.target=/folder", "+model.preset=llama3_8b"] {
        let composed = with(&[named]).unwrap();
        assert_eq!(composed.config.workload.kind, WorkloadKind::Hf, "{named}");
        assert_eq!(origin(&composed, "workload.kind"), "built-in workload/hf.yaml", "{named}");
        let text = composed.to_annotated_yaml();
        assert!(text.contains(&format!("  workload: hf  # implied by {named}\n")), "{text}");
    }
    for unnamed in ["model=auto", "model.target=null", "model.name=x"] {
        let composed = with(&[unnamed]).unwrap();
        assert_eq!(composed.config.workload.kind, WorkloadKind::Embedded, "{unnamed}");
    }
    let text = error(&["workload=embedded", "model=qwen3_8b"]);
    assert!(text.contains("the embedded model is not qwen3_8b"), "{text}");
    let command = compose(&ConfigProps {
        overrides: vec!["model=qwen3_8b".to_owned()],
        program: vec!["true".to_owned()],
        ..Default::default()
    })
    .unwrap();
    assert_eq!(command.config.workload.kind, WorkloadKind::Command);
}

#[test]
fn a_folder_below_a_group_holds_options() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "model/llm/alt.yaml", "# Mine.\nname: mine\npreset: qwen3_0_6b\n");
    for choice in ["model=llm/alt", "model/llm=alt", "+model/llm=alt"] {
        let composed = compose(&ConfigProps {
            config_dir: Some(folder.path().to_owned()),
            overrides: vec![choice.to_owned()],
            ..Default::default()
        })
        .unwrap();
        assert_eq!(composed.config.model.name.as_deref(), Some("mine"), "{choice}");
    }
    let model = list(Some(folder.path())).unwrap();
    let model = model.iter().find(|group| group.name == "model").unwrap();
    assert!(model.options.iter().any(|option| option.name == "llm/alt"));
}

#[test]
fn a_program_makes_the_workload_a_command() {
    let program = vec!["python3".to_owned(), "x.py".to_owned(), "--n=1".to_owned()];
    let composed = compose(&ConfigProps { program: program.clone(), ..Default::default() }).unwrap();
    assert_eq!(composed.config.workload.kind, WorkloadKind::Command);
    assert_eq!(composed.config.workload.program, program);
    assert_eq!(origin(&composed, "workload.program"), "command line: after --");
    let both = ConfigProps { program, overrides: vec!["workload=embedded".to_owned()], ..Default::default() };
    assert!(compose(&both).unwrap_err().to_string().contains("workload=command"));
}

#[test]
fn what_is_unknown_is_refused_with_the_nearest() {
    for (written, meant) in [
        (vec!["run.mod=light"], "did you mean run.mode?"),
        (vec!["top_n_kernels=3"], "did you mean run.top_n_kernels?"),
        (vec!["modle=alt"], "did you mean model?"),
        (vec!["model=deepseek_ocr_2"], "did you mean deepseek_ocr2?"),
        (vec!["profiling/nsis=deep"], "did you mean profiling/nsys?"),
        (vec!["+run.modes=light"], "did you mean run.mode?"),
        (vec!["~run.modes"], "did you mean run.mode?"),
        (
            vec!["rnu.mode=light"],
            "there is no key rnu.mode, did you mean run.mode? (command line: rnu.mode=light)",
        ),
        (vec!["profiling.nsy.trace=[cuda]"], "did you mean profiling.nsys.trace?"),
        (vec!["~run.top_n_kernels", "~run.top_n_kernels"], "there is no key run.top_n_kernels (command line"),
        (vec!["profiling.nsys=deep"], "write profiling/nsys=OPTION"),
        (vec!["workload.env.A=1"], "add it with +workload.env.A=1"),
        (vec!["+model="], "write model=OPTION"),
        (vec!["model/llm=alt"], "has no option llm/alt"),
        (vec!["profiling/nsys=nsys.unknown"], "has no option unknown"),
        (vec!["run=light"], "set its keys one by one"),
        (
            vec!["run.mode=lite"],
            "run.mode cannot be lite (command line: run.mode=lite): expected deep or light",
        ),
        (vec!["nonsense"], "write group=option"),
    ] {
        let text = error(&written);
        assert!(text.contains(meant), "{written:?}: {text}");
    }
}

#[test]
fn a_value_of_the_wrong_kind_is_refused_with_its_key_and_origin() {
    for (written, key, why) in [
        (
            vec!["run.top_n_kernels=many"],
            "run.top_n_kernels cannot be many (command line: run.top_n_kernels=many)",
            "a whole number",
        ),
        (vec!["run.top_n_kernels=-1"], "run.top_n_kernels cannot be -1", "a whole number"),
        (vec!["run.counter_budget=5x"], "run.counter_budget", "expected a time"),
        (vec!["profiling.timeline=perf"], "profiling.timeline", "`auto`, `nsys`, `native`"),
        (vec!["workload=hf"], "workload.kind", "needs a model"),
        (vec!["workload=hydra"], "workload.kind", "workload.module=NAME"),
        (vec!["workload=command"], "workload.kind", "after --"),
        (vec!["hardware.peak_tflops=0"], "hardware.peak_tflops", "more than 0"),
        (vec!["~run.timeout"], "run cannot be this map", "missing timeout"),
    ] {
        let text = error(&written);
        assert!(text.contains(key) && text.contains(why), "{written:?}: {text}");
    }
}

#[test]
fn a_users_folder_lies_over_the_presets() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    write(dir, "config.yaml", "defaults:\n  - model: mine\nrun:\n  top_n_kernels: 3\n");
    let mine = write(dir, "model/mine.yaml", "# Mine.\nname: mine\npreset: qwen3_0_6b\n");
    write(dir, "model/alt.yaml", "name: other\n");
    let props = ConfigProps { config_dir: Some(dir.to_owned()), ..Default::default() };
    let composed = compose(&props).unwrap();
    assert_eq!(composed.config.model.name.as_deref(), Some("mine"));
    assert_eq!(composed.config.model.dtype, "bf16");
    assert_eq!(composed.config.run.top_n_kernels, 3);
    assert_eq!(origin(&composed, "model.name"), format!("{}:2", mine.display()));

    let alt = compose(&ConfigProps { overrides: vec!["model=alt".to_owned()], ..props.clone() }).unwrap();
    assert_eq!(alt.config.model.name.as_deref(), Some("other"));
    assert_eq!(
        alt.config.model.preset.as_deref(),
        Some("qwen3_0_6b"),
        "the rest of the built-in option stays"
    );

    let groups = list(Some(dir)).unwrap();
    let model = groups.iter().find(|g| g.name == "model").unwrap();
    for name in ["mine", "alt", "llama3_8b"] {
        let found = model.options.iter().filter(|option| option.name == name);
        assert_eq!(found.count(), 1, "{name}");
    }
}

#[test]
fn a_users_folder_is_checked() {
    for (file, text, want) in [
        ("model/mine.yaml", "nmae: x\n", "did you mean model.name?"),
        ("config.yaml", "defaults: {modle: x}\n", "did you mean model?"),
        ("config.yaml", "defaults: 3\n", "expected a map"),
        ("config.yaml", "run: {mode: [}\n", "cannot parse"),
        ("config.yaml", "- 1\n", "expected keys"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), file, text);
        let overrides = if file == "model/mine.yaml" { vec!["model=mine".to_owned()] } else { Vec::new() };
        let props =
            ConfigProps { config_dir: Some(folder.path().to_owned()), overrides, ..Default::default() };
        let error = compose(&props).expect_err(text).to_string();
        assert!(error.contains(want), "{file} {text:?}: {error}");
    }
    let props = ConfigProps { config_dir: Some("no/such/folder".into()), ..Default::default() };
    assert!(compose(&props).unwrap_err().to_string().contains("is not a folder"));
}

#[test]
fn the_resolved_file_gives_the_same_configuration_again() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "presets/model/mine.yaml", "name: mine\nmodel_type: llama\n");
    let first = compose(&ConfigProps {
        config_dir: Some(folder.path().join("presets")),
        overrides: [
            "model=mine",
            "run.mode=light",
            "+workload.env.A=x y",
            "workload.overrides=[a=1, 'b: 2']",
        ]
        .map(str::to_owned)
        .to_vec(),
        program: Vec::new(),
        config: None,
    })
    .unwrap();
    let file = write(folder.path(), "config.yaml", &first.to_yaml());
    // The user's folder is not there any more: all values stand in the file.
    let props = ConfigProps { config: Some(file.clone()), ..Default::default() };
    let again = compose(&props).unwrap();
    assert_eq!(again.config, first.config);
    assert_eq!(again.to_yaml(), first.to_yaml());
    assert!(origin(&again, "model.name").starts_with(&file.display().to_string()));

    let deep =
        compose(&ConfigProps { overrides: vec!["run.mode=deep".to_owned()], ..props.clone() }).unwrap();
    assert!(deep.config.runner.operators, "what follows the mode follows it");
    assert_eq!(deep.config.model.name.as_deref(), Some("mine"));

    let other = compose(&ConfigProps { overrides: vec!["model=llama3_8b".to_owned()], ..props }).unwrap();
    assert_eq!(other.config.model.preset.as_deref(), Some("llama3_8b"));
    assert_eq!(other.config.model.name.as_deref(), Some("meta-llama/Meta-Llama-3-8B"));
}

#[test]
fn a_key_that_left_is_named_and_left_out_of_the_file_of_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let first = with(&["run.top_n_kernels=7"]).unwrap();
    let text = first.to_yaml().replace("run:\n", "cost:\n  gpu_hour: 2\nrun:\n  budget: 5\n");
    let file = write(folder.path(), "config.yaml", &text);
    let props = ConfigProps { config: Some(file), ..Default::default() };
    let again = compose(&props).unwrap();
    assert_eq!(again.config, first.config);
    assert!(again.notes.join("\n").contains("there is no key cost.gpu_hour, run.budget in this version"));
    let by_hand = write(folder.path(), "mine.yaml", "cost:\n  gpu_hour: 2\n");
    let error =
        compose(&ConfigProps { config: Some(by_hand), ..Default::default() }).unwrap_err().to_string();
    assert!(error.contains("there is no key cost"), "{error}");
}

#[test]
fn a_file_of_another_schema_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "config.yaml", "schema: roofgap.config/9\n");
    let error = compose(&ConfigProps { config: Some(file), ..Default::default() }).unwrap_err().to_string();
    assert!(error.contains("roofgap.config/1"), "{error}");
}

#[test]
fn the_annotated_form_says_where_each_value_came_from() {
    let text = with(&["run.mode=light"]).unwrap().to_annotated_yaml();
    assert!(text.contains("  mode: light  # command line: run.mode=light\n"), "{text}");
    assert!(text.contains("  keep: 5  # built-in config.yaml\n"), "{text}");
}

#[test]
fn the_sections_of_every_preset_are_those_that_ncu_has() {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/ncu/list_sections_ncu2025.txt");
    let list = std::fs::read_to_string(list).unwrap();
    let offered: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    for (preset, expected) in
        [("deep", &["SpeedOfLight", "LaunchStats", "Occupancy"][..]), ("light", &["LaunchStats"])]
    {
        let composed = with(&[&format!("profiling/ncu={preset}")]).unwrap();
        let sections = composed.config.profiling.ncu.sections;
        assert_eq!(sections, expected, "{preset}");
        for section in &sections {
            assert!(offered.contains(&section.as_str()), "{section}");
        }
    }
}

/// The folder of configurations of the original system, with its own Hydra configuration and the folders of its datasets and runners.
fn original_tree(folder: &Path) {
    for (file, text) in [
        (
            "config.yaml",
            "defaults:\n  - dataset: omnidocbench\n  - model/deepseek_ocr/arch@model: deepseek_ocr.default\n  - _self_\n\
             experiment: stage1\nhydra:\n  run:\n    dir: ${hydra:runtime.cwd}/tmp/stage1/${now:%Y%m%d-%H%M%S}\n",
        ),
        ("dataset/omnidocbench.yaml", "name: OmniDocBench\nroot: ${hydra:runtime.cwd}/datasets\n"),
        ("runners/stage1.no-static.yaml", "analysis:\n  static:\n    enabled: false\n"),
        ("model/deepseek_ocr/infer/deepseek_ocr.default.yaml", "temperature: 0.0\nmax_new_tokens: 8192\n"),
        ("model/llm/alt.yaml", "name: Qwen3\nvariant: base\nparams: 0.6B\ndtype: bf16\npreset: qwen3_0_6b\n"),
        (
            "runner/stage2.yaml",
            "defaults:\n  - /profiling/torch@torch_profiler: torch-profiler.min\n  - /profiling/nsys@nsys: nsys.default\n  \
             - /profiling/ncu@ncu: ncu.default\n  - _self_\nrun:\n  mode: deep\n  top_n_kernels: 30\nartifacts:\n  \
             stage2_dir: ${hydra:runtime.cwd}/out/stage2/${now:%Y%m%d-%H%M%S}\nhydra:\n  output_subdir: null\n\
             stage1_runner:\n  disable_static: true\n",
        ),
        ("profiling/stage2.yaml", "ncu:\n  launch_count: 2\n"),
        (
            "profiling/nsys/nsys.default.yaml",
            "trace: cuda,nvtx,osrt\nsample: none\ncapture: nvtx\nnvtx_capture: range\n",
        ),
        (
            "profiling/ncu/ncu.default.yaml",
            "target_processes: all\nnvtx_include: decode*\nset: roofline\nsection: \".*SpeedOfLight.*\"\n\
             metrics: flop_count_hp,gpu__time_duration.sum\ncsv: true\n",
        ),
        (
            "profiling/ncu/ncu.high.yaml",
            "description: more\nncu_cli:\n  target_processes: all\n  replay_mode: kernel\n  nvtx:\n    include: null\n  set: roofline\n  \
             kernel_name_base: demangled\n  metrics:\n    - flop_count_hp\n  sections:\n    - SpeedOfLight\n  export:\n    csv: true\n",
        ),
        ("profiling/torch/torch-profiler.min.yaml", "enabled: true\nactivities: [cpu]\nwarmup_rounds: 1\n"),
    ] {
        write(folder, file, text);
    }
}

#[test]
fn the_configuration_folder_of_the_original_system_is_read() {
    let folder = tempfile::tempdir().unwrap();
    original_tree(folder.path());
    let read = |overrides: &[&str]| {
        let overrides = overrides.iter().map(|text| (*text).to_owned()).collect();
        let props =
            ConfigProps { config_dir: Some(folder.path().to_owned()), overrides, ..Default::default() };
        compose(&props).unwrap_or_else(|error| panic!("{error}"))
    };
    let plain = read(&[]);
    let notes = plain.notes.join("\n");
    for words in [
        "dataset, runners, which belong to no group",
        "is runners meant to be runner?",
        "config.yaml of the configuration folder",
    ] {
        assert!(notes.contains(words), "no {words:?} in {notes}");
    }
    let composed = read(&["runner=stage2"]);
    let config = &composed.config;
    assert_eq!(
        (config.run.top_n_kernels, config.artifacts.stage2_dir.as_path()),
        (30, Path::new("out/stage2"))
    );
    assert_eq!(config.profiling.ncu.set.as_deref(), Some("roofline"));
    assert_eq!(config.profiling.ncu.sections, [".*SpeedOfLight.*"]);
    assert_eq!(config.profiling.ncu.metrics, ["auto", "flop_count_hp", "gpu__time_duration.sum"]);
    assert_eq!(config.profiling.ncu.nvtx_include.as_deref(), Some("decode*"));
    // A range of any name never opens: everything is recorded, and the stages are cut out.
    assert_eq!(config.profiling.nsys.gate().unwrap(), None);
    assert!(config.profiling.nsys.gate_note().unwrap().contains("nvtx_capture=range "));
    let notes = composed.notes.join("\n");
    assert!(
        notes.contains("profiling/torch: enabled, activities, warmup_rounds have no use here"),
        "{notes}"
    );
    assert!(notes.contains("runner: hydra, stage1_runner have no use here"), "{notes}");
    // What is typed wins.
    let typed = read(&["runner=stage2", "run.top_n_kernels=5", "profiling/ncu=light", "run.mode=light"]);
    assert_eq!((typed.config.run.top_n_kernels, typed.config.profiling.ncu.set.as_deref()), (5, None));
    let later = read(&["profiling/ncu=ncu.high"]).config.profiling.ncu;
    assert_eq!(
        (later.sections, later.metrics),
        (vec!["SpeedOfLight".to_owned()], vec!["auto".to_owned(), "flop_count_hp".to_owned()])
    );
    let all = read(&["profiling=stage2", "run.mode=light"]);
    assert_eq!(all.config.profiling.ncu.launch_count, 2);
    assert_eq!(all.config.profiling.nsys.trace, ["cuda", "nvtx"]);
    let model = read(&["model=llm/alt"]).config.model;
    assert_eq!(
        (model.variant.as_deref(), model.params.map(|params| params.0)),
        (Some("base"), Some(600_000_000))
    );
}

#[test]
fn the_names_of_the_original_system_are_understood_without_its_folder() {
    let read = |overrides: &[&str]| {
        let overrides = overrides.iter().map(|text| (*text).to_owned()).collect();
        compose(&ConfigProps { overrides, ..Default::default() })
            .unwrap_or_else(|error| panic!("{error}"))
            .config
    };
    let light = read(&["runner=stage2", "profiling=stage2", "run.mode=light"]);
    assert!(!light.runner.operators);
    assert_eq!(light.profiling.nsys.trace, ["cuda", "nvtx"]);
    let gate =
        |overrides: &[&str]| read(overrides).profiling.nsys.gate().unwrap().map(|range| range.for_nsys());
    let capture = "profiling.nsys.capture=nvtx";
    for (written, expected) in [
        ("range@LLM", None),
        ("LLM@decode_all", Some("decode_all@LLM")),
        ("decode_all@LLM", Some("decode_all@LLM")),
        ("decode@*", Some("decode@*")),
        ("prefill", Some("prefill")),
    ] {
        let range = format!("profiling.nsys.nvtx_capture={written}");
        assert_eq!(gate(&[capture, &range]).as_deref(), expected, "{written}");
    }
    assert_eq!(gate(&["profiling.nsys.nvtx_capture=prefill", "+nsys.gating_nvtx=false"]), None);
    assert_eq!(
        read(&["+pipeline.ncu.ncu_cli.nvtx.include=decode*"]).profiling.ncu.nvtx_include.as_deref(),
        Some("decode*")
    );
}

#[test]
fn overrides_after_the_dashes_are_told_where_they_belong() {
    let composed = |program: &[&str]| {
        let program = program.iter().map(|text| (*text).to_owned()).collect();
        compose(&ConfigProps { program, ..Default::default() })
    };
    let error = composed(&["+run.mode=deep", "+inputs.manifest=/abs/inputs.yaml"]).unwrap_err().to_string();
    assert!(error.contains("leave out the -- before overrides"), "{error}");
    assert!(composed(&["python3", "+run.mode=deep"]).is_ok());
    assert!(composed(&["./a=b"]).is_ok(), "a file may have such a name");
}
