#!/usr/bin/env python3
"""Runs a causal or image-text model of transformers as the profiled workload.

One prefill, then greedy decoding with a KV cache, one forward pass per token, inside NVTX ranges. The account of the run goes to the file
named by --account or ROOFGAP_WORKLOAD_JSON. `--self-check` prints installed versions; it and `--help` need no torch.
"""

import argparse
import importlib.util
import json
import os
import sys
import traceback

import roofgap_probe as probe
from hf_common import (
    DTYPES,
    EXIT_FAILED,
    EXIT_NO_CUDA,
    EXIT_NO_MODEL,
    EXIT_NO_TORCH,
    EXIT_OUT_OF_MEMORY,
    EXIT_USAGE,
    DriverError,
    one_line,
    report,
)

def parser():
    """Builds the parser of the command line."""
    top = argparse.ArgumentParser(prog="hf_driver.py", description=__doc__.partition("\n")[0])
    model = top.add_argument_group("model (one of the first three)")
    model.add_argument("--model", metavar="DIR", help="a local folder with config.json and weights")
    model.add_argument("--config-json", metavar="FILE", help="a config.json; random weights")
    model.add_argument("--model-type", metavar="NAME", help="a model type of transformers with default sizes; random weights")
    model.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="set a configuration key; dots separate nested keys",
    )
    model.add_argument("--task", choices=("auto", "causal", "image_text"), default="auto")
    model.add_argument("--name", help="name of the model in the account")
    model.add_argument("--revision", help="revision of the weights, for the account")
    model.add_argument("--dtype", choices=sorted(DTYPES), help="data type of the weights (default: that of the configuration, else bf16)")
    model.add_argument("--attention", metavar="NAME", help="attention implementation (sdpa, eager, flash_attention_2, ...)")
    model.add_argument("--experts", metavar="NAME", help="experts implementation (grouped_mm, batched_mm, eager)")
    model.add_argument("--trust-remote-code", action="store_true", help="run Python code from the model folder")

    run = top.add_argument_group("run")
    run.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    run.add_argument(
        "--prompt-tokens", type=positive, default=512, metavar="N", help="prompt tokens, including image tokens if they fit"
    )
    run.add_argument("--new-tokens", type=positive, default=64, metavar="N", help="decode steps")
    run.add_argument("--batch", type=positive, default=1, metavar="N")
    run.add_argument("--repeats", type=positive, default=3, metavar="N")
    run.add_argument("--warmup", type=natural, default=1, metavar="N")
    run.add_argument("--seed", type=natural, default=0, metavar="N", help="seed for weights, prompt and image")
    run.add_argument("--compile", action="store_true", help="use torch.compile for decode, with a static cache")
    run.add_argument("--cuda-graphs", action="store_true", help="replay decode as a CUDA graph, with a static cache")

    data = top.add_argument_group("input")
    data.add_argument("--prompt", help="text of the prompt; needs a tokenizer in the model folder")
    data.add_argument(
        "--image", metavar="made|none|FILE", default="auto", help="a generated image, none, or a file (default: made if the model takes images)"
    )
    data.add_argument("--image-size", type=positive, metavar="PIXELS", help="side of a generated image (default: that of the model)")
    data.add_argument("--manifest", metavar="FILE", help="YAML list of images and prompts; each repeat uses the next ones")

    out = top.add_argument_group("output")
    out.add_argument(
        "--account", metavar="FILE", default=os.environ.get("ROOFGAP_WORKLOAD_JSON"), help="path of the account (default: ROOFGAP_WORKLOAD_JSON)"
    )
    out.add_argument("--profile-operators", metavar="FILE", help="profile one repeat with torch.profiler; write an account with operators here")
    out.add_argument("--trace-out", metavar="FILE.json.gz", help="with --profile-operators: path of the trace")
    out.add_argument("--self-check", action="store_true", help="print installed versions as JSON and exit")
    return top


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def natural(text):
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is negative")
    return value


def check(args):
    """Checks the arguments beyond the parser; returns the configuration settings."""
    given = [name for name in ("model", "config_json", "model_type") if getattr(args, name)]
    if len(given) != 1:
        raise DriverError(EXIT_USAGE, "give one of --model, --config-json and --model-type" + (f", not {len(given)}" if given else ""))
    if args.trace_out and not args.profile_operators:
        raise DriverError(EXIT_USAGE, "--trace-out needs --profile-operators")
    if args.model and not os.path.isfile(os.path.join(args.model, "config.json")):
        raise DriverError(
            EXIT_NO_MODEL, f"no such model: {args.model} has no config.json; --model takes a local folder, models are not downloaded"
        )
    for path, option in ((args.config_json, "--config-json"), (args.manifest, "--manifest")):
        if path and not os.path.isfile(path):
            raise DriverError(EXIT_NO_MODEL if option == "--config-json" else EXIT_USAGE, f"no such file: {option} {path}")
    if args.image not in ("auto", "made", "none") and not os.path.isfile(args.image):
        raise DriverError(EXIT_USAGE, f"no such file: --image {args.image}")
    return parse_settings(args.settings)


