"""A stand-in for the Stage 1 runner: its configuration keys, override rules and output files, without torch or a model.

`STAGE1_STUB_CONFIG` chooses the version: `first` has the keys of the documents, `later` those below `pipeline`. `done.json` in the output
folder says what ran.
"""

import json
import os
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

# Times and tokens of every run.
PREFILL_MS, DECODE_MS, TOKENS = 5.0, 8.0, 4


def find_images(cfg):
    """Returns the images of the list of files, or of the root folder."""
    root = Path(cfg.dataset.root)
    if cfg.dataset.subset_filelist:
        lines = Path(cfg.dataset.subset_filelist).read_text(encoding="utf-8").splitlines()
        return [root / line for line in lines if line]
    return sorted(path for pattern in cfg.dataset.fallback_patterns for path in root.glob(pattern))


def select(cfg, *keys, default=None):
    """Returns the first of some keys that exists."""
    for key in keys:
        value = OmegaConf.select(cfg, key)
        if value is not None:
            return value
    return default


@hydra.main(version_base=None, config_path="conf", config_name=os.environ.get("STAGE1_STUB_CONFIG", "first"))
def main(cfg):
    images = find_images(cfg)
    if not images:
        raise RuntimeError(f"no images in {cfg.dataset.root}")
    later = "pipeline" in cfg
    profiler = select(cfg, "pipeline.torch_profiler.enable", "torch_profiler.enabled", "profiling.enabled", default=True)
    static = select(cfg, "pipeline.static_analysis.enable", "runners.analysis.static.enabled", default=True)
    visualization = select(cfg, "pipeline.torch_profiler.output.visualization.enable", "outputs.visualization.enable", default=True)
    runs = select(cfg, "dataset.sampling.num_samples_per_epoch", default=len(images)) if later else cfg.repeats
    used = [images[i % len(images)] for i in range(runs)]
    root = Path(HydraConfig.get().run.dir)
    out = root / "torch_profiler" if later else root
    out.mkdir(parents=True, exist_ok=True)

    def both(mean):
        return {"mean": mean, "std": 0.0}

    metrics = {
        "aggregates": {
            "prefill_ms": both(PREFILL_MS),
            "decode_ms": both(DECODE_MS),
            "tokens": both(float(TOKENS)),
            "tokens_per_s": both(TOKENS / DECODE_MS * 1e3),
            "stage_ms": {"prefill": both(PREFILL_MS), "decode": both(DECODE_MS), "sam": both(1.0)},
        },
        "mfu_model_level": 0.1,
        "mfu_per_stage": {"prefill": 0.2, "decode": 0.05, "vision": 0.0},
        "model_dims": {"d_model": 1280, "d_ff": 6848, "n_layers": 12},
        "peak_tflops": 989.0,
    }
    (out / "metrics.json").write_text(json.dumps(metrics, indent=2), encoding="utf-8")
    rows = "|aten::mm|12.500|30.000|8|1.562500|\n" if profiler else ""
    (out / "operators.md").write_text(
        f"\n# Operator Summary\n\n\n|op_name|total_time_ms|cuda_time_ms|calls|mean_ms|\n| :---: | :---: | :---: | :---: | :---: |\n{rows}",
        encoding="utf-8",
    )
    records = [{"path": str(path), "bytes": path.stat().st_size, "width": None, "height": None} for path in images]
    inputs = {"dataset_root": str(cfg.dataset.root), "subset_filelist": None, "count": len(records), "images": records}
    (out / "inputs.yaml").write_text(OmegaConf.to_yaml(inputs), encoding="utf-8")
    (out / "assumptions.md").write_text(
        f"\n# Run Assumptions\n\n- Device: {cfg.device}\n- Batch size: 1\n- Model path: {cfg.model.path}\n", encoding="utf-8"
    )
    if static:
        folder = root / "static_analysis" if later else root
        folder.mkdir(exist_ok=True)
        report = {"metadata": {"seq_len": 281}, "total": {"params": 3336106240, "flops": 1.0}}
        (folder / "static_compute.json").write_text(json.dumps(report), encoding="utf-8")
    done = {"profiler": bool(profiler), "static": bool(static), "visualization": bool(visualization), "images": [str(path) for path in used]}
    (root / "done.json").write_text(json.dumps(done), encoding="utf-8")


if __name__ == "__main__":
    main()
