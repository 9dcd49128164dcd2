"""Adds many captures to a lake with Spark: one task for each capture, which runs `roofgap-lake add` on an executor.

    spark-submit integrations/spark/ingest.py --captures /mnt/captures --lake s3://bucket/lake

Every capture gives one row: its source, key, status, error, number of attempts, time and executor. A capture is in the lake at most once,
because its key is a hash of its content, so tasks may run again: after a lost executor, speculatively, or in a later job.
"""

import argparse
import collections
import json
import os
import pathlib
import resource
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time

Result = collections.namedtuple("Result", "source run_key status error attempts seconds executor")
SCHEMA = "source STRING, run_key STRING, status STRING, error STRING, attempts INT, seconds DOUBLE, executor STRING"

# The file that marks a run directory.
RUN_MARKER = "session.json"
# Endings of the files that a folder is searched for.
ENDINGS = (".rgcap", ".rgcap.gz", ".nsys-rep", ".sqlite", ".sqlite.gz", ".json", ".json.gz")
# Status of a capture that is not in the lake.
FAILED = "failed"


def list_captures(paths):
    """Lists the captures below local paths, and those that a file named @FILE lists, one a line. Run directories are one capture each."""
    found = []
    for path in paths:
        if path.startswith("@"):
            lines = pathlib.Path(path[1:]).read_text().splitlines()
            found.extend(place(line.strip()) for line in lines if line.strip())
        elif is_remote(path):
            raise SystemExit(f"error: {path}: list the captures of an object store in a file and give it as @FILE")
        elif os.path.isdir(path):
            found.extend(walk(place(path)))
        elif os.path.exists(path):
            found.append(place(path))
        else:
            raise SystemExit(f"error: {path} does not exist")
    return sorted(set(found))


def walk(folder):
    """Lists the run directories and captures below a folder. A report of nsys whose export is beside it is left out."""
    if os.path.exists(os.path.join(folder, RUN_MARKER)):
        yield folder
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from walk(entry.path)
            elif entry.name.endswith(ENDINGS) and entry.is_file() and not is_exported(entry.path):
                yield entry.path


def is_exported(path):
    """Returns true for a report of nsys whose export is beside it: both are the same run."""
    stem, ending = os.path.splitext(path)
    return ending == ".nsys-rep" and any(os.path.exists(stem + export) for export in (".sqlite", ".sqlite.gz"))


def is_remote(path):
    """Returns true for the address of an object store."""
    return "://" in path


def place(path):
    """Returns a path that means the same in every working folder: each executor has its own."""
    return path if is_remote(path) else os.path.abspath(path)


def limits(seconds, memory_bytes):
    """Returns a function that limits the process that calls it. The limit of CPU time, which is that of all cores for the time limit, also
    ends a process whose executor was lost."""
    cpu_seconds = seconds * (os.cpu_count() or 1)

    def apply():
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 10))
        if memory_bytes:
            resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    return apply


def run(command, timeout, memory_bytes):
    """Runs a command. Returns its exit status (None after the time limit), stdout and stderr."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=limits(timeout, memory_bytes),
    )
    try:
        out, err = process.communicate(timeout=timeout)
        status = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        status = None
    return status, out.decode(errors="replace"), err.decode(errors="replace")


def last_line(text):
    """Returns the last line of a text that is not empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def problem(program, status, err, timeout):
    """Describes a command that gave no answer."""
    said = f": {last_line(err)}" if last_line(err) else ""
    if status is None:
        return f"{program} took longer than {timeout} s"
    if status < 0:
        return f"{program} was ended by signal {-status}{said}"
    return f"{program} exited with status {status}{said}"


def answer(out):
    """Returns the last JSON object that `roofgap-lake add --json` printed, or None."""
    try:
        found = json.loads(last_line(out))
    except ValueError:
        return None
    return found if isinstance(found, dict) and "status" in found else None


def add_once(source, job, folder):
    """Adds a capture. Returns its key, status and error. The status is None where a further attempt can help; a capture that cannot be
    read is recorded in the table `errors` of the lake, and reading it again changes nothing."""
    local = source
    if is_remote(source):
        local = os.path.join(folder, os.path.basename(source))
        copy = [part.format(source=source, target=local) for part in job["copy"]]
        try:
            status, _, err = run(copy, job["timeout"], 0)
        except OSError as error:
            return None, None, f"cannot run {copy[0]}: {error}"
        if status != 0:
            return None, None, problem(copy[0], status, err, job["timeout"])
    command = [job["program"], "add", local, "--to", job["lake"], "--json", "--jobs", "1", *job["options"]]
    try:
        status, out, err = run(command, job["timeout"], job["memory_bytes"])
    except OSError as error:
        return None, None, f"cannot run {job['program']}: {error}"
    found = answer(out)
    if found is None:
        return None, None, problem(job["program"], status, err, job["timeout"])
    return found.get("run_key"), found["status"], found.get("error")


