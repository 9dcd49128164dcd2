import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tests import engines  # noqa: E402
from tests.fakes import write_packages  # noqa: E402
from tests.program import FOLDER, ProgramCase  # noqa: E402

TORCH = {
    "torch/__init__.py": """
        from . import compiler, cuda, nn
        bfloat16 = "torch.bfloat16"
    """,
    "torch/compiler.py": """
        compiling = False
        def is_compiling(): return compiling
    """,
    "torch/cuda/__init__.py": """
        from . import nvtx
        from .graphs import graph
        def is_available(): return True
        def current_device(): return 0
        def get_device_name(device): return "Fake GPU"
    """,
    "torch/cuda/nvtx.py": engines.TORCH["torch/cuda/nvtx.py"],
    "torch/cuda/graphs.py": """
        class graph:
            def __enter__(self): pass
            def __exit__(self, *error): return None
    """,
    "torch/nn/__init__.py": "from .modules.module import Module\n",
    "torch/nn/modules/__init__.py": "",
    "torch/nn/modules/module.py": """
        class Module:
            def __init__(self, **parts): self.__dict__.update(parts)
            def __call__(self, *arguments): return self.forward(*arguments)
            def named_modules(self, prefix=""):
                yield prefix, self
                for name, part in vars(self).items():
                    if isinstance(part, Module):
                        yield from part.named_modules(f"{prefix}.{name}" if prefix else name)
    """,
    "fake_model.py": """
        from torch.nn import Module
        class Leaf(Module):
            def forward(self, value): return value + 1
        class Block(Module):
            def forward(self, value): return self.mlp(self.norm(value))
        class Model(Module):
            def forward(self, value): return self.layer(value)
        def model(): return Model(layer=Block(norm=Leaf(), mlp=Leaf()))
    """,
    "vllm/__init__.py": "__version__ = '0.26.0'\n",
    "vllm/v1/__init__.py": "",
    "vllm/v1/worker/__init__.py": "",
    "vllm/v1/worker/gpu_worker.py": """
        from types import SimpleNamespace
        import torch
        from fake_model import model
        from vllm.compilation.piecewise_backend import PiecewiseBackend
        class Impl:
            def forward(self, layer): return "attention"
        class Experts:
            def _forward_impl(self): return "experts"
        class Runner:
            def __init__(self, worker): self.worker = worker
            def capture_model(self):
                pieces = [PiecewiseBackend(0), PiecewiseBackend(1)]
                layers = self.worker.vllm_config.compilation_config.static_forward_context
                with torch.cuda.graph():
                    self.worker.model.layer.norm(1)
                    pieces[0]()
                    attention, experts = layers.values()
                    attention.impl.forward(attention)
                    experts._forward_impl()
                    pieces[1]()
                pieces[0]()
                return 7
        class Worker:
            def __init__(self):
                self.model = model()
                self.model_runner = Runner(self)
                layers = {"model.layers.0.attn": SimpleNamespace(impl=Impl()), "model.layers.0.mlp.experts": Experts()}
                self.vllm_config = SimpleNamespace(compilation_config=SimpleNamespace(static_forward_context=layers))
            def get_model(self): return self.model
            def compile_or_warm_up_model(self): return self.model_runner.capture_model()
            def execute_model(self, output): return output
    """,
    "vllm/compilation/__init__.py": "",
    "vllm/compilation/piecewise_backend.py": """
        class PiecewiseBackend:
            def __init__(self, index): self.is_first_graph = index == 0
            def __call__(self): return "piece"
    """,
    "sglang/__init__.py": "__version__ = '0.5.16'\n",
    "sglang/srt/__init__.py": "",
    "sglang/srt/model_executor/__init__.py": "",
    "sglang/srt/model_executor/cuda_graph_runner.py": """
        from types import SimpleNamespace
        import torch
        from fake_model import model
        class CudaGraphRunner:
            def __init__(self):
                self.model_runner = SimpleNamespace(model=model())
                self.capture()
            def capture(self):
                with torch.cuda.graph():
                    self.model_runner.model.layer.forward(1)
    """,
}

CAPTURE = """
import torch
from fake_model import model
model = model()
print(model(1))
with torch.cuda.graph():
    print(model(2))
print(model(3), torch.nn.Module.__call__.__qualname__)
"""
PRINTED = "3\n4\n5 Module.__call__\n"
RANGES = ["layer:Model", "layer:layer", "layer:layer.norm", "/", "layer:layer.mlp", "/", "/", "/"]


