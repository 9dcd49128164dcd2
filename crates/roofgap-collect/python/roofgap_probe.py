"""The account, NVTX ranges, clocks and vision modules, shared by the driver and the annotation.

Imports only the standard library; the caller passes torch.
"""

import hashlib
import json
import math
import os
import sys
import time

SCHEMA = "roofgap.workload/1"
LLM = "LLM"

# Attribute names of vision parts, most specific first. A generic tower counts only if it contains no specific part.
_PARTS = (
    ("sam", ("sam_model", "sam_encoder", "sam")),
    ("vision_encoder", ("vision_encoder",)),
    ("projector", ("projector", "multi_modal_projector", "mm_projector", "connector", "merger")),
)
_TOWERS = ("vision_tower", "vision_model", "visual", "image_encoder", "vision_backbone")


def new_account():
    """Returns an empty account."""
    return {
        "schema": SCHEMA,
        "model": {
            "name": "unknown",
            "revision": None,
            "parameters": None,
            "active_parameters": None,
            "dtype": "unknown",
            "weights": "random",
            "config": None,
        },
        "tokens": {"prompt": 0, "generated": 0, "batch": 1, "vision": None},
        "device": {"kind": "cpu", "name": "unknown"},
        "repeats": [],
        "operators": [],
        "token_hash": None,
        "peak": None,
        "notes": [],
    }


def write_account(account, path):
    """Writes the account atomically: to a temporary file beside it, then a rename."""
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(account, file, indent=2, default=str)
            file.write("\n")
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def stage(name, wall_ns, steps_ns=None, notes=(), begin=None):
    """Returns one stage of a repeat, which began when `time.perf_counter_ns` was `begin`."""
    start = {} if begin is None else {"start_ns": begin + time.time_ns() - time.perf_counter_ns()}
    return {
        **start,
        "name": name,
        "wall_ns": int(wall_ns),
        "steps_ns": None if steps_ns is None else [int(step) for step in steps_ns],
        "notes": [{"name": note, "wall_ns": int(wall)} for note, wall in notes],
    }


class Start:
    """The start of a program, in parts that add up to the time from the start of its first process to the first step."""

    def __init__(self):
        self._spans = []

    def around(self, name, call, *arguments, **keywords):
        """Calls a function as a part of the start."""
        begin = time.time_ns()
        try:
            return call(*arguments, **keywords)
        finally:
            self._spans.append((begin, time.time_ns(), name))

    def parts(self):
        """Returns the parts until now. Of parts within another, the innermost counts."""
        own, until = _started_ns(os.getpid()), time.time_ns()
        first, pid = own, os.environ.get("ROOFGAP_FIRST_PID", "")
        if pid.isdigit() and pid != str(os.getpid()) and os.path.exists(f"/proc/{pid}/stat"):
            first = min(own, _started_ns(pid))
        spans = [(begin, end, name) for begin, end, name in self._spans if begin >= own]
        begins, ends = [begin for begin, _, _ in spans], [end for _, end, _ in spans]
        spans.append((first, own, "before this process"))
        edges = sorted({first, own, until, *begins, *ends})
        parts = {}
        for begin, end in zip(edges, edges[1:]):
            inside = [span for span in spans if span[0] <= begin and end <= span[1]]
            code = "imports and set-up" if end <= min(begins, default=until) else "other code" if end <= max(ends) else "until the first step"
            name = min(inside, key=lambda span: span[1] - span[0])[2] if inside else code
            parts[name] = parts.get(name, 0) + end - begin
        return [{"name": name, "wall_ns": wall} for name, wall in parts.items()]