def add(source, job):
    """Adds a capture, with further attempts where they can help. Never raises: a failure is a result."""
    began = time.monotonic()
    key = status = error = None
    attempts = 0
    while status is None and attempts <= job["retries"]:
        if attempts:
            time.sleep(min(job["pause"] * 2 ** (attempts - 1), 60))
        attempts += 1
        try:
            with tempfile.TemporaryDirectory(prefix="roofgap-") as folder:
                key, status, error = add_once(source, job, folder)
        except Exception as unexpected:  # A full disk, for one. The job goes on with the other captures.
            key, status, error = None, None, f"{type(unexpected).__name__}: {unexpected}"
    return Result(source, key, status or FAILED, error, attempts, time.monotonic() - began, socket.gethostname())


def parse(arguments=None):
    """Parses the command line."""
    parser = argparse.ArgumentParser(description="Adds many captures to a lake with Spark, one task for each.")
    parser.add_argument("--captures", action="append", required=True, metavar="PATH", help="folder, capture, run directory, or @FILE with one path or address a line; may be repeated")
    parser.add_argument("--lake", required=True, help="folder that all executors share, or s3://BUCKET/PREFIX")
    parser.add_argument("--results", help="folder or address for the rows of this job, as JSON lines; by default LAKE/_ingest")
    parser.add_argument("--program", default="roofgap-lake", help="roofgap-lake on the executors")
    parser.add_argument("--project", help="project of the runs")
    parser.add_argument("--date", metavar="YYYY-MM-DD", help="date of the runs; by default that of the run, else of the file, which for a copy of an object store is the time of copying")
    parser.add_argument("--host", help="host of the runs; by default that of the capture")
    parser.add_argument("--label", action="append", default=[], metavar="KEY=VALUE", help="label of the runs; may be repeated")
    parser.add_argument("--retries", type=int, default=2, help="further attempts after a time limit, a crash or a failed copy")
    parser.add_argument("--timeout", type=int, default=600, help="time limit of an attempt, s")
    parser.add_argument("--memory", type=int, default=0, help="limit of the address space of roofgap-lake, MiB; 0 is no limit")
    parser.add_argument("--pause", type=float, default=1.0, help="pause before the second attempt, s; doubles with each further one")
    parser.add_argument("--copy", metavar="COMMAND", help="command that copies {source} to {target}, for captures in an object store, such as 'aws s3 cp {source} {target}'")
    options = parser.parse_args(arguments)
    if options.retries < 0 or options.timeout < 1 or options.memory < 0 or options.pause < 0:
        parser.error("--retries, --memory and --pause must not be negative, and --timeout must be at least 1")
    options.lake = place(options.lake)
    return options


def settings(options):
    """Returns what a task needs to know."""
    added = []
    for name in ("project", "date", "host"):
        if value := getattr(options, name):
            added += [f"--{name}", value]
    for label in options.label:
        added += ["--label", label]
    return {
        "program": options.program,
        "lake": options.lake,
        "options": added,
        "retries": options.retries,
        "timeout": options.timeout,
        "memory_bytes": options.memory << 20,
        "pause": options.pause,
        "copy": shlex.split(options.copy) if options.copy else [],
    }


def summary(results):
    """Describes the results in one line."""
    counts = collections.Counter(result.status for result in results)
    parts = [f"{counts[status]} {status}" for status in ("added", "present", "failed")]
    return f"{len(results)} captures: {', '.join(parts)}"


def main(arguments=None):
    """Runs the job. Exits with 3 if a capture failed, like roofgap."""
    options = parse(arguments)
    captures = list_captures(options.captures)
    if not captures:
        raise SystemExit("error: no captures found")
    if not options.copy and any(map(is_remote, captures)):
        raise SystemExit("error: captures in an object store need --copy")

    from pyspark.sql import SparkSession

    # A lost executor is not a failure of the capture: the task runs again elsewhere.
    builder = SparkSession.builder.appName("roofgap ingest").config("spark.task.maxFailures", "8")
    session = builder.getOrCreate()
    path = options.results or options.lake.rstrip("/") + "/_ingest"
    # Fails before the work where Spark cannot write there.
    session.createDataFrame([], SCHEMA).write.mode("append").json(path)
    job = session.sparkContext.broadcast(settings(options))
    tasks = session.sparkContext.parallelize(captures, len(captures))
    results = tasks.map(lambda source: add(source, job.value)).collect()

    results = sorted(map(Result._make, results))
    for result in results:
        if result.status == FAILED:
            print(f"failed: {result.source}: {result.error}", file=sys.stderr)
    print(summary(results), flush=True)
    session.createDataFrame(results, SCHEMA).coalesce(1).write.mode("append").json(path)
    session.stop()
    return 3 if any(result.status == FAILED for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
