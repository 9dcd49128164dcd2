"""Ranges of modules while a CUDA graph is captured, so that the kernels of its replays have the names of their layers.

A kernel of a replay is launched by nobody in particular: only the capture knows the module that launched it. `ROOFGAP_LAYERS` is `auto`
(ranges during graph capture), `on` (also outside, which slows a program that launches its kernels one by one) or `off`.
Compiled code runs no modules, so `torch.compile` leaves nothing to name but what the adapters of engines know.
"""

import contextlib
import functools
import os
import sys
import threading
import weakref

# The analysis reads this prefix.
PREFIX = "layer:"
MODE = os.environ.get("ROOFGAP_LAYERS", "off")

# Qualified names of modules. The first model in which a module was seen names it.
_names = weakref.WeakKeyDictionary()
_lock = threading.Lock()
# Captures of all threads, while which `Module.__call__` is ours, and the original of it.
_captures = 0
_original = None
# Bound at the first call of a module: torch is not complete when its modules are annotated.
_is_compiling = None


class _ThreadState(threading.local):
    # Captures of this thread.
    captures = 0


_thread = _ThreadState()


def learn(model):
    """Names the modules of a model by their place in it."""
    for name, module in model.named_modules():
        _names.setdefault(module, name or type(module).__name__)


@contextlib.contextmanager
def layer(name):
    """Puts a range around a part of a layer, where this thread captures a graph."""
    pushed = (_thread.captures or MODE == "on") and _push(name)
    try:
        yield
    finally:
        if pushed:
            sys.modules["torch"].cuda.nvtx.range_pop()


def _push(name):
    try:
        sys.modules["torch"].cuda.nvtx.range_push(PREFIX + name)
    except Exception:
        # A torch without CUDA has no NVTX.
        return False
    return True


def install():
    """Annotates a torch that is loaded already."""
    torch = sys.modules["torch"]
    patch_graphs(torch.cuda.graphs)
    if MODE == "on":
        patch_modules(torch.nn.modules.module)


def patch_graphs(module):
    """Annotates modules inside `torch.cuda.graph`."""
    kind = module.graph
    enter, leave = kind.__enter__, kind.__exit__

    @functools.wraps(enter)
    def __enter__(self):
        result = enter(self)
        _begin()
        return result

    @functools.wraps(leave)
    def __exit__(self, *error):
        _end()
        return leave(self, *error)

    kind.__enter__, kind.__exit__ = __enter__, __exit__


def patch_modules(module):
    """Annotates every call of a module."""
    module.Module.__call__ = _annotated(module.Module.__call__)


def _begin():
    global _captures, _original
    module = sys.modules["torch"].nn.Module
    _thread.captures += 1
    with _lock:
        _captures += 1
        if _captures == 1 and MODE != "on":
            # Hooks on modules would do, but compiled code is checked against them and would be compiled again.
            _original = module.__call__
            module.__call__ = _annotated(_original)


def _end():
    global _captures, _original
    _thread.captures = max(0, _thread.captures - 1)
    with _lock:
        _captures = max(0, _captures - 1)
        if _captures == 0 and _original is not None:
            sys.modules["torch"].nn.Module.__call__ = _original
            _original = None


def _annotated(call):
    @functools.wraps(call)
    def __call__(self, *arguments, **keywords):
        if _is_compiling is None:
            _bind()
        if _is_compiling() or not (_thread.captures or MODE == "on"):
            return call(self, *arguments, **keywords)
        with layer(_name_of(self)):
            return call(self, *arguments, **keywords)

    return __call__


def _bind():
    """Finds the question that a compiler answers while it traces the wrapper, which must find only that call."""
    global _is_compiling
    compiler = getattr(sys.modules["torch"], "compiler", None)
    _is_compiling = getattr(compiler, "is_compiling", None) or bool


def _name_of(module):
    try:
        if module not in _names:
            learn(module)
        return _names[module]
    except Exception:
        return type(module).__name__
