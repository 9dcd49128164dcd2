"""Every saved query gives the same rows on every engine that is installed, and finds what a synthetic lake has planted.

`lake/tests/engines.sh` installs the engines and runs this. ROOFGAP_TEST_LAKE names the program `roofgap-lake`.
"""

import csv
import importlib.util
import io
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SQL = ROOT / "lake" / "sql"
sys.path.insert(0, str(SQL))

import engines  # noqa: E402

PROGRAM = pathlib.Path(os.environ.get("ROOFGAP_TEST_LAKE", ROOT / "target" / "debug" / "roofgap-lake"))
PRICES = SQL / "prices.example.csv"
# The synthetic lake has runs from March 2026 on.
VALUES = {"changes-since": {"date": "2026-03-09"}, "new-values": {"date": "2026-03-03"}}
# Spark without the parts that only pay off with much data.
SMALL = {
    "spark.master": "local[2]",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
}


def installed(package):
    return importlib.util.find_spec(package) is not None


def head(sql):
    """Returns the lines of the comments before a query."""
    lines = sql.splitlines()
    end = next(at for at, line in enumerate(lines) if not line.startswith("--"))
    return [line[3:] for line in lines[:end]]


class SavedQueries(unittest.TestCase):
    def test_the_head_describes_parameters_and_columns(self):
        for name in engines.names():
            with self.subTest(query=name):
                sql = engines.text(name)
                lines = head(sql)
                self.assertRegex(lines[0], r"^[A-Z].*\.$")
                parameters = lines[lines.index("Parameters:") + 1 : lines.index("Columns:")]
                self.assertEqual({line.split()[0] for line in parameters}, set(engines.parameters(sql)))
                self.assertFalse(sql.rstrip().endswith(";"))

    def test_numbers_and_dates_and_text_are_literals(self):
        sql = "SELECT {{n:5}}, {{d:1970-01-01}}, {{t:decode}}, {{e:}}"
        self.assertEqual(engines.render(sql), "SELECT 5, DATE '1970-01-01', 'decode', ''")
        given = {"n": -2.5, "d": "2026-03-01", "t": "prefill 1", "e": "x"}
        self.assertEqual(engines.render(sql, given), "SELECT -2.5, DATE '2026-03-01', 'prefill 1', 'x'")

    def test_a_value_cannot_change_the_query(self):
        wrong = {"n": ["5 OR 1=1", "", "1e3", "nan"], "d": ["yesterday", "2026-3-1"], "t": ["it's", "a\\", "a\nb"], "m": ["1"]}
        for name, values in wrong.items():
            for value in values:
                with self.subTest(name=name, value=value), self.assertRaises(engines.QueryError):
                    engines.render("SELECT {{n:5}}, {{d:1970-01-01}}, {{t:decode}}", {name: value})

    def test_the_schema_is_that_of_the_documentation(self):
        text = (ROOT / "docs" / "lake.md").read_text().split("\n## Tables\n")[1]
        partitions = [["date", "DATE"], ["project", "VARCHAR"], ["host", "VARCHAR"]]
        tables = {}
        for part in text.split("\n### `")[1:]:
            columns = re.findall(r"^\| `(\w+)` \| ([A-Z]+) \|", part, re.MULTILINE)
            tables[part.split("`")[0]] = [list(column) for column in columns] + partitions
        self.assertEqual(engines.SCHEMA, tables)

    def test_prices_need_their_columns(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "prices.csv")
            for text in ("gpu,dollars\nx,1\n", "gpu,price_per_hour\nx,cheap\n", ""):
                path.write_text(text)
                with self.subTest(text=text), self.assertRaises(engines.QueryError):
                    engines.read_prices(path)


class DataFusion:
    """The program under test, as an engine."""

    def __init__(self, lake, prices):
        self.lake, self.prices = lake, prices

    def saved(self, name, values):
        # The file, because the program may have been built before a query was changed.
        command = [PROGRAM, "query", SQL / f"{name}.sql", "--lake", self.lake, "--format", "json", "--prices", self.prices]
        for item in values.items():
            command += ["--param", "=".join(item)]
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


