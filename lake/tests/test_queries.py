"""What saved queries must not say, on small tables written by hand: changes of the work as changes of the time, and the like. Needs DuckDB."""

import importlib.util
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "lake" / "sql"))

import engines  # noqa: E402

MS = 1_000_000
HOUR = 3_600_000 * MS


@unittest.skipUnless(importlib.util.find_spec("duckdb"), "duckdb is not installed")
class SmallTables(unittest.TestCase):
    def setUp(self):
        with tempfile.TemporaryDirectory() as folder:
            self.engine = engines.DuckDB(folder)
        for table, columns in engines.SCHEMA.items():
            fields = ", ".join(f"{name} {type_}" for name, type_ in columns)
            self.engine.connection.execute(f"DROP VIEW {table}; CREATE TABLE {table} ({fields})")
        self.runs = 0

    def insert(self, table, **values):
        row = {"date": "2026-03-01", "project": "chat", "host": "a", **values}
        if table == "prices":
            row = values
        marks = ", ".join("?" for _ in row)
        self.engine.connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))

    def add(self, token_ns=10 * MS, stage=None, kernels=(), **run):
        """Inserts a run with one stage."""
        self.runs += 1
        key = f"k{self.runs:04}"
        values = {"run_key": key, "source": key, "model": "m", "gpu": "H200", "gpus": 1, "git_commit": "c", "workload": "command", "batch": 1}
        values |= {"git_dirty": False, "engine": "vllm", "kernel_ns": 100, "unreadable_files": 0, **run}
        self.insert("runs", **values)
        place = {name: values[name] for name in ("date", "host") if name in values}
        decode = {"stage": "decode", "instances": 1, "elapsed_ns": HOUR, "token_ns": token_ns, "device_count": 1}
        self.insert("stages", run_key=key, **decode | (stage or {}), **place)
        for kernel in kernels:
            shape = {"family": "gemm", "grid": "1x1x1", "block": "1x1x1", "stage": "decode", "calls": 100}
            self.insert("kernels", run_key=key, **shape | kernel, **place)
        return key

    def ask(self, name, **values):
        columns, rows = self.engine.query(engines.render(engines.text(name), values))
        return [dict(zip(columns, row)) for row in rows]

    def series(self, before, after):
        """Inserts eight commits with three runs each. The last four have the values of `after` and take twice as long."""
        for commit in range(8):
            for run in range(3):
                changed = after if commit >= 4 else before
                ns = (10 if commit < 4 else 20) * MS + run * 1000
                self.add(ns, **{"git_commit": f"c{commit}", "date": f"2026-03-{commit + 1:02}", **changed})

    def test_a_slower_commit_is_found(self):
        self.series({}, {})
        self.assertEqual([row["git_commit"] for row in self.ask("regressions")], ["c4"])
        self.assertEqual([row["git_commit"] for row in self.ask("stage-trend") if (row["change_pct"] or 0) > 50], ["c4"])
        self.assertEqual(len(self.ask("changes-since", date="2026-03-05")), 1)

    def test_other_work_is_not_a_slower_commit(self):
        changes = [
            ({"batch": 1}, {"batch": 16}),
            ({"prompt_tokens": 10}, {"prompt_tokens": 1000}),
            ({"output_tokens": 10}, {"output_tokens": 1000}),
            ({"engine": None}, {"engine": "vllm"}),
            ({"labels": None}, {"labels": "case=b"}),
        ]
        for before, after in changes:
            with self.subTest(after=after):
                self.setUp()
                self.series(before, after)
                self.assertEqual(self.ask("regressions"), [])
                self.assertEqual(self.ask("changes-since", date="2026-03-05"), [])
                self.assertFalse([row for row in self.ask("stage-trend") if (row["change_pct"] or 0) > 50])

    def test_runs_without_a_model_are_not_the_same_work(self):
        self.series({"model": None}, {"model": None})
        self.assertEqual(self.ask("regressions"), [])
        self.assertEqual(self.ask("changes-since", date="2026-03-05"), [])

    def test_a_run_with_uncommitted_changes_is_not_its_commit(self):
        self.series({}, {"git_dirty": True})
        self.assertEqual(self.ask("regressions"), [])

    def test_hosts_are_compared_at_the_same_work(self):
        for host, ns in (("a", 10 * MS), ("b", 20 * MS)):
            for _ in range(3):
                self.add(ns, host=host)
        self.assertEqual([row["host"] for row in self.ask("slow-hosts")], ["b", "a"])
        other_work = [{"batch": 16}, {"labels": "case=b"}, {"git_commit": "d"}, {"engine": "sglang"}]
        nothing_known = [{"git_commit": None}, {"model": None}, {"host": "unknown"}, {"git_dirty": True}]
        for values in other_work + nothing_known:
            with self.subTest(values=values):
                self.setUp()
                both = {} if values in other_work else values
                for _ in range(3):
                    self.add(10 * MS, **{"host": "a", **{name: value for name, value in both.items() if name != "host"}})
                    self.add(20 * MS, **{"host": "b", **values})
                self.assertEqual(self.ask("slow-hosts"), [])

    def test_versions_of_an_engine_are_compared_at_the_same_work(self):
        for version, batch, rate in (("1", 1, 100.0), ("2", 1, 110.0), ("2", 16, 900.0)):
            self.add(engine_version=version, batch=batch, tokens_per_s=rate, date=f"2026-03-0{version}")
        changes = {(row["engine_version"], row["batch"]): row["change_pct"] for row in self.ask("engine-versions")}
        self.assertAlmostEqual(changes["2", 1], 10)
        self.assertIsNone(changes["2", 16])

    def test_idle_time_is_a_share_of_the_time_of_all_gpus(self):
        idle = {"idle_launch_ns": 2 * HOUR, "idle_sync_ns": HOUR, "idle_copy_ns": 0, "idle_other_ns": 0}
        self.add(gpus=4, stage={"device_count": 4, "devices_per_instance": None, **idle})
        # Two GPUs, each of which runs every other instance.
        self.add(gpus=2, stage={"stage": "prefill", "device_count": 2, "devices_per_instance": 1.0, "elapsed_ns": 6 * HOUR, **idle})
        # Nothing is known about its idle time.
        self.add(gpus=4, stage={"device_count": 4})
        rows = {row["stage"]: row for row in self.ask("idle-causes")}
        self.assertAlmostEqual(rows["decode"]["idle_pct"], 75)
        self.assertAlmostEqual(rows["decode"]["gpu_hours"], 4)
        self.assertAlmostEqual(rows["prefill"]["idle_launch_pct"], 100 * 2 / 6)
        hours = {row["stage"]: row["gpu_hours"] for row in self.ask("utilisation")}
        self.assertAlmostEqual(hours["decode"], 8)

    def test_energy_is_by_tokens_and_throttled_hosts_by_reason(self):
        hot = {"throttled_pct": 80.0, "throttled_by": "power cap", "sm_mhz": 1500.0}
        self.add(stage={"joules": 600.0, "idle_joules": 150.0, "token_joules": 2.0, "sm_mhz": 1900.0, "throttled_pct": 0.0})
        self.add(stage={"joules": 300.0, "idle_joules": 30.0, "token_joules": 0.5, "million_tokens_cost": 4.0, **hot}, host="b")
        self.add(stage={"joules": 100.0})
        self.add(stage={"throttled_pct": 5.0, "throttled_by": "thermal limit"}, host="b")
        [row] = self.ask("joules-per-token")
        # 300 and 600 tokens.
        self.assertEqual((row["runs"], row["joules_per_token"], row["tokens_per_joule"]), (2, 1.0, 1.0))
        self.assertAlmostEqual(row["idle_pct"], 20)
        [row] = self.ask("energy-cost", per_kwh="0.36")
        self.assertAlmostEqual(row["energy_cost_per_million_tokens"], 0.1)
        self.assertAlmostEqual(row["run_cost_per_million_tokens"], 4)
        [row] = self.ask("throttled-hosts")
        found = (row["host"], row["throttled_by"], row["stage_rows"], row["all_rows"], row["throttled_pct"])
        self.assertEqual(found, ("b", "power cap", 1, 2, 80.0))

    def test_causes_of_incidents_are_counted_by_host_and_version(self):
        for host, cause in (("a", "allocation"), ("b", "lock"), ("b", "lock"), ("b", None)):
            self.add(host=host, incident="slow-step", incident_cause=cause, engine_version="2")
        self.add(host="b")
        rows = [(row["host"], row["engine_version"], row["incident_cause"], row["incidents"]) for row in self.ask("incident-causes")]
        self.assertEqual(rows, [("b", "2", "lock", 2), ("a", "2", "allocation", 1), ("b", "2", None, 1)])

    def test_an_input_that_was_added_later_is_no_error(self):
        key = self.add()
        for run_key in (key, "other"):
            self.insert("errors", run_key=run_key, source=run_key, error="nsys is not installed", roofgap_version="1")
        self.assertEqual([row["run_key"] for row in self.ask("failed-runs")], ["other"])
        self.assertEqual([(row["runs"], row["unreadable"]) for row in self.ask("coverage")], [(1, 1)])

    def test_kernels_are_told_apart_by_their_full_name(self):
        # Short names are distinct within a run only.
        for run in range(6):
            driver, date = ("1", "2026-03-01") if run < 3 else ("2", "2026-03-02")
            gemm = {"name": "gemm<1>", "short_name": "gemm", "total_ns": 1000}
            slow = {"name": "gemm<2>", "short_name": "gemm" if run >= 3 else "gemm 2", "total_ns": 9000}
            self.add(driver=driver, date=date, kernels=[gemm, slow] if run < 3 else [slow])
        self.assertEqual(self.ask("driver-kernels"), [])
        self.assertEqual([(row["runs"], row["calls"]) for row in self.ask("top-kernels")], [(6, 600), (3, 300)])
        self.assertEqual([row["spread"] for row in self.ask("kernel-spread", min_samples=2)], [1, 1])

    def test_a_changed_mix_of_work_is_not_a_slower_driver(self):
        for other in ({"batch": 16}, {"dtype": "float8"}, {"prompt_tokens": 9}, {"output_tokens": 9}, {"workload": "server"}):
            with self.subTest(other=other):
                self.setUp()
                kernel = {"name": "gemm", "short_name": "gemm"}
                self.add(driver="1", date="2026-03-01", kernels=[{**kernel, "total_ns": 1000}])
                self.add(driver="2", date="2026-03-02", kernels=[{**kernel, "total_ns": 9000}], **other)
                self.assertEqual(self.ask("driver-kernels"), [])
                self.assertEqual([row["spread"] for row in self.ask("kernel-spread", min_samples=1)], [1, 1])
                self.add(driver="2", date="2026-03-02", kernels=[{**kernel, "total_ns": 2000}])
                self.assertEqual([row["change_pct"] for row in self.ask("driver-kernels")], [100])

    def test_a_gpu_with_two_prices_is_one_row(self):
        self.add(wall_ns=HOUR, tokens_per_s=1000.0)
        for price in (2.0, 3.6):
            self.insert("prices", gpu="H200", price_per_hour=price)
        self.assertEqual([row["cost_per_million_tokens"] for row in self.ask("cost-per-token")], [1.0])

    def test_communication_without_times_has_no_share(self):
        for total_ns in (50, None):
            key = self.add(world_size=2)
            self.insert("communication", run_key=key, processor="gpu", collective="all_reduce", calls=1, total_ns=total_ns)
        self.assertEqual([(row["runs"], row["share_pct"]) for row in self.ask("communication-share")], [(1, 50)])

    def test_a_fleet_may_have_more_gpu_time_than_an_integer_holds(self):
        century = 100 * 365 * 24 * HOUR
        for _ in range(4):
            idle = {"idle_launch_ns": century, "idle_sync_ns": 0, "idle_copy_ns": 0, "idle_other_ns": 0}
            key = self.add(stage={"elapsed_ns": century, **idle}, wall_ns=century, kernels=[{"name": "g", "short_name": "g", "total_ns": century}])
            self.insert("findings", run_key=key, finding="f", stage="decode", bound_ns=century, bound_pct=1)
        for name in ("idle-causes", "utilisation", "findings-by-hours", "top-kernels", "coverage"):
            with self.subTest(query=name):
                (row,) = self.ask(name)
                self.assertAlmostEqual(row["gpu_hours"], 4 * 100 * 365 * 24)
                self.assertIsInstance(row["gpu_hours"], float)


if __name__ == "__main__":
    unittest.main()
