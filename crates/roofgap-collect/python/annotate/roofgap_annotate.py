"""Annotates the stages of transformers models in an unmodified program, and writes an account.

In `generate`, the first forward pass is `LLM@prefill`; those that follow are `LLM@decode_step` inside one `LLM@decode_all`. A forward pass
outside `generate` is `LLM@prefill` if it takes more than one token or has no cache, else `LLM@decode_step` inside `LLM@decode`.
"""

import atexit
import functools
import hashlib
import importlib.util
import os
import sys
import threading
import time
import weakref

_PARENT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Repeats kept in the account; the memory of a long-running server must not grow.
MAX_REPEATS = 1000
# Seconds between two writes of the account.
WRITE_INTERVAL = 2.0


def _load_probe():
    spec = importlib.util.spec_from_file_location("roofgap_probe", os.path.join(_PARENT, "roofgap_probe.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


probe = _load_probe()


def _torch():
    return sys.modules.get("torch")


def _capturing(torch):
    """Returns true during CUDA graph capture, when a synchronization would fail."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


class _ThreadState(threading.local):
    """State of the current thread."""

    # Model whose `generate` runs.
    model = None
    # Weak reference to the model of the last prefill, and its repeat.
    of = None
    repeat = None
    # The range `decode_all` is open.
    decoding = False
    # An annotated forward pass runs; nested passes are parts of it.
    inside = False


class _ModelState:
    """State of a model, kept while the program keeps the model."""

    def __init__(self, model, ranges, sync):
        torch = _torch()
        self.devices = sorted({str(p.device) for p in model.parameters() if p.device.type == "cuda"}) if sync else []
        self.notes = probe.VisionNotes(model, ranges, probe.Clock(torch, bool(self.devices)))
        self.image_token = getattr(model.config, "image_token_id", None)
        self.vision = None


class Recorder:
    """Recorder of stages. Its errors are left out of the account and never reach the program."""

    def __init__(self, path, ranges=None, sync=True):
        self.path = path
        self.sync = sync
        self.run = _ThreadState()
        self._ranges = ranges
        self._lock = threading.Lock()
        # Weak, so that models the program drops are freed.
        self._watched = weakref.WeakKeyDictionary()
        self._facts = None
        self._repeats = []
        self._hash = None
        self._written = 0.0
        self._ours = None
        self._begun = time.time()
        self._pid = os.getpid()

    @property
    def ranges(self):
        if self._ranges is None:
            self._ranges = probe.Ranges(_torch())
        return self._ranges

    # Forward passes

    def forward(self, model, call, arguments, keywords):
        """Annotates and times a forward pass of a generating model."""
        try:
            query, batch, cached = shape_of(arguments, keywords)
        except Exception:
            query, batch, cached = None, None, False
        generating = self.run.model is model
        if not generating and query is None:
            return call(*arguments, **keywords)
        started = self._repeat(model) is not None
        decode = query == 1 and (started if generating else cached)
        self.run.inside = True
        try:
            if decode:
                return self._decode(model, call, arguments, keywords, generating)
            return self._prefill(model, call, arguments, keywords, query, batch, generating and started)
        finally:
            self.run.inside = False

    def _prefill(self, model, call, arguments, keywords, query, batch, more):
        watched = self._watch(model)
        begin = time.perf_counter_ns()
        self.ranges.push("prefill", probe.LLM)
        try:
            return call(*arguments, **keywords)
        finally:
            self._wait(watched)
            self.ranges.pop(probe.LLM)
            wall = time.perf_counter_ns() - begin
            _ignoring(self._end_prefill, model, watched, keywords, (begin, wall), query, batch, more)

    def _end_prefill(self, model, watched, keywords, when, query, batch, more):
        begin, wall = when
        notes = watched.notes.take() if watched is not None else []
        repeat = self._repeat(model)
        if more and repeat is not None and not repeat["steps"]:
            # A prompt processed in parts is one prefill.
            repeat["prefill"] += wall
            repeat["prompt"] += query or 0
            repeat["notes"] += notes
        else:
            repeat = {"begin": begin, "prefill": wall, "prompt": query or 0, "batch": batch or 1, "notes": notes, "steps": [], "end": None}
            with self._lock:
                self._repeats.append(repeat)
                del self._repeats[:-MAX_REPEATS]
            self.run.of, self.run.repeat = weakref.ref(model), repeat
        ids = keywords.get("input_ids")
        if watched is not None and watched.vision is None and watched.image_token is not None and ids is not None:
            watched.vision = int((ids == watched.image_token).sum()) // max(batch or 1, 1)
        repeat["vision"] = watched.vision if watched is not None else None

    def _decode(self, model, call, arguments, keywords, generating):
        repeat = self._repeat(model)
        if not generating:
            self.ranges.push("decode", probe.LLM)
        elif not self.run.decoding:
            self.ranges.push("decode_all", probe.LLM)
            self.run.decoding = True
        self.ranges.push("decode_step", probe.LLM)
        begin = time.perf_counter_ns()
        try:
            return call(*arguments, **keywords)
        finally:
            end = time.perf_counter_ns()
            self.ranges.pop(probe.LLM)
            if not generating:
                self.ranges.pop(probe.LLM)
            if repeat is not None:
                # A step lasts until the next one starts, so it includes choosing the token.
                repeat["steps"].append(begin)
                repeat["end"] = end

    def generate(self, model, call, arguments, keywords):
        """Annotates `generate`: closes the ranges of its forward passes, and hashes its tokens."""
        if self.run.model is not None:
            return call(model, *arguments, **keywords)
        self.run.model, self.run.of, self.run.repeat, self.run.decoding = model, None, None, False
        try:
            result = call(model, *arguments, **keywords)
        finally:
            end = time.perf_counter_ns()
            if self.run.decoding:
                self.ranges.pop(probe.LLM)
            repeat = self._repeat(model)
            if repeat is not None and repeat["steps"]:
                repeat["end"] = end
            self.run.model, self.run.of, self.run.repeat, self.run.decoding = None, None, None, False
        _ignoring(self._keep_tokens, result)
        _ignoring(self.write, False)
        return result

    def _repeat(self, model):
        """Returns the current repeat of this thread, if it belongs to the model."""
        of = self.run.of
        return self.run.repeat if of is not None and of() is model else None

    def _wait(self, watched):
        torch = _torch()
        if self.sync and watched is not None and watched.devices and not _capturing(torch):
            for device in watched.devices:
                torch.cuda.synchronize(device)

    def _watch(self, model):
        if model not in self._watched:
            try:
                self._watched[model] = _ModelState(model, self.ranges, self.sync)
                self._learn(model)
            except Exception as error:
                _report(error)
                self._watched.setdefault(model, None)
        return self._watched[model]

    # The account

    def _learn(self, model):
        if self._facts is None:
            torch = _torch()
            device = getattr(model, "device", "cpu")
            self._facts = probe.describe_model(model), probe.device_facts(torch, device)

    def _keep_tokens(self, result):
        sequences = getattr(result, "sequences", result)
        if hasattr(sequences, "tolist") and getattr(sequences, "dim", lambda: 0)() == 2:
            if self._hash is None:
                self._hash = hashlib.sha256()
            self._hash.update(probe.token_hash(sequences.tolist()).encode("ascii"))

    def account(self):
        """Returns the account of all recorded repeats."""
        account = probe.new_account()
        if self._facts is not None:
            account["model"], account["device"] = self._facts
        with self._lock:
            repeats = list(self._repeats)
        for repeat in repeats:
            stages = [probe.stage("prefill", repeat["prefill"], None, repeat["notes"], repeat["begin"])]
            starts = repeat["steps"]
            if starts:
                moments = starts + [repeat["end"]]
                steps = [b - a for a, b in zip(moments, moments[1:])]
                stages.append(probe.stage("decode", repeat["end"] - starts[0], steps, (), starts[0]))
            account["repeats"].append({"warmup": False, "stages": stages})
        if repeats:
            last = repeats[-1]
            account["tokens"] = {
                "prompt": last["prompt"],
                "generated": len(last["steps"]),
                "batch": last["batch"],
                "vision": last.get("vision"),
            }
        account["token_hash"] = f"sha256:{self._hash.hexdigest()}" if self._hash is not None else None
        account["notes"].append(
            "stages were annotated automatically: each forward pass of a transformers model, by its number of tokens"
        )
        if not self.sync:
            account["notes"].append("the device was not synchronized after prefill, so its wall time is the launch time")
        if len({(r["prompt"], len(r["steps"])) for r in repeats}) > 1:
            account["notes"].append("prompts or answers differ in length between repeats; the token counts are those of the last")
        if self._ranges is not None and self._ranges.note:
            account["notes"].append(self._ranges.note)
        return account

    def write(self, last=True):
        """Writes the account, unless it is empty, the program wrote its own, or this is a forked child."""
        if not self.path or not self._repeats or os.getpid() != self._pid:
            return
        now = time.monotonic()
        if not last and now - self._written < WRITE_INTERVAL:
            return
        if self._theirs():
            return
        probe.write_account(self.account(), self.path)
        self._written = now
        self._ours = _stamp(self.path)

    def _theirs(self):
        """Returns true when the program itself wrote the file, which then takes precedence."""
        found = _stamp(self.path)
        if found is None or found == self._ours:
            return False
        return self._ours is not None or os.path.getmtime(self.path) >= self._begun - 1


def _stamp(path):
    """Returns a value that changes with every write of a file."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def shape_of(arguments, keywords):
    """Returns (tokens, batch, has cache) of a forward pass; None for no tokens."""
    for key in ("inputs_embeds", "input_ids", "decoder_input_ids"):
        value = keywords.get(key)
        if value is not None and hasattr(value, "shape") and len(value.shape) >= 2:
            break
    else:
        value = arguments[0] if arguments and hasattr(arguments[0], "shape") and len(arguments[0].shape) == 2 else None
    if value is None:
        return None, None, False
    past = keywords.get("past_key_values")
    length = getattr(past, "get_seq_length", None)
    if past is None:
        cached = False
    elif length is None:
        cached = True
    else:
        # A static cache keeps its length on the device; reading it would synchronize. One token with a cache is decode.
        cached = value.shape[1] == 1
    return int(value.shape[1]), int(value.shape[0]), cached


def _ignoring(call, *arguments):
    try:
        call(*arguments)
    except Exception as error:
        _report(error)


def _report(error):
    if os.environ.get("ROOFGAP_ANNOTATE_DEBUG"):
        print(f"roofgap: annotation failed: {type(error).__name__}: {error}", file=sys.stderr)


_recorder = None


def recorder():
    """Returns the recorder of this process."""
    global _recorder
    if _recorder is None:
        sync = os.environ.get("ROOFGAP_ANNOTATE_SYNC", "1") != "0"
        _recorder = Recorder(os.environ.get("ROOFGAP_WORKLOAD_JSON"), sync=sync)
        atexit.register(_ignoring, _recorder.write)
    return _recorder


def patch_models(module):
    """Annotates the forward passes of generating models."""
    kind = module.PreTrainedModel
    original = kind.__call__
    compiler = getattr(_torch(), "compiler", None)
    # Bound here: a compiler that traces the wrapper must find only this call.
    is_compiling = getattr(compiler, "is_compiling", None) or (lambda: False)

    @functools.wraps(original)
    def __call__(self, *arguments, **keywords):
        if is_compiling():
            return original(self, *arguments, **keywords)
        found = recorder()
        if found.run.inside or not generates(type(self)):
            return original(self, *arguments, **keywords)
        # Inside `generate`, only its own model is annotated, not helper models.
        if found.run.model is not None and found.run.model is not self:
            return original(self, *arguments, **keywords)
        return found.forward(self, functools.partial(original, self), arguments, keywords)

    kind.__call__ = __call__
    _patch_compiled_call(kind)


@functools.lru_cache(maxsize=None)
def generates(kind):
    """Returns true when a class of models generates tokens."""
    try:
        return bool(kind.can_generate())
    except Exception:
        return False


def patch_generation(module):
    """Annotates `generate`."""
    kind = module.GenerationMixin
    generate = kind.generate

    @functools.wraps(generate)
    def annotated(self, *arguments, **keywords):
        return recorder().generate(self, generate, arguments, keywords)

    kind.generate = annotated
    _patch_compiled_call(kind)


def _patch_compiled_call(kind):
    """Annotates the compiled forward pass that `generate` uses for decode with a static cache, on the class that defines it."""
    compiled = vars(kind).get("get_compiled_call")
    if compiled is None:
        return

    @functools.wraps(compiled)
    def get_compiled_call(self, *arguments, **keywords):
        call = compiled(self, *arguments, **keywords)

        def step(*inputs, **more):
            found = recorder()
            if found.run.model is not self or found.run.inside:
                return call(*inputs, **more)
            return found.forward(self, call, inputs, more)

        return step

    kind.get_compiled_call = get_compiled_call