def parse_settings(settings):
    """Parses `a.b=v` pairs into nested dictionaries; a value is JSON if it parses, else text."""
    result = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not key or not equals:
            raise DriverError(EXIT_USAGE, f"--set {setting}: expected KEY=VALUE")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        node = result
        *parents, last = key.split(".")
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise DriverError(EXIT_USAGE, f"--set {setting}: {parent} already has a value")
        node[last] = value
    return result


def self_check():
    """Returns the versions of the packages a run needs; None if missing."""
    found = {"python": sys.version.split()[0]}
    for name in ("torch", "transformers", "nvtx", "PIL", "yaml"):
        try:
            module = __import__(name)
            found[name] = getattr(module, "__version__", "present")
        except Exception as error:
            found[name] = None
            found[f"{name}_error"] = f"{type(error).__name__}: {error}"
    torch = sys.modules.get("torch")
    found["cuda"] = bool(torch and torch.cuda.is_available())
    found["devices"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if found["cuda"] else []
    return found


def name_layers():
    """Puts ranges around the modules of the model, where `ROOFGAP_LAYERS` requests it."""
    if os.environ.get("ROOFGAP_LAYERS") in ("auto", "on"):
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "adapters", "roofgap_layers.py")
        spec = importlib.util.spec_from_file_location("roofgap_layers", path)
        layers = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(layers)
        layers.install()


def load_torch():
    """Imports torch and transformers."""
    try:
        import torch
    except Exception as error:
        raise DriverError(
            EXIT_NO_TORCH,
            f"torch cannot be imported by {sys.executable}: {error}; install it, or set workload.python to another interpreter",
        ) from error
    try:
        import transformers
    except Exception as error:
        raise DriverError(
            EXIT_NO_TORCH, f"transformers cannot be imported by {sys.executable}: {error}; pip install transformers"
        ) from error
    transformers.logging.set_verbosity_error()
    name_layers()
    return torch, transformers


def pick_device(torch, wanted):
    """Returns the device; only `auto` falls back to the CPU."""
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError as error:
        raise DriverError(EXIT_USAGE, f"--device {wanted}: {str(error).splitlines()[0]}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        why = "this torch was built without CUDA" if torch.version.cuda is None else "no usable GPU or driver was found"
        raise DriverError(EXIT_NO_CUDA, f"no CUDA: {why}; use --device cpu or --device auto")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise DriverError(EXIT_NO_CUDA, f"no such device {wanted}: this machine has {torch.cuda.device_count()}")
    return device


def run(args):
    """Builds the model and its input, runs the repeats, and writes the account."""
    settings = check(args)
    torch, transformers = load_torch()
    import hf_loop
    import hf_model

    device = pick_device(torch, args.device)
    if args.cuda_graphs and device.type != "cuda":
        raise DriverError(EXIT_NO_CUDA, "--cuda-graphs needs a CUDA device")
    hf_model.check_inputs(args)
    try:
        report(f"building the model on {device}")
        start = probe.Start()
        model = start.around("weights", hf_model.build, torch, transformers, args, settings, device)
        report(f"{sum(p.numel() for p in model.parameters()):,} parameters; preparing the input")
        inputs = start.around("inputs", hf_model.all_inputs, torch, transformers, args, model, device)
        startup = start.parts()
        account = hf_loop.measure(torch, args, model, inputs, device)
        account["startup"] = startup
    except torch.cuda.OutOfMemoryError as error:
        total = torch.cuda.get_device_properties(device).total_memory / 2**30
        raise DriverError(
            EXIT_OUT_OF_MEMORY,
            f"out of memory on {device} ({total:.0f} GiB): {str(error).splitlines()[0]} Use a smaller batch, prompt or dtype.",
        ) from error
    except MemoryError as error:
        raise DriverError(EXIT_OUT_OF_MEMORY, "out of memory on the CPU; use a smaller model, batch or prompt") from error
    except DriverError:
        raise
    except Exception as error:
        # Unexpected, so the traceback matters more than a short message.
        traceback.print_exc()
        raise DriverError(EXIT_FAILED, f"{type(error).__name__} while running the model: {one_line(error)}") from error
    for path in dict.fromkeys(filter(None, (args.profile_operators, args.account))):
        try:
            probe.write_account(account, path)
        except OSError as error:
            raise DriverError(EXIT_FAILED, f"cannot write the account {path}: {error}") from error
    return account


def main(argv=None):
    args = parser().parse_args(argv)
    if args.self_check:
        print(json.dumps(self_check(), indent=2))
        return 0
    try:
        account = run(args)
    except DriverError as error:
        report(str(error))
        return error.status
    print(account["token_hash"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
