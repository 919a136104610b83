"""`lakewright metadata`: the metadata table, shown, verified, built, built anew, dropped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from lakewright.cli.arguments import AsJson, Lock, OutputOption, Uri
from lakewright.cli.output import Output, note, print_rows, print_value
from lakewright.cli.running import form, nothing_to_do, tell
from lakewright.errors import InputError
from lakewright.metadata.verification import Compared
from lakewright.table import Table

app = typer.Typer(no_args_is_help=True)
DIFFERENCES = 1
_COLUMNS = ["index", "kind", "key", "expected", "found"]


@app.command()
def show(uri: Uri, as_json: AsJson = False, output: OutputOption = Output.TEXT) -> None:
    """Show the indexes, their state, how far they are synced, what is pending, and their size.

    Example: lakewright metadata show /data/trips
    """
    found = Table.open(uri).metadata.describe()
    if found is None:
        nothing_to_do("The table has no metadata table.")
    print_value(found.to_dict(), form(output, as_json), text=str(found))


@app.command()
def verify(
    uri: Uri,
    index: Annotated[
        list[str] | None,
        typer.Option("--index", help="Only this index; may be given repeatedly."),
    ] = None,
    as_json: AsJson = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Hold every record of the metadata table against the data files and show each difference.

    Reads footers, log files and record keys of the whole table; takes no lock, changes nothing.
    Exit code 0: no difference; 1: differences, one row each; 3: there is no metadata table.

    Example: lakewright metadata verify /data/trips --index files --index column_stats
    """
    table = Table.open(uri)
    if table.metadata.describe() is None:
        nothing_to_do("The table has no metadata table.")
    told: list[Compared] = []

    def differences() -> Iterator[dict[str, object]]:
        for finding in table.metadata.verify(*(index or ())):
            if isinstance(finding, Compared):
                told.append(finding)
                note(_line(finding))
            else:
                yield finding.to_dict()

    print_rows(_COLUMNS, differences(), form(output, as_json))
    if any(each.differences for each in told):
        note(f"To build it anew: lakewright metadata rebuild {uri}; to be rid of it: drop")
        raise typer.Exit(DIFFERENCES)


@app.command()
def rebuild(
    uri: Uri,
    index: Annotated[
        list[str] | None,
        typer.Option("--index", help="Build this index besides files; may be given repeatedly."),
    ] = None,
    lock: Lock = None,
    as_json: AsJson = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Drop the metadata table and build it anew from the data files; writers may go on meanwhile.

    It gets the indexes that it had, as far as they can be built here: files, column_stats,
    partition_stats, bloom_filters, record_index and secondary indexes. The others are named, and
    left out.
    """
    done = Table.open(uri, lock=lock, on_event=tell).metadata.rebuild(*(index or ()))
    if not done.indexes:
        nothing_to_do("Something is pending; the metadata table is gone, and not built yet.")
    told = {"indexes": list(done.indexes), "left_out": list(done.left_out)}
    print_value(told, form(output, as_json))


@app.command()
def build(
    uri: Uri,
    index: Annotated[
        list[str] | None,
        typer.Argument(help="column_stats, bloom_filters, record_index, or a defined secondary."),
    ] = None,
    secondary: Annotated[
        list[str] | None,
        typer.Option("--secondary", help="NAME=COLUMN: a new secondary index; may be repeated."),
    ] = None,
    per_partition: Annotated[
        bool | None,
        typer.Option(
            "--per-partition/--all-keys",
            help="Whether the record index keeps the keys of each partition apart, for tables "
            "where a key is one row in each; Hudi before 1.1 must not write the table then.",
            show_default="as the table says, or all keys",
        ),
    ] = None,
    lock: Lock = None,
    as_json: AsJson = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Add indexes to the metadata table while writers go on, as an indexing action.

    Only its beginning and its end take the table's lock. If it is interrupted nobody uses the
    indexes; run it again. A secondary index brings the record index with it.

    Example: lakewright metadata build /data/trips column_stats --secondary by_city=city
    """
    table = Table.open(uri, lock=lock, on_event=tell)
    done = table.metadata.build(
        *(index or ()),
        secondary=dict(map(_on_column, secondary or ())),
        per_partition=per_partition,
    )
    if not done.indexes:
        nothing_to_do("The table has them, cannot have them, or something is pending.")
    told = {"indexes": list(done.indexes), "left_out": list(done.left_out)}
    print_value(told, form(output, as_json))


@app.command()
def drop(
    uri: Uri,
    index: Annotated[
        list[str] | None,
        typer.Option("--index", help="Only this index; may be given repeatedly."),
    ] = None,
    lock: Lock = None,
) -> None:
    """Remove the metadata table, or some indexes: first from the properties, then their folders.

    Without a metadata table readers list folders. A Hudi writer with hoodie.metadata.enable=true
    builds it again, and the indexes that it is told to have.

    Example: lakewright metadata drop /data/trips --index secondary_index_by_city
    """
    if not Table.open(uri, lock=lock, on_event=tell).metadata.drop(*(index or ())):
        nothing_to_do("The table has no such index." if index else "It has no metadata table.")


def _on_column(given: str) -> tuple[str, str]:
    name, separator, column = given.partition("=")
    if not (name and separator and column):
        raise InputError(
            f"{given!r} is no secondary index.",
            hint="Say its name and its column, as in --secondary by_city=city.",
        )
    return name, column


def _line(compared: Compared) -> str:
    if not compared.index:
        return compared.note
    found = f"{compared.records} records, {compared.differences} differences"
    return f"{compared.index}: {found}" + (f" ({compared.note})" if compared.note else "")