def _started_ns(pid):
    """Returns the start of a process, ns since the epoch."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    age = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * 10**9 // os.sysconf("SC_CLK_TCK")
    return time.time_ns() - age


def token_hash(sequences):
    """Hashes the token ids with SHA-256: decimal, commas between ids, semicolons between sequences."""
    text = ";".join(",".join(str(int(token)) for token in sequence) for sequence in sequences)
    return "sha256:" + hashlib.sha256(text.encode("ascii")).hexdigest()


def peak_memory(torch, device):
    """Returns the most memory in use at once, bytes: of tensors on a CUDA device, else of the process; None where it is not known."""
    try:
        if device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(device))
        import resource

        # Linux counts in KiB, macOS in bytes.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    except Exception:
        return None


class Ranges:
    """NVTX ranges from the `nvtx` package, else from torch (default domain only), else none."""

    def __init__(self, torch=None, nvtx=None):
        self.note = None
        self._push, self._pop = self._choose(torch, nvtx)

    def push(self, name, domain=None):
        self._push(name, domain)

    def pop(self, domain=None):
        self._pop(domain)

    def _choose(self, torch, nvtx):
        if nvtx is None:
            try:
                import nvtx
            except Exception:
                nvtx = None
        if nvtx is not None:
            try:
                return self._with_package(nvtx)
            except Exception as error:
                self.note = f"the nvtx package failed ({error})"
        if torch is not None:
            try:
                torch.cuda.nvtx.range_push("roofgap")
                torch.cuda.nvtx.range_pop()
                self.note = "the Python package nvtx is missing: NVTX ranges use the default domain (pip install nvtx)"
                push, pop = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
                return (lambda name, _domain: push(name)), (lambda _domain: pop())
            except Exception:
                pass
        self.note = "no NVTX ranges: the Python package nvtx and the NVTX of torch are both missing (pip install nvtx)"
        return (lambda _name, _domain: None), (lambda _domain: None)

    @staticmethod
    def _with_package(nvtx):
        llm = nvtx.get_domain(LLM)
        if not hasattr(llm, "push_range"):
            # Before 0.2.12 a domain is passed by name.
            return (
                lambda name, domain: nvtx.push_range(name, domain=domain),
                lambda domain: nvtx.pop_range(domain=domain),
            )
        domains = {LLM: llm}
        attributes = {}

        def push(name, domain):
            if domain is None:
                nvtx.push_range(name)
                return
            if domain not in domains:
                domains[domain] = nvtx.get_domain(domain)
            if (name, domain) not in attributes:
                attributes[name, domain] = domains[domain].get_event_attributes(message=name)
            domains[domain].push_range(attributes[name, domain])

        def pop(domain):
            if domain is None:
                nvtx.pop_range()
            else:
                domains[domain].pop_range()

        return push, pop


class Clock:
    """Time stamps on the device: CUDA events if available, else the CPU clock."""

    def __init__(self, torch=None, cuda=False):
        self._event = torch.cuda.Event if cuda else None

    def now(self):
        if self._event is None:
            return time.perf_counter_ns()
        event = self._event(enable_timing=True)
        event.record()
        return event

    def between(self, start, end):
        """Returns the nanoseconds between two time stamps; synchronize the device first."""
        if self._event is None:
            return end - start
        return int(start.elapsed_time(end) * 1e6)


def vision_parts(model):
    """Returns (note name, module) of each outermost vision part of the model."""
    found = []
    towers = []
    for path, module in model.named_modules():
        attribute = path.rpartition(".")[2]
        if not path or any(_inside(path, outer) for outer, _, _ in found):
            continue
        name = next((name for name, attributes in _PARTS if attribute in attributes), None)
        if name is not None:
            found.append((path, name, module))
        elif attribute in _TOWERS and not any(_inside(path, outer) for outer, _ in towers):
            towers.append((path, module))
    for path, module in towers:
        specific = [p for p, name, _ in found if _inside(p, path) and name != "projector"]
        if not specific:
            # A projector inside the tower belongs to it.
            found = [entry for entry in found if not _inside(entry[0], path)]
            name = "clip" if "clip" in type(module).__name__.lower() else "vision_encoder"
            found.append((path, name, module))
    return [(name, module) for _, name, module in found]


def _inside(path, outer):
    return path.startswith(outer + ".")


class VisionNotes:
    """NVTX ranges and times of the vision parts."""

    def __init__(self, model, ranges, clock):
        self._ranges = ranges
        self._clock = clock
        self._open = []
        self._closed = []
        self._handles = []
        for name, module in vision_parts(model):
            self._handles.append(module.register_forward_pre_hook(self._before(name)))
            self._handles.append(module.register_forward_hook(self._after(name)))

    def take(self):
        """Returns (name, nanoseconds) of each part since the last call; synchronize the device first."""
        closed, self._closed = self._closed, []
        self._open = []
        totals = {}
        for name, start, end in closed:
            totals[name] = totals.get(name, 0) + self._clock.between(start, end)
        return list(totals.items())

    def remove(self):
        for handle in self._handles:
            handle.remove()

    def _before(self, name):
        def hook(_module, _arguments):
            self._ranges.push(name)
            self._open.append((name, self._clock.now()))

        return hook

    def _after(self, name):
        def hook(_module, _arguments, _output):
            if self._open and self._open[-1][0] == name:
                _, start = self._open.pop()
                self._closed.append((name, start, self._clock.now()))
                self._ranges.pop()

        return hook


def describe_model(model):
    """Returns the facts of a transformers model for the account."""
    config = model.config
    parameters = sum(parameter.numel() for parameter in model.parameters())
    first = next(iter(model.parameters()), None)
    name = getattr(config, "_name_or_path", "") or ""
    as_dict = tidy(config.to_dict())
    return {
        "name": name or f"{config.model_type} ({type(model).__name__})",
        "revision": getattr(config, "_commit_hash", None),
        "parameters": parameters,
        "active_parameters": None,
        "dtype": dtype_name(first.dtype) if first is not None else "unknown",
        "weights": "local" if name else "random",
        "config": as_dict,
        "modules": _listed_modules(model),
    }


def _listed_modules(model):
    try:
        return modules(model)
    except Exception:
        # The configuration describes it too.
        return []


def modules(model):
    """Returns the modules with weights, those of one class and one shape in several layers as one row.

    A number in a path is `*`, and `layers` has the first of them. Buffers count where they hold quantised weights or their scales.
    """
    rows, seen = {}, set()
    for path, module in model.named_modules():
        weights = []
        for name, value in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            packed = name not in module._parameters
            if packed and (not name.startswith(_PACKED) or value.numel() < 2):
                continue
            first = seen.isdisjoint({id(value)})
            seen.add(id(value))
            weights.append((name, tuple(value.shape), dtype_name(value.dtype), value.numel() * value.element_size(), not first, packed))
        if not weights:
            continue
        numbers = [int(part) for part in path.split(".") if part.isdigit()]
        pattern = ".".join("*" if part.isdigit() else part for part in path.split("."))
        layers, _ = rows.setdefault((pattern, type(module).__name__, tuple(weights)), ([], None))
        layers.append(numbers[0] if numbers else None)
    return [
        {
            "path": pattern,
            "class": kind,
            "count": len(layers),
            "layers": sorted({layer for layer in layers if layer is not None}),
            "weights": [
                {"name": name, "shape": list(shape), "dtype": dtype, "bytes": size, "shared": shared, "packed": packed}
                for name, shape, dtype, size, shared, packed in weights
            ],
        }
        for (pattern, kind, weights), (layers, _) in rows.items()
    ]


# Beginnings of the names of buffers that hold quantised weights or their scales.
_PACKED = ("weight", "qweight", "qzeros", "scales", "zeros", "g_idx", "absmax", "SCB")


# Keys that transformers adds to every configuration and that do not affect the architecture.
_NOISE = {"id2label", "label2id", "problem_type", "chunk_size_feed_forward", "output_hidden_states", "output_attentions", "return_dict"}


def tidy(config):
    """Removes unset and irrelevant keys from a configuration, and writes numbers that JSON does not have as text."""
    if isinstance(config, dict):
        return {key: tidy(value) for key, value in config.items() if value is not None and key not in _NOISE}
    if isinstance(config, (list, tuple)):
        return [tidy(value) for value in config]
    if isinstance(config, float) and not math.isfinite(config):
        return str(config)
    return config


def dtype_name(dtype):
    """Returns the short name of a torch dtype."""
    name = str(dtype).rpartition(".")[2]
    return {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64"}.get(name, name)


def device_facts(torch, device):
    """Returns kind and name of a device."""
    if str(device).startswith("cuda"):
        return {"kind": "cuda", "name": torch.cuda.get_device_name(device)}
    return {"kind": "cpu", "name": _cpu_name()}


def _cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        import platform

        return platform.processor() or platform.machine()
