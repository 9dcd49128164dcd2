"""Records a program of two streams that wait for each other's events with the native collector, and measures its overhead.

Processes run in turn without the collector and with each of the given libraries. Prints the time of a step and the median of the
ratios. Passes if the capture of the first library has every wait and every record of an event, each on a stream that ran kernels.
"""

import argparse
import collections
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))


def work(steps):
    import torch

    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    done = [torch.cuda.Event(), torch.cuda.Event()]
    data = torch.zeros(4096, device="cuda")

    def step():
        for stream, event, other in [(first, done[0], done[1]), (second, done[1], done[0])]:
            with torch.cuda.stream(stream):
                stream.wait_event(other)
                for _ in range(8):
                    data.add_(1)
                event.record(stream)
        done[1].synchronize()

    for _ in range(200):
        step()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    print((time.perf_counter() - begun) / steps * 1e6)


def run(library, steps, folder):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOFGAP_NATIVE")}
    if library:
        environment.update(CUDA_INJECTION64_PATH=library, NVTX_INJECTION64_PATH=library, ROOFGAP_NATIVE_DIR=folder)
    command = [sys.executable, os.path.abspath(__file__), "--work", "--steps", str(steps)]
    return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def check(dump, folder, steps):
    (capture,) = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".rgcap")]
    text = subprocess.run([dump, capture], check=True, capture_output=True, text=True).stdout
    entries = dict(re.findall(r"StreamEntry \{ id: (\d+),.* stream: (\d+) \}", text))
    kernels = {entries[entry] for entry in re.findall(r"^Kernel\(.* stream_id: (\d+)", text, re.M)}
    syncs = re.findall(r"SyncCall \{ kind: (\d+), .* stream: (\d+), event: (\d+)", text)
    kinds = collections.Counter(int(kind) for kind, _, _ in syncs)
    print("records of events, waits for events, waits of streams, waits for streams:", [kinds[kind] for kind in range(4)])
    steps += 200
    # The first wait of a stream is for an event that nobody recorded.
    whole = kinds[0] == 2 * steps and kinds[1] == steps and 2 * steps - 1 <= kinds[2] <= 2 * steps
    own = {stream for kind, stream, _ in syncs if kind in "02"}
    print("streams with events", sorted(own), "with kernels", sorted(kernels))
    print("losses:", re.findall(r"^Loss.*", text, re.M) or "none")
    return whole and own <= kernels


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", action="append", help="libroofgap_inject.so; give it again for one to compare with")
    parser.add_argument("--dump", default=os.environ.get("ROOFGAP_DUMP", f"{ROOT}/target/release/examples/dump"))
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        return work(arguments.steps)
    own = os.environ.get("ROOFGAP_INJECT", f"{ROOT}/target/release/libroofgap_inject.so")
    libraries = [None, *map(os.path.abspath, arguments.library or [own])]
    times = {library: [] for library in libraries}
    passed = False
    for turn in range(arguments.rounds):
        for library in libraries if turn % 2 else libraries[::-1]:
            with tempfile.TemporaryDirectory() as folder:
                times[library].append(run(library, arguments.steps, folder))
                if library == libraries[1] and turn == arguments.rounds - 1:
                    passed = check(arguments.dump, folder, arguments.steps)
    for library, each in times.items():
        ratio = statistics.median(with_it / without for with_it, without in zip(each, times[None]))
        print(f"{library or 'none'}: {statistics.median(each):.1f} us a step, {ratio:.3f}")
    print("passed" if passed else "FAILED")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
