"""Continuous batching of transformers: one range for each step, by what its scheduler put into the batch."""

import functools
import threading


def patch(module, load):
    """Annotates `transformers.generation.continuous_batching.continuous_api`, as of transformers 4.57 to 5.17."""
    shared = load("roofgap_steps")
    annotate = load("roofgap_annotate")
    steps = shared.Steps()
    account = shared.Account(load, "transformers", "transformers")
    prepared = threading.local()
    processor, manager = module.ContinuousBatchProcessor, module.ContinuousBatchingManager
    # Before 5.0 the manager runs the step, and the processor is its argument.
    kind = processor if hasattr(processor, "_generation_step") else manager
    step, warmup = kind._generation_step, getattr(kind, "warmup", None)

    def as_part(call, *arguments, **keywords):
        # The forward pass of a step is not a prefill of its own.
        run = annotate.recorder().run
        run.inside, before = True, run.inside
        try:
            return call(*arguments, **keywords)
        finally:
            run.inside = before

    @functools.wraps(step)
    def _generation_step(self, *arguments, **keywords):
        model = self.model if kind is manager else (arguments[0] if arguments else keywords.get("model"))
        account.write(functools.partial(describe, shared), model)
        steps.begin(prepared.__dict__.pop("name", None))
        try:
            return as_part(step, self, *arguments, **keywords)
        finally:
            steps.end()

    if hasattr(module, "ContinuousBatchingIOs"):
        tensors = module.ContinuousBatchingIOs.prepare_batch_tensors

        @functools.wraps(tensors)
        def prepare_batch_tensors(self, requests_in_batch, *arguments, **keywords):
            # Afterwards the position of each request has moved on.
            prepared.name = shared.name_or_none(name_of, shared, requests_in_batch, False)
            return tensors(self, requests_in_batch, *arguments, **keywords)

        module.ContinuousBatchingIOs.prepare_batch_tensors = prepare_batch_tensors
    else:
        prepare = processor.prepare_next_batch

        @functools.wraps(prepare)
        def prepare_next_batch(self, *arguments, **keywords):
            found = prepare(self, *arguments, **keywords)
            prepared.name = shared.name_or_none(name_of, shared, self.requests_in_batch, True) if found else None
            return found

        processor.prepare_next_batch = prepare_next_batch

    if warmup is not None:
        kind.warmup = functools.wraps(warmup)(lambda *arguments, **keywords: as_part(warmup, *arguments, **keywords))
        shared.warm_up(steps, kind, "warmup")
    kind._generation_step = _generation_step


def name_of(shared, requests, moved):
    """Returns the name of a step. A request reads its prompt until all of that is in the cache. `moved`: its position is that after the
    step already."""
    return shared.step_name("transformers", *shared.count(scheduled(request, moved) for request in requests))


def scheduled(request, moved):
    """Returns (is context, tokens) of a request. Newer versions wrap its state; the names of its tokens changed with 5.0."""
    state = getattr(request, "state", request)
    tokens = getattr(request, "query_length", None)
    if tokens is None:
        tokens = len(state.tokens_to_process if hasattr(state, "tokens_to_process") else state.prompt_ids)
    prompt = state.initial_tokens if hasattr(state, "initial_tokens") else state.full_prompt_ids
    position = state.position_offset - (tokens if moved else 0)
    return position < len(prompt), tokens


def describe(shared, probe, account, model):
    """Fills in the account from the model."""
    account["model"] = probe.describe_model(model)
    shared.describe_device(probe, account)
    return True
