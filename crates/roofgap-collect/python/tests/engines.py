"""Stand-ins for serving engines: their real module, class and method names, with as much of a step as the adapters read."""

TORCH = {
    "torch/__init__.py": """
        from . import cuda
        bfloat16 = "torch.bfloat16"
    """,
    "torch/cuda/__init__.py": """
        from . import nvtx
        def is_available(): return True
        def current_device(): return 0
        def get_device_name(device): return "Fake GPU"
    """,
    "torch/cuda/nvtx.py": """
        import os
        def _log(text):
            with open(os.environ["FAKE_NVTX_LOG"], "a") as file:
                file.write(text + "\\n")
        def range_push(name): _log(name)
        def range_pop(): _log("/")
        def range_start(name): _log("[ " + name); return name
        def range_end(name): _log("] " + name)
        def mark(text): _log("! " + text)
    """,
    "fake_model.py": """
        class Parameter:
            def numel(self): return 7
        class HfConfig:
            _name_or_path = "local/fake"
            torch_dtype = "torch.bfloat16"
            def to_dict(self): return {"model_type": "qwen3", "hidden_size": 8, "id2label": {}}
        class Model:
            config = HfConfig()
            def parameters(self): return [Parameter(), Parameter()]
    """,
}

VLLM = {
    "vllm/__init__.py": "__version__ = '0.26.0'\n",
    "vllm/entrypoints/__init__.py": "",
    "vllm/entrypoints/llm.py": """
        from types import SimpleNamespace
        class LLM:
            def generate(self, prompts, sampling=None):
                if prompts is None: raise ValueError("no prompts")
                answer = lambda prompt: SimpleNamespace(outputs=[SimpleNamespace(token_ids=[prompt, prompt + 1])])
                return [answer(prompt) for prompt in prompts]
    """,
    "vllm/v1/__init__.py": "",
    "vllm/v1/worker/__init__.py": "",
    "vllm/v1/worker/gpu_worker.py": """
        import time
        from types import SimpleNamespace
        import torch
        from fake_model import HfConfig, Model
        class Worker:
            def __init__(self, rank=0, tensor_parallel_size=1):
                self.rank = rank
                self.profiler = None
                self.vllm_config = SimpleNamespace(
                    model_config=SimpleNamespace(model="Qwen/Qwen3-1.7B", hf_config=HfConfig(), dtype=torch.bfloat16),
                    parallel_config=SimpleNamespace(
                        tensor_parallel_size=tensor_parallel_size, pipeline_parallel_size=1, data_parallel_size=1,
                        data_parallel_rank=0, enable_expert_parallel=False),
                    load_config=SimpleNamespace(load_format="dummy"),
                    compilation_config=SimpleNamespace(compilation_time=0.004))
                self.model_runner = SimpleNamespace(capture_model=lambda: time.sleep(0.003))
            def get_model(self): return Model()
            def load_model(self): time.sleep(0.002)
            def determine_available_memory(self):
                time.sleep(0.006)
                return "memory"
            def compile_or_warm_up_model(self):
                self.model_runner.capture_model()
                return "compiled"
            def execute_model(self, scheduler_output):
                if isinstance(scheduler_output.output, Exception): raise scheduler_output.output
                return scheduler_output.output
            def sample_tokens(self, grammar_output): return ("sampled", grammar_output)
        def scheduled(new={}, cached={}, tokens={}, output=None):
            return SimpleNamespace(
                scheduled_new_reqs=[SimpleNamespace(req_id=name) for name in new],
                scheduled_cached_reqs=SimpleNamespace(req_ids=list(cached), num_output_tokens=list(cached.values())),
                num_scheduled_tokens=tokens, total_num_scheduled_tokens=sum(tokens.values()), output=output)
    """,
}

SGLANG = {
    "sglang/__init__.py": "__version__ = '0.5.16'\n",
    "sglang/srt/__init__.py": "",
    "sglang/srt/managers/__init__.py": "",
    "sglang/srt/managers/scheduler.py": """
        from enum import IntEnum, auto
        from types import SimpleNamespace
        import torch
        from fake_model import HfConfig
        class ForwardMode(IntEnum):
            EXTEND = auto()
            DECODE = auto()
            MIXED = auto()
            IDLE = auto()
        class Scheduler:
            def __init__(self, tp_rank=0):
                self.ps = SimpleNamespace(tp_rank=tp_rank, pp_rank=0, dp_rank=None)
                self.model_config = SimpleNamespace(hf_config=HfConfig(), dtype=torch.bfloat16)
                self.server_args = SimpleNamespace(model_path="Qwen/Qwen3-1.7B", load_format="auto", tp_size=2, pp_size=1, dp_size=1, ep_size=2)
            def run_batch(self, batch, pp_proxy_tensors=None): return ("ran", len(batch.reqs))
        def batch(mode, reqs, tokens=None, decoding=None):
            return SimpleNamespace(forward_mode=mode, reqs=reqs, extend_num_tokens=tokens, decoding_reqs=decoding)
    """,
}

