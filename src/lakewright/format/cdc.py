"""Change data: what a table keeps of it, and from what each change can be told.

A table that keeps change data writes change logs (`.cdc`) beside the base files it rewrites. They
hold one record per changed row: only operation and key, or the image before the change too, or both
images. What the log lacks is read from the base files. Writes that make no change log are inferred:
a new file group is all inserts, a log file is compared with what was there before, and a replaced
group is all deletes.
"""

from __future__ import annotations

from enum import Enum, StrEnum

import pyarrow as pa

from lakewright.errors import FormatError
from lakewright.format.file_names import BaseFileName, parse_data_file
from lakewright.format.records.commit import WriteStat

__all__ = [
    "CHANGING_OPERATIONS",
    "ChangeCase",
    "LoggingMode",
    "Operation",
    "case_of",
    "change_log_schema",
]

CHANGING_OPERATIONS = frozenset(
    {
        "INSERT",
        "INSERT_PREPPED",
        "UPSERT",
        "UPSERT_PREPPED",
        "BULK_INSERT",
        "BULK_INSERT_PREPPED",
        "DELETE",
        "DELETE_PREPPED",
        "DELETE_PARTITION",
        "INSERT_OVERWRITE",
        "INSERT_OVERWRITE_TABLE",
        "BOOTSTRAP",
    }
)
"""Operations that change rows; services only move them."""

_DELETES = frozenset({"DELETE", "DELETE_PREPPED"})


class Operation(StrEnum):
    """What happened to a row."""

    INSERT = "i"
    UPDATE = "u"
    DELETE = "d"


class LoggingMode(Enum):
    """What a change log holds (`hoodie.table.cdc.supplemental.logging.mode`)."""

    OP_KEY_ONLY = "OP_KEY_ONLY"
    DATA_BEFORE = "DATA_BEFORE"
    DATA_BEFORE_AFTER = "DATA_BEFORE_AFTER"

    @classmethod
    def of(cls, stored: str) -> LoggingMode:
        """The mode a table stores, in any case of letters."""
        try:
            return cls(stored.upper())
        except ValueError as error:
            raise FormatError(
                f"The table logs changes in an unknown mode, {stored!r}.",
                hint=f"Known modes are {', '.join(m.value for m in cls)}.",
                context={"mode": stored},
            ) from error


class ChangeCase(Enum):
    """Where the changes of one written file come from."""

    CHANGE_LOG = "change log"
    NEW_FILE = "all rows of a new base file were inserted"
    EMPTIED_FILE = "all rows of the previous base file were deleted"
    LOG_FILE = "a log file, compared with what was there before"
    REPLACED_GROUP = "all rows of a replaced file group were deleted"


def case_of(stat: WriteStat, operation: str | None) -> ChangeCase:
    """How to tell the changes of one written file; `FormatError` if nothing tells them."""
    if stat.cdc_stats:
        return ChangeCase.CHANGE_LOG
    name = (stat.path or "").rsplit("/", 1)[-1]
    if not isinstance(parse_data_file(name), BaseFileName):
        return ChangeCase.LOG_FILE
    writes, deletes = stat.num_writes or 0, stat.num_deletes or 0
    if operation in _DELETES and writes == 0 and deletes != 0:
        return ChangeCase.EMPTIED_FILE
    if not stat.num_update_writes and writes == (stat.num_inserts or 0):
        return ChangeCase.NEW_FILE
    raise FormatError(
        f"The base file {name} was rewritten without a change log.",
        hint="Change data was probably switched on after this commit; begin after it.",
        context={"path": stat.path},
    )


def change_log_schema(mode: LoggingMode, image: pa.DataType) -> pa.Schema:
    """The columns of a change log whose images are of a type."""
    op = pa.field("op", pa.string())
    if mode is LoggingMode.DATA_BEFORE_AFTER:
        return pa.schema([op, ("ts_ms", pa.string()), ("before", image), ("after", image)])
    if mode is LoggingMode.DATA_BEFORE:
        return pa.schema([op, ("record_key", pa.string()), ("before", image)])
    return pa.schema([op, ("record_key", pa.string())])
