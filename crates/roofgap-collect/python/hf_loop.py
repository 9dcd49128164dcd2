"""Prefill and decode loops, written out so that each stage can be annotated and timed. The caller passes torch."""

import inspect
import time

import roofgap_probe as probe
from hf_common import EXIT_FAILED, DriverError, one_line, report


def measure(torch, args, model, inputs, device):
    """Runs warm-ups and repeats, each with the next of the inputs in turn; returns the account."""
    ranges = probe.Ranges(torch)
    loop = Loop(torch, args, model, inputs, device, ranges)
    account = probe.new_account()
    account["model"] = probe.describe_model(model)
    account["model"]["weights"] = "local" if args.model else "random"
    account["model"]["name"] = args.name or account["model"]["name"]
    account["model"]["revision"] = args.revision or account["model"]["revision"]
    account["device"] = probe.device_facts(torch, device)
    account["tokens"] = {
        "prompt": mean([each.prompt for each in inputs]),
        "generated": args.new_tokens,
        "batch": args.batch,
        "vision": mean([each.vision for each in inputs]),
    }
    account["notes"] = list(dict.fromkeys(note for each in inputs for note in each.notes))
    lengths = sorted({each.prompt for each in inputs})
    if len(lengths) > 1:
        account["notes"].append(f"prompts have {lengths[0]} to {lengths[-1]} tokens; the account has their mean")
    runs = 1 if args.profile_operators else args.repeats
    if len(inputs) > runs:
        account["notes"].append(f"{runs} of {len(inputs)} batches of the manifest were used")
    if not args.model:
        account["notes"].insert(0, f"random weights (seed {args.seed}): the tokens are meaningless, only their cost counts")
    if type(model).__module__.startswith("transformers_modules"):
        account["notes"].insert(0, "the model ran through the Python code in its own folder")
    if ranges.note:
        account["notes"].append(ranges.note)
    if device.type == "cuda" and (args.compile or args.cuda_graphs):
        account["notes"].append(
            "decode runs "
            + " and ".join(way for way, on in (("through torch.compile", args.compile), ("as a CUDA graph", args.cuda_graphs)) if on)
        )

    hashes = []
    with torch.inference_mode():
        for number in range(args.warmup):
            ranges.push("warmup", probe.LLM)
            stages, tokens = loop.once(number)
            ranges.pop(probe.LLM)
            account["repeats"].append({"warmup": True, "stages": stages})
            hashes.append((loop.turn, probe.token_hash(tokens)))
            report(describe(f"warm-up {number + 1} of {args.warmup}", stages))
        if args.profile_operators:
            stages, tokens, account["operators"] = profiled(torch, args, loop, device)
            account["repeats"].append({"warmup": False, "stages": stages})
            hashes.append((loop.turn, probe.token_hash(tokens)))
            account["notes"].append("operators come from one repeat under torch.profiler, which adds overhead")
        else:
            for number in range(args.repeats):
                stages, tokens = loop.once(number)
                account["repeats"].append({"warmup": False, "stages": stages})
                hashes.append((loop.turn, probe.token_hash(tokens)))
                report(describe(f"repeat {number + 1} of {args.repeats}", stages))
    account["token_hash"] = hashes[-1][1]
    account["device_memory_bytes"] = probe.peak_memory(torch, device)
    outputs, turns = len(set(hashes)), len({turn for turn, _ in hashes})
    if outputs > turns:
        of = "" if turns == 1 else f" from {turns} inputs"
        account["notes"].append(f"repeats produced {outputs} different outputs{of}; the hash is that of the last")
    return account


def describe(what, stages):
    return what + ": " + ", ".join(f"{stage['name']} {stage['wall_ns'] / 1e6:.1f} ms" for stage in stages)


def mean(values):
    """Returns the mean as an integer; None if one is unknown."""
    return None if None in values else round(sum(values) / len(values))


