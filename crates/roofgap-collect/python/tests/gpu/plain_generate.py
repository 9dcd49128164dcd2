"""A program without any roofgap code: a transformers model with random weights that calls `generate` twice."""

import torch
from transformers import AutoConfig, AutoModelForCausalLM

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
config = AutoConfig.for_model(
    "qwen3",
    hidden_size=1024,
    num_hidden_layers=28,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    intermediate_size=3072,
    vocab_size=151936,
    tie_word_embeddings=True,
)
with torch.device(device):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
prompt = torch.randint(3, 1000, (1, 256), device=device)
for _ in range(2):
    out = model.generate(prompt, max_new_tokens=33, do_sample=False, eos_token_id=None, pad_token_id=0)
print(out[0, -8:].tolist())
