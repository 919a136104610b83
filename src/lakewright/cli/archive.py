"""`lakewright archive`: moving old instants off the active timeline."""

from __future__ import annotations

import pyarrow as pa
import typer

from lakewright.cli.arguments import AsJson, Lock, OutputOption, Settings, Uri, settings_of
from lakewright.cli.output import Output, note, print_table, print_value
from lakewright.cli.running import form, nothing_to_do, plans_of, services_of
from lakewright.services.archive import ArchiveResult

app = typer.Typer(no_args_is_help=True)


@app.command()
def plan(
    uri: Uri, setting: Settings = None, as_json: AsJson = False, output: OutputOption = Output.TEXT
) -> None:
    """Show which instants `run` would archive now, and what keeps the others.

    Example: lakewright archive plan /data/trips -s hoodie.keep.max.commits=30
    """
    found = plans_of(uri).archive.plan(settings_of(setting))
    _tell_blocked(found)
    if not found.plan.instants:
        nothing_to_do("There is nothing to archive.")
    rows = [
        {"instant": i.requested_time, "action": i.action, "completed": i.completion_time}
        for i in found.plan.instants
    ]
    print_table(pa.Table.from_pylist(rows), form(output, as_json))


@app.command()
def run(
    uri: Uri,
    lock: Lock = None,
    setting: Settings = None,
    as_json: AsJson = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Move old instants into the archive, where the history stays readable.

    No data file is touched, and no query answers differently. A run that was killed is finished by
    the next one.
    """
    done = services_of(uri, lock).archive.run(settings_of(setting))
    _tell_blocked(done)
    if not done.archived:
        nothing_to_do("There was nothing to archive.")
    told = {
        "archived": done.archived,
        "removed_files": done.removed_files,
        "batches": done.batches,
        "joined_levels": done.joined_levels,
    }
    print_value(told, form(output, as_json))


def _tell_blocked(result: ArchiveResult) -> None:
    limit = result.plan.blocked_by
    if limit is not None:
        cause = f" ({limit.cause})" if limit.cause else ""
        note(f"Fewer go than should, because of {limit.kind.value}{cause}.")
