"""Times the commands that bench.sh compares, one after another. See bench.sh."""

import argparse
import datetime
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]})
analysis.get_temporal_breakdown(visualize=False)
analysis.get_gpu_kernel_breakdown(visualize=False)
analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
analysis.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)
analysis.get_gpu_kernels_with_user_annotations(0)
analysis.get_memory_bw_summary()
if "operators" in sys.argv:
    analysis.get_aten_op_kernels_and_delay(ranks=[0])
"""

# veloq does not read the SQLite export, only the folder of Parquet files that nsys can also export.
PARQUET = """
import sqlite3, sys, pathlib
import pyarrow, pyarrow.parquet
db = sqlite3.connect(f"file:{sys.argv[1]}?immutable=1", uri=True)
folder = pathlib.Path(sys.argv[2])
folder.mkdir()
for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
    found = db.execute(f'SELECT * FROM "{table}"')
    names = [column[0] for column in found.description]
    columns = list(zip(*found.fetchall())) or [[] for _ in names]
    pyarrow.parquet.write_table(pyarrow.table(dict(zip(names, map(list, columns)))), folder / f"{table}.parquet")
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=Path, required=True, help="folder of the release build")
    parser.add_argument("--work", type=Path, required=True, help="folder for captures and outputs")
    parser.add_argument("--repeat", type=int, default=5, help="runs of roofgap; the median counts")
    parser.add_argument("--limit", type=float, default=900, help="time limit of another tool, s")
    parser.add_argument("--quick", action="store_true", help="20,000 kernels only")
    parser.add_argument("--ranks", metavar="NxKERNELS", help="only a job of N ranks, such as 64x100000, against single ranks")
    parser.add_argument("--ours", action="store_true", help="omit the other tools")
    return parser.parse_args()


class Run:
    """Time, CPU time and peak memory of a command."""

    def __init__(self, seconds, cpu, megabytes, status):
        self.seconds, self.cpu, self.megabytes, self.status = seconds, cpu, megabytes, status

    @property
    def sound(self):
        return self.status == "ok"


def measure(command, limit, folder):
    """Runs a command until it ends or reaches the limit. Peak memory is that of its largest process."""
    log = open(folder / "last.log", "w")
    begin = time.monotonic()
    # A separate process waits for the command, so that the peak is not that of an earlier command.
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.setpgid(0, 0)
        inner = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
        code = inner.wait()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        os.write(write, json.dumps([code, used.ru_utime + used.ru_stime, used.ru_maxrss]).encode())
        os._exit(0)
    os.close(write)
    while True:
        done, _ = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() - begin > limit:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        time.sleep(0.002)
    seconds = time.monotonic() - begin
    answer = os.read(read, 1000)
    os.close(read)
    log.close()
    if not answer:
        return Run(seconds, None, None, "stopped")
    code, cpu, kilobytes = json.loads(answer)
    return Run(seconds, cpu, kilobytes / 1024, "ok" if code == 0 else f"status {code}")


def capture(args, kind, kernels):
    """Generates a capture, once."""
    path = args.work / f"{kind}-{kernels}.{'sqlite' if kind == 'nsys' else 'json'}"
    if not path.exists():
        part = path.with_name("part-" + path.name)
        part.unlink(missing_ok=True)
        subprocess.run([args.bin / "examples/synth", kind, str(kernels), part], check=True)
        part.rename(path)
        Path(f"{part}.expected.json").unlink()
    return path


