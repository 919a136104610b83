"""`lakewright compaction`: merging the logs of a MERGE_ON_READ table into base files."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
import typer

from lakewright.cli.arguments import AsJson, Lock, OutputOption, Settings, Uri, settings_of
from lakewright.cli.output import Output, print_table, print_value
from lakewright.cli.running import form, nothing_to_do, plans_of, services_of

app = typer.Typer(no_args_is_help=True)


@app.command()
def plan(
    uri: Uri, setting: Settings = None, as_json: AsJson = False, output: OutputOption = Output.TEXT
) -> None:
    """Show what `schedule` would plan now, without changing anything.

    Example: lakewright compaction plan /data/trips -s hoodie.compact.inline.max.delta.commits=1
    """
    found = plans_of(uri).compaction.plan(settings_of(setting))
    if found is None:
        nothing_to_do("Nothing is due.")
    slices = [
        {
            "partition": operation.partition_path,
            "file_id": operation.file_id,
            "base_file": operation.data_file_path,
            "logs": len(operation.delta_file_paths or ()),
            "log_bytes": int((operation.metrics or {}).get("TOTAL_LOG_FILES_SIZE", 0)),
        }
        for operation in found.operations or ()
    ]
    print_table(pa.Table.from_pylist(slices), form(output, as_json))


@app.command()
def schedule(
    uri: Uri, lock: Lock = None, setting: Settings = None, output: OutputOption = Output.JSON
) -> None:
    """Put a plan on the timeline, if one is due; any process may execute it later."""
    instant = services_of(uri, lock).compaction.schedule(settings_of(setting))
    if instant is None:
        nothing_to_do("Nothing is due.")
    print_value({"instant": instant}, output)


@app.command()
def run(
    uri: Uri,
    instant: Annotated[
        str | None, typer.Option("--instant", help="Execute this plan and nothing else.")
    ] = None,
    lock: Lock = None,
    setting: Settings = None,
    as_json: AsJson = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Execute pending plans, then schedule and execute what is due.

    Safe to run in any number of processes: a plan that another one works on is left to it, and
    what a dead one left is rolled back and done again.
    """
    service = services_of(uri, lock).compaction
    options = settings_of(setting)
    done = [service.execute(instant, options)] if instant else service.run(options)
    if not done:
        nothing_to_do("Nothing was to be done, or others do it.")
    rows = [one.to_dict() for one in done]
    print_table(pa.Table.from_pylist(rows), form(output, as_json))
