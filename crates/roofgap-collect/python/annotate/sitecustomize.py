"""Annotates transformers, serving engines and torch.distributed in every Python process with this folder on its PYTHONPATH.

Nothing is imported or changed until the program imports one of them, and errors in this file never reach the program. An existing
sitecustomize of the user still runs. `ROOFGAP_ANNOTATE=0` turns the annotation off.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(_HERE)
# Files that are loaded by name, once.
_FILES = {
    "roofgap_annotate": os.path.join(_HERE, "roofgap_annotate.py"),
    "roofgap_probe": os.path.join(_ROOT, "roofgap_probe.py"),
    "roofgap_steps": os.path.join(_ROOT, "adapters", "roofgap_steps.py"),
    "roofgap_layers": os.path.join(_ROOT, "adapters", "roofgap_layers.py"),
    "roofgap_counters_rank": os.path.join(_ROOT, "adapters", "counters_rank.py"),
    "roofgap_operators": os.path.join(_ROOT, "adapters", "operators.py"),
    "roofgap_vllm_layers": os.path.join(_ROOT, "adapters", "vllm_layers.py"),
}


def _load(name, path=None):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path or _FILES[name])
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _after_transformers(module):
    _load("roofgap_annotate").patch_models(module)


def _after_generation(module):
    _load("roofgap_annotate").patch_generation(module)


def _adapter(engine):
    """Returns the function that annotates an engine with `adapters/ENGINE.py`."""

    def after(module):
        _load(f"roofgap_adapter_{engine}", os.path.join(_ROOT, "adapters", engine + ".py")).patch(module, _load)

    return after


def _before_vllm():
    # The start of an engine is that of the first process that imports it; its workers are children of children.
    os.environ.setdefault("ROOFGAP_FIRST_PID", str(os.getpid()))
    # Turns on the NVTX scopes of vLLM, which reads the variable on first use and then needs the package. A value set by the user stays.
    if os.environ.get("ROOFGAP_PHASE") != "baseline" and importlib.util.find_spec("nvtx") is not None:
        os.environ.setdefault("VLLM_NVTX_SCOPES_FOR_PROFILING", "1")


def _mark_collections(module):
    """Puts full garbage collections of Python into a range: no stack shows them."""
    if os.environ.get("ROOFGAP_PHASE") == "baseline":
        return
    import gc

    def mark(phase, info):
        if info.get("generation") == 2 and not sys.is_finalizing():
            module.range_push("roofgap:gc") if phase == "start" else module.range_pop()

    gc.callbacks.append(mark)


_BEFORE = {"vllm": _before_vllm}
_AFTER = {
    "transformers.modeling_utils": _after_transformers,
    "transformers.generation.utils": _after_generation,
    "transformers.generation.continuous_batching.continuous_api": _adapter("transformers_batching"),
    "vllm.v1.worker.gpu_worker": _adapter("vllm"),
    "vllm.entrypoints.llm": _adapter("vllm_offline"),
    "sglang.srt.managers.scheduler": _adapter("sglang"),
    "tensorrt_llm._torch.pyexecutor.py_executor": _adapter("tensorrt_llm"),
    "torch.distributed.distributed_c10d": _adapter("torch_distributed"),
    "torch.cuda.nvtx": _mark_collections,
}

def _measure_one_rank():
    """Marks the ranks for ncu, where the session measures one of several."""
    if os.environ.get("ROOFGAP_PHASE") == "counters" and os.environ.get("ROOFGAP_COUNTERS_RANK"):
        _AFTER["torch.cuda.nvtx"] = lambda module: _load("roofgap_counters_rank").after_import(module)


def _record_operators():
    """Runs torch.profiler for a part of the program, where the session asks for it."""
    if os.environ.get("ROOFGAP_PHASE") == "operators" and os.environ.get("ROOFGAP_TORCH_TRACE"):
        _AFTER["torch.cuda"] = lambda module: _load("roofgap_operators").after_import(module)


def _name_layers():
    """Adds the modules that name the layers of a model; nobody reads the names in a run without a profiler."""
    mode = os.environ.get("ROOFGAP_LAYERS", "off")
    if mode not in ("auto", "on") or os.environ.get("ROOFGAP_PHASE") == "baseline":
        return
    _AFTER["torch.cuda.graphs"] = lambda module: _load("roofgap_layers").patch_graphs(module)
    for runner in ("cuda_graph_runner", "runner.decode_cuda_graph_runner", "runner.prefill_cuda_graph_runner"):
        _AFTER["sglang.srt.model_executor." + runner] = _adapter("sglang_graphs")
    if mode == "on":
        _AFTER["torch.nn.modules.module"] = lambda module: _load("roofgap_layers").patch_modules(module)


class _Loader:
    """A loader that delegates to the real one, then calls back."""

    def __init__(self, loader, after):
        self._loader = loader
        self._after = after

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        # The module must look as if it was loaded without this loader.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _ignoring_errors(self._after, module)


class _Finder:
    """An import hook for the modules to annotate."""

    def __init__(self):
        self._busy = False

    def find_spec(self, name, path=None, target=None):
        if self._busy or (name not in _AFTER and name not in _BEFORE):
            return None
        if name in _BEFORE:
            _ignoring_errors(_BEFORE[name])
        if name not in _AFTER:
            return None
        self._busy = True
        try:
            spec = importlib.util.find_spec(name) if path is None else _find(name, path, target)
        finally:
            self._busy = False
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, _AFTER[name])
        return spec


def _find(name, path, target):
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find(name, path, target) if find is not None else None
        if spec is not None:
            return spec
    return None


def _ignoring_errors(call, *arguments):
    try:
        call(*arguments)
    except Exception as error:
        if os.environ.get("ROOFGAP_ANNOTATE_DEBUG"):
            print(f"roofgap: annotation failed: {type(error).__name__}: {error}", file=sys.stderr)


def _chain():
    """Runs the sitecustomize of the user; Python reports its errors as usual."""
    others = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        globals().update({name: value for name, value in vars(module).items() if not name.startswith("__")})


if os.environ.get("ROOFGAP_ANNOTATE", "1") != "0":
    _name_layers()
    _measure_one_rank()
    _record_operators()
    sys.meta_path.insert(0, _Finder())
_chain()
