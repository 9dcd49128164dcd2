"""The Spark job that adds many captures: each good one exactly once, each bad one a row with its error, also when an executor is killed.

ROOFGAP_TEST_LAKE names the program `roofgap-lake`. ROOFGAP_TEST_CAPTURES sets the number of captures of the job, 60 by default.
"""

import collections
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
JOB = ROOT / "integrations" / "spark" / "ingest.py"
sys.path.insert(0, str(JOB.parent))

import ingest  # noqa: E402

PROGRAM = pathlib.Path(os.environ.get("ROOFGAP_TEST_LAKE", ROOT / "target" / "debug" / "roofgap-lake"))
CAPTURES = int(os.environ.get("ROOFGAP_TEST_CAPTURES", "60"))

# Stands in for roofgap-lake: does what the name of the capture says, and counts its calls.
STAND_IN = """\
#!/bin/sh
echo call >>"$2.calls"
case "$2" in
    *good*) echo "{\\"run_key\\": \\"k1\\", \\"status\\": \\"added\\", \\"error\\": null, \\"options\\": \\"$*\\"}" ;;
    *bad*) echo '{"run_key": "k2", "status": "failed", "error": "not a capture"}'; exit 2 ;;
    *crash*) echo "out of luck" >&2; kill -SEGV $$ ;;
    *hang*) sleep 60 ;;
    *once*) [ "$(wc -l <"$2.calls")" -gt 1 ] || exit 1; echo '{"run_key": "k3", "status": "added"}' ;;
esac
"""


class OneCapture(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.program = self.folder / "roofgap-lake"
        self.program.write_text(STAND_IN)
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)

    def add(self, name, *arguments):
        options = ["--captures", "x", "--lake", "lake", "--program", str(self.program), "--pause", "0", *arguments]
        return ingest.add(str(self.folder / name), ingest.settings(ingest.parse(options)))

    def calls(self, name):
        return len((self.folder / f"{name}.calls").read_text().splitlines())

    def test_a_good_capture_is_added(self):
        result = self.add("good", "--project", "chat")
        self.assertEqual((result.run_key, result.status, result.error, result.attempts), ("k1", "added", None, 1))

    def test_a_capture_that_cannot_be_read_is_a_result_without_further_attempts(self):
        result = self.add("bad")
        self.assertEqual((result.run_key, result.status, result.error, result.attempts), ("k2", "failed", "not a capture", 1))
        self.assertEqual(self.calls("bad"), 1)

    def test_a_crash_is_tried_again_and_then_a_result(self):
        result = self.add("crash", "--retries", "2")
        self.assertEqual((result.status, result.attempts, self.calls("crash")), ("failed", 3, 3))
        self.assertIn(f"ended by signal {signal.SIGSEGV.value}: out of luck", result.error)

    def test_a_further_attempt_can_succeed(self):
        result = self.add("once")
        self.assertEqual((result.run_key, result.status, result.attempts), ("k3", "added", 2))

    def test_the_time_limit_ends_the_program(self):
        result = self.add("hang", "--timeout", "1", "--retries", "0")
        self.assertEqual(result.status, "failed")
        self.assertIn("took longer than 1 s", result.error)

    def test_a_program_that_is_not_there_is_a_result(self):
        self.program.unlink()
        result = self.add("good", "--retries", "0")
        self.assertEqual(result.status, "failed")
        self.assertIn("cannot run", result.error)

    def test_captures_of_an_object_store_are_copied_first(self):
        (self.folder / "store").mkdir()
        (self.folder / "store" / "good").touch()
        copy = f"sh -c 'cp {self.folder}/store/$(basename $0) $1' {{source}} {{target}}"
        options = ["--captures", "x", "--lake", "lake", "--program", str(self.program), "--copy", copy, "--pause", "0", "--retries", "0"]
        job = ingest.settings(ingest.parse(options))
        self.assertEqual(ingest.add("s3://bucket/good", job).status, "added")
        missing = ingest.add("s3://bucket/missing", job)
        self.assertEqual(missing.status, "failed")
        self.assertIn("No such file", missing.error)

    def test_folders_are_searched(self):
        captures = ["a/one.rgcap", "a/report.sqlite", "a/packed.sqlite.gz", "a/alone.nsys-rep", "a/trace.json.gz"]
        # Reports whose exports are there, and files that are no captures.
        others = ["a/report.nsys-rep", "a/packed.nsys-rep", "a/.hidden.json", "a/notes.txt", "a/table.csv"]
        for name in (*captures, *others, "run/session.json", "run/env.json"):
            path = self.folder / "in" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        (self.folder / "list").write_text("s3://bucket/x\n\n/data/y\n")
        found = ingest.list_captures([str(self.folder / "in"), f"@{self.folder / 'list'}"])
        below = [f"{self.folder}/in/{name}" for name in (*captures, "run")]
        self.assertEqual(found, sorted(["/data/y", *below, "s3://bucket/x"]))

    def test_paths_mean_the_same_in_every_working_folder(self):
        (self.folder / "one.rgcap").touch()
        (self.folder / "list").write_text("two.rgcap\ns3://bucket/x\n")
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.folder)
        here = os.getcwd()
        self.assertEqual(ingest.list_captures([".", "one.rgcap", "@list"]), [f"{here}/one.rgcap", f"{here}/two.rgcap", "s3://bucket/x"])
        for given, lake in (("lake", f"{here}/lake"), ("s3://bucket/lake", "s3://bucket/lake")):
            options = ingest.parse(["--captures", "x", "--lake", given])
            self.assertEqual(ingest.settings(options)["lake"], lake)

    def test_date_and_host_are_passed_on(self):
        options = ingest.parse(["--captures", "x", "--lake", "l", "--date", "2026-03-01", "--host", "a", "--label", "k=v"])
        self.assertEqual(ingest.settings(options)["options"], ["--date", "2026-03-01", "--host", "a", "--label", "k=v"])

    def test_cpu_time_is_that_of_all_cores(self):
        show = "import resource; print(resource.getrlimit(resource.RLIMIT_CPU)[0])"
        _, out, _ = ingest.run([sys.executable, "-c", show], 100, 0)
        self.assertEqual(int(out), 100 * os.cpu_count())


