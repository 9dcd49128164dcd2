"""Continuous batching of transformers: one range for each step, by what its scheduler put into the batch."""

import functools
import threading


def patch(module, load):
    """Annotates `transformers.generation.continuous_batching.continuous_api.ContinuousBatchProcessor`."""
    shared = load("roofgap_steps")
    annotate = load("roofgap_annotate")
    steps = shared.Steps()
    account = shared.Account(load, "transformers", "transformers")
    prepared = threading.local()
    kind = module.ContinuousBatchProcessor
    step, warmup = kind._generation_step, getattr(kind, "warmup", None)
    tensors = module.ContinuousBatchingIOs.prepare_batch_tensors

    def as_part(call, *arguments, **keywords):
        # The forward pass of a step is not a prefill of its own.
        run = annotate.recorder().run
        run.inside, before = True, run.inside
        try:
            return call(*arguments, **keywords)
        finally:
            run.inside = before

    @functools.wraps(tensors)
    def prepare_batch_tensors(self, requests_in_batch, *arguments, **keywords):
        # Afterwards the position of each request has moved on.
        prepared.name = shared.name_or_none(name_of, shared, requests_in_batch)
        return tensors(self, requests_in_batch, *arguments, **keywords)

    @functools.wraps(step)
    def _generation_step(self, model, *arguments, **keywords):
        account.write(functools.partial(describe, shared), model)
        steps.begin(getattr(prepared, "name", None))
        try:
            return as_part(step, self, model, *arguments, **keywords)
        finally:
            steps.end()

    if warmup is not None:
        kind.warmup = functools.wraps(warmup)(lambda *arguments, **keywords: as_part(warmup, *arguments, **keywords))
        shared.warm_up(steps, kind, "warmup")
    module.ContinuousBatchingIOs.prepare_batch_tensors = prepare_batch_tensors
    kind._generation_step = _generation_step


def name_of(shared, requests):
    """Returns the name of a step. A request reads its prompt until all of that is in the cache."""
    scheduled = ((request.state.position_offset < len(request.state.initial_tokens), request.query_length) for request in requests)
    return shared.step_name("transformers", *shared.count(scheduled))


def describe(shared, probe, account, model):
    """Fills in the account from the model."""
    account["model"] = probe.describe_model(model)
    shared.describe_device(probe, account)
    return True
