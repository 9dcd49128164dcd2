"""Tests of the Python package. Those that need the program run where ROOFGAP_TEST_WHEEL names a Python with the wheel installed."""

import asyncio
import inspect
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import roofgap  # noqa: E402
from roofgap import _analysis, _binary, _ranges, _regression  # noqa: E402

WHEEL = os.environ.get("ROOFGAP_TEST_WHEEL")


class FakeNvtx(types.SimpleNamespace):
    """Records pushes and pops in place of torch.cuda.nvtx."""

    def __init__(self):
        self.log = []
        super().__init__(range_push=self.log.append, range_pop=lambda: self.log.append(None))


class Ranges(unittest.TestCase):
    def setUp(self):
        self.nvtx = FakeNvtx()
        torch = types.SimpleNamespace(cuda=types.SimpleNamespace(nvtx=self.nvtx), _C=types.SimpleNamespace(_nvtx=None))
        patches = (
            mock.patch.dict(sys.modules, {"torch": torch}),
            mock.patch.object(_ranges, "_found", None),
            mock.patch.object(_ranges, "_searched", False),
        )
        for patch in patches:
            patch.start()
            self.addCleanup(patch.stop)

    def test_a_stage_with_steps(self):
        with roofgap.stage("decode"):
            with roofgap.step():
                pass
        self.assertEqual(self.nvtx.log, ["decode", "decode_step", None, None])

    def test_a_range_ends_with_an_error(self):
        with self.assertRaises(KeyError), roofgap.stage("prefill"):
            raise KeyError
        self.assertEqual(self.nvtx.log, ["prefill", None])

    def test_a_stage_decorates_a_function_that_calls_itself(self):
        @roofgap.stage("prefill")
        def deeper(depth):
            return deeper(depth - 1) if depth else "done"

        self.assertEqual(deeper(1), "done")
        self.assertEqual(self.nvtx.log, ["prefill", "prefill", None, None])

    def test_a_stage_is_around_the_body_of_a_generator_while_it_runs(self):
        log = self.nvtx.log

        @roofgap.stage("decode")
        def tokens(count):
            """Counts."""
            received = []
            try:
                for token in range(count):
                    log.append(f"make {token}")
                    received.append((yield token))
            finally:
                log.append("clean")
            return received

        self.assertEqual((tokens.__name__, tokens.__doc__), ("tokens", "Counts."))
        made = tokens(2)
        self.assertEqual(log, [], "nothing runs before the first token is asked for")
        self.assertEqual(next(made), 0)
        log.append("outside")
        self.assertEqual(made.send("a"), 1)
        with self.assertRaises(StopIteration) as end:
            made.send("b")
        self.assertEqual(end.exception.value, ["a", "b"])
        self.assertEqual(log, ["decode", "make 0", None, "outside", "decode", "make 1", None, "decode", "clean", None])
        log.clear()
        stopped = tokens(9)
        next(stopped)
        stopped.close()
        self.assertEqual(log, ["decode", "make 0", None, "decode", "clean", None])
        log.clear()
        with self.assertRaises(KeyError):
            failing = tokens(9)
            next(failing)
            failing.throw(KeyError())
        self.assertEqual(log, ["decode", "make 0", None, "decode", "clean", None])

    def test_a_stage_is_around_the_body_of_an_asynchronous_function_while_it_runs(self):
        log = self.nvtx.log

        @roofgap.stage("prefill")
        async def read(name):
            log.append(f"{name} begins")
            await asyncio.sleep(0)
            log.append(f"{name} ends")
            return name

        async def both():
            return await asyncio.gather(read("a"), read("b"))

        self.assertTrue(inspect.iscoroutinefunction(read))
        self.assertEqual(asyncio.run(both()), ["a", "b"])
        parts = [log[at : at + 3] for at in range(0, len(log), 3)]
        self.assertEqual(parts, [["prefill", f"{name} {part}", None] for part in ("begins", "ends") for name in "ab"])

    def test_a_stage_is_around_the_body_of_an_asynchronous_generator(self):
        log = self.nvtx.log

        @roofgap.stage("decode")
        async def tokens():
            try:
                for token in range(9):
                    log.append(f"make {token}")
                    yield token
            finally:
                log.append("clean")

        async def take_two():
            made = tokens()
            found = [await made.__anext__(), await made.__anext__()]
            log.append("outside")
            await made.aclose()
            return found

        self.assertTrue(inspect.isasyncgenfunction(tokens))
        self.assertEqual(asyncio.run(take_two()), [0, 1])
        self.assertEqual(log, ["decode", "make 0", None, "decode", "make 1", None, "outside", "decode", "clean", None])

        async def take_all():
            return [token async for token in tokens()]

        log.clear()
        self.assertEqual(asyncio.run(take_all()), list(range(9)))
        self.assertEqual(log[-6:], ["decode", "make 8", None, "decode", "clean", None])

    def test_a_step_carries_its_tokens(self):
        with roofgap.step(prompts=1, prompt_tokens=512, sequences=4):
            pass
        with roofgap.step(sequences=2, new_tokens=6):
            pass
        with roofgap.step(prompt_tokens=9):
            pass
        self.assertEqual(
            [name for name in self.nvtx.log if name],
            [
                # The example of the grammar in the analysis.
                "roofgap_context_1(512)_generation_4(4)",
                "roofgap_context_0(0)_generation_2(6)",
                "roofgap_context_1(9)_generation_0(0)",
            ],
        )

    def test_wrong_counts_are_refused(self):
        for counts in ({"prompts": 2}, {"sequences": -1}, {"prompt_tokens": -5}):
            with self.assertRaises(ValueError, msg=counts):
                roofgap.step(**counts)
        with self.assertRaises(ValueError):
            roofgap.stage("")


