"""NVTX ranges that the analysis reads as stages and steps."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from typing import Callable, NamedTuple


class _Nvtx(NamedTuple):
    push: Callable[[str], object]
    pop: Callable[[], object]


_found: _Nvtx | None = None


def _from_torch() -> _Nvtx | None:
    # Importing torch takes seconds: a program that needs it has done so.
    torch = sys.modules.get("torch")
    # A build without CUDA has the functions too, but they fail.
    if torch is None or not hasattr(torch._C, "_nvtx"):
        return None
    nvtx = torch.cuda.nvtx
    return _Nvtx(nvtx.range_push, nvtx.range_pop)


def _from_package() -> _Nvtx | None:
    import nvtx  # type: ignore[import-not-found, unused-ignore]

    return _Nvtx(nvtx.push_range, nvtx.pop_range)


def _from_library() -> _Nvtx | None:
    library = ctypes.CDLL("libnvToolsExt.so.1")
    push = library.nvtxRangePushA
    push.argtypes = [ctypes.c_char_p]
    return _Nvtx(lambda name: push(name.encode()), library.nvtxRangePop)


def _nvtx() -> _Nvtx | None:
    """Returns the NVTX of the process; None where there is none yet."""
    global _found
    if _found is None:
        for source in (_from_torch, _from_package, _from_library):
            with contextlib.suppress(Exception):
                _found = source()
            if _found is not None:
                break
    return _found


class Range(contextlib.ContextDecorator):
    """A range of the current thread: a context manager or a decorator. Does nothing in a process without NVTX."""

    def __init__(self, name: str) -> None:
        self.name = name
        # What pushed a range pops it, also if another NVTX appears in between.
        self._open: list[_Nvtx | None] = []

    def __enter__(self) -> None:
        nvtx = _nvtx()
        self._open.append(nvtx)
        if nvtx is not None:
            nvtx.push(self.name)

    def __exit__(self, *_error: object) -> None:
        nvtx = self._open.pop()
        if nvtx is not None:
            nvtx.pop()


def stage(name: str) -> Range:
    """Marks a stage. `prefill` and `decode` are known; name others to the analysis with `--stage NAME=NAME`.

    Also a decorator of functions. The GPU operations launched inside belong to the stage, also if they run later.
    """
    if not name:
        raise ValueError("a stage needs a name")
    return Range(name)


def step(
    *,
    prompts: int = 0,
    prompt_tokens: int | None = None,
    sequences: int = 0,
    new_tokens: int | None = None,
) -> Range:
    """Marks a step.

    Without arguments it is a step of decode inside `stage("decode")`. With counts it stands alone, as the step of a serving engine:
    `prompts` requests read `prompt_tokens` tokens of their prompts, and `sequences` requests generate `new_tokens` tokens (one each by
    default). The analysis then has stages by what the steps did (prefill, decode, mixed), with tokens per second.
    """
    if prompts == 0 and prompt_tokens is None and sequences == 0 and new_tokens is None:
        return Range("decode_step")
    return Range(step_name(prompts, prompt_tokens, sequences, new_tokens))


def step_name(prompts: int, prompt_tokens: int | None, sequences: int, new_tokens: int | None) -> str:
    """Returns the name of a step with counts, in the form that the analysis reads."""
    if prompts and prompt_tokens is None:
        raise ValueError("prompts are given without prompt_tokens")
    read = prompt_tokens or 0
    generated = sequences if new_tokens is None else new_tokens
    # Tokens without a number of requests are those of one.
    prompts = prompts or int(read > 0)
    sequences = sequences or int(generated > 0)
    if min(prompts, read, sequences, generated) < 0:
        raise ValueError("counts of a step are not negative")
    return f"roofgap_context_{prompts}({read})_generation_{sequences}({generated})"
