"""`lakewright demo`: open real tables, write one, kill a writer, print a readable report."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from lakewright.cli.output import Output, note, print_table, print_value
from lakewright.engine.write_result import WriteResult
from lakewright.table import Table

ROWS_SHOWN = 5


def _unpack(archive: Path, into: Path) -> list[Path]:
    """Unzip with modification times kept; the table folders inside."""
    with zipfile.ZipFile(archive) as source:
        for info in source.infolist():
            target = Path(source.extract(info, into))
            stamp = time.mktime((*info.date_time, 0, 0, -1))
            os.utime(target, (stamp, stamp))
    found = sorted(p.parent.parent for p in into.rglob(".hoodie/hoodie.properties"))
    return [p for p in found if ".hoodie" not in p.relative_to(into).parts]


def run(
    folder: Annotated[
        Path, typer.Argument(help="A folder with zipped Hudi tables.", exists=True)
    ] = Path("tests/tables"),
) -> None:
    """Open every zipped table of a folder and report what is in it."""
    archives = sorted(folder.glob("*.zip"))
    with tempfile.TemporaryDirectory() as scratch:
        tables = {
            archive.stem: Table.open(path)
            for archive in archives
            for path in _unpack(archive, Path(scratch) / archive.stem)
        }
        for name, table in tables.items():
            _report(name, table)
        _write(Path(scratch) / "written")
        if tables and find_spec("pyspark") is not None:
            _on_spark(tables)
    note(f"{len(tables)} tables opened.")


def _report(name: str, table: Table) -> None:
    typer.echo(f"\n━━ {name} " + "━" * max(1, 76 - len(name)))
    summary = table.inspect.summary()
    shown = ("type", "version", "key fields", "merge mode", "ordering fields", "last commit")
    counts = ("instants", "pending", "partitions", "file slices", "log files", "listed by")
    print_value({k: summary[k] for k in (*shown, *counts)}, Output.TEXT)
    commits = table.inspect.commits()
    print_table(
        commits.slice(max(0, commits.num_rows - ROWS_SHOWN)), Output.TEXT, title="\nCommits"
    )
    scan = table.scan(meta=False)
    typer.echo("\n" + str(scan.plan()))
    rows = scan.to_arrow()
    print_table(rows.slice(0, ROWS_SHOWN), Output.TEXT, title="\nRows")
    typer.echo(f"snapshot: {rows.num_rows} rows × {rows.num_columns} columns")
    times = commits["requested_time"].to_pylist()
    if len(times) > 1:
        _travel(table, times[-2])


def _travel(table: Table, instant: str) -> None:
    from lakewright.errors import InstantNotFoundError

    try:
        typer.echo(f"as of {instant}: {table.scan(as_of=instant).count()} rows")
    except InstantNotFoundError as error:
        typer.echo(f"as of {instant}: refused. {error.message}")


def _write(path: Path) -> None:
    """Write a table, kill a writer in the middle, and go on."""
    typer.echo("\n━━ writing " + "━" * 67)
    columns = {"id": pa.string(), "city": pa.string(), "fare": pa.float64()}
    key = pa.field("id", pa.string(), nullable=False)
    schema = pa.schema([key, *(pa.field(n, t) for n, t in columns.items() if n != "id")])
    table = Table.create(path, schema=schema, key=["id"], partition=["city"])

    def rows(first: int, last: int, city: str) -> pa.Table:
        numbers = range(first, last)
        values = {"id": [f"trip-{i}" for i in numbers], "fare": [i * 1.5 for i in numbers]}
        return pa.table({**values, "city": [city] * len(numbers)}).select([*columns])

    def told(what: str, result: WriteResult) -> None:
        where = f"{result.files} files, lock held {result.lock_held_ms} ms"
        typer.echo(f"{what}: commit {result.instant}, {result.inserted} rows in {where}")

    told("append", table.append(rows(0, 1000, "sf")))
    told("append", table.append(rows(1000, 1500, "ny")))
    _killed_writer(path)
    typer.echo(f"after a writer was killed: {table.scan().count()} rows, one write pending")
    told("append", table.append(rows(2000, 2100, "sf")))
    told("overwrite", table.overwrite(rows(0, 10, "ny")))
    print_table(table.inspect.timeline(), Output.TEXT, title="\nTimeline")
    typer.echo(f"snapshot: {table.scan().count()} rows; nothing of the killed write is left")


def _killed_writer(path: Path) -> None:
    """A process that dies after it has written its files and before it commits them."""
    program = (
        "import os, signal, sys, pyarrow as pa, lakewright as lw\n"
        "die = lambda proposal: os.kill(os.getpid(), signal.SIGKILL)\n"
        "rows = pa.table({'id': ['lost'], 'city': ['sf'], 'fare': [0.0]})\n"
        "lw.Table.open(sys.argv[1]).append(rows, validators=[die])\n"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=False)


def _on_spark(tables: Mapping[str, Table]) -> None:
    """Read the tables again as DataFrames and compare the counts."""
    from lakewright.spark import SparkTable, session

    typer.echo("\n━━ on Spark " + "━" * 66)
    spark = session("demo", master="local[2]", config={"spark.ui.enabled": "false"})
    for name, table in tables.items():
        on_spark = SparkTable.open(spark, table.uri)
        parts = on_spark.plan().routing
        rows, expected = on_spark.read().count(), table.scan().count()
        told = "as above" if rows == expected else f"but {expected} above"
        where = f"{len(parts.jvm)} slices in the JVM, {len(parts.workers)} in Python workers"
        typer.echo(f"{name}: {rows} rows, {told}; {where}")
    spark.stop()
