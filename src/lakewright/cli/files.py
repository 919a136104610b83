"""`lakewright files`: file groups, slices and the state of each file."""

from __future__ import annotations

from typing import Annotated

import typer

from lakewright.cli.arguments import AsOf, OutputOption, Uri
from lakewright.cli.output import Output, print_table
from lakewright.table import Table

app = typer.Typer(no_args_is_help=True)


@app.command()
def show(
    uri: Uri,
    as_of: AsOf = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also old, replaced, uncommitted and orphan files.")
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """List the files of the latest slices. Example: lakewright files show /data/trips --all"""
    inspector = Table.open(uri).inspect
    print_table(inspector.all_files() if every else inspector.files(as_of=as_of), output)


@app.command()
def partitions(uri: Uri, output: OutputOption = Output.TEXT) -> None:
    """List partitions with their slices, files and bytes."""
    print_table(Table.open(uri).inspect.partitions(), output)