class NoNvtx(unittest.TestCase):
    def test_a_process_without_nvtx_runs_as_before(self):
        def fails(*_):
            raise RuntimeError("NVTX functions not installed")

        nvtx = types.SimpleNamespace(range_push=fails, range_pop=fails)
        torch = types.SimpleNamespace(cuda=types.SimpleNamespace(nvtx=nvtx), _C=types.SimpleNamespace())
        modules = {"torch": torch, "nvtx": None}
        search = mock.patch.multiple(_ranges, _found=None, _searched=False)
        with mock.patch.dict(sys.modules, modules), search:
            with mock.patch.object(_ranges.ctypes, "CDLL", side_effect=OSError) as load:
                with roofgap.stage("prefill"), roofgap.step():
                    pass
                self.assertIsNone(_ranges._found)
                load.assert_called_once()
            # A torch with CUDA that comes later is found.
            torch._C._nvtx = None
            log = []
            nvtx.range_push, nvtx.range_pop = log.append, lambda: log.append(None)
            with roofgap.stage("prefill"):
                pass
            self.assertEqual(log, ["prefill", None])


def answer(status, stdout="", stderr=""):
    return subprocess.CompletedProcess([], status, stdout, stderr)


class Answers(unittest.TestCase):
    """What the functions make of the program's output."""

    def answering(self, module, *result):
        run = mock.Mock(return_value=answer(*result))
        patch = mock.patch.object(module, "run", run)
        patch.start()
        self.addCleanup(patch.stop)
        return run

    def test_an_analysis_is_a_dict(self):
        run = self.answering(_analysis, 0, '{"kernels": []}')
        self.assertEqual(roofgap.analyze("a.sqlite", pathlib.Path("b.csv"), model="qwen3_8b", stages={"x": "y"}), {"kernels": []})
        self.assertEqual(run.call_args.args[0], ["analyze", "--format=json", "--model=qwen3_8b", "--stage=x=y", "--", "a.sqlite", "b.csv"])

    def test_something_unavailable_is_a_warning(self):
        self.answering(_analysis, 3, "{}", "warning: no stage x\n")
        with self.assertWarnsRegex(UserWarning, "no stage x"):
            self.assertEqual(roofgap.analyze("a.sqlite"), {})

    def test_a_failure_is_an_error_with_the_message(self):
        self.answering(_analysis, 2, "", "error: cannot read a.sqlite\n")
        with self.assertRaisesRegex(roofgap.RoofgapError, "cannot read a.sqlite") as raised:
            roofgap.analyze("a.sqlite")
        self.assertEqual(raised.exception.status, 2)

    def test_nested_fields_are_columns(self):
        self.assertEqual(_analysis._flat({"a": 1, "b": {"c": 2, "d": {"e": 3}}}), {"a": 1, "b.c": 2, "b.d.e": 3})

    def test_no_library_for_data_frames_is_named(self):
        with mock.patch.dict(sys.modules, {"pandas": None, "polars": None}):
            with self.assertRaisesRegex(ImportError, "pandas or polars"):
                roofgap.load_kernels("a.sqlite")
        with self.assertRaises(ValueError):
            roofgap.load_kernels("a.sqlite", library="numpy")

    def test_a_regression_fails_with_the_comparison(self):
        run = self.answering(_regression, 5, "decode is 9 % slower\n")
        with self.assertRaisesRegex(AssertionError, "decode is 9 % slower"):
            roofgap.assert_no_regression("head", "base", decode="3%")
        self.assertEqual(run.call_args.args[0], ["compare", "--fail-on=decode=3%", "--", "base", "head"])

    def test_no_regression_passes_with_a_limit_by_default(self):
        run = self.answering(_regression, 0)
        roofgap.assert_no_regression("head", "base")
        self.assertIn("--fail-on=5%", run.call_args.args[0])

    def test_a_number_that_is_missing_is_not_a_pass(self):
        self.answering(_regression, 3, "", "warning: no stage decode")
        with self.assertRaises(roofgap.RoofgapError):
            roofgap.assert_no_regression("head", "base", decode="3%")


