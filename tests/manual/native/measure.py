"""Runs the workload without a profiler and under each profiler in turn, and checks the captures of the native collector.

Prints a table and writes all results to results.json. The exit status is 1 if a check fails.
"""

import argparse
import glob
import json
import os
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
WORKLOAD = os.path.join(HERE, "workload.py")


class Bench:
    def __init__(self, args):
        self.args = args
        self.out = os.path.abspath(args.out)
        os.makedirs(self.out, exist_ok=True)
        self.results = {"modes": {}, "checks": [], "notes": []}
        self.begun = time.monotonic()

    def say(self, text):
        print(f"[{time.monotonic() - self.begun:6.1f} s] {text}", flush=True)

    def check(self, name, held, detail):
        self.results["checks"].append({"name": name, "held": bool(held), "detail": detail})
        self.say(f"{'ok  ' if held else 'FAIL'} {name}: {detail}")

    def note(self, text):
        self.results["notes"].append(text)
        self.say(text)

    def native_env(self, folder, **options):
        os.makedirs(folder, exist_ok=True)
        env = dict(os.environ)
        env.update(
            CUDA_INJECTION64_PATH=self.args.library,
            NVTX_INJECTION64_PATH=self.args.library,
            ROOFGAP_NATIVE_DIR=folder,
        )
        env.update({"ROOFGAP_NATIVE_" + name.upper(): str(value) for name, value in options.items()})
        return env

    def run(self, name, prefix=(), env=None, arguments=(), timeout=150):
        """Runs the workload. Returns its result, or None after printing the end of its output."""
        out = os.path.join(self.out, name + ".json")
        if os.path.exists(out):
            os.remove(out)
        command = [*prefix, sys.executable, WORKLOAD, "--out", out, *arguments]
        begun = time.monotonic()
        try:
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired as late:
            self.note(f"{name}: not done after {timeout} s\n{(late.stderr or b'')[-2000:]}")
            return None
        if not os.path.exists(out):
            self.note(f"{name}: status {done.returncode}, no result\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}")
            return None
        with open(out) as file:
            result = json.load(file)
        result["process_s"] = time.monotonic() - begun
        if done.returncode != 0:
            self.note(f"{name}: status {done.returncode} after its result\n{done.stderr[-2000:]}")
        return result

    def summary(self, folder):
        """Reads the captures of a folder and returns the one with the most kernels."""
        best = None
        for path in glob.glob(os.path.join(folder, "*.rgcap")):
            done = subprocess.run([self.args.dump, "--summary", path], capture_output=True, text=True)
            if done.returncode != 0:
                self.note(f"{path}: {done.stderr[-1000:]}")
                continue
            found = json.loads(done.stdout)
            found["bytes"] = os.path.getsize(path)
            if best is None or found["records"].get("kernel", 0) > best["records"].get("kernel", 0):
                best = found
        return best

    # -- profiler overhead ------------------------------------------------------------------------------------------

    def modes(self):
        nsys = self.args.nsys or shutil.which("nsys")
        eager = ["--repeats", str(self.args.repeats), "--tokens", str(self.args.tokens)]
        common = ["--graph", *eager]
        yield "unwatched", lambda n: self.run(n, arguments=common)
        for name, options in [
            ("native", {"copies": 0}),
            ("native-copies", {"copies": 1}),
            ("native-callbacks", {"copies": 0, "calls": "callbacks"}),
            ("native-graph", {"copies": 0, "graph": "graph"}),
        ]:
            yield name, lambda n, o=options: self.run(
                n, env=self.native_env(os.path.join(self.out, n), **o), arguments=common
            )
        if nsys:
            prefix = [nsys, "profile", "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--force-overwrite=true"]
            # Without the graph: this nsys crashes (status 139) when told to trace the nodes of one captured here. A native
            # run of just the same work is what it is compared with.
            yield "native-eager", lambda n: self.run(
                n, env=self.native_env(os.path.join(self.out, n), copies=1), arguments=eager
            )
            yield "nsys", lambda n: self.run(n, prefix=[*prefix, "-o", os.path.join(self.out, n)], arguments=eager)
        else:
            self.note("nsys is not on the PATH: it is left out (--nsys names it)")
        yield "torch.profiler", lambda n: self.run(n, arguments=[*common, "--torch-profiler"])

    def price(self):
        modes = [m for m in self.modes() if not self.args.only or m[0] in ("unwatched", *self.args.only.split(","))]
        for round_number in range(self.args.rounds):
            for name, start in modes:
                result = start(f"{name}.{round_number}")
                if result:
                    self.results["modes"].setdefault(name, []).append(result)
                    graph = f"graph {min(result['graph_ms']):7.1f} ms, " if result.get("graph_ms") else ""
                    self.say(
                        f"{name:15} round {round_number}: decode {min(result['decode_ms']):7.1f} ms fastest, "
                        f"{graph}process {result['process_s']:.1f} s"
                    )
        self.table()

    def table(self):
        def samples(name, key):
            return [value for result in self.results["modes"].get(name, []) for value in result.get(key, [])]

        base = {key: samples("unwatched", key) for key in ("decode_ms", "graph_ms", "prefill_ms")}
        rows = []
        print()
        print(f"{'profiler':15} | {'stage':8} | {'median':>8} | {'fastest':>8} | {'spread':>7} | {'x median':>8} | {'x fastest':>9}")
        for name in self.results["modes"]:
            for key in ("decode_ms", "graph_ms", "prefill_ms"):
                values = samples(name, key)
                if not values or not base[key]:
                    continue
                median, fastest = statistics.median(values), min(values)
                row = {
                    "mode": name,
                    "stage": key[:-3],
                    "median_ms": median,
                    "fastest_ms": fastest,
                    "spread_pct": 100 * (max(values) - fastest) / fastest,
                    "ratio_median": median / statistics.median(base[key]),
                    "ratio_fastest": fastest / min(base[key]),
                    "samples": len(values),
                }
                rows.append(row)
                print(
                    f"{name:15} | {row['stage']:8} | {median:8.1f} | {fastest:8.1f} | {row['spread_pct']:6.0f}% | "
                    f"{row['ratio_median']:8.3f} | {row['ratio_fastest']:9.3f}"
                )
        print(flush=True)
        self.results["table"] = rows
        ratio = {(row["mode"], row["stage"]): row["ratio_fastest"] for row in rows}
        if ("native", "decode") in ratio:
            self.check("eager decode under native at most 1.15", ratio["native", "decode"] <= 1.15, f"{ratio['native', 'decode']:.3f}")
        if ("nsys", "decode") in ratio and ("native", "decode") in ratio:
            self.check("nsys costs more than native", ratio["nsys", "decode"] > ratio["native", "decode"], f"{ratio['nsys', 'decode']:.3f}")
        graph = [ratio[name, "graph"] for name in ("native-graph",) if (name, "graph") in ratio]
        if graph:
            self.check("graph decode under native at most 1.03", graph[0] <= 1.03, f"{graph[0]:.3f}")

    # -- the same as nsys ------------------------------------------------------------------------------------------

    def same_as_nsys(self):
        folder = next((f for f in ("native-eager.0", "native-copies.0") if os.path.isdir(os.path.join(self.out, f))), None)
        native = folder and self.summary(os.path.join(self.out, folder))
        if native is None:
            self.check("a native capture is there", False, "none in native-eager.0 or native-copies.0")
            return
        self.results["native_summary"] = {k: v for k, v in native.items() if k != "kernels"}
        self.say(f"native capture: {native['ending']}, {native['bytes']} bytes, {native['records']}")
        for fact in native["facts"]:
            self.say(f"  {fact}")
        for name, loss in native["losses"].items():
            self.say(f"  loss {name}: {loss}")
        self.check("the native capture is complete", native["ending"].startswith("Complete"), native["ending"])
        self.check("nothing was dropped", "cupti.dropped" not in native["losses"], str(list(native["losses"])))
        self.check("every kernel has its launch call", native["kernels_without_call"] == 0, str(native["kernels_without_call"]))
        other = self.summary(os.path.join(self.out, "native-callbacks.0"))
        if other:
            apart = other["kernels_without_call"], other["records"].get("call", 0), native["records"].get("call", 0)
            self.check("every kernel has its launch call through callbacks", apart[0] == 0, f"{apart[0]} without; {apart[1]} calls, {apart[2]} as activities")
        self.check("ranges are there", any("decode_step" in name for name in native["ranges"]), str(native["ranges"]))
        report = os.path.join(self.out, "nsys.0.nsys-rep")
        if not os.path.exists(report) or folder != "native-eager.0":
            self.note("no nsys report to compare with")
            return
        nsys = self.args.nsys or shutil.which("nsys")
        database = os.path.join(self.out, "nsys.0.sqlite")
        subprocess.run([nsys, "export", "--type=sqlite", "--force-overwrite=true", "-o", database, report], capture_output=True)
        if not os.path.exists(database):
            self.note("nsys could not export its report")
            return
        theirs = {}
        query = (
            "SELECT s.value, gridX, gridY, gridZ, blockX, blockY, blockZ, COUNT(*), SUM(end - start) "
            "FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.mangledName GROUP BY 1,2,3,4,5,6,7"
        )
        for row in sqlite3.connect(database).execute(query):
            theirs[row[0], *row[1:7]] = row[7:]
        ours = {}
        for kernel in native["kernels"]:
            ours[kernel["name"], *kernel["grid"], *kernel["block"]] = (kernel["count"], kernel["ns"])
        differ = [
            (key[0][:60], ours.get(key, (0, 0))[0], theirs.get(key, (0, 0))[0])
            for key in {*ours, *theirs}
            if ours.get(key, (0, 0))[0] != theirs.get(key, (0, 0))[0]
        ]
        counts = sum(v[0] for v in ours.values()), sum(v[0] for v in theirs.values())
        times = sum(v[1] for v in ours.values()), sum(v[1] for v in theirs.values())
        self.check("the same kernels, grids and counts as nsys", not differ, f"{counts}, {len(differ)} differ: {differ[:6]}")
        apart = 100 * abs(times[0] - times[1]) / max(times[1], 1)
        self.check("kernel time within 2 % of nsys", apart <= 2, f"{times[0] / 1e6:.2f} and {times[1] / 1e6:.2f} ms, {apart:.2f} %")

    # -- killed, and many ------------------------------------------------------------------------------------------

    def killed(self):
        folder = os.path.join(self.out, "killed")
        shutil.rmtree(folder, ignore_errors=True)
        command = [sys.executable, WORKLOAD, "--out", os.path.join(self.out, "killed.json"), "--forever"]
        with open(os.path.join(self.out, "killed.err"), "w") as errors:
            child = subprocess.Popen(command, env=self.native_env(folder), stdout=subprocess.PIPE, stderr=errors, text=True)
            line = child.stdout.readline()
            time.sleep(3)
            child.send_signal(signal.SIGKILL)
            child.wait()
        found = self.summary(folder) if line else None
        if found is None:
            self.check("killed: the capture reads", False, "no capture; see killed.err")
            return
        kernels = found["records"].get("kernel", 0)
        self.check("killed: the capture is read and reported as truncated", found["ending"].startswith("Cut") and kernels > 0, f"{found['ending']}, {kernels} kernels")

    def many(self):
        arguments = ["--many", str(self.args.many)]
        alone = self.run("many-alone", arguments=arguments)
        folder = os.path.join(self.out, "many")
        shutil.rmtree(folder, ignore_errors=True)
        watched = self.run("many-native", env=self.native_env(folder, copies=0), arguments=arguments)
        found = self.summary(folder)
        if not (alone and watched and found):
            self.check("many kernels", False, "a run failed")
            return
        self.results["many"] = {"alone": alone, "native": watched, "bytes": found["bytes"], "losses": found["losses"]}
        kernels = found["records"].get("kernel", 0)
        self.check(f"{self.args.many} kernels, none dropped", kernels >= self.args.many and "cupti.dropped" not in found["losses"], f"{kernels} kernels, {found['bytes'] / 1e6:.0f} MB, losses {found['losses']}")
        growth = (watched["after"]["VmHWM"] - watched["before"]["VmRSS"]) - (alone["after"]["VmHWM"] - alone["before"]["VmRSS"])
        whole = watched["after"]["VmHWM"] - alone["after"]["VmHWM"]
        self.check("memory grows by less than 300 MB", whole < 300, f"{growth:.0f} MB while launching, {whole:.0f} MB in all")
        self.say(f"{alone['seconds']:.2f} s alone, {watched['seconds']:.2f} s watched: x {watched['seconds'] / alone['seconds']:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True, help="libroofgap_inject.so")
    parser.add_argument("--dump", required=True, help="the example program `dump` of the crate")
    parser.add_argument("--out", default="tmp/native-manual")
    parser.add_argument("--nsys", help="nsys, if it is not on the PATH")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--many", type=int, default=2_000_000)
    parser.add_argument("--only", help="comma-separated modes in addition to unwatched")
    parser.add_argument("--skip", default="", help="comma-separated: price, same, killed, many")
    args = parser.parse_args()
    args.library, args.dump = os.path.abspath(args.library), os.path.abspath(args.dump)
    bench = Bench(args)
    skip = args.skip.split(",")
    for name, part in [
        ("price", bench.price),
        ("same", bench.same_as_nsys),
        ("killed", bench.killed),
        ("many", bench.many),
    ]:
        if name in skip:
            continue
        try:
            part()
        except Exception as error:  # one part must not take the others with it
            bench.check(name, False, f"{type(error).__name__}: {error}")
    with open(os.path.join(bench.out, "results.json"), "w") as file:
        json.dump(bench.results, file, indent=1)
    failed = [check["name"] for check in bench.results["checks"] if not check["held"]]
    bench.say(f"{len(bench.results['checks']) - len(failed)} checks passed, {len(failed)} failed: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
