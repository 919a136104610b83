"""`lakewright table`: show a table, its schema, its rows, its changes."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
import typer

from lakewright.cli.arguments import AsJson, AsOf, Lock, OutputOption, Settings, Uri, settings_of
from lakewright.cli.output import Output, note, print_batches, print_table, print_value
from lakewright.cli.running import form
from lakewright.engine.cdc_reader import Images
from lakewright.engine.changes import ChangeMode
from lakewright.engine.scan import Mode
from lakewright.table import Table

app = typer.Typer(no_args_is_help=True)
NEEDS_ACTION = 5
FINDING_COLUMNS = pa.schema(
    [
        (name, pa.string())
        for name in ("severity", "code", "instant", "action", "owner", "since", "why", "command")
    ]
)

ScanMode = Annotated[
    Mode, typer.Option("--mode", help="snapshot, or read_optimized (base files only).")
]


@app.command()
def show(uri: Uri, output: OutputOption = Output.TEXT) -> None:
    """Show what a table is: version, type, keys, merging, size, last commit.

    Example: lakewright table show /data/trips
    """
    print_value(Table.open(uri).inspect.summary(), output)


@app.command()
def properties(uri: Uri, output: OutputOption = Output.TEXT) -> None:
    """Show the table's hoodie.properties."""
    print_table(Table.open(uri).inspect.properties(), output)


@app.command()
def schema(uri: Uri, as_of: AsOf = None, output: OutputOption = Output.TEXT) -> None:
    """Show the columns of a snapshot and where the schema comes from."""
    snapshot = Table.open(uri).snapshot(as_of)
    rows = [
        {"column": f.name, "type": str(f.type), "nullable": f.nullable}
        for f in snapshot.schema.arrow
    ]
    print_table(pa.Table.from_pylist(rows), output, title=f"from {snapshot.schema.source}")


@app.command()
def read(
    uri: Uri,
    columns: Annotated[
        str | None, typer.Option("--columns", "-c", help="Comma-separated column names.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", "-w", help="A filter, e.g. \"city = 'sf' and ts >= 5\"."),
    ] = None,
    as_of: AsOf = None,
    mode: ScanMode = "snapshot",
    meta: Annotated[bool, typer.Option("--meta/--no-meta", help="Include meta columns.")] = True,
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="Rows at the most.")] = 20,
    output: OutputOption = Output.TEXT,
) -> None:
    """Print rows. Example: lakewright table read /data/trips -c id,city -w "city = 'sf'" -o csv"""
    scan = Table.open(uri).scan(
        columns=[c.strip() for c in columns.split(",")] if columns else None,
        where=where,
        as_of=as_of,
        mode=mode,
        meta=meta,
        limit=limit,
    )
    print_batches(list(scan.columns), scan.to_batches(), output)


@app.command()
def plan(
    uri: Uri,
    where: Annotated[str | None, typer.Option("--where", "-w", help="A filter.")] = None,
    as_of: AsOf = None,
    mode: ScanMode = "snapshot",
    output: OutputOption = Output.TEXT,
) -> None:
    """Show what a read would open and what it could skip, without reading rows."""
    made = Table.open(uri).scan(where=where, as_of=as_of, mode=mode).plan()
    print_value(made.to_dict(), output, text=str(made))


@app.command()
def health(
    uri: Uri,
    lock: Lock = None,
    setting: Settings = None,
    as_json: AsJson = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show what is pending, overdue, expired or blocked, why, and the command that resolves it.

    Only looks: no lock is taken and nothing is written. Exit code 0: nothing has to be done; 5:
    something needs action. Settings of the table's writers say what counts as overdue.

    Example: lakewright table health /data/trips -s hoodie.clean.commits.retained=20
    """
    found = Table.open(uri, lock=lock).health(settings_of(setting))
    output = form(output, as_json)
    if output is Output.CSV:
        rows = [finding.to_dict() for finding in found.findings]
        print_table(pa.Table.from_pylist(rows, FINDING_COLUMNS), output)
    else:
        print_value(found.to_dict(), output, text=str(found))
    if not found.healthy:
        raise typer.Exit(NEEDS_ACTION)


@app.command()
def changes(
    uri: Uri,
    since: Annotated[
        str | None,
        typer.Option("--since", help="An instant, a date-time, an offset, or earliest."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Like --since; the latest if left out.")
    ] = None,
    mode: Annotated[
        ChangeMode, typer.Option("--mode", help="rows, or cdc (one row per change, with images).")
    ] = "rows",
    columns: Annotated[
        str | None, typer.Option("--columns", "-c", help="Comma-separated column names.")
    ] = None,
    where: Annotated[str | None, typer.Option("--where", "-w", help="A filter.")] = None,
    images: Annotated[
        Images, typer.Option("--images", help="cdc: images as json (as Hudi has them) or struct.")
    ] = "json",
    plan_only: Annotated[bool, typer.Option("--plan", help="Show what would be read.")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Print what changed. Example: lakewright table changes /data/trips --since 2025-01-31

    The offset from which to go on is told on stderr.
    """
    changed = Table.open(uri).changes(
        since,
        until,
        mode,
        columns=[c.strip() for c in columns.split(",")] if columns else None,
        where=where,
        images=images,
    )
    if plan_only:
        made = changed.plan()
        print_value(made.to_dict(), output, text=str(made))
        return
    print_batches(list(changed.columns), changed.to_batches(), output)
    note(f"end {changed.end}")
