//! A real Hydra program, where `ROOFGAP_TEST_HYDRA` names a Python that has hydra-core.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use roofgap_collect::child::probe;
use roofgap_collect::program::{Hydra, Phase, Setting};

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

fn module(folder: &Path, python: PathBuf) -> (Hydra, Setting) {
    let hydra = Hydra {
        python,
        module: "app".to_owned(),
        mode: "deep".to_owned(),
        manifest: None,
        quiet: Hydra::lightest(),
        overrides: vec!["device=cpu".to_owned()],
    };
    let setting = Setting {
        run_dir: folder.join("run"),
        phase: Phase::Timeline,
        account: folder.join("run/workload.json"),
        cwd: Some(folder.to_path_buf()),
        env: Vec::new(),
    };
    (hydra, setting)
}

fn python() -> Option<PathBuf> {
    let python = std::env::var_os("ROOFGAP_TEST_HYDRA").map(PathBuf::from);
    if python.is_none() {
        eprintln!("skipped: ROOFGAP_TEST_HYDRA names no Python");
    }
    python
}

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_module_that_has_all_the_groups() {
    let Some(python) = python() else { return };
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
    let (mut hydra, setting) = module(folder.path(), python);
    let output = folder.path().join("out put, a=b (it's) \\${x}");
    // Every character that means something to Hydra must arrive as it was.
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
            hydra.settle(&output, &setting, LIMIT).unwrap(),
            Vec::<String>::new()
        );
        let answer = probe(&hydra.command(&folder.path().join("plain"), &setting), LIMIT).unwrap();
        assert!(answer.ok, "{odd}: {}", answer.text());
        let said: serde_json::Value = serde_json::from_str(answer.stdout.lines().last().unwrap()).unwrap();
        assert_eq!(said["cfg"]["inputs"]["manifest"], odd);
        assert_eq!(said["cfg"]["runners"]["name"], "no-static");
        assert_eq!(said["cfg"]["run"]["mode"], "deep");
        assert_eq!(said["cfg"]["pipeline"]["torch_profiler"]["enable"], false);
        assert_eq!(said["phase"], "timeline");
        assert_eq!(
            said["cwd"],
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
fn a_module_that_has_none_of_them_is_not_asked_for_them() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    put(
        folder.path(),
        &[("app.py", APP), ("conf/config.yaml", "device: cuda:0\n")],
    );
    let (mut hydra, setting) = module(folder.path(), python);
    let output = folder.path().join("out");
    let mut dropped = hydra.settle(&output, &setting, LIMIT).unwrap();
    dropped.sort();
    let mut all = Hydra::lightest();
    all.sort();
    assert_eq!(dropped, all);
    assert!(probe(&hydra.command(&output, &setting), LIMIT).unwrap().ok);
}

#[test]
fn a_wrong_override_of_the_user_is_his_to_mend() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    put(
        folder.path(),
        &[("app.py", APP), ("conf/config.yaml", "device: cuda:0\n")],
    );
    let (mut hydra, setting) = module(folder.path(), python);
    hydra.overrides = vec!["devise=cpu".to_owned()];
    let error = hydra
        .settle(&folder.path().join("out"), &setting, LIMIT)
        .unwrap_err()
        .to_string();
    assert!(error.contains("devise") && error.contains("--cfg job"), "{error}");
}

#[test]
fn a_module_with_a_mode_and_a_manifest_of_its_own() {
    let Some(python) = python() else { return };
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
    let (mut hydra, setting) = module(folder.path(), python);
    hydra.manifest = Some("/data/pages.yaml".into());
    let output = folder.path().join("out");
    let dropped = hydra.settle(&output, &setting, LIMIT).unwrap();
    assert!(
        dropped.iter().any(|text| text.contains("run.mode of its own")),
        "{dropped:?}"
    );
    let answer = probe(&hydra.command(&output, &setting), LIMIT).unwrap();
    assert!(answer.ok, "{}", answer.text());
    let said: serde_json::Value = serde_json::from_str(answer.stdout.trim()).unwrap();
    assert_eq!(said["cfg"]["run"]["mode"], "fast");
    assert_eq!(said["cfg"]["inputs"]["manifest"], "/data/pages.yaml");
}