class LayersTest(ProgramCase):
    def setUp(self):
        super().setUp()
        write_packages(self.packages, TORCH)

    def lines(self):
        if not os.path.exists(self.log):
            return []
        with open(self.log, encoding="utf-8") as file:
            return file.read().splitlines()

    def test_modules_have_ranges_while_a_graph_is_captured(self):
        done = self.run_program(CAPTURE, ROOFGAP_LAYERS="auto")
        self.assertEqual((done.stdout, done.stderr), (PRINTED, ""))
        self.assertEqual(self.lines(), RANGES)

    def test_modules_can_have_ranges_always(self):
        done = self.run_program(CAPTURE, ROOFGAP_LAYERS="on")
        self.assertEqual((done.stdout, done.stderr), (PRINTED, ""))
        self.assertEqual(self.lines(), RANGES * 3)

    def test_the_driver_of_hugging_face_models_names_layers_too(self):
        driver = f"import sys\nsys.path.insert(0, {FOLDER!r})\nimport torch, hf_driver\nhf_driver.name_layers()\n"
        for mode, ranges in (("auto", RANGES), ("on", RANGES * 3), ("off", [])):
            done = self.run_program(driver + CAPTURE, ROOFGAP_LAYERS=mode, ROOFGAP_ANNOTATE="0")
            self.assertEqual((done.stdout, done.stderr), (PRINTED, ""))
            self.assertEqual(self.lines(), ranges)
            if ranges:
                os.remove(self.log)

    def test_without_a_request_or_a_profiler_nothing_is_changed(self):
        for environment in ({}, {"ROOFGAP_LAYERS": "off"}, {"ROOFGAP_LAYERS": "auto", "ROOFGAP_PHASE": "baseline"}):
            done = self.run_program(CAPTURE, **environment)
            self.assertEqual((done.stdout, done.stderr), (PRINTED, ""))
            self.assertEqual(self.lines(), [], environment)

    def test_a_compiler_sees_no_ranges(self):
        self.run_program(CAPTURE.replace("model = model()", "model = model()\ntorch.compiler.compiling = True"), ROOFGAP_LAYERS="auto")
        self.assertEqual(self.lines(), [])

    def test_an_error_of_the_model_passes_through_and_its_ranges_are_closed(self):
        done = self.run_program(
            "import torch\n"
            "from fake_model import model\n"
            "try:\n"
            "    with torch.cuda.graph(): model()('text')\n"
            "except TypeError: print('caught')\n"
            "print(model()(1))\n",
            ROOFGAP_LAYERS="auto",
        )
        self.assertEqual((done.stdout, done.stderr), ("caught\n3\n", ""))
        self.assertEqual(self.lines(), RANGES[:3] + ["/"] * 3)

    def test_compiled_parts_of_vllm_are_named_by_the_attention_before_them(self):
        done = self.run_program(
            "from vllm.v1.worker.gpu_worker import Worker\n"
            "from vllm.compilation.piecewise_backend import PiecewiseBackend\n"
            "worker = Worker()\n"
            "print(worker.compile_or_warm_up_model(), PiecewiseBackend(0)())\n"
            "layer = worker.vllm_config.compilation_config.static_forward_context['model.layers.0.attn']\n"
            "print(vars(layer.impl))\n",
            ROOFGAP_LAYERS="auto",
        )
        self.assertEqual((done.stdout, done.stderr), ("7 piece\n{}\n", ""))
        self.assertEqual(
            self.lines(),
            [
                "warmup",
                *("layer:layer.norm", "/"),
                *("layer:before the first attention (compiled)", "/"),
                *("layer:model.layers.0.attn", "/"),
                *("layer:model.layers.0.mlp.experts", "/"),
                *("layer:after model.layers.0.attn (compiled)", "/"),
                "/",
            ],
        )

    def test_a_torch_without_nvtx_or_odd_modules_still_run(self):
        broken = "import torch.cuda.nvtx\ndef fail(*arguments): raise RuntimeError('no NVTX')\ntorch.cuda.nvtx.range_push = fail\n"
        done = self.run_program(broken + CAPTURE, ROOFGAP_LAYERS="on")
        self.assertEqual((done.stdout, done.stderr), (PRINTED, ""))
        odd = CAPTURE.replace("model = model()", "model = model()\ndel torch.compiler.is_compiling\ntype(model).named_modules = None")
        done = self.run_program(odd, ROOFGAP_LAYERS="auto")
        self.assertEqual((done.stdout, done.stderr), (PRINTED, ""))
        self.assertEqual(self.lines()[0], "layer:Model")

    def test_an_engine_of_another_shape_is_captured_without_names(self):
        done = self.run_program(
            "from vllm.v1.worker.gpu_worker import Worker\n"
            "worker = Worker()\n"
            "worker.get_model = None\n"
            "print(worker.compile_or_warm_up_model())\n",
            ROOFGAP_LAYERS="auto",
            ROOFGAP_ANNOTATE_DEBUG="",
        )
        self.assertEqual((done.stdout, done.stderr), ("7\n", ""))

    def test_sglang_names_layers_by_the_whole_model(self):
        self.run_program("from sglang.srt.model_executor.cuda_graph_runner import CudaGraphRunner\nCudaGraphRunner()\n", ROOFGAP_LAYERS="auto")
        self.assertEqual(self.lines(), ["layer:layer.norm", "/", "layer:layer.mlp", "/"])


if __name__ == "__main__":
    unittest.main()
