import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tests.program import ProgramCase  # noqa: E402

GENERATE = """
from transformers.models import Model, Ids
model = Model()
print(model.generate(Ids([[7, 8, 9]]), steps=2).rows)
"""
STEPS = "LLM@decode_all LLM@decode_step /LLM LLM@decode_step /LLM /LLM"


class AnnotateTest(ProgramCase):
    def test_generate_is_one_prefill_and_one_decode(self):
        done = self.run_program(GENERATE)
        self.assertEqual((done.stdout, done.stderr), ("[[7, 8, 9, 0, 1]]\n", ""))
        self.assertEqual(self.ranges, f"LLM@prefill /LLM {STEPS}")
        self.assertEqual(self.account["tokens"], {"prompt": 3, "generated": 2, "batch": 1, "vision": None})
        (repeat,) = self.account["repeats"]
        self.assertEqual([stage["name"] for stage in repeat["stages"]], ["prefill", "decode"])
        decode = repeat["stages"][1]
        self.assertEqual(len(decode["steps_ns"]), 2)
        self.assertEqual(sum(decode["steps_ns"]), decode["wall_ns"])
        self.assertEqual(self.account["model"]["name"], "local/fake")
        self.assertEqual(self.account["model"]["weights"], "local")
        self.assertEqual(self.account["model"]["parameters"], 20)
        self.assertEqual(self.account["model"]["config"], {"model_type": "fake", "hidden_size": 8})
        self.assertTrue(self.account["token_hash"].startswith("sha256:"))

    def test_forward_passes_outside_generate_are_classified_by_their_tokens(self):
        self.run_program(
            "from transformers.models import Model, Ids\n"
            "model = Model()\n"
            "for _ in range(2):\n"
            "    model(input_ids=Ids([[1, 2, 3], [4, 5, 6]]))\n"
            "    model(input_ids=Ids([[1], [2]]), past_key_values=[1])\n"
        )
        self.assertEqual(self.ranges, " ".join(["LLM@prefill /LLM LLM@decode LLM@decode_step /LLM /LLM"] * 2))
        self.assertEqual(len(self.account["repeats"]), 2)
        self.assertEqual(self.account["tokens"], {"prompt": 3, "generated": 1, "batch": 2, "vision": None})

    def test_a_model_that_does_not_generate_is_left_alone(self):
        self.run_program("from transformers.models import Inner, Ids\nprint(Inner()(input_ids=Ids([[1, 2]])))")
        self.assertEqual((self.ranges, self.account), ("", None))

    def test_an_error_of_the_program_passes_through_and_ranges_are_closed(self):
        done = self.run_program(
            GENERATE
            + "def fail(*a, **k): raise KeyError('mine')\n"
            + "Model.forward = fail\n"
            + "try:\n    model.generate(Ids([[1, 2]]))\nexcept KeyError as error:\n    print('caught', error)\n"
        )
        self.assertIn("caught 'mine'", done.stdout)
        self.assertEqual(self.ranges, f"LLM@prefill /LLM {STEPS} LLM@prefill /LLM")
        self.assertEqual(done.returncode, 0)

    def test_nothing_happens_without_transformers(self):
        done = self.run_program("import sys, json\nprint(sorted(n for n in sys.modules if 'roofgap' in n or n == 'nvtx'))")
        self.assertEqual(done.stdout, "[]\n")
        self.assertIsNone(self.account)

    def test_it_can_be_switched_off(self):
        done = self.run_program(GENERATE, ROOFGAP_ANNOTATE="0")
        self.assertEqual(done.stdout, "[[7, 8, 9, 0, 1]]\n")
        self.assertEqual((self.ranges, self.account), ("", None))

    def test_another_sitecustomize_still_runs(self):
        theirs = os.path.join(self.folder, "theirs")
        os.makedirs(theirs)
        with open(os.path.join(theirs, "sitecustomize.py"), "w", encoding="utf-8") as file:
            file.write("print('theirs')\nVALUE = 3\n")
        done = self.run_program("import sitecustomize\nprint(sitecustomize.VALUE)" + GENERATE, path=[theirs])
        self.assertEqual(done.stdout, "theirs\n3\n[[7, 8, 9, 0, 1]]\n")
        self.assertIn("LLM@prefill", self.ranges)

    def test_an_account_of_the_program_itself_is_kept(self):
        own = "import os\nopen(os.environ['ROOFGAP_WORKLOAD_JSON'], 'w').write('{\"mine\": 1}')\n"
        self.run_program(GENERATE + own)
        self.assertEqual(self.account, {"mine": 1}, "written after ours")
        os.remove(self.account_path)
        self.run_program(own + GENERATE)
        self.assertEqual(self.account, {"mine": 1}, "written before ours")

    def test_an_account_of_an_earlier_run_is_replaced(self):
        with open(self.account_path, "w", encoding="utf-8") as file:
            file.write("{}")
        os.utime(self.account_path, (1, 1))
        self.run_program(GENERATE)
        self.assertEqual(self.account["schema"], "roofgap.workload/1")

    def test_a_child_made_by_fork_does_not_write_the_account(self):
        self.run_program(
            GENERATE
            + "import os\nos.remove(os.environ['ROOFGAP_WORKLOAD_JSON'])\npid = os.fork()\nif pid == 0:\n    raise SystemExit(0)\nos.waitpid(pid, 0)\nos._exit(0)\n"
        )
        self.assertIsNone(self.account)

    def test_broken_annotation_does_not_reach_the_program(self):
        broken = os.path.join(self.packages, "nvtx", "__init__.py")
        with open(broken, "w", encoding="utf-8") as file:
            file.write("raise RuntimeError('broken')\n")
        done = self.run_program(GENERATE)
        self.assertEqual((done.returncode, done.stdout), (0, "[[7, 8, 9, 0, 1]]\n"))
        self.assertTrue(any("no NVTX ranges" in note for note in self.account["notes"]))

    def test_vllm_gets_its_own_switch_unless_the_user_set_it(self):
        program = "import os, vllm\nprint(os.environ.get('VLLM_NVTX_SCOPES_FOR_PROFILING'))"
        self.assertEqual(self.run_program(program).stdout, "1\n")
        self.assertEqual(self.run_program(program, VLLM_NVTX_SCOPES_FOR_PROFILING="0").stdout, "0\n")
        self.assertEqual(self.run_program(program, ROOFGAP_PHASE="baseline").stdout, "None\n", "nobody reads ranges")
        os.remove(os.path.join(self.packages, "nvtx", "__init__.py"))
        os.rmdir(os.path.join(self.packages, "nvtx"))
        self.assertEqual(self.run_program(program).stdout, "None\n", "vLLM would fail without the package")

    def test_a_compiled_decode_is_annotated(self):
        self.run_program(
            "from transformers.models import Model, Ids\n"
            "model = Model()\n"
            "model.static_cache = True\n"
            "print(model.generate(Ids([[7, 8, 9]]), steps=2).rows)\n"
        )
        self.assertEqual(self.ranges, f"LLM@prefill /LLM {STEPS}")

    def test_modules_keep_their_own_loader(self):
        done = self.run_program(
            "import transformers.modeling_utils as m\nprint(type(m.__loader__).__name__, type(m.__spec__.loader).__name__)"
        )
        self.assertEqual(done.stdout, "SourceFileLoader SourceFileLoader\n")


if __name__ == "__main__":
    unittest.main()
