"""The `lakewright` command: noun, then verb, in Hudi's words.

Exit codes: 0 done, 1 failed, 2 usage, 3 nothing to do, 4 conflict, 5 the table needs action.
"""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from lakewright import __version__
from lakewright.cli import (
    archive,
    clean,
    compaction,
    demo,
    files,
    hfile,
    log,
    metadata,
    restore,
    rollback,
    savepoint,
    table,
    timeline,
)
from lakewright.cli.output import note
from lakewright.errors import ConfigError, ConflictError, LakewrightError

app = typer.Typer(
    name="lakewright",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Read, inspect and service Apache Hudi tables (table versions 6, 8 and 9), without Spark "
    "or Java.",
    epilog="Data goes to stdout, the rest to stderr. Every command has --output text|json|csv.",
)
app.add_typer(table.app, name="table", help="A table as a whole: properties, schema, rows.")
app.add_typer(timeline.app, name="timeline", help="What happened to a table, active and archived.")
app.add_typer(files.app, name="files", help="File groups, slices and files.")
app.add_typer(log.app, name="log", help="Log files: blocks and records.")
app.add_typer(hfile.app, name="hfile", help="HFiles of the metadata table.")
app.add_typer(
    metadata.app, name="metadata", help="The metadata table: listing, statistics, indexes."
)
app.add_typer(compaction.app, name="compaction", help="Merging logs into base files.")
app.add_typer(clean.app, name="clean", help="Deleting files that no reader needs any more.")
app.add_typer(savepoint.app, name="savepoint", help="Commits whose files are kept.")
app.add_typer(archive.app, name="archive", help="Moving old instants off the active timeline.")
app.add_typer(rollback.app, name="rollback", help="Undoing one write, or an attempt at a plan.")
app.add_typer(restore.app, name="restore", help="Going back to a savepoint or commit.")
app.command("demo")(demo.run)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"lakewright {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version


def exit_code(error: LakewrightError) -> int:
    """The exit code of an error: 2 usage, 4 conflict, 1 anything else."""
    if isinstance(error, ConfigError):
        return 2
    return 4 if isinstance(error, ConflictError) else 1


def main() -> None:
    """Run the command line; errors become two readable lines and an exit code."""
    logging.basicConfig(format="warning: %(message)s", level=logging.WARNING)
    try:
        app()
    except LakewrightError as error:
        where = ", ".join(f"{k}={v}" for k, v in error.context.items())
        note(f"error [{error.code}]: {error.message}{f' ({where})' if where else ''}")
        note(f"hint: {error.hint}")
        sys.exit(exit_code(error))
    except BrokenPipeError:
        sys.exit(0)


if __name__ == "__main__":
    main()
