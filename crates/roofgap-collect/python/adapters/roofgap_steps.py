"""Step ranges and the account of a serving engine, shared by the adapters.

An adapter wraps the method of its engine that runs one step. The name of the range says how many requests and tokens were scheduled, in a
form that the analysis reads. Errors in an adapter never reach the engine.
"""

import hashlib
import importlib.metadata
import json
import os
import sys
import threading
import time

# Only a run without a profiler has nobody who reads ranges.
LABELS = os.environ.get("ROOFGAP_PHASE") != "baseline"
# Modules get ranges too, by which the kernels of a CUDA graph have layers.
LAYERS = LABELS and os.environ.get("ROOFGAP_LAYERS") in ("auto", "on")
_STARTED = time.time()
# Seconds in which the native collector surely writes what it has; it does so every second.
FLUSH_S = 1.3


def step_name(prefix, context, generation):
    """Returns the name of a step from (requests, tokens) that read their prompt and that generate."""
    return f"{prefix}_context_{context[0]}({context[1]})_generation_{generation[0]}({generation[1]})"


def count(scheduled):
    """Sums (is context, tokens) of requests into (requests, tokens) of both kinds."""
    sums = {True: [0, 0], False: [0, 0]}
    for is_context, tokens in scheduled:
        sums[is_context][0] += 1
        sums[is_context][1] += tokens
    return tuple(sums[True]), tuple(sums[False])


class Steps:
    """Open step of the current thread. Step names vary without end, so they are pushed as plain text and never registered."""

    def __init__(self):
        self._nvtx = None
        self._open = threading.local()

    def begin(self, name):
        """Opens a step; ends the one before, if it is still open."""
        self.end()
        if name is None or not LABELS:
            return
        self._push(name)
        self._open.step = True

    def end(self):
        if getattr(self._open, "step", False):
            self._open.step = False
            self._pop()

    def around(self, name, call, *arguments, **keywords):
        """Calls a function inside a range of its own."""
        if not LABELS:
            return call(*arguments, **keywords)
        self._push(name)
        try:
            return call(*arguments, **keywords)
        finally:
            self._pop()

    def requests(self, scheduled, reading):
        """Marks which requests are in this step and those after it, with their tokens, where that has changed. Tokens of prompts end in `p`."""
        now = dict(scheduled), reading
        if LABELS and getattr(self._open, "requests", None) != now:
            self._open.requests = now
            words = (f"{name}:{tokens}p" if name in reading else f"{name}:{tokens}" for name, tokens in scheduled.items())
            self.mark("roofgap:requests " + " ".join(words))

    def mark(self, text):
        """Marks the current moment."""
        if LABELS:
            ignoring_errors(self._find().mark, text)

    def _find(self):
        if self._nvtx is None:
            torch = sys.modules.get("torch")
            self._nvtx = torch.cuda.nvtx if torch is not None else _Silent
        return self._nvtx

    def _push(self, name):
        ignoring_errors(self._find().range_push, name)

    def _pop(self):
        ignoring_errors(self._nvtx.range_pop)


class _Silent:
    @staticmethod
    def range_push(_name):
        pass

    @staticmethod
    def range_pop():
        pass

    @staticmethod
    def mark(_text):
        pass


def around(owner, kind, methods):
    """Calls methods of an object or a class inside of ranges, or of parts of the start, with these names."""
    for method, name in methods.items():
        original = getattr(kind, method, None)
        if original is not None:
            setattr(kind, method, _around(owner, name, original))


def warm_up(steps, kind, *methods):
    """Puts methods that prepare an engine (compilation, graph capture, trial batches) into a `warmup` range."""
    around(steps, kind, dict.fromkeys(methods, "warmup"))


def before(kind, name, prepare):
    """Calls `prepare` with the object before a method of a class."""
    original = getattr(kind, name, None)
    if original is not None:

        def wrapped(self, *arguments, **keywords):
            ignoring_errors(prepare, self)
            return original(self, *arguments, **keywords)

        setattr(kind, name, _as(original, wrapped))


def _around(owner, name, original):
    def wrapped(*arguments, **keywords):
        return owner.around(name, original, *arguments, **keywords)

    return _as(original, wrapped)


def _as(original, wrapped):
    """Makes a wrapper look like its original."""
    for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
        setattr(wrapped, attribute, getattr(original, attribute, None))
    wrapped.__wrapped__ = original
    return wrapped


