"""Saved questions give equal rows on DuckDB, Spark and ClickHouse, find what a fleet has planted, and do not see a killed export.

`tests/lake/run.sh` builds the programs and installs the engines. ROOFGAP_TEST_PROGRAMS names the folder of the programs.
"""

import importlib.util
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "integrations" / "spark")]

import many_runs  # noqa: E402
import roofgap  # noqa: E402
from roofgap import _lake  # noqa: E402

PROGRAMS = pathlib.Path(os.environ.get("ROOFGAP_TEST_PROGRAMS", ROOT / "target" / "debug"))
CAPTURES = [ROOT / "fixtures" / name for name in ("h200/llama4.sqlite.gz", "vllm/vllm_dense_graph.kineto.json.gz", "ncu/mt_basic_raw.csv.gz")]
VALUES = {"driver-kernels": {"min_pct": 10}, "request-latency": {"since": "2026-03-02"}}


def installed(package):
    return importlib.util.find_spec(package) is not None


def export(runs, folder, check=True):
    command = [PROGRAMS / "roofgap", "--quiet", "export", "parquet", *runs, "--to", folder]
    return subprocess.run(command, check=check, capture_output=True, text=True)


def files(folder):
    """Returns the files of a folder of tables with their times of change."""
    return {path.relative_to(folder): path.stat().st_mtime_ns for path in sorted(pathlib.Path(folder).rglob("*.parquet"))}


class DuckDB:
    def __init__(self, folder):
        self.lake = roofgap.lake(folder)

    def query(self, sql):
        cursor = self.lake.connection.execute(sql)
        return [column[0] for column in cursor.description], cursor.fetchall()


