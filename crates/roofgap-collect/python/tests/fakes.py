"""Stand-ins for packages that the tests must not need."""

import os
import textwrap


class Parameter:
    """As much of a tensor as counting needs."""

    class device:
        type = "cpu"

    dtype = "torch.bfloat16"

    def __init__(self, count):
        self.count = count
        self.shape = (count,)

    def numel(self):
        return self.count

    def element_size(self):
        return 2


class Module:
    """A tree of named parts, as torch.nn.Module has it."""

    def __init__(self, parameters=0, **children):
        self.own = [Parameter(parameters)] if parameters else []
        self._parameters = {"weight": own for own in self.own}
        self.children = children
        self.before, self.after = [], []

    def named_modules(self, prefix=""):
        yield prefix, self
        for name, child in self.children.items():
            yield from child.named_modules(f"{prefix}.{name}" if prefix else name)

    def named_parameters(self, recurse=True):
        for path, module in self.named_modules() if recurse else [("", self)]:
            for parameter in module.own:
                yield f"{path}.weight" if path else "weight", parameter

    def named_buffers(self, recurse=True):
        return []

    def parameters(self):
        return [parameter for _, parameter in self.named_parameters()]

    def register_forward_pre_hook(self, hook):
        self.before.append(hook)
        return self

    def register_forward_hook(self, hook):
        self.after.append(hook)
        return self

    def run(self):
        for hook in self.before:
            hook(self, ())
        for hook in self.after:
            hook(self, (), None)


# A package `transformers` with the two modules that are waited for, and a package `nvtx` that writes down what is opened and closed.
PACKAGES = {
    "nvtx/__init__.py": """
        import os
        def _log(text):
            with open(os.environ["FAKE_NVTX_LOG"], "a") as file:
                file.write(text + "\\n")
        class _Domain:
            def __init__(self, name): self.name = name
        def get_domain(name): return _Domain(name)
        def push_range(message, domain=None): _log(f"{domain}@{message}" if domain else message)
        def pop_range(domain=None): _log("/" + (domain or "default"))
    """,
    "transformers/__init__.py": "__version__ = '5.17.0'\n",
    "transformers/modeling_utils.py": """
        class Parameter:
            dtype = "torch.float32"
            class device: type = "cpu"
            def numel(self): return 10
        class Config:
            model_type = "fake"
            _name_or_path = "local/fake"
            def to_dict(self): return {"model_type": "fake", "hidden_size": 8, "id2label": {0: "a"}, "unset": None}
        class PreTrainedModel:
            device = "cpu"
            def __init__(self): self.config = Config()
            def __call__(self, *arguments, **keywords): return self.forward(*arguments, **keywords)
            def parameters(self): return [Parameter(), Parameter()]
            def named_parameters(self): return [("a.weight", Parameter()), ("embed_tokens.weight", Parameter())]
            def named_modules(self): return [("", self)]
            # With a static cache, `generate` decodes through this and not through `__call__`.
            def get_compiled_call(self, config): return self.forward
            @classmethod
            def can_generate(cls): return hasattr(cls, "generate")
    """,
    "transformers/generation/__init__.py": "",
    "transformers/generation/utils.py": """
        class Ids:
            def __init__(self, rows): self.rows = rows; self.shape = (len(rows), len(rows[0]))
            def tolist(self): return self.rows
            def dim(self): return 2
        class GenerationMixin:
            def generate(self, ids, steps=3):
                rows = list(ids.rows[0])
                self(input_ids=ids)
                forward = self.get_compiled_call(None) if getattr(self, "static_cache", False) else self
                for step in range(steps):
                    forward(input_ids=Ids([[step]]), past_key_values=[1])
                    rows.append(step)
                return Ids([rows])
    """,
    "transformers/models.py": """
        from .modeling_utils import PreTrainedModel
        from .generation.utils import GenerationMixin, Ids
        class Inner(PreTrainedModel):
            def forward(self, input_ids=None, past_key_values=None): return "hidden"
        class Model(PreTrainedModel, GenerationMixin):
            def __init__(self):
                super().__init__()
                self.inner = Inner()
            def forward(self, input_ids=None, past_key_values=None):
                if input_ids is None: raise ValueError("the program's own error")
                return self.inner(input_ids=input_ids, past_key_values=past_key_values)
    """,
    "vllm/__init__.py": "",
}


def write_packages(folder, packages=None):
    """Puts stand-ins into a folder."""
    for path, text in (packages or PACKAGES).items():
        target = os.path.join(folder, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(text).lstrip("\n"))
