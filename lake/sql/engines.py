"""Runs the saved queries of a lake on DuckDB, Spark or ClickHouse (chdb).

    python lake/sql/engines.py duckdb --lake LAKE slow-hosts --param since=2026-01-01

`roofgap lake query` does the same on DataFusion. The module needs only the package of the engine that it runs.
"""

import argparse
import csv
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
PLACEHOLDER = re.compile(r"\{\{([a-z_]+):([^{}]*)\}\}")
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
SCHEMA = json.loads((HERE / "schema.json").read_text())


class QueryError(Exception):
    """A query that does not exist, or a parameter that does not fit it."""


def names():
    """Returns the names of the saved queries, sorted."""
    return sorted(path.stem for path in HERE.glob("*.sql"))


def text(name):
    """Returns the text of a saved query, with its placeholders."""
    path = HERE / f"{name}.sql"
    if name not in names():
        raise QueryError(f"no saved query {name}; there are: {', '.join(names())}")
    return path.read_text()


def kind(default):
    """Returns the type that the default of a parameter gives it."""
    if NUMBER.fullmatch(default):
        return "number"
    return "date" if DATE.fullmatch(default) else "text"


def parameters(sql):
    """Returns the parameters of a query and their defaults."""
    found = {}
    for name, default in PLACEHOLDER.findall(sql):
        if found.setdefault(name, default) != default:
            raise QueryError(f"parameter {name} has two defaults: {found[name]} and {default}")
    return found


def literal(name, default, value):
    """Returns a value as an SQL literal of the type of the default."""
    if kind(default) == "number":
        if not NUMBER.fullmatch(value):
            raise QueryError(f"parameter {name} needs a number, not {value!r}")
        return value
    if kind(default) == "date":
        if not DATE.fullmatch(value):
            raise QueryError(f"parameter {name} needs a date as YYYY-MM-DD, not {value!r}")
        return f"DATE '{value}'"
    # Engines disagree about escapes, so text that needs one is refused.
    if "'" in value or "\\" in value or not value.isprintable():
        raise QueryError(f"parameter {name} must not contain quotes, backslashes or control characters: {value!r}")
    return f"'{value}'"


def render(sql, values=None):
    """Replaces the placeholders of a query by the values, or else by the defaults."""
    values = values or {}
    known = parameters(sql)
    for name in values:
        if name not in known:
            raise QueryError(f"the query has no parameter {name}; it has: {', '.join(known) or 'none'}")
    return PLACEHOLDER.sub(lambda hit: literal(hit[1], hit[2], str(values.get(hit[1], hit[2]))), sql)


def files(lake, table):
    """Returns the glob of the files of a table."""
    return f"{str(lake).rstrip('/')}/{table}/*/*/*/*.parquet"


def is_local(lake):
    """Returns true for a folder, false for an address of an object store."""
    return "://" not in str(lake)


def has_files(lake, table):
    """Returns false where a table of a local lake has no file. Object stores are taken as complete."""
    return not is_local(lake) or next(pathlib.Path(lake).glob(f"{table}/*/*/*/*.parquet"), None) is not None


def read_prices(path):
    """Reads the prices of GPUs per hour from a CSV file with the columns gpu and price_per_hour."""
    if path is None:
        return []
    with open(path, newline="") as file:
        rows = csv.DictReader(file)
        if not {"gpu", "price_per_hour"} <= set(rows.fieldnames or ()):
            raise QueryError(f"{path} needs the columns gpu and price_per_hour")
        try:
            return [(row["gpu"], float(row["price_per_hour"])) for row in rows]
        except ValueError as error:
            raise QueryError(f"{path}: {error}") from error


def empty_select(columns):
    """Returns a SELECT without rows that has the columns of a table."""
    fields = ", ".join(f"CAST(NULL AS {type_}) AS {name}" for name, type_ in columns)
    return f"SELECT {fields} WHERE 1 = 0"


class DuckDB:
    """Views of a lake in DuckDB."""

    PARTITIONS = "{'date': DATE, 'project': VARCHAR, 'host': VARCHAR}"

    def __init__(self, lake, prices=None, threads=None):
        import duckdb

        self.connection = duckdb.connect()
        if threads:
            self.connection.execute(f"SET threads = {int(threads)}")
        for statement in self.views(lake):
            self.connection.execute(statement)
        self.connection.execute("CREATE TABLE prices (gpu VARCHAR, price_per_hour DOUBLE)")
        for row in read_prices(prices):
            self.connection.execute("INSERT INTO prices VALUES (?, ?)", row)

    @classmethod
    def views(cls, lake):
        """Returns the statements that define the views."""
        for table, columns in SCHEMA.items():
            rows = empty_select(columns)
            if has_files(lake, table):
                source = files(lake, table).replace("'", "''")
                read = f"read_parquet('{source}', hive_partitioning = true, hive_types = {cls.PARTITIONS}, union_by_name = true)"
                # Files of an older version lack the newest columns.
                rows += f" UNION ALL BY NAME SELECT * FROM {read}"
            yield f"CREATE OR REPLACE VIEW {table} AS {rows}"

    def query(self, sql):
        """Runs a statement. Returns the names of its columns and its rows."""
        cursor = self.connection.execute(sql)
        return [column[0] for column in cursor.description], cursor.fetchall()


