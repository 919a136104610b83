"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from lakewright.cli.output import Output
from lakewright.errors import OptionError

Uri = Annotated[
    str, typer.Argument(help="The table: a path, file:, s3://, s3a://, gs:// or abfs:// URI.")
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Form of the data.")]
AsJson = Annotated[bool, typer.Option("--json", help="The same as --output json.")]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        help="An instant, a date-time ('2025-01-31 12:00:00'), or savepoint:<instant|latest>.",
    ),
]

Lock = Annotated[
    str | None,
    typer.Option(
        "--lock",
        help="The lock that the table's other writers use, such as file; needed if there are any.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "-s", help="An option under Hudi's name, as key=value; may be given repeatedly."
    ),
]


Instant = Annotated[str, typer.Argument(help="The requested time of the instant.")]


def settings_of(pairs: list[str] | None) -> dict[str, str]:
    """The options of a command; `OptionError` for one that is no pair."""
    found: dict[str, str] = {}
    for pair in pairs or ():
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise OptionError(
                f"{pair!r} is not key=value.",
                hint="Give options as -s hoodie.compact.inline.max.delta.commits=1.",
                context={"option": pair},
            )
        found[key] = value
    return found
