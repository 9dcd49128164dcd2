#!/usr/bin/env python3
"""Kills commands at random moments. Afterwards nothing may be lost, removed that is not roofgap's, or left running.

usage: scripts/kill-test.py ROOFGAP [KILLS [SEED]]      (200 kills by default)

Needs a C compiler for the program and the CUPTI that stand in for real ones.
"""

import collections
import gzip
import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
STAND_INS = ROOT / "tests/stand-in"
LIMIT = 120
SECRET = "hf_" + "QwErTyUiOpAsDfGhJkLzXcVbNmQwErTyUi"


def wait_until(what, done):
    deadline = time.monotonic() + LIMIT
    while not (found := done()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {LIMIT} s")
        time.sleep(0.02)
    return found


class Bench:
    """A folder, and commands whose processes are found by their environment."""

    def __init__(self, roofgap, folder):
        self.roofgap, self.folder = roofgap, folder
        self.mark = f"ROOFGAP_KILL_TEST={folder}"
        for name in ("run", "tmp", "documents"):
            (folder / name).mkdir(mode=0o700)
        (folder / "documents/letter").write_text("dear reader")

    def environment(self):
        name, value = self.mark.split("=", 1)
        return {
            **os.environ,
            name: value,
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
            "TMPDIR": str(self.folder / "tmp"),
            "CUPTI_LIBRARY": str(self.folder.parent / "libcupti.so"),
        }

    def start(self, *arguments, **streams):
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **streams}
        return subprocess.Popen([self.roofgap, *map(str, arguments)], env=self.environment(), cwd=self.folder, **streams)

    def run(self, *arguments, status=(0,)):
        done = self.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, error = done.communicate(timeout=LIMIT)
        assert done.returncode in status, f"{arguments}: status {done.returncode}\n{error.decode()}"
        return out.decode()

    def living(self):
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (process / "environ").read_bytes().split(b"\0"):
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                pass
        return found

    def is_quiet(self):
        wait_until("the end of every process", lambda: not self.living())


def kill_after(process, longest):
    """Kills a process at a random moment. Returns true if it still ran."""
    try:
        process.wait(random.uniform(0, longest))
        return False
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True


def profile_arguments(bench):
    tools = [f"profiling.{tool}.path='{STAND_INS / tool}'" for tool in ("nsys", "ncu")]
    return ["profile", *tools, "profiling.timeline=nsys", f"artifacts.stage2_dir='{bench.folder}/runs'", "--", "sh", "-c", f"echo {SECRET}; sleep 0.1"]


def profile(bench, longest):
    killed = kill_after(bench.start(*profile_arguments(bench)), longest)
    bench.is_quiet()
    shown = bench.run("runs", "list", "--format=json", f"--dir={bench.folder}/runs", status=(0, 2))
    for run in json.loads(shown or "[]"):
        assert run["status"] in ("abandoned", "done", "partial"), run
    return killed


def watched(bench):
    program = bench.start("watch", "--", bench.folder.parent / "program", "loop", stdin=subprocess.PIPE)
    loaded = lambda: any(row["pid"] == program.pid and row["processes"] for row in json.loads(bench.run("capture", "--format=json")))
    wait_until("the collector", loaded)
    return program


def capture(bench, longest):
    program = watched(bench)
    killed = kill_after(bench.start("capture", "latest", "--for", "1s", "--out", bench.folder / "runs"), longest)
    assert program.poll() is None, "the program has ended with the capture"
    bench.run("capture", "latest", "--steps", "3", "--out", bench.folder / "next")
    program.stdin.close()
    assert program.wait(LIMIT) == 7
    bench.is_quiet()
    return killed


def watch(bench, longest):
    other = watched(bench)
    killed = kill_after(bench.start("watch", "--", bench.folder.parent / "program", "loop", stdin=subprocess.PIPE), longest)
    bench.run("watch", "--", "true")
    bench.run("capture", str(other.pid), "--steps", "3", "--out", bench.folder / "runs")
    other.stdin.close()
    assert other.wait(LIMIT) == 7
    bench.is_quiet()
    bench.run("watch", "--", "true")
    # The last one, and folders whose registration was not written yet.
    registered = list((bench.folder / "run/roofgap").glob("*/watch.json"))
    assert len(registered) <= 1, registered
    return killed


