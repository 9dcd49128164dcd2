import os
import time
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import roofgap_probe as probe  # noqa: E402
from tests import engines  # noqa: E402
from tests.fakes import write_packages  # noqa: E402
from tests.program import ProgramCase  # noqa: E402

MIXED = """
from vllm.v1.worker.gpu_worker import Worker, scheduled
worker = Worker()
step = scheduled(new=["a"], cached={"b": 0, "c": 5}, tokens={"a": 100, "b": 28, "c": 1})
print(worker.execute_model(step), worker.sample_tokens("grammar"))
"""


class EnginesTest(ProgramCase):
    def setUp(self):
        super().setUp()
        for packages in (engines.TORCH, engines.VLLM, engines.SGLANG, engines.TENSORRT_LLM, engines.BATCHING):
            write_packages(self.packages, packages)

    def lines(self):
        with open(self.log, encoding="utf-8") as file:
            return file.read().splitlines()

    def test_a_step_of_vllm_is_one_range_that_ends_after_sampling(self):
        done = self.run_program(MIXED)
        self.assertEqual((done.stdout, done.stderr), ("None ('sampled', 'grammar')\n", ""))
        # `b` has no output yet: the next part of its prompt.
        step, requests, end = self.lines()
        self.assertEqual((step, end), ("execute_context_2(128)_generation_1(1)", "/"))
        words = sorted(requests.removeprefix("! roofgap:requests ").split())
        self.assertEqual([word[0] + word[-1] for word in words], ["ap", "bp", "c1"], requests)

    def test_a_full_collection_of_python_is_a_range(self):
        self.run_program("import gc\ngc.collect()\nimport torch.cuda.nvtx\ngc.collect(0)\ngc.collect()\n")
        self.assertEqual(self.lines(), ["roofgap:gc", "/"])

    def test_a_step_of_vllm_without_sampling_ends_by_itself(self):
        self.run_program(
            "from vllm.v1.worker.gpu_worker import Worker, scheduled\n"
            "worker = Worker()\n"
            "worker.execute_model(scheduled(cached={'a': 3}, tokens={'a': 1}, output='done'))\n"
            "worker.execute_model(scheduled(cached={'a': 4}, tokens={'a': 1}))\n"
            "worker.execute_model(scheduled(tokens={}))\n"
        )
        step = ["execute_context_0(0)_generation_1(1)", "/"]
        requests = "! roofgap:requests a:1"
        self.assertEqual(self.lines(), [step[0], requests, "/"] + step, "a step whose sampling never came ends before the next; nothing scheduled is no step")

    def test_warm_up_of_vllm_is_named(self):
        done = self.run_program(
            "from vllm.v1.worker.gpu_worker import Worker\n"
            "worker = Worker()\n"
            "print(worker.determine_available_memory(), worker.compile_or_warm_up_model())\n"
        )
        self.assertEqual(done.stdout, "memory compiled\n")
        self.assertEqual(self.lines(), ["warmup", "/", "warmup", "/"])

    def test_vllm_names_the_steps_itself_while_its_profiler_runs(self):
        for profiler in ("{'is_running': True, 'should_annotate': True}", "{'is_running': True}", "{}"):
            self.run_program(MIXED.replace("step =", f"worker.profiler = type('P', (), {profiler})()\nstep ="))
            self.assertFalse(os.path.exists(self.log))
            self.assertEqual(self.account["engine"]["name"], "vLLM")
        self.run_program(MIXED.replace("step =", "worker.profiler = type('P', (), {'is_running': False})()\nstep ="))
        self.assertEqual(len(self.lines()), 3)
        # One that records the GPU alone names nothing, since 0.33.
        gpu_alone = "{'is_running': True, 'should_annotate': False}"
        self.run_program(MIXED.replace("step =", f"worker.profiler = type('P', (), {gpu_alone})()\nstep ="))
        self.assertEqual(len(self.lines()), 6)

    def test_the_account_of_vllm(self):
        self.run_program(MIXED)
        account = self.account
        self.assertEqual(
            account["engine"], {"name": "vLLM", "version": "0.26.0", "parallelism": {"tensor": 1, "pipeline": 1, "data": 1}}
        )
        model = account["model"]
        self.assertEqual((model["name"], model["dtype"], model["weights"], model["parameters"]), ("Qwen/Qwen3-1.7B", "bf16", "random", 14))
        self.assertEqual(model["config"], {"model_type": "qwen3", "hidden_size": 8})
        self.assertEqual((account["tokens"], account["repeats"]), (None, []))
        self.assertEqual(account["device"], {"kind": "cuda", "name": "Fake GPU"})

    def test_the_parts_of_the_start_add_up(self):
        begin = time.time_ns()
        prepare = "worker = Worker()\nworker.load_model()\nworker.determine_available_memory()\nworker.compile_or_warm_up_model()\n"
        self.run_program(MIXED.replace("worker = Worker()\n", prepare))
        parts = {part["name"]: part["wall_ns"] for part in self.account["startup"]}
        names = ["imports and set-up", "weights", "other code", "compilation", "trial run", "warm-up", "graph capture", "until the first step"]
        self.assertEqual(list(parts), names)
        self.assertEqual(parts["compilation"], 4_000_000)
        least = {"weights": 2, "trial run": 2, "graph capture": 3}
        for name, ms in least.items():
            self.assertGreaterEqual(parts[name], ms * 1_000_000, name)
        # The start of a process is known to a hundredth of a second.
        self.assertLess(sum(parts.values()), time.time_ns() - begin + 20_000_000)
        os.unlink(self.account_path)
        # A worker of a program whose first process is older: this one.
        self.run_program(MIXED, ROOFGAP_FIRST_PID=str(os.getpid()))
        self.assertEqual(self.account["startup"][0]["name"], "before this process")
        for none in ("0", ""):
            os.unlink(self.account_path)
            self.run_program(MIXED, ROOFGAP_FIRST_PID=none)
            self.assertEqual(self.account["startup"][0]["name"], "imports and set-up")

    def test_calls_of_vllm_in_a_program_are_repeats_with_a_hash_of_their_tokens(self):
        call = "from vllm.entrypoints.llm import LLM\nllm = LLM()\nprint(len(llm.generate([1, 5])))\n"
        self.assertEqual(self.run_program(call).stdout, "2\n")
        (repeat,) = self.account["repeats"]
        self.assertEqual((repeat["warmup"], repeat["stages"][0]["name"]), (False, "generate"))
        self.assertEqual(self.account["token_hash"], probe.token_hash([[1, 2], [5, 6]]))
        os.unlink(self.account_path)
        # The first of several calls is a warm-up, and the facts that the engine wrote stay.
        self.run_program(MIXED + call + "llm.generate([7])\nllm.generate([9])\n")
        self.assertEqual([repeat["warmup"] for repeat in self.account["repeats"]], [True, False, False])
        self.assertEqual(self.account["token_hash"], probe.token_hash([[1, 2], [5, 6], [7, 8], [9, 10]]))
        self.assertEqual(self.account["engine"]["name"], "vLLM")

    def test_calls_before_a_second_engine_stay(self):
        again = "import json, os\njson.dump({'schema': 'roofgap.workload/1', 'repeats': []}, open(os.environ['ROOFGAP_WORKLOAD_JSON'], 'w'))\n"
        self.run_program("from vllm.entrypoints.llm import LLM\nllm = LLM()\nllm.generate([1])\n" + again + "llm.generate([5])\n")
        self.assertEqual([repeat["warmup"] for repeat in self.account["repeats"]], [True, False])
        self.assertEqual(self.account["token_hash"], probe.token_hash([[1, 2], [5, 6]]))

    def test_a_program_that_writes_its_own_account_keeps_it(self):
        own = (
            "import json, os\n"
            "account = {'schema': 'roofgap.workload/1', 'repeats': [{'warmup': False, 'stages': [{'name': 'mine', 'wall_ns': 5}]}]}\n"
            "json.dump(account, open(os.environ['ROOFGAP_WORKLOAD_JSON'], 'w'))\n"
        )
        self.run_program(own + "from vllm.entrypoints.llm import LLM\nLLM().generate([1])\n")
        self.assertEqual(self.account["repeats"][0]["stages"][0]["name"], "mine")
        self.assertNotIn("token_hash", self.account)

    def test_a_failed_call_of_vllm_is_the_programs(self):
        done = self.run_program(
            "from vllm.entrypoints.llm import LLM\ntry: LLM().generate(None)\nexcept ValueError as error: print('caught', error)\n"
        )
        self.assertEqual((done.stdout, done.stderr), ("caught no prompts\n", ""))
        self.assertIsNone(self.account)

    def test_a_child_of_multiprocessing_waits_for_the_native_collector(self):
        program = (
            "import multiprocessing, time\n"
            "time.sleep = lambda seconds: print('waited', seconds, flush=True)\n"
            "def engine():\n"
            + "".join(f"    {line}\n" for line in MIXED.strip().splitlines())
            + "engine()\n"
            "child = multiprocessing.get_context('fork').Process(target=engine)\n"
        )
        start = "child.start()\nchild.join()\n"
        printed = "None ('sampled', 'grammar')\n"
        self.assertEqual(self.run_program(program, ROOFGAP_NATIVE_DIR=self.folder).stdout, printed, "the program itself ends in order")
        program = program.replace("engine()\nchild", "child")
        self.assertEqual(self.run_program(program + start, ROOFGAP_NATIVE_DIR=self.folder).stdout, printed + "waited 1.3\n")
        self.assertEqual(self.run_program(program + start).stdout, printed, "nobody collects")

    def test_only_the_first_rank_writes_an_account_and_a_part_of_a_model_is_not_counted(self):
        self.run_program(MIXED.replace("Worker()", "Worker(rank=1, tensor_parallel_size=2)"))
        self.assertIsNone(self.account)
        self.run_program(MIXED.replace("Worker()", "Worker(tensor_parallel_size=2)"))
        self.assertEqual(self.account["engine"]["parallelism"]["tensor"], 2)
        self.assertIsNone(self.account["model"]["parameters"])

    def test_without_a_profiler_there_are_no_ranges_but_an_account(self):
        done = self.run_program(MIXED, ROOFGAP_PHASE="baseline")
        self.assertEqual(done.stdout, "None ('sampled', 'grammar')\n")
        self.assertFalse(os.path.exists(self.log))
        self.assertEqual(self.account["engine"]["version"], "0.26.0")

    def test_an_error_of_the_engine_passes_through_and_its_step_is_closed(self):
        done = self.run_program(
            "from vllm.v1.worker.gpu_worker import Worker, scheduled\n"
            "worker = Worker()\n"
            "try: worker.execute_model(scheduled(new=['a'], tokens={'a': 3}, output=ValueError('its own')))\n"
            "except ValueError as error: print('caught', error)\n"
        )
        self.assertEqual((done.stdout, done.stderr), ("caught its own\n", ""))
        self.assertEqual(self.lines(), ["execute_context_1(3)_generation_0(0)", "! roofgap:requests a:3p", "/"])

    def test_an_engine_of_another_shape_still_runs(self):
        done = self.run_program(MIXED.replace("print(", "del step.scheduled_new_reqs, worker.vllm_config\nprint("), ROOFGAP_ANNOTATE_DEBUG="")
        self.assertEqual((done.stdout, done.stderr), ("None ('sampled', 'grammar')\n", ""))
        self.assertIsNone(self.account)

    def test_batches_of_sglang(self):
        done = self.run_program(
            "from sglang.srt.managers.scheduler import Scheduler, ForwardMode, batch\n"
            "scheduler = Scheduler()\n"
            "for found in (batch(ForwardMode.EXTEND, [1, 2], 300), batch(ForwardMode.DECODE, [1, 2, 3]),\n"
            "              batch(ForwardMode.MIXED, [1, 2, 3], 52, [2, 3]), batch(ForwardMode.IDLE, [])):\n"
            "    print(scheduler.run_batch(found))\n"
        )
        self.assertEqual(done.stdout, "('ran', 2)\n('ran', 3)\n('ran', 3)\n('ran', 0)\n")
        names = [line for line in self.lines() if line != "/"]
        self.assertEqual(
            names,
            ["step[EXTEND bs=2 toks=300]", "step[DECODE bs=3]", "step[MIXED bs=3 c=1 g=2 c_sq=50 g_sq=2]", "step[IDLE bs=0]"],
        )
        self.assertEqual(
            self.account["engine"],
            {"name": "SGLang", "version": "0.5.16", "parallelism": {"tensor": 2, "pipeline": 1, "data": 1, "expert": 2}},
        )
        self.assertEqual(self.account["model"]["weights"], "local")

    def test_another_rank_of_sglang_writes_no_account(self):
        self.run_program(
            "from sglang.srt.managers.scheduler import Scheduler, ForwardMode, batch\n"
            "Scheduler(tp_rank=1).run_batch(batch(ForwardMode.DECODE, [1]))\n"
        )
        self.assertIsNone(self.account)

    def test_newer_sglang_keeps_its_ranks_in_the_process_and_names_drafts(self):
        program = (
            "import sys\n"
            "from types import SimpleNamespace as Space\n"
            "from sglang.srt.managers.scheduler import Scheduler, ForwardMode, batch\n"
            "sys.modules['sglang.srt.runtime_context'] = Space(get_parallel=lambda: Space(tp_rank=RANK, pp_rank=0, dp_rank=None))\n"
            "scheduler, found = Scheduler(), batch(ForwardMode.DECODE, [1, 2])\n"
            "del scheduler.ps\n"
            "for none in (True, False):\n"
            "    found.spec_algorithm = Space(is_none=lambda: none)\n"
            "    scheduler.run_batch(found)\n"
        )
        self.run_program(program.replace("RANK", "1"))
        self.assertIsNone(self.account)
        self.assertEqual([line for line in self.lines() if line != "/"], ["step[DECODE bs=2]", "step[VERIFY bs=2]"])
        self.run_program(program.replace("RANK", "0"))
        self.assertEqual(self.account["engine"]["name"], "SGLang")

    def test_steps_of_tensorrt_llm_get_their_tokens(self):
        done = self.run_program(
            "from tensorrt_llm._torch.pyexecutor.py_executor import PyExecutor, scheduled\n"
            "print(PyExecutor()._forward_step(scheduled([8, 4], 3)))\n"
        )
        self.assertEqual((done.stdout, done.stderr), ("logits\n", ""))
        self.assertEqual(self.lines(), ["[Executor] _forward_step: 2 ctx reqs, 12 ctx tokens, 3 gen reqs", "/"])
        self.assertEqual(self.account["engine"]["parallelism"], {"tensor": 1, "pipeline": 1})
        self.assertEqual(self.account["model"]["parameters"], 14)

    def test_tensorrt_llm_that_names_tokens_is_not_named_twice(self):
        path = os.path.join(self.packages, "tensorrt_llm/_torch/pyexecutor/py_executor.py")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace("class PyExecutor", "class OlderExecutor").replace("NewerExecutor(PyExecutor)", "PyExecutor(OlderExecutor)"))
        self.run_program(
            "from tensorrt_llm._torch.pyexecutor.py_executor import PyExecutor, scheduled\nPyExecutor()._forward_step(scheduled([8], 0))\n"
        )
        self.assertEqual(self.lines(), ["[Executor] _forward_step 1: 1 ctx reqs, 8 ctx tokens, 0 gen reqs", "/"])

    def test_steps_of_continuous_batching(self):
        done = self.run_program(
            "import torch\n"
            "from transformers.generation.continuous_batching.continuous_api import ContinuousBatchProcessor, request\n"
            "from transformers.models import Model, Ids\n"
            "model = Model()\n"
            "model.ids = Ids([[1, 2, 3]])\n"
            "processor = ContinuousBatchProcessor()\n"
            "processor.warmup(model)\n"
            # The rest of a prompt in one token; a whole prompt; a request that generates.
            "processor.inputs_and_outputs.prepare_batch_tensors([request(9, 8, 1), request(6, 0, 6), request(9, 9, 1)])\n"
            "processor._generation_step(model)\n"
        )
        self.assertEqual(done.stderr, "")
        self.assertEqual(self.lines(), ["warmup", "/", "transformers_context_2(7)_generation_1(1)", "/"])
        self.assertEqual((self.account["engine"]["version"], self.account["repeats"]), ("5.17.0", []))

    def test_steps_of_continuous_batching_in_older_versions(self):
        start = (
            "import torch\n"
            "from transformers.generation.continuous_batching.continuous_api import *\n"
            "from transformers.models import Model, Ids\n"
            "model = Model()\n"
            "model.ids = Ids([[1, 2, 3]])\n"
            "processor = ContinuousBatchProcessor([request(9, 8, 1), request(6, 0, 6), request(9, 9, 1)])\n"
        )
        for packages, steps, warmup in (
            (engines.BATCHING_5_0, "processor.prepare_next_batch()\nprocessor._generation_step(model, None, False)\n", []),
            (
                engines.BATCHING_4_57,
                "manager = ContinuousBatchingManager(model)\nmanager.warmup(processor)\n"
                "processor.prepare_next_batch()\nmanager._generation_step(processor)\n",
                ["warmup", "/"],
            ),
        ):
            write_packages(self.packages, packages)
            if os.path.exists(self.log):
                os.remove(self.log)
            done = self.run_program(start + steps)
            self.assertEqual(done.stderr, "")
            self.assertEqual(self.lines(), warmup + ["transformers_context_2(7)_generation_1(1)", "/"])
            self.assertEqual((self.account["engine"]["name"], self.account["repeats"]), ("transformers", []))

    def test_nothing_happens_without_an_engine(self):
        done = self.run_program("import sys, torch, vllm\nprint(sorted(n for n in sys.modules if 'roofgap' in n))")
        self.assertEqual(done.stdout, "[]\n")


if __name__ == "__main__":
    unittest.main()