def ours(args, path):
    """Returns the median of several runs that write every report, after one run to fill the page cache."""
    out = args.work / "out"
    runs = []
    for _ in range(args.repeat + 1):
        shutil.rmtree(out, ignore_errors=True)
        runs.append(measure([args.bin / "roofgap", "analyze", path, "--out", out, "--quiet"], 600, args.work))
    runs = sorted(runs[1:], key=lambda run: run.seconds)
    middle = runs[len(runs) // 2]
    middle.megabytes = max(run.megabytes or 0 for run in runs)
    return middle


def other(args, command, path):
    """Runs a tool on a copy: some tools write next to their input, or into it."""
    folder = args.work / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    copy = folder / path.name
    if path.is_dir():
        shutil.copytree(path, copy)
    else:
        shutil.copy(path, copy)
    run = measure([part if part != "INPUT" else copy for part in command], args.limit, folder)
    shutil.copy(folder / "last.log", args.work / "last.log")
    shutil.rmtree(folder)
    return run


class Table:
    """A table whose rows are printed at once, so that an interrupted run shows its results so far."""

    def __init__(self, title):
        print(f"\n### {title}\n\n| command | s | CPU s | MB | ratio |\n|---|---|---|---|---|", flush=True)
        self.base = None

    def row(self, name, run):
        if self.base is None:
            self.base = run
        ratio = f"{run.seconds / self.base.seconds:.0f}" if run is not self.base else "1"
        at_least = "" if run.sound else "over " if run.status == "stopped" else ""
        note = "" if run.sound or run.status == "stopped" else f" ({run.status})"
        cpu = "" if run.cpu is None else f"{run.cpu:.2f}"
        megabytes = "" if run.megabytes is None else f"{run.megabytes:.0f}"
        print(f"| {name}{note} | {at_least}{run.seconds:.2f} | {cpu} | {megabytes} | {at_least}{ratio} |", flush=True)


def nsys_tools(args):
    nsys = os.environ.get("NSYS") or shutil.which("nsys")
    if nsys:
        for report in ["cuda_gpu_kern_sum", "nvtx_kern_sum", "nvtx_gpu_proj_sum"]:
            yield f"nsys stats, {report}", [nsys, "stats", "--report", report, "--format", "csv", "INPUT"]
    ai = args.work / "venv/bin/nsys-ai"
    if ai.exists():
        yield "nsys-ai report", [ai, "report", "INPUT", "--gpu", "0", "--trim", "0", "100000", "-o", "report.md"]


def veloq_rows(args, path, table):
    """Runs veloq's preparation and four queries on the same folder."""
    veloq, python = shutil.which("veloq"), args.work / "venv/bin/python"
    if not veloq or not python.exists():
        return
    folder = args.work / f"{path.stem}_pqtdir"
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([python, "-c", PARQUET, path, folder], check=True)
    questions = [
        ["prep", folder],
        ["stats", folder, "--limit", "20"],
        ["stats", folder, "--type", "kernel", "--group-by", "nvtx-path"],
        ["gaps", folder],
        ["slices", folder, "--aggregate"],
    ]
    runs = [measure([veloq, *question], args.limit, args.work) for question in questions]
    table.row("veloq: prep, top kernels, kernels by range, gaps, slices", together(runs))


def together(runs):
    """Sums up several commands: total time, largest memory."""
    failed = [run.status for run in runs if not run.sound]
    return Run(
        sum(run.seconds for run in runs),
        sum(run.cpu or 0 for run in runs),
        max(run.megabytes or 0 for run in runs),
        failed[0] if failed else "ok",
    )


def kineto_tools(args):
    python = args.work / "venv/bin/python"
    if python.exists():
        yield "Holistic Trace Analysis, without operators", [python, "-c", HTA, "INPUT"]
        # The same question that operators.md answers: which operators launched which kernels.
        yield "Holistic Trace Analysis", [python, "-c", HTA, "INPUT", "operators"]
    lens = shutil.which("TraceLens_generate_perf_report_pytorch")
    if lens:
        yield "TraceLens", [lens, "--profile_json_path", "INPUT"]


def compare(args, kind, kernels, tools):
    path = capture(args, kind, kernels)
    size = path.stat().st_size / 1e6
    source = "nsys export" if kind == "nsys" else "PyTorch trace"
    table = Table(f"{source}, {kernels:,} kernels, {size:.0f} MB")
    table.row("roofgap analyze, all reports", ours(args, path))
    sums = []
    for name, command in tools:
        run = other(args, command, path)
        table.row(name, run)
        if name.startswith("nsys stats"):
            sums.append(run)
    if len(sums) == 3:
        table.row("nsys stats, total of the three", together(sums))
    if kind == "nsys" and tools:
        veloq_rows(args, path, table)
    return table.base


def job(args):
    """Times a job of several ranks against the sum of single ranks on two processors."""
    ranks, kernels = (int(part) for part in args.ranks.split("x"))
    folder = args.work / f"job-{ranks}-{kernels}"
    if not folder.exists():
        part = folder.with_name("part-" + folder.name)
        shutil.rmtree(part, ignore_errors=True)
        subprocess.run([args.bin / "examples/synth", "job", str(ranks), str(kernels), part], check=True)
        part.rename(folder)
    size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    table = Table(f"Job of {ranks} ranks, {kernels:,} kernels each, {size:.0f} MB")
    single = ours(args, folder / "rank0.json")
    whole = ours(args, folder)
    table.row("all ranks", whole)
    table.row("one rank", single)
    expected = single.seconds * ranks / 2
    print(f"\nall ranks / (one rank x {ranks} / 2): {whole.seconds / expected:.2f}; memory {whole.megabytes:.0f} MB")


def versions(args):
    def first(command):
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
            return answer.splitlines()[-1] if answer else "?"
        except OSError:
            return "not installed"

    model = "?"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    print(f"date: {datetime.date.today()}")
    print(f"machine: {model}, {os.cpu_count()} processors, {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB, "
          f"{platform.system()} {platform.release()}")
    print(f"load at the start: {os.getloadavg()[0]:.1f}")
    print(f"roofgap: {first([args.bin / 'roofgap', '--version'])}")
    if args.ours:
        return
    print(f"nsys: {first([os.environ.get('NSYS') or 'nsys', '--version'])}")
    packages = "import importlib.metadata as m; print('nsys-ai', m.version('nsys-ai') + ', HolisticTraceAnalysis', m.version('HolisticTraceAnalysis'))"
    print(f"python: {first([args.work / 'venv/bin/python', '-c', packages])}")


def main():
    args = arguments()
    args.bin, args.work = args.bin.resolve(), args.work.resolve()
    versions(args)
    if args.ranks:
        return job(args)
    none = []
    tools = (lambda make: none) if args.ours else (lambda make: list(make(args)))
    if args.quick:
        compare(args, "nsys", 20_000, tools(nsys_tools))
        compare(args, "kineto", 20_000, tools(kineto_tools))
        return
    million = compare(args, "nsys", 1_000_000, tools(nsys_tools))
    compare(args, "kineto", 200_000, tools(kineto_tools))
    compare(args, "kineto", 1_000_000, none)
    ten = compare(args, "nsys", 10_000_000, none)
    print(f"\n10,000,000 kernels / 1,000,000: time {ten.seconds / million.seconds:.1f}, "
          f"memory {ten.megabytes / million.megabytes:.1f}")


if __name__ == "__main__":
    sys.exit(main())
