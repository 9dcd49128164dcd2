"""Holds a vLLM engine and runs one generate per request on a socket, with the limits of the scheduler that the request names."""
import hashlib, json, os, socket, sys, time
from vllm import LLM, SamplingParams

mode = sys.argv[1]
llm = LLM(model="model", load_format="dummy", skip_tokenizer_init=True, enforce_eager=mode == "eager", gpu_memory_utilization=0.35,
          max_num_seqs=256, max_num_batched_tokens=8192, max_model_len=1024, enable_prefix_caching=False, seed=0)
scheduler = llm.llm_engine.engine_core.engine_core.scheduler
assert hasattr(scheduler, "max_num_running_reqs") and hasattr(scheduler, "max_num_scheduled_tokens"), "this vLLM names its limits otherwise"
prompts = [{"prompt_token_ids": [(7 * i + j) % 10000 + 1 for j in range(256)]} for i in range(128)]
sampling = SamplingParams(temperature=0.0, max_tokens=64, ignore_eos=True, detokenize=False)


def generate(seqs, tokens):
    scheduler.max_num_running_reqs, scheduler.max_num_scheduled_tokens = seqs, tokens
    began = time.perf_counter_ns()
    outputs = llm.generate(prompts, sampling, use_tqdm=False)
    wall = time.perf_counter_ns() - began
    ids = [list(output.outputs[0].token_ids) for output in outputs]
    return {"wall_ns": wall, "hash": hashlib.sha256(json.dumps(ids).encode()).hexdigest(), "tokens": sum(map(len, ids))}


generate(256, 8192)
path = f"{mode}.sock"
server = socket.socket(socket.AF_UNIX)
server.bind(path + ".new")
server.listen()
os.rename(path + ".new", path)
while True:
    connection, _ = server.accept()
    with connection, connection.makefile("rw") as file:
        request = json.loads(file.readline())
        file.write(json.dumps(generate(request["seqs"], request["tokens"])) + "\n")