class Spark:
    """Views of a lake in Spark."""

    TYPES = {"VARCHAR": "STRING"}

    def __init__(self, lake, prices=None, session=None):
        self.session = session or local_spark()
        partitions = {"date": "DATE", "project": "STRING", "host": "STRING"}
        for table, columns in SCHEMA.items():
            # A given schema spares reading the footers, and columns that a file lacks are null.
            fields = ", ".join(f"{name} {partitions.get(name) or self.TYPES.get(type_, type_)}" for name, type_ in columns)
            if has_files(lake, table):
                frame = self.session.read.schema(fields).parquet(f"{str(lake).rstrip('/')}/{table}")
            else:
                frame = self.session.createDataFrame([], fields)
            frame.createOrReplaceTempView(table)
        frame = self.session.createDataFrame(read_prices(prices), "gpu STRING, price_per_hour DOUBLE")
        frame.createOrReplaceTempView("prices")

    def query(self, sql):
        """Runs a statement. Returns the names of its columns and its rows."""
        frame = self.session.sql(sql)
        return frame.columns, [tuple(row) for row in frame.collect()]


def local_spark(settings=None):
    """Starts Spark, or joins the session of spark-submit, without pages and messages."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("roofgap lake")
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    for name, value in {"spark.sql.session.timeZone": "UTC", **quiet, **(settings or {})}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


class ClickHouse:
    """Tables of a lake in ClickHouse, through chdb."""

    TYPES = {"VARCHAR": "String", "BIGINT": "Int64", "DOUBLE": "Float64", "BOOLEAN": "Bool", "TIMESTAMP": "DateTime64(6, 'UTC')", "DATE": "Date"}
    # Standard SQL: null where a join has no partner or an aggregate has no rows, and columns before aliases of the same name.
    SETTINGS = {"join_use_nulls": 1, "aggregate_functions_null_for_empty": 1, "cast_keep_nullable": 1, "use_hive_partitioning": 1,
        "prefer_column_name_to_alias": 1}

    def __init__(self, lake, prices=None):
        from chdb import session

        self.session = session.Session()
        for name, value in self.SETTINGS.items():
            self.session.query(f"SET {name} = {value}")
        self.session.query("CREATE DATABASE IF NOT EXISTS lake")
        self.session.query("USE lake")
        for table, columns in SCHEMA.items():
            fields = ", ".join(f"{name} Nullable({self.TYPES[type_]})" for name, type_ in columns)
            if has_files(lake, table):
                # With given columns, those that a file lacks are null.
                structure = fields.replace("'", "''")
                self.session.query(f"CREATE VIEW {table} AS SELECT * FROM file('{files(lake, table)}', 'Parquet', '{structure}')")
            else:
                self.session.query(f"CREATE TABLE {table} ({fields}) ENGINE = Memory")
        self.session.query("CREATE TABLE prices (gpu String, price_per_hour Float64) ENGINE = Memory")
        for gpu, price in read_prices(prices):
            self.session.query(f"INSERT INTO prices VALUES ({literal('gpu', 'text', gpu)}, {price!r})")

    def query(self, sql):
        """Runs a statement. Returns the names of its columns and its rows."""
        answer = json.loads(self.session.query(sql, "JSONCompact").bytes())
        return [column["name"] for column in answer["meta"]], [tuple(row) for row in answer["data"]]


ENGINES = {"duckdb": DuckDB, "spark": Spark, "clickhouse": ClickHouse}


def main(arguments=None):
    """Prints the rows of a saved query as CSV."""
    parser = argparse.ArgumentParser(description="Runs a saved query of a lake and prints its rows as CSV.")
    parser.add_argument("engine", choices=sorted(ENGINES))
    parser.add_argument("query", nargs="?", help="name of a saved query, or a file that ends in .sql")
    parser.add_argument("--views", action="store_true", help="print the statements that define the tables in DuckDB")
    parser.add_argument("--lake", required=True, help="folder of the lake, or its address in an object store")
    parser.add_argument("--param", action="append", default=[], metavar="NAME=VALUE", help="value of a parameter of the query")
    parser.add_argument("--prices", help="CSV file with the columns gpu and price_per_hour")
    options = parser.parse_args(arguments)
    if options.views:
        for statement in DuckDB.views(options.lake):
            print(f"{statement};")
        return
    if options.query is None:
        parser.error("name a saved query")
    try:
        values = dict(item.split("=", 1) for item in options.param)
    except ValueError:
        parser.error("--param needs NAME=VALUE")
    try:
        sql = pathlib.Path(options.query).read_text() if options.query.endswith(".sql") else text(options.query)
        sql = render(sql, values)
        columns, rows = ENGINES[options.engine](options.lake, options.prices).query(sql)
    except (QueryError, OSError) as error:
        sys.exit(f"error: {error}")
    writer = csv.writer(sys.stdout)
    writer.writerow(columns)
    writer.writerows(rows)


if __name__ == "__main__":
    main()
