//! A real Hydra program. `ROOFGAP_TEST_HYDRA` names a Python with hydra-core; run with `--ignored real_hydra`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use roofgap_collect::child::probe;
use roofgap_collect::program::{HydraModule, Phase, ProgramContext};

const APP: &str = r#"
import json, os
import hydra
from omegaconf import OmegaConf

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    print(json.dumps({"cfg": OmegaConf.to_container(cfg, resolve=True), "cwd": os.getcwd(),
                      "phase": os.environ["ROOFGAP_PHASE"]}))

main()
"#;

fn put(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

fn module(folder: &Path, python: PathBuf) -> (HydraModule, ProgramContext) {
    let hydra = HydraModule {
        python,
        module: "app".to_owned(),
        mode: "deep".to_owned(),
        manifest: None,
        light_overrides: HydraModule::default_light_overrides(),
        overrides: vec!["device=cpu".to_owned()],
    };
    let context = ProgramContext {
        run_dir: folder.join("run"),
        phase: Phase::Timeline,
        account: folder.join("run/workload.json"),
        cwd: Some(folder.to_path_buf()),
        env: Vec::new(),
    };
    (hydra, context)
}

fn python() -> PathBuf {
    std::env::var_os("ROOFGAP_TEST_HYDRA")
        .expect("ROOFGAP_TEST_HYDRA must name a Python with hydra-core")
        .into()
}

const LIMIT: Duration = Duration::from_secs(60);

#[test]
#[ignore = "needs hydra-core: set ROOFGAP_TEST_HYDRA"]
fn real_hydra_module_with_all_groups() {
    let folder = tempfile::tempdir().unwrap();
    put(
        folder.path(),
        &[
            ("app.py", APP),
            (
                "conf/config.yaml",
                "defaults:\n  - runners: stage1.default\n  - _self_\ndevice: cuda:0\npipeline:\n  torch_profiler: {enable: true}\n  \
                 static_analysis: {enable: true}\n",
            ),
            ("conf/runners/stage1.default.yaml", "name: default\n"),
            ("conf/runners/stage1.no-static.yaml", "name: no-static\n"),
        ],
    );
    let (mut hydra, context) = module(folder.path(), python());
    let output = folder.path().join("out put, a=b (it's) \\${x}");
    // Every character with a meaning in Hydra must arrive unchanged.
    for odd in [
        "/data/in puts.yaml",
        "a=b,c",
        "it's",
        r"back\slash",
        r"end\",
        r"odd\'x",
        "${x}",
        "[1,2]",
        "{a: b}",
        "#;~é",
        "",
    ] {
        hydra.manifest = Some(odd.into());
        assert_eq!(
            hydra.drop_rejected_overrides(&output, &context, LIMIT).unwrap(),
            Vec::<String>::new()
        );
        let answer = probe(&hydra.command(&folder.path().join("plain"), &context), LIMIT).unwrap();
        assert!(answer.success, "{odd}: {}", answer.text());
        let result: serde_json::Value = serde_json::from_str(answer.stdout.lines().last().unwrap()).unwrap();
        assert_eq!(result["cfg"]["inputs"]["manifest"], odd);
        assert_eq!(result["cfg"]["runners"]["name"], "no-static");
        assert_eq!(result["cfg"]["run"]["mode"], "deep");
        assert_eq!(result["cfg"]["pipeline"]["torch_profiler"]["enable"], false);
        assert_eq!(result["phase"], "timeline");
        assert_eq!(
            result["cwd"],
            folder
                .path()
                .join("plain")
                .canonicalize()
                .unwrap()
                .to_str()
                .unwrap()
        );
    }
}

#[test]
#[ignore = "needs hydra-core: set ROOFGAP_TEST_HYDRA"]
fn real_hydra_module_without_the_groups() {
    let folder = tempfile::tempdir().unwrap();
    put(
        folder.path(),
        &[("app.py", APP), ("conf/config.yaml", "device: cuda:0\n")],
    );
    let (mut hydra, context) = module(folder.path(), python());
    let output = folder.path().join("out");
    let mut dropped = hydra.drop_rejected_overrides(&output, &context, LIMIT).unwrap();
    dropped.sort();
    let mut all = HydraModule::default_light_overrides();
    all.sort();
    assert_eq!(dropped, all);
    assert!(probe(&hydra.command(&output, &context), LIMIT).unwrap().success);
}

#[test]
#[ignore = "needs hydra-core: set ROOFGAP_TEST_HYDRA"]
fn real_hydra_reports_a_wrong_override_of_the_user() {
    let folder = tempfile::tempdir().unwrap();
    put(
        folder.path(),
        &[("app.py", APP), ("conf/config.yaml", "device: cuda:0\n")],
    );
    let (mut hydra, context) = module(folder.path(), python());
    hydra.overrides = vec!["devise=cpu".to_owned()];
    let error = hydra
        .drop_rejected_overrides(&folder.path().join("out"), &context, LIMIT)
        .unwrap_err()
        .to_string();
    assert!(error.contains("devise") && error.contains("--cfg job"), "{error}");
}

#[test]
#[ignore = "needs hydra-core: set ROOFGAP_TEST_HYDRA"]
fn real_hydra_module_with_its_own_mode_and_manifest() {
    let folder = tempfile::tempdir().unwrap();
    put(
        folder.path(),
        &[
            ("app.py", APP),
            (
                "conf/config.yaml",
                "device: cuda:0\nrun: {mode: fast}\ninputs: {manifest: null}\n",
            ),
        ],
    );
    let (mut hydra, context) = module(folder.path(), python());
    hydra.manifest = Some("/data/pages.yaml".into());
    let output = folder.path().join("out");
    let dropped = hydra.drop_rejected_overrides(&output, &context, LIMIT).unwrap();
    assert!(
        dropped.iter().any(|text| text.contains("its own run.mode")),
        "{dropped:?}"
    );
    let answer = probe(&hydra.command(&output, &context), LIMIT).unwrap();
    assert!(answer.success, "{}", answer.text());
    let result: serde_json::Value = serde_json::from_str(answer.stdout.trim()).unwrap();
    assert_eq!(result["cfg"]["run"]["mode"], "fast");
    assert_eq!(result["cfg"]["inputs"]["manifest"], "/data/pages.yaml");
}
