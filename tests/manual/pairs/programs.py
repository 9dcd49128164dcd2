#!/usr/bin/env python3
"""Programs with one planted cause of lost time each, and the same programs without it.

usage: programs.py NAME bad|good                  runs the steps of one version: the program to profile
       programs.py NAME pair                      times both versions in turn in one process, prints JSON
       programs.py all-pairs OUT.jsonl [NAME...]  the same for every program that the file has no line of
"""

import collections
import contextlib
import gc
import json
import pathlib
import queue
import re
import statistics
import sys
import threading
import time
from typing import Callable, NamedTuple

import torch
import torch.nn.functional as F

DEVICE = "cuda"
BF16 = torch.bfloat16
WARM, STEPS = 3, 36
# Of a pair: repeats of each version, time of a repeat, and its steps.
REPEATS, REPEAT_S, FEWEST, MOST = 13, 0.06, 6, 160


Case = collections.namedtuple("Case", "make cause findings edit annotated")
CASES = {}


class Program(NamedTuple):
    """Runs `step` with the number of the step; `start` and `stop` surround all steps."""

    step: Callable
    start: Callable = lambda: None
    stop: Callable = lambda: None


def case(cause, *findings, edit=None, annotated=False):
    """Registers a planted cause: ids of the findings that name it, with `*` for any rest, and its remedy for `roofgap what-if`."""

    def register(make):
        CASES[make.__name__] = Case(make, cause, findings, edit, annotated)

    return register


# Parts of the programs.


def weight(*shape, dtype=BF16):
    return torch.randn(*shape, device=DEVICE, dtype=dtype) * shape[-2] ** -0.5


def values(*shape, dtype=BF16):
    return torch.randn(*shape, device=DEVICE, dtype=dtype)


def on_host(*shape, pinned=True, dtype=BF16):
    return torch.ones(*shape, dtype=dtype, pin_memory=pinned)


