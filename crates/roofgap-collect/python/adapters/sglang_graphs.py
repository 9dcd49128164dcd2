"""SGLang: names of layers from the whole model, whose parts its graph runners call."""

import functools


def patch(module, load):
    """Annotates the graph runners that a module defines."""
    layers, shared = load("roofgap_layers"), load("roofgap_steps")
    for name, kind in list(vars(module).items()):
        if isinstance(kind, type) and name.endswith("GraphRunner") and "capture" in vars(kind):
            kind.capture = _with_names(layers, shared, kind.capture)


def _with_names(layers, shared, capture):
    @functools.wraps(capture)
    def wrapped(self, *arguments, **keywords):
        shared.ignoring_errors(lambda: layers.learn(self.model_runner.model))
        return capture(self, *arguments, **keywords)

    return wrapped
