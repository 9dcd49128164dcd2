import copy
import json
import os
import sys
import tempfile
import types
import unittest

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, FOLDER)

import hf_common  # noqa: E402
import hf_deepseek_ocr as ocr  # noqa: E402
import hf_model  # noqa: E402

# The published configuration, shortened to what is read.
PUBLISHED = {
    "model_type": "deepseek_vl_v2",
    "auto_map": {"AutoConfig": "modeling_deepseekocr.DeepseekOCRConfig", "AutoModel": "modeling_deepseekocr.DeepseekOCRForCausalLM"},
    "language_config": {
        "hidden_size": 1280, "num_hidden_layers": 12, "num_attention_heads": 10, "num_key_value_heads": 10, "intermediate_size": 6848,
        "moe_intermediate_size": 896, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1,
        "kv_lora_rank": None, "q_lora_rank": None, "qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "v_head_dim": 0, "use_mla": False,
        "vocab_size": 129280,
    },
    "projector_config": {"input_dim": 2048, "n_embed": 1280, "projector_type": "linear"},
    "vision_config": {
        "image_size": 1024,
        "width": {
            "clip-l-14-224": {"heads": 16, "image_size": 224, "layers": 24, "patch_size": 14, "width": 1024},
            "sam_vit_b": {"downsample_channels": [512, 1024], "global_attn_indexes": [2, 5, 8, 11], "heads": 12, "layers": 12, "width": 768},
        },
    },
}  # fmt: skip


class DeepseekOcrTest(unittest.TestCase):
    def test_the_published_configuration_and_the_preset_are_recognised(self):
        self.assertTrue(ocr.matches(PUBLISHED))
        self.assertTrue(ocr.matches({**PUBLISHED, "model_type": "deepseek_ocr"}))
        self.assertFalse(ocr.matches({**PUBLISHED, "model_type": "llama"}))
        # DeepSeek-VL2 has the same type and another vision part.
        self.assertFalse(ocr.matches({**PUBLISHED, "vision_config": {"model_type": "vision", "width": 1152}}))
        self.assertFalse(ocr.matches({"model_type": "deepseek_vl_v2"}))

    def test_sizes_have_the_names_of_transformers(self):
        text = ocr.text_sizes(PUBLISHED)
        self.assertEqual((text["hidden_size"], text["n_routed_experts"], text["vocab_size"]), (1280, 64, 129280))
        self.assertEqual(text["mlp_layer_types"], ["dense"] + ["sparse"] * 11)
        self.assertNotIn("kv_lora_rank", text)
        sam = ocr.sam_sizes(PUBLISHED)
        self.assertEqual((sam["image_size"], sam["patch_size"], sam["downsample_channels"]), (1024, 16, [512, 1024]))
        clip = ocr.clip_sizes(PUBLISHED)
        self.assertEqual((clip["hidden_size"], clip["intermediate_size"], clip["num_hidden_layers"]), (1024, 4096, 24))

    def test_a_smaller_decoder_keeps_its_dense_layers(self):
        smaller = copy.deepcopy(PUBLISHED)
        hf_model.overlay(smaller, {"language_config": {"num_hidden_layers": 1}})
        self.assertEqual(ocr.text_sizes(smaller)["mlp_layer_types"], ["dense"])

    def test_an_image_is_its_features_with_line_breaks_and_a_separator(self):
        self.assertEqual((ocr.vision_tokens(1024), ocr.vision_tokens(640)), (16 * 17 + 1, 10 * 11 + 1))

    def test_the_class_of_its_own_code_is_found_through_auto_model(self):
        class Empty:
            def __contains__(self, _config):
                return False

        modeling_auto = types.SimpleNamespace(
            MODEL_FOR_CAUSAL_LM_MAPPING=Empty(), MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING=Empty()
        )
        auto = {name: type(name, (), {}) for name in ("AutoModel", "AutoModelForCausalLM", "AutoModelForImageTextToText")}
        transformers = types.SimpleNamespace(__version__="5.17.0", **auto)
        names = ("transformers", "transformers.models", "transformers.models.auto")
        modules = {name: types.ModuleType(name) for name in names}
        modules[names[-1]].modeling_auto = modeling_auto
        before = {name: sys.modules.get(name) for name in names}
        sys.modules.update(modules)
        try:
            config = types.SimpleNamespace(model_type="deepseek_vl_v2", auto_map=PUBLISHED["auto_map"])
            self.assertIs(hf_model.model_class(transformers, config, "image_text"), transformers.AutoModel)
            with self.assertRaises(hf_common.DriverError):
                hf_model.model_class(transformers, types.SimpleNamespace(model_type="x"), "image_text")
        finally:
            for name, module in before.items():
                sys.modules.pop(name) if module is None else sys.modules.update({name: module})

    def test_code_of_a_folder_runs_only_if_allowed(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
                json.dump(PUBLISHED, file)
            transformers = types.SimpleNamespace(CONFIG_MAPPING={"llama": None})
            allowed = types.SimpleNamespace(model=folder, trust_remote_code=True)
            self.assertIsNone(hf_model.needs_code(transformers, allowed))
            with self.assertRaises(hf_common.DriverError) as failed:
                hf_model.needs_code(transformers, types.SimpleNamespace(model=folder, trust_remote_code=False))
            self.assertIn("model.trust_remote_code=true", str(failed.exception))

    def test_code_that_needs_other_packages_says_so(self):
        args = types.SimpleNamespace(model="/m/DeepSeek-OCR", trust_remote_code=True)
        error = hf_model.not_built("cannot build", args, ImportError("cannot import name 'LlamaFlashAttention2'"))
        self.assertIn("LlamaFlashAttention2", str(error))
        self.assertIn("workload.python", str(error))


if __name__ == "__main__":
    unittest.main()
