import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tests.fakes import write_packages  # noqa: E402
from tests.program import ProgramCase  # noqa: E402

# A torch that counts launches and writes down what happens to its profiler.
TORCH = {
    "torch/__init__.py": """
        from . import autograd, backends, cuda, profiler
        from .cuda import launch
    """,
    "torch/cuda/__init__.py": """
        import ctypes
        launches, capturing = 0, False
        def is_initialized(): return launches > 0
        def is_current_stream_capturing(): return capturing
        def launch():
            global launches
            launches += 1
        def count(): return launches
        class Library: roofgap_launch_count = staticmethod(count)
        counted = True
        def load(_):
            if not counted: raise OSError("none")
            return Library
        ctypes.CDLL = load
    """,
    "torch/backends.py": """
        class cuda:
            class matmul: allow_tf32 = False
        class cudnn: allow_tf32 = True
    """,
    "torch/autograd/__init__.py": "from . import profiler\n",
    "torch/autograd/profiler.py": """
        class profile:
            def _prepare_trace(self): pass
    """,
    "torch/profiler.py": """
        import contextlib
        from . import cuda
        from .autograd.profiler import profile as Inner
        log = []
        class ProfilerActivity: CPU, CUDA = "cpu", "cuda"
        class profile:
            def __init__(self, activities=(), record_shapes=False): self.shapes = record_shapes
            def start(self):
                Inner()._prepare_trace()
                log.append(f"start {self.shapes}")
            def stop(self): log.append("stop")
            def export_chrome_trace(self, path):
                with open(path, "w") as file: file.write(" ".join(log))
        @contextlib.contextmanager
        def record_function(name):
            log.append(name)
            yield
    """,
}
STARTED = "start True roofgap.tf32 matmul=0 convolution=1"
# Launches until the profiler did something, or for far longer than it takes to.
UNTIL = """
import time, torch
def until(last):
    for _ in range(10000):
        torch.launch()
        time.sleep(0.001)
        if last in torch.profiler.log: return
"""


class OperatorsTest(ProgramCase):
    def setUp(self):
        super().setUp()
        write_packages(self.packages, TORCH)
        self.trace = os.path.join(self.folder, "trace.json.gz")

    def record(self, program, **environment):
        """Runs a program; returns its output, the trace and the notes."""
        window = {"ROOFGAP_TORCH_TRACE": self.trace, "ROOFGAP_LAUNCHES": "3-9", "ROOFGAP_SECONDS": "0"}
        environment = {"ROOFGAP_PHASE": "operators", **window, **environment}
        done = self.run_program(UNTIL + program, **environment)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout, self.text("trace.json.gz"), self.text("notes.log")

    def text(self, name):
        path = os.path.join(self.folder, name)
        if not os.path.exists(path):
            return None
        with open(path, encoding="utf-8") as file:
            return file.read()

    def test_the_launches_of_the_window_are_recorded(self):
        _, trace, notes = self.record("until('stop')\n")
        self.assertEqual(trace, f"{STARTED} stop")
        self.assertRegex(notes, r"^torch.profiler recorded launches \d+ to \d+ of process \d+\n$")
        self.assertGreaterEqual(int(notes.split()[3]), 3)

    def test_a_program_that_ends_early_leaves_what_there_is(self):
        _, trace, _ = self.record("until('start True')\n", ROOFGAP_LAUNCHES="3-1000000")
        self.assertEqual(trace, f"{STARTED} stop")

    def test_a_program_that_ends_before_the_window_says_so(self):
        _, trace, notes = self.record("torch.launch()\n", ROOFGAP_LAUNCHES="500-600")
        self.assertIsNone(trace)
        self.assertIn("ended after 1 launches, before launch 500", notes)

    def test_without_a_counter_time_ends_it(self):
        with open(os.path.join(self.packages, "torch/cuda/__init__.py"), "a", encoding="utf-8") as file:
            file.write("counted = False\n")
        _, trace, notes = self.record("until('stop')\n", ROOFGAP_LAUNCHES="500-600")
        self.assertEqual(trace, f"{STARTED} stop")
        self.assertIn("nothing counted launches", notes)

    def test_a_graph_is_captured_without_the_profiler(self):
        program = "torch.cuda.capturing = True\nfor _ in range(50):\n    torch.launch()\n    time.sleep(0.001)\nprint(torch.profiler.log)\n"
        out, trace, _ = self.record(program + "torch.cuda.capturing = False\nuntil('start True')\n")
        self.assertEqual((out, trace), ("[]\n", f"{STARTED} stop"))

    def test_a_profiler_of_the_program_comes_first(self):
        out, trace, notes = self.record(
            "until('start True')\nown = torch.profiler.profile()\nown.start()\nprint(torch.profiler.log[-2:])\n", ROOFGAP_LAUNCHES="3-1000000"
        )
        self.assertEqual(out, "['stop', 'start False']\n")
        self.assertEqual(trace, f"{STARTED} stop")
        self.assertIn("started torch.profiler itself", notes)

    def test_errors_stay_in_the_notes(self):
        with open(os.path.join(self.packages, "torch/profiler.py"), "a", encoding="utf-8") as file:
            file.write("def fail(*a, **k): raise RuntimeError('broken')\nprofile.stop = fail\n")
        out, trace, notes = self.record("until('start True')\nprint('done')\n", ROOFGAP_LAUNCHES="3-1000000")
        self.assertEqual((out, trace), ("done\n", ""))
        self.assertIn("torch.profiler failed: RuntimeError: broken", notes)

    def test_one_process_records(self):
        with open(self.trace, "w", encoding="utf-8") as file:
            file.write("of another")
        _, trace, _ = self.record("[(torch.launch(), time.sleep(0.001)) for _ in range(50)]\n")
        self.assertEqual(trace, "of another")

    def test_other_phases_are_left_alone(self):
        out, trace, _ = self.record("import sys\ntorch.launch()\nprint('roofgap_operators' in sys.modules)\n", ROOFGAP_PHASE="timeline")
        self.assertEqual((out, trace), ("False\n", None))


if __name__ == "__main__":
    unittest.main()