class Loop:
    """Repeated generation, each time from the next of the inputs."""

    def __init__(self, torch, args, model, inputs, device, ranges):
        self.torch = torch
        self.args = args
        self.model = model
        self.all_inputs = inputs
        self.inputs = inputs[0]
        self.turn = 0
        self.device = device
        self.ranges = ranges
        self.clock = probe.Clock(torch, device.type == "cuda")
        self.notes = probe.VisionNotes(model, ranges, self.clock)
        takes = inspect.signature(model.forward).parameters
        self.last_only = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}
        # Models that keep a state in place of keys and values name it differently.
        self.cache_name = next((name for name in ("cache_params", "state") if name in takes), "past_key_values")
        longest = max(each.prompt for each in inputs)
        if args.cuda_graphs and any(each.prompt != longest for each in inputs):
            raise DriverError(EXIT_FAILED, "--cuda-graphs: the prompts of the manifest have different lengths; use prompts of the same length")
        self.static = static_cache(model, longest + args.new_tokens) if args.compile or args.cuda_graphs else None
        self.forward = torch.compile(model.forward) if args.compile else model
        self.graph = None

    def once(self, number=0):
        """Runs prefill and decode of repeat `number`; returns the stages and the tokens of each sequence."""
        self.turn = number % len(self.all_inputs)
        self.inputs = self.all_inputs[self.turn]
        torch, clock, ranges = self.torch, self.clock, self.ranges
        cache = self.static
        if cache is not None:
            cache.reset()
        self.notes.take()
        self.wait()
        begin = time.perf_counter_ns()
        ranges.push("prefill", probe.LLM)
        out = self.model(**self.inputs.arguments, **self.last_only, **{self.cache_name: cache}, use_cache=True)
        token = out.logits[:, -1:].argmax(-1)
        self.wait()
        ranges.pop(probe.LLM)
        prefill = time.perf_counter_ns() - begin
        notes = self.notes.take()

        cache = getattr(out, self.cache_name)
        del out
        step = self.stepper(cache, token)
        tokens = [token]
        self.wait()
        begin_decode = time.perf_counter_ns()
        ranges.push("decode_all", probe.LLM)
        moments = [clock.now()]
        for number in range(self.args.new_tokens):
            ranges.push("decode_step", probe.LLM)
            token = step(token, number)
            tokens.append(token)
            moments.append(clock.now())
            ranges.pop(probe.LLM)
        self.wait()
        ranges.pop(probe.LLM)
        decode = time.perf_counter_ns() - begin_decode
        steps = [clock.between(a, b) for a, b in zip(moments, moments[1:])]
        stages = [probe.stage("prefill", prefill, None, notes, begin), probe.stage("decode", decode, steps, (), begin_decode)]
        return stages, torch.cat(tokens, dim=1).tolist()

    def wait(self):
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)

    def stepper(self, cache, token):
        """Returns a function from a token and a step number to the next token."""
        past = self.inputs.prompt
        mask = self.inputs.arguments.get("attention_mask")
        # A mask of ones has no effect; without it, no mask has to grow with each token.
        padded = mask is not None and bool((mask == 0).any())
        if self.args.cuda_graphs:
            if padded:
                raise DriverError(
                    EXIT_FAILED, "--cuda-graphs: a batch with prompts of different lengths cannot be replayed; use prompts of the same length"
                )
            return self.replayed(cache, token, past)
        state = {"mask": mask}

        def eager(token, _number):
            more = {}
            if padded:
                state["mask"] = self.torch.cat([state["mask"], state["mask"].new_ones(state["mask"].shape[0], 1)], dim=1)
                more["attention_mask"] = state["mask"]
            out = self.forward(input_ids=token, **{self.cache_name: cache}, use_cache=True, **more)
            return out.logits[:, -1:].argmax(-1)

        return eager

    def positions(self, position):
        return self.torch.full((self.args.batch, 1), position, dtype=self.torch.long, device=self.device)

    def replayed(self, cache, token, past):
        """Returns the step as a CUDA graph, captured once; the cache uses the same memory in every repeat."""
        if self.graph is None:
            self.capture(cache, token, past)
        graph, token_in, position_in, token_out = self.graph
        position_in.fill_(past)

        def replay(token, _number):
            token_in.copy_(token)
            graph.replay()
            position_in.add_(1)
            return token_out.clone()

        return replay

    def capture(self, cache, token, past):
        torch = self.torch
        length = past + self.args.new_tokens
        if any(getattr(layer, "is_sliding", False) and layer.max_cache_len < length for layer in cache.layers):
            # Such a layer computes its window position on the CPU, which a replay would not repeat.
            raise DriverError(EXIT_FAILED, f"--cuda-graphs: {length} tokens do not fit the sliding window of this model; use fewer")
        token_in, position_in = token.clone(), self.positions(past)
        saved = [layer_state(layer) for layer in cache.layers]

        def step():
            out = self.forward(input_ids=token_in, position_ids=position_in, past_key_values=cache, use_cache=True)
            return out.logits[:, -1:].argmax(-1)

        try:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(2):
                    step()
                    restore(cache, saved)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                token_out = step()
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            raise DriverError(
                EXIT_FAILED,
                f"decode of {type(self.model).__name__} cannot be captured in a CUDA graph: {one_line(error)}; "
                "for a mixture of experts try --experts batched_mm, otherwise omit --cuda-graphs",
            ) from error
        # Capturing runs nothing on the device, but it advances the counters of the cache on the CPU.
        restore(cache, saved)
        self.graph = graph, token_in, position_in, token_out


