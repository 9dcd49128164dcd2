"""TensorRT-LLM with its PyTorch executor, which names its steps itself; some versions leave the tokens out."""

import functools
import inspect


def patch(module, load):
    """Annotates `tensorrt_llm._torch.pyexecutor.py_executor.PyExecutor`."""
    shared = load("roofgap_steps")
    steps = shared.Steps()
    account = shared.Account(load, "TensorRT-LLM", "tensorrt_llm")
    kind = module.PyExecutor
    forward = kind._forward_step
    names_tokens = "ctx tokens" in (shared.ignoring_errors(inspect.getsource, forward) or "")

    @functools.wraps(forward)
    def _forward_step(self, scheduled_requests, *arguments, **keywords):
        account.write(functools.partial(describe, shared), self)
        steps.begin(None if names_tokens else shared.name_or_none(name_of, scheduled_requests))
        try:
            return forward(self, scheduled_requests, *arguments, **keywords)
        finally:
            steps.end()

    kind._forward_step = _forward_step


def name_of(scheduled):
    """Returns the name of newer versions: requests of both kinds, and the prompt tokens of this step."""
    context, generation = scheduled.context_requests, scheduled.generation_requests
    tokens = sum(request.context_chunk_size for request in context)
    return f"[Executor] _forward_step: {len(context)} ctx reqs, {tokens} ctx tokens, {len(generation)} gen reqs"


def describe(shared, probe, account, executor):
    """Fills in the account from the model engine of an executor."""
    if getattr(getattr(executor, "dist", None), "rank", 0) != 0:
        return False
    engine = executor.model_engine
    model, mapping = engine.model, engine.mapping
    config = model.config
    dtype = getattr(config, "torch_dtype", None) or getattr(config, "dtype", None)
    name = getattr(config, "_name_or_path", "") or getattr(config, "model_type", "unknown")
    shared.describe_config(probe, account, name, config, dtype, "local")
    account["model"]["parameters"] = shared.count_parameters(model, mapping.tp_size * mapping.pp_size)
    account["engine"]["parallelism"] = {"tensor": mapping.tp_size, "pipeline": mapping.pp_size}
    return True
