"""`lakewright restore`: going back to a savepoint or commit."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
import typer

from lakewright.cli.arguments import AsJson, Lock, OutputOption, Settings, Uri, settings_of
from lakewright.cli.output import Output, note, print_table, print_value
from lakewright.cli.running import form, nothing_to_do, plans_of, services_of

app = typer.Typer(no_args_is_help=True)

To = Annotated[
    str | None,
    typer.Option("--to", help="The commit to go back to; the newest savepoint if left out."),
]


@app.command()
def plan(
    uri: Uri,
    to: To = None,
    setting: Settings = None,
    as_json: AsJson = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show what `run` would take back, or why it would refuse, without changing anything.

    Example: lakewright restore plan /data/trips --to 20260101120000000
    """
    found = plans_of(uri).restore.plan(to, settings_of(setting))
    note(f"to {found.to}{f', going on with {found.restore}' if found.restore else ''}")
    if not found.undone and found.restore is None:
        nothing_to_do("There is nothing to take back.")
    rows = [{"instant": i.commit_time, "action": i.action} for i in found.undone]
    print_table(pa.Table.from_pylist(rows), form(output, as_json))


@app.command()
def run(
    uri: Uri,
    to: To = None,
    lock: Lock = None,
    setting: Settings = None,
    as_json: AsJson = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Take back everything that was written after a commit, the newest first.

    Stop all writers and services first: it refuses while one is alive, and keeps them out until it
    is done. If it is killed, run it again without --to: it goes on where it was. Later savepoints
    must be deleted first; a commit without a savepoint must be whole still, not cleaned.
    """
    done = services_of(uri, lock).restore.run(to, settings_of(setting))
    if done.restore is None:
        nothing_to_do(f"The table is at {done.to}: there was nothing to take back.")
    print_value(done.to_dict(), form(output, as_json))
