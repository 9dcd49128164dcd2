"""Tables of many runs on a Spark cluster: exports captures with one task for each, and asks the saved questions.

    spark-submit many_runs.py export --to /shared/tables [--results ROWS] /shared/captures/* [@LIST]
    spark-submit many_runs.py ask /shared/tables slow-hosts since=2026-03-01

A task runs `roofgap export parquet` as a process of its own. Tasks may run again: a run that is there is left as it is.
"""

import argparse
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

SCHEMA = "source STRING, status STRING, error STRING"


def is_remote(path):
    """Returns true for the address of an object store."""
    return "://" in path


def export(source, job):
    """Exports a run. Returns its source, its status (`done`, `partial` or `failed`) and the last line of its messages."""
    try:
        with tempfile.TemporaryDirectory(prefix="roofgap-") as folder:
            local, tables = source, job["to"]
            if is_remote(source):
                local = os.path.join(folder, os.path.basename(source))
                copy(job, "fetch", source, local)
            if is_remote(tables):
                tables = os.path.join(folder, "tables")
            command = [job["program"], "export", "parquet", local, "--to", tables]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=job["timeout"])
            if is_remote(job["to"]) and done.returncode in (0, 3):
                # The run is there when its file in `runs` is.
                for table in sorted(os.listdir(tables), key="runs".__eq__):
                    copy(job, "put", os.path.join(tables, table), f"{job['to'].rstrip('/')}/{table}")
            status = {0: "done", 3: "partial"}.get(done.returncode, "failed")
            return source, status, None if status == "done" else last_line(done.stderr) or f"exit status {done.returncode}"
    except subprocess.CalledProcessError as error:
        return source, "failed", last_line(error.stderr) or str(error)
    except (OSError, subprocess.SubprocessError) as error:
        return source, "failed", str(error)


def copy(job, option, source, target):
    """Fetches a capture from an object store, or puts the folder of a table there."""
    command = [part.format(source=source, target=target) for part in shlex.split(job[option])]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=job["timeout"])


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def read_tables(spark, folder):
    """Defines a view for each table of a folder."""
    from roofgap._lake import TABLES

    for table in TABLES:
        frame = spark.read.option("mergeSchema", "true").parquet(f"{folder.rstrip('/')}/{table}")
        frame.createOrReplaceTempView(table)


def parse(arguments=None):
    parser = argparse.ArgumentParser(description="Exports runs on a Spark cluster, or answers a saved question there.")
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("export", help="export runs and captures, one task for each")
    add.add_argument("runs", nargs="+", metavar="RUN", help="run folder or capture; or @FILE with one path or address a line")
    add.add_argument("--to", required=True, metavar="DIR", help="folder that all executors share, or an address, with --put")
    add.add_argument("--program", default="roofgap", help="roofgap on the executors")
    add.add_argument("--timeout", type=int, default=600, help="time limit of a run, s")
    add.add_argument("--fetch", metavar="COMMAND", help="fetches a capture, such as 'aws s3 cp {source} {target}'")
    add.add_argument("--put", metavar="COMMAND", help="puts a folder, such as 'aws s3 cp --recursive {source} {target}'")
    add.add_argument("--results", metavar="PATH", help="folder or address for a row of each run, as JSON lines")
    ask = commands.add_parser("ask", help="answer a saved question")
    ask.add_argument("folder", help="folder of the tables, or its address")
    ask.add_argument("question", help="name, such as slow-hosts")
    ask.add_argument("values", nargs="*", metavar="NAME=VALUE", help="parameters of the question")
    options = parser.parse_args(arguments)
    if options.command == "export":
        options.runs = [run for name in options.runs for run in listed(name)]
        if (is_remote(options.to) and not options.put) or (any(map(is_remote, options.runs)) and not options.fetch):
            parser.error("an object store needs --fetch for captures and --put for tables")
    return options


def listed(name):
    """Returns the run of an argument, or those that a file lists. Executors have working folders of their own."""
    lines = pathlib.Path(name[1:]).read_text().split("\n") if name.startswith("@") else [name]
    return [line if is_remote(line) else os.path.abspath(line) for line in map(str.strip, lines) if line]


def main(arguments=None):
    """Runs the job. Exits with 3 if a run could not be exported completely."""
    options = parse(arguments)
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("roofgap").getOrCreate()
    if options.command == "ask":
        import roofgap

        read_tables(spark, options.folder)
        values = dict(value.split("=", 1) for value in options.values)
        spark.sql(roofgap.question(options.question, **values)).show(1000, truncate=False)
        return 0
    job = {name: getattr(options, name) for name in ("to", "program", "timeout", "fetch", "put")}
    if not is_remote(job["to"]):
        job["to"] = os.path.abspath(job["to"])
    tasks = spark.sparkContext.parallelize(options.runs, len(options.runs))
    results = sorted(tasks.map(lambda source: export(source, job)).collect())
    incomplete = [result for result in results if result[1] != "done"]
    for source, status, error in incomplete:
        print(f"{status}: {source}: {error}", file=sys.stderr)
    print(f"{len(results)} runs, {len(incomplete)} of them not complete", flush=True)
    if options.results:
        spark.createDataFrame(results, SCHEMA).coalesce(1).write.mode("append").json(options.results)
    return 3 if incomplete else 0


if __name__ == "__main__":
    sys.exit(main())
