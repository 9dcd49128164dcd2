import io
import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
from contextlib import redirect_stderr, redirect_stdout
from unittest import mock

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, FOLDER)

import hf_common  # noqa: E402
import hf_driver  # noqa: E402
import hf_loop  # noqa: E402
import hf_model  # noqa: E402


def main(*argv):
    """Status, stdout and stderr of the driver."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = hf_driver.main(list(argv))
        except SystemExit as end:
            status = end.code
    return status, out.getvalue(), err.getvalue()


class ArgumentsTest(unittest.TestCase):
    def test_help_and_self_check_need_no_torch(self):
        with mock.patch.dict(sys.modules, {"torch": None, "transformers": None}):
            status, out, _ = main("--help")
            self.assertEqual(status, 0)
            self.assertIn("--profile-operators", out)
            status, out, _ = main("--self-check")
        self.assertEqual(status, 0)
        found = json.loads(out)
        self.assertIsNone(found["torch"])
        self.assertIs(found["cuda"], False)

    def test_exactly_one_model(self):
        status, _, err = main()
        self.assertEqual(status, hf_common.EXIT_USAGE)
        self.assertIn("--model-type", err)
        status, _, err = main("--model-type", "llama", "--config-json", "x.json")
        self.assertEqual(status, hf_common.EXIT_USAGE)
        self.assertIn("not 2", err)

    def test_a_missing_model_is_reported_before_torch_is_loaded(self):
        with tempfile.TemporaryDirectory() as folder:
            status, _, err = main("--model", folder)
            self.assertEqual(status, hf_common.EXIT_NO_MODEL)
            self.assertIn("config.json", err)
            status, _, err = main("--config-json", os.path.join(folder, "absent.json"))
            self.assertEqual(status, hf_common.EXIT_NO_MODEL)
            self.assertIn("absent.json", err)

    def test_missing_torch_is_one_line_with_a_remedy(self):
        with mock.patch.dict(sys.modules, {"torch": None}):
            status, out, err = main("--model-type", "llama")
        self.assertEqual(status, hf_common.EXIT_NO_TORCH)
        self.assertEqual((out, len(err.splitlines())), ("", 1))
        self.assertIn("install", err)

    def test_a_failure_has_the_same_status_when_run_as_a_program(self):
        # The modules import one another by name; a second copy of the error class would not be caught.
        done = subprocess.run(
            [sys.executable, os.path.join(FOLDER, "hf_driver.py"), "--model-type", "llama", "--trace-out", "x"],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, hf_common.EXIT_USAGE, done.stderr)
        self.assertIn("--profile-operators", done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def test_numbers_have_bounds(self):
        for option, value in (("--new-tokens", "0"), ("--batch", "-1"), ("--warmup", "-1"), ("--repeats", "many")):
            status, _, err = main("--model-type", "llama", option, value)
            self.assertEqual(status, 2, option)
            self.assertIn(option, err)

    def test_the_account_goes_where_the_environment_says(self):
        with mock.patch.dict(os.environ, {"ROOFGAP_WORKLOAD_JSON": "/there.json"}):
            self.assertEqual(hf_driver.parser().parse_args([]).account, "/there.json")
            self.assertEqual(hf_driver.parser().parse_args(["--account", "/here.json"]).account, "/here.json")

    def test_settings_are_nested_json(self):
        found = hf_driver.parse_settings(["hidden_size=64", "text_config.rope=null", "text_config.act=silu", "ids=[1,2]"])
        self.assertEqual(found, {"hidden_size": 64, "text_config": {"rope": None, "act": "silu"}, "ids": [1, 2]})
        for wrong in ("hidden_size", "=3"):
            with self.assertRaises(hf_common.DriverError):
                hf_driver.parse_settings([wrong])
        with self.assertRaises(hf_common.DriverError):
            hf_driver.parse_settings(["a=1", "a.b=2"])


class DeviceTest(unittest.TestCase):
    def torch(self, count, cuda="13.0"):
        return types.SimpleNamespace(
            cuda=types.SimpleNamespace(is_available=lambda: count > 0, device_count=lambda: count),
            version=types.SimpleNamespace(cuda=cuda),
            device=lambda name: types.SimpleNamespace(
                type=name.split(":")[0], index=int(name.split(":")[1]) if ":" in name else None, name=name
            ),
        )

    def test_auto_takes_what_is_there(self):
        self.assertEqual(hf_driver.pick_device(self.torch(1), "auto").type, "cuda")
        self.assertEqual(hf_driver.pick_device(self.torch(0), "auto").type, "cpu")

    def test_missing_cuda_is_an_error_with_its_reason(self):
        for torch, wanted, words in (
            (self.torch(0, None), "cuda", "without CUDA"),
            (self.torch(0), "cuda", "no usable GPU"),
            (self.torch(2), "cuda:2", "this machine has 2"),
        ):
            with self.assertRaises(hf_common.DriverError) as caught:
                hf_driver.pick_device(torch, wanted)
            self.assertEqual(caught.exception.status, hf_common.EXIT_NO_CUDA)
            self.assertIn(words, str(caught.exception))


class ModelTest(unittest.TestCase):
    def test_settings_lie_over_the_configuration(self):
        config = {"a": 1, "text_config": {"b": 2, "c": 3}}
        hf_model.overlay(config, {"a": 5, "text_config": {"b": 6}, "new": {"d": 7}})
        self.assertEqual(config, {"a": 5, "text_config": {"b": 6, "c": 3}, "new": {"d": 7}})

    def test_dense_layers_are_stated_per_layer(self):
        config = {"text_config": {"num_hidden_layers": 3, "first_k_dense_replace": 1}}
        hf_model.complete(config)
        self.assertEqual(config["text_config"]["mlp_layer_types"], ["dense", "sparse", "sparse"])
        given = {"text_config": {"num_hidden_layers": 1, "first_k_dense_replace": 1, "mlp_layer_types": ["sparse"]}}
        hf_model.complete(given)
        self.assertEqual(given["text_config"]["mlp_layer_types"], ["sparse"])

    def test_size_of_an_image_wherever_it_stands(self):
        size = types.SimpleNamespace
        self.assertEqual(hf_model.image_size(size(image_size=336)), 336)
        self.assertEqual(hf_model.image_size(size(image_size=[448, 448])), 448)
        self.assertEqual(hf_model.image_size(size(sam_config=size(image_size=1024))), 1024)
        with self.assertRaises(hf_common.DriverError):
            hf_model.image_size(size())

    def test_a_long_error_is_one_line(self):
        self.assertEqual(hf_common.one_line(ValueError("first\nsecond")), "first")
        self.assertLess(len(hf_common.one_line(ValueError("x" * 9999))), 400)
        self.assertEqual(hf_common.one_line(KeyError()), "KeyError")


class ManifestTest(unittest.TestCase):
    def setUp(self):
        try:
            import yaml  # noqa: F401
        except ImportError:
            self.skipTest("no yaml here")
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        with open(os.path.join(self.folder.name, "page.png"), "wb") as file:
            file.write(b"png")

    def read(self, text):
        path = os.path.join(self.folder.name, "manifest.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return hf_model.read_manifest(path)

    def test_images_and_prompts_in_any_form(self):
        page = os.path.join(self.folder.name, "page.png")
        items = self.read("- page.png\n- What is this?\n- {image: page.png, prompt: Read it.}\n- text: Hello\n")
        self.assertEqual(
            items,
            [
                {"image": page, "prompt": None},
                {"image": None, "prompt": "What is this?"},
                {"image": page, "prompt": "Read it."},
                {"image": None, "prompt": "Hello"},
            ],
        )
        self.assertEqual(self.read("inputs:\n  - page.png\n")[0]["image"], page)

    def test_what_is_wrong_is_named(self):
        for text, words in (("{}", "list"), ("- {image: gone.png}", "gone.png"), ("- {size: 3}", "entry 1"), ("- [", "manifest")):
            with self.assertRaises(hf_common.DriverError) as caught:
                self.read(text)
            self.assertIn(words, str(caught.exception))


    def test_every_item_is_used_in_turn(self):
        path = os.path.join(self.folder.name, "manifest.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write("- page.png\n- {image: page.png, prompt: B}\n- {image: page.png, prompt: C}\n")
        args = types.SimpleNamespace(manifest=path, batch=2, prompt=None, image="auto", model=self.folder.name)
        model = types.SimpleNamespace(config=types.SimpleNamespace(image_token_id=1, vision_config={}))
        with mock.patch.object(hf_model, "with_processor", lambda torch, transformers, args, model, batch, *rest: batch):
            batches = hf_model.all_inputs(None, None, args, model, None)
            self.assertEqual([[item["prompt"] for item in batch] for batch in batches], [[None, "B"], ["C", None]])
        model.config.vision_config = None
        with self.assertRaises(hf_common.DriverError) as caught:
            hf_model.all_inputs(None, None, args, model, None)
        self.assertIn("takes no image", str(caught.exception))

    def test_an_item_without_an_image_gets_none(self):
        path = os.path.join(self.folder.name, "manifest.yaml")
        args = types.SimpleNamespace(manifest=path, batch=1, prompt=None, image="auto", model=None)
        model = types.SimpleNamespace(config=types.SimpleNamespace(image_token_id=1, vision_config={}))
        with open(path, "w", encoding="utf-8") as file:
            file.write("- page.png\n- {prompt: Only text}\n")
        with mock.patch.object(hf_model, "generated", lambda torch, args, model, batch, takes_images, *rest: takes_images):
            self.assertEqual(hf_model.all_inputs(None, None, args, model, None), [True, False])
            args.batch = 2
            with self.assertRaises(hf_common.DriverError) as caught:
                hf_model.all_inputs(None, None, args, model, None)
        self.assertIn("workload.batch=1", str(caught.exception))

    def test_prompts_without_a_tokenizer_have_their_length(self):
        path = os.path.join(self.folder.name, "manifest.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write("- What is this page about?\n")
        args = types.SimpleNamespace(manifest=path, batch=1, prompt=None, image="auto", model=None, prompt_tokens=512, seed=0)
        text = types.SimpleNamespace(vocab_size=100)
        model = types.SimpleNamespace(config=types.SimpleNamespace(get_text_config=lambda: text), forward=lambda input_ids: None)

        class Ids:
            def __init__(self, shape):
                self.shape = shape

            def to(self, _device):
                return self

        seeded = types.SimpleNamespace(manual_seed=lambda _seed: None)
        torch = types.SimpleNamespace(Generator=lambda: seeded, randint=lambda _low, _high, shape, generator: Ids(shape))
        [found] = hf_model.all_inputs(torch, None, args, model, None)
        # 24 bytes, rounded up.
        self.assertEqual(found.prompt, 6)
        self.assertIn("there is no tokenizer", " ".join(found.notes))

    def test_a_missing_package_is_found_before_a_model_is_built(self):
        path = os.path.join(self.folder.name, "manifest.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write("- page.png\n")
        with mock.patch.dict(sys.modules, {"PIL": None}), self.assertRaises(hf_common.DriverError) as caught:
            hf_model.check_inputs(types.SimpleNamespace(manifest=path))
        self.assertEqual(caught.exception.status, hf_common.EXIT_USAGE)
        self.assertIn("pip install pillow", str(caught.exception))


class SettingsTest(unittest.TestCase):
    def test_a_setting_that_nothing_reads_is_refused(self):
        known = {"use_cache": True, "text_config": {"num_hidden_layers": 12}}
        config = types.SimpleNamespace(to_dict=lambda: known)
        transformers = types.SimpleNamespace(CONFIG_MAPPING={"ocr": lambda: config})
        hf_model.check_settings(transformers, "ocr", {"own": 1}, {"use_cache": False, "own": 2, "text_config": {"num_hidden_layers": 2}})
        hf_model.check_settings(transformers, "unknown", {}, {"anything": 1})
        for settings, words in (
            ({"num_hidden_layers": 2}, "write +model.set.text_config.num_hidden_layers"),
            ({"nonsense": 1}, "model.set.nonsense has no effect"),
        ):
            with self.assertRaises(hf_common.DriverError) as caught:
                hf_model.check_settings(transformers, "ocr", {}, settings)
            self.assertEqual(caught.exception.status, hf_common.EXIT_USAGE)
            self.assertIn(words, str(caught.exception))


class TurnTest(unittest.TestCase):
    def test_the_mean_of_known_numbers(self):
        self.assertEqual(hf_loop.mean([10, 13]), 12)
        self.assertIsNone(hf_loop.mean([10, None]))


class Event:
    def __init__(self, name, start, end, own, total, device="CPU", own_gpu=0.0, gpu=0.0):
        self.name = name
        self.time_range = types.SimpleNamespace(start=start, end=end)
        self.device_type = types.SimpleNamespace(name=device)
        self.self_cpu_time_total, self.cpu_time_total = own, total
        self.self_device_time_total, self.device_time_total = own_gpu, gpu


class OperatorsTest(unittest.TestCase):
    EVENTS = [
        Event("LLM@prefill", 0, 100, 1, 100),
        Event("LLM@decode_all", 100, 300, 1, 200),
        Event("LLM@decode_step", 100, 200, 1, 100),
        Event("aten::mm", 10, 20, 5.0, 8.0, own_gpu=3.0, gpu=3.0),
        Event("aten::mm", 110, 120, 5.0, 8.0, own_gpu=2.5, gpu=2.5),
        Event("aten::mm", 210, 220, 6.0, 9.0, own_gpu=2.0, gpu=2.0),
        Event("aten::add", 400, 401, 1.0, 1.0),
        Event("gemm_kernel", 12, 15, 0, 0, device="CUDA", own_gpu=3.0, gpu=3.0),
    ]

    def test_are_summed_by_stage_in_nanoseconds(self):
        rows = hf_loop.operators(self.EVENTS, True)
        self.assertEqual(
            rows[0],
            {
                "name": "aten::mm",
                "stage": "decode",
                "calls": 2,
                "self_cpu_ns": 11000,
                "total_cpu_ns": 17000,
                "self_gpu_ns": 4500,
                "total_gpu_ns": 4500,
            },
        )
        self.assertEqual([(row["name"], row["stage"]) for row in rows[1:]], [("aten::mm", "prefill"), ("aten::add", None)])

    def test_without_a_gpu_there_is_no_gpu_time(self):
        self.assertTrue(all(row["self_gpu_ns"] is None for row in hf_loop.operators(self.EVENTS, False)))


if __name__ == "__main__":
    unittest.main()
