"""`lakewright demo`: open real tables, query and inspect them, print a readable report."""

from __future__ import annotations

import os
import tempfile
import time
import zipfile
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
    for archive in archives:
        with tempfile.TemporaryDirectory() as scratch:
            for path in _unpack(archive, Path(scratch)):
                _report(archive.stem, Table.open(path))
    note(f"{len(archives)} tables opened.")


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
