"""The Grafana dashboards are made of the saved queries, have what Grafana needs, and their statements run."""

import importlib.util
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "integrations" / "grafana"))

import dashboard  # noqa: E402
import engines  # noqa: E402


def filled(sql):
    """Replaces the variables as Grafana does."""
    return sql.replace("${__from:date:YYYY-MM-DD}", "2026-03-01").replace("${stage:sqlstring}", "'decode'")


class Dashboards(unittest.TestCase):
    def each(self):
        for source, name in dashboard.FILES.items():
            with self.subTest(dashboard=name):
                yield source, name, json.loads((dashboard.HERE / name).read_text())

    def test_the_files_are_up_to_date(self):
        for source, name, _ in self.each():
            self.assertEqual((dashboard.HERE / name).read_text(), dashboard.text(source), "run integrations/grafana/dashboard.py")

    def test_they_have_what_grafana_needs(self):
        for source, _, found in self.each():
            self.assertGreaterEqual(found["schemaVersion"], 39)
            self.assertTrue(found["uid"] and found["title"])
            variables = {variable["name"]: variable for variable in found["templating"]["list"]}
            self.assertEqual((variables["datasource"]["type"], variables["datasource"]["query"]), ("datasource", source))
            ids = [panel["id"] for panel in found["panels"]]
            self.assertEqual(len(ids), len(set(ids)))
            cells = set()
            for panel in found["panels"]:
                self.assertEqual(panel["datasource"], {"type": source, "uid": "${datasource}"})
                self.assertIn(panel["type"], ("table", "timeseries", "barchart"))
                place = panel["gridPos"]
                self.assertLessEqual(place["x"] + place["w"], 24)
                covered = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
                self.assertFalse(covered & cells, f"{panel['title']} covers another panel")
                cells |= covered

    def statements(self, source):
        found = dashboard.dashboard(source)
        variables = [(variable["name"], variable["query"]) for variable in found["templating"]["list"] if variable["type"] == "query"]
        for name, sql in variables + [(panel["title"], panel["targets"][0]["rawSql"]) for panel in found["panels"]]:
            with self.subTest(panel=name):
                self.assertNotIn("{{", sql)
                self.assertNotIn("$", filled(sql))
                yield name, filled(sql)

    def columns_exist(self, engine, source):
        answers = {name: engine.query(sql)[0] for name, sql in self.statements(source)}
        for panel in dashboard.dashboard(source)["panels"]:
            columns = answers[panel["title"]]
            named = [override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"] if override["matcher"]["id"] == "byName"]
            self.assertLessEqual(set(named), set(columns), panel["title"])
            if panel["type"] == "timeseries":
                self.assertEqual(columns, ["time", "metric", "value"])
            if panel["type"] == "barchart":
                self.assertIn(panel["options"]["xField"], columns)

    @unittest.skipUnless(importlib.util.find_spec("duckdb"), "duckdb is not installed")
    def test_the_statements_run_on_duckdb(self):
        with tempfile.TemporaryDirectory() as lake:
            self.columns_exist(engines.DuckDB(lake), dashboard.DUCKDB)

    @unittest.skipUnless(importlib.util.find_spec("chdb"), "chdb is not installed")
    def test_the_statements_run_on_clickhouse(self):
        with tempfile.TemporaryDirectory() as lake:
            self.columns_exist(engines.ClickHouse(lake), dashboard.CLICKHOUSE)


if __name__ == "__main__":
    unittest.main()