def layer_state(layer):
    """Returns the length counters of a cache layer, which a trial step changes."""
    length = getattr(layer, "cumulative_length", None)
    return length.clone() if hasattr(length, "clone") else length, getattr(layer, "cumulative_length_int", None)


def restore(cache, saved):
    """Reverts trial steps. The next step overwrites the keys they wrote."""
    for layer, (length, length_int) in zip(cache.layers, saved):
        if hasattr(length, "clone"):
            layer.cumulative_length.copy_(length)
        elif length is not None:
            layer.cumulative_length = length
        if length_int is not None:
            layer.cumulative_length_int = length_int


def static_cache(model, length):
    from transformers import StaticCache

    try:
        return StaticCache(config=model.config.get_text_config(), max_cache_len=length)
    except Exception as error:
        raise DriverError(
            EXIT_FAILED, f"{type(model).__name__} has no static cache, which --compile and --cuda-graphs need: {one_line(error)}"
        ) from error


def profiled(torch, args, loop, device):
    """Runs one repeat under torch.profiler; returns stages, tokens and operators by stage."""
    from torch.profiler import ProfilerActivity, profile, record_function

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    profiler_ranges = ProfilerRanges(loop.ranges, record_function)
    outer, loop.ranges = loop.ranges, profiler_ranges
    try:
        with profile(activities=activities, record_shapes=True, acc_events=True) as profiler:
            stages, tokens = loop.once()
    finally:
        loop.ranges = outer
    report(describe("under torch.profiler", stages))
    if args.trace_out:
        profiler.export_chrome_trace(args.trace_out)
    return stages, tokens, operators(profiler.events(), device.type == "cuda")


class ProfilerRanges:
    """NVTX ranges with a profiler range beside each, so that operators can be grouped by stage."""

    def __init__(self, ranges, record_function):
        self._ranges = ranges
        self._record = record_function
        self._open = []

    def push(self, name, domain=None):
        self._ranges.push(name, domain)
        if domain:
            record = self._record(f"{domain}@{name}")
            record.__enter__()
            self._open.append(record)

    def pop(self, domain=None):
        if domain:
            self._open.pop().__exit__(None, None, None)
        self._ranges.pop(domain)


STAGES = {"LLM@prefill": "prefill", "LLM@decode_all": "decode"}


def operators(events, cuda):
    """Sums each operator by stage, sorted by self time."""
    on_cpu = [event for event in events if event.device_type.name == "CPU"]
    spans = [(event.time_range.start, event.time_range.end, STAGES[event.name]) for event in on_cpu if event.name in STAGES]
    sums = {}
    for event in on_cpu:
        if event.name.startswith("LLM@"):
            continue
        stage = next((stage for start, end, stage in spans if start <= event.time_range.start < end), None)
        entry = sums.setdefault((event.name, stage), [0, 0.0, 0.0, 0.0, 0.0])
        entry[0] += 1
        entry[1] += event.self_cpu_time_total
        entry[2] += event.cpu_time_total
        entry[3] += event.self_device_time_total
        entry[4] += event.device_time_total
    rows = [
        {
            "name": name,
            "stage": stage,
            "calls": calls,
            "self_cpu_ns": round(self_cpu * 1000),
            "total_cpu_ns": round(cpu * 1000),
            "self_gpu_ns": round(self_gpu * 1000) if cuda else None,
            "total_gpu_ns": round(gpu * 1000) if cuda else None,
        }
        for (name, stage), (calls, self_cpu, cpu, self_gpu, gpu) in sums.items()
    ]
    return sorted(rows, key=lambda row: (-(row["self_gpu_ns"] or 0), -row["self_cpu_ns"], row["name"]))
