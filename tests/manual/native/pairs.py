"""Measures the overhead of the native collector in pairs: one process, repeats alternately recorded and not.

Each variant of the collector is a process of its own, because CUPTI takes its settings once. In it, an eager decode (about 1,000
launches per token) and the same step as a CUDA graph run in pairs of a recorded and an unrecorded repeat, in changing order. The
result is the median of the ratios with a bootstrap interval of 95 %. The default also has a graph with two branches, whose
kernels overlap. dormant.py measures a collector that records nothing.

Writes pairs.md, pairs.json and pairs.jsonl (one line per result, as they come) to the folder OUT, and prints the table.
"""

import argparse
import ctypes
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))

# Name, settings of the collector (ROOFGAP_NATIVE_*), tokens of an eager repeat. The most important come first. A repeat of the duty cycle
# has all of its steps, and not the first ones, which are all recorded.
VARIANTS = [
    ("default", {}, 8),
    ("duty cycle, 2 of 32 steps", {"duty": 16, "duty_first": 0, "duty_steps": 2}, 32),
    ("duty cycle, 8 of 128 steps", {"duty": 16, "duty_first": 0}, 128),
    ("CUPTI loaded after the graph", {"dormant": "lazy"}, 8),
    ("duty cycle, 1 of 8 steps", {"duty": 8, "duty_first": 0, "duty_steps": 1}, 16),
    ("no calls", {"calls": "none"}, 8),
    ("no periodic flush", {"flush_ms": 0}, 8),
    ("with copies", {"copies": 1}, 8),
    ("buffers cleared by CUPTI", {"zeroed": 0}, 8),
    ("launch entries only", {"calls": "launches"}, 8),
    ("record buffers 8 MiB", {"buffer_kb": 8192, "buffers": 32}, 8),
    ("record buffers 256 KiB", {"buffer_kb": 256, "buffers": 512}, 8),
]

# Variants that are measured with the graph alone. In one of them CUPTI comes into a program that has captured its graph; 128 eager steps take
# too long.
GRAPH_ONLY = ("duty cycle, 8 of 128 steps", "CUPTI loaded after the graph")


# -- in the measured process ------------------------------------------------------------------------------------------


class Collector:
    """The functions of the loaded library."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.arm_us, self.disarm_us = [], []

    def call(self, name, times=None):
        begun = time.perf_counter()
        status = getattr(self.library, name)()
        if times is not None:
            times.append((time.perf_counter() - begun) * 1e6)
        if status != 0:
            raise RuntimeError(f"{name} returned {status}")

    def arm(self):
        self.call("roofgap_arm", self.arm_us)

    def disarm(self):
        self.call("roofgap_disarm", self.disarm_us)
        self.call("roofgap_flush")


def work(arguments):
    """Runs the pairs of one variant. Prints a JSON line for each result."""
    import torch
    import workload

    sizes = argparse.Namespace(layers=24, hidden=1024, heads=16, vocab=32000, prompt=64, tokens=max(64, arguments.tokens))
    device = torch.device("cuda")
    torch.cuda.init()
    model = workload.Decoder(sizes, device)
    prompt = torch.randint(0, sizes.vocab, (1, sizes.prompt), device=device)
    collector = Collector(arguments.library) if arguments.library else None

    def say(**result):
        print(json.dumps(result), flush=True)

    def eager():
        token = torch.zeros(1, 1, device=device, dtype=torch.long)
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for at in range(arguments.tokens):
            with workload.stage("decode_step"):
                token = model.step(token, torch.tensor([sizes.prompt + at], device=device))
        torch.cuda.synchronize()
        return time.perf_counter() - begun

    def replays(graph):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(arguments.replays):
            with workload.stage("decode_step"):
                graph.replay()
        torch.cuda.synchronize()
        return time.perf_counter() - begun

    def pairs(stage, run, count, control=False):
        """Alternates the order within a pair, so that a drift of the machine cancels out."""
        ratios, recorded, unrecorded = [], [], []
        for pair in range(count + 2):
            seconds = {}
            for on in (True, False) if pair % 2 == 0 else (False, True):
                if on and not control:
                    collector.arm()
                seconds[on] = run()
                if on and not control:
                    collector.disarm()
            if pair >= 2:
                ratios.append(seconds[True] / seconds[False])
                recorded.append(seconds[True] * 1e3)
                unrecorded.append(seconds[False] * 1e3)
        say(stage=stage, ratios=ratios, recorded_ms=recorded, unrecorded_ms=unrecorded)

    def capture():
        position = torch.tensor([sizes.prompt], device=device)
        token = torch.zeros(1, 1, device=device, dtype=torch.long)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(2):
                token.copy_(model.step(token, position))
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            token.copy_(model.step(token, position))
        torch.cuda.synchronize()
        return graph

    def branches():
        """Captures a graph of two branches of small products, which overlap."""
        left, right = (torch.randn(512, 512, device=device, dtype=torch.bfloat16) for _ in range(2))
        side = torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        left @ left
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            main = torch.cuda.current_stream()
            side.wait_stream(main)
            with torch.cuda.stream(side):
                for _ in range(200):
                    right = right @ right
            for _ in range(200):
                left = left @ left
            main.wait_stream(side)
        torch.cuda.synchronize()
        return graph

    with torch.inference_mode():
        model.prefill(prompt)
        for _ in range(3):
            eager()
        if not arguments.graph_only:
            if arguments.control:
                pairs("eager, unrecorded twice", eager, arguments.pairs, control=True)
            fresh = [eager() for _ in range(arguments.pairs)]
            pairs("eager", eager, arguments.pairs)
            later = [eager() for _ in range(arguments.pairs)]
            # One after the other, so that a drift of the machine counts.
            ratios = [after / before for before, after in zip(fresh, later)]
            milliseconds = lambda times: [seconds * 1e3 for seconds in times]
            say(stage="eager, disarmed to never armed", ratios=ratios, recorded_ms=milliseconds(later), unrecorded_ms=milliseconds(fresh))
            say(stage="switch", arm_us=collector.arm_us[2:], disarm_us=collector.disarm_us[2:])
        graph = capture()
        for _ in range(3):
            replays(graph)
        pairs("graph", lambda: replays(graph), arguments.pairs)
        if arguments.control:
            parallel = branches()
            for _ in range(3):
                replays(parallel)
            pairs("graph with two branches", lambda: replays(parallel), arguments.pairs)
    return 0


# -- around it --------------------------------------------------------------------------------------------------------


def interval(values, rounds=2000):
    """Returns the bootstrap interval of the median, 95 %."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(rounds))
    return medians[int(rounds * 0.025)], medians[int(rounds * 0.975) - 1]


