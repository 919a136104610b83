"""How commands print: tables and values as text, JSON or CSV; data on stdout, notes on stderr."""

from __future__ import annotations

import base64
import csv
import io
import json
import sys
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table as RichTable

TEXT_CELL_MAX = 80
UNBOUNDED_WIDTH = 1 << 16
"""Text that goes to a file or a pipe is not folded to a terminal's width."""


class Output(StrEnum):
    """The form of a command's data."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


def plain(value: Any) -> Any:
    """A value as JSON can hold it: exact text for decimals and times, base64 for bytes."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | timedelta):
        return str(value)
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


def _cell(value: Any) -> str:
    if value is None:
        return ""
    shown = plain(value)
    text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
    return text if len(text) <= TEXT_CELL_MAX else text[: TEXT_CELL_MAX - 1] + "…"


def print_table(table: pa.Table, output: Output, *, title: str | None = None) -> None:
    """Print an Arrow table."""
    print_batches(table.schema.names, table.to_batches(), output, title=title)


def print_batches(
    names: list[str],
    batches: Iterable[pa.RecordBatch],
    output: Output,
    *,
    title: str | None = None,
) -> None:
    """Print batches as they come."""
    print_rows(names, (row for b in batches for row in b.to_pylist()), output, title=title)


def print_rows(
    names: list[str],
    rows: Iterable[Mapping[str, Any]],
    output: Output,
    *,
    title: str | None = None,
) -> None:
    """Print rows as they come; JSON is one object per line, so that it can be streamed."""
    if output is Output.TEXT:
        _print_text(names, rows, title)
    elif output is Output.JSON:
        for row in rows:
            sys.stdout.write(json.dumps(plain(row), ensure_ascii=False) + "\n")
    else:
        _print_csv(names, rows)


def _print_text(names: list[str], rows: Iterable[Mapping[str, Any]], title: str | None) -> None:
    shown = RichTable(title=title, title_justify="left", header_style="bold", box=None)
    for name in names:
        shown.add_column(name, overflow="fold")
    count = 0
    for row in rows:
        shown.add_row(*[_cell(v) for v in row.values()])
        count += 1
    width = None if sys.stdout.isatty() else UNBOUNDED_WIDTH
    console = Console(width=width, markup=False, highlight=False)
    console.print(shown)
    note(f"{count} row{'' if count == 1 else 's'}")


def _print_csv(names: list[str], rows: Iterable[Mapping[str, Any]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow(["" if v is None else _csv_cell(v) for v in row.values()])


def _csv_cell(value: Any) -> str:
    shown = plain(value)
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


def print_value(value: Mapping[str, Any], output: Output, *, text: str | None = None) -> None:
    """Print one value: its own text form, one JSON object, or key/value CSV."""
    if output is Output.JSON:
        sys.stdout.write(json.dumps(plain(value), ensure_ascii=False, indent=2) + "\n")
    elif output is Output.CSV:
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(["key", "value"])
        writer.writerows([k, "" if v is None else _csv_cell(v)] for k, v in value.items())
        sys.stdout.write(buffer.getvalue())
    else:
        lines = [f"{k:<22}{_cell(v)}".rstrip() for k, v in value.items()]
        sys.stdout.write((text or "\n".join(lines)) + "\n")


def note(message: str) -> None:
    """Say something to the person, not to the program."""
    sys.stderr.write(message + "\n")
