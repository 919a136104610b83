"""What commands that run a service share: the table with its progress, and how they end.

Progress goes to stderr: on a terminal one line that is written over, elsewhere a line for whatever
is done. Exit code 3 says that there was nothing to do.
"""

from __future__ import annotations

import sys
from typing import NoReturn

import typer

from lakewright.cli.output import Output, note
from lakewright.runtime.events import Event
from lakewright.services.table_services import TableServices
from lakewright.table import Table

NOTHING_TO_DO = 3


def services_of(uri: str, lock: str | None) -> TableServices:
    """The services of a table, telling how far they are."""
    return Table.open(uri, lock=lock, on_event=tell).services


def plans_of(uri: str) -> TableServices:
    """The services of a table that is only looked at, which needs nobody's lock."""
    return Table.open(uri, sole_writer=True, on_event=tell).services


def tell(event: Event) -> None:
    """Say how far the work is."""
    done = event.total is None or event.done >= event.total
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{_line(event)}" + ("\n" if done else ""))
        sys.stderr.flush()
    elif done:
        note(_line(event))


def _line(event: Event) -> str:
    count = f"{event.done}" if event.total is None else f"{event.done}/{event.total}"
    about = f" ({event.instant})" if event.instant else ""
    return f"{event.kind} {count} {event.unit}".rstrip() + about


def nothing_to_do(message: str) -> NoReturn:
    """End with the exit code that says so."""
    note(message)
    raise typer.Exit(NOTHING_TO_DO)


def form(output: Output, as_json: bool) -> Output:
    """The form of the data that was asked for."""
    return Output.JSON if as_json else output
