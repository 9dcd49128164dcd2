"""vLLM: one range for each step of a worker, from `execute_model` to the end of `sample_tokens`."""

import functools


# Parts of the start of a worker.
PARTS = {
    "init_device": "device",
    "load_model": "weights",
    "determine_available_memory": "trial run",
    "initialize_from_config": "key-value cache",
    "compile_or_warm_up_model": "warm-up",
}


def patch(module, load):
    """Annotates `vllm.v1.worker.gpu_worker.Worker`."""
    shared = load("roofgap_steps")
    steps = shared.Steps()
    account = shared.Account(load, "vLLM", "vllm")
    kind = module.Worker
    execute, sample = kind.execute_model, getattr(kind, "sample_tokens", None)
    start = load("roofgap_probe").Start()
    shared.before(kind, "compile_or_warm_up_model", lambda worker: shared.around(start, worker.model_runner, {"capture_model": "graph capture"}))
    shared.around(start, kind, PARTS)
    shared.warm_up(steps, kind, "determine_available_memory", "compile_or_warm_up_model")
    if shared.LAYERS:
        shared.before(kind, "compile_or_warm_up_model", lambda worker: _name_layers(worker, load))

    @functools.wraps(execute)
    def execute_model(self, scheduler_output, *arguments, **keywords):
        is_step = getattr(scheduler_output, "total_num_scheduled_tokens", 0) > 0
        if is_step:
            account.write(functools.partial(describe, shared, start), self)
        # vLLM names the step itself while its own profiler records the CPU (0.33), while it runs (0.27), or once it exists.
        profiler = getattr(self, "profiler", None)
        own = profiler is not None and getattr(profiler, "should_annotate", getattr(profiler, "is_running", True))
        steps.begin(shared.name_or_none(name_of, shared, scheduler_output) if is_step and not own else None)
        if is_step and not own:
            shared.ignoring_errors(mark_requests, steps, scheduler_output)
        try:
            output = execute(self, scheduler_output, *arguments, **keywords)
        except BaseException:
            steps.end()
            raise
        # Without an output, `sample_tokens` follows and belongs to the step.
        if output is not None or sample is None:
            steps.end()
        return output

    kind.execute_model = execute_model
    if sample is None:
        return

    @functools.wraps(sample)
    def sample_tokens(self, *arguments, **keywords):
        try:
            return sample(self, *arguments, **keywords)
        finally:
            steps.end()

    kind.sample_tokens = sample_tokens


def _name_layers(worker, load):
    load("roofgap_vllm_layers").patch_runner(worker.model_runner, worker, load)


def reading_in(output):
    """Returns the requests that still read their prompts, also in parts: those without output tokens."""
    cached = output.scheduled_cached_reqs
    reading = [request.req_id for request in output.scheduled_new_reqs]
    # A large batch mostly generates; it is not walked through request by request.
    if 0 in cached.num_output_tokens:
        reading += [request for request, outputs in zip(cached.req_ids, cached.num_output_tokens) if outputs == 0]
    return reading


def mark_requests(steps, output):
    """Marks the requests of a step."""
    steps.requests(output.num_scheduled_tokens, reading_in(output))


def name_of(shared, output):
    """Returns the name of a step."""
    tokens, reading = output.num_scheduled_tokens, reading_in(output)
    context = sum(tokens[request] for request in reading)
    generating = len(tokens) - len(reading), output.total_num_scheduled_tokens - context
    return shared.step_name("execute", (len(reading), context), generating)


def parts(start, worker):
    """Returns the parts of the start. The first run of a model compiles it, for a time that vLLM counts."""
    found = start.parts()
    compilation = getattr(worker.vllm_config, "compilation_config", None)
    compiling = int(1e9 * getattr(compilation, "compilation_time", 0))
    for at, part in enumerate(found):
        if part["name"] == "trial run" and 0 < compiling <= part["wall_ns"]:
            part["wall_ns"] -= compiling
            found.insert(at, {"name": "compilation", "wall_ns": compiling})
            break
    return found


def describe(shared, start, probe, account, worker):
    """Fills in the account from the configuration of a worker."""
    account["startup"] = shared.ignoring_errors(parts, start, worker) or []
    config = worker.vllm_config
    model, parallel = config.model_config, config.parallel_config
    if worker.rank != 0 or getattr(parallel, "data_parallel_rank", 0) != 0:
        return False
    weights = "random" if "dummy" in str(config.load_config.load_format).lower() else "local"
    shared.describe_config(probe, account, model.model, model.hf_config, model.dtype, weights)
    ways = {"tensor": parallel.tensor_parallel_size, "pipeline": parallel.pipeline_parallel_size, "data": parallel.data_parallel_size}
    account["model"]["parameters"] = shared.count_parameters(worker.get_model(), ways["tensor"] * ways["pipeline"])
    if getattr(parallel, "enable_expert_parallel", False):
        ways["expert"] = parallel.tensor_parallel_size * parallel.data_parallel_size
    account["engine"]["parallelism"] = ways
    return True
