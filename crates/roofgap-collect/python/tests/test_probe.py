import json
import os
import sys
import tempfile
import types
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import roofgap_probe as probe  # noqa: E402
from tests.fakes import Module  # noqa: E402


class Log:
    """Takes the place of NVTX."""

    def __init__(self):
        self.lines = []

    def push(self, name, domain=None):
        self.lines.append(f"{domain}@{name}" if domain else name)

    def pop(self, domain=None):
        self.lines.append("/")


class AccountTest(unittest.TestCase):
    def test_has_the_fields_of_the_contract(self):
        account = probe.new_account()
        self.assertEqual(account["schema"], "roofgap.workload/1")
        self.assertEqual(set(account), {"schema", "model", "tokens", "device", "repeats", "operators", "token_hash", "peak", "notes"})
        self.assertEqual(set(account["model"]), {"name", "revision", "parameters", "active_parameters", "dtype", "weights", "config"})
        self.assertEqual(set(account["tokens"]), {"prompt", "generated", "batch", "vision"})

    def test_is_written_whole_and_leaves_nothing_else(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "deep", "workload.json")
            probe.write_account(probe.new_account(), path)
            with open(path, encoding="utf-8") as file:
                self.assertEqual(json.load(file), probe.new_account())
            self.assertEqual(os.listdir(os.path.dirname(path)), ["workload.json"])

    def test_what_cannot_be_written_leaves_the_old_one(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "workload.json")
            probe.write_account({"old": True}, path)
            broken = {1: 2}
            broken["self"] = broken
            with self.assertRaises(ValueError):
                probe.write_account(broken, path)
            self.assertEqual(os.listdir(folder), ["workload.json"])
            with open(path, encoding="utf-8") as file:
                self.assertEqual(json.load(file), {"old": True})

    def test_stage_is_whole_nanoseconds(self):
        stage = probe.stage("decode", 12.9, [1.5, 2], [("sam", 3.0)])
        self.assertEqual(stage, {"name": "decode", "wall_ns": 12, "steps_ns": [1, 2], "notes": [{"name": "sam", "wall_ns": 3}]})

    def test_hash_depends_on_order_and_on_which_sequence(self):
        # `printf 1,2,3 | sha256sum`: the embedded model in Rust hashes in the same way.
        self.assertEqual(probe.token_hash([[1, 2, 3]]), "sha256:8a6ae15122001229edb8866f56e342af12ae8187203c3e3b33931743e7c0c48d")
        self.assertNotEqual(probe.token_hash([[1, 2, 3]]), probe.token_hash([[3, 2, 1]]))
        self.assertNotEqual(probe.token_hash([[1, 2], [3]]), probe.token_hash([[1], [2, 3]]))


class RangesTest(unittest.TestCase):
    def test_domains_by_name_before_0_2_12(self):
        calls = []
        package = types.SimpleNamespace(
            get_domain=lambda name: types.SimpleNamespace(name=name),
            push_range=lambda message, domain=None: calls.append(("push", message, domain)),
            pop_range=lambda domain=None: calls.append(("pop", domain)),
        )
        ranges = probe.Ranges(nvtx=package)
        ranges.push("prefill", probe.LLM)
        ranges.push("sam")
        ranges.pop()
        ranges.pop(probe.LLM)
        self.assertIsNone(ranges.note)
        self.assertEqual(calls, [("push", "prefill", "LLM"), ("push", "sam", None), ("pop", None), ("pop", "LLM")])

    def test_domain_objects_since(self):
        calls = []

        class Domain:
            def get_event_attributes(self, message):
                return f"attributes of {message}"

            def push_range(self, attributes):
                calls.append(attributes)

            def pop_range(self):
                calls.append("pop")

        ranges = probe.Ranges(nvtx=types.SimpleNamespace(get_domain=lambda name: Domain()))
        ranges.push("decode_all", probe.LLM)
        ranges.pop(probe.LLM)
        self.assertEqual(calls, ["attributes of decode_all", "pop"])

    def test_falls_back_to_torch_and_says_so(self):
        calls = []
        nvtx = types.SimpleNamespace(range_push=calls.append, range_pop=lambda: calls.append("pop"))
        torch = types.SimpleNamespace(cuda=types.SimpleNamespace(nvtx=nvtx))
        broken = types.SimpleNamespace(get_domain=None)
        ranges = probe.Ranges(torch, broken)
        calls.clear()
        ranges.push("prefill", probe.LLM)
        ranges.pop(probe.LLM)
        self.assertEqual(calls, ["prefill", "pop"])
        self.assertIn("default domain", ranges.note)

    def test_without_either_a_note_says_so(self):
        ranges = probe.Ranges(None, types.SimpleNamespace(get_domain=None))
        ranges.push("prefill", probe.LLM)
        ranges.pop(probe.LLM)
        self.assertIn("no NVTX ranges", ranges.note)


