"""vLLM: names of layers while its graphs are captured.

Compiled parts of the model run no modules. They are named by the attention layer before them; attention and experts, which compiled code
calls by their names, have their own.
"""

import functools
import sys

# Methods that compiled code calls, on the layers of the model and on their implementations.
METHODS = ("forward_impl", "_forward_impl")
IMPLEMENTATION = ("forward", "do_kv_cache_update")
FIRST = "before the first attention (compiled)"


def patch_runner(runner, worker, load):
    """Names the layers in `capture_model` of a model runner."""
    shared = load("roofgap_steps")
    capture = runner.capture_model

    @functools.wraps(capture)
    def capture_model(*arguments, **keywords):
        naming = _Naming(load("roofgap_layers"))
        shared.ignoring_errors(naming.begin, worker)
        try:
            return capture(*arguments, **keywords)
        finally:
            shared.ignoring_errors(naming.end)

    runner.capture_model = capture_model


class _Naming:
    """Changes to vLLM during the capture of its graphs."""

    def __init__(self, layers):
        self._layers = layers
        self._undo = []
        self._attention = None

    def begin(self, worker):
        self._layers.learn(worker.get_model())
        for name, layer in worker.vllm_config.compilation_config.static_forward_context.items():
            for method in METHODS:
                self._name(layer, method, name)
            for method in IMPLEMENTATION:
                self._name(getattr(layer, "impl", None), method, name)
        pieces = sys.modules.get("vllm.compilation.piecewise_backend")
        if pieces is not None:
            self._name_pieces(pieces.PiecewiseBackend)

    def end(self):
        while self._undo:
            self._undo.pop()()

    def _name(self, owner, method, name):
        """Puts a method of one object into the range of its layer."""
        call = getattr(owner, method, None)
        if call is None or method in vars(owner):
            return

        @functools.wraps(call)
        def named(*arguments, **keywords):
            if method in IMPLEMENTATION:
                self._attention = name
            with self._layers.layer(name):
                return call(*arguments, **keywords)

        setattr(owner, method, named)
        self._undo.append(functools.partial(delattr, owner, method))

    def _name_pieces(self, kind):
        """Puts each compiled part of the model into a range."""
        call = kind.__call__

        @functools.wraps(call)
        def __call__(piece, *arguments, **keywords):
            if getattr(piece, "is_first_graph", False):
                self._attention = None
            after = self._attention
            with self._layers.layer(f"after {after} (compiled)" if after else FIRST):
                return call(piece, *arguments, **keywords)

        kind.__call__ = __call__
        self._undo.append(functools.partial(setattr, kind, "__call__", call))
