"""`lakewright log`: what is inside log files."""

from __future__ import annotations

from typing import Annotated

import typer

from lakewright.cli.arguments import OutputOption, Uri
from lakewright.cli.output import Output, print_batches, print_table
from lakewright.table import Table

app = typer.Typer(no_args_is_help=True)

File = Annotated[
    str, typer.Argument(help="The log file, relative to the table (partition/.file_id…log.1_…).")
]


@app.command()
def blocks(uri: Uri, file: File, output: OutputOption = Output.TEXT) -> None:
    """List the blocks of a log file: type, instant, sizes, headers, damage."""
    print_table(Table.open(uri).inspect.log_blocks(file), output)


@app.command()
def records(
    uri: Uri,
    file: File,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Rows at the most.")] = 20,
    output: OutputOption = Output.TEXT,
) -> None:
    """Print the records and deletes of a log file as they are stored, before any merging."""
    rows = Table.open(uri).inspect.log_records(file).slice(0, limit)
    print_batches(rows.column_names, rows.to_batches(), output)
