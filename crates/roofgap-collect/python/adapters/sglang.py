"""SGLang: one range for each batch of the scheduler, with the names that SGLang gives its own profiler spans."""

import functools
import sys


def patch(module, load):
    """Annotates `sglang.srt.managers.scheduler.Scheduler`."""
    shared = load("roofgap_steps")
    steps = shared.Steps()
    account = shared.Account(load, "SGLang", "sglang")
    kind = module.Scheduler
    run = kind.run_batch

    @functools.wraps(run)
    def run_batch(self, batch, *arguments, **keywords):
        account.write(functools.partial(describe, shared), self)
        steps.begin(shared.name_or_none(name_of, batch))
        try:
            return run(self, batch, *arguments, **keywords)
        finally:
            steps.end()

    kind.run_batch = run_batch


def name_of(batch):
    """Returns `step[MODE bs=N ...]`. Tokens of a mixed batch are known for each half."""
    mode, requests = batch.forward_mode.name, len(batch.reqs)
    if mode == "MIXED":
        # One token for each request that generates; they stand last.
        generating = len(getattr(batch, "decoding_reqs", None) or [])
        reading = requests - generating
        tokens = batch.extend_num_tokens - generating
        return f"step[MIXED bs={requests} c={reading} g={generating} c_sq={tokens} g_sq={generating}]"
    if mode == "DECODE":
        # With a draft model, how many tokens a step yields is known after it.
        algorithm = getattr(batch, "spec_algorithm", None)
        drafts = algorithm is not None and not algorithm.is_none()
        return f"step[{'VERIFY' if drafts else 'DECODE'} bs={requests}]"
    tokens = getattr(batch, "extend_num_tokens", None)
    return f"step[{mode} bs={requests}" + (f" toks={tokens}]" if tokens is not None else "]")


def describe(shared, probe, account, scheduler):
    """Fills in the account from the configuration of a scheduler."""
    # Ranks and sizes moved from the scheduler into an object of their own, and with 0.5.21 into that of the process.
    runtime = sys.modules.get("sglang.srt.runtime_context")
    parallel = getattr(scheduler, "ps", None) or (runtime.get_parallel() if hasattr(runtime, "get_parallel") else scheduler)
    if any(getattr(parallel, name, 0) for name in ("tp_rank", "pp_rank", "dp_rank")):
        return False
    model, arguments = scheduler.model_config, scheduler.server_args
    weights = "random" if str(getattr(arguments, "load_format", "")).lower() == "dummy" else "local"
    shared.describe_config(probe, account, arguments.model_path, model.hf_config, model.dtype, weights)
    ways = {"tensor": arguments.tp_size, "pipeline": arguments.pp_size, "data": arguments.dp_size}
    if (getattr(arguments, "ep_size", None) or 1) > 1:
        ways["expert"] = arguments.ep_size
    account["engine"]["parallelism"] = ways
    return True