class Binary(unittest.TestCase):
    def test_a_missing_program_is_an_error_that_says_how_to_install_it(self):
        with mock.patch.dict(os.environ, {"PATH": ""}), mock.patch.object(_binary.os, "access", return_value=False):
            with self.assertRaisesRegex(FileNotFoundError, "pip install roofgap"):
                _binary.find_binary()


@unittest.skipUnless(WHEEL, "ROOFGAP_TEST_WHEEL is not set")
class Wheel(unittest.TestCase):
    """The installed wheel, from another folder."""

    def python(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([WHEEL, *arguments], cwd=folder, check=False, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_the_program_runs_as_a_module_and_as_a_command(self):
        version = self.python("-m", "roofgap", "--version")
        self.assertTrue(version.startswith("roofgap "), version)
        command = pathlib.Path(WHEEL).with_name("roofgap")
        self.assertEqual(subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout, version)

    def test_the_demo_writes_its_page(self):
        with tempfile.TemporaryDirectory() as folder:
            out = self.python("-m", "roofgap", "demo", "--no-browser", "--out", folder)
            self.assertTrue(out.endswith(f"page: {folder}/report.html\n"), out[-200:])

    def test_a_capture_is_analysed(self):
        capture = ROOT / "fixtures/h200/llama4.sqlite.gz"
        code = f"import roofgap; print([s['name'] for s in roofgap.analyze({str(capture)!r})['stages']])"
        self.assertEqual(self.python("-c", code), "['prefill', 'decode']\n")

    def test_a_run_is_no_regression_of_itself(self):
        capture = str(ROOT / "fixtures/h200/llama4.sqlite.gz")
        self.python("-c", f"import roofgap; roofgap.assert_no_regression({capture!r}, {capture!r}, decode='3%')")

    def test_the_package_has_types(self):
        code = "import roofgap, pathlib; print((pathlib.Path(roofgap.__file__).parent / 'py.typed').is_file())"
        self.assertEqual(self.python("-c", code), "True\n")


if __name__ == "__main__":
    unittest.main()