TENSORRT_LLM = {
    "tensorrt_llm/__init__.py": "__version__ = '1.0.0'\n",
    "tensorrt_llm/_torch/__init__.py": "",
    "tensorrt_llm/_torch/pyexecutor/__init__.py": "",
    "tensorrt_llm/_torch/pyexecutor/py_executor.py": """
        from types import SimpleNamespace
        import torch
        from fake_model import Model
        class PyExecutor:
            def __init__(self):
                self.dist = SimpleNamespace(rank=0)
                self.model_engine = SimpleNamespace(model=Model(), mapping=SimpleNamespace(tp_size=1, pp_size=1))
            def _forward_step(self, scheduled_requests, new_tensors_device=None):
                return "logits"
        class NewerExecutor(PyExecutor):
            def _forward_step(self, scheduled_requests, new_tensors_device=None):
                name = f"[Executor] _forward_step 1: 1 ctx reqs, 8 ctx tokens, 0 gen reqs"
                torch.cuda.nvtx.range_push(name)
                torch.cuda.nvtx.range_pop()
                return "logits"
        def scheduled(chunks, generating):
            return SimpleNamespace(
                context_requests=[SimpleNamespace(context_chunk_size=size) for size in chunks], generation_requests=[None] * generating)
    """,
}

# The scheduler marks a request as decoding once its last prompt tokens are scheduled, so its status says nothing about this step.
BATCHING = {
    "transformers/generation/continuous_batching/__init__.py": "",
    "transformers/generation/continuous_batching/continuous_api.py": """
        from types import SimpleNamespace
        class ContinuousBatchingIOs:
            def prepare_batch_tensors(self, requests_in_batch, logits_processors=None):
                for request in requests_in_batch:
                    request.state.position_offset += request.query_length
        class ContinuousBatchProcessor:
            def __init__(self): self.inputs_and_outputs = ContinuousBatchingIOs()
            def warmup(self, model): model(input_ids=model.ids)
            def _generation_step(self, model): model(input_ids=model.ids)
        class ContinuousBatchingManager: pass
        def request(prompt, done, query):
            return SimpleNamespace(state=SimpleNamespace(initial_tokens=[0] * prompt, position_offset=done), query_length=query)
    """,
}

# The processor of 5.0 keeps plain states of requests, whose position moves while the batch is prepared.
BATCHING_5_0 = {
    "transformers/generation/continuous_batching/__init__.py": "",
    "transformers/generation/continuous_batching/continuous_api.py": """
        from types import SimpleNamespace
        class ContinuousBatchProcessor:
            def __init__(self, requests): self.waiting = requests
            def prepare_next_batch(self):
                self.requests_in_batch = self.waiting
                for state in self.requests_in_batch: state.position_offset += len(state.tokens_to_process)
                return bool(self.requests_in_batch)
            def _generation_step(self, model, logit_processor, do_sample): model(input_ids=model.ids)
        class ContinuousBatchingManager: pass
        def request(prompt, done, query):
            return SimpleNamespace(initial_tokens=[0] * prompt, position_offset=done, tokens_to_process=[0] * query)
    """,
}

# In 4.57 the manager runs the step, and warms up without preparing a batch.
BATCHING_4_57 = {
    "transformers/generation/continuous_batching/__init__.py": "",
    "transformers/generation/continuous_batching/continuous_api.py": """
        from types import SimpleNamespace
        class ContinuousBatchProcessor:
            def __init__(self, requests): self.waiting = requests
            def prepare_next_batch(self):
                self.requests_in_batch = self.waiting
                for state in self.requests_in_batch: state.position_offset += len(state.prompt_ids)
                return bool(self.requests_in_batch)
        class ContinuousBatchingManager:
            def __init__(self, model): self.model = model
            def warmup(self, batch_processor): self._generation_step(batch_processor)
            def _generation_step(self, batch_processor): self.model(input_ids=self.model.ids)
        def request(prompt, done, query):
            return SimpleNamespace(full_prompt_ids=[0] * prompt, position_offset=done, prompt_ids=[0] * query)
    """,
}

DISTRIBUTED = {
    "torch/distributed/__init__.py": """
        from .distributed_c10d import *
    """,
    "torch/distributed/distributed_c10d.py": """
        class Tensor:
            device = "cuda:0"
            def __init__(self, numel, size=4): self._numel, self._size = numel, size
            def numel(self): return self._numel
            def element_size(self): return self._size
        class ProcessGroupGloo: pass
        class ProcessGroupNCCL: pass
        class Group:
            def __init__(self, name, desc, ranks, backend=ProcessGroupGloo):
                self.group_name, self.group_desc, self.ranks, self.backend = name, desc, ranks, backend()
            def size(self): return len(self.ranks)
            def _get_backend(self, device): return self.backend
        class group: WORLD = None
        class GroupMember: NON_GROUP_MEMBER = -100
        def init_process_group(backend=None): group.WORLD = Group("0", "default_pg", [0, 1, 2, 5])
        def get_rank(): return 1
        def get_world_size(): return 8
        def get_process_group_ranks(of): return of.ranks
        def get_global_rank(of, rank): return of.ranks[rank]
        def get_backend(of): return "gloo"
        def all_reduce(tensor, op=None, group=None, async_op=False): return "reduced"
        def all_gather(tensor_list, tensor, group=None, async_op=False):
            return all_reduce(tensor)
        def barrier(group=None, async_op=False, device_ids=None): raise RuntimeError("timeout")
        def isend(tensor, dst=None, group=None, tag=0, group_dst=None): return "work"
        def send(tensor, dst=None, group=None, tag=0, group_dst=None): isend(tensor, dst, group, tag, group_dst)
        def recv(tensor, src=None, group=None, tag=0, group_src=None): return 0
    """,
}
