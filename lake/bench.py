"""Prints the size of a lake, the rate of `add` and the times of the saved queries as Markdown. `lake/bench.sh` calls it."""

import os
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "sql"))
sys.path.insert(0, str(HERE / "tests"))

import engines  # noqa: E402
from test_ingest import trace  # noqa: E402

REPEATS = 3
ADDED = 200
VALUES = {"changes-since": {"date": "2026-03-16"}, "new-values": {"date": "2026-03-16"}}


def measured(work):
    """Runs a function in processes of its own, a few times. Returns the shortest elapsed time and the least CPU time, s."""
    elapsed, used = [], []
    for _ in range(REPEATS):
        began = time.perf_counter()
        child = os.fork()
        if child == 0:
            try:
                work()
            except BaseException as error:
                print(f"error: {error}", file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        _, status, usage = os.wait4(child, 0)
        elapsed.append(time.perf_counter() - began)
        used.append(usage.ru_utime + usage.ru_stime)
        if status:
            raise SystemExit("error: a query failed")
    return min(elapsed), min(used)


def sizes(lake):
    """Prints the files, rows and bytes of each table."""
    connection = engines.DuckDB(lake)
    runs = connection.query("SELECT COUNT(*) FROM runs")[1][0][0]
    print("\n| table | files | rows | bytes per run |")
    print("|---|---:|---:|---:|")
    total = 0
    for table in engines.SCHEMA:
        files = list(pathlib.Path(lake).glob(f"{table}/*/*/*/*.parquet"))
        rows = connection.query(f"SELECT COUNT(*) FROM {table}")[1][0][0]
        size = sum(file.stat().st_size for file in files)
        total += size
        print(f"| `{table}` | {len(files):,} | {rows:,} | {size / runs:.1f} |")
    print(f"| all | | | {total / runs:.1f} |\n")


def rate(program, folder):
    """Prints the rate of adding small captures, in one process."""
    captures, lake = folder / "captures", folder / "added"
    for path in (captures, lake):
        shutil.rmtree(path, ignore_errors=True)
    captures.mkdir()
    for number in range(ADDED):
        (captures / f"{number}.json").write_text(trace(number))
    began = time.perf_counter()
    subprocess.run([program, "add", captures, "--to", lake, "--jobs", "1"], check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    print(f"`add` of {ADDED} small captures in one process: {ADDED / seconds:.0f} captures per second and core\n")


def queries(program, lake):
    """Prints the times of each saved query on both engines."""
    print("| query | DataFusion, s | CPU, s | DuckDB, s | CPU, s |")
    print("|---|---:|---:|---:|---:|")
    for name in engines.names():
        values = VALUES.get(name, {})
        command = [program, "query", name, "--lake", lake, "--format", "csv", "--output", os.devnull]
        for item in values.items():
            command += ["--param", "=".join(item)]
        sql = engines.render(engines.text(name), values)
        ours = measured(lambda: os.execv(program, command))
        theirs = measured(lambda: engines.DuckDB(lake).query(sql))
        print(f"| `{name}` | {ours[0]:.2f} | {ours[1]:.2f} | {theirs[0]:.2f} | {theirs[1]:.2f} |", flush=True)


def main():
    """Prints all tables."""
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    lake = str(folder / "lake")
    # First, while this process has no threads that a fork would lose.
    queries(program, lake)
    sizes(lake)
    rate(program, folder)


if __name__ == "__main__":
    # Loaded before the processes start, so that the time to load it does not count.
    import duckdb  # noqa: F401

    main()