def name_or_none(name_of, *arguments):
    """Returns the name of a step; None where the engine is not as expected."""
    return ignoring_errors(name_of, *arguments) if LABELS else None


class Account:
    """The account of an engine, written once by its first rank, unless the program writes its own."""

    def __init__(self, load, engine, package):
        self._load = load
        self._engine = engine
        self._package = package
        self._written = False

    def write(self, describe, source):
        """Writes the account at the first step. `describe` fills in model, device and parallelism from `source`; it returns false in
        other ranks than the first."""
        if not self._written:
            self._written = True
            ignoring_errors(wait_for_collector_at_end)
            path = os.environ.get("ROOFGAP_WORKLOAD_JSON")
            if path:
                ignoring_errors(self._write, path, describe, source)

    def _write(self, path, describe, source):
        if os.path.exists(path) and os.path.getmtime(path) >= _STARTED - 1:
            return
        probe = self._load("roofgap_probe")
        account = probe.new_account()
        account["tokens"] = None
        account["engine"] = {"name": self._engine, "version": self._version(), "parallelism": None}
        account["notes"].append(f"steps were annotated automatically, by what {self._engine} scheduled for each")
        if describe(probe, account, source):
            probe.write_account(account, path)

    def _version(self):
        module = sys.modules.get(self._package)
        found = getattr(module, "__version__", None)
        return found if isinstance(found, str) else ignoring_errors(importlib.metadata.version, self._package)


class Calls:
    """Timed calls of an engine inside a program. Each is a repeat of the account with one stage; the first of several is a warm-up."""

    def __init__(self, load, stage):
        self._load = load
        self._stage = stage
        self._repeats = []
        self._hash = hashlib.sha256()
        self._sequences = 0

    def add(self, wall_ns, sequences):
        """Adds a call to the account, unless the program writes its own."""
        path = os.environ.get("ROOFGAP_WORKLOAD_JSON")
        if not path:
            return
        probe = self._load("roofgap_probe")
        account = {"schema": probe.SCHEMA, "repeats": [], "notes": []}
        if os.path.exists(path) and os.path.getmtime(path) >= _STARTED - 1:
            with open(path, encoding="utf-8") as file:
                account = json.load(file)
        # A second engine of the program starts another account.
        if account.get("repeats", []) != self._repeats and account.get("repeats") != []:
            return
        for sequence in sequences:
            text = ",".join(str(int(token)) for token in sequence)
            self._hash.update((";" + text if self._sequences else text).encode("ascii"))
            self._sequences += 1
        self._repeats.append({"warmup": False, "stages": [probe.stage(self._stage, wall_ns)]})
        if len(self._repeats) == 2:
            self._repeats[0]["warmup"] = True
        account["repeats"] = self._repeats
        account["token_hash"] = "sha256:" + self._hash.hexdigest()
        probe.write_account(account, path)


def wait_for_collector_at_end():
    """Lets the native collector write the last steps. A process made by multiprocessing ends without the exit handlers of libraries."""
    from multiprocessing import parent_process, util

    if os.environ.get("ROOFGAP_NATIVE_DIR") and parent_process() is not None:
        util.Finalize(None, time.sleep, args=(FLUSH_S,), exitpriority=0)


def describe_config(probe, account, name, config, dtype, weights):
    """Fills in the current device, and the model from its Hugging Face configuration."""
    describe_device(probe, account)
    account["model"].update(
        name=str(name),
        dtype=probe.dtype_name(dtype) if dtype is not None else "unknown",
        weights=weights,
        config=probe.tidy(config.to_dict()) if hasattr(config, "to_dict") else None,
    )


def count_parameters(model, world):
    """Returns the number of parameters; None where this process has only a part of the model."""
    return sum(parameter.numel() for parameter in model.parameters()) if world == 1 else None


def describe_device(probe, account):
    """Fills in the current device."""
    torch = sys.modules.get("torch")
    cuda = torch is not None and torch.cuda.is_available()
    account["device"] = probe.device_facts(torch, f"cuda:{torch.cuda.current_device()}" if cuda else "cpu")


def ignoring_errors(call, *arguments):
    """Calls a function; returns None if it fails. ROOFGAP_ANNOTATE_DEBUG=1 prints the error."""
    try:
        return call(*arguments)
    except Exception as error:
        if os.environ.get("ROOFGAP_ANNOTATE_DEBUG"):
            print(f"roofgap: annotation failed: {type(error).__name__}: {error}", file=sys.stderr)
        return None