class VisionTest(unittest.TestCase):
    def test_finds_the_parts_of_deepseek_ocr2(self):
        model = Module(
            model=Module(
                vision_tower=Module(sam_encoder=Module(neck=Module()), vision_encoder=Module(layers=Module())),
                multi_modal_projector=Module(),
                language_model=Module(),
            )
        )
        self.assertEqual([name for name, _ in probe.vision_parts(model)], ["sam", "vision_encoder", "projector"])

    def test_a_plain_tower_goes_by_its_class(self):
        class CLIPVisionModel(Module):
            pass

        class SiglipVisionModel(Module):
            pass

        clip = Module(model=Module(vision_tower=CLIPVisionModel(vision_model=Module()), multi_modal_projector=Module()))
        self.assertEqual(sorted(name for name, _ in probe.vision_parts(clip)), ["clip", "projector"])
        siglip = Module(vision_tower=SiglipVisionModel(vision_model=Module(encoder=Module())))
        self.assertEqual([name for name, _ in probe.vision_parts(siglip)], ["vision_encoder"])

    def test_a_language_model_has_none(self):
        self.assertEqual(probe.vision_parts(Module(model=Module(layers=Module()), lm_head=Module())), [])

    def test_notes_open_and_close_ranges_and_add_up_times(self):
        sam = Module()
        model = Module(sam_model=sam)
        log = Log()
        notes = probe.VisionNotes(model, log, probe.Clock())
        sam.run()
        sam.run()
        self.assertEqual(log.lines, ["sam", "/", "sam", "/"])
        ((name, wall),) = notes.take()
        self.assertEqual(name, "sam")
        self.assertGreaterEqual(wall, 0)
        self.assertEqual(notes.take(), [])


class ModelTest(unittest.TestCase):
    def test_modules_of_one_shape_are_one_row(self):
        head = Module(20)
        layers = Module(**{str(number): Module(mlp=Module(8 if number else 4)) for number in range(3)})
        rows = probe.modules(Module(layers=layers, head=head, tied=Module(other=head)))
        found = [(row["path"], row["count"], row["layers"], row["weights"][0]["shape"], row["weights"][0]["shared"]) for row in rows]
        self.assertEqual(
            found,
            [
                ("layers.*.mlp", 1, [0], [4], False),
                ("layers.*.mlp", 2, [1, 2], [8], False),
                ("head", 1, [], [20], False),
                ("tied.other", 1, [], [20], True),
            ],
        )
        self.assertEqual(rows[0]["weights"][0]["bytes"], 8)

    def test_tidy_drops_what_is_unset(self):
        config = {"hidden_size": 8, "pad": None, "id2label": {}, "text_config": {"x": 1, "y": None}, "limit": (0.0, float("inf"))}
        self.assertEqual(probe.tidy(config), {"hidden_size": 8, "text_config": {"x": 1}, "limit": [0.0, "inf"]})


if __name__ == "__main__":
    unittest.main()
