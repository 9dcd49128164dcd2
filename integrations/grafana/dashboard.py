"""Writes the Grafana dashboards of a lake from the saved queries.

    python integrations/grafana/dashboard.py

`roofgap-fleet.json` is for the DuckDB data source, `roofgap-fleet-clickhouse.json` for that of ClickHouse. Both ask the same questions.
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "lake" / "sql"))

import engines  # noqa: E402

DUCKDB = "motherduck-duckdb-datasource"
CLICKHOUSE = "grafana-clickhouse-datasource"
FILES = {DUCKDB: "roofgap-fleet.json", CLICKHOUSE: "roofgap-fleet-clickhouse.json"}

# Parameters of the queries that the dashboard sets: the start of the time range, and a list of stages.
FROM = "DATE '${__from:date:YYYY-MM-DD}'"
STAGE = "${stage:sqlstring}"

# Title, type of the panel, query, unit by column, width and height in cells of a grid that is 24 wide.
PANELS = [
    ("Runs of each host", "timeseries", "coverage", {}, 12, 8),
    ("Time of the stage by commit", "timeseries", "stage-trend", {}, 12, 8),
    ("Commits at which a stage changed", "table", "regressions", {"before_ns": "ns", "after_ns": "ns", "change_pct": "percent", "noise_pct": "percent"}, 24, 8),
    ("Kernels by GPU hours", "barchart", "top-kernels", {"gpu_hours": "h"}, 12, 10),
    ("Findings by GPU hours", "barchart", "findings-by-hours", {"gpu_hours": "h"}, 12, 10),
    ("MFU and MBU", "table", "utilisation", {"gpu_hours": "h", "mfu_pct": "percent", "mbu_pct": "percent", "best_mfu_pct": "percent", "best_mbu_pct": "percent"}, 12, 10),
    ("Idle time by cause", "table", "idle-causes", {"gpu_hours": "h", "idle_hours": "h", "idle_pct": "percent"}, 12, 10),
    ("Slow hosts", "table", "slow-hosts", {"slowdown_pct": "percent"}, 8, 8),
    ("Slow ranks", "table", "slow-ranks", {"slowdown_pct": "percent", "communication_pct": "percent"}, 8, 8),
    ("Kernels that changed with a driver", "table", "driver-kernels", {"before_ns": "ns", "after_ns": "ns", "change_pct": "percent", "lost_hours": "h"}, 8, 8),
    ("Tokens per second by version of the engine", "table", "engine-versions", {"change_pct": "percent"}, 12, 8),
    ("Latency of requests", "table", "request-latency", {"ttft_p50_ns": "ns", "ttft_p99_ns": "ns", "itl_p50_ns": "ns", "itl_p99_ns": "ns", "e2e_p50_ns": "ns", "e2e_p99_ns": "ns"}, 12, 8),
    ("Communication by number of ranks", "table", "communication-share", {"bytes": "bytes", "hours": "h", "share_pct": "percent", "exposed_pct": "percent"}, 12, 8),
    ("Overhead of profiling", "table", "profiling-overhead", {"mean_overhead_pct": "percent", "max_overhead_pct": "percent"}, 12, 8),
    ("Runs that failed or could not be read", "table", "failed-runs", {}, 24, 8),
]

# Time, name and value of the queries that are drawn over time.
SERIES = {
    "coverage": "SELECT CAST(date AS TIMESTAMP) AS time, host AS metric, runs AS value",
    "stage-trend": "SELECT CAST(first_date AS TIMESTAMP) AS time, CONCAT(project, ' ', COALESCE(model, ''), ' ', COALESCE(gpu, '')) AS metric, mean_ns AS value",
}


def statement(query):
    """Returns the SQL of a saved query with the variables of Grafana as parameters."""
    sql = engines.text(query)
    start = next(at for at, line in enumerate(sql.splitlines()) if not line.startswith("--"))
    sql = "\n".join(sql.splitlines()[start:]) + "\n"
    values = {"since": FROM, "stage": STAGE}

    def replace(hit):
        return values.get(hit[1]) or engines.literal(hit[1], hit[2], hit[2])

    return engines.PLACEHOLDER.sub(replace, sql)


def target(source, query, kind):
    """Returns the query of a panel in the terms of its data source."""
    sql = statement(query)
    if kind == "timeseries":
        sql = f"{SERIES[query]}\nFROM (\n{sql}) answer\nORDER BY time, metric\n"
    shape = "time_series" if kind == "timeseries" else "table"
    common = {"refId": "A", "datasource": {"type": source, "uid": "${datasource}"}, "rawSql": sql}
    if source == CLICKHOUSE:
        queried = {"time_series": ("timeseries", 0), "table": ("table", 1)}[shape]
        return {**common, "editorType": "sql", "queryType": queried[0], "format": queried[1]}
    return {**common, "rawQuery": True, "editorMode": "code", "format": shape}


def panel(source, number, place, title, kind, query, units, width, height):
    """Returns a panel."""
    overrides = [
        {"matcher": {"id": "byName", "options": column}, "properties": [{"id": "unit", "value": unit}, {"id": "decimals", "value": 1}]}
        for column, unit in units.items()
    ]
    options = {"showHeader": True}
    if kind == "barchart":
        fields = {"top-kernels": "short_name", "findings-by-hours": "finding"}
        options = {"orientation": "horizontal", "xField": fields[query], "legend": {"showLegend": False, "displayMode": "hidden", "placement": "bottom"}}
        hidden = {"matcher": {"id": "byRegexp", "options": "^(?!gpu_hours$).*"}, "properties": [{"id": "custom.hideFrom", "value": {"viz": True, "legend": True, "tooltip": False}}]}
        overrides = [hidden, *overrides]
    if kind == "timeseries":
        options = {"legend": {"showLegend": True, "displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    unit = {"unit": "ns"} if query == "stage-trend" else {}
    return {
        "id": number,
        "title": title,
        "description": engines.text(query).splitlines()[0][3:],
        "type": kind,
        "datasource": {"type": source, "uid": "${datasource}"},
        "gridPos": {"x": place[0], "y": place[1], "w": width, "h": height},
        "fieldConfig": {"defaults": unit, "overrides": overrides},
        "options": options,
        "targets": [target(source, query, kind)],
    }


def panels(source):
    """Returns the panels in rows from left to right."""
    made, x, y, tallest = [], 0, 0, 0
    for number, (title, kind, query, units, width, height) in enumerate(PANELS, 1):
        if x + width > 24:
            x, y, tallest = 0, y + tallest, 0
        made.append(panel(source, number, (x, y), title, kind, query, units, width, height))
        x, tallest = x + width, max(tallest, height)
    return made


def dashboard(source):
    """Returns the dashboard for a data source."""
    stages = {
        "name": "stage",
        "label": "Stage",
        "type": "query",
        "datasource": {"type": source, "uid": "${datasource}"},
        "query": "SELECT DISTINCT stage FROM stages ORDER BY stage",
        "definition": "SELECT DISTINCT stage FROM stages ORDER BY stage",
        "refresh": 1,
        "sort": 1,
        "multi": False,
        "includeAll": False,
        "current": {"text": "decode", "value": "decode"},
        "options": [],
    }
    sources = {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": source,
        "refresh": 1,
        "multi": False,
        "includeAll": False,
        "current": {},
        "options": [],
    }
    return {
        "uid": FILES[source].removesuffix(".json"),
        "title": "roofgap fleet",
        "description": "Runs of a lake of roofgap: regressions, GPU hours, utilisation, slow hosts and failures.",
        "tags": ["roofgap", "gpu"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "timezone": "utc",
        "time": {"from": "now-30d", "to": "now"},
        "refresh": "",
        "templating": {"list": [sources, stages]},
        "annotations": {"list": []},
        "panels": panels(source),
    }


def text(source):
    """Returns the dashboard as JSON text."""
    return json.dumps(dashboard(source), indent=2) + "\n"


if __name__ == "__main__":
    for source, name in FILES.items():
        (HERE / name).write_text(text(source))