class Spark:
    def __init__(self, folder):
        from pyspark.sql import SparkSession

        small = {"spark.master": "local[2]", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2", "spark.sql.adaptive.enabled": "false", "spark.sql.codegen.wholeStage": "false"}
        builder = SparkSession.builder.appName("test")
        for name, value in small.items():
            builder = builder.config(name, value)
        self.session = builder.getOrCreate()
        self.session.sparkContext.setLogLevel("ERROR")
        many_runs.read_tables(self.session, str(folder))

    def query(self, sql):
        frame = self.session.sql(sql)
        return frame.columns, [tuple(row) for row in frame.collect()]


class ClickHouse:
    def __init__(self, folder):
        from chdb import session

        self.session = session.Session()
        # The statements that docs/lake.md has.
        page = (ROOT / "docs" / "lake.md").read_text()
        settings, view = re.search(r"```sql\n(SET .*?;)\n(CREATE VIEW .*?;)\n```", page, re.DOTALL).groups()
        for setting in settings.removeprefix("SET ").rstrip(";").split(", "):
            self.session.query(f"SET {setting}")
        self.session.query("CREATE DATABASE IF NOT EXISTS lake")
        self.session.query("USE lake")
        for table in _lake.TABLES:
            self.session.query(view.replace("runs", table).replace("/data", str(folder)))

    def query(self, sql):
        answer = json.loads(self.session.query(sql, "JSONCompact").bytes())
        return [column["name"] for column in answer["meta"]], [tuple(row) for row in answer["data"]]


class SavedQuestions(unittest.TestCase):
    def test_numbers_and_dates_and_text_are_literals(self):
        sql = "SELECT {{n:5}}, {{d:1970-01-01}}, {{t:decode}}"
        self.assertEqual(_lake._fill(sql, {}), "SELECT 5, DATE '1970-01-01', 'decode'")
        given = {"n": -2.5, "d": "2026-03-01", "t": "prefill 1"}
        self.assertEqual(_lake._fill(sql, given), "SELECT -2.5, DATE '2026-03-01', 'prefill 1'")

    def test_a_value_cannot_change_the_statement(self):
        wrong = {"n": ["5 OR 1=1", "", "1e3", "nan"], "d": ["yesterday", "2026-3-1"], "t": ["it's", "a\\", "a\nb"], "m": ["1"]}
        for name, values in wrong.items():
            for value in values:
                with self.subTest(name=name, value=value), self.assertRaises(ValueError):
                    _lake._fill("SELECT {{n:5}}, {{d:1970-01-01}}, {{t:decode}}", {name: value})

    def test_every_question_has_a_title_and_its_parameters(self):
        for name, title in roofgap.questions().items():
            with self.subTest(question=name):
                self.assertRegex(title, r"^[A-Z].*\.$")
                self.assertNotIn("{{", roofgap.question(name))
        with self.assertRaisesRegex(ValueError, "no saved question 'fastest'; there are .*slow-hosts"):
            roofgap.question("fastest")

    def test_a_folder_without_runs_is_named(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex((FileNotFoundError, ImportError), "runs in|needs duckdb"):
            roofgap.lake(folder)


@unittest.skipUnless(installed("duckdb"), "duckdb is not installed")
@unittest.skipUnless((PROGRAMS / "examples" / "many_runs").exists(), f"{PROGRAMS} has no examples/many_runs")
class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        subprocess.run([PROGRAMS / "examples" / "many_runs", cls.folder / "runs"], check=True)
        cls.runs = sorted((cls.folder / "runs").iterdir())
        cls.tables = cls.folder / "tables"
        export([*cls.runs, *CAPTURES], cls.tables)
        cls.duckdb = DuckDB(cls.tables)
        cls.rows = {}
        for name in roofgap.questions():
            columns, rows = cls.duckdb.query(roofgap.question(name, **VALUES.get(name, {})))
            cls.rows[name] = [dict(zip(columns, row)) for row in rows]

    def same(self, engine):
        for name, expected in self.rows.items():
            with self.subTest(question=name):
                columns, rows = engine.query(roofgap.question(name, **VALUES.get(name, {})))
                self.assertEqual(len(rows), len(expected))
                for at, (row, want) in enumerate(zip(rows, expected)):
                    self.assertEqual(list(want), list(columns))
                    for column, value in zip(columns, row):
                        self.same_value(value, want[column], f"row {at}, {column}")

    def same_value(self, value, want, where):
        if want is None or isinstance(want, str):
            self.assertEqual(value, want, where)
        elif hasattr(want, "isoformat"):
            self.assertEqual(str(value), want.isoformat(), where)
        else:
            self.assertIsNotNone(value, where)
            self.assertTrue(math.isclose(float(value), float(want), rel_tol=1e-9, abs_tol=1e-9), f"{where}: {value} and {want}")

    def test_every_question_has_rows(self):
        for name, rows in self.rows.items():
            with self.subTest(question=name):
                self.assertTrue(rows)

    @unittest.skipUnless(installed("chdb"), "chdb is not installed")
    def test_clickhouse(self):
        self.same(ClickHouse(self.tables))

    @unittest.skipUnless(installed("pyspark") and shutil.which("java"), "pyspark or Java is not installed")
    def test_spark(self):
        spark = Spark(self.tables)
        self.addCleanup(spark.session.stop)
        self.same(spark)
        with self.subTest("export on executors"):
            job = {"to": str(self.folder / "by-spark"), "program": str(PROGRAMS / "roofgap"), "timeout": 60, "fetch": None, "put": None}
            sources = [str(run) for run in self.runs[:4]] + [str(self.folder / "missing"), str(self.runs[0])]
            spark.session.sparkContext.addPyFile(many_runs.__file__)
            tasks = spark.session.sparkContext.parallelize(sources, len(sources))
            results = tasks.map(lambda source: many_runs.export(source, job)).collect()
            self.assertEqual([result[1] for result in results], ["done"] * 4 + ["failed", "done"])
            self.assertEqual(len(files(job["to"])), 4 * len(_lake.TABLES))

    def test_the_regression_is_found_at_its_commit_and_no_other(self):
        found = [row for row in self.rows["regressions"] if row["stage"] == "decode"]
        self.assertEqual({row["git_commit"] for row in found}, {"abc0006"})
        for row in found:
            self.assertAlmostEqual(row["change_pct"], 25, delta=3)
        self.assertEqual({row["git_commit"] for row in self.rows["stage-trend"] if (row["change_pct"] or 0) > 15}, {"abc0006"})

    def test_the_slow_host_is_first_and_throttled(self):
        first, *others = self.rows["slow-hosts"]
        self.assertEqual(first["host"], "gpu-2")
        self.assertAlmostEqual(first["slowdown_pct"], 10, delta=2)
        self.assertTrue(all(row["slowdown_pct"] < 5 for row in others))
        self.assertEqual({row["host"] for row in self.rows["throttled-hosts"]}, {"gpu-2"})

    def test_the_slow_driver_is_found_for_its_kernel(self):
        slower = {(row["short_name"], row["driver"]) for row in self.rows["driver-kernels"] if abs(row["change_pct"] - 40) < 3}
        self.assertEqual(slower, {("flash_attention", "580.95")})

    def test_the_slow_rank_is_first(self):
        first = self.rows["slow-ranks"][0]
        self.assertEqual(first["rank"], 1)
        self.assertAlmostEqual(first["slowdown_pct"], 5, delta=1)

    def test_a_data_frame_has_the_rows(self):
        if not installed("pandas"):
            self.skipTest("pandas is not installed")
        frame = self.duckdb.lake.query("slow-hosts", limit=1)
        self.assertEqual(list(frame["host"]), ["gpu-2"])
        self.assertEqual(self.duckdb.lake.query("SELECT count(*) AS n FROM runs WHERE host = {{host:gpu-0}}")["n"][0], 24)

    def test_exporting_again_changes_nothing(self):
        before = files(self.tables)
        self.assertEqual(len(before), len(_lake.TABLES) * (len(self.runs) + len(CAPTURES)))
        copy = shutil.copytree(self.runs[0], self.folder / "copy")
        export([*self.runs, copy, *CAPTURES], self.tables)
        self.assertEqual(files(self.tables), before)

    def test_a_killed_export_leaves_nothing_that_a_question_sees(self):
        folder = self.folder / "killed"
        command = [PROGRAMS / "roofgap", "--quiet", "export", "parquet", *self.runs, "--to", folder]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while len(list(folder.glob("runs/*/*.parquet"))) < 3 and process.poll() is None:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        complete = {path.stem: path for path in folder.glob("runs/*/*.parquet")}
        self.assertLess(len(complete), len(self.runs))
        # The worst moment: all tables but `runs` are there, and half a file.
        last = complete.popitem()[1]
        last.rename(last.with_name(f".{last.name}.77-0-0.tmp"))
        pathlib.Path(last.parent, ".half.parquet.77-0-1.tmp").write_bytes(b"PAR1 half")
        engines = [DuckDB, *([ClickHouse] if installed("chdb") else [])]
        for engine in engines:
            opened = engine(folder)
            keys = {key for (key,) in opened.query("SELECT run_key FROM runs")[1]}
            self.assertEqual(keys, set(complete), engine.__name__)
            columns, rows = opened.query(roofgap.question("slowest-kernels"))
            alone = sum(row[columns.index("calls")] for row in rows)
            wanted = opened.query(f"SELECT SUM(kernel_count) FROM runs")[1][0][0]
            self.assertEqual(int(alone), int(wanted), engine.__name__)
        kept = files(folder)
        export(self.runs, folder)
        after = files(folder)
        self.assertEqual({path: after[path] for path in kept}, kept)
        self.assertEqual(len(after), len(_lake.TABLES) * len(self.runs))

    def test_compaction_keeps_every_row(self):
        page = (ROOT / "docs" / "lake.md").read_text()
        statement = re.search(r"```sql\n(COPY .*?;)\n```", page, re.DOTALL)[1]
        target = self.folder / "compact"
        for table in _lake.TABLES:
            (target / table).parent.mkdir(exist_ok=True)
            self.duckdb.query(statement.replace("compact/runs", f"{target}/{table}").replace("tables/runs", f"{self.tables}/{table}"))
        compact = DuckDB(target)
        self.assertLess(len(files(target)), len(files(self.tables)))
        self.same(compact)


if __name__ == "__main__":
    unittest.main()