def recorded(bench):
    """Makes a run with a secret in its output and large files, and returns its folder."""
    template = bench.folder.parent / "template"
    if not template.exists():
        bench.run(*profile_arguments(bench), status=(0, 3))
        (made,) = (bench.folder / "runs").iterdir()
        for number in range(20):
            text = "\n".join(f"{number},{line},kernel_{line * 7 % 13}" for line in range(20_000))
            (made / "ncu").mkdir(exist_ok=True)
            (made / f"ncu/stage{number}_raw.csv").write_text(f"{text}\nat,{SECRET},end\n")
        shutil.copytree(bench.folder / "runs", template)
    shutil.rmtree(bench.folder / "runs", ignore_errors=True)
    shutil.copytree(template, bench.folder / "runs")
    (run,) = (bench.folder / "runs").iterdir()
    return run


def no_halves(folder):
    halves = [path for path in folder.rglob(".*") if path.name.endswith(".tmp")]
    assert not halves, halves


def scrub(bench, longest):
    run = recorded(bench)
    before = {path.relative_to(run) for path in run.rglob("*") if path.is_file()}
    archive = bench.folder / "share.tar.gz"
    arguments = ("runs", "scrub", run, "--pack", archive)
    killed = kill_after(bench.start(*arguments), longest)
    bench.is_quiet()
    bench.run(*arguments, status=(0, 3))
    after = {path.relative_to(run) for path in run.rglob("*") if path.is_file()}
    assert before <= after, before - after
    no_halves(run)
    with tarfile.open(archive) as files:
        for member in files:
            assert SECRET.encode() not in files.extractfile(member).read(), member.name
    return killed


def content(path):
    opened = gzip.open(path) if path.suffix == ".gz" else open(path, "rb")
    with opened as file:
        return hashlib.sha256(file.read()).hexdigest()


def prune(bench, longest):
    run = recorded(bench)
    name = lambda path: str(path.relative_to(run)).removesuffix(".gz")
    contents = lambda: {name(path): content(path) for path in run.rglob("*") if path.is_file() and not path.name.startswith(".")}
    before = contents()
    arguments = ("runs", "prune", "retention.keep=0", f"--dir={bench.folder}/runs")
    killed = kill_after(bench.start(*arguments), longest)
    bench.is_quiet()
    assert contents() == before, "a file is lost or changed"
    for half in run.rglob(".*.tmp"):
        # Younger ones may be of another process.
        os.utime(half, (0, 0))
    bench.run(*arguments)
    assert contents() == before, "a file is lost or changed"
    no_halves(run)
    return killed


def main():
    roofgap, kills = str(pathlib.Path(sys.argv[1]).resolve()), int(sys.argv[2]) if sys.argv[2:] else 200
    seed = int(sys.argv[3]) if sys.argv[3:] else random.randrange(1 << 30)
    random.seed(seed)
    print(f"seed {seed}", flush=True)
    # Longest times until the kill, s; they follow the time that a command takes here.
    commands = {profile: 4.0, capture: 2.5, watch: 0.5, scrub: 3.0, prune: 2.0}
    seen = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="rg-", dir="/tmp") as base:
        base = pathlib.Path(base)
        for source, out, flags in (("program.c", "program", []), ("cupti.c", "libcupti.so", ["-shared", "-fPIC"])):
            source = ROOT / "crates/roofgap-inject/tests/stand-in" / source
            subprocess.run([os.environ.get("CC", "cc"), "-O1", "-o", base / out, source, *flags, "-ldl", "-lpthread"], check=True)
        number = 0
        while sum(seen[command.__name__] for command in commands) < kills:
            command = list(commands)[number % len(commands)]
            folder = base / str(number)
            number += 1
            folder.mkdir()
            bench = Bench(roofgap, folder)
            try:
                killed = command(bench, commands[command])
            except Exception:
                print(f"{command.__name__}, number {number}, seed {seed}", flush=True)
                raise
            assert (folder / "documents/letter").read_text() == "dear reader"
            commands[command] *= 1.1 if killed else 0.8
            seen[command.__name__ if killed else f"{command.__name__}, ended before"] += 1
            shutil.rmtree(folder)
    for name, count in sorted(seen.items()):
        print(f"{count:4} {name}")


if __name__ == "__main__":
    main()
