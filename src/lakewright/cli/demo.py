"""`lakewright demo`: open real tables, query and inspect them, print a readable report."""

from __future__ import annotations

import os
import tempfile
import time
import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from lakewright.cli.output import Output, note, print_table, print_value
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