class Bench:
    def __init__(self, arguments):
        self.arguments = arguments
        self.out = os.path.abspath(arguments.out)
        os.makedirs(self.out, exist_ok=True)
        self.rows, self.notes = [], []
        self.begun = time.monotonic()
        self.longest = 0.0
        self.lines = open(os.path.join(self.out, "pairs.jsonl"), "w")

    def left(self):
        return self.arguments.budget - (time.monotonic() - self.begun)

    def say(self, text):
        print(f"[{time.monotonic() - self.begun:6.1f} s] {text}", flush=True)

    def note(self, text):
        self.notes.append(text)
        self.say(text)

    def keep(self, **result):
        self.lines.write(json.dumps(result) + "\n")
        self.lines.flush()

    def process(self, name, settings, extra):
        """Runs one process and returns its results; one that fails or takes too long leaves those it had."""
        env = dict(os.environ)
        for variable in ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "ROOFGAP_NATIVE_DIR", "ROOFGAP_INJECT"):
            env.pop(variable, None)
        folder = os.path.join(self.out, "captures", name.replace(" ", "-").replace(",", ""))
        command = [sys.executable, os.path.abspath(__file__), "--work", *extra]
        if settings is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder)
            env.update(
                CUDA_INJECTION64_PATH=self.arguments.library,
                NVTX_INJECTION64_PATH=self.arguments.library,
                ROOFGAP_NATIVE_DIR=folder,
                ROOFGAP_NATIVE_DORMANT="1",
                ROOFGAP_NATIVE_COPIES="0",
            )
            env.update({"ROOFGAP_NATIVE_" + key.upper(): str(value) for key, value in settings.items()})
            command += ["--library", self.arguments.library]
        begun = time.monotonic()
        errors = os.path.join(self.out, "stderr.txt")
        results = []
        with open(errors, "w+") as stderr:
            child = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=stderr, text=True)
            try:
                output, _ = child.communicate(timeout=max(20.0, min(90.0, self.left())))
            except subprocess.TimeoutExpired:
                child.kill()
                output, _ = child.communicate()
                self.note(f"{name}: ended after {time.monotonic() - begun:.0f} s, it took too long")
            stderr.seek(0)
            said = stderr.read()[-1500:]
        for line in (output or "").splitlines():
            try:
                results.append(json.loads(line))
            except ValueError:
                pass
        if child.returncode != 0:
            self.note(f"{name}: status {child.returncode}\n{said}")
        self.longest = max(self.longest, time.monotonic() - begun)
        return results, folder

    def variant(self, name, settings, tokens, control=False):
        # A repeat with a part of the steps has to have all of them.
        replays = max(self.arguments.replays, tokens)
        extra = ["--pairs", str(self.arguments.pairs), "--tokens", str(tokens), "--replays", str(replays)]
        extra += ["--control"] * control + ["--graph-only"] * (name in GRAPH_ONLY)
        results, folder = self.process(name, settings, extra)
        switch = next((result for result in results if result["stage"] == "switch"), None)
        for result in results:
            if not result.get("ratios"):
                continue
            low, high = interval(result["ratios"])
            row = {
                "variant": name,
                "settings": settings,
                "stage": result["stage"],
                "pairs": len(result["ratios"]),
                "ratio": statistics.median(result["ratios"]),
                "low": low,
                "high": high,
                "unrecorded_ms": statistics.median(result["unrecorded_ms"]),
                "recorded_ms": statistics.median(result["recorded_ms"]),
            }
            if switch and switch.get("arm_us"):
                row["arm_us"] = statistics.median(switch["arm_us"])
                row["disarm_us"] = statistics.median(switch["disarm_us"])
            self.rows.append(row)
            self.keep(**row, ratios=result["ratios"])
            self.say(f"{name:38} {result['stage']:24} {row['ratio']:.3f} ({low:.3f} to {high:.3f})")
        self.summary(name, folder)

    def summary(self, name, folder):
        """Adds what the capture of a variant has."""
        if not self.arguments.dump or not os.path.exists(self.arguments.dump):
            return
        for file in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            path = os.path.join(folder, file)
            done = subprocess.run([self.arguments.dump, "--summary", path], capture_output=True, text=True, timeout=60)
            if done.returncode != 0:
                self.note(f"{name}: {file}: {done.stderr[-300:]}")
                continue
            found = json.loads(done.stdout)
            facts = {key: found.get(key) for key in ("ending", "kernels_without_call", "launches_without_kernel", "graph_kernels", "window_edges", "armed_ns", "losses")}
            facts.update(kernels=found["records"].get("kernel", 0), calls=found["records"].get("call", 0), bytes=os.path.getsize(path))
            if facts["kernels"] == 0 and facts["calls"] == 0:
                continue
            for row in self.rows:
                if row["variant"] == name:
                    row["capture"] = facts
            self.keep(variant=name, capture=facts)
            self.say(f"  {facts}")
        if not self.arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)

    def table(self):
        lines = [
            "| collector | stage | pairs | recorded / unrecorded | 95 % interval | unrecorded, ms | arm, us | disarm, us |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for row in self.rows:
            switch = f"{row['arm_us']:.0f} | {row['disarm_us']:.0f}" if "arm_us" in row else " | "
            lines.append(
                f"| {row['variant']} | {row['stage']} | {row['pairs']} | {row['ratio']:.3f} | {row['low']:.3f} to {row['high']:.3f} "
                f"| {row['unrecorded_ms']:.1f} | {switch} |"
            )
        lines += ["", *[f"- {note.splitlines()[0]}" for note in self.notes]]
        return "\n".join(lines) + "\n"

    def write(self):
        with open(os.path.join(self.out, "pairs.md"), "w") as file:
            file.write(self.table())
        with open(os.path.join(self.out, "pairs.json"), "w") as file:
            json.dump({"rows": self.rows, "notes": self.notes}, file, indent=1)


def measure(arguments):
    bench = Bench(arguments)
    wanted = arguments.only.split(";") if arguments.only else None
    parts = [(name, lambda n=name, s=settings, t=tokens: bench.variant(n, s, t, control=n == "default")) for name, settings, tokens in VARIANTS]
    for name, part in parts:
        if wanted and name not in wanted:
            continue
        # A process that would not end in time is not begun.
        if bench.left() < max(15.0, bench.longest):
            bench.note(f"{name}: out of time")
            continue
        try:
            part()
        except Exception as error:  # one part must not take the others with it
            bench.note(f"{name}: {type(error).__name__}: {error}")
        bench.write()
    bench.write()
    print("\n" + bench.table(), flush=True)
    return 0 if bench.rows else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    release = os.path.join(ROOT, "target", "release")
    parser.add_argument("out", nargs="?", default=os.path.join(ROOT, "tmp", "native-pairs"))
    parser.add_argument("--library", default=os.environ.get("ROOFGAP_INJECT"))
    parser.add_argument("--dump", default=os.environ.get("ROOFGAP_DUMP", os.path.join(release, "examples", "dump")))
    parser.add_argument("--pairs", type=int, default=20, help="pairs of each stage, at least 20")
    parser.add_argument("--replays", type=int, default=24, help="graph launches of a repeat")
    parser.add_argument("--budget", type=float, default=225, help="seconds for all; variants that do not fit are left out")
    parser.add_argument("--only", help="names of variants, separated by ';'")
    parser.add_argument("--keep", action="store_true", help="keep the captures")
    for hidden in ("--work", "--control", "--graph-only"):
        parser.add_argument(hidden, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--tokens", type=int, default=8, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        return work(arguments)
    arguments.library = os.path.abspath(arguments.library or os.path.join(release, "libroofgap_inject.so"))
    if not os.path.exists(arguments.library):
        sys.exit(f"{arguments.library} is missing: cargo build --release -p roofgap-inject -p roofgap-wire --lib --example dump")
    if arguments.dump:
        arguments.dump = os.path.abspath(arguments.dump)
    return measure(arguments)


if __name__ == "__main__":
    sys.exit(main())
