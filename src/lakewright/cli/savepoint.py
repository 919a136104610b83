"""`lakewright savepoint`: commits whose files are kept."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import pyarrow as pa
import typer

from lakewright.cli.arguments import AsJson, Lock, OutputOption, Uri
from lakewright.cli.output import Output, note, print_table, print_value
from lakewright.cli.running import form, nothing_to_do, plans_of, services_of

app = typer.Typer(no_args_is_help=True)


@app.command()
def create(
    uri: Uri,
    instant: Annotated[
        str | None, typer.Argument(help="The commit to keep; the newest if left out.")
    ] = None,
    comment: Annotated[str, typer.Option("--comment", "-m", help="Why it is kept.")] = "",
    lock: Lock = None,
    as_json: AsJson = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Keep the files of a commit until the savepoint is deleted.

    The table can then be read as of it and restored to it (`lakewright restore`).

    Example: lakewright savepoint create /data/trips -m "before the migration"
    """
    made = services_of(uri, lock).savepoints.create(instant, comment=comment)
    print_value(asdict(made), form(output, as_json))


@app.command()
def delete(
    uri: Uri,
    instant: Annotated[str, typer.Argument(help="The commit that the savepoint keeps.")],
    lock: Lock = None,
) -> None:
    """Delete a savepoint; the next clean may delete its files."""
    services_of(uri, lock).savepoints.delete(instant)
    note(f"The savepoint of {instant} is deleted.")


@app.command("list")
def list_all(uri: Uri, as_json: AsJson = False, output: OutputOption = Output.TEXT) -> None:
    """List savepoints, the oldest commit first."""
    found = plans_of(uri).savepoints.all()
    if not found:
        nothing_to_do("There is no savepoint.")
    rows = [asdict(savepoint) for savepoint in found]
    print_table(pa.Table.from_pylist(rows), form(output, as_json))
