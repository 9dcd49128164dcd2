"""vLLM in a program: the time and the tokens of each call of `LLM.generate`, in the account."""

import functools
import time


def patch(module, load):
    """Times `vllm.LLM.generate`."""
    shared = load("roofgap_steps")
    calls = shared.Calls(load, "generate")
    kind = module.LLM
    original = kind.generate

    @functools.wraps(original)
    def generate(self, *arguments, **keywords):
        began = time.perf_counter_ns()
        outputs = original(self, *arguments, **keywords)
        shared.ignoring_errors(add, calls, time.perf_counter_ns() - began, outputs)
        return outputs

    kind.generate = generate


def add(calls, wall_ns, outputs):
    """Adds a call with the tokens of all its answers."""
    answers = (answer for output in outputs for answer in output.outputs)
    calls.add(wall_ns, [list(answer.token_ids) for answer in answers])