def trace(number):
    """Returns a small PyTorch trace whose content depends on the number."""
    common = {"ph": "X", "pid": 0, "tid": 7}
    arguments = {"device": 0, "stream": 7, "correlation": 1, "grid": [number + 1, 1, 1], "block": [128, 1, 1]}
    events = [
        {**common, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 100, "dur": 5, "args": {"correlation": 1}},
        {**common, "cat": "kernel", "name": "gemm", "ts": 110, "dur": 1000 + number, "args": arguments},
    ]
    return json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "traceEvents": events})


BROKEN = [b"", b"not a capture", trace(0).encode()[:-40], b"RGCAP\x00\x00garbage"]


def make_captures(folder, count):
    """Writes captures, of which every tenth is broken and the last has the content of the first."""
    good, bad = [], []
    for number in range(count):
        if number % 10 == 9:
            path = folder / f"broken-{number}.json"
            path.write_bytes(BROKEN[number // 10 % len(BROKEN)] + b" " * number)
            bad.append(str(path))
        else:
            path = folder / f"good-{number}.json"
            path.write_text(trace(number))
            good.append(str(path))
    copy = folder / "good-copy.json"
    copy.write_text(trace(0))
    return good, str(copy), bad


def executors(parent):
    """Returns the process ids of the executors below a process."""
    children = collections.defaultdict(list)
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            children[int(fields[1])].append((int(entry.name), (entry / "cmdline").read_bytes()))
        except (OSError, IndexError):
            continue
    found, queue = [], [parent]
    while queue:
        for pid, command in children[queue.pop()]:
            queue.append(pid)
            if b"CoarseGrainedExecutorBackend" in command and b"java" in command.split(b"\0")[0]:
                found.append(pid)
    return found


@unittest.skipUnless(importlib.util.find_spec("pyspark") and importlib.util.find_spec("duckdb"), "pyspark or duckdb is not installed")
@unittest.skipUnless(os.environ.get("ROOFGAP_TEST_SPARK") == "1" and shutil.which("java"), "ROOFGAP_TEST_SPARK=1 asks for Spark, which needs Java")
@unittest.skipUnless(PROGRAM.exists(), f"{PROGRAM} does not exist")
class ClusterJob(unittest.TestCase):
    def test_every_capture_is_accounted_for_when_an_executor_is_killed(self):
        import duckdb
        import pyspark

        folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        captures = folder / "captures"
        captures.mkdir()
        good, copy, bad = make_captures(captures, CAPTURES)
        lake = folder / "lake"
        home = os.path.dirname(pyspark.__file__)
        environment = {**os.environ, "SPARK_HOME": home, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        environment["SPARK_WORKER_DIR"] = str(folder / "work")
        command = [f"{home}/bin/spark-submit", "--master", "local-cluster[2,1,1024]", "--conf", "spark.executor.memory=512m"]
        command += ["--conf", "spark.ui.enabled=false", "--conf", "spark.speculation=true", JOB, "--program", PROGRAM]
        command += ["--captures", captures, "--lake", lake, "--timeout", "120"]
        with open(folder / "log", "w+") as log:
            job = subprocess.Popen(list(map(str, command)), env=environment, stdout=log, stderr=log, cwd=folder, start_new_session=True)
            self.addCleanup(lambda: job.poll() is None and os.killpg(job.pid, signal.SIGKILL))
            killed = None
            deadline = time.monotonic() + 600
            while job.poll() is None and time.monotonic() < deadline:
                done = sum(1 for _ in lake.glob("runs/*/*/*/*.parquet"))
                if killed is None and done >= CAPTURES // 4 and (running := executors(job.pid)):
                    killed = running[0]
                    os.kill(killed, signal.SIGKILL)
                time.sleep(0.2)
            late = job.poll() is None
            if late:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
            log.seek(0)
            text = log.read()
        self.assertFalse(late, f"the job takes longer than 600 s: {text[-4000:]}")
        self.assertIsNotNone(killed, text[-4000:])
        self.assertEqual(job.returncode, 3, text[-4000:])

        results = [json.loads(line) for path in lake.glob("_ingest/*.json") for line in path.read_text().splitlines()]
        by_source = {result["source"]: result for result in results}
        self.assertEqual(len(results), len(by_source))
        self.assertEqual(set(by_source), {*good, copy, *bad})
        for source in (*good, copy):
            self.assertIn(by_source[source]["status"], ("added", "present"), by_source[source])
        for source in bad:
            self.assertEqual(by_source[source]["status"], "failed")
            self.assertTrue(by_source[source]["error"])

        def read(table):
            return duckdb.sql(f"SELECT run_key, source FROM read_parquet('{lake}/{table}/*/*/*/*.parquet')").fetchall()

        runs = read("runs")
        # A capture and its copy are one run, under the path that was added first.
        self.assertEqual(len(runs), len(good))
        self.assertEqual({key for key, _ in runs}, {by_source[source]["run_key"] for source in good})
        self.assertEqual({source for _, source in read("errors")}, set(bad))


if __name__ == "__main__":
    unittest.main()
