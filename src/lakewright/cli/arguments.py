"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from lakewright.cli.output import Output

Uri = Annotated[
    str, typer.Argument(help="The table: a path, file:, s3://, s3a://, gs:// or abfs:// URI.")
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Form of the data.")]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        help="An instant, a date-time ('2025-01-31 12:00:00'), or savepoint:<instant|latest>.",
    ),
]