@unittest.skipUnless(PROGRAM.exists(), f"{PROGRAM} does not exist")
class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.lake = os.path.join(folder, "lake")
        size = ["--runs", "1440", "--days", "12", "--hosts", "3", "--seed", "7"]
        synth = PROGRAM.parent / "examples" / "synth_lake"
        made = subprocess.run([synth, "--to", cls.lake, *size], check=True, capture_output=True)
        cls.planted = json.loads(made.stdout)
        program = DataFusion(cls.lake, PRICES)
        cls.expected = {name: program.saved(name, VALUES.get(name, {})) for name in engines.names()}

    def same(self, engine):
        for name, expected in self.expected.items():
            with self.subTest(query=name):
                columns, rows = engine.query(engines.render(engines.text(name), VALUES.get(name)))
                self.assertEqual(len(rows), len(expected))
                for at, (row, want) in enumerate(zip(rows, expected)):
                    self.assertLessEqual(set(want), set(columns))
                    for column, value in zip(columns, row):
                        self.same_value(value, want.get(column), f"row {at}, {column}")

    def same_value(self, value, want, where):
        if isinstance(want, bool) or want is None or isinstance(want, str):
            self.assertEqual(str(value) if isinstance(want, str) else value, want, where)
        else:
            self.assertIsNotNone(value, where)
            self.assertTrue(math.isclose(value, want, rel_tol=1e-9, abs_tol=1e-9), f"{where}: {value} and {want}")

    def test_every_query_has_rows(self):
        for name, rows in self.expected.items():
            with self.subTest(query=name):
                self.assertTrue(rows)

    def test_the_columns_are_those_of_the_head(self):
        for name, rows in self.expected.items():
            with self.subTest(query=name):
                lines = head(engines.text(name))
                described = [line.split("  ")[1] for line in lines[lines.index("Columns:") + 1 :]]
                names = [column for group in described for column in group.split(", ")]
                self.assertLessEqual({column for row in rows for column in row}, set(names))

    def test_the_regression_is_found_at_its_commit_and_no_other(self):
        planted = self.planted["regression"]
        found = self.expected["regressions"]
        where = {(row["project"], row["model"], row["stage"], row["git_commit"]) for row in found}
        self.assertEqual(where, {tuple(planted[name] for name in ("project", "model", "stage", "git_commit"))})
        for row in found:
            self.assertAlmostEqual(row["change_pct"], planted["change_pct"], delta=2)

    def test_the_trend_jumps_at_the_commit(self):
        planted = self.planted["regression"]
        series = [row for row in self.expected["stage-trend"] if (row["project"], row["model"]) == (planted["project"], planted["model"])]
        jumps = {row["git_commit"] for row in series if (row.get("change_pct") or 0) > 15}
        self.assertEqual(jumps, {planted["git_commit"]})

    def test_the_change_since_the_commit_is_seen(self):
        planted = self.planted["regression"]
        worst = self.expected["changes-since"][0]
        self.assertEqual((worst["project"], worst["model"], worst["stage"]), (planted["project"], planted["model"], planted["stage"]))
        self.assertAlmostEqual(worst["change_pct"], planted["change_pct"], delta=2)

    def test_the_slow_host_is_first(self):
        planted, first, *others = self.planted["slow_host"], *self.expected["slow-hosts"]
        self.assertEqual(first["host"], planted["host"])
        self.assertGreater(first["slowdown_pct"], 10)
        self.assertTrue(all(row["slowdown_pct"] < 5 for row in others))

    def test_the_slow_driver_is_found_for_its_kernel_alone(self):
        planted = self.planted["slow_driver"]
        found = self.expected["driver-kernels"]
        self.assertEqual({(row["short_name"], row["driver"]) for row in found}, {(planted["short_name"], planted["driver"])})
        for row in found:
            self.assertAlmostEqual(row["change_pct"], planted["change_pct"], delta=3)

    def test_the_slow_rank_is_first_on_every_host(self):
        planted = self.planted["slow_rank"]
        found = self.expected["slow-ranks"]
        hosts = len({row["rank_host"] for row in found})
        self.assertEqual({row["rank"] for row in found[:hosts]}, {planted["rank"]})
        self.assertAlmostEqual(found[0]["slowdown_pct"], planted["slowdown_pct"], delta=3)
        self.assertTrue(all(row["slowdown_pct"] < 5 for row in found[hosts:]))

    def test_utilisation_is_exact(self):
        rows = {(row["model"], row["gpu"], row["stage"]): row for row in self.expected["utilisation"]}
        for planted in self.planted["utilisation"]:
            prefill = rows[planted["model"], planted["gpu"], "prefill"]
            decode = rows[planted["model"], planted["gpu"], "decode"]
            self.assertAlmostEqual(prefill["mfu_pct"], planted["prefill_mfu_pct"], places=6)
            self.assertAlmostEqual(decode["mbu_pct"], planted["decode_mbu_pct"], places=6)

    def test_the_cost_follows_from_the_prices(self):
        prices = dict(engines.read_prices(PRICES))
        for row in self.expected["cost-per-token"]:
            cost = prices[row["gpu"]] / 3600 / row["tokens_per_s"] * 1e6
            self.assertAlmostEqual(row["cost_per_million_tokens"], cost, places=6)

    @unittest.skipUnless(installed("duckdb"), "duckdb is not installed")
    def test_duckdb(self):
        self.same(engines.DuckDB(self.lake, PRICES, threads=2))

    @unittest.skipUnless(installed("duckdb"), "duckdb is not installed")
    def test_the_runner_prints_csv(self):
        command = [sys.executable, SQL / "engines.py", "duckdb", "slow-hosts", "--lake", self.lake, "--param", "limit=1"]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        rows = list(csv.DictReader(io.StringIO(text)))
        self.assertEqual([row["host"] for row in rows], [self.planted["slow_host"]["host"]])
        wrong = subprocess.run([*command, "--param", "limits=1"], capture_output=True, text=True)
        self.assertIn("error: the query has no parameter limits", wrong.stderr)

    @unittest.skipUnless(installed("duckdb"), "duckdb is not installed")
    def test_tables_without_files_are_empty(self):
        with tempfile.TemporaryDirectory() as folder:
            engine = engines.DuckDB(folder)
            for name in engines.names():
                with self.subTest(query=name):
                    self.assertEqual(engine.query(engines.render(engines.text(name)))[1], [])

    @unittest.skipUnless(installed("chdb"), "chdb is not installed")
    def test_clickhouse(self):
        self.same(engines.ClickHouse(self.lake, PRICES))

    @unittest.skipUnless(os.environ.get("ROOFGAP_TEST_SPARK") == "1", "ROOFGAP_TEST_SPARK=1 asks for Spark")
    @unittest.skipUnless(installed("pyspark") and shutil.which("java"), "pyspark or Java is not installed")
    def test_spark(self):
        session = engines.local_spark(SMALL)
        self.addCleanup(session.stop)
        self.same(engines.Spark(self.lake, PRICES, session))

    @unittest.skipUnless(installed("polars"), "polars is not installed")
    def test_polars(self):
        import polars

        tables = [table for table in engines.SCHEMA if engines.has_files(self.lake, table)]
        frames = {table: polars.scan_parquet(engines.files(self.lake, table), hive_partitioning=True) for table in tables}
        counts = {table: frame.select(polars.len()).collect().item() for table, frame in frames.items()}
        self.assertEqual(counts["runs"], 1440)
        self.assertEqual(counts["stages"], 14400)
        context = polars.SQLContext(frames)
        found = context.execute("SELECT host, COUNT(*) AS runs FROM runs GROUP BY host ORDER BY host", eager=True)
        expected = {}
        for row in self.expected["coverage"]:
            expected[row["host"]] = expected.get(row["host"], 0) + row["runs"]
        self.assertEqual(dict(found.rows()), expected)


if __name__ == "__main__":
    unittest.main()
