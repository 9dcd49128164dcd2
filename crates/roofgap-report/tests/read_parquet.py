"""Reads a data set of several runs with DuckDB, pandas and, where it is installed, Polars.

Each prints the number of kernels, their time and the number of calls over all runs and ranks.
"""

import sys

import duckdb
import pandas

root = sys.argv[1]


def show(reader, kernels, time, calls):
    print(f"{reader}: {int(kernels)} {int(time)} {int(calls)}")


def duck():
    def source(table):
        return f"read_parquet('{root}/*/*/{table}.parquet', hive_partitioning = true)"

    [(kernels, time)] = duckdb.sql(f"select count(*), sum(duration_ns) from {source('kernels')} where kind = 'kernel'").fetchall()
    [(calls,)] = duckdb.sql(f"select count(*) from {source('calls')}").fetchall()
    runs = duckdb.sql(f"select distinct run, rank from {source('kernels')} order by run, rank").fetchall()
    assert [(run, int(rank)) for run, rank in runs] == [("first", 0), ("first", 1), ("second", 0)], runs
    stages = duckdb.sql(f"select distinct stage from {source('kernels')} where stage is not null order by 1").fetchall()
    assert stages == [("decode",), ("prefill",)], stages
    show("duckdb", kernels, time, calls)


def panda():
    import glob

    def table(name):
        parts = sorted(glob.glob(f"{root}/*/*/{name}.parquet"))
        return pandas.concat([pandas.read_parquet(p) for p in parts])

    kernels = table("kernels")
    assert str(kernels["start_ns"].dtype) == "int64", kernels.dtypes
    assert (kernels["end_ns"] - kernels["start_ns"] == kernels["duration_ns"]).all()
    table("ranges"), table("counters"), table("copies")
    show("pandas", len(kernels), kernels["duration_ns"].sum(), len(table("calls")))


def polar():
    try:
        import polars
    except ImportError:
        return
    kernels = polars.scan_parquet(f"{root}/*/*/kernels.parquet", hive_partitioning=True).collect()
    calls = polars.scan_parquet(f"{root}/*/*/calls.parquet", hive_partitioning=True).collect()
    assert sorted(set(kernels["run"])) == ["first", "second"]
    show("polars", kernels.height, kernels["duration_ns"].sum(), calls.height)


duck()
panda()
polar()
