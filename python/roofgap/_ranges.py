"""NVTX ranges that the analysis reads as stages and steps."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import inspect
import sys
from typing import Any, Callable, NamedTuple


class _Nvtx(NamedTuple):
    push: Callable[[str], object]
    pop: Callable[[], object]


_found: _Nvtx | None = None
_searched = False


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
    global _found, _searched
    if _found is None:
        # torch may come later; searching for the others takes long.
        sources = (_from_torch,) if _searched else (_from_torch, _from_package, _from_library)
        _searched = True
        for source in sources:
            with contextlib.suppress(Exception):
                _found = source()
            if _found is not None:
                break
    return _found


class Range:
    """A range of the current thread: a context manager or a decorator. Does nothing in a process without NVTX.

    A generator or an asynchronous function is in the range while it runs, not while it waits: others run on its thread meanwhile.
    """

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

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            return await _Resumed(self, function(*args, **kwargs))

        @functools.wraps(function)
        def generator(*args: Any, **kwargs: Any) -> Any:
            return (yield from _Resumed(self, function(*args, **kwargs)))

        @functools.wraps(function)
        async def asynchronous_generator(*args: Any, **kwargs: Any) -> Any:
            body = function(*args, **kwargs)
            part = body.__anext__()
            while True:
                try:
                    item = await _Resumed(self, part)
                except StopAsyncIteration:
                    return
                try:
                    part = body.asend((yield item))
                except GeneratorExit:
                    await _Resumed(self, body.aclose())
                    raise
                except BaseException as error:
                    # It belongs to the body.
                    part = body.athrow(error)

        @functools.wraps(function)
        def plain(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        if inspect.iscoroutinefunction(function):
            return coroutine
        if inspect.isgeneratorfunction(function):
            return generator
        if inspect.isasyncgenfunction(function):
            return asynchronous_generator
        return plain


class _Resumed:
    """A generator or coroutine with a range around each part that runs."""

    def __init__(self, around: Range, body: Any) -> None:
        self._around = around
        self._body = body if hasattr(body, "send") else body.__await__()

    def __await__(self) -> _Resumed:
        return self

    def __iter__(self) -> _Resumed:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        with self._around:
            return self._body.send(value)

    def throw(self, *error: Any) -> Any:
        with self._around:
            return self._body.throw(*error)

    def close(self) -> None:
        with self._around:
            self._body.close()


def stage(name: str) -> Range:
    """Marks a stage. `prefill` and `decode` are known; name others to the analysis with `--stage NAME=NAME`.

    Also a decorator of functions, generators and asynchronous functions. The GPU operations launched inside belong to the stage, also if
    they run later.
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
    default). The analysis then has stages by what the steps did (prefill, decode, mixed), with tokens per second. As a decorator of a
    generator or an asynchronous function, each part that runs is a step.
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
