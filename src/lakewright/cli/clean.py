"""`lakewright clean`: deleting the files of old slices."""

from __future__ import annotations

import pyarrow as pa
import typer

from lakewright.cli.arguments import AsJson, Lock, OutputOption, Settings, Uri, settings_of
from lakewright.cli.output import Output, print_table, print_value
from lakewright.cli.running import form, nothing_to_do, plans_of, services_of
from lakewright.format.cleaned_files import files_of_plan

app = typer.Typer(no_args_is_help=True)


@app.command()
def plan(
    uri: Uri, setting: Settings = None, as_json: AsJson = False, output: OutputOption = Output.TEXT
) -> None:
    """Show which files `run` would delete now, without changing anything.

    The files of the last 10 commits stay, unless a setting says otherwise; so do files that a
    savepoint keeps or a pending plan is going to read.

    Example: lakewright clean plan /data/trips -s hoodie.clean.commits.retained=24
    """
    found = plans_of(uri).clean.plan(settings_of(setting))
    if found is None:
        nothing_to_do("There is nothing to clean.")
    files = [
        {"partition": partition, "file": name}
        for partition, names in sorted(files_of_plan(found).items())
        for name in names
    ]
    print_table(pa.Table.from_pylist(files), form(output, as_json))


@app.command()
def run(
    uri: Uri,
    lock: Lock = None,
    setting: Settings = None,
    as_json: AsJson = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Roll back dead writes, finish pending cleans, then clean what is old.

    Safe to run in any number of processes, beside writers. What a clean deleted cannot come back:
    queries of older states, rollbacks and restores end there. Look with `clean plan` first.
    """
    done = services_of(uri, lock).clean.run(settings_of(setting))
    if not done.executed and not done.rolled_back:
        nothing_to_do("There was nothing to clean.")
    told = {
        "cleans": [instant for instant, _ in done.executed],
        "files_deleted": done.files_deleted,
        "rolled_back": list(done.rolled_back),
    }
    print_value(told, form(output, as_json))
