"""Questions about many runs: the folder of tables that `roofgap export parquet RUN... --to DIR` writes, read by DuckDB."""

from __future__ import annotations

import os
import pathlib
import re
from typing import Any, Union

Path = Union[str, "os.PathLike[str]"]

# Written for every run, and with --events.
TABLES = ("runs", "stages", "kernels", "counters", "findings", "communication", "ranks", "requests")
EVENTS = ("launches", "copies", "calls", "ranges")

_SQL = pathlib.Path(__file__).with_name("sql")
_PARAMETER = re.compile(r"\{\{([a-z_]+):([^{}]*)\}\}")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def questions() -> dict[str, str]:
    """Returns the names of the saved questions and what each answers."""
    return {path.stem: path.read_text().splitlines()[0].lstrip("- ") for path in sorted(_SQL.glob("*.sql"))}


def question(name: str, **values: object) -> str:
    """Returns the SQL of a saved question, for DuckDB, Spark or ClickHouse. Values replace the defaults of its parameters."""
    path = _SQL / f"{name}.sql"
    if name not in questions():
        raise ValueError(f"no saved question {name!r}; there are {', '.join(questions())}")
    return _fill(path.read_text(), values)


class Lake:
    """Tables of many runs as views in DuckDB; `connection` is the connection."""

    def __init__(self, folder: Path) -> None:
        try:
            import duckdb
        except ImportError:
            raise ImportError("roofgap.lake needs duckdb; install it with `pip install duckdb pandas`") from None
        place = os.fspath(folder).rstrip("/")
        is_local = "://" not in place
        if is_local and not any(pathlib.Path(place).glob("runs/*/*.parquet")):
            raise FileNotFoundError(f"no runs in {place}; `roofgap export parquet RUN... --to {place}` writes them")
        self.connection = duckdb.connect()
        for table in TABLES + EVENTS:
            if next(pathlib.Path(place).glob(f"{table}/*/*.parquet"), None) if is_local else table in TABLES:
                files = f"{place}/{table}/*/*.parquet".replace("'", "''")
                options = "hive_partitioning = true, hive_types = {'date': DATE}, union_by_name = true"
                self.connection.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{files}', {options})")

    def query(self, query: str, **values: object) -> Any:
        """Answers a saved question, or an SQL statement, as a data frame of pandas or else of polars."""
        is_name = re.fullmatch(r"[a-z-]+", query)
        answer = self.connection.execute(question(query, **values) if is_name else _fill(query, values))
        from ._analysis import frame_library

        return answer.df() if frame_library(None, "Lake.query").__name__ == "pandas" else answer.pl()


def lake(folder: Path) -> Lake:
    """Opens the tables of many runs in a folder, or at an address that DuckDB reads, such as `s3://bucket/runs`."""
    return Lake(folder)


def _fill(sql: str, values: dict[str, object]) -> str:
    """Replaces `{{name:default}}` by a value, or else the default, as a literal of the type that the default has."""
    known = dict(_PARAMETER.findall(sql))
    if unknown := [name for name in values if name not in known]:
        raise ValueError(f"no parameter {unknown[0]!r}; there are {', '.join(known) or 'none'}")
    return _PARAMETER.sub(lambda hit: _literal(hit[1], hit[2], str(values.get(hit[1], hit[2]))), sql)


def _literal(name: str, default: str, value: str) -> str:
    if _NUMBER.fullmatch(default):
        wanted, literal = "a number", value if _NUMBER.fullmatch(value) else None
    elif _DATE.fullmatch(default):
        wanted, literal = "a date, YYYY-MM-DD", f"DATE '{value}'" if _DATE.fullmatch(value) else None
    else:
        # Engines differ in how they escape.
        plain = value.isprintable() and "'" not in value and "\\" not in value
        wanted, literal = "text without quotes, backslashes and control characters", f"'{value}'" if plain else None
    if literal is None:
        raise ValueError(f"parameter {name}: {value!r} is not {wanted}")
    return literal