class Decoder:
    """A GPT with random weights. `attend(layer, q, k, v)` is its attention; `each(x)` runs after every layer."""

    def __init__(self, layers, dim, batch=1, room=256, vocab=16384):
        self.dim, self.heads, self.batch, self.room = dim, dim // 64, batch, room
        shapes = {"qkv": (dim, 3 * dim), "out": (dim, dim), "up": (dim, 4 * dim), "down": (4 * dim, dim)}
        self.layers = [{name: weight(*shape) for name, shape in shapes.items()} for _ in range(layers)]
        self.keys, self.vals = (values(layers, batch, self.heads, room, 64) for _ in range(2))
        self.embedding, self.positions, self.head = weight(vocab, dim), weight(room, dim), weight(dim, vocab)
        self.at = torch.full((1,), room // 2, device=DEVICE)
        self.slots = torch.arange(room, device=DEVICE)
        self.token = torch.zeros(batch, 1, device=DEVICE, dtype=torch.long)

    def forward(self, x, attend, each=None):
        count, length, dim = x.shape
        for index, layer in enumerate(self.layers):
            h = F.layer_norm(x, (dim,)) @ layer["qkv"]
            q, k, v = h.view(count, length, 3, self.heads, 64).permute(2, 0, 3, 1, 4).unbind()
            x = x + attend(index, q, k, v).transpose(1, 2).reshape(count, length, dim) @ layer["out"]
            x = x + F.gelu(F.layer_norm(x, (dim,)) @ layer["up"]) @ layer["down"]
            if each:
                each(x)
        return F.layer_norm(x, (dim,))

    def decode(self, each=None):
        """Runs one step with the cache, whose shapes never change. Returns the logits."""
        mask = (self.slots <= self.at)[None, None, None]

        def attend(index, q, k, v):
            self.keys[index].index_copy_(2, self.at, k)
            self.vals[index].index_copy_(2, self.at, v)
            return F.scaled_dot_product_attention(q, self.keys[index], self.vals[index], attn_mask=mask)

        x = self.forward(self.embedding[self.token] + self.positions[self.at], attend, each)
        self.at.add_(1).remainder_(self.room)
        return x[:, -1] @ self.head

    def greedy(self, each=None):
        self.token.copy_(self.decode(each).argmax(-1, keepdim=True))

    def prompt(self, length):
        return torch.randint(0, len(self.embedding), (self.batch, length), device=DEVICE)


def causal(_, q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Mlp:
    """Layers of a matrix product and a GELU."""

    def __init__(self, layers, dim, dtype=BF16):
        self.dim, self.weights = dim, [weight(dim, dim, dtype=dtype) for _ in range(layers)]

    def __call__(self, x):
        for w in self.weights:
            x = F.gelu(x @ w)
        return x


def graphed(step):
    """Records a step as a CUDA graph, and returns its replay."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(0)

    # The graph does not own the memory of its step.
    return lambda _, kept=step: graph.replay()


class Ring:
    """Buffers that one stream fills and another one uses, with events both ways. Without a stream it is the current one."""

    def __init__(self, slots, producer=None, consumer=None):
        self.producer, self.consumer = producer, consumer
        self.ready, self.free = ([torch.cuda.Event() for _ in range(slots)] for _ in range(2))

    @contextlib.contextmanager
    def part(self, stream, awaited, done):
        stream = stream or torch.cuda.current_stream()
        stream.wait_event(awaited)
        with torch.cuda.stream(stream):
            yield
            done.record(stream)

    def fill(self, i):
        return self.part(self.producer, self.free[i % len(self.free)], self.ready[i % len(self.free)])

    def use(self, i):
        return self.part(self.consumer, self.ready[i % len(self.free)], self.free[i % len(self.free)])


def uploads(ring, model, rows, pinned=True):
    """Returns steps that copy a batch to the GPU and compute with it."""
    source = on_host(rows, model.dim, pinned=pinned)
    target = [values(rows, model.dim) for _ in ring.free]

    def step(i):
        buffer = target[i % len(target)]
        with ring.fill(i):
            buffer.copy_(source, non_blocking=True)
        with ring.use(i):
            model(buffer)

    return step


class Worker:
    """Repeats work on a thread of its own."""

    def __init__(self, work):
        self.work, self.going = work, False

    def loop(self):
        while self.going:
            self.work()

    def start(self):
        self.going, self.thread = True, threading.Thread(target=self.loop, daemon=True)
        self.thread.start()

    def stop(self):
        self.going = False
        self.thread.join()


# Programs, the most useful first. A case returns one of its two versions.

@case("eager decode of a small model instead of a CUDA graph", "launch-bound", edit="graph")
def eager_small(bad):
    model = Decoder(layers=8, dim=1024)
    step = lambda _: model.greedy()
    return step if bad else graphed(step)

@case("copies to the GPU on the stream of the kernels", "host-copies", edit="overlap-copies")
def upload_in_line(bad):
    return uploads(Ring(2, None if bad else torch.cuda.Stream()), Mlp(3, 6144), rows=4096)

@case("attention of a prompt in separate kernels", "unfused-attention")
def attention_parts(bad):
    model = Decoder(layers=4, dim=2048, room=4096)
    ids = model.prompt(4096)
    hidden = torch.ones(4096, 4096, device=DEVICE, dtype=torch.bool).triu(1)
    def parts(_, q, k, v):
        scores = (q @ k.transpose(-1, -2)).float() * 64**-0.5
        return scores.masked_fill(hidden, float("-inf")).softmax(-1).to(q.dtype) @ v
    return lambda _: model.forward(model.embedding[ids], parts if bad else causal)

@case("products with a dimension of 3001 instead of 3008")
def odd_width(bad):
    width = 3001 if bad else 3008
    model, x = Mlp(6, width), values(8192, width)
    return lambda _: model(x)

@case("a finite test on the CPU after every layer", "sync-in-step", edit="no-wait")
def item_per_layer(bad):
    model = Decoder(layers=10, dim=2048, batch=16)
    def test(x):
        if not torch.isfinite(x).all().item():
            raise ValueError("a layer is not finite")
    return lambda _: model.greedy(test if bad else None)

@case("a loop over experts in Python", "experts-one-by-one", "sync-in-step")
def expert_loop(bad):
    experts, tokens, dim = 16, 128, 1024
    up, down, router = weight(experts, dim, 2048), weight(experts, 2048, dim), weight(dim, experts)
    x = values(tokens, dim)
    def layer(y):
        gate, chosen = (y @ router).softmax(-1).topk(2)
        if bad:
            out = torch.zeros_like(y)
            for expert in range(experts):
                rows, slot = (chosen == expert).nonzero(as_tuple=True)
                if len(rows):
                    out[rows] += F.gelu(y[rows] @ up[expert]) @ down[expert] * gate[rows, slot, None]
            return F.layer_norm(y + out, (dim,))
        out = F.gelu(y.expand(experts, -1, -1) @ up) @ down
        share = torch.zeros(tokens, experts, device=DEVICE, dtype=BF16).scatter(1, chosen, gate)
        return F.layer_norm(y + (out * share.t()[..., None]).sum(0), (dim,))
    return lambda _: layer(layer(x))

@case("two streams, but one buffer: copy and kernels take turns", "host-copies", edit="overlap-copies")
def single_buffer(bad):
    return uploads(Ring(1 if bad else 3, torch.cuda.Stream()), Mlp(2, 7168), rows=3072)

@case("Python work in each step", "host-gaps", "idle-*", annotated=True)
def python_work(bad):
    model = Decoder(layers=6, dim=1024)
    text = json.dumps({f"key {n}": [n, str(n)] for n in range(600)})
    def step(_):
        if bad:
            re.findall(r"\w+", json.dumps(json.loads(text)))
        model.greedy()
    return step

@case("products in fp32 on the CUDA cores", "tensor-cores-idle")
def fp32_products(bad):
    dtype = torch.float32 if bad else BF16
    model, x = Mlp(6, 3072, dtype), values(2048, 3072, dtype=dtype)
    return lambda _: model(x)

@case("token read back before the next step is launched", "sync-in-step", edit="no-wait")
def read_each_token(bad):
    model = Decoder(layers=10, dim=1024)
    replay, text = graphed(lambda _: model.greedy()), []
    host, read = [on_host(1, 1, dtype=torch.long) for _ in range(2)], [torch.cuda.Event() for _ in range(2)]
    def step(i):
        at = i % 2
        replay(i)
        host[at].copy_(model.token, non_blocking=True)
        read[at].record()
        last = at if bad else 1 - at
        read[last].synchronize()
        text.append(" ".join(str(int(host[last]) + n) for n in range(600)))
    return Program(step, stop=text.clear)

@case("batches read from pageable memory", "host-copies")
def pageable_upload(bad):
    return uploads(Ring(2), Mlp(6, 4096), rows=4096, pinned=not bad)

@case("sampling on the CPU", "host-gaps", "host-copies", "sync-in-step")
def sampling_on_cpu(bad):
    model = Decoder(layers=6, dim=1024, batch=8, vocab=50304)
    def step(_):
        logits = model.decode().float()
        logits = logits.cpu() if bad else logits
        model.token.copy_(torch.multinomial((logits / 0.8).softmax(-1), 1))
    return step

@case("an elementwise chain instead of one compiled kernel", "unfused-elementwise", edit="fuse")
def elementwise_chain(bad):
    x, y, w = values(32, 1024, 4096), values(32, 1024, 4096), weight(4096, 256)
    def chain(x, y):
        gate = torch.exp(-x.abs()) + y
        return (gate * torch.tanh(y) - x) * 0.25 + torch.cos(gate)
    body = chain if bad else torch.compile(chain)
    return lambda _: body(x, y) @ w

@case("the whole prefix computed again for each token", "context-recomputed")
def no_cache(bad):
    model = Decoder(layers=8, dim=1024, batch=16, room=1024)
    ids = model.prompt(1024)
    def again(i):
        length = 512 + i
        x = model.forward(model.embedding[ids[:, :length]] + model.positions[:length], causal)
        model.token.copy_((x[:, -1] @ model.head).argmax(-1, keepdim=True))
    return again if bad else lambda _: model.greedy()

@case("an eager step of two streams instead of a CUDA graph", "launch-bound", edit="graph")
def eager_offload(bad):
    model, side = Decoder(layers=8, dim=1024), torch.cuda.Stream()
    target = on_host(*model.keys[0].shape)
    def step(_):
        main = torch.cuda.current_stream()
        model.greedy()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            target.copy_(model.keys[0], non_blocking=True)
        (model.embedding[:64] @ model.head).sum()
        main.wait_stream(side)
    return step if bad else graphed(step)

@case("copies back on the stream of the kernels", "host-copies", edit="overlap-copies")
def download_in_line(bad):
    model, ring = Mlp(3, 5120), Ring(2, consumer=None if bad else torch.cuda.Stream())
    x, kept, target = values(5120, 5120), values(2, 5120, 5120), on_host(2, 5120, 5120)
    def step(i):
        with ring.fill(i):
            kept[i % 2].copy_(model(x))
        with ring.use(i):
            target[i % 2].copy_(kept[i % 2], non_blocking=True)
    return step

@case("fp32 products of a side stream that both streams wait for", "tensor-cores-idle")
def side_fp32(bad):
    dtype = torch.float32 if bad else BF16
    model, tower, side = Mlp(6, 6144), Mlp(2, 3072, dtype), torch.cuda.Stream()
    x, image = values(2048, 6144), values(3072, 3072, dtype=dtype)
    def step(_):
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            seen = tower(image)
        y = model(x)
        main.wait_stream(side)
        seen.record_stream(main)
        y[:, :3072].add_(seen[:2048].to(BF16))
    return step

@case("keys and values copied to all heads in each step")
def repeat_kv(bad):
    q = [values(16, 32, 1, 128) for _ in range(6)]
    keys, vals = ([values(16, 8, 4096, 128) for _ in q] for _ in range(2))
    def step(_):
        for q_, k, v in zip(q, keys, vals):
            if bad:
                k, v = (t.repeat_interleave(4, 1) for t in (k, v))
            F.scaled_dot_product_attention(q_, k, v, enable_gqa=not bad)
    return step

@case("the CPU waits for a copy that a stream could wait for", "sync-in-step", "host-copies", edit="no-wait")
def host_waits_for_copy(bad):
    model, ring = Mlp(30, 1024), Ring(2, torch.cuda.Stream())
    source, target = on_host(8192, 1024), values(2, 8192, 1024)
    def step(i):
        with ring.fill(i):
            target[i % 2].copy_(source, non_blocking=True)
        if bad:
            ring.ready[i % 2].synchronize()
        with ring.use(i):
            model(target[i % 2, :512])
    return step

@case("a wait for the device after each small step", "sync-in-step", edit="no-wait")
def sync_each_step(bad):
    model, x = Mlp(12, 4096), values(64, 4096)
    def step(_):
        model(x)
        if bad:
            torch.cuda.synchronize()
    return step

@case("another Python thread that holds the GIL half of the time", "host-gaps", "idle-*")
def gil(bad):
    model = Decoder(layers=6, dim=1024)
    def work():
        sum(n * n for n in range(8000))
        time.sleep(0.0005)
    worker = Worker(work)
    step = lambda _: model.greedy()
    return Program(step, worker.start, worker.stop) if bad else step

@case("a value of a side stream read in each step", "sync-in-step", edit="no-wait")
def side_read(bad):
    model, side, x = Mlp(16, 3072), torch.cuda.Stream(), values(256, 3072)
    def step(_):
        y = model(x)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            largest = y.abs().max()
            if bad and not largest.item() < 1e9:
                raise ValueError("too large")
        y.record_stream(side)
    return step

@case("batches made by the thread that launches", "data-loading", "host-gaps", "idle-*")
def slow_loader(bad):
    model, raw, ready = Mlp(24, 6144), torch.ones(2048, 6144, dtype=torch.uint8), queue.Queue(2)
    batch = lambda: raw.to(BF16).mul_(1 / 255).pin_memory()
    def put():
        with contextlib.suppress(queue.Full):
            ready.put(batch(), timeout=0.02)
    def step(_):
        model((batch() if bad else ready.get(timeout=5)).to(DEVICE, non_blocking=True))
    worker = Worker(put)
    return step if bad else Program(step, worker.start, worker.stop)

@case("one thread block normalises a row of 8 M values", "small-kernels")
def one_row(bad):
    x = values(1, 8 << 20)
    def step(_):
        if bad:
            return F.layer_norm(x, x.shape)
        spread, mean = torch.var_mean(x.float(), correction=0)
        (x - mean) * torch.rsqrt(spread + 1e-5)
    return step

@case("empty_cache() in each step", "allocations")
def empty_cache(bad):
    model, x = Mlp(6, 4096), values(4096, 4096)
    def step(_):
        model(x)
        if bad:
            torch.cuda.empty_cache()
    return step

@case("a batch cut into rows of 8", "launch-bound", "batch-too-small", "small-kernels")
def small_batches(bad):
    model, x = Mlp(4, 2048), values(512, 2048)
    def step(_):
        for part in x.split(8 if bad else 512):
            model(part)
    return step

@case("copies in and out on the stream of the kernels", "host-copies", edit="overlap-copies")
def both_ways(bad):
    model, streams = Mlp(5, 5120), [None if bad else torch.cuda.Stream() for _ in range(2)]
    inward, outward = Ring(2, producer=streams[0]), Ring(2, consumer=streams[1])
    x, y, source, target = *values(2, 2, 4096, 5120), on_host(4096, 5120), on_host(2, 4096, 5120)
    def step(i):
        at = i % 2
        with inward.fill(i):
            x[at].copy_(source, non_blocking=True)
        with inward.use(i), outward.fill(i):
            y[at].copy_(model(x[at]))
        with outward.use(i):
            target[at].copy_(y[at], non_blocking=True)
    return step

@case("a mask built on the CPU in each step", "host-copies", "host-gaps", "idle-*")
def mask_on_cpu(bad):
    model = Decoder(layers=4, dim=1024, batch=2, room=1024)
    ids = model.prompt(1024)
    def build():
        return torch.zeros(1024, 1024).masked_fill(torch.ones(1024, 1024).triu(1) > 0, float("-inf"))
    kept = build().to(DEVICE, BF16)
    def step(_):
        mask = build().to(DEVICE, BF16) if bad else kept
        model.forward(model.embedding[ids], lambda _, q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
    return step

@case("240 small sums where one would do", "launch-bound", "small-kernels")
def tiny_kernels(bad):
    x = values(240, 20000)
    return lambda _: torch.stack([row.sum() for row in x]) if bad else x.sum(-1)

@case("statistics of one thread block between products", "small-kernels")
def stats_in_line(bad):
    model, side, x = [weight(4096, 4096) for _ in range(5)], torch.cuda.Stream(), values(4096, 4096)
    def step(_):
        main, y = torch.cuda.current_stream(), x
        stream = main if bad else side
        for w in model:
            y = F.gelu(y @ w)
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                F.log_softmax(y.view(1, -1)[:, : 2 << 20], -1)
            y.record_stream(stream)
        main.wait_stream(stream)
    return step

@case("optimizer in a loop over parameters", "launch-bound", "unfused-elementwise")
def adam_loop(bad):
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512, device=DEVICE) for _ in range(24)])
    x, how = values(256, 512, dtype=torch.float32), {"foreach": False} if bad else {"fused": True}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **how)
    def step(_):
        with torch.enable_grad():
            model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return step

@case("the head computed for every position of a prompt")
def head_of_all(bad):
    model = Decoder(layers=8, dim=1024, batch=4, room=1024, vocab=50304)
    ids = model.prompt(1024)
    def step(_):
        x = model.forward(model.embedding[ids], causal)
        return (x @ model.head)[:, -1].argmax(-1) if bad else (x[:, -1] @ model.head).argmax(-1)
    return step

@case("an eager decode of a larger model instead of a CUDA graph", "launch-bound", edit="graph", annotated=True)
def eager_large(bad):
    model = Decoder(layers=24, dim=1536, batch=4, room=512)
    step = lambda _: model.greedy()
    return step if bad else graphed(step)

@case("a vocabulary of 50257 instead of 50304")
def odd_vocabulary(bad):
    model, x = weight(2048, 50257 if bad else 50304), values(4096, 2048)
    return lambda _: x @ model

@case("fp32 products without TF32", "tensor-cores-idle")
def fp32_no_tf32(bad):
    model, x = Mlp(6, 2560, torch.float32), values(2048, 2560, dtype=torch.float32)
    choose = torch.set_float32_matmul_precision
    return Program(lambda _: model(x), lambda: choose("highest" if bad else "high"), lambda: choose("highest"))


# Runs.


def program(name, bad):
    made = CASES[name].make(bad)
    return made if isinstance(made, Program) else Program(made)


def run(made, steps, name=None):
    """Runs the steps, each in a range if it has a name. Returns the time of a step, s."""
    made.start()
    try:
        torch.cuda.synchronize()
        began = time.perf_counter()
        for i in range(steps):
            with torch.cuda.nvtx.range(name) if name else contextlib.nullcontext():
                made.step(i)
        torch.cuda.synchronize()
        return (time.perf_counter() - began) / steps
    finally:
        made.stop()


def pair(name):
    """Times both versions in turn."""
    versions = [program(name, True), program(name, False)]
    rough = max(min(run(version, WARM) for _ in range(2)) for version in versions)
    steps = min(max(int(REPEAT_S / rough), FEWEST), MOST)
    times = ([], [])
    # The first repeat of each is a warm-up.
    for repeat in range(REPEATS + 1):
        for side in (0, 1) if repeat % 2 else (1, 0):
            times[side].append(run(versions[side], steps) * 1e3)
    bad, good = (statistics.quantiles(side[1:]) for side in times)
    result = {"name": name, "bad_ms": bad[1], "good_ms": good[1], "steps": steps, "repeats": REPEATS}
    result |= {"bad_quartiles_ms": bad[::2], "good_quartiles_ms": good[::2]}
    return result | {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}


def all_pairs(out, names):
    """Times the programs. An error of CUDA ends the process, because it spoils what follows."""
    out.touch()
    done = [json.loads(line)["name"] for line in out.read_text().splitlines()]
    for name in [name for name in names or CASES if name not in done]:
        began, spoilt = time.perf_counter(), False
        try:
            result = pair(name)
        except Exception as error:
            result = {"name": name, "error": f"{type(error).__name__}: {error}"}
            spoilt = "CUDA error" in str(error)
        result["seconds"] = round(time.perf_counter() - began, 2)
        with out.open("a") as lines:
            print(json.dumps(result), file=lines)
        if spoilt:
            return 1
        gc.collect()
        torch.cuda.empty_cache()
    return 0


@torch.no_grad()
def main(name, kind, *names):
    torch.manual_seed(0)
    if name == "all-pairs":
        return all_pairs(pathlib.Path(kind), names)
    if kind == "pair":
        print(json.dumps(pair(name)))
        return 0
    made = program(name, kind == "bad")
    run(made, WARM)
    run(made, STEPS, "decode_step" if CASES[name].annotated else None)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) > 2 else __doc__)
