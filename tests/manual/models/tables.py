#!/usr/bin/env python3
"""Writes the reference of the models of transformers: parameters, FLOPs of 128 tokens, configuration and modules, a line of JSON each.

Builds every causal language model of the installed transformers from its default configuration, on the meta device, so no GPU and no
memory are needed; a CPU build of torch is enough. With `--check`, runs the comparison of the analysis over the table.

    python3 tables.py models.jsonl [TYPE...] [--check]
    gzip -9n < models.jsonl > crates/roofgap-analyze/tests/models/models.jsonl.gz      the copy that the tests read
"""

import json
import os
import re
import signal
import subprocess
import sys
import warnings

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "crates", "roofgap-collect", "python"))
os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")

import roofgap_probe  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES  # noqa: E402

TOKENS = 128
SECONDS = 150
COSMETIC = re.compile(r"token_id$|dropout|_pdrop|initializer|version|id2label|label2id|suppress_tokens|sparsity_pattern|^dtype$")


def tidy(config):
    """Removes what is unset or has no size, to keep the table small."""
    if isinstance(config, dict):
        return {key: tidy(value) for key, value in config.items() if value is not None and not COSMETIC.search(key)}
    return config


def build(config):
    """Builds a model on the meta device, with experts as products that a counter sees, where it has them."""
    with torch.device("meta"):
        for options in ({"experts_implementation": "batched_mm"}, {}):
            try:
                return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, **options).eval()
            except Exception as error:
                failure = error
    raise failure


def flops(model):
    """Counts the FLOPs of one sequence; None where a model cannot run on the meta device."""
    ids = torch.zeros(1, TOKENS, dtype=torch.long, device="meta")
    # With a mask of floats, no model looks at the values of one.
    mask = torch.zeros(1, 1, TOKENS, TOKENS, device="meta", dtype=torch.bfloat16)
    for options in ({}, {"use_cache": False}, {"attention_mask": mask}, {"attention_mask": mask, "use_cache": False}):
        try:
            with FlopCounterMode(display=False) as counter, torch.no_grad():
                model(ids, **options)
            return counter.get_total_flops()
        except Exception:
            continue
    return None


def row(kind):
    config = transformers.AutoConfig.for_model(kind)
    model = build(config)
    return {
        "type": kind,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "flops": flops(model),
        "config": tidy(json.loads(config.to_json_string())),
        "modules": roofgap_probe.modules(model),
    }


def late(*_):
    raise TimeoutError(f"more than {SECONDS} s")


def main(path, *kinds):
    transformers.logging.set_verbosity_error()
    signal.signal(signal.SIGALRM, late)
    written = 0
    with open(path, "w", encoding="utf-8") as file:
        for kind in kinds or NAMES:
            signal.alarm(SECONDS)
            try:
                file.write(json.dumps(row(kind), separators=(",", ":")) + "\n")
                written += 1
            except Exception as error:
                print(f"{kind}: not built: {type(error).__name__}: {str(error).splitlines()[0][:100]}", file=sys.stderr)
            finally:
                signal.alarm(0)
    print(f"{written} models of transformers {transformers.__version__}")


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--check"]
    if not arguments:
        sys.exit(__doc__)
    main(*arguments)
    if "--check" in sys.argv:
        command = ["cargo", "test", "-p", "roofgap-analyze", "--lib", "models_of_transformers", "--", "--nocapture"]
        sys.exit(subprocess.run(command, cwd=ROOT, env=dict(os.environ, ROOFGAP_TEST_MODELS=os.path.abspath(arguments[0]))).returncode)
