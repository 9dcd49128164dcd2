#!/usr/bin/env python3
"""Writes a folder with a model for a server: the shape of Qwen3 1.7B with a small vocabulary, and a tokenizer of numbered words."""

import json
import os
import sys

from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = 1000


def main(folder):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../crates/roofgap-analyze/presets/qwen3_1_7b.json")
    with open(path, encoding="utf-8") as source:
        config = {**json.load(source), "vocab_size": WORDS, "architectures": ["Qwen3ForCausalLM"], "max_position_embeddings": 40960}
    tokenizer = Tokenizer(models.WordLevel({f"t{number}": number for number in range(WORDS)}, unk_token="t0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    special = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "t0", "eos_token": "t1", "bos_token": "t2", "pad_token": "t1"}
    for name, facts in (("config.json", config), ("tokenizer_config.json", special)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as target:
            json.dump(facts, target)


if __name__ == "__main__":
    main(sys.argv[1])
