"""`lakewright rollback`: undoing one write, or one attempt at a plan."""

from __future__ import annotations

from typing import Annotated

import typer

from lakewright.cli.arguments import (
    AsJson,
    Instant,
    Lock,
    OutputOption,
    Settings,
    Uri,
    settings_of,
)
from lakewright.cli.output import Output, print_value
from lakewright.cli.running import form, plans_of, services_of

app = typer.Typer(no_args_is_help=True)

Unschedule = Annotated[
    bool, typer.Option("--unschedule", help="Of a plan: take the plan away as well.")
]


@app.command()
def plan(
    uri: Uri,
    instant: Instant,
    unschedule: Unschedule = False,
    setting: Settings = None,
    as_json: AsJson = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show what `run` would undo, or why it would refuse, without changing anything.

    Example: lakewright rollback plan /data/trips 20260101120000000
    """
    service = plans_of(uri).rollback
    found = service.plan(instant, settings_of(setting), unschedule=unschedule)
    print_value(found.to_dict(), form(output, as_json))


@app.command()
def run(
    uri: Uri,
    instant: Instant,
    unschedule: Unschedule = False,
    lock: Lock = None,
    setting: Settings = None,
    as_json: AsJson = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Undo a write of a dead process, an attempt at a plan, or the newest commit.

    A commit is undone only while nothing is built on it: roll back newer ones first, or use
    `lakewright restore`. One that a savepoint keeps stays. A process that is alive is named, and
    what it works on is left to it. A plan that was begun waits to be executed again; with
    --unschedule it goes.
    """
    service = services_of(uri, lock).rollback
    done = service.run(instant, settings_of(setting), unschedule=unschedule)
    print_value(done.to_dict(), form(output, as_json))
