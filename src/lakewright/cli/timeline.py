"""`lakewright timeline`: the instants of a table."""

from __future__ import annotations

from typing import Annotated

import typer

from lakewright.cli.arguments import OutputOption, Uri
from lakewright.cli.output import Output, print_table, print_value
from lakewright.table import Table

app = typer.Typer(no_args_is_help=True)


@app.command()
def show(
    uri: Uri,
    archived: Annotated[
        bool, typer.Option("--archived", help="Archived instants instead of active ones.")
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """List instants with action, state and times. Example: lakewright timeline show /data/trips"""
    inspector = Table.open(uri).inspect
    print_table(inspector.archived() if archived else inspector.timeline(), output)


@app.command()
def commits(uri: Uri, output: OutputOption = Output.TEXT) -> None:
    """List completed writes with what each wrote."""
    print_table(Table.open(uri).inspect.commits(), output)


@app.command()
def instant(
    uri: Uri,
    time: Annotated[str, typer.Argument(help="The requested time of the instant.")],
    action: Annotated[
        str | None, typer.Option("--action", help="Which action, if several share the time.")
    ] = None,
    output: OutputOption = Output.JSON,
) -> None:
    """Show the plan or metadata of one instant, decoded."""
    print_value(Table.open(uri).inspect.instant(time, action=action), output)
