//! A real Hydra program. `ROOFGAP_TEST_HYDRA` names a Python with hydra-core; run with `--ignored real_hydra`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use roofgap_base::error::Error;
use roofgap_collect::child::probe;
use roofgap_collect::program::ProgramContext;
use roofgap_record::stage1::{AcceptedOverrides, HydraModule};

const LIMIT: Duration = Duration::from_secs(60);

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
        light_overrides: Vec::new(),
        overrides: vec!["device=cpu".to_owned()],
        profiler_switches: Vec::new(),
    };
    let context = ProgramContext {
        run_dir: folder.join("run"),
        phase: "timeline",
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

/// Injects the overrides of a profiled run over two inputs.
fn inject(
    hydra: &mut HydraModule,
    output: &Path,
    context: &ProgramContext,
) -> Result<AcceptedOverrides, Error> {
    let own = hydra.own_config(output, context)?;
    hydra.inject_light_overrides(&own, 2, output, context)
}

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
                "defaults:\n  - runners: stage1.default\n  - _self_\ndevice: cuda:0\nrepeats: 3\npipeline:\n  torch_profiler: {enable: true}\n  \
                 static_analysis: {enable: true}\n",
            ),
            ("conf/runners/stage1.default.yaml", "name: default\n"),
            ("conf/runners/stage1.no-static.yaml", "name: no-static\n"),
        ],
    );
    let (mut hydra, context) = module(folder.path(), python());
    let output = folder.path().join("out put, a=b (it's) \\${x}");
    let own = hydra.own_config(&output, &context).unwrap();
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
        let accepted = hydra.inject_light_overrides(&own, 2, &output, &context).unwrap();
        assert_eq!((accepted.dropped.len(), accepted.profilers_on.len()), (0, 0));
        let answer = probe(&hydra.command(&folder.path().join("plain"), &context), LIMIT).unwrap();
        assert!(answer.success, "{odd}: {}", answer.text());
        let result: serde_json::Value = serde_json::from_str(answer.stdout.lines().last().unwrap()).unwrap();
        assert_eq!(result["cfg"]["inputs"]["manifest"], odd);
        assert_eq!(result["cfg"]["runners"]["name"], "no-static");
        assert_eq!(result["cfg"]["run"]["mode"], "deep");
        assert_eq!(result["cfg"]["pipeline"]["torch_profiler"]["enable"], false);
        assert_eq!(result["cfg"]["pipeline"]["static_analysis"]["enable"], false);
        assert_eq!(result["cfg"]["repeats"], 2);
        assert_eq!(result["phase"], "timeline");
        assert_eq!(result["cwd"], folder.path().join("plain").canonicalize().unwrap().to_str().unwrap());
    }
}

#[test]
#[ignore = "needs hydra-core: set ROOFGAP_TEST_HYDRA"]
fn real_hydra_module_without_the_groups() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), &[("app.py", APP), ("conf/config.yaml", "device: cuda:0\n")]);
    let (mut hydra, context) = module(folder.path(), python());
    let output = folder.path().join("out");
    let accepted = inject(&mut hydra, &output, &context).unwrap();
    assert_eq!(accepted.dropped, ["runners=stage1.no-static"]);
    assert_eq!(hydra.light_overrides, ["+torch_profiler.enabled=false"]);
    assert!(probe(&hydra.command(&output, &context), LIMIT).unwrap().success);
}

#[test]
#[ignore = "needs hydra-core: set ROOFGAP_TEST_HYDRA"]
fn real_hydra_reports_a_wrong_override_of_the_user() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), &[("app.py", APP), ("conf/config.yaml", "device: cuda:0\n")]);
    let (mut hydra, context) = module(folder.path(), python());
    hydra.overrides = vec!["devise=cpu".to_owned()];
    let error = inject(&mut hydra, &folder.path().join("out"), &context).unwrap_err().to_string();
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
            ("conf/config.yaml", "device: cuda:0\nrun: {mode: fast}\ninputs: {manifest: null}\n"),
        ],
    );
    let (mut hydra, context) = module(folder.path(), python());
    hydra.manifest = Some("/data/pages.yaml".into());
    let output = folder.path().join("out");
    let dropped = inject(&mut hydra, &output, &context).unwrap().dropped;
    assert!(dropped.iter().any(|text| text.contains("its own run.mode")), "{dropped:?}");
    let answer = probe(&hydra.command(&output, &context), LIMIT).unwrap();
    assert!(answer.success, "{}", answer.text());
    let result: serde_json::Value = serde_json::from_str(answer.stdout.trim()).unwrap();
    assert_eq!(result["cfg"]["run"]["mode"], "fast");
    assert_eq!(result["cfg"]["inputs"]["manifest"], "/data/pages.yaml");
}

const STRICT_APP: &str = r#"
from enum import Enum
from dataclasses import dataclass, field
import hydra
from hydra.core.config_store import ConfigStore

class Level(Enum):
    full = 1
    little = 2

@dataclass
class Profiling:
    enabled: Level = Level.full
    activities: list[str] = field(default_factory=lambda: ["cpu", "cuda"])
    warmup_rounds: int = 2

@dataclass
class Config:
    device: str = "cuda:0"
    runners: str = "two"
    profiling: Profiling = field(default_factory=Profiling)

ConfigStore.instance().store(name="config", node=Config)

@hydra.main(version_base=None, config_name="config")
def main(cfg):
    pass

main()
"#;

/// A schema rejects the switch, so the profiler is made lighter and is reported. A key that has the name of a group keeps its value.
#[test]
#[ignore = "needs hydra-core: set ROOFGAP_TEST_HYDRA"]
fn real_hydra_module_with_a_schema() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), &[("app.py", STRICT_APP)]);
    let (mut hydra, context) = module(folder.path(), python());
    let output = folder.path().join("out");
    let accepted = inject(&mut hydra, &output, &context).unwrap();
    assert_eq!(accepted.profilers_on, ["profiling"]);
    assert_eq!(accepted.config.get("runners"), Some("two"));
    assert!(accepted.dropped.contains(&"profiling.enabled=false".to_owned()), "{accepted:?}");
    assert!(hydra.light_overrides.contains(&"profiling.activities=[cpu]".to_owned()), "{hydra:?}");
    assert_eq!(accepted.config.get("profiling.warmup_rounds"), Some("0"));
    assert!(probe(&hydra.command(&output, &context), LIMIT).unwrap().success);
}
