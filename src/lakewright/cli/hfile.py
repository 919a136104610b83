"""`lakewright hfile`: keys and values of HFiles."""

from __future__ import annotations

from typing import Annotated

import typer

from lakewright.cli.arguments import OutputOption, Uri
from lakewright.cli.output import Output, print_table
from lakewright.table import Table

app = typer.Typer(no_args_is_help=True)


@app.command()
def keys(
    uri: Uri,
    file: Annotated[
        str,
        typer.Argument(
            help="The HFile, relative to the table (.hoodie/metadata/files/files-0000-0_….hfile)."
        ),
    ],
    prefix: Annotated[str, typer.Option("--prefix", help="Only keys that start so.")] = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """List the keys of an HFile with the size of each value."""
    print_table(Table.open(uri).inspect.hfile(file, prefix=prefix), output)
